import type { QueryResultRow } from 'pg';

import type {
	Caller,
	Explanation,
	HoldAnswer,
	HourOfDecisions,
	LedgerStatistics,
	WaitingWork,
	WorkFilter,
	WorkReport,
	WorkState,
} from './contract';
import type { LedgerConnection } from './connection';
import { LedgerError } from './errors';
import { resultText } from './json-text';
import { quotedIdentifier } from './settings';
import { HOLD_COLUMNS, holdAnswers, type HoldRow } from './work-answers';
import { callerOptions, referenceProblem } from './works';

/** Rows per statement of a purge: short transactions, so that claims never wait for it. */
const PURGE_BATCH = 1_000;
const PURGE_DECISIONS_BATCH = 10_000;

export interface WorkPage {
	works: WorkReport[];
	/** For the next page; null on the last. */
	cursor: string | null;
}

export interface Purge {
	/** `done`, and by choice `dead`; nothing else is ever purged. */
	states: Array<'done' | 'dead'>;
	/** Seconds since the last change. */
	olderThanSeconds: number;
	/** Keep the row without result and data, so that "forever" stays true. Default true. */
	keepStub?: boolean;
	/** Stop after about this many rows. */
	atMost: number;
}

interface StatisticsRow extends QueryResultRow {
	answer: LedgerStatistics;
	/** null where they were not asked for. */
	hours: HourOfDecisions[] | null;
	waiting: WaitingWork[] | null;
}

/** What a person does with works. Every answer is per work; nothing is guessed and nothing of a live owner is touched. */
export class Administration {
	private readonly schema: string;

	/** @internal */
	constructor(private readonly connection: LedgerConnection) {
		this.schema = quotedIdentifier(connection.settings.schema);
	}

	/** One work and its newest decisions (at most 1,000); null where the ledger never saw it. */
	async explain(workId: string, historyLimit = 200): Promise<Explanation | null> {
		const [{ answer }] = await this.connection.query<{ answer: Explanation | null }>(
			`select ${this.schema}.explain_work($1::text, $2::integer) as answer`,
			[workId, historyLimit],
		);
		return answer;
	}

	/** One page of works, the newest change first; at most 1,000. Throws `LedgerError` for a cursor it did not give. */
	async list(filter: WorkFilter, limit: number, cursor: string | null = null): Promise<WorkPage> {
		const { olderThanSeconds, ...rest } = filter;
		const [{ answer }] = await this.connection.query<{ answer: WorkPage }>(
			`select ${this.schema}.list_works($1::jsonb, $2::integer, $3::text) as answer`,
			[JSON.stringify({ ...rest, olderThan: olderThanSeconds }), limit, cursor],
		);
		return answer;
	}

	/**
	 * Works by kind and state, and what was decided in the last seconds (a day, if not said); all of it in one statement.
	 *
	 * @param more.hours also hour by hour, for so many clock hours (1 to 744), the one going on included
	 * @param more.waiting also the oldest works that wait to be gone on with, so many at most (1 to 100)
	 */
	async statistics(
		kind: string | null = null,
		sinceSeconds = 86_400,
		more: { hours?: number; waiting?: number } = {},
	): Promise<LedgerStatistics> {
		const [{ answer, hours, waiting }] = await this.connection.query<StatisticsRow>(
			`select ${this.schema}.ledger_statistics($1::text, $2::double precision) as answer,
				case when $3::integer is not null then ${this.schema}.decisions_by_hour($1::text, $3::integer) end as hours,
				case when $4::integer is not null then ${this.schema}.oldest_waiting($1::text, $4::integer) end as waiting`,
			[kind, sinceSeconds, more.hours ?? null, more.waiting ?? null],
		);
		return {
			...answer,
			...(hours === null ? {} : { hours }),
			...(waiting === null ? {} : { waiting }),
		};
	}

	/**
	 * Failed, dead or held works become due now, their attempts reset, their old owners fenced. Running ones only with
	 * `force`, done ones only with `again` (on purpose, as a new generation).
	 */
	async replay(
		workIds: string[],
		how: { force?: boolean; again?: boolean } = {},
		caller: Caller = {},
	): Promise<HoldAnswer[]> {
		return await this.act('replay_works($1::text[], $2::jsonb)', workIds, [
			JSON.stringify({ ...callerOptions(caller), ...how }),
		]);
	}

