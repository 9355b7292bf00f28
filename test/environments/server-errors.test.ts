import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';

import { createLedger, type Ledger, type LedgerSettings } from '../../ledger';
import { freePort, startPostgres, type RunningPostgres } from '../../scripts/embedded-postgres';
import { startProxy } from '../integration/cuttable-proxy';
import { again, CALLER, from, newWork, POLICY, Stage } from '../integration/stage';
import { createTestFolder } from '../postgres/database';

const opened: Array<{ close(): Promise<void> }> = [];
afterEach(async () => {
	await Promise.all(opened.splice(0).map(async (one) => await one.close()));
});

function ledgerOf(settings: LedgerSettings): Ledger {
	const ledger = createLedger(settings);
	opened.push(ledger);
	return ledger;
}

/** Seconds that a call took which must fail. */
async function failing(call: Promise<unknown>): Promise<{ failure: unknown; seconds: number }> {
	const startedAt = performance.now();
	const failure = await call.then(
		() => new Error('it succeeded'),
		(error: unknown) => error,
	);
	return { failure, seconds: (performance.now() - startedAt) / 1000 };
}

/** Claimed means that a committed row says so, once. */
async function expectOneOwner(stage: Stage, item: { workId: string; token: string }) {
	expect(await stage.row(item)).toMatchObject({ state: 'running', attempt: 1, token: item.token });
	expect(await stage.history(item)).toEqual(['claim: claimed']);
}

describe('a server of few connections, of the test alone', () => {
	const dataFolder = createTestFolder('errors');
	const settings = { max_connections: 12, fsync: 'off' };
	let server: RunningPostgres;
	let admin: Client;

	const plain = (): LedgerSettings => ({
		...{ host: server.host, port: server.port, database: server.database, maxConnections: 2 },
		...{ user: 'plain', password: 'plain' },
	});
	const log = () => readFileSync(path.join(server.folder, 'server.log'), 'utf8');
	/** Connections that the server has refused since it started. */
	const refusals = () =>
		log().match(/FATAL: .*(connection slots are reserved|too many clients)/g)?.length ?? 0;

	async function start(): Promise<void> {
		server = await startPostgres({ dataFolder, settings, port: server?.port });
		admin = new Client(server);
		admin.on('error', () => {});
		await admin.connect();
	}

	/** Takes every connection that the role may have. */
	async function fill(): Promise<Client[]> {
		const clients: Client[] = [];
		for (;;) {
			const client = new Client({ ...server, user: 'plain', password: 'plain' });
			client.on('error', () => {});
			try {
				await client.connect();
			} catch (error) {
				expect(error).toMatchObject({ code: '53300' });
				return clients;
			}
			clients.push(client);
		}
	}

	beforeAll(async () => {
		await start();
		await admin.query(
			`create role plain login password 'plain'; grant create on database postgres to plain`,
		);
		const ledger = createLedger(plain());
		await ledger.install();
		await ledger.close();
	});
	afterAll(async () => {
		await admin.end();
		await server.stop();
	});

	test('full (53300), then a connection is free while the call retries: it succeeds', async () => {
		const clients = await fill();
		const before = refusals();
		const item = newWork();
		const claim = ledgerOf(plain()).works.claim([item], POLICY);
		while (refusals() === before) await admin.query('select pg_sleep(0.005)');
		await Promise.all(clients.map(async (client) => await client.end()));
		expect(await claim).toMatchObject([{ status: 'claimed', token: item.token }]);
		const { rows } = await admin.query(
			'select outcome from idempotency.decision_log where work_id = $1',
			[item.workId],
		);
		expect(rows).toEqual([{ outcome: 'claimed' }]);
	});

	test('full and stays full: a clear error after a bounded number of tries', async () => {
		const clients = await fill();
		const before = refusals();
		const { failure, seconds } = await failing(
			ledgerOf(plain()).works.complete([newWork()], CALLER),
		);
		expect(failure).toMatchObject({
			name: 'LedgerError',
			code: 'too_many_connections',
			sqlState: '53300',
			message: expect.stringMatching(/no free connection left.*PgBouncer/),
		});
		expect(refusals() - before).toBe(5);
		expect(seconds).toBeLessThan(8);
		await Promise.all(clients.map(async (client) => await client.end()));
	});

	test('starting up (57P03): the call goes on once the server accepts connections', async () => {
		// a server that recovers and is no hot standby refuses everybody, until it is told to end the recovery
		jest.spyOn(Math, 'random').mockReturnValue(0.99);
		const ledger = ledgerOf(plain());
		await admin.end();
		await server.stop();
		const data = path.join(server.folder, 'data');
		writeFileSync(path.join(data, 'standby.signal'), '');
		const { port } = server;
		const starting = startPostgres({
			dataFolder,
			port,
			settings: { ...settings, hot_standby: 'off' },
		});
		try {
			let state = '';
			while (state !== '57P03') {
				const probe = new Client({ ...server, database: 'postgres' });
				probe.on('error', () => {});
				state = await probe.connect().then(
					() => 'accepted',
					(error: { code?: string }) => error.code ?? '',
				);
			}
			const { failure, seconds } = await failing(ledger.works.complete([newWork()], CALLER));
			expect(failure).toMatchObject({
				code: 'starting_up',
				message: expect.stringMatching(/starting up.*Try again/),
			});
			expect(seconds).toBeLessThan(8);

			const refused = () => log().match(/FATAL: .*not (yet )?accepting connections/g)?.length ?? 0;
			const before = refused();
			const item = newWork();
			const claim = ledger.works.claim([item], POLICY);
			while (refused() === before) await new Promise((resolve) => setImmediate(resolve));
			writeFileSync(path.join(data, 'promote'), '');
			const [postmaster] = readFileSync(path.join(data, 'postmaster.pid'), 'utf8').split('\n');
			process.kill(Number(postmaster), 'SIGUSR1');
			expect(await claim).toMatchObject([{ status: 'claimed', token: item.token }]);
		} finally {
			jest.restoreAllMocks();
			server = await starting;
			admin = new Client(server);
			admin.on('error', () => {});
			await admin.connect();
		}
	});

	test('nobody listens: an error after a bounded time, and nothing is claimed', async () => {
		const { failure, seconds } = await failing(
			ledgerOf({ ...plain(), port: await freePort() }).works.claim([newWork()], POLICY),
		);
		expect(failure).toMatchObject({ code: 'unreachable', sqlState: 'ECONNREFUSED' });
		expect(seconds).toBeLessThan(8);
	});
});

