import { createHash, randomUUID } from 'node:crypto';
import type { Client } from 'pg';

import { createLedger, cursorText } from '../../ledger';
import type {
	Continuation,
	CursorComparison,
	SaveCheckpoint,
	SavedCheckpoint,
} from '../../ledger/checkpoints';
import { startProxy } from './cuttable-proxy';
import { CALLER, Stage } from './stage';

let stage: Stage;
let one: Client;
beforeAll(async () => {
	stage = await Stage.open();
	one = await stage.connect();
});
afterAll(async () => {
	await stage.close();
});

/** A name that no other test has. */
const newName = () => `products ${randomUUID()}`;

const idOf = (name: string, runId = '') =>
	createHash('sha256')
		.update(`checkpoint::${JSON.stringify([name, runId]).replace('","', '", "')}`)
		.digest('hex');

async function save(
	name: string,
	cursors: string | string[],
	more: Partial<SaveCheckpoint> = {},
): Promise<SavedCheckpoint> {
	const [answer] = await stage.ledger.checkpoints.save(
		[{ name, compare: 'number', cursors: [cursors].flat(), ...more }],
		CALLER,
	);
	return answer;
}

const cursorOf = async (name: string, runId = '') =>
	(await stage.ledger.checkpoints.get({ name, runId }))?.cursor ?? null;

const log = async (name: string, runId = '') => await stage.log({ workId: idOf(name, runId) });
const history = async (name: string, runId = '') =>
	await stage.history({ workId: idOf(name, runId) });

const continued = async (
	name: string,
	cursors: string[],
	compare: CursorComparison = 'number',
): Promise<Continuation> =>
	await stage.ledger.checkpoints.continueAfter({ name }, compare, cursors, CALLER);

const SAVE = `select answer ->> 'status' as status from idempotency.save_checkpoints(
	array[$1], array[''], array['number'], array[$3::boolean], array[$4::uuid], array[1], array[$2], null) answer`;

/** A save on a connection of the test, which may hold its transaction open. */
async function saveOn(
	client: Client,
	name: string,
	cursor: string,
	allowBack = false,
	token: string = randomUUID(),
): Promise<string> {
	return (await client.query(SAVE, [name, cursor, allowBack, token])).rows[0].status;
}

