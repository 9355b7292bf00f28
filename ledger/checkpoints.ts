import { randomUUID } from 'crypto';

import type { Caller } from './contract';
import type { LedgerConnection } from './connection';
import { LedgerError } from './errors';
import { instantText, momentText } from './identity/moments';
import { isMistake, plainDecimal } from './identity/text';
import { isStorableText } from './json-text';
import { quotedIdentifier } from './settings';
import { inOrder } from './work-answers';
import { callerOptions } from './works';

/** How two cursors are compared; it stays until the checkpoint is reset. */
export type CursorComparison = 'number' | 'time' | 'text';

const COMPARISONS: readonly string[] = ['number', 'time', 'text'];

/** Characters. */
const MAX_NAME_LENGTH = 200;
const MAX_TEXT_CURSOR_LENGTH = 500;
/** Checkpoints per statement. */
const MAX_CHUNK = 500;
/** Cursors per call: the answer and its one log row are about all of them. */
const MAX_CURSORS = 500_000;

/** A named cursor; a run id makes it one per run. */
export interface CheckpointName {
	name: string;
	/** Left out or empty: one cursor for all runs. */
	runId?: string;
}

export interface Checkpoint {
	/** What the decision log knows it by. */
	checkpointId: string;
	name: string;
	runId: string;
	compare: CursorComparison;
	/** Always text: a number may be longer than a JSON number can be. Times are UTC. */
	cursor: string;
	createdAt: string;
	savedAt: string;
	savedBy: Record<string, string> | null;
}

export interface SaveCheckpoint extends CheckpointName {
	compare: CursorComparison;
	/** At least one, as `cursorText` writes them; the highest is kept. */
	cursors: string[];
	/** Let an older cursor replace a newer one. Default false. */
	allowGoingBack?: boolean;
}

export interface SavedCheckpoint {
	/** Its place among the checkpoints asked for, from 0. */
	ord: number;
	/** `refused`: an older cursor over a newer one, or another comparison; nothing changed. */
	status: 'saved' | 'unchanged' | 'refused';
	reason: string | null;
	/** The same call was answered before. */
	repeated: boolean;
	/** The highest of the cursors given. */
	given: string;
	/** Where it stood before; null for a new one. */
	before: string | null;
	/** How many cursors were given. */
	of: number;
	/** As it stands now. */
	checkpoint: Checkpoint;
}

export interface Continuation {
	/** `from_start`: there is no checkpoint yet, nothing is skipped. `refused`: it is compared otherwise. */
	status: 'continued' | 'from_start' | 'refused';
	reason: string | null;
	checkpoint: Checkpoint | null;
	/** Per cursor, in the order given: it stands at or before the checkpoint. */
	skip: boolean[];
	skipped: number;
	/** The lowest and the highest that was skipped; null where none was. */
	from: string | null;
	to: string | null;
}

export interface CheckpointPage {
	checkpoints: Checkpoint[];
	/** For the next page; null on the last. */
	cursor: string | null;
}

/** How far runs have come: cursors kept outside the run, so that a run that died goes on where it was. */
export class Checkpoints {
	private readonly schema: string;

	/** @internal */
	constructor(private readonly connection: LedgerConnection) {
		this.schema = quotedIdentifier(connection.settings.schema);
	}

	/** null: nothing was saved under this name, or it was reset. */
	async get({ name, runId = '' }: CheckpointName): Promise<Checkpoint | null> {
		return await this.ask('get_checkpoint($1::text, $2::text)', [name, runId]);
	}

	/**
	 * Moves each checkpoint on to the highest of its cursors: all cursors of one checkpoint in one statement. Of two savers
	 * at once the newer cursor wins, in whatever order they come.
	 */
	async save(checkpoints: SaveCheckpoint[], caller: Caller = {}): Promise<SavedCheckpoint[]> {
		const answers: SavedCheckpoint[] = [];
		const tokens = checkpoints.map(() => randomUUID());
		for (let start = 0; start < checkpoints.length; start += MAX_CHUNK) {
			const chunk = checkpoints.slice(start, start + MAX_CHUNK);
			const rows = await this.connection.query<{ answer: SavedCheckpoint }>(
				`select answer from ${this.schema}.save_checkpoints(
					$1::text[], $2::text[], $3::text[], $4::boolean[], $5::uuid[], $6::integer[], $7::text[], $8::jsonb) as answer`,
				[
					chunk.map(({ name }) => name),
					chunk.map(({ runId }) => runId ?? ''),
					chunk.map(({ compare }) => compare),
					chunk.map(({ allowGoingBack }) => allowGoingBack ?? false),
					tokens.slice(start, start + MAX_CHUNK),
					chunk.flatMap(({ cursors }, i) => cursors.map(() => i + 1)),
					chunk.flatMap(({ cursors }) => cursors),
					JSON.stringify(callerOptions(caller)),
				],
			);
			answers.push(
				...inOrder(
					rows.map(({ answer }) => answer),
					chunk.length,
				),
			);
		}
		return answers;
	}

	/** Removes it: the next run begins at the start. `cursor`: where it stood; null where there was none. */
	async reset(
		{ name, runId = '' }: CheckpointName,
		caller: Caller = {},
	): Promise<{ status: 'reset' | 'absent'; cursor: string | null }> {
		return await this.ask('reset_checkpoint($1::text, $2::text, $3::uuid, $4::jsonb)', [
			name,
			runId,
			randomUUID(),
			JSON.stringify(callerOptions(caller)),
		]);
	}

