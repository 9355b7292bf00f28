/** What scripts/e2e.js has set up, as the tests reach it. */

import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'pg';

import { N8nClient } from '../../scripts/n8n/client';
import { LEDGER_CREDENTIAL_TYPE, LEDGER_SCHEMA, ledgerCredential } from '../../scripts/n8n/stage';

export interface Database {
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

type Order =
	| '/n8n/kill'
	| '/n8n/start'
	| '/ledger/cut'
	| '/ledger/restore'
	| '/ledger/refused'
	| '/ledger/start-14'
	| '/ledger/start-crashing'
	| '/ledger/crash'
	| '/queue/start'
	| '/queue/executions'
	| `/queue/kill-worker?execution=${string}`
	| '/queue/start-dead-workers'
	| `/queue/restart-worker?name=${string}&package=${'installed' | 'missing'}`
	| '/queue/stop';

/** Asks the process that owns n8n, the databases and the proxy; resolves when it is done. */
export async function order<Answer = null>(what: Order): Promise<Answer> {
	const response = await fetch(`${access.controlUrl}${what}`, { method: 'POST' });
	if (!response.ok) throw new Error(`${what}: ${await response.text()}`);
	return (await response.json()) as Answer;
}

/** Below a test's own limit, so that it fails in words. */
const PATIENCE_MS = 100_000;

/**
 * Looks until a condition holds; nothing is proved by the time that passes.
 *
 * @throws {Error} when it does not hold in 100 s
 */
export async function until(condition: string, look: () => Promise<boolean>): Promise<void> {
	const since = Date.now();
	while (!(await look())) {
		if (Date.now() - since > PATIENCE_MS) throw new Error(`waited in vain until ${condition}`);
		await delay(100);
	}
}

/** Until the proxy, cut, has refused more than so many connections to the ledger. */
export async function refusedMoreThan(count: number): Promise<void> {
	await until(
		`the ledger refused more than ${count} connections`,
		async () => (await order<number>('/ledger/refused')) > count,
	);
}

export type CredentialName = 'Idempotency Ledger' | 'Ledger behind a Proxy';

/** Credentials by type, as `importWorkflow` takes them. */
export async function importLedgerCredential(name: CredentialName) {
	const database = name === 'Idempotency Ledger' ? access.ledger : access.proxiedLedger;
	return await importCredentialOf(n8n, name, database);
}

/** The same for any n8n and database. */
export async function importCredentialOf(client: N8nClient, name: string, database: Database) {
	const credential = await client.importCredential({
		name,
		type: LEDGER_CREDENTIAL_TYPE,
		data: ledgerCredential(database),
	});
	return { [LEDGER_CREDENTIAL_TYPE]: credential };
}

/** The ledger of all tests that do not start another. */
export const ledgerDatabase = access.ledger;

/** The fields of the ledger credential. */
export const ledgerData = (): Record<string, unknown> => ledgerCredential(access.ledger);

const pools = new Map<Database, Pool>();

/** Reads the ledger's tables beside n8n; `:schema` stands for its schema. */
export async function queryLedger<Row extends Record<string, unknown>>(
	sql: string,
	values: unknown[] = [],
	database = access.ledger,
): Promise<Row[]> {
	const pool = pools.get(database) ?? new Pool({ ...database, max: 2 });
	// A server that a test ends must not end the test.
	if (!pools.has(database)) pool.on('error', () => undefined);
	pools.set(database, pool);
	const { rows } = await pool.query<Row>(sql.replaceAll(':schema', LEDGER_SCHEMA), values);
	return rows;
}

export async function closeLedger(): Promise<void> {
	await Promise.all([...pools.values()].map(async (pool) => await pool.end()));
	pools.clear();
}

/** The database's clock decides about a lease, so it is the one to ask. */
export async function leaseEnded(kind: string, database = access.ledger): Promise<void> {
	await until(`the lease of ${kind} ends`, async () => {
		const [work] = await queryLedger<{ over: boolean }>(
			`select bool_and(locked_until < clock_timestamp()) as over from :schema.work_log
			where kind = $1 and state = 'running'`,
			[kind],
			database,
		);
		return work?.over === true;
	});
}

/** Until n8n knows of no execution that has not ended, of any workflow. */
export async function allExecutionsEnded(client: N8nClient): Promise<void> {
	const filter = encodeURIComponent(JSON.stringify({ status: ['new', 'running', 'waiting'] }));
	await until('every execution has ended', async () => {
		const { results } = await client.rest('GET', `/executions?filter=${filter}&limit=1`);
		return results.length === 0;
	});
}

export interface Decision extends Record<string, unknown> {
	event: string;
	outcome: string;
	attempt: number;
	token: string | null;
	fired: { execution?: string; parent_execution?: string; mode?: string };
}

/** What was decided about all works of a kind, in order; polls that found nothing new are not logged. */
export async function decisions(kind: string): Promise<Decision[]> {
	return await queryLedger<Decision>(
		`select d.event, d.outcome, d.attempt, d.token, d.fired
		from :schema.decision_log d join :schema.work_log w using (work_id)
		where w.kind = $1 order by d.id`,
		[kind],
	);
}

async function callInvoiceServer<Answer>(method: string, route: string, body?: unknown) {
	const response = await fetch(`${invoiceUrl}${route}`, {
		method,
		body: body === undefined ? undefined : JSON.stringify(body),
		signal: AbortSignal.timeout(PATIENCE_MS),
	});
	if (!response.ok) throw new Error(`${method} ${route}: ${response.status}`);
	return (await response.json()) as Answer;
}

/** See scripts/n8n/invoice-server.js. */
interface Behaviour {
	hold?: boolean;
	fail?: number;
	created?: boolean;
	delayMs?: number;
	times?: number;
}

export const invoiceServer = {
	all: async () => await callInvoiceServer<Invoice[]>('GET', '/invoices'),
	invoices: async (orderId: string) =>
		await callInvoiceServer<Invoice[]>('GET', `/invoices?order_id=${encodeURIComponent(orderId)}`),
	/** How often an invoice was asked for, whatever came of it. */
	calls: async (orderId: string) =>
		(await callInvoiceServer<{ calls: number }>('GET', `/control/${encodeURIComponent(orderId)}`))
			.calls,
	/** An invoice made by somebody else, without a key. */
	create: async (orderId: string) => {
		await callInvoiceServer('POST', '/invoices', { order_id: orderId });
	},
	behave: async (orderId: string, how: Behaviour) => {
		await callInvoiceServer('PUT', `/control/${encodeURIComponent(orderId)}`, how);
	},
	/** Resolves when the order's invoice exists and the answer to it is held open. */
	invoiceHeld: async (orderId: string) => {
		await callInvoiceServer('GET', `/control/${encodeURIComponent(orderId)}/held`);
	},
	release: async (orderId: string) => {
		await callInvoiceServer('DELETE', `/control/${encodeURIComponent(orderId)}`);
	},
};
