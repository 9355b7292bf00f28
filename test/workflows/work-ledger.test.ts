import type { IDataObject } from 'n8n-workflow';

import {
	claim,
	complete,
	http,
	nextExecutionId,
	step,
	workLedger,
	workLedgerTool,
	type Flow,
	type NodeOfTest,
	type Ran,
} from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

const workOf = (json: IDataObject): IDataObject => json.work as IDataObject;
const fail = (parameters: IDataObject = {}) =>
	complete({ operation: 'fail', landed: 'no', error: 'no answer', ...parameters });

/** What becomes of order 1 after its claim. */
const BECOMES: Record<string, { nodes: NodeOfTest[]; onLapse?: string }> = {
	running: { nodes: [] },
	done: { nodes: [complete({ externalRef: 'inv_1', result: 'fields', resultFields: 'total' })] },
	failed: { nodes: [fail()] },
	dead: { nodes: [fail({ options: { permanent: true } })] },
	held: { nodes: [fail({ landed: 'unknown' })], onLapse: 'hold' },
	'perhaps landed': { nodes: [fail({ landed: 'unknown' })] },
};

/** Claims orders of a kind and brings them into a state. */
async function brought(
	kind: string,
	state: string,
	numbers: number[] = [1],
	more: Partial<Flow> = {},
	parameters: IDataObject = {},
): Promise<Ran> {
	const { nodes, onLapse } = BECOMES[state];
	const policy = onLapse === undefined ? {} : { onLapse };
	const ran = await stage.run({
		items: orders(...numbers),
		nodes: [claim(byOrder(kind, { ...policy, ...parameters })), ...nodes],
		...more,
	});
	expect(ran.error).toBeNull();
	const expected = state === 'perhaps landed' ? 'failed' : state;
	expect((await stage.rows(kind)).map((row) => row.state)).toEqual(numbers.map(() => expected));
	return ran;
}

/** Order 1 delivered once more. */
const deliver = async (kind: string, parameters: IDataObject = {}) =>
	await stage.run({ items: orders(1), nodes: [claim(byOrder(kind, parameters))] });

const byKey = (kind: string, more: IDataObject = {}): IDataObject => ({
	whichWork: 'key',
	kind,
	key: '={{ $json.order }}',
	...more,
});

async function ledger(
	parameters: IDataObject,
	items: IDataObject[] = orders(1),
	settings: NodeOfTest['settings'] = {},
): Promise<Ran> {
	return await stage.run({ items, nodes: [workLedger(parameters, settings)] });
}

/** The one item that leaves. */
async function answer(parameters: IDataObject, items?: IDataObject[]): Promise<IDataObject> {
	const ran = await ledger(parameters, items);
	expect(ran.error).toBeNull();
	const [first, ...rest] = ran.out('Work Ledger');
	expect(rest).toEqual([]);
	expect(first.pairedItem).toEqual({ item: 0 });
	expect(first.json).not.toHaveProperty('error');
	return first.json;
}

const unchanged = async (kind: string, act: () => Promise<unknown>) => {
	const before = await stage.rows(kind);
	const count = async () =>
		await stage.ledger.query('select count(*) from idempotency.decision_log');
	const logged = await count();
	await act();
	expect(await stage.rows(kind)).toEqual(before);
	expect(await count()).toEqual(logged);
};

