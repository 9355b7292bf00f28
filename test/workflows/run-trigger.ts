import 'reflect-metadata';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { InstanceSettings, TriggerContext } from 'n8n-core';
import {
	NodeHelpers,
	Workflow,
	type IDataObject,
	type INode,
	type INodeExecutionData,
	type INodeTypes,
	type IRun,
	type ITriggerFunctions,
	type IWorkflowExecuteAdditionalData,
	type WorkflowActivateMode,
} from 'n8n-workflow';

import type { LedgerSettings } from '../../ledger';
import { WorkLedgerTrigger } from '../../nodes/WorkLedgerTrigger/WorkLedgerTrigger.node';

const { Container } = createRequire(require.resolve('n8n-core'))('@n8n/di') as {
	Container: { set(type: unknown, instance: unknown): void };
};

/** An execution that the trigger started and that has not ended before the test says so. */
export interface StartedExecution {
	items: INodeExecutionData[];
	/** As n8n reports it. */
	end(status: 'success' | 'error' | 'waiting' | 'canceled'): void;
	/** n8n shut down, or somebody stopped it. */
	cancel(): void;
}

export interface Activation {
	credential: LedgerSettings;
	parameters?: IDataObject;
	/** n8n's word for why it is activated. Default: a person did. */
	activation?: WorkflowActivateMode;
	mode?: 'trigger' | 'manual';
	workflowId?: string;
	nodeId?: string;
	/** Called for each execution that is started; without it the test takes them from `started`. */
	onExecution?: (execution: StartedExecution) => void;
}

export interface ActiveTrigger {
	/** Every execution so far, the ended ones too. */
	started: StartedExecution[];
	logged: Array<{ level: string; message: string }>;
	/** Resolves when so many executions have been started. */
	untilStarted(count: number): Promise<StartedExecution[]>;
	untilLogged(words: string): Promise<void>;
	deactivate(): Promise<void>;
	manualRun(): Promise<INodeExecutionData[]>;
}

/** Activates Work Ledger Trigger in n8n's own trigger context. Throws what the activation throws. */
export async function activate({
	credential,
	parameters = {},
	activation = 'activate',
	mode = 'trigger',
	workflowId = 'workflow-9',
	nodeId = 'node-9',
	onExecution = () => undefined,
}: Activation): Promise<ActiveTrigger> {
	const type = new WorkLedgerTrigger();
	const node: INode = {
		id: nodeId,
		name: 'Work Ledger Trigger',
		type: 'n8n-nodes-idempotency.workLedgerTrigger',
		typeVersion: 1,
		position: [0, 0],
		parameters: { intervalSeconds: 1, ...parameters } as INode['parameters'],
		credentials: { idempotencyLedgerApi: { id: '1', name: 'Ledger' } },
	};
	const workflow = new Workflow({
		id: workflowId,
		name: 'On call',
		active: true,
		nodes: [node],
		connections: {},
		nodeTypes: {
			getByName: () => type,
			getByNameAndVersion: () => NodeHelpers.getVersionedNodeType(type),
			getKnownTypes: () => ({}),
		} as INodeTypes,
	});
	Container.set(InstanceSettings, {
		instanceId: 'instance-1',
		n8nFolder: path.join(process.env.IDEMPOTENCY_TEST_FOLDER ?? tmpdir(), 'n8n'),
	});
	const additionalData = {
		instanceBaseUrl: 'https://n8n.example/',
		variables: {},
		credentialsHelper: {
			isCredentialUsableByNode: () => true,
			getDecrypted: async () => await Promise.resolve(credential),
			getParentTypes: () => [],
		},
	} as unknown as IWorkflowExecuteAdditionalData;

	const started: StartedExecution[] = [];
	const logged: ActiveTrigger['logged'] = [];
	const log = (level: string) => (message: string) => void logged.push({ level, message });
	const emit: ITriggerFunctions['emit'] = (data, _response, done) => {
		const execution: StartedExecution = {
			items: data[0],
			end(status) {
				const error = status === 'error' ? new Error('the handler broke') : undefined;
				done?.resolve({
					status,
					finished: status === 'success',
					data: { resultData: { runData: {}, error } },
				} as unknown as IRun);
			},
			cancel: () => done?.reject(new Error('The execution was cancelled')),
		};
		started.push(execution);
		onExecution(execution);
	};
	const context = new TriggerContext(workflow, node, additionalData, mode, activation, emit);
	const logger = { error: log('error'), warn: log('warn'), info: log('info') };
	Object.defineProperty(context, 'logger', { value: logger });
	const response = await type.trigger.call(context);

	const until = async (holds: () => boolean) => {
		while (!holds()) await new Promise((resolve) => setTimeout(resolve, 10));
	};
	return {
		started,
		logged,
		async untilStarted(count) {
			await until(() => started.length >= count);
			return started;
		},
		async untilLogged(words) {
			await until(() => logged.some(({ message }) => message.includes(words)));
		},
		async deactivate() {
			await response.closeFunction?.();
		},
		async manualRun() {
			await response.manualTriggerFunction?.();
			return started[0].items;
		},
	};
}
