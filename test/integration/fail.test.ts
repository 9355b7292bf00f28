import { again, from, newWork, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

describe('a failure by the owner', () => {
	test('that did not land waits for its back-off: failed, outcome known', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"id":1}' });
		expect(await stage.fail(item, { error: 'card declined', landed: 'no' })).toMatchObject({
			status: 'failed',
			state: 'failed',
			attempt: 1,
			lastError: 'card declined',
			nextAttemptAt: expect.any(String),
			lockedUntil: null,
			late: false,
			repeated: false,
		});
		expect(await stage.row(item)).toMatchObject({
			state: 'failed',
			token: item.token,
			outcome_known: true,
			locked_until: null,
			payload: { id: 1 },
			settled_by: 'owner',
		});
		expect(await stage.history(item)).toEqual(['claim: claimed', 'fail: failed']);
	});

	test('that may have landed, under run again, is failed and claimed later as unknown', async () => {
		const item = await stage.claimed();
		expect(await stage.fail(item, { landed: 'unknown' })).toMatchObject({ state: 'failed' });
		expect(await stage.row(item)).toMatchObject({ outcome_known: false });
		await stage.becomeDue(item);
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'claimed',
			previousOutcome: 'unknown',
		});
	});

	test('that may have landed, under hold, is held', async () => {
		const item = await stage.claimed(newWork(), { onLapse: 'hold' });
		expect(await stage.fail(item, { landed: 'unknown' })).toMatchObject({
			status: 'failed',
			state: 'held',
			nextAttemptAt: null,
		});
		expect(await stage.row(item)).toMatchObject({ state: 'held', outcome_known: false });
	});

	test('that may have landed, under hold, is held though it was permanent or the last attempt', async () => {
		const permanent = await stage.claimed(newWork(), { onLapse: 'hold' });
		const last = await stage.claimed(newWork(), { onLapse: 'hold', maxAttempts: 1 });
		await stage.fail(permanent, { landed: 'unknown', permanent: true });
		await stage.fail(last, { landed: 'unknown' });
		expect(await stage.row(permanent)).toMatchObject({ state: 'held' });
		expect(await stage.row(last)).toMatchObject({ state: 'held' });
	});

	test('that did not land, under hold, is tried again: there is nothing to hold for', async () => {
		const item = await stage.claimed(newWork(), { onLapse: 'hold' });
		expect(await stage.fail(item, { landed: 'no' })).toMatchObject({ state: 'failed' });
	});

	test.each(['no', 'unknown'] as const)(
		'that is permanent is dead at once (landed: %s)',
		async (landed) => {
			const item = await stage.claimed();
			expect(await stage.fail(item, { landed, permanent: true })).toMatchObject({
				status: 'failed',
				state: 'dead',
				nextAttemptAt: null,
			});
		},
	);

	test('of the last attempt is dead at once', async () => {
		const item = await stage.claimed(newWork(), { maxAttempts: 1 });
		expect(await stage.fail(item)).toMatchObject({ state: 'dead' });
	});

	test('that may have landed, with a reference recorded, is done by that reference', async () => {
		for (const policy of [{}, { onLapse: 'hold' as const }, { maxAttempts: 1 }]) {
			const item = await stage.claimed({ ...newWork(), payload: '{"id":1}' }, policy);
			await stage.record(item, 'inv_1');
			expect(await stage.fail(item, { landed: 'unknown', permanent: true })).toMatchObject({
				status: 'completed',
				state: 'done',
				externalRef: 'inv_1',
				reason: expect.stringContaining('reference'),
			});
			const row = await stage.row(item);
			expect(row).toMatchObject({ state: 'done', outcome_known: true, payload: null });
			expect(row.last_done_at).toEqual(row.completed_at);
			expect(await stage.claim(again(item))).toMatchObject({
				status: 'duplicate',
				externalRef: 'inv_1',
			});
		}
	});

	test('that did not land, with a reference recorded, moves the reference to the log', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_1');
		expect(await stage.fail(item, { landed: 'no' })).toMatchObject({
			status: 'failed',
			state: 'failed',
			externalRef: null,
		});
		expect(await stage.row(item)).toMatchObject({ state: 'failed', external_ref: null });
		expect((await stage.log(item)).at(-1)).toMatchObject({
			event: 'fail',
			outcome: 'failed',
			external_ref: 'inv_1',
			detail: { referenceWithdrawn: true },
		});
		await stage.becomeDue(item);
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'claimed',
			previousOutcome: 'failed',
		});
	});

	test('after the lease lapsed, while nobody else claimed, is accepted as late', async () => {
		const item = await stage.workThatIs('lapsed');
		expect(await stage.fail(item)).toMatchObject({ status: 'failed', state: 'failed', late: true });
	});

	test('replaces the guess of a lapse by what the owner knows', async () => {
		const held = await stage.workThatIs('lapsed', { onLapse: 'hold' });
		await stage.claim(again(held));
		expect(await stage.row(held)).toMatchObject({ state: 'held' });
		expect(await stage.fail(held, { error: 'refused by the bank', landed: 'no' })).toMatchObject({
			status: 'failed',
			state: 'failed',
			late: true,
			lastError: 'refused by the bank',
		});
		expect(await stage.row(held)).toMatchObject({ outcome_known: true, settled_by: 'owner' });

		const dead = await stage.workThatIs('lapsed', { maxAttempts: 1, onLapse: 'run_again' });
		await stage.claim(again(dead));
		expect(await stage.fail(dead, { error: 'the real reason' })).toMatchObject({
			status: 'failed',
			state: 'dead',
			lastError: 'the real reason',
		});
	});

	test('replaces the guess of a failed execution by what the owner knows', async () => {
		const item = await stage.claimed(newWork(), from({ execution: 'exec-1' }));
		await stage.works.failExecution('instance-1', ['exec-1'], 'timed out', {});
		expect(await stage.row(item)).toMatchObject({ state: 'failed', outcome_known: false });
		await stage.fail(item, { error: 'connection refused', landed: 'no' });
		expect(await stage.row(item)).toMatchObject({
			state: 'failed',
			outcome_known: true,
			last_error: 'connection refused',
		});
	});

	test('of done work is refused and changes nothing', async () => {
		const item = await stage.workThatIs('done');
		const row = await stage.row(item);
		expect(await stage.fail(item, { error: 'late doubt' })).toMatchObject({
			status: 'refused',
			state: 'done',
			reason: expect.stringContaining('done already'),
			externalRef: 'inv_7',
		});
		expect(await stage.row(item)).toEqual(row);
		expect(await stage.history(item)).toContain('fail: refused');
	});

	test('by another token, without one, or of no work is not the owner; the row is untouched', async () => {
		const item = await stage.claimed();
		const row = await stage.row(item);
		expect(await stage.fail(again(item), { error: 'x' })).toMatchObject({ status: 'not_owner' });
		expect(await stage.fail({ ...item, token: null as never })).toMatchObject({
			status: 'not_owner',
		});
		expect(await stage.row(item)).toEqual(row);
		expect((await stage.log(item)).at(-2)).toMatchObject({
			outcome: 'not_owner',
			detail: { error: 'x', landed: 'no' },
		});
		expect(await stage.fail(newWork())).toMatchObject({ status: 'not_owner', state: null });
	});

	test.each(['no', 'unknown'] as const)(
		'repeated with the same content changes nothing, the back-off included (landed: %s)',
		async (landed) => {
			const item = await stage.claimed();
			const first = await stage.fail(item, { landed });
			const row = await stage.row(item);
			expect(await stage.fail(item, { landed })).toEqual({ ...first, repeated: true });
			expect(await stage.row(item)).toEqual(row);
			expect(await stage.history(item)).toEqual(['claim: claimed', 'fail: failed']);
		},
	);

	test('repeated after it settled the work by its reference gets the same answer', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_1');
		const first = await stage.fail(item, { landed: 'unknown' });
		const row = await stage.row(item);
		expect(await stage.fail(item, { landed: 'unknown' })).toMatchObject({
			status: first.status,
			state: 'done',
			externalRef: 'inv_1',
		});
		expect(await stage.row(item)).toEqual(row);
	});

	test('of a batch settles each by its own words, in the order given', async () => {
		const items = [await stage.claimed(), await stage.claimed(), await stage.claimed()];
		const answers = await stage.works.fail(
			[
				{ ...items[2], error: 'two', landed: 'unknown' },
				{ ...items[0], error: 'zero', landed: 'no', permanent: true },
				{ ...again(items[1]), error: 'one', landed: 'no' },
			],
			{},
		);
		expect(answers.map(({ workId, status, state }) => [workId, status, state])).toEqual([
			[items[2].workId, 'failed', 'failed'],
			[items[0].workId, 'failed', 'dead'],
			[items[1].workId, 'not_owner', 'running'],
		]);
	});

	test('says only "did not land" or "may have landed"', async () => {
		const item = await stage.claimed();
		await expect(stage.fail(item, { landed: 'perhaps' as never })).rejects.toMatchObject({
			code: 'bad_input',
			message: expect.stringContaining('landed'),
		});
		expect(await stage.row(item)).toMatchObject({ state: 'running' });
	});
});

