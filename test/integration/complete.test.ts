import { randomUUID } from 'node:crypto';

import { again, from, newWork, PATHS, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

describe.each(PATHS)('a completion sent %s', (path) => {
	test('by the owner stores result and reference: done', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"id":1}' });
		const answer = await stage.complete(item, { result: { a: 1 }, externalRef: 'inv_1' }, path);
		expect(answer).toMatchObject({
			status: 'completed',
			state: 'done',
			generation: 1,
			attempt: 1,
			externalRef: 'inv_1',
			completedAt: expect.any(String),
			late: false,
			repeated: false,
			differs: [],
			reason: null,
			warnings: [],
			key: item.key,
			kind: 'invoice',
		});
		const row = await stage.row(item);
		expect(row).toMatchObject({
			state: 'done',
			result: { a: 1 },
			external_ref: 'inv_1',
			payload: null,
			token: item.token,
			settled_by: 'owner',
		});
		expect(row.last_done_at).toEqual(row.completed_at);
		expect(await stage.history(item)).toEqual(['claim: claimed', 'complete: completed']);
	});

	test('after the lease lapsed, while nobody else claimed, is accepted as late, once (case 108)', async () => {
		const item = await stage.workThatIs('lapsed');
		expect(await stage.complete(item, { result: 1 }, path)).toMatchObject({
			status: 'completed',
			late: true,
		});
		expect(await stage.row(item)).toMatchObject({ state: 'done', result: 1 });
		expect(await stage.complete(item, { result: 1 }, path)).toMatchObject({ repeated: true });
		expect((await stage.log(item)).filter(({ event }) => event === 'complete')).toHaveLength(1);
	});

	test.each(['failed', 'held', 'dead'] as const)(
		'of %s work by the owner of its token is accepted as late',
		async (state) => {
			const item = await stage.workThatIs(state);
			expect(
				await stage.complete(item, { result: 'it worked', externalRef: 'x' }, path),
			).toMatchObject({ status: 'completed', state: 'done', late: true, nextAttemptAt: null });
			expect(await stage.row(item)).toMatchObject({
				state: 'done',
				result: 'it worked',
				external_ref: 'x',
				outcome_known: true,
				next_attempt_at: null,
				payload: null,
			});
			expect(await stage.claim(again(item))).toMatchObject({
				status: 'duplicate',
				result: 'it worked',
			});
		},
	);

	test('of work that a claim settled as held or dead is accepted from its owner', async () => {
		for (const policy of [{ onLapse: 'hold' as const }, { maxAttempts: 1 }]) {
			const item = await stage.workThatIs('lapsed', policy);
			await stage.claim(again(item));
			expect(await stage.complete(item, { result: 1 }, path)).toMatchObject({
				status: 'completed',
				late: true,
			});
		}
	});

	test('repeated with the same content changes nothing, whatever the order of its keys', async () => {
		const item = await stage.claimed();
		await stage.complete(item, { result: { a: 1, b: [1, 2] }, externalRef: 'r' }, path);
		const row = await stage.row(item);
		for (const result of [
			{ a: 1, b: [1, 2] },
			{ b: [1, 2], a: 1 },
		]) {
			expect(await stage.complete(item, { result, externalRef: 'r' }, path)).toMatchObject({
				status: 'completed',
				repeated: true,
				differs: [],
				externalRef: 'r',
			});
		}
		expect(await stage.row(item)).toEqual(row);
		expect(await stage.history(item)).toEqual(['claim: claimed', 'complete: completed']);
	});

	test('repeated with another result: the first stands, the difference is reported and logged', async () => {
		const item = await stage.claimed();
		await stage.complete(item, { result: { a: 1 } });
		const row = await stage.row(item);
		expect(await stage.complete(item, { result: { a: 2 } }, path)).toMatchObject({
			status: 'completed',
			differs: ['result'],
			result: { a: 1 },
		});
		expect(await stage.row(item)).toEqual(row);
		expect((await stage.log(item)).at(-1)).toMatchObject({
			event: 'complete',
			outcome: 'refused',
			result: { a: 2 },
		});
	});

	test('with another reference than the recorded one: the first stands, the other is reported', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_1');
		expect(await stage.complete(item, { result: 1, externalRef: 'inv_2' }, path)).toMatchObject({
			status: 'completed',
			externalRef: 'inv_1',
			differs: ['external_ref'],
		});
		expect(await stage.row(item)).toMatchObject({
			state: 'done',
			result: 1,
			external_ref: 'inv_1',
		});
		expect((await stage.log(item)).at(-1)).toMatchObject({ external_ref: 'inv_2' });
	});

	test('keeps the recorded reference when it brings none', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_1');
		expect(await stage.complete(item, { result: 1 }, path)).toMatchObject({
			status: 'completed',
			externalRef: 'inv_1',
			late: false,
			differs: [],
		});
		expect(await stage.row(item)).toMatchObject({ external_ref: 'inv_1', result: 1 });
	});

	test('fills the result of work that was done by its reference only', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_1');
		await stage.elapse(item);
		await stage.claim(again(item));
		const { completed_at } = await stage.row(item);
		expect(await stage.complete(item, { result: { a: 1 } }, path)).toMatchObject({
			status: 'completed',
			late: true,
			differs: [],
		});
		expect(await stage.row(item)).toMatchObject({
			state: 'done',
			result: { a: 1 },
			external_ref: 'inv_1',
			completed_at,
		});
	});

	test('by a stale owner is not the owner: the work is untouched, the refused result is in the log', async () => {
		const item = await stage.claimed(newWork(), from({ execution: '100' }));
		await stage.elapse(item);
		await stage.claimed(again(item), from({ execution: '101' }));
		const row = await stage.row(item);
		expect(
			await stage.complete(item, { result: { second: 'effect' }, externalRef: 'inv_2' }, path),
		).toMatchObject({
			status: 'not_owner',
			state: 'running',
			attempt: 2,
			reason: expect.stringMatching(/another token.*101/),
			key: item.key,
		});
		expect(await stage.row(item)).toEqual(row);
		expect((await stage.log(item)).at(-1)).toMatchObject({
			event: 'complete',
			outcome: 'not_owner',
			token: item.token,
			result: { second: 'effect' },
			external_ref: 'inv_2',
		});
	});

	test('of done work by another token is not the owner and shows what is stored', async () => {
		const item = await stage.workThatIs('done');
		const row = await stage.row(item);
		expect(await stage.complete(again(item), { result: 'x' }, path)).toMatchObject({
			status: 'not_owner',
			state: 'done',
			result: { invoice: 7 },
			externalRef: 'inv_7',
		});
		expect(await stage.row(item)).toEqual(row);
	});

	test('of work the ledger does not hold is not the owner, and the result is not lost', async () => {
		const item = newWork();
		expect(await stage.complete(item, { result: 'late', externalRef: 'r' }, path)).toMatchObject({
			status: 'not_owner',
			state: null,
			generation: null,
			reason: expect.stringContaining('no such work'),
		});
		expect(await stage.findRow(item)).toBeNull();
		expect(await stage.log(item)).toMatchObject([
			{ outcome: 'not_owner', result: 'late', external_ref: 'r' },
		]);
	});

	test('without a token never matches, running or settled with its token cleared', async () => {
		const running = await stage.workThatIs('running');
		const fenced = await stage.workThatIs('failed');
		await stage.query('update idempotency.work_log set token = null where work_id = $1', [
			fenced.workId,
		]);
		const ask = [running, fenced].map(({ workId }) => ({ workId, token: null, result: 1 }));
		const answers = path === 'alone' ? [] : await stage.works.complete(ask, {});
		if (path === 'alone') {
			for (const one of ask) answers.push(...(await stage.works.complete([one], {})));
		}
		expect(answers.map(({ status }) => status)).toEqual(['not_owner', 'not_owner']);
		expect(await stage.row(running)).toMatchObject({ state: 'running' });
		expect(await stage.row(fenced)).toMatchObject({ state: 'failed' });
	});

	test('without a result is done with none, and repeats as the same', async () => {
		const item = await stage.claimed();
		expect(await stage.complete(item, {}, path)).toMatchObject({ status: 'completed' });
		expect(await stage.complete(item, {}, path)).toMatchObject({ repeated: true, differs: [] });
		expect(await stage.claim(again(item))).toMatchObject({ status: 'duplicate', result: null });
	});

	test('a JSON null is a result like any other', async () => {
		const item = await stage.claimed();
		await stage.complete(item, { result: null }, path);
		expect(await stage.complete(item, { result: null }, path)).toMatchObject({
			repeated: true,
			differs: [],
		});
	});

	test('repeated with a reference that the first one did not have does not lose it', async () => {
		const item = await stage.claimed();
		await stage.complete(item, { result: 1 }, path);
		const answer = await stage.complete(item, { result: 1, externalRef: 'inv_9' }, path);
		expect(answer.status).toBe('completed');
		const row = await stage.row(item);
		const logged = (await stage.log(item)).map(({ external_ref }) => external_ref);
		expect([row.external_ref, ...logged]).toContain('inv_9');
		expect(row.external_ref === 'inv_9' || answer.differs.includes('external_ref')).toBe(true);
	});

	test('of a later attempt does not keep the error of an earlier one', async () => {
		const item = await stage.workThatIs('failed');
		await stage.becomeDue(item);
		const next = await stage.claimed(again(item));
		await stage.complete(next, { result: 1 }, path);
		expect(await stage.claim(again(item))).toMatchObject({ status: 'duplicate', lastError: null });
	});
});

