import { randomUUID } from 'node:crypto';

import { closeSharedLedgers, type ClaimItem, type ClaimPolicy } from '../../ledger';
import { Loop } from '../../nodes/WorkLedgerTrigger/loop';
import { startProxy } from '../integration/cuttable-proxy';
import { CALLER, newWork } from '../integration/stage';
import { activate, type Activation, type ActiveTrigger } from './run-trigger';
import { claim, complete, http, step } from './run-workflow';
import { WorkflowStage } from './stage';

const stage = WorkflowStage.forThisFile();
let kind: string;
let nodeId: string;
const active: ActiveTrigger[] = [];
beforeEach(() => {
	kind = stage.newKind();
	nodeId = randomUUID();
});
afterEach(async () => {
	await Promise.all(active.splice(0).map(async (trigger) => await trigger.deactivate()));
});
afterAll(async () => {
	await closeSharedLedgers();
});

async function trigger(activation: Partial<Activation> = {}): Promise<ActiveTrigger> {
	const { parameters, ...rest } = activation;
	const activated = await activate({
		credential: stage.ledger.settings,
		nodeId,
		parameters: { kinds: kind, ...parameters },
		...rest,
	});
	active.push(activated);
	return activated;
}

async function dead(policy: Partial<ClaimPolicy> = {}, key?: string): Promise<ClaimItem> {
	const item = { ...newWork(key), payload: '{"order":7}' };
	await stage.ledger.claimed(item, { kind, ...policy });
	await stage.ledger.fail(item, { permanent: true, error: 'card declined' });
	return item;
}

async function due(policy: Partial<ClaimPolicy> = {}, key?: string): Promise<ClaimItem> {
	const item = { ...newWork(key), payload: '{"order":7,"customer":"c7"}' };
	await stage.ledger.claimed(item, { kind, ...policy });
	await stage.ledger.fail(item, { error: 'no answer' });
	await stage.ledger.becomeDue(item);
	return item;
}

/** Until the decision log says so of the work. */
async function untilHistory(item: { workId: string }, line: string, count = 1): Promise<void> {
	for (;;) {
		const found = (await stage.ledger.history(item)).filter((each) => each === line);
		if (found.length >= count) return;
		await stage.ledger.query('select pg_sleep(0.01)');
	}
}

const subscriptionOf = () => `node workflow-9 ${nodeId}`;

/** Until there are rows about this subscription ($1). */
async function untilRows(sql: string): Promise<unknown[]> {
	for (;;) {
		const rows = await stage.ledger.query(sql, [subscriptionOf()]);
		if (rows.length > 0) return rows;
	}
}

async function delayIsOver(): Promise<void> {
	await stage.ledger.query(
		`update idempotency.announcements set next_attempt_at = clock_timestamp() where subscription = $1 and state = 'waiting'`,
		[subscriptionOf()],
	);
}

/** A whole round that began after now has ended: this trigger swept a work whose lease ended now. */
async function wholeRound(): Promise<void> {
	const marker = await stage.ledger.workThatIs('lapsed', { kind: `${kind} marker`, onLapse: 'hold' });
	await untilHistory(marker, 'sweep: held');
	const next = await stage.ledger.workThatIs('lapsed', { kind: `${kind} marker`, onLapse: 'hold' });
	await untilHistory(next, 'sweep: held');
}

