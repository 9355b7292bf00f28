import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { mock } from 'jest-mock-extended';
import { ErrorReporter, ExecutionLifecycleHooks, InstanceSettings, WorkflowExecute } from 'n8n-core';
import {
	NodeConnectionTypes,
	NodeHelpers,
	Workflow,
	createRunExecutionData,
	type IConnections,
	type IDataObject,
	type INode,
	type INodeExecutionData,
	type INodeProperties,
	type INodeType,
	type INodeTypes,
	type IRun,
	type IWorkflowExecuteAdditionalData,
} from 'n8n-workflow';

import type { LedgerSettings } from '../../ledger';
import { CacheLlmDecision } from '../../nodes/CacheLlmDecision/CacheLlmDecision.node';
import { CheckEvidenceGate } from '../../nodes/CheckEvidenceGate/CheckEvidenceGate.node';
import { ClaimWork } from '../../nodes/ClaimWork/ClaimWork.node';
import { CompleteWork } from '../../nodes/CompleteWork/CompleteWork.node';
import { SendOnceTelegram } from '../../nodes/SendOnceTelegram/SendOnceTelegram.node';
import { WorkLedger } from '../../nodes/WorkLedger/WorkLedger.node';
import { WorkLedgerTrigger } from '../../nodes/WorkLedgerTrigger/WorkLedgerTrigger.node';

/** n8n-core's own copy of the container: another one would not reach it. */
const { Container } = createRequire(require.resolve('n8n-core'))('@n8n/di') as {
	Container: { set(type: unknown, instance: unknown): void };
};

type NodeSettings = Partial<
	Pick<
		INode,
		| 'onError'
		| 'continueOnFail'
		| 'alwaysOutputData'
		| 'retryOnFail'
		| 'maxTries'
		| 'waitBetweenTries'
		| 'disabled'
	>
>;

/** What a test node does with its input: items for one output, or one list per output. */
export type Step = (
	items: INodeExecutionData[],
) =>
	| Array<INodeExecutionData | INodeExecutionData[]>
	| Promise<Array<INodeExecutionData | INodeExecutionData[]>>;

export interface NodeOfTest {
	name: string;
	type: string;
	parameters: IDataObject;
	settings: NodeSettings;
	step?: Step;
	merge?: Merging;
}

/** What a test node with two inputs does with them. */
export type Merging = (
	first: INodeExecutionData[],
	second: INodeExecutionData[],
) => INodeExecutionData[];

const CLAIM_TYPE = 'n8n-nodes-idempotency.claimWork';
const COMPLETE_TYPE = 'n8n-nodes-idempotency.completeWork';
const LEDGER_TYPE = 'n8n-nodes-idempotency.workLedger';
const DECISION_TYPE = 'n8n-nodes-idempotency.cacheLlmDecision';
const GATE_TYPE = 'n8n-nodes-idempotency.checkEvidenceGate';
const TRIGGER_TYPE = 'n8n-nodes-idempotency.workLedgerTrigger';
const TELEGRAM_TYPE = 'n8n-nodes-idempotency.sendOnceTelegram';
const START_TYPE = 'test.start';
const STEP_TYPE = 'test.step';
const MERGE_TYPE = 'test.merge';

/** Claim Work, named like its node unless a name is given. */
export function claim(
	parameters: IDataObject,
	settings: NodeSettings = {},
	name = 'Claim Work',
): NodeOfTest {
	return { name, type: CLAIM_TYPE, parameters, settings };
}

/** Claim Work as n8n clones it for an agent. */
export function claimTool(parameters: IDataObject, settings: NodeSettings = {}): NodeOfTest {
	return { name: 'Claim Work', type: `${CLAIM_TYPE}Tool`, parameters, settings };
}

export function complete(
	parameters: IDataObject = {},
	settings: NodeSettings = {},
	name = 'Complete Work',
): NodeOfTest {
	return { name, type: COMPLETE_TYPE, parameters, settings };
}

export function workLedger(parameters: IDataObject = {}, settings: NodeSettings = {}): NodeOfTest {
	return { name: 'Work Ledger', type: LEDGER_TYPE, parameters, settings };
}

