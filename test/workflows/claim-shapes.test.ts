import { randomUUID } from 'node:crypto';
import type { IDataObject, INodeExecutionData } from 'n8n-workflow';

import {
	claim,
	complete,
	http,
	merge,
	nextExecutionId,
	step,
	type NodeOfTest,
	type Ran,
	type Step,
} from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

const workOf = (json: IDataObject): IDataObject => json.work as IDataObject;

/** A node that keeps the pairing of what it passes on. */
const keep =
	(choose: (items: INodeExecutionData[]) => number[]): Step =>
	(items) =>
		choose(items).map((item) => ({ json: items[item].json, pairedItem: { item } }));

/** Aggregate: one item, paired to all that it was made of. */
const aggregate =
	(build: (items: INodeExecutionData[]) => IDataObject): Step =>
	(items) => [{ json: build(items), pairedItem: items.map((_, item) => ({ item })) }];

/** Split Out: each order becomes its lines. */
const lines =
	(count: number): Step =>
	(items) =>
		items.flatMap(({ json }, item) =>
			Array.from({ length: count }, (_, line) => ({
				json: { line: `${String(json.order)}.${line}` },
				pairedItem: { item },
			})),
		);

/**
 * Loop Over Items: hands out batches by output 1, by output 0 all that came back. Like n8n's, it names the source of what
 * it hands out, since a later run has the end of the loop before it.
 */
function loop(name: string, batchSize: number): NodeOfTest {
	let waiting: INodeExecutionData[] | null = null;
	const back: INodeExecutionData[] = [];
	return step(name, (items) => {
		if (waiting === null) {
			waiting = items.map(({ json }, item) => ({
				json,
				pairedItem: {
					item,
					sourceOverwrite: { previousNode: 'Start', previousNodeOutput: 0, previousNodeRun: 0 },
				},
			}));
		} else {
			back.push(...items.map(({ json }, item) => ({ json, pairedItem: { item } })));
		}
		const batch = waiting.splice(0, batchSize);
		return batch.length > 0 ? [[], batch] : [back, []];
	});
}

const drop = http((json, i) => ({ answer: `a${String(json.order ?? i)}` }));

describe('a loop in which Claim Work and Complete Work run several times', () => {
	test.each([
		['kept its field', http((json) => ({ ...json, answer: `a${String(json.order)}` }))],
		['dropped it', drop],
	])('completes in each run what that run claimed, where the effect %s', async (_, effect) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2, 3, 4, 5),
			nodes: [
				loop('Loop', 2),
				claim(byOrder(kind)),
				step('Effect', effect),
				complete({ result: 'fields', resultFields: 'answer' }),
				step('After', (items) => items),
			],
			links: [
				['Start', 'Loop'],
				['Loop:1', 'Claim Work'],
				['Claim Work', 'Effect'],
				['Effect', 'Complete Work'],
				['Complete Work', 'Loop'],
				['Loop:0', 'After'],
			],
		});
		expect(ran.error).toBeNull();
		expect([ran.runs('Claim Work'), ran.runs('Complete Work')]).toEqual([3, 3]);
		expect(await stage.works(kind)).toEqual(
			[1, 2, 3, 4, 5].map((order) => `${order} done {"answer":"a${order}"}`),
		);
		expect(ran.out('After')).toHaveLength(5);
	});

	test('a key that comes again in a later run is a duplicate with its result', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2, 1),
			nodes: [loop('Loop', 1), claim(byOrder(kind)), step('Effect', drop), complete()],
			links: [
				['Start', 'Loop'],
				['Loop:1', 'Claim Work'],
				['Claim Work', 'Effect'],
				['Claim Work:1', 'Loop'],
				['Effect', 'Complete Work'],
				['Complete Work', 'Loop'],
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.json('Claim Work', 1)).toMatchObject([
			{ order: 1, work: { status: 'duplicate', result: { answer: 'a1' } } },
		]);
		expect(ran.runs('Effect')).toBe(2);
	});

	test('one claim around the loop is completed behind it', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1, pages: 3 }],
			nodes: [
				claim(byOrder(kind)),
				step('Pages', lines(3)),
				step('Sum', aggregate((items) => ({ fetched: items.length }))),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"fetched":3}']);
	});

	test('several claims taken before the loop are each completed in it', async () => {
		const kind = stage.newKind();
		let waiting: INodeExecutionData[] | null = null;
		const one: Step = (items) => {
			waiting ??= items.map(({ json }, item) => ({
				json: { n: json.order },
				pairedItem: {
					item,
					sourceOverwrite: {
						previousNode: 'Claim Work',
						previousNodeOutput: 0,
						previousNodeRun: 0,
					},
				},
			}));
			return [[], waiting.splice(0, 1)];
		};
		const ran = await stage.run({
			items: orders(1, 2, 3),
			nodes: [claim(byOrder(kind)), step('Loop', one), step('Effect', http(({ n }) => ({ n }))), complete()],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Loop'],
				['Loop:1', 'Effect'],
				['Effect', 'Complete Work'],
				['Complete Work', 'Loop'],
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual([1, 2, 3].map((n) => `${n} done {"n":${n}}`));
	});
});

