import type { QueryResultRow } from 'pg';

import type {
	Caller,
	ClaimAnswer,
	ClaimItem,
	ClaimPolicy,
	CompleteItem,
	ExtendItem,
	FailItem,
	FailedWork,
	HoldAnswer,
	HoldItem,
	PassedEvent,
	PassedItem,
	ReferenceItem,
} from './contract';
import type { LedgerConnection } from './connection';
import { LedgerError, isLedgerError } from './errors';
import { isStorableText, readableText, resultText } from './json-text';
import { quotedIdentifier } from './settings';
import {
	CLAIM_COLUMNS,
	HOLD_COLUMNS,
	NOTHING_KNOWN,
	REPEATING_CLAIM_COLUMNS,
	SAME_RESULT,
	claimAnswer,
	holdAnswers,
	inOrder,
	shareResults,
	utc,
	type ClaimRow,
	type HoldRow,
} from './work-answers';

/** A statement carries at most this many works and about this much text. */
const MAX_CHUNK_ITEMS = 5_000;
const MAX_CHUNK_CHARACTERS = 16 * 1024 * 1024;
const MAX_ERROR_LENGTH = 4_000;
const MAX_REFERENCE_LENGTH = 2_000;

/** Polls while waiting for another owner's result. */
const FIRST_POLL_MS = 150;
const LAST_POLL_MS = 1_000;

export interface ClaimOptions {
	/**
	 * The tokens were made for this call. Then what a failed call may have claimed is released again. Leave it out when a
	 * call is sent again: the claim of the first sending stands.
	 */
	freshTokens?: boolean;
}

export interface WaitOptions extends ClaimOptions {
	/** Seconds; 0 does not wait. */
	seconds: number;
	/** Stops the wait (a cancelled execution). */
	signal?: AbortSignal;
}

/** A claim of this execution that is still open. */
export interface OpenClaim {
	workId: string;
	token: string;
	kind: string;
	key: string | null;
	lockedUntil: string;
}

/**
 * The works of one ledger: a typed client of the SQL functions, where the contract lives. Every method answers item by
 * item in the order given, and throws `LedgerError` only for failures of the whole call: bad options, PostgreSQL out of
 * reach. Repeating a call with the same tokens is safe until the next
 * step of the same work.
 */
export class Works {
	private readonly schema: string;

	/** @internal */
	constructor(private readonly connection: LedgerConnection) {
		this.schema = quotedIdentifier(connection.settings.schema);
	}

	/**
	 * Claims any number of works, one round trip per 5,000. With `freshTokens`, what a call claimed before it failed is
	 * released again (or its lease ends): a throw then never strands a claim.
	 */
	async claim(
		items: ClaimItem[],
		policy: ClaimPolicy,
		{ freshTokens = false }: ClaimOptions = {},
	): Promise<ClaimAnswer[]> {
		const options = claimOptions(policy);
		const answers: ClaimAnswer[] = [];
		let sent = 0;
		const claimAll = async () => {
			for (const chunk of chunks(items, (item) => item.payload?.length ?? 0)) {
				sent += chunk.length;
				answers.push(...(await this.claimChunk(chunk, options)));
			}
			return answers;
		};
		return await claimAll().catch(async (error: unknown) => {
			if (freshTokens) {
				// the chunk that failed may have been committed although its answer was lost
				const known = isLedgerError(error) && error.answerLost ? sent : answers.length;
				await this.undo(
					items
						.slice(0, known)
						.filter((_, i) => i >= answers.length || answers[i].status === 'claimed'),
					policy,
				);
			}
			throw error;
		});
	}

