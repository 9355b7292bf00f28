/**
 * Examples about decisions: classify-mail.json and approve-agent-actions.json, with n8n's own model nodes. The model
 * answers differently every time, so what is asked twice shows.
 */

import { Client } from 'pg';

import { startModelServer } from '../../scripts/n8n/model-server';
import { LEDGER_SCHEMA } from '../../scripts/n8n/stage';
import { startTelegramServer } from '../../scripts/n8n/telegram-server';
import { startDecisionSystems } from './decision-systems';
import { importShipped, nodeOf, shipped, type ShippedWorkflow } from './shipped';
import { closeLedger, ledgerDatabase, n8n, order, queryLedger, until } from './stage';

let model: Awaited<ReturnType<typeof startModelServer>>;
let systems: Awaited<ReturnType<typeof startDecisionSystems>>;

const LABELS = ['billing', 'support', 'sales', 'spam'];
const classify = (number: number) =>
	JSON.stringify({ label: LABELS[number % LABELS.length], reason: `answer ${number}` });

/** Addresses of the examples, and where these tests have them. */
function pointHere({ nodes }: ShippedWorkflow): void {
	const addresses = [
		['https://tickets.example', systems.url],
		['https://helpdesk.example', systems.url],
		['https://shop.example', systems.url],
		['https://n8n.example.com', n8n.baseUrl],
	];
	for (const node of nodes) {
		let text = JSON.stringify(node.parameters);
		for (const [from, to] of addresses) text = text.replaceAll(from, to);
		node.parameters = JSON.parse(text) as Record<string, unknown>;
	}
}

const importModel = async () => ({
	openAiApi: await n8n.importCredential({
		name: 'Test Model',
		type: 'openAiApi',
		data: { apiKey: 'no-key', url: `${model.url}/v1` },
	}),
});

/** Runs while a lock is held in the ledger's database, which ends with this. */
async function whileLocked(
	lock: string,
	values: unknown[],
	run: (client: Client) => Promise<void>,
): Promise<void> {
	const client = new Client(ledgerDatabase);
	await client.connect();
	try {
		await client.query('begin');
		await client.query(lock, values);
		await run(client);
	} finally {
		await client.end();
	}
}

afterEach(async () => {
	await model.close();
	await systems.close();
});
afterAll(closeLedger);

