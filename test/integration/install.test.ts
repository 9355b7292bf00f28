import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { Client, type PoolClient } from 'pg';

import { createLedger, installationScript, type Ledger, type LedgerSettings } from '../../ledger';
import { functionsDigest, installSchema, schemaSource } from '../../ledger/schema';
import { createTestDatabase, type TestDatabase } from '../postgres/database';
import { startTogether } from './processes';
import { newWork, POLICY, Stage } from './stage';

const root = path.resolve(__dirname, '../..');
const { contract, migrations } = schemaSource();

let database: TestDatabase;
const ledgers: Ledger[] = [];
beforeEach(async () => {
	database = await createTestDatabase();
});
afterEach(async () => {
	await Promise.all(ledgers.splice(0).map(async (ledger) => await ledger.close()));
	await database.drop();
});

function ledgerOn(change: Partial<LedgerSettings> = {}): Ledger {
	const ledger = createLedger({ ...database.config, maxConnections: 3, ...change });
	ledgers.push(ledger);
	return ledger;
}

const INSTALLED = {
	schemaVersion: migrations.length,
	contract,
	packageVersion: expect.any(String),
};

/** The text that stands in the database for a function. */
async function bodyOf(name: string): Promise<string> {
	const { rows } = await database.admin.query<{ prosrc: string }>(
		`select prosrc from pg_proc where pronamespace = 'idempotency'::regnamespace and proname = $1`,
		[name],
	);
	return rows[0].prosrc;
}

