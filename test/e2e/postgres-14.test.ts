/** The oldest PostgreSQL that is promised; all other tests run with the newest. */

import { claimWork, importFlowWith, invoiceFlow } from './flow';
import {
	type Database,
	closeLedger,
	invoiceServer,
	leaseEnded,
	n8n,
	order,
	queryLedger,
} from './stage';

const KIND = 'ledger-14';
const LAPSING = 'ledger-14-lapsing';
let database: Database;

beforeAll(async () => {
	// It is downloaded into the user's cache folder once.
	database = await order<Database>('/ledger/start-14');
	for (const [kind, options] of [
		[KIND, {}],
		[LAPSING, { leaseSeconds: 2 }],
	] as const) {
		const claim = claimWork(kind, { wait: 30, options });
		await importFlowWith(n8n, database, 'Ledger on PostgreSQL 14', invoiceFlow(kind, { claim }));
	}
}, 180_000);

afterAll(closeLedger);

test('the ledger installs itself, and pairs in the same instant make one invoice each', async () => {
	const orders = Array.from({ length: 10 }, (_, at) => `old-${at}`);
	const answers = await Promise.all(
		orders.flatMap((id) => [1, 2].map(async () => await n8n.webhook(KIND, { order_id: id }))),
	);

	const [version] = await queryLedger<{ number: number }>(
		`select current_setting('server_version_num')::int / 10000 as number`,
		[],
		database,
	);
	expect(version).toEqual({ number: 14 });
	for (const { status } of answers) expect(status).toBe(200);
	expect(answers.map(({ body }) => body.work.status).sort()).toEqual([
		...Array<string>(10).fill('completed'),
		...Array<string>(10).fill('duplicate'),
	]);
	for (const id of orders) expect(await invoiceServer.calls(id)).toBe(1);
	expect(
		await queryLedger(
			`select state, attempt, count(*)::int from :schema.work_log where kind = $1 group by 1, 2`,
			[KIND],
			database,
		),
	).toEqual([{ state: 'done', attempt: 1, count: 10 }]);
});

test('a lapsed claim is attempt 2 that knows of it, and the stale owner is fenced', async () => {
	const orderId = 'old-lapsed';
	await invoiceServer.behave(orderId, { hold: true, times: 1 });
	const stale = n8n.webhook(LAPSING, { order_id: orderId });
	await invoiceServer.invoiceHeld(orderId);
	await leaseEnded(LAPSING, database);
	const next = await n8n.webhook(LAPSING, { order_id: orderId });
	await invoiceServer.release(orderId);
	await stale;

	expect(next.body.work).toMatchObject({ status: 'completed', attempt: 2 });
	const refused = (await n8n.executions(LAPSING)).flatMap(({ json }) => json('Complete Work', 1));
	expect(refused).toEqual([
		expect.objectContaining({ work: expect.objectContaining({ status: 'not_owner' }) }),
	]);
	expect(
		await queryLedger(
			`select d.event, d.outcome, d.attempt from :schema.decision_log d
			join :schema.work_log w using (work_id) where w.key = $1 order by d.id`,
			[orderId],
			database,
		),
	).toEqual([
		{ event: 'claim', outcome: 'claimed', attempt: 1 },
		{ event: 'claim', outcome: 'claimed', attempt: 2 },
		{ event: 'complete', outcome: 'completed', attempt: 2 },
		{ event: 'complete', outcome: 'not_owner', attempt: expect.any(Number) },
	]);
	expect(await invoiceServer.invoices(orderId)).toHaveLength(1);
});
