import { randomUUID } from 'node:crypto';

import type { ClaimPolicy, WorkState } from '../../ledger/contract';
import { again, CALLER, from, newWork, PATHS, Stage, type Path } from './stage';

/** Shadow mode: the caller acts whatever the answer is, so the ledger may report everything and stop nothing. */
const SHADOW: Partial<ClaimPolicy> = { shadow: true };

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

describe.each(PATHS)('a claim in shadow mode, %s', (path: Path) => {
	test('is answered as a claim in earnest would be, and its completion counts from then on', async () => {
		const first = await stage.claimed(newWork(), SHADOW, path);
		expect(await stage.claim(again(first), SHADOW, path)).toMatchObject({ status: 'in_progress' });
		await stage.complete(first, { result: { invoice: 7 }, externalRef: 'inv_7' });

		const second = await stage.claim(again(first), SHADOW, path);
		expect(second).toMatchObject({ status: 'duplicate', token: null, externalRef: 'inv_7' });
		// shadow mode is switched off
		expect(await stage.claim(again(first), {}, path)).toMatchObject({
			status: 'duplicate',
			result: { invoice: 7 },
			externalRef: 'inv_7',
		});
	});

	test('meets work claimed in earnest without changing it', async () => {
		for (const state of ['running', 'done', 'failed', 'dead', 'held'] as WorkState[]) {
			const item = await stage.workThatIs(state);
			const before = await stage.row(item);
			const { status } = await stage.claim(again(item), SHADOW, path);
			expect([state, status]).toEqual([
				state,
				{
					running: 'in_progress',
					done: 'duplicate',
					failed: 'not_due',
					dead: 'dead',
					held: 'held',
				}[state],
			]);
			expect(await stage.row(item)).toEqual(before);
		}
	});

	test('says in the decision log that nothing was held back', async () => {
		const item = await stage.claimed(newWork(), SHADOW, path);
		await stage.claim(again(item), SHADOW, path);
		await stage.claim(again(item), {}, path);
		const log = await stage.log(item);
		expect(log.map(({ outcome, checked }) => [outcome, checked?.shadow])).toEqual([
			['claimed', true],
			['in_progress', true],
			['in_progress', undefined],
		]);
	});

	test('that never reports is neither held nor dead, whatever the policy says', async () => {
		for (const policy of [{ onLapse: 'hold' as const }, { maxAttempts: 1 }]) {
			const item = await stage.claimed(newWork(), { ...SHADOW, ...policy }, path);
			await stage.elapse(item);
			expect(await stage.ledger.admin.sweep(100)).toContainEqual({
				workId: item.workId,
				state: 'failed',
			});
			expect(await stage.row(item)).toMatchObject({ state: 'failed', outcome_known: false });
		}
	});

	test('reports what would have been held, or dead, and leaves the work as it is', async () => {
		for (const [policy, status] of [
			[{ onLapse: 'hold' }, 'held'],
			[{ maxAttempts: 1 }, 'dead'],
			[{ maxAttempts: 2 }, 'claimed'],
		] as Array<[Partial<ClaimPolicy>, string]>) {
			for (const swept of [false, true]) {
				const item = await stage.claimed(newWork(), { ...SHADOW, ...policy }, path);
				await stage.elapse(item);
				if (swept) await stage.ledger.admin.sweep(100);
				const before = await stage.row(item);
				const answer = await stage.claim(again(item), { ...SHADOW, ...policy }, path);
				expect(answer.status).toBe(status);
				const after = await stage.row(item);
				if (status !== 'claimed') expect(after).toEqual(before);
				else expect(after).toMatchObject({ state: 'running', attempt: 2, on_lapse: 'shadow' });
			}
		}
	});

	test('is never handed out for a retry: the effect would run a second time', async () => {
		const kind = `retry-${path.replaceAll(' ', '-')}`;
		const payload = '{"order":7}';
		const policy = { kind, backoffBaseSeconds: 0 };
		const watched = await stage.claimed({ ...newWork(), payload }, { ...policy, ...SHADOW }, path);
		const guarded = await stage.claimed({ ...newWork(), payload }, policy, path);
		// one that failed in earnest, and was then claimed in shadow mode
		const taken = newWork();
		await stage.claimed({ ...taken, payload }, policy);
		await stage.fail(taken);
		const retaken = again(taken, { payload });
		await stage.becomeDue(taken);
		await stage.claimed(retaken, { ...policy, ...SHADOW }, path);
		for (const item of [watched, guarded, retaken]) {
			await stage.fail(item);
			await stage.becomeDue(item);
		}
		const due = await stage.ledger.subscriptions.claimDue('runner', [kind], 10, CALLER);
		expect(due.map((each) => each.work.workId)).toEqual([guarded.workId]);
	});

	test('released again, gives back what it was taken from, with its payload', async () => {
		const taken = newWork();
		await stage.claimed({ ...taken, payload: '{"order":"\\u0000"}' }, { onLapse: 'hold' });
		await stage.fail(taken);
		await stage.becomeDue(taken);
		const before = await stage.row(taken);
		const retaken = await stage.claimed(again(taken), SHADOW, path);
		expect(await stage.row(taken)).toMatchObject({ state: 'running', payload: null });
		expect(await stage.release(retaken)).toMatchObject({ status: 'released', state: 'failed' });
		expect(await stage.row(taken)).toEqual({
			...before,
			updated_at: expect.any(Date) as unknown,
		});
	});
});