describe('classify-mail.json', () => {
	const FILE = 'classify-mail.json';
	const deliver = async (mail: Record<string, string>) => await n8n.webhook('classify-mail', mail);

	beforeEach(async () => {
		model = await startModelServer({ say: classify });
		systems = await startDecisionSystems();
		await importShipped(FILE, pointHere, await importModel());
	});

	const mailOf = (name: string) => ({
		message_id: `<${name}@example.com>`,
		subject: `About ${name}`,
		text: `The text of ${name}.`,
	});

	/** What is in the ledger about the question of a mail. */
	const decided = async (mail: { subject: string }) =>
		(
			await queryLedger<{ state: string; value: { label: string; reason: string } | null }>(
				`select state, value from :schema.llm_decisions
				where kind = 'classify-mail' and position($1 in parts::text) > 0`,
				[mail.subject],
			)
		)[0];

	test('the schema that is part of the question is the one that the answer has to fit', () => {
		const workflow = shipped(FILE);
		const asked = nodeOf(workflow, 'Look Up').parameters.influences;
		const checked = nodeOf(workflow, 'Store').parameters.options;
		expect((asked as { outputSchema: string }).outputSchema).toBe(
			(checked as { schema: string }).schema,
		);
	});

	test('n8n is killed between decision and apply (case 79): the next delivery applies the first decision, and the model was asked once', async () => {
		const mail = mailOf('killed');
		// its tables are there from the first call on
		expect((await deliver(mailOf('before'))).status).toBe(200);
		// the claim of the ticket cannot get through
		const table = `${LEDGER_SCHEMA}.work_log`;
		await whileLocked(`lock table ${table} in share mode`, [], async (lock) => {
			const call = deliver(mail).then(
				() => 'answered',
				() => 'connection lost',
			);
			await until('the decision is stored', async () => (await decided(mail))?.state === 'stored');
			await order('/n8n/kill');
			expect(await call).toBe('connection lost');
			// a statement that was on its way goes with its client, before the server looks whether that is there
			await lock.query(
				`select pg_terminate_backend(pid) from pg_locks where relation = $1::regclass and not granted`,
				[table],
			);
		});
		expect(systems.made('tickets', mail.message_id)).toEqual([]);
		const { value } = await decided(mail);
		await order('/n8n/start');

		const next = await deliver(mail);
		const [ticket, ...others] = systems.made('tickets', mail.message_id);
		expect(others).toEqual([]);
		expect(next).toMatchObject({
			status: 200,
			body: { ticket_id: ticket.id, label: value?.label },
		});
		expect(JSON.parse(ticket.text)).toMatchObject({ label: value?.label, note: value?.reason });
		expect(model.calls(mail.text)).toBe(1);
		expect(await deliver(mail)).toMatchObject({ status: 200, body: next.body });
		expect(systems.made('tickets', mail.message_id)).toHaveLength(1);
		const [{ carried }] = await queryLedger<{ carried: boolean }>(
			`select w.decision_key = d.decision_key as carried
			from :schema.work_log w, :schema.llm_decisions d
			where w.kind = 'mail-ticket' and w.key = $1 and position($2 in d.parts::text) > 0`,
			[mail.message_id, mail.subject],
		);
		expect(carried).toBe(true);
	});

	test('delivered twice in the same second: one call of the model, one ticket, and both get it', async () => {
		const mail = mailOf('twice');
		model.order({ hold: 'twice' });
		const calls = [deliver(mail), deliver(mail)];
		await model.stoppedAt('twice');
		await until('the other delivery has met the question', async () => {
			const met = await queryLedger(
				`select 1 from :schema.decision_log l join :schema.llm_decisions d on d.decision_key = l.work_id
				where l.outcome = 'busy' and position($1 in d.parts::text) > 0`,
				[mail.subject],
			);
			return met.length === 1;
		});
		model.release('twice');
		const answers = await Promise.all(calls);
		const [ticket, ...others] = systems.made('tickets', mail.message_id);
		expect(others).toEqual([]);
		for (const answer of answers) {
			expect(answer).toMatchObject({ status: 200, body: { ticket_id: ticket.id } });
		}
		expect(model.calls(mail.text)).toBe(1);
	});

	test('a second mail with the same text is not asked about again, and gets a ticket of its own', async () => {
		const mail = mailOf('same text');
		const first = await deliver(mail);
		const second = await deliver({ ...mail, message_id: '<other@example.com>' });
		expect(second).toMatchObject({ status: 200, body: { label: first.body.label } });
		expect(second.body.ticket_id).not.toBe(first.body.ticket_id);
		expect(model.calls(mail.text)).toBe(1);
	});

	test('an answer that is cut off, that does not fit, or that is an error is not stored (case 74): the next delivery asks again', async () => {
		const mail = mailOf('bad answers');
		const bad = [
			{ how: { content: '{"label": "bil', finishReason: 'length' }, says: 'JSON' },
			{ how: { content: '{"label": "urgent", "reason": "it says so"}' }, says: 'label' },
			{ how: { status: 400 }, says: "model's step failed" },
		];
		for (const { how, says } of bad) {
			model.order(how);
			expect(await deliver(mail)).toMatchObject({
				status: 502,
				body: { status: 'not_stored', message: expect.stringContaining(says) },
			});
			expect(await decided(mail)).toEqual({ state: 'open', value: null });
		}
		expect(systems.made('tickets', mail.message_id)).toEqual([]);
		expect((await deliver(mail)).status).toBe(200);
		expect(model.calls(mail.text)).toBe(bad.length + 1);
		expect(systems.made('tickets', mail.message_id)).toHaveLength(1);
	});

	test('what is no mail is refused and asked about by nobody', async () => {
		expect(await n8n.webhook('classify-mail', { message_id: '<x@example.com>' })).toMatchObject({
			status: 422,
			body: { status: 'refused' },
		});
	});
});

