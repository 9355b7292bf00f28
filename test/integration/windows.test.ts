import { again, from, newWork, PATHS, Stage } from './stage';
import type { ClaimWindow } from '../../ledger/contract';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

const WHILE_RUNNING: ClaimWindow = { mode: 'while_running' };
const ONE_HOUR: ClaimWindow = { mode: 'duration', seconds: 3600 };

describe.each(PATHS)('the window of a claim sent %s', (path) => {
	describe('for a duration', () => {
		test('remembers until its last second, counted from the completion', async () => {
			const item = await stage.claimed(newWork(), { window: ONE_HOUR });
			// a long run: the window must not count from the claim
			await stage.age(item, 7200);
			await stage.complete(item, { result: 1 });
			await stage.age(item, 3590);
			expect(await stage.claim(again(item), { window: ONE_HOUR }, path)).toMatchObject({
				status: 'duplicate',
				result: 1,
			});
		});

		test('is a new generation afterwards: attempt 1, old result and reference only in the log', async () => {
			const item = await stage.workThatIs('done');
			await stage.age(item, 3601);
			const old = await stage.row(item);
			const next = again(item);
			expect(await stage.claim(next, { window: ONE_HOUR }, path)).toMatchObject({
				status: 'claimed',
				generation: 2,
				attempt: 1,
				token: next.token,
				previousOutcome: null,
				lastError: null,
				result: null,
				externalRef: null,
				completedAt: null,
			});
			expect(await stage.row(item)).toMatchObject({
				state: 'running',
				result: null,
				external_ref: null,
				completed_at: null,
				last_done_at: old.last_done_at,
				created_at: old.created_at,
			});
			const { first_started_at, claimed_at } = await stage.row(item);
			expect(first_started_at).toEqual(claimed_at);
			expect((await stage.log(item)).at(-1)).toMatchObject({
				event: 'claim',
				outcome: 'claimed',
				generation: 2,
				result: { invoice: 7 },
				external_ref: 'inv_7',
				checked: { window: ONE_HOUR, found: 'done' },
			});
		});

		test('is the window of the claim that asks, not of the one that did the work', async () => {
			const item = await stage.claimed(newWork(), { window: WHILE_RUNNING });
			await stage.complete(item);
			await stage.age(item, 60);
			expect(await stage.claim(again(item), { window: ONE_HOUR }, path)).toMatchObject({
				status: 'duplicate',
			});
			const short: ClaimWindow = { mode: 'duration', seconds: 30 };
			expect(await stage.claim(again(item), { window: short }, path)).toMatchObject({
				status: 'claimed',
				generation: 2,
			});
		});

		test('does not free failed, held or dead work', async () => {
			for (const state of ['held', 'dead'] as const) {
				const item = await stage.workThatIs(state);
				await stage.age(item, 7200);
				expect(await stage.claim(again(item), { window: ONE_HOUR }, path)).toMatchObject({
					status: state,
				});
			}
			const failed = await stage.workThatIs('failed');
			await stage.age(failed, 7200);
			expect(await stage.claim(again(failed), { window: ONE_HOUR }, path)).toMatchObject({
				status: 'claimed',
				generation: 1,
				attempt: 2,
			});
		});
	});

	describe('only while running', () => {
		test.each(['done', 'failed', 'dead'] as const)(
			'begins %s work anew as the next generation',
			async (state) => {
				const item = await stage.workThatIs(state);
				const next = again(item);
				expect(await stage.claim(next, { window: WHILE_RUNNING }, path)).toMatchObject({
					status: 'claimed',
					generation: 2,
					attempt: 1,
					token: next.token,
					previousOutcome: null,
					lastError: null,
					externalRef: null,
				});
				expect(await stage.row(item)).toMatchObject({
					state: 'running',
					result: null,
					external_ref: null,
					last_error: null,
				});
			},
		);

		test('begins with nothing of the generation before: payload, doubt and error are its own', async () => {
			const item = await stage.claimed({ ...newWork(), payload: '{"order":1}' });
			await stage.fail(item, { landed: 'unknown' });
			await stage.claimed(again(item, { payload: '{"order":2}' }), { window: WHILE_RUNNING }, path);
			expect(await stage.row(item)).toMatchObject({
				payload: { order: 2 },
				outcome_known: true,
				last_error: null,
			});
			const done = await stage.workThatIs('done');
			await stage.claimed(again(done, { payload: null }), { window: WHILE_RUNNING }, path);
			expect(await stage.row(done)).toMatchObject({ payload: null });
			// its release must not bring anything of this generation back
			await stage.release(again(done, { token: (await stage.row(done)).token as string }));
			expect(await stage.row(done)).toMatchObject({ state: 'done', payload: null });
		});

		test('still meets running work: in progress', async () => {
			const item = await stage.workThatIs('running');
			expect(await stage.claim(again(item), { window: WHILE_RUNNING }, path)).toMatchObject({
				status: 'in_progress',
				generation: 1,
			});
		});

		test('still meets held work: nobody knows, and it is not guessed', async () => {
			const item = await stage.workThatIs('held');
			expect(await stage.claim(again(item), { window: WHILE_RUNNING }, path)).toMatchObject({
				status: 'held',
			});
		});

		test('takes a lapsed run over as its next attempt, not as a new generation', async () => {
			const item = await stage.workThatIs('lapsed');
			expect(await stage.claim(again(item), { window: WHILE_RUNNING }, path)).toMatchObject({
				status: 'claimed',
				generation: 1,
				attempt: 2,
				previousOutcome: 'unknown',
			});
		});
	});

	test('forever is the default of SQL callers, too, and never ends', async () => {
		const item = await stage.workThatIs('done');
		await stage.age(item, 100 * 365 * 86_400);
		expect(await stage.claim(again(item), {}, path)).toMatchObject({ status: 'duplicate' });
	});

	test('that the functions do not know is refused before anything is claimed', async () => {
		const item = newWork();
		const bad = [
			{ mode: 'until_next_success' },
			{ mode: 'duration' },
			{ mode: 'duration', seconds: 0 },
			{ mode: 'duration', seconds: -1 },
			{ mode: 'duration', seconds: 1e12 },
		] as unknown as ClaimWindow[];
		for (const window of bad) {
			await expect(stage.claim(item, { window }, path)).rejects.toMatchObject({
				name: 'LedgerError',
				code: 'bad_input',
				message: expect.stringContaining('window'),
			});
		}
		expect(await stage.findRow(item)).toBeNull();
	});
});

test('a new generation stores the policy of its own claim', async () => {
	const item = await stage.workThatIs('done', { maxAttempts: 5 });
	const next = again(item);
	await stage.claim(
		next,
		from(
			{ execution: '9' },
			{ window: WHILE_RUNNING, maxAttempts: 2, onLapse: 'hold', leaseSeconds: 60 },
		),
	);
	expect(await stage.row(item)).toMatchObject({
		max_attempts: 2,
		on_lapse: 'hold',
		lease_s: 60,
		execution: '9',
	});
});

test('the owner of the generation before cannot complete the new one', async () => {
	const item = await stage.workThatIs('done');
	const next = await stage.claimed(again(item), { window: WHILE_RUNNING });
	expect(await stage.complete(item, { result: 'stale' })).toMatchObject({ status: 'not_owner' });
	expect(await stage.row(item)).toMatchObject({
		state: 'running',
		token: next.token,
		result: null,
	});
});
