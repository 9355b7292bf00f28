/** The example "Invoice from order webhook" as it is shipped, and variants of it. */

import path from 'node:path';

import type { N8nClient } from '../../scripts/n8n/client';
import { invoiceExample } from '../../scripts/n8n/stage';
import {
	type Database,
	importCredentialOf,
	importLedgerCredential,
	invoiceUrl,
	ledgerDatabase,
	n8n,
} from './stage';

const CHECKOUT = path.resolve(__dirname, '..', '..');

export interface ExampleVariant {
	/** The webhook's path; also makes the workflow's id. */
	route: string;
	kind: string;
	version?: string;
	onLapse?: 'run_again' | 'hold';
	leaseSeconds?: number;
	/** Base and cap of the backoff. */
	backoffSeconds?: number;
	attempts?: number;
	waitSeconds?: number;
	/** The invoice service is sent no idempotency key: each call makes another invoice. */
	withoutKey?: boolean;
}

/** Where it is imported. */
interface Target {
	client: N8nClient;
	ledger: Database;
}

/** Imports and activates the example as it is. */
export async function importExample(): Promise<string> {
	const credentials = await importLedgerCredential('Idempotency Ledger');
	return await n8n.importWorkflow(invoiceExample(CHECKOUT, invoiceUrl), { credentials });
}

/**
 * Imports the example with another kind, policy or version. Its invoice answer says as well what
 * Claim Work knew, which the shipped example keeps to itself.
 */
export async function importVariant(
	variant: ExampleVariant,
	{ client, ledger }: Target = { client: n8n, ledger: ledgerDatabase },
): Promise<string> {
	const workflow = invoiceExample(CHECKOUT, invoiceUrl);
	workflow.id = variant.route;
	workflow.name = variant.route;
	for (const node of workflow.nodes) {
		if (node.name === 'Order Webhook') {
			node.parameters.path = variant.route;
			node.webhookId = variant.route;
		}
		if (node.name === 'Claim Work') {
			node.parameters.kind = variant.kind;
			node.parameters.version = variant.version ?? 'v1';
			node.parameters.onLapse = variant.onLapse ?? 'run_again';
			node.parameters.wait = variant.waitSeconds ?? 0;
			if (variant.leaseSeconds !== undefined) {
				node.parameters.options.leaseSeconds = variant.leaseSeconds;
			}
			if (variant.attempts !== undefined) {
				node.parameters.options.maxAttempts = variant.attempts;
			}
			if (variant.backoffSeconds !== undefined) {
				node.parameters.options.backoffBaseSeconds = variant.backoffSeconds;
				node.parameters.options.backoffCapSeconds = variant.backoffSeconds;
			}
		}
		if (node.name === 'Create Invoice' && variant.withoutKey === true) {
			node.parameters.sendHeaders = false;
		}
		if (node.name === 'Answer with Invoice') {
			node.parameters.responseBody =
				"={{ { ...$('Create Invoice').item.json, claim: $('Claim Work').item.json.work } }}";
		}
	}
	const credentials = await importCredentialOf(client, 'Idempotency Ledger', ledger);
	return await client.importWorkflow(workflow, { credentials });
}