describe('explain', () => {
	test('names the work by kind and key, by its id, and by the item that Claim Work let out', async () => {
		const kind = stage.newKind();
		const done = await brought(kind, 'done');
		const { work_id: workId } = await stage.work(kind);
		const found = { found: true, workId, work: { kind, key: '1', state: 'done' } };
		expect(await answer({ operation: 'explain', ...byKey(kind) })).toMatchObject(found);
		expect(await answer({ operation: 'explain', whichWork: 'id', workId })).toMatchObject(found);
		expect(await answer({ operation: 'explain' }, done.json('Complete Work'))).toMatchObject(found);
		expect(await answer({ operation: 'explain' }, [{ workId }])).toMatchObject(found);
	});

	test('several key fields: a list in the order of the node that claimed', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [claim({ kind, keyFields: 'order, customer' })],
		});
		const key = '={{ [$json.order, $json.customer] }}';
		expect(await answer({ operation: 'explain', ...byKey(kind, { key }) })).toMatchObject({
			workId: (await stage.work(kind)).work_id,
			found: true,
		});
	});

	test('why was this a duplicate? the words name the time, the execution and the window', async () => {
		const kind = stage.newKind();
		const first = nextExecutionId();
		const second = nextExecutionId();
		await brought(kind, 'done', [1], { executionId: first });
		const again = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind))],
			executionId: second,
		});
		expect(again.out('Claim Work', 1)).toHaveLength(1);
		const completedAt = (await stage.work(kind)).completed_at?.toISOString();
		const { story, summary } = await answer({ operation: 'explain', ...byKey(kind) });
		const sentences = story as string[];
		expect(sentences).toHaveLength(4);
		expect(sentences[0]).toContain(`execution ${first} of "Test flow" asked for claim → claimed, attempt 1`);
		expect(sentences[1]).toContain('asked for complete → completed, attempt 1 (reference inv_1)');
		const why = sentences[2];
		expect(why).toContain(`execution ${second} of "Test flow" asked for claim, found it done → duplicate`);
		const time = /it was done at (\S+) by execution/.exec(why)?.[1] as string;
		expect(new Date(time).toISOString()).toBe(completedAt);
		expect(why).toContain(`by execution ${first}, and the window is forever.`);
		expect(sentences[3]).toMatch(/^Now: done at .* by execution .*, reference inv_1\.$/);
		expect(summary).toMatch(/^This work is done at /);
	});

	test('the window in the words is the one that was asked for', async () => {
		const kind = stage.newKind();
		await brought(kind, 'done');
		await deliver(kind, { window: 'until_success', windowKind: 'another' });
		const { story } = await answer({ operation: 'explain', ...byKey(kind) });
		expect((story as string[])[2]).toContain('and the window is until success');
	});

	test.each([
		['running', /^This work is running by execution \d+, attempt 1 of 5; its lease ends at /],
		['failed', /^This work is failed \(no answer\); due at /],
		['perhaps landed', /its effect may have landed; due at /],
		['dead', /^This work is dead after 1 attempt: no answer\. Mend the cause, then replay it\.$/],
		['held', /^This work is held: no answer\. Resolve it: did it land\?$/],
	])('says of %s work where it stands', async (state, words) => {
		const kind = stage.newKind();
		await brought(kind, state);
		expect((await answer({ operation: 'explain', ...byKey(kind) })).summary).toMatch(words);
	});

	test('says of work whose lease ended that nobody reported', async () => {
		const kind = stage.newKind();
		await brought(kind, 'running');
		await stage.ledger.elapse({ workId: (await stage.work(kind)).work_id });
		expect((await answer({ operation: 'explain', ...byKey(kind) })).summary).toMatch(
			/^This work is running by execution \d+, but its lease ended at .* without a report/,
		);
	});

	test('shows the newest decisions only, and says that there are older ones', async () => {
		const kind = stage.newKind();
		await brought(kind, 'done');
		await deliver(kind);
		const explained = await answer({ operation: 'explain', ...byKey(kind), historyLimit: 1 });
		expect(explained).toMatchObject({ olderHistory: true, history: [{ outcome: 'duplicate' }] });
		expect((explained.story as string[])[0]).toBe('(There is older history than this.)');
	});

	test('work that the ledger never saw is an answer, not an error', async () => {
		expect(await answer({ operation: 'explain', ...byKey(stage.newKind()) })).toMatchObject({
			found: false,
			summary: 'The ledger has never seen this work.',
			story: [],
		});
	});

	test('work that is gone keeps its history', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete({ operation: 'release' })],
		});
		const explained = await answer({ operation: 'explain', ...byKey(kind) });
		expect(explained).toMatchObject({
			found: true,
			work: null,
			summary: 'The work is gone, its history is not.',
		});
		expect((explained.story as string[]).at(-1)).toBe('Now: the ledger holds no such work any more.');
	});

	test('explained items go on to the operations on one work', async () => {
		const kind = stage.newKind();
		await brought(kind, 'dead');
		const explained = await answer({ operation: 'explain', ...byKey(kind) });
		expect(await answer({ operation: 'replay' }, [explained])).toMatchObject({ status: 'replayed' });
	});
});

