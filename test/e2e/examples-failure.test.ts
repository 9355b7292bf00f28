/** Examples about what failed, or died halfway: retry runner, nightly reconciliation, scraper with checkpoint. */

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import { importShipped, nodeOf, type ShippedWorkflow } from './shipped';
import { closeLedger, invoiceServer, n8n, order, queryLedger, until } from './stage';

afterAll(closeLedger);

const seconds = (workflow: ShippedWorkflow, trigger: string) => {
	nodeOf(workflow, trigger).parameters.intervalSeconds = 1;
};

async function deactivate(id: string): Promise<void> {
	await n8n.rest('POST', `/workflows/${id}/deactivate`);
}

describe('retry-runner.json', () => {
	test('an order acknowledged by an n8n that was killed right after is brought back and done once', async () => {
		await importShipped('acknowledge-fast.json', (workflow) => {
			Object.assign(nodeOf(workflow, 'Claim Work').parameters.options as object, {
				leaseSeconds: 2,
			});
		});
		await invoiceServer.behave('killed', { hold: true, times: 1 });
		const first = await n8n.webhook('order-acknowledged-fast', { order_id: 'killed', amount: 3 });
		expect(first.status).toBe(202);
		await invoiceServer.invoiceHeld('killed');
		await order('/n8n/kill');
		await invoiceServer.release('killed');
		await order('/n8n/start');
		const id = await importShipped('retry-runner.json', (workflow) =>
			seconds(workflow, 'Retry Is Due'),
		);
		const read = async () =>
			(
				await queryLedger<{ state: string; attempt: number; external_ref: string }>(
					`select state, attempt, external_ref from :schema.work_log
					where kind = 'slow-order' and key = 'killed'`,
				)
			)[0];
		await until('the order is done', async () => (await read()).state === 'done');
		await deactivate(id);
		const [invoice, ...others] = await invoiceServer.invoices('killed');
		expect(others).toEqual([]);
		expect(await read()).toEqual({ state: 'done', attempt: 2, external_ref: invoice.invoice_id });
		// the call that got through before the kill, and the retry under the same key
		expect(await invoiceServer.calls('killed')).toBe(2);
		const [run, ...more] = await n8n.executions(id);
		expect(more).toEqual([]);
		expect(run.json('Retry Is Due')[0]).toMatchObject({
			body: { order_id: 'killed', amount: 3 },
			work: { status: 'claimed', attempt: 2, previousOutcome: 'unknown' },
		});
	});
});

describe('nightly-reconciliation.json', () => {
	test('an invoice that nobody claimed, one made twice and one that vanished are reported; matched ones are not', async () => {
		const { importExample } = await import('./example');
		await importExample();
		for (const orderId of ['night-1', 'night-2']) {
			const { status } = await n8n.webhook('invoice-from-order', { order_id: orderId });
			expect(status).toBe(200);
		}
		// by hand, beside the ledger: a second invoice for an order, and one for an unknown order
		await invoiceServer.create('night-2');
		await invoiceServer.create('night-by-hand');
		const [vanished] = await queryLedger<{ work_id: string }>(
			`update :schema.work_log set external_ref = 'INV-VANISHED', key = 'night-3',
				work_id = encode(sha256('invoice:v1:night-3'), 'hex')
			where kind = 'invoice' and key = 'night-1' returning work_id`,
		);
		const id = await importShipped('nightly-reconciliation.json', (workflow) => {
			Object.assign(nodeOf(workflow, 'Reconcile').parameters, {
				options: { emptyIsNone: true, settleMinutes: 0 },
			});
		});
		const { executionId } = await n8n.runManually(id, 'Every Night');
		const run = await n8n.executionReaches(String(executionId), ['success']);
		await deactivate(id);
		const [{ drift }] = run.json('Report') as Array<{
			drift: Array<{ order_id?: string; reconcile: { status: string; key?: string } }>;
		}>;
		const found = drift
			.map((item) => [item.reconcile.status, item.reconcile.key ?? item.order_id])
			.filter(([, key]) => String(key).startsWith('night-'))
			.sort();
		expect(found).toEqual([
			['duplicated_in_target', 'night-2'],
			['duplicated_in_target', 'night-2'],
			['missing_in_target', 'night-3'],
			['unknown_to_ledger', 'night-1'],
			['unknown_to_ledger', 'night-by-hand'],
		]);
		const logged = await queryLedger(
			`select outcome from :schema.decision_log where event = 'reconcile' and work_id = $1`,
			[vanished.work_id],
		);
		expect(logged).toEqual([{ outcome: 'missing_in_target' }]);
	});
});

