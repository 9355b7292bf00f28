import type { IDataObject } from 'n8n-workflow';

import { claim, complete, http, nextExecutionId, step, type NodeOfTest, type Ran } from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

const workOf = (json: IDataObject): IDataObject => json.work as IDataObject;

/** Claims order 1 and runs the nodes behind it. */
async function claimed(
	kind: string,
	nodes: NodeOfTest[],
	more: IDataObject = {},
	items: IDataObject[] = orders(1),
): Promise<Ran> {
	return await stage.run({ items, nodes: [claim(byOrder(kind, more)), ...nodes] });
}

/** A step that lets the lease end and another execution claim order 1. */
const loseToAnother = (kind: string) =>
	step('Slow', async (items) => {
		await stage.ledger.elapse({ workId: (await stage.work(kind)).work_id });
		await claimed(kind, []);
		return items.map(({ json }, item) => ({ json, pairedItem: { item } }));
	});

describe('complete', () => {
	test('case 28: stores the result, and says so on the item; a skip is an outcome like any other', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [
			complete({ result: 'expression', resultValue: '={{ { outcome: "skip" } }}' }),
		]);
		expect(ran.json('Complete Work')[0]).toMatchObject({
			order: 1,
			customer: 'c1',
			work: { status: 'completed', state: 'done', key: '1', attempt: 1 },
		});
		expect(workOf(ran.json('Complete Work')[0])).not.toHaveProperty('token');
		expect(await stage.works(kind)).toEqual(['1 done {"outcome":"skip"}']);
	});

	test.each([
		['the item, without our own field', {}, { order: 1, customer: 'c1', total: 10 }],
		['chosen fields', { result: 'fields', resultFields: 'order, nope, total' }, { order: 1, total: 10 }],
		['an object from an expression', { result: 'expression', resultValue: '={{ { t: $json.total } }}' }, { t: 10 }],
		['a text', { result: 'expression', resultValue: 'a, b, $1' }, 'a, b, $1'],
		['an expression that gives nothing', { result: 'expression', resultValue: '={{ $json.nope }}' }, null],
		['nothing', { result: 'none' }, null],
	])('the result is %s', async (_, parameters, stored) => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [complete(parameters)]);
		expect(ran.error).toBeNull();
		expect((await stage.work(kind)).result).toEqual(stored);
	});

	describe('behind a step that failed and was told to go on, says that the failure is remembered as done', () => {
		const CURE = 'connect the error output to a Complete Work with the operation Fail';
		const warned = (ran: Ran) => [workOf(ran.json('Complete Work')[0]).warnings, ran.hints('Complete Work')];

		test.each([
			['its error as text', { error: 'card declined' }, 'came with an error (card declined)'],
			['an error object', { error: { message: 'Payment failed', httpCode: '402' } }, 'came with an error (Payment failed)'],
			['an error without a message', { error: { code: 7 } }, 'came with an error ({"code":7})'],
		])('%s', async (_, answer, words) => {
			const kind = stage.newKind();
			const ran = await claimed(kind, [step('Effect', http(() => answer)), complete()]);
			expect(ran.error).toBeNull();
			const text = expect.stringMatching(new RegExp(`${words.replace(/[(){}]/g, '\\$&')}.*${CURE}`));
			expect(warned(ran)).toEqual([[text], [text]]);
		});

		test('the very item that went in, because the step threw', async () => {
			const kind = stage.newKind();
			const failing = () => {
				throw new Error('connection reset');
			};
			const ran = await claimed(kind, [
				step('Effect', failing, { onError: 'continueRegularOutput' }),
				step('After', http((json) => json)),
				complete(),
			]);
			expect(ran.error).toBeNull();
			const text = expect.stringMatching(`^Completed, although "Effect" failed: .*${CURE}`);
			expect(warned(ran)).toEqual([[text], [text]]);
		});

		test.each([
			['error: null', { error: null }],
			['error: false', { error: false }],
			['error: ""', { error: '' }],
			['error: {}', { error: {} }],
			['no error', {}],
		])('but not an answer with %s', async (_, answer) => {
			const kind = stage.newKind();
			const ran = await claimed(kind, [step('Effect', http(() => answer)), complete()]);
			expect(warned(ran)).toEqual([undefined, []]);
		});

		test('but not for a step that failed elsewhere, or before the claim', async () => {
			const kind = stage.newKind();
			const failing = () => {
				throw new Error('beside');
			};
			const goOn = { onError: 'continueRegularOutput' } as const;
			const ran = await stage.run({
				items: orders(1),
				nodes: [step('Before', failing, goOn), claim(byOrder(kind)), step('Beside', failing, goOn), complete()],
				links: [
					['Start', 'Before'],
					['Before', 'Claim Work'],
					['Claim Work', 'Beside'],
					['Claim Work', 'Complete Work'],
				],
			});
			expect(warned(ran)).toEqual([undefined, []]);
		});
	});

	test('never fails because of its result: what is circular becomes a marker, with a warning', async () => {
		const kind = stage.newKind();
		const circular: IDataObject = { a: 1 };
		circular.self = circular;
		const ran = await claimed(kind, [step('Call', http(() => ({ circular }))), complete()]);
		expect(ran.error).toBeNull();
		const work = workOf(ran.json('Complete Work')[0]);
		expect(work.status).toBe('completed');
		expect(work.warnings).toHaveLength(1);
		expect(await stage.work(kind)).toMatchObject({ state: 'done', result: { circular: { a: 1 } } });
	});

	test('never fails because of its result: a BigInt is stored as its digits', async () => {
		const kind = stage.newKind();
		const answer = { big: 9007199254740993n } as unknown as IDataObject;
		const ran = await claimed(kind, [step('Call', http(() => answer)), complete()]);
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"big":"9007199254740993"}']);
	});

	test.each([
		['empty', { externalRef: '={{ "" }}' }],
		['undefined', { externalRef: '={{ $json.nope }}' }],
		['an object', { externalRef: '={{ { a: 1 } }}' }],
		['"undefined"', { externalRef: '={{ "undefined" }}' }],
		['too long', { externalRef: '={{ "x".repeat(2001) }}' }],
		['not plain text', { externalRef: '={{ "a\\u0000b" }}' }],
		['the rest of a text whose field is missing', { externalRef: '=INV-{{ $json.nope }}' }],
		['a missing field joined to a text', { externalRef: '={{ "INV-" + $json.nope }}' }],
		['an await that is missing', { externalRef: '={{ "[object Promise]" }}' }],
		['no or yes', { externalRef: '={{ false }}' }],
	])('a reference that is none (%s) completes with a warning', async (_, parameters) => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [complete(parameters)]);
		expect(ran.error).toBeNull();
		expect(workOf(ran.json('Complete Work')[0])).toMatchObject({
			status: 'completed',
			warnings: [expect.stringMatching(/External Reference/)],
		});
		expect(await stage.work(kind)).toMatchObject({ state: 'done', external_ref: null });
	});

	test('no reference set is no warning', async () => {
		const ran = await claimed(stage.newKind(), [complete()]);
		expect(workOf(ran.json('Complete Work')[0])).not.toHaveProperty('warnings');
	});

	test('a number that was rounded before it came here is kept as the reference, with a warning (case 94)', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [complete({ externalRef: '={{ 9007199254740993 }}' })]);
		expect(workOf(ran.json('Complete Work')[0])).toMatchObject({
			status: 'completed',
			warnings: [expect.stringMatching(/too big to be exact.*string ID/)],
		});
		expect((await stage.work(kind)).external_ref).toBe('9007199254740992');
	});

	test('a number as reference is its digits', async () => {
		const kind = stage.newKind();
		await claimed(kind, [complete({ externalRef: '={{ $json.total }}' })]);
		expect((await stage.work(kind)).external_ref).toBe('10');
	});

	test('after the lease ended, but before anybody claimed, is accepted as late', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [
			step('Slow', async (items) => {
				await stage.ledger.elapse({ workId: (await stage.work(kind)).work_id });
				return items;
			}),
			complete(),
		]);
		expect(workOf(ran.json('Complete Work')[0])).toMatchObject({ status: 'completed', late: true });
	});

	test('by a former owner leaves by Not Owner, with what was offered in the log only', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [
			loseToAnother(kind),
			complete({ externalRef: 'second-effect', result: 'fields', resultFields: 'total' }),
		]);
		expect(ran.error).toBeNull();
		expect(ran.out('Complete Work')).toEqual([]);
		const [item] = ran.out('Complete Work', 1);
		expect(item).toMatchObject({
			json: { order: 1, work: { status: 'not_owner' } },
			pairedItem: { item: 0 },
		});
		const row = await stage.work(kind);
		expect(row).toMatchObject({ state: 'running', attempt: 2, external_ref: null });
		const log = await stage.ledger.log({ workId: row.work_id });
		expect(log.at(-1)).toMatchObject({
			outcome: 'not_owner',
			result: { total: 10 },
			external_ref: 'second-effect',
		});
	});

	test('twice with another result: the first stands, the difference is told', async () => {
		const kind = stage.newKind();
		const given = {
			workId: '={{ $("Claim Work").first().json.work.workId }}',
			token: '={{ $("Claim Work").first().json.work.token }}',
		};
		const ran = await claimed(kind, [
			complete({ result: 'expression', resultValue: 'one', options: given }, {}, 'First'),
			complete({ result: 'expression', resultValue: 'two', options: given }, {}, 'Second'),
		]);
		expect(ran.error).toBeNull();
		expect(workOf(ran.json('Second')[0])).toMatchObject({
			status: 'completed',
			differs: ['result'],
			result: 'one',
		});
		expect(await stage.works(kind)).toEqual(['1 done "one"']);
	});

	test('keeps binary data and pairing', async () => {
		const kind = stage.newKind();
		const binary = { file: { data: 'aGVsbG8=', mimeType: 'text/plain' } };
		const ran = await stage.run({
			items: orders(1, 2).map((json) => ({ json, binary })),
			nodes: [claim(byOrder(kind)), complete()],
		});
		expect(ran.out('Complete Work').map(({ pairedItem, binary: kept }) => [pairedItem, kept])).toEqual(
			[0, 1].map((item) => [{ item }, binary]),
		);
	});
});

