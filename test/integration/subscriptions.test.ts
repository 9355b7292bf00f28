import { randomUUID } from 'node:crypto';
import type { Client } from 'pg';

import type { ClaimItem, ClaimPolicy, DeadLetter, HandOut } from '../../ledger';
import { startTogether } from './processes';
import { again, CALLER, newWork, sortedWorks, Stage } from './stage';

let stage: Stage;
let one: Client;
let two: Client;
beforeAll(async () => {
	stage = await Stage.open();
	one = await stage.connect();
	two = await stage.connect();
});
afterAll(async () => {
	await stage.close();
});

/** A subscription and a kind of its own, so that no test meets another's works. */
let kind: string;
let subscription: string;
beforeEach(() => {
	kind = `kind ${randomUUID()}`;
	subscription = `subscription ${randomUUID()}`;
});

const caller = { ...CALLER, node: 'Work Ledger Trigger', mode: 'trigger', execution: undefined };

async function announce(limit = 100, to = subscription): Promise<HandOut> {
	const filter = { states: ['dead', 'held'] as Array<'dead' | 'held'>, kinds: [kind], limit };
	return await stage.ledger.subscriptions.announce(to, filter, caller);
}

const ids = ({ letters }: HandOut) => letters.map(({ work }) => work.workId);

async function dead(policy: Partial<ClaimPolicy> = {}, item = newWork()): Promise<ClaimItem> {
	await stage.claimed({ ...item, payload: item.payload ?? '{"order":7}' }, { kind, ...policy });
	await stage.fail(item, { permanent: true, error: 'card declined' });
	return item;
}

/** The hand-outs' leases ended a second ago: whoever held them is gone. */
async function lapse(of = subscription): Promise<void> {
	await stage.query(
		`update idempotency.announcements set locked_until = clock_timestamp() - interval '1 second'
		where subscription = $1 and state = 'handed_out'`,
		[of],
	);
}

/** The delay before the next hand-out is over. */
async function delayIsOver(): Promise<void> {
	await stage.query(
		`update idempotency.announcements set next_attempt_at = clock_timestamp() - interval '1 second'
		where subscription = $1 and state = 'waiting'`,
		[subscription],
	);
}

async function announcements(of = subscription) {
	return await stage.query<{ subject_id: string; state: string; attempt: number }>(
		'select * from idempotency.announcements where subscription = $1 order by subject_id',
		[of],
	);
}

async function announced(item: { workId: string }): Promise<string[]> {
	return (await stage.history(item)).filter((line) => line.startsWith('announce'));
}

const announceSql = `select work_id from idempotency.announce_dead_letters($1, '{dead,held}', $2, 100, $3, null)`;
const dueSql = `select answer ->> 'work_id' as work_id from idempotency.claim_due_works($1, $2, $3, null)`;

