import { claimWork, completeWork, importFlow, invoiceFlow } from './flow';
import {
	closeLedger,
	decisions,
	invoiceServer,
	n8n,
	order,
	queryLedger,
	refusedMoreThan,
} from './stage';

const RETRY = { retryOnFail: true, maxTries: 5, waitBetweenTries: 1000 };
const PROXY = { credential: 'Ledger behind a Proxy' } as const;

/** Connections that one run of the node tries before it gives up; known after the first test. */
let triesOfClaim = 0;
let triesOfCompletion = 0;

const readWork = async (kind: string, key: string) =>
	await queryLedger(
		`select state, attempt, generation from :schema.work_log where kind = $1 and key = $2`,
		[kind, key],
	);

const outcomes = async (kind: string) =>
	(await decisions(kind)).map(({ event, outcome }) => `${event}: ${outcome}`);

/** Delivers an order and cuts the ledger off between the invoice and Complete Work; gives the call. */
async function cutBeforeCompletion(route: string, orderId: string) {
	await invoiceServer.behave(orderId, { hold: true });
	const call = n8n.webhook(route, { order_id: orderId });
	await invoiceServer.invoiceHeld(orderId);
	await order('/ledger/cut');
	await invoiceServer.release(orderId);
	// In an object: a promise that is returned would be awaited.
	return { call };
}

afterEach(async () => {
	await order('/ledger/restore');
});
afterAll(closeLedger);

test('without Retry On Fail each node gives up after a few connections, in words that name the ledger', async () => {
	const route = 'retry-off';
	await importFlow(invoiceFlow(route), PROXY);
	await order('/ledger/cut');
	const refused = await n8n.webhook(route, { order_id: 'not-claimed' });
	triesOfClaim = await order<number>('/ledger/refused');
	await order('/ledger/restore');
	const lost = await (await cutBeforeCompletion(route, 'not-completed')).call;
	triesOfCompletion = await order<number>('/ledger/refused');
	await order('/ledger/restore');

	expect([refused.status, lost.status]).toEqual([500, 500]);
	expect(triesOfClaim).toBeGreaterThan(1);
	expect(triesOfCompletion).toBeGreaterThan(1);
	const executions = await n8n.executions(route);
	expect(executions).toHaveLength(2);
	for (const { error } of executions) expect(error).toMatch(/connection to PostgreSQL .* lost/);
	expect(await invoiceServer.calls('not-claimed')).toBe(0);
	expect(await readWork(route, 'not-claimed')).toEqual([]);
	expect(await readWork(route, 'not-completed')).toEqual([
		{ state: 'running', attempt: 1, generation: 1 },
	]);
});

test('Claim Work with Retry On Fail, the ledger out of reach for its first run: one claim, one effect', async () => {
	const route = 'retry-claim';
	await importFlow(invoiceFlow(route, { claim: claimWork(route, {}, RETRY) }), PROXY);
	await order('/ledger/cut');
	const call = n8n.webhook(route, { order_id: 'late-claim' });
	// More than one run of the node makes: n8n runs it again.
	await refusedMoreThan(triesOfClaim);
	await order('/ledger/restore');
	const answer = await call;

	expect(answer).toMatchObject({ status: 200, body: { work: { status: 'completed' } } });
	expect(await invoiceServer.calls('late-claim')).toBe(1);
	expect(await readWork(route, 'late-claim')).toEqual([
		{ state: 'done', attempt: 1, generation: 1 },
	]);
	expect(await outcomes(route)).toEqual(['claim: claimed', 'complete: completed']);
});

test('Complete Work with Retry On Fail, the ledger out of reach for its first run: the effect is not repeated', async () => {
	const route = 'retry-completion';
	await importFlow(invoiceFlow(route, { complete: completeWork(RETRY) }), PROXY);
	const { call } = await cutBeforeCompletion(route, 'late-completion');
	await refusedMoreThan(triesOfCompletion);
	await order('/ledger/restore');
	const answer = await call;
	const duplicate = await n8n.webhook(route, { order_id: 'late-completion' });

	expect(answer).toMatchObject({ status: 200, body: { work: { status: 'completed' } } });
	expect(duplicate.body.work).toMatchObject({
		status: 'duplicate',
		result: { invoice_id: answer.body.invoice_id },
	});
	expect(await invoiceServer.calls('late-completion')).toBe(1);
	expect(await readWork(route, 'late-completion')).toEqual([
		{ state: 'done', attempt: 1, generation: 1 },
	]);
	expect(await outcomes(route)).toEqual([
		'claim: claimed',
		'complete: completed',
		'claim: duplicate',
	]);
});

test('a completion that never reached the ledger is made good by n8n’s own Retry, without another effect', async () => {
	const route = 'retry-lost-completion';
	await importFlow(invoiceFlow(route), PROXY);
	const lost = await (await cutBeforeCompletion(route, 'lost-completion')).call;
	await order('/ledger/restore');
	const [failed] = await n8n.executions(route);
	const retried = await n8n.execution(await n8n.retry(failed?.id ?? ''));

	expect(lost.status).toBe(500);
	expect(failed).toMatchObject({ status: 'error' });
	expect(retried).toMatchObject({ status: 'success', mode: 'retry' });
	expect(await invoiceServer.calls('lost-completion')).toBe(1);
	expect(await readWork(route, 'lost-completion')).toEqual([
		{ state: 'done', attempt: 1, generation: 1 },
	]);
	expect(await outcomes(route)).toEqual(['claim: claimed', 'complete: completed']);
});
