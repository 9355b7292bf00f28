import type { IDataObject, INodeExecutionData } from 'n8n-workflow';

import { claim, complete, http, step, workLedger, type NodeOfTest, type Ran } from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

/** Orders of a kind done, their invoices called inv_<order>. */
async function invoiced(kind: string, numbers: number[], more: IDataObject = {}): Promise<void> {
	const ran = await stage.run({
		items: orders(...numbers),
		nodes: [
			claim(byOrder(kind)),
			complete({ externalRef: '={{ "inv_" + $json.order }}', result: 'nothing', ...more }),
		],
	});
	expect(ran.error).toBeNull();
	expect((await stage.rows(kind)).map(({ state }) => state)).toEqual(numbers.map(() => 'done'));
}

/** A record of the target, as its API lists it. */
const invoice = (order: number, more: IDataObject = {}): IDataObject => ({
	id: `inv_${order}`,
	amount: order * 10,
	metadata: { order_id: order },
	...more,
});

const FRESH = { settleMinutes: 0 };

async function reconcile(
	kind: string,
	records: IDataObject[] | INodeExecutionData[],
	parameters: IDataObject = {},
	settings: NodeOfTest['settings'] = {},
	behind: NodeOfTest[] = [],
): Promise<Ran> {
	return await stage.run({
		items: records,
		nodes: [
			workLedger(
				{ resource: 'reconciliation', operation: 'reconcile', kind, options: FRESH, ...parameters },
				settings,
			),
			...behind,
		],
	});
}

const BY_KEY = { namedBy: 'key', recordKeyFields: 'metadata.order_id' };
const ALL = {
	findings: [
		...['matched', 'missing_in_target', 'unknown_to_ledger', 'duplicated_in_target'],
		...['different_reference', 'different_key', 'not_done', 'not_comparable'],
	],
};

const found = (ran: Ran): IDataObject[] =>
	ran.json('Work Ledger').map((json) => json.reconcile as IDataObject);
const statuses = (ran: Ran) => found(ran).map(({ status }) => status);

