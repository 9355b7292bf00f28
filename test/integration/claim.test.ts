import { Client } from 'pg';

import type { ClaimItem } from '../../ledger/contract';
import { again, CALLER, from, newWork, PATHS, POLICY, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

describe.each(PATHS)('a claim sent %s', (path) => {
	test('of unknown work is granted: token, attempt 1, lease end', async () => {
		const item = newWork();
		const answer = await stage.claim(item, { leaseSeconds: 600 }, path);
		expect(answer).toEqual({
			workId: item.workId,
			status: 'claimed',
			state: 'running',
			generation: 1,
			attempt: 1,
			token: item.token,
			lockedUntil: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
			nextAttemptAt: null,
			previousOutcome: null,
			lastError: null,
			result: null,
			externalRef: null,
			completedAt: null,
			owner: null,
			otherWorkflow: false,
			resultPurged: false,
			late: false,
			mismatch: [],
		});
		const lease = await stage.secondsUntil(answer.lockedUntil);
		expect(lease).toBeGreaterThan(590);
		expect(lease).toBeLessThanOrEqual(600);
		expect(await stage.row(item)).toMatchObject({
			kind: 'invoice',
			version: 'v1',
			key: item.key,
			state: 'running',
			attempt: 1,
			token: item.token,
			workflow: 'workflow-1',
			execution: '100',
		});
		expect(await stage.history(item)).toEqual(['claim: claimed']);
	});

	test('of done work answers duplicate with the original result, reference, time and owner', async () => {
		const item = await stage.claimed();
		const completed = await stage.complete(item, { result: { invoice: 7 }, externalRef: 'inv_7' });
		const answer = await stage.claim(again(item), from({ execution: '101' }), path);
		expect(answer).toMatchObject({
			status: 'duplicate',
			state: 'done',
			generation: 1,
			attempt: 1,
			token: null,
			lockedUntil: null,
			result: { invoice: 7 },
			externalRef: 'inv_7',
			completedAt: completed.completedAt,
			owner: { ...CALLER, claimedAt: expect.any(String) },
			otherWorkflow: false,
			late: false,
		});
	});

	test('whose original came from another workflow or n8n says so', async () => {
		const item = await stage.workThatIs('done');
		const elsewhere = [from({ workflow: 'workflow-2' }), from({ instance: 'instance-2' })];
		for (const policy of elsewhere) {
			expect(await stage.claim(again(item), policy, path)).toMatchObject({
				status: 'duplicate',
				otherWorkflow: true,
			});
		}
	});

	test('of running work answers in progress with lease end and owner, and attempt stays 1', async () => {
		const item = newWork();
		const first = await stage.claim(item);
		const second = await stage.claim(again(item), from({ execution: '101' }), path);
		expect(second).toMatchObject({
			status: 'in_progress',
			state: 'running',
			attempt: 1,
			token: null,
			lockedUntil: first.lockedUntil,
			result: null,
			owner: CALLER,
		});
		expect(await stage.row(item)).toMatchObject({ attempt: 1, token: item.token });
	});

	test('of failed work that is not due answers with the next attempt time', async () => {
		const item = await stage.claimed();
		const failed = await stage.fail(item, { error: 'card declined' });
		const before = await stage.row(item);
		// full jitter may draw a time that is over already
		await stage.query(
			`update idempotency.work_log set next_attempt_at = clock_timestamp() + interval '20 seconds' where work_id = $1`,
			[item.workId],
		);
		const answer = await stage.claim(again(item), {}, path);
		expect(failed.nextAttemptAt).not.toBeNull();
		expect(answer).toMatchObject({
			status: 'not_due',
			state: 'failed',
			attempt: 1,
			token: null,
			lastError: 'card declined',
		});
		expect(await stage.secondsUntil(answer.nextAttemptAt)).toBeGreaterThan(10);
		expect(await stage.row(item)).toMatchObject({ attempt: 1, token: before.token });
	});

	test('of failed work that is due is the next attempt and says what is known of the last', async () => {
		const item = await stage.claimed();
		await stage.fail(item, { error: 'card declined', landed: 'no' });
		await stage.becomeDue(item);
		const next = again(item);
		const answer = await stage.claim(next, from({ execution: '101' }), path);
		expect(answer).toMatchObject({
			status: 'claimed',
			state: 'running',
			generation: 1,
			attempt: 2,
			token: next.token,
			nextAttemptAt: null,
			previousOutcome: 'failed',
			lastError: 'card declined',
			owner: { execution: '100' },
			result: null,
		});
		expect(await stage.row(item)).toMatchObject({ state: 'running', execution: '101' });
	});

	test('of failed work whose effect may have landed is claimed as unknown', async () => {
		const item = await stage.claimed();
		await stage.fail(item, { landed: 'unknown' });
		await stage.becomeDue(item);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({
			status: 'claimed',
			attempt: 2,
			previousOutcome: 'unknown',
		});
	});

	test.each(['held', 'dead'] as const)('of %s work is not granted and says why', async (state) => {
		const item = await stage.workThatIs(state);
		const before = await stage.row(item);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({
			status: state,
			state,
			attempt: 1,
			token: null,
			lastError: 'no answer',
			result: null,
		});
		expect(await stage.row(item)).toEqual(before);
	});

	test('sent again with its token gets the first answer and is logged once', async () => {
		const item = newWork();
		const first = await stage.claim(item, {}, path);
		expect(await stage.claim(item, {}, path)).toEqual(first);
		expect(await stage.history(item)).toEqual(['claim: claimed']);
	});

	test('sent again after a failed attempt gets the first answer, previous owner included', async () => {
		const item = await stage.workThatIs('failed');
		await stage.becomeDue(item);
		const next = again(item);
		const first = await stage.claim(next, from({ execution: '101' }), path);
		expect(first).toMatchObject({ previousOutcome: 'failed', owner: { execution: '100' } });
		expect(await stage.claim(next, from({ execution: '101' }), path)).toEqual(first);
		expect(await stage.history(item)).toHaveLength(3);
	});

	test('sent again of a new generation gets the first answer', async () => {
		const item = await stage.workThatIs('done');
		const next = again(item);
		const first = await stage.claim(next, { window: { mode: 'while_running' } }, path);
		expect(first).toMatchObject({ status: 'claimed', generation: 2 });
		expect(await stage.claim(next, { window: { mode: 'while_running' } }, path)).toEqual(first);
		expect(await stage.history(item)).toHaveLength(3);
	});

	test('sent again after its lease lapsed has its lease extended first, as the same attempt', async () => {
		const item = await stage.claimed(newWork(), { leaseSeconds: 600 });
		await stage.elapse(item);
		const answer = await stage.claim(item, { leaseSeconds: 600 }, path);
		expect(answer).toMatchObject({ status: 'claimed', attempt: 1, token: item.token });
		expect(await stage.secondsUntil(answer.lockedUntil)).toBeGreaterThan(590);
		expect(await stage.history(item)).toEqual(['claim: claimed']);
	});

	test('sent again while its lease lives does not move the lease', async () => {
		const item = newWork();
		const first = await stage.claim(item, { leaseSeconds: 600 });
		await stage.claim(item, { leaseSeconds: 6000 }, path);
		expect(new Date((await stage.row(item)).locked_until as Date).toISOString()).toBe(
			first.lockedUntil,
		);
	});

	describe('with match fields', () => {
		const amount = (digest: string) => ({ match: { amount: digest, currency: 'eur' } });

		test.each(['running', 'done', 'failed', 'dead', 'held', 'lapsed'] as const)(
			'that differ is a mismatch on %s work: no replay, no claim, nothing changed',
			async (state) => {
				const item = await stage.workThatIs(state);
				await stage.query('update idempotency.work_log set match = $2 where work_id = $1', [
					item.workId,
					{ amount: 'ten', currency: 'eur' },
				]);
				if (state === 'failed') await stage.becomeDue(item);
				const before = await stage.row(item);
				const answer = await stage.claim(again(item, amount('ninety-nine')), {}, path);
				expect(answer).toMatchObject({
					status: 'mismatch',
					mismatch: ['amount'],
					token: null,
					result: null,
					externalRef: null,
				});
				expect(await stage.row(item)).toEqual(before);
			},
		);

		test('that are equal changes nothing of the answer', async () => {
			const item = await stage.claimed({ ...newWork(), ...amount('ten') });
			await stage.complete(item, { result: 7 });
			expect(await stage.claim(again(item), {}, path)).toMatchObject({
				status: 'duplicate',
				result: 7,
				mismatch: [],
			});
		});

		test('is compared only where the field lists are equal', async () => {
			const item = await stage.claimed({ ...newWork(), ...amount('ten') });
			await stage.complete(item);
			const edited: Array<ClaimItem['match']> = [
				{ amount: 'ninety-nine' },
				undefined,
				{ total: 'ten', currency: 'eur' },
			];
			for (const match of edited) {
				expect(await stage.claim(again(item, { match }), {}, path)).toMatchObject({
					status: 'duplicate',
				});
			}
		});

		test('that differ does not stop a new generation: the window comes first', async () => {
			const item = await stage.claimed({ ...newWork(), ...amount('ten') });
			await stage.complete(item);
			const next = again(item, amount('ninety-nine'));
			expect(await stage.claim(next, { window: { mode: 'while_running' } }, path)).toMatchObject({
				status: 'claimed',
				generation: 2,
			});
			expect(await stage.claim(again(next, amount('ten')), {}, path)).toMatchObject({
				status: 'mismatch',
			});
		});

		test('that differ does not stop the resend of a claim', async () => {
			const item = await stage.claimed({ ...newWork(), ...amount('ten') });
			expect(await stage.claim({ ...item, ...amount('other') }, {}, path)).toMatchObject({
				status: 'claimed',
				token: item.token,
			});
		});
	});

	test('never raises the attempt, moves the next attempt or kills, however often it is a duplicate (case 8)', async () => {
		const done = await stage.workThatIs('done');
		const running = await stage.workThatIs('running', { maxAttempts: 2 });
		const waiting = await stage.workThatIs('failed', { maxAttempts: 2 });
		await stage.query(
			`update idempotency.work_log set next_attempt_at = clock_timestamp() + interval '1 hour' where work_id = $1`,
			[waiting.workId],
		);
		const works = [done, running, waiting];
		const before = await Promise.all(works.map(async (item) => await stage.row(item)));
		for (let delivery = 0; delivery < 15; delivery++) {
			for (const item of works) await stage.claim(again(item), {}, path);
		}
		expect(await Promise.all(works.map(async (item) => await stage.row(item)))).toEqual(before);
	});
});

test('a parent run 15 times calls for one claim and 14 duplicates (case 8)', async () => {
	const item = newWork('ship:88');
	const statuses: string[] = [];
	for (let run = 0; run < 15; run++) {
		const delivery = again(item);
		const { status } = await stage.claim(delivery, from({ execution: String(run) }));
		statuses.push(status);
		if (status === 'claimed') await stage.complete(delivery, { result: 'shipped' });
	}
	expect(statuses).toEqual(['claimed', ...Array<string>(14).fill('duplicate')]);
	expect(await stage.row(item)).toMatchObject({ state: 'done', attempt: 1 });
});

test('the execution that did the work gets no free pass (case 10)', async () => {
	const item = await stage.claimed(newWork('mail:1'), from({ execution: '500' }));
	await stage.complete(item, { result: 'sent' });
	expect(await stage.claim(again(item), from({ execution: '500' }))).toMatchObject({
		status: 'duplicate',
		result: 'sent',
	});
});

test('work done on day 0 is a duplicate on day 6, and after ten years (case 12)', async () => {
	const item = await stage.claimed(newWork('inv:5'));
	await stage.complete(item, { result: 5 });
	for (const days of [6, 3650]) {
		await stage.age(item, days * 86_400);
		expect(await stage.claim(again(item))).toMatchObject({ status: 'duplicate', result: 5 });
	}
});

test('an order paid once more a minute later is the same order (case 19)', async () => {
	const item = await stage.claimed(newWork('order_paid:1001'), {}, 'alone');
	await stage.complete(item, { result: { paid: true } });
	await stage.age(item, 60);
	const redelivered = again(item, { payload: '{"id":1001,"updated_at":"2026-01-01T10:01:00Z"}' });
	expect(await stage.claim(redelivered)).toMatchObject({
		status: 'duplicate',
		result: { paid: true },
	});
});

test('12,000 distinct works over three runs leave no history that fills up (case 24)', async () => {
	for (let run = 0; run < 3; run++) {
		const items = Array.from({ length: 4_000 }, () => newWork());
		const answers = await stage.works.claim(items, POLICY);
		expect(answers.filter(({ status }) => status === 'claimed')).toHaveLength(4_000);
		expect(answers.map(({ token }) => token)).toEqual(items.map(({ token }) => token));
	}
});

test('of 20 claims of one failed, due work one is granted and 19 are in progress (case 112)', async () => {
	const item = await stage.workThatIs('failed');
	await stage.becomeDue(item);
	const answers = await Promise.all(
		Array.from(
			{ length: 20 },
			async (_, i) => await stage.claim(again(item), from({ execution: String(i) })),
		),
	);
	expect(answers.map(({ status }) => status).sort()).toEqual([
		'claimed',
		...Array<string>(19).fill('in_progress'),
	]);
	expect(await stage.row(item)).toMatchObject({ attempt: 2, state: 'running' });
});

test('the clock of the n8n that claims decides nothing: a live lease is not stolen (case 115)', async () => {
	const item = await stage.claimed(newWork(), { leaseSeconds: 180 });
	const clock = jest.spyOn(Date, 'now').mockImplementation(() => performance.timeOrigin + 300_000);
	try {
		const other = again(item);
		expect(await stage.claim(other, { leaseSeconds: 180 })).toMatchObject({
			status: 'in_progress',
		});
		const late = newWork();
		const answer = await stage.claim(late, { leaseSeconds: 180 });
		expect(await stage.secondsUntil(answer.lockedUntil)).toBeLessThanOrEqual(180);
	} finally {
		clock.mockRestore();
	}
});

test('a failure is never replayed as a success: not due, then attempt 2, then dead (case 117)', async () => {
	const policy = { maxAttempts: 2, backoffBaseSeconds: 30 };
	const item = await stage.claimed(newWork(), policy);
	await stage.fail(item, { error: 'card declined' });
	await stage.query(
		`update idempotency.work_log set next_attempt_at = clock_timestamp() + interval '20 seconds' where work_id = $1`,
		[item.workId],
	);
	const atOnce = await stage.claim(again(item), policy);
	expect(atOnce).toMatchObject({ status: 'not_due', result: null });
	expect(await stage.secondsUntil(atOnce.nextAttemptAt)).toBeGreaterThan(0);
	await stage.becomeDue(item);
	const second = again(item);
	expect(await stage.claim(second, policy)).toMatchObject({ status: 'claimed', attempt: 2 });
	await stage.fail(second, { error: 'card declined' });
	expect(await stage.claim(again(item), policy)).toMatchObject({
		status: 'dead',
		lastError: 'card declined',
		result: null,
	});
});

test('three sends with one id in one execution are one claim and two duplicates (case 119)', async () => {
	const item = newWork('evt-1');
	const statuses: string[] = [];
	for (let send = 0; send < 3; send++) {
		const delivery = again(item);
		const { status } = await stage.claim(delivery);
		statuses.push(status);
		if (status === 'claimed') await stage.complete(delivery);
	}
	expect(statuses).toEqual(['claimed', 'duplicate', 'duplicate']);
});

test('the claim of done work reads the stored row: result and reference, not nothing (case 51)', async () => {
	const item = await stage.workThatIs('done');
	for (const path of PATHS) {
		const { status, result, externalRef } = await stage.claim(again(item), {}, path);
		expect({ status, result, externalRef }).toEqual({
			status: 'duplicate',
			result: { invoice: 7 },
			externalRef: 'inv_7',
		});
	}
});

describe('claiming and waiting for the result of another execution', () => {
	test('ends with the result once the owner completes, and Busy is logged once', async () => {
		const item = await stage.claimed(newWork(), from({ execution: '100' }));
		const waiting = stage.works.claimAndWait([again(item)], from({ execution: '101' }), {
			seconds: 20,
		});
		while ((await stage.log(item)).length < 2) await stage.query('select pg_sleep(0.3)');
		await stage.query('select pg_sleep(0.5)');
		await stage.complete(item, { result: 'mine' });
		expect(await waiting).toMatchObject([{ status: 'duplicate', result: 'mine' }]);
		expect(await stage.history(item)).toEqual([
			'claim: claimed',
			'claim: in_progress',
			'complete: completed',
			'claim: duplicate',
		]);
	});

	test('applies the whole contract anew when the lease lapses: it claims', async () => {
		const item = await stage.claimed(newWork(), from({ execution: '100' }));
		const next = again(item);
		const waiting = stage.works.claimAndWait([next], from({ execution: '101' }), { seconds: 20 });
		while ((await stage.log(item)).length < 2) await stage.query('select pg_sleep(0.05)');
		await stage.elapse(item);
		expect(await waiting).toMatchObject([
			{ status: 'claimed', attempt: 2, token: next.token, previousOutcome: 'unknown' },
		]);
	});

	test('gives up after its seconds with the Busy answer', async () => {
		const item = await stage.claimed(newWork(), from({ execution: '100' }));
		const answers = await stage.works.claimAndWait([again(item)], from({ execution: '101' }), {
			seconds: 0.4,
		});
		expect(answers).toMatchObject([{ status: 'in_progress' }]);
		expect(await stage.history(item)).toEqual(['claim: claimed', 'claim: in_progress']);
	});

	test.each([
		['its own execution', { execution: '100' }],
		['its parent execution', { execution: '101', parentExecution: '100' }],
	])(
		'never waits for %s',
		async (_, caller) => {
			const item = await stage.claimed(newWork(), from({ execution: '100' }));
			const answers = await stage.works.claimAndWait([again(item)], from(caller), { seconds: 25 });
			expect(answers).toMatchObject([{ status: 'in_progress' }]);
		},
		10_000,
	);

	test('waits for the same execution id of another n8n: ids repeat across instances', async () => {
		const item = await stage.claimed(newWork(), from({ execution: '100' }));
		const waiting = stage.works.claimAndWait([again(item)], from({ instance: 'instance-2' }), {
			seconds: 20,
		});
		while ((await stage.log(item)).length < 2) await stage.query('select pg_sleep(0.05)');
		await stage.complete(item, { result: 'theirs' });
		expect(await waiting).toMatchObject([{ status: 'duplicate', result: 'theirs' }]);
	});

	test('holds no connection between its looks', async () => {
		const single = await Stage.open({ maxConnections: 1 });
		try {
			const item = await single.claimed(newWork(), from({ execution: '100' }));
			const waiting = single.works.claimAndWait([again(item)], from({ execution: '101' }), {
				seconds: 20,
			});
			// the only connection must be free for the owner's completion
			await single.complete(item, { result: 'mine' });
			expect(await waiting).toMatchObject([{ status: 'duplicate', result: 'mine' }]);
		} finally {
			await single.close();
		}
	});

	test('keeps what it claimed and waits only for the rest, in order', async () => {
		const busy = await stage.claimed(newWork(), from({ execution: '100' }));
		const fresh = [newWork(), newWork()];
		const waiting = stage.works.claimAndWait(
			[fresh[0], again(busy), fresh[1]],
			from({ execution: '101' }),
			{ seconds: 20 },
		);
		while ((await stage.log(busy)).length < 2) await stage.query('select pg_sleep(0.05)');
		await stage.complete(busy, { result: 1 });
		expect((await waiting).map(({ workId, status }) => [workId, status])).toEqual([
			[fresh[0].workId, 'claimed'],
			[busy.workId, 'duplicate'],
			[fresh[1].workId, 'claimed'],
		]);
		expect(await stage.history(fresh[0])).toEqual(['claim: claimed']);
	});

	test('releases what it claimed when a later look fails: a throw strands no claim', async () => {
		const busy = await stage.claimed(newWork(), from({ execution: '100' }));
		const fresh = newWork();
		const waiting = stage.works
			.claimAndWait([fresh, again(busy)], from({ execution: '101' }), {
				seconds: 20,
				freshTokens: true,
			})
			.catch((error: unknown) => error);
		while ((await stage.log(busy)).length < 2) await stage.query('select pg_sleep(0.01)');
		expect(await stage.row(fresh)).toMatchObject({ state: 'running' });
		await stage.query('alter function idempotency.claim_work rename to hidden');
		try {
			expect(await waiting).toMatchObject({ name: 'LedgerError', code: 'schema_missing' });
		} finally {
			await stage.query('alter function idempotency.hidden rename to claim_work');
		}
		expect(await stage.findRow(fresh)).toBeNull();
		expect(await stage.row(busy)).toMatchObject({ state: 'running', token: busy.token });
	});

	test('stops when the execution is cancelled, and strands no claim', async () => {
		const item = await stage.claimed(newWork(), from({ execution: '100' }));
		const fresh = newWork();
		const stop = new AbortController();
		const waiting = stage.works.claimAndWait([fresh, again(item)], from({ execution: '101' }), {
			seconds: 25,
			signal: stop.signal,
			freshTokens: true,
		});
		stop.abort();
		await expect(waiting).rejects.toMatchObject({ name: 'LedgerError', code: 'cancelled' });
		expect(await stage.findRow(fresh)).toBeNull();
		expect(await stage.row(item)).toMatchObject({ state: 'running', token: item.token });
	}, 10_000);
});

test('a claim, a completion and a duplicate cost one round trip each, of one work as of a thousand', async () => {
	await stage.claimed();
	const sent = jest.spyOn(Client.prototype, 'query');
	const counted = async (call: () => Promise<Array<{ status: string }>>) => {
		sent.mockClear();
		const statuses = new Set((await call()).map(({ status }) => status));
		return [...statuses, sent.mock.calls.length];
	};
	for (const count of [1, 1_000]) {
		const items = Array.from({ length: count }, () => newWork());
		expect(await counted(() => stage.works.claim(items, POLICY))).toEqual(['claimed', 1]);
		expect(await counted(() => stage.works.complete(items, CALLER))).toEqual(['completed', 1]);
		const delivered = items.map((item) => again(item));
		const asked = () => stage.works.claimAndWait(delivered, POLICY, { seconds: 30 });
		expect(await counted(asked)).toEqual(['duplicate', 1]);
	}
	sent.mockRestore();
});
