import type { IDataObject } from 'n8n-workflow';

import { claim, claimTool, complete, http, nextExecutionId, step, type Ran } from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

const OUTPUTS = ['Claimed', 'Duplicate', 'Busy', 'Needs Attention', 'Error'];

interface Work extends IDataObject {
	status: string;
	workId: string;
	token?: string;
}

const workOf = (json: IDataObject): Work => json.work as Work;

/** What left Claim Work, as "output: status of the items". */
function left(ran: Ran, node = 'Claim Work'): Record<string, string[]> {
	const statusOf = ({ work, details }: IDataObject) =>
		((work ?? (details as IDataObject).work) as Work).status;
	return Object.fromEntries(
		OUTPUTS.map((name, output): [string, string[]] => [
			name,
			ran.json(node, output).map(statusOf),
		]).filter(([, statuses]) => statuses.length > 0),
	);
}

/** Claims and completes in one run, so that later deliveries are duplicates. */
async function done(kind: string, items: IDataObject[], more: IDataObject = {}): Promise<Ran> {
	return await stage.run({
		items,
		nodes: [claim(byOrder(kind, more)), complete({ externalRef: '={{ "ref-" + $json.order }}' })],
	});
}

describe('the same work arrives twice', () => {
	test('case 1: in two executions at once, one is claimed and the other is told who runs it until when', async () => {
		const kind = stage.newKind();
		const deliver = async (executionId: string) =>
			await stage.run({
				executionId,
				items: [{ event_id: 'evt-1', row: 7 }],
				nodes: [claim({ kind, keyFields: 'event_id' })],
			});
		const ran = await Promise.all([deliver('501'), deliver('502')]);
		expect(ran.map((each) => each.error)).toEqual([null, null]);
		const [winner, loser] = ran[0].out('Claim Work').length === 1 ? ran : [ran[1], ran[0]];
		expect(left(winner)).toEqual({ Claimed: ['claimed'] });
		expect(left(loser)).toEqual({ Busy: ['in_progress'] });
		const claimed = workOf(winner.json('Claim Work')[0]);
		const busy = workOf(loser.json('Claim Work', 2)[0]);
		expect(busy).toMatchObject({ lockedUntil: claimed.lockedUntil, workId: claimed.workId });
		expect(busy.token).toBeUndefined();
		expect(await stage.work(kind)).toMatchObject({
			attempt: 1,
			execution: (busy.owner as IDataObject).execution,
		});
	});

	test('case 10: an execution that starts over with its own id gets no free pass', async () => {
		const kind = stage.newKind();
		const flow = {
			executionId: '500',
			items: [{ order: 'mail:1' }],
			nodes: [claim(byOrder(kind)), complete({ result: 'none' })],
		};
		await stage.run(flow);
		const again = await stage.run(flow);
		expect(left(again)).toEqual({ Duplicate: ['duplicate'] });
	});

	test('case 13: a poll that brings old mails with a new one claims the new one only', async () => {
		const kind = stage.newKind();
		const mails = (...ids: string[]) => ids.map((order) => ({ order }));
		await done(kind, mails('m1', 'm2'));
		const ran = await stage.run({
			items: mails('m1', 'm2', 'm3'),
			nodes: [claim(byOrder(kind))],
		});
		expect(ran.out('Claim Work').map(({ json, pairedItem }) => [json.order, pairedItem])).toEqual([
			['m3', { item: 2 }],
		]);
		expect(
			ran.out('Claim Work', 1).map(({ json, pairedItem }) => [json.order, pairedItem]),
		).toEqual([
			['m1', { item: 0 }],
			['m2', { item: 1 }],
		]);
	});

	test('case 16: one pressed button in three executions at once is one claim, by its callback_query id', async () => {
		const kind = stage.newKind();
		const press = { callback_query: { id: 'cb-77', data: 'approve' } };
		const runs = await Promise.all(
			[900, 901, 902].map(
				async (update_id) =>
					await stage.run({
						items: [{ update_id, ...press }],
						nodes: [claim({ kind, keyFields: 'callback_query.id' })],
					}),
			),
		);
		expect(runs.flatMap((ran) => Object.keys(left(ran))).sort()).toEqual(['Busy', 'Busy', 'Claimed']);
	});

	test('case 19: a redelivery a minute later, with another updated_at, is a duplicate', async () => {
		const kind = stage.newKind();
		await done(kind, [{ order: 1001, updated_at: '10:00:00' }]);
		const ran = await stage.run({
			items: [{ order: 1001, updated_at: '10:01:00' }],
			nodes: [claim(byOrder(kind))],
		});
		expect(left(ran)).toEqual({ Duplicate: ['duplicate'] });
	});

	test('case 21: three events about one invoice are one work by invoice, three by event', async () => {
		const events = ['e1', 'e2', 'e3'].map((event) => ({ event, invoice: 'in_1' }));
		const by = async (keyFields: string) =>
			left(
				await stage.run({ items: events, nodes: [claim({ kind: stage.newKind(), keyFields })] }),
			);
		expect(await by('invoice')).toEqual({
			Claimed: ['claimed'],
			Busy: ['in_progress', 'in_progress'],
		});
		expect(await by('event')).toEqual({ Claimed: ['claimed', 'claimed', 'claimed'] });
	});

	test('case 24: 12,000 new ids over three runs are all claimed, and all known afterwards', async () => {
		const kind = stage.newKind();
		for (let batch = 0; batch < 3; batch++) {
			const ran = await stage.run({
				items: Array.from({ length: 4000 }, (_, i) => ({ order: batch * 4000 + i })),
				nodes: [claim(byOrder(kind)), complete({ result: 'none' })],
			});
			expect(ran.error).toBeNull();
			expect(ran.out('Complete Work')).toHaveLength(4000);
		}
		const again = await stage.run({
			items: [{ order: 0 }, { order: 5999 }, { order: 11_999 }, { order: 12_000 }],
			nodes: [claim(byOrder(kind))],
		});
		expect(left(again)).toEqual({
			Claimed: ['claimed'],
			Duplicate: ['duplicate', 'duplicate', 'duplicate'],
		});
	});

	test('case 27: within a batch "7", 7 and "7 " are one work, "07" is another', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: '7' }, { order: 7 }, { order: '7 ' }, { order: '07' }],
			nodes: [claim(byOrder(kind))],
		});
		expect(ran.out('Claim Work').map(({ pairedItem }) => pairedItem)).toEqual([
			{ item: 0 },
			{ item: 3 },
		]);
		expect(ran.out('Claim Work', 2).map(({ pairedItem }) => pairedItem)).toEqual([
			{ item: 1 },
			{ item: 2 },
		]);
		expect(await stage.works(kind)).toEqual(['07 running', '7 running']);
	});

	test('case 27: in a composite key types are kept', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [
				{ order: '7', stage: 1 },
				{ order: 7, stage: 1 },
				{ order: 7, stage: 1 },
			],
			nodes: [claim({ kind, keyFields: 'order, stage' })],
		});
		expect(left(ran)).toEqual({ Claimed: ['claimed', 'claimed'], Busy: ['in_progress'] });
	});

	test('if the first of a repeated key is refused, the next valid one is first', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1, kind: '' }, { order: 1, kind }, { order: 1, kind }],
			nodes: [claim(byOrder('={{ $json.kind }}'), { onError: 'continueRegularOutput' })],
		});
		expect(ran.out('Claim Work').map(({ pairedItem }) => pairedItem)).toEqual([{ item: 1 }]);
		expect(ran.out('Claim Work', 2).map(({ pairedItem }) => pairedItem)).toEqual([{ item: 2 }]);
		expect(ran.out('Claim Work', 3).map(({ pairedItem }) => pairedItem)).toEqual([{ item: 0 }]);
	});

	test('repeats of work that is done are all duplicates of it', async () => {
		const kind = stage.newKind();
		await done(kind, orders(1));
		const ran = await stage.run({ items: orders(1, 1, 1), nodes: [claim(byOrder(kind))] });
		expect(left(ran)).toEqual({ Duplicate: ['duplicate', 'duplicate', 'duplicate'] });
	});

	test('case 119: one id three times in one execution is claimed once', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind), {}, 'One'),
				complete({ result: 'none' }),
				step('Again', http(() => ({ order: 1 }))),
				claim(byOrder(kind), {}, 'Two'),
				step('And Again', http(() => ({ order: 1 }))),
				claim(byOrder(kind), {}, 'Three'),
			],
			links: [
				['Start', 'One'],
				['One', 'Complete Work'],
				['Complete Work', 'Again'],
				['Again', 'Two'],
				['Two:1', 'And Again'],
				['And Again', 'Three'],
			],
		});
		expect(ran.error).toBeNull();
		expect([left(ran, 'One'), left(ran, 'Two'), left(ran, 'Three')]).toEqual([
			{ Claimed: ['claimed'] },
			{ Duplicate: ['duplicate'] },
			{ Duplicate: ['duplicate'] },
		]);
	});
});

