import type { Client } from 'pg';

import type { ClaimItem, HoldAnswer } from '../../ledger/contract';
import { again, CALLER, from, newWork, sortedWorks, Stage } from './stage';

let stage: Stage;
let one: Client;
let two: Client;
beforeAll(async () => {
	stage = await Stage.open();
	[one, two] = [await stage.connect(), await stage.connect()];
});
afterAll(async () => {
	await stage.close();
});

type How = { force?: boolean; again?: boolean };

async function replay(item: { workId: string }, how: How = {}): Promise<HoldAnswer> {
	return (
		await stage.ledger.admin.replay([item.workId], how, { ...CALLER, node: 'Work Ledger' })
	)[0];
}

/** A replay on a connection of the test, which holds its transaction open. */
async function replayOn(client: Client, item: { workId: string }, how = '{}'): Promise<void> {
	await client.query('begin');
	await client.query('select * from idempotency.replay_works(array[$1::text], $2::jsonb)', [
		item.workId,
		how,
	]);
}

describe.each(['failed', 'dead', 'held'] as const)('%s work that is replayed', (state) => {
	test('is due now with its attempts reset, and is attempt 1 for the next claim', async () => {
		const item = await stage.workThatIs(state);
		expect(await replay(item)).toMatchObject({
			status: 'replayed',
			state: 'failed',
			generation: 1,
			attempt: 0,
			key: item.key,
			kind: 'invoice',
			reason: null,
		});
		const row = await stage.row(item);
		expect(row).toMatchObject({
			state: 'failed',
			attempt: 0,
			token: null,
			settled_by: 'person',
			last_error: 'no answer',
			outcome_known: state !== 'held',
		});
		expect(await stage.secondsUntil(row.next_attempt_at)).toBeLessThanOrEqual(0);
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'claimed',
			generation: 1,
			attempt: 1,
			previousOutcome: state === 'held' ? 'unknown' : 'failed',
			lastError: 'no answer',
		});
		expect((await stage.log(item)).find(({ event }) => event === 'replay')).toMatchObject({
			outcome: 'due',
			token: item.token,
			fired: { node: 'Work Ledger' },
			checked: { found: state },
		});
	});

	test('has all its attempts again', async () => {
		const item = await stage.claimed(newWork(), { maxAttempts: 2, onLapse: 'hold' });
		await stage.fail(item, {
			landed: state === 'held' ? 'unknown' : 'no',
			permanent: state === 'dead',
		});
		await replay(item);
		for (const attempt of [1, 2]) {
			const next = again(item);
			expect(await stage.claim(next, { maxAttempts: 2 })).toMatchObject({ attempt });
			await stage.fail(next);
			if (attempt === 1) await stage.becomeDue(item);
		}
		expect(await stage.row(item)).toMatchObject({ state: 'dead', attempt: 2 });
	});

	test('fences its old owner: what comes late is not the owner, and stands in the log in full', async () => {
		const item = await stage.workThatIs(state);
		await replay(item);
		const before = await stage.row(item);
		const late = await stage.complete(item, { result: { invoice: 7 }, externalRef: 'inv_7' });
		expect(late).toMatchObject({ status: 'not_owner', state: 'failed' });
		for (const answer of [
			await stage.fail(item),
			await stage.record(item, 'inv_7'),
			await stage.extend(item),
			await stage.release(item),
		]) {
			expect(answer.status).toBe('not_owner');
		}
		expect(await stage.row(item)).toEqual(before);
		expect((await stage.log(item)).find(({ event }) => event === 'complete')).toMatchObject({
			outcome: 'not_owner',
			result: { invoice: 7 },
			external_ref: 'inv_7',
		});
	});

	test('keeps its payload; without one it waits for the next delivery, and says so', async () => {
		const policy = { onLapse: 'hold' } as const;
		const settle = async (item: ClaimItem) =>
			await stage.fail(item, {
				landed: state === 'held' ? 'unknown' : 'no',
				permanent: state === 'dead',
			});
		const kept = await stage.claimed({ ...newWork(), payload: '{"order":1}' }, policy);
		const bare = await stage.claimed(newWork(), policy);
		await settle(kept);
		await settle(bare);
		expect(await replay(kept)).toMatchObject({ status: 'replayed', waitsForDelivery: false });
		expect(await stage.row(kept)).toMatchObject({ payload: { order: 1 } });
		expect(await replay(bare)).toMatchObject({ status: 'replayed', waitsForDelivery: true });
		expect((await stage.log(bare)).at(-1)).toMatchObject({ detail: { waitsForDelivery: true } });
		expect(await stage.claim(again(bare, { payload: '{"order":2}' }))).toMatchObject({
			status: 'claimed',
		});
		expect(await stage.row(bare)).toMatchObject({ payload: { order: 2 } });
	});

	test('twice is refused: it is due already', async () => {
		const item = await stage.workThatIs(state);
		const [first, second] = await stage.ledger.admin.replay([item.workId, item.workId]);
		expect(first.status).toBe('replayed');
		expect(second).toMatchObject({ status: 'refused', reason: 'it is due already' });
		expect(await replay(item)).toMatchObject({ status: 'refused' });
	});

	test('by two people at once is replayed once', async () => {
		const item = await stage.workThatIs(state);
		await replayOn(one, item);
		const second = replay(item);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ status: 'refused', reason: 'it is due already' });
		expect((await stage.history(item)).filter((entry) => entry === 'replay: due')).toHaveLength(1);
	});
});