describe.each(PATHS)('a claim in earnest that meets one of shadow mode, %s', (path: Path) => {
	test('waits for a live one: its effect is running', async () => {
		const item = await stage.claimed(newWork(), SHADOW);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({ status: 'in_progress' });
	});

	test('takes over a lost one with all its attempts, and is told that the effect may have landed', async () => {
		const item = newWork();
		for (let attempt = 1; attempt <= 3; attempt++) {
			await stage.claimed(again(item), SHADOW);
			await stage.elapse(item);
		}
		const mine = again(item);
		expect(await stage.claim(mine, { maxAttempts: 2 }, path)).toMatchObject({
			status: 'claimed',
			attempt: 1,
			previousOutcome: 'unknown',
		});
		expect(await stage.row(mine)).toMatchObject({ on_lapse: 'run_again', attempt: 1 });
		// from here on the contract holds
		await stage.elapse(mine);
		expect(await stage.claim(again(item), { maxAttempts: 2 }, path)).toMatchObject({
			status: 'claimed',
			attempt: 2,
		});
	});

	test('holds a lost one for review where that is its policy, swept before or not', async () => {
		for (const swept of [false, true]) {
			const item = await stage.claimed(newWork(), SHADOW);
			await stage.elapse(item);
			if (swept) await stage.ledger.admin.sweep(100);
			expect(await stage.claim(again(item), { onLapse: 'hold' }, path)).toMatchObject({
				status: 'held',
				lastError: expect.stringContaining('lease lapsed') as unknown,
			});
			expect(await stage.row(item)).toMatchObject({
				state: 'held',
				outcome_known: false,
				next_attempt_at: null,
			});
		}
	});

	test('does not hold one that failed for certain', async () => {
		const item = await stage.claimed(newWork(), SHADOW);
		await stage.fail(item, { landed: 'no' });
		await stage.becomeDue(item);
		expect(await stage.claim(again(item), { onLapse: 'hold' }, path)).toMatchObject({
			status: 'claimed',
			previousOutcome: 'failed',
		});
	});

	test('is a duplicate of a lost one whose reference was recorded', async () => {
		const item = await stage.claimed(newWork(), SHADOW);
		await stage.record(item, 'inv_9');
		await stage.elapse(item);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({
			status: 'duplicate',
			externalRef: 'inv_9',
		});
	});
});

test('a shadow claim that its owner fails for good is not dead, and nobody is told of a death', async () => {
	const kind = 'watched';
	const item = await stage.claimed(newWork(), { ...SHADOW, kind });
	expect(await stage.fail(item, { permanent: true })).toMatchObject({ state: 'failed' });
	const other = await stage.claimed(newWork(), { ...SHADOW, kind });
	await stage.works.failExecution(
		CALLER.instance ?? null,
		[CALLER.execution ?? ''],
		'crashed',
		CALLER,
	);
	expect(await stage.row(other)).toMatchObject({ state: 'failed' });
	expect(
		await stage.query(
			`select * from idempotency.announce_dead_letters('boss', '{dead,held}', '{watched}', 10, $1, '{}')`,
			[randomUUID()],
		),
	).toEqual([]);
});

test('what came without a claim is recorded once, with the reference of what may be a second effect', async () => {
	const item = await stage.claimed(newWork(), SHADOW);
	const passed = {
		workId: item.workId,
		nonce: randomUUID(),
		result: { invoice: 8 },
		externalRef: 'inv_8',
	};
	// both at once, as a resend of a call whose answer is late
	await Promise.all([
		stage.works.passShadow([passed], 'complete', CALLER),
		stage.works.passShadow([passed], 'complete', CALLER),
	]);
	const rows = (await stage.log(item)).filter(({ outcome }) => outcome === 'shadow');
	expect(rows).toMatchObject([
		{
			event: 'complete',
			result: { invoice: 8 },
			external_ref: 'inv_8',
			checked: { found: 'running' },
		},
	]);
	expect(await stage.row(item)).toMatchObject({ state: 'running', external_ref: null });
});

test('statistics count apart what shadow mode suppressed: nothing', async () => {
	const kind = 'counted';
	const policy = from({}, { kind });
	const item = newWork();
	for (const shadow of [true, true, true, false]) {
		await stage.works.claim([again(item)], { ...policy, shadow });
	}
	const { decisions } = await stage.ledger.admin.statistics(kind);
	expect(decisions).toEqual([
		{ kind, event: 'claim', outcome: 'claimed', count: '1', shadow: true },
		{ kind, event: 'claim', outcome: 'in_progress', count: '1' },
		{ kind, event: 'claim', outcome: 'in_progress', count: '2', shadow: true },
	]);
});

test('shadow is an option of its own, not a policy for lapses', async () => {
	await expect(stage.claim(newWork(), { onLapse: 'shadow' as never })).rejects.toThrow('on_lapse');
});
