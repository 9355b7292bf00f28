import { again, from, newWork, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

describe('a reference', () => {
	test('recorded by the owner is stored at once; the work goes on running', async () => {
		const item = await stage.claimed();
		const { locked_until } = await stage.row(item);
		expect(await stage.record(item, 'inv_1')).toMatchObject({
			status: 'recorded',
			state: 'running',
			externalRef: 'inv_1',
			late: false,
			repeated: false,
			differs: [],
		});
		expect(await stage.row(item)).toMatchObject({
			state: 'running',
			external_ref: 'inv_1',
			token: item.token,
			locked_until,
		});
		expect((await stage.log(item)).at(-1)).toMatchObject({
			event: 'record_reference',
			outcome: 'recorded',
			external_ref: 'inv_1',
		});
	});

	test('recorded again, the same, changes nothing', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_1');
		const row = await stage.row(item);
		expect(await stage.record(item, 'inv_1')).toMatchObject({
			status: 'recorded',
			repeated: true,
			differs: [],
		});
		expect(await stage.row(item)).toEqual(row);
		expect(await stage.history(item)).toEqual(['claim: claimed', 'record_reference: recorded']);
	});

	test('that differs from the recorded one never replaces it: reported and logged', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'inv_1');
		const row = await stage.row(item);
		expect(await stage.record(item, 'inv_2')).toMatchObject({
			status: 'recorded',
			externalRef: 'inv_1',
			differs: ['external_ref'],
		});
		expect(await stage.row(item)).toEqual(row);
		expect((await stage.log(item)).at(-1)).toMatchObject({
			event: 'record_reference',
			outcome: 'refused',
			external_ref: 'inv_2',
		});
	});

	test('recorded after the lease lapsed is stored as late, and decides the lapse', async () => {
		const item = await stage.workThatIs('lapsed');
		expect(await stage.record(item, 'inv_1')).toMatchObject({
			status: 'recorded',
			late: true,
			externalRef: 'inv_1',
		});
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'duplicate',
			externalRef: 'inv_1',
		});
	});

	test.each(['failed', 'held', 'dead'] as const)(
		'recorded late on %s work settles it as done: the effect is known now',
		async (state) => {
			const item = await stage.workThatIs(state);
			expect(await stage.record(item, 'inv_1')).toMatchObject({
				status: 'recorded',
				state: 'done',
				late: true,
				externalRef: 'inv_1',
				nextAttemptAt: null,
				completedAt: expect.any(String),
			});
			const row = await stage.row(item);
			expect(row).toMatchObject({
				state: 'done',
				settled_by: 'reference',
				outcome_known: true,
				payload: null,
			});
			expect(row.last_done_at).toEqual(row.completed_at);
		},
	);

	test('of done work: the same is fine, another is reported, nothing changes', async () => {
		const item = await stage.workThatIs('done');
		const row = await stage.row(item);
		expect(await stage.record(item, 'inv_7')).toMatchObject({ status: 'recorded', differs: [] });
		expect(await stage.record(item, 'inv_8')).toMatchObject({ differs: ['external_ref'] });
		expect(await stage.row(item)).toEqual(row);
	});

	test('of work that was completed without one is stored', async () => {
		const item = await stage.claimed();
		await stage.complete(item, { result: 1 });
		expect(await stage.record(item, 'inv_1')).toMatchObject({
			status: 'recorded',
			state: 'done',
			externalRef: 'inv_1',
			differs: [],
		});
		expect(await stage.row(item)).toMatchObject({ external_ref: 'inv_1', result: 1 });
		expect(await stage.complete(item, { result: 1, externalRef: 'inv_1' })).toMatchObject({
			repeated: true,
			differs: [],
		});
	});

	test('by a stale owner is not the owner; it is in the log, for it may mean two effects', async () => {
		const item = await stage.claimed(newWork(), from({ execution: 'A' }));
		await stage.elapse(item);
		await stage.claimed(again(item), from({ execution: 'B' }));
		const row = await stage.row(item);
		expect(await stage.record(item, 'inv_1')).toMatchObject({ status: 'not_owner' });
		expect(await stage.record({ ...item, token: null as never }, 'inv_1')).toMatchObject({
			status: 'not_owner',
		});
		expect(await stage.row(item)).toEqual(row);
		expect((await stage.log(item)).at(-2)).toMatchObject({
			event: 'record_reference',
			outcome: 'not_owner',
			token: item.token,
			external_ref: 'inv_1',
		});
	});

	test('of work the ledger does not hold is not lost', async () => {
		const item = newWork();
		expect(await stage.record(item, 'inv_1')).toMatchObject({ status: 'not_owner', state: null });
		expect(await stage.log(item)).toMatchObject([{ external_ref: 'inv_1' }]);
	});

	test('does not follow the work into its next generation', async () => {
		const item = await stage.workThatIs('done');
		const next = await stage.claimed(again(item), { window: { mode: 'while_running' } });
		expect(await stage.record(item, 'inv_8')).toMatchObject({ status: 'not_owner' });
		expect(await stage.record(next, 'inv_9')).toMatchObject({
			status: 'recorded',
			externalRef: 'inv_9',
			differs: [],
		});
	});

	test('of one item that cannot be kept does not stop the others, nor its own completion', async () => {
		const [good, bad] = [await stage.claimed(), await stage.claimed()];
		const answers = await stage.works.complete([
			{ workId: good.workId, token: good.token, externalRef: 'ok' },
			{ workId: bad.workId, token: bad.token, externalRef: 'x'.repeat(3_000) },
		]);
		expect(answers).toMatchObject([
			{ status: 'completed', externalRef: 'ok', warnings: [] },
			{ status: 'completed', warnings: [expect.stringContaining('externalRef is longer')] },
		]);
		expect(await stage.row(bad)).toMatchObject({ state: 'done', external_ref: null });
	});

	test.each([
		['an empty one', ''],
		['one with NUL', 'a\0b'],
		['half an emoji', 'x\ud83d'],
		['a whole document', 'x'.repeat(2_001)],
	])('that cannot be kept byte-equal is refused: %s', async (_, reference) => {
		const item = await stage.claimed();
		expect(await stage.record(item, reference)).toMatchObject({
			status: 'refused',
			reason: expect.stringContaining('externalRef'),
		});
		expect(await stage.row(item)).toMatchObject({ external_ref: null });
	});
});
