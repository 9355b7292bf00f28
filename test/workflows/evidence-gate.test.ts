import { randomUUID } from 'node:crypto';
import type { IDataObject } from 'n8n-workflow';

import { identifyByContent, workIdOf } from '../../ledger';
import { Stage, type LogRow } from '../integration/stage';
import {
	claim,
	complete,
	gate,
	gateTool,
	http,
	nextExecutionId,
	step,
	workLedger,
	type NodeOfTest,
	type Ran,
} from './run-workflow';
import { WorkflowStage, byOrder } from './stage';

const stage = WorkflowStage.forThisFile();

const NODE = 'Check Evidence Gate';
const ON_ERROR = ['stopWorkflow', 'continueRegularOutput', 'continueErrorOutput'] as const;

const present = (field: string, more: IDataObject = {}): IDataObject => ({
	check: 'present',
	field,
	...more,
});

/** One list of rules. */
const list = (rules: IDataObject[], more: IDataObject = {}): IDataObject => ({
	mode: 'list',
	rules: { rule: rules },
	...more,
});

/** A ladder: job, contract, invoice, each with rules of its own. */
const ladder = (target: IDataObject, stages: Record<string, IDataObject[]>): IDataObject => ({
	mode: 'ladder',
	stages: {
		stage: Object.entries(stages).map(([name, rule]) => ({ name, rules: { rule } })),
	},
	...target,
});

const PIPELINE = {
	job: [present('job_id')],
	contract: [present('contract.envelope_id')],
	invoice: [present('invoice_no')],
};

const condition = (
	leftValue: unknown,
	operator: IDataObject,
	rightValue: unknown = '',
): IDataObject => ({ id: randomUUID(), leftValue, rightValue, operator }) as IDataObject;

const conditions = (entries: IDataObject[], combinator = 'and'): IDataObject => ({
	check: 'condition',
	conditions: {
		options: { caseSensitive: true, leftValue: '', typeValidation: 'strict', version: 2 },
		combinator,
		conditions: entries,
	},
});

const TEXT_IS = { type: 'string', operation: 'equals' };
const TEXT_IS_NOT = { type: 'string', operation: 'notEquals' };
const NUMBER_ABOVE = { type: 'number', operation: 'gt' };
const TEXT_EMPTY = { type: 'string', operation: 'empty', singleValue: true };

const gateOf = (json: IDataObject): IDataObject =>
	(json.gate ?? (json.details as IDataObject).gate) as IDataObject;

async function run(
	parameters: IDataObject,
	items: IDataObject[],
	settings: NodeOfTest['settings'] = {},
): Promise<Ran> {
	return await stage.run({ items, nodes: [gate(parameters, settings)] });
}

/** The statuses of the items at Passed and at Blocked. */
const statuses = (ran: Ran) =>
	[0, 1].map((at) => ran.json(NODE, at).map((json) => gateOf(json).status));

const rowsOf = async (recordId: unknown): Promise<LogRow[]> =>
	await stage.ledger.log({ workId: String(recordId) });

/** How often what stands behind Passed ran, and with what. */
function effect(): { node: NodeOfTest; seen: IDataObject[] } {
	const seen: IDataObject[] = [];
	return {
		seen,
		node: step('Effect', (items) => {
			seen.push(...items.map(({ json }) => json));
			return items;
		}),
	};
}

