import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { IDataObject, INodeExecutionData } from 'n8n-workflow';

import {
	claim,
	complete,
	step,
	workLedger,
	workLedgerTool,
	type NodeOfTest,
	type Ran,
} from './run-workflow';
import type { ScraperJob } from './scraper-process';
import { WorkflowStage } from './stage';

const stage = WorkflowStage.forThisFile();

const checkpoint = (
	operation: string,
	checkpointName: string,
	more: IDataObject = {},
): IDataObject => ({ resource: 'checkpoint', operation, checkpointName, ...more });

const save = (name: string, more: IDataObject = {}) =>
	checkpoint('save', name, { cursor: '={{ $json.id }}', ...more });

const continueAfter = (name: string, more: IDataObject = {}) =>
	checkpoint('continueAfter', name, { orderField: 'id', ...more });

async function ledger(
	parameters: IDataObject,
	items: IDataObject[] | INodeExecutionData[] = [{ id: 1 }],
	settings: NodeOfTest['settings'] = {},
): Promise<Ran> {
	return await stage.run({ items, nodes: [workLedger(parameters, settings)] });
}

/** The items that leave. */
async function left(
	parameters: IDataObject,
	items?: IDataObject[] | INodeExecutionData[],
): Promise<INodeExecutionData[]> {
	const ran = await ledger(parameters, items);
	expect(ran.error).toBeNull();
	return ran.out('Work Ledger');
}

async function answer(parameters: IDataObject, items?: IDataObject[]): Promise<IDataObject> {
	const [first, ...rest] = await left(parameters, items);
	expect(rest).toEqual([]);
	expect(first.json).not.toHaveProperty('error');
	return first.json;
}

const ids = (...numbers: Array<number | string>): IDataObject[] => numbers.map((id) => ({ id }));

const cursorOf = async (name: string, runId = '') =>
	(await stage.ledger.ledger.checkpoints.get({ name, runId }))?.cursor ?? null;

const log = async (name: string, runId = '') => {
	const id = createHash('sha256').update(`checkpoint::["${name}", "${runId}"]`).digest('hex');
	return await stage.ledger.log({ workId: id });
};

/** Neither a checkpoint nor the log changes. */
async function unchanged(name: string, act: () => Promise<unknown>): Promise<void> {
	const standing = async () => [await cursorOf(name), (await log(name)).length];
	const before = await standing();
	await act();
	expect(await standing()).toEqual(before);
}

describe('get', () => {
	test('answers where the last run came to; before the first run null, or the start that was chosen', async () => {
		const name = stage.newKind();
		expect(await answer(checkpoint('get', name))).toEqual({
			name,
			runId: '',
			found: false,
			cursor: null,
			message: `There is no checkpoint "${name}" yet: begin at the start.`,
		});
		expect(await answer(checkpoint('get', name, { startCursor: '0' }))).toMatchObject({
			found: false,
			cursor: '0',
		});
		await answer(save(name), ids(8400));
		expect(await answer(checkpoint('get', name, { startCursor: '0' }))).toMatchObject({
			found: true,
			cursor: '8400',
			compare: 'number',
			savedBy: { workflow_name: 'Test flow' },
			message: expect.stringMatching(/ stands at 8400 since 2/),
		});
	});

	test('is a cursor per run where a run id is given', async () => {
		const name = stage.newKind();
		const run = { checkpointRunId: '={{ $json.night }}' };
		await left(save(name, run), [
			{ id: 5, night: 'a' },
			{ id: 7, night: 'b' },
		]);
		expect([await cursorOf(name), await cursorOf(name, 'a'), await cursorOf(name, 'b')]).toEqual([
			null,
			'5',
			'7',
		]);
		expect(await answer(checkpoint('get', name, run), [{ night: 'a' }])).toMatchObject({
			runId: 'a',
			cursor: '5',
		});
	});
});