describe('installing the schema', () => {
	test('happens by itself before the first statement', async () => {
		const [answer] = await ledgerOn().works.claim([newWork()], POLICY);
		expect(answer.status).toBe('claimed');
		expect(await ledgerOn().connection.readVersion()).toEqual(INSTALLED);
	});

	test('behind one that hangs says that somebody installs, and leaves nothing', async () => {
		const { admin } = database;
		// what PostgreSQL says when the 60 seconds for the lock are over
		const waited = {
			query: async (text: string, values?: unknown[]) =>
				text.includes('pg_advisory_xact_lock')
					? await admin.query("do $$ begin raise exception 'late' using errcode = '55P03'; end $$")
					: await admin.query(text, values),
		} as unknown as Pick<PoolClient, 'query'>;
		await expect(installSchema(waited, 'idempotency')).rejects.toMatchObject({
			code: 'busy',
			message: expect.stringMatching(/^Another process has been installing or upgrading/),
		});
		const { rows } = await admin.query("select to_regnamespace('idempotency') as found");
		expect(rows).toEqual([{ found: null }]);
	});

	test.each(['read committed', 'repeatable read'])(
		'by several processes at once happens once, and all of them go on (%s)',
		async (isolation) => {
			await database.admin.query(
				`alter database ${database.config.database} set default_transaction_isolation = '${isolation}'`,
			);
			// a table made twice would be an error; the trail shows who made it
			await database.admin.query(`
			create table trail (pid integer);
			create function note() returns event_trigger language plpgsql as
				$$ begin insert into public.trail values (pg_backend_pid()); end $$;
			create event trigger note on ddl_command_end when tag in ('CREATE TABLE') execute function note()`);
			const processes = await startTogether(
				database.config,
				database.config,
				Array.from({ length: 3 }, () => ({ does: 'install' as const })),
			);
			try {
				const answers = await Promise.all(processes.map(async (p) => await p.answer));
				expect(answers).toEqual([INSTALLED, INSTALLED, INSTALLED]);
				const { rows } = await database.admin.query('select distinct pid from trail');
				expect(rows).toHaveLength(1);
			} finally {
				await Promise.all(processes.map(async (p) => await p.kill()));
			}
		},
	);

	test('by many first calls of one process at once happens once', async () => {
		const ledger = ledgerOn();
		const answers = await Promise.all(
			Array.from({ length: 10 }, async () => await ledger.works.claim([newWork()], POLICY)),
		);
		expect(answers.flat().map(({ status }) => status)).toEqual(Array(10).fill('claimed'));
	});

	test.each([
		'Tenant "A"',
		"o'clock",
		'UPPER',
		'with space',
		'ünïcode',
		'semi;drop',
		'$1',
		"$'",
		'x'.repeat(63),
	])('works in a schema named %s', async (schema) => {
		const ledger = ledgerOn({ schema });
		const item = newWork();
		expect(await ledger.works.claim([item], POLICY)).toMatchObject([{ status: 'claimed' }]);
		expect(await ledger.works.complete([{ ...item, result: 1 }], {})).toMatchObject([
			{ status: 'completed' },
		]);
		// the second process finds it
		expect(await ledgerOn({ schema }).install()).toEqual(INSTALLED);
		const { rows } = await database.admin.query(
			`select nspname from pg_namespace where nspname !~ '^(pg_|information_schema|public)'`,
		);
		expect(rows).toEqual([{ nspname: schema }]);
	});

	test('two schemas of one database do not meet', async () => {
		const item = newWork();
		for (const schema of ['tenant_a', 'tenant_b']) {
			expect(await ledgerOn({ schema }).works.claim([item], POLICY)).toMatchObject([
				{ status: 'claimed' },
			]);
		}
	});

	describe('beside the objects of others', () => {
		const mayExecute = async (schema: string) => {
			const { rows } = await database.admin.query(
				`select has_function_privilege('public', '${schema}.price(integer)', 'execute') as may`,
			);
			return rows[0].may as boolean;
		};
		const makeFunction = async (schema: string) =>
			await database.admin.query(
				`create function ${schema}.price(integer) returns integer language sql as 'select 2 * $1'`,
			);

		test('is refused, and changes no right there', async () => {
			await database.admin.query('create schema shop');
			await makeFunction('shop');
			await expect(ledgerOn({ schema: 'shop' }).install()).rejects.toMatchObject({
				code: 'schema_in_use',
			});
			await expect(database.admin.query(installationScript('shop'))).rejects.toThrow(
				'already holds',
			);
			await database.admin.query('rollback');
			expect(await mayExecute('shop')).toBe(true);
		});

		test("leaves the rights of functions that came into the ledger's schema later", async () => {
			await ledgerOn().install();
			await makeFunction('idempotency');
			await database.admin.query(installationScript('idempotency'));
			expect(await mayExecute('idempotency')).toBe(true);
		});
	});

	test('that fails halfway leaves nothing behind', async () => {
		await database.admin.query(`
			create function refuse() returns event_trigger language plpgsql as
				$$ begin raise exception 'no functions today'; end $$;
			create event trigger refuse on ddl_command_end when tag in ('CREATE FUNCTION') execute function refuse()`);
		await expect(ledgerOn().install()).rejects.toThrow('no functions today');
		const { rows } = await database.admin.query(`select to_regnamespace('idempotency') as schema`);
		expect(rows).toEqual([{ schema: null }]);
		await database.admin.query('drop event trigger refuse');
		expect(await ledgerOn().install()).toEqual(INSTALLED);
	});

	test('by a script that an administrator runs gives the same functions', async () => {
		await database.admin.query(installationScript('idempotency'));
		const byScript = await bodyOf('claim_works');
		const version = await ledgerOn({ automaticMigration: false }).connection.readVersion();
		expect(version).toEqual(INSTALLED);
		const other = await createTestDatabase();
		try {
			const ledger = createLedger(other.config);
			await ledger.install();
			await ledger.close();
			const { rows } = await other.admin.query<{ prosrc: string }>(
				`select prosrc from pg_proc where proname = 'claim_works'`,
			);
			expect(byScript).toBe(rows[0].prosrc);
		} finally {
			await other.drop();
		}
	});

	test('into a schema that an administrator made for this role needs no right on the database', async () => {
		const role = `owner_${Date.now()}`;
		await database.admin.query(`create role ${role} login password 'x'`);
		await database.admin.query(`create schema idempotency authorization ${role}`);
		try {
			const ledger = ledgerOn({ user: role, password: 'x' });
			expect(await ledger.works.claim([newWork()], POLICY)).toMatchObject([{ status: 'claimed' }]);
		} finally {
			await Promise.all(ledgers.splice(0).map(async (ledger) => await ledger.close()));
			await database.admin.query(`drop owned by ${role}; drop role ${role}`);
		}
	});
});

