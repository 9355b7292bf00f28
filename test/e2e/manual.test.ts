import {
	claimWork,
	completeWork,
	createInvoice,
	flow,
	importFlow,
	pass,
	set,
	webhook,
} from './flow';
import { closeLedger, decisions, invoiceServer, n8n, queryLedger } from './stage';

const KIND = 'manual-run';

afterAll(closeLedger);

/** A workflow that is being built: not active, begun by the editor's button or a test call. */
const importDraft = async () =>
	await importFlow(
		flow(
			KIND,
			[
				{
					name: 'Button',
					type: 'n8n-nodes-base.manualTrigger',
					typeVersion: 1,
					parameters: {},
				},
				set('Order', "{ body: { order_id: 'manual-order' } }"),
				webhook(KIND),
				claimWork(KIND),
				createInvoice(),
				completeWork(),
				pass('Not Claimed'),
			],
			{
				Button: ['Order'],
				Order: ['Claim Work'],
				Webhook: ['Claim Work'],
				'Claim Work': ['Create Invoice', 'Not Claimed'],
				'Create Invoice': ['Complete Work'],
			},
		),
		{ activate: false },
	);

const run = async (workflowId: string) => {
	const { executionId } = await n8n.runManually(workflowId, 'Button');
	return await n8n.executionReaches(executionId ?? '', ['success', 'error', 'crashed']);
};

test('a manual run claims for real and is marked so; the second one says how to test again', async () => {
	const workflowId = await importDraft();
	const first = await run(workflowId);
	const second = await run(workflowId);

	expect(first).toMatchObject({ status: 'success', mode: 'manual' });
	expect(first.json('Complete Work')).toEqual([
		expect.objectContaining({ work: expect.objectContaining({ status: 'completed' }) }),
	]);
	expect(second).toMatchObject({ status: 'success', mode: 'manual' });
	expect(second.ran).not.toContain('Create Invoice');
	expect(second.json('Claim Work', 1)).toEqual([
		expect.objectContaining({ work: expect.objectContaining({ status: 'duplicate' }) }),
	]);
	const { message } = second.json('Claim Work', 1)[0].work;
	expect(message).toMatch(/already done/i);
	expect(message).toContain(`execution ${first.id}`);
	expect(message).toMatch(/forget test run/i);

	// The editor's "Listen for test event" is a manual run as well.
	const { waitingForWebhook } = await n8n.runManually(workflowId, 'Webhook');
	expect(waitingForWebhook).toBe(true);
	const answer = await n8n.webhook(KIND, { order_id: 'manual-order' }, 'webhook-test');
	expect(answer.body.work).toMatchObject({ status: 'duplicate' });
	expect(answer.body.work.message).toMatch(/forget test run/i);

	expect(await invoiceServer.calls('manual-order')).toBe(1);
	expect(
		await queryLedger(
			`select state, attempt, mode, execution, key from :schema.work_log where kind = $1`,
			[KIND],
		),
	).toEqual([
		{ state: 'done', attempt: 1, mode: 'manual', execution: first.id, key: 'manual-order' },
	]);
	expect(
		(await decisions(KIND)).map(({ event, outcome, fired }) => ({
			event,
			outcome,
			mode: fired.mode,
		})),
	).toEqual([
		{ event: 'claim', outcome: 'claimed', mode: 'manual' },
		{ event: 'complete', outcome: 'completed', mode: 'manual' },
		{ event: 'claim', outcome: 'duplicate', mode: 'manual' },
		{ event: 'claim', outcome: 'duplicate', mode: 'manual' },
	]);
});
