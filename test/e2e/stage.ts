/** What scripts/e2e.js has set up, as the tests reach it. */

import { Pool } from 'pg';

import { N8nClient } from '../../scripts/n8n/client';
import { LEDGER_CREDENTIAL_TYPE, LEDGER_SCHEMA, ledgerCredential } from '../../scripts/n8n/stage';

interface Database {
	host: string;
	port: number;
	user: string;
	password: string;
	database: string;
}

interface StageAccess {
	n8n: { baseUrl: string; email: string; password: string };
	ledger: Database;
	/** The same database through a proxy that can be cut. */
	proxiedLedger: Database;
	invoiceUrl: string;
	controlUrl: string;
}

export interface Invoice {
	invoice_id: string;
	order_id: string;
}

function readAccess(): StageAccess {
	const text = process.env.E2E_STAGE;
	if (text === undefined) throw new Error('these tests run by `npm run test:e2e`');
	return JSON.parse(text) as StageAccess;
}

const access = readAccess();

export const n8n = new N8nClient(access.n8n);
export const invoiceUrl = access.invoiceUrl;

type Order = '/n8n/kill' | '/n8n/start' | '/ledger/cut' | '/ledger/restore';

/** Asks the process that owns n8n and the proxy; resolves when it is done. */
export async function order(what: Order): Promise<void> {
	const response = await fetch(`${access.controlUrl}${what}`, { method: 'POST' });
	if (!response.ok) throw new Error(`${what}: ${await response.text()}`);
}

export type CredentialName = 'Idempotency Ledger' | 'Ledger behind a Proxy';

/** Credentials by type, as `importWorkflow` takes them. */
export async function importLedgerCredential(name: CredentialName) {
	const database = name === 'Idempotency Ledger' ? access.ledger : access.proxiedLedger;
	const credential = await n8n.importCredential({
		name,
		type: LEDGER_CREDENTIAL_TYPE,
		data: ledgerCredential(database),
	});
	return { [LEDGER_CREDENTIAL_TYPE]: credential };
}

/** The fields of the ledger credential. */
export const ledgerData = (): Record<string, unknown> => ledgerCredential(access.ledger);

let pool: Pool | undefined;

/** Reads the ledger's tables beside n8n; `:schema` stands for its schema. */
export async function queryLedger<Row extends Record<string, unknown>>(
	sql: string,
	values: unknown[] = [],
): Promise<Row[]> {
	pool ??= new Pool({ ...access.ledger, max: 2 });
	const { rows } = await pool.query<Row>(sql.replaceAll(':schema', LEDGER_SCHEMA), values);
	return rows;
}

export async function closeLedger(): Promise<void> {
	await pool?.end();
	pool = undefined;
}

async function callInvoiceServer<Answer>(method: string, route: string, body?: unknown) {
	const response = await fetch(`${invoiceUrl}${route}`, {
		method,
		body: body === undefined ? undefined : JSON.stringify(body),
	});
	if (!response.ok) throw new Error(`${method} ${route}: ${response.status}`);
	return (await response.json()) as Answer;
}

export const invoiceServer = {
	invoices: async (orderId: string) =>
		await callInvoiceServer<Invoice[]>('GET', `/invoices?order_id=${encodeURIComponent(orderId)}`),
	/** How often an invoice was asked for, whatever came of it. */
	calls: async (orderId: string) =>
		(await callInvoiceServer<{ calls: number }>('GET', `/control/${orderId}`)).calls,
	behave: async (orderId: string, how: { hold?: boolean; fail?: number; delayMs?: number }) => {
		await callInvoiceServer('PUT', `/control/${orderId}`, how);
	},
	/** Resolves when the order's invoice exists and the answer to it is held open. */
	invoiceHeld: async (orderId: string) => {
		await callInvoiceServer('GET', `/control/${orderId}/held`);
	},
	release: async (orderId: string) => {
		await callInvoiceServer('DELETE', `/control/${orderId}`);
	},
};
