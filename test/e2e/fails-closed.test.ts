/**
 * n8n's engine fails open: a throw under *Continue* sends the input on by output 0, *Always Output
 * Data* sends an empty item there, and a disabled node passes everything. Each is tried here with an
 * effect behind output 0 that must not run.
 */

import {
	type CredentialName,
	closeLedger,
	importLedgerCredential,
	invoiceServer,
	invoiceUrl,
	n8n,
	order,
	queryLedger,
} from './stage';

interface ClaimSettings {
	onError: 'stopWorkflow' | 'continueRegularOutput' | 'continueErrorOutput';
	alwaysOutputData: boolean;
	disabled?: boolean;
}

const CLAIM_OUTPUTS = ['Claimed', 'Duplicate', 'Busy', 'Needs Attention', 'Error'];

const link = (name: string) => [{ node: name, type: 'main', index: 0 }];

/**
 * Webhook → Claim Work → an effect without a key → Complete Work → answer. The other outputs answer
 * with their own name. Every run of the effect makes an invoice for the order `effect-<route>`,
 * whatever reached it, an empty item too.
 */
async function importGuardedEffect(
	route: string,
	settings: ClaimSettings,
	credentialName: CredentialName,
): Promise<string> {
	const credentials = await importLedgerCredential(credentialName);
	const ledger = { idempotencyLedgerApi: { id: '', name: credentialName } };
	const answer = (name: string, row: number, responseBody: string) => ({
		id: `answer-${name}`,
		name,
		type: 'n8n-nodes-base.respondToWebhook',
		typeVersion: 1.4,
		position: [800, row * 160],
		parameters: { respondWith: 'json', responseBody, options: {} },
	});
	const outputs = CLAIM_OUTPUTS.slice(0, settings.onError === 'continueErrorOutput' ? 5 : 4);
	const answers = outputs
		.slice(1)
		.map((name, at) =>
			answer(name, at + 1, `={{ { left: '${name}', work: $json.work ?? $json.details.work } }}`),
		);
	const workflow = {
		id: route,
		name: route,
		settings: { executionOrder: 'v1' },
		nodes: [
			{
				id: 'webhook',
				name: 'Webhook',
				type: 'n8n-nodes-base.webhook',
				typeVersion: 2,
				position: [0, 0],
				webhookId: route,
				parameters: { httpMethod: 'POST', path: route, responseMode: 'responseNode', options: {} },
			},
			{
				id: 'claim',
				name: 'Claim Work',
				type: 'n8n-nodes-idempotency.claimWork',
				typeVersion: 1,
				position: [200, 0],
				credentials: ledger,
				...settings,
				parameters: {
					kind: route,
					version: 'v1',
					identity: 'fields',
					keyFields: 'body.order_id',
					window: 'forever',
					response: 'original',
					onLapse: 'run_again',
					wait: 0,
					options: {},
				},
			},
			{
				id: 'effect',
				name: 'Effect',
				type: 'n8n-nodes-base.httpRequest',
				typeVersion: 4.2,
				position: [400, 0],
				parameters: {
					method: 'POST',
					url: `${invoiceUrl}/invoices`,
					sendBody: true,
					specifyBody: 'json',
					jsonBody: JSON.stringify({ order_id: `effect-${route}` }),
					options: {},
				},
			},
			{
				id: 'complete',
				name: 'Complete Work',
				type: 'n8n-nodes-idempotency.completeWork',
				typeVersion: 1,
				position: [600, 0],
				credentials: ledger,
				parameters: { operation: 'complete', result: 'item', options: {} },
			},
			answer('Done', 0, "={{ { left: 'Claimed', work: $json.work } }}"),
			...answers,
		],
		connections: {
			Webhook: { main: [link('Claim Work')] },
			'Claim Work': { main: [link('Effect'), ...outputs.slice(1).map(link)] },
			Effect: { main: [link('Complete Work')] },
			'Complete Work': { main: [link('Done')] },
		},
	};
	return await n8n.importWorkflow(workflow, { credentials });
}

const effects = async (route: string) => await invoiceServer.calls(`effect-${route}`);