describe('each dead letter is announced once per subscription', () => {
	test('dead and held works are handed out with what a person needs, and never again once acknowledged', async () => {
		const item = await dead({}, newWork('7001'));
		const held = await stage.claimed(newWork(), { kind, onLapse: 'hold' });
		await stage.fail(held, { landed: 'unknown', error: 'read time-out' });
		const handOut = await announce();
		expect(handOut.letters).toEqual([
			expect.objectContaining<Partial<DeadLetter>>({
				handOut: 1,
				handOuts: 5,
				work: expect.objectContaining({
					workId: item.workId,
					kind,
					key: '7001',
					state: 'dead',
					attempt: 1,
					maxAttempts: 5,
					lastError: 'card declined',
					payload: { order: 7 },
					owner: expect.objectContaining({ execution: '100', workflowName: 'Invoices' }),
				}),
			}),
			expect.objectContaining({
				work: expect.objectContaining({
					workId: held.workId,
					state: 'held',
					lastError: 'read time-out',
				}),
			}),
		]);
		expect(ids(await announce())).toEqual([]);
		await stage.ledger.subscriptions.acknowledge(handOut, caller);
		await lapse();
		expect(ids(await announce())).toEqual([]);
		expect(await announced(item)).toEqual(['announce: handed_out', 'announce: acknowledged']);
	});

	test('who starts anew under the same subscription is told nothing twice; another subscription is told itself', async () => {
		const item = await dead();
		await stage.ledger.subscriptions.acknowledge(await announce(), caller);
		expect(ids(await announce())).toEqual([]);
		expect(ids(await announce(100, `${subscription} other`))).toEqual([item.workId]);
	});

	test('two processes that ask in the same instant: each work goes to one of them', async () => {
		const works = await Promise.all(Array.from({ length: 6 }, async () => await dead()));
		const filter = { states: ['dead', 'held'], kinds: [kind], limit: 100 };
		const job = {
			does: 'subscribe' as const,
			method: 'announce' as const,
			args: [subscription, filter, caller],
		};
		const both = await startTogether(stage.database.config, stage.settings, [job, job]);
		const answers = (await Promise.all(both.map(async ({ answer }) => await answer))) as HandOut[];
		await Promise.all(both.map(async (process) => await process.kill()));
		const got = answers.flatMap(ids);
		expect(got).toHaveLength(new Set(got).size);
		// what one of them passed over because the other was at it comes in its next round
		expect(new Set([...got, ...ids(await announce())])).toEqual(
			new Set(works.map(({ workId }) => workId)),
		);
		expect(await announcements()).toHaveLength(6);
	});

	test('while one holds its hand-out open, the other gets the rest at once and none of it', async () => {
		const first = await dead();
		await one.query('begin');
		try {
			const held = await one.query(announceSql, [subscription, [kind], randomUUID()]);
			expect(held.rows).toEqual([{ work_id: first.workId }]);
			const second = await dead();
			expect(ids(await announce())).toEqual([second.workId]);
		} finally {
			await one.query('commit');
		}
		expect(ids(await announce())).toEqual([]);
	});

	test('a call sent again while its first sending is still under way gets the same works', async () => {
		const item = await dead();
		const values = [subscription, [kind], randomUUID()];
		await one.query('begin');
		await one.query(announceSql, values);
		const resent = two.query(announceSql, values);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect((await resent).rows).toEqual([{ work_id: item.workId }]);
		expect(await announced(item)).toEqual(['announce: handed_out']);
	});

	test('works that were dead long before are all announced, in bounded portions, longest dead first', async () => {
		const works = [];
		for (let n = 0; n < 5; n++) works.push((await dead()).workId);
		const portions = [await announce(2), await announce(2), await announce(2), await announce(2)];
		expect(portions.map(ids)).toEqual([works.slice(0, 2), works.slice(2, 4), works.slice(4), []]);
	});

	test('only the states and kinds asked for', async () => {
		const item = await dead();
		await stage.claimed(newWork(), { kind: `${kind} other` });
		const held = await stage.claimed(newWork(), { kind, onLapse: 'hold' });
		await stage.fail(held, { landed: 'unknown' });
		const ask = async (states: Array<'dead' | 'held'>, kinds: string[] | null, to: string) =>
			ids(await stage.ledger.subscriptions.announce(to, { states, kinds, limit: 100 }, caller));
		expect(await ask(['held'], [kind], `${subscription} held`)).toEqual([held.workId]);
		expect(await ask(['dead'], [kind], `${subscription} dead`)).toEqual([item.workId]);
		expect(await ask(['dead', 'held'], [`${kind} none`], `${subscription} none`)).toEqual([]);
		expect(await ask(['dead', 'held'], null, `${subscription} all`)).toEqual(
			expect.arrayContaining([item.workId, held.workId]),
		);
	});

	test('a work that dies again after a replay is announced again; held work that its owner calls dead, too', async () => {
		const item = await dead();
		await stage.ledger.subscriptions.acknowledge(await announce(), caller);
		await stage.ledger.admin.replay([item.workId], {}, CALLER);
		expect(ids(await announce())).toEqual([]);
		const second = again(item);
		await stage.claimed(second, { kind });
		await stage.fail(second, { permanent: true });
		expect((await announce()).letters).toEqual([
			expect.objectContaining({
				handOut: 1,
				work: expect.objectContaining({ workId: item.workId }),
			}),
		]);

		const held = await stage.claimed(newWork(), { kind, onLapse: 'hold' });
		await stage.fail(held, { landed: 'unknown' });
		await stage.ledger.subscriptions.acknowledge(await announce(), caller);
		await stage.fail(held, { landed: 'no', permanent: true });
		expect((await announce()).letters).toEqual([
			expect.objectContaining({
				work: expect.objectContaining({ workId: held.workId, state: 'dead' }),
			}),
		]);
	});

	test('killed on its last attempt a work becomes dead once, and is announced once', async () => {
		const item = await stage.claimed(
			{ ...newWork(), payload: '{"order":9}' },
			{ kind, maxAttempts: 1 },
		);
		await stage.elapse(item);
		await stage.ledger.admin.sweep(1000, caller);
		await stage.ledger.admin.sweep(1000, caller);
		const handOut = await announce();
		expect(ids(handOut)).toEqual([item.workId]);
		await stage.ledger.subscriptions.acknowledge(handOut, caller);
		expect(ids(await announce())).toEqual([]);
		expect(await stage.history(item)).toEqual([
			'claim: claimed',
			'sweep: dead',
			'announce: handed_out',
			'announce: acknowledged',
		]);
	});

	test('a purged dead letter is not announced: nothing is left to replay', async () => {
		const item = await dead();
		await stage.query(
			`update idempotency.work_log set stub = true, payload = null where work_id = $1`,
			[item.workId],
		);
		expect(ids(await announce())).toEqual([]);
	});
});