	/**
	 * Claims, and waits for the result of works that run elsewhere: in short polls, no connection held between. Ends for a
	 * work when it is no longer running under a live lease; then the whole contract applies anew, and it may be claimed.
	 * Never waits for a work held by this execution or by the one that called it: that would wait for itself. Throws
	 * `LedgerError` (`cancelled`) when the signal ends the wait.
	 */
	async claimAndWait(
		items: ClaimItem[],
		policy: ClaimPolicy,
		wait: WaitOptions,
	): Promise<ClaimAnswer[]> {
		const answers = await this.claim(items, policy, wait);
		return await this.awaitOthers(answers, items, policy, wait).catch(async (error: unknown) => {
			// what was claimed before the wait must not be stranded by a failure in it
			if (wait.freshTokens === true) {
				await this.undo(
					items.filter((_, i) => answers[i].status === 'claimed'),
					policy,
				);
			}
			throw error;
		});
	}

	/** Best effort: with the ledger out of reach the leases end by themselves. */
	private async undo(held: ClaimItem[], policy: ClaimPolicy): Promise<void> {
		if (held.length > 0) await this.release(held, policy.caller).catch(() => undefined);
	}

	/** Polls what runs elsewhere, puts the newer answers in place, and hands them back. */
	private async awaitOthers(
		answers: ClaimAnswer[],
		items: ClaimItem[],
		policy: ClaimPolicy,
		wait: WaitOptions,
	): Promise<ClaimAnswer[]> {
		// looked for before anything is collected: a batch has thousands
		if (!answers.some(({ status }) => status === 'in_progress')) return answers;
		const deadline = performance.now() + wait.seconds * 1000;
		let pause = FIRST_POLL_MS;
		for (;;) {
			// a key that comes twice in one batch: the later item would wait for the earlier one
			const own = new Set(answers.flatMap((a) => (a.status === 'claimed' ? [a.workId] : [])));
			const waiting = answers.flatMap((answer, i) =>
				answer.status === 'in_progress' &&
				!own.has(answer.workId) &&
				!isHeldByCaller(answer, policy.caller ?? {})
					? [i]
					: [],
			);
			const left = deadline - performance.now();
			if (waiting.length === 0 || left <= 0) return answers;
			await new Promise((resolve) => setTimeout(resolve, Math.min(pause, left)));
			if (wait.signal?.aborted === true) {
				throw new LedgerError(
					'cancelled',
					'The execution was cancelled while it waited for running work.',
					'What it had claimed was released.',
				);
			}
			pause = Math.min(pause * 1.5, LAST_POLL_MS);
			const polled = await this.claim(
				waiting.map((i) => items[i]),
				{ ...policy, poll: true },
				wait,
			);
			waiting.forEach((i, k) => {
				answers[i] = polled[k];
			});
		}
	}

	async complete(items: CompleteItem[], caller: Caller = {}): Promise<HoldAnswer[]> {
		const options = holdOptions(caller);
		// chunk by chunk: the texts of all results together may fill the memory
		function* prepared() {
			for (const item of items) {
				const { workId, token, externalRef = null } = item;
				const { text, warnings } = resultText(item.result);
				const problem = referenceProblem(externalRef);
				yield {
					workId,
					token,
					text,
					externalRef: problem === null ? externalRef : null,
					// the effect has landed: it is completed all the same
					warnings:
						problem === null ? warnings : [...warnings, `${problem} No reference was stored.`],
				};
			}
		}
		const answers: HoldAnswer[] = [];
		for (const chunk of chunks(prepared(), (item) => item.text?.length ?? 0)) {
			const rows =
				chunk.length === 1
					? await this.askForOne<HoldRow>(
							'complete_work($1::text, $2::uuid, $3::json, $4::text, $5::jsonb)',
							[chunk[0].workId, chunk[0].token, chunk[0].text, chunk[0].externalRef, options],
						)
					: await this.ask<HoldRow>(
							HOLD_COLUMNS,
							'complete_works($1::text[], $2::uuid[], $3::json[], $4::text[], $5::jsonb)',
							[
								column(chunk, 'workId'),
								column(chunk, 'token'),
								column(chunk, 'text'),
								column(chunk, 'externalRef'),
								options,
							],
						);
			holdAnswers(rows, chunk.length).forEach((answer, i) => {
				answer.warnings = chunk[i].warnings;
				answers.push(answer);
			});
		}
		return answers;
	}

