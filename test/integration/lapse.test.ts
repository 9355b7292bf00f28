import { again, from, newWork, PATHS, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

describe.each(PATHS)('a lapsed lease met by a claim sent %s', (path) => {
	test('is the next attempt: previous outcome unknown, and who owned it', async () => {
		const item = await stage.claimed(newWork(), from({ execution: '100' }));
		await stage.elapse(item);
		const next = again(item);
		expect(await stage.claim(next, from({ execution: '101' }), path)).toMatchObject({
			status: 'claimed',
			generation: 1,
			attempt: 2,
			token: next.token,
			previousOutcome: 'unknown',
			lastError: expect.stringMatching(/lease lapsed.*attempt 1 of 5/),
			owner: { execution: '100', workflow: 'workflow-1' },
		});
		expect(await stage.row(item)).toMatchObject({
			state: 'running',
			attempt: 2,
			token: next.token,
			execution: '101',
			outcome_known: false,
		});
	});

	test('with a recorded reference is settled as done, late, by that reference', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"id":1}' });
		await stage.record(item, 'inv_7');
		await stage.elapse(item);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({
			status: 'duplicate',
			state: 'done',
			externalRef: 'inv_7',
			result: null,
			late: true,
			attempt: 1,
			token: null,
			completedAt: expect.any(String),
		});
		const row = await stage.row(item);
		expect(row).toMatchObject({
			state: 'done',
			external_ref: 'inv_7',
			payload: null,
			settled_by: 'reference',
			outcome_known: true,
			token: item.token,
		});
		expect(row.last_done_at).toEqual(row.completed_at);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({
			status: 'duplicate',
			late: false,
			externalRef: 'inv_7',
		});
	});

	test('with a recorded reference is done even under hold and without attempts left', async () => {
		const item = await stage.claimed(newWork(), { onLapse: 'hold', maxAttempts: 1 });
		await stage.record(item, 'inv_8');
		await stage.elapse(item);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({
			status: 'duplicate',
			externalRef: 'inv_8',
		});
	});

	test('with a reference of the generation before is not done by it', async () => {
		const item = await stage.workThatIs('done');
		await stage.claimed(again(item), { window: { mode: 'while_running' } });
		await stage.elapse(item);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({
			status: 'claimed',
			generation: 2,
			attempt: 2,
			previousOutcome: 'unknown',
		});
	});

	test('under hold is held, with what is known of the lost attempt; once held it stays', async () => {
		const item = await stage.claimed(newWork(), from({ execution: '100' }, { onLapse: 'hold' }));
		await stage.elapse(item);
		const first = await stage.claim(again(item), from({ execution: '101' }), path);
		expect(first).toMatchObject({
			status: 'held',
			state: 'held',
			attempt: 1,
			token: null,
			lastError: expect.stringContaining('lease lapsed'),
			owner: { execution: '100' },
		});
		expect(await stage.row(item)).toMatchObject({
			state: 'held',
			outcome_known: false,
			settled_by: 'lapse',
			token: item.token,
		});
		expect(await stage.claim(again(item), {}, path)).toMatchObject({ status: 'held' });
		expect(await stage.row(item)).toMatchObject({ state: 'held', attempt: 1 });
	});

	test('under hold without attempts left is held, not dead: hold beats it', async () => {
		const item = await stage.claimed(newWork(), { onLapse: 'hold', maxAttempts: 1 });
		await stage.elapse(item);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({ status: 'held' });
	});

	test('without attempts left is dead, with its last error', async () => {
		const item = await stage.claimed(newWork(), { maxAttempts: 1 });
		await stage.elapse(item);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({
			status: 'dead',
			state: 'dead',
			attempt: 1,
			lastError: expect.stringContaining('attempt 1 of 1'),
		});
		expect(await stage.row(item)).toMatchObject({ state: 'dead', settled_by: 'lapse' });
	});

	test('is judged by the policy stored at the claim, not by the policy of the one who meets it', async () => {
		const held = await stage.claimed(newWork(), { onLapse: 'hold' });
		const dead = await stage.claimed(newWork(), { maxAttempts: 1 });
		const retried = await stage.claimed(newWork(), { maxAttempts: 5 });
		for (const item of [held, dead, retried]) await stage.elapse(item);
		const met = async (item: typeof held, policy: object) =>
			(await stage.claim(again(item), policy, path)).status;
		expect(await met(held, { onLapse: 'run_again' })).toBe('held');
		expect(await met(dead, { maxAttempts: 100 })).toBe('dead');
		expect(await met(retried, { maxAttempts: 1, onLapse: 'hold' })).toBe('claimed');
	});

	test('keeps the error of the attempt before it in its own', async () => {
		const item = await stage.claimed();
		await stage.fail(item, { error: 'card declined' });
		await stage.becomeDue(item);
		await stage.claimed(again(item), {}, path);
		await stage.elapse(item);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({
			attempt: 3,
			lastError: expect.stringMatching(/lease lapsed.*card declined/),
		});
	});

	test('keeps the payload when the claim that takes it over brings none', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"order":1}' });
		await stage.elapse(item);
		await stage.claimed(again(item, { payload: null }), {}, path);
		expect(await stage.row(item)).toMatchObject({ payload: { order: 1 } });
	});

	test('is settled once however many look: each then sees the same state', async () => {
		const item = await stage.claimed(newWork(), { maxAttempts: 1 });
		await stage.elapse(item);
		for (let look = 0; look < 3; look++) await stage.claim(again(item), {}, path);
		expect(await stage.row(item)).toMatchObject({ state: 'dead', attempt: 1 });
	});
});

