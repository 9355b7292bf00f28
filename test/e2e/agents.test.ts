import { startModelServer } from '../../scripts/n8n/model-server';
import { startTelegramServer } from '../../scripts/n8n/telegram-server';
import { importAgent, importFarEnds, toolNode, workflowTool, type FarEnds } from './agent-flow';
import { claimWork, completeWork, createInvoice, flow, importFlow, set } from './flow';
import { startDecisionSystems } from './decision-systems';
import { importShipped } from './shipped';
import { closeLedger, invoiceServer, leaseEnded, n8n, order, queryLedger } from './stage';

/** The nodes as tools of n8n's AI Agent. The model calls what a test orders, and keeps what it read. */

const LEASE_SECONDS = 15;
const VERSIONS = [2.2, 3.1];
const idOf = (version: number) => `agent-${String(version).replace('.', '-')}`;
const billKind = (version: number) => `agent-bill-${version}`;

/** A target that takes no notice of keys: each call of it is an invoice, so that what is done twice shows. */
function createWithoutKey(orderId: string) {
	const step = createInvoice(orderId);
	return { ...step, parameters: { ...step.parameters, sendHeaders: false } };
}

/** The recommended guarded tool: claim, effect and completion in one workflow, and a sentence for each end. */
async function importBill(version: number): Promise<string> {
	const kind = billKind(version);
	const id = `bill-${idOf(version)}`;
	await importFlow(
		flow(
			id,
			[
				{
					name: 'Called',
					type: 'n8n-nodes-base.executeWorkflowTrigger',
					typeVersion: 1.1,
					parameters: {
						inputSource: 'workflowInputs',
						workflowInputs: {
							values: ['order_id', 'text'].map((name) => ({ name, type: 'string' })),
						},
					},
				},
				claimWork(
					kind,
					{
						keyFields: 'order_id',
						wait: 30,
						onLapse: 'hold',
						options: { leaseSeconds: LEASE_SECONDS },
					},
					{ onError: 'continueRegularOutput' },
				),
				createWithoutKey('$json.order_id'),
				completeWork(),
				set('Done', "{ response: 'Done now: invoice ' + $json.invoice_id }"),
				set('Not Done', '{ response: $json.work.message }'),
			],
			{
				Called: ['Claim Work'],
				'Claim Work': ['Create Invoice', 'Not Done', 'Not Done', 'Not Done'],
				'Create Invoice': ['Complete Work'],
				'Complete Work': ['Done'],
			},
		),
	);
	return id;
}

const fromAi = (name: string, type = 'string', otherwise = '') =>
	`={{ $fromAI('${name}', \`the ${name}\`, '${type}'${otherwise}) }}`;

/** Every node of this package that is a tool, as a person sets it up, and the guarded tool. */
async function importAgentWithAllTools(version: number): Promise<void> {
	const id = idOf(version);
	const bill = await importBill(version);
	const inTrigger = "={{ $('Webhook').item.json.body.order_id }}";
	await importAgent(
		id,
		version,
		[
			workflowTool('Bill', bill, { order_id: inTrigger, text: fromAi('text') }),
			toolNode('Claim', 'claimWork', {
				kind: `${id}-claim`,
				identity: 'expression',
				key: fromAi('key'),
			}),
			toolNode('Claim or Nothing', 'claimWork', {
				kind: `${id}-claim`,
				identity: 'expression',
				key: fromAi('key', 'string', ", ''"),
			}),
			toolNode('Claim Order', 'claimWork', {
				kind: `${id}-order`,
				identity: 'expression',
				key: '={{ $json.body.order_id }}',
			}),
			toolNode('Claim Content', 'claimWork', { kind: `${id}-content`, identity: 'content' }),
			toolNode('Explain', 'workLedger', {
				resource: 'work',
				operation: 'explain',
				whichWork: 'key',
				kind: fromAi('kind'),
				key: fromAi('key'),
			}),
			toolNode('List', 'workLedger', {
				resource: 'work',
				operation: 'list',
				states: [],
				limit: 100,
				filters: { kind: fromAi('kind') },
			}),
			toolNode('Tell', 'sendOnceTelegram', {
				operation: 'message',
				chatId: fromAi('chat'),
				text: `=For you: ${fromAi('text').slice(1)}`,
			}),
			toolNode('May Ship', 'checkEvidenceGate', {
				mode: 'list',
				rules: {
					rule: [
						{
							check: 'done',
							kind: billKind(version),
							version: 'v1',
							keyBy: 'value',
							key: fromAi('order'),
						},
					],
				},
			}),
			toolNode('May Pay', 'checkEvidenceGate', {
				mode: 'list',
				rules: { rule: [{ check: 'present', field: 'invoice_number' }] },
			}),
			toolNode('Decided', 'cacheLlmDecision', {
				operation: 'get',
				decisionKey: fromAi('decision'),
			}),
		],
		farEnds,
	);
}

