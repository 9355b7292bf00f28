import type { Client, QueryResult } from 'pg';

import { createLedger, type DecisionAnswer, type LookUpItem } from '../../ledger';
import { askedAgain, as, ASK, DecisionStage, question } from './decision-stage';
import { startTogether } from './processes';
import { CALLER, Stage } from './stage';

let stage: Stage;
let on: DecisionStage;
let one: Client;
beforeAll(async () => {
	stage = await Stage.open({ maxConnections: 8 });
	on = new DecisionStage(stage);
	one = await stage.connect();
});
afterAll(async () => {
	await stage.close();
});

// Plain statements on a connection of the test, to hold one side open.

async function lookUpOn(client: Client, items: LookUpItem[]): Promise<QueryResult> {
	return await client.query(
		'select * from idempotency.look_up_decisions($1::text[], $2::uuid[], null, $3)',
		[
			items.map(({ decisionKey }) => decisionKey),
			items.map(({ token }) => token),
			JSON.stringify({
				kind: 'classify-mail',
				caller: { instance: 'instance-1', execution: '100' },
			}),
		],
	);
}

async function storeOn(client: Client, item: LookUpItem, value: string): Promise<QueryResult> {
	return await client.query(
		'select * from idempotency.store_decisions(array[$1::text], array[$2::uuid], array[$3::json], null, null, $4)',
		[
			item.decisionKey,
			item.token,
			JSON.stringify(value),
			'{"caller": {"instance": "instance-1", "execution": "100"}}',
		],
	);
}

async function judgeOn(client: Client, item: LookUpItem, approve: boolean): Promise<QueryResult> {
	return await client.query(
		`select * from idempotency.judge_decision($1, $2, 'Ada', null, null, null)`,
		[item.decisionKey, approve],
	);
}

describe('in the same moment', () => {
	test('two look-ups of a new question: one decides, the other meets it (case 79)', async () => {
		const item = question();
		await one.query('begin');
		await lookUpOn(one, [item]);
		const second = on.lookUp(askedAgain(item), { caller: as('101') });
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ outcome: 'busy', owner: { execution: '100' } });
		expect(await on.row(item)).toMatchObject({ token: item.token, attempt: 1 });
	});

	test('two look-ups: the second decides when the first rolls back, and its lease counts from then', async () => {
		const item = question();
		await one.query('begin');
		await lookUpOn(one, [item]);
		const next = askedAgain(item);
		const second = on.lookUp(next, { leaseSeconds: 2 });
		await stage.untilWaiting(1);
		await stage.query('select pg_sleep(0.5)');
		await one.query('rollback');
		const answer = await second;
		expect(answer).toMatchObject({ outcome: 'decide', attempt: 1, token: next.token });
		expect(await stage.secondsUntil(answer.lockedUntil)).toBeGreaterThan(1.6);
	});

	test('two look-ups of a question whose decider vanished: one takes over', async () => {
		const item = await on.deciding();
		await on.elapse(item);
		const next = askedAgain(item);
		await one.query('begin');
		await lookUpOn(one, [next]);
		const second = on.lookUp(askedAgain(item));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ outcome: 'busy', attempt: 2 });
		expect(await on.row(item)).toMatchObject({ token: next.token, past_tokens: [item.token] });
	});

	test('two look-ups of an expired decision: one new generation, not two', async () => {
		const item = await on.decided('old', { ttlSeconds: 60 });
		await on.outlive(item);
		await one.query('begin');
		await lookUpOn(one, [askedAgain(item)]);
		const second = on.lookUp(askedAgain(item));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ outcome: 'busy', generation: 2 });
	});

	test('two look-ups of many questions in opposite orders end without a deadlock', async () => {
		const items = Array.from({ length: 40 }, () => question());
		const rounds = await Promise.all(
			[items, [...items].reverse(), items, [...items].reverse()].map(
				async (batch) =>
					await stage.ledger.decisions.lookUp(batch.map(askedAgain), { ...ASK, caller: as('101') }),
			),
		);
		const deciding = new Map<string, number>();
		for (const { decisionKey, outcome } of rounds.flat()) {
			if (outcome === 'decide') deciding.set(decisionKey, (deciding.get(decisionKey) ?? 0) + 1);
		}
		expect([...deciding.values()]).toEqual(items.map(() => 1));
	});

	test('two stores: the first is stored, the second gets it back (case 79)', async () => {
		const item = await on.deciding();
		await on.elapse(item);
		const next = await on.deciding(askedAgain(item), { caller: as('101') });
		await one.query('begin');
		await storeOn(one, item, 'A');
		const second = on.store(next, 'B', {}, as('101'));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({
			outcome: 'superseded',
			value: 'A',
			owner: { execution: '100' },
		});
		expect(await on.row(item)).toMatchObject({ value: 'A' });
	});

	test('a store and a look-up: the look-up that waited for the lock replays', async () => {
		const item = await on.deciding();
		await on.elapse(item);
		await one.query('begin');
		await storeOn(one, item, 'A');
		// lapsed as it looks from outside, so it waits for the row to take over
		const looking = on.lookUp(askedAgain(item), { caller: as('101') });
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await looking).toMatchObject({ outcome: 'replay', value: 'A' });
	});

	test('approve and reject: one verdict, and the other is told so', async () => {
		const item = await on.decided('x', { needsApproval: true });
		await one.query('begin');
		await judgeOn(one, item, false);
		const second = on.judge(item, true, 'Grace');
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ outcome: 'stands', state: 'rejected', approver: 'Ada' });
		expect(await on.lookUp(askedAgain(item))).toMatchObject({ outcome: 'rejected' });
	});

	test('expire and store: what is stored behind a person who expired it is refused', async () => {
		const item = await on.deciding();
		await one.query('begin');
		await one.query(`select * from idempotency.expire_decisions(array[$1], null)`, [
			item.decisionKey,
		]);
		const second = on.store(item, 'late');
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ outcome: 'not_stored', state: 'open' });
	});

	test('a purge passes over what is locked', async () => {
		const item = await on.decided('x');
		await on.age(item, 400);
		await one.query('begin');
		await one.query('select 1 from idempotency.llm_decisions where decision_key = $1 for update', [
			item.decisionKey,
		]);
		expect(await stage.ledger.decisions.purge(365 * 86_400, 100, CALLER)).toBe(0);
		await one.query('rollback');
		expect(await on.lookUp(askedAgain(item))).toMatchObject({ outcome: 'replay' });
	});

	test('a look-up and a purge of the same row: the question is decided anew', async () => {
		const item = await on.deciding();
		await on.free(item);
		await on.age(item, 400);
		await one.query('begin');
		await one.query(`select idempotency.purge_llm_decisions(86400, 100, null)`);
		const looking = on.lookUp(askedAgain(item));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await looking).toMatchObject({ outcome: 'decide', attempt: 1 });
	});
});

