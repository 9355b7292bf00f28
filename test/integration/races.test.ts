import type { Client, QueryResult } from 'pg';

import { createLedger, LedgerError } from '../../ledger';
import type { ClaimAnswer, ClaimItem } from '../../ledger/contract';
import { startTogether } from './processes';
import { again, CALLER, from, newWork, POLICY, sortedWorks, Stage } from './stage';

let stage: Stage;
let one: Client;
let two: Client;
beforeAll(async () => {
	stage = await Stage.open({ maxConnections: 8 });
	[one, two] = [await stage.connect(), await stage.connect()];
});
afterAll(async () => {
	await stage.close();
});

const OPTIONS = JSON.stringify({
	kind: 'invoice',
	caller: { instance: 'instance-1', execution: '100' },
});

// Plain statements on a connection of the test: nothing is retried, so a deadlock would show.

async function claimOn(client: Client, items: ClaimItem[]): Promise<QueryResult> {
	return await client.query(
		'select * from idempotency.claim_works($1::text[], $2::text[], $3::uuid[], null, null, $4)',
		[items.map((i) => i.workId), items.map((i) => i.key), items.map((i) => i.token), OPTIONS],
	);
}

async function completeOn(client: Client, items: ClaimItem[]): Promise<QueryResult> {
	return await client.query(
		'select * from idempotency.complete_works($1::text[], $2::uuid[], null, null, $3)',
		[items.map((i) => i.workId), items.map((i) => i.token), '{}'],
	);
}

function statuses(answers: ClaimAnswer[]): string[] {
	return answers.map(({ status }) => status);
}

describe('two claims in the same moment', () => {
	test('the second waits for the insert of the first, then meets it running (S6)', async () => {
		const item = newWork();
		await one.query('begin');
		await claimOn(one, [item]);
		const second = stage.claim(again(item), from({ execution: '101' }));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ status: 'in_progress', owner: { execution: '100' } });
		expect(await stage.row(item)).toMatchObject({ attempt: 1, token: item.token });
	});

	test('the second gets the work when the first rolls back, with a lease that counts from then', async () => {
		const item = newWork();
		await one.query('begin');
		await claimOn(one, [item]);
		const next = again(item);
		const second = stage.claim(next, { leaseSeconds: 2 });
		await stage.untilWaiting(1);
		await stage.query('select pg_sleep(0.5)');
		await one.query('rollback');
		const answer = await second;
		expect(answer).toMatchObject({ status: 'claimed', attempt: 1, token: next.token });
		expect(await stage.secondsUntil(answer.lockedUntil)).toBeGreaterThan(1.6);
		expect(new Date((await stage.row(next)).locked_until as Date).toISOString()).toBe(
			answer.lockedUntil,
		);
	});

	test('of a batch, too, the lease counts from the lock when it had to wait', async () => {
		const [a, b] = sortedWorks(2);
		await one.query('begin');
		await claimOn(one, [b]);
		const second = stage.works.claim([again(a), again(b)], { ...POLICY, leaseSeconds: 3 });
		await stage.untilWaiting(1);
		await stage.query('select pg_sleep(1.1)');
		await one.query('rollback');
		for (const answer of await second) {
			expect(answer.status).toBe('claimed');
			expect(await stage.secondsUntil(answer.lockedUntil)).toBeGreaterThan(2.5);
		}
	});

	test('of lapsed work: one takes over, the other meets the new owner', async () => {
		const item = await stage.workThatIs('lapsed');
		const next = again(item);
		await one.query('begin');
		await claimOn(one, [next]);
		const second = stage.claim(again(item));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ status: 'in_progress', attempt: 2 });
		expect(await stage.row(item)).toMatchObject({ attempt: 2, token: next.token });
	});

	test('of failed, due work: one attempt is counted, not two', async () => {
		const item = await stage.workThatIs('failed');
		await stage.becomeDue(item);
		await one.query('begin');
		await claimOn(one, [again(item)]);
		const second = stage.claim(again(item));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ status: 'in_progress', attempt: 2 });
	});

	test('of work outside its window: one new generation, not two', async () => {
		const item = await stage.workThatIs('done');
		const window = { mode: 'duration', seconds: 60 } as const;
		await stage.age(item, 3600);
		await one.query('begin');
		await one.query('select 1 from idempotency.work_log where work_id = $1 for update', [
			item.workId,
		]);
		const both = Promise.all([
			stage.claim(again(item), { window }),
			stage.claim(again(item), { window }),
		]);
		await stage.untilWaiting(2);
		await one.query('commit');
		expect(statuses(await both).sort()).toEqual(['claimed', 'in_progress']);
		expect(await stage.row(item)).toMatchObject({ generation: 2, attempt: 1 });
	});

	test('one settles a lapse as held: the other sees held, and it was settled once', async () => {
		const item = await stage.workThatIs('lapsed', { onLapse: 'hold' });
		await one.query('begin');
		await one.query('select 1 from idempotency.work_log where work_id = $1 for update', [
			item.workId,
		]);
		const both = Promise.all([stage.claim(again(item)), stage.claim(again(item))]);
		await stage.untilWaiting(2);
		await one.query('commit');
		expect(statuses(await both)).toEqual(['held', 'held']);
		expect(
			(await stage.log(item)).filter(({ detail }) => detail?.how === 'lapse_held'),
		).toHaveLength(1);
	});

	test('the same token twice, its resend while the first is still open: one claim, one log row', async () => {
		const item = newWork();
		await one.query('begin');
		await claimOn(one, [item]);
		const resent = stage.claim(item);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await resent).toMatchObject({ status: 'claimed', token: item.token, attempt: 1 });
		expect(await stage.history(item)).toEqual(['claim: claimed']);
	});
});