describe('what a duplicate gets', () => {
	test('case 51: the stored result, the reference, when and by whom', async () => {
		const kind = stage.newKind();
		await stage.run({
			executionId: '611',
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step('Invoice', http(() => ({ invoice: 'inv_1', lines: [{ sku: 'S1' }] }))),
				complete({ externalRef: '={{ $json.invoice }}' }),
			],
		});
		const ran = await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		const [json] = ran.json('Claim Work', 1);
		expect(json).toMatchObject({ order: 1, customer: 'c1', total: 10 });
		expect(json.work).toMatchObject({
			status: 'duplicate',
			result: { invoice: 'inv_1', lines: [{ sku: 'S1' }] },
			externalRef: 'inv_1',
			owner: { execution: '611', workflow: 'workflow-1' },
			completedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) as string,
		});
	});

	test('a result of null is said, not left out', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete({ result: 'none' })],
		});
		const ran = await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		expect(workOf(ran.json('Claim Work', 1)[0])).toHaveProperty('result', null);
	});

	test('that the original came from another workflow', async () => {
		const kind = stage.newKind();
		await done(kind, orders(1));
		const ran = await stage.run({
			workflowId: 'workflow-2',
			items: orders(1),
			nodes: [claim(byOrder(kind))],
		});
		const work = workOf(ran.json('Claim Work', 1)[0]);
		expect(work.otherWorkflow).toBe(true);
		expect(work.message).toMatch(/in workflow "Test flow"/);
	});

	test('in the editor, how to test again', async () => {
		const kind = stage.newKind();
		await done(kind, orders(1));
		const ran = await stage.run({
			mode: 'manual',
			items: orders(1),
			nodes: [claim(byOrder(kind))],
		});
		expect(workOf(ran.json('Claim Work', 1)[0]).message).toMatch(/Forget test run/);
	});

	test('nothing, where that was chosen: the new items pass', async () => {
		const kind = stage.newKind();
		await done(kind, orders(1));
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [claim(byOrder(kind, { response: 'nothing' }))],
		});
		expect(left(ran)).toEqual({ Claimed: ['claimed'] });
		expect(ran.json('Claim Work')[0].order).toBe(2);
	});

	test('an error, where that was chosen: claims of the batch are undone, then the node throws', async () => {
		const kind = stage.newKind();
		await done(kind, orders(1));
		const ran = await stage.run({
			items: orders(2, 1, 3),
			nodes: [claim(byOrder(kind, { response: 'error' })), step('Effect', http())],
		});
		expect(ran.status).toBe('error');
		expect(ran.error).toMatchObject({ name: 'NodeOperationError', node: 'Claim Work' });
		expect(ran.error?.message).toMatch(/^1 of these items is a duplicate/);
		expect(ran.error?.description).toMatch(/^1: Already done at/);
		expect(ran.runs('Effect')).toBe(0);
		expect((await stage.rows(kind)).map(({ key, state }) => [key, state])).toEqual([
			['1', 'done'],
		]);
	});

	test.each([
		['continueRegularOutput', 'Needs Attention'],
		['continueErrorOutput', 'Error'],
	] as const)('an error under %s: it leaves by %s, the others are claimed', async (onError, output) => {
		const kind = stage.newKind();
		await done(kind, orders(1));
		const ran = await stage.run({
			items: orders(2, 1, 3),
			nodes: [claim(byOrder(kind, { response: 'error' }), { onError })],
		});
		expect(ran.error).toBeNull();
		expect(left(ran)).toEqual({ Claimed: ['claimed', 'claimed'], [output]: ['duplicate'] });
		expect(ran.out('Claim Work', OUTPUTS.indexOf(output))[0]).toMatchObject({
			json: { order: 1, customer: 'c1' },
			pairedItem: { item: 1 },
		});
	});

	test('an undone claim of failed work is failed work again, its attempt not spent', async () => {
		const kind = stage.newKind();
		await done(kind, orders(1));
		await stage.run({
			items: orders(2),
			nodes: [
				claim(byOrder(kind, { options: { backoffBaseSeconds: 0 } })),
				complete({ operation: 'fail', landed: 'no', error: 'first try' }),
			],
		});
		await stage.run({
			items: orders(1, 2),
			nodes: [claim(byOrder(kind, { response: 'error' }))],
		});
		const [, failed] = await stage.rows(kind);
		expect(failed).toMatchObject({ state: 'failed', attempt: 1, last_error: 'first try' });
	});
});

