import type { IDataObject } from 'n8n-workflow';

import { createLedger } from '../../ledger';
import { startTogether } from '../integration/processes';
import { newWork, POLICY, Stage } from '../integration/stage';
import { claim, complete, workLedger } from './run-workflow';
import { byOrder, orders, WorkflowStage } from './stage';

const stage = WorkflowStage.forThisFile();

const fireTwice = (more: IDataObject) => workLedger({ operation: 'firesTwice', ...more });
const identityOf = (kind: string, key = '7') => ({ kind, version: 'v1', canonical: key, key });

/** What a test left behind, anywhere in the ledger. */
const left = async (of: Stage = stage.ledger) =>
	await of.query(
		`select work_id from idempotency.work_log where kind like '%(fires-twice test)'
		union all select work_id from idempotency.decision_log
		where work_id not in (select work_id from idempotency.work_log)`,
	);

describe('Work Ledger → Test: Fire Twice', () => {
	test.each<[string, IDataObject]>([
		['key fields', { keyFields: 'order' }],
		['several key fields', { keyFields: 'order, customer' }],
		['an expression', { identity: 'expression', key: '={{ $json.order }}' }],
		['content', { identity: 'content' }],
		['a URL', { identity: 'url', urlField: 'url' }],
	])('lets one of two pass by %s, names the work as Claim Work does, and leaves nothing', async (_, how) => {
		const kind = stage.newKind();
		const items = [{ ...orders(7)[0], url: 'https://shop.example/o/7?utm_source=mail' }];
		const ran = await stage.run({ nodes: [fireTwice({ kind, ...how })], items });
		const [answer] = ran.json('Work Ledger');
		expect(answer).toMatchObject({
			passed: true,
			sameInstant: true,
			kind,
			testKind: `${kind} (fires-twice test)`,
			third: { status: 'duplicate', result: { test: 'fires twice' } },
			deleted: { works: 1, decisions: 4 },
		});
		expect(
			[answer.first, answer.second].map((each) => (each as IDataObject).status).sort(),
		).toEqual(['claimed', 'in_progress']);
		expect(await left()).toEqual([]);

		const claimed = (await stage.run({ nodes: [claim({ kind, ...how })], items })).json('Claim Work');
		expect(claimed[0].work).toMatchObject({ workId: answer.workId, key: answer.key });
	});

	test('meets no work of production, and production does not meet it', async () => {
		const kind = stage.newKind();
		await stage.run({ nodes: [claim(byOrder(kind)), complete()], items: orders(7) });
		const before = await stage.work(kind);
		const ran = await stage.run({ nodes: [fireTwice(byOrder(kind))], items: orders(7) });
		expect(ran.json('Work Ledger')[0]).toMatchObject({ passed: true, workId: before.work_id });
		expect(await stage.work(kind)).toEqual(before);
	});

	test('refuses what Claim Work refuses, and a key that would pass only within one run', async () => {
		for (const [how, word] of [
			[{ kind: 'a', keyFields: 'nothing' }, 'nothing'],
			[{ kind: 'a', identity: 'expression', key: '={{ $execution.id }}' }, '$execution'],
			[{ kind: 'a:b', keyFields: 'order' }, ':'],
		] as Array<[IDataObject, string]>) {
			const ran = await stage.run({ nodes: [fireTwice(how)], items: orders(7) });
			expect([ran.status, ran.error?.message]).toEqual(['error', expect.stringContaining(word)]);
		}
	});

	test('a kind of tests can be claimed by no workflow', async () => {
		const ran = await stage.run({
			nodes: [claim(byOrder('invoice (fires-twice test)'))],
			items: orders(7),
		});
		expect(ran.error?.message).toContain('belong to tests');
	});

	test('two tests of one sample at once do not meet each other', async () => {
		const kind = stage.newKind();
		const answers = await Promise.all(
			[1, 2].map(async () => await stage.ledger.ledger.firesTwiceTest.run(identityOf(kind))),
		);
		expect(answers.map(({ passed, sameInstant }) => [passed, sameInstant])).toEqual([
			[true, true],
			[true, true],
		]);
		expect(await left()).toEqual([]);
	});

	test('says that there was no race where there is one connection only', async () => {
		const ran = await stage.run({
			nodes: [fireTwice(byOrder(stage.newKind()))],
			items: orders(7),
			credential: { ...stage.ledger.settings, maxConnections: 1 },
		});
		expect(ran.json('Work Ledger')[0]).toMatchObject({
			passed: false,
			sameInstant: false,
			summary: expect.stringMatching(/^No race took place/) as unknown,
		});
		expect(await left()).toEqual([]);
	});
});