describe('running work', () => {
	test('is not replayed: its owner goes on', async () => {
		const item = await stage.workThatIs('running');
		const before = await stage.row(item);
		expect(await replay(item)).toMatchObject({
			status: 'refused',
			state: 'running',
			reason: expect.stringMatching(/running until .*by force/),
		});
		expect(await replay(item, { again: true })).toMatchObject({ status: 'refused' });
		expect(await stage.row(item)).toEqual(before);
		expect(await stage.complete(item)).toMatchObject({ status: 'completed', late: false });
	});

	test('with a reference recorded is not replayed, nor by force: its effect has landed', async () => {
		const item = await stage.workThatIs('running');
		await stage.record(item, 'inv_1');
		for (const how of [{}, { force: true }]) {
			expect(await replay(item, how)).toMatchObject({
				status: 'refused',
				reason: expect.stringContaining('inv_1'),
			});
		}
		expect(await stage.complete(item)).toMatchObject({ status: 'completed', externalRef: 'inv_1' });
	});

	test('whose lease ended is said to be so, not to be running until a time that has passed', async () => {
		const item = await stage.workThatIs('running');
		await stage.elapse(item);
		expect(await replay(item)).toMatchObject({
			status: 'refused',
			reason: expect.stringContaining('its lease ended without a report'),
		});
	});

	test('by force is due, its outcome unknown, its owner fenced', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"order":1}' });
		expect(await replay(item, { force: true })).toMatchObject({
			status: 'replayed',
			state: 'failed',
			attempt: 0,
			waitsForDelivery: false,
		});
		expect(await stage.complete(item, { result: 7 })).toMatchObject({ status: 'not_owner' });
		expect(await stage.claim(again(item), from({ execution: '101' }))).toMatchObject({
			status: 'claimed',
			generation: 1,
			attempt: 1,
			previousOutcome: 'unknown',
			owner: { execution: '100' },
		});
	});

	test('by force against its completion in the same moment: the completion that waits is not the owner', async () => {
		const item = await stage.workThatIs('running');
		await replayOn(one, item, '{"force": true}');
		const completion = stage.complete(item, { result: { invoice: 7 }, externalRef: 'inv_7' });
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await completion).toMatchObject({ status: 'not_owner' });
		expect((await stage.log(item)).at(-1)).toMatchObject({
			event: 'complete',
			result: { invoice: 7 },
			external_ref: 'inv_7',
		});
	});

	test('by force against its completion in the same moment: the replay that waits finds it done', async () => {
		const item = await stage.workThatIs('running');
		await one.query('begin');
		await one.query(`select * from idempotency.complete_work($1, $2, '7', null, '{}')`, [
			item.workId,
			item.token,
		]);
		const forced = replay(item, { force: true });
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await forced).toMatchObject({ status: 'refused', state: 'done' });
		expect(await stage.row(item)).toMatchObject({ state: 'done', result: 7 });
	});
});