describe('branches', () => {
	const split = step('Route', (items) => [
		items.flatMap(({ json }, item) =>
			Number(json.order) % 2 === 1 ? [{ json, pairedItem: { item } }] : [],
		),
		items.flatMap(({ json }, item) =>
			Number(json.order) % 2 === 0 ? [{ json, pairedItem: { item } }] : [],
		),
	]);

	test('two effects and a Merge that appends: each item completes its own claim', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2, 3, 4),
			nodes: [
				claim(byOrder(kind)),
				split,
				step('Odd', http((json) => ({ odd: json.order }))),
				step('Even', http((json) => ({ even: json.order }))),
				merge('Merge', (first, second) => [
					...first.map(({ json }, item) => ({ json, pairedItem: { item, input: 0 } })),
					...second.map(({ json }, item) => ({ json, pairedItem: { item, input: 1 } })),
				]),
				complete(),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Route'],
				['Route:0', 'Odd'],
				['Route:1', 'Even'],
				['Odd', 'Merge'],
				['Even', 'Merge#1'],
				['Merge', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.runs('Complete Work')).toBe(1);
		expect(await stage.works(kind)).toEqual([
			'1 done {"odd":1}',
			'2 done {"even":2}',
			'3 done {"odd":3}',
			'4 done {"even":4}',
		]);
	});

	test('a Merge by position whose items came from one claim twice completes it once', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Invoice', http((json) => ({ invoice: json.order }))),
				step('Mail', http((json) => ({ mail: json.order }))),
				merge('Merge', (first, second) =>
					first.map(({ json }, item) => ({
						json: { ...json, ...second[item].json },
						pairedItem: [
							{ item, input: 0 },
							{ item, input: 1 },
						],
					})),
				),
				complete(),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Invoice'],
				['Claim Work', 'Mail'],
				['Invoice', 'Merge'],
				['Mail', 'Merge#1'],
				['Merge', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual([
			'1 done {"invoice":1,"mail":1}',
			'2 done {"invoice":2,"mail":2}',
		]);
		expect(ran.json('Complete Work')).toMatchObject([
			{ work: { status: 'completed', key: '1' } },
			{ work: { status: 'completed', key: '2' } },
		]);
	});

	test('two branches with a Claim Work each: the one that ran is found', async () => {
		const [odd, even] = [stage.newKind(), stage.newKind()];
		const ran = await stage.run({
			items: orders(1, 2, 3),
			nodes: [
				split,
				claim(byOrder(odd), {}, 'Claim Odd'),
				claim(byOrder(even), {}, 'Claim Even'),
				step('Effect', http((json) => ({ n: json.order }))),
				complete(),
			],
			links: [
				['Start', 'Route'],
				['Route:0', 'Claim Odd'],
				['Route:1', 'Claim Even'],
				['Claim Odd', 'Effect'],
				['Claim Even', 'Effect'],
				['Effect', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(odd)).toEqual(['1 done {"n":1}', '3 done {"n":3}']);
		expect(await stage.works(even)).toEqual(['2 done {"n":2}']);
	});

	test('two claims of one item on two branches, merged: both are settled by it', async () => {
		const [invoice, mail] = [stage.newKind(), stage.newKind()];
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(invoice, { options: { field: 'invoiceWork' } }), {}, 'Claim Invoice'),
				claim(byOrder(mail, { options: { field: 'mailWork' } }), {}, 'Claim Mail'),
				merge('Merge', (first, second) => [
					{
						json: { ...first[0].json, ...second[0].json },
						pairedItem: [
							{ item: 0, input: 0 },
							{ item: 0, input: 1 },
						],
					},
				]),
				complete({ result: 'none', options: { field: 'invoiceWork' } }, {}, 'Invoiced'),
				complete({ result: 'none', options: { field: 'mailWork' } }, {}, 'Mailed'),
			],
			links: [
				['Start', 'Claim Invoice'],
				['Start', 'Claim Mail'],
				['Claim Invoice', 'Merge'],
				['Claim Mail', 'Merge#1'],
				['Merge', 'Invoiced'],
				['Invoiced', 'Mailed'],
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(invoice)).toEqual(['1 done']);
		expect(await stage.works(mail)).toEqual(['1 done']);
	});

	test('a Claim Work behind an IF: items that went round it are refused, its own are completed', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2, 3),
			nodes: [
				split,
				claim(byOrder(kind)),
				step('Effect', http((json) => ({ n: json.order }))),
				complete({}, { onError: 'continueRegularOutput' }),
			],
			links: [
				['Start', 'Route'],
				['Route:0', 'Claim Work'],
				['Claim Work', 'Effect'],
				['Route:1', 'Effect'],
				['Effect', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"n":1}', '3 done {"n":3}']);
		expect(ran.json('Complete Work', 1)).toMatchObject([{ n: 2, work: { status: 'refused' } }]);
	});

	test('one Claim Work before two Complete Work nodes: the second is told that nothing changed', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step('Effect', drop),
				complete({}, {}, 'One'),
				complete({}, {}, 'Two'),
				complete({ result: 'expression', resultValue: 'other' }, {}, 'Three'),
				complete({ operation: 'fail' }, {}, 'Fail'),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Effect'],
				['Effect', 'One'],
				['Effect', 'Two'],
				['Effect', 'Three'],
				['Effect', 'Fail'],
			],
		});
		expect(ran.error).toBeNull();
		expect(workOf(ran.json('One')[0])).not.toHaveProperty('repeated');
		expect(workOf(ran.json('Two')[0])).toMatchObject({ status: 'completed', repeated: true });
		expect(workOf(ran.json('Three')[0])).toMatchObject({
			status: 'completed',
			differs: ['result'],
			result: { answer: 'a1' },
		});
		expect(workOf(ran.json('Fail', 1)[0])).toMatchObject({ status: 'refused' });
		expect(await stage.works(kind)).toEqual(['1 done {"answer":"a1"}']);
	});

	test('one after the other, the second is refused by what the first said', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete({}, {}, 'One'), complete({}, {}, 'Two')],
		});
		expect(ran.error).toMatchObject({ node: 'Two' });
		expect(ran.error?.message).toMatch(/"completed", not claimed/);
	});
});

