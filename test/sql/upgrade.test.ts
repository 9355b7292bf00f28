import { readdirSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';

import { createLedger, installationScript, type Ledger } from '../../ledger';
import { installSchema, schemaSource, type SchemaSource } from '../../ledger/schema';
import { startTogether } from '../integration/processes';
import { again, CALLER, newWork, POLICY } from '../integration/stage';
import { createTestDatabase, type TestDatabase } from '../postgres/database';
import { clientEnvironment, demand, psqlScript, psqlTable, run } from './psql';

const present = schemaSource();
const newestMigration = present.migrations[present.migrations.length - 1].number;

/** Every body says whose it is. */
function marked(as: string): SchemaSource['functions'] {
	return present.functions.map(({ name, sql }) => ({
		name,
		sql: sql.replace('as $$', () => `as $$\n-- ${as}`),
	}));
}

/** A package before this one: a lower contract number, other texts. */
const older: SchemaSource = {
	...present,
	contract: present.contract - 1,
	packageVersion: '0.0.9',
	functions: marked('older'),
};

/** A package after this one, with one more column, which the rows then have, and one more function. */
const newer: SchemaSource = {
	contract: present.contract + 1,
	packageVersion: '9.9.9',
	migrations: [
		...present.migrations,
		{
			number: newestMigration + 1,
			name: 'later.sql',
			sql: `alter table :"schema".work_log add column later text not null default 'new';`,
		},
	],
	functions: [
		...marked('newer'),
		{
			name: 'later.sql',
			sql: `create or replace function :"schema".later() returns text language sql as $$\n-- newer\nselect 'later' $$;`,
		},
	],
};

let database: TestDatabase;
const ledgers: Ledger[] = [];
beforeAll(() => demand('psql'));
beforeEach(async () => {
	database = await createTestDatabase();
});
afterEach(async () => {
	await Promise.all(ledgers.splice(0).map(async (ledger) => await ledger.close()));
	await database?.drop();
});

function ledgerIn(schema: string, automaticMigration: boolean): Ledger {
	const ledger = createLedger({
		...database.config,
		schema,
		automaticMigration,
		maxConnections: 2,
	});
	ledgers.push(ledger);
	return ledger;
}

async function install(from: SchemaSource, schema = 'idempotency'): Promise<void> {
	const client = new Client(database.config);
	await client.connect();
	try {
		await installSchema(client, schema, from);
	} finally {
		await client.end();
	}
}

/** What stands in the database: the numbers, and whose the functions are. */
async function standing(schema = 'idempotency') {
	const { rows } = await database.admin.query<{ numbers: string; functions: string }>(
		`select (select concat_ws(' ', schema_version, contract, package_version) from "${schema}".ledger_version) as numbers,
			(select string_agg(distinct coalesce(substring(prosrc from '^\\s*-- (older|newer)'), 'present'), ' ')
				from pg_proc where pronamespace = $1::regnamespace) as functions`,
		[`"${schema}"`],
	);
	return rows[0];
}

const numbers = (of: SchemaSource) =>
	`${of.migrations[of.migrations.length - 1].number} ${of.contract} ${of.packageVersion}`;
const PRESENT = { numbers: numbers(present), functions: 'present' };
const OLDER = { numbers: numbers(older), functions: 'older' };
const NEWER = { numbers: numbers(newer), functions: 'newer' };

describe('a rolling upgrade', () => {
	test('a worker that runs through it keeps its claim, goes on with the old package, and leaves the new ledger alone', async () => {
		await install(present);
		const worker = ledgerIn('idempotency', true);
		const [before, between] = [newWork(), newWork()];
		expect(await worker.works.claim([before], POLICY)).toMatchObject([{ status: 'claimed' }]);
		expect(await worker.works.claim([before, between], POLICY)).toMatchObject([
			{ status: 'claimed' },
			{ status: 'claimed' },
		]);
		await install(newer);
		expect(await worker.works.complete([{ ...before, result: { a: 1 } }], CALLER)).toMatchObject([
			{ status: 'completed' },
		]);
		expect(await worker.works.claim([again(before), again(between)], POLICY)).toMatchObject([
			{ status: 'duplicate', result: { a: 1 } },
			{ status: 'in_progress' },
		]);
		expect(
			await worker.works.fail([{ ...between, error: 'x', landed: 'no' }], CALLER),
		).toMatchObject([{ status: 'failed' }]);
		// and one that starts now, whatever its credential says
		for (const automatic of [true, false]) {
			const item = newWork();
			const started = ledgerIn('idempotency', automatic);
			expect(await started.works.claim([item], POLICY)).toMatchObject([{ status: 'claimed' }]);
			expect(await started.works.release([item], CALLER)).toMatchObject([{ status: 'released' }]);
		}
		expect(await standing()).toEqual(NEWER);
	});

	test('ten new processes that start at once upgrade an older ledger once, and all of them claim', async () => {
		await install(older);
		await database.admin.query(`
			create table public.upgrade (pid integer, contract integer);
			create function public.note_upgrade() returns trigger language plpgsql as
				$$ begin insert into public.upgrade values (pg_backend_pid(), new.contract); return null; end $$;
			create trigger note after insert or update on idempotency.ledger_version
				for each row execute function public.note_upgrade()`);
		const items = Array.from({ length: 10 }, () => newWork());
		const processes = await startTogether(
			database.config,
			{ ...database.config, maxConnections: 1 },
			items.map((item) => ({ does: 'claim' as const, items: [item], policy: POLICY })),
		);
		try {
			const answers = await Promise.all(processes.map(async ({ answer }) => await answer));
			expect(answers).toMatchObject(Array(10).fill([{ status: 'claimed' }]));
		} finally {
			await Promise.all(processes.map(async (process) => await process.kill()));
		}
		const { rows } = await database.admin.query('select contract from public.upgrade');
		expect(rows).toEqual([{ contract: present.contract }]);
		expect(await standing()).toEqual(PRESENT);
	}, 60_000);

	test('a new package with automatic installation off says what to do about an older ledger, and touches nothing', async () => {
		await install(older);
		await expect(
			ledgerIn('idempotency', false).works.claim([newWork()], POLICY),
		).rejects.toMatchObject({
			code: 'schema_outdated',
			message: expect.stringMatching(
				/is older than this package.*database administrator upgrade it/s,
			),
		});
		expect(await standing()).toEqual(OLDER);
	});
});

describe('the installation script', () => {
	test('upgrades an older ledger with its works, adds what is missing, and may be run again', async () => {
		await psqlScript(database.config, installationScript('idempotency', older));
		expect(await standing()).toEqual(OLDER);
		const item = newWork();
		await install(present);
		expect(await ledgerIn('idempotency', false).works.claim([item], POLICY)).toMatchObject([
			{ status: 'claimed' },
		]);
		const script = installationScript('idempotency', newer);
		await psqlScript(database.config, script);
		await psqlScript(database.config, script);
		expect(await standing()).toEqual(NEWER);
		const { rows } = await database.admin.query(
			'select work_id, w.later, idempotency.later() as function from idempotency.work_log w',
		);
		expect(rows).toEqual([{ work_id: item.workId, later: 'new', function: 'later' }]);
	});

	test('of an older package refuses a newer ledger and changes nothing', async () => {
		await install(newer);
		await expect(psqlScript(database.config, installationScript('idempotency'))).rejects.toThrow(
			/installed ledger is newer .*nothing was changed/,
		);
		expect(await standing()).toEqual(NEWER);
	});

	test('run by several at once installs once and fails nobody', async () => {
		const script = installationScript('idempotency');
		await Promise.all(
			Array.from({ length: 4 }, async () => await psqlScript(database.config, script)),
		);
		expect(await standing()).toEqual(PRESENT);
	});

	test('and the package take the same lock: the package waits for a script that is not committed yet', async () => {
		const script = installationScript('idempotency');
		await database.admin.query(script.replace(/commit;\s*$/, ''));
		const claim = ledgerIn('idempotency', true).works.claim([newWork()], POLICY);
		const look = new Client(database.config);
		await look.connect();
		try {
			for (;;) {
				const { rows } = await look.query(
					`select 1 from pg_locks where locktype = 'advisory' and not granted
						and database = (select oid from pg_database where datname = current_database())`,
				);
				if (rows.length === 1) break;
				await look.query('select pg_sleep(0.01)');
			}
		} finally {
			await look.end();
		}
		await database.admin.query('commit');
		expect(await claim).toMatchObject([{ status: 'claimed' }]);
		expect(await standing()).toEqual(PRESENT);
	});
});

const NAMES = [
	`Mandant "Nord"`,
	`it's mine; drop schema public; --`,
	'größe 発注 🧾',
	'$$ $ledger$ $migration$ %s :"schema" \\',
	'line\nbreak',
];

describe.each(NAMES)('a schema named %j', (schema) => {
	async function worksWithoutInstalling(): Promise<void> {
		const ledger = ledgerIn(schema, false);
		const items = [newWork(), newWork()];
		expect(await ledger.works.claim([items[0]], POLICY)).toMatchObject([{ status: 'claimed' }]);
		expect(await ledger.works.claim(items, POLICY)).toMatchObject([
			{ status: 'claimed' },
			{ status: 'claimed' },
		]);
		expect(await ledger.works.complete(items, CALLER)).toMatchObject([
			{ status: 'completed' },
			{ status: 'completed' },
		]);
		const { rows } = await database.admin.query(
			`select nspname from pg_namespace where nspname !~ '^(pg_|information_schema)' order by 1`,
		);
		expect(rows.map(({ nspname }) => nspname).sort()).toEqual([schema, 'public'].sort());
	}

	test('is installed and upgraded by the script', async () => {
		await psqlScript(database.config, installationScript(schema, older));
		await psqlScript(database.config, installationScript(schema));
		await worksWithoutInstalling();
	});

	test('is installed and upgraded by the package', async () => {
		await install(older, schema);
		const upgraded = await ledgerIn(schema, true).works.claim([newWork()], POLICY);
		expect(upgraded).toMatchObject([{ status: 'claimed' }]);
		await worksWithoutInstalling();
	});

	test('is installed from the files by psql', async () => {
		const migrations = path.resolve(__dirname, '../../migrations');
		const files = [
			...present.migrations.map(({ name }) => name),
			...readdirSync(path.join(migrations, 'functions')).map((name) => `functions/${name}`),
		];
		await database.admin.query(`create schema "${schema.replace(/"/g, '""')}"`);
		await run(
			'psql',
			[
				...['-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-v', `schema=${schema}`],
				...['-c', 'set check_function_bodies = off', ...files.flatMap((file) => ['-f', file])],
			],
			{ env: clientEnvironment(database.config), cwd: migrations },
		);
		const { contract } = present;
		await database.admin.query(
			`insert into "${schema.replace(/"/g, '""')}".ledger_version (schema_version, contract, package_version)
			values ($1, $2, 'by hand')`,
			[newestMigration, contract],
		);
		await worksWithoutInstalling();
	});
});

test('the search path of a function is the schema alone, whatever its name is', async () => {
	const schema = NAMES[1];
	await psqlScript(database.config, installationScript(schema));
	const paths = await psqlTable(
		database.config,
		`select distinct unnest(proconfig) as path from pg_proc where prosecdef order by 1`,
	);
	expect(paths.filter(([path]) => path.startsWith('search_path='))).toEqual([
		[`search_path="${schema}", pg_temp`],
	]);
});
