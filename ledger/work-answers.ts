import type { ClaimAnswer, HoldAnswer } from './contract';
import { LedgerError } from './errors';

/** What the SQL functions answer, row by row, and its translation into the contract's words. */

export interface ClaimRow {
	ord: number;
	work_id: string;
	status: ClaimAnswer['status'];
	state: ClaimAnswer['state'];
	generation: number;
	attempt: number;
	token: string | null;
	locked_until: string | null;
	next_attempt_at: string | null;
	previous_outcome: ClaimAnswer['previousOutcome'];
	last_error: string | null;
	result: unknown;
	external_ref: string | null;
	completed_at: string | null;
	owner: ClaimAnswer['owner'];
	more: {
		otherWorkflow?: boolean;
		resultPurged?: boolean;
		late?: boolean;
		mismatch?: string[];
	};
	/** The row that brings this one's result, in a batch with repeated keys. */
	result_at?: number | null;
}

// to_json writes times in ISO whatever the session's date style is
export const CLAIM_COLUMNS = claimColumns('result');

/**
 * For a batch in which keys repeat: a thousand lines of one order would bring its result a thousand times, and fill the
 * memory. Each result of a work comes once, and the others say which row has it.
 */
export const REPEATING_CLAIM_COLUMNS = claimColumns(
	'case when ord = min(ord) over same_result then result end as result',
	', case when result is not null then min(ord) over same_result end as result_at',
);
export const SAME_RESULT =
	'window same_result as (partition by work_id, generation, result is null)';

function claimColumns(result: string, more = ''): string {
	return `ord, work_id, status, state, generation, attempt, token, to_json(locked_until) as locked_until,
	to_json(next_attempt_at) as next_attempt_at, previous_outcome, last_error, ${result}, external_ref,
	to_json(completed_at) as completed_at, owner, more${more}`;
}

/** Puts each result where it is missing. */
export function shareResults(rows: ClaimRow[]): ClaimRow[] {
	for (const row of rows) {
		const { result_at: at } = row;
		if (at !== undefined && at !== null) row.result = rows[at].result;
	}
	return rows;
}

export function claimAnswer(row: ClaimRow): ClaimAnswer {
	return {
		workId: row.work_id,
		status: row.status,
		state: row.state,
		generation: row.generation,
		attempt: row.attempt,
		token: row.token,
		lockedUntil: utc(row.locked_until),
		nextAttemptAt: utc(row.next_attempt_at),
		previousOutcome: row.previous_outcome,
		lastError: row.last_error,
		result: row.result,
		externalRef: row.external_ref,
		completedAt: utc(row.completed_at),
		owner: row.owner,
		otherWorkflow: row.more.otherWorkflow ?? false,
		resultPurged: row.more.resultPurged ?? false,
		late: row.more.late ?? false,
		mismatch: row.more.mismatch ?? [],
	};
}

export interface HoldRow {
	ord: number;
	work_id: string;
	status: HoldAnswer['status'];
	state: HoldAnswer['state'];
	generation: number | null;
	attempt: number | null;
	locked_until: string | null;
	next_attempt_at: string | null;
	result: unknown;
	external_ref: string | null;
	completed_at: string | null;
	last_error: string | null;
	more: {
		late?: boolean;
		repeated?: boolean;
		differs?: string[];
		reason?: string;
		key?: string;
		kind?: string;
		waitsForDelivery?: boolean;
	};
}

export const HOLD_COLUMNS = `ord, work_id, status, state, generation, attempt, to_json(locked_until) as locked_until,
	to_json(next_attempt_at) as next_attempt_at, result, external_ref, to_json(completed_at) as completed_at,
	last_error, more`;

export function holdAnswers(rows: HoldRow[], expected: number): HoldAnswer[] {
	return inOrder(rows, expected).map((row) => ({
		workId: row.work_id,
		status: row.status,
		state: row.state,
		generation: row.generation,
		attempt: row.attempt,
		lockedUntil: utc(row.locked_until),
		nextAttemptAt: utc(row.next_attempt_at),
		result: row.result,
		externalRef: row.external_ref,
		completedAt: utc(row.completed_at),
		lastError: row.last_error,
		late: row.more.late ?? false,
		repeated: row.more.repeated ?? false,
		differs: row.more.differs ?? [],
		reason: row.more.reason ?? null,
		warnings: [],
		key: row.more.key ?? null,
		kind: row.more.kind ?? null,
		waitsForDelivery: row.more.waitsForDelivery ?? false,
	}));
}

/** Fails closed: an answer that is missing must not be taken for a claim. */
export function inOrder<Row extends { ord: number }>(rows: Row[], expected: number): Row[] {
	if (rows.length !== expected) {
		throw new LedgerError(
			'unknown',
			`The ledger answered ${rows.length} of ${expected} works.`,
			"Check that the functions in the schema are this package's own.",
		);
	}
	return rows.sort((a, b) => a.ord - b.ord);
}

export const NOTHING_KNOWN: Omit<HoldAnswer, 'workId' | 'status' | 'reason'> = {
	state: null,
	generation: null,
	attempt: null,
	lockedUntil: null,
	nextAttemptAt: null,
	result: null,
	externalRef: null,
	completedAt: null,
	lastError: null,
	late: false,
	repeated: false,
	differs: [],
	warnings: [],
	key: null,
	kind: null,
	waitsForDelivery: false,
};

let lastTime = { text: '', utc: '' };

export function utc(time: string | null): string | null {
	if (time === null) return null;
	// all works of a statement have the same lease end, or time of completion
	if (time !== lastTime.text) lastTime = { text: time, utc: new Date(time).toISOString() };
	return lastTime.utc;
}