describe('reconcile', () => {
	test('what has to be looked at leaves, each with its words, and the summary is last', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1, 2, 3, 4]);
		const ran = await reconcile(
			kind,
			[
				invoice(1),
				{ id: 'inv_99', metadata: { order_id: 3 } },
				invoice(4),
				{ id: 'inv_4b', metadata: { order_id: 4 } },
				{ id: 'inv_77', note: 'by hand' },
			],
			BY_KEY,
		);
		expect(ran.error).toBeNull();
		expect(ran.json('Work Ledger')).toMatchObject([
			{
				id: 'inv_99',
				reconcile: {
					status: 'different_reference',
					key: '3',
					externalRef: 'inv_3',
					targetRef: 'inv_99',
					message: expect.stringMatching(/^The record inv_99 names kind\d+ 3, .*\(reference inv_3\)\. There may be two effects/),
				},
			},
			{
				id: 'inv_4',
				amount: 40,
				reconcile: {
					status: 'duplicated_in_target',
					key: '4',
					duplicates: [{ item: 2, targetRef: 'inv_4' }, { item: 3, targetRef: 'inv_4b' }],
					duplicateCount: 2,
					message: expect.stringMatching(/^2 records belong to kind\d+ 4, whose reference is inv_4 \(items 2, 3\)\./),
				},
			},
			{ id: 'inv_4b', reconcile: { status: 'duplicated_in_target' } },
			{
				id: 'inv_77',
				note: 'by hand',
				reconcile: {
					status: 'unknown_to_ledger',
					workId: null,
					message: expect.stringMatching(/has reference inv_77\. Find out who made the record/),
				},
			},
			{
				reconcile: {
					status: 'missing_in_target',
					key: '2',
					kind,
					version: 'v1',
					externalRef: 'inv_2',
					targetRef: null,
					state: 'done',
					message: expect.stringMatching(/no record of it is among the items\. Look for it in the target system/),
				},
			},
			{
				reconcile: {
					status: 'summary',
					records: 5,
					works: 4,
					unreadable: 0,
					drifting: 3,
					counts: {
						...{ matched: 1, missing_in_target: 1, unknown_to_ledger: 1, duplicated_in_target: 2 },
						...{ different_reference: 1, different_key: 0, not_done: 0, not_comparable: 0 },
					},
					unknown: ['inv_77'],
				},
			},
		]);
		const { message } = found(ran).at(-1) as { message: string };
		expect(message).toMatch(/^5 records against 4 works: .*2 duplicated in target/);
		for (const json of ran.json('Work Ledger')) expect(json).not.toHaveProperty('error');
	});

	test('the drift is in the history of the work, in words', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1]);
		await reconcile(kind, [invoice(9)]);
		const ran = await stage.run({
			items: orders(1),
			nodes: [workLedger({ operation: 'explain', whichWork: 'key', kind, key: '={{ $json.order }}' })],
		});
		expect(JSON.stringify(ran.json('Work Ledger'))).toMatch(/asked for reconcile.*→ missing in target/);
	});

	test('matched records leave where that is chosen; json, binary and pairing stay', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1, 2]);
		const binary = { pdf: { data: 'YQ==', mimeType: 'application/pdf' } };
		const records = [{ json: invoice(2) }, { json: invoice(1, { error: 'from before' }), binary }];
		const ran = await reconcile(kind, records, ALL);
		expect(ran.out('Work Ledger').slice(0, 2)).toMatchObject([
			{ json: { id: 'inv_2', reconcile: { status: 'matched', matchedBy: 'reference' } }, pairedItem: { item: 0 } },
			{
				json: { id: 'inv_1', reconcile: { status: 'matched', inputError: 'from before' } },
				pairedItem: { item: 1 },
				binary,
			},
		]);
		expect(ran.json('Work Ledger')[1]).not.toHaveProperty('error');
	});

	test('a work without a record is paired with none: a step behind it is not handed the data of another', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1, 2]);
		const behind: NodeOfTest[] = [
			claim({ kind: stage.newKind(), identity: 'expression', key: "={{ $('Start').item.json.id }}" }),
		];
		const ran = await reconcile(kind, [invoice(1), invoice(8)], {}, {}, behind);
		expect(statuses(ran)).toEqual(['unknown_to_ledger', 'missing_in_target', 'summary']);
		expect(ran.error?.message).toMatch(/^2 items cannot be claimed/);
		expect(ran.out('Work Ledger').map(({ pairedItem }) => pairedItem)).toEqual([{ item: 1 }, [], []]);
	});

	test('a held work whose record is there is resolved by the item that says so', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind, { onLapse: 'hold' })),
				complete({ operation: 'fail', landed: 'unknown', error: 'no answer' }),
			],
		});
		const ran = await reconcile(kind, [invoice(1)], BY_KEY, {}, [
			step('Held', (items) => items.filter(({ json }) => (json.reconcile as IDataObject).state === 'held')),
			{
				...workLedger({ operation: 'resolve', landed: 'yes', externalRef: '={{ $json.reconcile.targetRef }}' }),
				name: 'Resolve',
			},
		]);
		expect(ran.error).toBeNull();
		expect(found(ran)[0]).toMatchObject({
			status: 'not_done',
			state: 'held',
			lastError: 'no answer',
			message: expect.stringMatching(/is held \(no answer\), but it landed.*Resolve it as landed with reference inv_1/),
		});
		expect(await stage.work(kind)).toMatchObject({ state: 'done', external_ref: 'inv_1' });
		expect(statuses(await reconcile(kind, [invoice(1)], { ...BY_KEY, ...ALL }))).toEqual(['matched', 'summary']);
	});

	test.each([
		['failed and known', { landed: 'no' }, {}, /was reported as not landed \(no answer\) and is tried again at .*second one/],
		['failed and unknown', { landed: 'unknown' }, {}, /is failed \(no answer\), but it landed.*Resolve it/],
		['dead', { landed: 'no', options: { permanent: true } }, {}, /is dead \(no answer\), but it landed.*Resolve it/],
	])('%s work whose record is there: the words say what to do', async (_, parameters, policy, words) => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind, policy)),
				complete({ operation: 'fail', error: 'no answer', ...parameters }),
			],
		});
		const [first] = found(await reconcile(kind, [invoice(1)], BY_KEY));
		expect(first).toMatchObject({ status: 'not_done', message: expect.stringMatching(words) });
	});

	test('running work: a live owner is about to report, a vanished one is not', async () => {
		const kind = stage.newKind();
		await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		const [live] = found(await reconcile(kind, [invoice(1)], BY_KEY));
		expect(live).toMatchObject({ status: 'not_done', state: 'running', message: expect.stringMatching(/about to say so/) });
		await stage.ledger.elapse({ workId: (await stage.work(kind)).work_id });
		const [lapsed] = found(await reconcile(kind, [invoice(1)], BY_KEY));
		expect(lapsed.message).toMatch(/its owner vanished without a report.*resolve it as landed/);
	});

	test('done without a reference and named by no record: it says that nothing can be compared', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1], { externalRef: '' });
		const ran = await reconcile(kind, [invoice(1)]);
		expect(statuses(ran)).toEqual(['unknown_to_ledger', 'not_comparable', 'summary']);
		expect(found(ran)[1].message).toMatch(/without a reference, and no record names it/);
		// the key settles it
		expect(statuses(await reconcile(kind, [invoice(1)], BY_KEY))).toEqual(['summary']);
	});
});