describe('one item becomes several', () => {
	test('one completion per claim; its result is the list, in order, and each item says so', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [claim(byOrder(kind)), step('Lines', lines(3)), complete()],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(
			[1, 2].map((n) => `${n} done [{"line":"${n}.0"},{"line":"${n}.1"},{"line":"${n}.2"}]`),
		);
		expect(ran.json('Complete Work').map((json) => [json.line, workOf(json).status])).toEqual(
			[1, 2].flatMap((n) => [0, 1, 2].map((line) => [`${n}.${line}`, 'completed'])),
		);
		expect(ran.json('Complete Work').flatMap((json) => workOf(json).differs ?? [])).toEqual([]);
		const [{ work_id: workId }] = await stage.rows(kind);
		expect(await stage.ledger.history({ workId })).toEqual(['claim: claimed', 'complete: completed']);
	});

	test('the same where each of them kept the field', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step('Lines', (items) =>
					[0, 1].map((line) => ({ json: { ...items[0].json, line }, pairedItem: { item: 0 } })),
				),
				complete({ result: 'fields', resultFields: 'line' }),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done [{"line":0},{"line":1}]']);
	});

	test('only one line left: its result, not a list of it', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), step('Lines', lines(1)), complete()],
		});
		expect(await stage.works(kind)).toEqual(['1 done {"line":"1.0"}']);
	});

	test('several references: the first is kept, and every item is warned', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step('Lines', lines(3)),
				complete({ externalRef: '={{ $json.line === "1.2" ? "1.1" : $json.line }}' }),
			],
		});
		expect(ran.error).toBeNull();
		expect((await stage.work(kind)).external_ref).toBe('1.0');
		expect(ran.json('Complete Work').map((json) => workOf(json).warnings)).toEqual(
			[0, 1, 2].map(() => [expect.stringMatching(/3 items of this claim have 2 references/)]),
		);
	});

	test('a failure for good of one of them is one of the work', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Lines', lines(2)),
				complete({
					operation: 'fail',
					landed: 'no',
					error: '={{ "line " + $json.line }}',
					options: { permanent: '={{ $json.line === "2.1" }}' },
				}),
			],
		});
		expect(await stage.rows(kind)).toMatchObject([
			{ state: 'failed', last_error: 'line 1.0', outcome_known: true },
			{ state: 'dead', last_error: 'line 2.0', outcome_known: true },
		]);
	});

	test('and one again: the claim is found through both', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Lines', lines(3)),
				step('Sum', (items) =>
					[0, 1].map((n) => ({
						json: { lines: 3 },
						pairedItem: items.flatMap((_, item) => (Math.floor(item / 3) === n ? [{ item }] : [])),
					})),
				),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"lines":3}', '2 done {"lines":3}']);
	});
});

