import { again, CALLER, from, newWork, PATHS, POLICY, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

const FIRED = {
	instance: 'instance-1',
	workflow: 'workflow-1',
	workflow_name: 'Invoices',
	execution: '100',
	node: 'Claim Work',
	mode: 'webhook',
};

describe.each(PATHS)('the decision log of a claim sent %s', (path) => {
	test('says what fired, what was checked (the window too), what was decided, what was created', async () => {
		const window = { mode: 'duration', seconds: 3600 } as const;
		const item = await stage.claimed(newWork(), from({ runId: 'night-1' }, { window }), path);
		expect(await stage.log(item)).toMatchObject([
			{
				event: 'claim',
				outcome: 'claimed',
				generation: 1,
				attempt: 1,
				token: item.token,
				fired: { ...FIRED, run_id: 'night-1' },
				checked: { window },
				at: expect.any(Date),
			},
		]);
	});

	test.each([
		['done', 'duplicate'],
		['running', 'in_progress'],
		['held', 'held'],
		['dead', 'dead'],
	] as const)('of %s work has one row: %s, with the state found', async (state, outcome) => {
		const item = await stage.workThatIs(state);
		const before = await stage.log(item);
		const token = again(item).token;
		await stage.claim({ ...item, token }, from({ execution: '101' }), path);
		const rows = (await stage.log(item)).slice(before.length);
		expect(rows).toMatchObject([
			{
				event: 'claim',
				outcome,
				token,
				fired: { execution: '101' },
				checked: { window: { mode: 'forever' }, found: state },
			},
		]);
	});

	test('of failed work that is not due has the next attempt time it saw', async () => {
		const item = await stage.workThatIs('failed');
		await stage.query(
			`update idempotency.work_log set next_attempt_at = clock_timestamp() + interval '1 hour' where work_id = $1`,
			[item.workId],
		);
		const { next_attempt_at } = await stage.row(item);
		await stage.claim(again(item), {}, path);
		expect((await stage.log(item)).at(-1)).toMatchObject({
			outcome: 'not_due',
			checked: { found: 'failed', nextAttemptAt: next_attempt_at?.toISOString() },
		});
	});

	test('of mismatching work says so', async () => {
		const item = await stage.claimed({ ...newWork(), match: { amount: 'a' } });
		await stage.claim(again(item, { match: { amount: 'b' } }), {}, path);
		expect((await stage.log(item)).at(-1)).toMatchObject({ event: 'claim', outcome: 'mismatch' });
	});

	test('that takes over has what stood before: owner, attempt, lease end', async () => {
		const item = await stage.workThatIs('lapsed');
		const { locked_until } = await stage.row(item);
		const next = await stage.claimed(again(item), from({ execution: '101' }), path);
		expect((await stage.log(item)).at(-1)).toMatchObject({
			outcome: 'claimed',
			attempt: 2,
			token: next.token,
			fired: { execution: '101' },
			checked: { found: 'running', leaseEnd: locked_until?.toISOString(), owner: '100' },
			detail: { before: { state: 'running', attempt: 1, token: item.token } },
		});
	});

	test.each([
		['held', { onLapse: 'hold' as const }],
		['dead', { maxAttempts: 1 }],
	])('that settles a lapse as %s says how', async (outcome, policy) => {
		const item = await stage.workThatIs('lapsed', policy);
		await stage.claim(again(item), {}, path);
		expect((await stage.log(item)).at(-1)).toMatchObject({
			outcome,
			checked: { found: 'running' },
			detail: { how: `lapse_${outcome}` },
		});
	});

	test('that settles a lapse by its reference names it', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_1');
		await stage.elapse(item);
		await stage.claim(again(item), {}, path);
		expect((await stage.log(item)).at(-1)).toMatchObject({
			outcome: 'duplicate',
			external_ref: 'inv_1',
			detail: { how: 'settled' },
		});
	});

	test('of a repeated look has no row for Busy, but one for what it decides', async () => {
		const item = await stage.claimed();
		const poll = { ...POLICY, poll: true };
		for (let look = 0; look < 3; look++) await stage.claim(again(item), poll, path);
		expect(await stage.history(item)).toEqual(['claim: claimed']);
		await stage.elapse(item);
		await stage.claim(again(item), poll, path);
		expect(await stage.history(item)).toEqual(['claim: claimed', 'claim: claimed']);
	});
});

