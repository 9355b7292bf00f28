import { setTimeout as delay } from 'node:timers/promises';

import { importVariant } from './example';
import { allExecutionsEnded, closeLedger, invoiceServer, n8n, order, queryLedger } from './stage';

const KIND = 'sender';
const LEASE_SECONDS = 15;
/** The sender's own pace, as any has one. */
const REPEAT_AFTER_MS = 500;

/** In one group the senders give up on the first answer before there can be one. */
const PATIENCE_MS = 2_000;
const SLOW_MS = 4_000;

/** Eight orders for each kind of bad luck; each is delivered by two senders at once. */
const orders = (name: string) => Array.from({ length: 8 }, (_, at) => `${name}-${at}`);
/** The invoice service refuses the first call. */
const REFUSED = orders('refused');
/** It makes the invoice and then fails. */
const ANSWER_LOST = orders('answer-lost');
/** It is slower than the senders' patience. */
const SLOW = orders('slow');
/** n8n is killed while the invoice exists. */
const KILLED = orders('killed');
/** n8n is not there. */
const DOWN = orders('down');
const ALL = [...REFUSED, ...ANSWER_LOST, ...SLOW, ...KILLED, ...DOWN];

interface Delivery {
	orderId: string;
	/** Status of each answer; 0: none. */
	statuses: number[];
	body: Awaited<ReturnType<typeof n8n.webhook>>['body'];
}

/**
 * Whether n8n takes calls. While it starts it answers every call with 200 and "n8n is starting up",
 * which a sender would take for a delivery: whoever needs each order puts a proxy before n8n that
 * asks this, as here.
 */
async function isReady(): Promise<boolean> {
	const response = await fetch(`${n8n.baseUrl}/healthz/readiness`).catch(() => null);
	return response?.status === 200;
}

/**
 * Delivers an order again and again until it is answered 2xx. The first delivery alone may be given
 * up early: eighty impatient senders would only show how much this machine can do.
 */
async function deliver(orderId: string, firstPatienceMs?: number): Promise<Delivery> {
	const url = `${n8n.baseUrl}/webhook/${KIND}`;
	const statuses: number[] = [];
	for (;;) {
		const patienceMs = statuses.length === 0 ? firstPatienceMs : undefined;
		const answer = (await isReady())
			? await n8n.post(url, { order_id: orderId }, patienceMs).catch(() => null)
			: null;
		statuses.push(answer?.status ?? 0);
		if (answer !== null && answer.status >= 200 && answer.status < 300) {
			return { orderId, statuses, body: answer.body };
		}
		await delay(REPEAT_AFTER_MS);
	}
}

const twice = (orderIds: string[], patienceMs?: number) =>
	orderIds.flatMap((id) => [deliver(id, patienceMs), deliver(id, patienceMs)]);

afterAll(closeLedger);

describe('40 orders from two senders that repeat each delivery until it is answered 2xx', () => {
	let deliveries: Delivery[];

	beforeAll(async () => {
		await importVariant({
			route: KIND,
			kind: KIND,
			leaseSeconds: LEASE_SECONDS,
			backoffSeconds: 1,
			waitSeconds: 10,
		});
		for (const id of REFUSED) await invoiceServer.behave(id, { fail: 500, times: 1 });
		for (const id of ANSWER_LOST) {
			await invoiceServer.behave(id, { fail: 503, created: true, times: 1 });
		}
		for (const id of SLOW) await invoiceServer.behave(id, { delayMs: SLOW_MS, times: 1 });
		for (const id of KILLED) await invoiceServer.behave(id, { hold: true, times: 1 });

		const answered = await Promise.all([
			...twice([...REFUSED, ...ANSWER_LOST]),
			...twice(SLOW, PATIENCE_MS),
		]);
		// Apart from the others, so that these leases cannot end before the crash.
		const lost = twice(KILLED);
		await Promise.all(KILLED.map(async (id) => await invoiceServer.invoiceHeld(id)));
		// Eight invoices exist whose answers are held back: their executions die here.
		await order('/n8n/kill');
		for (const id of KILLED) await invoiceServer.release(id);
		const late = twice(DOWN);
		await order('/n8n/start');
		deliveries = [...answered, ...(await Promise.all([...lost, ...late]))];
	}, 180_000);

	test('every sender is answered in the end, with the one invoice of its order', async () => {
		expect(deliveries).toHaveLength(2 * ALL.length);
		for (const orderId of ALL) {
			const [invoice, ...others] = await invoiceServer.invoices(orderId);
			expect({ orderId, others }).toEqual({ orderId, others: [] });
			for (const { body } of deliveries.filter((one) => one.orderId === orderId)) {
				expect(body).toMatchObject({ order_id: orderId, invoice_id: invoice?.invoice_id });
			}
		}
	});

	test('the failures were real: refused, lost and killed deliveries were repeated', () => {
		for (const orderId of ALL) {
			const statuses = deliveries
				.filter((one) => one.orderId === orderId)
				.flatMap((one) => one.statuses);
			const refused = REFUSED.includes(orderId) || ANSWER_LOST.includes(orderId);
			expect(statuses).toContain(refused ? 502 : 0);
			// Whatever it met, no sender was told that a person has to look.
			expect(statuses).not.toContain(409);
		}
	});

	test('each order is one work, done by the attempt after its failure, and nothing is left open', async () => {
		const works = await queryLedger<{ key: string; state: string; attempt: number }>(
			`select key, state, attempt from :schema.work_log where kind = $1`,
			[KIND],
		);
		expect(works).toHaveLength(ALL.length);
		for (const { key, state, attempt } of works) {
			const expected = SLOW.includes(key) || DOWN.includes(key) ? 1 : 2;
			expect({ key, state, attempt }).toEqual({ key, state: 'done', attempt: expected });
		}
		const completions = await queryLedger<{ count: number }>(
			`select count(*)::int as count from :schema.decision_log
			join :schema.work_log using (work_id)
			where kind = $1 and event = 'complete' and outcome = 'completed'`,
			[KIND],
		);
		expect(completions).toEqual([{ count: ALL.length }]);
		// The executions of the killed n8n have an end as well.
		await allExecutionsEnded(n8n);
	});
});