describe('several items become one', () => {
	test('what is stored does not hold the fields of this package, tokens included', async () => {
		const kind = stage.newKind();
		const whole = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Aggregate', aggregate((items) => ({
					sent: true,
					work: items.map(({ json }) => json.work),
					data: items.map(({ json }) => json),
				}))),
				complete(),
			],
		});
		expect(whole.error).toBeNull();
		expect((await stage.rows(kind)).map(({ result }) => result)).toEqual(
			[1, 2].map(() => ({ sent: true, data: orders(1, 2) })),
		);
	});

	test('nor what an operation before said about them together', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Aggregate', aggregate((items) => ({ sent: true, work: items.map(({ json }) => json.work) }))),
				complete({ operation: 'recordReference', externalRef: 'mail-7' }, {}, 'Record'),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect((await stage.rows(kind)).map(({ result }) => result)).toEqual([{ sent: true }, { sent: true }]);
	});

	test('a list too long to be kept with each of its works becomes a marker, with a warning', async () => {
		const kind = stage.newKind();
		const text = 'x'.repeat(1000);
		const ran = await stage.run({
			items: Array.from({ length: 200 }, (_, order) => ({ order, text })),
			nodes: [
				claim(byOrder(kind)),
				step('Aggregate', aggregate((items) => ({ data: items.map(({ json }) => json) }))),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		const [{ status, works }] = ran.json('Complete Work').map(workOf) as Array<{
			status: string;
			works: Array<{ warnings: string[] }>;
		}>;
		expect(status).toBe('completed');
		expect(works[0].warnings).toEqual([expect.stringMatching(/too large to store with each of 200 works/)]);
		const rows = await stage.rows(kind);
		expect(rows).toHaveLength(200);
		expect(rows[7]).toMatchObject({ state: 'done', result: { $notStored: expect.any(String) as string } });
	});

	test('an item made of claimed and other items completes the claimed ones', async () => {
		const kind = stage.newKind();
		await stage.run({ items: orders(2), nodes: [claim(byOrder(kind)), complete({ result: 'none' })] });
		const ran = await stage.run({
			items: orders(1, 2, 3),
			nodes: [
				claim(byOrder(kind)),
				merge('All', (first, second) => [
					{
						json: { n: first.length + second.length },
						pairedItem: [
							...first.map((_, item) => ({ item, input: 0 })),
							...second.map((_, item) => ({ item, input: 1 })),
						],
					},
				]),
				complete(),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work:0', 'All'],
				['Claim Work:1', 'All#1'],
				['All', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"n":3}', '2 done', '3 done {"n":3}']);
	});
});

describe('fewer or other items', () => {
	test('a step that filters and reorders with pairing: each settles its own, the dropped one stays open', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2, 3),
			nodes: [
				claim(byOrder(kind)),
				step('Choose', keep(() => [2, 0])),
				step('Effect', http((json) => ({ n: json.order }))),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"n":1}', '2 running', '3 done {"n":3}']);
	});

	test('a step that filters without pairing: nothing is guessed', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2, 3),
			nodes: [
				claim(byOrder(kind)),
				step('Choose', (items) => [[{ json: { n: items[2].json.order } }, { json: { n: 1 } }], []]),
				complete(),
			],
		});
		expect(ran.error?.message).toMatch(/2 items could not be settled/);
		expect(await stage.works(kind)).toEqual(['1 running', '2 running', '3 running']);
	});

	test.each([
		['sums up', (items: INodeExecutionData[]) => [{ json: { sum: items.length } }]],
		['picks one', (items: INodeExecutionData[]) => [{ json: { n: items[2].json.order } }]],
	])(
		'a step that %s several without pairing them: n8n connects it with the first, and nothing is completed by that guess',
		async (_, run) => {
			const kind = stage.newKind();
			const ran = await stage.run({
				items: orders(1, 2, 3),
				nodes: [claim(byOrder(kind)), step('Code', run), step('Effect', http()), complete()],
			});
			expect(ran.out('Code')[0].pairedItem).toEqual({ item: 0 });
			expect(ran.error?.message).toMatch(/^"Code" made one item of several/);
			expect(await stage.works(kind)).toEqual(['1 running', '2 running', '3 running']);
		},
	);

	test('a sum over what came from one claim completes that claim', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step('Lines', lines(3)),
				step('Sum', (items) => [{ json: { sum: items.length } }]),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"sum":3}']);
	});

	test.each([
		['with the field', http((json) => json)],
		['behind a step that dropped it', http((json) => ({ n: json.order }))],
	])('a filter that lets only the first through (%s) completes that one', async (_, before) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2, 3),
			nodes: [
				claim(byOrder(kind)),
				step('Before', before),
				step('First', keep(() => [0])),
				step('Effect', http(() => ({ ok: true }))),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"ok":true}', '2 running', '3 running']);
	});

	test('duplicates that were dropped do not shift the others', async () => {
		const kind = stage.newKind();
		await stage.run({ items: orders(1, 3), nodes: [claim(byOrder(kind)), complete({ result: 'none' })] });
		const ran = await stage.run({
			items: orders(1, 2, 3, 4),
			nodes: [
				claim(byOrder(kind, { response: 'nothing' })),
				step('Effect', http((json) => ({ n: json.order }))),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done', '2 done {"n":2}', '3 done', '4 done {"n":4}']);
	});

	test.each([
		['a BigInt', () => ({ order: 7n as unknown as number })],
		[
			'a circular value',
			() => {
				const order: IDataObject = {};
				order.self = order;
				return { order };
			},
		],
	])('%s where the key was does not keep an effect that landed from being recorded', async (_, answer) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1, list: [1] }],
			nodes: [
				claim(byOrder(kind)),
				step('Effect', http(() => answer() as IDataObject)),
				complete({ result: 'none' }),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done']);
	});
});

