import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';

import { checkLedger, createLedger, identifyByKey, type Ledger } from '../../ledger';
import { CALLER, POLICY } from '../integration/stage';
import { createTestDatabase, type PostgresConfig, type TestDatabase } from '../postgres/database';
import { buildPackage, installPackage } from './built-package';
import { readPage } from './page';
import { clientEnvironment, demand, psqlScript, run } from './psql';

/** What the page tells an administrator to do, with role names of this test: roles are the whole server's. */
class Administrator {
	private readonly suffix = randomBytes(4).toString('hex');
	readonly name = `dba_${this.suffix}`;
	readonly owner = `ledger_owner_${this.suffix}`;
	readonly n8n = `n8n_ledger_${this.suffix}`;
	private readonly password = 'choose-one';

	private constructor(
		readonly database: TestDatabase,
		readonly built: string,
		readonly installed: string,
	) {}

	/** No superuser: the rights that an administrator of a hosted database has. */
	static async hire(built: string, installed: string): Promise<Administrator> {
		const own = new Administrator(await createTestDatabase(), built, installed);
		await own.database.admin.query(
			`create role ${own.name} login createrole password '${own.password}';
			grant create on database ${own.database.config.database} to ${own.name}`,
		);
		return own;
	}

	as(user: string): PostgresConfig {
		return { ...this.database.config, user, password: this.password };
	}

	get settings() {
		return { ...this.as(this.n8n), automaticMigration: false };
	}

	/** The blocks of a section of the page, in order. */
	private blocks(section: string, language: string): string[] {
		const found = readPage().blocks.filter(
			(block) =>
				block.chapter === 'Installing by hand' &&
				block.section === section &&
				block.language === language,
		);
		return found.map(({ text }) =>
			text.replaceAll('ledger_owner', this.owner).replaceAll('n8n_ledger', this.n8n),
		);
	}

	async createRoles(): Promise<void> {
		await psqlScript(this.as(this.name), this.blocks('Roles', 'sql')[0]);
	}

	async grantRights(): Promise<void> {
		await psqlScript(this.as(this.name), this.blocks('Roles', 'sql')[1]);
	}

	async withholdRights(): Promise<void> {
		await psqlScript(this.as(this.name), this.blocks('Roles', 'sql')[2]);
	}

	/** Prints the script: `from` the installed package or a clone. */
	async printScript(from: 'installed' | 'clone'): Promise<string> {
		const [ofInstalled, ofClone] = this.blocks('The script', 'sh');
		const cwd = from === 'installed' ? this.installed : this.built;
		await this.shell(from === 'installed' ? ofInstalled : ofClone, cwd);
		return readFileSync(path.join(cwd, 'ledger.sql'), 'utf8');
	}

	/** Runs what was printed last. */
	async runScript(from: 'installed' | 'clone'): Promise<void> {
		const [, , command] = this.blocks('The script', 'sh');
		await this.shell(command, from === 'installed' ? this.installed : this.built);
	}

	async runFiles(): Promise<void> {
		await this.shell(this.blocks('The files', 'sh')[0], this.built);
	}

	private async shell(text: string, cwd: string): Promise<void> {
		const env = clientEnvironment(this.as(this.name));
		await run('sh', ['-e', '-c', text], { env, cwd });
	}

	async leave(): Promise<void> {
		await this.database.drop();
		const server = new Client({ ...this.database.config, database: 'postgres' });
		await server.connect();
		try {
			for (const role of [this.n8n, this.owner, this.name])
				await server.query(`drop role if exists ${role}`);
		} finally {
			await server.end();
		}
	}
}

let built: string;
let installed: string;
let dba: Administrator;
const ledgers: Ledger[] = [];
beforeAll(() => {
	demand('psql');
	built = buildPackage();
	installed = installPackage(built);
});
beforeEach(async () => {
	dba = await Administrator.hire(built, installed);
});
afterEach(async () => {
	await Promise.all(ledgers.splice(0).map(async (ledger) => await ledger.close()));
	await dba?.leave();
});

function n8n(): Ledger {
	const ledger = createLedger(dba.settings);
	ledgers.push(ledger);
	return ledger;
}

function works(count: number) {
	return Array.from({ length: count }, () => {
		const key = randomUUID();
		const { workId } = identifyByKey({ kind: 'invoice' }, [{ name: 'id', value: key }]);
		return { workId, key, token: randomUUID() };
	});
}