describe('list', () => {
	const list = async (parameters: IDataObject): Promise<IDataObject[]> => {
		const ran = await ledger({ operation: 'list', ...parameters });
		expect(ran.error).toBeNull();
		for (const { json, pairedItem } of ran.out('Work Ledger')) {
			expect(json).not.toHaveProperty('error');
			expect(pairedItem).toEqual({ item: 0 });
		}
		return ran.json('Work Ledger');
	};
	const keys = (works: IDataObject[]) => works.map(({ key }) => key);

	test('shows what waits for a person unless other states are chosen; none chosen: all', async () => {
		const text = 'list-states';
		const kinds: Record<string, string> = {};
		for (const state of ['running', 'done', 'failed', 'dead', 'held']) {
			kinds[state] = stage.newKind();
			await brought(kinds[state], state, [1], {
				items: [{ order: `${text}-${state}`, total: 10 }],
			});
		}
		const states = async (parameters: IDataObject) =>
			(await list({ filters: { text }, ...parameters })).map(({ state }) => state).sort();
		expect(await states({})).toEqual(['dead', 'held']);
		expect(await states({ states: [] })).toEqual(['dead', 'done', 'failed', 'held', 'running']);
		expect(await states({ states: ['failed', 'running'] })).toEqual(['failed', 'running']);
	});

	test('filters by kind, text in any case, execution, run id and age', async () => {
		const kind = stage.newKind();
		const executionId = nextExecutionId();
		await stage.run({
			items: [{ order: 'Paris-1' }, { order: 'Rome-2' }],
			nodes: [claim(byOrder(kind, { options: { runId: 'night-1' } }))],
			executionId,
		});
		await stage.run({ items: [{ order: 'PARIS-3' }], nodes: [claim(byOrder(kind))] });
		const found = async (filters: IDataObject) =>
			keys(await list({ states: [], filters: { kind, ...filters } }));
		expect(await found({})).toHaveLength(3);
		expect((await found({ text: 'pAris' })).sort()).toEqual(['PARIS-3', 'Paris-1']);
		expect((await found({ execution: executionId })).sort()).toEqual(['Paris-1', 'Rome-2']);
		expect((await found({ runId: 'night-1' })).sort()).toEqual(['Paris-1', 'Rome-2']);
		expect(await found({ runId: 'night-2' })).toEqual([]);
		const [old] = (await stage.rows(kind)).filter(({ key }) => key === 'Rome-2');
		await stage.ledger.age({ workId: old.work_id }, 25 * 3600);
		expect(await found({ olderThanHours: 24 })).toEqual(['Rome-2']);
		// half a filter is no pattern
		expect(await found({ text: '%' })).toEqual([]);
	});

	test('reads several pages up to its limit, the newest change first, and goes on after its cursor', async () => {
		const kind = stage.newKind();
		const count = 1203;
		await stage.run({
			items: Array.from({ length: count }, (_, order) => ({ order: String(order) })),
			nodes: [claim(byOrder(kind))],
		});
		// several changes at one time, and all others apart: the cursor must not lose or repeat any of them
		await stage.ledger.query(
			`update idempotency.work_log
			set updated_at = timestamptz '2026-01-01' + make_interval(secs => key::int / 7 * 0.000001)
			where kind = $1`,
			[kind],
		);
		const first = await list({ states: [], limit: 1100, filters: { kind } });
		expect(first).toHaveLength(1100);
		expect(first.slice(0, -1).every((work) => !('cursor' in work))).toBe(true);
		const { cursor } = first.at(-1) as IDataObject;
		const rest = await list({ states: [], limit: 1100, filters: { kind, cursor } });
		expect(rest.at(-1)).not.toHaveProperty('cursor');
		const groups = [...first, ...rest].map(({ key }) => Math.floor(Number(key) / 7));
		expect(groups).toEqual([...groups].sort((a, b) => b - a));
		expect(new Set(keys([...first, ...rest])).size).toBe(count);
	});

	test('nothing found: nothing leaves', async () => {
		expect(await list({ filters: { kind: stage.newKind() } })).toEqual([]);
	});
});

describe('statistics', () => {
	test('counts works per state with the oldest of each, and the duplicates that were suppressed', async () => {
		const kind = stage.newKind();
		await brought(kind, 'done');
		for (let i = 0; i < 2; i++) await deliver(kind);
		const running = { items: orders(2), nodes: [claim(byOrder(kind))] };
		for (let i = 0; i < 2; i++) await stage.run(running);
		const other = stage.newKind();
		await brought(other, 'dead');

		const counted = await answer({ operation: 'statistics', statisticsKind: kind });
		const rows = await stage.rows(kind);
		expect(counted).toMatchObject({
			duplicatesSuppressed: '3',
			sinceHours: 24,
			works: [
				{ kind, state: 'done', count: '1', lapsed: '0' },
				{ kind, state: 'running', count: '1', lapsed: '0' },
			],
		});
		const [done] = counted.works as IDataObject[];
		expect(new Date(done.oldestAt as string)).toEqual(rows[0].updated_at);

		const all = (await answer({ operation: 'statistics' })).works as IDataObject[];
		expect(all).toContainEqual(expect.objectContaining({ kind: other, state: 'dead', count: '1' }));
	});

	test('gives the hours of a chart and the oldest waiting work only where they are asked for', async () => {
		const kind = stage.newKind();
		await brought(kind, 'failed');
		const asked = { operation: 'statistics', statisticsKind: kind };
		const plain = await answer(asked);
		expect([plain.hours, plain.waiting]).toEqual([undefined, undefined]);
		const { hours, waiting } = await answer({ ...asked, byHours: 2, oldestWaiting: 3 });
		expect(hours).toEqual([
			{ at: expect.any(String), claimed: expect.any(String), duplicates: '0', failed: expect.any(String) },
			{ at: expect.any(String), claimed: expect.any(String), duplicates: '0', failed: expect.any(String) },
		]);
		// two hours, because the clock may have struck between the claim and the question
		const sum = (field: 'claimed' | 'failed') =>
			(hours as IDataObject[]).reduce((total, hour) => total + Number(hour[field]), 0);
		expect([sum('claimed'), sum('failed')]).toEqual([1, 1]);
		expect(waiting).toEqual([expect.objectContaining({ kind, key: '1', state: 'failed' })]);
	});

	test('counts decisions of the time asked for only', async () => {
		const kind = stage.newKind();
		await brought(kind, 'done');
		await deliver(kind);
		await stage.ledger.query(
			`update idempotency.decision_log set at = at - interval '3 hours' where work_id = $1`,
			[(await stage.work(kind)).work_id],
		);
		const suppressed = async (sinceHours: number) =>
			(await answer({ operation: 'statistics', statisticsKind: kind, sinceHours }))
				.duplicatesSuppressed;
		expect(await suppressed(2)).toBe('0');
		expect(await suppressed(4)).toBe('1');
	});
});

