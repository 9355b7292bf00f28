/** dead-letter-to-telegram.json together with retry-runner.json: from a dead order to its invoice, by one click. */

import { startTelegramServer } from '../../scripts/n8n/telegram-server';
import { importVariant } from './example';
import { importShipped, nodeOf } from './shipped';
import { closeLedger, invoiceServer, n8n, queryLedger, until } from './stage';

const KIND = 'invoice-dead';
const ORDER = 'dead <b>order</b>';
const PASSWORD = 'p@ss:w/ord';
const ids: string[] = [];
let telegram: Awaited<ReturnType<typeof startTelegramServer>>;

beforeAll(async () => {
	telegram = await startTelegramServer();
	const mayReplay = await n8n.importCredential({
		name: 'Who May Replay',
		type: 'httpBasicAuth',
		data: { user: 'on-call', password: PASSWORD },
	});
	const bot = await n8n.importCredential({
		name: 'Telegram',
		type: 'telegramApi',
		data: { accessToken: '4712:secret', baseUrl: telegram.url },
	});
	await importVariant({ route: KIND, kind: KIND, attempts: 1 });
	ids.push(
		await importShipped(
			'dead-letter-to-telegram.json',
			(workflow) => {
				Object.assign(nodeOf(workflow, 'Dead Letter').parameters, {
					kinds: KIND,
					intervalSeconds: 1,
				});
				nodeOf(workflow, 'Create Replay Link').parameters.pageUrl =
					`${n8n.baseUrl}/webhook/replay-work`;
			},
			{ httpBasicAuth: mayReplay, telegramApi: bot },
		),
		await importShipped('retry-runner.json', (workflow) => {
			Object.assign(nodeOf(workflow, 'Retry Is Due').parameters, {
				kinds: KIND,
				intervalSeconds: 1,
			});
		}),
	);
});

afterAll(async () => {
	for (const id of ids) await n8n.rest('POST', `/workflows/${id}/deactivate`);
	await telegram.close();
	await closeLedger();
});

const read = async () =>
	(
		await queryLedger<{ state: string; attempt: number; external_ref: string | null }>(
			`select state, attempt, external_ref from :schema.work_log where kind = $1`,
			[KIND],
		)
	)[0];

async function open(
	url: string,
	{ form, password = PASSWORD }: { form?: Record<string, string>; password?: string | null } = {},
) {
	const response = await fetch(url, {
		method: form === undefined ? 'GET' : 'POST',
		headers:
			password === null
				? {}
				: { authorization: `Basic ${Buffer.from(`on-call:${password}`).toString('base64')}` },
		body: form === undefined ? undefined : new URLSearchParams(form),
	});
	return { status: response.status, text: await response.text() };
}

test('a dead order is told once; only the button on the page replays it, once; the retry runner then makes its invoice (case 80)', async () => {
	await invoiceServer.behave(ORDER, { fail: 500, times: 1 });
	expect((await n8n.webhook(KIND, { order_id: ORDER, amount: 9 })).status).toBe(502);
	expect(await read()).toEqual({ state: 'dead', attempt: 1, external_ref: null });

	await until('it is told', async () => telegram.deliveries().length > 0);
	const [message] = telegram.deliveries();
	expect(message.text).toContain(`${KIND} ${ORDER} is dead after 1 attempt`);
	const [[button]] = message.parameters.reply_markup.inline_keyboard as Array<
		Array<{ url: string }>
	>;
	const { url } = button;
	const nonce = new URL(url).searchParams.get('nonce') ?? '';
	expect(nonce).toMatch(/^[\w-]{22}$/);

	// a preview bot and a stranger open the link; whoever is on call looks at the page, twice
	expect((await open(url, { password: null })).status).toBe(401);
	expect((await open(url, { form: { nonce, by: 'stranger' }, password: 'guess' })).status).toBe(
		401,
	);
	const page = await open(url);
	expect((await open(url)).text).toBe(page.text);
	expect(page).toMatchObject({
		status: 200,
		text: expect.stringContaining('<form method="post">'),
	});
	expect(page.text).toContain('dead &#60;b&#62;order&#60;/b&#62;');
	expect(page.text).not.toContain('<b>order');
	expect(await read()).toEqual({ state: 'dead', attempt: 1, external_ref: null });

	const press = async () => await open(url.split('?')[0], { form: { nonce, by: 'Ada' } });
	const pressed = await Promise.all([press(), press()]);
	const words = pressed.map(({ text }) => /<p>(.*)<\/p>/.exec(text)?.[1] ?? text).sort();
	expect(words).toEqual([
		expect.stringMatching(/^Replayed: /),
		expect.stringMatching(/^This link did its work before: .*Ada/),
	]);
	await until('the order is done', async () => (await read()).state === 'done');
	const [invoice, ...others] = await invoiceServer.invoices(ORDER);
	expect(others).toEqual([]);
	expect(await read()).toEqual({ state: 'done', attempt: 1, external_ref: invoice.invoice_id });
	expect(telegram.deliveries()).toHaveLength(1);
	const made = await open(url.split('?')[0], { form: { nonce: 'A'.repeat(22), by: 'Ada' } });
	expect(made).toMatchObject({ status: 409, text: expect.stringContaining('cannot be used') });
	const log = await queryLedger<{ event: string; outcome: string }>(
		`select d.event, d.outcome from :schema.decision_log d join :schema.work_log w using (work_id)
		where w.kind = $1 and d.event in ('announce', 'replay') order by d.id`,
		[KIND],
	);
	expect(log.map(({ event, outcome }) => `${event} ${outcome}`)).toEqual([
		'announce handed_out',
		'announce acknowledged',
		'replay due',
	]);
});

test('while Telegram does not answer, the dead letter is not taken for told: it comes again, and is then told', async () => {
	const told = telegram.deliveries().length;
	telegram.behave('*', { fail: { code: 502, description: 'Bad Gateway' }, times: 1 });
	await invoiceServer.behave('dead-2', { fail: 500 });
	await n8n.webhook(KIND, { order_id: 'dead-2' });
	const announcement = async () =>
		(
			await queryLedger<{ state: string; attempt: number; last_error: string | null }>(
				`select a.state, a.attempt, a.last_error from :schema.announcements a
				join :schema.work_log w on w.work_id = a.subject_id where w.kind = $1 and w.key = 'dead-2'`,
				[KIND],
			)
		)[0];
	await until('its execution has failed', async () => (await announcement())?.state === 'waiting');
	expect(await announcement()).toEqual({
		state: 'waiting',
		attempt: 1,
		last_error: expect.stringContaining('was not told'),
	});
	await queryLedger(
		`update :schema.announcements a set next_attempt_at = clock_timestamp() from :schema.work_log w
		where w.work_id = a.subject_id and w.kind = $1 and w.key = 'dead-2'`,
		[KIND],
	);
	await until('it is told', async () => (await announcement())?.state === 'acknowledged');
	const [message, ...others] = telegram.deliveries().slice(told);
	expect(others).toEqual([]);
	expect(message.text).toContain('dead-2 is dead');
});