describe('a sub-workflow', () => {
	test('completes by the field what its parent claimed', async () => {
		const kind = stage.newKind();
		const parent = nextExecutionId();
		const ran = await stage.run({
			executionId: parent,
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Sub-workflow', async (items) => {
					const child = await stage.run({
						parentExecutionId: parent,
						// the sub-workflow's trigger passes the items on without their pairing
						items: items.map(({ json }) => ({ json })),
						nodes: [complete({ result: 'fields', resultFields: 'total' })],
					});
					expect(child.error).toBeNull();
					return child.out('Complete Work').map(({ json }, item) => ({ json, pairedItem: { item } }));
				}),
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"total":10}', '2 done {"total":20}']);
	});

	test('completes by work id and token where its input is made of chosen fields', async () => {
		const kind = stage.newKind();
		const parent = nextExecutionId();
		await stage.run({
			executionId: parent,
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step('Sub-workflow', async (items) => {
					const { workId, token } = workOf(items[0].json);
					const child = await stage.run({
						parentExecutionId: parent,
						items: [{ id: workId, fence: token }] as IDataObject[],
						nodes: [
							complete({
								result: 'none',
								options: { workId: '={{ $json.id }}', token: '={{ $json.fence }}' },
							}),
						],
					});
					expect(child.error).toBeNull();
					return items;
				}),
			],
		});
		expect(await stage.works(kind)).toEqual(['1 done']);
	});

	test("without either, the parent's only claim is not taken for the child's", async () => {
		const kind = stage.newKind();
		const parent = nextExecutionId();
		await stage.run({ executionId: parent, items: orders(1), nodes: [claim(byOrder(kind))] });
		const child = await stage.run({
			parentExecutionId: parent,
			items: [{ id: 1 }],
			nodes: [complete()],
		});
		expect(child.error?.message).toMatch(/^No claim was found/);
		expect(await stage.works(kind)).toEqual(['1 running']);
	});

	test('with claim, effect and completion in it is done once, however often it is called (case 8)', async () => {
		const kind = stage.newKind();
		const call = async (): Promise<Ran> =>
			await stage.run({
				parentExecutionId: '500',
				items: [{ order: 88 }],
				nodes: [claim(byOrder(kind)), step('Effect', drop), complete()],
			});
		const calls: Ran[] = [];
		for (let i = 0; i < 15; i++) calls.push(await call());
		expect(calls.map((ran) => ran.runs('Effect')).reduce((a, b) => a + b)).toBe(1);
		expect(calls.slice(1).map((ran) => workOf(ran.json('Claim Work', 1)[0]).status)).toEqual(
			Array.from({ length: 14 }, () => 'duplicate'),
		);
		expect(await stage.work(kind)).toMatchObject({ state: 'done', attempt: 1 });
	});
});