	/** Writes to the decision log, and to nothing else, what became of items that shadow mode let through without a claim. */
	async passShadow(items: PassedItem[], event: PassedEvent, caller: Caller = {}): Promise<void> {
		function* prepared() {
			for (const { externalRef = null, result, ...item } of items) {
				const reference = referenceProblem(externalRef) === null ? externalRef : null;
				yield { ...item, reference, text: resultText(result).text };
			}
		}
		for (const chunk of chunks(prepared(), (item) => item.text?.length ?? 0)) {
			await this.connection.query(
				`select ${this.schema}.pass_shadow_works($1::text[], $2::uuid[], $3::text, $4::json[], $5::text[], $6::jsonb)`,
				[
					column(chunk, 'workId'),
					column(chunk, 'nonce'),
					event,
					column(chunk, 'text'),
					column(chunk, 'reference'),
					holdOptions(caller),
				],
			);
		}
	}

	async fail(items: FailItem[], caller: Caller = {}): Promise<HoldAnswer[]> {
		return await this.hold(
			items,
			caller,
			'fail_works($1::text[], $2::uuid[], $3::text[], $4::text[], $5::boolean[], $6::jsonb)',
			(chunk) => [
				chunk.map((item) => readableText(String(item.error ?? ''), MAX_ERROR_LENGTH)),
				column(chunk, 'landed'),
				chunk.map((item) => item.permanent ?? false),
			],
		);
	}

	/** Records what the effect is called at the target, the moment it has landed. What is no reference is refused. */
	async recordReference(items: ReferenceItem[], caller: Caller = {}): Promise<HoldAnswer[]> {
		const problems = items.map(({ externalRef }) =>
			externalRef === '' ? 'externalRef is empty.' : referenceProblem(externalRef),
		);
		const recorded = await this.hold(
			items.filter((_, i) => problems[i] === null),
			caller,
			'record_references($1::text[], $2::uuid[], $3::text[], $4::jsonb)',
			(chunk) => [column(chunk, 'externalRef')],
		);
		const inTurn = recorded.values();
		return items.map(({ workId }, i) =>
			problems[i] === null
				? (inTurn.next().value as HoldAnswer)
				: { ...NOTHING_KNOWN, workId, status: 'refused', reason: problems[i] },
		);
	}

	async extend(items: ExtendItem[], caller: Caller = {}): Promise<HoldAnswer[]> {
		return await this.hold(
			items,
			caller,
			'extend_leases($1::text[], $2::uuid[], $3::double precision[], $4::jsonb)',
			(chunk) => [chunk.map((item) => item.leaseSeconds ?? null)],
		);
	}

	/** Undoes claims, as if they had never been made. */
	async release(items: HoldItem[], caller: Caller = {}): Promise<HoldAnswer[]> {
		return await this.hold(
			items,
			caller,
			'release_works($1::text[], $2::uuid[], $3::jsonb)',
			() => [],
		);
	}

	/**
	 * Settles the running works of executions that are over ("may have landed"), those of their sub-workflows one level
	 * down included. Repeating it settles nothing more.
	 */
	async failExecution(
		instance: string | null,
		executions: string[],
		error: string,
		caller: Caller = {},
	): Promise<FailedWork[]> {
		const rows = await this.connection.query<{
			work_id: string;
			kind: string;
			key: string | null;
			state: FailedWork['state'];
			attempt: number;
			next_attempt_at: string | null;
			child: boolean;
		}>(
			`select work_id, kind, key, state, attempt, to_json(next_attempt_at) as next_attempt_at, child
			from ${this.schema}.fail_execution($1::text, $2::text[], $3::text, $4::jsonb)`,
			[instance, executions, readableText(error, MAX_ERROR_LENGTH), holdOptions(caller)],
		);
		return rows.map((row) => ({
			workId: row.work_id,
			kind: row.kind,
			key: row.key,
			state: row.state,
			attempt: row.attempt,
			nextAttemptAt: utc(row.next_attempt_at),
			child: row.child,
		}));
	}

