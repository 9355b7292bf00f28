import type { Client } from 'pg';

import type { Purge } from '../../ledger';
import { again, CALLER, from, newWork, sortedWorks, Stage } from './stage';

let stage: Stage;
let one: Client;
beforeAll(async () => {
	stage = await Stage.open();
	one = await stage.connect();
});
// what is purged, listed and counted is the whole ledger
beforeEach(async () => {
	await stage.query('truncate idempotency.work_log, idempotency.decision_log');
});
afterAll(async () => {
	await stage.close();
});

const HOUR = 3600;
const FOREVER = { window: { mode: 'forever' } } as const;

async function purge(what: Partial<Purge> = {}): Promise<number> {
	return await stage.ledger.admin.purge(
		{ states: ['done'], olderThanSeconds: HOUR, atMost: 1_000_000, ...what },
		{ ...CALLER, node: 'Work Ledger' },
	);
}

/** Work in this state, last changed two hours ago. */
async function old(...given: Parameters<Stage['workThatIs']>) {
	const item = await stage.workThatIs(...given);
	await stage.age(item, 2 * HOUR);
	return item;
}

describe('what is purged', () => {
	test.each([true, false])(
		'done and by choice dead only; running, lapsed, failed and held never (case 124, stub: %s)',
		async (keepStub) => {
			const running = await old('running');
			await stage.extend(running);
			await stage.age(running, 2 * HOUR);
			await stage.query(
				`update idempotency.work_log set locked_until = clock_timestamp() + interval '1 h' where work_id = $1`,
				[running.workId],
			);
			const kept = [running, await old('lapsed'), await old('failed'), await old('held')];
			const dead = await old('dead');
			const done = await old('done');
			// with it, the old one is not its kind's newest success
			const young = await stage.workThatIs('done');
			const before = await Promise.all(kept.map(async (item) => await stage.row(item)));

			expect(await purge({ keepStub })).toBe(1);
			expect(await stage.row(dead)).toMatchObject({ state: 'dead', stub: false });
			expect(await stage.findRow(done)).toEqual(
				keepStub ? expect.objectContaining({ state: 'done', stub: true }) : null,
			);
			expect(await purge({ keepStub, states: ['done', 'dead'] })).toBe(1);
			expect(await stage.findRow(dead)).toEqual(
				keepStub ? expect.objectContaining({ state: 'dead', stub: true }) : null,
			);
			expect(await Promise.all(kept.map(async (item) => await stage.row(item)))).toEqual(before);
			expect(await stage.row(young)).toMatchObject({ stub: false, result: { invoice: 7 } });
			expect(await stage.complete(running)).toMatchObject({ status: 'completed' });
		},
	);

	test('only what is older than the age asked for', async () => {
		const item = await stage.workThatIs('done');
		await stage.age(item, HOUR - 60);
		expect(await purge()).toBe(0);
		await stage.age(item, 120);
		expect(await purge()).toBe(1);
	});

	test('keeps what "forever" needs where a caller leaves that open', async () => {
		const item = await old('done');
		await stage.query(`select idempotency.purge_works('{done}', 0, 10, null, '{}')`);
		expect(await stage.row(item)).toMatchObject({ state: 'done', stub: true });
	});

	test('says in the decision log who purged it, and the history before it stays', async () => {
		const item = await old('done');
		await purge();
		expect(await stage.history(item)).toEqual([
			'claim: claimed',
			'complete: completed',
			'purge: stub',
		]);
		expect((await stage.log(item)).at(-1)).toMatchObject({ fired: { node: 'Work Ledger' } });
	});

	test.each([
		['a state that is never purged', ['done', 'running'], HOUR, 10, /states must be done, dead/],
		['no state', [], HOUR, 10, /states must be done, dead/],
		['a negative age', ['done'], -1, 10, /older_than_s must be/],
		['no number', ['done'], 'NaN', 10, /older_than_s must be/],
		['no age', ['done'], null, 10, /older_than_s must be/],
		['an empty batch', ['done'], HOUR, 0, /batch must be/],
		['an endless batch', ['done'], HOUR, 1_000_000, /batch must be/],
	])('refuses %s, and nothing is changed', async (_, states, age, batch, words) => {
		const item = await old('done');
		await expect(
			stage.query(
				`select idempotency.purge_works($1::text[], $2::double precision, $3, true, '{}')`,
				[states, age, batch],
			),
		).rejects.toThrow(words);
		expect(await stage.row(item)).toMatchObject({ stub: false });
	});

	test('a negative age is bad input to the package, too', async () => {
		await expect(purge({ olderThanSeconds: -1 })).rejects.toMatchObject({
			name: 'LedgerError',
			code: 'bad_input',
		});
	});
});

