import type { IDataObject } from 'n8n-workflow';

import { claim, complete, http, step, type Ran } from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

const OUTPUTS = [0, 1, 2, 3];

/** What Claim Work said of the only item. */
function answer(ran: Ran): IDataObject {
	const items = OUTPUTS.flatMap((output) => ran.json('Claim Work', output));
	expect(ran.error).toBeNull();
	expect(items).toHaveLength(1);
	return items[0].work as IDataObject;
}

const statusOf = (ran: Ran) => String(answer(ran).status);

const deliver = async (parameters: IDataObject, item: IDataObject = { order: 1 }, mode?: 'manual') =>
	await stage.run({ items: [item], mode, nodes: [claim(parameters)] });

/** Claims and completes. */
const done = async (parameters: IDataObject, item: IDataObject = { order: 1 }, mode?: 'manual') =>
	await stage.run({
		items: [item],
		mode,
		nodes: [claim(parameters), complete({ result: 'none' })],
	});

describe('until another kind succeeds', () => {
	const pair = () => {
		const [reminder, payment] = [stage.newKind(), stage.newKind()];
		return {
			remind: byOrder(reminder, { window: 'until_success', windowKind: payment }),
			pay: byOrder(payment),
			reminder,
			payment,
		};
	};

	test('a reminder is sent once, whoever asks, until something was paid after it', async () => {
		const { remind, pay } = pair();
		// paid before the reminder: does not end its window
		await done(pay, { order: 1 });
		await done(remind);
		expect(statusOf(await deliver(remind))).toBe('duplicate');
		await done(pay, { order: 2 });
		expect(answer(await deliver(remind))).toMatchObject({
			status: 'claimed',
			generation: 2,
			attempt: 1,
		});
	});

	test('only its success counts: a claim, a failure and a release of that kind change nothing', async () => {
		const { remind, pay } = pair();
		await done(remind);
		await stage.run({
			items: orders(1, 2, 3),
			nodes: [
				claim(pay),
				step('Fate', (items) => [[items[0]], [items[1]]]),
				complete({ operation: 'fail', landed: 'no' }, {}, 'Fail'),
				complete({ operation: 'release' }, {}, 'Release'),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Fate'],
				['Fate:0', 'Fail'],
				['Fate:1', 'Release'],
			],
		});
		expect(statusOf(await deliver(remind))).toBe('duplicate');
	});

	test('holds while that kind runs again: its last success stays where it was', async () => {
		const { remind, pay, payment } = pair();
		const again = { ...pay, window: 'while_running' };
		await done(pay);
		await done(remind);
		// a running re-claim of a payment that was done before the reminder
		expect(statusOf(await deliver(again))).toBe('claimed');
		expect((await stage.work(payment)).state).toBe('running');
		expect(statusOf(await deliver(remind))).toBe('duplicate');
	});

	test('and where the reminder came first, a re-claim of the later payment does not shut the window again', async () => {
		const { remind, pay } = pair();
		await done(remind);
		await done(pay);
		expect(statusOf(await deliver({ ...pay, window: 'while_running' }))).toBe('claimed');
		expect(statusOf(await deliver(remind))).toBe('claimed');
	});

	test('another version, key or workflow of that kind ends it as well', async () => {
		const { remind, pay } = pair();
		await done(remind);
		await stage.run({
			workflowId: 'workflow-2',
			items: [{ order: 'other' }],
			nodes: [claim({ ...pay, version: 'v9' }), complete({ result: 'none' })],
		});
		expect(statusOf(await deliver(remind))).toBe('claimed');
	});

	test('its own kind: any later success of it lets this work be done again', async () => {
		const kind = stage.newKind();
		const parameters = byOrder(kind, { window: 'until_success', windowKind: kind });
		await done(parameters, { order: 1 });
		expect(statusOf(await deliver(parameters, { order: 1 }))).toBe('duplicate');
		await done(parameters, { order: 2 });
		expect(statusOf(await deliver(parameters, { order: 1 }))).toBe('claimed');
		expect(statusOf(await deliver(parameters, { order: 2 }))).toBe('duplicate');
	});

	test('its own kind: a completion does not end its own window, however its two times were read', async () => {
		const kind = stage.newKind();
		const parameters = byOrder(kind, { window: 'until_success', windowKind: kind });
		await done(parameters, { order: 1 });
		// one statement reads the clock for each of them: under load they have differed by microseconds
		await stage.ledger.query(
			`update idempotency.work_log set last_done_at = completed_at + interval '3 microseconds' where kind = $1`,
			[kind],
		);
		expect(statusOf(await deliver(parameters, { order: 1 }))).toBe('duplicate');
	});

	test.each(['', 'a:b', 'a\u0000b', 'a\nb', '\ud83d', 'undefined', 'x'.repeat(300)])(
		'a kind that ends it of %j is refused for its item, the rest is claimed',
		async (bad) => {
			const kind = stage.newKind();
			const ran = await stage.run({
				items: [
					{ order: 1, until: bad },
					{ order: 2, until: 'paid' },
				],
				nodes: [
					claim(
						byOrder(kind, { window: 'until_success', windowKind: '={{ $json.until }}' }),
						{ onError: 'continueRegularOutput' },
					),
				],
			});
			expect(ran.error).toBeNull();
			expect(ran.json('Claim Work').map(({ order }) => order)).toEqual([2]);
			expect(ran.json('Claim Work', 3)[0].work).toMatchObject({
				status: 'refused',
				message: expect.stringMatching(/Kind That Ends It/) as string,
			});
		},
	);

	test('is the same kind in either Unicode notation', async () => {
		const reminder = stage.newKind();
		const [composed, decomposed] = ['caf\u00e9', 'cafe\u0301'];
		const remind = byOrder(reminder, { window: 'until_success', windowKind: decomposed });
		await done(remind);
		await done(byOrder(composed));
		expect(statusOf(await deliver(remind))).toBe('claimed');
	});
});