describe('a hand-out that was not handled', () => {
	test('comes again after a growing delay, five times in all; then it is given up, and everybody can see it', async () => {
		const item = await dead();
		const delays: number[] = [];
		for (let nth = 1; nth <= 5; nth++) {
			const handOut = await announce();
			expect(handOut.letters).toEqual([expect.objectContaining({ handOut: nth })]);
			const [standing] = await stage.ledger.subscriptions.notHandled(
				handOut,
				'the chat is gone',
				caller,
			);
			expect(standing).toMatchObject({ status: nth < 5 ? 'waiting' : 'given_up', handOut: nth });
			if (nth < 5) delays.push(Math.round(await stage.secondsUntil(standing.nextAttemptAt)));
			expect(ids(await announce())).toEqual([]);
			await delayIsOver();
		}
		expect(delays).toEqual([60, 300, 1500, 7500]);
		expect(ids(await announce())).toEqual([]);
		const log = await stage.log(item);
		expect(log.at(-1)).toMatchObject({
			event: 'announce',
			outcome: 'given_up',
			detail: { subscription, handOut: 5, error: 'the chat is gone' },
		});
		const { decisions } = await stage.ledger.admin.statistics(kind);
		expect(decisions).toContainEqual({ kind, event: 'announce', outcome: 'given_up', count: '1' });
	});

	test('comes alone the next time, so that it cannot make its batch fail again', async () => {
		const works = [await dead(), await dead(), await dead()].map(({ workId }) => workId);
		await stage.ledger.subscriptions.notHandled(await announce(), 'one of three', caller);
		await delayIsOver();
		const fresh = await dead();
		expect([ids(await announce()), ids(await announce()), ids(await announce())]).toEqual(
			works.map((workId) => [workId]),
		);
		expect(ids(await announce())).toEqual([fresh.workId]);
	});

	test('the process is killed between handing out and acknowledging: handed out again, and counted', async () => {
		const item = await dead();
		const filter = { states: ['dead'], kinds: [kind], limit: 1 };
		const [process] = await startTogether(stage.database.config, stage.settings, [
			{ does: 'subscribe', method: 'announce', args: [subscription, filter, caller] },
		]);
		expect(ids((await process.answer) as HandOut)).toEqual([item.workId]);
		await process.kill();
		expect(ids(await announce())).toEqual([]);
		await lapse();
		expect((await announce()).letters).toEqual([
			expect.objectContaining({
				handOut: 2,
				work: expect.objectContaining({ workId: item.workId }),
			}),
		]);
	});

	test('vanished five times it is given up', async () => {
		const item = await dead();
		for (let nth = 1; nth <= 5; nth++) {
			expect((await announce()).letters).toEqual([expect.objectContaining({ handOut: nth })]);
			await lapse();
		}
		expect(ids(await announce())).toEqual([]);
		expect(await announcements()).toEqual([expect.objectContaining({ state: 'given_up' })]);
		expect((await announced(item)).at(-1)).toBe('announce: given_up');
	});

	test('a heartbeat keeps it; who was overtaken neither extends nor acknowledges', async () => {
		await dead();
		const first = await announce();
		await lapse();
		expect(await stage.ledger.subscriptions.extend(first)).toBe(1);
		expect(ids(await announce())).toEqual([]);
		await lapse();
		const second = await announce();
		expect(second.letters).toHaveLength(1);
		expect(await stage.ledger.subscriptions.extend(first)).toBe(0);
		expect(await stage.ledger.subscriptions.acknowledge(first, caller)).toEqual([
			expect.objectContaining({ status: 'not_owner' }),
		]);
		expect(await stage.ledger.subscriptions.acknowledge(second, caller)).toEqual([
			expect.objectContaining({ status: 'acknowledged' }),
		]);
	});

	test('a report said again changes nothing and is logged once', async () => {
		const item = await dead();
		const handOut = await announce();
		for (let n = 0; n < 2; n++) {
			expect(await stage.ledger.subscriptions.notHandled(handOut, 'no', caller)).toEqual([
				expect.objectContaining({ status: 'waiting', handOut: 1 }),
			]);
		}
		expect(await announced(item)).toEqual(['announce: handed_out', 'announce: waiting']);
	});

	test('a report that comes late, but before the next hand-out, counts', async () => {
		await dead();
		const handOut = await announce();
		await lapse();
		await stage.ledger.subscriptions.acknowledge(handOut, caller);
		expect(ids(await announce())).toEqual([]);
	});
});