describe('a checkpoint', () => {
	test('is saved, read, moved on and reset, and the log tells each of it', async () => {
		const name = newName();
		expect(await cursorOf(name)).toBeNull();
		expect(await save(name, '8400')).toMatchObject({ status: 'saved', before: null, of: 1 });
		expect(await stage.ledger.checkpoints.get({ name })).toEqual({
			checkpointId: idOf(name),
			name,
			runId: '',
			compare: 'number',
			cursor: '8400',
			createdAt: expect.stringMatching(/Z$/),
			savedAt: expect.stringMatching(/Z$/),
			savedBy: expect.objectContaining({ execution: '100', workflow_name: 'Invoices' }),
		});
		expect(await save(name, '8500')).toMatchObject({ status: 'saved', before: '8400' });
		expect(await stage.ledger.checkpoints.reset({ name }, CALLER)).toEqual({
			status: 'reset',
			cursor: '8500',
		});
		expect(await cursorOf(name)).toBeNull();
		expect(await stage.ledger.checkpoints.reset({ name })).toEqual({
			status: 'absent',
			cursor: null,
		});
		expect(await log(name)).toMatchObject([
			{ event: 'save_checkpoint', outcome: 'saved', detail: { name, cursor: '8400', of: 1 } },
			{ event: 'save_checkpoint', outcome: 'saved', checked: { found: '8400' } },
			{
				event: 'reset_checkpoint',
				outcome: 'reset',
				detail: { cursor: '8500' },
				fired: { execution: '100' },
			},
			{ event: 'reset_checkpoint', outcome: 'absent' },
		]);
		expect(await stage.ledger.admin.explain(idOf(name))).toMatchObject({
			work: null,
			history: [{ event: 'save_checkpoint' }, {}, {}, {}],
		});
	});

	test('is one per run where a run id is given, and none of them is the one without', async () => {
		const name = newName();
		await save(name, '1');
		await save(name, '20', { runId: 'a' });
		await save(name, '10', { runId: 'b' });
		expect([await cursorOf(name), await cursorOf(name, 'a'), await cursorOf(name, 'b')]).toEqual([
			'1',
			'20',
			'10',
		]);
		await stage.ledger.checkpoints.reset({ name, runId: 'a' });
		expect([await cursorOf(name), await cursorOf(name, 'a'), await cursorOf(name, 'b')]).toEqual([
			'1',
			null,
			'10',
		]);
		expect(await history(name, 'a')).toEqual(['save_checkpoint: saved', 'reset_checkpoint: reset']);
	});

	test('keeps the highest of many cursors, saved in one statement with one row in the log', async () => {
		const name = newName();
		const cursors = Array.from({ length: 10_000 }, (_, i) => String((i * 7919) % 10_000));
		expect(await save(name, cursors)).toMatchObject({
			status: 'saved',
			given: '9999',
			of: 10_000,
			checkpoint: { cursor: '9999' },
		});
		expect(await log(name)).toMatchObject([{ detail: { cursor: '9999', of: 10_000 } }]);
	});

	test('of more than a statement holds are all saved, each answer in its place', async () => {
		const names = Array.from({ length: 1_100 }, newName);
		const answers = await stage.ledger.checkpoints.save(
			names.map((name, i) => ({ name, compare: 'number', cursors: [String(i)] })),
		);
		expect(answers.map(({ checkpoint }) => checkpoint.name)).toEqual(names);
		expect(answers.map(({ given }) => given)).toEqual(names.map((_, i) => String(i)));
	});

	test('saved at its own cursor stays as it is', async () => {
		const name = newName();
		await save(name, '1.50');
		const before = await stage.ledger.checkpoints.get({ name });
		expect(await save(name, '1.5')).toMatchObject({ status: 'unchanged', reason: null });
		expect(await stage.ledger.checkpoints.get({ name })).toEqual(before);
		expect(await history(name)).toEqual(['save_checkpoint: saved', 'save_checkpoint: unchanged']);
	});

	test('does not go back unless that is allowed', async () => {
		const name = newName();
		await save(name, '100');
		const before = await stage.ledger.checkpoints.get({ name });
		expect(await save(name, '99')).toMatchObject({
			status: 'refused',
			reason: expect.stringMatching(/^it stands at 100 since 2.*Z, which is newer$/),
			checkpoint: { cursor: '100' },
		});
		expect(await stage.ledger.checkpoints.get({ name })).toEqual(before);
		expect(await save(name, '99', { allowGoingBack: true })).toMatchObject({
			status: 'saved',
			before: '100',
		});
		expect(await cursorOf(name)).toBe('99');
		expect(await history(name)).toEqual([
			'save_checkpoint: saved',
			'save_checkpoint: refused',
			'save_checkpoint: saved',
		]);
	});

	test('is never compared otherwise without a word: not by saving, not by continuing, not even going back', async () => {
		const name = newName();
		await save(name, '9');
		for (const compare of ['text', 'time'] as const) {
			const cursor = compare === 'text' ? '10' : '2026-01-01T00:00:00Z';
			const reason = `it is compared as number, not as ${compare}: reset it first if that shall change`;
			expect(await save(name, cursor, { compare, allowGoingBack: true })).toMatchObject({
				status: 'refused',
				reason,
			});
			expect(await continued(name, [cursor], compare)).toMatchObject({ status: 'refused', reason });
		}
		expect(await cursorOf(name)).toBe('9');
		await stage.ledger.checkpoints.reset({ name });
		expect(await save(name, '10', { compare: 'text' })).toMatchObject({ status: 'saved' });
	});
});

