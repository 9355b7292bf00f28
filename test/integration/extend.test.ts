import { again, newWork, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

describe('extending a lease', () => {
	test('by its owner: it ends so many seconds from now', async () => {
		const item = await stage.claimed(newWork(), { leaseSeconds: 60 });
		const answer = await stage.extend(item, 7200);
		expect(answer).toMatchObject({ status: 'extended', state: 'running', late: false });
		expect(await stage.secondsUntil(answer.lockedUntil)).toBeGreaterThan(7190);
		expect(await stage.secondsUntil(answer.lockedUntil)).toBeLessThanOrEqual(7200);
		expect(await stage.history(item)).toEqual(['claim: claimed', 'extend: extended']);
	});

	test('without a number: by the lease it was claimed with', async () => {
		const item = await stage.claimed(newWork(), { leaseSeconds: 600 });
		await stage.age(item, 500);
		const { lockedUntil } = await stage.extend(item);
		expect(await stage.secondsUntil(lockedUntil)).toBeGreaterThan(590);
	});

	test('never makes it shorter', async () => {
		const item = await stage.claimed(newWork(), { leaseSeconds: 3600 });
		const { lockedUntil } = await stage.extend(item, 1);
		expect(await stage.secondsUntil(lockedUntil)).toBeGreaterThan(3500);
	});

	test('that lapsed, while nobody else claimed: it lives again', async () => {
		const item = await stage.workThatIs('lapsed');
		expect(await stage.extend(item, 600)).toMatchObject({ status: 'extended', late: true });
		expect(await stage.claim(again(item))).toMatchObject({ status: 'in_progress', attempt: 1 });
	});

	test.each(['done', 'failed', 'held', 'dead'] as const)('of %s work is refused', async (state) => {
		const item = await stage.workThatIs(state);
		const row = await stage.row(item);
		expect(await stage.extend(item, 600)).toMatchObject({
			status: 'refused',
			state,
			reason: expect.stringContaining(state),
		});
		expect(await stage.row(item)).toEqual(row);
	});

	test('by another token, without one, or of no work is not the owner', async () => {
		const item = await stage.claimed();
		const row = await stage.row(item);
		expect(await stage.extend(again(item), 7200)).toMatchObject({ status: 'not_owner' });
		expect(await stage.extend({ ...item, token: null as never }, 7200)).toMatchObject({
			status: 'not_owner',
		});
		expect(await stage.extend(newWork(), 7200)).toMatchObject({ status: 'not_owner', state: null });
		expect(await stage.row(item)).toEqual(row);
	});

	test.each([0, -5, 1e9, Number.NaN])(
		'by %p seconds is refused with the bounds',
		async (seconds) => {
			const item = await stage.claimed();
			await expect(stage.extend(item, seconds)).rejects.toMatchObject({
				code: 'bad_input',
				message: expect.stringContaining('lease_s'),
			});
		},
	);
});
