/** What the tests of Work Ledger Trigger share. */

import { createHash, randomUUID } from 'node:crypto';

import { flow, type FlowNode } from './flow';
import { invoiceUrl, queryLedger, until } from './stage';

export const trigger = (
	kinds: string,
	event: 'dead_letter' | 'retry_due',
	options: Record<string, unknown> = {},
): FlowNode => ({
	name: 'Work Ledger Trigger',
	type: 'n8n-nodes-idempotency.workLedgerTrigger',
	typeVersion: 1,
	credentials: { idempotencyLedgerApi: { id: '', name: '' } },
	parameters: { event, kinds, intervalSeconds: 1, options },
});

/** Tells the invoice server, which counts the calls and fails as it is told to. */
export const tell: FlowNode = {
	name: 'Tell',
	type: 'n8n-nodes-base.httpRequest',
	typeVersion: 4.2,
	parameters: {
		method: 'POST',
		url: `${invoiceUrl}/invoices`,
		sendBody: true,
		specifyBody: 'json',
		jsonBody: '={{ JSON.stringify({ order_id: $json.key ?? $json.work.key }) }}',
		options: {},
	},
};

/** A flow that tells of each dead letter of a kind. */
export const telling = (id: string, kind = id, options: Record<string, unknown> = {}) =>
	flow(id, [trigger(kind, 'dead_letter', options), tell], { 'Work Ledger Trigger': ['Tell'] });

/** A work that somebody claimed and failed: for good, or so that its next attempt is due at once. */
export async function makeFailed(
	kind: string,
	key: string,
	how: 'for good' | 'due',
): Promise<string> {
	const workId = createHash('sha256').update(`${kind}:v1:${key}`).digest('hex');
	const token = randomUUID();
	await queryLedger(`select :schema.claim_work($1, $2, $3, '{"order": 7}', null, $4)`, [
		workId,
		key,
		token,
		JSON.stringify({ kind, backoff_base_s: 0, backoff_cap_s: 0 }),
	]);
	await queryLedger(`select :schema.fail_work($1, $2, 'card declined', 'no', $3, null)`, [
		workId,
		token,
		how === 'for good',
	]);
	return workId;
}

export async function untilDecided(workId: string, event: string, outcome: string): Promise<void> {
	await until(`${event} of ${workId} is ${outcome}`, async () => {
		const rows = await queryLedger(
			`select 1 from :schema.decision_log where work_id = $1 and event = $2 and outcome = $3`,
			[workId, event, outcome],
		);
		return rows.length > 0;
	});
}

/** What was announced of a work, in order. */
export async function announced(workId: string): Promise<string[]> {
	const rows = await queryLedger<{ outcome: string }>(
		`select outcome from :schema.decision_log where work_id = $1 and event = 'announce' order by id`,
		[workId],
	);
	return rows.map(({ outcome }) => outcome);
}

/** A dead letter that was not handled comes again now, not in a minute. */
export async function delayIsOver(workId: string): Promise<void> {
	await queryLedger(
		`update :schema.announcements set next_attempt_at = clock_timestamp() where subject_id = $1`,
		[workId],
	);
}