describe('a stub', () => {
	test('keeps state, generation, attempt, token, reference, result hash and last_done_at; no data', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"a":1}', match: { a: 'digest' } });
		await stage.complete(item, { result: { invoice: 7 }, externalRef: 'inv_7' });
		await stage.age(item, 2 * HOUR);
		const before = await stage.row(item);
		expect(await purge()).toBe(1);
		expect(await stage.row(item)).toEqual({
			...before,
			stub: true,
			result: null,
			match: null,
			result_hash: expect.stringMatching(/^[0-9a-f]{64}$/),
		});
		expect(await purge()).toBe(0);
	});

	test('keeps "forever" true: a duplicate with its reference, whose result was purged', async () => {
		const item = await old('done');
		await purge();
		expect(await stage.claim(again(item), FOREVER)).toMatchObject({
			status: 'duplicate',
			resultPurged: true,
			result: null,
			externalRef: 'inv_7',
			completedAt: expect.any(String),
		});
	});

	test('outside the window is a new generation, and a release of that leaves the stub again', async () => {
		const item = await old('done');
		await purge();
		const stub = await stage.row(item);
		const window = { mode: 'duration', seconds: HOUR } as const;
		expect(
			await stage.claim(again(item), { window: { mode: 'duration', seconds: 3 * HOUR } }),
		).toMatchObject({ status: 'duplicate', resultPurged: true });
		const next = await stage.claimed(again(item), { window });
		expect(await stage.row(item)).toMatchObject({ generation: 2, attempt: 1, stub: false });
		expect(await stage.release(next)).toMatchObject({ status: 'released', state: 'done' });
		expect({ ...(await stage.row(item)), updated_at: null }).toEqual({ ...stub, updated_at: null });
		const last = await stage.claimed(again(item), { window });
		await stage.complete(last, { result: 8 });
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'duplicate',
			result: 8,
			resultPurged: false,
		});
	});

	test('of dead work stays dead', async () => {
		const item = await old('dead');
		await purge({ states: ['dead'] });
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'dead',
			lastError: 'no answer',
		});
	});

	test('of dead work can be replayed: it waits for its next delivery', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"order":1}' });
		await stage.fail(item, { permanent: true });
		await stage.age(item, 2 * HOUR);
		await purge({ states: ['dead'] });
		const [replayed] = await stage.ledger.admin.replay([item.workId]);
		expect(replayed).toMatchObject({ status: 'replayed', waitsForDelivery: true });
		const next = await stage.claimed(again(item));
		await stage.complete(next, { result: 7 });
		expect(await stage.claim(again(item))).toMatchObject({ result: 7, resultPurged: false });
	});

	test('recognises the same completion that comes late, by its hash; another one differs', async () => {
		const item = await old('done');
		await purge();
		const stub = await stage.row(item);
		const same = { result: { invoice: 7 }, externalRef: 'inv_7' };
		expect(await stage.complete(item, same)).toMatchObject({
			status: 'completed',
			repeated: true,
			differs: [],
		});
		expect(await stage.complete(item, { ...same, result: { invoice: 8 } })).toMatchObject({
			status: 'completed',
			repeated: true,
			differs: ['result'],
		});
		expect(await stage.row(item)).toEqual(stub);
	});

	test('of work done without a result knows that there was none', async () => {
		const item = await stage.claimed();
		await stage.complete(item);
		await stage.age(item, 2 * HOUR);
		await purge();
		expect(await stage.complete(item)).toMatchObject({ repeated: true, differs: [] });
		expect(await stage.complete(item, { result: 0 })).toMatchObject({ differs: ['result'] });
	});

	test('of dead work whose owner reports after all is done with its result', async () => {
		const item = await old('dead');
		await purge({ states: ['dead'] });
		expect(await stage.complete(item, { result: { invoice: 7 } })).toMatchObject({
			status: 'completed',
			late: true,
		});
		expect(await stage.complete(item, { result: { invoice: 7 } })).toMatchObject({ differs: [] });
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'duplicate',
			result: { invoice: 7 },
			resultPurged: false,
		});
	});

	test('run again on purpose is a new generation', async () => {
		const item = await old('done');
		await purge();
		const [replayed] = await stage.ledger.admin.replay([item.workId], { again: true });
		expect(replayed).toMatchObject({ status: 'replayed', generation: 2 });
		expect(await stage.claim(again(item))).toMatchObject({ status: 'claimed', generation: 2 });
	});

	test('still ends "until another kind succeeds"', async () => {
		const day = { mode: 'until_success', kind: 'import' } as const;
		const invoice = await stage.workThatIs('done');
		await stage.age(invoice, 3 * HOUR);
		await old('done', { kind: 'import' });
		await purge();
		expect(await stage.claim(again(invoice), { window: day })).toMatchObject({
			status: 'claimed',
			generation: 2,
		});
	});
});