	/** The running works an execution holds, oldest first; at most `limit`. */
	async openClaims(
		instance: string | null,
		execution: string,
		limit: number,
	): Promise<OpenClaim[]> {
		const rows = await this.connection.query<{
			work_id: string;
			token: string;
			kind: string;
			key: string | null;
			locked_until: string;
		}>(
			`select work_id, token, kind, key, to_json(locked_until) as locked_until
			from ${this.schema}.open_claims($1::text, $2::text, $3::integer)`,
			[instance, execution, limit],
		);
		return rows.map((row) => ({
			workId: row.work_id,
			token: row.token,
			kind: row.kind,
			key: row.key,
			lockedUntil: utc(row.locked_until) as string,
		}));
	}

	private async claimChunk(items: ClaimItem[], options: string): Promise<ClaimAnswer[]> {
		const details = items.map(claimDetail);
		const keys = items.map((item) => readableText(item.key, 4_000));
		const payloads = items.map((item) => item.payload ?? null);
		const repeats = new Set(items.map((item) => item.workId)).size < items.length;
		const rows =
			items.length === 1
				? await this.askForOne<ClaimRow>(
						'claim_work($1::text, $2::text, $3::uuid, $4::json, $5::jsonb, $6::jsonb)',
						[items[0].workId, keys[0], items[0].token, payloads[0], details[0], options],
					)
				: await this.ask<ClaimRow>(
						repeats ? REPEATING_CLAIM_COLUMNS : CLAIM_COLUMNS,
						`claim_works($1::text[], $2::text[], $3::uuid[], $4::json[], $5::jsonb[], $6::jsonb)${repeats ? ` ${SAME_RESULT}` : ''}`,
						[
							items.map((item) => item.workId),
							keys,
							items.map((item) => item.token),
							payloads,
							details,
							options,
						],
					);
		return shareResults(inOrder(rows, items.length)).map(claimAnswer);
	}

	private async hold<Item extends HoldItem>(
		items: Item[],
		caller: Caller,
		call: string,
		columns: (chunk: Item[]) => unknown[][],
	): Promise<HoldAnswer[]> {
		const answers: HoldAnswer[] = [];
		for (const chunk of chunks(items, () => 0)) {
			const rows = await this.ask<HoldRow>(HOLD_COLUMNS, call, [
				column(chunk, 'workId'),
				column(chunk, 'token'),
				...columns(chunk),
				holdOptions(caller),
			]);
			answers.push(...holdAnswers(rows, chunk.length));
		}
		return answers;
	}

	private async ask<Row extends QueryResultRow>(
		columns: string,
		call: string,
		values: unknown[],
	): Promise<Row[]> {
		return await this.connection.query<Row>(
			`select ${columns} from ${this.schema}.${call}`,
			values,
		);
	}

	/** One answer as one JSON value: planning sixteen columns took a tenth of a single call. */
	private async askForOne<Row>(call: string, values: unknown[]): Promise<Row[]> {
		const rows = await this.connection.query<{ answer: Row }>(
			`select to_json(${this.schema}.${call}) as answer`,
			values,
		);
		return rows.map(({ answer }) => answer);
	}
}

const FOREVER = JSON.stringify({ mode: 'forever' });