/** Every operation of the client once, each by its batch and its single path. */
async function everyOperation(ledger: Ledger): Promise<void> {
	const own = { ...POLICY, caller: { ...CALLER, execution: randomUUID() } };
	const [a, b, c, d, e, f] = works(6);
	expect(await ledger.works.claim([a], own)).toMatchObject([{ status: 'claimed' }]);
	const answers = await ledger.works.claim([a, b, c, d, e, f], own);
	expect(answers.map(({ status }) => status)).toEqual(Array(6).fill('claimed'));
	expect(await ledger.works.claim([{ ...a, token: randomUUID() }], own)).toMatchObject([
		{ status: 'in_progress' },
	]);
	expect(await ledger.works.extend([a], CALLER)).toMatchObject([{ status: 'extended' }]);
	expect(
		await ledger.works.recordReference([{ ...a, externalRef: 'INV-1' }], CALLER),
	).toMatchObject([{ status: 'recorded' }]);
	expect(await ledger.works.complete([{ ...a, result: 1 }], CALLER)).toMatchObject([
		{ status: 'completed' },
	]);
	expect(await ledger.works.complete([b, c], CALLER)).toMatchObject([
		{ status: 'completed' },
		{ status: 'completed' },
	]);
	expect(await ledger.works.fail([{ ...d, error: 'no', landed: 'no' }], CALLER)).toMatchObject([
		{ status: 'failed' },
	]);
	expect(await ledger.works.release([e], CALLER)).toMatchObject([{ status: 'released' }]);
	const execution = own.caller.execution;
	const open = await ledger.works.openClaims(CALLER.instance as string, execution, 10);
	expect(open.map(({ workId }) => workId)).toEqual([f.workId]);
	expect(
		await ledger.works.failExecution(CALLER.instance as string, [execution], 'x', CALLER),
	).toMatchObject([{ workId: f.workId, state: 'failed' }]);
	expect(await ledger.works.claim([{ ...a, token: randomUUID() }], own)).toMatchObject([
		{ status: 'duplicate', result: 1, externalRef: 'INV-1' },
	]);
}

describe('a ledger that an administrator installs', () => {
	test.each(['installed', 'clone'] as const)(
		'by the script of the %s package serves n8n with every operation, and no superuser owns it',
		async (from) => {
			await dba.createRoles();
			expect(await dba.printScript(from)).toMatch(/^-- n8n-nodes-idempotency/);
			await dba.runScript(from);
			await dba.grantRights();
			await everyOperation(n8n());
			expect(await checkLedger(dba.settings)).toMatchObject({ ok: true });
			const { rows } = await dba.database.admin.query(
				`select distinct proowner::regrole::text as owner from pg_proc
				where pronamespace = 'idempotency'::regnamespace`,
			);
			expect(rows).toEqual([{ owner: dba.owner }]);
		},
	);

	test('from the files by psql alone serves n8n, too, and the next script upgrades it', async () => {
		await dba.createRoles();
		await dba.runFiles();
		await dba.grantRights();
		await everyOperation(n8n());
		await dba.printScript('clone');
		await dba.runScript('clone');
		await everyOperation(n8n());
	});

	test('leaves n8n no way around the functions: nothing to read, change, empty or create', async () => {
		await dba.createRoles();
		await dba.printScript('installed');
		await dba.runScript('installed');
		await dba.grantRights();
		const role = new Client(dba.as(dba.n8n));
		await role.connect();
		try {
			const forbidden = [
				'select * from idempotency.work_log',
				'select * from idempotency.decision_log',
				`insert into idempotency.decision_log (work_id, event, outcome) values ('x', 'x', 'x')`,
				`update idempotency.decision_log set outcome = 'x'`,
				'delete from idempotency.decision_log',
				'truncate idempotency.decision_log',
				'delete from idempotency.work_log',
				'update idempotency.ledger_version set contract = 99',
				'drop table idempotency.decision_log',
				'alter table idempotency.decision_log disable trigger all',
				'drop function idempotency.utc(timestamptz)',
				`create or replace function idempotency.utc(p_time timestamptz) returns text language sql as 'select null'`,
				'create table idempotency.mine ()',
				'create table public.mine ()',
				'create schema mine',
				`set role ${dba.owner}`,
			];
			const answers = [];
			for (const statement of forbidden)
				answers.push([
					statement,
					await role.query(statement).then(
						() => 'allowed',
						(error: { code: string }) => error.code,
					),
				]);
			expect(answers).toEqual(forbidden.map((statement) => [statement, '42501']));
			const version = await role.query('select count(*)::int as n from idempotency.ledger_version');
			expect(version.rows).toEqual([{ n: 1 }]);
		} finally {
			await role.end();
		}
	});

	test('can withhold purge, replay and their like from n8n, for upgrades as well, and claims go on', async () => {
		const withheld = [
			`purge_works('{done}', 0, 1, true, null)`,
			'purge_decisions(0, 1)',
			`replay_works('{}', null)`,
			`resolve_works('{}', true, null, null, null)`,
			// replays and resolves, too
			`redeem_action_link('x', gen_random_uuid(), null, null)`,
			`release_by_force('{}', null)`,
			`forget_test_works('{}', null)`,
		];
		const left = [
			'sweep_works(10, null)',
			'list_works(null, 10, null)',
			`explain_work('x', 10)`,
			'ledger_statistics(null, null)',
			'decisions_by_hour(null, 24)',
			'oldest_waiting(null, 10)',
		];
		await dba.createRoles();
		await dba.printScript('clone');
		await dba.runScript('clone');
		await dba.grantRights();
		const all = [...withheld, ...left];
		expect(await callsOfN8n(all)).toEqual(all.map((call) => [call, 'allowed']));
		await dba.withholdRights();
		const divided = [
			...withheld.map((call) => [call, '42501']),
			...left.map((call) => [call, 'allowed']),
		];
		expect(await callsOfN8n(all)).toEqual(divided);
		await everyOperation(n8n());
		await dba.runScript('clone');
		expect(await callsOfN8n(all)).toEqual(divided);
	});

	test.each(['script', 'files'])(
		'by the %s lets nobody but n8n execute its functions',
		async (by) => {
			await dba.createRoles();
			if (by === 'files') await dba.runFiles();
			await dba.printScript('clone');
			if (by === 'script') await dba.runScript('clone');
			await dba.grantRights();
			expect((await executors()).sort()).toEqual([dba.n8n, dba.owner].sort());
			// upgraded, too
			await dba.runScript('clone');
			expect((await executors()).sort()).toEqual([dba.n8n, dba.owner].sort());
		},
	);

	test('is missed in words that name the step: not installed, no right on the schema, no right on the version', async () => {
		await dba.database.admin.query(`create role ${dba.n8n} login password 'choose-one'`);
		const claim = async () => await n8n().works.claim(works(1), POLICY);
		await expect(claim()).rejects.toMatchObject({
			code: 'schema_missing',
			message: expect.stringMatching(
				/not installed in schema "idempotency".*database administrator/s,
			),
		});
		await dba.database.admin.query(`drop role ${dba.n8n}`);
		await dba.createRoles();
		await dba.printScript('installed');
		await expect(claim()).rejects.toMatchObject({
			code: 'no_permission',
			message: expect.stringMatching(/Grant usage on the schema/),
		});
		await dba.runScript('installed');
		await dba.database.admin.query(`grant usage on schema idempotency to ${dba.n8n}`);
		await expect(claim()).rejects.toMatchObject({
			code: 'no_permission',
			message: expect.stringMatching(/ledger_version/),
		});
		await dba.grantRights();
		expect(await claim()).toMatchObject([{ status: 'claimed' }]);
	});
});