describe('a test on a ledger of its own', () => {
	let own: Stage;
	beforeEach(async () => {
		own = await Stage.open();
	});
	afterEach(async () => {
		await own.close();
	});

	test('finds a ledger that lets both through', async () => {
		const [{ text }] = await own.query<{ text: string }>(
			`select pg_get_functiondef('idempotency.claim_outcome'::regproc) as text`,
		);
		await own.query(text.replace(/select case[^]*end\s*\$/, `select 'resent'::text $`));
		const ledger = createLedger(own.settings);
		const { passed, sameInstant, first, second } = await ledger.firesTwiceTest.run(identityOf('a'));
		await ledger.close();
		expect([passed, sameInstant, first.status, second.status]).toEqual([
			false,
			true,
			'claimed',
			'claimed',
		]);
		expect(await left(own)).toEqual([]);
	});

	test.each([
		['before its completion', 'running', `new.event = 'complete'`],
		['after its completion', 'done', `new.outcome = 'duplicate'`],
	])('killed %s, leaves nothing that production meets, and the next test takes it along', async (_, state, point) => {
		await own.query(
			`create function hold() returns trigger language plpgsql as $$ begin
				if ${point} then perform pg_advisory_xact_lock(99); end if;
				return new;
			end $$`,
		);
		await own.query(
			'create trigger hold before insert on idempotency.decision_log for each row execute function hold()',
		);
		const holder = await own.connect();
		await holder.query('select pg_advisory_lock(99)');
		const [child] = await startTogether(own.database.config, own.settings, [
			{ does: 'firesTwice', args: [identityOf('invoice')] },
		]);
		const rejected = expect(child.answer).rejects.toThrow('without an answer');
		// the claims wait for each other before: only the held trigger is the point
			for (let waiting = 0; waiting === 0; ) {
				const rows = await own.query(
					`select pid from pg_locks where locktype = 'advisory' and not granted and objid = 99`,
				);
				waiting = rows.length;
			}
		await child.kill();
		await rejected;
await own.query(
				`select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and not granted`,
			);
			await holder.query('select pg_advisory_unlock(99)');
			const works = await own.query<{ work_id: string; state: string; kind: string }>(
				'select work_id, state, kind from idempotency.work_log',
			);
			const [{ work_id: workId, kind, ...found }] = works;
			expect(found.state).toBe(state);
		expect(kind).toBe('invoice (fires-twice test)');

		// the business of the same kind and key
		const real = newWork('7');
		expect((await own.works.claim([real], POLICY))[0].status).toBe('claimed');
		await own.age({ workId }, 600);
		await own.ledger.admin.sweep(100);
		expect(await own.ledger.subscriptions.claimDue('runner', null, 10)).toEqual([]);
		expect((await own.row({ workId })).state).toBe(state === 'done' ? 'done' : 'failed');

		const next = await own.ledger.firesTwiceTest.run(identityOf('invoice'));
		expect(next).toMatchObject({ passed: true, deleted: { works: 2 } });
		expect(await left(own)).toEqual([]);
		expect((await own.row(real)).state).toBe('running');
	});

	test('deletes nothing but works of tests', async () => {
		const real = await own.workThatIs('done');
		await expect(
			own.query('select idempotency.forget_race($1, $2)', [real.workId, 'invoice']),
		).rejects.toThrow('must end in');
		await own.query('select idempotency.forget_race($1, $2)', [
			real.workId,
			'invoice (fires-twice test)',
		]);
		expect((await own.row(real)).state).toBe('done');
		expect(await own.log(real)).not.toEqual([]);
	});
});