describe('two savers at once', () => {
	test.each([
		['the newer comes second', '10', '20', 'saved'],
		['the newer comes first', '20', '10', 'refused'],
	])(
		'%s: the newer wins, over a checkpoint that stood before',
		async (_, first, second, status) => {
			const name = newName();
			await save(name, '1');
			await one.query('begin');
			expect(await saveOn(one, name, first)).toBe('saved');
			const late = save(name, second);
			await stage.untilWaiting(1);
			await one.query('commit');
			expect((await late).status).toBe(status);
			expect(await cursorOf(name)).toBe('20');
		},
	);

	test.each([
		['the newer comes second', '10', '20', 'saved'],
		['the newer comes first', '20', '10', 'refused'],
	])('%s: the newer wins, over none', async (_, first, second, status) => {
		const name = newName();
		await one.query('begin');
		await saveOn(one, name, first);
		const late = save(name, second);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect((await late).status).toBe(status);
		expect(await cursorOf(name)).toBe('20');
	});

	test('the first dies before its commit: the second saves', async () => {
		const name = newName();
		const dying = await stage.connect();
		const [{ pid }] = (await dying.query('select pg_backend_pid() as pid')).rows;
		await dying.query('begin');
		await saveOn(dying, name, '20');
		const late = save(name, '10');
		await stage.untilWaiting(1);
		await stage.query('select pg_terminate_backend($1)', [pid]);
		expect(await late).toMatchObject({ status: 'saved', before: null });
		expect(await cursorOf(name)).toBe('10');
	});

	test('a reset between: the saver that waited begins anew', async () => {
		const name = newName();
		await save(name, '100');
		await one.query('begin');
		await one.query('select idempotency.reset_checkpoint($1, null, $2, null)', [
			name,
			randomUUID(),
		]);
		const late = save(name, '5');
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await late).toMatchObject({ status: 'saved', before: null });
		expect(await cursorOf(name)).toBe('5');
	});

	test('who both found the same cursor before either moved it: the newer wins', async () => {
		const name = newName();
		await save(name, '1');
		await one.query('begin');
		await one.query('select 1 from idempotency.checkpoints where name = $1 for update', [name]);
		const newer = save(name, '20');
		await stage.untilWaiting(1);
		const older = save(name, '10');
		await stage.untilWaiting(2);
		await one.query('commit');
		expect((await newer).status).toBe('saved');
		expect((await older).status).toBe('refused');
		expect(await cursorOf(name)).toBe('20');
	});

	test('a reset after the saver had found it: the saver begins anew', async () => {
		const name = newName();
		await save(name, '100');
		await one.query('begin');
		await one.query('select 1 from idempotency.checkpoints where name = $1 for update', [name]);
		const late = save(name, '5');
		await stage.untilWaiting(1);
		await one.query('select idempotency.reset_checkpoint($1, null, $2, null)', [
			name,
			randomUUID(),
		]);
		await one.query('commit');
		expect(await late).toMatchObject({ status: 'saved', before: null });
		expect(await cursorOf(name)).toBe('5');
	});

	test('of several checkpoints in opposite orders do not lock each other out', async () => {
		const names = [newName(), newName()].sort();
		for (const name of names) await save(name, '1');
		const [first, last] = names;
		const other = await stage.connect();
		const both = `select answer from idempotency.save_checkpoints($1, array['',''], array['number','number'], null,
			array[gen_random_uuid(), gen_random_uuid()], array[1,2], array['5','5'], null) answer`;
		await one.query('begin');
		await saveOn(one, first, '3');
		const forward = other.query(both, [[last, first]]);
		await stage.untilWaiting(1);
		// it holds nothing yet: it locks by name, not by its own order
		await saveOn(one, last, '3');
		await one.query('commit');
		await forward;
		expect([await cursorOf(first), await cursorOf(last)]).toEqual(['5', '5']);
	});
});