describe('replay', () => {
	test.each(['failed', 'dead', 'held'])('%s work is due now; the next delivery is attempt 1 again', async (state) => {
		const kind = stage.newKind();
		await brought(kind, state);
		const { token, work_id: workId } = await stage.work(kind);
		expect(await answer({ operation: 'replay', ...byKey(kind) })).toMatchObject({
			status: 'replayed',
			message: 'Due now.',
			workId,
			kind,
			key: '1',
			state: 'failed',
			attempt: 0,
			waitsForDelivery: false,
		});
		const ran = await deliver(kind);
		expect(workOf(ran.json('Claim Work')[0])).toMatchObject({
			status: 'claimed',
			attempt: 1,
			generation: 1,
			lastError: 'no answer',
		});
		// the old owner is fenced: its late report changes nothing
		expect(token).not.toBeNull();
		const [late] = await stage.ledger.works.complete([{ workId, token, result: 1 }], {});
		expect(late.status).toBe('not_owner');
	});

	test('a second replay is refused, in words: it is due already', async () => {
		const kind = stage.newKind();
		await brought(kind, 'dead');
		const replay = { operation: 'replay', ...byKey(kind) };
		await answer(replay);
		await unchanged(kind, async () => {
			const ran = await ledger(replay);
			expect(ran.error?.message).toBe(`${kind} 1: it is due already. Nothing was changed.`);
		});
	});

	test('done work is refused, unless run again on purpose: then it is a new generation', async () => {
		const kind = stage.newKind();
		await brought(kind, 'done');
		await unchanged(kind, async () => {
			const ran = await ledger({ operation: 'replay', force: true, ...byKey(kind) });
			expect(ran.error?.message).toMatch(/it is done; .*run again on purpose/);
		});
		expect(await answer({ operation: 'replay', again: true, ...byKey(kind) })).toMatchObject({
			status: 'replayed',
			generation: 2,
			externalRef: null,
		});
		const ran = await deliver(kind);
		expect(workOf(ran.json('Claim Work')[0])).toMatchObject({
			status: 'claimed',
			generation: 2,
			attempt: 1,
		});
	});

	test('running work is refused, unless by force: its owner then leaves by Not Owner', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step('Person', async (items) => {
					await unchanged(kind, async () => {
						const refused = await ledger({ operation: 'replay', again: true, ...byKey(kind) });
						expect(refused.error?.message).toMatch(/it is running until .*; replay it by force/);
					});
					await answer({ operation: 'replay', force: true, ...byKey(kind) });
					return items;
				}),
				complete(),
			],
		});
		expect(ran.error).toBeNull();
		expect(ran.out('Complete Work')).toEqual([]);
		expect(workOf(ran.json('Complete Work', 1)[0]).status).toBe('not_owner');
		expect(await stage.work(kind)).toMatchObject({ state: 'failed', attempt: 0 });
	});

	test('work without kept data says that it waits for its next delivery', async () => {
		const kind = stage.newKind();
		await brought(kind, 'dead', [1], {}, { options: { storePayload: false } });
		expect(await answer({ operation: 'replay', ...byKey(kind) })).toMatchObject({
			status: 'replayed',
			waitsForDelivery: true,
			message: expect.stringContaining('done when it is delivered again'),
		});
		expect(workOf((await deliver(kind)).json('Claim Work')[0]).status).toBe('claimed');
	});

	test('one item of a batch is replayed without the rest', async () => {
		const kind = stage.newKind();
		await brought(kind, 'dead', [1, 2, 3]);
		await answer({ operation: 'replay', ...byKey(kind) }, orders(2));
		expect(await stage.works(kind)).toEqual(['1 dead', '2 failed', '3 dead']);
	});
});

describe('resolve', () => {
	test.each(['held', 'dead', 'perhaps landed'])('%s work that landed is done: duplicates get its reference and result', async (state) => {
		const kind = stage.newKind();
		await brought(kind, state);
		const resolved = await answer({
			operation: 'resolve',
			...byKey(kind),
			landed: 'yes',
			externalRef: ' inv_9 ',
			result: '{"invoice": 9}',
		});
		expect(resolved).toMatchObject({ status: 'resolved', state: 'done', externalRef: 'inv_9' });
		const ran = await deliver(kind);
		expect(workOf(ran.json('Claim Work', 1)[0])).toMatchObject({
			status: 'duplicate',
			externalRef: 'inv_9',
			result: { invoice: 9 },
		});
	});

	test('an expression may give the result', async () => {
		const kind = stage.newKind();
		await brought(kind, 'held');
		await answer({
			operation: 'resolve',
			...byKey(kind),
			landed: 'yes',
			result: '={{ { total: $json.total } }}',
		});
		expect((await stage.work(kind)).result).toEqual({ total: 10 });
	});

	test.each(['held', 'dead', 'perhaps landed'])('%s work that did not land is due now, with all its attempts', async (state) => {
		const kind = stage.newKind();
		await brought(kind, state);
		expect(
			await answer({ operation: 'resolve', ...byKey(kind), landed: 'no' }),
		).toMatchObject({ status: 'resolved', state: 'failed', attempt: 0 });
		expect(workOf((await deliver(kind)).json('Claim Work')[0])).toMatchObject({
			status: 'claimed',
			attempt: 1,
			previousOutcome: 'failed',
		});
	});

	test.each([
		['running', /it is running until/],
		['done', /it is done already/],
		['failed', /known not to have landed: replay it/],
	])('%s work is refused', async (state, words) => {
		const kind = stage.newKind();
		await brought(kind, state);
		await unchanged(kind, async () => {
			const ran = await ledger({ operation: 'resolve', ...byKey(kind), landed: 'yes' });
			expect(ran.error?.message).toMatch(words);
		});
	});

	test.each([
		['a result that is no JSON', { landed: 'yes', result: '{invoice: 9' }, /Result is not JSON/],
		['a reference too long', { landed: 'yes', externalRef: 'x'.repeat(2001) }, /eference|externalRef/],
		['an answer that is neither yes nor no', { landed: 'maybe' }, /must be yes or no/],
	])('%s changes nothing', async (_, parameters, words) => {
		const kind = stage.newKind();
		await brought(kind, 'held');
		await unchanged(kind, async () => {
			const ran = await ledger({ operation: 'resolve', ...byKey(kind), ...parameters });
			expect(ran.error?.message).toMatch(words);
		});
	});
});

