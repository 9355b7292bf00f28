import type { IDataObject, INodeExecutionData } from 'n8n-workflow';

import {
	claim,
	claimTool,
	complete,
	http,
	step,
	workLedger,
	type NodeOfTest,
	type Ran,
} from './run-workflow';
import { byOrder, orders, WorkflowStage } from './stage';

const stage = WorkflowStage.forThisFile();

const SHADOW = { mode: 'shadow' };
const AWAY = { host: '127.0.0.1', port: 1, database: 'x', user: 'x', password: 'x' };

/** What an item says about shadow mode: "status wouldHave", with a star where it holds a claim. */
const said = (items: IDataObject[], name = 'work') =>
	items.map((json) => {
		const { status, wouldHave, token } = json[name] as IDataObject;
		return `${String(status)} ${String(wouldHave)}${token === undefined ? '' : ' *'}`;
	});

/** Every output of a node, by its length. */
const lengths = (ran: Ran, node: string, outputs: number) =>
	Array.from({ length: outputs }, (_, output) => ran.out(node, output).length);

/** Works in every state a claim can meet, with the order numbers 1 to 7. */
async function businessOf(kind: string): Promise<void> {
	const policy = byOrder(kind);
	await stage.run({ nodes: [claim(policy), complete({ externalRef: 'inv_1' })], items: orders(1) });
	await stage.run({ nodes: [claim(policy)], items: orders(2) });
	await stage.run({ nodes: [claim(policy), complete({ operation: 'fail' })], items: orders(3) });
	await stage.run({
		nodes: [claim({ ...policy, onLapse: 'hold' }), complete({ operation: 'fail' })],
		items: orders(4),
	});
	await stage.run({
		nodes: [claim(policy), complete({ operation: 'fail', options: { permanent: true } })],
		items: orders(5),
	});
	const match = { ...policy, options: { matchFields: 'total' } };
	await stage.run({ nodes: [claim(match), complete()], items: orders(6) });
}

describe('shadow mode', () => {
	const MET = [
		'shadow duplicate',
		'shadow in_progress',
		'shadow not_due',
		'shadow held',
		'shadow dead',
		'shadow mismatch',
		'shadow claimed *',
		'shadow refused',
	];
	const items = [...orders(1, 2, 3, 4, 5), { order: 6, total: -1 }, { order: 7 }, { nothing: 1 }];
	const parameters = (kind: string) =>
		byOrder(kind, { ...SHADOW, options: { matchFields: 'total' } });

	test('lets every item through by Claimed, in its order, and says what would have been', async () => {
		const kind = stage.newKind();
		await businessOf(kind);
		const ran = await stage.run({ nodes: [claim(parameters(kind))], items });
		expect(said(ran.json('Claim Work'))).toEqual(MET);
		expect(lengths(ran, 'Claim Work', 4)).toEqual([8, 0, 0, 0]);
		expect(ran.json('Claim Work').map((json) => ({ ...json, work: 0 }))).toEqual(
			items.map((json) => ({ ...json, work: 0 })),
		);
		expect(ran.out('Claim Work').map(({ pairedItem }) => pairedItem)).toEqual(
			items.map((_, item) => ({ item })),
		);
		expect((ran.json('Claim Work')[0].work as IDataObject).message).toMatch(
			/^Let through in shadow mode, would have left by Duplicate\. Already done at .*inv_1/,
		);
		expect(ran.hints('Claim Work').join()).toContain('7 of 8 items would not have left by Claimed');
	});

	test.each<[string, IDataObject, Parameters<typeof claim>[1]]>([
		['a duplicate gets an error', { response: 'error' }, {}],
		['a duplicate gets nothing', { response: 'nothing' }, {}],
		['it would wait for running work', { wait: 600 }, {}],
		['Always Output Data is on', {}, { alwaysOutputData: true }],
		['On Error is Continue', {}, { onError: 'continueRegularOutput' }],
		['On Error is the error output', {}, { onError: 'continueErrorOutput' }],
	])('stops and drops nothing where %s', async (_, more, settings) => {
		const kind = stage.newKind();
		await businessOf(kind);
		const ran = await stage.run({
			nodes: [claim({ ...parameters(kind), ...more }, settings)],
			items,
		});
		expect([ran.status, ...said(ran.json('Claim Work'))]).toEqual(['success', ...MET]);
	});

	test.each<[string, Parameters<typeof claim>[1]]>([
		['Stop Workflow', {}],
		['Continue', { onError: 'continueRegularOutput' }],
		['the error output', { onError: 'continueErrorOutput' }],
	])('lets everything through while the ledger is down, under %s', async (_, settings) => {
		const sent: unknown[] = [];
		const effect = step('Effect', http((json) => ({ sent: sent.push(json.order) })));
		const ran = await stage.run({
			nodes: [
				claim(byOrder('any', SHADOW), settings),
				effect,
				complete({}, settings),
			],
			items: orders(1, 2),
			credential: { ...AWAY, connectTimeoutSeconds: 1 },
		});
		expect([ran.status, sent]).toEqual(['success', [1, 2]]);
		expect(said(ran.json('Claim Work'))).toEqual(['shadow error', 'shadow error']);
		expect(lengths(ran, 'Complete Work', 2)).toEqual([2, 0]);
		expect((ran.json('Claim Work')[0].work as IDataObject).message).toContain(
			'the ledger could not be asked',
		);
	});

	test.each<[string, IDataObject, string]>([
		['a lease that is no number', { options: { leaseSeconds: 'soon' } }, 'Lease'],
		['a kind with a colon', { kind: 'a:b' }, ':'],
		['a key that changes', { identity: 'expression', key: '={{ $execution.id }}' }, 'execution'],
		['an unknown window', { window: 'sometimes' }, 'Remember'],
		['a field that is taken', { options: { field: 'customer' } }, 'customer'],
	])('lets items through with %s', async (_, more, word) => {
		const ran = await stage.run({
			nodes: [claim({ ...byOrder(stage.newKind()), ...SHADOW, ...more })],
			items: orders(1, 2),
		});
		expect(lengths(ran, 'Claim Work', 4)).toEqual([2, 0, 0, 0]);
		const [item] = ran.json('Claim Work');
		const field = (item.work ?? item.customerAnswer) as IDataObject;
		expect(field).toMatchObject({ status: 'shadow' });
		expect(['refused', 'error']).toContain(field.wouldHave);
		expect(field.message).toContain(word);
		expect(item).toMatchObject(orders(1)[0]);
	});

	test('an unknown mode guards nothing and passes nothing', async () => {
		const ran = await stage.run({
			nodes: [claim(byOrder(stage.newKind(), { mode: 'audit' }))],
			items: orders(1),
		});
		expect([ran.status, ran.out('Claim Work').length]).toEqual(['error', 0]);
		expect(ran.error?.message).toContain('Mode');
	});

	test('tells an agent what would have been, and lets it act', async () => {
		const kind = stage.newKind();
		await businessOf(kind);
		const ran = await stage.run({
			nodes: [claimTool(byOrder(kind, SHADOW))],
			items: orders(1),
		});
		expect(ran.json('Claim Work')[0].response).toContain('Already done');
	});
});

