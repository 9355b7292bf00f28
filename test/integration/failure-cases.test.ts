import type { Client } from 'pg';

import { startTogether } from './processes';
import { CALLER, POLICY, Stage, again, newWork } from './stage';

let stage: Stage;
let one: Client;
beforeAll(async () => {
	stage = await Stage.open();
	one = await stage.connect();
});
afterAll(async () => {
	await stage.close();
});

const dead = (history: string[]) => history.filter((entry) => entry.endsWith(': dead'));

describe('work whose process is killed on its last attempt', () => {
	/** Claimed by a process of its own, which is then killed as a crash would, its lease over. */
	const killed = async () => {
		const item = { ...newWork(), payload: '{"order":1}' };
		const policy = { ...POLICY, maxAttempts: 1 };
		const [owner] = await startTogether(stage.database.config, stage.settings, [
			{ does: 'claim', items: [item], policy },
		]);
		expect(await owner.answer).toMatchObject([{ status: 'claimed', attempt: 1 }]);
		await owner.kill();
		// its connections are gone, and nobody noticed
		expect(await stage.row(item)).toMatchObject({ state: 'running', attempt: 1 });
		await stage.elapse(item);
		return item;
	};
	const SWEEP = `select work_id, state from idempotency.sweep_works(100, '{}')`;

	test('becomes dead once, two sweepers in the same moment', async () => {
		const item = await killed();
		await one.query('begin');
		expect((await one.query(SWEEP)).rows).toEqual([{ work_id: item.workId, state: 'dead' }]);
		// the second comes while the first has not committed: it passes over, and finds nothing afterwards
		expect(await stage.ledger.admin.sweep(100)).toEqual([]);
		await one.query('commit');
		expect(await stage.ledger.admin.sweep(100)).toEqual([]);
		expect(dead(await stage.history(item))).toEqual(['sweep: dead']);
		expect(await stage.row(item)).toMatchObject({
			state: 'dead',
			attempt: 1,
			payload: { order: 1 },
			outcome_known: false,
			last_error: expect.stringContaining('attempt 1 of 1'),
		});
	});

	test('becomes dead once, a sweeper and a delivery in the same moment', async () => {
		const item = await killed();
		await one.query('begin');
		await one.query(SWEEP);
		const delivery = stage.claim(again(item));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await delivery).toMatchObject({ status: 'dead', attempt: 1 });
		expect(dead(await stage.history(item))).toEqual(['sweep: dead', 'claim: dead']);
		// the delivery was only told so
		const [settled, told] = (await stage.log(item)).filter(({ outcome }) => outcome === 'dead');
		expect([settled.checked?.found, told.checked?.found]).toEqual(['running', 'dead']);
	});

	test('a sweeper killed before its commit leaves it to the next one', async () => {
		const item = await killed();
		const sweeper = await stage.connect();
		const [{ pid }] = (await sweeper.query<{ pid: number }>('select pg_backend_pid() as pid')).rows;
		await sweeper.query('begin');
		await sweeper.query(SWEEP);
		await stage.query('select pg_terminate_backend($1, 10000)', [pid]);
		expect(await stage.row(item)).toMatchObject({ state: 'running' });
		expect(await stage.ledger.admin.sweep(100)).toEqual([{ workId: item.workId, state: 'dead' }]);
		expect(dead(await stage.history(item))).toEqual(['sweep: dead']);
	});

	test('is replayed by a person with all its attempts, and its data', async () => {
		const item = await killed();
		await stage.ledger.admin.sweep(100);
		expect(await stage.ledger.admin.replay([item.workId], {}, CALLER)).toMatchObject([
			{ status: 'replayed', waitsForDelivery: false },
		]);
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'claimed',
			attempt: 1,
			previousOutcome: 'unknown',
		});
	});
});

describe('two completions of one work that contradict each other', () => {
	test('at the same moment: the first stands, the second is told what differs, and the log has both', async () => {
		const item = await stage.claimed();
		await one.query('begin');
		await one.query(
			`select 1 from idempotency.complete_work($1, $2, '{"invoice": 7}', 'inv_7', '{}')`,
			[item.workId, item.token],
		);
		const second = stage.complete(item, { result: { invoice: 8 }, externalRef: 'inv_8' });
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({
			status: 'completed',
			repeated: true,
			differs: ['result', 'external_ref'],
			result: { invoice: 7 },
			externalRef: 'inv_7',
		});
		expect(
			(await stage.log(item))
				.filter(({ event }) => event === 'complete')
				.map(({ outcome, external_ref }) => `${outcome} ${external_ref}`),
		).toEqual(['completed inv_7', 'refused inv_8']);
	});
});
