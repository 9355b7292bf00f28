import { randomUUID } from 'node:crypto';
import type { IDataObject, INodeExecutionData } from 'n8n-workflow';

import { claim, complete, http, nextExecutionId, step, type Ran, type Step } from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

/** Swaps the items, and says nothing about which came from which. */
const reverse: Step = (items) => [...items].reverse().map(({ json }) => ({ json }));

describe('Complete Work finds the claim of an item', () => {
	test("by the item's own field", async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [claim(byOrder(kind)), complete({ result: 'fields', resultFields: 'total' })],
		});
		expect(ran.status).toBe('success');
		expect(await stage.works(kind)).toEqual(['1 done {"total":10}', '2 done {"total":20}']);
	});

	test("by its own field, although a step reordered the items without pairing them", async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1, 2, 3),
			nodes: [
				claim(byOrder(kind)),
				step('Sort', reverse),
				complete({ result: 'fields', resultFields: 'order' }),
			],
		});
		expect(await stage.works(kind)).toEqual([
			'1 done {"order":1}',
			'2 done {"order":2}',
			'3 done {"order":3}',
		]);
	});

	test('by the paired item, behind an HTTP call that dropped the field', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Invoice', http(({ order }) => ({ invoice: `inv_${Number(order)}` }))),
				complete({ externalRef: '={{ $json.invoice }}' }),
			],
		});
		expect(ran.status).toBe('success');
		expect(await stage.works(kind)).toEqual([
			'1 done {"invoice":"inv_1"}',
			'2 done {"invoice":"inv_2"}',
		]);
		expect(ran.out('Complete Work').map(({ pairedItem }) => pairedItem)).toEqual([
			{ item: 0 },
			{ item: 1 },
		]);
	});

	test('by the paired item, behind several steps and among items that were not claimed', async () => {
		const kind = stage.newKind();
		await stage.run({ items: orders(2), nodes: [claim(byOrder(kind)), complete({ result: 'none' })] });
		const ran = await stage.run({
			items: orders(1, 2, 3),
			nodes: [
				claim(byOrder(kind)),
				step('Invoice', http(({ order }) => ({ n: order }))),
				step('Mail', http(({ n }) => ({ sent: n }))),
				complete(),
			],
		});
		expect(ran.status).toBe('success');
		expect(await stage.works(kind)).toEqual(['1 done {"sent":1}', '2 done', '3 done {"sent":3}']);
	});

	test('by the paired item of the run in which it was claimed, when Busy came back', async () => {
		const kind = stage.newKind();
		const first = await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		const [{ work }] = first.json('Claim Work') as Array<{ work: { workId: string } }>;
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Wait', async (items) => {
					await stage.ledger.elapse(work);
					return items.map(({ json }, i) => ({ json, pairedItem: { item: i } }));
				}),
				step('Invoice', http(({ order }) => ({ n: order }))),
				complete(),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work:0', 'Invoice'],
				['Claim Work:2', 'Wait'],
				['Wait', 'Claim Work'],
				['Invoice', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.runs('Claim Work')).toBe(2);
		expect(await stage.works(kind)).toEqual(['1 done {"n":1}', '2 done {"n":2}']);
	});

	test('by what the options say, before all else', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				complete({
					result: 'none',
					options: {
						workId: "={{ $('Claim Work').all()[1 - $itemIndex].json.work.workId }}",
						token: "={{ $('Claim Work').all()[1 - $itemIndex].json.work.token }}",
					},
					externalRef: '={{ "of-" + $json.order }}',
				}),
			],
		});
		expect(ran.status).toBe('success');
		const rows = await stage.ledger.query(
			'select key, external_ref from idempotency.work_log where kind = $1 order by key',
			[kind],
		);
		expect(rows).toEqual([
			{ key: '1', external_ref: 'of-2' },
			{ key: '2', external_ref: 'of-1' },
		]);
	});

	test.each([
		['a work id that is none', { workId: 'abc', token: randomUUID() }],
		['a work id without a token', { workId: 'a'.repeat(64) }],
		['a token that is none', { workId: 'a'.repeat(64), token: 'undefined' }],
	])('options that cannot be a claim are refused: %s', async (_, options) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete({ options })],
		});
		expect(ran.status).toBe('error');
		expect(ran.error?.message).toMatch(/Work ID must be|Claim Token must be/);
		expect(await stage.works(kind)).toEqual(['1 running']);
	});

	test('with nested claims, by the field it is told', async () => {
		const outer = stage.newKind();
		const inner = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(outer), {}, 'Claim Order'),
				claim(byOrder(inner, { options: { field: 'mail' } }), {}, 'Claim Mail'),
				step('Mail', http(() => ({ sent: true }))),
				complete({ options: { field: 'mail' } }, {}, 'Mail Done'),
				step('Look', async (items) => {
					seen = await stage.works(outer);
					return items.map(() => ({ json: { shipped: true }, pairedItem: { item: 0 } }));
				}),
				complete({ options: { field: 'work' } }, {}, 'Order Done'),
			],
		});
		expect(ran.error).toBeNull();
		expect(seen).toEqual(['1 running']);
		expect(await stage.works(inner)).toEqual(['1 done {"sent":true}']);
		expect(await stage.works(outer)).toEqual(['1 done {"shipped":true}']);
	});
	let seen: string[] = [];

	test('with nested claims whose fields have other names, by the nearest Claim Work', async () => {
		const outer = stage.newKind();
		const inner = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(outer, { options: { field: 'orderWork' } }), {}, 'Claim Order'),
				claim(byOrder(inner, { options: { field: 'mailWork' } }), {}, 'Claim Mail'),
				step('Mail', http(() => ({ sent: true }))),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(inner)).toEqual(['1 done {"sent":true}']);
		expect(await stage.works(outer)).toEqual(['1 running']);
	});

	test('with nested claims, past an inner Claim Work that did not run', async () => {
		const outer = stage.newKind();
		const inner = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(outer), {}, 'Claim Order'),
				step('If', (items) => [[], items.map(({ json }, i) => ({ json, pairedItem: { item: i } }))]),
				claim(byOrder(inner, { options: { field: 'mail' } }), {}, 'Claim Mail'),
				step('Invoice', http(() => ({ invoice: 1 }))),
				complete(),
			],
			links: [
				['Start', 'Claim Order'],
				['Claim Order', 'If'],
				['If:0', 'Claim Mail'],
				['Claim Mail', 'Invoice'],
				['If:1', 'Invoice'],
				['Invoice', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(outer)).toEqual(['1 done {"invoice":1}']);
		expect(await stage.works(inner)).toEqual([]);
	});

	test('by the only open claim of this execution, when pairing is lost', async () => {
		const kind = stage.newKind();
		const executionId = nextExecutionId();
		// another execution's open claim does not count
		await stage.run({ items: orders(7), nodes: [claim(byOrder(kind))] });
		const ran = await stage.run({
			executionId,
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step('Pages', (items) => [
					{ json: { page: 1 }, pairedItem: { item: 0 } },
					{ json: { page: 2 }, pairedItem: { item: items.length - 1 } },
				]),
				step('Sum', () => [[{ json: { pages: 2 } }], []]),
				complete(),
			],
		});
		expect(ran.out('Sum')[0].pairedItem).toBeUndefined();
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"pages":2}', '7 running']);
	});

	test('not at all with two open claims and lost pairing: an error, and nothing is completed', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Sum', () => [[{ json: { pages: 2 } }], []]),
				complete(),
			],
		});
		expect(ran.status).toBe('error');
		expect(ran.error?.name).toBe('NodeOperationError');
		expect(ran.error?.message).toMatch(/^No claim was found for this item/);
		expect(await stage.works(kind)).toEqual(['1 running', '2 running']);
	});
});