describe('a claim against its owner', () => {
	test('completes while a claim waits at the lapsed lease: the claim is a duplicate', async () => {
		const item = await stage.workThatIs('lapsed');
		await one.query('begin');
		await completeOn(one, [item]);
		const claim = stage.claim(again(item));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await claim).toMatchObject({ status: 'duplicate', attempt: 1 });
		expect(await stage.row(item)).toMatchObject({ state: 'done', attempt: 1 });
	});

	test('takes over while the completion waits: the old owner is not the owner, alone or in a batch', async () => {
		for (const count of [1, 3]) {
			const items: ClaimItem[] = [];
			for (let i = 0; i < count; i++) items.push(await stage.workThatIs('lapsed'));
			await one.query('begin');
			await claimOn(
				one,
				items.map((item) => again(item)),
			);
			const completion = stage.works.complete(
				items.map((item) => ({ ...item, result: 'stale' })),
				CALLER,
			);
			await stage.untilWaiting(1);
			await one.query('commit');
			expect((await completion).map(({ status }) => status)).toEqual(
				Array<string>(count).fill('not_owner'),
			);
			for (const item of items) {
				expect(await stage.row(item)).toMatchObject({ state: 'running', attempt: 2, result: null });
			}
		}
	});

	test('waits while the owner extends: it is in progress again', async () => {
		const item = await stage.workThatIs('lapsed');
		await one.query('begin');
		await one.query('select * from idempotency.extend_lease($1, $2, 600, null)', [
			item.workId,
			item.token,
		]);
		const claim = stage.claim(again(item));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await claim).toMatchObject({ status: 'in_progress', attempt: 1 });
	});

	test('waits while the owner records its reference: settled as done by it', async () => {
		const item = await stage.workThatIs('lapsed');
		await one.query('begin');
		await one.query('select * from idempotency.record_reference($1, $2, $3, null)', [
			item.workId,
			item.token,
			'inv_1',
		]);
		const claim = stage.claim(again(item));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await claim).toMatchObject({ status: 'duplicate', externalRef: 'inv_1', late: true });
	});

	test.each(['alone', 'in a batch'] as const)(
		'waits while a first claim is released: it claims anew (%s)',
		async (path) => {
			const item = await stage.claimed();
			await stage.elapse(item);
			await one.query('begin');
			await one.query('select * from idempotency.release_work($1, $2, null)', [
				item.workId,
				item.token,
			]);
			const next = again(item);
			const claim = stage.claim(next, {}, path);
			await stage.untilWaiting(1);
			await one.query('commit');
			expect(await claim).toMatchObject({ status: 'claimed', attempt: 1, token: next.token });
			expect(await stage.history(item)).toEqual([
				'claim: claimed',
				'release: released',
				'claim: claimed',
			]);
		},
	);

	test('fail by execution waits for a completion and then leaves the done work alone', async () => {
		const item = await stage.claimed(newWork(), from({ execution: 'race-1' }));
		await one.query('begin');
		await completeOn(one, [item]);
		const failed = stage.works.failExecution('instance-1', ['race-1'], 'x', CALLER);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await failed).toEqual([]);
		expect(await stage.row(item)).toMatchObject({ state: 'done', last_error: null });
	});

	test('fail by execution waits for a takeover and leaves the new owner alone', async () => {
		const item = await stage.claimed(newWork(), from({ execution: 'race-2' }));
		await stage.elapse(item);
		const next = again(item);
		await one.query('begin');
		await claimOn(one, [next]);
		const failed = stage.works.failExecution('instance-1', ['race-2'], 'x', CALLER);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await failed).toEqual([]);
		expect(await stage.row(item)).toMatchObject({ state: 'running', token: next.token });
	});

	test('two completions of one token with different results: the first stands, the other says so', async () => {
		const item = await stage.claimed();
		await one.query('begin');
		await one.query(`select * from idempotency.complete_work($1, $2, '"first"', null, '{}')`, [
			item.workId,
			item.token,
		]);
		const second = stage.complete(item, { result: 'second' });
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({
			status: 'completed',
			differs: ['result'],
			result: 'first',
		});
		expect(await stage.row(item)).toMatchObject({ result: 'first' });
	});
});