/** Work Ledger as n8n clones it for an agent. */
export function workLedgerTool(
	parameters: IDataObject = {},
	settings: NodeSettings = {},
): NodeOfTest {
	return { name: 'Work Ledger', type: `${LEDGER_TYPE}Tool`, parameters, settings };
}

/** Cache LLM Decision, named after its operation unless a name is given. */
export function decision(
	operation: string,
	parameters: IDataObject = {},
	settings: NodeSettings = {},
	name = { lookUp: 'Look Up', store: 'Store' }[operation] ?? operation,
): NodeOfTest {
	return { name, type: DECISION_TYPE, parameters: { operation, ...parameters }, settings };
}

/** Cache LLM Decision as n8n clones it for an agent. */
export function decisionTool(operation: string, parameters: IDataObject = {}, settings: NodeSettings = {}): NodeOfTest {
	return { ...decision(operation, parameters, settings), type: `${DECISION_TYPE}Tool` };
}

export function gate(
	parameters: IDataObject,
	settings: NodeSettings = {},
	name = 'Check Evidence Gate',
): NodeOfTest {
	return { name, type: GATE_TYPE, parameters, settings };
}

/** Check Evidence Gate as n8n clones it for an agent. */
export function gateTool(parameters: IDataObject, settings: NodeSettings = {}): NodeOfTest {
	return { name: 'Check Evidence Gate', type: `${GATE_TYPE}Tool`, parameters, settings };
}

/** Send-Once Telegram, named like its node unless a name is given. */
export function telegram(
	parameters: IDataObject,
	settings: NodeSettings = {},
	name = 'Telegram',
): NodeOfTest {
	return { name, type: TELEGRAM_TYPE, parameters, settings };
}

/** Send-Once Telegram as n8n clones it for an agent. */
export function telegramTool(parameters: IDataObject, settings: NodeSettings = {}): NodeOfTest {
	return { ...telegram(parameters, settings), type: `${TELEGRAM_TYPE}Tool` };
}

/** A node whose work is a function: an HTTP call, a Code node, an error. */
export function step(name: string, run: Step, settings: NodeSettings = {}): NodeOfTest {
	return { name, type: STEP_TYPE, parameters: {}, settings, step: run };
}

/** A node that waits for two inputs; the second is written `Name#1` in a link. */
export function merge(name: string, run: Merging): NodeOfTest {
	return { name, type: MERGE_TYPE, parameters: {}, settings: {}, merge: run };
}

/** Like HTTP Request: each item's json is replaced by the answer, its pairing kept. */
export function http(
	answer: (json: IDataObject, index: number) => IDataObject = () => ({ ok: true }),
): Step {
	return (items) =>
		items.map((item, i) => ({ json: answer(item.json, i), pairedItem: { item: i } }));
}

/**
 * `Start → … → …`: an output other than the first is written behind its node, as `Claim Work:1`; an input other than the
 * first as `Merge#1`.
 */
export type Link = [from: string, to: string];

export interface Flow {
	nodes: NodeOfTest[];
	/** Left out: one after another, by first outputs. */
	links?: Link[];
	/** A function is asked anew each time a node looks at its credential. */
	credential: LedgerSettings | (() => LedgerSettings);
	/** What n8n's own Telegram credential holds. */
	telegram?: { accessToken: string; baseUrl: string };
	items: IDataObject[] | INodeExecutionData[];
	/** Parameters of Work Ledger Trigger, where that is the node that emits the items; its name is `Start` all the same. */
	trigger?: IDataObject;
	executionId?: string;
	/** The execution that calls this one as a sub-workflow. */
	parentExecutionId?: string;
	instanceId?: string;
	mode?: 'manual' | 'trigger' | 'webhook';
	workflowId?: string;
	/** Outputs that were pinned in the editor: these nodes do not run. */
	pinData?: Record<string, INodeExecutionData[]>;
}

