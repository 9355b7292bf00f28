import { readdirSync } from 'node:fs';
import path from 'node:path';
import { Client, type QueryArrayResult } from 'pg';

import { createLedger } from '../../ledger';
import { createTestDatabase, type PostgresConfig, type TestDatabase } from '../postgres/database';
import { readPage, settled, type Block } from './page';
import { demand, isInstalled, psqlTable, run } from './psql';

const { markdown, blocks } = readPage();
const BY_HAND = 'Installing by hand';
const examples = blocks.filter(
	({ language, chapter, section }) =>
		language === 'sql' && (chapter !== BY_HAND || section === 'Upgrades'),
);

/** As psql shows it: every value as the text that the server sends. */
async function driverTable(config: PostgresConfig, statement: string): Promise<string[][]> {
	const client = new Client({
		...config,
		options: '-c timezone=UTC',
		types: { getTypeParser: () => (value: unknown) => value } as never,
	});
	await client.connect();
	try {
		const answer = (await client.query({
			text: statement,
			rowMode: 'array',
		})) as unknown as QueryArrayResult<Array<string | null>>;
		if (Array.isArray(answer) || answer.fields.length === 0) return [];
		return [
			answer.fields.map(({ name }) => name),
			...answer.rows.map((row) => row.map((cell) => cell ?? '')),
		];
	} finally {
		await client.end();
	}
}

const ways = [
	...(isInstalled('psql') ? [{ way: 'psql', table: psqlTable }] : []),
	{ way: 'the driver', table: driverTable },
];

describe.each(ways)('the examples of the SQL reference, through $way', ({ table }) => {
	let database: TestDatabase;
	beforeAll(async () => {
		database = await createTestDatabase();
		const ledger = createLedger(database.config);
		await ledger.install();
		await ledger.close();
	});
	afterAll(async () => {
		await database.drop();
	});

	test('run from top to bottom and give the answers that the page shows', async () => {
		const shown: Array<[string, string[][]]> = [];
		const given: Array<[string, string[][]]> = [];
		for (const { section, chapter, text, answer } of examples) {
			const found = await table(database.config, text);
			if (answer === null) continue;
			shown.push([section || chapter, settled(answer)]);
			given.push([section || chapter, settled(found)]);
		}
		expect(given).toEqual(shown);
		expect(given.length).toBeGreaterThan(15);
	});
});

describe('the SQL reference', () => {
	const files = readdirSync(path.resolve(__dirname, '../../migrations/functions')).map((name) =>
		name.replace('.sql', ''),
	);

	/** The functions that run with their owner's rights are the ones for callers. */
	async function installed(): Promise<
		Array<{ name: string; parameters: string; callers: boolean }>
	> {
		const database = await createTestDatabase();
		try {
			const ledger = createLedger(database.config);
			await ledger.install();
			await ledger.close();
			const { rows } = await database.admin.query<{
				name: string;
				parameters: string;
				callers: boolean;
			}>(
				`select proname as name, pg_get_function_arguments(oid) as parameters, prosecdef as callers
				from pg_proc where pronamespace = 'idempotency'::regnamespace`,
			);
			return rows;
		} finally {
			await database.drop();
		}
	}

	test('shows every function for callers with its signature, an example and its answer', async () => {
		const functions = await installed();
		expect(functions.map(({ name }) => name).sort()).toEqual(files.sort());
		for (const { name, parameters } of functions.filter(({ callers }) => callers)) {
			const own = blocks.filter(({ section }) => section === name);
			const signature = own.find(({ language }) => language === 'text signature');
			// what a function returns as a table counts among its arguments
			const stated = parameters.split(', ').filter((p) => p.startsWith('p_'));
			expect([name, signature?.text.replace(/\)[^]*/, ')').trim()]).toEqual([
				name,
				`${name}(${stated.join(', ')})`,
			]);
			const example = own.some(
				({ language, text, answer }) =>
					language === 'sql' && text.includes(`idempotency.${name}(`) && answer !== null,
			);
			expect([name, example]).toEqual([name, true]);
		}
	});

	test('names every other function as not for callers', async () => {
		const internal = (await installed()).filter(({ callers }) => !callers).map(({ name }) => name);
		const [, chapter] = markdown.split('\n## Not for callers\n');
		const named = [...chapter.split('\n## ')[0].matchAll(/^\| `(\w+)` \|/gm)].map(
			([, name]) => name,
		);
		expect(named).toEqual(internal.sort());
	});

	test.each([
		['python', 'python3', '-c'],
		['sh', 'sh', '-c'],
	])('computes a work_id in %s as in SQL', async (language, command, flag) => {
		if (command === 'python3') demand('python3');
		const inChapter = (of: string) =>
			blocks.find((b) => b.chapter === 'The identity of a work' && b.language === of) as Block;
		const printed = await run(command, [flag, inChapter(language).text]);
		expect(printed.trim()).toBe(inChapter('sql').answer?.[1][0]);
	});
});