/** What n8n's role gets for each call: `allowed`, or the SQLSTATE. */
async function callsOfN8n(calls: string[]): Promise<Array<[string, string]>> {
	const role = new Client(dba.as(dba.n8n));
	await role.connect();
	try {
		const answers: Array<[string, string]> = [];
		for (const call of calls)
			answers.push([
				call,
				await role.query(`select * from idempotency.${call}`).then(
					() => 'allowed',
					(error: { code: string }) => error.code,
				),
			]);
		return answers;
	} finally {
		await role.end();
	}
}

/** Every role that may execute any function of the ledger. */
async function executors(): Promise<string[]> {
	const { rows } = await dba.database.admin.query<{ role: string }>(
		`select distinct coalesce(nullif(a.grantee, 0)::regrole::text, 'public') as role
		from pg_proc p cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
		where p.pronamespace = 'idempotency'::regnamespace`,
	);
	return rows.map(({ role }) => role);
}

describe('npm run sql', () => {
	const sql = async (parameters: string[]) =>
		await run('npm', ['run', ...parameters], {
			cwd: built,
			env: clientEnvironment(dba.database.config),
		});

	test('prints for the schema that is named, quoted', async () => {
		const script = await sql(['--silent', 'sql', '--', '--schema', 'My "Ledger"']);
		expect(script).toContain('create table "My ""Ledger""".work_log');
		expect(script).not.toContain('"idempotency"');
	});

	test("refuses to write a file that would begin with npm's own lines", async () => {
		await expect(sql(['sql', '--', '--schema', 'x'])).rejects.toThrow('npm run --silent sql');
	});

	test.each([
		[['--schema', 'pg_ledger'], 'not a name PostgreSQL accepts'],
		[['--scheme', 'x'], 'Usage: npm run --silent sql'],
	])('refuses %j', async (parameters, message) => {
		await expect(sql(['--silent', 'sql', '--', ...parameters])).rejects.toThrow(message);
	});
});
