import type { Client } from 'pg';

import type { ClaimPolicy } from '../../ledger/contract';
import { again, CALLER, from, newWork, Stage, type WorkRow } from './stage';

let stage: Stage;
let one: Client;
beforeAll(async () => {
	stage = await Stage.open();
	one = await stage.connect();
});
afterAll(async () => {
	await stage.close();
});

/** What the sweep made of one work; undefined where it passed over it. */
async function sweep(item: { workId: string }, limit = 1000): Promise<string | undefined> {
	const swept = await stage.ledger.admin.sweep(limit, CALLER);
	const of = swept.filter(({ workId }) => workId === item.workId);
	expect(of.length).toBeLessThanOrEqual(1);
	return of[0]?.state;
}

describe('the sweep settles a lapsed lease by the policy stored at claim', () => {
	test('run again, attempts left: failed, due at once, outcome unknown, payload and token kept', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"order":1}' });
		await stage.elapse(item);
		expect(await sweep(item)).toBe('failed');
		const row = await stage.row(item);
		expect(row).toMatchObject({
			state: 'failed',
			attempt: 1,
			token: item.token,
			locked_until: null,
			payload: { order: 1 },
			outcome_known: false,
			settled_by: 'lapse',
			last_error: expect.stringContaining('lease lapsed'),
		});
		expect(await stage.secondsUntil(row.next_attempt_at)).toBeLessThanOrEqual(0);
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'claimed',
			attempt: 2,
			previousOutcome: 'unknown',
		});
	});

	test('hold: held', async () => {
		const item = await stage.workThatIs('lapsed', { onLapse: 'hold', maxAttempts: 1 });
		expect(await sweep(item)).toBe('held');
		expect(await stage.row(item)).toMatchObject({ state: 'held', outcome_known: false });
		expect(await stage.claim(again(item))).toMatchObject({ status: 'held' });
	});

	test('no attempts left: dead, and dead once', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"order":2}' }, { maxAttempts: 1 });
		await stage.elapse(item);
		expect(await sweep(item)).toBe('dead');
		expect(await sweep(item)).toBeUndefined();
		await stage.claim(again(item));
		expect(await stage.row(item)).toMatchObject({
			state: 'dead',
			attempt: 1,
			outcome_known: false,
			payload: { order: 2 },
			last_error: expect.stringContaining('attempt 1 of 1'),
		});
		expect(await stage.history(item)).toEqual(['claim: claimed', 'sweep: dead', 'claim: dead']);
	});

	test.each(['run_again', 'hold'] as const)(
		'a recorded reference: done by it, under %s and without attempts left',
		async (onLapse) => {
			const item = await stage.claimed(
				{ ...newWork(), payload: '{"order":3}' },
				{ onLapse, maxAttempts: 1 },
			);
			await stage.record(item, 'inv_7');
			await stage.elapse(item);
			expect(await sweep(item)).toBe('done');
			const row = await stage.row(item);
			expect(row).toMatchObject({
				state: 'done',
				external_ref: 'inv_7',
				settled_by: 'reference',
				outcome_known: true,
				payload: null,
				token: item.token,
			});
			expect(row.last_done_at).toEqual(row.completed_at);
			expect(await stage.claim(again(item))).toMatchObject({
				status: 'duplicate',
				externalRef: 'inv_7',
			});
		},
	);

	test('and says in the decision log who swept and what was found', async () => {
		const item = await stage.workThatIs('lapsed');
		await stage.ledger.admin.sweep(1000, { ...CALLER, node: 'Work Ledger Trigger' });
		expect((await stage.log(item)).at(-1)).toMatchObject({
			event: 'sweep',
			outcome: 'failed',
			fired: { node: 'Work Ledger Trigger' },
			checked: { found: 'running', owner: '100' },
		});
	});
});

describe('the sweep leaves alone', () => {
	test('live leases and settled works', async () => {
		const items = [
			await stage.workThatIs('running'),
			await stage.workThatIs('failed'),
			await stage.workThatIs('dead'),
			await stage.workThatIs('held'),
			await stage.workThatIs('done'),
		];
		const before = await Promise.all(items.map(async (item) => await stage.row(item)));
		for (const item of items) expect(await sweep(item)).toBeUndefined();
		expect(await Promise.all(items.map(async (item) => await stage.row(item)))).toEqual(before);
	});

	test('a lease that was extended after its end', async () => {
		const item = await stage.workThatIs('lapsed');
		expect(await stage.extend(item)).toMatchObject({ status: 'extended' });
		expect(await sweep(item)).toBeUndefined();
	});

	test('a row that somebody else is at, without waiting for it; the next sweep has it', async () => {
		const busy = await stage.workThatIs('lapsed');
		const free = await stage.workThatIs('lapsed');
		await one.query('begin');
		await one.query('select 1 from idempotency.work_log where work_id = $1 for update', [
			busy.workId,
		]);
		const swept = await stage.ledger.admin.sweep(1000, CALLER);
		expect(swept.map(({ workId }) => workId)).toEqual([free.workId]);
		await one.query('commit');
		expect(await sweep(busy)).toBe('failed');
	});

	test('more works than its limit; those that lapsed first come first', async () => {
		await stage.ledger.admin.sweep(5000);
		const [older, newer] = [await stage.workThatIs('lapsed'), await stage.workThatIs('lapsed')];
		await stage.age(older, 60);
		expect(await stage.ledger.admin.sweep(1)).toEqual([{ workId: older.workId, state: 'failed' }]);
		expect(await stage.ledger.admin.sweep(1)).toEqual([{ workId: newer.workId, state: 'failed' }]);
		expect(await stage.ledger.admin.sweep(-1)).toEqual([]);
	});
});