describe('one step', () => {
	test('lets the items with evidence pass with their data, blocks the others with what is missing, and logs both', async () => {
		const ran = await run(list([present('approver'), present('amount')]), [
			{ deal: 1, approver: 'Ann', amount: 0 },
			{ deal: 2, approver: '', amount: 5 },
			{ deal: 3, approver: 'Bob', amount: 7 },
		]);
		expect(ran.error).toBeNull();
		expect(ran.json(NODE).map(({ deal }) => deal)).toEqual([1, 3]);
		expect(ran.out(NODE).map(({ pairedItem }) => pairedItem)).toEqual([{ item: 0 }, { item: 2 }]);
		const [blocked] = ran.json(NODE, 1);
		expect(blocked).toMatchObject({
			deal: 2,
			gate: {
				status: 'blocked',
				missing: [
					{
						rule: 'approver is present',
						field: 'approver',
						check: 'present',
						found: '""',
						expected: 'is present',
					},
				],
			},
		});
		for (const json of [...ran.json(NODE), blocked]) {
			const [row, ...others] = await rowsOf(gateOf(json).recordId);
			expect(others).toEqual([]);
			expect(row).toMatchObject({ event: 'check_evidence', outcome: gateOf(json).status });
		}
	});

	test('case 128: an empty item is blocked with the list of missing fields, also where the step before always outputs data', async () => {
		const rules = [present('deal.envelope_id'), present('approver')];
		const { node, seen } = effect();
		const ran = await stage.run({
			items: [{ x: 1 }],
			nodes: [step('Search', () => [], { alwaysOutputData: true }), gate(list(rules)), node],
		});
		expect(seen).toEqual([]);
		expect(ran.json(NODE, 1)).toHaveLength(1);
		const missing = gateOf(ran.json(NODE, 1)[0]).missing as IDataObject[];
		expect(missing.map(({ field }) => field)).toEqual(['deal.envelope_id', 'approver']);
	});

	test('case 128: an expression where the name of a field belongs blocks, and the cure is said', async () => {
		for (const field of ['={{ $json.envelope_id }}', '{{ $json.envelope_id }}', '$json.envelope_id']) {
			const ran = await stage.run({
				items: [{ envelope_id: 'env-1' }],
				nodes: [gate(list([present(field)]))],
			});
			expect(ran.json(NODE, 0)).toEqual([]);
			expect(gateOf(ran.json(NODE, 1)[0]).message).toContain('enter the name as fixed text');
		}
		// one that gives a name is as good as the name
		const ran = await stage.run({
			items: [{ envelope_id: 'env-1', proof: 'envelope_id' }],
			nodes: [gate(list([present('={{ $json.proof }}')]))],
		});
		expect(ran.json(NODE, 0)).toHaveLength(1);
	});

	test('case 128: no items means that nothing passes and nothing is logged', async () => {
		const { node, seen } = effect();
		const before = await stage.ledger.query('select max(id) from idempotency.decision_log');
		const ran = await stage.run({
			items: [{ x: 1 }],
			nodes: [step('Search', () => []), gate(list([present('a')])), node],
		});
		expect(ran.runs(NODE)).toBe(0);
		expect(seen).toEqual([]);
		expect(await stage.ledger.query('select max(id) from idempotency.decision_log')).toEqual(
			before,
		);
	});

	test('case 130: 0 and false are evidence; empty lists and objects and lists of nothing are not', async () => {
		const values = [0, false, [], {}, [null], [''], '', null, 'undefined'];
		const ran = await run(
			list([present('v')]),
			values.map((v) => ({ v }) as IDataObject),
		);
		expect(ran.json(NODE).map(({ v }) => v)).toEqual([0, false]);
		expect(ran.json(NODE, 1).map(({ v }) => v)).toEqual(values.slice(2));
	});

	test('each sort of rule reads its form; values may be expressions', async () => {
		const rules = [
			{ check: 'equals', field: 'decision', value: '={{ $json.wanted }}' },
			{ check: 'matches', field: 'no', pattern: 'INV-[0-9]+' },
			{ check: 'matches', field: 'no', pattern: 'inv-7', ignoreCase: true },
			{ check: 'number', field: 'amount', comparison: 'gte', value: '10' },
			{ check: 'date', field: 'at', comparison: 'lte', value: '={{ $now }}' },
			{ check: 'date', field: 'at', comparison: 'gt', value: '2026-01-01', zone: 'Europe/Berlin' },
		];
		const good = {
			...{ decision: 'approved', wanted: 'approved', no: 'INV-7', amount: 10 },
			at: '2026-01-05T10:00:00Z',
		};
		const ran = await run(list(rules), [
			good,
			{ ...good, decision: 'Approved' },
			{ ...good, wanted: null },
			{ ...good, no: 'xINV-7', amount: '9', at: '2025-12-31T23:00:00Z' },
		]);
		expect(ran.error?.message).toMatch(/"decision equals null" has no value to compare with/);
		const going = await run(list(rules), [good, { ...good, decision: 'Approved' }]);
		expect(statuses(going)).toEqual([['passed'], ['blocked']]);
		const late = await run(list(rules), [
			{ ...good, no: 'xINV-7', amount: '9', at: '2025-12-31T22:59:59Z' },
		]);
		expect(
			(gateOf(late.json(NODE, 1)[0]).missing as IDataObject[]).map(({ check }) => check),
		).toEqual(['matches', 'matches', 'number', 'date']);
	});

	test('a name of its own stands where the rule does not hold', async () => {
		const ran = await run(list([present('envelope_id', { name: 'Signed contract' })]), [{ a: 1 }]);
		expect(gateOf(ran.json(NODE, 1)[0])).toMatchObject({
			message: expect.stringContaining('Signed contract: the field is missing'),
			missing: [{ rule: 'Signed contract', field: 'envelope_id' }],
		});
	});

	test('a status field as evidence draws a warning on the item and in the editor', async () => {
		const ran = await run(list([present('dealstage')]), [{ dealstage: 'won' }]);
		expect(gateOf(ran.json(NODE)[0]).warnings).toEqual([
			expect.stringContaining('"dealstage" is a stage or status'),
		]);
		expect(ran.hints(NODE)).toEqual([expect.stringContaining('"dealstage" is a stage or status')]);
	});

	test.each([
		['no rules at all', { mode: 'list', rules: {} }, /Add at least one rule/],
		['a gate as it comes from the palette', {}, /Add at least one rule/],
		['an empty rule', list([{}]), /names no field/],
		['a rule of an unknown sort', list([{ check: 'smells', field: 'a' }]), /does not know/],
		['a rule that is no rule', { mode: 'list', rules: { rule: ['x'] } }, /names no field/],
		['an unknown mode', { mode: 'open', rules: { rule: [present('a')] } }, /Evidence For/],
		[
			'a pattern that cannot be read',
			list([{ check: 'matches', field: 'a', pattern: '(' }]),
			/cannot be read/,
		],
		[
			'an expression that fails',
			list([{ check: 'equals', field: 'a', value: '={{ $("Nope").item }}' }]),
			/expression/i,
		],
	])(
		'%s passes nothing and says the cure, whatever On Error says',
		async (_, parameters, words) => {
			for (const onError of ON_ERROR) {
				const { node, seen } = effect();
				const ran = await stage.run({
					items: [{ a: '1' }, { a: '2' }],
					nodes: [gate(parameters, { onError }), node],
				});
				expect(seen).toEqual([]);
				if (onError === 'stopWorkflow') {
					expect(ran.status).toBe('error');
					expect(`${ran.error?.message} ${ran.error?.description}`).toMatch(words);
					continue;
				}
				expect(ran.error).toBeNull();
				const left = ran.json(NODE, onError === 'continueRegularOutput' ? 1 : 2);
				expect(left.map(({ a }) => a)).toEqual(['1', '2']);
				expect(gateOf(left[0]).message).toMatch(words);
			}
		},
	);

	test('a pattern that would run for ever ends in time, item by item, and the others are not held up', async () => {
		const startedAt = performance.now();
		const ran = await run(
			list([{ name: 'No', check: 'matches', field: 'no', pattern: '(a+)+b' }]),
			[{ no: 'aaab' }, { no: 'a'.repeat(40) }],
			{ onError: 'continueRegularOutput' },
		);
		expect(performance.now() - startedAt).toBeLessThan(5_000);
		expect(statuses(ran)).toEqual([['passed'], ['error']]);
		expect(gateOf(ran.json(NODE, 1)[0]).message).toMatch(/"No" has a pattern that takes longer/);
	});
});

