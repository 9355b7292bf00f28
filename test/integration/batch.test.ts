import { randomUUID } from 'node:crypto';

import { again, CALLER, from, newWork, POLICY, sortedWorks, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

/** Not the order in which the ledger works. */
function shuffled<T>(items: T[]): T[] {
	return items
		.map((item, i) => ({ item, at: (i * 7919) % 101 }))
		.sort((a, b) => a.at - b.at)
		.map(({ item }) => item);
}

describe('a batch of claims', () => {
	test('m1 and m2 of the last poll are duplicates, m3 is claimed, each answer at its item (case 13)', async () => {
		const [m1, m2, m3] = [newWork(), newWork(), newWork()];
		await stage.works.claim([m1, m2], POLICY);
		for (const [i, item] of [m1, m2].entries()) await stage.complete(item, { result: i });
		const answers = await stage.works.claim([again(m1), again(m2), m3], POLICY);
		expect(answers).toMatchObject([
			{ workId: m1.workId, status: 'duplicate', result: 0 },
			{ workId: m2.workId, status: 'duplicate', result: 1 },
			{ workId: m3.workId, status: 'claimed', token: m3.token },
		]);
	});

	test('of every kind of work at once is answered in the order given', async () => {
		const due = await stage.workThatIs('failed');
		await stage.becomeDue(due);
		const waiting = await stage.workThatIs('failed');
		await stage.query(
			`update idempotency.work_log set next_attempt_at = clock_timestamp() + interval '1 hour' where work_id = $1`,
			[waiting.workId],
		);
		const settled = await stage.claimed();
		await stage.record(settled, 'inv_1');
		await stage.elapse(settled);
		const expected: Array<[string, string]> = [
			[(await stage.workThatIs('done')).workId, 'duplicate'],
			[newWork().workId, 'claimed'],
			[(await stage.workThatIs('running')).workId, 'in_progress'],
			[due.workId, 'claimed'],
			[waiting.workId, 'not_due'],
			[(await stage.workThatIs('held')).workId, 'held'],
			[(await stage.workThatIs('dead')).workId, 'dead'],
			[(await stage.workThatIs('lapsed')).workId, 'claimed'],
			[(await stage.workThatIs('lapsed', { onLapse: 'hold' })).workId, 'held'],
			[(await stage.workThatIs('lapsed', { maxAttempts: 1 })).workId, 'dead'],
			[settled.workId, 'duplicate'],
			[newWork().workId, 'claimed'],
		];
		const order = shuffled(expected);
		const answers = await stage.works.claim(
			order.map(([workId]) => ({ workId, key: 'k', token: randomUUID() })),
			POLICY,
		);
		expect(answers.map(({ workId, status }) => [workId, status])).toEqual(order);
	});

	test('that holds a key several times: the first wins, the others meet it running, at their places', async () => {
		const item = newWork();
		const other = newWork();
		const items = [item, again(item), other, again(item)];
		const answers = await stage.works.claim(items, POLICY);
		expect(answers).toMatchObject([
			{ status: 'claimed', token: item.token },
			{ status: 'in_progress', workId: item.workId, token: null, owner: { execution: '100' } },
			{ status: 'claimed', token: other.token },
			{ status: 'in_progress', workId: item.workId },
		]);
		expect(await stage.row(item)).toMatchObject({ attempt: 1, token: item.token });
		expect(await stage.history(item)).toEqual([
			'claim: claimed',
			'claim: in_progress',
			'claim: in_progress',
		]);
	});

	test('that holds the key of done work several times: all are duplicates (S4)', async () => {
		const item = await stage.workThatIs('done');
		const answers = await stage.works.claim([again(item), again(item), again(item)], POLICY);
		expect(answers.map(({ status, result }) => [status, result])).toEqual(
			Array(3).fill(['duplicate', { invoice: 7 }]),
		);
	});

	test('that holds keys of done work many times brings each result once, so that large ones do not fill the memory', async () => {
		const [large, small, none, fresh] = [newWork(), newWork(), newWork(), newWork()];
		await stage.works.claim([large, small, none], POLICY);
		await stage.complete(large, { result: { text: 'x'.repeat(1_000_000) } });
		await stage.complete(small, { result: { text: 'y' } });
		await stage.complete(none, { result: null });
		const copies = (item: typeof large, count: number) =>
			Array.from({ length: count }, () => again(item));
		const answers = await stage.works.claim(
			[
				...copies(small, 1),
				...copies(large, 40),
				fresh,
				...copies(none, 3),
				again(fresh),
				...copies(small, 2),
			],
			POLICY,
		);
		const [first] = answers;
		const [firstLarge] = answers.slice(1);
		expect(first.result).toEqual({ text: 'y' });
		expect((firstLarge.result as { text: string }).text).toHaveLength(1_000_000);
		expect(answers.map(({ status }) => status)).toEqual([
			...Array<string>(41).fill('duplicate'),
			'claimed',
			...Array<string>(3).fill('duplicate'),
			'in_progress',
			...Array<string>(2).fill('duplicate'),
		]);
		// the very same value: it was read once
		for (const { result } of answers.slice(1, 41)) expect(result).toBe(firstLarge.result);
		expect(answers.slice(41, 46).map(({ result }) => result)).toEqual(Array(5).fill(null));
		for (const { result } of answers.slice(46)) expect(result).toBe(first.result);
		expect((await stage.history(large)).filter((line) => line === 'claim: duplicate')).toHaveLength(
			40,
		);
	});

	test('that holds the key of a lapsed work twice: the first is attempt 2, the other in progress', async () => {
		const item = await stage.workThatIs('lapsed');
		const answers = await stage.works.claim([again(item), again(item)], POLICY);
		expect(answers).toMatchObject([
			{ status: 'claimed', attempt: 2 },
			{ status: 'in_progress', attempt: 2 },
		]);
	});

	test('with a repeated key whose match fields differ: mismatch, without waiting', async () => {
		const item = { ...newWork(), match: { amount: 'ten' } };
		const answers = await stage.works.claim(
			[item, again(item, { match: { amount: 'eleven' } })],
			POLICY,
		);
		expect(answers).toMatchObject([
			{ status: 'claimed' },
			{ status: 'mismatch', mismatch: ['amount'] },
		]);
	});

	test('never waits for its own execution: a repeated key is answered Busy at once', async () => {
		const item = newWork();
		const answers = await stage.works.claimAndWait([item, again(item)], POLICY, { seconds: 25 });
		expect(answers.map(({ status }) => status)).toEqual(['claimed', 'in_progress']);
	}, 10_000);

	test('sent again with its tokens gets the first answers, repeated keys included', async () => {
		const item = newWork();
		const items = [item, again(item), newWork()];
		const first = await stage.works.claim(items, POLICY);
		const second = await stage.works.claim(items, POLICY);
		expect(second.map(({ status, token }) => [status, token])).toEqual(
			first.map(({ status, token }) => [status, token]),
		);
		expect((await stage.history(item)).filter((h) => h === 'claim: claimed')).toHaveLength(1);
	});

	test('of none answers none', async () => {
		expect(await stage.works.claim([], POLICY)).toEqual([]);
		expect(await stage.works.complete([], CALLER)).toEqual([]);
		expect(await stage.works.fail([], CALLER)).toEqual([]);
	});

	test('larger than a statement is sent in chunks, in order, each work once', async () => {
		const items = Array.from({ length: 5_001 }, () => newWork());
		const answers = await stage.works.claim(items, POLICY);
		expect(answers.map(({ token }) => token)).toEqual(items.map(({ token }) => token));
		const completed = await stage.works.complete(
			items.map(({ workId, token }, i) => ({ workId, token, result: i })),
			CALLER,
		);
		expect(completed.map(({ workId }) => workId)).toEqual(items.map(({ workId }) => workId));
		const duplicates = await stage.works.claim(
			items.map((item) => again(item)),
			POLICY,
		);
		expect(duplicates.map(({ result }) => result)).toEqual(items.map((_, i) => i));
	});

	test('whose later chunk is refused strands nothing: the earlier claims are released', async () => {
		const items = Array.from({ length: 5_001 }, () => newWork());
		items[5_000] = { ...items[5_000], workId: 'not a sha256' };
		await expect(stage.works.claim(items, POLICY, { freshTokens: true })).rejects.toMatchObject({
			code: 'bad_input',
		});
		const [{ left }] = await stage.query<{ left: number }>(
			'select count(*)::int as left from idempotency.work_log where work_id = any($1)',
			[items.map(({ workId }) => workId)],
		);
		expect(left).toBe(0);
	});

	test('sent again and failing leaves the claim of its first sending', async () => {
		const held = await stage.claimed();
		const items = [held, ...Array.from({ length: 4_999 }, () => newWork())];
		items.push({ ...newWork(), workId: 'short' });
		await expect(stage.works.claim(items, POLICY)).rejects.toThrow();
		expect(await stage.row(held)).toMatchObject({ state: 'running', token: held.token });
	});

	test("whose later chunk is refused leaves others' works and duplicates as they were", async () => {
		const done = await stage.workThatIs('done');
		const busy = await stage.workThatIs('running');
		const before = [await stage.row(done), await stage.row(busy)];
		const items = [again(done), again(busy), ...Array.from({ length: 4_998 }, () => newWork())];
		items.push({ ...newWork(), workId: 'short' });
		await expect(stage.works.claim(items, POLICY, { freshTokens: true })).rejects.toThrow();
		expect([await stage.row(done), await stage.row(busy)]).toEqual(before);
	});

	test('without a token for each is refused', async () => {
		const item = newWork();
		await expect(
			stage.works.claim([item, { ...newWork(), token: null as never }], POLICY),
		).rejects.toMatchObject({ code: 'bad_input', message: expect.stringContaining('token') });
		await expect(
			stage.works.claim([{ ...newWork(), token: null as never }], POLICY),
		).rejects.toMatchObject({ code: 'bad_input', message: expect.stringContaining('token') });
		expect(await stage.findRow(item)).toBeNull();
	});
});

describe('a batch of completions', () => {
	test('keeps results at their works, whatever the order', async () => {
		const items = shuffled(sortedWorks(50));
		await stage.works.claim(items, POLICY);
		const answers = await stage.works.complete(
			items.map(({ workId, token, key }) => ({ workId, token, result: { key } })),
			CALLER,
		);
		expect(answers.map(({ workId, status }) => [workId, status])).toEqual(
			items.map(({ workId }) => [workId, 'completed']),
		);
		for (const item of items.slice(0, 5)) {
			expect(await stage.row(item)).toMatchObject({ result: { key: item.key } });
		}
	});

	test('mixes owners, strangers and repeats, each answered at its place', async () => {
		const mine = [await stage.claimed(), await stage.claimed()];
		const done = await stage.workThatIs('done');
		const stranger = again(await stage.workThatIs('running'));
		const answers = await stage.works.complete(
			[
				{ ...stranger, result: 0 },
				{ ...mine[0], result: 1 },
				{ ...done, result: { invoice: 7 }, externalRef: 'inv_7' },
				{ ...newWork(), result: 3 },
				{ ...mine[1], result: 4 },
			],
			CALLER,
		);
		expect(answers.map(({ status, repeated }) => [status, repeated])).toEqual([
			['not_owner', false],
			['completed', false],
			['completed', true],
			['not_owner', false],
			['completed', false],
		]);
	});

	test('that names a work twice: the first stands, the second is reported', async () => {
		const item = await stage.claimed();
		const other = await stage.claimed();
		const answers = await stage.works.complete(
			[
				{ ...item, result: 'first' },
				{ ...other, result: 0 },
				{ ...item, result: 'second' },
				{ ...item, result: 'first' },
			],
			CALLER,
		);
		expect(answers).toMatchObject([
			{ status: 'completed', differs: [] },
			{ status: 'completed' },
			{ status: 'completed', differs: ['result'], result: 'first' },
			{ status: 'completed', repeated: true },
		]);
		expect(await stage.row(item)).toMatchObject({ result: 'first' });
	});

	test('a stale token first and the owner second: the owner completes', async () => {
		const stale = await stage.workThatIs('lapsed');
		const owner = await stage.claimed(again(stale), from({ execution: '101' }));
		const answers = await stage.works.complete(
			[
				{ ...stale, result: 'stale' },
				{ ...owner, result: 'mine' },
			],
			CALLER,
		);
		expect(answers.map(({ status }) => status)).toEqual(['not_owner', 'completed']);
		expect(await stage.row(owner)).toMatchObject({ state: 'done', result: 'mine' });
	});
});

test('every operation answers in the order given, not in the order it locks', async () => {
	const items = sortedWorks(6).reverse();
	await stage.works.claim(items, POLICY);
	const ids = items.map(({ workId }) => workId);
	const inOrder = (answers: Array<{ workId: string }>) =>
		expect(answers.map(({ workId }) => workId)).toEqual(ids);
	inOrder(await stage.works.extend(items, CALLER));
	inOrder(
		await stage.works.recordReference(
			items.map((i) => ({ ...i, externalRef: 'r' })),
			CALLER,
		),
	);
	inOrder(await stage.works.release(items, CALLER));
	inOrder(
		await stage.works.fail(
			items.map((i) => ({ ...i, error: 'x', landed: 'no' })),
			CALLER,
		),
	);
	inOrder(await stage.works.complete(items, CALLER));
});