describe('save', () => {
	test('keeps the highest of all items in one statement; one item leaves, paired with all of them', async () => {
		const name = stage.newKind();
		const [item, ...rest] = await left(save(name), ids(3, 12, 9));
		expect(rest).toEqual([]);
		expect(item).toMatchObject({
			json: {
				status: 'saved',
				name,
				cursor: '12',
				before: null,
				items: 3,
				message: `Checkpoint "${name}" stands at 12 now.`,
			},
			pairedItem: [{ item: 0 }, { item: 1 }, { item: 2 }],
		});
		expect(await log(name)).toMatchObject([{ event: 'save_checkpoint', detail: { of: 3 } }]);
		expect(await answer(save(name), ids(20))).toMatchObject({
			message: `Checkpoint "${name}" stands at 20 now, it was at 12.`,
		});
		expect(await answer(save(name), ids(20))).toMatchObject({ status: 'unchanged' });
	});

	test('an item leaves per checkpoint, in the order in which each came first', async () => {
		const [a, b] = [stage.newKind(), stage.newKind()];
		const out = await left(save('={{ $json.shop }}'), [
			{ shop: b, id: 1 },
			{ shop: a, id: 5 },
			{ shop: b, id: 3 },
		]);
		expect(out).toMatchObject([
			{ json: { name: b, cursor: '3' }, pairedItem: [{ item: 0 }, { item: 2 }] },
			{ json: { name: a, cursor: '5' }, pairedItem: { item: 1 } },
		]);
	});

	test('an older cursor is refused in words, and goes back only where that is allowed', async () => {
		const name = stage.newKind();
		await answer(save(name), ids(100));
		const ran = await ledger(save(name), ids(98, 99));
		expect(ran.error?.message).toMatch(
			/^Checkpoint "\w+" was not moved to 99: it stands at 100 since \S+, which is newer\. Nothing was changed\. Switch on "Allow Going Back" only to do all of it again\.$/,
		);
		expect(await cursorOf(name)).toBe('100');
		expect(await answer(save(name, { allowGoingBack: true }), ids(99))).toMatchObject({
			status: 'saved',
			before: '100',
		});
		expect(await cursorOf(name)).toBe('99');
	});

	test('of several checkpoints one is refused: its items are errors, the others are saved', async () => {
		const [a, b] = [stage.newKind(), stage.newKind()];
		await answer(save(a), ids(100));
		const ran = await ledger(
			save('={{ $json.shop }}'),
			[
				{ shop: a, id: 1 },
				{ shop: b, id: 2 },
				{ shop: a, id: 3 },
			],
			{ onError: 'continueErrorOutput' },
		);
		expect(ran.out('Work Ledger')).toMatchObject([
			{ json: { name: b, status: 'saved' }, pairedItem: { item: 1 } },
		]);
		expect(ran.out('Work Ledger', 1)).toMatchObject([
			{ json: { id: 1, error: expect.stringMatching(/not moved to 3/) }, pairedItem: { item: 0 } },
			{ json: { id: 3, error: expect.stringMatching(/not moved to 3/) }, pairedItem: { item: 2 } },
		]);
		expect([await cursorOf(a), await cursorOf(b)]).toEqual(['100', '2']);
	});

	test('long numbers as text of digits, and times of any zone', async () => {
		const name = stage.newKind();
		await answer(save(name), ids('9007199254740993'));
		expect(await answer(save(name), ids('9007199254740994'))).toMatchObject({
			cursor: '9007199254740994',
		});
		const times = stage.newKind();
		const byTime = { compare: 'time' };
		await answer(save(times, byTime), ids('2026-01-01T00:00:00+02:00', '2025-12-31T23:00:00Z'));
		expect(await cursorOf(times)).toBe('2025-12-31T23:00:00.000Z');
	});

	test('under Retry On Fail what was saved is not saved again for the sake of another that was refused', async () => {
		const [a, b] = [stage.newKind(), stage.newKind()];
		await answer(save(a), ids(100));
		const ran = await ledger(
			save('={{ $json.shop }}'),
			[
				{ shop: a, id: 1 },
				{ shop: b, id: 2 },
			],
			{ retryOnFail: true, maxTries: 2, waitBetweenTries: 0 },
		);
		expect(ran.error?.message).toMatch(/was not moved to 1/);
		expect((await log(a)).map(({ outcome }) => outcome)).toEqual(['saved', 'refused']);
		expect((await log(b)).map(({ outcome }) => outcome)).toEqual(['saved']);
	});
});