describe('announcements that are over', () => {
	test('are removed page by page once their work is done, purged or gone; those of dead and waiting work stay', async () => {
		const works = [await dead(), await dead(), await dead(), await dead()];
		const [done, gone, stays, replayed] = works;
		await stage.ledger.subscriptions.acknowledge(await announce(), caller);
		await stage.ledger.admin.resolve([done.workId], { landed: true }, CALLER);
		await stage.query('delete from idempotency.work_log where work_id = $1', [gone.workId]);
		await stage.ledger.admin.replay([replayed.workId], {}, CALLER);
		await stage.query(
			`update idempotency.announcements set updated_at = updated_at - interval '2 minutes' where subscription = $1`,
			[subscription],
		);
		let after: [string, string] | null = null;
		let removed = 0;
		do {
			const page: { removed: number; after: [string, string] | null } =
				await stage.ledger.subscriptions.clear(after, 3);
			removed += page.removed;
			after = page.after;
		} while (after !== null);
		expect(removed).toBe(2);
		expect((await announcements()).map(({ subject_id }) => subject_id)).toEqual(
			[stays.workId, replayed.workId].sort(),
		);
	});

	test('one that is handed out now is not removed', async () => {
		const item = await dead();
		await announce();
		await stage.ledger.admin.resolve([item.workId], { landed: true }, CALLER);
		await stage.query(
			`update idempotency.announcements set updated_at = updated_at - interval '2 minutes' where subscription = $1`,
			[subscription],
		);
		await stage.ledger.subscriptions.clear(null, 5000);
		expect(await announcements()).toHaveLength(1);
	});
});

