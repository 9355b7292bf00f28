import { randomUUID } from 'node:crypto';
import { createServer, type AddressInfo } from 'node:net';

import { checkLedger, createLedger, type LedgerSettings } from '../../ledger';
import { again, newWork, POLICY, Stage } from './stage';

let stage: Stage;
let closedPort: number;
const PASSWORD = randomUUID();
const ROLES = ['no_create', 'reader', 'standby_like', 'executor'];

beforeAll(async () => {
	stage = await Stage.open();
	const { database } = stage.database.config;
	for (const role of ROLES) {
		await stage.query(`create role ${role}_${database} login password '${PASSWORD}'`);
	}
	// reads everything, may change nothing
	await stage.query(`grant usage on schema idempotency to reader_${database}`);
	await stage.query(`grant select on all tables in schema idempotency to reader_${database}`);
	// may do everything, but its transactions are read-only
	await stage.query(`alter role standby_like_${database} set default_transaction_read_only = on`);
	await stage.query(`grant usage on schema idempotency to standby_like_${database}`);
	await stage.query(`grant all on all tables in schema idempotency to standby_like_${database}`);
	await stage.query(
		`grant execute on all functions in schema idempotency to standby_like_${database}`,
	);
	// least privilege as far as an administrator may guess it: no right on the version table
	await stage.query(`grant usage on schema idempotency to executor_${database}`);
	await stage.query(`grant execute on all functions in schema idempotency to executor_${database}`);
	const probe = createServer();
	await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
	closedPort = (probe.address() as AddressInfo).port;
	await new Promise((resolve) => probe.close(resolve));
});
afterAll(async () => {
	const { database } = stage.database.config;
	for (const role of ROLES) {
		await stage.query(`drop owned by ${role}_${database}; drop role ${role}_${database}`);
	}
	await stage.close();
});

function as(role: string, change: Partial<LedgerSettings> = {}): LedgerSettings {
	const { database } = stage.database.config;
	return { ...stage.settings, user: `${role}_${database}`, password: PASSWORD, ...change };
}

async function connections(): Promise<number> {
	const [{ count }] = await stage.query<{ count: number }>(
		`select count(*)::int from pg_stat_activity
		where application_name = 'n8n-nodes-idempotency' and datname = current_database()`,
	);
	return count;
}

