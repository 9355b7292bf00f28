import { startModelServer } from '../../scripts/n8n/model-server';
import {
	answer,
	claimWork,
	completeWork,
	createInvoice,
	flow,
	importFlow,
	pass,
	set,
	webhook,
	type FlowNode,
} from './flow';
import {
	closeLedger,
	importLedgerCredential,
	invoiceServer,
	n8n,
	order,
	queryLedger,
	until,
} from './stage';

/** Decide, store, then apply: in a real n8n with its own model nodes. The model answers differently every time. */

let model: Awaited<ReturnType<typeof startModelServer>>;
beforeAll(async () => {
	model = await startModelServer();
});
afterAll(async () => {
	await model.close();
	await closeLedger();
});

const LEDGER = { idempotencyLedgerApi: { id: '', name: '' } };

const decision = (name: string, parameters: Record<string, unknown>): FlowNode => ({
	name,
	type: 'n8n-nodes-idempotency.cacheLlmDecision',
	typeVersion: 1,
	credentials: LEDGER,
	parameters,
});

const PROMPT = '=Classify this mail: {{ $json.body.text }}';

/**
 * The step that asks the model, and whether it needs a sub-node. n8n's AI Agent is not among them: it loads SQLite's native
 * library, which an n8n installed without scripts lacks; its answer is played in test/workflows/decisions.test.ts.
 */
const ASKERS: Record<string, () => { ask: FlowNode; languageModel: boolean }> = {
	'Basic LLM Chain': () => ({
		languageModel: true,
		ask: {
			name: 'Ask',
			type: '@n8n/n8n-nodes-langchain.chainLlm',
			typeVersion: 1.7,
			parameters: { promptType: 'define', text: PROMPT, batching: {} },
		},
	}),
	'HTTP Request': () => ({
		languageModel: false,
		ask: {
			name: 'Ask',
			type: 'n8n-nodes-base.httpRequest',
			typeVersion: 4.2,
			parameters: {
				method: 'POST',
				url: `${model.url}/v1/chat/completions`,
				sendBody: true,
				specifyBody: 'json',
				jsonBody:
					'={{ JSON.stringify({ model: "test-model", messages: [{ role: "user", content: "Classify this mail: " + $json.body.text }] }) }}',
				options: {},
			},
		},
	}),
};

/** Webhook → look up → ask → store → a step to stop at → claim → invoice → complete */
async function importDecisionFlow(
	id: string,
	asker: keyof typeof ASKERS,
	lookUp: Record<string, unknown> = {},
): Promise<void> {
	const { ask, languageModel } = ASKERS[asker]();
	const workflow = flow(
		id,
		[
			webhook(id, 'responseNode'),
			decision('Look Up', {
				operation: 'lookUp',
				kind: id,
				model: 'test-model',
				promptVersion: 'v1',
				input: 'fields',
				inputFields: 'body.text',
				wait: 30,
				...lookUp,
			}),
			ask,
			decision('Store', { operation: 'store', form: 'object', requiredFields: 'label' }),
			set('Decided', "{ id: $('Webhook').item.json.body.id, decision: $json.decision }"),
			{
				name: 'Stop Here',
				type: 'n8n-nodes-base.httpRequest',
				typeVersion: 4.2,
				parameters: { method: 'POST', url: `=${model.url}/pause/{{ $json.id }}`, options: {} },
			},
			set('Apply', "$('Decided').item.json"),
			claimWork(id, { keyFields: 'id' }),
			createInvoice("$('Apply').first().json.id"),
			completeWork(),
			answer('Answer', "{ decision: $('Decided').first().json.decision, work: $json.work }"),
			answer('Answer: Not Applied', '{ decision: $json.decision }', 409),
			pass('Duplicate'),
		],
		{
			Webhook: ['Look Up'],
			'Look Up': ['Decided', 'Ask', 'Answer: Not Applied', 'Answer: Not Applied'],
			Ask: ['Store'],
			Store: ['Decided', 'Answer: Not Applied', 'Answer: Not Applied'],
			Decided: ['Stop Here'],
			'Stop Here': ['Apply'],
			Apply: ['Claim Work'],
			'Claim Work': ['Create Invoice', 'Answer'],
			'Create Invoice': ['Complete Work'],
			'Complete Work': ['Answer'],
		},
	);
	if (!languageModel) {
		await importFlow(workflow);
		return;
	}
	const openAi = await n8n.importCredential({
		name: 'Test Model',
		type: 'openAiApi',
		data: { apiKey: 'no-key', url: `${model.url}/v1` },
	});
	const credentials = {
		...(await importLedgerCredential('Idempotency Ledger')),
		openAiApi: openAi,
	};
	const withModel = {
		...workflow,
		nodes: [
			...workflow.nodes,
			{
				id: `${id}-model`,
				name: 'Model',
				type: '@n8n/n8n-nodes-langchain.lmChatOpenAi',
				typeVersion: 1.2,
				position: [400, 200],
				credentials: { openAiApi: { id: '', name: '' } },
				parameters: {
					model: { __rl: true, mode: 'id', value: 'test-model' },
					options: { maxRetries: 0 },
				},
			},
		],
		connections: {
			...workflow.connections,
			Model: { ai_languageModel: [[{ node: 'Ask', type: 'ai_languageModel', index: 0 }]] },
		},
	};
	await n8n.importWorkflow(withModel, { credentials });
}