describe('for a time', () => {
	test('is the choice of who asks now, not of who did the work', async () => {
		const kind = stage.newKind();
		const forAnHour = byOrder(kind, { window: 'duration', windowAmount: 1, windowUnit: 'hours' });
		await done(byOrder(kind));
		await stage.ledger.age({ workId: (await stage.work(kind)).work_id }, 3700);
		expect(statusOf(await deliver(byOrder(kind)))).toBe('duplicate');
		expect(statusOf(await deliver(forAnHour))).toBe('claimed');
	});

	test('does not end while the work runs, is held or has failed', async () => {
		const kind = stage.newKind();
		const short = byOrder(kind, { window: 'duration', windowAmount: 1, windowUnit: 'seconds' });
		await deliver(short);
		const { work_id: workId } = await stage.work(kind);
		await stage.ledger.age({ workId }, 60);
		expect(statusOf(await deliver(short))).toBe('in_progress');
	});

	test('longer than PostgreSQL can count is refused for its item', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [
				{ order: 1, days: 1e300 },
				{ order: 2, days: 36_500 },
			],
			nodes: [
				claim(byOrder(kind, { window: 'duration', windowAmount: '={{ $json.days }}' }), {
					onError: 'continueRegularOutput',
				}),
			],
		});
		expect(ran.json('Claim Work').map(({ order }) => order)).toEqual([2]);
	});
});