export interface Ran {
	status: IRun['status'];
	error: { name: string; message: string; description?: string; node?: string } | null;
	/** Items of an output, over all runs of the node. */
	out(node: string, output?: number): INodeExecutionData[];
	json(node: string, output?: number): IDataObject[];
	/** How often the node ran (a retry within the node does not count). */
	runs(node: string): number;
	hints(node: string): string[];
}

let lastExecution = 70_000;

/** An execution id that no other run of this file has. */
export function nextExecutionId(): string {
	return String(++lastExecution);
}

/** Runs a workflow through n8n's engine: a start node that emits `items`, then the given ones. */
export async function runWorkflow(flow: Flow): Promise<Ran> {
	const steps = new Map(flow.nodes.map((node) => [node.name, node]));
	const workflow = new Workflow({
		id: flow.workflowId ?? 'workflow-1',
		name: 'Test flow',
		active: false,
		nodeTypes: nodeTypes(steps),
		settings: { executionOrder: 'v1' },
		nodes: [
			{
				name: 'Start',
				type: flow.trigger === undefined ? START_TYPE : TRIGGER_TYPE,
				parameters: flow.trigger ?? {},
				settings: {},
			},
			...flow.nodes,
		].map((node, at) => asNode(node, at)),
		connections: connections(flow),
	});

	// the real one reads and writes n8n's folder in the home of whoever runs the tests
	const n8nFolder = path.join(process.env.IDEMPOTENCY_TEST_FOLDER ?? tmpdir(), 'n8n');
	Container.set(InstanceSettings, { instanceId: flow.instanceId ?? 'instance-1', n8nFolder });
	// the errors that tests provoke are looked at there, not printed
	Container.set(ErrorReporter, { error: () => undefined });

	const executionId = flow.executionId ?? nextExecutionId();
	const mode = flow.mode ?? 'trigger';
	const hooks = new ExecutionLifecycleHooks(mode, executionId, mock());
	const ended = new Promise<IRun>((resolve) => {
		hooks.addHandler('workflowExecuteAfter', (run) => resolve(run));
	});
	const additionalData = {
		hooks,
		executionId,
		variables: {},
		webhookWaitingBaseUrl: 'http://localhost/webhook-waiting',
		formWaitingBaseUrl: 'http://localhost/form-waiting',
		restApiUrl: '',
		instanceBaseUrl: '',
		credentialsHelper: {
			isCredentialUsableByNode: () => true,
			getDecrypted: async (_: unknown, __: unknown, type: string) =>
				await Promise.resolve(
					type === 'telegramApi'
						? flow.telegram
						: typeof flow.credential === 'function' ? flow.credential() : flow.credential,
				),
			getParentTypes: () => [],
		},
	} as unknown as IWorkflowExecuteAdditionalData;
	const start = workflow.getNode('Start') as INode;
	const input = flow.items.map((item) => ('json' in item ? item : { json: item }));
	const data = createRunExecutionData({
		...(flow.pinData === undefined ? {} : { resultData: { pinData: flow.pinData } }),
		executionData: {
			nodeExecutionStack: [
				{ node: start, data: { main: [input as INodeExecutionData[]] }, source: null },
			],
			runtimeData: {
				version: 1,
				establishedAt: Date.now(),
				source: mode,
				...(flow.parentExecutionId === undefined
					? {}
					: { parentExecutionId: flow.parentExecutionId }),
			} as never,
		},
	});

	await new WorkflowExecute(additionalData, mode, data).processRunExecutionData(workflow);
	return ranOf(await ended);
}

function ranOf(run: IRun): Ran {
	const { runData, error } = run.data.resultData;
	const out = (node: string, output = 0) =>
		(runData[node] ?? []).flatMap((task) => task.data?.main?.[output] ?? []);
	return {
		status: run.status,
		error:
			error === undefined
				? null
				: {
						name: error.name,
						message: error.message,
						description: (error as { description?: string }).description,
						node: (error as { node?: INode }).node?.name,
					},
		out,
		json: (node, output) => out(node, output).map(({ json }) => json),
		runs: (node) => (runData[node] ?? []).length,
		hints: (node) => (runData[node] ?? []).flatMap((task) => (task.hints ?? []).map((h) => h.message)),
	};
}

