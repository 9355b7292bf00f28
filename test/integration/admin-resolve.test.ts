import type { Client } from 'pg';

import type { ClaimItem, HoldAnswer } from '../../ledger/contract';
import { again, CALLER, from, newWork, POLICY, Stage } from './stage';

let stage: Stage;
let one: Client;
beforeAll(async () => {
	stage = await Stage.open();
	one = await stage.connect();
});
afterAll(async () => {
	await stage.close();
});

const PERSON = { ...CALLER, node: 'Work Ledger' };
const LANDED = { landed: true, externalRef: 'inv_7', result: { invoice: 7 } } as const;

type What = { landed: true; externalRef?: string; result?: unknown } | { landed: false };

async function resolve(item: { workId: string }, what: What): Promise<HoldAnswer> {
	return (await stage.ledger.admin.resolve([item.workId], what, PERSON))[0];
}

/** Work whose outcome a person may decide. */
async function undecided(state: 'held' | 'dead' | 'failed'): Promise<ClaimItem> {
	const item = await stage.claimed(
		{ ...newWork(), payload: '{"order":1}' },
		state === 'held' ? { onLapse: 'hold' } : {},
	);
	await stage.fail(item, { landed: 'unknown', permanent: state === 'dead' });
	expect(await stage.row(item)).toMatchObject({ state, outcome_known: false });
	return item;
}

describe.each(['held', 'dead', 'failed'] as const)('%s work of unknown outcome', (state) => {
	test('landed: done with reference and result, its token kept', async () => {
		const item = await undecided(state);
		expect(await resolve(item, LANDED)).toMatchObject({
			status: 'resolved',
			state: 'done',
			externalRef: 'inv_7',
			completedAt: expect.any(String),
			nextAttemptAt: null,
		});
		const row = await stage.row(item);
		expect(row).toMatchObject({
			state: 'done',
			token: item.token,
			result: { invoice: 7 },
			external_ref: 'inv_7',
			outcome_known: true,
			settled_by: 'person',
			payload: null,
		});
		expect(row.last_done_at).toEqual(row.completed_at);
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'duplicate',
			result: { invoice: 7 },
			externalRef: 'inv_7',
		});
		expect((await stage.log(item)).find(({ event }) => event === 'resolve')).toMatchObject({
			outcome: 'done',
			fired: { node: 'Work Ledger' },
			checked: { found: state },
			detail: { landed: true },
			external_ref: 'inv_7',
		});
	});

	test('landed: its owner that comes late with the same is fine, with other content differs', async () => {
		const item = await undecided(state);
		await resolve(item, LANDED);
		const before = await stage.row(item);
		expect(
			await stage.complete(item, { result: { invoice: 7 }, externalRef: 'inv_7' }),
		).toMatchObject({ status: 'completed', repeated: true, differs: [] });
		expect(
			await stage.complete(item, { result: { invoice: 8 }, externalRef: 'inv_8' }),
		).toMatchObject({
			status: 'completed',
			repeated: true,
			differs: ['result', 'external_ref'],
			result: { invoice: 7 },
			externalRef: 'inv_7',
		});
		expect(await stage.row(item)).toEqual(before);
		expect((await stage.log(item)).at(-1)).toMatchObject({
			outcome: 'refused',
			result: { invoice: 8 },
			external_ref: 'inv_8',
		});
	});

	test('landed, without a result: the owner that comes late fills it in', async () => {
		const item = await undecided(state);
		await resolve(item, { landed: true, externalRef: 'inv_7' });
		expect(
			await stage.complete(item, { result: { invoice: 7 }, externalRef: 'inv_7' }),
		).toMatchObject({ status: 'completed', late: true, differs: [] });
		expect(await stage.claim(again(item))).toMatchObject({ result: { invoice: 7 } });
	});

	test('did not land: due now, attempts reset, owner fenced, and nothing unknown is left', async () => {
		const item = await undecided(state);
		expect(await resolve(item, { landed: false })).toMatchObject({
			status: 'resolved',
			state: 'failed',
			attempt: 0,
			waitsForDelivery: false,
		});
		const row = await stage.row(item);
		expect(row).toMatchObject({ token: null, outcome_known: true, payload: { order: 1 } });
		expect(await stage.secondsUntil(row.next_attempt_at)).toBeLessThanOrEqual(0);
		expect(await stage.complete(item, { result: 7 })).toMatchObject({ status: 'not_owner' });
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'claimed',
			generation: 1,
			attempt: 1,
			previousOutcome: 'failed',
		});
		expect((await stage.log(item)).find(({ event }) => event === 'resolve')).toMatchObject({
			outcome: 'due',
			detail: { landed: false },
		});
	});

	test.each([
		[LANDED, 'it is done already'],
		[{ landed: false } as const, 'it failed and is known not to have landed'],
	])('resolved by two people at once is resolved once: %o', async (what, reason) => {
		const item = await undecided(state);
		await one.query('begin');
		await one.query(
			`select * from idempotency.resolve_works(array[$1::text], $2::boolean, 'inv_9', '9', '{}')`,
			[item.workId, what.landed],
		);
		const second = resolve(item, what);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({
			status: 'refused',
			reason: expect.stringContaining(reason),
		});
		const resolved = (await stage.history(item)).filter((entry) => entry.startsWith('resolve:'));
		expect(resolved).toHaveLength(1);
	});
});

