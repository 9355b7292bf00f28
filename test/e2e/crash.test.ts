import { type ExampleVariant, importVariant } from './example';
import { closeLedger, invoiceServer, leaseEnded, n8n, order, queryLedger } from './stage';

const LEASE_SECONDS = 15;

/**
 * Sends an order, kills n8n with SIGKILL while the invoice exists and Complete Work has not run,
 * and starts n8n again. The server holds its answer open until then, so nothing is left to luck.
 */
async function crashBetweenInvoiceAndCompletion(variant: ExampleVariant, orderId: string) {
	await importVariant(variant);
	await invoiceServer.behave(orderId, { hold: true });
	const call = n8n.webhook(variant.route, { order_id: orderId }).then(
		() => 'answered',
		() => 'connection lost',
	);
	await invoiceServer.invoiceHeld(orderId);
	await order('/n8n/kill');
	await invoiceServer.release(orderId);
	await order('/n8n/start');
	expect(await call).toBe('connection lost');
}

const readWork = async (kind: string) =>
	await queryLedger(
		`select state, attempt, outcome_known, external_ref from :schema.work_log where kind = $1`,
		[kind],
	);

afterAll(closeLedger);

describe('n8n is killed between the invoice and Complete Work', () => {
	test('run again: the next call is attempt 2, knows of the lost one, and the key keeps it at one invoice (case 103)', async () => {
		const variant: ExampleVariant = {
			route: 'crash-run-again',
			kind: 'crash-run-again',
			onLapse: 'run_again',
			leaseSeconds: LEASE_SECONDS,
		};
		await crashBetweenInvoiceAndCompletion(variant, 'lost-order-1');
		const [invoice] = await invoiceServer.invoices('lost-order-1');
		expect(await readWork(variant.kind)).toEqual([
			{ state: 'running', attempt: 1, outcome_known: true, external_ref: null },
		]);

		await leaseEnded(variant.kind);
		const answer = await n8n.webhook(variant.route, { order_id: 'lost-order-1' });

		expect(answer.status).toBe(200);
		expect(answer.body.claim).toMatchObject({
			status: 'claimed',
			attempt: 2,
			previousOutcome: 'unknown',
		});
		expect(answer.body.invoice_id).toBe(invoice?.invoice_id);
		expect(await invoiceServer.calls('lost-order-1')).toBe(2);
		expect(await invoiceServer.invoices('lost-order-1')).toHaveLength(1);
		expect(await readWork(variant.kind)).toEqual([
			expect.objectContaining({
				state: 'done',
				attempt: 2,
				external_ref: invoice?.invoice_id,
			}),
		]);
	});

	test('hold: the next call leaves by Needs Attention as held, and no second invoice is asked for', async () => {
		const variant: ExampleVariant = {
			route: 'crash-hold',
			kind: 'crash-hold',
			onLapse: 'hold',
			leaseSeconds: LEASE_SECONDS,
		};
		await crashBetweenInvoiceAndCompletion(variant, 'lost-order-2');
		await leaseEnded(variant.kind);
		const answers = [
			await n8n.webhook(variant.route, { order_id: 'lost-order-2' }),
			await n8n.webhook(variant.route, { order_id: 'lost-order-2' }),
		];

		for (const { status, body } of answers) {
			expect(status).toBe(409);
			expect(body.status).toBe('held');
		}
		expect(await invoiceServer.calls('lost-order-2')).toBe(1);
		expect(await readWork(variant.kind)).toEqual([
			expect.objectContaining({ state: 'held', attempt: 1, outcome_known: false }),
		]);
	});
});