describe('locks are taken in work_id order', () => {
	const operations: Array<[string, (client: Client, items: ClaimItem[]) => Promise<unknown>]> = [
		[
			'claim_works',
			async (c, items) =>
				await claimOn(
					c,
					items.map((i) => again(i)),
				),
		],
		['complete_works', completeOn],
		[
			'fail_works',
			async (c, items) =>
				await c.query(
					'select * from idempotency.fail_works($1::text[], $2::uuid[], $3::text[], $4::text[], null, null)',
					[
						items.map((i) => i.workId),
						items.map((i) => i.token),
						items.map(() => 'x'),
						items.map(() => 'no'),
					],
				),
		],
		[
			'record_references',
			async (c, items) =>
				await c.query(
					'select * from idempotency.record_references($1::text[], $2::uuid[], $3::text[], null)',
					[items.map((i) => i.workId), items.map((i) => i.token), items.map((i) => i.key)],
				),
		],
		[
			'extend_leases',
			async (c, items) =>
				await c.query(
					'select * from idempotency.extend_leases($1::text[], $2::uuid[], null, null)',
					[items.map((i) => i.workId), items.map((i) => i.token)],
				),
		],
		[
			'release_works',
			async (c, items) =>
				await c.query('select * from idempotency.release_works($1::text[], $2::uuid[], null)', [
					items.map((i) => i.workId),
					items.map((i) => i.token),
				]),
		],
		[
			'fail_execution',
			async (c) =>
				await c.query(
					`select * from idempotency.fail_execution('instance-1', '{sorted}', 'x', null)`,
				),
		],
	];

	test.each(operations)(
		'%s waiting for the smallest holds none of the others',
		async (_, operate) => {
			const items = sortedWorks(12);
			// claimed in the opposite order, so that neither the heap nor the input is sorted
			for (const item of [...items].reverse()) {
				await stage.claimed(item, from({ execution: 'sorted' }));
				await stage.elapse(item);
			}
			await one.query('begin');
			await one.query('select 1 from idempotency.work_log where work_id = $1 for update', [
				items[0].workId,
			]);
			const waiting = operate(two, [...items].reverse());
			await stage.untilWaiting(1);
			const free = await stage.query(
				'select 1 from idempotency.work_log where work_id = any($1) for update skip locked',
				[items.map(({ workId }) => workId)],
			);
			await one.query('commit');
			await waiting;
			expect(free).toHaveLength(11);
		},
	);

	test('new works are inserted in that order, too', async () => {
		const items = sortedWorks(12);
		await one.query('begin');
		await claimOn(one, [items[0]]);
		const waiting = claimOn(two, [...items.map((item) => again(item))].reverse());
		await stage.untilWaiting(1);
		// would wait if the other batch had inserted one of these already
		const others = await stage.works.claim(
			items.slice(1).map((item) => again(item)),
			POLICY,
		);
		await one.query('commit');
		expect(statuses(others)).toEqual(Array<string>(11).fill('claimed'));
		expect((await waiting).rows.map(({ status }) => status)).toEqual(Array(12).fill('in_progress'));
	});
});

describe('no deadlock in 100 rounds (case 49, S5)', () => {
	test('of claims [A, B, …] and […, B, A] at once; each work has one owner, answers stay in order', async () => {
		for (let round = 0; round < 100; round++) {
			const items = sortedWorks(20);
			const mine = items;
			const theirs = [...items].reverse().map((item) => again(item));
			const [first, second] = await Promise.all([claimOn(one, mine), claimOn(two, theirs)]);
			expect(first.rows.map((row) => row.work_id)).toEqual(mine.map((i) => i.workId));
			expect(second.rows.map((row) => row.work_id)).toEqual(theirs.map((i) => i.workId));
			const owners = [...first.rows, ...second.rows].filter(({ status }) => status === 'claimed');
			expect(owners).toHaveLength(20);
		}
	});

	test('of completions and claims in opposite orders at once', async () => {
		for (let round = 0; round < 100; round++) {
			const items = sortedWorks(20);
			await claimOn(one, items);
			const [completed, claims] = await Promise.all([
				completeOn(one, items),
				claimOn(
					two,
					[...items].reverse().map((item) => again(item)),
				),
			]);
			expect(completed.rows.map(({ status }) => status)).toEqual(Array(20).fill('completed'));
			for (const { status } of claims.rows) expect(['duplicate', 'in_progress']).toContain(status);
		}
	});

	test('of lapsed works taken over while their owners complete in the opposite order', async () => {
		for (let round = 0; round < 100; round++) {
			const items = sortedWorks(10);
			await claimOn(one, items);
			await stage.query(
				`update idempotency.work_log set locked_until = clock_timestamp() - interval '1 second'
				where work_id = any($1)`,
				[items.map(({ workId }) => workId)],
			);
			const [completed, claims] = await Promise.all([
				completeOn(one, [...items].reverse()),
				claimOn(
					two,
					items.map((item) => again(item)),
				),
			]);
			const won = completed.rows.map(({ status }) => status).reverse();
			// each work went to exactly one of the two
			expect(claims.rows.map(({ status }) => status)).toEqual(
				won.map((status) => (status === 'completed' ? 'duplicate' : 'claimed')),
			);
		}
	});
});

