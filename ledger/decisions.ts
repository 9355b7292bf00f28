import type { Caller, Decision } from './contract';
import type { LedgerConnection } from './connection';
import type { DecisionParts } from './decision-key';
import { LedgerError, isLedgerError } from './errors';
import { readableText } from './json-text';
import { quotedIdentifier } from './settings';
import { inOrder, utc } from './work-answers';
import { callerOptions, chunks } from './works';

/** `open`: nobody decides and nothing is stored; an answer was refused, or a person expired it. */
export type DecisionState = 'open' | 'deciding' | 'stored' | 'proposed' | 'approved' | 'rejected';

/** What is the same for all look-ups of a call. */
export interface LookUpPolicy {
	/** What is decided, in a word. */
	kind: string;
	/** Only what was approved is replayed, and what is stored under this look-up is a proposal. */
	needsApproval?: boolean;
	/** How long the one who decides owns the question. Default 300. */
	leaseSeconds?: number;
	caller?: Caller;
}

export interface LookUpItem {
	/** sha256, 64 lower-case hex digits. */
	decisionKey: string;
	/** A fresh UUID, made before the statement is sent; sending it again is answered with the first answer. */
	token: string;
	parts: DecisionParts;
}

export interface LookUpWait {
	/** Seconds; 0 does not wait. */
	seconds: number;
	/** Stops the wait (a cancelled execution). */
	signal?: AbortSignal;
}

export interface DecisionItem {
	decisionKey: string;
	/** `null` is of no look-up. */
	token: string | null;
}

export interface StoreItem extends DecisionItem {
	/** JSON text of the value: kept and handed out byte for byte. */
	valueText: string;
	/** What the model said, word for word, as a JSON text. */
	rawText: string;
	needsApproval?: boolean;
	/** Seconds from now; `null`: for ever. */
	ttlSeconds?: number | null;
	inputTokens?: number | null;
	outputTokens?: number | null;
	/** In the currency of whoever enters it. */
	cost?: number | null;
	/** `null`: from the look-up's answer to now. */
	latencyMs?: number | null;
}

export interface FreeItem extends DecisionItem {
	rawText: string;
	/** Why the answer cannot be used. */
	reason: string;
}

export type DecisionOutcome =
	/** Stored, and by choice approved: apply the value. */
	| 'replay'
	/** Ask the model now; the token is the right to store its answer. */
	| 'decide'
	/** Another one asks the model right now. */
	| 'busy'
	/** It waits for an approval. */
	| 'waiting'
	/** Its value is not the one that was stored: it is not handed out. */
	| 'altered'
	| 'stored'
	| 'proposed'
	/** Another answer was first, and comes back. */
	| 'superseded'
	| 'not_stored'
	| 'approved'
	| 'rejected'
	/** It was judged before, otherwise or by somebody else; `state` says how. */
	| 'stands'
	| 'expired'
	| 'refused';

export interface DecisionAnswer {
	decisionKey: string;
	outcome: DecisionOutcome;
	/** After this answer; `null` when the ledger holds no such decision. */
	state: DecisionState | null;
	generation: number | null;
	/** Of those who decide, counted within a generation. */
	attempt: number | null;
	/** Only with `decide`. */
	token: string | null;
	lockedUntil: string | null;
	/** undefined: there is none, or it may not be handed out. */
	value: unknown;
	/** sha256 of the value's JSON text, hex. */
	valueHash: string | null;
	/** Why an answer was not stored, a verdict given, or this call refused. */
	reason: string | null;
	decidedAt: string | null;
	expiresAt: string | null;
	/** Who decides, or whose answer is stored. */
	owner: Caller | null;
	approver: string | null;
	judgedAt: string | null;
	/** The same call was answered before; nothing changed. */
	repeated: boolean;
}

