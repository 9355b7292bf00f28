import type { IDataObject } from 'n8n-workflow';

import { decision, decisionTool, step, type NodeOfTest, type Ran } from './run-workflow';
import { WorkflowStage } from './stage';

/** n8n fails open (a throw under "Continue", "Always Output Data"); a look-up must not. */

const stage = WorkflowStage.forThisFile();

const ON_ERROR = ['stopWorkflow', 'continueRegularOutput', 'continueErrorOutput'] as const;

const asking = (kind: string): IDataObject => ({
	kind,
	model: 'model-1',
	promptVersion: 'v1',
	inputFields: 'text',
	wait: 0,
});

/** What ran behind Replay and Decide. */
function behind(name: string): { node: NodeOfTest; seen: IDataObject[] } {
	const seen: IDataObject[] = [];
	return {
		seen,
		node: step(name, (items) => {
			seen.push(...items.map(({ json }) => json));
			return items;
		}),
	};
}

/** Nobody listens there. */
const down = () => ({ ...stage.ledger.settings, port: 1 });

const outputsOf = (ran: Ran) => [0, 1, 2, 3, 4].map((output) => ran.out('Look Up', output).length);

describe('with the ledger down', () => {
	test('nothing leaves by Replay or Decide, whatever On Error and Always Output Data say', async () => {
		const settings = ON_ERROR.flatMap((onError) =>
			[true, false].map((alwaysOutputData) => ({ onError, alwaysOutputData })),
		);
		const runs = settings.map(async (setting) => {
			const [replay, decide] = [behind('Apply'), behind('Model')];
			const ran = await stage.run({
				credential: down(),
				items: [{ text: 'a' }, { text: 'b' }],
				nodes: [decision('lookUp', asking('down'), setting), replay.node, decide.node],
				links: [
					['Start', 'Look Up'],
					['Look Up:0', 'Apply'],
					['Look Up:1', 'Model'],
				],
			});
			return { ...setting, ran, seen: [...replay.seen, ...decide.seen] };
		});
		for (const { onError, alwaysOutputData, ran, seen } of await Promise.all(runs)) {
			expect(seen).toEqual([]);
			if (onError === 'stopWorkflow' || alwaysOutputData) {
				expect(ran.error).toMatchObject({ name: 'NodeOperationError', node: 'Look Up' });
				expect(`${ran.error?.message} ${ran.error?.description}`).toMatch(/cannot be reached/);
				continue;
			}
			const output = onError === 'continueRegularOutput' ? 3 : 4;
			expect(outputsOf(ran)).toEqual([0, 1, 2, 3, 4].map((at) => (at === output ? 2 : 0)));
			for (const json of ran.json('Look Up', output)) {
				const field = (json.decision ?? (json.details as IDataObject).decision) as IDataObject;
				expect(field).toMatchObject({
					status: 'error',
					message: expect.stringMatching(/cannot be reached/),
				});
				expect(json.text).toMatch(/^[ab]$/);
			}
		}
	});

	test('as a tool the agent reads that it failed', async () => {
		const ran = await stage.run({
			credential: down(),
			items: [{ text: 'a' }],
			nodes: [decisionTool('lookUp', asking('down'))],
		});
		expect(ran.json('Look Up')[0].response).toMatch(/cannot be reached/);
	});
});

describe('an item that cannot be looked up', () => {
	test.each(ON_ERROR)('%s: the workflow stops before anything is asked, or it leaves by itself', async (onError) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ text: 'a' }, { other: 'b' }],
			nodes: [decision('lookUp', asking(kind), { onError })],
		});
		const rows = await stage.ledger.query('select 1 from idempotency.llm_decisions where kind = $1', [kind]);
		if (onError === 'stopWorkflow') {
			expect(ran.error?.message).toContain('The field "text" is missing');
			expect(rows).toHaveLength(0);
			return;
		}
		expect(outputsOf(ran)).toEqual(onError === 'continueRegularOutput' ? [0, 1, 0, 1, 0] : [0, 1, 0, 0, 1]);
		expect(rows).toHaveLength(1);
	});

	test('a field of the item that the answer would overwrite is refused, an open question likewise', async () => {
		const kind = stage.newKind();
		const clash = await stage.run({ items: [{ text: 'a', decision: 'mine' }], nodes: [decision('lookUp', asking(kind))] });
		expect(clash.error?.message).toContain('already has a field "decision"');
		const first = await stage.run({ items: [{ text: 'a' }], nodes: [decision('lookUp', asking(kind))] });
		const open = await stage.run({ items: first.json('Look Up', 1), nodes: [decision('lookUp', asking(kind))] });
		expect(open.error?.message).toContain('already holds an open question');
	});

	test('what left by Busy may come back', async () => {
		const kind = stage.newKind();
		await stage.run({ items: [{ text: 'a' }], nodes: [decision('lookUp', asking(kind))] });
		const busy = await stage.run({ items: [{ text: 'a' }], nodes: [decision('lookUp', asking(kind))] });
		const again = await stage.run({ items: busy.json('Look Up', 2), nodes: [decision('lookUp', asking(kind))] });
		expect(again.json('Look Up', 2)).toMatchObject([{ text: 'a', decision: { status: 'busy' } }]);
	});
});