describe('a result that JSON cannot carry never fails the completion', () => {
	const circular: Record<string, unknown> = { name: 'loop' };
	circular.self = circular;

	test.each([
		['circular', circular, { name: 'loop', self: { $notStored: 'circular reference' } }],
		['BigInt', { n: 9007199254740993n }, { n: '9007199254740993' }],
		['function', () => 1, { $notStored: 'function' }],
		[
			'throwing',
			{
				get bad() {
					throw new Error('no');
				},
			},
			{ $notStored: 'not readable' },
		],
	])('%s: a marker and a warning', async (_, result, stored) => {
		const item = await stage.claimed();
		const answer = await stage.complete(item, { result });
		expect(answer.status).toBe('completed');
		expect(answer.warnings).toHaveLength(1);
		expect(await stage.row(item)).toMatchObject({ state: 'done', result: stored });
	});

	test('oversized: a marker that tells its size, and a warning', async () => {
		const item = await stage.claimed();
		const answer = await stage.complete(item, { result: 'x'.repeat(17 * 1024 * 1024) });
		expect(answer.warnings).toEqual([expect.stringContaining('too large')]);
		expect(await stage.row(item)).toMatchObject({
			state: 'done',
			result: { $notStored: 'too large', bytes: 17 * 1024 * 1024 + 2 },
		});
	});
});

test('a stale failure is not written on the row of the new owner (case 109)', async () => {
	const first = await stage.claimed(newWork(), from({ execution: 'A' }));
	await stage.elapse(first);
	const second = await stage.claimed(again(first), from({ execution: 'B' }));
	expect(await stage.fail(first, { error: 'x' })).toMatchObject({
		status: 'not_owner',
		reason: expect.stringContaining('another token'),
	});
	expect(await stage.complete(second, { result: 'B' })).toMatchObject({ status: 'completed' });
	expect(await stage.fail(first, { error: 'x' })).toMatchObject({ status: 'not_owner' });
	expect(await stage.row(first)).toMatchObject({ state: 'done', result: 'B', last_error: null });
	expect(await stage.history(first)).toEqual([
		'claim: claimed',
		'claim: claimed',
		'fail: not_owner',
		'complete: completed',
		'fail: not_owner',
	]);
});

test('S12, S13: only the token fences, though state and every time be equal', async () => {
	const item = await stage.claimed();
	const sameRow = { ...item, token: randomUUID() };
	expect(await stage.complete(sameRow, { result: 'stranger' })).toMatchObject({
		status: 'not_owner',
	});
	expect(await stage.row(item)).toMatchObject({ state: 'running', result: null });
});