test.each([
	['Operation', { operation: 'finish' }],
	['Did the Effect Land?', { operation: 'fail', landed: 'maybe' }],
	['Lease (Seconds)', { operation: 'extend', options: { leaseSeconds: true } }],
])('%s that this version does not know is said by its name, and nothing changes', async (label, parameters) => {
	const kind = stage.newKind();
	const ran = await claimed(kind, [complete(parameters)]);
	expect(ran.error?.message).toContain(label);
	expect((await stage.work(kind)).state).toBe('running');
});

describe('record reference', () => {
	test('stores it at once; a later Complete Work of the same flow completes', async () => {
		const kind = stage.newKind();
		const between: unknown[] = [];
		const ran = await claimed(kind, [
			step('Invoice', http(() => ({ invoice: 'inv_1' }))),
			complete({ operation: 'recordReference', externalRef: '={{ $json.invoice }}' }, {}, 'Record'),
			step('Look', async (items) => {
				const { state, external_ref } = await stage.work(kind);
				between.push(state, external_ref);
				return items;
			}),
			complete(),
		]);
		expect(ran.error).toBeNull();
		expect(between).toEqual(['running', 'inv_1']);
		expect(workOf(ran.json('Record')[0])).toMatchObject({ status: 'recorded', externalRef: 'inv_1' });
		expect(await stage.work(kind)).toMatchObject({
			state: 'done',
			external_ref: 'inv_1',
			result: { invoice: 'inv_1' },
		});
	});

	test('and where a step dropped the field in between, too', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [
			complete({ operation: 'recordReference', externalRef: 'inv_1' }, {}, 'Record'),
			step('Mail', http(() => ({ mailed: true }))),
			complete(),
		]);
		expect(ran.error).toBeNull();
		expect(await stage.works(kind)).toEqual(['1 done {"mailed":true}']);
	});

	test('what a missing field left over is not recorded: work that failed would count as done', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [
			complete({ operation: 'recordReference', externalRef: '=INV-{{ $json.nope }}' }),
		]);
		expect(ran.error?.message).toMatch(/^External Reference: \{\{ \$json\.nope \}\} gives nothing/);
		expect(await stage.work(kind)).toMatchObject({ state: 'running', external_ref: null });
	});

	test('with nothing to record is an error: the effect would be unprotected', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [
			complete({ operation: 'recordReference', externalRef: '={{ $json.nope }}' }),
		]);
		expect(ran.error?.message).toMatch(/^External Reference is empty/);
		expect((await stage.work(kind)).state).toBe('running');
	});
});