describe('how a record names its work', () => {
	test('by the key as Claim Work reads it: number or text, one field or several', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1]);
		const other = [{ id: 'x', metadata: { order_id: ' 1 ' } }];
		expect(found(await reconcile(kind, other, BY_KEY))[0]).toMatchObject({ status: 'different_reference', key: '1' });

		const composite = stage.newKind();
		await stage.run({
			items: [{ order: '7', country: 'DE' }],
			nodes: [claim(byOrder(composite, { keyFields: 'order, country' })), complete({ externalRef: 'inv_7' })],
		});
		const record = { id: 'inv_8', no: '7', land: 'DE' };
		expect(
			found(await reconcile(composite, [record], { namedBy: 'key', recordKeyFields: 'no, land' }))[0],
		).toMatchObject({ status: 'different_reference', externalRef: 'inv_7' });
	});

	test('by the work id that was sent along, in capitals too', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1, 2]);
		const [one, two] = await stage.rows(kind);
		const ran = await reconcile(
			kind,
			[{ id: 'a', tag: one.work_id }, { id: 'b', tag: ` ${two.work_id.toUpperCase()} ` }, { id: 'c' }],
			{ namedBy: 'workId', workIdField: 'tag' },
		);
		expect(statuses(ran)).toEqual(['different_reference', 'different_reference', 'unknown_to_ledger', 'summary']);
	});

	test('a field that no record has is said, not passed over', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1]);
		const ran = await reconcile(kind, [invoice(1), invoice(2)], { namedBy: 'key', recordKeyFields: 'meta.order' });
		expect(ran.error?.message).toMatch(/^Key Fields: no record has a value in "meta\.order"/);
		expect(await reconciled(kind)).toBe(0);
	});

	test('references are compared as text: a number is its digits', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1], { externalRef: '={{ 1001 }}' });
		expect(statuses(await reconcile(kind, [{ id: 1001 }], ALL))).toEqual(['matched', 'summary']);
		expect(statuses(await reconcile(kind, [{ id: '1001 ' }], ALL))).toEqual(['matched', 'summary']);
	});
});

/** Runs of a kind in the decision log. */
async function reconciled(kind: string): Promise<number> {
	const rows = await stage.ledger.query(
		`select 1 from idempotency.decision_log where event = 'reconcile' and checked ->> 'kind' = $1`,
		[kind],
	);
	return rows.length;
}

describe('the time', () => {
	/** Order 1 done exactly then. */
	const doneAt = async (time: string) => {
		const kind = stage.newKind();
		await invoiced(kind, [1]);
		await stage.ledger.query('update idempotency.work_log set last_done_at = $2 where kind = $1', [kind, time]);
		return kind;
	};
	const between = (from: unknown, to: unknown) => ({ range: 'between', from, to }) as IDataObject;

	test.each([
		['with an offset', '2026-03-01T01:00:00+01:00', '2026-03-02T01:00:00+01:00'],
		['in UTC', '2026-03-01T00:00:00.000Z', '2026-03-02T00:00:00Z'],
		['from an expression', '={{ new Date(Date.UTC(2026, 2, 1)) }}', '={{ DateTime.fromISO("2026-03-02T00:00:00Z") }}'],
	])('%s: its first moment belongs to the range, its last does not', async (_, from, to) => {
		const first = await doneAt('2026-03-01T00:00:00Z');
		expect(statuses(await reconcile(first, [invoice(9)], between(from, to)))).toContain('missing_in_target');
		const last = await doneAt('2026-03-02T00:00:00Z');
		expect(statuses(await reconcile(last, [invoice(9)], between(from, to)))).not.toContain('missing_in_target');
	});

	test('without an offset is meant in the time zone of the workflow', async () => {
		// n8n's default where nothing is set
		const kind = await doneAt('2026-03-01T05:00:00Z');
		const summary = async (from: string, to: string) =>
			found(await reconcile(kind, [invoice(9)], between(from, to))).at(-1);
		expect(await summary('2026-03-01T00:00:00', '2026-03-02')).toMatchObject({
			from: '2026-03-01T05:00:00.000Z',
			to: '2026-03-02T05:00:00.000Z',
			works: 1,
		});
	});

	test('work done within the last hour is not missed: it may be newer than the list', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1]);
		expect(statuses(await reconcile(kind, [invoice(9)], { options: {} }))).toEqual(['unknown_to_ledger', 'summary']);
		expect(statuses(await reconcile(kind, [invoice(1)], { options: {}, ...ALL }))).toEqual(['matched', 'summary']);
	});
});