/** A decision as the ledger shows it to people. Times are UTC ISO text. */
export interface DecisionReport {
	decisionKey: string;
	kind: string;
	/** null in a list. */
	parts: DecisionParts | null;
	state: DecisionState;
	generation: number;
	attempt: number;
	lockedUntil: string | null;
	/** Being decided, but the lease has ended: the next look-up decides. */
	lapsed: boolean;
	needsApproval: boolean;
	/** null in a list where it is larger than 16 kB. */
	value: unknown;
	valueBytes: number | null;
	valueHash: string | null;
	/** The value is not the one that was stored. */
	altered: boolean;
	/** What the model said; null in a list. */
	raw: unknown;
	reason: string | null;
	inputTokens: number | null;
	outputTokens: number | null;
	cost: number | null;
	latencyMs: number | null;
	owner: Caller;
	approver: string | null;
	judgedAt: string | null;
	createdAt: string;
	updatedAt: string;
	claimedAt: string | null;
	decidedAt: string | null;
	expiresAt: string | null;
	expired: boolean;
}

export interface DecisionFilter {
	states?: DecisionState[];
	kind?: string;
	execution?: string;
}

export interface DecisionPage {
	decisions: DecisionReport[];
	/** For the next page; null on the last. */
	cursor: string | null;
}

/** Counts and sums are text: they may exceed what a number holds exactly. */
export interface DecisionStatistics {
	decisions: Array<{ kind: string; state: DecisionState; count: string }>;
	/** What was decided in the time asked for. */
	events: Array<{ kind: string; event: string; outcome: string; count: string }>;
	/** What the replays of that time would have cost. */
	saved: Array<{
		kind: string;
		calls: string;
		inputTokens: string;
		outputTokens: string;
		cost: string;
		latencyMs: string;
	}>;
	sinceSeconds: number;
}

/** A question that this execution decides. */
export interface OpenDecision {
	decisionKey: string;
	token: string;
	kind: string;
	lockedUntil: string;
}

interface AnswerRow {
	ord: number;
	decision_key: string;
	outcome: DecisionOutcome;
	state: DecisionState | null;
	generation: number | null;
	attempt: number | null;
	token: string | null;
	locked_until: string | null;
	value: unknown;
	value_hash: string | null;
	reason: string | null;
	decided_at: string | null;
	expires_at: string | null;
	owner: Caller | null;
	approver: string | null;
	judged_at: string | null;
	more: { reason?: string; repeated?: boolean };
}

/** Of look_up_decisions. */
const DEFAULT_LEASE_SECONDS = 300;
const FIRST_POLL_MS = 150;
const LAST_POLL_MS = 1_000;
const MAX_REASON_LENGTH = 4_000;
const PURGE_BATCH = 1_000;

/**
 * The decisions of one ledger: a typed client of the SQL functions, where the contract lives. Every method answers item by
 * item in the order given, and throws `LedgerError` only for failures of the whole call. Repeating a call with the same
 * tokens is safe.
 */
export class Decisions {
	private readonly schema: string;

	/** @internal */
	constructor(private readonly connection: LedgerConnection) {
		this.schema = quotedIdentifier(connection.settings.schema);
	}

	/** Looks any number of questions up, one round trip per 5,000. A throw strands no question: it is free again. */
	async lookUp(items: LookUpItem[], policy: LookUpPolicy): Promise<DecisionAnswer[]> {
		return await this.ask(items, policy, false);
	}

	/**
	 * Looks up, and waits for those who decide right now: in short polls, no connection held between. A decider that
	 * vanished is followed by one of those who wait. Who decides another of the questions waits half its lease at most. Never waits for the execution's own look-up, or that of the execution
	 * that called it. Throws `LedgerError` (`cancelled`) when the signal ends the wait.
	 */
	async lookUpAndWait(
		items: LookUpItem[],
		policy: LookUpPolicy,
		wait: LookUpWait,
	): Promise<DecisionAnswer[]> {
		const answers = await this.ask(items, policy, false);
		return await this.awaitOthers(answers, items, policy, wait).catch(async (error: unknown) => {
			await this.undo(
				items.filter((_, i) => answers[i].outcome === 'decide'),
				policy.caller,
			);
			throw error;
		});
	}