describe('fail', () => {
	const failing = (parameters: IDataObject = {}) => complete({ operation: 'fail', ...parameters });

	test("takes the error from n8n's error output", async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step(
					'Call',
					(items) =>
						items.map((_, item) => ({
							json: { error: 'card declined' },
							pairedItem: { item },
						})),
					{ onError: 'continueErrorOutput' },
				),
				failing({ landed: 'no' }),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Call'],
				['Call:2', 'Complete Work'],
			],
		});
		expect(ran.error).toBeNull();
		expect(await stage.work(kind)).toMatchObject({
			state: 'failed',
			last_error: 'card declined',
			outcome_known: true,
		});
		const [json] = ran.json('Complete Work');
		expect(json).not.toHaveProperty('error');
		expect(json).toMatchObject({ order: 1, work: { status: 'failed', inputError: 'card declined' } });
	});

	test.each([
		['an error object on the item', {}, { error: { message: 'time-out', code: 'ECONNABORTED' } }, 'time-out'],
		['an expression', { error: '=status {{ $json.status }}' }, { status: 502 }, 'status 502'],
		['an expression that gives an error object', { error: '={{ $json.problem }}' }, { problem: { message: 'no stock' } }, 'no stock'],
		['an expression that gives another object', { error: '={{ $json.problem }}' }, { problem: { code: 7 } }, '{"code":7}'],
		['an expression that gives nothing', { error: '={{ $json.nope }}' }, { error: 'from the item' }, 'from the item'],
		['nothing at all', {}, {}, 'The step failed.'],
		['no reason where error is only a flag', {}, { error: false }, 'The step failed.'],
	])('the reason is %s', async (_, parameters, answer, reason) => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [step('Call', http(() => answer)), failing(parameters)]);
		expect(ran.error).toBeNull();
		expect((await stage.work(kind)).last_error).toBe(reason);
	});

	test.each([
		['that arrived at Claim Work', []],
		['that arrived before the lease was extended', [complete({ operation: 'extend' }, {}, 'Extend')]],
	])('an error %s is the reason where no other is given', async (_, between) => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [...between, failing()], {}, [{ order: 1, error: 'upstream' }]);
		expect(ran.error).toBeNull();
		expect((await stage.work(kind)).last_error).toBe('upstream');
	});

	test.each([
		['it may have landed, run again', 'unknown', 'run_again', 'failed', false],
		['it may have landed, hold', 'unknown', 'hold', 'held', false],
		['certainly not, hold', 'no', 'hold', 'failed', true],
	])('%s', async (_, landed, onLapse, state, known) => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [failing({ landed })], { onLapse });
		expect(workOf(ran.json('Complete Work')[0])).toMatchObject({ status: 'failed', state });
		expect(await stage.work(kind)).toMatchObject({ state, outcome_known: known });
	});

	test('for good is dead at once', async () => {
		const kind = stage.newKind();
		await claimed(kind, [failing({ landed: 'no', options: { permanent: true } })]);
		expect((await stage.work(kind)).state).toBe('dead');
	});

	test('by a former owner leaves by Not Owner', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [loseToAnother(kind), failing()]);
		expect(workOf(ran.json('Complete Work', 1)[0]).status).toBe('not_owner');
		expect(await stage.work(kind)).toMatchObject({ state: 'running', attempt: 2 });
	});
});