describe('pinned output of Claim Work', () => {
	const effectAndCompletion = (drops: boolean): NodeOfTest[] => [
		step('Effect', drops ? http(() => ({ answer: 2 })) : http((json) => ({ ...json, answer: 2 }))),
		complete({ result: 'fields', resultFields: 'answer' }),
	];

	test.each([
		['with its field', false],
		['without its field', true],
	])('whose claim was lost to another run is recognised by its token: %s', async (_, drops) => {
		const kind = stage.newKind();
		const first = await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		const pinned = first.out('Claim Work');
		const { work_id: workId } = await stage.work(kind);
		await stage.ledger.elapse({ workId });
		await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		const ran = await stage.run({
			mode: 'manual',
			items: orders(1),
			pinData: { 'Claim Work': pinned },
			nodes: [claim(byOrder(kind)), ...effectAndCompletion(drops)],
		});
		expect(ran.error).toBeNull();
		expect(ran.out('Complete Work')).toEqual([]);
		expect(workOf(ran.json('Complete Work', 1)[0])).toMatchObject({ status: 'not_owner' });
		expect(await stage.work(kind)).toMatchObject({ state: 'running', attempt: 2, result: null });
	});

	test('whose work is done leaves the first result as it was, and says so', async () => {
		const kind = stage.newKind();
		const first = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), step('Effect', http(() => ({ answer: 1 }))), complete()],
		});
		const ran = await stage.run({
			mode: 'manual',
			items: orders(1),
			pinData: { 'Claim Work': first.out('Claim Work') },
			nodes: [claim(byOrder(kind)), ...effectAndCompletion(true)],
		});
		expect(ran.error).toBeNull();
		expect(workOf(ran.json('Complete Work')[0])).toMatchObject({
			differs: ['result'],
			result: { answer: 1 },
		});
		expect(await stage.works(kind)).toEqual(['1 done {"answer":1}']);
	});

	test('whose claim was released or forgotten is nobody\'s', async () => {
		const kind = stage.newKind();
		const first = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete({ operation: 'release' })],
		});
		const ran = await stage.run({
			mode: 'manual',
			items: orders(1),
			pinData: { 'Claim Work': first.out('Claim Work') },
			nodes: [claim(byOrder(kind)), ...effectAndCompletion(false)],
		});
		expect(ran.error).toBeNull();
		expect(workOf(ran.json('Complete Work', 1)[0])).toMatchObject({ status: 'not_owner' });
		expect(await stage.works(kind)).toEqual([]);
	});

	test('a pinned step behind it loses the pairing, but not the field', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			mode: 'manual',
			items: orders(1, 2),
			pinData: { Effect: [{ json: { answer: 1 } }] },
			nodes: [claim(byOrder(kind)), ...effectAndCompletion(true)],
		});
		// one pinned item of two claimed: which one cannot be told
		expect(ran.error?.message).toMatch(/^"Effect" made one item of several/);
		expect(await stage.works(kind)).toEqual(['1 running', '2 running']);
	});
});