describe('forget test run', () => {
	test('a manual run is forgotten, and can be tested again', async () => {
		const kind = stage.newKind();
		await brought(kind, 'done', [1], { mode: 'manual' });
		expect(await answer({ operation: 'forget', ...byKey(kind) })).toMatchObject({
			status: 'forgotten',
			kind,
			key: '1',
			state: null,
		});
		expect(await stage.works(kind)).toEqual([]);
		expect(workOf((await deliver(kind)).json('Claim Work')[0])).toMatchObject({
			status: 'claimed',
			generation: 1,
			attempt: 1,
		});
	});

	test('a production run is not, nor a manual retry of one', async () => {
		const kind = stage.newKind();
		await brought(kind, 'failed');
		const forget = async () =>
			await unchanged(kind, async () => {
				const ran = await ledger({ operation: 'forget', ...byKey(kind) });
				expect(ran.error?.message).toMatch(/not every attempt was a manual one/);
			});
		await forget();
		await stage.ledger.becomeDue({ workId: (await stage.work(kind)).work_id });
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete()],
			mode: 'manual',
		});
		expect((await stage.work(kind)).attempt).toBe(2);
		await forget();
	});
});

describe('release by force', () => {
	test('frees running work; its old owner leaves by Not Owner, its result in the log only', async () => {
		const kind = stage.newKind();
		const slow = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				step('Person', async (items) => {
					expect(await answer({ operation: 'releaseByForce', ...byKey(kind) })).toMatchObject({
						status: 'released',
						message: 'Released: anybody may claim it.',
					});
					expect(await stage.works(kind)).toEqual([]);
					expect(workOf((await deliver(kind)).json('Claim Work')[0])).toMatchObject({ attempt: 1 });
					return items;
				}),
				complete({ externalRef: 'second-effect' }),
			],
		});
		expect(slow.error).toBeNull();
		expect(slow.out('Complete Work')).toEqual([]);
		expect(workOf(slow.json('Complete Work', 1)[0]).status).toBe('not_owner');
		expect(await stage.work(kind)).toMatchObject({ state: 'running', external_ref: null });
	});

	test.each(['done', 'failed', 'dead', 'held'])('%s work is refused', async (state) => {
		const kind = stage.newKind();
		await brought(kind, state);
		await unchanged(kind, async () => {
			const ran = await ledger({ operation: 'releaseByForce', ...byKey(kind) });
			expect(ran.error?.message).toMatch(/only running work can be released/);
		});
	});
});