describe('continue after', () => {
	test('lets pass what is behind the checkpoint, data, files and pairing kept, with one row for what it skipped', async () => {
		const name = stage.newKind();
		await answer(save(name), ids(2));
		const file = { file: { data: 'aGk=', mimeType: 'text/plain', fileName: 'a.txt' } };
		const out = await left(continueAfter(name), [
			{ json: { id: 4, title: 'd' } },
			{ json: { id: 1 } },
			{ json: { id: 3, title: 'c' }, binary: file },
			{ json: { id: 2 } },
		]);
		expect(out).toEqual([
			{ json: { id: 4, title: 'd' }, pairedItem: { item: 0 } },
			{ json: { id: 3, title: 'c' }, binary: file, pairedItem: { item: 2 } },
		]);
		expect((await log(name)).slice(1)).toMatchObject([
			{
				event: 'continue_after',
				outcome: 'continued',
				detail: { skipped: 2, passed: 2, from: '1', to: '2' },
			},
		]);
	});

	test('on the first run lets everything pass', async () => {
		const name = stage.newKind();
		expect(await left(continueAfter(name), ids(2, 1))).toHaveLength(2);
		expect(await log(name)).toMatchObject([{ outcome: 'from_start', detail: { passed: 2 } }]);
	});

	test('reads the field by path', async () => {
		const name = stage.newKind();
		await answer(save(name), ids(1));
		const out = await left(continueAfter(name, { orderField: 'page.nr' }), [
			{ page: { nr: 1 } },
			{ page: { nr: 2 } },
		]);
		expect(out.map(({ json }) => json)).toEqual([{ page: { nr: 2 } }]);
	});

	test.each(['continueRegularOutput', 'continueErrorOutput'] as const)('an item without the field is an error with its data under %s: nothing is lost', async (onError) => {
		const name = stage.newKind();
		await answer(save(name), ids(1));
		const ran = await ledger(continueAfter(name), [{ id: 1 }, { title: 'x' }, { id: 2 }], {
			onError,
		});
		expect(ran.error).toBeNull();
		const failed = { title: 'x', error: expect.stringMatching(/^Order field "id" is missing on this item\..*name a field that every item has/) };
		const good = ran.out('Work Ledger').filter(({ json }) => !('error' in json));
		expect(good).toMatchObject([{ json: { id: 2 }, pairedItem: { item: 2 } }]);
		const bad =
			onError === 'continueErrorOutput'
				? ran.out('Work Ledger', 1)
				: ran.out('Work Ledger').filter(({ json }) => 'error' in json);
		expect(bad).toMatchObject([{ json: failed, pairedItem: { item: 1 } }]);
	});

	test('an item without the field stops the workflow before anything is decided', async () => {
		const name = stage.newKind();
		await answer(save(name), ids(1));
		await unchanged(name, async () => {
			const ran = await ledger(continueAfter(name), [{ id: 1 }, { title: 'x' }]);
			expect(ran.error).toMatchObject({
				name: 'NodeOperationError',
				message: expect.stringMatching(/^Order field "id" is missing/),
			});
		});
	});

	test('another comparison than the one stored is an error on every item: nothing is skipped by mistake', async () => {
		const name = stage.newKind();
		await answer(save(name), ids(9));
		await unchanged(name, async () => {
			const ran = await ledger(continueAfter(name, { compare: 'text' }), ids('10', '8'), {
				onError: 'continueRegularOutput',
			});
			expect(ran.json('Work Ledger')).toMatchObject(
				['10', '8'].map((id) => ({
					id,
					error: expect.stringMatching(/it is compared as number, not as text: reset it first/),
				})),
			);
		});
	});
});

