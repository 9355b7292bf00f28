import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { Client } from 'pg';

import { checkLedger, createLedger } from '../../ledger';
import { startPostgres, type RunningPostgres } from '../../scripts/embedded-postgres';
import { CALLER, newWork, POLICY } from '../integration/stage';
import { createTestFolder } from '../postgres/database';
import { readPage } from '../sql/page';

const CHECKOUT = path.resolve(__dirname, '../..');

/** The test files that hold the contract, table by table; the rest is about connections and other processes. */
const CONTRACT = [
	...['claim', 'windows', 'lapse', 'complete', 'fail', 'fail-execution', 'reference', 'extend'],
	...['release', 'batch', 'decision-log', 'hostile-values', 'install', 'check', 'sql-contract'],
];

let server: RunningPostgres;
let admin: Client;
beforeAll(async () => {
	server = await startPostgres({ version: 14, settings: { log_connections: 'on' } });
	admin = new Client(server);
	await admin.connect();
	// the first run on a machine fetches the server
}, 180_000);
afterAll(async () => {
	await admin?.end();
	await server?.stop();
});

test('the whole contract holds on the oldest PostgreSQL that is promised', async () => {
	const { rows } = await admin.query<{ version: number }>(
		`select current_setting('server_version_num')::int / 10000 as version`,
	);
	expect(rows[0].version).toBe(14);

	// without the setup that starts a server for the run
	const { globalSetup, globalTeardown, ...config } = jestConfig();
	expect([globalSetup, globalTeardown]).toEqual([expect.any(String), expect.any(String)]);
	const results = path.join(createTestFolder('postgres-14'), 'results.json');
	const { host, port, user, password, database } = server;
	await promisify(execFile)(
		process.execPath,
		[
			path.join(CHECKOUT, 'node_modules/jest/bin/jest.js'),
			...['--config', JSON.stringify({ ...config, rootDir: CHECKOUT })],
			// the quoting of names is the client's, the same for every version
			...['--testNamePattern', '^(?!.*works in a schema named)'],
			...['--runInBand', '--json', '--outputFile', results, '--runTestsByPath'],
			...CONTRACT.map((name) => path.join(CHECKOUT, `test/integration/${name}.test.ts`)),
		],
		{
			cwd: CHECKOUT,
			// this server in place of the one that a run starts for itself
			env: {
				...process.env,
				IDEMPOTENCY_TEST_PG: JSON.stringify({ host, port, user, password, database }),
			},
			maxBuffer: 64 * 1024 * 1024,
		},
	).catch(() => undefined);

	const run = JSON.parse(readFileSync(results, 'utf8')) as JestResults;
	const failed = run.testResults.flatMap(({ message, assertionResults }) =>
		assertionResults.some(({ status }) => status === 'failed') || assertionResults.length === 0
			? [message]
			: [],
	);
	expect(failed).toEqual([]);
	expect([run.success, run.numFailedTests, run.numTotalTestSuites]).toEqual([
		true,
		0,
		CONTRACT.length,
	]);
	expect(run.numPassedTests).toBeGreaterThan(200);
	// it was this server that they ran on
	const log = readFileSync(path.join(server.folder, 'server.log'), 'utf8');
	const databases = log.matchAll(/connection authorized: .*database=(test_[0-9a-f]+)/g);
	expect(new Set([...databases].map(([, name]) => name)).size).toBeGreaterThanOrEqual(
		CONTRACT.length - 1,
	);
}, 300_000);

interface JestResults {
	success: boolean;
	numFailedTests: number;
	numPassedTests: number;
	numTotalTestSuites: number;
	testResults: Array<{ message: string; assertionResults: Array<{ status: string }> }>;
}

function jestConfig(): Record<string, unknown> {
	return jest.requireActual<Record<string, unknown>>('../../jest.config.js');
}

describe('a role with rights to the functions only, as the page tells', () => {
	const settings = () => ({
		...{ host: server.host, port: server.port, database: 'restricted' },
		...{ user: 'n8n_ledger', password: 'choose-one', automaticMigration: false },
	});
	const query = async (text: string) => {
		const client = new Client(settings());
		await client.connect();
		try {
			return (await client.query(text)).rows as unknown[];
		} finally {
			await client.end();
		}
	};

	beforeAll(async () => {
		await admin.query('create database restricted');
		const owner = new Client({ ...server, database: 'restricted' });
		await owner.connect();
		const [roles, rights] = readPage().blocks.filter(
			({ section, language }) => section === 'Roles' && language === 'sql',
		);
		try {
			await owner.query(roles.text);
			await owner.query(`alter role ledger_owner login password 'choose-one'`);
			const installer = createLedger({ ...settings(), user: 'ledger_owner' });
			await installer.install();
			await installer.close();
			await owner.query(rights.text);
		} finally {
			await owner.end();
		}
	});

	test('claims and completes, and neither reads nor changes a table', async () => {
		expect(await checkLedger(settings())).toMatchObject({ ok: true });
		const ledger = createLedger(settings());
		try {
			const items = [newWork(), newWork(), newWork()];
			const [first] = await ledger.works.claim(items.slice(0, 1), POLICY);
			const others = await ledger.works.claim(items, POLICY);
			expect([first, ...others].map(({ status }) => status)).toEqual(Array(4).fill('claimed'));
			expect(await ledger.works.complete(items, CALLER)).toMatchObject(
				Array(3).fill({ status: 'completed' }),
			);
		} finally {
			await ledger.close();
		}
		for (const statement of [
			'select 1 from idempotency.work_log',
			'delete from idempotency.work_log',
			'select 1 from idempotency.decision_log',
			'truncate idempotency.decision_log',
			`update idempotency.ledger_version set contract = 0`,
		])
			await expect(query(statement)).rejects.toMatchObject({ code: '42501' });
	});

	test("may create tables in public until the page's extra revoke", async () => {
		expect(readPage().markdown).toContain('`revoke create on schema public from public`');
		await query('create table public.mine (x int); drop table public.mine');
		const owner = new Client({ ...server, database: 'restricted' });
		await owner.connect();
		await owner.query('revoke create on schema public from public');
		await owner.end();
		await expect(query('create table public.mine (x int)')).rejects.toMatchObject({
			code: '42501',
		});
		expect(await checkLedger(settings())).toMatchObject({ ok: true });
	});
});
