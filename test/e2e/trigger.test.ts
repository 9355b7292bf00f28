import { createHash, randomUUID } from 'node:crypto';

import { claimWork, completeWork, createInvoice, flow, importFlow, invoiceFlow, set } from './flow';
import {
	closeLedger,
	invoiceServer,
	n8n,
	order,
	queryLedger,
	refusedMoreThan,
	until,
} from './stage';
import {
	announced,
	delayIsOver,
	makeFailed,
	telling,
	trigger,
	untilDecided,
} from './trigger-stage';

const DEAD = 'trigger-dead';
const RETRIED = 'trigger-retried';

/** A round of a trigger that began after now has ended, and the next one has begun. */
async function twoRounds(): Promise<void> {
	for (let n = 0; n < 2; n++) {
		const workId = createHash('sha256').update(randomUUID()).digest('hex');
		await queryLedger(
			`select :schema.claim_work($1, 'marker', gen_random_uuid(), null, null, '{"kind": "marker", "lease_s": 0.001, "on_lapse": "hold"}')`,
			[workId],
		);
		await untilDecided(workId, 'sweep', 'held');
	}
}

async function work(kind: string) {
	return await queryLedger(
		`select work_id, state, attempt, external_ref from :schema.work_log where kind = $1 and key <> 'marker'`,
		[kind],
	);
}

beforeAll(async () => {
	await importFlow(telling(DEAD));
	await importFlow(
		flow(
			`${RETRIED}-runner`,
			[
				trigger(RETRIED, 'retry_due'),
				claimWork(RETRIED, { identity: 'ledger' }),
				createInvoice(),
				completeWork(),
				set('Not Claimed', '$json'),
			],
			{
				'Work Ledger Trigger': ['Claim Work'],
				'Claim Work': ['Create Invoice', 'Not Claimed', 'Not Claimed', 'Not Claimed'],
				'Create Invoice': ['Complete Work'],
			},
		),
	);
	const options = { leaseSeconds: 2, backoffBaseSeconds: 0, backoffCapSeconds: 0 };
	await importFlow(invoiceFlow(RETRIED, { claim: claimWork(RETRIED, { options }) }));
});
afterAll(closeLedger);

test('a workflow that fails to handle a dead letter is told again, until it has handled it', async () => {
	await invoiceServer.behave('dead-1', { fail: 500, times: 1 });
	const workId = await makeFailed(DEAD, 'dead-1', 'for good');
	await untilDecided(workId, 'announce', 'waiting');
	expect(await invoiceServer.calls('dead-1')).toBe(1);
	await delayIsOver(workId);
	await untilDecided(workId, 'announce', 'acknowledged');
	expect(await invoiceServer.calls('dead-1')).toBe(2);
	const executions = await n8n.executions(DEAD);
	expect(executions.map(({ status }) => status).sort()).toEqual(['error', 'success']);
});

test('n8n is killed between claim and completion: after the restart the trigger sweeps and retries, with one invoice', async () => {
	await invoiceServer.behave('retried-1', { hold: true });
	const call = n8n.webhook(RETRIED, { order_id: 'retried-1' }).then(
		() => 'answered',
		() => 'connection lost',
	);
	await invoiceServer.invoiceHeld('retried-1');
	await order('/n8n/kill');
	await invoiceServer.release('retried-1');
	await order('/n8n/start');
	expect(await call).toBe('connection lost');
	await until('the work is done', async () => (await work(RETRIED))[0]?.state === 'done');
	const [invoice, ...others] = await invoiceServer.invoices('retried-1');
	expect(others).toEqual([]);
	expect(await work(RETRIED)).toEqual([
		expect.objectContaining({ state: 'done', attempt: 2, external_ref: invoice?.invoice_id }),
	]);
	const [{ work_id: workId }] = await work(RETRIED);
	const log = await queryLedger<{ event: string; outcome: string }>(
		`select event, outcome from :schema.decision_log where work_id = $1 order by id`,
		[workId],
	);
	expect(log.map(({ event, outcome }) => `${event}: ${outcome}`)).toEqual([
		'claim: claimed',
		'sweep: failed',
		'claim: claimed',
		'complete: completed',
	]);
});

