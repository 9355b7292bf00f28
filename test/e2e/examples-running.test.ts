/** Examples that keep running work safe: error workflow, overlap lock, acknowledge fast. */

import { flow, importFlow, invoiceFlow } from './flow';
import { importShipped, nodeOf } from './shipped';
import {
	closeLedger,
	decisions,
	invoiceServer,
	invoiceUrl,
	n8n,
	queryLedger,
	until,
} from './stage';

afterAll(closeLedger);

/** Other examples share some kinds: a key tells this file's work from theirs. */
const works = async (kind: string, key: string | null = null) =>
	await queryLedger<{ state: string; attempt: number; external_ref: string | null }>(
		`select state, attempt, external_ref from :schema.work_log
		where kind = $1 and key = coalesce($2, key)`,
		[kind, key],
	);

describe('settle-failed-executions.json', () => {
	test('work of an execution that failed is settled at once, and the next delivery makes the invoice', async () => {
		const errorWorkflow = await importShipped('settle-failed-executions.json');
		const route = 'settled-by-error-workflow';
		const orders = invoiceFlow(route);
		const settings = { ...orders.settings, errorWorkflow };
		await importFlow({ ...orders, settings } as ReturnType<typeof flow>);
		await invoiceServer.behave('fails-once', { fail: 500, times: 1 });

		expect((await n8n.webhook(route, { order_id: 'fails-once' })).status).toBe(500);
		await until('the error workflow has settled it', async () =>
			(await decisions(route)).some(({ event }) => event === 'fail_execution'),
		);
		const settled = await queryLedger(
			`select state, outcome_known, next_attempt_at <= clock_timestamp() as due, settled_by,
				last_error from :schema.work_log where kind = $1`,
			[route],
		);
		expect(settled).toEqual([
			{
				state: 'failed',
				outcome_known: false,
				due: true,
				settled_by: 'execution',
				last_error: expect.stringMatching(/^Create Invoice: .*the service refused/),
			},
		]);

		expect((await n8n.webhook(route, { order_id: 'fails-once' })).status).toBe(200);
		const [invoice, ...others] = await invoiceServer.invoices('fails-once');
		expect(others).toEqual([]);
		expect(await works(route)).toEqual([
			{ state: 'done', attempt: 2, external_ref: invoice.invoice_id },
		]);
	});
});

describe('overlap-lock.json', () => {
	test('while one run works, the next ones of the schedule leave by Busy and call nothing (case 5)', async () => {
		await invoiceServer.behave('stock', { hold: true, times: 1 });
		const id = await importShipped('overlap-lock.json', (workflow) => {
			nodeOf(workflow, 'Every 5 Minutes').parameters = {
				rule: { interval: [{ field: 'seconds', secondsInterval: 1 }] },
			};
			Object.assign(nodeOf(workflow, 'Synchronise Stock').parameters, {
				url: `${invoiceUrl}/invoices`,
				sendBody: true,
				specifyBody: 'json',
				jsonBody: '{ "order_id": "stock" }',
			});
		});
		await invoiceServer.invoiceHeld('stock');
		const finished = async () =>
			(await n8n.executions(id)).filter(({ status }) => status === 'success');
		await until('three more runs have ended', async () => (await finished()).length >= 3);
		for (const run of await finished()) {
			expect(run.ran).toEqual(['Every 5 Minutes', 'Claim Work']);
			expect(run.json('Claim Work', 2)[0].work.status).toBe('in_progress');
		}
		expect(await invoiceServer.calls('stock')).toBe(1);
		expect(await works('sync-lock')).toEqual([
			{ state: 'running', attempt: 1, external_ref: null },
		]);

		await invoiceServer.release('stock');
		await until('a later run has worked', async () => (await invoiceServer.calls('stock')) > 1);
		await n8n.rest('POST', `/workflows/${id}/deactivate`);
		const claims = await queryLedger<{ open: number }>(
			`select max(open)::int as open from (
				select sum(case when d.outcome = 'claimed' then 1 else -1 end) over (order by d.id) as open
				from :schema.decision_log d join :schema.work_log w using (work_id)
				where w.kind = 'sync-lock' and d.outcome in ('claimed', 'completed')) as at_a_time`,
		);
		expect(claims).toEqual([{ open: 1 }]);
	});
});

describe('acknowledge-fast.json', () => {
	test('the sender is answered before the work is done, a repetition starts nothing, and later gets the result', async () => {
		await importShipped('acknowledge-fast.json');
		const send = async () =>
			await n8n.webhook('order-acknowledged-fast', { order_id: 'slow', amount: 7 });
		await invoiceServer.behave('slow', { hold: true, times: 1 });
		const [first, second] = await Promise.all([send(), send()]);
		for (const { status, body } of [first, second]) {
			expect([status, body.status]).toEqual([202, 'accepted']);
		}
		expect(first.body.workId).toBe(second.body.workId);
		await invoiceServer.invoiceHeld('slow');
		expect((await send()).body.status).toBe('accepted');
		expect(await works('slow-order', 'slow')).toEqual([
			{ state: 'running', attempt: 1, external_ref: null },
		]);

		await invoiceServer.release('slow');
		await until(
			'the invoice is recorded',
			async () => (await works('slow-order', 'slow'))[0].state === 'done',
		);
		const [invoice, ...others] = await invoiceServer.invoices('slow');
		expect(others).toEqual([]);
		expect(await invoiceServer.calls('slow')).toBe(1);
		const last = await send();
		expect([last.status, last.body.status]).toEqual([200, 'done']);
		expect(last.body.result.invoice_id).toBe(invoice.invoice_id);
		expect(await works('slow-order', 'slow')).toEqual([
			{ state: 'done', attempt: 1, external_ref: invoice.invoice_id },
		]);
	});
});
