/** Check Evidence Gate in a real n8n: deals that want to move, with and without proof. */

import { answer, flow, importFlow, invoiceFlow, webhook, type FlowNode } from './flow';
import { closeLedger, n8n, order, queryLedger, type CredentialName } from './stage';

afterAll(closeLedger);

interface Check extends Record<string, unknown> {
	outcome: string;
	checked: { stage?: string };
	fired: { execution?: string; node?: string };
}

const checks = async (kind: string, key: string) =>
	await queryLedger<Check>(
		`select outcome, checked, fired from :schema.decision_log
		where event = 'check_evidence'
			and work_id = encode(sha256(convert_to($1 || ':v1:' || $2, 'UTF8')), 'hex')
		order by id`,
		[kind, key],
	);

/** Webhook → Check Evidence Gate → an answer that names the output. */
async function importGate(
	route: string,
	parameters: Record<string, unknown>,
	settings: Record<string, unknown> = {},
	credential: CredentialName = 'Idempotency Ledger',
): Promise<string> {
	const gate: FlowNode = {
		name: 'Check Evidence Gate',
		type: 'n8n-nodes-idempotency.checkEvidenceGate',
		typeVersion: 1,
		credentials: { idempotencyLedgerApi: { id: '', name: '' } },
		parameters: { recordKind: route, recordKeyFields: 'body.deal_id', options: {}, ...parameters },
		...settings,
	};
	return await importFlow(
		flow(
			route,
			[
				webhook(route, 'responseNode'),
				gate,
				answer('Passed', "{ left: 'Passed', gate: $json.gate }"),
				answer('Blocked', "{ left: 'Blocked', gate: $json.gate }"),
			],
			{ Webhook: ['Check Evidence Gate'], 'Check Evidence Gate': ['Passed', 'Blocked'] },
		),
		{ credential },
	);
}

const present = (field: string) => ({ check: 'present', field });

test('a deal moves up the ladder as far as its evidence goes, and every check is in the decision log', async () => {
	await importGate('gate-ladder', {
		mode: 'ladder',
		targetBy: 'field',
		targetField: 'body.to',
		stages: {
			stage: [
				{ name: 'job', rules: { rule: [present('body.job_id')] } },
				{
					name: 'contract',
					rules: {
						rule: [
							{ check: 'matches', field: 'body.envelope_id', pattern: 'ENV-[0-9]+' },
							{
								check: 'condition',
								conditions: {
									options: {
										caseSensitive: true,
										leftValue: '',
										typeValidation: 'strict',
										version: 2,
									},
									combinator: 'and',
									conditions: [
										{
											id: 'a',
											leftValue: '={{ $json.body.signers }}',
											rightValue: 1,
											operator: { type: 'number', operation: 'gte' },
										},
									],
								},
							},
						],
					},
				},
			],
		},
	});
	const deal = { deal_id: 77, job_id: 'J-1', to: 'contract' };
	const early = await n8n.webhook('gate-ladder', deal);
	const signed = await n8n.webhook('gate-ladder', { ...deal, envelope_id: 'ENV-5', signers: 2 });
	const unknown = await n8n.webhook('gate-ladder', { ...deal, to: 'Won' });
	const empty = await n8n.webhook('gate-ladder', { deal_id: 77 });

	expect(early.body).toMatchObject({
		left: 'Blocked',
		gate: { status: 'blocked', stage: 'contract', supportedStage: 'job' },
	});
	expect(early.body.gate.missing.map(({ rule }: { rule: string }) => rule)).toEqual([
		'body.envelope_id matches "ENV-[0-9]+"',
		'Condition',
	]);
	expect(signed.body).toMatchObject({ left: 'Passed', gate: { supportedStage: 'contract' } });
	expect(unknown.body).toMatchObject({ left: 'Blocked' });
	expect(unknown.body.gate.message).toContain('"job", "contract"');
	expect(empty.body).toMatchObject({ left: 'Blocked', gate: { supportedStage: null } });

	const rows = await checks('gate-ladder', '77');
	expect(rows.map(({ outcome, checked }) => [outcome, checked.stage])).toEqual([
		['blocked', 'contract'],
		['passed', 'contract'],
		['blocked', 'Won'],
		['blocked', ''],
	]);
	expect(rows[0].fired).toMatchObject({
		node: 'Check Evidence Gate',
		execution: expect.stringMatching(/^\d+$/),
	});
});

test('a pattern that would run for ever holds n8n up for a moment only, and nothing passes', async () => {
	await importGate(
		'gate-pattern',
		{
			mode: 'list',
			rules: { rule: [{ check: 'matches', field: 'body.no', pattern: '(a+)+b' }] },
		},
		{ onError: 'continueRegularOutput' },
	);
	const [slow, quick] = await Promise.all([
		n8n.webhook('gate-pattern', { deal_id: 1, no: 'a'.repeat(40) }),
		n8n.webhook('gate-pattern', { deal_id: 2, no: 'aab' }),
	]);
	expect(slow.body).toMatchObject({ left: 'Blocked', gate: { status: 'error' } });
	expect(quick.body).toMatchObject({ left: 'Passed' });
});

test('a record passes once the ledger has the work as done, with the reference that the record holds', async () => {
	await importFlow(invoiceFlow('gate-invoice'));
	await importGate('gate-ledger', {
		mode: 'list',
		rules: {
			rule: [
				{
					check: 'reference',
					field: 'body.invoice_no',
					kind: 'gate-invoice',
					version: 'v1',
					keyBy: 'fields',
					keyFields: 'body.order_id',
				},
			],
		},
	});
	const ask = async (invoice_no: string) =>
		await n8n.webhook('gate-ledger', { deal_id: 5, order_id: 'gate-order', invoice_no });
	const before = await ask('INV-typed');
	const made = await n8n.webhook('gate-invoice', { order_id: 'gate-order' });
	const wrong = await ask('INV-typed');
	const right = await ask(made.body.invoice_id as string);

	expect(before.body).toMatchObject({
		left: 'Blocked',
		gate: { missing: [{ found: 'no such work' }] },
	});
	expect(wrong.body).toMatchObject({
		left: 'Blocked',
		gate: { missing: [{ found: `"${made.body.invoice_id}"` }] },
	});
	expect(right.body).toMatchObject({ left: 'Passed', gate: { status: 'passed' } });
	expect((await checks('gate-ledger', '5')).map(({ outcome }) => outcome)).toEqual([
		'blocked',
		'blocked',
		'passed',
	]);
});

test.each(['continueRegularOutput', 'stopWorkflow'])(
	'with the ledger cut off nothing passes, by a field alone neither, under %s',
	async (onError) => {
		const route = `gate-down-${onError.slice(0, 4)}`;
		const rules = { rule: [present('body.a')] };
		await importGate(route, { mode: 'list', rules }, { onError }, 'Ledger behind a Proxy');
		const ask = async () => await n8n.webhook(route, { deal_id: 1, a: 1 });
		const before = await ask();
		await order('/ledger/cut');
		const during = await ask();
		await order('/ledger/restore');
		const after = await ask();

		expect([before.body.left, after.body.left]).toEqual(['Passed', 'Passed']);
		if (onError === 'stopWorkflow') expect(during.status).toBe(500);
		else expect(during.body).toMatchObject({ left: 'Blocked', gate: { status: 'error' } });
		expect(await checks(route, '1')).toHaveLength(2);
	},
);