describe("n8n's conditions", () => {
	const rule = (entries: IDataObject[], combinator?: string) =>
		list([conditions(entries, combinator)]);

	test('hold or not as n8n decides them', async () => {
		const ran = await run(
			rule([
				condition('={{ $json.decision }}', TEXT_IS, 'approved'),
				condition('={{ $json.amount }}', NUMBER_ABOVE, 10),
			]),
			[
				{ n: 1, decision: 'approved', amount: 11 },
				{ n: 2, decision: 'approved', amount: 10 },
				{ n: 3, decision: 'declined', amount: 11 },
			],
		);
		expect(ran.error).toBeNull();
		expect(ran.json(NODE).map(({ n }) => n)).toEqual([1]);
		expect(gateOf(ran.json(NODE, 1)[0])).toMatchObject({
			missing: [{ rule: 'Condition', check: 'condition', found: '"approved", 10' }],
		});
	});

	test('of which one is enough', async () => {
		const ran = await run(
			rule(
				[condition('={{ $json.a }}', TEXT_IS, 'x'), condition('={{ $json.b }}', TEXT_IS_NOT, 'y')],
				'or',
			),
			[{ a: 'x' }, { a: 'z', b: 'z' }, { a: 'z' }, { a: 'z', b: 'y' }, {}],
		);
		expect(statuses(ran)).toEqual([
			['passed', 'passed'],
			['blocked', 'blocked', 'blocked'],
		]);
	});

	test.each([
		['"is not equal" of a missing field', condition('={{ $json.nope }}', TEXT_IS_NOT, 'declined')],
		['a comparison with a missing field', condition('approved', TEXT_IS_NOT, '={{ $json.nope }}')],
		['two missing fields that are equal', condition('={{ $json.a }}', TEXT_IS, '={{ $json.b }}')],
		['a value of another type', condition('={{ $json.text }}', NUMBER_ABOVE, 1)],
	])('case 128: %s is no evidence', async (_, entry) => {
		const ran = await run(rule([entry]), [{ text: 'x' }]);
		expect(ran.error).toBeNull();
		expect(statuses(ran)).toEqual([[], ['blocked']]);
	});

	test('case 128: an empty item is no evidence of an empty field', async () => {
		const ran = await run(rule([condition('={{ $json.blocker }}', TEXT_EMPTY)]), [
			{},
			{ blocker: '', deal: null },
			{ deal: 1 },
		]);
		expect(statuses(ran)).toEqual([['passed'], ['blocked', 'blocked']]);
		expect(gateOf(ran.json(NODE, 1)[0]).message).toMatch(/The item is empty/);
	});

	test('that ask for an empty field find it', async () => {
		const ran = await run(rule([condition('={{ $json.blocker }}', TEXT_EMPTY)]), [
			{ deal: 1, blocker: '' },
			{ deal: 2, blocker: 'x' },
		]);
		expect(statuses(ran)).toEqual([['passed'], ['blocked']]);
	});

	test.each([
		['untouched', { check: 'condition' }],
		['without conditions', conditions([])],
		[
			'a form that was not filled in, which n8n finds true',
			conditions([condition('', TEXT_IS, '')]),
		],
		['two fixed texts that are equal', conditions([condition('a', TEXT_IS, 'a')])],
		['a fixed text as expression', conditions([condition('=a', TEXT_IS, 'a')])],
		['a fixed expression', conditions([condition('={{ "a" }}', TEXT_IS, 'a')])],
		[
			'an expression that is the same for every record',
			conditions([condition('={{ $now.year }}', NUMBER_ABOVE, 2000)]),
		],
		[
			'a fixed text beside an expression',
			conditions([condition('={{ $json.a }}', TEXT_IS, '1'), condition('', TEXT_EMPTY)]),
		],
	])('%s let nothing pass', async (_, entry) => {
		const ran = await run(list([entry]), [{ a: '1' }], { onError: 'continueRegularOutput' });
		expect(statuses(ran)).toEqual([[], ['error']]);
	});

	test.each([
		['={{ $json.stage }}', 'stage'],
		['={{ $json["Deal Stage"].toLowerCase() }}', 'Deal Stage'],
		['={{ $("Start").item.json.deal?.status.trim() }}', 'deal.status'],
		["={{ $json.deals[0]['status'] }}", 'deals.0.status'],
	])('about a stage or status draw a warning: %s', async (left, field) => {
		const ran = await run(rule([condition(left, TEXT_IS, 'won')]), [{ stage: 'won' }], {
			onError: 'continueRegularOutput',
		});
		const [item] = [...ran.json(NODE), ...ran.json(NODE, 1)];
		expect(gateOf(item)).toMatchObject({
			warnings: [expect.stringContaining(`"${field}" is a stage or status`)],
		});
	});

	test('about evidence draw none', async () => {
		const ran = await run(rule([condition('={{ $json.approval.decision }}', TEXT_IS, 'yes')]), [
			{ approval: { decision: 'yes' } },
		]);
		expect(statuses(ran)).toEqual([['passed'], []]);
		expect(gateOf(ran.json(NODE)[0]).warnings).toBeUndefined();
	});

	test('work in a ladder, too', async () => {
		const stages = { won: [conditions([condition('={{ $json.amount }}', NUMBER_ABOVE, 10)])] };
		const ran = await run(ladder({ target: 'won' }, stages), [{ amount: 11 }, { amount: 9 }, {}]);
		expect(statuses(ran)).toEqual([['passed'], ['blocked', 'blocked']]);
	});
});