describe('a decider that is a process of its own', () => {
	test('of eight in the same instant one decides', async () => {
		const item = question();
		const processes = await startTogether(
			stage.database.config,
			stage.settings,
			Array.from({ length: 8 }, (_, n) => ({
				does: 'lookUp' as const,
				items: [askedAgain(item)],
				policy: { ...ASK, caller: as(String(500 + n)) },
			})),
		);
		const answers = (await Promise.all(
			processes.map(async ({ answer }) => await answer),
		)) as DecisionAnswer[][];
		await Promise.all(processes.map(async (process) => await process.kill()));
		expect(answers.map(([{ outcome }]) => outcome).sort()).toEqual([
			...['busy', 'busy', 'busy', 'busy', 'busy', 'busy', 'busy', 'decide'],
		]);
	});

	test('is killed: one that waits decides when the lease has lapsed', async () => {
		const item = question();
		const [process] = await startTogether(stage.database.config, stage.settings, [
			{ does: 'lookUp', items: [item], policy: { ...ASK, leaseSeconds: 2, caller: as('600') } },
		]);
		expect(await process.answer).toMatchObject([{ outcome: 'decide' }]);
		await process.kill();
		const [answer] = await stage.ledger.decisions.lookUpAndWait(
			[askedAgain(item)],
			{ ...ASK, caller: as('601') },
			{ seconds: 20 },
		);
		expect(answer).toMatchObject({ outcome: 'decide', attempt: 2 });
		const [{ lapsed }] = await stage.query<{ lapsed: boolean }>(
			`select min(at) filter (where fired ->> 'execution' = '601' and outcome = 'decide')
				>= min(at) filter (where fired ->> 'execution' = '600') + interval '2 seconds' as lapsed
			from idempotency.decision_log where work_id = $1`,
			[item.decisionKey],
		);
		expect(lapsed).toBe(true);
	});
});

describe('the ledger goes away', () => {
	test('while it waits: what it was to decide is freed when it can be, else its lease ends', async () => {
		const ledger = createLedger({ ...stage.settings, maxConnections: 1, connectTimeoutSeconds: 2 });
		try {
			const busy = await on.deciding();
			const own = question();
			const waiting = ledger.decisions.lookUpAndWait(
				[own, askedAgain(busy)],
				{ ...ASK, caller: as('701') },
				{ seconds: 20 },
			);
			for (;;) {
				if ((await on.history(busy)).includes('look_up: busy')) break;
				await stage.query('select pg_sleep(0.01)');
			}
			await ledger.close();
			await expect(waiting).rejects.toMatchObject({ name: 'LedgerError' });
			expect(['open', 'deciding']).toContain((await on.row(own)).state);
		} finally {
			await ledger.close().catch(() => undefined);
		}
	});
});
