import { payloadText } from '../../ledger';
import { again, CALLER, from, newWork, PATHS, POLICY, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

/** The stored JSON as text, byte for byte. */
async function storedText(column: 'payload' | 'result', workId: string): Promise<string> {
	const [{ text }] = await stage.query<{ text: string }>(
		`select ${column}::text as text from idempotency.work_log where work_id = $1`,
		[workId],
	);
	return text;
}

const TEXTS = [
	'Smith, John',
	"x,'y",
	'$1 $2 $$ $tag$',
	'{"a":1}',
	'{a,b,"c"}',
	'NULL',
	'\\N \\ \\\\ "',
	"'; drop table work_log; --",
	'%s %I :schema :"schema"',
	'a\tb\r\nc',
	'😀 é é Ω \u200b\u202e',
	'  spaces  ',
];

describe.each(PATHS)('values sent %s', (path) => {
	test.each(TEXTS)(
		'pass byte-equal as key, result, reference, error and caller: %j (case 40)',
		async (text) => {
			const item = await stage.claimed(
				newWork(`${text} ${Math.random()}`),
				from({ workflowName: text, node: text }),
				path,
			);
			expect((await stage.row(item)).key).toBe(item.key);
			const result = { note: text, [text]: [text] };
			await stage.complete(item, { result, externalRef: text }, path);
			const answer = await stage.claim(again(item), {}, path);
			expect(answer).toMatchObject({ status: 'duplicate', result, externalRef: text });
			expect(answer.owner).toMatchObject({ workflowName: text, node: text });

			const failing = await stage.claimed();
			await stage.fail(failing, { error: text });
			expect((await stage.row(failing)).last_error).toBe(text);
		},
	);

	test('NUL and half an emoji in a result are kept lossless, good emoji unchanged (case 43, S7)', async () => {
		const result = { s: 'a\0b', half: 'x\ud83d', other: '\ude00y', good: '😀', '\0': '\0' };
		const item = await stage.claimed();
		expect(await stage.complete(item, { result }, path)).toMatchObject({
			status: 'completed',
			warnings: [],
		});
		expect((await stage.claim(again(item), {}, path)).result).toEqual(result);
		expect(await stage.complete(item, { result }, path)).toMatchObject({
			repeated: true,
			differs: [],
		});
		expect(await stage.complete(item, { result: { ...result, s: 'a\0c' } }, path)).toMatchObject({
			differs: ['result'],
		});
	});

	test('JSON keeps its key order, its numbers and its repeated names: json, not jsonb', async () => {
		const item = await stage.claimed(
			{ ...newWork(), payload: '{"z":1.10,"a":1e400,"z":2}' },
			{},
			path,
		);
		expect(await storedText('payload', item.workId)).toBe('{"z":1.10,"a":1e400,"z":2}');
		await stage.complete(item, { result: { z: 1, a: 2, m: { b: 1, a: 2 } } }, path);
		expect(await storedText('result', item.workId)).toBe('{"z":1,"a":2,"m":{"b":1,"a":2}}');
	});

	test('a payload with NUL is claimed, kept and answered after a lapse', async () => {
		const { text } = payloadText({ s: 'a\0b', half: '\ud83d' });
		const item = await stage.claimed({ ...newWork(), payload: text }, {}, path);
		await stage.elapse(item);
		await stage.claimed(again(item), {}, path);
		expect(await storedText('payload', item.workId)).toBe(text);
	});

	test('NUL and half an emoji in what people read become visible, and never stop a run', async () => {
		const item = await stage.claimed(
			newWork(`k\0${Math.random()}\ud83d`),
			from({ workflowName: 'w\0\ud83d' }),
			path,
		);
		await stage.fail(item, { error: 'e\0\ud83d' });
		const row = await stage.row(item);
		expect(row.key).toMatch(/^k\u2400/);
		expect(row.last_error).toBe('e\u2400\ufffd');
	});

	test('a key of a megabyte is claimed; its first 1,000 code points are readable (S8)', async () => {
		const item = newWork(`${Math.random()}${'😀'.repeat(250_000)}`);
		await stage.claimed(item, {}, path);
		const [{ length }] = await stage.query<{ length: number }>(
			'select char_length(key) as length from idempotency.work_log where work_id = $1',
			[item.workId],
		);
		expect(length).toBe(1000);
		expect(item.key.startsWith((await stage.row(item)).key as string)).toBe(true);
	});

	test.each([
		['a scalar', 7],
		['false', false],
		['an empty text', ''],
		['an empty list', []],
		['an empty object', {}],
		['a deep one', JSON.parse('['.repeat(500) + ']'.repeat(500)) as unknown],
		['one with __proto__', JSON.parse('{"__proto__": {"x": 1}}') as unknown],
		['a big integer as text', { id: '9007199254740993' }],
	])('a result that is %s comes back as it was', async (_, result) => {
		const item = await stage.claimed();
		await stage.complete(item, { result }, path);
		expect((await stage.claim(again(item), {}, path)).result).toEqual(result);
	});

	test('a result of 10 MB comes back as it was', async () => {
		const item = await stage.claimed();
		const result = { text: 'é'.repeat(5 * 1024 * 1024) };
		await stage.complete(item, { result }, path);
		expect((await stage.claim(again(item), {}, path)).result).toEqual(result);
	});
});

test('an error of a megabyte is cut, not refused', async () => {
	const item = await stage.claimed();
	await stage.fail(item, { error: 'x'.repeat(1_000_000) });
	expect((await stage.row(item)).last_error).toHaveLength(4_000);
});

test('an error that ends in the middle of an emoji at the cut is stored', async () => {
	const item = await stage.claimed();
	await stage.fail(item, { error: `${'x'.repeat(3_999)}😀` });
	expect((await stage.row(item)).last_error).toMatch(/^x{3999}/);
});

test('an execution id with hostile text is found again by fail and by open claims', async () => {
	const execution = `a,'"{}$1`;
	const item = await stage.claimed(newWork(), from({ execution }));
	expect(await stage.works.openClaims('instance-1', execution, 5)).toMatchObject([
		{ workId: item.workId },
	]);
	expect(
		await stage.works.failExecution('instance-1', [execution], execution, CALLER),
	).toMatchObject([{ workId: item.workId }]);
});

test('hostile values of a batch stay at their items', async () => {
	const items = TEXTS.map((text) => newWork(`${text}${Math.random()}`));
	await stage.works.claim(items, POLICY);
	await stage.works.complete(
		items.map((item, i) => ({ ...item, result: TEXTS[i], externalRef: TEXTS[i] })),
		CALLER,
	);
	const answers = await stage.works.claim(
		items.map((item) => again(item)),
		POLICY,
	);
	expect(answers.map(({ result, externalRef }) => [result, externalRef])).toEqual(
		TEXTS.map((text) => [text, text]),
	);
});

test('a payload over its cap is not kept, and says so', () => {
	const { text, warnings } = payloadText({ big: 'x'.repeat(256 * 1024) });
	expect(text).toBeNull();
	expect(warnings).toEqual([expect.stringContaining('too large to keep')]);
});

test('values never show in an error', async () => {
	const card = 'card-4111111111111111';
	const failure = await stage
		.claim({ ...newWork(), workId: 'short', key: card, payload: `{"pan":"${card}"}` })
		.catch((error: unknown) => error);
	expect(failure).toMatchObject({ name: 'LedgerError', code: 'bad_input' });
	expect(JSON.stringify(failure) + String((failure as Error).stack)).not.toContain(card);
});