function nodeTypes(steps: Map<string, NodeOfTest>): INodeTypes {
	const description = (name: string, outputs: number, inputs = 1) => ({
		name,
		displayName: name,
		description: '',
		group: ['transform' as const],
		version: 1,
		defaults: { name },
		inputs: Array.from({ length: inputs }, () => NodeConnectionTypes.Main),
		outputs: Array.from({ length: outputs }, () => NodeConnectionTypes.Main),
		properties: [],
	});
	const types: Record<string, INodeType> = {
		[START_TYPE]: {
			description: { ...description('start', 1), inputs: [], group: ['trigger'] },
			async execute() {
				return await Promise.resolve([this.getInputData()]);
			},
		},
		[STEP_TYPE]: {
			description: description('step', 2),
			async execute() {
				const run = steps.get(this.getNode().name)?.step as Step;
				const given = await run(this.getInputData());
				return Array.isArray(given[0])
					? (given as INodeExecutionData[][])
					: [given as INodeExecutionData[]];
			},
		},
		[MERGE_TYPE]: {
			description: description('merge', 1, 2),
			async execute() {
				const run = steps.get(this.getNode().name)?.merge as Merging;
				return await Promise.resolve([run(this.getInputData(0), this.getInputData(1))]);
			},
		},
		[CLAIM_TYPE]: new ClaimWork(),
		[`${CLAIM_TYPE}Tool`]: new ClaimWork(),
		[COMPLETE_TYPE]: new CompleteWork(),
		[DECISION_TYPE]: new CacheLlmDecision(),
		[`${DECISION_TYPE}Tool`]: new CacheLlmDecision(),
		[GATE_TYPE]: new CheckEvidenceGate(),
		[`${GATE_TYPE}Tool`]: new CheckEvidenceGate(),
		[TRIGGER_TYPE]: new WorkLedgerTrigger(),
		[LEDGER_TYPE]: new WorkLedger(),
		[`${LEDGER_TYPE}Tool`]: new WorkLedger(),
		[TELEGRAM_TYPE]: new SendOnceTelegram(),
		[`${TELEGRAM_TYPE}Tool`]: new SendOnceTelegram(),
	};
	// a step that stands in for a node of n8n, by its type; what it holds is kept
	for (const { type, parameters } of steps.values()) {
		const { execute } = types[STEP_TYPE];
		const properties = Object.keys(parameters).map((name): INodeProperties => ({
			...{ displayName: name, name },
			...{ type: 'string', default: '' },
		}));
		types[type] ??= { description: { ...description('step', 2), properties }, execute };
	}
	return {
		getByName: (type) => types[type],
		getByNameAndVersion: (type) => NodeHelpers.getVersionedNodeType(types[type]),
		getKnownTypes: () => ({}),
	};
}

function asNode({ name, type, parameters, settings }: NodeOfTest, at: number): INode {
	return {
		id: randomUUID(),
		name,
		type,
		typeVersion: 1,
		position: [at * 200, 0],
		parameters: parameters as INode['parameters'],
		...(type.startsWith('n8n-nodes-idempotency.')
			? {
					credentials: {
						idempotencyLedgerApi: { id: '1', name: 'Ledger' },
						...(type.startsWith(TELEGRAM_TYPE) ? { telegramApi: { id: '2', name: 'Bot' } } : {}),
					},
				}
			: {}),
		...settings,
	};
}

function connections({ nodes, links }: Flow): IConnections {
	const names = ['Start', ...nodes.map(({ name }) => name)];
	const all = links ?? names.slice(1).map((name, i): Link => [names[i], name]);
	const built: IConnections = {};
	for (const [from, to] of all) {
		const [name, output = '0'] = from.split(':');
		const main = ((built[name] ??= { main: [] }).main ??= []);
		while (main.length <= Number(output)) main.push([]);
		const [node, input = '0'] = to.split('#');
		(main[Number(output)] ??= []).push({
			node,
			type: NodeConnectionTypes.Main,
			index: Number(input),
		});
	}
	return built;
}
