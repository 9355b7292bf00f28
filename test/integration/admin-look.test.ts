import type { WorkFilter, WorkReport } from '../../ledger/contract';
import { again, CALLER, from, newWork, sortedWorks, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
// what is purged, listed and counted is the whole ledger
beforeEach(async () => {
	await stage.query('truncate idempotency.work_log, idempotency.decision_log');
});
afterAll(async () => {
	await stage.close();
});

const BAD_INPUT = { name: 'LedgerError', code: 'bad_input' };

describe('explain', () => {
	test('is null for work that the ledger never saw', async () => {
		expect(await stage.ledger.admin.explain(newWork().workId)).toBeNull();
		expect(await stage.ledger.admin.explain(`'; drop table work_log; --`)).toBeNull();
	});

	test('tells a work and its whole history, oldest first: why was this a duplicate?', async () => {
		const item = await stage.claimed(newWork(), from({ execution: '100', runId: 'nightly' }));
		await stage.fail(item, { error: 'card declined' });
		await stage.becomeDue(item);
		const next = await stage.claimed(again(item), from({ execution: '101', runId: 'nightly' }));
		await stage.complete(next, { result: { invoice: 7 }, externalRef: 'inv_7' });
		await stage.claim(again(item), from({ execution: '102' }));
		const explained = await stage.ledger.admin.explain(item.workId);
		expect(explained?.work).toEqual({
			workId: item.workId,
			kind: 'invoice',
			version: 'v1',
			key: item.key,
			state: 'done',
			generation: 1,
			attempt: 2,
			maxAttempts: 5,
			onLapse: 'run_again',
			window: 'forever',
			lockedUntil: null,
			lapsed: false,
			nextAttemptAt: null,
			outcomeKnown: true,
			settledBy: 'owner',
			lastError: null,
			externalRef: 'inv_7',
			decisionKey: null,
			result: { invoice: 7 },
			resultPurged: false,
			payload: null,
			owner: {
				...{ instance: 'instance-1', workflow: 'workflow-1', workflowName: 'Invoices' },
				...{ execution: '101', node: 'Claim Work', mode: 'webhook', runId: 'nightly' },
				claimedAt: expect.stringMatching(/Z$/),
			},
			createdAt: expect.stringMatching(/^\d{4}-.*Z$/),
			firstStartedAt: expect.stringMatching(/Z$/),
			claimedAt: expect.stringMatching(/Z$/),
			updatedAt: expect.stringMatching(/Z$/),
			completedAt: expect.stringMatching(/Z$/),
			lastDoneAt: expect.stringMatching(/Z$/),
		});
		expect(explained?.more).toBe(false);
		expect(
			explained?.history.map(({ event, outcome, fired }) => [event, outcome, fired?.execution]),
		).toEqual([
			['claim', 'claimed', '100'],
			['fail', 'failed', '100'],
			['claim', 'claimed', '101'],
			['complete', 'completed', '100'],
			['claim', 'duplicate', '102'],
		]);
		expect(explained?.history.at(-1)).toMatchObject({
			token: expect.any(String),
			checked: { found: 'done', window: { mode: 'forever' } },
		});
	});

	test('shows lease, payload and lapse of running work', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"order":1}' });
		expect((await stage.ledger.admin.explain(item.workId))?.work).toMatchObject({
			state: 'running',
			lapsed: false,
			lockedUntil: expect.stringMatching(/Z$/),
			payload: { order: 1 },
		});
		await stage.elapse(item);
		expect((await stage.ledger.admin.explain(item.workId))?.work).toMatchObject({ lapsed: true });
	});

	test('gives the newest decisions up to its limit, oldest first, and says that there are more', async () => {
		const item = await stage.workThatIs('done');
		for (let count = 0; count < 3; count++) await stage.claim(again(item));
		const look = async (limit: number) => {
			const explained = await stage.ledger.admin.explain(item.workId, limit);
			return [explained?.history.map(({ outcome }) => outcome), explained?.more];
		};
		const all = ['claimed', 'completed', 'duplicate', 'duplicate', 'duplicate'];
		expect(await look(4)).toEqual([all.slice(1), true]);
		expect(await look(5)).toEqual([all, false]);
		expect(await look(6)).toEqual([all, false]);
		expect(await look(0)).toEqual([['duplicate'], true]);
		expect(await look(-5)).toEqual([['duplicate'], true]);
	});

	test('of work that is gone still tells its history', async () => {
		const item = await stage.claimed();
		await stage.release(item);
		expect(await stage.ledger.admin.explain(item.workId)).toMatchObject({
			work: null,
			history: [
				{ event: 'claim', outcome: 'claimed' },
				{ event: 'release', outcome: 'released' },
			],
			more: false,
		});
	});

	test('of work whose history was purged still tells the work', async () => {
		const item = await stage.workThatIs('done');
		await stage.query(`update idempotency.decision_log set at = at - interval '1 h'`);
		await stage.ledger.admin.purgeDecisions(60, 1000);
		expect(await stage.ledger.admin.explain(item.workId)).toMatchObject({
			work: { state: 'done' },
			history: [],
			more: false,
		});
	});

	test('passes NUL, quotes and big values of results, payloads and refused results as they are', async () => {
		const value = { text: `a\u0000b 'q' "d" $1 \\`, nested: [{ z: 1, a: 2 }], zero: 0 };
		const item = await stage.claimed({ ...newWork(), payload: JSON.stringify(value) });
		expect((await stage.ledger.admin.explain(item.workId))?.work?.payload).toEqual(value);
		await stage.complete(item, { result: value });
		await stage.complete({ ...item, token: again(item).token }, { result: value });
		const explained = await stage.ledger.admin.explain(item.workId);
		expect(explained?.work?.result).toEqual(value);
		expect(explained?.history.at(-1)).toMatchObject({ outcome: 'not_owner', result: value });
		const { works } = await stage.ledger.admin.list({}, 10);
		expect(works[0].result).toEqual(value);
	});
});