	/** One page by name, then run id; at most 1,000. Throws `LedgerError` for a cursor it did not give. */
	async list(
		filter: { name?: string; text?: string },
		limit: number,
		cursor: string | null = null,
	): Promise<CheckpointPage> {
		return await this.ask('list_checkpoints($1::jsonb, $2::integer, $3::text)', [
			JSON.stringify(filter),
			limit,
			cursor,
		]);
	}

	/**
	 * Which of the cursors stand at or before the checkpoint. One row in the decision log says how many were skipped, from
	 * which to which. Throws `LedgerError` (`bad_input`) for more than 500,000 cursors.
	 */
	async continueAfter(
		{ name, runId = '' }: CheckpointName,
		compare: CursorComparison,
		cursors: string[],
		caller: Caller = {},
	): Promise<Continuation> {
		if (cursors.length > MAX_CURSORS) {
			throw new LedgerError(
				'bad_input',
				`${cursors.length} items are more than ${MAX_CURSORS} at once.`,
				'Send them in several batches.',
			);
		}
		return await this.ask(
			'continue_after($1::text, $2::text, $3::text, $4::text[], $5::uuid, $6::jsonb)',
			[name, runId, compare, cursors, randomUUID(), JSON.stringify(callerOptions(caller))],
		);
	}

	private async ask<Answer>(call: string, values: unknown[]): Promise<Answer> {
		const [{ answer }] = await this.connection.query<{ answer: Answer }>(
			`select ${this.schema}.${call} as answer`,
			values,
		);
		return answer;
	}
}

/** A comparison as typed or imported. Throws `LedgerError` (`bad_input`). */
export function cursorComparison(given: unknown): CursorComparison {
	if (typeof given === 'string' && COMPARISONS.includes(given)) return given as CursorComparison;
	throw refused(
		'Compare As is none of number, time and text.',
		'Choose it anew: all cursors of one checkpoint are compared in one way.',
	);
}

/** A name or run id of a checkpoint. Throws `LedgerError` (`bad_input`) that calls it by `label`. */
export function checkpointText(given: unknown, label: string): string {
	const text = given === undefined || given === null ? '' : String(given as string).trim();
	if (isMistake(text)) {
		throw refused(`${label} is the text "${text}".`, 'The value was lost before this node.');
	}
	if (!isStorableText(text))
		throw refused(`${label} holds a NUL character or half an emoji.`, 'Use another one.');
	if (text.length > MAX_NAME_LENGTH)
		throw refused(`${label} is longer than ${MAX_NAME_LENGTH} characters.`, 'Shorten it.');
	return text;
}

/**
 * A cursor as the ledger compares it. A number must be exact: beyond 2^53-1 only text of digits is. A time must name one
 * moment: without a zone it is refused, because no machine's zone may decide it. Throws `LedgerError` (`bad_input`) that
 * calls the cursor by `label`.
 */
export function cursorText(value: unknown, compare: CursorComparison, label: string): string {
	if (value === undefined || value === null || value === '') {
		throw refused(
			`${label} is missing on this item.`,
			'Without it nobody can tell whether the item was done: name a field that every item has.',
		);
	}
	if (typeof value === 'string' && isMistake(value))
		throw refused(`${label} is the text "${value}".`, 'The value was lost before this node.');
	switch (compare) {
		case 'number':
			return numberCursor(value, label);
		case 'time':
			return timeCursor(value, label);
		case 'text':
			return textCursor(value, label);
	}
}

function numberCursor(value: unknown, label: string): string {
	if (typeof value === 'bigint') return String(value);
	if (typeof value === 'number') {
		if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
			throw refused(
				`${label} is ${value}, a number beyond 2^53-1 that was rounded before it came here.`,
				'Have the source send it as text of digits.',
			);
		}
		if (Number.isFinite(value)) return plainDecimal(value);
	}
	if (typeof value === 'string' && /^-?\d{1,200}(\.\d{1,100})?$/.test(value.trim()))
		return value.trim();
	throw refused(
		`${label} is ${shown(value)}, which is no number.`,
		'Set Compare As to Date and Time or to Text, or use another field.',
	);
}

function timeCursor(value: unknown, label: string): string {
	const text =
		typeof value === 'string'
			? instantText(value.trim())
			: typeof value === 'object' && value !== null
				? momentText(value, label)
				: null;
	if (text !== null && /^\d{4}-.*\.\d{3,12}Z$/.test(text)) return text;
	throw refused(
		`${label} is ${shown(value)}, which is no certain moment.`,
		typeof value === 'number'
			? 'Set Compare As to Number for a count of seconds or milliseconds.'
			: 'Send date and time with their zone, for example 2026-01-31T10:00:00Z or …+01:00; for dates alone set Compare As to Text.',
	);
}

function textCursor(value: unknown, label: string): string {
	if (typeof value !== 'string') {
		throw refused(
			`${label} is ${shown(value)}, which is no text.`,
			'Set Compare As to Number: as text, 9 would come after 10.',
		);
	}
	if (!isStorableText(value))
		throw refused(`${label} holds a NUL character or half an emoji.`, 'Use another field.');
	if ([...value].length > MAX_TEXT_CURSOR_LENGTH)
		throw refused(
			`${label} is longer than ${MAX_TEXT_CURSOR_LENGTH} characters.`,
			'Use another field.',
		);
	return value;
}

function shown(value: unknown): string {
	if (typeof value === 'number' || typeof value === 'boolean') return String(value);
	if (typeof value === 'string') return JSON.stringify(value.slice(0, 60));
	return Array.isArray(value) ? 'a list' : 'an object';
}

function refused(problem: string, cure: string): LedgerError {
	return new LedgerError('bad_input', problem, cure);
}
