import { randomUUID } from 'node:crypto';
import path from 'node:path';

import { createLedger, identifyByKey, type Ledger } from '../../ledger';
import { CALLER, POLICY } from '../integration/stage';
import { createTestDatabase, type TestDatabase } from '../postgres/database';
import { readPage } from './page';
import { clientEnvironment, demand, run } from './psql';

const program = path.join(__dirname, 'claim.py');
const root = path.resolve(__dirname, '../..');

interface Answer {
	status: string;
	token: string | null;
	work_id: string;
	attempt: number;
	result: unknown;
	external_ref: string | null;
	more: Record<string, unknown>;
}

let database: TestDatabase;
let ledger: Ledger;
beforeAll(async () => {
	demand('python3');
	demand('psql');
	database = await createTestDatabase();
	ledger = createLedger(database.config);
	await ledger.install();
});
afterAll(async () => {
	await ledger?.close();
	await database?.drop();
});

async function python(...parameters: string[]): Promise<string> {
	const env = { ...clientEnvironment(database.config), PYTHONUTF8: '1' };
	return (await run('python3', [program, ...parameters], { env })).trim();
}

async function answer(...parameters: string[]): Promise<Answer> {
	return JSON.parse(await python(...parameters)) as Answer;
}

describe('a Python script without any package', () => {
	test.each(['1001', 'Größe – 発注 🧾', "O'Brien \\ \"x\" $1 :'a'"])(
		'computes the identity that the package computes, for the key %s',
		async (key) => {
			const { workId } = identifyByKey({ kind: 'invoice' }, [{ name: 'key', value: key }]);
			expect(await python('work-id', 'invoice', 'v1', key)).toBe(workId);
		},
	);

	test('claims, meets its own claim, completes, and reads the stored result', async () => {
		const key = "O'Brien \\ 🧾";
		const first = await answer('claim', 'order', 'v1', key, '{"amount": "19.90"}');
		expect(first).toMatchObject({ status: 'claimed', attempt: 1 });
		expect(await answer('claim', 'order', 'v1', key)).toMatchObject({
			status: 'in_progress',
			token: null,
		});
		const result = '{"z":1.0,"a":"it\'s \\\\ $1"}';
		expect(
			await answer('complete', first.work_id, first.token as string, result, 'INV-7'),
		).toMatchObject({ status: 'completed' });
		expect(await answer('claim', 'order', 'v1', key)).toMatchObject({
			status: 'duplicate',
			result: { z: 1, a: "it's \\ $1" },
			external_ref: 'INV-7',
		});
		const { rows } = await database.admin.query(
			'select result::text from idempotency.work_log where work_id = $1',
			[first.work_id],
		);
		expect(rows).toEqual([{ result }]);
	});

	test('says what the ledger refuses, and fails', async () => {
		await expect(python('claim', 'a:b', 'v1', '1')).rejects.toThrow('kind must be a text without');
		await expect(python('complete', '0'.repeat(64), 'no-token', '1')).rejects.toThrow(
			'invalid input syntax for type uuid',
		);
		expect(await answer('complete', '0'.repeat(64), randomUUID(), '1')).toMatchObject({
			status: 'not_owner',
		});
	});

	test('two processes that claim one key in the same moment: one gets it', async () => {
		const workId = await python('work-id', 'order', 'v1', 'race');
		// an insert of the same key, held open: both processes wait for it and go on when it is undone
		const gate = database.admin;
		await gate.query('begin');
		await gate.query(
			`select 1 from idempotency.claim_work($1, 'race', gen_random_uuid(), null, null, '{"kind": "order"}')`,
			[workId],
		);
		const both = Promise.all([
			answer('claim', 'order', 'v1', 'race'),
			answer('claim', 'order', 'v1', 'race'),
		]);
		for (;;) {
			await gate.query('select pg_stat_clear_snapshot()');
			const { rows } = await gate.query<{ waiting: number }>(
				`select count(*)::int as waiting from pg_stat_activity
				where datname = current_database() and wait_event_type = 'Lock'`,
			);
			if (rows[0].waiting === 2) break;
			await gate.query('select pg_sleep(0.01)');
		}
		await gate.query('rollback');
		const [one, two] = (await both).sort((a, b) => a.status.localeCompare(b.status));
		expect([one.status, two.status]).toEqual(['claimed', 'in_progress']);
		const { rows } = await gate.query(
			'select state, attempt, token from idempotency.work_log where work_id = $1',
			[workId],
		);
		expect(rows).toEqual([{ state: 'running', attempt: 1, token: one.token }]);
	});
});

test("n8n's client claims, Python completes as the reference shows, and n8n's duplicate gets Python's result", async () => {
	const { workId, key } = identifyByKey({ kind: 'invoice' }, [{ name: 'order_id', value: 20 }]);
	const token = randomUUID();
	expect(await ledger.works.claim([{ workId, key, token }], POLICY)).toMatchObject([
		{ status: 'claimed' },
	]);
	const example = readPage().blocks.find(
		({ chapter, language }) => chapter === 'Two languages' && language === 'sh',
	);
	const env = { ...clientEnvironment(database.config), WORK_ID: workId, TOKEN: token };
	const printed = await run('sh', ['-c', example?.text ?? 'exit 1'], { env, cwd: root });
	expect(JSON.parse(printed)).toMatchObject({ status: 'completed', external_ref: 'INV-20' });
	expect(await ledger.works.claim([{ workId, key, token: randomUUID() }], POLICY)).toMatchObject([
		{ status: 'duplicate', result: { invoice: 'INV-20' }, externalRef: 'INV-20' },
	]);
	// completed there as well, with the same result: harmless
	expect(
		await ledger.works.complete(
			[{ workId, token, result: { invoice: 'INV-20' }, externalRef: 'INV-20' }],
			CALLER,
		),
	).toMatchObject([{ status: 'completed', repeated: true, differs: [] }]);
});
