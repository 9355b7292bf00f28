import { claimWork, completeWork, createInvoice, flow, importFlow, set, webhook } from './flow';
import { closeLedger, decisions, invoiceServer, n8n, queryLedger, until } from './stage';

const KIND = 'sub-workflow';
const PARENTS = ['sub-parent-shop', 'sub-parent-phone'];
const ORDERS = ['sub-1', 'sub-2', 'sub-3', 'sub-4', 'sub-5'];

/** The recommended shape: claim, effect and completion in one workflow that others call. */
async function importFlows(): Promise<void> {
	await importFlow(
		flow(
			KIND,
			[
				{
					name: 'Called',
					type: 'n8n-nodes-base.executeWorkflowTrigger',
					typeVersion: 1.1,
					parameters: { inputSource: 'passthrough' },
				},
				claimWork(KIND, { wait: 30 }),
				createInvoice(),
				completeWork(),
				set('Original', '{ ...$json.work.result, work: $json.work }'),
			],
			{
				Called: ['Claim Work'],
				'Claim Work': ['Create Invoice', 'Original'],
				'Create Invoice': ['Complete Work'],
			},
		),
	);
	for (const parent of PARENTS) {
		await importFlow(
			flow(
				parent,
				[
					webhook(parent),
					{
						name: 'Bill the Order',
						type: 'n8n-nodes-base.executeWorkflow',
						typeVersion: 1.2,
						parameters: {
							source: 'database',
							workflowId: { __rl: true, mode: 'id', value: KIND },
							mode: 'once',
							options: { waitForSubWorkflow: true },
						},
					},
				],
				{ Webhook: ['Bill the Order'] },
			),
		);
	}
}

afterAll(closeLedger);

test('a sub-workflow called by two parents in the same instant: one effect, both get its result, and the parent is on record', async () => {
	await importFlows();
	for (const orderId of ORDERS) await invoiceServer.behave(orderId, { hold: true });
	const calls = ORDERS.flatMap((orderId) =>
		PARENTS.map(async (parent) => ({
			orderId,
			answer: await n8n.webhook(parent, { order_id: orderId }),
		})),
	);
	// Every effect is under way, and for each the other call has met it, before any may end.
	await Promise.all(ORDERS.map(async (orderId) => await invoiceServer.invoiceHeld(orderId)));
	await until('each effect is met by the other call', async () => {
		const [row] = await queryLedger<{ met: number }>(
			`select count(distinct work_id)::int as met from :schema.decision_log
			join :schema.work_log using (work_id) where kind = $1 and outcome = 'in_progress'`,
			[KIND],
		);
		return row?.met === ORDERS.length;
	});
	for (const orderId of ORDERS) await invoiceServer.release(orderId);
	const answers = await Promise.all(calls);

	for (const { orderId, answer } of answers) {
		const [invoice] = await invoiceServer.invoices(orderId);
		expect(answer).toMatchObject({ status: 200, body: { invoice_id: invoice?.invoice_id } });
	}
	for (const orderId of ORDERS) expect(await invoiceServer.calls(orderId)).toBe(1);

	const works = await queryLedger<{ parent: string; execution: string }>(
		`select state, attempt, mode, workflow, parent_execution as parent, execution
		from :schema.work_log where kind = $1`,
		[KIND],
	);
	expect(works).toHaveLength(ORDERS.length);
	const parents = (await Promise.all(PARENTS.map(async (id) => await n8n.executions(id)))).flat();
	const children = await n8n.executions(KIND);
	expect(parents).toHaveLength(2 * ORDERS.length);
	expect(children).toHaveLength(2 * ORDERS.length);
	for (const work of works) {
		expect(work).toMatchObject({ state: 'done', attempt: 1, workflow: KIND });
		expect(parents.map(({ id }) => id)).toContain(work.parent);
		expect(children.map(({ id }) => id)).toContain(work.execution);
	}
	// Each of the ten calls asked once, under its own parent.
	const claims = (await decisions(KIND)).filter(({ event }) => event === 'claim');
	const asked = new Set(claims.map(({ fired }) => fired.parent_execution));
	expect([...asked].sort()).toEqual(parents.map(({ id }) => id).sort());
	for (const { status } of [...parents, ...children]) expect(status).toBe('success');
});