describe('case 106: fields that must not change', () => {
	const refund = (kind: string, more: IDataObject = {}): IDataObject => ({
		kind,
		keyFields: 'refund',
		options: { matchFields: 'amount, currency', ...more },
	});
	const ten = { refund: 7, amount: 10, currency: 'EUR' };

	test.each([
		['done', []],
		['running', null],
		['failed', [{ operation: 'fail', landed: 'no' }]],
		['held', [{ operation: 'fail', landed: 'unknown' }]],
		['dead', [{ operation: 'fail', landed: 'no', options: { permanent: true } }]],
	] as Array<[string, IDataObject[] | null]>)(
		'another amount while the work is %s is neither replayed nor claimed, and is named',
		async (state, settle) => {
			const kind = stage.newKind();
			const parameters = { ...refund(kind), onLapse: 'hold' };
			await stage.run({
				items: [ten],
				nodes: [
					claim(parameters),
					...(settle === null ? [] : [complete({ result: 'none', ...settle[0] })]),
				],
			});
			const before = await stage.work(kind);
			expect(before.state).toBe(state);
			if (state === 'failed') await stage.ledger.becomeDue({ workId: before.work_id });
			const other = { ...ten, amount: 99 };
			const ran = await stage.run({
				items: [other],
				nodes: [claim(parameters), step('Effect', http())],
			});
			expect(ran.error).toBeNull();
			expect(ran.runs('Effect')).toBe(0);
			const [json] = ran.json('Claim Work', 3);
			expect(json).toMatchObject({ ...other, work: { status: 'mismatch', mismatch: ['amount'] } });
			expect(json.work).not.toHaveProperty('result');
			expect(json.work).not.toHaveProperty('token');
			expect((json.work as IDataObject).message).toMatch(/other values in: amount\./);
			expect(await stage.work(kind)).toMatchObject({
				state,
				attempt: before.attempt,
				generation: before.generation,
				token: before.token,
			});
		},
	);

	test('names every field that differs', async () => {
		const kind = stage.newKind();
		await done(refund(kind), ten);
		const work = answer(await deliver(refund(kind), { refund: 7, amount: 1, currency: 'USD' }));
		expect(work.mismatch).toEqual(['amount', 'currency']);
	});

	test('equal values are a duplicate, whatever else changed', async () => {
		const kind = stage.newKind();
		await done(refund(kind), ten);
		expect(statusOf(await deliver(refund(kind), { ...ten, amount: 10.0, note: 'again' }))).toBe(
			'duplicate',
		);
	});

	test.each([
		['text and number', '10', 10],
		['missing and null', undefined, null],
		['missing and empty', undefined, ''],
		['null and 0', null, 0],
		['two orders of a list', [1, 2], [2, 1]],
		['two lists of objects', [{ a: 1, b: 2 }], [{ a: 1, b: 3 }]],
		['false and missing', false, undefined],
	])('%s are not equal', async (_, first, second) => {
		const kind = stage.newKind();
		const parameters = refund(kind, { matchFields: 'amount' });
		const item = (amount: unknown) =>
			(amount === undefined ? { refund: 7 } : { refund: 7, amount }) as IDataObject;
		await done(parameters, item(first));
		expect(answer(await deliver(parameters, item(second)))).toMatchObject({
			status: 'mismatch',
			mismatch: ['amount'],
		});
	});

	test.each([
		['the order of keys', { a: 1, b: { c: 2, d: 3 } }, { b: { d: 3, c: 2 }, a: 1 }],
		['a list of objects with keys in another order', [{ a: 1, b: 2 }], [{ b: 2, a: 1 }]],
		['outer spaces', 'EUR', ' EUR '],
		['missing twice', undefined, undefined],
		['-0', 0, -0],
	])('%s does not count', async (_, first, second) => {
		const kind = stage.newKind();
		const parameters = refund(kind, { matchFields: 'amount' });
		const item = (amount: unknown) =>
			(amount === undefined ? { refund: 7 } : { refund: 7, amount }) as IDataObject;
		await done(parameters, item(first));
		expect(statusOf(await deliver(parameters, item(second)))).toBe('duplicate');
	});

	test.each(['amount', 'amount, currency, iban', 'currency', ''])(
		'an edited list (now %j) is not compared with the old one: old work is not stopped',
		async (matchFields) => {
			const kind = stage.newKind();
			await done(refund(kind), ten);
			const now = refund(kind, { matchFields });
			expect(statusOf(await deliver(now, { ...ten, amount: 99 }))).toBe('duplicate');
			// nor does asking with another list change what is kept
			expect(statusOf(await deliver(refund(kind), { ...ten, amount: 99 }))).toBe('mismatch');
		},
	);

	test('the order of the list and its spaces do not matter; paths do work', async () => {
		const kind = stage.newKind();
		const item = (amount: number) => ({ refund: 7, payment: { amount }, currency: 'EUR' });
		const by = (matchFields: string) => refund(kind, { matchFields });
		await done(by('payment.amount, currency'), item(10));
		expect(statusOf(await deliver(by(' currency,payment.amount '), item(10)))).toBe('duplicate');
		expect(answer(await deliver(by('currency,payment.amount'), item(11)))).toMatchObject({
			status: 'mismatch',
			mismatch: ['payment.amount'],
		});
	});

	test('within one batch, the first amount stands', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [ten, { ...ten, amount: 99 }, ten],
			nodes: [claim(refund(kind))],
		});
		expect(OUTPUTS.map((output) => ran.out('Claim Work', output).map((i) => i.pairedItem))).toEqual(
			[[{ item: 0 }], [], [{ item: 2 }], [{ item: 1 }]],
		);
	});

	test('a new generation takes the values of its own claim', async () => {
		const kind = stage.newKind();
		const parameters = { ...refund(kind), window: 'while_running' };
		await done(parameters, ten);
		// the old generation is over, so other values are no contradiction of anything that runs
		const again = await deliver(parameters, ten);
		expect(answer(again).generation).toBe(2);
	});

	test.each([
		['NaN', NaN],
		['a rounded number', 7615917337495251000],
	])('a field that cannot be compared (%s) refuses its item, the rest is claimed', async (_, bad) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [
				{ refund: 1, amount: bad },
				{ refund: 2, amount: 1 },
			],
			nodes: [
				claim(refund(kind, { matchFields: 'amount' }), { onError: 'continueRegularOutput' }),
			],
		});
		expect(ran.json('Claim Work').map(({ refund: key }) => key)).toEqual([2]);
		expect(ran.json('Claim Work', 3)[0].work).toMatchObject({
			status: 'refused',
			message: expect.stringContaining('amount') as string,
		});
	});

	test.each(['__proto__', 'constructor', 'length', '0', '$1', 'a"b', "x'y"])(
		'a field called %s is a field like any other',
		async (name) => {
			const kind = stage.newKind();
			const parameters = refund(kind, { matchFields: name });
			const item = (value: number) => JSON.parse(`{"refund":7,${JSON.stringify(name)}:${value}}`) as IDataObject;
			await done(parameters, item(1));
			expect(statusOf(await deliver(parameters, item(1)))).toBe('duplicate');
			expect(statusOf(await deliver(parameters, item(2)))).toBe(
				// what n8n itself loses on the way cannot differ
				name === '__proto__' ? 'duplicate' : 'mismatch',
			);
		},
	);
});

