/** The backup commands of docs/operations.md, as they stand there. */

import { Client } from 'pg';

import { createLedger } from '../../ledger';
import { startPostgres, type RunningPostgres } from '../../scripts/embedded-postgres';
import { newWork, POLICY } from '../integration/stage';
import { createTestFolder } from '../postgres/database';
import { clientEnvironment, demand, run } from '../sql/psql';
import { blocks, page } from './pages';

/** The oldest that is promised: every system's own pg_dump is as new or newer. */
let server: RunningPostgres;
beforeAll(async () => {
	demand('psql');
	server = await startPostgres({ version: 14 });
	// the first run on a machine fetches the server
}, 180_000);
afterAll(async () => await server?.stop());

async function database(name: string) {
	const admin = new Client(server);
	await admin.connect();
	await admin.query(`create database ${name}`);
	await admin.end();
	return { ...server, database: name };
}

test('a ledger that was dumped and restored by the page’s commands remembers, and works on', async () => {
	const [dump, restore] = blocks(page('docs/operations.md'))
		.map(({ text }) => text)
		.filter((text) => text.startsWith('pg_'));
	const cwd = createTestFolder('backup');
	const [before, after] = [await database('shop'), await database('restored')];
	const [done, running, fresh] = ['done', 'running', 'fresh'].map((key) => newWork(key));

	const old = createLedger(before);
	await old.works.claim([done, running], POLICY);
	await old.works.complete([{ ...done, result: { invoice: 'INV-1' }, externalRef: 'INV-1' }]);
	await old.close();
	await run('sh', ['-e', '-c', dump], { cwd, env: clientEnvironment(before) });
	await run('sh', ['-e', '-c', restore], { cwd, env: clientEnvironment(after) });

	const ledger = createLedger({ ...after, automaticMigration: false });
	try {
		expect(
			await ledger.works.claim([newWork('done'), newWork('running'), fresh], POLICY),
		).toMatchObject([
			{ status: 'duplicate', result: { invoice: 'INV-1' }, externalRef: 'INV-1' },
			{ status: 'in_progress' },
			{ status: 'claimed' },
		]);
		// the owner from before goes on with its token
		expect(await ledger.works.complete([{ ...running, result: 1 }])).toMatchObject([
			{ status: 'completed' },
		]);
	} finally {
		await ledger.close();
	}
	// installed by a package, too, it is taken for what it is
	const installing = createLedger(after);
	expect(await installing.works.complete([{ ...fresh, result: 1 }])).toMatchObject([
		{ status: 'completed' },
	]);
	await installing.close();
}, 60_000);