describe('the window', () => {
	test.each([
		['seconds', 30, 29, 31],
		['minutes', 2, 119, 121],
		['hours', 1, 3599, 3601],
		['days', 7, 604_799, 604_801],
	])('of a duration in %s ends that long after the completion', async (unit, amount, inside, outside) => {
		const kind = stage.newKind();
		const window = { window: 'duration', windowAmount: amount, windowUnit: unit };
		await done(kind, orders(1), window);
		const row = await stage.work(kind);
		const workId = row.work_id;
		await stage.ledger.age({ workId }, inside);
		const deliver = async () =>
			await stage.run({ items: orders(1), nodes: [claim(byOrder(kind, window))] });
		expect(left(await deliver())).toEqual({ Duplicate: ['duplicate'] });
		await stage.ledger.age({ workId }, outside - inside);
		const ran = await deliver();
		expect(left(ran)).toEqual({ Claimed: ['claimed'] });
		expect(workOf(ran.json('Claim Work')[0])).toMatchObject({ generation: 2, attempt: 1 });
	});

	test.each([
		['Remember', { window: 'sometimes' }],
		['Unit', { window: 'duration', windowAmount: 1, windowUnit: 'weeks' }],
		['If a Run Dies Halfway', { onLapse: 'explode' }],
	])('%s that this version does not know is said by its name', async (label, parameters) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind, parameters))],
		});
		expect(ran.error?.message).toMatch(`${label} is set to "`);
		expect(await stage.works(kind)).toEqual([]);
	});

	test.each([0, -1, 'soon', '', true])('of a duration that is none (%p) refuses the item', async (amount) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind, { window: 'duration', windowAmount: amount }))],
		});
		expect(ran.error?.message).toMatch(/^Time is/);
		expect(await stage.works(kind)).toEqual([]);
	});

	test('only while it runs: no two at once, but each finished run may be followed by another', async () => {
		const kind = stage.newKind();
		const window = { window: 'while_running' };
		const deliver = async () =>
			await stage.run({ items: orders(1), nodes: [claim(byOrder(kind, window))] });
		await deliver();
		expect(left(await deliver())).toEqual({ Busy: ['in_progress'] });
		const { work_id, token } = await stage.work(kind);
		await stage.ledger.works.complete([{ workId: work_id, token }], {});
		const ran = await deliver();
		expect(left(ran)).toEqual({ Claimed: ['claimed'] });
		expect(workOf(ran.json('Claim Work')[0])).toMatchObject({ generation: 2, attempt: 1 });
	});

	test('only while it runs: failed work may be claimed at once', async () => {
		const kind = stage.newKind();
		const window = { window: 'while_running' };
		await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind, window)),
				complete({ operation: 'fail', landed: 'no' }),
			],
		});
		const ran = await stage.run({ items: orders(1), nodes: [claim(byOrder(kind, window))] });
		expect(left(ran)).toEqual({ Claimed: ['claimed'] });
	});
});

describe('a run that died halfway', () => {
	const dies = async (kind: string, onLapse: string) => {
		await stage.run({
			executionId: '801',
			items: orders(1),
			nodes: [claim(byOrder(kind, { onLapse }))],
		});
		await stage.ledger.elapse({ workId: (await stage.work(kind)).work_id });
		return await stage.run({ items: orders(1), nodes: [claim(byOrder(kind, { onLapse }))] });
	};

	test('case 28: is run again after its lease: attempt 2, the outcome before unknown', async () => {
		const ran = await dies(stage.newKind(), 'run_again');
		expect(left(ran)).toEqual({ Claimed: ['claimed'] });
		const work = workOf(ran.json('Claim Work')[0]);
		expect(work).toMatchObject({
			attempt: 2,
			previousOutcome: 'unknown',
			previousOwner: { execution: '801' },
		});
		expect(work.message).toMatch(/its effect may have landed/);
	});

	test('is held for review, where that was chosen', async () => {
		const kind = stage.newKind();
		const ran = await dies(kind, 'hold');
		expect(left(ran)).toEqual({ 'Needs Attention': ['held'] });
		const again = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind, { onLapse: 'run_again' }))],
		});
		expect(left(again)).toEqual({ 'Needs Attention': ['held'] });
	});

	test('with its attempts used up is dead', async () => {
		const kind = stage.newKind();
		const parameters = byOrder(kind, { options: { maxAttempts: 1 } });
		await stage.run({ items: orders(1), nodes: [claim(parameters)] });
		await stage.ledger.elapse({ workId: (await stage.work(kind)).work_id });
		const ran = await stage.run({ items: orders(1), nodes: [claim(parameters)] });
		expect(left(ran)).toEqual({ 'Needs Attention': ['dead'] });
	});

	test('after its reference was recorded is done: a late duplicate with that reference', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				complete({ operation: 'recordReference', externalRef: 'inv_1' }),
			],
		});
		await stage.ledger.elapse({ workId: (await stage.work(kind)).work_id });
		const ran = await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		expect(left(ran)).toEqual({ Duplicate: ['duplicate'] });
		expect(workOf(ran.json('Claim Work', 1)[0])).toMatchObject({
			externalRef: 'inv_1',
			late: true,
		});
	});
});