describe.each(Object.keys(ASKERS))('%s', (asker) => {
	const id = `decide-${asker.toLowerCase().replace(/\W+/g, '-')}`;

	test('two runs of the same mail ask the model once, and both apply its first answer', async () => {
		await importDecisionFlow(id, asker);
		const mail = { id: `${id}-1`, text: `mail of ${id}` };
		const first = await n8n.webhook(id, mail);
		const second = await n8n.webhook(id, mail);
		expect(first).toMatchObject({ status: 200, body: { decision: { status: 'stored' } } });
		expect(second).toMatchObject({
			status: 200,
			body: {
				decision: { status: 'replay', value: first.body.decision.value },
				work: { status: 'duplicate' },
			},
		});
		expect(first.body.decision.value.label).toMatch(/^answer \d+$/);
		expect(model.calls(mail.text)).toBe(1);
		expect(await invoiceServer.invoices(mail.id)).toHaveLength(1);
		const [{ carried }] = await queryLedger<{ carried: boolean }>(
			`select w.decision_key = d.decision_key as carried
			from :schema.work_log w join :schema.llm_decisions d on d.kind = w.kind where w.kind = $1`,
			[id],
		);
		expect(carried).toBe(true);
	});
});

test('two calls in the same instant: one asks the model, the other waits for its answer, and one invoice comes of it', async () => {
	const id = 'decide-together';
	await importDecisionFlow(id, 'Basic LLM Chain');
	const mail = { id: `${id}-1`, text: `mail of ${id}` };
	model.order({ hold: id });
	const calls = [n8n.webhook(id, mail), n8n.webhook(id, mail)];
	await model.stoppedAt(id);
	await until('the other call has met the question', async () => {
		const met = await queryLedger(
			`select 1 from :schema.decision_log l join :schema.llm_decisions d on d.decision_key = l.work_id
			where d.kind = $1 and l.outcome = 'busy'`,
			[id],
		);
		return met.length === 1;
	});
	model.release(id);
	const answers = await Promise.all(calls);
	expect(answers.map(({ body }) => body.decision.status).sort()).toEqual(['replay', 'stored']);
	expect(answers[0].body.decision.value).toEqual(answers[1].body.decision.value);
	expect(model.calls(mail.text)).toBe(1);
	expect(await invoiceServer.invoices(mail.id)).toHaveLength(1);
});

test('n8n is killed between decision and apply (case 79): the next run applies the first decision, and the model was asked once', async () => {
	const id = 'decide-killed';
	await importDecisionFlow(id, 'Basic LLM Chain');
	const mail = { id: `${id}-1`, text: `mail of ${id}` };
	model.pause(mail.id);
	const call = n8n.webhook(id, mail).then(
		() => 'answered',
		() => 'connection lost',
	);
	await model.stoppedAt(mail.id);
	const [stored] = await queryLedger<{ value: { label: string }; execution: string }>(
		'select value, execution from :schema.llm_decisions where kind = $1',
		[id],
	);
	await order('/n8n/kill');
	model.release(mail.id);
	await order('/n8n/start');
	expect(await call).toBe('connection lost');
	expect(await invoiceServer.invoices(mail.id)).toHaveLength(0);

	const next = await n8n.webhook(id, mail);
	expect(next).toMatchObject({
		status: 200,
		body: {
			decision: {
				status: 'replay',
				value: stored.value,
				decidedBy: { execution: stored.execution },
			},
			work: { status: 'completed' },
		},
	});
	expect(model.calls(mail.text)).toBe(1);
	expect(await invoiceServer.invoices(mail.id)).toHaveLength(1);
});

test('an answer that was cut off is not stored (case 74): the next run asks again, and the good answer is applied', async () => {
	const id = 'decide-cut-off';
	await importDecisionFlow(id, 'HTTP Request');
	const mail = { id: `${id}-1`, text: `mail of ${id}` };
	model.order({ content: '{"label": "answ', finishReason: 'length' });
	const cut = await n8n.webhook(id, mail);
	expect(cut).toMatchObject({
		status: 409,
		body: { decision: { status: 'not_stored', reason: expect.stringContaining('cut off') } },
	});
	expect(await n8n.webhook(id, mail)).toMatchObject({
		status: 200,
		body: { decision: { status: 'stored' } },
	});
	expect(model.calls(mail.text)).toBe(2);
});

test('an action that needs approval is not applied before it is approved', async () => {
	const id = 'decide-approve';
	await importDecisionFlow(id, 'Basic LLM Chain', { needsApproval: true });
	await importFlow(
		flow(
			`${id}-verdict`,
			[
				webhook(`${id}-verdict`),
				decision('Approve', {
					operation: 'approve',
					decisionKey: '={{ $json.body.decisionKey }}',
					approver: '={{ $json.body.approver }}',
				}),
			],
			{ Webhook: ['Approve'] },
		),
	);
	const mail = { id: `${id}-1`, text: `mail of ${id}` };
	const proposed = await n8n.webhook(id, mail);
	expect(proposed).toMatchObject({ status: 409, body: { decision: { status: 'proposed' } } });
	const { decisionKey, value } = proposed.body.decision;
	// a preview service opens the link (case 80)
	expect((await n8n.webhook(`${id}-verdict`, { decisionKey })).status).toBe(500);
	expect(await n8n.webhook(id, mail)).toMatchObject({
		status: 409,
		body: { decision: { status: 'waiting' } },
	});
	expect(await invoiceServer.invoices(mail.id)).toHaveLength(0);

	await n8n.webhook(`${id}-verdict`, { decisionKey, approver: 'ada@example.com' });
	expect(await n8n.webhook(id, mail)).toMatchObject({
		status: 200,
		body: { decision: { status: 'replay', approver: 'ada@example.com', value } },
	});
	expect(model.calls(mail.text)).toBe(1);
	expect(await invoiceServer.invoices(mail.id)).toHaveLength(1);
});