describe('nested claims that use the same field', () => {
	const linesOf = (count: number) =>
		step('Lines', (items) =>
			items.flatMap(({ json }, item) =>
				Array.from({ length: count }, (_, line) => ({
					json: { order: json.order, line },
					pairedItem: { item },
				})),
			),
		);

	test.each([
		['a step that drops the field', 1, step('Mail', http(() => ({ mailed: true })))],
		['an Aggregate of one line', 1, step('Mail', aggregate((items) => ({ n: items.length })))],
		['an Aggregate of two lines', 2, step('Mail', aggregate((items) => ({ n: items.length })))],
	])('each Complete Work settles its own, behind %s', async (_, count, between) => {
		for (const operation of ['complete', 'fail']) {
			const [outer, inner] = [stage.newKind(), stage.newKind()];
			const ran = await stage.run({
				items: orders(1),
				nodes: [
					claim(byOrder(outer), {}, 'Claim Order'),
					linesOf(count),
					claim({ kind: inner, keyFields: 'order,line' }, {}, 'Claim Line'),
					step('Ship', http(() => ({ shipped: true }))),
					complete({ result: 'none' }, {}, 'Line Done'),
					between,
					complete({ operation, result: 'none', error: 'no' }, {}, 'Order Done'),
				],
			});
			expect(ran.error).toBeNull();
			expect((await stage.rows(outer)).map(({ state }) => state)).toEqual([
				operation === 'complete' ? 'done' : 'failed',
			]);
			expect((await stage.rows(inner)).every(({ state }) => state === 'done')).toBe(true);
		}
	});
});

describe('an item that carries the claim of one work and the key of another', () => {
	const refused = async (nodes: NodeOfTest[], links?: Array<[string, string]>) => {
		const kind = stage.newKind();
		const ran = await stage.run({ items: orders(1, 2), nodes: [claim(byOrder(kind)), ...nodes], links });
		expect(ran.error?.message).toBe('2 items could not be settled');
		expect(ran.error?.description).toMatch(/The item's order is not that of its claim/);
		expect(await stage.works(kind)).toEqual(['1 running', '2 running']);
	};

	test('after a merge by position with a reversed answer completes nothing', async () => {
		await refused(
			[
				step('Invoice', (items) =>
					[...items].reverse().map(({ json: { order } }) => ({ json: { order, invoice: `INV-${String(order)}` } })),
				),
				merge('Merge', (a, b) =>
					a.map(({ json }, item) => ({
						json: { ...json, ...b[item].json },
						pairedItem: [
							{ item, input: 0 },
							{ item, input: 1 },
						],
					})),
				),
				complete(),
			],
			[
				['Start', 'Claim Work'],
				['Claim Work', 'Merge'],
				['Claim Work', 'Invoice'],
				['Invoice', 'Merge#1'],
				['Merge', 'Complete Work'],
			],
		);
	});

	test('after a Code step that mixed up their data completes nothing', async () => {
		await refused([
			step('Code', (items) =>
				items.map(({ json }, i) => ({
					json: { ...items[1 - i].json, work: json.work },
					pairedItem: { item: i },
				})),
			),
			complete(),
		]);
	});

	test('through an unpaired, reordered answer that echoes the key beside fields of its own completes nothing', async () => {
		await refused([
			step('Invoice', (items) =>
				[...items].reverse().map(({ json: { order } }) => ({ json: { order, invoice: 'INV', status: 'created' } })),
			),
			complete(),
		]);
	});
});

describe('tokens of others', () => {
	const forged = async (change: (items: INodeExecutionData[]) => IDataObject[]) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Code', (items) => change(items).map((json, item) => ({ json, pairedItem: { item } }))),
				complete({ externalRef: '={{ "ref-" + $json.order }}' }),
			],
		});
		return { kind, ran };
	};

	test('swapped between two items are refused, and nothing is written to either work', async () => {
		const { kind, ran } = await forged((items) =>
			items.map(({ json }, i) => ({
				...json,
				work: { ...workOf(json), token: workOf(items[1 - i].json).token },
			})),
		);
		expect(ran.error).toBeNull();
		expect(ran.json('Complete Work', 1).map((json) => workOf(json).status)).toEqual([
			'not_owner',
			'not_owner',
		]);
		const rows = await stage.rows(kind);
		expect(rows.map(({ state, external_ref }) => [state, external_ref])).toEqual([
			['running', null],
			['running', null],
		]);
	});

	test.each([
		['of nobody', randomUUID()],
		['that is empty', ''],
		['that is null', null],
		['that is an object', { $ne: null }],
		['that is no UUID', `' or true --`],
	])('a token %s settles nothing, the other item is completed', async (_, token) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Code', (items) =>
					items.map(({ json }, item) => ({
						json: item === 0 ? { ...json, work: { ...workOf(json), token } } : json,
						pairedItem: { item },
					})),
				),
				complete({ result: 'none' }, { onError: 'continueRegularOutput' }),
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.json('Complete Work', 1).map(({ order }) => order)).toEqual([1]);
		expect(await stage.works(kind)).toEqual(['1 running', '2 done']);
	});
});