	/** Polls what others decide, puts the newer answers in place, and hands them back. */
	private async awaitOthers(
		answers: DecisionAnswer[],
		items: LookUpItem[],
		policy: LookUpPolicy,
		wait: LookUpWait,
	): Promise<DecisionAnswer[]> {
		const deadline = performance.now() + wait.seconds * 1000;
		// what this call decides itself must leave long before its lease ends
		const halfLeaseMs = (policy.leaseSeconds ?? DEFAULT_LEASE_SECONDS) * 500;
		let leaveBy = Infinity;
		for (let pause = FIRST_POLL_MS; ; pause = Math.min(pause * 1.5, LAST_POLL_MS)) {
			// a question that comes twice in one batch: the later item would wait for the earlier one
			const own = new Set(answers.flatMap((a) => (a.outcome === 'decide' ? [a.decisionKey] : [])));
			const waiting = answers.flatMap((answer, i) =>
				answer.outcome === 'busy' && !own.has(answer.decisionKey) && !isOwn(answer, policy.caller)
					? [i]
					: [],
			);
			if (own.size > 0) leaveBy = Math.min(leaveBy, performance.now() + halfLeaseMs);
			const left = Math.min(deadline, leaveBy) - performance.now();
			if (waiting.length === 0 || left <= 0) return answers;
			await new Promise((resolve) => setTimeout(resolve, Math.min(pause, left)));
			if (wait.signal?.aborted === true) {
				throw new LedgerError(
					'cancelled',
					'The execution was cancelled while it waited for a decision.',
					'What it was to decide is free again.',
				);
			}
			const polled = await this.ask(
				waiting.map((i) => items[i]),
				policy,
				true,
			);
			waiting.forEach((i, k) => {
				answers[i] = polled[k];
			});
		}
	}

	/** Stores answers. First stored wins, and everyone gets the winner back. */
	async store(items: StoreItem[], caller: Caller = {}): Promise<DecisionAnswer[]> {
		return await this.inChunks(
			items,
			'store_decisions($1::text[], $2::uuid[], $3::json[], $4::json[], $5::jsonb[], $6::jsonb)',
			(chunk) => [
				chunk.map(({ valueText }) => valueText),
				chunk.map(({ rawText }) => rawText),
				chunk.map((item) =>
					JSON.stringify({
						needs_approval: item.needsApproval ?? false,
						ttl_s: item.ttlSeconds,
						input_tokens: item.inputTokens,
						output_tokens: item.outputTokens,
						cost: item.cost,
						latency_ms: item.latencyMs,
					}),
				),
				JSON.stringify(callerOptions(caller)),
			],
			({ valueText, rawText }) => valueText.length + rawText.length,
		);
	}

	/** Says that the answers cannot be used: their keys are free at once. Where another was stored, it comes back. */
	async free(items: FreeItem[], caller: Caller = {}): Promise<DecisionAnswer[]> {
		return await this.inChunks(
			items,
			'free_decisions($1::text[], $2::uuid[], $3::json[], $4::text[], $5::jsonb)',
			(chunk) => [
				chunk.map(({ rawText }) => rawText),
				chunk.map(({ reason }) => readableText(reason, MAX_REASON_LENGTH)),
				JSON.stringify(callerOptions(caller)),
			],
			({ rawText }) => rawText.length,
		);
	}