describe('done work', () => {
	test('is not replayed, nor by force', async () => {
		const item = await stage.workThatIs('done');
		const before = await stage.row(item);
		for (const how of [{}, { force: true }]) {
			expect(await replay(item, how)).toMatchObject({
				status: 'refused',
				state: 'done',
				reason: expect.stringContaining('run again on purpose'),
				result: { invoice: 7 },
			});
		}
		expect(await stage.row(item)).toEqual(before);
	});

	test('run again on purpose is a new generation; the old result and reference are in the log', async () => {
		const item = await stage.workThatIs('done');
		const done = await stage.row(item);
		expect(await replay(item, { again: true })).toMatchObject({
			status: 'replayed',
			state: 'failed',
			generation: 2,
			attempt: 0,
			externalRef: null,
			completedAt: null,
			waitsForDelivery: true,
		});
		expect((await stage.log(item)).at(-1)).toMatchObject({
			event: 'replay',
			outcome: 'due',
			generation: 2,
			result: { invoice: 7 },
			external_ref: 'inv_7',
		});
		expect(await stage.row(item)).toMatchObject({
			result: null,
			external_ref: null,
			outcome_known: true,
			last_done_at: done.last_done_at,
		});
		// forever, and still claimable: a person said so
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'claimed',
			generation: 2,
			attempt: 1,
			previousOutcome: null,
			lastError: null,
		});
		expect(await stage.complete(item, { result: { invoice: 7 } })).toMatchObject({
			status: 'not_owner',
		});
	});

	test('run again twice in the same moment is one new generation', async () => {
		const item = await stage.workThatIs('done');
		await replayOn(one, item, '{"again": true}');
		const second = replay(item, { again: true });
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ status: 'refused', reason: 'it is due already' });
		expect(await stage.row(item)).toMatchObject({ generation: 2 });
	});
});

describe('a replay and an automatic retry in the same moment give one claim', () => {
	test('the retry waits for the replay: it is attempt 1', async () => {
		const item = await stage.workThatIs('failed');
		await stage.becomeDue(item);
		await replayOn(one, item);
		const retries = Promise.all([stage.claim(again(item)), stage.claim(again(item))]);
		await stage.untilWaiting(2);
		await one.query('commit');
		const answers = await retries;
		expect(answers.map(({ status }) => status).sort()).toEqual(['claimed', 'in_progress']);
		expect(await stage.row(item)).toMatchObject({ state: 'running', attempt: 1 });
	});

	test('the replay waits for the retry: it is refused, and the retry goes on', async () => {
		const item = await stage.workThatIs('failed');
		await stage.becomeDue(item);
		const retry = again(item);
		await one.query('begin');
		await one.query(
			`select * from idempotency.claim_work($1, $2, $3, null, null, '{"kind": "invoice"}')`,
			[retry.workId, retry.key, retry.token],
		);
		const late = replay(item);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await late).toMatchObject({ status: 'refused', state: 'running' });
		expect(await stage.complete(retry)).toMatchObject({ status: 'completed', attempt: 2 });
	});
});

test('a released claim of replayed work leaves it due again, attempts still reset', async () => {
	const item = await stage.workThatIs('dead');
	await replay(item);
	const before = await stage.row(item);
	const next = await stage.claimed(again(item), from({ execution: '101' }));
	expect(await stage.release(next)).toMatchObject({ status: 'released', state: 'failed' });
	expect({ ...(await stage.row(item)), updated_at: undefined }).toEqual({
		...before,
		updated_at: undefined,
	});
});

test('work that the ledger does not hold is said so, and leaves no history', async () => {
	const item = newWork();
	expect(await replay(item)).toMatchObject({
		status: 'not_owner',
		state: null,
		reason: expect.stringContaining('no such work'),
	});
	expect(await stage.log(item)).toEqual([]);
});

test('of many works, each has its own answer in the order asked', async () => {
	const [dead, running, done, unknown] = [
		await stage.workThatIs('dead'),
		await stage.workThatIs('running'),
		await stage.workThatIs('done'),
		newWork(),
	];
	const asked = [running, unknown, done, dead];
	const answers = await stage.ledger.admin.replay(asked.map(({ workId }) => workId));
	expect(answers.map(({ workId, status }) => [workId, status])).toEqual([
		[running.workId, 'refused'],
		[unknown.workId, 'not_owner'],
		[done.workId, 'refused'],
		[dead.workId, 'replayed'],
	]);
});

test('a set replayed in the wrong order waits for a batch of claims, and neither dies of a deadlock', async () => {
	const [first, last] = sortedWorks(2);
	for (const item of [first, last]) {
		await stage.claimed(item);
		await stage.fail(item, { permanent: true });
	}
	await one.query('begin');
	await one.query('select 1 from idempotency.work_log where work_id = $1 for update', [
		first.workId,
	]);
	// on a plain connection: the ledger's own would send it again after a deadlock
	const replayed = two.query('select status from idempotency.replay_works($1::text[], $2)', [
		[last.workId, first.workId],
		'{}',
	]);
	await stage.untilWaiting(1);
	await one.query('select 1 from idempotency.work_log where work_id = $1 for update', [
		last.workId,
	]);
	await one.query('commit');
	expect((await replayed).rows).toEqual([{ status: 'replayed' }, { status: 'replayed' }]);
});