describe('failed work', () => {
	test('case 117: is not due at once, claimed after its back-off, dead after the last attempt; never a duplicate', async () => {
		const kind = stage.newKind();
		const parameters = byOrder(kind, { options: { maxAttempts: 2 } });
		const decline = complete({ operation: 'fail', landed: 'no', error: 'card declined' });
		const deliver = async () =>
			await stage.run({ items: orders(1), nodes: [claim(parameters), decline] });

		await deliver();
		const early = await deliver();
		expect(left(early)).toEqual({ Busy: ['not_due'] });
		const { nextAttemptAt } = workOf(early.json('Claim Work', 2)[0]);
		expect(await stage.ledger.secondsUntil(nextAttemptAt as string)).toBeLessThan(30);

		await stage.ledger.becomeDue({ workId: (await stage.work(kind)).work_id });
		const second = await deliver();
		expect(workOf(second.json('Claim Work')[0])).toMatchObject({
			attempt: 2,
			previousOutcome: 'failed',
			lastError: 'card declined',
		});
		expect(left(await deliver())).toEqual({ 'Needs Attention': ['dead'] });
	});
});

describe('the key', () => {
	test.each([
		['missing', {}],
		['null', { order: null }],
		['empty', { order: '' }],
		['white space', { order: '  ' }],
		['"undefined"', { order: 'undefined' }],
		['"null"', { order: 'null' }],
		['"[object Object]"', { order: '[object Object]' }],
		['"NaN"', { order: 'NaN' }],
		['an object', { order: { id: 1 } }],
		['case 94, a rounded number', { order: 7615917337495251000 }],
	])('case 101: %s: the node throws before anything is claimed', async (_, bad) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1 }, bad],
			nodes: [claim(byOrder(kind)), step('Effect', http())],
		});
		expect(ran.status).toBe('error');
		expect(ran.error).toMatchObject({ name: 'NodeOperationError', node: 'Claim Work' });
		expect(ran.error?.message).toMatch(/order/);
		expect(ran.runs('Effect')).toBe(0);
		expect(await stage.works(kind)).toEqual([]);
	});

	test.each([
		['continueRegularOutput', 'Needs Attention'],
		['continueErrorOutput', 'Error'],
	] as const)('case 101: under %s refused items leave by %s, the others are claimed', async (onError, output) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1 }, { order: '', message: 'hello', details: { a: 1 } }, { order: 3 }],
			nodes: [claim(byOrder(kind), { onError })],
		});
		expect(ran.error).toBeNull();
		expect(left(ran)).toEqual({ Claimed: ['claimed', 'claimed'], [output]: ['refused'] });
		const [item] = ran.out('Claim Work', OUTPUTS.indexOf(output));
		// the item's own fields are kept, also where n8n merges its error into them
		expect(item).toMatchObject({
			json: { order: '', message: 'hello', details: { a: 1 } },
			pairedItem: { item: 1 },
		});
	});

	test('every refused item is listed', async () => {
		const ran = await stage.run({
			items: [{ order: '' }, { order: 2 }, {}],
			nodes: [claim(byOrder(stage.newKind()))],
		});
		expect(ran.error?.message).toBe('2 items cannot be claimed; nothing was');
		expect(ran.error?.description).toMatch(/Item 0: .*empty.* Item 2: .*missing/);
	});

	test('case 94: an id that came as text is claimed, digits kept', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: [{ order: '7615917337495251231' }, { order: '7615917337495251232' }],
			nodes: [claim(byOrder(kind))],
		});
		expect(await stage.works(kind)).toEqual([
			'7615917337495251231 running',
			'7615917337495251232 running',
		]);
	});

	test('case 40: values pass byte-equal, commas, quotes and $1 included', async () => {
		const kind = stage.newKind();
		const key = `Smith, John's "$1"`;
		await stage.run({
			items: [{ order: key }],
			nodes: [
				claim(byOrder(kind)),
				complete({
					result: 'expression',
					resultValue: '={{ { note: "a, b, $1" } }}',
					externalRef: `x,'y`,
				}),
			],
		});
		const ran = await stage.run({ items: [{ order: key }], nodes: [claim(byOrder(kind))] });
		expect(workOf(ran.json('Claim Work', 1)[0])).toMatchObject({
			key,
			result: { note: 'a, b, $1' },
			externalRef: `x,'y`,
		});
	});

	test.each([
		['={{ $execution.id }}', '$execution'],
		['={{ $execution["id"] }}', '$execution'],
		["={{ 'x-' + $execution . id }}", '$execution'],
		['={{ $json.order || $executionId }}', '$executionId'],
		['={{ $now.toISO() }}', '$now'],
		['={{ $today }}', '$today'],
		['={{ Date.now() }}', 'Date.now'],
		['={{ Math.random() }}', 'Math.random'],
		['={{ $json.order + "-" + $itemIndex }}', '$itemIndex'],
		['={{ $runIndex }}', '$runIndex'],
	])('case 22: a key that changes with each delivery is refused: %s', async (key, source) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim({ kind, identity: 'expression', key })],
		});
		expect(ran.status).toBe('error');
		expect(ran.error?.message).toContain(source);
		expect(ran.error?.message).toContain('Allow a Key That Changes');
		expect(await stage.works(kind)).toEqual([]);
	});

	test('case 22: an option allows it, with a hint', async () => {
		const kind = stage.newKind();
		const executionId = nextExecutionId();
		const ran = await stage.run({
			executionId,
			items: orders(1),
			nodes: [
				claim({
					kind,
					identity: 'expression',
					key: '={{ $execution.id }}',
					options: { allowVolatileKey: true },
				}),
			],
		});
		expect(left(ran)).toEqual({ Claimed: ['claimed'] });
		expect((await stage.work(kind)).key).toBe(executionId);
		expect(ran.hints('Claim Work').join()).toMatch(/not retry-safe/);
	});

	test('case 22: a key that only equals the execution id is claimed, with a hint', async () => {
		const ran = await stage.run({
			executionId: '4711',
			items: orders(4711),
			nodes: [claim(byOrder(stage.newKind()))],
		});
		expect(left(ran)).toEqual({ Claimed: ['claimed'] });
		expect(ran.hints('Claim Work').join()).toMatch(/equals the id of this execution/);
		expect((workOf(ran.json('Claim Work')[0]).hints as string[]).length).toBe(1);
	});

	test('case 5: a fixed slot of the day is one work; the exact start time gets a hint', async () => {
		const kind = stage.newKind();
		const fire = async (order: string) =>
			await stage.run({ items: [{ order }], nodes: [claim(byOrder(kind))] });
		expect(left(await fire('report 2026-01-05 06:00'))).toEqual({ Claimed: ['claimed'] });
		const second = await fire('report 2026-01-05 06:00');
		expect(left(second)).toEqual({ Busy: ['in_progress'] });
		expect(second.hints('Claim Work')).toEqual([]);
		const exact = await fire(new Date().toISOString());
		expect(exact.hints('Claim Work').join()).toMatch(/not retry-safe/);
	});

	test('an expression gives each item its key', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1, 2),
			nodes: [
				claim({ kind, identity: 'expression', key: '={{ $json.customer + "/" + $json.order }}' }),
			],
		});
		expect(await stage.works(kind)).toEqual(['c1/1 running', 'c2/2 running']);
	});

	test('an expression that lost its value in one item refuses that item only', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1 }, {}, { order: 3 }],
			nodes: [
				claim(
					{ kind, identity: 'expression', key: '={{ "inv-" + $json.order }}' },
					{ onError: 'continueRegularOutput' },
				),
			],
		});
		expect(left(ran)).toEqual({ Claimed: ['claimed', 'claimed'], 'Needs Attention': ['refused'] });
	});

	test.each([
		['=inv-{{ $json.order }}', [{ order: 1 }, {}, { order: 3 }]],
		['=inv-{{ $json.order }}', [{ order: 1 }, { order: '' }, { order: 3 }]],
		['={{ $json.shop }}/{{ $json.order }}', [
			{ shop: 'a', order: 1 },
			{ shop: 'a', order: null },
			{ shop: 'b', order: 1 },
		]],
	])('case 101: a part of %s that gives nothing refuses the item: n8n leaves no trace of it in the text', async (key, items) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items,
			nodes: [claim({ kind, identity: 'expression', key }, { onError: 'continueRegularOutput' })],
		});
		expect(ran.out('Claim Work').map(({ pairedItem }) => pairedItem)).toEqual([
			{ item: 0 },
			{ item: 2 },
		]);
		expect(workOf(ran.json('Claim Work', 3)[0])).toMatchObject({
			status: 'refused',
			message: expect.stringContaining('{{ $json.order }}') as string,
		});
	});

	test('an expression that nobody resolved is no key: it is the same text for every item', async () => {
		for (const [item, parameters] of [
			[{ order: 1 }, { identity: 'expression', key: '{{ $json.order }}' }],
			[{ order: 1 }, { identity: 'expression', key: 'inv-{{ $json.order }}' }],
			[{ order: 1 }, { identity: 'expression', key: '$json.order' }],
			[{ order: '{{ $json.id }}' }, { keyFields: 'order' }],
			[{ order: '$("Start").item.json.order' }, { keyFields: 'order' }],
			[{ order: 'inv-{{ $json.id }}' }, { keyFields: 'order' }],
			[{ order: '{{order_id}}', shop: 'a' }, { keyFields: 'order, shop' }],
			[{ order: 1 }, { keyFields: 'order', version: 'v{{ $json.v }}' }],
			[{ url: 'https://example.com/{{ $json.id }}' }, { identity: 'url', url: '={{ $json.url }}' }],
		] as Array<[IDataObject, IDataObject]>) {
			const ran = await stage.run({
				items: [item, item],
				nodes: [claim({ kind: stage.newKind(), ...parameters }, { onError: 'continueRegularOutput' })],
			});
			expect(ran.json('Claim Work', 3).map((json) => workOf(json))).toMatchObject([
				{ status: 'refused', message: expect.stringContaining('as it was typed') as string },
				{ status: 'refused', message: expect.stringContaining('Fixed to Expression') as string },
			]);
		}
	});

	test('an expression that throws for one item refuses that item only', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1 }, { order: 2, broken: true }, { order: 3 }],
			nodes: [
				claim(
					{
						kind,
						identity: 'expression',
						key: '={{ $json.broken ? $("Effect").item.json.x : $json.order }}',
					},
					{ onError: 'continueErrorOutput' },
				),
				step('Effect', http()),
			],
		});
		expect(left(ran)).toEqual({ Claimed: ['claimed', 'claimed'], Error: ['refused'] });
		expect(ran.json('Claim Work', 4)[0].error).toMatch(
			/^The expression of the parameter "key" fails/,
		);
		expect(await stage.works(kind)).toEqual(['1 running', '3 running']);
	});

	test('content: equal items are equal work, whatever changes with each delivery', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [
				{ a: 1, b: { c: 2, d: 3 }, received_at: '10:00' },
				{ b: { d: 3, c: 2 }, a: 1, received_at: '10:01' },
				{ a: 1, b: { c: 2, d: 4 }, received_at: '10:00' },
			],
			nodes: [claim({ kind, identity: 'content' })],
		});
		expect(ran.out('Claim Work').map(({ pairedItem }) => pairedItem)).toEqual([
			{ item: 0 },
			{ item: 2 },
		]);
		expect(left(ran).Busy).toEqual(['in_progress']);
	});

	test.each([
		['busy', { order: 1 }, 2],
		['refused', { order: 1 }, 3],
	])('content: an item that was %s and comes back is the same work', async (_, item, output) => {
		const kind = stage.newKind();
		const contentOf = async (items: IDataObject[], name: string) =>
			await stage.run({
				items,
				nodes: [
					claim({ kind: name, identity: 'content', contentFields: '', options: { volatileFields: 'kind' } }, {
						onError: 'continueRegularOutput',
					}),
				],
			});
		const first = await contentOf([{ order: 1 }], kind);
		const { workId } = workOf(first.json('Claim Work')[0]);
		const waiting = await contentOf([item], output === 2 ? kind : 'a:b');
		const back = await contentOf(waiting.json('Claim Work', output), kind);
		expect(workOf(back.json('Claim Work', 2)[0]).workId).toBe(workId);
	});
});