describe('a ladder of stages', () => {
	const items = [
		{ deal: 1, to: 'contract', job_id: 'J1', contract: { envelope_id: 'E1' } },
		{ deal: 2, to: 'invoice', job_id: 'J2', contract: {}, invoice_no: 'I2' },
		{ deal: 3, to: 'job', job_id: 'J3', contract: { envelope_id: 'E3' } },
		{ deal: 4, to: 'Won' },
		{ deal: 5 },
	];

	test.each([
		['a field', { targetBy: 'field', targetField: 'to' }],
		['an expression', { targetBy: 'value', target: '={{ $json.to }}' }],
	])(
		'takes the target from %s and says the highest stage that the evidence supports',
		async (_, target) => {
			const ran = await run(ladder(target, PIPELINE), items);
			expect(ran.error).toBeNull();
			const said = [...ran.json(NODE), ...ran.json(NODE, 1)].map((json) => [
				json.deal,
				gateOf(json).status,
				gateOf(json).stage,
				gateOf(json).supportedStage,
			]);
			expect(said).toEqual([
				[1, 'passed', 'contract', 'contract'],
				[3, 'passed', 'job', 'contract'],
				[2, 'blocked', 'invoice', 'job'],
				[4, 'blocked', 'Won', null],
				[5, 'blocked', '', null],
			]);
			expect(gateOf(ran.json(NODE, 1)[0]).missing).toEqual([
				expect.objectContaining({ stage: 'contract', field: 'contract.envelope_id' }),
			]);
			expect(gateOf(ran.json(NODE, 1)[1]).message).toContain(
				'The stages of this ladder are: "job", "contract", "invoice".',
			);
		},
	);

	test('by choice a stage needs its own evidence only', async () => {
		const parameters = ladder({ target: 'invoice', options: { requireLower: false } }, PIPELINE);
		expect(statuses(await run(parameters, [{ invoice_no: 'I1' }]))).toEqual([['passed'], []]);
		expect(
			statuses(await run(ladder({ target: 'invoice' }, PIPELINE), [{ invoice_no: 'I1' }])),
		).toEqual([[], ['blocked']]);
	});
});