	/**
	 * Approves or rejects; the first verdict stands. Throws `LedgerError` (`bad_input`) without an approver.
	 *
	 * @param what.valueHash What the approver saw: another value is refused. null: whatever is stored.
	 */
	async judge(
		decisionKey: string,
		what: { approve: boolean; approver: string; reason?: string | null; valueHash?: string | null },
		caller: Caller = {},
	): Promise<DecisionAnswer> {
		const [answer] = await this.call(
			'judge_decision($1::text, $2::boolean, $3::text, $4::text, $5::text, $6::jsonb)',
			[
				decisionKey,
				what.approve,
				readableText(what.approver, 501),
				what.reason === undefined || what.reason === null
					? null
					: readableText(what.reason, MAX_REASON_LENGTH),
				what.valueHash ?? null,
				JSON.stringify(callerOptions(caller)),
			],
			1,
		);
		return answer;
	}

	/** Opens questions anew: the next look-up decides, whatever was stored or rejected. */
	async expire(decisionKeys: string[], caller: Caller = {}): Promise<DecisionAnswer[]> {
		return await this.call(
			'expire_decisions($1::text[], $2::jsonb)',
			[decisionKeys, JSON.stringify(callerOptions(caller))],
			decisionKeys.length,
		);
	}

	/** One decision and its newest history (at most 1,000 entries, oldest first); null where the ledger holds none. */
	async get(
		decisionKey: string,
		historyLimit = 100,
	): Promise<{ decision: DecisionReport; history: Decision[] } | null> {
		const [{ decision, explained }] = await this.connection.query<{
			decision: DecisionReport | null;
			explained: { history: Decision[] } | null;
		}>(
			`select ${this.schema}.get_decision($1::text) as decision, ${this.schema}.explain_work($1::text, $2::integer) as explained`,
			[decisionKey, historyLimit],
		);
		return decision === null ? null : { decision, history: explained?.history ?? [] };
	}

	/** One page, the newest change first; at most 500. Throws `LedgerError` for a cursor it did not give. */
	async list(
		filter: DecisionFilter,
		limit: number,
		cursor: string | null = null,
	): Promise<DecisionPage> {
		const [{ answer }] = await this.connection.query<{ answer: DecisionPage }>(
			`select ${this.schema}.list_decisions($1::jsonb, $2::integer, $3::text) as answer`,
			[JSON.stringify(filter), limit, cursor],
		);
		return answer;
	}

	/** Decisions by kind and state, and what replay saved in the last seconds (a day, if not said). */
	async statistics(kind: string | null = null, sinceSeconds = 86_400): Promise<DecisionStatistics> {
		const [{ answer }] = await this.connection.query<{ answer: DecisionStatistics }>(
			`select ${this.schema}.decision_statistics($1::text, $2::double precision) as answer`,
			[kind, sinceSeconds],
		);
		return answer;
	}

	/** Deletes old decisions in short batches, never what waits for approval; answers how many. */
	async purge(olderThanSeconds: number, atMost: number, caller: Caller = {}): Promise<number> {
		let purged = 0;
		while (purged < atMost) {
			const [{ count }] = await this.connection.query<{ count: number }>(
				`select ${this.schema}.purge_llm_decisions($1::double precision, $2::integer, $3::jsonb) as count`,
				[
					olderThanSeconds,
					Math.min(PURGE_BATCH, atMost - purged),
					JSON.stringify(callerOptions(caller)),
				],
			);
			if (count === 0) break;
			purged += count;
		}
		return purged;
	}

	/** The questions that an execution decides, oldest first. */
	async openDecisions(instance: string, execution: string, limit: number): Promise<OpenDecision[]> {
		const rows = await this.connection.query<{
			decision_key: string;
			token: string;
			kind: string;
			locked_until: string;
		}>(
			`select decision_key, token, kind, to_json(locked_until) as locked_until
			from ${this.schema}.open_decisions($1::text, $2::text, $3::integer)`,
			[instance, execution, limit],
		);
		return rows.map((row) => ({
			decisionKey: row.decision_key,
			token: row.token,
			kind: row.kind,
			lockedUntil: utc(row.locked_until) as string,
		}));
	}