describe('resolve', () => {
	test.each([
		['running', /it is running until/],
		['done', /it is done already/],
		['failed', /known not to have landed/],
	] as const)('refuses %s work and changes nothing', async (state, reason) => {
		const item = await stage.workThatIs(state);
		const before = await stage.row(item);
		for (const what of [{ landed: true } as const, { landed: false } as const]) {
			expect(await resolve(item, what)).toMatchObject({
				status: 'refused',
				reason: expect.stringMatching(reason),
			});
		}
		expect(await stage.row(item)).toEqual(before);
	});

	test('decides dead work even where its failure is known', async () => {
		const item = await stage.workThatIs('dead');
		expect(await resolve(item, LANDED)).toMatchObject({ status: 'resolved', state: 'done' });
	});

	test('did not land without a stored payload: it waits for its next delivery', async () => {
		const item = await stage.workThatIs('held');
		expect(await resolve(item, { landed: false })).toMatchObject({ waitsForDelivery: true });
	});

	test('of work the ledger does not hold says so', async () => {
		const item = newWork();
		expect(await resolve(item, LANDED)).toMatchObject({ status: 'not_owner', state: null });
		expect(await stage.log(item)).toEqual([]);
	});

	test('landed neither true nor false is an error, not a guess', async () => {
		const item = await stage.workThatIs('held');
		await expect(
			stage.query(`select * from idempotency.resolve_works(array[$1], null, null, null, '{}')`, [
				item.workId,
			]),
		).rejects.toThrow('landed must be true or false');
	});

	test('keeps a hostile result and reference byte for byte', async () => {
		const item = await stage.workThatIs('held');
		const result = { text: `a\u0000b 'quoted' $1 \\ " 💥`, list: [null, 1.5] };
		await resolve(item, { landed: true, externalRef: `o'Brien "$1"`, result });
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'duplicate',
			result,
			externalRef: `o'Brien "$1"`,
		});
	});

	test('a reference that PostgreSQL cannot hold is bad input, and nothing changed', async () => {
		const item = await stage.workThatIs('held');
		await expect(resolve(item, { landed: true, externalRef: 'a\u0000b' })).rejects.toMatchObject({
			name: 'LedgerError',
			code: 'bad_input',
		});
		expect(await stage.row(item)).toMatchObject({ state: 'held' });
	});

	test('the stub of dead work that landed after all holds its result again', async () => {
		const item = await stage.workThatIs('dead');
		await stage.ledger.admin.purge({ states: ['dead'], olderThanSeconds: 0, atMost: 1000 });
		await resolve(item, LANDED);
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'duplicate',
			result: { invoice: 7 },
			resultPurged: false,
		});
		expect(
			await stage.complete(item, { result: { invoice: 7 }, externalRef: 'inv_7' }),
		).toMatchObject({ repeated: true, differs: [] });
	});
});