describe('list', () => {
	async function list(filter: WorkFilter): Promise<string[]> {
		const { works } = await stage.ledger.admin.list(filter, 1000);
		return works.map(({ workId }) => workId);
	}

	test('is empty on an empty ledger', async () => {
		expect(await stage.ledger.admin.list({}, 10)).toEqual({ works: [], cursor: null });
	});

	test('is the newest change first', async () => {
		const [first, second] = [await stage.claimed(), await stage.claimed()];
		expect(await list({})).toEqual([second.workId, first.workId]);
		await stage.complete(first);
		expect(await list({})).toEqual([first.workId, second.workId]);
	});

	test('filters by each state, and by several', async () => {
		const items = {
			running: await stage.workThatIs('running'),
			done: await stage.workThatIs('done'),
			failed: await stage.workThatIs('failed'),
			dead: await stage.workThatIs('dead'),
			held: await stage.workThatIs('held'),
		};
		for (const state of ['running', 'done', 'failed', 'dead', 'held'] as const) {
			expect(await list({ states: [state] })).toEqual([items[state].workId]);
		}
		expect(await list({ states: ['dead', 'held'] })).toEqual([
			items.held.workId,
			items.dead.workId,
		]);
		expect(await list({ states: [] })).toEqual([]);
	});

	test('filters by kind, run, execution and age, alone and together', async () => {
		const invoice = await stage.claimed(newWork(), from({ execution: '1', runId: 'monday' }));
		const mail = await stage.claimed(
			newWork(),
			from({ execution: '2', runId: 'tuesday' }, { kind: 'mail' }),
		);
		await stage.age(invoice, 60);
		expect(await list({ kind: 'invoice' })).toEqual([invoice.workId]);
		expect(await list({ runId: 'tuesday' })).toEqual([mail.workId]);
		expect(await list({ execution: '1' })).toEqual([invoice.workId]);
		expect(await list({ olderThanSeconds: 30 })).toEqual([invoice.workId]);
		expect(await list({ olderThanSeconds: 0 })).toEqual([mail.workId, invoice.workId]);
		expect(await list({ kind: 'invoice', runId: 'tuesday' })).toEqual([]);
		expect(await list({ kind: 'mail', runId: 'tuesday', execution: '2' })).toEqual([mail.workId]);
	});

	test('finds part of the readable key in any case, and takes no character of it as a pattern', async () => {
		const plain = await stage.claimed(newWork('Order-1001'));
		const odd = await stage.claimed(newWork(`50%_off 'x' \\ $1 É`));
		const bare = newWork();
		await stage.query(
			`select * from idempotency.claim_work($1, null, $2, null, null, '{"kind": "invoice"}')`,
			[bare.workId, bare.token],
		);
		expect(await list({ text: 'order-10' })).toEqual([plain.workId]);
		for (const text of ['%', '_', `'X'`, '\\', '$1', 'é']) {
			expect([text, await list({ text })]).toEqual([text, [odd.workId]]);
		}
		expect(await list({ text: `' or true --` })).toEqual([]);
	});

	test.each([1, 2, 3, 7, 8])(
		'pages of %i over equal times lose and repeat nothing',
		async (size) => {
			const items = sortedWorks(7);
			await stage.works.claim(items, from({}));
			const times = await stage.query('select distinct updated_at from idempotency.work_log');
			expect(times).toHaveLength(1);
			const seen: string[] = [];
			let cursor: string | null = null;
			let pages = 0;
			do {
				const page: { works: WorkReport[]; cursor: string | null } = await stage.ledger.admin.list(
					{},
					size,
					cursor,
				);
				expect(page.works.length).toBeLessThanOrEqual(size);
				seen.push(...page.works.map(({ workId }) => workId));
				cursor = page.cursor;
				pages++;
			} while (cursor !== null && pages < 20);
			expect(seen).toEqual(items.map(({ workId }) => workId).reverse());
		},
	);

	test('a work that changes between two pages is not lost from those that did not', async () => {
		const items = [];
		for (let count = 0; count < 4; count++) items.push(await stage.claimed());
		const first = await stage.ledger.admin.list({}, 2);
		await stage.complete(items[0]);
		const second = await stage.ledger.admin.list({}, 2, first.cursor);
		expect(first.works.map(({ workId }) => workId)).toEqual([items[3].workId, items[2].workId]);
		expect(second.works.map(({ workId }) => workId)).toEqual([items[1].workId]);
	});

	test('gives at least one and at most 1,000', async () => {
		const items = sortedWorks(1001);
		await stage.works.claim(items, from({}));
		expect((await stage.ledger.admin.list({}, 5000)).works).toHaveLength(1000);
		expect((await stage.ledger.admin.list({}, 0)).works).toHaveLength(1);
	});

	test.each([
		'nonsense',
		'',
		' ',
		'now x',
		`tomorrow ${'a'.repeat(64)}`,
		`2026-13-45T00:00:00.000000Z ${'a'.repeat(64)}`,
		'2026-01-01T00:00:00.000000Z ',
		`2026-01-01T00:00:00.000000Z ' or true --`,
	])('refuses a cursor that it did not give: %j', async (cursor) => {
		await stage.claimed();
		await expect(stage.ledger.admin.list({}, 10, cursor)).rejects.toMatchObject({
			...BAD_INPUT,
			message: expect.stringContaining('cursor'),
		});
	});

	test.each([
		['a negative age', { olderThanSeconds: -1 }, 'olderThan'],
		['an endless age', { olderThanSeconds: 1e300 }, 'olderThan'],
		['a misspelt state', { states: ['dnoe'] }, 'states'],
		['a misspelt filter', { kin: 'invoice' }, 'unknown filter: kin'],
		['text with NUL', { text: 'a\u0000b' }, ''],
	])('refuses %s instead of listing something else', async (_, filter, words) => {
		await stage.claimed();
		await expect(stage.ledger.admin.list(filter as WorkFilter, 10)).rejects.toMatchObject({
			...BAD_INPUT,
			message: expect.stringContaining(words),
		});
	});
});