describe('scraper-with-checkpoint.json', () => {
	const PAGES = 230;
	const fetched = new Map<string, number>();
	let hold: string | null = null;
	let held: () => void;
	let server: Server;
	let base: string;

	beforeAll(async () => {
		server = createServer((request, response) => {
			const { pathname } = new URL(request.url ?? '/', 'http://local');
			if (pathname === '/pages.json') {
				const pages = Array.from({ length: PAGES }, (_, at) => ({
					position: at + 1,
					listed_on: '2026-01-31',
					// one address in two spellings would be two pages without normalisation
					url: `${base}/page/${at + 1}?utm_source=list-${at % 3}`,
				}));
				response.writeHead(200, { 'content-type': 'application/json' });
				response.end(JSON.stringify(pages));
				return;
			}
			const page = pathname.split('/').at(-1) ?? '';
			fetched.set(page, (fetched.get(page) ?? 0) + 1);
			if (page === hold) {
				held();
				return;
			}
			response.writeHead(200, { 'content-type': 'application/json' });
			response.end(JSON.stringify({ title: `Page ${page}` }));
		});
		await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
		base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
	});

	afterAll(async () => {
		server.closeAllConnections();
		await new Promise((resolve) => server.close(resolve));
	});

	test('killed in the middle, the next run goes on behind the checkpoint: every page once, one row for what it skipped (case 95)', async () => {
		const id = await importShipped('scraper-with-checkpoint.json', (workflow) => {
			nodeOf(workflow, 'List Pages').parameters.url = `${base}/pages.json`;
			Object.assign(nodeOf(workflow, 'Claim Work').parameters.options as object, {
				leaseSeconds: 1,
			});
		});
		hold = '160';
		const isHeld = new Promise<void>((resolve) => {
			held = resolve;
		});
		await n8n.runManually(id, 'Every Night');
		await isHeld;
		await order('/n8n/kill');
		hold = null;
		server.closeAllConnections();
		const [saved] = await queryLedger<{ cursor: string }>(
			`select cursor_text as cursor from :schema.checkpoints where name = 'pages of shop.example'`,
		);
		expect(saved).toEqual({ cursor: '150' });
		await order('/n8n/start');
		await until('the leases of the killed run have ended', async () => {
			const [{ open }] = await queryLedger<{ open: number }>(
				`select count(*)::int as open from :schema.work_log
				where kind = 'page' and state = 'running' and locked_until > clock_timestamp()`,
			);
			return open === 0;
		});
		const { executionId } = await n8n.runManually(id, 'Every Night');
		await n8n.executionReaches(String(executionId), ['success']);
		await deactivate(id);

		const [works] = await queryLedger(
			`select count(*)::int as pages, bool_and(state = 'done') as done from :schema.work_log where kind = 'page'`,
		);
		expect(works).toEqual({ pages: PAGES, done: true });
		// n8n keeps results only at a node's end: those of the killed part of 50 may be fetched again, nothing else is
		const twice = [...fetched].filter(([, times]) => times > 1).map(([page]) => Number(page));
		expect(fetched.size).toBe(PAGES);
		expect(twice.every((page) => page > 150 && page <= 200)).toBe(true);
		const skipped = await queryLedger(
			`select detail ->> 'skipped' as skipped from :schema.decision_log where event = 'continue_after'
				and detail ->> 'skipped' <> '0'`,
		);
		expect(skipped).toEqual([{ skipped: '150' }]);
		const duplicates = await queryLedger(
			`select from :schema.decision_log d join :schema.work_log w using (work_id)
			where w.kind = 'page' and d.outcome = 'duplicate'`,
		);
		expect(duplicates).toEqual([]);
	});
});