describe('several policies in one batch', () => {
	test('each item has its own kind, version, lease and window', async () => {
		const [invoice, mail] = [stage.newKind(), stage.newKind()];
		const items = [
			{ order: 1, kind: invoice, version: 'v1', lease: 60, days: 1 },
			{ order: 1, kind: mail, version: 'v1', lease: 600, days: 2 },
			{ order: 2, kind: invoice, version: 'v1', lease: 60, days: 1 },
			{ order: 1, kind: invoice, version: 'v2', lease: 60, days: 1 },
			{ order: 1, kind: invoice, version: 'v1', lease: 60, days: 1 },
		];
		const ran = await stage.run({
			items,
			nodes: [
				claim({
					kind: '={{ $json.kind }}',
					version: '={{ $json.version }}',
					keyFields: 'order',
					window: 'duration',
					windowAmount: '={{ $json.days }}',
					options: { leaseSeconds: '={{ $json.lease }}' },
				}),
			],
		});
		expect(ran.error).toBeNull();
		// order of the input, whatever the grouping
		expect(ran.out('Claim Work').map(({ pairedItem }) => pairedItem)).toEqual(
			[0, 1, 2, 3].map((item) => ({ item })),
		);
		expect(ran.out('Claim Work', 2).map(({ pairedItem }) => pairedItem)).toEqual([{ item: 4 }]);
		expect((await stage.rows(invoice)).map(({ lease_s }) => lease_s)).toEqual([60, 60, 60]);
		expect((await stage.rows(mail)).map(({ lease_s }) => lease_s)).toEqual([600]);
	});

	test('a key that comes twice with different policies is claimed by the first of the input', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [
				{ order: 9, lease: 60 },
				{ order: 1, lease: 600 },
				{ order: 1, lease: 60 },
			],
			nodes: [claim(byOrder(kind, { options: { leaseSeconds: '={{ $json.lease }}' } }))],
		});
		expect(ran.out('Claim Work').map(({ pairedItem }) => pairedItem)).toEqual([
			{ item: 0 },
			{ item: 1 },
		]);
	});

	test('a run id that an expression gives as a number is kept, and is no part of the identity', async () => {
		const kind = stage.newKind();
		const deliver = async (runId: number) =>
			await stage.run({
				items: [{ order: 1, runId }],
				nodes: [claim(byOrder(kind, { options: { runId: '={{ $json.runId }}' } }))],
			});
		expect(left(await deliver(7))).toEqual({ Claimed: ['claimed'] });
		const second = await deliver(8);
		expect(left(second)).toEqual({ Busy: ['in_progress'] });
		expect(workOf(second.json('Claim Work', 2)[0]).owner).toMatchObject({ runId: '7' });
	});
});

