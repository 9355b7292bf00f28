import { spawn } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';
import { startPostgres, type RunningPostgres } from '../../scripts/embedded-postgres';
import { createTestDatabase, createTestFolder } from './database';

const embedded = path.resolve(__dirname, '../../scripts/embedded-postgres.js');

async function query(postgres: RunningPostgres, text: string) {
	const client = new Client(postgres);
	await client.connect();
	try {
		return (await client.query(text)).rows as Array<Record<string, unknown>>;
	} finally {
		await client.end();
	}
}

/** Resolves once nobody listens on the port any more. */
async function untilClosed(port: number): Promise<void> {
	for (;;) {
		const client = new Client({ host: '127.0.0.1', port, user: 'nobody', password: '-' });
		client.on('error', () => {});
		const code = await client.connect().then(
			() => '',
			(error: { code?: string }) => error.code,
		);
		await client.end().catch(() => {});
		if (code === 'ECONNREFUSED') return;
	}
}

describe('the PostgreSQL of the tests', () => {
	test('each test file has a database of its own', async () => {
		const [one, two] = await Promise.all([createTestDatabase(), createTestDatabase()]);
		await one.admin.query('create table only_here ()');
		const seen = await two.admin.query("select to_regclass('only_here') as found");
		expect(seen.rows).toEqual([{ found: null }]);
		await Promise.all([one.drop(), two.drop()]);
	});

	test('a kept data folder survives a crash and a restart', async () => {
		const dataFolder = createTestFolder('kept');
		const first = await startPostgres({ dataFolder });
		await query(first, "create table t as select 'kept' as text");
		await first.kill();
		const second = await startPostgres({ dataFolder });
		expect(await query(second, 'select * from t')).toEqual([{ text: 'kept' }]);
		await second.stop();
		rmSync(second.folder, { recursive: true, force: true });
	});

	test('a taken port is said', async () => {
		const { port } = JSON.parse(process.env.IDEMPOTENCY_TEST_PG ?? '') as { port: number };
		await expect(startPostgres({ port })).rejects.toThrow(`Port ${port} is taken.`);
	});

	test('a process that is killed leaves neither a server nor a folder behind', async () => {
		const child = spawn(
			process.execPath,
			[
				'-e',
				`require(${JSON.stringify(embedded)}).startPostgres().then((p) => console.log(JSON.stringify(p))); setInterval(() => {}, 1000);`,
			],
			{ stdio: ['ignore', 'pipe', 'inherit'] },
		);
		const line = await new Promise<string>((resolve) => {
			child.stdout.once('data', (chunk: Buffer) => resolve(chunk.toString()));
		});
		const { port, folder } = JSON.parse(line) as RunningPostgres;
		expect(existsSync(folder)).toBe(true);
		child.kill('SIGKILL');
		await untilClosed(port);
		while (existsSync(folder)) await new Promise(setImmediate);
	});
});
