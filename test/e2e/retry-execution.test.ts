import { importFlow, invoiceFlow } from './flow';
import { closeLedger, decisions, invoiceServer, n8n, queryLedger } from './stage';

const readWork = async (kind: string) =>
	await queryLedger(
		`select state, attempt, token, execution, mode, external_ref
		from :schema.work_log where kind = $1`,
		[kind],
	);

/** An order whose invoice call is refused, in a flow without an error output: the execution fails. */
async function failAtInvoice(route: string, orderId: string, created: boolean) {
	await importFlow(invoiceFlow(route));
	await invoiceServer.behave(orderId, { fail: 500, created, times: 1 });
	const { status } = await n8n.webhook(route, { order_id: orderId });
	expect(status).toBe(500);
	const [failed] = await n8n.executions(route);
	if (failed === undefined) throw new Error('no execution');
	return failed;
}

afterAll(closeLedger);

describe('n8n’s Retry of an execution that failed between claim and completion', () => {
	test('resumes at the failed node with the old token: one claim, one invoice, attempt 1', async () => {
		const route = 'retry-refused';
		const failed = await failAtInvoice(route, 'refused-once', false);
		const [before] = await readWork(route);
		const retried = await n8n.execution(await n8n.retry(failed.id));

		expect(failed).toMatchObject({ status: 'error', mode: 'webhook' });
		expect(failed.ran).not.toContain('Complete Work');
		expect(before).toMatchObject({ state: 'running', attempt: 1, execution: failed.id });
		expect(retried).toMatchObject({ status: 'success', mode: 'retry' });
		expect(retried.id).not.toBe(failed.id);
		const [invoice, ...others] = await invoiceServer.invoices('refused-once');
		expect(others).toEqual([]);
		expect(await readWork(route)).toEqual([
			{
				state: 'done',
				attempt: 1,
				token: before?.token,
				execution: failed.id,
				mode: 'webhook',
				external_ref: invoice?.invoice_id,
			},
		]);
		expect(
			(await decisions(route)).map(({ event, outcome, token, fired }) => ({
				event,
				outcome,
				token,
				execution: fired.execution,
				mode: fired.mode,
			})),
		).toEqual([
			{
				event: 'claim',
				outcome: 'claimed',
				token: before?.token,
				execution: failed.id,
				mode: 'webhook',
			},
			{
				event: 'complete',
				outcome: 'completed',
				token: before?.token,
				execution: retried.id,
				mode: 'retry',
			},
		]);
	});

	test('pressed twice for an invoice that had landed: the key keeps it at one, and the first completion stands', async () => {
		const route = 'retry-landed';
		const failed = await failAtInvoice(route, 'landed-unseen', true);
		const first = await n8n.execution(await n8n.retry(failed.id));
		const [done] = await readWork(route);
		const second = await n8n.execution(await n8n.retry(failed.id));

		expect([first.status, second.status]).toEqual(['success', 'success']);
		const [invoice, ...others] = await invoiceServer.invoices('landed-unseen');
		expect(others).toEqual([]);
		expect(await invoiceServer.calls('landed-unseen')).toBe(3);
		expect(done).toMatchObject({ state: 'done', attempt: 1, external_ref: invoice?.invoice_id });
		expect(await readWork(route)).toEqual([done]);
		expect(second.json('Complete Work')).toEqual([
			expect.objectContaining({ work: expect.objectContaining({ status: 'completed' }) }),
		]);
	});

	test('a delivery while the execution waits for its Retry is Busy, and a duplicate after it', async () => {
		const route = 'retry-meanwhile';
		const failed = await failAtInvoice(route, 'meanwhile', false);
		const busy = await n8n.webhook(route, { order_id: 'meanwhile' });
		await n8n.retry(failed.id);
		const duplicate = await n8n.webhook(route, { order_id: 'meanwhile' });

		expect(busy.body.work).toMatchObject({
			status: 'in_progress',
			owner: { execution: failed.id },
		});
		expect(duplicate.body.work).toMatchObject({ status: 'duplicate' });
		expect(await invoiceServer.calls('meanwhile')).toBe(2);
		expect(await invoiceServer.invoices('meanwhile')).toHaveLength(1);
		expect(await readWork(route)).toEqual([expect.objectContaining({ state: 'done', attempt: 1 })]);
	});
});