describe('purge', () => {
	/** Old works of a kind: 1 done, 2 dead, 3 held. */
	async function old(kind: string, days: number): Promise<void> {
		await stage.run({ items: orders(1), nodes: [claim(byOrder(kind)), complete()] });
		await stage.run({
			items: orders(2),
			nodes: [claim(byOrder(kind)), fail({ options: { permanent: true } })],
		});
		await stage.run({
			items: orders(3),
			nodes: [claim(byOrder(kind, { onLapse: 'hold' })), fail({ landed: 'unknown' })],
		});
		for (const { work_id: workId } of await stage.rows(kind)) {
			await stage.ledger.age({ workId }, days * 86_400);
		}
	}

	test('by default frees old done work only, and a late duplicate is still recognised', async () => {
		const kind = stage.newKind();
		const young = stage.newKind();
		await old(kind, 181);
		await brought(young, 'done');
		expect(await answer({ operation: 'purge' })).toMatchObject({ status: 'purged', decisions: 0 });
		expect(await stage.works(kind)).toEqual(['1 done', '2 dead', '3 held']);
		const [done, dead] = await stage.rows(kind);
		expect(done).toMatchObject({ stub: true, result: null, payload: null });
		expect(dead).toMatchObject({ stub: false, payload: { order: 2 } });
		expect((await stage.work(young)).result).toEqual({ total: 10 });
		expect(workOf((await deliver(kind)).json('Claim Work', 1)[0])).toMatchObject({
			status: 'duplicate',
			resultPurged: true,
		});
		const { summary } = await answer({ operation: 'explain', ...byKey(kind) });
		expect(summary).toMatch(/its result was purged/);
	});

	test('dead work too, by choice: it stays dead; held work never', async () => {
		const kind = stage.newKind();
		await old(kind, 181);
		await answer({ operation: 'purge', dead: true });
		expect(await stage.rows(kind)).toMatchObject([{ stub: true }, { stub: true }, { stub: false }]);
		const ran = await stage.run({ items: orders(2), nodes: [claim(byOrder(kind))] });
		expect(workOf(ran.json('Claim Work', 3)[0]).status).toBe('dead');
		expect(await answer({ operation: 'replay', ...byKey(kind) }, orders(2))).toMatchObject({
			waitsForDelivery: true,
		});
	});

	test('keeps nothing by choice, but the newest success of the kind', async () => {
		const kind = stage.newKind();
		await brought(kind, 'done', [1]);
		const both = { items: orders(1, 2), nodes: [claim(byOrder(kind)), complete()] };
		await stage.run(both);
		for (const { work_id: workId } of await stage.rows(kind)) {
			await stage.ledger.age({ workId }, 181 * 86_400);
		}
		await answer({ operation: 'purge', keepStub: false });
		expect((await stage.rows(kind)).map(({ key }) => key)).toEqual(['2']);
		expect(workOf((await deliver(kind)).json('Claim Work')[0]).status).toBe('claimed');
	});

	test('the decision log has a retention of its own', async () => {
		const kind = stage.newKind();
		await brought(kind, 'done');
		const { work_id: workId } = await stage.work(kind);
		await stage.ledger.query(
			`update idempotency.decision_log set at = at - interval '10 days' where work_id = $1`,
			[workId],
		);
		await answer({ operation: 'purge', logDays: 11 });
		expect(await stage.ledger.history({ workId })).toHaveLength(2);
		const purged = await answer({ operation: 'purge', logDays: 9 });
		expect(purged).toMatchObject({ decisions: 2 });
		expect(await stage.ledger.history({ workId })).toEqual([]);
		expect(await stage.works(kind)).toEqual(['1 done {"total":10}']);
	});

	test('stops after as many rows as asked', async () => {
		const kind = stage.newKind();
		await brought(kind, 'done', [1, 2, 3]);
		for (const { work_id: workId } of await stage.rows(kind)) {
			await stage.ledger.age({ workId }, 9_000 * 86_400);
		}
		expect(await answer({ operation: 'purge', olderThanDays: 8_000, atMost: 2 })).toMatchObject({
			works: 2,
		});
	});

	test.each([
		['negative', -1],
		['null', '={{ null }}'],
		['an empty list', '={{ [] }}'],
		['missing', '={{ $json.nope }}'],
		['empty', '={{ "" }}'],
		['false', '={{ false }}'],
		['a word', '={{ "all" }}'],
	])('an age that is %s purges nothing, and says what is needed', async (_, olderThanDays) => {
		const kind = stage.newKind();
		await old(kind, 40_000);
		await unchanged(kind, async () => {
			const ran = await ledger({ operation: 'purge', olderThanDays });
			expect(ran.error?.message).toMatch(/^Older Than \(Days\) must be a number from 0 to 36500, not /);
		});
		await answer({ operation: 'purge' });
	});
});