describe('a ledger on the shared server', () => {
	let stage: Stage;
	beforeAll(async () => {
		stage = await Stage.open();
	});
	afterAll(async () => {
		await stage.close();
	});

	/** Somebody else's open transaction that holds these works. */
	async function holding(...items: Array<{ workId: string }>): Promise<Client> {
		const holder = await stage.connect();
		// the ledger's call is the one that looks for deadlocks
		await holder.query(`set deadlock_timeout = '1min'`);
		await holder.query('begin');
		for (const { workId } of items)
			await holder.query(
				`select from idempotency.claim_work($1, 'k', gen_random_uuid(), null, null, '{"kind": "invoice"}')`,
				[workId],
			);
		return holder;
	}

	async function terminateLedgers(): Promise<void> {
		await stage.query(
			`select pg_terminate_backend(pid, 5000) from pg_stat_activity
			where datname = current_database() and application_name = 'n8n-nodes-idempotency'`,
		);
	}

	test('57P01 in the middle of a batch of claims: sent again, each claimed once', async () => {
		const items = Array.from({ length: 20 }, () => newWork());
		const holder = await holding(items[7]);
		const claim = stage.works.claim(items, POLICY);
		await stage.untilWaiting(1);
		await terminateLedgers();
		await holder.query('rollback');
		expect((await claim).map(({ status, token }) => [status, token])).toEqual(
			items.map(({ token }) => ['claimed', token]),
		);
		for (const item of items) await expectOneOwner(stage, item);
	});

	test('57P01 in the middle of a completion: done once, with the result', async () => {
		const item = await stage.claimed();
		const holder = await stage.connect();
		await holder.query('begin');
		await holder.query('select from idempotency.work_log where work_id = $1 for update', [
			item.workId,
		]);
		const completion = stage.complete(item, { result: { n: 1 } });
		await stage.untilWaiting(1);
		await terminateLedgers();
		await holder.query('rollback');
		expect(await completion).toMatchObject({ status: 'completed', repeated: false });
		expect(await stage.history(item)).toEqual(['claim: claimed', 'complete: completed']);
	});

	test('40P01: the victim of a deadlock is sent again, and claims once', async () => {
		const [first, second] = [newWork(), newWork()].sort((a, b) => (a.workId < b.workId ? -1 : 1));
		const holder = await holding(second);
		const claim = stage.works.claim([first, second], POLICY);
		await stage.untilWaiting(1);
		const crossing = holder.query(
			`select from idempotency.claim_work($1, 'k', gen_random_uuid(), null, null, '{"kind": "invoice"}')`,
			[first.workId],
		);
		// it gets what it waited for only because the ledger's own statement was given up
		await crossing;
		await holder.query('rollback');
		expect(await claim).toMatchObject([{ status: 'claimed' }, { status: 'claimed' }]);
		for (const item of [first, second]) await expectOneOwner(stage, item);
		const [{ deadlocks }] = await stage.query<{ deadlocks: string }>(
			`select pg_stat_force_next_flush(), deadlocks from pg_stat_database where datname = current_database()`,
		);
		expect(Number(deadlocks)).toBeGreaterThanOrEqual(1);
	});

	test('a deadlock that comes back at every try ends in a clear error (40P01)', async () => {
		await stage.query(`
			create function deadlocks() returns trigger language plpgsql as $$
			begin raise exception 'deadlock detected' using errcode = '40P01'; end $$;
			create trigger deadlocks before insert on idempotency.work_log
				for each row when (new.kind = 'deadlocks') execute function deadlocks()`);
		const { failure, seconds } = await failing(
			stage.works.claim([newWork()], { ...POLICY, kind: 'deadlocks' }),
		);
		expect(failure).toMatchObject({
			code: 'busy',
			sqlState: '40P01',
			message: expect.stringContaining('Try again'),
		});
		expect(seconds).toBeLessThan(8);
	});

	test.each(['repeatable read', 'serializable'])(
		'40001 under a default of "%s": a claim that met another transaction is sent again',
		async (isolation) => {
			const user = await role(stage, [`default_transaction_isolation = '${isolation}'`]);
			const ledger = ledgerOf({ ...stage.settings, user, password: 'pw' });
			const item = newWork();
			const holder = await holding(item);
			const claim = ledger.works.claim([item], from({ execution: 'second' }));
			await stage.untilWaiting(1);
			await holder.query('commit');
			expect(await claim).toMatchObject([{ status: 'in_progress' }]);
			expect(await stage.history(item)).toEqual(['claim: claimed', 'claim: in_progress']);

			const items = Array.from({ length: 10 }, () => newWork());
			const rounds = await Promise.all(
				Array.from(
					{ length: 4 },
					async () =>
						await ledger.works.claim(
							items.map((one) => again(one)),
							POLICY,
						),
				),
			);
			for (let i = 0; i < items.length; i++)
				expect(rounds.filter((answers) => answers[i].status === 'claimed')).toHaveLength(1);
		},
	);

	test('a connection lost after the commit of a batch (08006): found again by its tokens', async () => {
		const proxy = await startProxy(stage.database.config);
		opened.push(proxy);
		const ledger = ledgerOf({ ...stage.settings, port: proxy.port });
		await ledger.connection.prepare();
		const items = Array.from({ length: 5 }, () => newWork());
		proxy.loseAnswerTo('claim_works(');
		const answers = await ledger.works.claim(items, POLICY);
		expect(proxy.lost).toBe(1);
		expect(answers.map(({ status, token }) => [status, token])).toEqual(
			items.map(({ token }) => ['claimed', token]),
		);
		for (const item of items) await expectOneOwner(stage, item);
	});

	test('sessions that the server ends while they idle (57P05) do no harm', async () => {
		const user = await role(stage, [`idle_session_timeout = '20ms'`]);
		const ledger = ledgerOf({ ...stage.settings, user, password: 'pw', maxConnections: 1 });
		for (let n = 0; n < 5; n++) {
			expect(await ledger.works.claim([newWork()], POLICY)).toMatchObject([{ status: 'claimed' }]);
			// until the server has ended the session
			while (
				(await stage.query('select from pg_stat_activity where usename = $1', [user])).length > 0
			);
		}
	});

	const DISTURBING = [
		["datestyle = 'German, DMY'", "timezone = 'Asia/Kolkata'", "intervalstyle = 'sql_standard'"],
		["datestyle = 'SQL, MDY'", "timezone = 'America/Chicago'"],
		["search_path = ''"],
		[
			"search_path = 'public, pg_temp'",
			'standard_conforming_strings = off',
			"bytea_output = 'escape'",
		],
		[
			'row_security = off',
			"lc_messages = 'C'",
			'transform_null_equals = on',
			'extra_float_digits = -15',
		],
		[
			"plan_cache_mode = 'force_generic_plan'",
			'enable_indexscan = off',
			'jit = on',
			'jit_above_cost = 0',
		],
		[
			"statement_timeout = '20s'",
			"lock_timeout = '15s'",
			"idle_in_transaction_session_timeout = '5s'",
		],
		["client_encoding = 'LATIN1'", "xmloption = 'document'", 'quote_all_identifiers = on'],
	].map((settings) => [settings.join('; '), settings] as const);

	test.each(DISTURBING)(
		'with a role set to %s, claims and times are right',
		async (_, settings) => {
			const user = await role(stage, settings);
			const ledger = ledgerOf({ ...stage.settings, user, password: 'pw' });
			const { works } = ledger;
			const nearly = async (time: string | null, seconds: number) => {
				expect(time).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
				expect(Math.abs((await stage.secondsUntil(time)) - seconds)).toBeLessThan(15);
			};
			for (const size of [1, 2]) {
				const items = Array.from({ length: size }, () => newWork(`é, 'x\\' $1 ${Math.random()}`));
				const tokensAgain = () => items.map((one) => again(one));
				const [claim] = await works.claim(items, POLICY);
				expect(claim).toMatchObject({ status: 'claimed', token: items[0].token });
				await nearly(claim.lockedUntil, 3600);
				const [busy] = await works.claim(tokensAgain(), POLICY);
				expect(busy.status).toBe('in_progress');
				await nearly(busy.owner?.claimedAt ?? null, 0);

				const failing_ = items.map((one) => ({ ...one, error: "e\\' é", landed: 'no' as const }));
				const [failed] = await works.fail(failing_, CALLER);
				expect(failed.lastError).toBe("e\\' é");
				const [notDue] = await works.claim(tokensAgain(), POLICY);
				expect(notDue).toMatchObject({ status: 'not_due', nextAttemptAt: failed.nextAttemptAt });
				expect(await stage.secondsUntil(failed.nextAttemptAt)).toBeLessThan(31);

				for (const item of items) await stage.becomeDue(item);
				const second = tokensAgain();
				const [retaken] = await works.claim(second, POLICY);
				expect(retaken).toMatchObject({ status: 'claimed', attempt: 2, previousOutcome: 'failed' });
				// back to what it was, due time included, and claimed anew
				await works.release(second, CALLER);
				expect(await stage.row(items[0])).toMatchObject({ state: 'failed', attempt: 1 });
				const third = tokensAgain();
				await works.claim(third, POLICY);

				const result = {
					text: "a, b\\ '$1' é 😀",
					at: '2025-08-19T00:00:00',
					big: '9007199254740993',
				};
				const [done] = await works.complete(
					third.map((one) => ({ ...one, result })),
					CALLER,
				);
				expect(done.status).toBe('completed');
				await nearly(done.completedAt, 0);
				const window = { mode: 'duration' as const, seconds: 600 };
				const [duplicate] = await works.claim(tokensAgain(), { ...POLICY, window });
				expect(duplicate).toMatchObject({
					status: 'duplicate',
					result,
					completedAt: done.completedAt,
				});
				for (const item of items) await stage.age(item, 601);
				const [renewed] = await works.claim(tokensAgain(), { ...POLICY, window });
				expect(renewed).toMatchObject({ status: 'claimed', generation: 2, attempt: 1 });
			}
		},
	);

	test('a role that may only read is told so, and claims nothing', async () => {
		const user = await role(stage, ['default_transaction_read_only = on']);
		const item = newWork();
		await expect(
			ledgerOf({ ...stage.settings, user, password: 'pw' }).works.claim([item], POLICY),
		).rejects.toMatchObject({
			code: 'read_only',
			message: expect.stringContaining('role that may write'),
		});
		expect(await stage.findRow(item)).toBeNull();
	});

	test.each([
		['statement_timeout', '57014'],
		['transaction_timeout', '25P04'],
	])(
		"a role's own %s ends a call with a clear error, and nothing is claimed",
		async (setting, sqlState) => {
			const { rows } = await stage.database.admin.query(
				'select 1 from pg_settings where name = $1',
				[setting],
			);
			// PostgreSQL 17 and newer have the second
			if (rows.length === 0) return;
			const user = await role(stage, [`${setting} = '200ms'`]);
			const ledger = ledgerOf({ ...stage.settings, user, password: 'pw' });
			const item = newWork();
			const holder = await holding(item);
			await expect(ledger.works.claim([item], POLICY)).rejects.toMatchObject({
				code: 'timeout',
				sqlState,
				cure: expect.stringContaining(`raise ${setting} for user "${user}"`),
			});
			await holder.query('rollback');
			expect(await stage.findRow(item)).toBeNull();
		},
	);
});

/** A new role with the rights of the ledger's owner and these defaults. */
async function role(stage: Stage, defaults: readonly string[]): Promise<string> {
	const user = `role_${newWork().workId.slice(0, 12)}`;
	await stage.query(`create role ${user} login password 'pw'`);
	await stage.query(
		`grant usage on schema idempotency to ${user}; grant select on idempotency.ledger_version to ${user};
		grant execute on all functions in schema idempotency to ${user}`,
	);
	for (const setting of defaults) await stage.query(`alter role ${user} set ${setting}`);
	const database = stage.database.config.database;
	opened.push({
		async close() {
			await stage.query(
				`select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = '${user}' and datname = '${database}'`,
			);
			await stage.query(`drop owned by ${user}; drop role ${user}`);
		},
	});
	return user;
}