describe('the item that is kept', () => {
	const big = (bytes: number) => ({ order: 1, text: 'x'.repeat(bytes) });

	test('up to 256 kB of it; beyond that the work is claimed without, with a warning', async () => {
		const [fits, over] = [stage.newKind(), stage.newKind()];
		const frame = JSON.stringify(big(0)).length;
		const kept = await deliver(byOrder(fits), big(256 * 1024 - frame));
		expect(answer(kept)).not.toHaveProperty('warnings');
		expect((await stage.work(fits)).payload).toMatchObject({ order: 1 });
		const lost = await deliver(byOrder(over), big(256 * 1024 - frame + 1));
		expect(answer(lost)).toMatchObject({
			status: 'claimed',
			warnings: [expect.stringMatching(/too large to keep for a replay/)],
		});
		expect((await stage.work(over)).payload).toBeNull();
	});

	test('bytes count, not characters', async () => {
		const kind = stage.newKind();
		await deliver(byOrder(kind), { order: 1, text: '€'.repeat(100_000) });
		expect((await stage.work(kind)).payload).toBeNull();
	});

	test('is gone once the work is done', async () => {
		const kind = stage.newKind();
		await done(byOrder(kind));
		expect((await stage.work(kind)).payload).toBeNull();
	});

	test('switched off: nothing is kept, and a large item gives no warning', async () => {
		const kind = stage.newKind();
		const ran = await deliver(byOrder(kind, { options: { storePayload: false } }), big(300_000));
		expect(answer(ran)).not.toHaveProperty('warnings');
		expect((await stage.work(kind)).payload).toBeNull();
	});

	test('does not hold what an earlier answer here said', async () => {
		const kind = stage.newKind();
		const first = await deliver(byOrder(kind));
		const second = await stage.run({
			items: [{ order: 1 }, { order: 1 }],
			nodes: [claim(byOrder(kind))],
		});
		expect(statusOf(first)).toBe('claimed');
		const [busy] = second.json('Claim Work', 2);
		const other = stage.newKind();
		await deliver(byOrder(other), busy);
		expect((await stage.work(other)).payload).toEqual({ order: 1 });
	});
});