describe('case 80: an approval', () => {
	/** The recipe of the README: who, what, when, and not by the link preview. */
	const approval = list([
		present('approval.approver', { name: 'Approver' }),
		{ name: 'Decision', check: 'equals', field: 'approval.decision', value: 'approved' },
		{
			name: 'Decided at',
			check: 'date',
			field: 'approval.decided_at',
			comparison: 'gte',
			value: '={{ $json.approval.asked_at }}',
		},
	]);
	const asked = { asked_at: '2026-01-05T10:00:00Z' };
	const human = {
		...asked,
		approver: 'Ann',
		decision: 'approved',
		decided_at: '2026-01-05T10:05:00Z',
	};

	test.each<[string, IDataObject, string[]]>([
		// what a link preview leaves: it opened the address two seconds later, and nobody is behind it
		[
			'by a link preview has no approver',
			{ ...human, approver: '', decided_at: '2026-01-05T10:00:02Z' },
			['Approver'],
		],
		['that was declined does not advance', { ...human, decision: 'declined' }, ['Decision']],
		['without a time does not advance', { ...human, decided_at: null }, ['Decided at']],
		[
			'from before it was asked for does not advance',
			{ ...human, decided_at: '2026-01-05T09:59:59Z' },
			['Decided at'],
		],
		[
			'whose time has no zone does not advance',
			{ ...human, decided_at: '2026-01-05T10:05:00' },
			['Decided at'],
		],
		['without anything lists all that is missing', asked, ['Approver', 'Decision', 'Decided at']],
	])('%s', async (_, record, missing) => {
		const ran = await run(approval, [{ approval: record }]);
		expect(ran.error).toBeNull();
		expect(statuses(ran)).toEqual([[], ['blocked']]);
		const listed = gateOf(ran.json(NODE, 1)[0]).missing as IDataObject[];
		expect(listed.map(({ rule }) => rule)).toEqual(missing);
	});

	test('by a person advances', async () => {
		expect(statuses(await run(approval, [{ approval: human }]))).toEqual([['passed'], []]);
	});
});

describe('evidence in the ledger', () => {
	const asks = (kind: string): IDataObject =>
		list([
			{ check: 'done', kind, version: 'v1', keyBy: 'fields', keyFields: 'order' },
			{
				...{ check: 'reference', field: 'invoice_no', kind, version: 'v1' },
				...{ keyBy: 'value', key: '={{ $json.order }}' },
			},
		]);

	test('holds once the work is done with the reference that the field has', async () => {
		const kind = stage.newKind();
		const item = { order: 1, invoice_no: 'INV-1' };
		const before = await run(asks(kind), [item]);
		await stage.run({ items: [item], nodes: [claim(byOrder(kind))] });
		const during = await run(asks(kind), [item]);
		const [work] = await stage.rows(kind);
		await stage.ledger.works.complete(
			[{ workId: work.work_id, token: work.token, externalRef: 'INV-1' }],
			{},
		);
		const after = await run(asks(kind), [
			item,
			{ ...item, invoice_no: 'INV-2' },
			{ invoice_no: 'INV-1' },
		]);

		const found = (ran: Ran, at = 0) =>
			(gateOf(ran.json(NODE, 1)[at]).missing as IDataObject[]).map((one) => one.found);
		expect(found(before)).toEqual(['no such work', 'no such work']);
		expect(found(during)).toEqual(['running', 'running']);
		expect(statuses(after)).toEqual([['passed'], ['blocked', 'blocked']]);
		expect(found(after)).toEqual(['"INV-1"']);
		expect((gateOf(after.json(NODE, 1)[1]).missing as IDataObject[])[0].reason).toMatch(
			/does not tell which work/,
		);
	});
});

describe('the name of the record', () => {
	const named = (kind: string, more: IDataObject = {}): IDataObject =>
		list([present('a')], { recordKind: kind, recordKeyFields: 'order', ...more });

	test('is kind and key: the checks stand in the history of the work of that name, in words', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: [{ order: 1 }],
			nodes: [gate(named(kind), { onError: 'continueRegularOutput' })],
		});
		await stage.run({
			items: [{ order: 1, a: 'x' }],
			nodes: [gate(named(kind)), claim(byOrder(kind)), complete({ result: 'none' })],
		});
		const recordId = workIdOf(kind, 'v1', '1');
		expect(await stage.ledger.history({ workId: recordId })).toEqual([
			'check_evidence: blocked',
			'check_evidence: passed',
			'claim: claimed',
			'complete: completed',
		]);
		const ran = await stage.run({
			items: [{ order: 1 }],
			nodes: [
				workLedger({
					...{ resource: 'work', operation: 'explain', whichWork: 'key', kind, version: 'v1' },
					key: '={{ $json.order }}',
				}),
			],
		});
		expect(ran.error).toBeNull();
		const text = (ran.json('Work Ledger')[0].story as string[]).join('\n');
		expect(text).toMatch(
			/asked for check evidence → blocked: "a is present" \(the field is missing\)/,
		);
		expect(text).toMatch(/asked for check evidence → passed/);
	});

	test('where the item lacks it, the check goes on under an id of its own, with a warning', async () => {
		const ran = await run(named(stage.newKind()), [{ a: 1 }, {}]);
		expect(statuses(ran)).toEqual([['passed'], ['blocked']]);
		for (const json of [...ran.json(NODE), ...ran.json(NODE, 1)]) {
			expect(gateOf(json).warnings).toEqual([expect.stringContaining('under its record ID only')]);
			expect(await rowsOf(gateOf(json).recordId)).toHaveLength(1);
		}
	});

	test('is explained by its id, also where there is no work of that name', async () => {
		const ran = await run(list([present('a')]), [{}]);
		const { recordId } = gateOf(ran.json(NODE, 1)[0]);
		const told = await stage.run({
			items: [{ id: recordId } as IDataObject],
			nodes: [
				workLedger({
					...{ resource: 'work', operation: 'explain', whichWork: 'id', workId: '={{ $json.id }}' },
				}),
			],
		});
		const text = JSON.stringify(told.json('Work Ledger'));
		expect(text).toMatch(/check evidence → blocked/);
		expect(text).toMatch(/Now: no work has this name; it is a record whose evidence was checked/);
	});
});

