import { createHash, randomUUID } from 'node:crypto';
import { Client, type QueryResultRow } from 'pg';

import { createLedger, type Ledger, type LedgerSettings, type Works } from '../../ledger';
import type {
	Caller,
	ClaimAnswer,
	ClaimItem,
	ClaimPolicy,
	FailItem,
	HoldAnswer,
	WorkState,
} from '../../ledger/contract';
import { createTestDatabase, type TestDatabase } from '../postgres/database';

/** A row of `work_log`, as the driver reads it. */
export interface WorkRow {
	work_id: string;
	kind: string;
	version: string;
	key: string | null;
	state: WorkState;
	generation: number;
	attempt: number;
	token: string | null;
	locked_until: Date | null;
	next_attempt_at: Date | null;
	payload: unknown;
	result: unknown;
	external_ref: string | null;
	last_error: string | null;
	outcome_known: boolean;
	settled_by: string | null;
	on_lapse: string;
	max_attempts: number;
	lease_s: number;
	execution: string | null;
	parent_execution: string | null;
	workflow: string | null;
	first_started_at: Date;
	claimed_at: Date;
	completed_at: Date | null;
	last_done_at: Date | null;
	created_at: Date;
	updated_at: Date;
}

export interface LogRow {
	id: string;
	at: Date;
	work_id: string;
	event: string;
	outcome: string;
	generation: number | null;
	attempt: number | null;
	token: string | null;
	fired: Record<string, unknown> | null;
	checked: Record<string, unknown> | null;
	detail: Record<string, unknown> | null;
	result: unknown;
	external_ref: string | null;
}

/** One item has a path of its own in SQL; what the contract says must hold on both. */
export type Path = 'alone' | 'in a batch';
export const PATHS: Path[] = ['alone', 'in a batch'];

export const CALLER: Caller = {
	instance: 'instance-1',
	workflow: 'workflow-1',
	workflowName: 'Invoices',
	execution: '100',
	node: 'Claim Work',
	mode: 'webhook',
};

/** The defaults of Claim Work, seen from workflow-1. */
export const POLICY: ClaimPolicy = {
	kind: 'invoice',
	version: 'v1',
	window: { mode: 'forever' },
	onLapse: 'run_again',
	leaseSeconds: 3600,
	maxAttempts: 5,
	backoffBaseSeconds: 30,
	backoffCapSeconds: 3600,
	caller: CALLER,
};

/** The policy as another execution sends it. */
export function from(caller: Partial<Caller>, policy: Partial<ClaimPolicy> = {}): ClaimPolicy {
	return { ...POLICY, ...policy, caller: { ...CALLER, ...caller } };
}

/** A claim of a work that nobody has heard of, unless a key is given. */
export function newWork(key: string = randomUUID()): ClaimItem {
	return {
		workId: createHash('sha256').update(`invoice:v1:${key}`).digest('hex'),
		key,
		token: randomUUID(),
	};
}

/** The same work delivered once more: a new claim with a fresh token. */
export function again(item: ClaimItem, change: Partial<ClaimItem> = {}): ClaimItem {
	return { ...item, token: randomUUID(), ...change };
}

/** New works in the order in which the ledger locks them. */
export function sortedWorks(count: number): ClaimItem[] {
	return Array.from({ length: count }, () => newWork()).sort((a, b) =>
		a.workId < b.workId ? -1 : 1,
	);
}

/** A ledger on a database of its own, with the functions of a test around it. */
export class Stage {
	readonly works: Works;
	private readonly clients: Client[] = [];
	private last: Promise<unknown> = Promise.resolve();

	private constructor(
		readonly database: TestDatabase,
		readonly ledger: Ledger,
		readonly settings: LedgerSettings,
	) {
		this.works = ledger.works;
	}

	static async open(overrides: Partial<LedgerSettings> = {}): Promise<Stage> {
		const database = await createTestDatabase();
		const settings = { ...database.config, maxConnections: 5, ...overrides };
		const ledger = createLedger(settings);
		await ledger.install();
		return new Stage(database, ledger, settings);
	}

	async close(): Promise<void> {
		await this.ledger.close();
		await Promise.all(this.clients.map(async (client) => await client.end()));
		await this.database.drop();
	}

	/** A connection beside the ledger's pool, to hold something open; closed with the stage. */
	async connect(): Promise<Client> {
		const client = new Client(this.database.config);
		client.on('error', () => {});
		await client.connect();
		this.clients.push(client);
		return client;
	}

	async query<Row extends QueryResultRow = QueryResultRow>(
		text: string,
		values: unknown[] = [],
	): Promise<Row[]> {
		// the one connection of the test's own takes one statement at a time
		const answer = this.last.then(async () => await this.database.admin.query<Row>(text, values));
		this.last = answer.catch(() => undefined);
		return (await answer).rows;
	}

	// What is asked of the ledger, one work at a time.

	async claim(
		item: ClaimItem,
		policy: Partial<ClaimPolicy> = {},
		path: Path = 'alone',
	): Promise<ClaimAnswer> {
		const all = path === 'alone' ? [item] : [newWork(), item, newWork()];
		const answers = await this.works.claim(all, { ...POLICY, ...policy });
		return answers[all.indexOf(item)];
	}