test('is written in the transaction that decides: no decision without its row, no row without it', async () => {
	const done = await stage.claimed();
	await stage.query(`
		create function idempotency.refuse() returns trigger language plpgsql as
			$$ begin raise exception 'the log is full'; end $$;
		create trigger refuse before insert on idempotency.decision_log for each row execute function idempotency.refuse()`);
	try {
		const items = [newWork(), newWork()];
		await expect(stage.works.claim(items, POLICY)).rejects.toThrow('the log is full');
		await expect(stage.works.claim([newWork()], POLICY)).rejects.toThrow('the log is full');
		for (const item of items) expect(await stage.findRow(item)).toBeNull();
		const before = await stage.row(done);
		const own = { workId: done.workId, token: done.token };
		const calls = [
			async () => await stage.works.complete([{ ...own, result: 1 }], CALLER),
			async () => await stage.works.complete([own, { ...newWork() }], CALLER),
			async () => await stage.works.fail([{ ...own, error: 'x', landed: 'no' }], CALLER),
			async () => await stage.works.recordReference([{ ...own, externalRef: 'r' }], CALLER),
			async () => await stage.works.extend([own], CALLER),
			async () => await stage.works.release([own], CALLER),
			async () => await stage.works.failExecution('instance-1', ['100'], 'x', CALLER),
		];
		for (const call of calls) {
			await expect(call()).rejects.toThrow('the log is full');
			expect(await stage.row(done)).toEqual(before);
		}
	} finally {
		await stage.query(
			`drop trigger refuse on idempotency.decision_log; drop function idempotency.refuse()`,
		);
	}
});

test('tells the whole story of a work in order', async () => {
	const first = await stage.claimed(newWork(), from({ execution: '1' }));
	await stage.claim(again(first), from({ execution: '2' }));
	await stage.fail(first, { error: 'declined' });
	await stage.becomeDue(first);
	const second = await stage.claimed(again(first), from({ execution: '3' }));
	await stage.extend(second, 7200);
	await stage.record(second, 'inv_1');
	await stage.complete(first, { result: 'stale' });
	await stage.complete(second, { result: 1 });
	await stage.claim(again(first), from({ execution: '4' }));
	expect(await stage.history(first)).toEqual([
		'claim: claimed',
		'claim: in_progress',
		'fail: failed',
		'claim: claimed',
		'extend: extended',
		'record_reference: recorded',
		'complete: not_owner',
		'complete: completed',
		'claim: duplicate',
	]);
	const log = await stage.log(first);
	expect(log.map(({ attempt }) => attempt)).toEqual([1, 1, 1, 2, 2, 2, 2, 2, 2]);
	expect(log.every((row, i) => i === 0 || row.at >= log[i - 1].at)).toBe(true);
});

test('of every operation says who asked', async () => {
	const caller = from({ execution: 'who', node: 'Complete Work' }).caller;
	const items = Array.from({ length: 5 }, () => newWork());
	await stage.works.claim(items, POLICY);
	await stage.works.complete([items[0]], caller);
	await stage.works.complete([{ ...again(items[1]) }], caller);
	await stage.works.fail([{ ...items[1], error: 'x', landed: 'no' }], caller);
	await stage.works.recordReference([{ ...items[2], externalRef: 'r' }], caller);
	await stage.works.extend([items[3]], caller);
	await stage.works.release([items[4]], caller);
	const rows = await stage.query<{ event: string; fired: unknown }>(
		`select event, fired from idempotency.decision_log
		where work_id = any($1) and event <> 'claim' order by id`,
		[items.map(({ workId }) => workId)],
	);
	expect(rows.map(({ event }) => event)).toEqual([
		...['complete', 'complete', 'fail', 'record_reference', 'extend', 'release'],
	]);
	for (const { fired } of rows)
		expect(fired).toEqual({ ...FIRED, execution: 'who', node: 'Complete Work' });
});