describe('retries that are due', () => {
	const claimDue = async (limit = 10, to = subscription) =>
		await stage.ledger.subscriptions.claimDue(to, [kind], limit, caller);

	async function due(policy: Partial<ClaimPolicy> = {}, item = newWork()): Promise<ClaimItem> {
		await stage.claimed({ ...item, payload: item.payload ?? '{"order":7}' }, { kind, ...policy });
		await stage.fail(item, { error: 'no answer' });
		await stage.becomeDue(item);
		return item;
	}

	test('are claimed as any claim of them would, with the stored policy and payload, and the log says for whom', async () => {
		const policy: Partial<ClaimPolicy> = {
			window: { mode: 'duration', seconds: 60 },
			onLapse: 'hold',
			leaseSeconds: 77,
			maxAttempts: 3,
			backoffBaseSeconds: 1,
			backoffCapSeconds: 2,
		};
		const item = await due(policy, newWork('8001'));
		const before = await stage.row(item);
		const [{ answer, work }, ...more] = await claimDue();
		expect(more).toEqual([]);
		expect(answer).toMatchObject({
			workId: item.workId,
			status: 'claimed',
			attempt: 2,
			generation: 1,
			previousOutcome: 'failed',
			lastError: 'no answer',
			owner: expect.objectContaining({ execution: '100' }),
		});
		expect(work).toMatchObject({ kind, key: '8001', payload: { order: 7 }, maxAttempts: 3 });
		const row = await stage.row(item);
		expect(row).toMatchObject({
			state: 'running',
			token: answer.token,
			lease_s: 77,
			on_lapse: 'hold',
			max_attempts: 3,
			window_mode: 'duration',
			payload: { order: 7 },
			execution: null,
			workflow: 'workflow-1',
		});
		const lease = await stage.secondsUntil(row.locked_until);
		expect(lease).toBeGreaterThan(60);
		expect(lease).toBeLessThanOrEqual(77);
		expect((await stage.log(item)).at(-1)).toMatchObject({
			event: 'claim',
			outcome: 'claimed',
			attempt: 2,
			token: answer.token,
			checked: expect.objectContaining({ found: 'failed', window: { mode: 'duration' } }),
			detail: expect.objectContaining({ subscription }),
		});

		// and it can be undone like any claim
		await stage.works.release([{ workId: item.workId, token: answer.token }], caller);
		expect(await stage.row(item)).toMatchObject({
			state: 'failed',
			attempt: 1,
			token: before.token,
			payload: { order: 7 },
			window_mode: 'duration',
		});
	});

	test('only what can be handed out: due, with data, no lock, no stub, of the kinds asked for; longest due first', async () => {
		const second = await due();
		const first = await due();
		await stage.age(first, 60);
		const waiting = await stage.claimed({ ...newWork(), payload: '{}' }, { kind });
		await stage.fail(waiting);
		await due({ window: { mode: 'while_running' } });
		const noData = await due();
		const stub = await due();
		await stage.query('update idempotency.work_log set payload = null where work_id = $1', [
			noData.workId,
		]);
		await stage.query('update idempotency.work_log set stub = true where work_id = $1', [
			stub.workId,
		]);
		await due({ kind: `${kind} other` });
		await dead();
		const claimed = await claimDue();
		expect(claimed.map(({ answer }) => answer.workId)).toEqual([first.workId, second.workId]);
		expect(await claimDue()).toEqual([]);
	});

	test('never works that are remembered only while they run', async () => {
		const item = await due({ window: { mode: 'while_running' } });
		expect(await claimDue()).toEqual([]);
		expect(await stage.row(item)).toMatchObject({ state: 'failed', attempt: 1 });
	});

	test('never works that manual runs claimed apart from production, unless their kind is named', async () => {
		const apart = `${kind} (manual test)`;
		const item = await due({ kind: apart });
		const everyKind = await stage.ledger.subscriptions.claimDue(subscription, null, 100, caller);
		expect(everyKind.map(({ answer }) => answer.workId)).not.toContain(item.workId);
		expect(await stage.row(item)).toMatchObject({ state: 'failed', attempt: 1 });
		const sampled = await stage.ledger.subscriptions.sample('retry_due', {
			states: ['dead'],
			kinds: null,
		});
		expect(sampled?.workId).not.toBe(item.workId);
		const named = await stage.ledger.subscriptions.claimDue(subscription, [apart], 10, caller);
		expect(named.map(({ answer }) => answer.workId)).toEqual([item.workId]);
	});

	test('never more than were asked for', async () => {
		for (let n = 0; n < 4; n++) await due();
		expect(await claimDue(3)).toHaveLength(3);
		expect(await claimDue(3)).toHaveLength(1);
	});

	test('two subscriptions never get one work: while one holds its claims open, the other gets none of them', async () => {
		const item = await due();
		await one.query('begin');
		const held = await one.query(dueSql, [subscription, [kind], [randomUUID()]]);
		expect(held.rows).toEqual([{ work_id: item.workId }]);
		expect(await claimDue(10, `${subscription} other`)).toEqual([]);
		await one.query('commit');
		expect(await claimDue(10, `${subscription} other`)).toEqual([]);
		expect(await stage.row(item)).toMatchObject({ attempt: 2 });
	});

	test('a call sent again while its first sending is still under way gets the same claims', async () => {
		const items = [await due(), await due()];
		await due();
		const values = [subscription, [kind], [randomUUID(), randomUUID()]];
		await one.query('begin');
		await one.query(dueSql, values);
		const resent = two.query(dueSql, values);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect((await resent).rows).toEqual(items.map(({ workId }) => ({ work_id: workId })));
		for (const item of items) expect(await stage.row(item)).toMatchObject({ attempt: 2 });
	});

	test('20 at once on one due work, claimants and subscriptions: one gets it (case 112)', async () => {
		const item = await due();
		// all 20 wait for the row
		await one.query('begin');
		await one.query('select 1 from idempotency.work_log where work_id = $1 for update', [
			item.workId,
		]);
		const claims = Array.from(
			{ length: 18 },
			async () => (await stage.claim(again(item), { kind })).status,
		);
		await stage.untilWaiting(4);
		const passedOver = await two.query(dueSql, [subscription, [kind], [randomUUID()]]);
		await one.query('commit');
		const subscribed = [claimDue(), claimDue(1, `${subscription} other`)];
		const statuses = await Promise.all(claims);
		const handedOut = (await Promise.all(subscribed)).flat().map(({ answer }) => answer.status);
		expect(passedOver.rows).toEqual([]);
		expect([...statuses, ...handedOut].filter((status) => status === 'claimed')).toHaveLength(1);
		expect(statuses.filter((status) => status === 'in_progress').length).toBeGreaterThanOrEqual(17);
		expect(await stage.row(item)).toMatchObject({ state: 'running', attempt: 2 });
	});

	test('a poison work that kills its process: ten restarts, dead after five, shown once, replayed with its data (case 121)', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"order":13}' }, { kind });
		const attempts: number[] = [];
		const shown: string[] = [];
		for (let restart = 1; restart <= 10; restart++) {
			// the process is gone, and its lease over, where it holds the work
			await stage.query(
				`update idempotency.work_log set locked_until = clock_timestamp() - interval '1 second' where work_id = $1 and state = 'running'`,
				[item.workId],
			);
			await stage.ledger.admin.sweep(1000, caller);
			attempts.push(...(await claimDue()).map(({ answer }) => answer.attempt));
			const handOut = await announce();
			shown.push(...ids(handOut));
			await stage.ledger.subscriptions.acknowledge(handOut, caller);
		}
		expect(attempts).toEqual([2, 3, 4, 5]);
		expect(shown).toEqual([item.workId]);
		expect(await stage.row(item)).toMatchObject({
			state: 'dead',
			attempt: 5,
			payload: { order: 13 },
			last_error: expect.stringContaining('attempt 5 of 5 vanished'),
		});
		await stage.ledger.admin.replay([item.workId], {}, CALLER);
		expect(await claimDue()).toEqual([
			expect.objectContaining({
				answer: expect.objectContaining({ workId: item.workId, attempt: 1 }),
				work: expect.objectContaining({ payload: { order: 13 } }),
			}),
		]);
	});

	test.each([
		['run_again', 'failed'],
		['hold', 'held'],
	] as const)(
		'ended badly while the token runs, policy %s: %s, it may have landed',
		async (onLapse, state) => {
			const item = await due({ onLapse });
			const [{ answer }] = await claimDue();
			for (let n = 0; n < 2; n++) {
				expect(
					await stage.ledger.subscriptions.failIfRunning([answer], 'it broke', caller),
				).toEqual([expect.objectContaining({ status: 'failed', state, repeated: n === 1 })]);
			}
			expect(await stage.row(item)).toMatchObject({
				state,
				outcome_known: false,
				last_error: 'it broke',
			});
		},
	);

	test('what its owner has reported itself stands, and nobody else is touched', async () => {
		const item = await due();
		const [{ answer }] = await claimDue();
		const own = { ...item, token: answer.token as string };
		await stage.fail(own, { error: 'card declined', landed: 'no' });
		const ask = async () =>
			(await stage.ledger.subscriptions.failIfRunning([answer], 'it broke', caller))[0];
		expect(await ask()).toMatchObject({ status: 'refused', state: 'failed' });
		expect(await stage.row(item)).toMatchObject({
			last_error: 'card declined',
			outcome_known: true,
		});

		await stage.becomeDue(item);
		await stage.claimed(again(item), { kind });
		expect(await ask()).toMatchObject({ status: 'not_owner' });
		expect(await stage.row(item)).toMatchObject({ state: 'running', attempt: 3 });
	});

	test('several at once are locked in the order of all others, so that two never wait for each other', async () => {
		const items = sortedWorks(2);
		for (const item of items) await stage.claimed(item, { kind });
		await one.query('begin');
		await one.query('select 1 from idempotency.work_log where work_id = $1 for update', [
			items[0].workId,
		]);
		const failing = stage.ledger.subscriptions.failIfRunning([...items].reverse(), 'broke', caller);
		await stage.untilWaiting(1);
		await one.query('select 1 from idempotency.work_log where work_id = $1 for update nowait', [
			items[1].workId,
		]);
		await one.query('commit');
		expect((await failing).map(({ status }) => status)).toEqual(['failed', 'failed']);
	});
});