describe('statistics', () => {
	test('of an empty ledger are empty', async () => {
		expect(await stage.ledger.admin.statistics()).toEqual({
			works: [],
			decisions: [],
			sinceSeconds: 86_400,
		});
	});

	test('count works per kind and state, as text, with the oldest change and the lapsed', async () => {
		const first = await stage.workThatIs('lapsed');
		await stage.age(first, 600);
		await stage.workThatIs('running');
		await stage.workThatIs('dead', { kind: 'mail' });
		const { works } = await stage.ledger.admin.statistics();
		expect(works).toEqual([
			{
				kind: 'invoice',
				state: 'running',
				count: '2',
				oldestAt: (await stage.row(first)).updated_at.toISOString(),
				lapsed: '1',
			},
			{ kind: 'mail', state: 'dead', count: '1', oldestAt: expect.any(String), lapsed: '0' },
		]);
		const { works: mail, decisions } = await stage.ledger.admin.statistics('mail');
		expect(mail.map(({ kind }) => kind)).toEqual(['mail']);
		expect(new Set(decisions.map(({ kind }) => kind))).toEqual(new Set(['mail']));
		expect((await stage.ledger.admin.statistics(`x' or true --`)).works).toEqual([]);
	});

	test('count the duplicates that were suppressed in the time asked for', async () => {
		const item = await stage.workThatIs('done');
		for (let count = 0; count < 3; count++) await stage.claim(again(item));
		await stage.query(
			`update idempotency.decision_log set at = at - interval '2 h'
			where id = (select max(id) from idempotency.decision_log)`,
		);
		const duplicates = async (since?: number) =>
			(await stage.ledger.admin.statistics(null, since)).decisions.find(
				({ outcome }) => outcome === 'duplicate',
			);
		expect(await duplicates(3600)).toEqual({
			...{ kind: 'invoice', event: 'claim', outcome: 'duplicate', count: '2' },
		});
		expect(await duplicates()).toMatchObject({ count: '3' });
	});

	test('count decisions on works that are gone, without a kind', async () => {
		await stage.release(await stage.claimed());
		expect((await stage.ledger.admin.statistics()).decisions).toEqual([
			{ kind: null, event: 'claim', outcome: 'claimed', count: '1' },
			{ kind: null, event: 'release', outcome: 'released', count: '1' },
		]);
	});

	test('hour by hour: exactly so many clock hours, empty ones as zeros, in one statement with the counts', async () => {
		const item = await stage.workThatIs('done');
		await stage.claim(again(item));
		await stage.query(
			`update idempotency.decision_log set at = at - interval '2 h' where work_id = $1`,
			[item.workId],
		);
		await stage.claim(again(item));
		await stage.workThatIs('failed');
		await stage.claim(again(await stage.workThatIs('running')));
		const { hours, works } = await stage.ledger.admin.statistics(null, 3600, { hours: 3 });
		expect(works.length).toBeGreaterThan(0);
		expect(hours).toEqual([
			{ at: expect.stringMatching(/:00:00\.000Z$/), claimed: '1', duplicates: '1', failed: '0' },
			{ at: expect.any(String), claimed: '0', duplicates: '0', failed: '0' },
			{ at: expect.any(String), claimed: '2', duplicates: '2', failed: '1' },
		]);
		const at = (hours ?? []).map((hour) => Date.parse(hour.at));
		expect(at.map((time) => time - at[0])).toEqual([0, 3_600_000, 7_200_000]);
	});

	test('hour by hour counts every attempt that ended without success as failed, whoever found out', async () => {
		const failed = async () =>
			(await stage.ledger.admin.statistics(null, 0, { hours: 1 })).hours?.[0].failed;
		for (const state of ['failed', 'dead', 'held'] as const) await stage.workThatIs(state);
		expect(await failed()).toBe('3');
		await stage.workThatIs('lapsed');
		await stage.ledger.admin.sweep(10);
		expect(await failed()).toBe('4');
		// a claim that finds the lease over: run again, held for a person, out of attempts
		await stage.claim(again(await stage.workThatIs('lapsed')));
		await stage.claim(again(await stage.workThatIs('lapsed', { onLapse: 'hold' })));
		await stage.claim(again(await stage.workThatIs('lapsed', { maxAttempts: 1 })));
		expect(await failed()).toBe('7');
		// somebody who is only told that work is held or dead has not failed
		await stage.claim(again(await stage.workThatIs('dead')));
		expect(await failed()).toBe('8');
	});

	test('hour by hour and the oldest waiting are of one kind, where one is asked for', async () => {
		await stage.workThatIs('failed');
		const mail = await stage.workThatIs('failed', { kind: 'mail' });
		const { hours, waiting } = await stage.ledger.admin.statistics('mail', 60, {
			hours: 1,
			waiting: 5,
		});
		expect(hours).toMatchObject([{ claimed: '1', failed: '1' }]);
		expect(waiting?.map(({ workId }) => workId)).toEqual([mail.workId]);
		const hostile = await stage.ledger.admin.statistics(`x' or true --`, 60, {
			hours: 1,
			waiting: 5,
		});
		expect(hostile).toMatchObject({ hours: [{ claimed: '0', failed: '0' }], waiting: [] });
	});

	test('the oldest waiting: failed and lapsed work by its beginning, without payload; what a person must settle is not in it', async () => {
		const failed = await stage.claimed({ ...newWork(), payload: '{"secret":1}' });
		await stage.fail(failed, { error: 'HTTP 500' });
		const lapsed = await stage.workThatIs('lapsed');
		for (const state of ['running', 'done', 'dead', 'held'] as const) await stage.workThatIs(state);
		const delivered = await stage.workThatIs('failed');
		await stage.query(
			`update idempotency.work_log set first_started_at = first_started_at - interval '1 day' where work_id = $1`,
			[lapsed.workId],
		);
		const { waiting } = await stage.ledger.admin.statistics(null, 0, { waiting: 10 });
		expect(waiting).toEqual([
			expect.objectContaining({ workId: lapsed.workId, state: 'running', lapsed: true, due: true }),
			{
				workId: failed.workId,
				kind: 'invoice',
				version: 'v1',
				key: failed.key,
				state: 'failed',
				lapsed: false,
				due: false,
				attempt: 1,
				maxAttempts: 5,
				firstStartedAt: expect.stringMatching(/Z$/),
				updatedAt: expect.stringMatching(/Z$/),
				lockedUntil: null,
				nextAttemptAt: expect.stringMatching(/Z$/),
				waitsForDelivery: false,
				outcomeKnown: true,
				lastError: 'HTTP 500',
			},
			expect.objectContaining({ workId: delivered.workId, waitsForDelivery: true }),
		]);
		const { waiting: one } = await stage.ledger.admin.statistics(null, 0, { waiting: 1 });
		expect(one?.map(({ workId }) => workId)).toEqual([lapsed.workId]);
	});

	test.each([0, -1, 745])('refuse %d hours', async (hours) => {
		await expect(stage.ledger.admin.statistics(null, 60, { hours })).rejects.toMatchObject(
			BAD_INPUT,
		);
	});

	test('refuse a negative age', async () => {
		await expect(stage.ledger.admin.statistics(null, -1)).rejects.toMatchObject(BAD_INPUT);
	});
});

