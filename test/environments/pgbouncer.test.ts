import { Client, type QueryResultRow } from 'pg';

import { checkLedger, createLedger, type Ledger, type LedgerSettings } from '../../ledger';
import { startProxy } from '../integration/cuttable-proxy';
import { again, CALLER, from, newWork, POLICY } from '../integration/stage';
import { createTestDatabase, type TestDatabase } from '../postgres/database';
import { claimAndComplete, type CallerJob } from './caller';
import { startPgBouncer, SERVER_CONNECTIONS, type PgBouncer } from './pgbouncer';
import { startChild } from './processes';

let database: TestDatabase;
let pooler: PgBouncer;
let settings: LedgerSettings;
let ledger: Ledger;
let watch: Watch;

/** Looks all the time how many server connections the pooler has. */
class Watch {
	most = 0;
	private over = false;
	private readonly looking: Promise<void>;

	constructor(admin: TestDatabase['admin']) {
		this.looking = (async () => {
			while (!this.over) {
				const { rows } = await admin.query<{ count: number }>(
					`select count(*)::int from pg_stat_activity
					where datname = current_database() and application_name <> 'look'
						and backend_type = 'client backend' and pid <> pg_backend_pid()`,
				);
				this.most = Math.max(this.most, rows[0].count);
				await admin.query('select pg_sleep(0.005)');
			}
		})();
	}

	async end(): Promise<void> {
		this.over = true;
		await this.looking;
	}
}

beforeAll(async () => {
	database = await createTestDatabase();
	pooler = await startPgBouncer(database.config);
	settings = { ...database.config, port: pooler.config.port, maxConnections: 10 };
	watch = new Watch(database.admin);
	ledger = createLedger(settings);
});
afterAll(async () => {
	await watch?.end();
	await ledger?.close();
	await pooler?.stop();
	await database?.drop();
});

async function look<Row extends QueryResultRow>(text: string, values: unknown[] = []) {
	const client = new Client({ ...database.config, application_name: 'look' });
	await client.connect();
	try {
		return (await client.query<Row>(text, values)).rows;
	} finally {
		await client.end();
	}
}

/** The pooler's server connections, both at once: each in a transaction of its own. */
async function inEachServerConnection<Row extends QueryResultRow>(text: string): Promise<Row[][]> {
	const clients = Array.from(
		{ length: SERVER_CONNECTIONS },
		() => new Client({ ...pooler.config, database: database.config.database }),
	);
	await Promise.all(clients.map(async (client) => await client.connect()));
	try {
		for (const client of clients) await client.query('begin');
		return await Promise.all(clients.map(async (client) => (await client.query<Row>(text)).rows));
	} finally {
		// left open, it would make the pooler throw the server connection away
		await Promise.all(clients.map(async (client) => await client.query('rollback')));
		await Promise.all(clients.map(async (client) => await client.end()));
	}
}

test('four processes that come first install the ledger once (case 35)', async () => {
	const processes = await Promise.all(
		Array.from({ length: 4 }, async () => await startChild('installer.ts', settings)),
	);
	for (const { go } of processes) go();
	const versions = await Promise.all(processes.map(async ({ answer }) => await answer));
	expect(new Set(versions.map((version) => JSON.stringify(version))).size).toBe(1);
	expect(await look('select one from idempotency.ledger_version')).toHaveLength(1);
});

test("the credential's check passes, and names a wrong password and a missing database", async () => {
	expect(await checkLedger(settings)).toMatchObject({ ok: true });
	const wrong = await checkLedger({ ...settings, password: 'not the password' });
	expect(wrong).toEqual({
		ok: false,
		message: expect.stringMatching(/wrong user name or password/),
	});
	const missing = await checkLedger({ ...settings, database: 'no_such_database' });
	expect(missing).toEqual({
		ok: false,
		message: expect.stringMatching(/There is no database "no_such_database"/),
	});
});

test('500 claims and completions by ten callers at once, without an error (case 35)', async () => {
	expect(await claimAndComplete(ledger.works, 500, 10)).toEqual({ claimed: 500, completed: 500 });
});

test('500 more by two processes at once (case 35)', async () => {
	const job: CallerJob = { settings, works: 250, callers: 5 };
	const processes = await Promise.all([startChild('caller.ts', job), startChild('caller.ts', job)]);
	for (const { go } of processes) go();
	for (const { answer } of processes)
		expect(await answer).toEqual({ claimed: 250, completed: 250 });
});

test('ten callers that want the same works get each of them once', async () => {
	const items = Array.from({ length: 40 }, () => newWork());
	const answers = await Promise.all(
		Array.from(
			{ length: 10 },
			async () =>
				await ledger.works.claim(
					items.map((item) => again(item)),
					POLICY,
				),
		),
	);
	for (let i = 0; i < items.length; i++) {
		const statuses = answers.map((all) => all[i].status);
		expect(statuses.filter((status) => status === 'claimed')).toHaveLength(1);
		expect(statuses.filter((status) => status === 'in_progress')).toHaveLength(9);
	}
});