describe('a sample', () => {
	test('shows the newest dead letter or the next retry, and reserves nothing', async () => {
		const { subscriptions } = stage.ledger;
		const filter = { states: ['dead' as const], kinds: [kind] };
		expect(await subscriptions.sample('dead_letter', filter)).toBeNull();
		expect(await subscriptions.sample('retry_due', filter)).toBeNull();
		await dead();
		const newest = await dead();
		const failed = await stage.claimed({ ...newWork(), payload: '{}' }, { kind });
		await stage.fail(failed);
		expect(await subscriptions.sample('dead_letter', filter)).toMatchObject({
			workId: newest.workId,
		});
		expect(await subscriptions.sample('retry_due', filter)).toMatchObject({
			workId: failed.workId,
			state: 'failed',
		});
		expect(await announcements()).toEqual([]);
		expect(await stage.row(failed)).toMatchObject({ state: 'failed', attempt: 1 });
	});
});

describe('bad parameters are refused and change nothing', () => {
	const dead = (change: object) => ({
		subscription: 's',
		states: '{dead}',
		limit: 1,
		token: randomUUID(),
		options: null as string | null,
		...change,
	});
	test.each([
		['subscription must be', dead({ subscription: '' })],
		['subscription must be', dead({ subscription: null })],
		['states must be', dead({ states: '{done}' })],
		['states must be', dead({ states: '{}' })],
		['limit must be', dead({ limit: 0 })],
		['limit must be', dead({ limit: 101 })],
		['limit must be', dead({ limit: null })],
		['token must be', dead({ token: null })],
		['lease_s must be', dead({ options: '{"lease_s": 0}' })],
		['options may hold', dead({ options: '{"lease": 5}' })],
	])('announcing: %s', async (words, { subscription: to, states, limit, token, options }) => {
		await expect(
			one.query('select idempotency.announce_dead_letters($1, $2, null, $3, $4, $5)', [
				to,
				states,
				limit,
				token,
				options,
			]),
		).rejects.toMatchObject({ code: '22023', message: expect.stringContaining(words) });
	});

	test.each([
		['subscription must be', ['', '{aaaaaaaa-0000-4000-8000-000000000001}', null]],
		['tokens must hold', ['s', '{}', null]],
		['tokens must hold', ['s', '{null}', null]],
		['options may hold', ['s', '{aaaaaaaa-0000-4000-8000-000000000001}', '{"kind": "x"}']],
	])('claiming: %s', async (words, [to, tokens, options]) => {
		await expect(
			one.query('select idempotency.claim_due_works($1, null, $2, $3)', [to, tokens, options]),
		).rejects.toMatchObject({ code: '22023', message: expect.stringContaining(words as string) });
	});

	test('extending, and a sample of another event', async () => {
		await expect(
			one.query(`select idempotency.extend_announcements('s', 'work', '{}', null, 0)`),
		).rejects.toMatchObject({ code: '22023' });
		await expect(
			one.query(`select idempotency.sample_work('done', '{dead}', null)`),
		).rejects.toMatchObject({ code: '22023' });
	});
});