describe('key fields', () => {
	test.each(['={{ $json.order }}', '{{ $json.order }}', '$json.order', '"order"', 'order; total'])(
		'hold names: what is a value or code (%s) is refused with the cure',
		async (keyFields) => {
			const kind = stage.newKind();
			const ran = await stage.run({ items: orders(1), nodes: [claim({ kind, keyFields })] });
			expect(ran.error?.message).toMatch(/^Key Fields takes names of fields.*"Key Expression"/);
			expect(await stage.works(kind)).toEqual([]);
		},
	);

	test('a name with such signs in it is a name where the item has that field', async () => {
		const kind = stage.newKind();
		await stage.run({ items: [{ '$id; x': 7 }], nodes: [claim({ kind, keyFields: '$id; x' })] });
		expect(await stage.works(kind)).toEqual(['7 running']);
	});

	test('an expression that cannot be read is said with its parameter', async () => {
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim({ kind: stage.newKind(), identity: 'expression', key: '={{ $json. }}' })],
		});
		expect(ran.error?.message).toMatch(/^The expression of the parameter "key" fails/);
	});
});

describe('options', () => {
	test.each([
		['leaseSeconds', 0, 'Lease (Seconds)'],
		['leaseSeconds', 'long', 'Lease (Seconds)'],
		['leaseSeconds', 31_622_401, 'Lease (Seconds)'],
		['maxAttempts', 0, 'Attempts'],
		['maxAttempts', 1.5, 'Attempts'],
		['backoffBaseSeconds', -1, 'Retry After, at First'],
		['backoffCapSeconds', 'x', 'Retry After, at Most'],
		['field', '', 'Field Name'],
		['field', 'error', 'Field Name'],
		['field', '__proto__', 'Field Name'],
	])('%s: %p is refused, and nothing is claimed', async (name, value, label) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind, { options: { [name]: value } }))],
		});
		expect(ran.status).toBe('error');
		expect(ran.error?.message).toContain(label);
		expect(await stage.works(kind)).toEqual([]);
	});

	test.each([-1, 601, 'x', ''])('a wait of %p is refused', async (wait) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind, { wait }))],
		});
		expect(ran.error?.message).toMatch(/^Wait for Running Work must be/);
		expect(await stage.works(kind)).toEqual([]);
	});

	test('the field takes another name', async () => {
		const ran = await stage.run({
			items: [{ order: 1, work: 'mine' }],
			nodes: [claim(byOrder(stage.newKind(), { options: { field: 'claim' } }))],
		});
		expect(ran.json('Claim Work')[0]).toMatchObject({
			order: 1,
			work: 'mine',
			claim: { status: 'claimed' },
		});
	});

	test.each([
		['text', 'mine'],
		['null', null],
		['an object with a status', { status: 'open' }],
	])('a field of that name that is not ours is refused before claiming: %s', async (_, mine) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1 }, { order: 2, work: mine }],
			nodes: [claim(byOrder(kind))],
		});
		expect(ran.error?.message).toMatch(/already has a field "work"/);
		expect(await stage.works(kind)).toEqual([]);
	});

	test('an open claim in that field is not overwritten', async () => {
		const [outer, inner] = [stage.newKind(), stage.newKind()];
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(outer)), claim(byOrder(inner), {}, 'Inner')],
		});
		expect(ran.error?.message).toMatch(/already holds an open claim in "work"/);
		expect(await stage.works(inner)).toEqual([]);
	});

	test.each([
		['Busy', 2],
		['Needs Attention', 3],
	])('an item that left by %s may come back', async (_, output) => {
		const [kind, other] = [stage.newKind(), stage.newKind()];
		await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		const first = await stage.run({
			items: output === 2 ? orders(1) : [{ order: '', customer: 'c1' }],
			nodes: [claim(byOrder(kind), { onError: 'continueRegularOutput' })],
		});
		const items = first.json('Claim Work', output).map((json) => ({ ...json, order: 5 }));
		expect(items).toHaveLength(1);
		const ran = await stage.run({ items, nodes: [claim(byOrder(other))] });
		expect(left(ran)).toEqual({ Claimed: ['claimed'] });
		expect(ran.json('Claim Work')[0]).toMatchObject({ order: 5, customer: 'c1' });
	});

	test('an error that came with an item survives the way through Busy', async () => {
		const kind = stage.newKind();
		const busy = await stage.run({
			items: [
				{ order: 1, error: 'upstream' },
				{ order: 1, error: 'upstream' },
			],
			nodes: [claim(byOrder(kind))],
		});
		const ran = await stage.run({
			items: busy.json('Claim Work', 2),
			nodes: [claim(byOrder(stage.newKind()))],
		});
		expect(workOf(ran.json('Claim Work')[0]).inputError).toBe('upstream');
	});

	test('the item is kept for a replay until it is done, unless switched off', async () => {
		const kind = stage.newKind();
		await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		await stage.run({
			items: orders(2),
			nodes: [claim(byOrder(kind, { options: { storePayload: false } }))],
		});
		expect((await stage.rows(kind)).map(({ payload }) => payload)).toEqual([orders(1)[0], null]);
	});
});