describe('extend lease', () => {
	test('for as long as it was claimed, or by the option; the claim goes on', async () => {
		const kind = stage.newKind();
		const ran = await claimed(
			kind,
			[
				step('Slow', async (items) => {
					await stage.ledger.elapse({ workId: (await stage.work(kind)).work_id });
					return items;
				}),
				complete({ operation: 'extend' }, {}, 'As Claimed'),
				complete({ operation: 'extend', options: { leaseSeconds: 7200 } }, {}, 'Longer'),
				complete({ result: 'none' }),
			],
			{ options: { leaseSeconds: 600 } },
		);
		expect(ran.error).toBeNull();
		const left = async (node: string) =>
			await stage.ledger.secondsUntil(String(workOf(ran.json(node)[0]).lockedUntil));
		const [asClaimed, longer] = [await left('As Claimed'), await left('Longer')];
		expect([asClaimed > 500, asClaimed <= 600, longer > 7100]).toEqual([true, true, true]);
		expect(await stage.works(kind)).toEqual(['1 done']);
	});

	test.each([0, -5, 'x', 31_622_401])('a lease of %p is an error', async (leaseSeconds) => {
		const ran = await claimed(stage.newKind(), [
			complete({ operation: 'extend', options: { leaseSeconds } }),
		]);
		expect(ran.error?.message).toMatch(/^Lease \(Seconds\) must be/);
	});
});