describe('bad input', () => {
	/** Dead orders 1 and 3; order 2 was never claimed. */
	const withUnknown = async () => {
		const kind = stage.newKind();
		await brought(kind, 'dead', [1, 3]);
		return { kind, replay: { operation: 'replay', ...byKey(kind) } };
	};
	const NO_WORK = /^The ledger holds no such work .* Check the kind, the version and the key\.$/;

	test('stops the workflow at the item, in words that tell the cure', async () => {
		const { kind, replay } = await withUnknown();
		const ran = await ledger(replay, orders(1, 2, 3));
		expect(ran.status).toBe('error');
		expect(ran.error).toMatchObject({
			name: 'NodeOperationError',
			message: expect.stringMatching(NO_WORK),
		});
		expect(await stage.works(kind)).toEqual(['1 failed', '3 dead']);
	});

	test('under Continue the item carries its error, its data kept, and the rest goes on, paired', async () => {
		const { kind, replay } = await withUnknown();
		const ran = await ledger(replay, orders(1, 2, 3), { onError: 'continueRegularOutput' });
		expect(ran.error).toBeNull();
		expect(ran.out('Work Ledger')).toMatchObject([
			{ json: { status: 'replayed', key: '1' }, pairedItem: { item: 0 } },
			{ json: { order: 2, customer: 'c2', error: expect.stringMatching(NO_WORK) }, pairedItem: { item: 1 } },
			{ json: { status: 'replayed', key: '3' }, pairedItem: { item: 2 } },
		]);
		expect(ran.json('Work Ledger').map((json) => 'error' in json)).toEqual([false, true, false]);
		expect(await stage.works(kind)).toEqual(['1 failed', '3 failed']);
	});

	test('by the error output leaves the item, and only it', async () => {
		const { kind, replay } = await withUnknown();
		const ran = await ledger(replay, orders(1, 2, 3), { onError: 'continueErrorOutput' });
		expect(ran.error).toBeNull();
		expect(ran.json('Work Ledger').map(({ key }) => key)).toEqual(['1', '3']);
		expect(ran.out('Work Ledger', 1)).toMatchObject([
			{ json: { order: 2, customer: 'c2', error: expect.stringMatching(NO_WORK) }, pairedItem: { item: 1 } },
		]);
		expect(await stage.works(kind)).toEqual(['1 failed', '3 failed']);
	});

	test('an error that comes with an item is not on its success', async () => {
		const { kind, replay } = await withUnknown();
		const [item] = orders(1);
		expect(await answer(replay, [{ ...item, error: 'from before' }])).not.toHaveProperty('error');
		expect(await stage.works(kind)).toEqual(['1 failed', '3 dead']);
	});

	test.each([
		['an item without a work', { operation: 'replay' }, /^The item names no work: 64 hex digits/],
		['an id that is none', { operation: 'replay', whichWork: 'id', workId: 'inv-1' }, /^Work ID names no work/],
		['an empty key', { operation: 'replay', whichWork: 'key', kind: 'k', key: '={{ "" }}' }, /Key.*empty/],
		['a missing key', { operation: 'replay', whichWork: 'key', kind: 'k', key: '={{ $json.nope }}' }, /Key/],
		['no kind', { operation: 'replay', whichWork: 'key', kind: '={{ "" }}', key: '1' }, /[Kk]ind/],
		['an unknown operation', { operation: 'explode' }, /"explode" is not known/],
		['a cursor that list did not give', { operation: 'list', filters: { cursor: 'tomorrow' } }, /cursor/],
		['an unknown state', { operation: 'list', states: ['lost'] }, /states must be of/],
		['an unknown state as text', { operation: 'list', states: 'lost' }, /states must be of/],
		['states that an expression lost', { operation: 'list', states: '={{ $json.nope }}' }, /^States is nothing, no choice\./],
		['states that are numbers', { operation: 'list', states: '={{ [7] }}' }, /^States is \[7\], no choice\./],
		['a negative age', { operation: 'list', filters: { olderThanHours: -1 } }, /^Not Changed for \(Hours\) must be a number from 0 to 880000, not -1\.$/],
		['a missing age', { operation: 'list', filters: { olderThanHours: '={{ $json.nope }}' } }, /^Not Changed for/],
		['a limit of none', { operation: 'list', limit: 0 }, /^Limit must be a whole number from 1 to 100000, not 0\.$/],
		['half a history row', { operation: 'explain', whichWork: 'id', workId: 'a'.repeat(64), historyLimit: 1.5 }, /^History Rows must be a whole number/],
		['a negative time', { operation: 'statistics', sinceHours: -1 }, /^Decisions of the Last \(Hours\) must be/],
		['no rows at most', { operation: 'purge', atMost: 0 }, /^At Most \(Rows\) must be a whole number/],
		['a negative log age', { operation: 'purge', logDays: -1 }, /^Decision Log Older Than \(Days\) must be/],
	])('%s is a clear error on the item', async (_, parameters, words) => {
		const ran = await ledger(parameters, orders(1), { onError: 'continueRegularOutput' });
		expect(ran.error).toBeNull();
		expect(ran.out('Work Ledger')).toEqual([
			{ json: { ...orders(1)[0], error: expect.stringMatching(words) }, pairedItem: { item: 0 } },
		]);
	});

	test('a ledger that cannot be reached is an error on every item, and no answer', async () => {
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [workLedger({ operation: 'statistics' }, { onError: 'continueRegularOutput' })],
			credential: { ...stage.ledger.settings, host: '' },
		});
		expect(ran.json('Work Ledger')).toMatchObject([{ order: 1 }, { order: 2 }]);
		expect(ran.json('Work Ledger').every(({ error }) => typeof error === 'string')).toBe(true);
	});
});