describe('a call that is sent again', () => {
	test('after its answer was lost is answered as it was, also where somebody saved meanwhile', async () => {
		const name = newName();
		await save(name, '10');
		const token = randomUUID();
		expect(await saveOn(one, name, '5', true, token)).toBe('saved');
		await save(name, '7');
		expect(await saveOn(one, name, '5', true, token)).toBe('saved');
		// it does not go back a second time
		expect(await cursorOf(name)).toBe('7');
		expect(await history(name)).toHaveLength(3);
	});

	test('is one save, one reset and one summary, through a connection that was cut', async () => {
		const name = newName();
		const proxy = await startProxy(stage.settings);
		const far = createLedger({ ...stage.settings, host: '127.0.0.1', port: proxy.port });
		try {
			proxy.loseAnswerTo('save_checkpoints');
			expect(
				await far.checkpoints.save([{ name, compare: 'number', cursors: ['5'] }]),
			).toMatchObject([{ status: 'saved', repeated: true, checkpoint: { cursor: '5' } }]);
			proxy.loseAnswerTo('continue_after');
			expect(await far.checkpoints.continueAfter({ name }, 'number', ['4', '6'])).toMatchObject({
				skip: [true, false],
				skipped: 1,
			});
			proxy.loseAnswerTo('reset_checkpoint');
			expect(await far.checkpoints.reset({ name })).toEqual({ status: 'reset', cursor: '5' });
			expect(proxy.lost).toBe(3);
		} finally {
			await far.close();
			await proxy.close();
		}
		expect(await history(name)).toEqual([
			'save_checkpoint: saved',
			'continue_after: continued',
			'reset_checkpoint: reset',
		]);
	});

	test('while the first still runs waits for it, and writes no second summary', async () => {
		const name = newName();
		const call = `select idempotency.continue_after($1, null, 'number', array['1'], $2, null)`;
		const values = [name, randomUUID()];
		const other = await stage.connect();
		await one.query('begin');
		await one.query(call, values);
		const second = other.query(call, values);
		await stage.untilWaiting(1);
		await one.query('commit');
		await second;
		expect(await history(name)).toEqual(['continue_after: from_start']);
	});
});

describe('continuing after a checkpoint', () => {
	test('skips what stands at or before it, in any order, and one row tells of all of them', async () => {
		const name = newName();
		await save(name, '8400');
		const cursors = Array.from({ length: 10_000 }, (_, i) => String(10_000 - i));
		const { status, skip, ...summary } = await continued(name, cursors);
		expect(status).toBe('continued');
		expect(skip).toEqual(cursors.map((cursor) => Number(cursor) <= 8400));
		expect(summary).toMatchObject({ skipped: 8400, from: '1', to: '8400' });
		expect((await log(name)).slice(1)).toMatchObject([
			{
				event: 'continue_after',
				outcome: 'continued',
				fired: { execution: '100' },
				checked: { found: '8400' },
				detail: { name, skipped: 8400, passed: 1600, from: '1', to: '8400' },
			},
		]);
	});

	test('without a checkpoint skips nothing, and says so', async () => {
		const name = newName();
		expect(await continued(name, ['1', '2'])).toMatchObject({
			status: 'from_start',
			checkpoint: null,
			skip: [false, false],
			skipped: 0,
			from: null,
			to: null,
		});
		expect(await log(name)).toMatchObject([
			{ outcome: 'from_start', detail: { skipped: 0, passed: 2 } },
		]);
	});

	test('a second time writes a row of its own', async () => {
		const name = newName();
		await continued(name, ['1']);
		await continued(name, ['1']);
		expect(await history(name)).toEqual([
			'continue_after: from_start',
			'continue_after: from_start',
		]);
	});

	test('changes nothing', async () => {
		const name = newName();
		await save(name, '5');
		const before = await stage.ledger.checkpoints.get({ name });
		await continued(name, ['4', '9']);
		expect(await stage.ledger.checkpoints.get({ name })).toEqual(before);
	});

	test('of more items than one call takes is refused before anything is sent', async () => {
		const name = newName();
		await expect(continued(name, new Array<string>(500_001).fill('1'))).rejects.toMatchObject({
			code: 'bad_input',
			message: expect.stringMatching(/500001 items/),
		});
		expect(await history(name)).toEqual([]);
	});
});