describe('records that cannot be read', () => {
	const REASON = /"id" is missing in this item\. Check the spelling/;

	test('under Stop the item is named and nothing is logged', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1]);
		const ran = await reconcile(kind, [invoice(1), { number: 2 }]);
		expect(ran.error).toMatchObject({ name: 'NodeOperationError', message: expect.stringMatching(REASON) });
		expect(await reconciled(kind)).toBe(0);
	});

	test.each(['continueRegularOutput', 'continueErrorOutput'] as const)(
		'under %s they leave with their error, and what seems missing says that it may be one of them',
		async (onError) => {
			const kind = stage.newKind();
			await invoiced(kind, [1, 2]);
			const ran = await reconcile(kind, [{ number: 2 }, invoice(1)], {}, { onError });
			expect(ran.error).toBeNull();
			const errors = onError === 'continueErrorOutput' ? ran.out('Work Ledger', 1) : ran.out('Work Ledger').slice(2);
			expect(errors).toMatchObject([
				{ json: { number: 2, error: expect.stringMatching(REASON) }, pairedItem: { item: 0 } },
			]);
			const [missing, summary] = ran.json('Work Ledger').map((json) => json.reconcile as IDataObject);
			expect(missing.message).toMatch(/1 record could not be read: it may be one of them/);
			expect(summary).toMatchObject({ unreadable: 1, records: 1 });
		},
	);

	test.each<[string, IDataObject, IDataObject, RegExp]>([
		['an integer that was rounded', { id: 2 ** 53 }, {}, /"id"/],
		['an object', { id: { a: 1, b: 2 } }, {}, /Pick a field inside it/],
		['a lost value', { id: 'undefined' }, {}, /the value was lost/],
		['a work id that is none', { id: 'a', tag: 'inv' }, { namedBy: 'workId', workIdField: 'tag' }, /"tag" holds no work id: 64 hex digits/],
		['half of a key', { id: 'a', x: 1 }, { namedBy: 'key', recordKeyFields: 'x, y' }, /"y" is missing/],
		['a key that was rounded', { id: 'a', x: 2 ** 53 }, { namedBy: 'key', recordKeyFields: 'x' }, /"x"/],
		['no reference field', { id: 'a' }, { referenceField: '={{ "" }}' }, /^Reference Field is empty/],
		['no key field', { id: 'a' }, { namedBy: 'key', recordKeyFields: '={{ "" }}' }, /No key field is named/],
		['no work id field', { id: 'a' }, { namedBy: 'workId', workIdField: ' ' }, /^Work ID Field is empty/],
		['an unknown way to name', { id: 'a' }, { namedBy: 'luck' }, /Choose it anew/],
		['no kind', { id: 'a' }, { kind: '={{ "" }}' }, /kind is empty/],
		['a field of its own', { id: 'a', reconcile: { my: 1 } }, {}, /already has a field "reconcile"/],
		['a field name that n8n reads', { id: 'a' }, { options: { field: 'error' } }, /may not be "error"/],
		['a range backwards', { id: 'a' }, { range: 'between', from: '2026-03-02', to: '2026-03-01' }, /range must begin before it ends/],
		['no beginning', { id: 'a' }, { range: 'between', from: '={{ "" }}', to: '2026-03-01' }, /^From must be a time/],
		['a word for a time', { id: 'a' }, { range: 'between', from: 'yesterday', to: 'now' }, /^From must be a time/],
		['a day that does not exist', { id: 'a' }, { range: 'between', from: '2026-02-30', to: '2026-03-01' }, /out of range/],
		['a negative time', { id: 'a' }, { lastDays: -1 }, /^Days must be a number from/],
		['a negative margin', { id: 'a' }, { options: { marginHours: -1 } }, /^Margin \(Hours\) must be/],
		['a negative settling time', { id: 'a' }, { options: { settleMinutes: -1 } }, /^Leave Out the Last \(Minutes\) must be/],
	])('%s is a clear error on the item', async (_, json, parameters, words) => {
		const kind = stage.newKind();
		const ran = await reconcile(kind, [json], parameters, { onError: 'continueRegularOutput' });
		expect(ran.error).toBeNull();
		expect(ran.json('Work Ledger')).toEqual([{ ...json, error: expect.stringMatching(words) }]);
		expect(await reconciled(kind)).toBe(0);
	});

	test('a ledger that cannot be reached is an error on every item, and no finding', async () => {
		const ran = await stage.run({
			items: [invoice(1), invoice(2)],
			nodes: [
				workLedger(
					{ resource: 'reconciliation', operation: 'reconcile', kind: 'k' },
					{ onError: 'continueRegularOutput' },
				),
			],
			credential: { ...stage.ledger.settings, host: '' },
		});
		expect(ran.json('Work Ledger').map(({ error }) => typeof error)).toEqual(['string', 'string']);
	});
});

