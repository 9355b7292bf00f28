import { randomUUID } from 'crypto';
import type { QueryResultRow } from 'pg';

import type { Caller, WorkState } from './contract';
import type { LedgerConnection } from './connection';
import { LedgerError } from './errors';
import { identifyByKey } from './identity';
import { quotedIdentifier } from './settings';
import { utc } from './work-answers';
import { callerOptions, referenceProblem } from './works';

/** Records that one reconciliation takes, and works that it looks at: what is held in memory at once. */
export const MAX_RECONCILED = 100_000;
/** Characters of all references together: one statement carries them. */
const MAX_REFERENCE_CHARACTERS = 50_000_000;

/** A record of the target system. */
export interface TargetRecord {
	/** What the target calls it, as `referenceText` gives it: compared with the works' `externalRef`. */
	reference: string;
	/** The work it belongs to, where the record holds the business key or the work id; null: compared by reference only. */
	workId: string | null;
}

/** Which works must have a record: those done in [from, to). Times are UTC ISO text. */
export type ReconciledRange =
	| { from: string; to: string }
	/** By the clock of the database; the range ends `settleSeconds` before now, for work that is newer than the records. */
	| { lastSeconds: number; settleSeconds: number };

export interface ReconcileRequest {
	kind: string;
	/** Default `v1`. */
	version?: string;
	range: ReconciledRange;
	/** How far outside the range works are looked at, so that a record at its edge is not unknown. Default: a day. */
	marginSeconds?: number;
	records: TargetRecord[];
	/** Records that could not be read and are left out: a work that is missing may be one of them. Default 0. */
	unreadable?: number;
}

export type FindingStatus =
	/** One record, one done work. */
	| 'matched'
	/** Done in the range, its reference is on no record. */
	| 'missing_in_target'
	/** A record without a work. */
	| 'unknown_to_ledger'
	/** Several records with one reference, or for one work. */
	| 'duplicated_in_target'
	/** The record names the work, which has another reference. */
	| 'different_reference'
	/** The record has the work's reference, and names a work that the ledger does not hold. */
	| 'different_key'
	/** The record is there, and the work is running, failed, held or dead. */
	| 'not_done'
	/** Done in the range without a reference, and named by no record. */
	| 'not_comparable';

/** What was found out about one record, or about a work without one. Each has exactly one finding. */
export interface Finding {
	status: FindingStatus;
	/** Position of the record in the request; null for a work without one. */
	record: number | null;
	/** null: the ledger holds no such work. */
	workId: string | null;
	key: string | null;
	state: WorkState | null;
	/** The work's own reference. */
	externalRef: string | null;
	/** When the work was last done. */
	doneAt: string | null;
	/** What ties the record to the work; null where nothing does. */
	by: 'key' | 'reference' | null;
	/** The record stems from this earlier generation of work that was begun anew. */
	earlierGeneration: number | null;
	/** The work's present generation: above 1, a record may stem from an earlier one. */
	generation: number | null;
	/** Records with the same reference; 1: only this one. */
	sameReference: number;
	/** Records for the same work; 1: only this one. */
	sameWork: number;
	/** Positions of the records of a duplicate, this one included; the first 20 by reference and by work. */
	records: number[];
	/** The work's reference is on this record, which belongs to another work. */
	takenBy: number | null;
	/** False: the effect of the last attempt may have landed. null for done work. */
	outcomeKnown: boolean | null;
	/** Running, but its lease has ended. */
	lapsed: boolean;
	lockedUntil: string | null;
	nextAttemptAt: string | null;
	lastError: string | null;
}

export interface ReconciliationSummary {
	from: string;
	to: string;
	marginSeconds: number;
	records: number;
	/** Works done in the range. */
	works: number;
	unreadable: number;
	/** Works with a row in the decision log. */
	drifting: number;
	/** How many findings of each status. */
	findings: Partial<Record<FindingStatus, number>>;
	/** The first references unknown to the ledger. */
	unknown: string[];
}

interface FindingRow extends QueryResultRow {
	ord: number | null;
	status: FindingStatus | 'summary';
	work_id: string | null;
	key: string | null;
	state: WorkState | null;
	generation: number | null;
	external_ref: string | null;
	done_at: string | null;
	more: {
		by?: Finding['by'];
		earlier?: number;
		sameReference?: number;
		sameWork?: number;
		records?: number[];
		takenBy?: number;
		outcomeKnown?: boolean;
		lapsed?: boolean;
		lockedUntil?: string;
		nextAttemptAt?: string;
		lastError?: string;
	};
}