describe('another version in the database', () => {
	const replaceBody = `create or replace function idempotency.utc(p_time timestamptz) returns text
		language sql immutable as $$ select 'replaced' $$`;

	test('an older contract: the functions are replaced, works and log stay', async () => {
		const first = ledgerOn();
		const item = newWork();
		await first.works.claim([item], POLICY);
		await database.admin.query(
			`${replaceBody}; update idempotency.ledger_version set contract = contract - 1`,
		);
		expect(
			await ledgerOn().works.claim([{ ...item, token: newWork().token }], POLICY),
		).toMatchObject([{ status: 'in_progress' }]);
		expect(await bodyOf('utc')).not.toContain('replaced');
		expect(await first.connection.readVersion()).toEqual(INSTALLED);
	});

	test('an older contract with automatic upgrade off: said, and nothing is touched', async () => {
		await ledgerOn().install();
		await database.admin.query(
			`${replaceBody}; update idempotency.ledger_version set contract = contract - 1`,
		);
		const ledger = ledgerOn({ automaticMigration: false });
		await expect(ledger.works.claim([newWork()], POLICY)).rejects.toMatchObject({
			code: 'schema_outdated',
			message: expect.stringContaining(`contract ${contract - 1}, needed ${contract}`),
		});
		expect(await bodyOf('utc')).toContain('replaced');
	});

	test('a newer contract: left alone, and older packages keep working on it', async () => {
		await ledgerOn().install();
		await database.admin.query(
			`${replaceBody}; update idempotency.ledger_version set contract = 999, package_version = '9.9.9'`,
		);
		for (const automaticMigration of [true, false]) {
			const ledger = ledgerOn({ automaticMigration });
			expect(await ledger.works.claim([newWork()], POLICY)).toMatchObject([{ status: 'claimed' }]);
			expect(await ledger.install()).toMatchObject({ contract: 999, packageVersion: '9.9.9' });
		}
		expect(await bodyOf('utc')).toContain('replaced');
	});

	test('the same contract: nothing is replaced', async () => {
		await ledgerOn().install();
		await database.admin.query(replaceBody);
		await ledgerOn().install();
		expect(await bodyOf('utc')).toContain('replaced');
	});
});

describe('the contract number', () => {
	type Entry = { contract: number; package: string; functions: string };
	const contracts = JSON.parse(
		readFileSync(path.join(root, 'migrations/contracts.json'), 'utf8'),
	) as Entry[];

	test("belongs to the functions' texts: a changed text needs a new number", () => {
		// `npm run contract` (scripts/contract.js) appends it
		expect(functionsDigest()).toBe(contracts[contracts.length - 1].functions);
	});

	test('changes with any text', () => {
		const source = schemaSource();
		const [first, ...rest] = source.functions;
		const changed = { ...source, functions: [{ ...first, sql: `${first.sql} ` }, ...rest] };
		expect(functionsDigest(changed)).not.toBe(functionsDigest(source));
	});

	test('only grows, and what was committed is never edited', () => {
		expect(contracts.map((entry) => entry.contract)).toEqual(contracts.map((_, i) => i + 1));
		const digests = contracts.map((entry) => entry.functions);
		expect(digests.every((digest, i) => i === 0 || digest !== digests[i - 1])).toBe(true);
		// a tarball has no history to compare with
		if (!existsSync(path.join(root, '.git'))) return;
		const committed = JSON.parse(
			execFileSync('git', ['show', 'HEAD:migrations/contracts.json'], {
				cwd: root,
				encoding: 'utf8',
			}),
		) as Entry[];
		expect(contracts.slice(0, committed.length)).toEqual(committed);
	});
});