describe('reset and list', () => {
	test('a checkpoint that is reset is gone, and the next run begins at the start', async () => {
		const name = stage.newKind();
		await answer(save(name), ids(9));
		expect(await answer(checkpoint('reset', name))).toMatchObject({
			status: 'reset',
			before: '9',
			message: `Checkpoint "${name}" is gone, it was at 9.`,
		});
		expect(await left(continueAfter(name), ids(1))).toHaveLength(1);
		expect(await answer(checkpoint('reset', name))).toMatchObject({ status: 'absent' });
	});

	test('lists in pages up to its limit, and goes on behind its last item', async () => {
		const name = stage.newKind();
		const runs = Array.from({ length: 1_203 }, (_, i) => ({ id: i, run: `r${10_000 + i}` }));
		await left(save(name, { checkpointRunId: '={{ $json.run }}' }), runs);
		const list = async (limit: number, more: IDataObject = {}) =>
			(
				await left({
					resource: 'checkpoint',
					operation: 'list',
					limit,
					checkpointFilters: { name, ...more },
				})
			).map(({ json }) => json);
		const first = await list(1_100);
		expect(first).toHaveLength(1_100);
		expect(first.slice(0, -1).every((each) => !('nextPage' in each))).toBe(true);
		const rest = await list(1_100, { cursor: first.at(-1)?.nextPage });
		expect(rest.at(-1)).not.toHaveProperty('nextPage');
		expect([...first, ...rest].map(({ runId, cursor }) => [runId, cursor])).toEqual(
			runs.map(({ id, run }) => [run, String(id)]),
		);
		expect(await list(10, { text: 'R11202' })).toMatchObject([
			{ runId: 'r11202', message: expect.stringMatching(/of run "r11202" stands at 1202 since/) },
		]);
	});
});

describe('bad input', () => {
	const on = (operation: string, more: IDataObject) => ({
		resource: 'checkpoint',
		operation,
		checkpointName: 'bad',
		cursor: '={{ $json.id }}',
		orderField: 'id',
		...more,
	});
	test.each([
		['no name', on('save', { checkpointName: '={{ "" }}' }), /^Name is empty\./],
		['a lost name', on('get', { checkpointName: '={{ $json.nope }}' }), /^Name is empty\./],
		['a lost name as text', on('get', { checkpointName: '={{ "undefined" }}' }), /^Name is the text "undefined"/],
		['a name too long', on('reset', { checkpointName: 'x'.repeat(201) }), /^Name is longer than 200/],
		['a run id whose expression gives nothing', on('save', { checkpointRunId: '={{ $json.nope }}' }), /^Run ID is empty: its expression gives nothing/],
		['no cursor', on('save', { cursor: '={{ "" }}' }), /^Cursor is missing on this item\./],
		['a lost cursor', on('save', { cursor: '={{ $json.nope }}' }), /^Cursor is missing on this item\./],
		['a word as number', on('save', { cursor: 'page 7' }), /^Cursor is "page 7", which is no number\. Set Compare As/],
		['a number rounded upstream', on('save', { cursor: '={{ 9007199254740993 }}' }), /beyond 2\^53-1/],
		['a time without a zone (case 45)', on('save', { compare: 'time', cursor: '2025-08-19T00:00:00' }), /no certain moment\. .*with their zone/],
		['an unknown comparison', on('save', { compare: 'size' }), /^Compare As is none of number, time and text/],
		['no order field', on('continueAfter', { orderField: ' ' }), /^Order Field is empty\./],
		['a limit of none', on('list', { limit: 0 }), /^Limit must be a whole number from 1 to 100000/],
		['a page that list did not give', on('list', { checkpointFilters: { cursor: 'tomorrow' } }), /cursor is not one that list gave/],
		['an unknown operation', on('explode', {}), /"explode" is not known to this version for "checkpoint"/],
	])('%s is a clear error on the item, and changes nothing', async (_, parameters, words) => {
		await unchanged('bad', async () => {
			const ran = await ledger(parameters, ids(1), { onError: 'continueRegularOutput' });
			expect(ran.error).toBeNull();
			expect(ran.out('Work Ledger')).toEqual([
				{ json: { id: 1, error: expect.stringMatching(words) }, pairedItem: { item: 0 } },
			]);
		});
	});

	test('a ledger that cannot be reached is an error on every item, and lets none pass', async () => {
		const ran = await stage.run({
			items: ids(1, 2),
			nodes: [workLedger(continueAfter('bad'), { onError: 'continueErrorOutput' })],
			credential: { ...stage.ledger.settings, host: '' },
		});
		expect(ran.out('Work Ledger')).toEqual([]);
		expect(ran.json('Work Ledger', 1)).toHaveLength(2);
	});
});

