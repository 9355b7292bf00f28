import { setTimeout as delay } from 'node:timers/promises';

import { importExample, importVariant } from './example';
import { closeLedger, invoiceServer, n8n, queryLedger } from './stage';

const PAIRS = 200;
/** The second call of a pair comes 0 to 155 ms after the first: before, during and after its claim. */
const LARGEST_GAP_MS = 155;
/** Pairs under way at once; two cores answer them in their own time. */
const LANES = 4;

interface Pair {
	orderId: string;
	gapMs: number;
	answers: Awaited<ReturnType<typeof n8n.webhook>>[];
}

/** Sends every pair, a few at a time. */
async function sendPairs(): Promise<Pair[]> {
	const pairs: Pair[] = Array.from({ length: PAIRS }, (_, at) => ({
		orderId: `pair-${at}`,
		gapMs: Math.round((at * LARGEST_GAP_MS) / (PAIRS - 1)),
		answers: [],
	}));
	const waiting = [...pairs];
	const lane = async () => {
		for (let pair = waiting.shift(); pair !== undefined; pair = waiting.shift()) {
			const call = async () =>
				await n8n.webhook('invoice-from-order', { order_id: pair?.orderId, amount: 20 });
			pair.answers = await Promise.all([call(), delay(pair.gapMs).then(call)]);
		}
	};
	await Promise.all(Array.from({ length: LANES }, lane));
	return pairs;
}

afterAll(closeLedger);

describe('200 orders, each delivered twice 0 to 155 ms apart', () => {
	let workflowId: string;
	let pairs: Pair[];

	beforeAll(async () => {
		workflowId = await importExample();
		pairs = await sendPairs();
	}, 300_000);

	test('every caller is answered with the invoice of its own order (case 1)', async () => {
		const wrong = [];
		for (const { orderId, gapMs, answers } of pairs) {
			const [invoice] = await invoiceServer.invoices(orderId);
			for (const { status, body } of answers) {
				const right =
					status === 200 && body.invoice_id === invoice?.invoice_id && body.order_id === orderId;
				if (!right) wrong.push({ orderId, gapMs, status, body });
			}
		}
		expect(wrong).toEqual([]);
		expect(pairs.flatMap(({ answers }) => answers)).toHaveLength(2 * PAIRS);
	});

	test('exactly one invoice exists per order, and it was asked for once', async () => {
		const counts = [];
		for (const { orderId } of pairs) {
			counts.push({
				invoices: (await invoiceServer.invoices(orderId)).length,
				calls: await invoiceServer.calls(orderId),
			});
		}
		expect(counts).toEqual(Array(PAIRS).fill({ invoices: 1, calls: 1 }));
	});

	test('the ledger holds 200 works, done by their first attempt', async () => {
		const works = await queryLedger(
			`select state, generation, attempt, count(*)::int as works,
				count(distinct external_ref)::int as invoices
			from :schema.work_log where kind = 'invoice' and key like 'pair-%'
			group by state, generation, attempt`,
		);
		expect(works).toEqual([
			{ state: 'done', generation: 1, attempt: 1, works: PAIRS, invoices: PAIRS },
		]);
	});

	test('the decision log tells of one claim, one completion and one duplicate per order', async () => {
		const decisions = await queryLedger<{ event: string; outcome: string; rows: number }>(
			`select event, outcome, count(*)::int as rows, count(distinct work_id)::int as works
			from :schema.decision_log
			where work_id in
				(select work_id from :schema.work_log where kind = 'invoice' and key like 'pair-%')
			group by event, outcome order by event, outcome`,
		);
		expect(decisions.filter(({ outcome }) => outcome !== 'in_progress')).toEqual([
			{ event: 'claim', outcome: 'claimed', rows: PAIRS, works: PAIRS },
			{ event: 'claim', outcome: 'duplicate', rows: PAIRS, works: PAIRS },
			{ event: 'complete', outcome: 'completed', rows: PAIRS, works: PAIRS },
		]);
		// A caller that waited is noted as busy once, not once per look.
		const busy = decisions.find(({ outcome }) => outcome === 'in_progress');
		expect(busy?.rows ?? 0).toBeLessThanOrEqual(PAIRS);
	});

	test('no execution ended in an error', async () => {
		const filter = encodeURIComponent(JSON.stringify({ workflowId, status: ['error', 'crashed'] }));
		const { results } = await n8n.rest('GET', `/executions?filter=${filter}&limit=5`);
		expect(results).toEqual([]);
	});
});

test('an order without an id is refused and creates no invoice (case 101)', async () => {
	await importExample();
	const answer = await n8n.webhook('invoice-from-order', { amount: 20 });
	expect(answer).toMatchObject({
		status: 422,
		body: { status: 'refused', reason: expect.stringContaining('body.order_id') },
	});
	expect(await invoiceServer.invoices('undefined')).toEqual([]);
	const refused = await queryLedger(
		`select key from :schema.work_log where kind = 'invoice' and (key is null or key in ('', 'undefined'))`,
	);
	expect(refused).toEqual([]);
});

test('a failed invoice call is answered as failed, and a delivery right after it as not due (case 117)', async () => {
	// The backoff is drawn from 0 to a day: that the second delivery finds it due is out of reach.
	const variant = { route: 'invoice-refused', kind: 'invoice-refused', backoffSeconds: 86_400 };
	await importVariant(variant);
	const send = async () => await n8n.webhook('invoice-refused', { order_id: 'refused-order' });
	await invoiceServer.behave('refused-order', { fail: 500 });
	const failed = await send();
	await invoiceServer.release('refused-order');
	const again = await send();

	expect(failed.status).toBe(502);
	const [work] = await queryLedger<{ state: string; last_error: string; attempt: number }>(
		`select state, last_error, attempt from :schema.work_log where kind = 'invoice-refused'`,
	);
	expect(work).toEqual({
		state: 'failed',
		last_error: expect.stringContaining('500'),
		attempt: 1,
	});
	expect(again.status).toBe(503);
	expect(again.body.status).toBe('not_due');
	expect(again.headers.get('retry-after')).toBe('30');
	expect(await invoiceServer.invoices('refused-order')).toEqual([]);
});

test('a version bump is new work; without it the same order is a duplicate', async () => {
	const variant = { route: 'invoice-version', kind: 'invoice-version' };
	const send = async () => await n8n.webhook('invoice-version', { order_id: 'bumped-order' });
	await importVariant(variant);
	const first = await send();
	const second = await send();
	await importVariant({ ...variant, version: 'v2' });
	const bumped = await send();

	expect([first.status, second.status, bumped.status]).toEqual([200, 200, 200]);
	expect(second.body.invoice_id).toBe(first.body.invoice_id);
	expect(bumped.body.invoice_id).not.toBe(first.body.invoice_id);
	expect(bumped.body.claim).toMatchObject({ status: 'claimed', attempt: 1, version: 'v2' });
	expect(await invoiceServer.invoices('bumped-order')).toHaveLength(2);
	const works = await queryLedger(
		`select version, state, attempt, external_ref from :schema.work_log
		where kind = 'invoice-version' order by version`,
	);
	expect(works).toEqual([
		{ version: 'v1', state: 'done', attempt: 1, external_ref: first.body.invoice_id },
		{ version: 'v2', state: 'done', attempt: 1, external_ref: bumped.body.invoice_id },
	]);
});
