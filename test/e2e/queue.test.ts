/** n8n in queue mode: one main, two workers, Redis; see scripts/n8n/queue-mode.js. */

import { N8nClient } from '../../scripts/n8n/client';
import { importVariant } from './example';
import { approvalFlow, importFlowWith } from './flow';
import {
	allExecutionsEnded,
	closeLedger,
	invoiceServer,
	leaseEnded,
	ledgerDatabase,
	order,
	queryLedger,
} from './stage';

const PAIRS = 40;
let queue: N8nClient;

const target = () => ({ client: queue, ledger: ledgerDatabase });

beforeAll(async () => {
	queue = new N8nClient(await order<ConstructorParameters<typeof N8nClient>[0]>('/queue/start'));
}, 240_000);

afterAll(async () => {
	await order('/queue/stop');
	await closeLedger();
});

test('40 orders, each delivered twice in the same instant to two workers: 40 invoices, everybody answered (case 1)', async () => {
	const kind = 'queue-pairs';
	await importVariant({ route: kind, kind, waitSeconds: 60 }, target());
	const orders = Array.from({ length: PAIRS }, (_, at) => `queue-${at}`);
	const deliveries = await Promise.all(
		orders.flatMap((orderId) =>
			[1, 2].map(async () => ({
				orderId,
				answer: await queue.webhook(kind, { order_id: orderId }),
			})),
		),
	);

	expect(deliveries).toHaveLength(2 * PAIRS);
	for (const { orderId, answer } of deliveries) {
		const [invoice] = await invoiceServer.invoices(orderId);
		expect(answer).toMatchObject({
			status: 200,
			body: { order_id: orderId, invoice_id: invoice?.invoice_id },
		});
	}
	for (const orderId of orders) expect(await invoiceServer.calls(orderId)).toBe(1);
	expect(
		await queryLedger(
			`select state, attempt, count(*)::int as works, count(distinct instance)::int as instances
			from :schema.work_log where kind = $1 group by state, attempt`,
			[kind],
		),
	).toEqual([{ state: 'done', attempt: 1, works: PAIRS, instances: 1 }]);
	// Otherwise the pairs were no race between processes.
	const byWorker = Object.values(await order<Record<string, string[]>>('/queue/executions'));
	expect(byWorker).toHaveLength(2);
	for (const executions of byWorker) expect(executions.length).toBeGreaterThan(0);
	expect(byWorker.flat()).toHaveLength(2 * PAIRS);
	await allExecutionsEnded(queue);
});

/** Ids of the executions that each worker has begun. */
const begun = async () => await order<Record<string, string[]>>('/queue/executions');

test('a worker without the package fails by name before anything is claimed, and after the install every order has its one invoice (case 133)', async () => {
	const kind = 'queue-missing';
	await order('/queue/restart-worker?name=worker-2&package=missing');
	await importVariant({ route: kind, kind, waitSeconds: 60 }, target());
	const before = new Set((await begun())['worker-2']);
	const orders = Array.from({ length: 12 }, (_, at) => `queue-missing-${at}`);
	const deliver = async () =>
		await Promise.all(
			orders.map(async (orderId) => (await queue.webhook(kind, { order_id: orderId })).status),
		);
	const statuses = await deliver();
	await allExecutionsEnded(queue);

	const lacking = (await begun())['worker-2'].filter((id) => !before.has(id));
	// Otherwise one of the two had nothing to do.
	expect(lacking.length).toBeGreaterThan(0);
	expect(lacking.length).toBeLessThan(orders.length);
	expect(statuses.filter((status) => status === 200)).toHaveLength(orders.length - lacking.length);
	for (const id of lacking) {
		expect(await queue.execution(id)).toMatchObject({
			status: 'error',
			error: 'Unrecognized node type: n8n-nodes-idempotency.claimWork',
			ran: [],
		});
	}
	const claimants = await queryLedger<{ execution: string }>(
		`select execution from :schema.work_log where kind = $1`,
		[kind],
	);
	expect(claimants.filter(({ execution }) => lacking.includes(execution))).toEqual([]);

	await order('/queue/restart-worker?name=worker-2&package=installed');
	// the senders were not answered with 2xx, and send again
	expect(await deliver()).toEqual(orders.map(() => 200));
	for (const orderId of orders) expect(await invoiceServer.calls(orderId)).toBe(1);
	await allExecutionsEnded(queue);
	expect(
		await queryLedger(
			`select state, attempt, count(*)::int as works from :schema.work_log
			where kind = $1 group by state, attempt`,
			[kind],
		),
	).toEqual([{ state: 'done', attempt: 1, works: orders.length }]);
	// a worker is started twice
}, 300_000);