describe('an answer that settles nothing takes nothing away', () => {
	const onError = 'continueRegularOutput';

	test("a value of the item's own stays where Claim Work refuses the name", async () => {
		const ran = await stage.run({
			items: [{ order: 1, work: 'mine' }],
			nodes: [claim(byOrder(stage.newKind()), { onError })],
		});
		expect(ran.json('Claim Work', 3)).toMatchObject([
			{ order: 1, work: 'mine', workAnswer: { status: 'refused' } },
		]);
	});

	test('and such an item does not complete the one open claim, though its pairing is lost', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1 }, { order: 2, work: 'mine' }],
			nodes: [
				claim(byOrder(kind), { onError }),
				step('Code', (items) => [[], [{ json: items[0].json }]]),
				complete(),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work:3', 'Code'],
				['Code:1', 'Complete Work'],
			],
		});
		expect(ran.error?.message).toMatch(/"refused", not claimed/);
		expect(await stage.works(kind)).toEqual(['1 running']);
	});

	test('an open claim stays on the item that another Claim Work refuses, and can be released', async () => {
		const [outer, inner] = [stage.newKind(), stage.newKind()];
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(outer)),
				claim(byOrder(inner), { onError }, 'Inner'),
				complete({ operation: 'release' }),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Inner'],
				['Inner:3', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.json('Inner', 3)).toMatchObject([
			{ work: { status: 'claimed' }, workAnswer: { status: 'refused' } },
		]);
		expect(ran.json('Complete Work')).toMatchObject([{ work: { status: 'released' } }]);
		expect(await stage.works(outer)).toEqual([]);
	});

	test('a claim stays on the item where the options of Complete Work name none', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				complete({ options: { token: 'undefined' } }, { onError }, 'Bad'),
				complete({ result: 'none' }),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Bad'],
				['Bad:1', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.json('Bad', 1)).toMatchObject([{ workAnswer: { status: 'refused' } }]);
		expect(await stage.works(kind)).toEqual(['1 done']);
	});

	test('the claims of an item made of several outlast a ledger that is away', async () => {
		const kind = stage.newKind();
		let looks = 0;
		const away = { ...stage.ledger.settings, port: 1 };
		const ran = await stage.run({
			// the second look, that of the first Complete Work, fails
			credential: () => (++looks === 2 ? away : stage.ledger.settings),
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Aggregate', aggregate((items) => ({ work: items.map(({ json }) => json.work) }))),
				complete({ result: 'none' }, { onError }, 'Away'),
				complete({ result: 'none' }),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Aggregate'],
				['Aggregate', 'Away'],
				['Away:1', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.json('Away', 1)).toMatchObject([{ workAnswer: { status: 'error' } }]);
		expect(await stage.works(kind)).toEqual(['1 done', '2 done']);
	});
});