describe('cursors are compared', () => {
	const ordered: Array<[CursorComparison, string, string[]]> = [
		[
			'number',
			'by value, however long',
			[
				'-10',
				'-9.5',
				'0',
				'9',
				'10',
				'9007199254740993',
				'9007199254740994',
				'123456789012345678901234567890',
			],
		],
		[
			'time',
			'as moments, down to the nanosecond',
			[
				'2026-01-01T00:00:00+02:00',
				'2026-01-01T00:00:00Z',
				'2026-01-01T00:00:00.123Z',
				'2026-01-01T00:00:00.123456788Z',
				'2026-01-01T00:00:00.123456789Z',
				'2025-12-31T23:00:00-02:00',
			],
		],
		[
			'text',
			'byte by byte, not as numbers and not by language',
			['10', '9', 'Z', 'a', 'ä', '\u{ff5e}', '\u{1f600}'],
		],
	];

	test.each(ordered)('as %s: %s', async (compare, _, cursors) => {
		const written = cursors.map((cursor) => cursorText(cursor, compare, 'Cursor'));
		for (let i = 0; i < written.length; i++) {
			const name = newName();
			expect(await save(name, written[i], { compare })).toMatchObject({ status: 'saved' });
			const { skip } = await continued(name, written, compare);
			expect(skip).toEqual(written.map((_each, at) => at <= i));
			if (i > 0) expect((await save(name, written[i - 1], { compare })).status).toBe('refused');
			expect((await save(name, written, { compare })).given).toBe(written.at(-1));
		}
	});

	test('a time comes out as UTC, whatever the time zone of the session (case 45)', async () => {
		const name = newName();
		await one.query(`set time zone 'Europe/Lisbon'`);
		await one.query(
			`select idempotency.save_checkpoints(array[$1], null, array['time'], null, array[gen_random_uuid()],
				array[1], array['2025-08-19T04:00:00.5+04:00'], null)`,
			[name],
		);
		await one.query(`set time zone default`);
		expect(await cursorOf(name)).toBe('2025-08-19T00:00:00.500Z');
	});

	test('two writings of one moment are one cursor', async () => {
		const name = newName();
		await save(name, '2026-01-01T01:00:00.000Z', { compare: 'time' });
		expect(await save(name, '2026-01-01T02:00:00+01:00', { compare: 'time' })).toMatchObject({
			status: 'unchanged',
		});
	});
});