describe('release', () => {
	test('undoes the claim: nothing is left, and the next delivery is the first', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [complete({ operation: 'release' })]);
		expect(workOf(ran.json('Complete Work')[0]).status).toBe('released');
		expect(await stage.works(kind)).toEqual([]);
		const again = await claimed(kind, []);
		expect(workOf(again.json('Claim Work')[0]).attempt).toBe(1);
	});

	test('is refused once a reference is recorded, and leaves by Not Owner', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [
			complete({ operation: 'recordReference', externalRef: 'inv_1' }, {}, 'Record'),
			complete({ operation: 'release' }),
		]);
		expect(workOf(ran.json('Complete Work', 1)[0]).status).toBe('refused');
		expect((await stage.work(kind)).state).toBe('running');
	});
});

describe('good and bad items in one batch', () => {
	const mixed = [{ order: 1 }, { order: 2, lost: true }, { order: 3 }];
	const lose = step('Call', (items) =>
		items.map(({ json }, item) => ({
			json: json.lost === true ? { work: { status: 'refused', message: 'no key' } } : json,
			pairedItem: { item },
		})),
	);

	test('under Stop the good ones are settled before it throws', async () => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [lose, complete({ result: 'none' })], {}, mixed);
		expect(ran.status).toBe('error');
		expect(ran.error).toMatchObject({ name: 'NodeOperationError', node: 'Complete Work' });
		expect(ran.error?.description).toMatch(/other 2 items were settled/);
		expect(await stage.works(kind)).toEqual(['1 done', '2 running', '3 done']);
	});

	test.each([
		['continueRegularOutput', 1],
		['continueErrorOutput', 2],
	] as const)('under %s the bad one leaves by output %i', async (onError, output) => {
		const kind = stage.newKind();
		const ran = await claimed(kind, [lose, complete({ result: 'none' }, { onError })], {}, mixed);
		expect(ran.error).toBeNull();
		expect(ran.out('Complete Work').map(({ pairedItem }) => pairedItem)).toEqual([
			{ item: 0 },
			{ item: 2 },
		]);
		expect(ran.out('Complete Work', output).map(({ pairedItem }) => pairedItem)).toEqual([
			{ item: 1 },
		]);
		expect(await stage.works(kind)).toEqual(['1 done', '2 running', '3 done']);
	});

	test('Retry On Fail after a problem settles nothing twice', async () => {
		const kind = stage.newKind();
		const ran = await claimed(
			kind,
			[
				lose,
				complete({ result: 'none' }, { retryOnFail: true, maxTries: 3, waitBetweenTries: 1 }),
			],
			{},
			mixed,
		);
		expect(ran.status).toBe('error');
		const log = await stage.ledger.query(
			`select 1 from idempotency.decision_log d join idempotency.work_log w using (work_id)
			where w.kind = $1 and d.event = 'complete'`,
			[kind],
		);
		expect(log).toHaveLength(2);
	});
});

