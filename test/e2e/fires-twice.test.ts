/** The fires-twice test as it is shipped, against the invoice example and against a flow that guards nothing. */

import { importExample } from './example';
import { createInvoice, flow, importFlow, webhook, type FlowNode } from './flow';
import { importShipped, nodeOf } from './shipped';
import { closeLedger, invoiceServer, n8n, queryLedger } from './stage';

afterAll(closeLedger);

/** The shipped test, started by a webhook in place of a person, pointed at a route of this n8n. */
async function importTest(name: string, route: string): Promise<void> {
	await importShipped('fires-twice-test.json', (workflow) => {
		workflow.id = name;
		workflow.name = name;
		Object.assign(nodeOf(workflow, 'Test Now'), { ...webhook(name), name: 'Test Now' });
		const what = nodeOf(workflow, 'What to Call').parameters;
		what.jsonOutput = String(what.jsonOutput).replace(
			'http://127.0.0.1:5678/webhook/invoice-from-order',
			`${n8n.baseUrl}/webhook/${route}`,
		);
	});
}

interface Verdict {
	effects: number;
	verdict: string;
	order: { order_id: string };
	answers: Array<{ statusCode: number; body: Record<string, unknown> }>;
}

test('the shipped invoice example is safe: one effect, and both callers get its invoice (case 1)', async () => {
	await importExample();
	await importTest('fires-twice-safe', 'invoice-from-order');
	const { status, body } = await n8n.webhook('fires-twice-safe', {});
	const { effects, verdict, order, answers } = body as unknown as Verdict;
	expect([status, effects, verdict]).toEqual([200, 1, '1 effect: safe']);
	const [invoice] = await invoiceServer.invoices(order.order_id);
	expect(answers.map((each) => [each.statusCode, each.body.invoice_id])).toEqual([
		[200, invoice.invoice_id],
		[200, invoice.invoice_id],
	]);
});

test('a flow without a claim is not safe: two effects', async () => {
	const invoice = createInvoice();
	// without the key by which the target would tell the second call
	Object.assign(invoice.parameters, { sendHeaders: false, headerParameters: {} });
	await importFlow(
		flow('fires-twice-unguarded', [webhook('fires-twice-unguarded'), invoice], {
			Webhook: ['Create Invoice'],
		}),
	);
	await importTest('fires-twice-not-safe', 'fires-twice-unguarded');
	const { body } = await n8n.webhook('fires-twice-not-safe', {});
	expect(body).toMatchObject({ effects: 2, verdict: '2 effects: not safe' });
});

test('a webhook that refuses both deliveries is not called safe', async () => {
	await importTest('fires-twice-nothing', 'no-such-route');
	const { body } = await n8n.webhook('fires-twice-nothing', {});
	expect(body).toMatchObject({ effects: 0, answers: [{ statusCode: 404 }, { statusCode: 404 }] });
});

test('Work Ledger → Test: Fire Twice lets one pass in a real n8n, and leaves nothing', async () => {
	const route = 'fires-twice-ledger';
	const ledgerTest: FlowNode = {
		name: 'Work Ledger',
		type: 'n8n-nodes-idempotency.workLedger',
		typeVersion: 1,
		credentials: { idempotencyLedgerApi: { id: '', name: '' } },
		parameters: {
			resource: 'work',
			operation: 'firesTwice',
			kind: 'invoice',
			version: 'v1',
			identity: 'fields',
			keyFields: 'body.order_id',
			options: {},
		},
	};
	await importFlow(flow(route, [webhook(route), ledgerTest], { Webhook: ['Work Ledger'] }));
	const { body } = await n8n.webhook(route, { order_id: 'sample' });
	expect(body).toMatchObject({
		passed: true,
		sameInstant: true,
		key: 'sample',
		third: { status: 'duplicate' },
		deleted: { works: 1 },
	});
	expect(
		await queryLedger(
			`select 1 from :schema.work_log where kind like '%(fires-twice test)' or key = 'sample'`,
		),
	).toEqual([]);
});