describe('a target without records', () => {
	test('an empty item alone is refused, with the option that allows it', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1]);
		const ran = await reconcile(kind, [{}]);
		expect(ran.error?.message).toMatch(/^The only item is empty.*An Empty Item Is No Record/);
		expect(await reconciled(kind)).toBe(0);
	});

	test('with the option every work of the range is missing', async () => {
		const kind = stage.newKind();
		await invoiced(kind, [1, 2]);
		const ran = await reconcile(kind, [{}], { options: { ...FRESH, emptyIsNone: true } });
		expect(statuses(ran)).toEqual(['missing_in_target', 'missing_in_target', 'summary']);
		expect(found(ran).at(-1)).toMatchObject({ records: 0, works: 2, unreadable: 0 });
		expect(ran.out('Work Ledger').map(({ pairedItem }) => pairedItem)).toEqual(Array(3).fill({ item: 0 }));
	});

	test('an empty item among others is a record that lacks its reference', async () => {
		const kind = stage.newKind();
		const ran = await reconcile(kind, [{}, invoice(1)], { options: { emptyIsNone: true } });
		expect(ran.error?.message).toMatch(/"id" is missing in this item/);
	});
});

test('run again over what it let out, the findings are new ones', async () => {
	const kind = stage.newKind();
	await invoiced(kind, [1]);
	const first = await reconcile(kind, [invoice(9)]);
	const again = await reconcile(kind, [first.json('Work Ledger')[0]]);
	expect(found(again)[0]).toMatchObject({ status: 'unknown_to_ledger', targetRef: 'inv_9' });
});

test('Retry On Fail after a bad record compares and logs once', async () => {
	const kind = stage.newKind();
	await invoiced(kind, [1]);
	const ran = await reconcile(
		kind,
		[invoice(9), { number: 2 }],
		{},
		{ onError: 'continueRegularOutput', retryOnFail: true, maxTries: 3, waitBetweenTries: 1 },
	);
	expect(ran.error).toBeNull();
	expect(await reconciled(kind)).toBe(1);
});

test('10,000 records against 10,000 works through the node', async () => {
	const kind = stage.newKind();
	const numbers = Array.from({ length: 10_000 }, (_, i) => i);
	await stage.ledger.query(
		`insert into idempotency.work_log (work_id, kind, version, key, state, external_ref, created_at, updated_at, first_started_at, claimed_at, completed_at, last_done_at)
		select encode(sha256(convert_to($1 || ':v1:' || g, 'UTF8')), 'hex'), $1, 'v1', g, 'done', 'inv_' || g, t, t, t, t, t, t
		from generate_series(0, 9999) g, cast(now() as timestamptz) t`,
		[kind],
	);
	const records = numbers.map((i) => invoice(i, i < 10 ? { id: `lost_${i}` } : {}));
	const started = performance.now();
	const ran = await reconcile(kind, records, BY_KEY, {}, [step('Next', http())]);
	expect(performance.now() - started).toBeLessThan(15_000);
	expect(found(ran)).toHaveLength(11);
	expect(found(ran).at(-1)).toMatchObject({
		records: 10_000,
		works: 10_000,
		counts: { matched: 9_990, different_reference: 10, missing_in_target: 0, unknown_to_ledger: 0 },
	});
});