interface Call {
	tool: string;
	arguments: unknown;
}

/**
 * One run of the agent: its model makes these calls, turn by turn, and then ends.
 *
 * @returns What n8n answered, and what the model read from each call.
 */
async function run(version: number, about: string, turns: Call[][], orderId = about) {
	for (const calls of turns) farEnds.model.order({ calls });
	const answer = await n8n.webhook(idOf(version), { text: about, order_id: orderId });
	return { ...answer, read: farEnds.model.read(about) };
}

/** What a read text says: its items, as n8n sent them. */
const itemsIn = (read: string) => JSON.parse(read) as Array<Record<string, unknown>>;
const responses = (reads: string[]) =>
	reads.flatMap((read) => itemsIn(read).map(({ response }) => String(response)));

const works = async (kind: string) =>
	await queryLedger<{ key: string; state: string; token: string }>(
		'select key, state, token::text from :schema.work_log where kind = $1 order by key',
		[kind],
	);

let farEnds: FarEnds;
beforeAll(async () => {
	farEnds = { model: await startModelServer(), telegram: await startTelegramServer() };
	for (const version of VERSIONS) await importAgentWithAllTools(version);
});
afterAll(async () => {
	await Promise.all([farEnds.model.close(), farEnds.telegram.close()]);
	await closeLedger();
});

