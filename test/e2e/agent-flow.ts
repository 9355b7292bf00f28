/** Flows around n8n's AI Agent node, with a model that calls the tools which a test orders. */

import type { startModelServer } from '../../scripts/n8n/model-server';
import type { startTelegramServer } from '../../scripts/n8n/telegram-server';
import { flow, type FlowNode, webhook } from './flow';
import { importLedgerCredential, n8n } from './stage';

const LEDGER = { idempotencyLedgerApi: { id: '', name: '' } };

/** What the tools and the model of these tests speak to. */
export interface FarEnds {
	model: Awaited<ReturnType<typeof startModelServer>>;
	telegram: Awaited<ReturnType<typeof startTelegramServer>>;
}

/** One of this package's nodes as n8n clones it for an agent; the model knows it with `_` for blanks. */
export const toolNode = (
	name: string,
	type: string,
	parameters: Record<string, unknown>,
): FlowNode => ({
	name,
	type: `n8n-nodes-idempotency.${type}Tool`,
	typeVersion: 1,
	credentials:
		type === 'sendOnceTelegram' ? { ...LEDGER, telegramApi: { id: '', name: '' } } : LEDGER,
	parameters,
});

/** A workflow as a tool: what each of its inputs gets, expressions included. */
export const workflowTool = (
	name: string,
	workflowId: string,
	inputs: Record<string, string>,
): FlowNode => ({
	name,
	type: '@n8n/n8n-nodes-langchain.toolWorkflow',
	typeVersion: 2.2,
	parameters: {
		description: `Does ${name}`,
		source: 'database',
		workflowId: { __rl: true, mode: 'id', value: workflowId },
		workflowInputs: {
			mappingMode: 'defineBelow',
			value: inputs,
			matchingColumns: [],
			schema: Object.keys(inputs).map((id) => ({
				id,
				displayName: id,
				type: 'string',
				display: true,
				required: false,
				defaultMatch: false,
				canBeUsedToMatch: true,
			})),
			attemptToConvertTypes: false,
			convertFieldsToString: false,
		},
	},
});

/** Webhook → AI Agent of that version, with these tools; its answer is the webhook's. */
export async function importAgent(
	id: string,
	typeVersion: number,
	tools: FlowNode[],
	farEnds: FarEnds,
): Promise<void> {
	const nodes: FlowNode[] = [
		webhook(id),
		{
			name: 'Agent',
			type: '@n8n/n8n-nodes-langchain.agent',
			typeVersion,
			parameters: {
				promptType: 'define',
				text: '={{ $json.body.text }}',
				options: { enableStreaming: false },
			},
		},
		{
			name: 'Model',
			type: '@n8n/n8n-nodes-langchain.lmChatOpenAi',
			typeVersion: 1.2,
			credentials: { openAiApi: { id: '', name: '' } },
			parameters: {
				model: { __rl: true, mode: 'id', value: 'test-model' },
				options: { maxRetries: 0 },
			},
		},
		...tools,
	];
	const { connections, ...workflow } = flow(id, nodes, { Webhook: ['Agent'] });
	const toAgent = (type: string) => ({ [type]: [[{ node: 'Agent', type, index: 0 }]] });
	await n8n.importWorkflow(
		{
			...workflow,
			connections: {
				...connections,
				Model: toAgent('ai_languageModel'),
				...Object.fromEntries(tools.map(({ name }) => [name, toAgent('ai_tool')])),
			},
		},
		{
			credentials: {
				...(await importLedgerCredential('Idempotency Ledger')),
				...(await importFarEnds(farEnds)),
			},
		},
	);
}

/** The credentials of the model and of Telegram, by type. */
export const importFarEnds = async ({ model, telegram }: FarEnds) => ({
	openAiApi: await n8n.importCredential({
		name: 'Test Model',
		type: 'openAiApi',
		data: { apiKey: 'no-key', url: `${model.url}/v1` },
	}),
	telegramApi: await n8n.importCredential({
		name: 'Telegram',
		type: 'telegramApi',
		data: { accessToken: '4712:secret', baseUrl: telegram.url },
	}),
});