describe('the field on the item', () => {
	test('of an earlier gate is replaced; one of the item’s own is not', async () => {
		const ran = await stage.run({
			items: [{ a: 1 }],
			nodes: [gate(list([present('a')]), {}, 'First'), gate(list([present('a'), present('a')]))],
		});
		expect(gateOf(ran.json(NODE)[0]).message).toContain('2 rules');
		const own = await run(list([present('a')]), [{ a: 1, gate: 'garden' }], {
			onError: 'continueRegularOutput',
		});
		expect(own.json(NODE, 1)[0]).toMatchObject({
			gate: 'garden',
			gateAnswer: { status: 'refused', message: expect.stringContaining('"Field Name"') },
		});
		const other = await run(list([present('a')], { options: { field: 'proof' } }), [
			{ a: 1, gate: 'garden' },
		]);
		expect(other.json(NODE)[0]).toMatchObject({ gate: 'garden', proof: { status: 'passed' } });
	});

	test('does not count in the content of the item', async () => {
		const ran = await run(list([present('a')]), [{ a: 1 }]);
		expect(identifyByContent({ kind: 'k' }, ran.json(NODE)[0]).workId).toBe(
			identifyByContent({ kind: 'k' }, { a: 1 }).workId,
		);
	});

	test('takes an incoming error with it: n8n would count the item as failed', async () => {
		const ran = await run(list([present('a')]), [{ a: 1, error: 'x' }]);
		expect(ran.json(NODE)[0]).not.toHaveProperty('error');
		expect(gateOf(ran.json(NODE)[0]).inputError).toBe('x');
	});

	test('binary data stays', async () => {
		const binary = { file: { data: 'eA==', mimeType: 'text/plain' } };
		const ran = await stage.run({
			items: [
				{ json: { a: 1 }, binary },
				{ json: {}, binary },
			],
			nodes: [gate(list([present('a')]))],
		});
		expect([ran.out(NODE)[0].binary, ran.out(NODE, 1)[0].binary]).toEqual([binary, binary]);
	});
});

test('a thousand items are one statement', async () => {
	const kind = stage.newKind();
	await stage.ledger.query(`select pg_stat_reset()`).catch(() => undefined);
	const items = Array.from({ length: 1_000 }, (_, order) => ({ order, no: `INV-${order}` }));
	const ran = await run(
		list([{ check: 'matches', field: 'no', pattern: 'INV-[0-9]+' }], {
			recordKind: kind,
			recordKeyFields: 'order',
		}),
		items,
	);
	expect(ran.json(NODE).map(({ order }) => order)).toEqual(items.map(({ order }) => order));
	// clock_timestamp of one transaction's rows differ; what tells is the transaction that wrote them
	const [{ transactions, rows }] = await stage.ledger.query(
		`select count(distinct d.xmin::text)::int as transactions, count(*)::int as rows
		from idempotency.decision_log d where d.work_id = any($1)`,
		[items.map(({ order }) => workIdOf(kind, 'v1', String(order)))],
	);
	expect({ transactions, rows }).toEqual({ transactions: 1, rows: 1_000 });
});

describe('as a tool of an agent', () => {
	const tool = async (items: IDataObject[]) =>
		await stage.run({ items, nodes: [gateTool(list([present('approver')]))] });

	test('everything goes to the first output, in text that a model can read', async () => {
		const passed = await tool([{ approver: 'Ann' }]);
		const blocked = await tool([{}]);
		expect(passed.json(NODE)[0].response).toBe('Passed: the evidence is on the record (1 rule).');
		expect(blocked.json(NODE)[0].response).toBe(
			[
				'Blocked: 1 of 1 rule does not hold. approver is present: the field is missing.',
				'- approver is present: expected is present, found nothing (the field is missing)',
			].join('\n'),
		);
		expect(blocked.out(NODE, 1)).toEqual([]);
	});

	test('with the ledger down it says so, and never that it passed', async () => {
		const ran = await stage.run({
			credential: { ...stage.ledger.settings, port: 1 },
			items: [{ approver: 'Ann' }],
			nodes: [gateTool(list([present('approver')]))],
		});
		expect(ran.json(NODE)[0]).toMatchObject({
			response: expect.stringMatching(/cannot be reached.*No item has passed/s),
			gate: { status: 'error' },
		});
	});
});