describe.each(VERSIONS)('AI Agent %s', (version) => {
	const id = idOf(version);

	test('five equal calls in one turn and five in turns of their own, in other words each time, are one effect (case 71)', async () => {
		const orderId = `${id}-five`;
		const call = (text: string): Call => ({ tool: 'Bill', arguments: { text } });
		const { status, read } = await run(version, orderId, [
			[1, 2, 3, 4, 5].map((n) => call(`bill it, ${n}`)),
			...[1, 2, 3, 4, 5].map((n) => [call(`turn ${n}`)]),
		]);
		expect(status).toBe(200);
		const [invoice, ...others] = await invoiceServer.invoices(orderId);
		expect(others).toEqual([]);
		const said = responses(read);
		expect(said.filter((text) => text === `Done now: invoice ${invoice.invoice_id}`)).toHaveLength(
			1,
		);
		const again = said.filter((text) => text.startsWith('Already done at '));
		expect(again).toHaveLength(9);
		for (const text of again) expect(text).toContain(`(reference ${invoice.invoice_id})`);
	});

	test('each node answers as a tool with a status and a sentence, and its token and a large result stay out of what the model reads', async () => {
		const key = `${id}-key`;
		const claim: Call = { tool: 'Claim', arguments: { key } };
		const tell: Call = { tool: 'Tell', arguments: { chat: '42', text: `news of ${id}` } };
		const explain: Call = { tool: 'Explain', arguments: { kind: `${id}-claim`, key } };
		const ship: Call = { tool: 'May_Ship', arguments: { order: `${id}-five` } };
		const calls = [
			...Array.from({ length: 5 }, () => claim),
			...Array.from({ length: 5 }, () => tell),
			explain,
			ship,
			{ tool: 'May_Ship', arguments: { order: 'nobody' } },
			{ tool: 'Decided', arguments: { decision: 'no key' } },
		];
		const { status, read } = await run(version, `${id} tools`, [calls]);
		expect(status).toBe(200);
		const said = responses(read);
		expect(said.slice(0, 5).sort()).toEqual([
			expect.stringMatching(/^Claimed in this very run before/),
			expect.stringMatching(/^Claimed in this very run before/),
			expect.stringMatching(/^Claimed in this very run before/),
			expect.stringMatching(/^Claimed in this very run before/),
			'Claimed, attempt 1 of 5.',
		]);
		const statuses = (field: string, reads: string[]) =>
			reads.flatMap((text) =>
				itemsIn(text).map((item) => (item[field] as { status: string }).status),
			);
		expect(statuses('work', read.slice(0, 5)).sort()).toEqual([
			'claimed',
			...Array.from({ length: 4 }, () => 'in_progress'),
		]);
		const sent = statuses('message', read.slice(5, 10));
		expect(sent.filter((one) => one === 'sent')).toHaveLength(1);
		expect(farEnds.telegram.deliveries().map(({ text }) => text)).toContain(
			`For you: news of ${id}`,
		);
		expect(
			farEnds.telegram.deliveries().filter(({ text }) => text === `For you: news of ${id}`),
		).toHaveLength(1);
		expect(said[10]).toMatch(
			/^This work is running by execution \d+.*\n.*asked for claim → claimed/,
		);
		expect(said[11]).toMatch(/^Passed/);
		expect(said[12]).toMatch(/^Blocked/);
		expect(said[13]).toMatch(/64 hex digits/);

		const [{ token }] = await works(`${id}-claim`);
		expect(read.join()).not.toContain(token);
		expect(read.join()).not.toContain('4712:secret');
		await queryLedger(
			`update :schema.work_log set state = 'done', completed_at = now(), last_done_at = now(),
			locked_until = null, result = to_json(repeat('long ', 40000)) where kind = $1`,
			[`${id}-claim`],
		);
		const large = await run(version, `${id} large`, [
			[claim, explain, { tool: 'List', arguments: { kind: `${id}-claim` } }],
		]);
		for (const text of large.read) expect(text.length).toBeLessThan(10_000);
		expect(large.read[0]).toMatch(
			/Already done at .* Result: .*long long.*\(cut: the first 4000 of/,
		);
	});

	test('arguments that are missing, empty or of a wrong sort claim and send nothing', async () => {
		const before = farEnds.telegram.deliveries().length;
		const known = await works(`${id}-claim`);
		const bad: Array<[string, Record<string, unknown>]> = [
			['no key', {}],
			['null', { key: null }],
			['a list', { key: ['a', 'b'] }],
			['an object', { key: { a: 1 } }],
		];
		for (const [what, given] of bad) {
			const { status, read } = await run(version, `${id} ${what}`, [
				[{ tool: 'Claim', arguments: given }],
			]);
			// agents up to version 2 check arguments themselves, and end there
			if (version < 3) {
				expect([what, status]).toEqual([what, 500]);
				const [last] = await n8n.lastExecutions(id, 1);
				expect((await n8n.execution(last)).error).toContain('did not match expected schema');
				continue;
			}
			expect([what, status]).toEqual([what, 200]);
			expect(responses(read)).toEqual([
				expect.stringMatching(/^The argument "key" is .*Nothing was done\. Call this tool again/),
			]);
		}
		const { status, read } = await run(version, `${id} empty`, [
			[
				{ tool: 'Claim', arguments: { key: ' ' } },
				{ tool: 'Claim', arguments: { key: 'undefined' } },
				{ tool: 'Claim_or_Nothing', arguments: {} },
				{ tool: 'Tell', arguments: { chat: 'Bob', text: 'Hello' } },
				{ tool: 'Explain', arguments: { kind: '', key: '' } },
				{ tool: 'May_Ship', arguments: { order: '' } },
			],
		]);
		expect(status).toBe(200);
		expect(responses(read)).toEqual([
			expect.stringMatching(/Key.*empty/),
			expect.stringMatching(/Key.*"undefined"/),
			expect.stringMatching(/Key.*empty/),
			expect.stringMatching(/^Chat ID must be/),
			expect.stringMatching(/kind/i),
			expect.not.stringMatching(/^Passed/),
		]);
		if (version >= 3) {
			const list = { chat: '42', text: ['a', 'b'] };
			const told = await run(version, `${id} list of texts`, [
				[
					{ tool: 'Tell', arguments: list },
					{ tool: 'Tell', arguments: { chat: '42' } },
				],
			]);
			expect(responses(told.read)).toEqual([
				expect.stringMatching(/^The argument "text" is a list, not one text/),
				expect.stringMatching(/^The argument "text" is missing/),
			]);
		}
		expect(await works(`${id}-claim`)).toEqual(known);
		expect(farEnds.telegram.deliveries()).toHaveLength(before);
	});

	test('a model cannot put a key or a proof of its own in the place of the workflow’s', async () => {
		const orderId = `${id}-own`;
		const forged = { body: { order_id: 'forged' }, order_id: 'forged', invoice_number: 'forged' };
		const { status, read } = await run(version, orderId, [
			[
				{ tool: 'Claim_Order', arguments: forged },
				{ tool: 'Claim_Order', arguments: {} },
				{ tool: 'May_Pay', arguments: forged },
				{ tool: 'Bill', arguments: { text: 'bill it', ...forged } },
			],
		]);
		expect(status).toBe(200);
		expect((await works(`${id}-order`)).map(({ key }) => key)).toEqual([orderId]);
		expect(read[2]).not.toContain('Passed');
		expect(await invoiceServer.invoices(orderId)).toHaveLength(1);
		expect(await invoiceServer.invoices('forged')).toEqual([]);
		expect((await works(billKind(version))).map(({ key }) => key)).not.toContain('forged');
	});

	test('two calls about the same content are one work, whatever n8n calls them', async () => {
		const call: Call = { tool: 'Claim_Content', arguments: {} };
		await run(version, `${id} content`, [[call], [call]]);
		// up to version 2 a tool does not see the agent's item: there is no content, and nothing is claimed
		expect(await works(`${id}-content`)).toHaveLength(version < 3 ? 0 : 1);
	});
});

test('n8n is killed while the model holds a tool’s answer, and between effect and completion: the agent that runs again reads what is known and stops (cases 68, 103)', async () => {
	const { model } = farEnds;
	const call: Call = { tool: 'Bill', arguments: { text: 'bill it' } };
	const lost: Array<Promise<string>> = [];
	const deliver = (version: number, about: string) =>
		void lost.push(
			n8n.webhook(idOf(version), { text: about, order_id: about }).then(
				() => 'answered',
				() => 'connection lost',
			),
		);
	for (const version of VERSIONS) {
		const id = idOf(version);
		// the tool has answered, and the agent has not ended
		model.order({ calls: [call] });
		model.order({ hold: `${id}-answered` });
		deliver(version, `${id}-answered`);
		await model.stoppedAt(`${id}-answered`);
		// the invoice exists, and its answer has not come
		await invoiceServer.behave(`${id}-unanswered`, { hold: true });
		model.order({ calls: [call] });
		deliver(version, `${id}-unanswered`);
		await invoiceServer.invoiceHeld(`${id}-unanswered`);
	}
	await order('/n8n/kill');
	for (const version of VERSIONS) {
		model.release(`${idOf(version)}-answered`);
		await invoiceServer.release(`${idOf(version)}-unanswered`);
	}
	await order('/n8n/start');
	expect(await Promise.all(lost)).toEqual(lost.map(() => 'connection lost'));

	for (const version of VERSIONS) {
		const id = idOf(version);
		const again = await run(version, `${id}-answered again`, [[call]], `${id}-answered`);
		const [invoice] = await invoiceServer.invoices(`${id}-answered`);
		expect(responses(again.read)).toEqual([
			expect.stringMatching(`^Already done at .* \\(reference ${invoice.invoice_id}\\)`),
		]);
		expect(await invoiceServer.invoices(`${id}-answered`)).toHaveLength(1);

		await leaseEnded(billKind(version));
		const unknown = await run(version, `${id}-unanswered again`, [[call]], `${id}-unanswered`);
		expect(responses(unknown.read)).toEqual([expect.stringMatching(/^Held for review/)]);
		expect(await invoiceServer.invoices(`${id}-unanswered`)).toHaveLength(1);
	}
}, 240_000);

describe('guarded-agent-tool.json', () => {
	let systems: Awaited<ReturnType<typeof startDecisionSystems>>;
	beforeAll(async () => {
		systems = await startDecisionSystems();
		await importShipped(
			'guarded-agent-tool.json',
			({ nodes }) => {
				for (const node of nodes) {
					const text = JSON.stringify(node.parameters);
					node.parameters = JSON.parse(text.replaceAll('https://shop.example', systems.url));
				}
			},
			await importFarEnds(farEnds),
		);
	});

	const refund = (amount: number, reason: string): Call => ({
		tool: 'Refund_the_Order',
		arguments: { amount, reason },
	});
	const tell = (text: string): Call => ({ tool: 'Tell_the_Team', arguments: { text } });
	async function deliver(name: string, turns: Call[][]) {
		for (const calls of turns) farEnds.model.order({ calls });
		farEnds.model.order({ content: `The end of ${name}` });
		const body = { case_id: `case ${name}`, order_id: `order ${name}`, text: `About ${name}` };
		expect(await n8n.webhook('support-case', body)).toMatchObject({
			status: 200,
			body: { answer: `The end of ${name}` },
		});
		return responses(farEnds.model.read(body.text));
	}

	test('whatever the model calls it with and however often, and when the case comes again: one refund, one message', async () => {
		const said = await deliver('a', [
			[refund(10, 'late'), refund(12, 'too late'), refund(10, 'late')],
			[tell('Refunded 10.'), tell('I have refunded it.')],
		]);
		const [action, ...others] = systems.made('actions', 'order a');
		expect(others).toEqual([]);
		expect(JSON.parse(action.text)).toEqual({
			action: 'refund',
			order_id: 'order a',
			amount: 10,
			reason: 'late',
		});
		const done = expect.stringMatching(`^Already done at .* \\(reference ${action.id}\\)`);
		expect(said).toEqual([
			`Refunded now: action ${action.id}.`,
			done,
			done,
			expect.stringMatching(/^Sent to chat/),
			expect.stringMatching(/^Already sent to chat/),
		]);
		expect(await deliver('a', [[refund(99, 'again')]])).toEqual([done]);
		expect(systems.made('actions', 'order a')).toHaveLength(1);
	});

	test('a refund whose end nobody knows is told as such, and not tried again', async () => {
		await systems.close();
		const unknown = await deliver('b', [[refund(10, 'late')], [refund(10, 'late')]]);
		expect(unknown).toEqual([
			expect.stringMatching(/^It is not known/),
			expect.stringMatching(/^Held for review/),
		]);
	});
});
