import { readFileSync } from 'node:fs';
import path from 'node:path';

import type { IDataObject } from 'n8n-workflow';

import { workLedger, type NodeOfTest } from '../workflows/run-workflow';
import { WorkflowStage } from '../workflows/stage';
import { FOLDER } from './fixtures';

const stage = WorkflowStage.forThisFile();

const json = (name: string) =>
	JSON.parse(readFileSync(path.join(FOLDER, `${name}.json`), 'utf8')) as IDataObject;

async function check(
	items: IDataObject[],
	parameters: IDataObject = {},
	settings: NodeOfTest['settings'] = {},
) {
	const node = workLedger({ resource: 'workflow', operation: 'check', ...parameters }, settings);
	const ran = await stage.run({ items, nodes: [node] });
	return { error: ran.error, output: ran.out(node.name) };
}

test('workflows as the n8n node gives them are checked, each item answering for its own', async () => {
	const items = [json('unguarded-effect.bad'), json('unguarded-effect.good')];
	const { error, output } = await check(items);
	expect(error).toBeNull();
	expect(output).toMatchObject([
		{ json: { name: 'Invoice without a claim', errors: 2, warnings: 0 }, pairedItem: { item: 0 } },
		{ json: { name: 'Invoice behind a claim', errors: 0, findings: [] }, pairedItem: { item: 1 } },
	]);
	const [{ json: bad }] = output;
	expect(bad.summary).toContain('"Create Invoice": POST to billing.example/api/invoices');
	expect(bad.questions).toHaveLength(11);
});

test('a workflow may stand in a field, as an object or as text, and several in one', async () => {
	const bad = json('unguarded-effect.bad');
	const items = [
		{ workflow: bad },
		{ workflow: JSON.stringify(bad) },
		{ workflow: [bad, json('unguarded-effect.good')] },
	];
	const { output } = await check(items, { workflowField: 'workflow' });
	expect(output.map(({ json: report, pairedItem }) => [report.errors, pairedItem])).toEqual([
		[2, { item: 0 }],
		[2, { item: 1 }],
		[2, { item: 2 }],
		[0, { item: 2 }],
	]);
});

test('sub-workflows among the items are followed', async () => {
	const items = [json('family.sub-plain'), json('family.parent-claims')];
	const { output } = await check(items);
	expect(output.map(({ json: report }) => report.findings)).toEqual([[], []]);
});

test('an item that is no workflow is refused with the cure, and the others are checked', async () => {
	const items = [{ order: 1 }, json('unguarded-effect.good')];
	const stopped = await check(items);
	expect(stopped.error?.message).toContain('Needed is what n8n exports');
	const { output } = await check(items, {}, { onError: 'continueRegularOutput' });
	expect(output).toMatchObject([
		{ json: { name: 'Invoice behind a claim' }, pairedItem: { item: 1 } },
		{ json: { order: 1, error: expect.stringContaining('no list of nodes') } },
	]);
	const missing = await check(items, { workflowField: 'flow' });
	expect(missing.error?.message).toContain('no field "flow"');
});