describe('rights', () => {
	let stage: Stage;
	let plain: Client;
	const role = 'ledger_user';
	beforeAll(async () => {
		stage = await Stage.open();
		await stage.query(`create role ${role} login password 'x'`);
		await stage.query(`grant usage on schema idempotency to ${role}`);
		plain = new Client({ ...stage.database.config, user: role, password: 'x' });
		await plain.connect();
	});
	afterAll(async () => {
		await plain.end();
		await stage.query(`drop owned by ${role}; drop role ${role}`);
		await stage.close();
	});

	test('nobody may execute a function or read a table unless it was granted', async () => {
		expect(
			await stage.query(
				`select p.proname from pg_proc p
				where p.pronamespace = 'idempotency'::regnamespace
					and has_function_privilege('${role}', p.oid, 'execute')`,
			),
		).toEqual([]);
		expect(
			await stage.query(
				`select c.relname from pg_class c
				where c.relnamespace = 'idempotency'::regnamespace and c.relkind in ('r', 'v', 'S')
					and has_table_privilege('${role}', c.oid, 'select, insert, update, delete')`,
			),
		).toEqual([]);
		await expect(
			plain.query(`select * from idempotency.open_claims('i', 'e', 1)`),
		).rejects.toMatchObject({ code: '42501' });
	});

	test('still so after an upgrade', async () => {
		await stage.query('update idempotency.ledger_version set contract = contract - 1');
		await stage.query('drop function idempotency.utc(timestamptz) cascade');
		await stage.ledger.install();
		expect(
			await stage.query(
				`select p.proname from pg_proc p
				where p.pronamespace = 'idempotency'::regnamespace
					and has_function_privilege('${role}', p.oid, 'execute')`,
			),
		).toEqual([]);
	});

	test("every function that runs with its owner's rights has its search path fixed, pg_temp last", async () => {
		const functions = await stage.query<{ name: string; path: string | null; definer: boolean }>(
			`select proname as name, prosecdef as definer,
				(select split_part(c, '=', 2) from unnest(proconfig) c where c like 'search_path=%') as path
			from pg_proc where pronamespace = 'idempotency'::regnamespace`,
		);
		const definers = functions.filter(({ definer }) => definer);
		expect(definers.map(({ name }) => name)).toEqual(
			expect.arrayContaining([
				...[
					'claim_work',
					'claim_works',
					'complete_work',
					'complete_works',
					'fail_work',
					'fail_works',
				],
				...['record_reference', 'record_references', 'extend_lease', 'extend_leases'],
				...['release_work', 'release_works', 'fail_execution', 'open_claims'],
			]),
		);
		for (const { name, path: searchPath } of definers) {
			expect([name, searchPath]).toEqual([name, 'idempotency, pg_temp']);
		}
	});

	test('a role with only usage and execute can do every work and touch no table', async () => {
		await stage.query(`grant execute on all functions in schema idempotency to ${role}`);
		await stage.query(`grant select on idempotency.ledger_version to ${role}`);
		const ledger = createLedger({
			...stage.settings,
			user: role,
			password: 'x',
			automaticMigration: false,
		});
		try {
			const items = [newWork(), newWork(), newWork()];
			expect(await ledger.works.claim(items, POLICY)).toMatchObject(
				Array(3).fill({ status: 'claimed' }),
			);
			expect(await ledger.works.complete([items[0]], {})).toMatchObject([{ status: 'completed' }]);
			expect(await ledger.works.release([items[1]], {})).toMatchObject([{ status: 'released' }]);
			expect(
				await ledger.works.fail([{ ...items[2], error: 'x', landed: 'no' }], {}),
			).toMatchObject([{ status: 'failed' }]);
		} finally {
			await ledger.close();
		}
		for (const table of ['work_log', 'decision_log']) {
			await expect(plain.query(`select 1 from idempotency.${table}`)).rejects.toMatchObject({
				code: '42501',
			});
			await expect(plain.query(`delete from idempotency.${table}`)).rejects.toMatchObject({
				code: '42501',
			});
		}
	});

	test("tables of the same name in pg_temp or the caller's search path do not catch a claim", async () => {
		await stage.query(`grant execute on all functions in schema idempotency to ${role}`);
		await plain.query('create temporary table work_log (like pg_class)');
		await plain.query('create temporary table decision_log (like pg_class)');
		await plain.query('set search_path = pg_temp, public');
		const item = newWork();
		const { rows } = await plain.query(
			`select status from idempotency.claim_work($1, 'k', $2, null, null, '{"kind": "invoice"}')`,
			[item.workId, item.token],
		);
		expect(rows).toEqual([{ status: 'claimed' }]);
		expect(await stage.row(item)).toMatchObject({ state: 'running' });
	});
});

test('S11: the decision log counts beyond 32 bits, as text', async () => {
	const stage = await Stage.open();
	try {
		await stage.query(
			`select setval(pg_get_serial_sequence('idempotency.decision_log', 'id'), 9007199254740992)`,
		);
		const item = await stage.claimed();
		const [{ id }] = await stage.log(item);
		expect(id).toBe('9007199254740993');
	} finally {
		await stage.close();
	}
});