describe('Complete Work never guesses', () => {
	const notCompleted = async (ran: Ran, kind: string, states: string[]) => {
		expect(ran.out('Complete Work', 0)).toEqual([]);
		expect(await stage.works(kind)).toEqual(states);
	};

	test('a disabled Claim Work passes everything, so an item without a token is refused', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind), { disabled: true }), complete()],
		});
		expect(ran.status).toBe('error');
		expect(ran.error?.message).toMatch(/^No claim was found for this item: "Claim Work" is disabled/);
		await notCompleted(ran, kind, []);
	});

	test('behind a disabled inner Claim Work the outer claim is not taken for the inner one', async () => {
		const outer = stage.newKind();
		const inner = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(outer), {}, 'Claim Order'),
				claim(byOrder(inner, { options: { field: 'mail' } }), { disabled: true }, 'Claim Mail'),
				step('Mail', http(() => ({ sent: true }))),
				complete({ options: { field: 'mail' } }),
			],
		});
		expect(ran.status).toBe('error');
		expect(ran.error?.message).toMatch(/"Claim Mail" is disabled/);
		await notCompleted(ran, outer, ['1 running']);
	});

	test('a disabled inner Claim Work leaves the outer claim to its own Complete Work', async () => {
		const outer = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(outer), {}, 'Claim Order'),
				claim(byOrder(stage.newKind(), { options: { field: 'mail' } }), { disabled: true }, 'Claim Mail'),
				step('Mail', http(() => ({ sent: true }))),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(outer)).toEqual(['1 done {"sent":true}']);
	});

	test('duplicates that reach it are refused', async () => {
		const kind = stage.newKind();
		await stage.run({ items: orders(1), nodes: [claim(byOrder(kind)), complete({ result: 'none' })] });
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [claim(byOrder(kind)), complete({ result: 'fields', resultFields: 'order' })],
			links: [
				['Start', 'Claim Work'],
				['Claim Work:1', 'Complete Work'],
			],
		});
		expect(ran.status).toBe('error');
		expect(ran.error?.message).toMatch(/^This item is "duplicate", not claimed/);
		await notCompleted(ran, kind, ['1 done', '2 running']);
	});

	test('a duplicate whose field a step dropped does not complete the one open claim', async () => {
		const kind = stage.newKind();
		await stage.run({ items: orders(1), nodes: [claim(byOrder(kind)), complete({ result: 'none' })] });
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Invoice', http(() => ({ invoice: 1 }))),
				complete(),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work:1', 'Invoice'],
				['Invoice', 'Complete Work'],
			],
		});
		expect(ran.status).toBe('error');
		expect(ran.error?.message).toMatch(/"duplicate", not claimed/);
		await notCompleted(ran, kind, ['1 done', '2 running']);
	});

	test.each([
		['with its field', false],
		['without its field', true],
	])('a refused item does not complete the one open claim (%s)', async (_, drops) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1 }, { order: '' }],
			nodes: [
				claim(byOrder(kind), { onError: 'continueRegularOutput' }),
				step('Call', drops ? http() : http((json) => json)),
				complete(),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work:3', 'Call'],
				['Call', 'Complete Work'],
			],
		});
		expect(ran.status).toBe('error');
		expect(ran.error?.message).toMatch(/"refused", not claimed/);
		await notCompleted(ran, kind, ['1 running']);
	});

	test("an item that left by Claim Work's Error output fails nobody's work", async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1 }, { order: '' }],
			nodes: [
				claim(byOrder(kind), { onError: 'continueErrorOutput' }),
				complete({ operation: 'fail' }),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work:4', 'Complete Work'],
			],
		});
		expect(ran.status).toBe('error');
		await notCompleted(ran, kind, ['1 running']);
	});

	test('a step that reorders without pairing is noticed by the key, and nothing is completed', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Sort', (items) =>
					[...items].reverse().map(({ json }) => ({ json: { order: json.order } })),
				),
				complete(),
			],
		});
		expect(ran.status).toBe('error');
		expect(ran.error?.message).toBe('2 items could not be settled');
		expect(ran.error?.description).toMatch(/The item's order is not that of its claim \(1\)/);
		await notCompleted(ran, kind, ['1 running', '2 running']);
	});

	test('an item that is still the claimed one, but with another key, is refused', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step('Edit', (items) =>
					items.map(({ json: { customer, total } }) => ({ json: { order: 99, customer, total } })),
				),
				complete(),
			],
		});
		expect(ran.error?.message).toMatch(/The item's order is not that of its claim/);
		await notCompleted(ran, kind, ['1 running']);
	});

	test('an HTTP answer whose own id is by chance the key of another claim is no swap', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ id: 1 }, { id: 2 }],
			nodes: [
				claim({ kind, keyFields: 'id' }),
				step('Invoice', http(({ id }) => ({ id: 3 - Number(id), url: 'https://x/y' }))),
				complete({ result: 'none' }),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done', '2 done']);
	});

	test('an HTTP answer with an id of its own is no swap, though the key field is called id', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [
				{ id: 1, customer: 'a', total: 3 },
				{ id: 2, customer: 'b', total: 4 },
			],
			nodes: [
				claim({ kind, keyFields: 'id' }),
				step('Invoice', http(({ id }) => ({ id: `inv_${Number(id)}`, url: 'https://x/y' }))),
				complete({ externalRef: '={{ $json.id }}', result: 'none' }),
			],
		});
		expect(ran.error).toBeNull();
		const rows = await stage.ledger.query(
			'select key, external_ref from idempotency.work_log where kind = $1 order by key',
			[kind],
		);
		expect(rows).toEqual([
			{ key: '1', external_ref: 'inv_1' },
			{ key: '2', external_ref: 'inv_2' },
		]);
	});
});