	private async ask(
		items: LookUpItem[],
		policy: LookUpPolicy,
		poll: boolean,
	): Promise<DecisionAnswer[]> {
		const options = JSON.stringify({
			kind: policy.kind,
			needs_approval: policy.needsApproval,
			lease_s: policy.leaseSeconds,
			poll,
			...callerOptions(policy.caller ?? {}),
		});
		const answers: DecisionAnswer[] = [];
		let sent = 0;
		const askAll = async () => {
			for (const chunk of chunks(items, ({ parts }) => partsLength(parts))) {
				sent += chunk.length;
				const values = [
					chunk.map(({ decisionKey }) => decisionKey),
					chunk.map(({ token }) => token),
					chunk.map(({ parts }) => JSON.stringify(parts)),
					options,
				];
				answers.push(
					...(await this.call(
						'look_up_decisions($1::text[], $2::uuid[], $3::json[], $4::jsonb)',
						values,
						chunk.length,
					)),
				);
			}
			return answers;
		};
		return await askAll().catch(async (error: unknown) => {
			// the chunk that failed may have been committed although its answer was lost
			const known = isLedgerError(error) && error.answerLost ? sent : answers.length;
			await this.undo(
				items
					.slice(0, known)
					.filter((_, i) => i >= answers.length || answers[i].outcome === 'decide'),
				policy.caller,
			);
			throw error;
		});
	}

	/** Best effort: with the ledger out of reach the leases end by themselves. */
	private async undo(held: LookUpItem[], caller: Caller | undefined): Promise<void> {
		if (held.length === 0) return;
		await this.free(
			held.map((item) => ({ ...item, rawText: 'null', reason: 'the look-up failed' })),
			caller,
		).catch(() => undefined);
	}

	private async inChunks<Item extends DecisionItem>(
		items: Item[],
		call: string,
		columns: (chunk: Item[]) => unknown[],
		characters: (item: Item) => number,
	): Promise<DecisionAnswer[]> {
		const answers: DecisionAnswer[] = [];
		for (const chunk of chunks(items, characters)) {
			const values = [chunk.map(({ decisionKey }) => decisionKey), chunk.map(({ token }) => token)];
			answers.push(...(await this.call(call, [...values, ...columns(chunk)], chunk.length)));
		}
		return answers;
	}

	private async call(call: string, values: unknown[], expected: number): Promise<DecisionAnswer[]> {
		// to_json writes times in ISO whatever the session's date style is, and values as they are stored
		const rows = await this.connection.query<{ answer: AnswerRow }>(
			`select to_json(a) as answer from ${this.schema}.${call} a`,
			values,
		);
		return inOrder(
			rows.map(({ answer }) => answer),
			expected,
		).map(decisionAnswer);
	}
}

function decisionAnswer(row: AnswerRow): DecisionAnswer {
	return {
		decisionKey: row.decision_key,
		outcome: row.outcome,
		state: row.state,
		generation: row.generation,
		attempt: row.attempt,
		token: row.token,
		lockedUntil: utc(row.locked_until),
		// a JSON null is a value, an SQL null is none; the hash tells them apart
		value: row.value_hash === null ? undefined : row.value,
		valueHash: row.value_hash,
		reason: row.more.reason ?? row.reason,
		decidedAt: utc(row.decided_at),
		expiresAt: utc(row.expires_at),
		owner: row.owner,
		approver: row.approver,
		judgedAt: utc(row.judged_at),
		repeated: row.more.repeated ?? false,
	};
}

function isOwn({ owner }: DecisionAnswer, caller: Caller = {}): boolean {
	if (owner?.execution === undefined || owner.instance !== caller.instance) return false;
	return owner.execution === caller.execution || owner.execution === caller.parentExecution;
}

function partsLength(parts: DecisionParts): number {
	return Object.values(parts).reduce((sum, { text }) => sum + text.length, 0);
}