test('as a tool of an agent get and save answer in text that a model can read', async () => {
	const name = stage.newKind();
	const read = async (parameters: IDataObject) => {
		const ran = await stage.run({ items: ids(7), nodes: [workLedgerTool(parameters)] });
		expect(ran.error).toBeNull();
		return ran.json('Work Ledger').map(({ response }) => response);
	};
	expect(await read(checkpoint('get', name))).toEqual([
		`There is no checkpoint "${name}" yet: begin at the start.`,
	]);
	expect(await read(save(name))).toEqual([`Checkpoint "${name}" stands at 7 now.`]);
	expect(await read(save(name, { cursor: '3' }))).toEqual([
		expect.stringMatching(/was not moved to 3: it stands at 7/),
	]);
});

test('a scraper that is killed at item 8,460 of 10,000 goes on there: 10,000 effects, none twice, one row for what was skipped', async () => {
	const kind = stage.newKind();
	const name = stage.newKind();
	const pages = 10_000;
	await stage.ledger.query('create table effects (page int not null)');

	const job: ScraperJob = {
		settings: stage.ledger.settings,
		kind,
		checkpoint: name,
		pages,
		diesAt: 8_440,
	};
	const scraper = spawn(
		process.execPath,
		[
			'--require',
			path.join(__dirname, '../environments/load-typescript.js'),
			path.join(__dirname, 'scraper-process.ts'),
			JSON.stringify(job),
		],
		{ stdio: ['pipe', 'pipe', 'inherit'] },
	);
	const gone = new Promise((resolve) => scraper.once('exit', (_code, signal) => resolve(signal)));
	await new Promise<void>((resolve, reject) => {
		createInterface(scraper.stdout).once('line', () => resolve());
		void gone.then(() => reject(new Error('the scraper ended by itself')));
	});
	scraper.kill('SIGKILL');
	expect(await gone).toBe('SIGKILL');
	expect(await cursorOf(name)).toBe('8400');
	const count = async (text: string) =>
		(await stage.ledger.query<{ n: number }>(`select count(*)::int as n ${text}`))[0].n;
	expect(await count('from effects')).toBe(8_440);
	// what it held when it died: its lease ends
	const lapsed = await stage.ledger.query(
		`update idempotency.work_log set locked_until = clock_timestamp() - interval '1 second'
		where kind = $1 and state = 'running' returning 1`,
		[kind],
	);
	expect(lapsed).toHaveLength(20);

	const second = await stage.run({
		items: ids(...Array.from({ length: pages }, (_, i) => i + 1)),
		nodes: [
			workLedger(continueAfter(name)),
			claim({ kind, keyFields: 'id' }),
			step('Fetch', async (items) => {
				await stage.ledger.query('insert into effects select unnest($1::int[])', [
					items.map(({ json }) => json.id),
				]);
				return items.map(({ json }, item) => ({ json, pairedItem: { item } }));
			}),
			complete(),
			{ ...workLedger(save(name)), name: 'Save' },
		],
	});
	expect(second.error).toBeNull();
	expect(second.out('Work Ledger')).toHaveLength(1_600);
	expect(second.out('Claim Work')).toHaveLength(1_560);
	expect(second.out('Claim Work', 1)).toHaveLength(40);
	expect(second.json('Save')).toMatchObject([{ cursor: '10000', before: '8400' }]);

	expect(await count('from effects')).toBe(pages);
	expect(await count('from (select distinct page from effects) d')).toBe(pages);
	expect(await count(`from idempotency.work_log where kind = '${kind}' and state = 'done'`)).toBe(pages);
	expect(
		await count(
			`from idempotency.decision_log d join idempotency.work_log w using (work_id)
			where w.kind = '${kind}' and d.outcome = 'duplicate'`,
		),
	).toBe(40);
	const rows = await log(name);
	expect(rows.filter(({ event }) => event === 'save_checkpoint')).toHaveLength(84 + 1);
	expect(rows.filter(({ event }) => event === 'continue_after')).toMatchObject([
		{ detail: { skipped: 8_400, passed: 1_600, from: '1', to: '8400' } },
	]);
}, 120_000);
