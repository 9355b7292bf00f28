import type { IDataObject } from 'n8n-workflow';

import { claim, complete, http, step, type Ran } from './run-workflow';
import { WorkflowStage, byOrder } from './stage';

const stage = WorkflowStage.forThisFile();

const MEGABYTE = 1024 * 1024;

function deep(levels: number): IDataObject {
	let value: IDataObject = { end: true };
	for (let i = 0; i < levels; i++) value = { in: value };
	return value;
}

function circular(): IDataObject {
	const value: IDataObject = { a: 1 };
	value.self = value;
	return value;
}

/** What a client may send; the value stands where the test puts it. */
const VALUES: Array<[string, unknown]> = [
	['NUL', 'a\u0000b'],
	['half an emoji', 'x\ud83d'],
	['a text of 5 MB', 'x'.repeat(5 * MEGABYTE)],
	['40 levels', deep(40)],
	['a circular value', circular()],
	['a BigInt', 9007199254740993n],
	['a field called __proto__', JSON.parse('{"__proto__":{"polluted":true},"a":1}')],
	['a field called constructor', { constructor: { prototype: { polluted: true } } }],
	['keys that look like numbers', { '10': 'a', '9': 'b', a: 'c' }],
	['$1 and $&', "$1 $& $$ $' ${x}"],
	['quotes', `it's "quoted" \`here\` \\ and ;drop table work_log;--`],
	['commas', 'Smith, John, "a,b"'],
	['an invalid date', new Date(NaN)],
	['a date', new Date('2026-01-01T00:00:00Z')],
	['NaN', NaN],
	['infinity', -Infinity],
	['a rounded number', 7615917337495251000],
	['nothing', undefined],
	['null', null],
	['an empty list', []],
	['an own field that is none', { status: 'claimed', workId: 'x', token: 7 }],
	['a Map', new Map([['a', 1]])],
	['a function', () => 1],
	['a symbol', Symbol('s')],
	['binary data', Buffer.from('abc')],
	['a braced expression', '={{ $execution.id }}'],
];

/** Status per item in the order of the input, from whichever output. */
function statuses(ran: Ran, node = 'Claim Work', outputs = 5): string[] {
	return Array.from({ length: outputs }, (_, output) => ran.out(node, output))
		.flat()
		.sort(
			(a, b) => (a.pairedItem as { item: number }).item - (b.pairedItem as { item: number }).item,
		)
		.map(({ json }) =>
			String(((json.work ?? (json.details as IDataObject).work) as IDataObject).status),
		);
}

/** The odd value between two good items. */
const between = (value: unknown, name = 'odd') =>
	[
		{ order: 'first' },
		{ order: name === 'order' ? undefined : 'odd', [name]: value },
		{ order: 'last' },
	] as IDataObject[];

describe.each(['continueRegularOutput', 'continueErrorOutput'] as const)('under %s', (onError) => {
	test.each(VALUES)('%s as the key stops no other item', async (_, value) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: between(value, 'order'),
			nodes: [claim(byOrder(kind), { onError }), complete({ result: 'none' })],
		});
		expect(ran.error).toBeNull();
		const [first, odd, last] = statuses(ran);
		expect([first, last]).toEqual(['claimed', 'claimed']);
		expect(['claimed', 'refused']).toContain(odd);
		const works = await stage.works(kind);
		expect(works).toHaveLength(odd === 'claimed' ? 3 : 2);
		expect(works.filter((work) => / done$/.test(work))).toHaveLength(works.length);
	});
});

test.each(VALUES)('%s as content is work of its own or refused, each time alike', async (_, value) => {
	const kind = stage.newKind();
	const deliver = async () =>
		await stage.run({
			items: between(value),
			nodes: [
				claim({ kind, identity: 'content' }, { onError: 'continueRegularOutput' }),
				complete({ result: 'none' }),
			],
		});
	const [first, odd, last] = statuses(await deliver());
	expect([first, last]).toEqual(['claimed', 'claimed']);
	expect(statuses(await deliver())).toEqual([
		'duplicate',
		odd === 'claimed' ? 'duplicate' : 'refused',
		'duplicate',
	]);
});

test.each(VALUES)('%s beside the key hinders neither the claim nor the completion', async (_, value) => {
	const kind = stage.newKind();
	const ran = await stage.run({
		items: between(value),
		nodes: [
			claim(byOrder(kind)),
			step('Effect', http((json) => json)),
			complete(),
		],
	});
	expect(ran.error).toBeNull();
	expect(statuses(ran)).toEqual(['claimed', 'claimed', 'claimed']);
	expect(statuses(ran, 'Complete Work', 2)).toEqual(['completed', 'completed', 'completed']);
	expect((await stage.rows(kind)).map(({ state }) => state)).toEqual(['done', 'done', 'done']);
	expect(({} as IDataObject).polluted).toBeUndefined();
});

test.each(VALUES)('%s as a field that must not change refuses its item at most', async (_, value) => {
	const kind = stage.newKind();
	const ran = await stage.run({
		items: between(value),
		nodes: [
			claim(byOrder(kind, { options: { matchFields: 'odd' } }), {
				onError: 'continueRegularOutput',
			}),
		],
	});
	expect(ran.error).toBeNull();
	const [first, odd, last] = statuses(ran);
	expect([first, last]).toEqual(['claimed', 'claimed']);
	expect(['claimed', 'refused']).toContain(odd);
});