describe('forget a test run', () => {
	const manual = from({ mode: 'manual' });

	async function forget(item: { workId: string }): Promise<HoldAnswer> {
		return (await stage.ledger.admin.forgetTestRuns([item.workId], PERSON))[0];
	}

	test('forgets work whose every attempt was manual; its history stays, and it can run again', async () => {
		const item = await stage.claimed(newWork(), manual);
		await stage.fail(item);
		await stage.becomeDue(item);
		const second = await stage.claimed(again(item), manual);
		await stage.complete(second, { result: { invoice: 7 }, externalRef: 'inv_7' });
		expect(await forget(item)).toMatchObject({
			status: 'forgotten',
			state: null,
			key: item.key,
			kind: 'invoice',
		});
		expect(await stage.findRow(item)).toBeNull();
		expect((await stage.log(item)).at(-1)).toMatchObject({
			event: 'forget',
			outcome: 'forgotten',
			fired: { node: 'Work Ledger' },
			result: { invoice: 7 },
			external_ref: 'inv_7',
		});
		expect(await stage.claim(again(item))).toMatchObject({ status: 'claimed', attempt: 1 });
	});

	test.each(['failed', 'dead', 'held', 'lapsed'] as const)('forgets %s work', async (state) => {
		const item = await stage.workThatIs(state, manual);
		expect(await forget(item)).toMatchObject({ status: 'forgotten' });
	});

	test.each([
		['first', 'webhook', 'manual'],
		['last', 'manual', 'webhook'],
	])('refuses where the %s attempt was in production', async (_, first, second) => {
		const item = await stage.claimed(newWork(), from({ mode: first }));
		await stage.fail(item);
		await stage.becomeDue(item);
		await stage.complete(await stage.claimed(again(item), from({ mode: second })));
		const before = await stage.row(item);
		expect(await forget(item)).toMatchObject({
			status: 'refused',
			reason: expect.stringContaining('not every attempt was a manual one'),
		});
		expect(await stage.row(item)).toEqual(before);
	});

	test('refuses where an earlier generation was real business', async () => {
		const item = await stage.workThatIs('done', from({ mode: 'trigger' }));
		const window = { mode: 'while_running' } as const;
		const next = await stage.claimed(again(item), from({ mode: 'manual' }, { window }));
		await stage.complete(next);
		expect(await forget(item)).toMatchObject({ status: 'refused' });
	});

	test('refuses a claim that does not say its mode', async () => {
		const item = newWork();
		await stage.works.claim([item], { ...POLICY, caller: {} });
		await stage.complete(item);
		expect(await forget(item)).toMatchObject({ status: 'refused' });
	});

	test('refuses where retention took the first claim out of the log: nobody can tell any more', async () => {
		const item = await stage.claimed(newWork(), from({ mode: 'webhook' }));
		await stage.fail(item);
		await stage.query(
			`update idempotency.decision_log set at = at - interval '1 year' where work_id = $1`,
			[item.workId],
		);
		await stage.ledger.admin.purgeDecisions(86_400 * 30, 1_000_000);
		await stage.becomeDue(item);
		await stage.complete(await stage.claimed(again(item), manual));
		expect(await forget(item)).toMatchObject({
			status: 'refused',
			reason: expect.stringContaining('no longer in the decision log'),
		});
	});

	test('refuses where that claim was purged and a replay made the manual one attempt 1 again', async () => {
		const item = await stage.claimed(newWork(), from({ mode: 'webhook' }));
		await stage.fail(item, { permanent: true });
		await stage.query(
			`update idempotency.decision_log set at = at - interval '1 year' where work_id = $1`,
			[item.workId],
		);
		await stage.ledger.admin.purgeDecisions(86_400 * 30, 1_000_000);
		await stage.ledger.admin.replay([item.workId]);
		const retried = await stage.claimed(again(item), manual);
		expect((await stage.row(retried)).attempt).toBe(1);
		await stage.complete(retried);
		expect(await forget(item)).toMatchObject({ status: 'refused' });
	});

	test('refuses under a live lease', async () => {
		const item = await stage.workThatIs('running', manual);
		expect(await forget(item)).toMatchObject({
			status: 'refused',
			reason: expect.stringContaining('running until'),
		});
		expect(await stage.complete(item)).toMatchObject({ status: 'completed' });
	});

	test('that the ledger does not hold, or forgot already, is said so', async () => {
		expect(await forget(newWork())).toMatchObject({ status: 'not_owner', state: null });
		const item = await stage.workThatIs('done', manual);
		await forget(item);
		expect(await forget(item)).toMatchObject({ status: 'not_owner', state: null });
	});

	test('fences: the completion that comes after it is not the owner', async () => {
		const item = await stage.workThatIs('lapsed', manual);
		await forget(item);
		expect(await stage.complete(item)).toMatchObject({ status: 'not_owner', state: null });
	});
});