describe('dead letters', () => {
	test('start an execution each, with all that a person needs on the item', async () => {
		const item = await dead({ maxAttempts: 3 }, '7001');
		const { untilStarted } = await trigger();
		const [execution] = await untilStarted(1);
		expect(execution.items).toEqual([
			{
				json: {
					event: 'dead_letter',
					summary: `${kind} 7001 is dead after 1 attempt: card declined. Mend the cause, then replay it.`,
					kind,
					version: 'v1',
					key: '7001',
					workId: item.workId,
					state: 'dead',
					attempts: 1,
					maxAttempts: 3,
					lastError: 'card declined',
					outcomeKnown: true,
					externalRef: null,
					who: expect.objectContaining({
						instance: 'instance-1',
						workflow: 'workflow-1',
						workflowName: 'Invoices',
						execution: '100',
						node: 'Claim Work',
					}),
					executionUrl: 'https://n8n.example/workflow/workflow-1/executions/100',
					payload: { order: 7 },
					at: expect.any(String),
					firstStartedAt: expect.any(String),
					announcement: { nth: 1, of: 5 },
				},
			},
		]);
		execution.end('success');
		await untilHistory(item, 'announce: acknowledged');
	});

	test('no link is made up for an execution of another n8n', async () => {
		await dead({ caller: { ...CALLER, instance: 'instance-2' } });
		const { untilStarted } = await trigger();
		const [execution] = await untilStarted(1);
		expect(execution.items[0].json.executionUrl).toBeNull();
	});

	test('a restart does not announce again what was handled', async () => {
		const first = await trigger();
		const item = await dead();
		const [execution] = await first.untilStarted(1);
		execution.end('success');
		await untilHistory(item, 'announce: acknowledged');
		await first.deactivate();
		const second = await trigger({ activation: 'init' });
		await wholeRound();
		expect(second.started).toEqual([]);
	});

	test('two n8n that run the same workflow: one of them starts an execution', async () => {
		const one = await trigger();
		const two = await trigger();
		const item = await dead();
		await untilHistory(item, 'announce: handed_out');
		await wholeRound();
		await wholeRound();
		expect(one.started.length + two.started.length).toBe(1);
	});

	test('a named subscription is shared by other workflows; another name is told itself', async () => {
		const named = (subscription: string, id: string) => ({
			workflowId: id,
			parameters: { options: { subscription } },
		});
		const name = randomUUID();
		const one = await trigger(named(name, 'a'));
		const two = await trigger(named(name, 'b'));
		const other = await trigger(named(`${name} other`, 'a'));
		await dead();
		await other.untilStarted(1);
		await wholeRound();
		expect(one.started.length + two.started.length).toBe(1);
		expect(other.started).toHaveLength(1);
	});

	test.each([
		['ended with an error', 'error', 'the handler broke'],
		['was cancelled', 'cancel', 'The execution was cancelled'],
	] as const)('an execution that %s: announced again later, with the count', async (_, how, words) => {
		const item = await dead();
		const { untilStarted, started } = await trigger();
		const [execution] = await untilStarted(1);
		if (how === 'cancel') execution.cancel();
		else execution.end(how);
		await untilHistory(item, 'announce: waiting');
		expect((await stage.ledger.log(item)).at(-1)).toMatchObject({
			detail: { handOut: 1, error: words },
		});
		await delayIsOver();
		await untilStarted(2);
		expect(started[1].items[0].json).toMatchObject({
			workId: item.workId,
			announcement: { nth: 2, of: 5 },
		});
	});

	test('given up after five failures, and said in the log of n8n', async () => {
		const item = await dead();
		const { untilStarted, untilLogged, started } = await trigger();
		for (let nth = 1; nth <= 5; nth++) {
			(await untilStarted(nth))[nth - 1].end('error');
			await untilHistory(item, nth < 5 ? 'announce: waiting' : 'announce: given_up', nth < 5 ? nth : 1);
			await delayIsOver();
		}
		await untilLogged(item.workId);
		await wholeRound();
		expect(started).toHaveLength(5);
	});

	test('an execution that waits (for an approval) is n8n\'s to go on with: acknowledged', async () => {
		const item = await dead();
		const { untilStarted } = await trigger();
		(await untilStarted(1))[0].end('waiting');
		await untilHistory(item, 'announce: acknowledged');
	});

	test('at most ten executions are open; the next begins as one ends', async () => {
		for (let n = 0; n < 13; n++) await dead();
		const { untilStarted, started } = await trigger();
		await untilStarted(10);
		await wholeRound();
		expect(started).toHaveLength(10);
		started[0].end('success');
		started[1].end('success');
		await untilStarted(12);
		await wholeRound();
		expect(started).toHaveLength(12);
		for (const { end } of started) end('success');
		await untilStarted(13);
	});

	test('several per run start one execution together', async () => {
		for (let n = 0; n < 5; n++) await dead();
		const { untilStarted, started } = await trigger({ parameters: { options: { perRun: 3 } } });
		await untilStarted(2);
		expect(started.map(({ items }) => items.length)).toEqual([3, 2]);
	});

	test('only the kinds and states that are chosen', async () => {
		await dead();
		const held = { ...newWork(), payload: '{}' };
		await stage.ledger.claimed(held, { kind, onLapse: 'hold' });
		await stage.ledger.fail(held, { landed: 'unknown', error: 'read time-out' });
		await dead({ kind: `${kind} other` });
		const { untilStarted, started } = await trigger({ parameters: { states: ['held'] } });
		await untilStarted(1);
		await wholeRound();
		expect(started.flatMap(({ items }) => items.map(({ json }) => json.workId))).toEqual([
			held.workId,
		]);
		expect(started[0].items[0].json.summary).toContain('held: read time-out');
	});

	test('the sweep of a round notices an owner that was killed on its last attempt: dead, and announced', async () => {
		const item = { ...newWork(), payload: '{"order":9}' };
		await stage.ledger.claimed(item, { kind, maxAttempts: 1 });
		const { untilStarted } = await trigger();
		await stage.ledger.elapse(item);
		const [execution] = await untilStarted(1);
		expect(execution.items[0].json).toMatchObject({
			workId: item.workId,
			state: 'dead',
			lastError: expect.stringContaining('vanished'),
			// nobody is told to run again what may have landed
			summary: expect.stringMatching(/Its effect may have landed: look at the target system, then resolve or replay it\.$/),
		});
		expect((await stage.ledger.history(item)).slice(0, 2)).toEqual(['claim: claimed', 'sweep: dead']);
	});

	test('however long its execution takes, also over a deactivation, nobody else is told: the hand-out is extended until the end', async () => {
		const real = global.setTimeout;
		const soon = jest
			.spyOn(global, 'setTimeout')
			.mockImplementation(((run: () => void, ms?: number) =>
				real(run, ms === 40_000 ? 50 : ms)) as typeof setTimeout);
		try {
			const item = await dead();
			const first = await trigger();
			const [execution] = await first.untilStarted(1);
			await first.deactivate();
			for (let beat = 0; beat < 2; beat++) {
				await stage.ledger.query(
					`update idempotency.announcements set locked_until = clock_timestamp() + interval '1 second' where subscription = $1`,
					[subscriptionOf()],
				);
				const [row] = await untilRows(
					`select state, attempt from idempotency.announcements
					where subscription = $1 and locked_until > clock_timestamp() + interval '100 seconds'`,
				);
				expect(row).toEqual({ state: 'handed_out', attempt: 1 });
			}
			execution.end('success');
			await untilHistory(item, 'announce: acknowledged');
		} finally {
			soon.mockRestore();
		}
	});

	test('an execution that is open over a deactivation is still reported, and counts after it', async () => {
		const item = await dead();
		const first = await trigger();
		const [execution] = await first.untilStarted(1);
		await first.deactivate();
		for (let n = 0; n < 10; n++) await dead();
		const second = await trigger({ activation: 'update' });
		await second.untilStarted(9);
		await wholeRound();
		expect(second.started).toHaveLength(9);
		execution.end('success');
		await untilHistory(item, 'announce: acknowledged');
		await second.untilStarted(10);
	});
});