describe('the look costs little, however much is done', () => {
	test('with 200,000 done works both looks read their partial indexes', async () => {
		await stage.query(
			`insert into idempotency.work_log (work_id, kind, version, state, token, created_at, updated_at, first_started_at,
				claimed_at, completed_at)
			select encode(sha256(n::text::bytea), 'hex'), 'bulk', 'v1', 'done', gen_random_uuid(), now(), now(), now(), now(), now()
			from generate_series(1, 200000) n`,
		);
		await stage.query('analyze idempotency.work_log');
		const plan = async (sql: string) =>
			(await stage.query<{ 'QUERY PLAN': string }>(`explain ${sql}`))
				.map((row) => row['QUERY PLAN'])
				.join('\n');
		expect(
			await plan(`select 1 from idempotency.work_log w where w.state = 'failed' and w.next_attempt_at <= clock_timestamp()
				and w.payload is not null order by w.next_attempt_at limit 10 for update skip locked`),
		).toContain('work_log_due');
		expect(
			await plan(`select 1 from idempotency.work_log w
				left join idempotency.announcements n on n.subscription = 's' and n.subject = 'work' and n.subject_id = w.work_id
				where w.state in ('dead', 'held') and not w.stub and w.state = any('{dead,held}')
					and idempotency.announcement_due(n, idempotency.episode_of(w), now())
				order by w.updated_at limit 10 for no key update of w skip locked`),
		).toContain('work_log_dead');
		const before = performance.now();
		for (let n = 0; n < 20; n++) {
			await announce();
			await stage.ledger.subscriptions.claimDue(subscription, [kind], 10, caller);
		}
		// 20 scans of 200,000 rows would take seconds
		expect((performance.now() - before) / 20).toBeLessThan(100);
	});
});