describe('fail by execution', () => {
	/** An error workflow. */
	const errorWorkflow = async (payload: IDataObject, parameters: IDataObject = {}) =>
		await stage.run({
			items: [payload],
			nodes: [complete({ operation: 'failByExecution', ...parameters })],
		});

	test('settles what the failed execution left open: its effect may have landed', async () => {
		const kind = stage.newKind();
		const executionId = nextExecutionId();
		await stage.run({
			executionId,
			items: orders(1, 2),
			nodes: [
				claim(byOrder(kind)),
				step('Crash', () => {
					throw new Error('boom');
				}),
			],
		});
		const ran = await errorWorkflow({
			execution: { id: executionId, error: { message: 'boom' }, lastNodeExecuted: 'Crash' },
			workflow: { id: 'workflow-1' },
		});
		expect(ran.error).toBeNull();
		expect(workOf(ran.json('Complete Work')[0])).toMatchObject({
			status: 'failed',
			executions: [executionId],
			works: [{ state: 'failed' }, { state: 'failed' }],
		});
		expect(await stage.rows(kind)).toMatchObject([
			{ state: 'failed', last_error: 'Crash: boom', outcome_known: false },
			{ state: 'failed', last_error: 'Crash: boom', outcome_known: false },
		]);
		const again = await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		expect(workOf(again.json('Claim Work')[0])).toMatchObject({
			attempt: 2,
			previousOutcome: 'unknown',
		});
	});

	test('of a retried execution settles what the first one claimed', async () => {
		const kind = stage.newKind();
		const retryOf = nextExecutionId();
		await stage.run({ executionId: retryOf, items: orders(1), nodes: [claim(byOrder(kind))] });
		await errorWorkflow({ execution: { id: nextExecutionId(), retryOf } });
		expect((await stage.work(kind)).state).toBe('failed');
	});

	test('settles the work of a sub-workflow too, which is not due before its lease ends', async () => {
		const kind = stage.newKind();
		const parentExecutionId = nextExecutionId();
		await stage.run({ parentExecutionId, items: orders(1), nodes: [claim(byOrder(kind))] });
		const ran = await errorWorkflow({ execution: { id: parentExecutionId } });
		expect(workOf(ran.json('Complete Work')[0]).works).toMatchObject([{ child: true }]);
		const { state, next_attempt_at } = await stage.work(kind);
		expect(state).toBe('failed');
		expect(await stage.ledger.secondsUntil(next_attempt_at)).toBeGreaterThan(3000);
	});

	test('by an execution id that is set on the node', async () => {
		const kind = stage.newKind();
		await stage.run({ executionId: '4242', items: orders(1), nodes: [claim(byOrder(kind))] });
		await errorWorkflow({ number: 4242 }, { executionId: '={{ $json.number }}' });
		expect((await stage.work(kind)).state).toBe('failed');
	});

	test("does not touch another n8n's execution of the same number", async () => {
		const kind = stage.newKind();
		const executionId = nextExecutionId();
		await stage.run({
			executionId,
			instanceId: 'instance-2',
			items: orders(1),
			nodes: [claim(byOrder(kind))],
		});
		const ran = await errorWorkflow({ execution: { id: executionId } });
		expect(workOf(ran.json('Complete Work')[0]).status).toBe('nothing_to_fail');
		expect((await stage.work(kind)).state).toBe('running');
	});

	test('with a failed trigger there was no execution: nothing to fail', async () => {
		const ran = await errorWorkflow({ trigger: { error: { message: 'x' }, mode: 'trigger' }, workflow: {} });
		expect(ran.error).toBeNull();
		expect(workOf(ran.json('Complete Work')[0]).status).toBe('nothing_to_fail');
	});

	test('without an execution id at all is an error', async () => {
		const ran = await errorWorkflow({ order: 1 });
		expect(ran.error?.message).toMatch(/^There is no execution id on this item/);
	});
});

test.each(['', 'error', '__proto__'])('the field name %p is refused', async (field) => {
	const kind = stage.newKind();
	const ran = await claimed(kind, [complete({ options: { field } })]);
	expect(ran.error?.message).toMatch(/Field Name/);
	expect((await stage.work(kind)).state).toBe('running');
});

describe('an option that is neither true nor false, from an expression', () => {
	test('keeps no failure from being recorded: it is tried again, with a warning that names it', async () => {
		const kind = stage.newKind();
		const options = { permanent: '={{ "x" }}' };
		const ran = await claimed(kind, [complete({ operation: 'fail', landed: 'no', options })]);
		expect(ran.error).toBeNull();
		expect(workOf(ran.json('Complete Work')[0])).toMatchObject({
			state: 'failed',
			warnings: [expect.stringMatching(/"Do Not Retry" is "x", not true or false/)],
		});
	});

	test.each([
		['={{ "" }}', 'failed'],
		['={{ "false" }}', 'failed'],
		['={{ "True " }}', 'dead'],
	])('%s as Do Not Retry: the work is %s', async (permanent, state) => {
		const kind = stage.newKind();
		await claimed(kind, [complete({ operation: 'fail', landed: 'no', options: { permanent } })]);
		expect((await stage.work(kind)).state).toBe(state);
	});

	test('is refused by Claim Work by its name; the text "false" is no', async () => {
		const kind = stage.newKind();
		const wrong = await claimed(kind, [], { options: { storePayload: '={{ $json.total }}' } });
		expect(wrong.error?.message).toMatch(/ is 10, not true or false. Check its expression/);
		expect(await stage.works(kind)).toEqual([]);

		await claimed(kind, [], { options: { storePayload: '={{ "false" }}' } });
		expect((await stage.work(kind)).payload).toBeNull();

		const volatile = { identity: 'expression', key: '={{ $execution.id }}' };
		const options = { allowVolatileKey: '={{ "false" }}' };
		const kept = await claimed(stage.newKind(), [], { ...volatile, options });
		expect(kept.error?.message).toMatch(/\$execution/);
	});
});
