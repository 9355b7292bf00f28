import { again, from, newWork, Stage, type WorkRow } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

const WHILE_RUNNING = { window: { mode: 'while_running' } } as const;

/** All that a release must put back; only the time of the last change may differ. */
function restorable(row: WorkRow): Partial<WorkRow> {
	return { ...row, updated_at: undefined };
}

describe('a released claim', () => {
	test('was the first: it leaves no row, and the history stays', async () => {
		const item = await stage.claimed();
		expect(await stage.release(item)).toMatchObject({
			status: 'released',
			state: null,
			key: item.key,
			kind: 'invoice',
		});
		expect(await stage.findRow(item)).toBeNull();
		expect(await stage.history(item)).toEqual(['claim: claimed', 'release: released']);
		expect(await stage.claim(again(item))).toMatchObject({ status: 'claimed', attempt: 1 });
	});

	test('was a retry: the work is failed again as it was, attempt and next time included', async () => {
		const item = await stage.workThatIs('failed');
		await stage.becomeDue(item);
		const before = await stage.row(item);
		const next = await stage.claimed(again(item), from({ execution: '101' }, { maxAttempts: 2 }));
		expect(await stage.release(next)).toMatchObject({
			status: 'released',
			state: 'failed',
			attempt: 1,
		});
		expect(restorable(await stage.row(item))).toEqual(restorable(before));
	});

	test('took a lapse over: failed, due, outcome unknown, attempt less one, of the owner before', async () => {
		const item = await stage.claimed(newWork(), from({ execution: '100' }));
		await stage.elapse(item);
		const next = await stage.claimed(again(item), from({ execution: '101' }));
		expect(await stage.release(next)).toMatchObject({
			status: 'released',
			state: 'failed',
			attempt: 1,
		});
		const row = await stage.row(item);
		expect(row).toMatchObject({
			state: 'failed',
			attempt: 1,
			outcome_known: false,
			execution: '100',
			token: item.token,
			locked_until: null,
			last_error: expect.stringContaining('lease lapsed'),
		});
		expect(await stage.secondsUntil(row.next_attempt_at)).toBeLessThanOrEqual(0);
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'claimed',
			attempt: 2,
			previousOutcome: 'unknown',
		});
	});

	test('took a lapse over: the first owner may still report', async () => {
		const item = await stage.workThatIs('lapsed');
		const next = await stage.claimed(again(item));
		await stage.release(next);
		expect(await stage.complete(item, { result: 1 })).toMatchObject({
			status: 'completed',
			late: true,
		});
	});

	test('began done work anew: result, reference and generation are restored', async () => {
		const item = await stage.workThatIs('done');
		const before = await stage.row(item);
		const next = await stage.claimed(again(item), from({ execution: '101' }, WHILE_RUNNING));
		expect(await stage.release(next)).toMatchObject({
			status: 'released',
			state: 'done',
			generation: 1,
			externalRef: 'inv_7',
		});
		expect(restorable(await stage.row(item))).toEqual(restorable(before));
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'duplicate',
			result: { invoice: 7 },
			externalRef: 'inv_7',
		});
	});

	test.each(['failed', 'dead'] as const)(
		'began %s work anew: it is as it was, its payload included',
		async (state) => {
			const item = await stage.claimed({ ...newWork(), payload: '{"order":1}' });
			await stage.fail(item, { permanent: state === 'dead' });
			const before = await stage.row(item);
			expect(before.state).toBe(state);
			const next = await stage.claimed(again(item, { payload: '{"order":2}' }), WHILE_RUNNING);
			await stage.release(next);
			expect(restorable(await stage.row(item))).toEqual(restorable(before));
		},
	);

	test.each([
		['with another payload', '{"order":2,"s":"b"}'],
		['without a payload', null],
	])('was a retry %s: the payload before is back, NUL included', async (_, payload) => {
		const item = await stage.claimed({ ...newWork(), payload: '{"order":1,"s":"a\\u0000"}' });
		await stage.fail(item);
		await stage.becomeDue(item);
		const next = await stage.claimed(again(item, { payload }));
		await stage.release(next);
		expect(await stage.row(item)).toMatchObject({ payload: { order: 1, s: 'a\0' } });
	});

	test('restores a result with NUL and half an emoji byte-equal', async () => {
		const item = await stage.claimed();
		const result = { s: 'a\0b', half: 'x\ud83d', z: 1, a: 2 };
		await stage.complete(item, { result });
		const text = async () =>
			(
				await stage.query<{ text: string }>(
					'select result::text as text from idempotency.work_log where work_id = $1',
					[item.workId],
				)
			)[0].text;
		const before = await text();
		const next = await stage.claimed(again(item), WHILE_RUNNING);
		await stage.release(next);
		expect(await text()).toBe(before);
	});

	test('released again with its token is the same answer, and changes nothing', async () => {
		const first = await stage.claimed();
		await stage.release(first);
		expect(await stage.release(first)).toMatchObject({ status: 'released', repeated: true });
		expect(await stage.findRow(first)).toBeNull();

		const retry = await stage.workThatIs('failed');
		await stage.becomeDue(retry);
		const next = await stage.claimed(again(retry));
		await stage.release(next);
		const row = await stage.row(retry);
		expect(await stage.release(next)).toMatchObject({ status: 'released', repeated: true });
		expect(await stage.row(retry)).toEqual(row);
		expect((await stage.history(retry)).filter((h) => h === 'release: released')).toHaveLength(1);
	});

	test('is not released a second time out of another claim by its old token', async () => {
		const first = await stage.claimed();
		await stage.release(first);
		const second = await stage.claimed(again(first));
		await stage.release(first);
		expect(await stage.row(second)).toMatchObject({ state: 'running', token: second.token });
	});

	test('with a reference is refused: there is an effect', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_1');
		const row = await stage.row(item);
		expect(await stage.release(item)).toMatchObject({
			status: 'refused',
			state: 'running',
			reason: expect.stringContaining('inv_1'),
		});
		expect(await stage.row(item)).toEqual(row);
	});

	test.each(['done', 'failed', 'held', 'dead'] as const)('that is %s is refused', async (state) => {
		const item = await stage.workThatIs(state);
		const row = await stage.row(item);
		expect(await stage.release(item)).toMatchObject({
			status: 'refused',
			state,
			reason: expect.stringContaining(state),
		});
		expect(await stage.row(item)).toEqual(row);
		expect(await stage.history(item)).toContain('release: refused');
	});

	test('by another token, or without one, is not the owner', async () => {
		const item = await stage.claimed();
		const row = await stage.row(item);
		expect(await stage.release(again(item))).toMatchObject({ status: 'not_owner' });
		expect(await stage.release({ ...item, token: null as never })).toMatchObject({
			status: 'not_owner',
		});
		expect(await stage.release(newWork())).toMatchObject({ status: 'not_owner', state: null });
		expect(await stage.row(item)).toEqual(row);
	});

	test('whose lease lapsed can still be released by its owner', async () => {
		const item = await stage.workThatIs('lapsed');
		expect(await stage.release(item)).toMatchObject({ status: 'released' });
		expect(await stage.findRow(item)).toBeNull();
	});

	test('a third attempt falls back to the second, a second to the first', async () => {
		const item = await stage.workThatIs('lapsed');
		const second = await stage.claimed(again(item));
		await stage.elapse(item);
		const third = await stage.claimed(again(item));
		await stage.release(third);
		expect(await stage.row(item)).toMatchObject({
			state: 'failed',
			attempt: 2,
			token: second.token,
			outcome_known: false,
		});
	});
});
