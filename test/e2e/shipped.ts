/** The workflows of workflows/, as they are shipped. */

import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

import { importLedgerCredential, invoiceUrl, n8n } from './stage';
import type { FlowNode } from './flow';

const FOLDER = path.resolve(__dirname, '..', '..', 'workflows');
/** Where the examples find the invoice service of `npm start`. */
const SHIPPED_INVOICE_URL = 'http://127.0.0.1:5710';

export interface ShippedWorkflow {
	id: string;
	name: string;
	nodes: FlowNode[];
	connections: Record<string, unknown>;
	settings: Record<string, unknown>;
}

export const shippedFiles = (): string[] => readdirSync(FOLDER).sort();

/** A shipped workflow, its calls pointed at the invoice server of these tests. */
export function shipped(file: string): ShippedWorkflow {
	const text = readFileSync(path.join(FOLDER, file), 'utf8');
	return JSON.parse(text.replaceAll(SHIPPED_INVOICE_URL, invoiceUrl)) as ShippedWorkflow;
}

/** Its node of that name; throws where the example has none. */
export function nodeOf({ name, nodes }: ShippedWorkflow, node: string): FlowNode {
	const found = nodes.find((each) => each.name === node);
	if (found === undefined) throw new Error(`"${name}" has no node "${node}"`);
	return found;
}

/**
 * Imports and activates it. What stands outside (addresses, credentials, times of day) may be changed before.
 *
 * @returns The workflow's id.
 */
export async function importShipped(
	file: string,
	change: (workflow: ShippedWorkflow) => void = () => undefined,
	credentials: Record<string, { id: string; name: string }> = {},
): Promise<string> {
	const workflow = shipped(file);
	change(workflow);
	return await n8n.importWorkflow(workflow, {
		credentials: { ...(await importLedgerCredential('Idempotency Ledger')), ...credentials },
	});
}
