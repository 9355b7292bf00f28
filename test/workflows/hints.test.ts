/** Hints: what n8n shows in the editor before a run, and after one. A hint appears only where the problem is. */

import { Workflow, NodeHelpers, type IDataObject, type INode, type INodeType } from 'n8n-workflow';

import { RULES } from '../../check';
import { CacheLlmDecision } from '../../nodes/CacheLlmDecision/CacheLlmDecision.node';
import { CheckEvidenceGate } from '../../nodes/CheckEvidenceGate/CheckEvidenceGate.node';
import { ClaimWork } from '../../nodes/ClaimWork/ClaimWork.node';
import { CompleteWork } from '../../nodes/CompleteWork/CompleteWork.node';
import { WorkLedger } from '../../nodes/WorkLedger/WorkLedger.node';
import { claim, complete, http, step, type Link, type NodeOfTest } from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

/** What an expression of the description gives in the editor, without any data before the first run. */
function evaluated(type: INodeType, parameters: IDataObject, expression: string): unknown {
	const node = {
		id: '1',
		name: 'Node',
		type: type.description.name,
		typeVersion: 1,
		position: [0, 0],
		parameters,
	} as unknown as INode;
	const workflow = new Workflow({
		active: false,
		nodes: [node],
		connections: {},
		nodeTypes: {
			getByName: () => type,
			getByNameAndVersion: () => type,
			getKnownTypes: () => ({}),
		},
	});
	return workflow.expression.getParameterValue(expression, null, 0, 0, 'Node', [], 'manual', {});
}

/** The hints of a node, as n8n's editor asks for them (`getNodeHints` there). */
function shown(type: INodeType, parameters: IDataObject): string[] {
	return (type.description.hints ?? [])
		.filter(({ displayCondition }) => {
			const display = evaluated(type, parameters, displayCondition as string);
			if (typeof display !== 'boolean') throw new Error(`no boolean: ${String(display)}`);
			return display;
		})
		.map(({ message }) => message);
}

/** Whether the editor shows a property of a node. */
function isShown(type: INodeType, name: string, parameters: IDataObject): boolean {
	const { description } = type;
	const property = description.properties.find((each) => each.name === name);
	if (property === undefined) throw new Error(`no property ${name}`);
	return NodeHelpers.displayParameter(
		parameters as INode['parameters'],
		property,
		{ typeVersion: 1 },
		description,
	);
}

const NO_KEY = /^No key yet/;
const FORGOTTEN = /^Finished work is forgotten before/;