describe('Complete Work behind shadow mode', () => {
	/** The effect as HTTP Request does it: the field is gone behind it. */
	const effect = (name = 'Effect'): NodeOfTest =>
		step(name, http((json) => ({ invoice: `inv_${String(json.order)}` })));
	const asIs = step('Effect', (all) => all);

	test.each([
		['the field is on the item', asIs],
		['the item is the answer of HTTP Request', effect()],
	])('settles what would have been claimed, and passes the rest on, where %s', async (_, between) => {
		const kind = stage.newKind();
		await businessOf(kind);
		const ran = await stage.run({
			nodes: [
				claim(byOrder(kind, SHADOW)),
				between,
				complete({ externalRef: '={{ $json.invoice ?? "inv_" + $json.order }}' }),
			],
			items: [...orders(1, 7), { nothing: 1 }],
		});
		expect(ran.status).toBe('success');
		expect(lengths(ran, 'Complete Work', 2)).toEqual([3, 0]);
		expect(said(ran.json('Complete Work'))).toEqual([
			'shadow duplicate',
			'completed undefined',
			'shadow refused',
		]);
		expect(ran.json('Complete Work')[1].work).toMatchObject({ shadow: true, externalRef: 'inv_7' });
		expect((await stage.rows(kind)).find(({ key }) => key === '7')).toMatchObject({
			state: 'done',
			external_ref: 'inv_7',
		});
		// the second effect of order 1 is on record, and its work is as it was
		const one = (await stage.rows(kind)).find(({ key }) => key === '1');
		expect(one?.external_ref).toBe('inv_1');
		expect(
			(await stage.ledger.log({ workId: one?.work_id ?? '' })).filter(
				({ outcome }) => outcome === 'shadow',
			),
		).toMatchObject([{ event: 'complete', external_ref: 'inv_1' }]);
	});

	test('what was completed in shadow mode is a duplicate once the mode is off', async () => {
		const kind = stage.newKind();
		await stage.run({ nodes: [claim(byOrder(kind, SHADOW)), complete()], items: orders(1) });
		const ran = await stage.run({ nodes: [claim(byOrder(kind))], items: orders(1) });
		expect(lengths(ran, 'Claim Work', 4)).toEqual([0, 1, 0, 0]);
	});

	test.each(['fail', 'recordReference', 'extend', 'release'])(
		'passes what holds no claim on under %s',
		async (operation) => {
			const kind = stage.newKind();
			await businessOf(kind);
			const ran = await stage.run({
				nodes: [
					claim(byOrder(kind, SHADOW)),
					complete({ operation, externalRef: 'inv_x', error: 'no' }),
				],
				items: orders(1, 2),
			});
			expect(said(ran.json('Complete Work'))).toEqual([
				'shadow duplicate',
				'shadow in_progress',
			]);
		},
	);

	test('one reference recorded in shadow mode can be completed afterwards', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			nodes: [
				claim(byOrder(kind, SHADOW)),
				complete({ operation: 'recordReference', externalRef: 'inv_1' }, {}, 'Record'),
				complete(),
			],
			items: orders(1),
		});
		expect(said(ran.json('Complete Work'))).toEqual(['completed undefined']);
		expect(await stage.work(kind)).toMatchObject({ state: 'done', external_ref: 'inv_1' });
	});

	test('a claim that is no longer the owner passes on by Completed and says so', async () => {
		const kind = stage.newKind();
		const usurp = step('Effect', async (all) => {
			await stage.ledger.query(
				'update idempotency.work_log set token = gen_random_uuid() where kind = $1',
				[kind],
			);
			return all;
		});
		const ran = await stage.run({
			nodes: [claim(byOrder(kind, SHADOW)), usurp, complete()],
			items: orders(1),
		});
		expect(lengths(ran, 'Complete Work', 2)).toEqual([1, 0]);
		expect(said(ran.json('Complete Work'))).toEqual(['shadow not_owner']);
	});

	test('where the ledger goes away in between, everything passes and says that it was not recorded', async () => {
		const kind = stage.newKind();
		await businessOf(kind);
		let away = false;
		const cut = step('Effect', (all) => {
			away = true;
			return all;
		});
		const ran = await stage.run({
			nodes: [claim(byOrder(kind, SHADOW)), cut, complete()],
			items: orders(1, 7),
			credential: () =>
				away
					? { ...stage.ledger.settings, port: 1, connectTimeoutSeconds: 1 }
					: stage.ledger.settings,
		});
		expect([ran.status, ...lengths(ran, 'Complete Work', 2)]).toEqual(['success', 2, 0]);
		expect(said(ran.json('Complete Work'))).toEqual(['shadow duplicate', 'shadow error *']);
		expect(ran.json('Complete Work')[0].work).toMatchObject({
			warnings: [expect.stringContaining('not recorded')],
		});
	});

	test('without any pairing no other claim is settled in its place', async () => {
		const kind = stage.newKind();
		await businessOf(kind);
		const unpaired = step('Effect', (all): INodeExecutionData[] => [
			{ json: { of: all.length } },
			{ json: { of: all.length } },
		]);
		const ran = await stage.run({
			nodes: [claim(byOrder(kind, SHADOW)), unpaired, complete()],
			items: [...orders(1), ...orders(7), ...orders(2)],
		});
		expect([ran.status, ...lengths(ran, 'Complete Work', 2)]).toEqual(['success', 2, 0]);
		expect((await stage.rows(kind)).find(({ key }) => key === '7')?.state).toBe('running');
	});

	test('an item that an outer Claim Work really guarded is still refused without its claim', async () => {
		const kind = stage.newKind();
		await stage.run({ nodes: [claim(byOrder(kind)), complete()], items: orders(1) });
		const ran = await stage.run({
			nodes: [claim(byOrder(kind), {}, 'Earnest'), complete()],
			links: [
				['Start', 'Earnest'],
				['Earnest:1', 'Complete Work'],
			],
			items: orders(1),
		});
		expect(ran.error?.message).toContain('"duplicate", not claimed');
	});
});

describe('Work Ledger on shadow mode', () => {
	test('tells in words what would have been, and counts it apart', async () => {
		const kind = stage.newKind();
		const nodes = [claim(byOrder(kind, SHADOW)), complete()];
		for (let runs = 0; runs < 3; runs++) await stage.run({ nodes, items: orders(1) });

		const [statistics] = (
			await stage.run({
				nodes: [workLedger({ operation: 'statistics', statisticsKind: kind })],
				items: [{}],
			})
		).json('Work Ledger');
		expect(statistics).toMatchObject({
			duplicatesSuppressed: '0',
			wouldHaveSaved: '2',
			shadow: [{ kind, wouldHaveSaved: '2', wouldHave: { claimed: '1', duplicate: '2' } }],
		});

		const [explained] = (
			await stage.run({
				nodes: [workLedger({ operation: 'explain', whichWork: 'key', kind, key: '1' })],
				items: [{}],
			})
		).json('Work Ledger');
		const story = (explained.story as string[]).join('\n');
		expect(story).toContain('claimed, in shadow mode');
		expect(story).toContain('would have been duplicate, but shadow mode let it through');
		expect(story).toContain('shadow mode had let it through without a claim');
	});
});