describe('bad input', () => {
	test.each([
		['a missing cursor', undefined, 'number', /^Cursor is missing on this item\./],
		['null', null, 'text', /^Cursor is missing/],
		['an empty text', '', 'time', /^Cursor is missing/],
		['a lost value', 'undefined', 'text', /the text "undefined"/],
		['a number rounded upstream', 2 ** 53, 'number', /beyond 2\^53-1.*as text of digits/],
		['NaN', NaN, 'number', /no number/],
		['a list as number', [1], 'number', /is a list, which is no number/],
		['a word as number', '12a', 'number', /"12a", which is no number/],
		[
			'a time without a zone (case 45)',
			'2025-08-19T00:00:00',
			'time',
			/no certain moment.*with their zone/,
		],
		['a date alone', '2025-08-19', 'time', /no certain moment/],
		['a day that is none', '2026-02-30T00:00:00Z', 'time', /no certain moment/],
		['a count of seconds as time', 1767225600, 'time', /Set Compare As to Number/],
		['an invalid date', new Date('x'), 'time', /invalid date/],
		['a number as text', 9, 'text', /9 would come after 10/],
		['half an emoji', '\ud83d', 'text', /half an emoji/],
		['a text of 501 characters', 'x'.repeat(501), 'text', /longer than 500/],
	] as Array<[string, unknown, CursorComparison, RegExp]>)(
		'%s is no cursor, in words',
		(_, value, compare, words) => {
			expect(() => cursorText(value, compare, 'Cursor')).toThrow(words);
		},
	);

	test.each([
		[7, 'number', '7'],
		[-0, 'number', '0'],
		[1e-7, 'number', '0.0000001'],
		[' 12 ', 'number', '12'],
		[12345678901234567890n, 'number', '12345678901234567890'],
		[new Date(0), 'time', '1970-01-01T00:00:00.000Z'],
		['2026-01-01T01:00:00+01:00', 'time', '2026-01-01T00:00:00.000Z'],
		['Ab ', 'text', 'Ab '],
	] as Array<[unknown, CursorComparison, string]>)(
		'%p as %s is the cursor %p',
		(value, compare, text) => {
			expect(cursorText(value, compare, 'Cursor')).toBe(text);
		},
	);

	test.each([
		['no name', { name: '' }, /name of a checkpoint has 1 to 200/],
		['a long name', { name: 'x'.repeat(201) }, /not 201/],
		['a long run id', { runId: 'x'.repeat(201) }, /run_id has at most 200/],
		[
			'an unknown comparison',
			{ compare: 'size' as CursorComparison },
			/compare must be number, time or text/,
		],
		['a cursor that is none', { cursors: ['now'] }, /no plain decimal number/],
		['infinity', { cursors: ['Infinity'] }, /no plain decimal number/],
		['a time without a zone', { compare: 'time', cursors: ['2026-01-01T00:00:00'] }, /with a zone/],
		['the word now as time', { compare: 'time', cursors: ['now'] }, /no ISO 8601 time/],
		['a day that is none', { compare: 'time', cursors: ['2026-02-30T00:00:00Z'] }, /out of range/],
		['no cursor at all', { cursors: [] }, /there is no cursor/],
	] as Array<[string, Partial<SaveCheckpoint>, RegExp]>)(
		'%s is refused by the ledger itself, and nothing of that call is saved',
		async (_, bad, words) => {
			const good = newName();
			await expect(
				stage.ledger.checkpoints.save([
					{ name: good, compare: 'number', cursors: ['1'] },
					{ name: newName(), compare: 'number', cursors: ['1'], ...bad },
				]),
			).rejects.toMatchObject({ code: 'bad_input', message: expect.stringMatching(words) });
			expect(await cursorOf(good)).toBeNull();
			expect(await history(good)).toEqual([]);
		},
	);

	test('a null token is refused by every function that takes one', async () => {
		for (const call of [
			`save_checkpoints(array['x'], null, array['number'], null, null, array[1], array['1'], null)`,
			`reset_checkpoint('x', null, null, null)`,
			`continue_after('x', null, 'number', array['1'], null, null)`,
			`redeem_action_link(repeat('a', 64), null, null, null)`,
		]) {
			await expect(stage.query(`select idempotency.${call}`)).rejects.toThrow(
				/token must not be null/,
			);
		}
	});
});

describe('list', () => {
	test('goes page by page through names and runs, each once', async () => {
		await stage.query('delete from idempotency.checkpoints');
		const all: string[] = [];
		for (const name of ['b "quoted"', 'a', 'c']) {
			for (const runId of ['', '2', '10']) {
				await save(name, '1', { runId });
				all.push(`${name}/${runId}`);
			}
		}
		const seen: string[] = [];
		let cursor: string | null = null;
		do {
			const page = await stage.ledger.checkpoints.list({}, 2, cursor);
			seen.push(...page.checkpoints.map(({ name, runId }) => `${name}/${runId}`));
			cursor = page.cursor;
		} while (cursor !== null);
		expect(seen).toEqual(all.sort());
	});

	test('by name, and by part of name or run id in any case', async () => {
		const name = newName();
		await save(name, '1', { runId: 'Nightly-1' });
		await save(`${name} more`, '1');
		const found = async (filter: { name?: string; text?: string }) =>
			(await stage.ledger.checkpoints.list(filter, 50)).checkpoints.map((each) => each.name);
		expect(await found({ name })).toEqual([name]);
		expect(await found({ text: name.toUpperCase() })).toEqual([name, `${name} more`]);
		expect(await found({ text: 'nightly-1' })).toEqual([name]);
		expect(await found({ text: '%' })).toEqual([]);
	});

	test.each(['tomorrow', '[]', '["a"]', '["a", null]', '{"a": 1}', 'null'])(
		'%s is no cursor that it gave',
		async (cursor) => {
			await expect(stage.ledger.checkpoints.list({}, 10, cursor)).rejects.toMatchObject({
				code: 'bad_input',
				message: expect.stringMatching(/cursor is not one that list gave/),
			});
		},
	);
});