describe('before a run', () => {
	test.each<[string, IDataObject, RegExp[]]>([
		['Claim Work as it comes', {}, [NO_KEY]],
		['a kind without a key', { kind: 'invoice' }, [NO_KEY]],
		['a key without a kind', { keyFields: 'order' }, [NO_KEY]],
		['blank text', { kind: ' ', keyFields: 'order' }, [NO_KEY]],
		['kind and key', { kind: 'invoice', keyFields: 'order' }, []],
		['an expression that has no item yet', { kind: 'invoice', keyFields: '={{ $json.name }}' }, []],
		['an expression as key', { kind: 'k', identity: 'expression', key: '={{ $json.a.b }}' }, []],
		['an expression not written yet', { kind: 'k', identity: 'expression', key: '=' }, [NO_KEY]],
		['no URL field', { kind: 'k', identity: 'url', urlField: '' }, [NO_KEY]],
		['the URL field as it comes', { kind: 'k', identity: 'url' }, []],
		['the whole content', { kind: 'k', identity: 'content' }, []],
		["the ledger's work, which names its kind", { identity: 'ledger' }, []],
	])('no key is set: %s', (_, parameters, expected) => {
		expect(shown(new ClaimWork(), parameters)).toEqual(expected.map((text) => expect.stringMatching(text)));
	});

	test.each<[string, IDataObject, RegExp[]]>([
		['7 days as it comes', {}, []],
		['4 hours and 5 attempts of an hour', { windowAmount: 4, windowUnit: 'hours' }, [FORGOTTEN]],
		['5 hours', { windowAmount: 5, windowUnit: 'hours' }, []],
		['299 minutes', { windowAmount: 299, windowUnit: 'minutes' }, [FORGOTTEN]],
		[
			'4 hours and 3 attempts',
			{ windowAmount: 4, windowUnit: 'hours', options: { maxAttempts: 3 } },
			[],
		],
		[
			'10 minutes, a lease of a minute',
			{ windowAmount: 600, windowUnit: 'seconds', options: { leaseSeconds: 60 } },
			[],
		],
		[
			'10 minutes, a lease of five',
			{ windowAmount: 600, windowUnit: 'seconds', options: { leaseSeconds: 300 } },
			[FORGOTTEN],
		],
		['a time that is refused', { windowAmount: 0 }, []],
		['another window', { window: 'while_running', windowAmount: 1, windowUnit: 'seconds' }, []],
	])('work is remembered for less than it may be retried: %s', (_, parameters, expected) => {
		const all = { kind: 'k', keyFields: 'order', window: 'duration', ...parameters };
		expect(shown(new ClaimWork(), all)).toEqual(expected.map((text) => expect.stringMatching(text)));
	});

	test.each<[IDataObject, boolean]>([
		[{}, true],
		[{ rules: { rule: [{ check: 'present', field: 'envelope_id' }] } }, false],
		[{ mode: 'ladder' }, true],
		[{ mode: 'ladder', stages: { stage: [{ name: 'Contract' }] } }, false],
	])('a gate without rules: %j', (parameters, expected) => {
		expect(shown(new CheckEvidenceGate(), parameters)).toHaveLength(expected ? 1 : 0);
	});

	test.each<[IDataObject, boolean]>([
		[{}, true],
		[{ kind: 'k', model: 'm', promptVersion: 'v1' }, true],
		[{ kind: 'k', model: 'm', promptVersion: 'v1', inputFields: 'text' }, false],
		[{ kind: 'k', model: 'm', promptVersion: 'v1', input: 'item' }, false],
		[{ kind: 'k', model: '={{ $json.model }}', promptVersion: 'v1', input: 'item' }, false],
		[{ operation: 'store' }, false],
		[{ operation: 'list' }, false],
	])('a question that is not complete: %j', (parameters, expected) => {
		expect(shown(new CacheLlmDecision(), parameters)).toHaveLength(expected ? 1 : 0);
	});

	test.each<[string, INodeType, IDataObject, string]>([
		[
			'the contract in one sentence',
			new ClaimWork(),
			{ kind: 'invoice', keyFields: 'order_id' },
			'invoice v1 by order_id, forever, duplicates get the original',
		],
		[
			'another contract',
			new ClaimWork(),
			{
				...{ kind: 'mail', identity: 'content', window: 'duration', windowAmount: 2 },
				response: 'nothing',
			},
			'mail v1 by content, for 2 days, duplicates get nothing',
		],
		['what is done with a claim', new CompleteWork(), { operation: 'extend' }, 'extend lease'],
		['an operation', new WorkLedger(), {}, 'Work: Explain'],
		[
			'an operation by its name',
			new WorkLedger(),
			{ resource: 'work', operation: 'releaseByForce' },
			'Work: Release by Force',
		],
		[
			'an operation of another version',
			new WorkLedger(),
			{ resource: 'work', operation: 'explode' },
			'explode',
		],
	])('the subtitle says %s', (_, type, parameters, expected) => {
		expect(evaluated(type, parameters, String(type.description.subtitle))).toBe(expected);
	});

	test('that failed work waits for somebody stands where it is failed, unless it is given up', () => {
		const at = (parameters: IDataObject) => isShown(new CompleteWork(), 'retryNotice', parameters);
		expect(at({ operation: 'fail', options: {} })).toBe(true);
		expect(at({ operation: 'fail', options: { permanent: false } })).toBe(true);
		expect(at({ operation: 'fail', options: { permanent: true } })).toBe(false);
		expect(at({ operation: 'complete', options: {} })).toBe(false);
	});
});