	/** A claim that must be granted. */
	async claimed(
		item: ClaimItem = newWork(),
		policy: Partial<ClaimPolicy> = {},
		path: Path = 'alone',
	): Promise<ClaimItem> {
		const answer = await this.claim(item, policy, path);
		if (answer.status !== 'claimed') throw new Error(`not claimed but ${answer.status}`);
		return item;
	}

	async complete(
		item: ClaimItem,
		what: { result?: unknown; externalRef?: string } = {},
		path: Path = 'alone',
	): Promise<HoldAnswer> {
		const own = { workId: item.workId, token: item.token, ...what };
		if (path === 'alone') return (await this.works.complete([own], CALLER))[0];
		const companions = [await this.claimed(), await this.claimed()];
		const [, answer] = await this.works.complete([companions[0], own, companions[1]], CALLER);
		return answer;
	}

	async fail(item: ClaimItem, what: Partial<FailItem> = {}): Promise<HoldAnswer> {
		const { workId, token } = item;
		const [answer] = await this.works.fail(
			[{ workId, token, error: 'no answer', landed: 'no', ...what }],
			CALLER,
		);
		return answer;
	}

	async record(item: ClaimItem, externalRef: string): Promise<HoldAnswer> {
		const { workId, token } = item;
		return (await this.works.recordReference([{ workId, token, externalRef }], CALLER))[0];
	}

	async extend(item: ClaimItem, leaseSeconds?: number): Promise<HoldAnswer> {
		const { workId, token } = item;
		return (await this.works.extend([{ workId, token, leaseSeconds }], CALLER))[0];
	}

	async release(item: ClaimItem): Promise<HoldAnswer> {
		const { workId, token } = item;
		return (await this.works.release([{ workId, token }], CALLER))[0];
	}

	// What stands in the tables.

	async row(item: { workId: string }): Promise<WorkRow> {
		const row = await this.findRow(item);
		if (row === null) throw new Error('the ledger holds no such work');
		return row;
	}

	async findRow(item: { workId: string }): Promise<WorkRow | null> {
		const rows = await this.query<WorkRow>(
			'select * from idempotency.work_log where work_id = $1',
			[item.workId],
		);
		return rows[0] ?? null;
	}

	async log(item: { workId: string }): Promise<LogRow[]> {
		return await this.query<LogRow>(
			'select * from idempotency.decision_log where work_id = $1 order by id',
			[item.workId],
		);
	}

	/** The work's history as "event: outcome". */
	async history(item: { workId: string }): Promise<string[]> {
		return (await this.log(item)).map(({ event, outcome }) => `${event}: ${outcome}`);
	}

	// Time travel: the row's times move, so that no test sleeps.

	/** The lease ended a second ago. */
	async elapse(item: { workId: string }): Promise<void> {
		await this.move(item, `locked_until = clock_timestamp() - interval '1 second'`);
	}

	/** The back-off is over. */
	async becomeDue(item: { workId: string }): Promise<void> {
		await this.move(item, `next_attempt_at = clock_timestamp() - interval '1 second'`);
	}

	/** All that happened to the work happened so many seconds earlier. */
	async age(item: { workId: string }, seconds: number): Promise<void> {
		const times = [
			...['locked_until', 'next_attempt_at', 'created_at', 'updated_at', 'first_started_at'],
			...['claimed_at', 'completed_at', 'last_done_at'],
		];
		await this.move(
			item,
			times.map((name) => `${name} = ${name} - make_interval(secs => ${seconds})`).join(', '),
		);
	}

	private async move(item: { workId: string }, change: string): Promise<void> {
		const moved = await this.query(
			`update idempotency.work_log set ${change} where work_id = $1 returning 1`,
			[item.workId],
		);
		if (moved.length !== 1) throw new Error('there is no such work to move in time');
	}

	/** Work in a given state, and the item whose token it was claimed with. */
	async workThatIs(
		state: WorkState | 'lapsed',
		policy: Partial<ClaimPolicy> = {},
	): Promise<ClaimItem> {
		const item = await this.claimed(newWork(), {
			...policy,
			...(state === 'held' ? { onLapse: 'hold' } : {}),
		});
		switch (state) {
			case 'running':
				break;
			case 'lapsed':
				await this.elapse(item);
				break;
			case 'done':
				await this.complete(item, { result: { invoice: 7 }, externalRef: 'inv_7' });
				break;
			case 'failed':
				await this.fail(item);
				break;
			case 'dead':
				await this.fail(item, { permanent: true });
				break;
			case 'held':
				await this.fail(item, { landed: 'unknown' });
				break;
		}
		const expected = state === 'lapsed' ? 'running' : state;
		const { state: found } = await this.row(item);
		if (found !== expected) throw new Error(`the work is ${found}, not ${expected}`);
		return item;
	}

	/** Resolves once so many backends wait for a lock of this database. */
	async untilWaiting(count: number): Promise<void> {
		for (;;) {
			const [{ waiting }] = await this.query<{ waiting: number }>(
				`select count(*)::int as waiting from pg_stat_activity
				where datname = current_database() and wait_event_type = 'Lock'`,
			);
			if (waiting >= count) return;
			await this.query('select pg_sleep(0.01)');
		}
	}

	/** Seconds from the database's clock to a time; negative when it has passed. */
	async secondsUntil(time: Date | string | null): Promise<number> {
		const [{ seconds }] = await this.query<{ seconds: number }>(
			'select extract(epoch from $1::timestamptz - clock_timestamp())::float8 as seconds',
			[time],
		);
		return seconds;
	}
}