describe('how failed work comes back', () => {
	const failing = async (parameters: IDataObject) =>
		await stage.run({
			items: [{ order: 1 }],
			nodes: [claim(parameters), complete({ operation: 'fail', landed: 'no', error: 'declined' })],
		});

	test('due within its first wait, then within its double, never beyond the most', async () => {
		const kind = stage.newKind();
		const parameters = byOrder(kind, {
			options: { backoffBaseSeconds: 100, backoffCapSeconds: 150, maxAttempts: 4 },
		});
		for (const most of [100, 150, 150]) {
			await failing(parameters);
			const row = await stage.work(kind);
			expect(row.state).toBe('failed');
			const wait = await stage.ledger.secondsUntil(row.next_attempt_at);
			expect(wait).toBeLessThanOrEqual(most);
			await stage.ledger.becomeDue({ workId: row.work_id });
		}
		await failing(parameters);
		expect((await stage.work(kind)).state).toBe('dead');
	});

	test('the policy is that of its claim, not of who asks later', async () => {
		const kind = stage.newKind();
		await failing(byOrder(kind, { options: { maxAttempts: 1 } }));
		const later = await deliver(byOrder(kind, { options: { maxAttempts: 9 } }));
		expect(answer(later)).toMatchObject({ status: 'dead', lastError: 'declined' });
	});

	test('with a wait of 0 it may be claimed at once', async () => {
		const kind = stage.newKind();
		const parameters = byOrder(kind, { options: { backoffBaseSeconds: 0 } });
		await failing(parameters);
		expect(answer(await deliver(parameters))).toMatchObject({ status: 'claimed', attempt: 2 });
	});

	test('the lease is as long as the option says', async () => {
		const kind = stage.newKind();
		const ran = await deliver(byOrder(kind, { options: { leaseSeconds: 120 } }));
		const left = await stage.ledger.secondsUntil(String(answer(ran).lockedUntil));
		expect(left).toBeGreaterThan(60);
		expect(left).toBeLessThanOrEqual(120);
		expect((await stage.work(kind)).lease_s).toBe(120);
	});

	test.each([
		['NUL', 'night\u0000ly'],
		['half an emoji', 'night\ud83d'],
		['a very long text', 'n'.repeat(100_000)],
		['quotes and $1', `"n'$1`],
	])('a run id with %s stops nothing', async (_, runId) => {
		const kind = stage.newKind();
		const ran = await deliver(byOrder(kind, { options: { runId: '={{ $json.run }}' } }), {
			order: 1,
			run: runId,
		});
		expect(statusOf(ran)).toBe('claimed');
	});
});