describe('after a run', () => {
	const stage = WorkflowStage.forThisFile();
	const NODE = 'Claim Work';

	const pass: NodeOfTest['step'] = http((json) => json);
	const wait = (parameters: IDataObject, disabled = false): NodeOfTest => ({
		name: 'Wait',
		type: 'n8n-nodes-base.wait',
		parameters: { resume: 'timeInterval', unit: 'hours', ...parameters },
		settings: { disabled },
		step: pass,
	});
	const webhook = (parameters: IDataObject): NodeOfTest => ({
		name: 'Webhook',
		type: 'n8n-nodes-base.webhook',
		parameters,
		settings: {},
		step: pass,
	});

	async function hintsOf(
		flow: { nodes: NodeOfTest[]; links?: Link[]; mode?: 'manual' | 'trigger'; parentExecutionId?: string },
		node = NODE,
	): Promise<string[]> {
		const ran = await stage.run({ mode: 'manual', items: orders(1), ...flow });
		expect(ran.error).toBeNull();
		return ran.hints(node);
	}

	const own = (options: IDataObject = {}) => claim(byOrder(stage.newKind(), { options }));

	test.each<[string, () => NodeOfTest[]]>([
		['two hours', () => [own(), wait({ amount: 2 }), complete()]],
		['as long as the lease', () => [own({ leaseSeconds: 7200 }), wait({ amount: 2 }), complete()]],
		['until a call that may never come', () => [own(), wait({ resume: 'webhook' }), complete()]],
	])('a wait between claim and completion that is longer than the lease: %s', async (_, nodes) => {
		const [hint, ...others] = await hintsOf({ nodes: nodes() });
		expect(others).toEqual([]);
		expect(hint).toMatch(/^wait-outlasts-lease at "Wait": It waits .*, and the lease of "Claim Work" ends after .*Extend Lease/);
	});

	test.each<[string, () => { nodes: NodeOfTest[]; links?: Link[]; mode?: 'trigger' }]>([
		['shorter than the lease', () => ({ nodes: [own({ leaseSeconds: 7201 }), wait({ amount: 2 }), complete()] })],
		['disabled', () => ({ nodes: [own(), wait({ amount: 2 }, true), complete()] })],
		['behind the completion', () => ({ nodes: [own(), complete(), wait({ amount: 2 })] })],
		[
			'behind an extended lease',
			() => ({ nodes: [own(), complete({ operation: 'extend' }, {}, 'Extend'), wait({ amount: 2 }), complete()] }),
		],
		[
			'on the way back from Busy',
			() => ({
				nodes: [own(), complete(), wait({ amount: 2 })],
				links: [
					['Start', NODE],
					[NODE, 'Complete Work'],
					[`${NODE}:2`, 'Wait'],
					['Wait', NODE],
				],
			}),
		],
		['in a run that no person looks at', () => ({ mode: 'trigger', nodes: [own(), wait({ amount: 2 }), complete()] })],
	])('no hint for a wait %s', async (_, flow) => {
		expect(await hintsOf(flow())).toEqual([]);
	});

	test('a claim that nothing completes', async () => {
		const [hint, ...others] = await hintsOf({ nodes: [own(), step('Effect', http())] });
		expect(others).toEqual([]);
		expect(hint).toMatch(/^claim-left-open at "Claim Work": Nothing behind it completes the claim\..*Complete Work/);
		expect(await hintsOf({ nodes: [own(), step('Effect', http()), complete()] })).toEqual([]);
		expect(await hintsOf({ nodes: [own()], parentExecutionId: '1' })).toEqual([]);
		expect(await hintsOf({ nodes: [own()], mode: 'trigger' })).toEqual([]);
		// a disabled one completes nothing
		expect(await hintsOf({ nodes: [own(), complete({}, { disabled: true })] })).toHaveLength(1);
		// the caller or the called may complete it
		const call = { ...step('Call', http()), type: 'n8n-nodes-base.executeWorkflow' };
		expect(await hintsOf({ nodes: [own(), call] })).toEqual([]);
	});

	test('a parameter of another node that cannot be read strands no claim', async () => {
		const neither = { toString: 1, valueOf: 1 };
		const nodes = [own(), wait({ amount: neither }), complete()];
		const ran = await stage.run({ mode: 'manual', items: orders(1), nodes });
		expect(ran.error).toBeNull();
		expect(ran.hints(NODE)).toEqual([]);
		expect(ran.out('Complete Work')).toHaveLength(1);
	});

	test.each<[string, IDataObject, RegExp | null]>([
		['when the last node finishes', { responseMode: 'lastNode' }, /"Webhook" gets an error \(status 500/],
		['with all items', { responseMode: 'lastNode', responseData: 'allEntries' }, /"Webhook" gets an empty answer\./],
		['by a node', { responseMode: 'responseNode' }, /"Webhook" gets an empty answer with status 200/],
		['at once', { responseMode: 'onReceived' }, null],
		['as it comes', {}, null],
	])('what "nothing" means to the caller of a webhook that answers %s', async (_, parameters, expected) => {
		const node = claim(byOrder(stage.newKind(), { response: 'nothing' }));
		const nodes = [webhook(parameters), node, complete()];
		// the first is no duplicate, so something leaves
		expect(await hintsOf({ nodes, mode: 'trigger' })).toEqual([]);
		expect(await hintsOf({ nodes, mode: 'trigger' })).toEqual(
			expected === null ? [] : [expect.stringMatching(expected)],
		);
	});

	test('Complete Work without a Claim Work before it says so, and what to do', async () => {
		const words = /there is no Claim Work before this node\. Put one directly before the step/;
		const stopped = await stage.run({ items: orders(1), nodes: [complete()] });
		expect(stopped.error?.message).toMatch(words);
		const onError = 'continueRegularOutput';
		const [hint] = await hintsOf({ nodes: [complete({}, { onError })] }, 'Complete Work');
		expect(hint).toMatch(/^1 item was not settled\. No claim was found/);
		expect(hint).toMatch(words);
		const nodes = [own(), step('Lose', () => [{ json: {} }, { json: {} }, { json: {} }]), complete({}, { onError })];
		const ran = await stage.run({ items: orders(1, 2), nodes });
		expect(ran.hints('Complete Work')).toEqual([
			expect.stringMatching(/^3 items were not settled\. No claim was found for this item: it passed no Claim Work, or/),
		]);
	});

	test('hints go by the names that the workflow check has', () => {
		const names = RULES.map(({ id }) => id);
		expect(names).toEqual(expect.arrayContaining(['wait-outlasts-lease', 'claim-left-open']));
	});
});