describe('rights', () => {
	const NAMES = [
		...['sweep_works', 'settle_unreported', 'make_due', 'replay_works', 'resolve_works'],
		...['forget_test_works', 'release_by_force', 'purge_works', 'purge_decisions'],
		...['work_report', 'explain_work', 'list_works', 'ledger_statistics'],
		...['decisions_by_hour', 'oldest_waiting'],
	].sort();

	test('none of the functions may be executed by everybody, and none can be led to other tables', async () => {
		const rows = await stage.query(
			`select p.proname as name, p.prosecdef as definer, p.proconfig as config,
				p.proacl is null or exists (
					select 1 from aclexplode(p.proacl) a where a.grantee = 0) as public
			from pg_proc p
			where p.pronamespace = 'idempotency'::regnamespace and p.proname = any($1)
			order by p.proname collate "C"`,
			[NAMES],
		);
		expect(rows.map(({ name }) => name as string)).toEqual(NAMES);
		for (const { name, definer, config, public: open } of rows) {
			expect({ name, open }).toEqual({ name, open: false });
			if (definer === true) {
				expect((config as string[]).find((entry) => entry.startsWith('search_path='))).toMatch(
					/^search_path="?idempotency"?, pg_temp$/,
				);
			}
		}
	});

	test('a role that was granted nothing is refused', async () => {
		const client = await stage.connect();
		await client.query('begin');
		await client.query('create role nobody_at_all');
		await client.query('grant usage on schema idempotency to nobody_at_all');
		await client.query('set local role nobody_at_all');
		await expect(
			client.query(`select * from idempotency.sweep_works(10, '{}')`),
		).rejects.toMatchObject({ code: '42501' });
		await client.query('rollback');
	});
});

test('everything a person does carries who did it into the history', async () => {
	const item = await stage.workThatIs('held');
	const by = { ...CALLER, node: 'Work Ledger', execution: '900' };
	await stage.ledger.admin.replay([item.workId], {}, by);
	expect((await stage.ledger.admin.explain(item.workId))?.history.at(-1)).toMatchObject({
		event: 'replay',
		fired: { node: 'Work Ledger', execution: '900' },
	});
});