function claimOptions(policy: ClaimPolicy): string {
	for (const name of [
		'leaseSeconds',
		'maxAttempts',
		'backoffBaseSeconds',
		'backoffCapSeconds',
	] as const) {
		const value = policy[name];
		if (
			value !== undefined &&
			!(name === 'maxAttempts' ? Number.isInteger(value) : Number.isFinite(value))
		) {
			// JSON turns NaN into null, and null would mean the default
			throw new LedgerError(
				'bad_input',
				`${name} is ${String(value)}.`,
				'Use a number, or leave it out for the default.',
			);
		}
	}
	// reading an option costs the server a few microseconds in every claim: what is the contract's default is left out
	const unless = <T>(usual: T, given: T | undefined) => (given === usual ? undefined : given);
	return JSON.stringify({
		kind: policy.kind,
		version: unless('v1', policy.version),
		window: JSON.stringify(policy.window) === FOREVER ? undefined : policy.window,
		on_lapse: unless('run_again', policy.onLapse),
		lease_s: unless(3600, policy.leaseSeconds),
		max_attempts: unless(5, policy.maxAttempts),
		backoff_base_s: unless(30, policy.backoffBaseSeconds),
		backoff_cap_s: unless(3600, policy.backoffCapSeconds),
		caller: callerFields(policy.caller ?? {}),
		poll: policy.poll === true ? true : undefined,
		shadow: policy.shadow === true ? true : undefined,
	});
}

function holdOptions(caller: Caller): string {
	return JSON.stringify(callerOptions(caller));
}

/** The options every function takes: who asks, in SQL's spelling. */
export function callerOptions(caller: Caller): { caller: Record<string, string> } {
	return { caller: callerFields(caller) };
}

/** By SQL's names. */
const CALLER_FIELDS = Object.entries({
	instance: 'instance',
	workflow: 'workflow',
	workflow_name: 'workflowName',
	execution: 'execution',
	parent_execution: 'parentExecution',
	node: 'node',
	mode: 'mode',
	run_id: 'runId',
} satisfies Record<string, keyof Caller>);

function callerFields(caller: Caller): Record<string, string> {
	const fields: Record<string, string> = {};
	for (const [name, from] of CALLER_FIELDS) {
		const value = caller[from];
		if (value !== undefined && value !== '') fields[name] = readableText(value, 500);
	}
	return fields;
}

function claimDetail(item: ClaimItem): string | null {
	const { decisionKey } = item;
	const match =
		item.match === undefined || Object.keys(item.match).length === 0 ? undefined : item.match;
	return match === undefined && decisionKey === undefined
		? null
		: JSON.stringify({ match, decision_key: decisionKey });
}

/** A reference is compared and sent on, so it is kept byte-equal or not at all. */
export function referenceProblem(reference: unknown): string | null {
	if (reference === null || reference === undefined) return null;
	if (typeof reference !== 'string') return 'externalRef is no text.';
	if (!isStorableText(reference)) return 'externalRef holds a NUL character or half an emoji.';
	return reference.length > MAX_REFERENCE_LENGTH
		? `externalRef is longer than ${MAX_REFERENCE_LENGTH} characters.`
		: null;
}

function isHeldByCaller(answer: ClaimAnswer, caller: Caller): boolean {
	const holder = answer.owner?.execution;
	if (holder === undefined || answer.owner?.instance !== caller.instance) return false;
	return holder === caller.execution || holder === caller.parentExecution;
}

/** Pieces of at most 5,000 items and about 16 MB of text, each for one statement. */
export function* chunks<Item>(
	items: Iterable<Item>,
	characters: (item: Item) => number,
): Generator<Item[]> {
	let chunk: Item[] = [];
	let size = 0;
	for (const item of items) {
		const length = characters(item);
		if (
			chunk.length > 0 &&
			(chunk.length >= MAX_CHUNK_ITEMS || size + length > MAX_CHUNK_CHARACTERS)
		) {
			yield chunk;
			chunk = [];
			size = 0;
		}
		chunk.push(item);
		size += length;
	}
	if (chunk.length > 0) yield chunk;
}

function column<Item, Name extends keyof Item>(items: Item[], name: Name): Array<Item[Name]> {
	return items.map((item) => item[name]);
}