test('after that restart nothing that was handled is told again', async () => {
	const other = await makeFailed(DEAD, 'dead-2', 'for good');
	await untilDecided(other, 'announce', 'acknowledged');
	await twoRounds();
	expect(await invoiceServer.calls('dead-1')).toBe(2);
	expect(await invoiceServer.calls('dead-2')).toBe(1);
});

test('a failed work that is due is retried and completed; a retry whose execution fails is failed, and tried again', async () => {
	// the delivery and the first retry fail
	await invoiceServer.behave('retried-2', { fail: 500, times: 2 });
	const { status } = await n8n.webhook(RETRIED, { order_id: 'retried-2' });
	expect(status).toBe(500);
	const find = async () =>
		(
			await queryLedger<{ work_id: string; state: string; attempt: number }>(
				`select work_id, state, attempt from :schema.work_log where kind = $1 and key = 'retried-2'`,
				[RETRIED],
			)
		)[0];
	await until('the work is done', async () => (await find())?.state === 'done');
	const { work_id: workId, attempt } = (await find()) as { work_id: string; attempt: number };
	expect(attempt).toBe(3);
	await untilDecided(workId, 'fail', 'failed');
	expect(await invoiceServer.invoices('retried-2')).toHaveLength(1);
	expect(await invoiceServer.calls('retried-2')).toBe(3);
});

test('deactivated and activated while an execution is open: its dead letter is told once, and others go on', async () => {
	const kind = 'trigger-deactivated';
	const id = await importFlow(telling(kind));
	await invoiceServer.behave('deactivated-1', { hold: true });
	const open = await makeFailed(kind, 'deactivated-1', 'for good');
	await invoiceServer.invoiceHeld('deactivated-1');
	await n8n.rest('POST', `/workflows/${id}/deactivate`);
	const other = await makeFailed(kind, 'deactivated-2', 'for good');
	await importFlow(telling(kind));
	await untilDecided(other, 'announce', 'acknowledged');
	expect(await announced(open)).toEqual(['handed_out']);
	await invoiceServer.release('deactivated-1');
	await untilDecided(open, 'announce', 'acknowledged');
	expect(await invoiceServer.calls('deactivated-1')).toBe(1);
});

test('the ledger is cut off while an execution ends: that is reported when it answers again, and told once', async () => {
	const kind = 'trigger-cut';
	const id = await importFlow(telling(kind), { credential: 'Ledger behind a Proxy' });
	await invoiceServer.behave('cut-1', { hold: true });
	const workId = await makeFailed(kind, 'cut-1', 'for good');
	await invoiceServer.invoiceHeld('cut-1');
	await order('/ledger/cut');
	await invoiceServer.release('cut-1');
	await until('its execution ends', async () =>
		(await n8n.executions(kind)).every(({ status }) => status === 'success'),
	);
	await refusedMoreThan(2);
	expect(await announced(workId)).toEqual(['handed_out']);
	await order('/ledger/restore');
	await untilDecided(workId, 'announce', 'acknowledged');
	expect(await invoiceServer.calls('cut-1')).toBe(1);
	await n8n.rest('POST', `/workflows/${id}/deactivate`);
});

test('a run in the editor shows a dead letter and leaves it as it is', async () => {
	const kind = 'trigger-sample';
	const workId = await makeFailed(kind, 'sample-1', 'for good');
	const id = await importFlow(telling(kind), { activate: false });
	const { executionId } = await n8n.runManually(id, 'Work Ledger Trigger');
	const ran = await n8n.executionReaches(executionId ?? '', ['success']);
	expect(ran.json('Work Ledger Trigger')).toEqual([
		expect.objectContaining({ workId, sample: true, madeUp: false, payload: { order: 7 } }),
	]);
	expect(await announced(workId)).toEqual([]);
});