describe('retries that are due', () => {
	const retry = { event: 'retry_due' };

	test('arrive as the first attempt received them, with the claim that Claim Work would have put on them', async () => {
		const item = await due({}, '8001');
		const { untilStarted } = await trigger({ parameters: retry });
		const [execution] = await untilStarted(1);
		const row = await stage.ledger.row(item);
		expect(execution.items).toEqual([
			{
				json: {
					order: 7,
					customer: 'c7',
					work: expect.objectContaining({
						status: 'claimed',
						message: 'Claimed, attempt 2 of 5. The attempt before it failed: no answer.',
						workId: item.workId,
						kind,
						version: 'v1',
						key: '8001',
						token: row.token,
						attempt: 2,
						maxAttempts: 5,
						previousOutcome: 'failed',
						lastError: 'no answer',
						lockedUntil: row.locked_until?.toISOString(),
						previousOwner: expect.objectContaining({ execution: '100' }),
						event: 'retry_due',
						executionUrl: 'https://n8n.example/workflow/workflow-1/executions/100',
					}),
				},
			},
		]);
	});

	test('Complete Work finds the claim on the item, and behind an effect that replaces the item', async () => {
		const item = await due();
		const { untilStarted } = await trigger({ parameters: retry });
		const [execution] = await untilStarted(1);
		const ran = await stage.run({
			trigger: { ...retry, kinds: kind },
			items: execution.items,
			nodes: [
				step(
					'HTTP',
					http(() => ({ invoice: 'inv_1' })),
				),
				complete({ externalRef: '={{ $json.invoice }}' }),
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.json('Complete Work')).toEqual([
			expect.objectContaining({ work: expect.objectContaining({ status: 'completed' }) }),
		]);
		expect(await stage.ledger.row(item)).toMatchObject({
			state: 'done',
			attempt: 2,
			external_ref: 'inv_1',
		});
		execution.end('success');
	});

	test.each([
		["The ledger's work", { identity: 'ledger' }],
		['the fields it was first claimed by', { keyFields: 'order' }],
	])('Claim Work between, by %s, lets it pass with the same claim', async (_, parameters) => {
		// as Claim Work itself names it
		const first = await stage.run({
			items: [{ order: 7 }],
			nodes: [claim({ kind, keyFields: 'order' }), complete({ operation: 'fail', landed: 'no' })],
		});
		expect(first.error).toBeNull();
		const { work_id: workId } = await stage.work(kind);
		await stage.ledger.becomeDue({ workId });
		const { untilStarted } = await trigger({ parameters: retry });
		const [execution] = await untilStarted(1);
		const { token } = await stage.ledger.row({ workId });
		const ran = await stage.run({
			trigger: { ...retry, kinds: kind },
			items: execution.items,
			nodes: [
				claim({ kind, ...parameters }),
				step(
					'HTTP',
					http(() => ({ invoice: 'inv_2' })),
				),
				complete({ externalRef: '={{ $json.invoice }}' }),
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.json('Claim Work')).toEqual([
			expect.objectContaining({
				order: 7,
				work: expect.objectContaining({ status: 'claimed', token, attempt: 2 }),
			}),
		]);
		expect(await stage.ledger.row({ workId })).toMatchObject({ state: 'done', attempt: 2 });
		execution.end('success');
	});

	test('a dead letter is no claim: Complete Work behind it says so', async () => {
		await dead();
		const { untilStarted } = await trigger();
		const ran = await stage.run({
			trigger: { event: 'dead_letter', kinds: kind },
			items: (await untilStarted(1))[0].items,
			nodes: [complete()],
		});
		expect(ran.error?.message).toContain('No claim was found for this item');
	});

	test('whose work was done meanwhile is a duplicate at Claim Work, and runs no effect', async () => {
		const item = await due();
		const { untilStarted } = await trigger({ parameters: retry });
		const [execution] = await untilStarted(1);
		const { token } = await stage.ledger.row(item);
		await stage.ledger.complete({ ...item, token: token as string }, { result: { invoice: 3 } });
		const ran = await stage.run({
			items: execution.items,
			nodes: [claim({ kind, identity: 'ledger' }), step('HTTP', http())],
		});
		expect(ran.json('Claim Work', 1)).toEqual([
			expect.objectContaining({ work: expect.objectContaining({ status: 'duplicate' }) }),
		]);
		expect(ran.runs('HTTP')).toBe(0);
	});

	test('a failing Claim Work does not give back the claim that came with the item', async () => {
		const item = await due();
		const { untilStarted } = await trigger({ parameters: retry });
		const [execution] = await untilStarted(1);
		const other = { ...newWork(), payload: null };
		await stage.ledger.claimed(other, { kind });
		await stage.ledger.complete(other);
		const ran = await stage.run({
			items: [
				...execution.items,
				{ json: { work: { status: 'duplicate', workId: other.workId, kind, message: '' } } },
			],
			nodes: [claim({ kind, identity: 'ledger', response: 'error' })],
		});
		expect(ran.status).toBe('error');
		expect(await stage.ledger.row(item)).toMatchObject({ state: 'running', attempt: 2 });
	});

	test.each([
		['run_again', 'failed'],
		['hold', 'held'],
	] as const)(
		'the execution ends with an error while the token runs, policy %s: %s, it may have landed',
		async (onLapse, state) => {
			const item = await due({ onLapse });
			const { untilStarted } = await trigger({ parameters: retry });
			(await untilStarted(1))[0].end('error');
			await untilHistory(item, `fail: ${state}`, state === 'failed' ? 2 : 1);
			expect(await stage.ledger.row(item)).toMatchObject({
				state,
				attempt: 2,
				outcome_known: false,
				last_error: 'the handler broke',
			});
		},
	);

	test('what the flow reported itself stands, though its execution ends with an error', async () => {
		const item = await due();
		const { untilStarted } = await trigger({ parameters: retry });
		const [execution] = await untilStarted(1);
		const { token } = await stage.ledger.row(item);
		await stage.ledger.fail(
			{ ...item, token: token as string },
			{ error: 'card declined', landed: 'no', permanent: true },
		);
		execution.end('error');
		await wholeRound();
		expect(await stage.ledger.row(item)).toMatchObject({
			state: 'dead',
			outcome_known: true,
			last_error: 'card declined',
		});
	});

	test('a flow that forgets to complete: a warning, and the work is left to its lease', async () => {
		const item = await due();
		const { untilStarted, untilLogged } = await trigger({ parameters: retry });
		(await untilStarted(1))[0].end('success');
		await untilLogged('did not complete the work');
		expect(await stage.ledger.row(item)).toMatchObject({ state: 'running', attempt: 2 });
	});

	test('a flow that waits (for an approval) keeps its claim, without a warning', async () => {
		const item = await due();
		const { untilStarted, logged } = await trigger({ parameters: retry });
		(await untilStarted(1))[0].end('waiting');
		await wholeRound();
		expect(await stage.ledger.row(item)).toMatchObject({ state: 'running', attempt: 2 });
		expect(logged).toEqual([]);
	});

	test('at most ten are open, and what is not handed out is not claimed', async () => {
		for (let n = 0; n < 12; n++) await due();
		const { untilStarted, started } = await trigger({ parameters: retry });
		await untilStarted(10);
		await wholeRound();
		expect(started).toHaveLength(10);
		const states = (await stage.rows(kind)).map(({ state }) => state).sort();
		expect(states).toEqual([
			...Array.from({ length: 2 }, () => 'failed'),
			...Array.from({ length: 10 }, () => 'running'),
		]);
		started[0].end('error');
		await untilStarted(11);
	});

	test('two subscriptions never get the same work', async () => {
		const one = await trigger({ parameters: retry, nodeId: randomUUID() });
		const two = await trigger({ parameters: retry, nodeId: randomUUID() });
		for (let n = 0; n < 6; n++) await due();
		while (one.started.length + two.started.length < 6)
			await stage.ledger.query('select pg_sleep(0.01)');
		await wholeRound();
		const got = [...one.started, ...two.started].map(
			({ items }) => (items[0].json.work as { workId: string }).workId,
		);
		expect(got).toHaveLength(6);
		expect(new Set(got).size).toBe(6);
	});

	test('a killed owner is noticed by the sweep, and the work is handed out with its data', async () => {
		const item = { ...newWork(), payload: '{"order":5}' };
		await stage.ledger.claimed(item, { kind });
		const { untilStarted } = await trigger({ parameters: retry });
		await stage.ledger.elapse(item);
		const [execution] = await untilStarted(1);
		expect(execution.items[0].json).toMatchObject({
			order: 5,
			work: { status: 'claimed', attempt: 2, previousOutcome: 'unknown' },
		});
	});

	test('data with a field of that name, an error or no object keep what they are', async () => {
		const claimOf = async (payload: string) => {
			const item = { ...newWork(), payload };
			await stage.ledger.claimed(item, { kind });
			await stage.ledger.fail(item);
			await stage.ledger.becomeDue(item);
			await stage.ledger.age(item, 60);
			return item;
		};
		await claimOf('{"work":"Monday"}');
		const { untilStarted } = await trigger({ parameters: retry });
		const clash = (await untilStarted(1))[0].items[0].json;
		expect(clash.work).toBe('Monday');
		expect(clash.workAnswer).toMatchObject({ status: 'claimed' });
		await claimOf('{"order":1,"error":"upstream"}');
		const failed = (await untilStarted(2))[1].items[0].json;
		expect(failed).not.toHaveProperty('error');
		expect(failed.work).toMatchObject({ status: 'claimed', inputError: 'upstream' });
		await claimOf('[1,2]');
		expect((await untilStarted(3))[2].items[0].json).toMatchObject({
			payload: [1, 2],
			work: { status: 'claimed' },
		});
	});
});

describe('the loop', () => {
	test('rounds do not overlap, however slow the ledger is, and the next is timed from the end of the last', async () => {
		jest.useFakeTimers();
		try {
			const ends: Array<() => void> = [];
			const loop = new Loop(async () => await new Promise<void>((end) => ends.push(end)), 1000);
			loop.start();
			await jest.advanceTimersByTimeAsync(3_600_000);
			expect(ends).toHaveLength(1);
			// asked for while it is under way, the next still waits for its end
			loop.wake();
			await jest.advanceTimersByTimeAsync(3_600_000);
			expect(ends).toHaveLength(1);
			ends[0]();
			await jest.advanceTimersByTimeAsync(0);
			expect(ends).toHaveLength(2);
			ends[1]();
			await jest.advanceTimersByTimeAsync(999);
			expect(ends).toHaveLength(2);
			await jest.advanceTimersByTimeAsync(1);
			expect(ends).toHaveLength(3);

			// a round that does not end is abandoned, and begins nothing any more
			const stopped = loop.stop();
			await jest.advanceTimersByTimeAsync(5_000);
			await stopped;
			expect(loop.abandoned).toBe(true);
			ends[2]();
			loop.wake();
			await jest.advanceTimersByTimeAsync(3_600_000);
			expect(ends).toHaveLength(3);
			expect(jest.getTimerCount()).toBe(0);
		} finally {
			jest.useRealTimers();
		}
	});

	test('a round that is under way at the deactivation ends before it', async () => {
		const blocker = await stage.ledger.connect();
		const item = await dead();
		await blocker.query('begin');
		await blocker.query('lock table idempotency.announcements in access exclusive mode');
		const running = await trigger();
		await stage.ledger.untilWaiting(1);
		const deactivated = running.deactivate();
		await blocker.query('commit');
		await deactivated;
		expect(running.started.map(({ items }) => items[0].json.workId)).toEqual([item.workId]);
		running.started[0].end('success');
		await untilHistory(item, 'announce: acknowledged');
	});

	test('a round that outlasts the deactivation starts nothing: a retry is given back, a dead letter comes again', async () => {
		const blocker = await stage.ledger.connect();
		const letter = await dead();
		const retried = await due();
		await blocker.query('begin');
		await blocker.query('lock table idempotency.decision_log in access exclusive mode');
		const telling = await trigger();
		const retrying = await trigger({ parameters: { event: 'retry_due' } });
		await stage.ledger.untilWaiting(2);
		await Promise.all([telling.deactivate(), retrying.deactivate()]);
		await blocker.query('commit');
		await untilHistory(retried, 'release: released');
		await untilHistory(letter, 'announce: handed_out');
		expect(await stage.ledger.row(retried)).toMatchObject({ state: 'failed', attempt: 1 });
		expect([telling.started, retrying.started]).toEqual([[], []]);
	});

	test('a ledger that is down: nothing is emitted, it is logged once, and the loop recovers', async () => {
		const proxy = await startProxy(stage.ledger.database.config);
		const { port } = proxy;
		const tripped = await trigger({
			credential: { ...stage.ledger.settings, host: '127.0.0.1', port, connectTimeoutSeconds: 1 },
		});
		await wholeRound();
		await proxy.close();
		const item = await dead();
		await tripped.untilLogged('Nothing is handed out meanwhile');
		expect(tripped.started).toEqual([]);
		const back = await startProxy(stage.ledger.database.config, port);
		try {
			const [execution] = await tripped.untilStarted(1);
			expect(execution.items[0].json.workId).toBe(item.workId);
			await tripped.untilLogged('answers again');
			const outages = tripped.logged.filter(({ level }) => level === 'error');
			expect(outages).toHaveLength(1);
			expect(outages[0].message).not.toContain(String(stage.ledger.settings.password));
			execution.end('success');
			await untilHistory(item, 'announce: acknowledged');
		} finally {
			await tripped.deactivate();
			await closeSharedLedgers();
			await back.close();
		}
	});

	test('a report that could not be sent is sent when the ledger answers again, before anything else', async () => {
		const proxy = await startProxy(stage.ledger.database.config);
		const { port } = proxy;
		const item = await dead();
		const tripped = await trigger({
			credential: { ...stage.ledger.settings, host: '127.0.0.1', port, connectTimeoutSeconds: 1 },
		});
		const [execution] = await tripped.untilStarted(1);
		await proxy.close();
		execution.end('success');
		await tripped.untilLogged('Nothing is handed out meanwhile');
		// its lease ends meanwhile
		await stage.ledger.query(
			`update idempotency.announcements set locked_until = clock_timestamp() - interval '1 second' where subscription = $1`,
			[subscriptionOf()],
		);
		const back = await startProxy(stage.ledger.database.config, port);
		try {
			await untilHistory(item, 'announce: acknowledged');
			expect(tripped.started).toHaveLength(1);
		} finally {
			await tripped.deactivate();
			await closeSharedLedgers();
			await back.close();
		}
	});

	test('a report that could not be sent goes to where the credential leads now, also after the workflow was saved anew', async () => {
		const proxy = await startProxy(stage.ledger.database.config);
		const item = await dead();
		const credential = {
			...stage.ledger.settings,
			host: '127.0.0.1',
			port: proxy.port,
			connectTimeoutSeconds: 1,
		};
		const tripped = await trigger({ credential });
		const [execution] = await tripped.untilStarted(1);
		await tripped.deactivate();
		await proxy.close();
		execution.end('success');
		// a person has moved the ledger, and edits the credential
		Object.assign(credential, stage.ledger.settings);
		const again = await trigger({ credential });
		await untilHistory(item, 'announce: acknowledged');
		const other = await dead();
		const [next] = await again.untilStarted(1);
		expect(next.items[0].json.workId).toBe(other.workId);
		next.end('success');
		await untilHistory(other, 'announce: acknowledged');
	});

	test('activated by a person with the ledger out of reach: an error that says so', async () => {
		const credential = { ...stage.ledger.settings, port: 1 };
		await expect(trigger({ credential })).rejects.toMatchObject({
			message: expect.stringMatching(/^The workflow was not activated: .*cannot be reached/),
		});
	});

	test('activated by a restart with the ledger out of reach: active, and it goes on by itself', async () => {
		const closed = await startProxy(stage.ledger.database.config);
		const { port } = closed;
		await closed.close();
		const restarted = await trigger({
			activation: 'init',
			credential: { ...stage.ledger.settings, host: '127.0.0.1', port, connectTimeoutSeconds: 1 },
		});
		await restarted.untilLogged('cannot be reached');
		const back = await startProxy(stage.ledger.database.config, port);
		try {
			await dead();
			await restarted.untilStarted(1);
		} finally {
			await restarted.deactivate();
			await closeSharedLedgers();
			await back.close();
		}
	});

	test('deactivated it leaves no timer and starts nothing more', async () => {
		const timers = () => process.getActiveResourcesInfo().filter((what) => what === 'Timeout').length;
		const running = await trigger();
		await wholeRound();
		await running.deactivate();
		await closeSharedLedgers();
		const before = timers();
		const again = await trigger();
		await wholeRound();
		await again.deactivate();
		await closeSharedLedgers();
		expect(timers()).toBeLessThanOrEqual(before);
		const item = await dead();
		expect(await stage.ledger.history(item)).toEqual(['claim: claimed', 'fail: dead']);
		expect([running.started, again.started]).toEqual([[], []]);
	});
});

describe('a run in the editor', () => {
	test('shows the newest dead letter, and reserves, sweeps and acknowledges nothing', async () => {
		const item = await dead();
		const lapsed = await stage.ledger.workThatIs('lapsed', { kind });
		const manual = await trigger({ mode: 'manual', activation: 'manual' });
		const [{ json }] = await manual.manualRun();
		expect(json).toMatchObject({
			event: 'dead_letter',
			workId: item.workId,
			sample: true,
			madeUp: false,
			explanation: expect.stringContaining('not reserved'),
		});
		expect(await stage.ledger.history(item)).toEqual(['claim: claimed', 'fail: dead']);
		expect(await stage.ledger.history(lapsed)).toEqual(['claim: claimed']);
		await stage.ledger.complete(lapsed);
	});

	test('shows the next retry without its claim', async () => {
		const item = await due();
		const manual = await trigger({
			mode: 'manual',
			activation: 'manual',
			parameters: { event: 'retry_due' },
		});
		const [{ json }] = await manual.manualRun();
		expect(json).toMatchObject({
			order: 7,
			sample: true,
			work: { status: 'sample', workId: item.workId, attempt: 2 },
		});
		expect(json.work).not.toHaveProperty('token');
		expect(await stage.ledger.row(item)).toMatchObject({ state: 'failed', attempt: 1 });
	});

	test.each(['dead_letter', 'retry_due'])('%s: where there is nothing, a made-up item says so', async (event) => {
		const manual = await trigger({ mode: 'manual', activation: 'manual', parameters: { event } });
		const [{ json }] = await manual.manualRun();
		expect(json).toMatchObject({ sample: true, madeUp: true });
		expect(JSON.stringify(json)).toContain('this one is made up');
		expect(json).not.toHaveProperty('error');
	});

	test('with the ledger out of reach: an error that says so', async () => {
		const manual = await trigger({
			mode: 'manual',
			activation: 'manual',
			credential: { ...stage.ledger.settings, port: 1 },
		});
		await expect(manual.manualRun()).rejects.toMatchObject({
			message: expect.stringContaining('cannot be reached'),
		});
	});
});

describe('bad parameters', () => {
	test.each([
		['Look Every', { intervalSeconds: 0 }],
		['Look Every', { intervalSeconds: 'soon' }],
		['States', { states: [] }],
		['States', { states: ['done'] }],
		['Kinds', { kinds: 'invoice:v1' }],
		['Event', { event: 'everything' }],
		['Works per Run', { options: { perRun: 0 } }],
		['Works per Run', { options: { perRun: 1.5 } }],
		['Subscription Name', { options: { subscription: 'x'.repeat(201) } }],
		['Field Name', { event: 'retry_due', options: { field: 'error' } }],
	])('%s is named in the error, whatever activates it', async (label, parameters) => {
		for (const activation of ['activate', 'init'] as const) {
			await expect(trigger({ parameters, activation })).rejects.toMatchObject({
				message: expect.stringContaining(label),
			});
		}
	});
});