describe('without stubs', () => {
	test('the rows go, and "forever" ends with them', async () => {
		const item = await old('done');
		await stage.workThatIs('done');
		expect(await purge({ keepStub: false })).toBe(1);
		expect(await stage.findRow(item)).toBeNull();
		expect(await stage.history(item)).toContain('purge: deleted');
		expect(await stage.complete(item)).toMatchObject({ status: 'not_owner', state: null });
		expect(await stage.claim(again(item))).toMatchObject({ status: 'claimed', generation: 1 });
	});

	test("each kind's newest success stays, so that until_success keeps its end", async () => {
		const invoice = await stage.workThatIs('done');
		await stage.age(invoice, 5 * HOUR);
		const earlier = await stage.workThatIs('done', { kind: 'import' });
		await stage.age(earlier, 4 * HOUR);
		const newest = await stage.workThatIs('done', { kind: 'import' });
		await stage.age(newest, 3 * HOUR);
		expect(await purge({ keepStub: false })).toBe(1);
		expect(await stage.findRow(earlier)).toBeNull();
		expect(await stage.row(newest)).toMatchObject({ state: 'done' });
		expect(await stage.row(invoice)).toMatchObject({ state: 'done' });
		expect(await purge({ keepStub: false })).toBe(0);
		const window = { mode: 'until_success', kind: 'import' } as const;
		expect(await stage.claim(again(invoice), { window })).toMatchObject({ status: 'claimed' });
	});

	test('stubs of an earlier purge go, too', async () => {
		const item = await old('done');
		await stage.workThatIs('done');
		await purge();
		expect(await purge({ keepStub: false })).toBe(1);
		expect(await stage.findRow(item)).toBeNull();
	});
});

describe.each([true, false])('batches (stub: %s)', (keepStub) => {
	test('a batch takes no more than it was told, and the purge no more than it was asked', async () => {
		const items = sortedWorks(7);
		await stage.works.claim(items, from({}));
		await stage.works.complete(items);
		for (const item of items) await stage.age(item, 2 * HOUR);
		await stage.workThatIs('done');
		const [{ count }] = await stage.query(
			`select idempotency.purge_works('{done}', 3600, 3, $1, '{}') as count`,
			[keepStub],
		);
		expect(count).toBe(3);
		expect(await purge({ keepStub, atMost: 2 })).toBe(2);
		expect(await purge({ keepStub })).toBe(2);
		expect(await purge({ keepStub })).toBe(0);
	});

	test('a row that somebody else is at is passed over, without waiting', async () => {
		const [busy, free] = [await old('done'), await old('done')];
		await stage.workThatIs('done');
		await one.query('begin');
		await one.query('select 1 from idempotency.work_log where work_id = $1 for update', [
			busy.workId,
		]);
		expect(await purge({ keepStub })).toBe(1);
		expect(await stage.row(busy)).toMatchObject({ stub: false, result: { invoice: 7 } });
		expect(await stage.history(free)).toContain(keepStub ? 'purge: stub' : 'purge: deleted');
		await one.query('commit');
		expect(await purge({ keepStub })).toBe(1);
	});

	test('a claim that waits for the purge is answered by what it left', async () => {
		const item = await old('done');
		await stage.workThatIs('done');
		await one.query('begin');
		await one.query(`select idempotency.purge_works('{done}', 3600, 10, $1, '{}')`, [keepStub]);
		// a renewal takes the row's lock; under "forever" nothing would wait
		const claim = stage.claim(again(item), { window: { mode: 'duration', seconds: HOUR } });
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await claim).toMatchObject({ status: 'claimed', generation: keepStub ? 2 : 1 });
	});

	test('work that runs anew is not purged, however old its last success', async () => {
		const item = await old('done');
		await stage.workThatIs('done');
		const next = await stage.claimed(again(item), { window: { mode: 'while_running' } });
		expect(await purge({ keepStub, states: ['done', 'dead'], olderThanSeconds: 0 })).toBe(
			keepStub ? 1 : 0,
		);
		expect(await stage.complete(next)).toMatchObject({ status: 'completed' });
	});
});

describe('retention of the decision log', () => {
	test('is apart from that of works: only old rows go, works stay, claims go on', async () => {
		const item = await stage.workThatIs('done');
		const row = await stage.row(item);
		await stage.query(
			`update idempotency.decision_log set at = at - interval '2 h' where work_id = $1 and event = 'claim'`,
			[item.workId],
		);
		expect(await stage.ledger.admin.purgeDecisions(HOUR, 1000)).toBe(1);
		expect(await stage.history(item)).toEqual(['complete: completed']);
		expect(await stage.row(item)).toEqual(row);
		expect(await stage.claim(again(item))).toMatchObject({ status: 'duplicate' });
	});

	test('goes in batches and takes no more than it was asked', async () => {
		for (let count = 0; count < 5; count++) await stage.claimed();
		await stage.query(`update idempotency.decision_log set at = at - interval '2 h'`);
		const [{ count }] = await stage.query('select idempotency.purge_decisions(3600, 2) as count');
		expect(count).toBe(2);
		expect(await stage.ledger.admin.purgeDecisions(HOUR, 1)).toBe(1);
		expect(await stage.ledger.admin.purgeDecisions(HOUR, 1000)).toBe(2);
		expect(await stage.ledger.admin.purgeDecisions(HOUR, 1000)).toBe(0);
	});

	test('refuses a negative age and an empty batch', async () => {
		await expect(stage.ledger.admin.purgeDecisions(-1, 10)).rejects.toMatchObject({
			code: 'bad_input',
		});
		await expect(stage.query('select idempotency.purge_decisions(3600, 0)')).rejects.toThrow(
			'batch must be',
		);
	});
});