describe('two processes', () => {
	test('claiming one event 22 ms apart or less: one owner, one row, attempt 1, no error (case 1)', async () => {
		const item = { ...newWork('evt-1'), payload: '{"event_id":"evt-1","row":7}' };
		const jobs = ['A', 'B'].map((execution) => ({
			does: 'claim' as const,
			items: [again(item)],
			policy: from({ execution }),
		}));
		const processes = await startTogether(stage.database.config, stage.settings, jobs);
		const answers = (await Promise.all(
			processes.map(async (p) => await p.answer),
		)) as ClaimAnswer[][];
		const [[winner], [other]] = [...answers].sort(([a], [b]) => (a.status < b.status ? -1 : 1));
		expect(winner).toMatchObject({ status: 'claimed', attempt: 1 });
		expect(other).toMatchObject({
			status: 'in_progress',
			lockedUntil: winner.lockedUntil,
			attempt: 1,
		});
		expect(await stage.row(item)).toMatchObject({ attempt: 1, token: winner.token });
		expect(await stage.history(item)).toEqual(['claim: claimed', 'claim: in_progress']);

		// and the one that owns it is killed on that very line (case 103)
		await Promise.all(processes.map(async (p) => await p.kill()));
		expect(await stage.claim(again(item))).toMatchObject({ status: 'in_progress' });
		await stage.elapse(item);
		expect(await stage.claim(again(item), from({ execution: 'C' }))).toMatchObject({
			status: 'claimed',
			attempt: 2,
			previousOutcome: 'unknown',
			owner: { execution: winner.token === jobs[0].items[0].token ? 'A' : 'B' },
		});
	});
});

describe("the server's other isolation level and its lock time-out", () => {
	test('under repeatable read, contended claims are sent again: one owner, no error', async () => {
		await stage.query(
			`alter database ${stage.database.config.database} set default_transaction_isolation = 'repeatable read'`,
		);
		const ledger = createLedger({ ...stage.settings, maxConnections: 4 });
		try {
			for (let round = 0; round < 10; round++) {
				const items = [newWork(), newWork()];
				const answers = await Promise.all(
					Array.from(
						{ length: 4 },
						async (_, i) =>
							await ledger.works.claim(
								items.map((item) => again(item)),
								from({ execution: String(i) }),
							),
					),
				);
				expect(answers.flat().filter(({ status }) => status === 'claimed')).toHaveLength(2);
				expect(answers.flat().filter(({ status }) => status === 'in_progress')).toHaveLength(6);
			}
		} finally {
			await ledger.close();
			await stage.query(
				`alter database ${stage.database.config.database} reset default_transaction_isolation`,
			);
		}
	});

	test('a lock held too long is an error that says so, and the claim is not stranded', async () => {
		const item = newWork();
		await one.query('begin');
		await claimOn(one, [item]);
		const next = again(item);
		const claim = stage.claim(next).catch((error: unknown) => error);
		expect(await claim).toMatchObject({ name: 'LedgerError', code: 'busy', sqlState: '55P03' });
		expect(await claim).toBeInstanceOf(LedgerError);
		await one.query('rollback');
		expect(await stage.findRow(item)).toBeNull();
	});

	test('S9: inside a long transaction a lease counts from the claim, not from the begin', async () => {
		const item = newWork();
		await one.query('begin');
		await one.query('select pg_sleep(1)');
		const { rows } = await one.query<{ left: number }>(
			`select extract(epoch from locked_until - clock_timestamp())::float8 as left
			from idempotency.claim_work($1, 'k', $2, null, null, '{"kind": "invoice", "lease_s": 5}')`,
			[item.workId, item.token],
		);
		await one.query('commit');
		expect(rows[0].left).toBeGreaterThan(4.5);
	});
});
