import { randomBytes } from 'node:crypto';
import { Client } from 'pg';

import { checkLedger, createLedger, type Ledger, type LedgerSettings } from '../../ledger';
import { installationScript, schemaSource } from '../../ledger/schema';
import { createTestDatabase, testServer, type TestDatabase } from '../postgres/database';
import { CALLER, POLICY, again, newWork } from './stage';

/** Databases and roles that are not set up as PostgreSQL sets them up. */

let database: TestDatabase;
const ledgers: Ledger[] = [];
const roles: string[] = [];
beforeAll(async () => {
	database = await createTestDatabase();
});
afterEach(async () => {
	await Promise.all(ledgers.splice(0).map(async (ledger) => await ledger.close()));
});
afterAll(async () => {
	for (const role of roles) {
		await database.admin.query(`reassign owned by ${role} to current_user; drop role ${role}`);
	}
	await database.drop();
});

function ledgerOn(change: Partial<LedgerSettings> = {}): Ledger {
	const ledger = createLedger({ ...database.config, maxConnections: 3, ...change });
	ledgers.push(ledger);
	return ledger;
}

/** A role that may install the ledger, with these defaults. */
async function roleWith(...settings: string[]): Promise<{ user: string; password: string }> {
	const user = `role_${randomBytes(6).toString('hex')}`;
	await database.admin.query(`create role ${user} login superuser password 'pw'`);
	for (const setting of settings) await database.admin.query(`alter role ${user} set ${setting}`);
	roles.push(user);
	return { user, password: 'pw' };
}

describe('a database of another encoding than UTF8', () => {
	const name = `enc_${randomBytes(6).toString('hex')}`;
	let admin: Client;
	beforeAll(async () => {
		admin = new Client(testServer());
		await admin.connect();
		await admin.query(
			`create database ${name} encoding 'WIN1251' template template0 locale_provider libc locale 'C'`,
		);
	});
	afterAll(async () => {
		await admin.query(`drop database ${name} with (force)`);
		await admin.end();
	});

	test('is refused before anything is claimed: an effect could not be completed there', async () => {
		const words = /encoding is WIN1251.*Enter a database whose encoding is UTF8/;
		const ledger = ledgerOn({ database: name });
		await expect(ledger.works.claim([newWork()], POLICY)).rejects.toMatchObject({
			code: 'unfit_database',
			message: expect.stringMatching(words),
		});
		await expect(ledger.install()).rejects.toMatchObject({ code: 'unfit_database' });
		expect(await checkLedger({ ...testServer(), database: name })).toEqual({
			ok: false,
			message: expect.stringMatching(words),
		});
	});

	test('is refused by the script, too', async () => {
		const client = new Client({ ...testServer(), database: name });
		await client.connect();
		try {
			// as psql does: statement by statement
			await client.query('begin');
			const [, check] =
				/^(do \$encoding\$[^]*?\$encoding\$);/m.exec(installationScript('ledger')) ?? [];
			await expect(client.query(check)).rejects.toThrow("The database's encoding is WIN1251");
		} finally {
			await client.end();
		}
	});
});

describe('a role or database with other defaults', () => {
	test('array_nulls off is refused: a reference that is missing would be stored as "NULL"', async () => {
		const ledger = ledgerOn(await roleWith('array_nulls = off'));
		await expect(ledger.works.claim([newWork()], POLICY)).rejects.toMatchObject({
			code: 'unfit_database',
			message: expect.stringMatching(/array_nulls is off.*set array_nulls = on/),
		});
	});

	test('standard_conforming_strings off: a schema with a backslash is installed, lists go on', async () => {
		const role = await roleWith('standard_conforming_strings = off');
		const ledger = ledgerOn({ ...role, schema: "back\\slash's" });
		await ledger.works.claim([newWork(), newWork(), newWork()], POLICY);
		const first = await ledger.admin.list({}, 2);
		expect(first.works).toHaveLength(2);
		expect((await ledger.admin.list({}, 2, first.cursor)).works).toHaveLength(1);
	});

	test('no function reads a backslash as the setting says', () => {
		const literal = /(^|[^eE'\w])'((?:[^']|'')*)'/g;
		for (const { name, sql } of schemaSource().functions) {
			const code = sql.replace(/--.*$/gm, '');
			const found = [...code.matchAll(literal)].filter(([, , text]) => text.includes('\\'));
			expect([name, found.map(([text]) => text)]).toEqual([name, []]);
		}
	});
});

describe('a schema that was renamed', () => {
	const count = async (schema: string) => {
		const { rows } = await database.admin.query<{ n: number }>(
			`select count(*)::integer as n from ${schema}.work_log`,
		);
		return rows[0].n;
	};

	test('keeps its works to itself: none is claimed in the ledger that has the old name now', async () => {
		const item = newWork();
		await ledgerOn({ schema: 'one' }).works.claim([item], POLICY);
		await database.admin.query('alter schema one rename to one_moved');
		// another pool: the first has looked already
		await ledgerOn({ schema: 'one' }).works.claim([newWork()], POLICY);

		const { works } = ledgerOn({ schema: 'one_moved' });
		expect(await works.claim([again(item)], POLICY)).toMatchObject([{ status: 'in_progress' }]);
		expect(await works.complete([item], CALLER)).toMatchObject([{ status: 'completed' }]);
		expect([await count('one_moved'), await count('one')]).toEqual([1, 1]);
	});

	test('is said where it cannot be mended, and functions of a newer package are left alone', async () => {
		await ledgerOn({ schema: 'two' }).install();
		const user = `plain_${randomBytes(6).toString('hex')}`;
		await database.admin.query(
			`alter schema two rename to two_moved; create role ${user} login password 'pw';
			grant usage on schema two_moved to ${user}; grant select on two_moved.ledger_version to ${user}`,
		);
		for (const change of [{ automaticMigration: false }, { user, password: 'pw' }]) {
			const { works } = ledgerOn({ schema: 'two_moved', ...change });
			await expect(works.claim([newWork()], POLICY)).rejects.toMatchObject({
				code: 'schema_outdated',
				message: expect.stringMatching(/"two_moved" was renamed.*script of this version/),
			});
		}
		await database.admin.query(
			`drop owned by ${user}; drop role ${user};
			update two_moved.ledger_version set contract = 999, package_version = '9.9.9'`,
		);
		const newer = { message: expect.stringMatching(/was renamed.*script of version 9\.9\.9/) };
		const ledger = ledgerOn({ schema: 'two_moved' });
		await expect(ledger.works.claim([newWork()], POLICY)).rejects.toMatchObject(newer);
		await expect(ledger.install()).rejects.toMatchObject(newer);
		expect(await checkLedger({ ...database.config, schema: 'two_moved' })).toMatchObject(newer);
	});

	test('is not one whose name is only quoted otherwise', async () => {
		const schema = 'tenant_a';
		await ledgerOn({ ...(await roleWith('quote_all_identifiers = on')), schema }).install();
		const { works } = ledgerOn({ schema, automaticMigration: false });
		expect(await works.claim([newWork()], POLICY)).toMatchObject([{ status: 'claimed' }]);
	});
});

test('in a publication for all tables the decision log can still be purged', async () => {
	const ledger = ledgerOn();
	await ledger.works.claim([newWork()], POLICY);
	await database.admin.query('create publication everything for all tables');
	expect(await ledger.admin.purgeDecisions(0, 10)).toBe(1);
});