describe('two sweeps in the same moment', () => {
	test('settle a lapse once', async () => {
		const item = await stage.workThatIs('lapsed');
		await one.query('begin');
		await one.query(`select * from idempotency.sweep_works(1000, '{}')`);
		expect(await sweep(item)).toBeUndefined();
		await one.query('commit');
		expect(await sweep(item)).toBeUndefined();
		expect(await stage.history(item)).toEqual(['claim: claimed', 'sweep: failed']);
	});

	test('a claim that waits for the sweep takes the work over as the next attempt', async () => {
		const item = await stage.workThatIs('lapsed');
		await one.query('begin');
		await one.query(`select * from idempotency.sweep_works(1000, '{}')`);
		const claim = stage.claim(again(item));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await claim).toMatchObject({
			status: 'claimed',
			attempt: 2,
			previousOutcome: 'unknown',
		});
	});

	test('a completion that waits for the sweep is the late completion of its owner', async () => {
		const item = await stage.workThatIs('lapsed');
		await one.query('begin');
		await one.query(`select * from idempotency.sweep_works(1000, '{}')`);
		const completion = stage.complete(item, { result: { invoice: 7 } });
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await completion).toMatchObject({ status: 'completed', state: 'done', late: true });
	});
});

describe('the sweep agrees with the claim that would have met the lapse', () => {
	/** All that the decision is about; not whose work it is, nor when. */
	function decided(row: WorkRow): Partial<WorkRow> {
		const { state, generation, attempt, last_error, outcome_known, payload, external_ref } = row;
		return { state, generation, attempt, last_error, outcome_known, payload, external_ref };
	}

	test.each<[string, Partial<ClaimPolicy>, string | null]>([
		['run again', {}, null],
		['hold', { onLapse: 'hold' }, null],
		['no attempts left', { maxAttempts: 1 }, null],
		['hold without attempts left', { onLapse: 'hold', maxAttempts: 1 }, null],
		['a reference', {}, 'inv_1'],
		['a reference under hold', { onLapse: 'hold' }, 'inv_2'],
	])('%s', async (_, policy, reference) => {
		const lapse = async () => {
			const item = await stage.claimed({ ...newWork(), payload: '{"order":1}' }, policy);
			if (reference !== null) await stage.record(item, reference);
			await stage.elapse(item);
			return item;
		};
		const swept = await lapse();
		expect(await sweep(swept)).toBeDefined();
		const met = await lapse();
		const answers = [await stage.claim(again(swept)), await stage.claim(again(met))];
		const told = answers.map(({ status, attempt, previousOutcome, lastError, externalRef }) => ({
			status,
			attempt,
			previousOutcome,
			lastError,
			externalRef,
		}));
		expect(told[0]).toEqual(told[1]);
		expect(decided(await stage.row(swept))).toEqual(decided(await stage.row(met)));
	});
});

describe('the owner that comes late to swept work', () => {
	test.each([
		['failed', {}],
		['held', { onLapse: 'hold' }],
		['dead', { maxAttempts: 1 }],
	] as Array<[string, Partial<ClaimPolicy>]>)(
		'completes it, late, from %s',
		async (state, policy) => {
			const item = await stage.workThatIs('lapsed', policy);
			expect(await sweep(item)).toBe(state);
			expect(await stage.complete(item, { result: 7, externalRef: 'inv_7' })).toMatchObject({
				status: 'completed',
				state: 'done',
				late: true,
			});
		},
	);

	test('fills in the result where a reference had settled it; another reference is reported', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_7');
		await stage.elapse(item);
		expect(await sweep(item)).toBe('done');
		expect(await stage.complete(item, { result: 7, externalRef: 'inv_8' })).toMatchObject({
			status: 'completed',
			late: true,
			differs: ['external_ref'],
			externalRef: 'inv_7',
		});
		expect(await stage.row(item)).toMatchObject({ result: 7, external_ref: 'inv_7' });
	});

	test('is not the owner once the work was claimed again', async () => {
		const item = await stage.workThatIs('lapsed');
		await sweep(item);
		await stage.claimed(again(item), from({ execution: '101' }));
		expect(await stage.complete(item, { result: 7 })).toMatchObject({ status: 'not_owner' });
		expect((await stage.log(item)).at(-1)).toMatchObject({ outcome: 'not_owner', result: 7 });
	});
});

test('poison work that kills its process: five claims, then dead once, and a replay is possible (case 121)', async () => {
	const item = { ...newWork(), payload: '{"order":13}' };
	const states: Array<string | undefined> = [];
	for (let restart = 0; restart < 10; restart++) {
		const { status } = await stage.claim(again(item), { maxAttempts: 5 });
		if (status === 'claimed') await stage.elapse(item);
		states.push(await sweep(item));
	}
	expect(states).toEqual([
		...Array<string>(4).fill('failed'),
		'dead',
		...Array<undefined>(5).fill(undefined),
	]);
	expect(await stage.row(item)).toMatchObject({
		state: 'dead',
		attempt: 5,
		payload: { order: 13 },
		last_error: expect.stringContaining('attempt 5 of 5'),
	});
	const history = await stage.history(item);
	expect(history.filter((entry) => entry === 'sweep: dead')).toHaveLength(1);
	const [replayed] = await stage.ledger.admin.replay([item.workId], {}, CALLER);
	expect(replayed).toMatchObject({ status: 'replayed', attempt: 0, waitsForDelivery: false });
	expect(await stage.claim(again(item))).toMatchObject({ status: 'claimed', attempt: 1 });
});