test('a killed process: in progress within its lease, attempt 2 after it (case 103)', async () => {
	const item = await stage.claimed(newWork(), { leaseSeconds: 60 });
	await stage.age(item, 30);
	const at30s = await stage.claim(again(item));
	expect(at30s).toMatchObject({ status: 'in_progress' });
	const left = await stage.secondsUntil(at30s.lockedUntil);
	expect(left).toBeGreaterThan(25);
	expect(left).toBeLessThanOrEqual(30);
	await stage.age(item, 31);
	expect(await stage.claim(again(item))).toMatchObject({ status: 'claimed', attempt: 2 });
});

test('a lease ends by the clock of the database alone, without a sweep', async () => {
	const item = await stage.claimed(newWork(), { leaseSeconds: 0.2 });
	await stage.query('select pg_sleep(0.25)');
	expect(await stage.claim(again(item))).toMatchObject({ status: 'claimed', attempt: 2 });
});

test('work whose run ends without a completion is not lost (case 28)', async () => {
	const silent = await stage.workThatIs('running');
	expect(await stage.claim(again(silent))).toMatchObject({ status: 'in_progress' });
	await stage.elapse(silent);
	expect(await stage.claim(again(silent))).toMatchObject({ status: 'claimed', attempt: 2 });

	const skipped = await stage.claimed();
	await stage.complete(skipped, { result: { outcome: 'skipped', because: 'not an invoice' } });
	expect(await stage.claim(again(skipped))).toMatchObject({
		status: 'duplicate',
		result: { outcome: 'skipped', because: 'not an invoice' },
	});
});

test('poison work is dead after its attempts, payload and last error kept (case 121)', async () => {
	const item = { ...newWork(), payload: '{"order":13}' };
	const statuses: string[] = [];
	for (let restart = 0; restart < 10; restart++) {
		const { status } = await stage.claim(again(item), { maxAttempts: 5 });
		statuses.push(status);
		if (status === 'claimed') await stage.elapse(item);
	}
	expect(statuses).toEqual([...Array<string>(5).fill('claimed'), ...Array<string>(5).fill('dead')]);
	expect(await stage.row(item)).toMatchObject({
		state: 'dead',
		attempt: 5,
		payload: { order: 13 },
		last_error: expect.stringContaining('attempt 5 of 5'),
	});
	const settled = (await stage.log(item)).filter(
		({ outcome, detail }) => outcome === 'dead' && detail?.how !== undefined,
	);
	expect(settled).toHaveLength(1);
});

test('S1: a completion does not leave a lease behind that makes done work claimable later', async () => {
	const item = await stage.workThatIs('done');
	await stage.query(
		`update idempotency.work_log set locked_until = clock_timestamp() - interval '1 day' where work_id = $1`,
		[item.workId],
	);
	for (const path of PATHS) {
		expect(await stage.claim(again(item), {}, path)).toMatchObject({ status: 'duplicate' });
	}
});

test('S3: running work without a lease end cannot exist, so none can be stuck for ever', async () => {
	const item = await stage.workThatIs('running');
	const change = async (what: string) =>
		await stage.query(`update idempotency.work_log set ${what} where work_id = $1`, [item.workId]);
	await expect(change('locked_until = null')).rejects.toThrow('work_makes_sense');
	await expect(change('token = null')).rejects.toThrow('work_makes_sense');
	await expect(change(`state = 'failed'`)).rejects.toThrow('work_makes_sense');
});