describe('the back-off', () => {
	test('doubles per attempt from the stored base up to the cap, with full jitter', async () => {
		const bounds = [
			{ attempt: 1, upTo: 30 },
			{ attempt: 2, upTo: 60 },
			{ attempt: 4, upTo: 240 },
			{ attempt: 40, upTo: 3600 },
			{ attempt: 2_000, upTo: 3600 },
		];
		for (const { attempt, upTo } of bounds) {
			const items = Array.from({ length: 60 }, () => newWork());
			await stage.works.claim(items, from({}, { maxAttempts: 100_000 }));
			const ids = items.map(({ workId }) => workId);
			await stage.query('update idempotency.work_log set attempt = $2 where work_id = any($1)', [
				ids,
				attempt,
			]);
			await stage.works.fail(
				items.map((item) => ({ ...item, error: 'x', landed: 'no' as const })),
				{},
			);
			const [{ least, most }] = await stage.query<{ least: number; most: number }>(
				`select min(extract(epoch from next_attempt_at - updated_at))::float8 as least,
					max(extract(epoch from next_attempt_at - updated_at))::float8 as most
				from idempotency.work_log where work_id = any($1)`,
				[ids],
			);
			expect(least).toBeGreaterThanOrEqual(0);
			// 60 draws all in one half: once in 10^18 runs
			expect(least).toBeLessThan(upTo / 2);
			expect(most).toBeGreaterThan(upTo / 2);
			expect(most).toBeLessThanOrEqual(upTo);
		}
	});

	test('is the policy stored at claim', async () => {
		const item = await stage.claimed(newWork(), {
			backoffBaseSeconds: 100_000,
			backoffCapSeconds: 0.5,
		});
		await stage.fail(item);
		const { next_attempt_at, updated_at } = await stage.row(item);
		const delay = Number(next_attempt_at) - Number(updated_at);
		expect(delay).toBeLessThanOrEqual(500);
	});
});