/** The target system's records against the ledger. Reads works and changes none; drift goes to the decision log. */
export class Reconciliation {
	private readonly schema: string;

	/** @internal */
	constructor(private readonly connection: LedgerConnection) {
		this.schema = quotedIdentifier(connection.settings.schema);
	}

	/**
	 * One statement for all: every record and every work done in the range gets one finding. Works that drift get a row in
	 * the decision log, and the run one of its own. Throws `LedgerError`, and then nothing was logged.
	 */
	async compare(
		request: ReconcileRequest,
		caller: Caller = {},
	): Promise<{ summary: ReconciliationSummary; findings: Finding[] }> {
		const { kind, version = 'v1', range, marginSeconds = 86_400, records } = request;
		refuseTooMuch(records);
		const options = {
			...callerOptions(caller),
			...('from' in range ? range : { last_s: range.lastSeconds, settle_s: range.settleSeconds }),
			margin_s: marginSeconds,
			unreadable: request.unreadable ?? 0,
			// made before the statement is sent: sent again after a lost answer, nothing is logged twice
			run: randomUUID(),
		};
		const rows = await this.connection.query<FindingRow>(
			`select ord, status, work_id, key, state, generation, external_ref, to_json(done_at) as done_at, more
			from ${this.schema}.reconcile_works($1::text, $2::text, $3::text[], $4::text[], $5::jsonb)`,
			[
				kind,
				version,
				records.map(({ reference }) => reference),
				records.map(({ workId }) => workId),
				JSON.stringify(options),
			],
		);
		const summary = rows.find(({ status }) => status === 'summary');
		if (summary === undefined) {
			throw new LedgerError(
				'unknown',
				'The ledger answered without a summary.',
				"Check that the functions in the schema are this package's own.",
			);
		}
		return {
			summary: summary.more as unknown as ReconciliationSummary,
			findings: rows.filter((row) => row !== summary).map(finding),
		};
	}
}

/**
 * A reference as reconciliation compares it: text without white space at its ends, numbers in plain decimal. Throws
 * `IdentityRefusal` for what keys are refused for too: missing, empty, "undefined", an integer that was rounded; and
 * `LedgerError` for text that no work can hold.
 */
export function referenceText(name: string, value: unknown): string {
	const { canonical } = identifyByKey({ kind: 'reference' }, [
		// a list of one would pass as its element
		{ name, value: Array.isArray(value) ? { list: value } : value },
	]);
	// as it is, not in another Unicode form: the ledger keeps references byte-equal
	const text = typeof value === 'string' ? value.trim() : canonical;
	const problem = referenceProblem(text);
	if (problem === null) return text;
	throw new LedgerError(
		'bad_input',
		problem.replace('externalRef', `The field "${name}"`),
		'Choose the field in which the target system keeps its identifier.',
	);
}

function refuseTooMuch(records: TargetRecord[]): void {
	const characters = records.reduce((sum, { reference }) => sum + reference.length, 0);
	if (records.length <= MAX_RECONCILED && characters <= MAX_REFERENCE_CHARACTERS) return;
	throw new LedgerError(
		'bad_input',
		`${records.length} records with ${characters} characters of references are too many for one reconciliation: at most ${MAX_RECONCILED} and ${MAX_REFERENCE_CHARACTERS}.`,
		'Narrow the range and list the records of that range only.',
	);
}

function finding(row: FindingRow): Finding {
	const { more } = row;
	return {
		status: row.status as FindingStatus,
		record: row.ord,
		workId: row.work_id,
		key: row.key,
		state: row.state,
		externalRef: row.external_ref,
		doneAt: utc(row.done_at),
		by: more.by ?? null,
		earlierGeneration: more.earlier ?? null,
		generation: row.generation,
		sameReference: more.sameReference ?? 1,
		sameWork: more.sameWork ?? 1,
		records: more.records ?? [],
		takenBy: more.takenBy ?? null,
		outcomeKnown: more.outcomeKnown ?? null,
		lapsed: more.lapsed ?? false,
		lockedUntil: more.lockedUntil ?? null,
		nextAttemptAt: more.nextAttemptAt ?? null,
		lastError: more.lastError ?? null,
	};
}