describe('the test of a credential (case 138)', () => {
	test.each([
		['host', { host: 'postgres://u:SECRETPW@db.example/x' }],
		['host', { host: 'u:SECRETPW@db.example' }],
		['port', { port: 'postgres://u:SECRETPW@db.example' as never }],
		['database', { database: 'postgres://u:SECRETPW@db.example/x' }],
		['user', { user: 'postgres://u:SECRETPW@db.example/x' }],
		['schema', { schema: 'postgres://u:SECRETPW@db.example/x' }],
	])('a connection URL pasted into %s is refused without repeating it', async (field, change) => {
		const { ok, message } = await checkLedger({ ...stage.settings, ...change });
		expect(ok).toBe(false);
		expect(message).toContain(`${field}:`);
		expect(message).not.toContain('SECRETPW');
	});

	test('refuses settings that every node would refuse', async () => {
		const { ok, message } = await checkLedger({ ...stage.settings, maxConnections: 0 });
		expect({ ok, message }).toEqual({
			ok: false,
			message: expect.stringContaining('maxConnections'),
		});
	});

	test('passes where a claim is possible, and claims nothing', async () => {
		const { ok, message } = await checkLedger(stage.settings);
		expect({ ok, message }).toEqual({ ok: true, message: expect.stringContaining('ready') });
		const left = await stage.query('select 1 from idempotency.work_log');
		const logged = await stage.query('select 1 from idempotency.decision_log');
		expect([left, logged]).toEqual([[], []]);
	});

	test('installs the schema where that is allowed', async () => {
		const schema = 'by_the_test';
		expect(await checkLedger({ ...stage.settings, schema })).toMatchObject({ ok: true });
		expect(
			await checkLedger({ ...stage.settings, schema, automaticMigration: false }),
		).toMatchObject({
			ok: true,
		});
	});

	test('tells every failure apart, in words that name the cure and no secret', async () => {
		const old = 'old_contract';
		const newer = 'newer_contract';
		for (const [schema, number] of [
			[old, 0],
			[newer, 999],
		]) {
			await checkLedger({ ...stage.settings, schema: String(schema) });
			await stage.query(`update ${schema}.ledger_version set contract = ${number}`);
		}
		const failures: Array<[LedgerSettings, RegExp]> = [
			[
				{ ...stage.settings, port: closedPort },
				/cannot be reached \(ECONNREFUSED\).*host and port/,
			],
			[
				as('reader', { password: `${PASSWORD}x` }),
				/wrong user name or password.*Check user and password/,
			],
			[{ ...stage.settings, database: 'no_such_database' }, /no database "no_such_database"/],
			[
				as('no_create', { schema: 'missing' }),
				/"missing" is missing and this user may not create it/,
			],
			[
				as('no_create', { schema: 'missing', automaticMigration: false }),
				/not installed in schema "missing".*automatically is off/,
			],
			[as('reader'), /lacks a right.*permission denied for function claim_work/],
			[as('standby_like'), /only allows reading/],
			[
				{ ...stage.settings, schema: old, automaticMigration: false },
				/older than this package.*upgrading it automatically is off/,
			],
		];
		const messages: string[] = [];
		for (const [settings, expected] of failures) {
			const { ok, message } = await checkLedger(settings);
			expect({ ok, message }).toEqual({ ok: false, message: expect.stringMatching(expected) });
			expect(message).not.toContain(PASSWORD);
			expect(message).not.toContain(stage.settings.password);
			messages.push(message);
		}
		expect(new Set(messages).size).toBe(failures.length);

		const { ok, message } = await checkLedger({ ...stage.settings, schema: newer });
		expect({ ok, message }).toEqual({
			ok: true,
			message: expect.stringMatching(/newer package \(contract 999.*left alone/),
		});
		expect(await stage.query(`select contract from ${newer}.ledger_version`)).toEqual([
			{ contract: 999 },
		]);
	});

	test('a role that may execute but not read the version is told which right it lacks', async () => {
		const { ok, message } = await checkLedger(as('executor', { automaticMigration: false }));
		expect({ ok, message }).toEqual({
			ok: false,
			message: expect.stringMatching(
				/permission denied for table ledger_version.*select on ledger_version/,
			),
		});
	});

	test('never throws, also for settings that cannot be', async () => {
		expect(await checkLedger({} as LedgerSettings)).toMatchObject({
			ok: false,
			message: expect.stringContaining('host'),
		});
	});

	test('leaves no connection, and closes none of others', async () => {
		await stage.claimed();
		const open = await connections();
		expect(open).toBeGreaterThan(0);
		await checkLedger(stage.settings);
		await checkLedger(as('reader'));
		await checkLedger(as('no_create', { schema: 'missing' }));
		// a backend needs a moment to see that its client has gone
		while ((await connections()) > open);
		expect(await stage.claim(newWork())).toMatchObject({ status: 'claimed' });
		expect(await connections()).toBe(open);
	});
});

describe('a claim fails closed (case 126)', () => {
	const failed = async (settings: LedgerSettings): Promise<unknown> => {
		const ledger = createLedger(settings);
		try {
			return await ledger.works
				.claim([newWork(), newWork()], POLICY)
				.catch((error: unknown) => error);
		} finally {
			await ledger.close();
		}
	};

	test('with PostgreSQL down', async () => {
		expect(await failed({ ...stage.settings, port: closedPort })).toMatchObject({
			name: 'LedgerError',
			code: 'unreachable',
		});
	});

	test('with a right missing', async () => {
		expect(await failed(as('reader'))).toMatchObject({
			name: 'LedgerError',
			code: 'no_permission',
		});
	});

	test('with a read-only role', async () => {
		expect(await failed(as('standby_like'))).toMatchObject({ code: 'read_only' });
	});

	test.each([
		['the tables', 'drop table broken.work_log cascade'],
		['a table', 'drop table broken.decision_log cascade'],
		['the schema', 'drop schema broken cascade'],
		[
			'a function',
			'drop function broken.claim_works(text[], text[], uuid[], json[], jsonb[], jsonb) cascade',
		],
	])('with %s dropped behind its back, and says that it is missing', async (_, damage) => {
		await stage.query('drop schema if exists broken cascade');
		const ledger = createLedger({ ...stage.settings, schema: 'broken' });
		try {
			const item = newWork();
			await ledger.works.claim([item, newWork()], POLICY);
			await stage.query(damage);
			const claim = ledger.works.claim([again(item), newWork()], POLICY);
			await expect(claim).rejects.toMatchObject({ name: 'LedgerError', code: 'schema_missing' });
		} finally {
			await ledger.close();
		}
	});

	test('with the schema dropped, until it is there again: what a restore is about to fill is not made anew', async () => {
		await stage.query('drop schema if exists broken cascade');
		const ledger = createLedger({ ...stage.settings, schema: 'broken' });
		const restarted = createLedger({ ...stage.settings, schema: 'broken' });
		const claim = async (by: typeof ledger) => await by.works.claim([newWork()], POLICY);
		try {
			await claim(ledger);
			await stage.query('drop schema broken cascade');
			for (let i = 0; i < 2; i++) {
				await expect(claim(ledger)).rejects.toMatchObject({
					code: 'schema_missing',
					cure: expect.stringContaining('drop the schema and restart n8n'),
				});
			}
			expect(await claim(restarted)).toMatchObject([{ status: 'claimed' }]);
			expect(await claim(ledger)).toMatchObject([{ status: 'claimed' }]);
		} finally {
			await ledger.close();
			await restarted.close();
			await stage.query('drop schema if exists broken cascade');
		}
	});

	test('with options that are wrong, before any item', async () => {
		const item = newWork();
		const bad = [
			[{ kind: '' }, 'kind'],
			[{ kind: 'a:b' }, 'kind'],
			[{ version: 'v:1' }, 'version'],
			[{ leaseSeconds: 0 }, 'lease_s'],
			[{ leaseSeconds: 1e9 }, 'lease_s'],
			[{ maxAttempts: 0 }, 'max_attempts'],
			[{ backoffBaseSeconds: -1 }, 'backoff'],
			[{ onLapse: 'guess' as never }, 'on_lapse'],
		] as const;
		for (const [change, name] of bad) {
			for (const path of ['alone', 'in a batch'] as const) {
				await expect(stage.claim(item, change, path)).rejects.toMatchObject({
					code: 'bad_input',
					message: expect.stringContaining(name),
				});
			}
		}
		expect(await stage.findRow(item)).toBeNull();
	});
});