describe('approve-agent-actions.json', () => {
	const PASSWORD = 'p@ss:w/ord';
	let telegram: Awaited<ReturnType<typeof startTelegramServer>>;
	let workflowId = '';
	/** The order of the case that is worked on: the agent may not touch another one. */
	let orderId = '';
	const propose = (number: number) =>
		JSON.stringify({
			reason: `answer ${number} <b>é</b>`,
			order_id: orderId,
			amount: number * 10 + 0.5,
			action: 'refund',
		});

	beforeEach(async () => {
		model = await startModelServer({ say: propose });
		systems = await startDecisionSystems();
		telegram = await startTelegramServer();
		workflowId = await importShipped('approve-agent-actions.json', pointHere, {
			...(await importModel()),
			httpBasicAuth: await n8n.importCredential({
				name: 'Who May Approve',
				type: 'httpBasicAuth',
				data: { user: 'approver', password: PASSWORD },
			}),
			telegramApi: await n8n.importCredential({
				name: 'Telegram',
				type: 'telegramApi',
				data: { accessToken: '4712:secret', baseUrl: telegram.url },
			}),
		});
	});
	afterEach(async () => await telegram.close());

	const deliver = async (case_id: string) => await n8n.webhook('agent-case', { case_id });

	function addCase(case_id: string): string {
		orderId = `order of ${case_id}`;
		const text = `What ${case_id} complains about`;
		systems.addCase({ case_id, order_id: orderId, text });
		return text;
	}

	/** The page behind the button of the only message about this case. */
	function link(case_id: string): string {
		const [message, ...others] = telegram
			.deliveries()
			.filter(({ text }) => text.includes(`for case ${case_id}:`));
		expect(others).toEqual([]);
		const [[{ url }]] = message.parameters.reply_markup.inline_keyboard as [[{ url: string }]];
		return url;
	}

	async function open(url: string, form?: Record<string, string>, password = PASSWORD) {
		const authorization = `Basic ${Buffer.from(`approver:${password}`).toString('base64')}`;
		const response = await fetch(url, {
			method: form === undefined ? 'GET' : 'POST',
			headers: password === '' ? {} : { authorization },
			body: form === undefined ? undefined : new URLSearchParams(form),
		});
		const text = await response.text();
		return { status: response.status, text, says: /<p>(.*?)<\/p>/.exec(text)?.[1] ?? text };
	}

	const plain = (html: string) =>
		html.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)));

	/** The page as a person has it: what it shows, and what pressing a button sends. */
	async function look(url: string) {
		const { status, text } = await open(url);
		expect(status).toBe(200);
		const fields = [...text.matchAll(/type="hidden" name="(\w+)" value="([^"]*)"/g)];
		const form = Object.fromEntries(fields.map(([, name, value]) => [name, plain(value)]));
		const value = /<pre>([^]*)<\/pre>/.exec(text)?.[1] ?? '';
		const press = async (verdict: string, by: string, changes: Record<string, string> = {}) =>
			await open(url.split('?')[0], { ...form, verdict, by, ...changes });
		return { text, value: plain(value), press };
	}

	/** All of them stand before the proposal when it is let go. */
	async function atOnce<Answer>(key: string, ...presses: Array<() => Promise<Answer>>) {
		const answers: Array<Promise<Answer>> = [];
		await whileLocked(
			`select 1 from ${LEDGER_SCHEMA}.llm_decisions where decision_key = $1 for update`,
			[key],
			async () => {
				answers.push(...presses.map(async (press) => await press()));
				// by another connection: one transaction sees the backends there were when it first looked
				await until('all have come to the proposal', async () => {
					const waiting = await queryLedger(
						`select 1 from pg_stat_activity
						where datname = current_database() and wait_event_type = 'Lock'`,
					);
					return waiting.length >= presses.length;
				});
			},
		);
		return await Promise.all(answers);
	}

	/** What a verdict set off goes on after its page is answered. */
	async function quiet(): Promise<void> {
		const filter = encodeURIComponent(
			JSON.stringify({ workflowId, status: ['new', 'running', 'waiting'] }),
		);
		await until('every run of the flow has ended', async () => {
			const { results } = await n8n.rest('GET', `/executions?filter=${filter}&limit=1`);
			return results.length === 0;
		});
	}

	const proposal = async (case_id: string) =>
		(
			await queryLedger<{ state: string; approver: string | null; value: string }>(
				`select state, approver, value::text as value from :schema.llm_decisions
				where kind = 'case-action' and position($1 in parts::text) > 0`,
				[case_id],
			)
		)[0];

	test('a preview approves nothing (case 80); of two who approve at once the first stands; then exactly what was approved is carried out, once', async () => {
		const text = addCase('case-1');
		expect(await deliver('case-1')).toMatchObject({
			status: 202,
			body: { status: 'proposed', asked: 'sent' },
		});
		const url = link('case-1');

		// programs open the link: without the password, with it, and with forms of their own
		const address = url.split('?')[0];
		const key = new URL(url).searchParams.get('key') ?? '';
		expect((await open(url, undefined, '')).status).toBe(401);
		expect((await open(address, { key, verdict: 'approve', by: 'bot' }, '')).status).toBe(401);
		const page = await look(url);
		expect((await open(url)).text).toBe(page.text);
		expect(page.text).not.toContain('<b>');
		expect((await page.press('approve', ' ')).status).toBe(409);
		expect((await page.press('approve', 'Ada', { shown: 'f'.repeat(64) })).status).toBe(409);
		expect((await page.press('approve', 'Ada', { shown: '' })).status).toBe(409);
		expect((await page.press('', 'Ada')).status).toBe(409);
		expect(await proposal('case-1')).toMatchObject({ state: 'proposed', approver: null });

		// a delivery in between asks nobody again
		expect(await deliver('case-1')).toMatchObject({
			status: 202,
			body: { status: 'waiting', asked: 'duplicate' },
		});
		await quiet();
		expect(telegram.deliveries()).toHaveLength(1);
		expect(systems.made('actions', orderId)).toEqual([]);

		const pressed = await atOnce(
			key,
			() => page.press('approve', 'Ada'),
			() => page.press('approve', 'Grace'),
		);
		const { approver, state, value } = await proposal('case-1');
		expect([state, ['Ada', 'Grace'].includes(approver ?? '')]).toEqual(['approved', true]);
		expect(pressed.map(({ says }) => says).sort()).toEqual([
			expect.stringMatching(`^Approved by ${approver} `),
			expect.stringMatching(`^It was approved by ${approver} .*that stands`),
		]);
		await until('it is carried out', async () => {
			await quiet();
			return systems.made('actions', orderId).length > 0;
		});
		const again = await deliver('case-1');
		const [action, ...others] = systems.made('actions', orderId);
		expect(others).toEqual([]);
		expect(again).toMatchObject({
			status: 200,
			body: { status: 'duplicate', action_id: action.id },
		});
		// byte for byte what is stored, what the page showed, and what the model said the only time it was asked
		expect(action.text).toBe(value);
		expect(JSON.stringify(JSON.parse(page.value))).toBe(value);
		expect(value).toBe(propose(1));
		expect(model.calls(text)).toBe(1);
		expect(propose(2)).not.toBe(value);
		expect((await page.press('reject', 'Bob')).says).toContain(`approved by ${approver}`);
		expect(telegram.deliveries()).toHaveLength(1);
	});

	test('rejected, nothing happens, whoever approves it afterwards and however often the case comes', async () => {
		const text = addCase('case-2');
		await deliver('case-2');
		const page = await look(link('case-2'));
		expect(await page.press('reject', 'Bob')).toMatchObject({
			status: 200,
			says: expect.stringMatching(/^Rejected by Bob /),
		});
		expect(await page.press('approve', 'Ada')).toMatchObject({
			status: 409,
			says: expect.stringMatching(/^It was rejected by Bob /),
		});
		expect(await deliver('case-2')).toMatchObject({ status: 200, body: { status: 'rejected' } });
		await quiet();
		expect(await proposal('case-2')).toMatchObject({ state: 'rejected', approver: 'Bob' });
		expect(systems.made('actions', orderId)).toEqual([]);
		expect(model.calls(text)).toBe(1);
		expect(telegram.deliveries()).toHaveLength(1);
	});

	test('approved and rejected at once: one of them stands, and what stands is done', async () => {
		addCase('case-3');
		await deliver('case-3');
		const page = await look(link('case-3'));
		await atOnce(
			new URL(link('case-3')).searchParams.get('key') ?? '',
			() => page.press('approve', 'Ada'),
			() => page.press('reject', 'Bob'),
		);
		await quiet();
		await deliver('case-3');
		const { state, approver } = await proposal('case-3');
		expect(approver).toBe(state === 'approved' ? 'Ada' : 'Bob');
		expect(systems.made('actions', orderId)).toHaveLength(state === 'approved' ? 1 : 0);
	});

	test('while nobody can be asked the case is answered "later", and its next delivery asks, without asking the model again', async () => {
		const text = addCase('case-4');
		telegram.behave('*', { fail: { code: 502, description: 'Bad Gateway' }, times: 1 });
		expect(await deliver('case-4')).toMatchObject({ status: 503, body: { status: 'proposed' } });
		expect(telegram.deliveries()).toEqual([]);
		await until('the approver is asked', async () => (await deliver('case-4')).status === 202);
		expect(link('case-4')).toContain('case_id=case-4');
		expect(model.calls(text)).toBe(1);
	});

	test('an action on another order than that of the case is not even proposed', async () => {
		addCase('case-5');
		orderId = 'an order of somebody else';
		expect(await deliver('case-5')).toMatchObject({
			status: 502,
			body: { status: 'not_stored', message: expect.stringContaining('order_id') },
		});
		expect(telegram.deliveries()).toEqual([]);
	});
});