test('Always Output Data on a look-up from which nothing leaves by Replay stops the workflow, and the question is free', async () => {
	const apply = behind('Apply');
	const kind = stage.newKind();
	const ran = await stage.run({
		items: [{ text: 'a' }],
		nodes: [
			decision('lookUp', asking(kind), { alwaysOutputData: true, onError: 'continueRegularOutput' }),
			apply.node,
		],
	});
	expect(apply.seen).toEqual([]);
	expect(ran.error?.message).toContain('Nothing leaves by Replay');
	const rows = await stage.ledger.query('select state from idempotency.llm_decisions where kind = $1', [
		kind,
	]);
	expect(rows).toEqual([{ state: 'open' }]);
});

describe('Store', () => {
	test('with the ledger down nothing leaves by Stored, and the question stays on the item', async () => {
		const runs = ON_ERROR.map(async (onError) => {
			let isDown = false;
			const apply = behind('Apply');
			const ran = await stage.run({
				credential: () => (isDown ? down() : stage.ledger.settings),
				items: [{ text: 'a' }],
				nodes: [
					decision('lookUp', asking(stage.newKind())),
					step('Model', (items) => {
						isDown = true;
						return items.map(({ json }, i) => ({
							json: { decision: json.decision, output: { label: 'x' } },
							pairedItem: { item: i },
						}));
					}),
					decision('store', {}, { onError }),
					apply.node,
				],
				links: [
					['Start', 'Look Up'],
					['Look Up:1', 'Model'],
					['Model', 'Store'],
					['Store:0', 'Apply'],
				],
			});
			return { ran, seen: apply.seen };
		});
		const [stopped, continued, errored] = await Promise.all(runs);
		for (const { seen } of [stopped, continued, errored]) expect(seen).toEqual([]);
		expect(stopped.ran.error).toMatchObject({
			node: 'Store',
			message: expect.stringMatching(/cannot be reached/),
		});
		expect(errored.ran.json('Store', 3)[0].error).toMatch(/cannot be reached/);
		const [left] = continued.ran.json('Store', 2);
		expect(left.decision).toMatchObject({ status: 'error', token: expect.any(String) });
		// it comes back when the ledger does
		const later = await stage.run({ items: [left], nodes: [decision('store')] });
		expect(later.json('Store', 0)).toMatchObject([
			{ decision: { status: 'stored', value: { label: 'x' } } },
		]);
	});

	test('an answer that cannot be stored does not leave by Stored under Continue', async () => {
		const ran = await stage.run({
			items: [{ text: '{"label": "a"}' }],
			nodes: [decision('store', {}, { onError: 'continueRegularOutput' })],
		});
		expect([0, 1, 2].map((output) => ran.out('Store', output).length)).toEqual([0, 0, 1]);
		expect(ran.json('Store', 2)).toMatchObject([{ decision: { status: 'refused' } }]);
	});
});

test('a look-up that fails halfway leaves no question stranded', async () => {
	const [kind, refused] = [stage.newKind(), stage.newKind()];
	await stage.ledger.query(
		`create function idempotency.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$`,
	);
	await stage.ledger.query(
		`create trigger refuse before insert on idempotency.llm_decisions
		for each row when (new.kind = '${refused}') execute function idempotency.refuse()`,
	);
	const model = behind('Model');
	const ran = await stage.run({
		items: [
			{ text: 'a', about: kind },
			{ text: 'b', about: refused },
		],
		nodes: [decision('lookUp', asking('={{ $json.about }}')), model.node],
		links: [
			['Start', 'Look Up'],
			['Look Up:1', 'Model'],
		],
	});
	expect(ran.error).not.toBeNull();
	expect(model.seen).toEqual([]);
	const rows = await stage.ledger.query<{ state: string; reason: string }>(
		'select state, reason from idempotency.llm_decisions where kind = $1',
		[kind],
	);
	expect(rows).toEqual([{ state: 'open', reason: 'the look-up failed' }]);
});