test('every operation on a claim, alone and in batches', async () => {
	const { works } = ledger;
	const items = Array.from({ length: 6 }, () => newWork());
	const batch = [...items, again(items[0])];
	const claims = await works.claim(batch, POLICY);
	expect(claims.map(({ status }) => status)).toEqual([...Array(6).fill('claimed'), 'in_progress']);
	const [done, failed, released, extended, referenced, left] = items;
	expect(await works.recordReference([{ ...referenced, externalRef: 'r' }], CALLER)).toMatchObject([
		{ status: 'recorded' },
	]);
	expect(await works.extend([{ ...extended, leaseSeconds: 60 }], CALLER)).toMatchObject([
		{ status: 'extended' },
	]);
	expect(await works.release([released, left], CALLER)).toMatchObject([
		{ status: 'released' },
		{ status: 'released' },
	]);
	expect(await works.fail([{ ...failed, error: 'x', landed: 'no' }], CALLER)).toMatchObject([
		{ status: 'failed' },
	]);
	expect(await works.complete([done, extended], CALLER)).toMatchObject([
		{ status: 'completed' },
		{ status: 'completed' },
	]);
	const open = newWork();
	await works.claim([open], from({ execution: 'through the pooler' }));
	expect(await works.openClaims('instance-1', 'through the pooler', 5)).toHaveLength(1);
	expect(
		await works.failExecution('instance-1', ['through the pooler'], 'x', CALLER),
	).toMatchObject([{ workId: open.workId }]);
});

test('five callers that wait for a result hold no server connection meanwhile', async () => {
	const item = newWork();
	await ledger.works.claim([item], POLICY);
	const waiting = Array.from(
		{ length: 5 },
		async (_, n) =>
			await ledger.works.claimAndWait([again(item)], from({ execution: `waits ${n}` }), {
				seconds: 20,
			}),
	);
	const busy = claimAndComplete(ledger.works, 50, 5);
	expect(await busy).toEqual({ claimed: 50, completed: 50 });
	await ledger.works.complete([{ ...item, result: 'at last' }], CALLER);
	expect((await Promise.all(waiting)).flat()).toMatchObject(
		Array(5).fill({ status: 'duplicate', result: 'at last' }),
	);
});

test('an answer lost between the pooler and n8n is found again by its token', async () => {
	const proxy = await startProxy(pooler.config);
	const cut = createLedger({ ...settings, port: proxy.port });
	try {
		const item = newWork();
		await cut.connection.prepare();
		proxy.loseAnswerTo('claim_work(');
		expect(await cut.works.claim([item], POLICY)).toMatchObject([
			{ status: 'claimed', attempt: 1, token: item.token },
		]);
		expect(proxy.lost).toBe(1);
		expect(
			await look('select outcome from idempotency.decision_log where work_id = $1', [item.workId]),
		).toEqual([{ outcome: 'claimed' }]);
	} finally {
		await cut.close();
		await proxy.close();
	}
});

test('server connections that die are replaced: the next calls succeed (case 37)', async () => {
	await look(
		`select pg_terminate_backend(pid, 5000) from pg_stat_activity
		where datname = current_database() and application_name = 'n8n-nodes-idempotency'`,
	);
	expect(await claimAndComplete(ledger.works, 20, 5)).toEqual({ claimed: 20, completed: 20 });
});

test('nothing is left behind in the server connections, of which there were never more than two', async () => {
	const pid = 'select pg_backend_pid() as pid';
	const before = (await inEachServerConnection<{ pid: number }>(pid)).flat();
	expect(
		await look(
			`select mode from pg_locks where locktype = 'advisory'
			and database = (select oid from pg_database where datname = current_database())`,
		),
	).toEqual([]);
	expect(await inEachServerConnection('select name from pg_prepared_statements')).toEqual([[], []]);
	expect(await inEachServerConnection('select * from pg_listening_channels()')).toEqual([[], []]);
	const changed = await inEachServerConnection<{ name: string }>(
		`select name from pg_settings where source = 'session' and setting is distinct from reset_val`,
	);
	for (const settingsOfOne of changed) {
		// what the pooler itself keeps in step with its client
		expect(settingsOfOne.filter(({ name }) => name !== 'application_name')).toEqual([]);
	}
	const names = ['lock_timeout', 'search_path', 'plan_cache_mode', 'enable_seqscan', 'jit'];
	names.push('statement_timeout', 'transaction_isolation', 'check_function_bodies');
	const values = `select ${names.map((name) => `current_setting('${name}') as ${name}`).join(', ')}`;
	const [untouched] = await look(values);
	for (const [found] of await inEachServerConnection(values)) expect(found).toEqual(untouched);
	// all of it was asked of the same two connections
	const after = (await inEachServerConnection<{ pid: number }>(pid)).flat();
	expect(new Set([...before, ...after].map((one) => one.pid)).size).toBe(SERVER_CONNECTIONS);
	expect(watch.most).toBe(SERVER_CONNECTIONS);
});