describe('the engine fails open; the gate does not', () => {
	const rules = list([present('a')]);
	let tableless: Stage;
	beforeAll(async () => {
		tableless = await Stage.open();
		await tableless.query('drop table idempotency.decision_log cascade');
	});
	afterAll(async () => {
		await tableless.close();
	});

	test.each([
		['unreachable', () => ({ ...stage.ledger.settings, port: 1 }), /cannot be reached/],
		['without its tables', () => tableless.settings, /tables or functions are missing/],
		['with bad settings', () => ({ ...stage.ledger.settings, host: '' }), /host: is empty/],
	])(
		'with the ledger %s no item passes, although its field is there',
		async (_, credential, words) => {
			const settings = ON_ERROR.flatMap((onError) =>
				[false, true].map((alwaysOutputData) => ({ onError, alwaysOutputData })),
			);
			// together: each gives the ledger its time to come back
			const runs = settings.map(async (setting) => {
				const { node, seen } = effect();
				const ran = await stage.run({
					credential: credential(),
					items: [{ a: 1 }, { a: 2 }],
					nodes: [gate(rules, setting), node],
				});
				return { ...setting, ran, seen };
			});
			for (const { onError, alwaysOutputData, ran, seen } of await Promise.all(runs)) {
				expect(seen).toEqual([]);
				if (onError === 'stopWorkflow' || alwaysOutputData) {
					expect(ran.error).toMatchObject({ name: 'NodeOperationError', node: NODE });
					expect(ran.error?.message).toMatch(words);
					expect(ran.error?.description).toMatch(/No item has passed/);
					continue;
				}
				expect(ran.error).toBeNull();
				const left = ran.json(NODE, onError === 'continueRegularOutput' ? 1 : 2);
				expect(left.map(({ a }) => a)).toEqual([1, 2]);
				expect(gateOf(left[0])).toMatchObject({ status: 'error' });
				expect(gateOf(left[0]).message).toMatch(words);
			}
		},
	);

	test.each(ON_ERROR)(
		'Always Output Data stops the workflow where nothing passed, under %s',
		async (onError) => {
			const { node, seen } = effect();
			const ran = await stage.run({
				items: [{}],
				nodes: [gate(rules, { onError, alwaysOutputData: true }), node],
			});
			expect(seen).toEqual([]);
			expect(ran.error?.message).toMatch(/Nothing leaves by Passed.*"Always Output Data"/);
		},
	);

	test('Always Output Data is no matter where one item passed', async () => {
		const { node, seen } = effect();
		const ran = await stage.run({
			items: [{}, { a: 1 }],
			nodes: [gate(rules, { alwaysOutputData: true }), node],
		});
		expect(ran.error).toBeNull();
		expect(seen).toEqual([expect.objectContaining({ a: 1 })]);
	});

	test('under Stop an item that cannot be checked stops the others before they are logged as passed', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [
				{ a: 1, order: 1 },
				{ a: 1, order: 2, gate: 'garden' },
			],
			nodes: [gate({ ...rules, recordKind: kind, recordKeyFields: 'order' })],
		});
		expect(ran.error?.message).toMatch(/already has a field "gate"/);
		const outcomes = await Promise.all(
			['1', '2'].map(
				async (key) => await stage.ledger.history({ workId: workIdOf(kind, 'v1', key) }),
			),
		);
		expect(outcomes).toEqual([[], ['check_evidence: refused']]);
	});

	// with an error output n8n itself reads the item once more: this one would fail there, not in the node
	test.each(['stopWorkflow', 'continueRegularOutput'] as const)(
		'an item that cannot be read does not pass, under %s',
		async (onError) => {
			const { node, seen } = effect();
			const unreadable = new Proxy<IDataObject>(
				{ a: 1 },
				{
					ownKeys() {
						throw new Error('unreadable');
					},
				},
			);
			const ran = await stage.run({
				items: [{ json: unreadable }],
				nodes: [gate(rules, { onError }), node],
			});
			expect(seen).toEqual([]);
			expect(ran.status).toBe('error');
		},
	);
});