describe('Retry On Fail', () => {
	const retry = { retryOnFail: true, maxTries: 3, waitBetweenTries: 1 };

	test.each(['continueRegularOutput', 'continueErrorOutput'] as const)('case 14: under %s an item that fails first does not act on the others again', async (onError) => {
		const kind = stage.newKind();
		await brought(kind, 'dead', [2, 3]);
		const ran = await ledger(
			{ operation: 'replay', ...byKey(kind) },
			orders(1, 2, 3),
			{ ...retry, onError },
		);
		expect(ran.error).toBeNull();
		const replayed = ran.out('Work Ledger').filter(({ json }) => json.status === 'replayed');
		expect(replayed).toMatchObject([
			{ json: { key: '2' }, pairedItem: { item: 1 } },
			{ json: { key: '3' }, pairedItem: { item: 2 } },
		]);
		expect([...ran.json('Work Ledger'), ...ran.json('Work Ledger', 1)].filter(({ error }) => error !== undefined)).toHaveLength(1);
		for (const { work_id: workId } of await stage.rows(kind)) {
			expect((await stage.ledger.history({ workId })).at(-1)).toBe('replay: due');
			expect(await stage.ledger.history({ workId })).toHaveLength(3);
		}
	});

	test('a ledger that is away for an item is asked again, for that item only', async () => {
		const kind = stage.newKind();
		await brought(kind, 'dead', [1, 2]);
		let looks = 0;
		// the second look at the credential, for the second item, finds one that cannot be right
		const credential = () => ({ ...stage.ledger.settings, ...(++looks === 2 ? { host: '' } : {}) });
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [workLedger({ operation: 'replay', ...byKey(kind) }, retry)],
			credential,
		});
		expect(looks).toBe(3);
		expect(ran.error).toBeNull();
		expect(ran.json('Work Ledger').map(({ status }) => status)).toEqual(['replayed', 'replayed']);
	});

	test('a ledger out of reach is asked for one item, and every item says so (case 126)', async () => {
		let looks = 0;
		const credential = () => {
			looks++;
			return { ...stage.ledger.settings, host: '127.0.0.1', port: 1 };
		};
		const ran = await stage.run({
			items: orders(1, 2, 3, 4),
			nodes: [
				workLedger(
					{ operation: 'replay', ...byKey(stage.newKind()) },
					{ onError: 'continueRegularOutput' },
				),
			],
			credential,
		});
		expect(looks).toBe(1);
		expect(ran.json('Work Ledger').map(({ order }) => order)).toEqual([1, 2, 3, 4]);
		for (const { error } of ran.json('Work Ledger')) expect(error).toMatch(/cannot be reached/);
	});

	test('a later run of the node answers anew', async () => {
		const kind = stage.newKind();
		await brought(kind, 'dead');
		const node = workLedger({ operation: 'explain', ...byKey(kind) }, retry);
		const states: unknown[] = [];
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				node,
				step('Loop', async (items) => {
					states.push((items[0].json.work as IDataObject).state);
					if (states.length > 1) return [[], []];
					await answer({ operation: 'replay', ...byKey(kind) });
					return [[{ json: orders(1)[0], pairedItem: { item: 0 } }]];
				}),
			],
			links: [
				['Start', 'Work Ledger'],
				['Work Ledger', 'Loop'],
				['Loop', 'Work Ledger'],
			],
		});
		expect(ran.error).toBeNull();
		expect(states).toEqual(['dead', 'failed']);
	});
});

describe('as a tool of an agent', () => {
	const responses = (ran: Ran) => ran.json('Work Ledger').map(({ response }) => response);
	const tool = async (parameters: IDataObject, settings: NodeOfTest['settings'] = {}) =>
		await stage.run({ items: orders(1), nodes: [workLedgerTool(parameters, settings)] });

	test('every answer is a text that a model can read', async () => {
		const kind = stage.newKind();
		await brought(kind, 'dead');
		const read = async (parameters: IDataObject) => responses(await tool(parameters));
		expect(await read({ operation: 'explain', ...byKey(kind) })).toEqual([
			expect.stringMatching(/^This work is dead after 1 attempt/),
		]);
		expect(await read({ operation: 'list', filters: { kind } })).toEqual([
			expect.stringMatching(/^This work is dead/),
		]);
		expect(await read({ operation: 'list', filters: { kind: 'nobody' } })).toEqual([
			'The ledger holds nothing like that.',
		]);
		expect(await read({ operation: 'statistics', statisticsKind: kind })).toEqual([
			expect.stringContaining('"duplicatesSuppressed":"0"'),
		]);
		expect(await read({ operation: 'replay', ...byKey(kind) })).toEqual(['Due now.']);
		expect(await read({ operation: 'purge', olderThanDays: 36_500 })).toEqual([
			expect.stringMatching(/^0 works purged/),
		]);
	});

	test('a long list is cut, and a work tells no payload: the model reads some pages, and how many are left', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(...Array.from({ length: 100 }, (_, i) => i + 1)).map((item) => ({ ...item, note: 'secret of the customer' })),
			nodes: [claim(byOrder(kind))],
		});
		const ran = await tool({ operation: 'list', states: [], limit: 100, filters: { kind } });
		const read = JSON.stringify(ran.json('Work Ledger'));
		expect(read.length).toBeLessThan(17_000);
		expect(read).not.toContain('secret of the customer');
		const shown = responses(ran);
		expect(shown.length).toBeGreaterThan(10);
		expect(shown.at(-1)).toBe(
			`${100 - (shown.length - 1)} more are not shown. Ask for fewer at a time.`,
		);
	});

	test.each(['stopWorkflow', 'continueRegularOutput', 'continueErrorOutput'] as const)(
		'what cannot be done is a text, not a failure, under %s',
		async (onError) => {
			const kind = stage.newKind();
			await brought(kind, 'done');
			await unchanged(kind, async () => {
				const ran = await tool({ operation: 'replay', ...byKey(kind) }, { onError });
				expect(ran.error).toBeNull();
				expect(responses(ran)).toEqual([expect.stringMatching(/it is done; .*Nothing was changed\.$/)]);
				expect(ran.json('Work Ledger')[0]).not.toHaveProperty('error');
			});
		},
	);
});

test('claim, effect and completion of a replayed work run as any other, once', async () => {
	const kind = stage.newKind();
	await brought(kind, 'dead');
	await answer({ operation: 'replay', ...byKey(kind) });
	let effects = 0;
	const effect = () =>
		step(
			'Effect',
			http(() => ({ invoice: ++effects })),
		);
	for (let i = 0; i < 2; i++) {
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), effect(), complete()],
		});
	}
	expect(effects).toBe(1);
	expect(await stage.works(kind)).toEqual(['1 done {"invoice":1}']);
});