test.each(VALUES)('%s as reason of a failure fails the work', async (_, value) => {
	const kind = stage.newKind();
	const ran = await stage.run({
		items: between('x'),
		nodes: [
			claim(byOrder(kind)),
			step(
				'Effect',
				http((json) => ({ ...json, problem: json.order === 'odd' ? value : 'declined' }) as IDataObject),
			),
			complete({ operation: 'fail', landed: 'no', error: '={{ $json.problem }}' }),
		],
	});
	expect(ran.error).toBeNull();
	expect((await stage.rows(kind)).map(({ state }) => state)).toEqual(['failed', 'failed', 'failed']);
});

test.each([
	['circular', circular()],
	['a function', () => 1],
])('an expression that n8n cannot evaluate (%s) does not keep what happened from being recorded', async (_, odd) => {
	const [completed, failed] = [stage.newKind(), stage.newKind()];
	const effect = step('Effect', http((json) => ({ ...json, odd }) as unknown as IDataObject));
	const done = await stage.run({
		items: [{ order: 1 }],
		nodes: [
			claim(byOrder(completed)),
			effect,
			complete({ result: 'expression', resultValue: '={{ $json.odd }}', externalRef: '={{ $json.odd }}' }),
		],
	});
	expect(done.error).toBeNull();
	expect(await stage.work(completed)).toMatchObject({
		state: 'done',
		result: { $notStored: 'the expression failed' },
		external_ref: null,
	});
	expect((done.json('Complete Work')[0].work as IDataObject).warnings).toEqual([
		expect.stringMatching(/^The result was not stored, because its expression fails/),
		expect.stringMatching(/^No reference was stored, because its expression fails/),
	]);
	await stage.run({
		items: [{ order: 1, error: 'declined' }],
		nodes: [
			claim(byOrder(failed)),
			effect,
			complete({ operation: 'fail', landed: 'no', error: '={{ $json.odd }}' }),
		],
	});
	expect(await stage.work(failed)).toMatchObject({ state: 'failed', last_error: 'declined' });
});

test('what the contract says of each key is kept: types, texts and their order', async () => {
	const kind = stage.newKind();
	const keys = ['$1', `it's "x"`, 'a,b', '={{ 1 }}', "'; drop table x;--", '😀', 'é', '\\', '%s'];
	await stage.run({
		items: keys.map((order) => ({ order })),
		nodes: [
			claim(byOrder(kind)),
			complete({ result: 'fields', resultFields: 'order', externalRef: '=ref {{ $json.order }}' }),
		],
	});
	const ran = await stage.run({
		items: keys.map((order) => ({ order })),
		nodes: [claim(byOrder(kind))],
	});
	expect(ran.json('Claim Work', 1).map(({ work }) => work)).toMatchObject(
		keys.map((key) => ({ key, result: { order: key }, externalRef: `ref ${key}` })),
	);
});

test('keys that look like numbers are sorted as text, so their order does not count', async () => {
	const kind = stage.newKind();
	const ran = await stage.run({
		items: [
			{ o: { '10': 1, '9': 2, a: 3 } },
			{ o: { a: 3, '9': 2, '10': 1 } },
			{ o: { a: 3, '9': 1, '10': 2 } },
		],
		nodes: [claim({ kind, identity: 'content', options: { showCanonical: true } })],
	});
	expect(statuses(ran)).toEqual(['claimed', 'in_progress', 'claimed']);
	expect(ran.json('Claim Work')[0].work).toMatchObject({
		canonical: '{"o":{"10":1,"9":2,"a":3}}',
	});
});

test('many items in one execution: bounded time and memory, each claimed and completed once', async () => {
	const kind = stage.newKind();
	const count = Number(process.env.IDEMPOTENCY_MANY_ITEMS ?? 20_000);
	let most = 0;
	const watch = setInterval(() => {
		most = Math.max(most, process.memoryUsage().rss);
	}, 50);
	const before = process.memoryUsage().rss;
	const items = Array.from({ length: count }, (_, order) => ({
		order,
		customer: `customer ${order}`,
		lines: [{ sku: `S${order}`, count: 2 }],
	}));
	const started = performance.now();
	const ran = await stage.run({
		items,
		nodes: [
			claim(byOrder(kind)),
			step('Effect', http(({ order }) => ({ invoice: `inv_${String(order)}` }))),
			complete({ externalRef: '={{ $json.invoice }}' }),
		],
	});
	const seconds = (performance.now() - started) / 1000;
	clearInterval(watch);
	if (process.env.IDEMPOTENCY_MANY_ITEMS !== undefined) {
		process.stderr.write(
			`${count} items: ${seconds.toFixed(1)} s, ${Math.round((most - before) / MEGABYTE)} MB above ${Math.round(before / MEGABYTE)} MB\n`,
		);
	}
	expect(ran.error).toBeNull();
	expect(ran.out('Complete Work')).toHaveLength(count);
	expect(ran.out('Complete Work')[count - 1]).toMatchObject({
		json: { invoice: `inv_${count - 1}`, work: { status: 'completed', key: `${count - 1}` } },
		pairedItem: { item: count - 1 },
	});
	const [counted] = await stage.ledger.query(
		`select count(*)::integer as works, count(distinct external_ref)::integer as references,
			count(*) filter (where external_ref = 'inv_' || key)::integer as own
		from idempotency.work_log where kind = $1 and state = 'done'`,
		[kind],
	);
	expect(counted).toEqual({ works: count, references: count, own: count });
	expect(seconds).toBeLessThan(60);
	expect(most - before).toBeLessThan(1500 * MEGABYTE);
}, 120_000);