describe('write back, then advance', () => {
	/** The source (a CRM) and the target (accounting): what each holds, and how often it was told. */
	function systems() {
		return {
			created: [] as number[],
			writes: [] as string[],
			moves: [] as number[],
			deal: {} as IDataObject,
		};
	}

	type Gap = 'Create' | 'Record' | 'Write Back' | 'Complete' | 'Gate' | 'Move';
	const GAPS: Gap[] = ['Create', 'Record', 'Write Back', 'Complete', 'Gate', 'Move'];

	/**
	 * Claim → create → record reference → write the id to the source → complete → gate → move. A duplicate has the
	 * reference, and goes on at the write-back: it finishes what the first run left, and creates nothing.
	 */
	async function deliver(
		kind: string,
		world: ReturnType<typeof systems>,
		/** What happens in front of a step. */
		inFrontOf: Partial<Record<Gap, () => Promise<unknown>>> = {},
	) {
		const at = (name: Gap) =>
			step(`Before ${name}`, async (items) => {
				await inFrontOf[name]?.();
				return items.map((item, i) => ({ ...item, pairedItem: { item: i } }));
			});
		return await stage.run({
			executionId: nextExecutionId(),
			items: [{ order: 7 }],
			nodes: [
				claim(byOrder(kind)),
				at('Create'),
				step(
					'Create',
					http(() => {
						world.created.push(7);
						return { order: 7, invoice_no: `INV-${world.created.length}` };
					}),
				),
				at('Record'),
				complete(
					{ operation: 'recordReference', externalRef: '={{ $json.invoice_no }}' },
					{},
					'Record',
				),
				at('Write Back'),
				step('Write Back', (items) => {
					const { work } = items[0].json as { work: IDataObject };
					world.deal.invoice_no = work.externalRef;
					world.writes.push(String(work.externalRef));
					return items.map((item, i) => ({ ...item, pairedItem: { item: i } }));
				}),
				at('Complete'),
				complete({ result: 'none' }, { onError: 'continueRegularOutput' }, 'Complete'),
				at('Gate'),
				step('Read Source', () => [{ json: { order: 7, ...world.deal }, pairedItem: { item: 0 } }]),
				gate(
					list([
						{
							...{ check: 'reference', field: 'invoice_no', kind, version: 'v1' },
							...{ keyBy: 'fields', keyFields: 'order' },
						},
					]),
				),
				at('Move'),
				step('Move', (items) => {
					world.moves.push(...items.map(() => 7));
					return items;
				}),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Before Create'],
				['Before Create', 'Create'],
				['Create', 'Before Record'],
				['Before Record', 'Record'],
				['Record', 'Before Write Back'],
				// a duplicate is done: it goes on where the first run may have ended
				['Claim Work:1', 'Before Write Back'],
				['Before Write Back', 'Write Back'],
				['Write Back', 'Before Complete'],
				['Before Complete', 'Complete'],
				['Complete', 'Before Gate'],
				// what is done already needs no completion
				['Complete:1', 'Before Gate'],
				['Before Gate', 'Read Source'],
				['Read Source', NODE],
				[NODE, 'Before Move'],
				['Before Move', 'Move'],
			],
		});
	}

	const dies = (gap: Gap) => ({
		[gap]: async () => await Promise.reject(new Error(`died in front of ${gap}`)),
	});

	test('a run that goes through creates one invoice, writes it back and moves the record', async () => {
		const [kind, world] = [stage.newKind(), systems()];
		const ran = await deliver(kind, world);
		expect(ran.error).toBeNull();
		expect(world).toMatchObject({ created: [7], writes: ['INV-1'], moves: [7] });
	});

	test.each(GAPS)(
		'a second trigger while the first stands in front of %s creates nothing, and both come out right',
		async (gap) => {
			const [kind, world] = [stage.newKind(), systems()];
			const second: Ran[] = [];
			const first = await deliver(kind, world, {
				[gap]: async () => {
					second.push(await deliver(kind, world));
					// until the work is done the second one is Busy: it writes and moves nothing
					const isDone = gap === 'Gate' || gap === 'Move';
					expect(world.moves).toHaveLength(isDone ? 1 : 0);
				},
			});
			expect([first.error, second[0].error]).toEqual([null, null]);
			expect(world.created).toEqual([7]);
			expect(new Set(world.writes)).toEqual(new Set(['INV-1']));
			expect(world.deal.invoice_no).toBe('INV-1');
			// the later move finds the record where it is to be
			expect(world.moves.length).toBe(gap === 'Gate' || gap === 'Move' ? 2 : 1);
		},
	);

	test.each<Gap>(['Write Back', 'Complete', 'Gate', 'Move'])(
		'what died in front of %s is finished by the next delivery once the lease has ended: one invoice, one move',
		async (gap) => {
			const [kind, world] = [stage.newKind(), systems()];
			const first = await deliver(kind, world, dies(gap));
			expect(first.error?.message).toBe(`died in front of ${gap}`);
			const work = await stage.work(kind);
			if (work.state === 'running') await stage.ledger.elapse({ workId: work.work_id });
			const ran = await deliver(kind, world);
			expect(ran.error).toBeNull();
			expect(world.created).toEqual([7]);
			expect(world.moves).toEqual([7]);
			expect(world.deal.invoice_no).toBe('INV-1');
		},
	);

	test('a record that somebody dragged forward by hand has no proof, so the gate blocks it', async () => {
		const kind = stage.newKind();
		const rule = {
			...{ check: 'reference', field: 'invoice_no', kind, version: 'v1' },
			...{ keyBy: 'fields', keyFields: 'order' },
		};
		const ran = await run(list([rule]), [
			{ order: 7, dealstage: 'invoiced' },
			{ order: 7, dealstage: 'invoiced', invoice_no: 'typed by hand' },
		]);
		expect(statuses(ran)).toEqual([[], ['blocked', 'blocked']]);
	});
});