test('thousands of items behind an HTTP call with ids of its own are settled without a search through all for each', async () => {
	const kind = stage.newKind();
	const ran = await stage.run({
		items: Array.from({ length: 4000 }, (_, id) => ({ id, customer: 'c', total: 1 })),
		nodes: [
			claim({ kind, keyFields: 'id' }),
			step('Invoice', http(({ id }) => ({ id: `inv_${Number(id)}` }))),
			complete({ result: 'none' }),
		],
	});
	expect(ran.error).toBeNull();
	expect(ran.out('Complete Work')).toHaveLength(4000);
}, 20_000);

describe('an item that was put together from several', () => {
	const together =
		(build: (items: INodeExecutionData[]) => IDataObject): Step =>
		(items) => [{ json: build(items), pairedItem: items.map((_, item) => ({ item })) }];

	test.each([
		['the fields of the items', (items: INodeExecutionData[]) => ({ work: items.map(({ json }) => json.work) })],
		['whole items', (items: INodeExecutionData[]) => ({ data: items.map(({ json }) => json) })],
	] as Array<[string, (items: INodeExecutionData[]) => IDataObject]>)(
		'completes all its claims: %s',
		async (_, build) => {
			const kind = stage.newKind();
			const ran = await stage.run({
				items: orders(1, 2, 3),
				nodes: [
					claim(byOrder(kind)),
					step('Aggregate', together(build)),
					complete({ result: 'expression', resultValue: '={{ "one mail" }}' }),
				],
			});
			expect(ran.error).toBeNull();
			expect(await stage.works(kind)).toEqual([
				'1 done "one mail"',
				'2 done "one mail"',
				'3 done "one mail"',
			]);
			const [{ work }] = ran.json('Complete Work');
			expect(work).toMatchObject({
				status: 'completed',
				works: [{ key: '1' }, { key: '2' }, { key: '3' }],
			});
		},
	);

	test('leaves by Not Owner with the status of each claim, if one was refused', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Aggregate', async (items) => {
					// the second work is lost to another owner meanwhile
					const { workId } = items[1].json.work as { workId: string };
					await stage.ledger.elapse({ workId });
					await stage.run({ items: orders(2), nodes: [claim(byOrder(kind))] });
					return [{ json: { all: items.map(({ json }) => json) }, pairedItem: [{ item: 0 }, { item: 1 }] }];
				}),
				complete({ result: 'none' }),
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.out('Complete Work', 0)).toEqual([]);
		const [{ work }] = ran.json('Complete Work', 1);
		expect(work).toMatchObject({
			status: 'not_owner',
			works: [
				{ key: '1', status: 'completed' },
				{ key: '2', status: 'not_owner' },
			],
		});
		expect(await stage.works(kind)).toEqual(['1 done', '2 running']);
	});

	test('that kept nothing of its claims but their pairing completes them all', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Aggregate', together((items) => ({ total: items.length }))),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"total":2}', '2 done {"total":2}']);
	});

	test('can be recorded first and completed later', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Aggregate', together((items) => ({ work: items.map(({ json }) => json.work) }))),
				complete({ operation: 'recordReference', externalRef: 'mail-7' }, {}, 'Record'),
				complete({ result: 'none' }),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done', '2 done']);
	});

	test('that was settled is not settled again', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Aggregate', together((items) => ({ work: items.map(({ json }) => json.work) }))),
				complete({ result: 'none' }, {}, 'First'),
				complete({ result: 'expression', resultValue: 'other' }),
			],
		});
		expect(ran.error?.message).toMatch(/^This item is "completed", not claimed/);
		expect(await stage.works(kind)).toEqual(['1 done', '2 done']);
	});
});
