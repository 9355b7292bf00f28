/** Workflows built for one test: their nodes, as n8n exports them. */

import type { N8nClient } from '../../scripts/n8n/client';
import {
	type CredentialName,
	type Database,
	importCredentialOf,
	importLedgerCredential,
	invoiceUrl,
	n8n,
} from './stage';

type Parameters = Record<string, unknown>;

export interface FlowNode {
	name: string;
	type: string;
	typeVersion: number;
	parameters: Parameters;
	[setting: string]: unknown;
}

/** What a node of the ledger may be told besides its parameters, see n8n's node settings. */
type Settings = Record<string, unknown>;

const LEDGER_CREDENTIAL = { idempotencyLedgerApi: { id: '', name: '' } };

/** Answers with the data of the last node, unless `responseNode` says that a node answers. */
export const webhook = (route: string, responseMode = 'lastNode'): FlowNode => ({
	name: 'Webhook',
	type: 'n8n-nodes-base.webhook',
	typeVersion: 2,
	webhookId: route,
	parameters: { httpMethod: 'POST', path: route, responseMode, options: {} },
});

export const claimWork = (
	kind: string,
	parameters: Parameters = {},
	settings: Settings = {},
): FlowNode => ({
	name: 'Claim Work',
	type: 'n8n-nodes-idempotency.claimWork',
	typeVersion: 1,
	credentials: LEDGER_CREDENTIAL,
	parameters: {
		kind,
		version: 'v1',
		identity: 'fields',
		keyFields: 'body.order_id',
		window: 'forever',
		response: 'original',
		onLapse: 'run_again',
		wait: 0,
		options: {},
		...parameters,
	},
	...settings,
});

/** Makes an invoice for the claimed order, with the work's id as its idempotency key. */
export const createInvoice = (orderId = '$json.body.order_id'): FlowNode => ({
	name: 'Create Invoice',
	type: 'n8n-nodes-base.httpRequest',
	typeVersion: 4.2,
	parameters: {
		method: 'POST',
		url: `${invoiceUrl}/invoices`,
		sendHeaders: true,
		headerParameters: {
			parameters: [
				{
					name: 'Idempotency-Key',
					value: "={{ $('Claim Work').first().json.work.workId }}",
				},
			],
		},
		sendBody: true,
		specifyBody: 'json',
		jsonBody: `={{ JSON.stringify({ order_id: ${orderId} }) }}`,
		options: {},
	},
});

export const completeWork = (settings: Settings = {}): FlowNode => ({
	name: 'Complete Work',
	type: 'n8n-nodes-idempotency.completeWork',
	typeVersion: 1,
	credentials: LEDGER_CREDENTIAL,
	parameters: {
		operation: 'complete',
		result: 'item',
		externalRef: '={{ $json.invoice_id }}',
		options: {},
	},
	...settings,
});

/** Makes a new item of an expression that gives an object. */
export const set = (name: string, object: string): FlowNode => ({
	name,
	type: 'n8n-nodes-base.set',
	typeVersion: 3.4,
	parameters: { mode: 'raw', jsonOutput: `={{ ${object} }}`, options: {} },
});

export const answer = (name: string, object: string, responseCode = 200): FlowNode => ({
	name,
	type: 'n8n-nodes-base.respondToWebhook',
	typeVersion: 1.4,
	parameters: { respondWith: 'json', responseBody: `={{ ${object} }}`, options: { responseCode } },
});

/**
 * @param id At most 36 characters; also its name.
 * @param links By node: the node behind each of its outputs, `null` for none.
 */
export function flow(id: string, nodes: FlowNode[], links: Record<string, (string | null)[]>) {
	return {
		id,
		name: id,
		settings: { executionOrder: 'v1' },
		nodes: nodes.map((node, at) => ({ id: `${id}-${at}`, position: [at * 200, 0], ...node })),
		connections: Object.fromEntries(
			Object.entries(links).map(([from, targets]) => [
				from,
				{
					main: targets.map((to) => (to === null ? [] : [{ node: to, type: 'main', index: 0 }])),
				},
			]),
		),
	};
}

/** Passes its items on. A webhook answers with the first output of the last node only. */
export const pass = (name: string): FlowNode => ({
	name,
	type: 'n8n-nodes-base.noOp',
	typeVersion: 1,
	parameters: {},
});

/** Webhook → Claim Work → Create Invoice → Complete Work; what is not claimed is the answer. */
export function invoiceFlow(
	id: string,
	nodes: { claim?: FlowNode; invoice?: FlowNode; complete?: FlowNode } = {},
) {
	return flow(
		id,
		[
			webhook(id),
			nodes.claim ?? claimWork(id),
			nodes.invoice ?? createInvoice(),
			nodes.complete ?? completeWork(),
			pass('Not Claimed'),
		],
		{
			Webhook: ['Claim Work'],
			'Claim Work': ['Create Invoice', 'Not Claimed', 'Not Claimed', 'Not Claimed'],
			'Create Invoice': ['Complete Work'],
		},
	);
}

/**
 * Claim → "approve it here" → Wait for that call → invoice → Complete Work. n8n keeps a waiting
 * execution in its database, and what goes on is the item of the call, not that of the claim.
 */
export function approvalFlow(id: string, claim = claimWork(id)) {
	return flow(
		id,
		[
			webhook(id, 'responseNode'),
			claim,
			answer('Ask', '{ resumeUrl: $execution.resumeUrl, work: $json.work }', 202),
			{
				name: 'Wait for Approval',
				type: 'n8n-nodes-base.wait',
				typeVersion: 1.1,
				webhookId: `${id}-wait`,
				parameters: {
					resume: 'webhook',
					httpMethod: 'POST',
					responseMode: 'lastNode',
					options: {},
				},
			},
			createInvoice("$('Claim Work').first().json.body.order_id"),
			completeWork(),
			pass('Not Owner'),
			answer('Answer: Duplicate', '{ work: $json.work }'),
			answer('Answer: Busy', '{ work: $json.work }', 503),
		],
		{
			Webhook: ['Claim Work'],
			'Claim Work': ['Ask', 'Answer: Duplicate', 'Answer: Busy'],
			Ask: ['Wait for Approval'],
			'Wait for Approval': ['Create Invoice'],
			'Create Invoice': ['Complete Work'],
			'Complete Work': [null, 'Not Owner'],
		},
	);
}

interface ImportOptions {
	credential?: CredentialName;
	activate?: boolean;
}

export async function importFlow(
	workflow: ReturnType<typeof flow>,
	{ credential = 'Idempotency Ledger', activate = true }: ImportOptions = {},
): Promise<string> {
	const credentials = await importLedgerCredential(credential);
	return await n8n.importWorkflow(workflow, { credentials, activate });
}

/** Into another n8n, or with another ledger. */
export async function importFlowWith(
	client: N8nClient,
	database: Database,
	name: string,
	workflow: ReturnType<typeof flow>,
): Promise<string> {
	const credentials = await importCredentialOf(client, name, database);
	return await client.importWorkflow(workflow, { credentials });
}