describe('items keep what they carry', () => {
	const binary = { file: { data: 'aGVsbG8=', mimeType: 'text/plain', fileName: 'a.txt' } };

	test('json, binary and pairing on every output', async () => {
		const kind = stage.newKind();
		await done(kind, orders(1));
		await stage.run({ items: orders(2), nodes: [claim(byOrder(kind))] });
		const items = [
			...orders(1, 2, 3).map((json) => ({ json, binary })),
			{ json: { order: '', customer: 'c4' }, binary },
		];
		for (const [onError, last] of [
			['continueRegularOutput', 3],
			['continueErrorOutput', 4],
		] as const) {
			const ran = await stage.run({
				items: items.map((item, i) =>
					i === 2 ? { ...item, json: { ...item.json, order: last * 100 } } : item,
				),
				nodes: [claim(byOrder(kind), { onError })],
			});
			const seen = [1, 2, 0, last].map((output) => ran.out('Claim Work', output)[0]);
			expect(seen.map(({ pairedItem }) => pairedItem)).toEqual(
				[0, 1, 2, 3].map((item) => ({ item })),
			);
			expect(seen.map(({ json }) => json.customer)).toEqual(['c1', 'c2', 'c3', 'c4']);
			for (const item of seen) expect(item.binary).toEqual(binary);
		}
	});

	test('big integers and NUL come out as they went in (case 43)', async () => {
		const kind = stage.newKind();
		const result = { s: 'a\u0000b', half: 'x\ud83d', good: '😀', big: '9007199254740993' };
		await stage.run({
			items: [{ order: 1, ...result }],
			nodes: [
				claim(byOrder(kind)),
				complete({ result: 'fields', resultFields: 's, half, good, big' }),
			],
		});
		const ran = await stage.run({ items: [{ order: 1 }], nodes: [claim(byOrder(kind))] });
		expect(workOf(ran.json('Claim Work', 1)[0]).result).toEqual(result);
	});

	test('every output can be told from the status alone', async () => {
		const kind = stage.newKind();
		await done(kind, orders(1));
		await stage.run({ items: orders(2), nodes: [claim(byOrder(kind))] });
		const ran = await stage.run({
			items: [...orders(1, 2, 3), { order: '' }],
			nodes: [claim(byOrder(kind), { onError: 'continueRegularOutput' })],
		});
		expect(left(ran)).toEqual({
			Claimed: ['claimed'],
			Duplicate: ['duplicate'],
			Busy: ['in_progress'],
			'Needs Attention': ['refused'],
		});
		for (const output of [1, 2, 3]) {
			for (const json of ran.json('Claim Work', output)) {
				expect(workOf(json).token).toBeUndefined();
				expect(json.error).toBeUndefined();
			}
		}
	});
});