/** Six orders that wait for approval; who began them, and who will go on, is the queue's choice. */
async function approvals(kind: string) {
	await importFlowWith(queue, ledgerDatabase, 'Idempotency Ledger', approvalFlow(kind));
	const orders = Array.from({ length: 6 }, (_, at) => `queue-approval-${at}`);
	return await Promise.all(
		orders.map(async (orderId) => {
			const asked = await queue.webhook(kind, { order_id: orderId });
			expect(asked.status).toBe(202);
			const [work] = await queryLedger<{ execution: string }>(
				`select execution from :schema.work_log where kind = $1 and key = $2`,
				[kind, orderId],
			);
			await queue.executionReaches(work?.execution ?? '', ['waiting']);
			return { orderId, resumeUrl: String(asked.body.resumeUrl) };
		}),
	);
}

test('a worker is killed while its invoice exists: the next delivery is attempt 2, knows of it, one invoice, nothing stuck (case 103)', async () => {
	const kind = 'queue-killed';
	const orderId = 'queue-lost';
	await importVariant({ route: kind, kind, leaseSeconds: 15 }, target());
	await invoiceServer.behave(orderId, { hold: true });
	const asleep = await approvals('queue-approval');
	const call = queue.webhook(kind, { order_id: orderId });
	await invoiceServer.invoiceHeld(orderId);
	const [work] = await queryLedger<{ execution: string; token: string }>(
		`select execution, token from :schema.work_log where kind = $1`,
		[kind],
	);
	await order(`/queue/kill-worker?execution=${work?.execution ?? ''}`);
	await invoiceServer.release(orderId);
	const busy = await queue.webhook(kind, { order_id: orderId });
	await leaseEnded(kind);
	const next = await queue.webhook(kind, { order_id: orderId });

	expect(busy).toMatchObject({ status: 503, body: { status: 'in_progress' } });
	expect(next).toMatchObject({
		status: 200,
		body: { claim: { status: 'claimed', attempt: 2, previousOutcome: 'unknown' } },
	});
	const [invoice, ...others] = await invoiceServer.invoices(orderId);
	expect(others).toEqual([]);
	expect(next.body.invoice_id).toBe(invoice?.invoice_id);
	expect(await invoiceServer.calls(orderId)).toBe(2);

	// Executions that slept meanwhile go on where they were, on the worker that is left (case 10).
	for (const { orderId: approved, resumeUrl } of asleep) {
		const resumed = await queue.post(resumeUrl, { approved: true });
		expect(resumed).toMatchObject({ status: 200, body: { work: { status: 'completed' } } });
		expect(await invoiceServer.calls(approved)).toBe(1);
	}
	expect(
		await queryLedger(
			`select state, attempt, count(*)::int as works from :schema.work_log
			where kind = 'queue-approval' group by 1, 2`,
		),
	).toEqual([{ state: 'done', attempt: 1, works: asleep.length }]);

	// n8n fails the lost execution as stalled and does not run it again; its caller is told.
	const lost = await queue.executionReaches(work?.execution ?? '', ['error', 'crashed']);
	expect(lost.ran).not.toContain('Complete Work');
	expect((await call).status).toBe(500);
	const duplicate = await queue.webhook(kind, { order_id: orderId });
	expect(duplicate).toMatchObject({ status: 200, body: { invoice_id: invoice?.invoice_id } });
	await allExecutionsEnded(queue);
	expect(
		await queryLedger(
			`select state, attempt, external_ref, token = $2 as old_token
			from :schema.work_log where kind = $1`,
			[kind, work?.token],
		),
	).toEqual([{ state: 'done', attempt: 2, external_ref: invoice?.invoice_id, old_token: false }]);
	const claimed = await queryLedger(
		`select d.outcome, d.attempt from :schema.decision_log d
		join :schema.work_log w using (work_id)
		where w.kind = $1 and d.outcome = 'claimed' order by d.id`,
		[kind],
	);
	expect(claimed).toEqual([
		{ outcome: 'claimed', attempt: 1 },
		{ outcome: 'claimed', attempt: 2 },
	]);
});
