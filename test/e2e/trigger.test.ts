import { createHash, randomUUID } from 'node:crypto';

import {
	claimWork,
	completeWork,
	createInvoice,
	flow,
	importFlow,
	invoiceFlow,
	set,
	type FlowNode,
} from './flow';
import { closeLedger, invoiceServer, invoiceUrl, n8n, order, queryLedger, until } from './stage';

const DEAD = 'trigger-dead';
const RETRIED = 'trigger-retried';

const trigger = (kinds: string, event: 'dead_letter' | 'retry_due'): FlowNode => ({
	name: 'Work Ledger Trigger',
	type: 'n8n-nodes-idempotency.workLedgerTrigger',
	typeVersion: 1,
	credentials: { idempotencyLedgerApi: { id: '', name: '' } },
	parameters: { event, kinds, intervalSeconds: 1, options: {} },
});

/** Tells the invoice server, which counts the calls and fails as it is told to. */
const tell: FlowNode = {
	name: 'Tell',
	type: 'n8n-nodes-base.httpRequest',
	typeVersion: 4.2,
	parameters: {
		method: 'POST',
		url: `${invoiceUrl}/invoices`,
		sendBody: true,
		specifyBody: 'json',
		jsonBody: '={{ JSON.stringify({ order_id: $json.key }) }}',
		options: {},
	},
};

async function makeDead(key: string): Promise<string> {
	const workId = createHash('sha256').update(`${DEAD}:v1:${key}`).digest('hex');
	const token = randomUUID();
	await queryLedger(`select :schema.claim_work($1, $2, $3, '{"order": 7}', null, $4)`, [
		workId,
		key,
		token,
		JSON.stringify({ kind: DEAD }),
	]);
	await queryLedger(`select :schema.fail_work($1, $2, 'card declined', 'no', true, null)`, [
		workId,
		token,
	]);
	return workId;
}

async function untilDecided(workId: string, event: string, outcome: string): Promise<void> {
	await until(`${event} of ${workId} is ${outcome}`, async () => {
		const rows = await queryLedger(
			`select 1 from :schema.decision_log where work_id = $1 and event = $2 and outcome = $3`,
			[workId, event, outcome],
		);
		return rows.length > 0;
	});
}

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
	await importFlow(
		flow(DEAD, [trigger(DEAD, 'dead_letter'), tell], { 'Work Ledger Trigger': ['Tell'] }),
	);
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
	const workId = await makeDead('dead-1');
	await untilDecided(workId, 'announce', 'waiting');
	expect(await invoiceServer.calls('dead-1')).toBe(1);
	await queryLedger(
		`update :schema.announcements set next_attempt_at = clock_timestamp() where subject_id = $1`,
		[workId],
	);
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
	const other = await makeDead('dead-2');
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