describe('release by force', () => {
	async function releaseByForce(item: { workId: string }): Promise<HoldAnswer> {
		return (await stage.ledger.admin.releaseByForce([item.workId], PERSON))[0];
	}

	test('undoes a first claim without its token, and fences its owner', async () => {
		const item = await stage.workThatIs('running');
		expect(await releaseByForce(item)).toMatchObject({
			status: 'released',
			state: null,
			key: item.key,
		});
		expect(await stage.findRow(item)).toBeNull();
		expect(await stage.complete(item, { result: 7 })).toMatchObject({ status: 'not_owner' });
		expect((await stage.log(item)).find(({ event }) => event === 'release')).toMatchObject({
			outcome: 'released',
			fired: { node: 'Work Ledger' },
			detail: { force: true, now: 'no work' },
		});
		expect(await stage.claim(again(item))).toMatchObject({ status: 'claimed', attempt: 1 });
		expect(await stage.complete(item, { result: 7 })).toMatchObject({ status: 'not_owner' });
	});

	test('gives a retry back as it was: failed, attempt less one', async () => {
		const item = await stage.workThatIs('failed');
		await stage.becomeDue(item);
		const before = await stage.row(item);
		const next = await stage.claimed(again(item), from({ execution: '101' }));
		expect(await releaseByForce(item)).toMatchObject({ status: 'released', state: 'failed' });
		expect({ ...(await stage.row(item)), updated_at: null }).toEqual({
			...before,
			updated_at: null,
		});
		expect(await stage.complete(next)).toMatchObject({ status: 'not_owner' });
	});

	test('is refused once a reference is recorded: the effect landed', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_7');
		expect(await releaseByForce(item)).toMatchObject({
			status: 'refused',
			state: 'running',
			reason: expect.stringContaining('inv_7'),
		});
		expect(await stage.complete(item)).toMatchObject({ status: 'completed' });
	});

	test.each(['failed', 'dead', 'held', 'done'] as const)(
		'is refused for %s work',
		async (state) => {
			const item = await stage.workThatIs(state);
			const before = await stage.row(item);
			expect(await releaseByForce(item)).toMatchObject({
				status: 'refused',
				reason: `the work is ${state}: only running work can be released`,
			});
			expect(await stage.row(item)).toEqual(before);
		},
	);

	test('is refused for replayed work that nobody claimed yet, in words that speak of no other owner', async () => {
		const item = await stage.workThatIs('dead');
		await stage.ledger.admin.replay([item.workId]);
		expect(await releaseByForce(item)).toMatchObject({
			status: 'refused',
			reason: 'the work is failed: only running work can be released',
		});
	});

	test('of unknown work says so and leaves no history; its repetition too', async () => {
		const item = newWork();
		expect(await releaseByForce(item)).toMatchObject({ status: 'not_owner', state: null });
		expect(await stage.log(item)).toEqual([]);
		const running = await stage.workThatIs('running');
		await releaseByForce(running);
		expect(await releaseByForce(running)).toMatchObject({ status: 'not_owner', state: null });
	});

	test('against a completion in the same moment finds it done', async () => {
		const item = await stage.workThatIs('running');
		await one.query('begin');
		await one.query(`select * from idempotency.complete_work($1, $2, '7', null, '{}')`, [
			item.workId,
			item.token,
		]);
		const release = releaseByForce(item);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await release).toMatchObject({ status: 'refused', state: 'done' });
	});
});