describe('as the tool of an agent', () => {
	const text = (ran: Ran) => ran.json('Claim Work').map(({ response }) => String(response));

	test('case 68: the second call reads that it is done, and the result, in one text', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: [{ order: 'ticket' }],
			nodes: [
				claim(byOrder(kind)),
				step('Ticket', http(() => ({ ticket: 12 }))),
				complete(),
			],
		});
		const ran = await stage.run({ items: [{ order: 'ticket' }], nodes: [claimTool(byOrder(kind))] });
		expect(text(ran)).toEqual([expect.stringMatching(/^Already done at .*"ticket":12/)]);
		expect([1, 2, 3].flatMap((output) => ran.out('Claim Work', output))).toEqual([]);
	});

	test('case 71: five equal calls: one is claimed, four are flagged in the text', async () => {
		const ran = await stage.run({
			items: Array.from({ length: 5 }, () => ({ order: 'event' })),
			nodes: [claimTool(byOrder(stage.newKind()))],
		});
		expect(text(ran)).toEqual([
			'Claimed, attempt 1 of 5.',
			...Array.from({ length: 4 }, () =>
				expect.stringMatching(/^Claimed in this very run before.*do not claim it again/),
			),
		]);
		expect(ran.json('Claim Work').map((json) => workOf(json).status)).toEqual([
			'claimed',
			...Array.from({ length: 4 }, () => 'in_progress'),
		]);
	});

	test('a claim that another execution holds is told as such', async () => {
		const kind = stage.newKind();
		await stage.run({ items: orders(1), nodes: [claim(byOrder(kind))] });
		const ran = await stage.run({ items: orders(1), nodes: [claimTool(byOrder(kind))] });
		expect(text(ran)).toEqual([expect.stringMatching(/^Running by execution \d+ now/)]);
	});

	test('the model reads no token, and the beginning of a large result', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({ items: orders(1), nodes: [claimTool(byOrder(kind))] });
		const [{ token }] = await stage.ledger.query<{ token: string }>(
			'select token::text from idempotency.work_log where kind = $1',
			[kind],
		);
		expect(JSON.stringify(ran.json('Claim Work'))).not.toContain(token);

		const other = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(other)),
				step('Page', http(() => ({ page: '😀'.repeat(10_000), ticket: 12 }))),
				complete(),
			],
		});
		const again = await stage.run({ items: orders(1), nodes: [claimTool(byOrder(other))] });
		expect(text(again)).toEqual([
			expect.stringMatching(/^Already done at .*(😀){100}.*… \(cut: the first (3999|4000) of 20\d+ characters\)$/u),
		]);
		expect(JSON.stringify(again.json('Claim Work')).length).toBeLessThan(5_000);
		expect(text(again)[0].isWellFormed()).toBe(true);
	});

	test.each([
		['missing', {}, /^The argument "key" is missing\. Nothing was done\. Call this tool again/],
		['null', { key: null }, /^The argument "key" is missing/],
		['a list', { key: ['a', 'b'] }, /^The argument "key" is a list, not one text/],
		['an object', { key: { a: 1 } }, /^The argument "key" is an object, not one text/],
	])('an argument that is %s is answered in a sentence, and nothing is claimed', async (_, item, says) => {
		const kind = stage.newKind();
		const key = "={{ /*n8n-auto-generated-fromAI-override*/ $fromAI('key', `the order (one)`, 'string') }}";
		const nodes = [claimTool({ kind, identity: 'expression', key })];
		const ran = await stage.run({ items: [item as IDataObject], nodes });
		expect(ran.error).toBeNull();
		expect(text(ran)).toEqual([expect.stringMatching(says)]);
		expect(await stage.works(kind)).toEqual([]);
	});

	test('a number for a text is read as its text, and a default stands for what is missing', async () => {
		const kind = stage.newKind();
		const key = (otherwise = '') => `={{ $fromAI('key', 'the order', 'string'${otherwise}) }}`;
		const run = async (item: IDataObject, otherwise?: string) =>
			await stage.run({
				items: [item],
				nodes: [claimTool({ kind, identity: 'expression', key: key(otherwise) })],
			});
		expect(text(await run({ key: 7 }))).toEqual(['Claimed, attempt 1 of 5.']);
		expect(text(await run({}, ", ''"))).toEqual([expect.stringMatching(/Key.*empty/)]);
		expect(await stage.works(kind)).toEqual(['7 running']);
	});

	test('the id that n8n gives each call is no part of the content', async () => {
		const kind = stage.newKind();
		const nodes = [claimTool({ kind, identity: 'content' })];
		for (const toolCallId of ['call_1', 'call_2'])
			await stage.run({ items: [{ note: 'same', toolCallId }], nodes });
		expect(await stage.works(kind)).toHaveLength(1);
	});

	test.each([
		['stopWorkflow'],
		['continueRegularOutput'],
		['continueErrorOutput'],
	] as const)('a refused call is a text, not a failure, under %s', async (onError) => {
		const ran = await stage.run({
			items: [{ order: '' }],
			nodes: [claimTool(byOrder(stage.newKind()), { onError })],
		});
		expect(ran.error).toBeNull();
		expect(text(ran)).toEqual([expect.stringMatching(/order.*empty/)]);
		expect(workOf(ran.json('Claim Work')[0]).status).toBe('refused');
	});

	test('duplicates are told, also where the response is nothing or an error', async () => {
		const kind = stage.newKind();
		await done(kind, orders(1));
		for (const response of ['nothing', 'error']) {
			const ran = await stage.run({
				items: orders(1),
				nodes: [claimTool(byOrder(kind, { response }))],
			});
			expect(ran.error).toBeNull();
			expect(text(ran)).toEqual([expect.stringMatching(/^Already done/)]);
		}
	});
});