	/** Says what became of held or dead works, or of failed ones whose outcome is unknown. */
	async resolve(
		workIds: string[],
		what: { landed: true; externalRef?: string; result?: unknown } | { landed: false },
		caller: Caller = {},
	): Promise<HoldAnswer[]> {
		const externalRef = what.landed ? (what.externalRef ?? null) : null;
		const problem = referenceProblem(externalRef);
		if (problem !== null) {
			throw new LedgerError(
				'bad_input',
				problem,
				'Use the identifier as the target system writes it.',
			);
		}
		const { text } = resultText(what.landed ? what.result : undefined);
		return await this.act(
			'resolve_works($1::text[], $2::boolean, $3::text, $4::json, $5::jsonb)',
			workIds,
			[what.landed, externalRef, text, JSON.stringify(callerOptions(caller))],
		);
	}

	/** Deletes works whose every attempt was a manual one in n8n's editor. */
	async forgetTestRuns(workIds: string[], caller: Caller = {}): Promise<HoldAnswer[]> {
		return await this.act('forget_test_works($1::text[], $2::jsonb)', workIds, [
			JSON.stringify(callerOptions(caller)),
		]);
	}

	/** Undoes the claim of running works without their token, and so fences their owners. */
	async releaseByForce(workIds: string[], caller: Caller = {}): Promise<HoldAnswer[]> {
		return await this.act('release_by_force($1::text[], $2::jsonb)', workIds, [
			JSON.stringify(callerOptions(caller)),
		]);
	}

	/** Settles lapsed leases by the policy stored at claim; at most `limit`. */
	async sweep(
		limit: number,
		caller: Caller = {},
	): Promise<Array<{ workId: string; state: WorkState }>> {
		const rows = await this.connection.query<{ work_id: string; state: WorkState }>(
			`select work_id, state from ${this.schema}.sweep_works($1::integer, $2::jsonb)`,
			[limit, JSON.stringify(callerOptions(caller))],
		);
		return rows.map((row) => ({ workId: row.work_id, state: row.state }));
	}

	/** Purges old works in short batches; answers how many. */
	async purge(what: Purge, caller: Caller = {}): Promise<number> {
		return await this.inBatches(
			what.atMost,
			PURGE_BATCH,
			async (batch) =>
				await this.count(
					'purge_works($1::text[], $2::double precision, $3::integer, $4::boolean, $5::jsonb)',
					[
						what.states,
						what.olderThanSeconds,
						batch,
						what.keepStub ?? true,
						JSON.stringify(callerOptions(caller)),
					],
				),
		);
	}

	/** Purges old rows of the decision log in batches; answers how many. */
	async purgeDecisions(olderThanSeconds: number, atMost: number): Promise<number> {
		return await this.inBatches(
			atMost,
			PURGE_DECISIONS_BATCH,
			async (batch) =>
				await this.count('purge_decisions($1::double precision, $2::integer)', [
					olderThanSeconds,
					batch,
				]),
		);
	}

	private async inBatches(
		atMost: number,
		size: number,
		purge: (batch: number) => Promise<number>,
	): Promise<number> {
		let purged = 0;
		while (purged < atMost) {
			const count = await purge(Math.min(size, atMost - purged));
			purged += count;
			if (count === 0) break;
		}
		return purged;
	}

	private async count(call: string, values: unknown[]): Promise<number> {
		const [{ count }] = await this.connection.query<{ count: number }>(
			`select ${this.schema}.${call} as count`,
			values,
		);
		return count;
	}

	private async act(call: string, workIds: string[], values: unknown[]): Promise<HoldAnswer[]> {
		const rows = await this.connection.query<HoldRow & QueryResultRow>(
			`select ${HOLD_COLUMNS} from ${this.schema}.${call}`,
			[workIds, ...values],
		);
		return holdAnswers(rows, workIds.length);
	}
}