afterAll(closeLedger);

const settings: ClaimSettings[] = (
	['stopWorkflow', 'continueRegularOutput', 'continueErrorOutput'] as const
).flatMap((onError) => [
	{ onError, alwaysOutputData: false },
	{ onError, alwaysOutputData: true },
]);

describe.each(settings)(
	'Claim Work with On Error $onError, Always Output Data $alwaysOutputData',
	(claim) => {
		const failuresLeaveBy = claim.onError === 'continueErrorOutput' ? 'Error' : 'Needs Attention';
		// Short: a workflow's id has at most 36 characters.
		const name =
			`${claim.onError.replace(/Workflow|Output/, '')}-${claim.alwaysOutputData}`.toLowerCase();

		test('the effect runs once, not for the duplicate', async () => {
			const route = `duplicate-${name}`;
			await importGuardedEffect(route, claim, 'Idempotency Ledger');
			const first = await n8n.webhook(route, { order_id: '1' });
			const second = await n8n.webhook(route, { order_id: '1' });

			expect(first).toMatchObject({ status: 200, body: { left: 'Claimed' } });
			expect(second.body.left).not.toBe('Claimed');
			expect(await effects(route)).toBe(1);
			if (claim.alwaysOutputData) expect(second.status).toBe(500);
			else {
				expect(second.body).toMatchObject({ left: 'Duplicate', work: { status: 'duplicate' } });
			}
		});

		test('the effect does not run for an item that is refused (case 101)', async () => {
			const route = `refused-${name}`;
			await importGuardedEffect(route, claim, 'Idempotency Ledger');
			const answer = await n8n.webhook(route, { some: 'other field' });

			expect(answer.body.left).not.toBe('Claimed');
			expect(await effects(route)).toBe(0);
			const works = await queryLedger(`select key from :schema.work_log where kind = $1`, [route]);
			expect(works).toEqual([]);
			if (claim.onError === 'stopWorkflow' || claim.alwaysOutputData) {
				expect(answer.status).toBe(500);
			} else {
				expect(answer.body).toMatchObject({
					left: failuresLeaveBy,
					work: { status: 'refused' },
				});
			}
		});

		test('the effect does not run while the ledger is down, and does afterwards (case 126)', async () => {
			const route = `down-${name}`;
			await importGuardedEffect(route, claim, 'Ledger behind a Proxy');
			// A pooled connection is open when the ledger goes, and another attempt finds none.
			await n8n.webhook(route, { order_id: 'before' });
			await order('/ledger/cut');
			const answers = [
				await n8n.webhook(route, { order_id: 'during' }),
				await n8n.webhook(route, { order_id: 'during' }),
			];
			await order('/ledger/restore');
			expect(await effects(route)).toBe(1);
			for (const answer of answers) {
				expect(answer.body.left).not.toBe('Claimed');
				if (claim.onError === 'stopWorkflow' || claim.alwaysOutputData) {
					expect(answer.status).toBe(500);
				} else {
					expect(answer.body.left).toBe(failuresLeaveBy);
				}
			}

			const after = await n8n.webhook(route, { order_id: 'during' });
			expect(after).toMatchObject({ status: 200, body: { left: 'Claimed' } });
			expect(await effects(route)).toBe(2);
		});
	},
);

describe('a disabled Claim Work', () => {
	test('passes everything on, so Complete Work refuses the item that has no token', async () => {
		const route = 'claim-disabled';
		const workflowId = await importGuardedEffect(
			route,
			{ onError: 'stopWorkflow', alwaysOutputData: false, disabled: true },
			'Idempotency Ledger',
		);
		const answer = await n8n.webhook(route, { order_id: '1' });

		expect(answer.status).toBe(500);
		const [execution] = await n8n.executions(workflowId);
		expect(execution).toMatchObject({ status: 'error' });
		expect(execution?.ran).toContain('Complete Work');
		expect(execution?.ran).not.toContain('Done');
		expect(execution?.error).toMatch(/claim|token/i);
		const works = await queryLedger(`select key from :schema.work_log where kind = $1`, [route]);
		expect(works).toEqual([]);
	});
});