describe('Manual Runs Apart', () => {
	const apart = (kind: string, more: IDataObject = {}) =>
		byOrder(kind, { ...more, options: { testSpace: true } });

	test('off: a manual run and production are one', async () => {
		const kind = stage.newKind();
		await done(byOrder(kind), { order: 1 }, 'manual');
		expect(statusOf(await deliver(byOrder(kind)))).toBe('duplicate');
	});

	test('on: they never meet, and each is remembered by itself', async () => {
		const kind = stage.newKind();
		await done(apart(kind), { order: 1 }, 'manual');
		expect(statusOf(await deliver(apart(kind), { order: 1 }, 'manual'))).toBe('duplicate');
		expect(statusOf(await deliver(apart(kind)))).toBe('claimed');
		expect(await stage.works(kind)).toEqual(['1 running']);
		expect(await stage.works(`${kind} (manual test)`)).toEqual(['1 done']);
	});

	test('the kind on the item tells where the work is', async () => {
		const kind = stage.newKind();
		const ran = await deliver(apart(kind), { order: 1 }, 'manual');
		expect(answer(ran)).toMatchObject({ status: 'claimed', kind: `${kind} (manual test)` });
	});

	test.each([undefined, 'manual'] as const)(
		'a kind that ends like it is refused (mode %s), so nobody gets in by name',
		async (mode) => {
			const kind = stage.newKind();
			const ran = await stage.run({
				items: orders(1),
				mode,
				nodes: [claim(byOrder(`${kind} (manual test) `))],
			});
			expect(ran.error?.message).toMatch(/belong to manual runs/);
			expect(await stage.works(`${kind} (manual test)`)).toEqual([]);
		},
	);

	test('a window until another kind succeeds is ended by manual runs of that kind only', async () => {
		const [reminder, payment] = [stage.newKind(), stage.newKind()];
		const remind = apart(reminder, { window: 'until_success', windowKind: payment });
		await done(remind, { order: 1 }, 'manual');
		await done(apart(payment));
		expect(statusOf(await deliver(remind, { order: 1 }, 'manual'))).toBe('duplicate');
		await done(apart(payment), { order: 1 }, 'manual');
		expect(statusOf(await deliver(remind, { order: 1 }, 'manual'))).toBe('claimed');
	});

	test("work of production that an item names is not claimed by a manual run; a manual run's own is", async () => {
		const kind = stage.newKind();
		const failed = async (mode?: 'manual') =>
			(
				await stage.run({
					items: orders(1),
					mode,
					nodes: [
						claim({
							...byOrder(kind),
							options: { testSpace: true, backoffBaseSeconds: 0 },
						}),
						complete({ operation: 'fail', landed: 'no' }),
					],
				})
			).json('Complete Work');
		const byLedger = { ...apart(kind), identity: 'ledger' };
		const production = await failed();
		const ran = await stage.run({ items: production, mode: 'manual', nodes: [claim(byLedger)] });
		expect(ran.error?.message).toMatch(/Manual Runs Apart/);
		expect(await stage.works(kind)).toEqual(['1 failed']);
		const own = await stage.run({
			items: await failed('manual'),
			mode: 'manual',
			nodes: [claim(byLedger)],
		});
		expect(answer(own)).toMatchObject({ status: 'claimed', attempt: 2 });
	});
});

test('the field takes the name that each item gives it', async () => {
	const kind = stage.newKind();
	const ran = await stage.run({
		items: [
			{ order: 1, name: 'a' },
			{ order: 2, name: 'b c' },
			{ order: 3, name: 'error' },
			{ order: 4, name: 'order' },
		],
		nodes: [
			claim(byOrder(kind, { options: { field: '={{ $json.name }}' } }), {
				onError: 'continueRegularOutput',
			}),
		],
	});
	expect(ran.json('Claim Work')).toMatchObject([
		{ a: { status: 'claimed' } },
		{ 'b c': { status: 'claimed' } },
	]);
	expect(ran.json('Claim Work', 3)).toMatchObject([
		{ order: 3, work: { status: 'refused' } },
		{ order: 4, work: { status: 'refused', message: expect.stringContaining('already has a field "order"') as string } },
	]);
	expect(await stage.works(kind)).toEqual(['1 running', '2 running']);
});
