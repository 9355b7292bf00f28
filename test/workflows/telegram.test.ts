import type { IDataObject } from 'n8n-workflow';

import { startTelegramServer } from '../../scripts/n8n/telegram-server';
import {
	step,
	telegram,
	telegramTool,
	workLedger,
	type Flow,
	type NodeOfTest,
	type Ran,
} from './run-workflow';
import { WorkflowStage } from './stage';

const TOKEN = '4711:AAH-very_secret_part';
const stage = WorkflowStage.forThisFile();
let server: Awaited<ReturnType<typeof startTelegramServer>>;
beforeAll(async () => {
	server = await startTelegramServer();
});
afterEach(() => {
	server.reset();
});
afterAll(async () => {
	await server.close();
});

const ON_ERROR = ['stopWorkflow', 'continueRegularOutput', 'continueErrorOutput'] as const;
let lastChat = 5_000;
const newChat = () => String(++lastChat);

async function run(flow: Omit<Flow, 'credential'> & Partial<Flow>): Promise<Ran> {
	const ran = await stage.run({ telegram: { accessToken: TOKEN, baseUrl: server.url }, ...flow });
	// whatever happened, the secret is in no item, error or hint
	expect(JSON.stringify([ran, ran.json('Telegram', 0), ran.json('Telegram', 2)])).not.toContain(
		'very_secret',
	);
	return ran;
}

const BY_ITEM = { chatId: '={{ $json.chat }}', text: '={{ $json.text }}' };

/** One Send-Once Telegram that reads chat and text from its items. */
const send = async (
	items: IDataObject[],
	parameters: IDataObject = {},
	more: Partial<Flow> & { settings?: NodeOfTest['settings'] } = {},
) =>
	await run({
		items,
		nodes: [telegram({ ...BY_ITEM, ...parameters }, more.settings)],
		...more,
	});

const statuses = (ran: Ran, field = 'message') =>
	[0, 1, 2].map((output) =>
		ran.json('Telegram', output).map((json) => (json[field] as IDataObject).status),
	);
const field = (ran: Ran, output: number, at = 0) =>
	ran.json('Telegram', output)[at].message as IDataObject;

describe('a message goes out once', () => {
	test('Sent, then Duplicate with the original id and time; json, binary and pairing stay', async () => {
		const chat = newChat();
		const items = [{ json: { chat, text: 'Backup done' }, binary: { file: { data: '', mimeType: 'text/plain' } } }];
		const first = await run({ items, nodes: [telegram(BY_ITEM)] });
		expect(first.out('Telegram')).toEqual([
			{
				json: {
					chat,
					text: 'Backup done',
					message: {
						status: 'sent',
						message: expect.stringContaining(`Sent to chat ${chat}`),
						chatId: chat,
						messageRef: expect.stringMatching(/^[0-9a-f]{64}$/),
						messageId: server.deliveries(chat)[0].messageId,
						sentAt: expect.stringMatching(/Z$/),
					},
				},
				binary: items[0].binary,
				pairedItem: { item: 0 },
			},
		]);
		const second = await run({ items, nodes: [telegram(BY_ITEM)] });
		expect(statuses(second)).toEqual([[], ['duplicate'], []]);
		expect(field(second, 1)).toMatchObject({
			messageId: field(first, 0).messageId,
			sentAt: field(first, 0).sentAt,
		});
		expect(server.deliveries(chat)).toHaveLength(1);
		expect(server.deliveries(chat)[0]).toMatchObject({
			text: 'Backup done',
			parseMode: null,
			parameters: { chat_id: chat, text: 'Backup done' },
		});
	});

	test('in the editor a duplicate says how to test again', async () => {
		const items = [{ chat: newChat(), text: 'x' }];
		await send(items, {}, { mode: 'manual' });
		const again = await send(items, {}, { mode: 'manual' });
		expect(field(again, 1).message).toMatch(/To test again, change the text/);
	});

	test('twice in one batch: the later item is a duplicate of the first', async () => {
		const chat = newChat();
		const ran = await send([
			{ chat, text: 'x' },
			{ chat: Number(chat), text: 'x' },
			{ chat, text: 'y' },
		]);
		expect(statuses(ran)).toEqual([['sent', 'sent'], ['duplicate'], []]);
		expect(server.deliveries(chat).map(({ text }) => text)).toEqual(['x', 'y']);
	});

	test('twice in the same second, by two executions: one delivery', async () => {
		const chat = newChat();
		server.behave(chat, { hold: true });
		const first = send([{ chat, text: 'x' }]);
		await server.held(chat);
		const second = await send([{ chat, text: 'x' }]);
		expect(statuses(second)).toEqual([[], [], ['in_progress']]);
		server.release(chat);
		expect(statuses(await first)).toEqual([['sent'], [], []]);
		expect(server.deliveries(chat)).toHaveLength(1);
	});

	test('another silence or protection is the same message; other buttons are another one', async () => {
		const chat = newChat();
		const items = [{ chat, text: 'x' }];
		await send(items);
		const silent = await send(items, { options: { silent: true, protect: true } });
		expect(statuses(silent)).toEqual([[], ['duplicate'], []]);
		const button = { text: 'Open', does: 'url', value: 'https://example.com' };
		const ran = await send(items, {
			options: {
				buttons: { button: [button, { ...button, sameRow: true }, { ...button, does: 'callback_data', value: 'a' }] },
				silent: true,
				protect: true,
				threadId: '7',
				replyTo: 3,
				noLinkPreview: true,
			},
		});
		expect(statuses(ran)).toEqual([['sent'], [], []]);
		expect(server.deliveries(chat)[1].parameters).toEqual({
			chat_id: chat,
			text: 'x',
			link_preview_options: { is_disabled: true },
			reply_parameters: { message_id: 3 },
			message_thread_id: 7,
			disable_notification: true,
			protect_content: true,
			reply_markup: {
				inline_keyboard: [
					[
						{ text: 'Open', url: 'https://example.com' },
						{ text: 'Open', url: 'https://example.com' },
					],
					[{ text: 'Open', callback_data: 'a' }],
				],
			},
		});
	});

	test('an own key takes the place of the content', async () => {
		const chat = newChat();
		const options = { key: '=order {{ $json.order }}' };
		await send([{ chat, text: 'your order 7 is on its way, 10:00', order: 7 }], { options });
		const ran = await send([{ chat, text: 'your order 7 is on its way, 10:05', order: 7 }], { options });
		expect(field(ran, 1)).toMatchObject({ status: 'duplicate', contentDiffers: true });
		expect(server.deliveries(chat)).toHaveLength(1);
	});

	test('an own key or a text that changes with every run: refused, or a hint', async () => {
		const chat = newChat();
		const key = await send([{ chat, text: 'x' }], { options: { key: '={{ $execution.id }}' } });
		expect(key.error?.message).toMatch(/Own Key uses \$execution/);
		const text = await send([{ chat, text: 'x' }], { text: '={{ $now }} done' });
		expect(text.hints('Telegram').join()).toMatch(/every run sends another text/);
	});

	test('an own key of which a part gives nothing is refused: all messages without it would be one', async () => {
		const chat = newChat();
		const items = [
			{ chat, text: 'a', order: 1 },
			{ chat, text: 'b' },
			{ chat, text: 'c', order: null },
		];
		const ran = await send(
			items,
			{ options: { key: '=order-{{ $json.order }}' } },
			{ settings: { onError: 'continueRegularOutput' } },
		);
		expect(statuses(ran)).toEqual([['sent'], [], ['refused', 'refused']]);
		expect(field(ran, 2).message).toMatch(/Own Key: \{\{ \$json\.order \}\} gives nothing/);
	});

	test('an expression that was typed where n8n stands on Fixed is not sent, and is no key', async () => {
		const chat = newChat();
		const items = [
			{ chat, text: 'a' },
			{ chat, text: 'b' },
		];
		for (const [parameters, words] of [
			[{ text: 'Order {{ $json.text }}' }, 'Text holds {{ $json.text }}'],
			[{ options: { key: '{{ $json.text }}' } }, 'Own Key" holds "{{ $json.text }}"'],
			[{ chatId: '{{ $json.chat }}' }, 'Chat ID holds {{ $json.chat }}'],
		] as Array<[IDataObject, string]>) {
			const ran = await send(items, parameters, {
				settings: { onError: 'continueRegularOutput' },
			});
			expect(statuses(ran)).toEqual([[], [], ['refused', 'refused']]);
			expect(field(ran, 2).message).toContain(words);
			expect(field(ran, 2).message).toContain('from Fixed to Expression');
		}
		expect(server.deliveries(chat)).toEqual([]);
		// what an item says is its own affair
		const said = await send([{ chat, text: 'Use {{ $json.text }} there' }]);
		expect(statuses(said)).toEqual([['sent'], [], []]);
	});

	test('case 59: an underscore and no parse mode: sent as it stands, no attribution', async () => {
		const chat = newChat();
		const ran = await send([{ chat, text: 'My_Workflow done' }]);
		expect(statuses(ran)).toEqual([['sent'], [], []]);
		expect(server.deliveries(chat)[0].parameters).toEqual({ chat_id: chat, text: 'My_Workflow done' });
	});
});

describe('photos and documents', () => {
	test('a document from binary data: once per content and name', async () => {
		const chat = newChat();
		const withFile = (content: string) => [
			{
				json: { chat },
				binary: {
					data: {
						data: Buffer.from(content).toString('base64'),
						mimeType: 'text/csv',
						fileName: 'Bericht "März".csv',
					},
				},
			},
		];
		const parameters = { operation: 'document', chatId: '={{ $json.chat }}', caption: 'Here it is' };
		for (const [content, expected] of [
			['a,b', [['sent'], [], []]],
			['a,b', [[], ['duplicate'], []]],
			['a,c', [['sent'], [], []]],
		] as const) {
			const ran = await run({ items: withFile(content), nodes: [telegram(parameters)] });
			expect(statuses(ran)).toEqual(expected);
		}
		expect(server.deliveries(chat)).toHaveLength(2);
		expect(server.deliveries(chat)[0]).toMatchObject({
			method: 'sendDocument',
			text: 'Here it is',
			file: { name: 'Bericht %22März%22.csv', type: 'text/csv', size: 3 },
		});
	});

	test('a photo by address or file id; a caption over 1,024 goes on as a message, buttons below the last part', async () => {
		const chat = newChat();
		const photo = { operation: 'photo', chatId: chat, source: 'url', fileUrl: 'https://example.com/a.jpg' };
		const caption = `${'word '.repeat(300)}end`;
		const options = { replyMarkup: '{"inline_keyboard": []}', replyTo: '5' };
		const ran = await run({ items: [{}], nodes: [telegram({ ...photo, caption, options })] });
		expect(field(ran, 0)).toMatchObject({ status: 'sent', parts: 2, sentParts: 2 });
		const [first, second] = server.deliveries(chat);
		expect(first).toMatchObject({
			method: 'sendPhoto',
			parameters: { photo: 'https://example.com/a.jpg', reply_parameters: { message_id: 5 } },
		});
		expect(second).toMatchObject({ method: 'sendMessage', parameters: { reply_markup: { inline_keyboard: [] } } });
		expect(first.parameters.reply_markup).toBeUndefined();
		expect(first.text + second.text).toBe(caption);
		const fileId = await run({
			items: [{}],
			nodes: [telegram({ ...photo, source: 'fileId', fileId: 'AgACAgIAAxkB' })],
		});
		expect(statuses(fileId)).toEqual([['sent'], [], []]);
	});
});

describe('long texts', () => {
	test('case 61: part 2 of 3 fails; the next run sends only parts 2 and 3', async () => {
		const chat = newChat();
		const text = `<b>${'long text 👩‍🚀 '.repeat(650)}</b>`;
		const parameters = { options: { parseMode: 'HTML' } };
		await send([{ chat, text: 'first' }]);
		// the first part passes, the second call fails
		server.behave(chat, { every: 2, fail: { code: 400, description: 'Bad Request: try less' } });
		const first = await send([{ chat, text }], parameters);
		expect(field(first, 2)).toMatchObject({ status: 'permanent', parts: 3, sentParts: 1 });
		server.release(chat);
		const second = await send([{ chat, text }], parameters);
		expect(field(second, 0)).toMatchObject({ status: 'sent', parts: 3, sentParts: 3 });
		const texts = server.deliveries(chat).map((one) => one.text);
		expect(texts).toHaveLength(4);
		expect(new Set(texts).size).toBeGreaterThan(1);
		for (const part of texts.slice(1)) {
			expect(part).toMatch(/^<b>[^<]*<\/b>$/);
			expect(part.isWellFormed()).toBe(true);
			expect(part.length - 7).toBeLessThanOrEqual(4_096);
		}
		expect(texts.slice(1).map((part) => part.slice(3, -4)).join('')).toBe(text.slice(3, -4));
		const third = await send([{ chat, text }], parameters);
		expect(field(third, 1).messageIds).toEqual(field(second, 0).messageIds);
	});

	test('what Telegram cannot parse goes out as plain text by choice, under the same identity', async () => {
		const chat = newChat();
		const items = [{ chat, text: '<b>bold &amp; <i>wrong</b>' }];
		const parse = { parseMode: 'HTML' };
		const refused = await send(items, { options: parse });
		expect(field(refused, 2)).toMatchObject({ status: 'permanent', reason: expect.stringMatching(/can't parse/) });
		const ran = await send(items, { options: { ...parse, plainFallback: true } });
		expect(field(ran, 0)).toMatchObject({ status: 'sent', plainText: true });
		expect(server.deliveries(chat).map(({ text, parseMode }) => [text, parseMode])).toEqual([
			['bold & wrong', null],
		]);
		expect(statuses(await send(items, { options: parse }))).toEqual([[], ['duplicate'], []]);
	});

	test('a long Markdown that cannot be cut is refused with the cure, or sent plain by choice', async () => {
		const chat = newChat();
		const items = [{ chat, text: `*${'bold '.repeat(1_000)}*` }];
		const refused = await send(items, { options: { parseMode: 'MarkdownV2' } });
		expect(refused.error?.message).toMatch(/cannot be cut without breaking its MarkdownV2. Use HTML/);
		const ran = await send(items, { options: { parseMode: 'MarkdownV2', plainFallback: true } });
		expect(field(ran, 0)).toMatchObject({ status: 'sent', parts: 2 });
	});
});

describe('what Telegram answers', () => {
	test('case 64: of three chats the second blocked the bot; the others are sent, no retries', async () => {
		const chats = [newChat(), newChat(), newChat()];
		server.behave(chats[1], {
			fail: { code: 403, description: 'Forbidden: bot was blocked by the user' },
		});
		const ran = await send(chats.map((chat) => ({ chat, text: 'x' })));
		expect(statuses(ran)).toEqual([['sent', 'sent'], [], ['permanent']]);
		expect(field(ran, 2)).toMatchObject({ reason: expect.stringMatching(/blocked by the user/) });
		expect(server.calls(chats[1])).toHaveLength(1);
		// the next run may try again
		server.release(chats[1]);
		const next = await send(chats.map((chat) => ({ chat, text: 'x' })));
		expect(statuses(next)).toEqual([['sent'], ['duplicate', 'duplicate'], []]);
	});

	test('case 56: 429 with retry_after 34 is left for later with the time, and other chats go on', async () => {
		const [flooded, other] = [newChat(), newChat()];
		server.behave(flooded, {
			times: 1,
			fail: { code: 429, description: 'Too Many Requests: retry after 34', parameters: { retry_after: 34 } },
		});
		const before = Date.now();
		const ran = await send([
			{ chat: flooded, text: 'x' },
			{ chat: flooded, text: 'y' },
			{ chat: other, text: 'x' },
		]);
		expect(statuses(ran)).toEqual([['sent'], [], ['retry_later', 'retry_later']]);
		const wait = Date.parse(String(field(ran, 2).retryAt)) - before;
		expect(wait).toBeGreaterThan(33_000);
		expect(wait).toBeLessThan(45_000);
		// neither is another execution let at it, nor is anything recorded as sent
		expect(server.calls(flooded)).toHaveLength(1);
		expect(statuses(await send([{ chat: flooded, text: 'x' }]))).toEqual([[], [], ['retry_later']]);
		expect(server.calls(flooded)).toHaveLength(1);
		await stage.ledger.query('update idempotency.message_chats set blocked_until = null');
		expect(statuses(await send([{ chat: flooded, text: 'x' }]))).toEqual([['sent'], [], []]);
		expect(server.deliveries(flooded)).toHaveLength(1);
	});

	test('case 56: a short retry_after is waited for, in the order of the chat', async () => {
		const chat = newChat();
		server.behave(chat, { times: 1, fail: { code: 429, description: 'Too Many Requests', parameters: { retry_after: 1 } } });
		const ran = await send([
			{ chat, text: 'x' },
			{ chat, text: 'y' },
		]);
		expect(statuses(ran)).toEqual([['sent', 'sent'], [], []]);
		expect(server.deliveries(chat).map(({ text }) => text)).toEqual(['x', 'y']);
		expect(server.calls(chat)).toHaveLength(3);
	});

	test('many chats in a row told to wait mean the bot: the rest is not even tried', async () => {
		server.behave('*', { fail: { code: 429, description: 'Too Many Requests', parameters: { retry_after: 300 } } });
		const ran = await send(Array.from({ length: 30 }, () => ({ chat: newChat(), text: 'x' })));
		expect(ran.json('Telegram', 2)).toHaveLength(30);
		expect(server.calls()).toHaveLength(5);
		await stage.ledger.query('delete from idempotency.message_pacing');
	});

	test('case 62: a group that became a supergroup is followed once, remembered, and both ids count as one', async () => {
		const [old, supergroup] = ['-4001', '-100123'];
		server.behave(old, { migrateTo: supergroup });
		const ran = await send([{ chat: old, text: 'x' }]);
		expect(field(ran, 0)).toMatchObject({ status: 'sent', chatId: supergroup, movedFrom: old });
		const later = await send([
			{ chat: old, text: 'x' },
			{ chat: supergroup, text: 'x' },
			{ chat: old, text: 'y' },
		]);
		expect(statuses(later)).toEqual([['sent'], ['duplicate', 'duplicate'], []]);
		expect(server.calls(old)).toHaveLength(1);
		expect(server.deliveries(supergroup).map(({ text }) => text)).toEqual(['x', 'y']);
	});

	test.each(['not yet known', 'known'])(
		'the same text to a group by its old and its new id, the move %s: one is the duplicate of the other',
		async (known) => {
			const [old, supergroup] = [`-${newChat()}`, `-100${newChat()}`];
			server.behave(old, { migrateTo: supergroup });
			if (known === 'known') await send([{ chat: old, text: 'first' }]);
			const ran = await send([old, old, supergroup].map((chat) => ({ chat, text: 'x' })));
			expect(statuses(ran)).toEqual([['sent'], ['duplicate', 'duplicate'], []]);
			expect(server.deliveries(supergroup).filter(({ text }) => text === 'x')).toHaveLength(1);
		},
	);

	test('one chat that waits again and again is not the whole bot', async () => {
		const chat = newChat();
		const parameters = { retry_after: 0 };
		server.behave(chat, { times: 6, fail: { code: 429, description: 'Too Many Requests', parameters } });
		const ran = await send([{ chat, text: 'x' }], { options: { maxWaitSeconds: 10 } });
		expect(statuses(ran)).toEqual([['sent'], [], []]);
		expect(server.calls(chat)).toHaveLength(7);
		expect(
			await stage.ledger.query('select bot from idempotency.message_pacing where blocked_until is not null'),
		).toEqual([]);
	}, 30_000);

	test('a chat that moves again while it is followed is left to the next run', async () => {
		server.behave('-4002', { migrateTo: '-100124' });
		server.behave('-100124', { migrateTo: '-100125' });
		const ran = await send([{ chat: '-4002', text: 'x' }]);
		expect(statuses(ran)).toEqual([[], [], ['retry_later']]);
		const next = await send([{ chat: '-4002', text: 'x' }]);
		expect(field(next, 0)).toMatchObject({ status: 'sent', chatId: '-100125' });
	});

	test('a bot that Telegram does not know: one call, the whole batch is told', async () => {
		server.behave('*', { fail: { code: 401, description: 'Unauthorized' } });
		const ran = await send([1, 2, 3].map(() => ({ chat: newChat(), text: 'x' })));
		expect(statuses(ran)).toEqual([[], [], ['permanent', 'permanent', 'permanent']]);
		expect(server.calls()).toHaveLength(1);
		expect(field(ran, 2, 1).message).toMatch(/check the access token/);
	});
});

describe('what nobody knows', () => {
	const fates: Array<[string, Parameters<typeof server.behave>[1], RegExp]> = [
		['an answer that never comes', { hold: true }, /did not answer within 1 s/],
		['a connection reset after the delivery', { drop: 'after' }, /broke/],
		['an answer that breaks off', { cutAnswerAt: 10 }, /broke off|broke/],
		['a 502', { deliver: true, fail: { code: 502, description: 'Bad Gateway' } }, /Bad Gateway/],
		['an answer that is no JSON', { answer: '<html>' }, /cannot be read/],
		['an ok without a message', { answer: '{"ok": true}' }, /cannot be read/],
	];

	test.each(fates)('%s: unknown, and never sent again by default', async (_, behaviour, words) => {
		const chat = newChat();
		server.behave(chat, behaviour);
		const options = { timeoutSeconds: 1 };
		const first = await send([{ chat, text: 'x' }], { options });
		expect(field(first, 2)).toMatchObject({ status: 'unknown', reason: expect.stringMatching(words) });
		server.release(chat);
		for (let i = 0; i < 2; i++) {
			const again = await send([{ chat, text: 'x' }], { options });
			expect(field(again, 2)).toMatchObject({
				status: 'unknown',
				message: expect.stringMatching(/may have been sent/),
			});
		}
		expect(server.deliveries(chat)).toHaveLength(1);
		const resent = await send([{ chat, text: 'x' }], { onUnknown: 'resend', options });
		expect(field(resent, 0)).toMatchObject({
			status: 'sent',
			copyPossible: true,
			message: expect.stringMatching(/may have it twice/),
		});
		expect(server.deliveries(chat)).toHaveLength(2);
	});

	test('case 53: delivered, the answer late, Retry On Fail 3, the run repeated: one delivery', async () => {
		const chat = newChat();
		server.behave(chat, { hold: true });
		for (const onError of ON_ERROR) {
			const settings = { onError, retryOnFail: true, maxTries: 3, waitBetweenTries: 1 };
			const ran = await send([{ chat, text: 'x' }], { options: { timeoutSeconds: 1 } }, { settings });
			expect(ran.error).toBeNull();
			expect(statuses(ran)).toEqual([[], [], ['unknown']]);
		}
		expect(server.deliveries(chat)).toHaveLength(1);
		expect(server.calls(chat)).toHaveLength(1);
	});

	test('after three requests in a row without an answer the rest is not tried: it stays free', async () => {
		server.behave('*', { drop: 'after' });
		const items = Array.from({ length: 10 }, () => ({ chat: newChat(), text: 'x' }));
		const ran = await send(items);
		expect(statuses(ran)[2]).toEqual([
			...Array.from({ length: 3 }, () => 'unknown'),
			...Array.from({ length: 7 }, () => 'retry_later'),
		]);
		server.reset();
		expect(statuses(await send(items))).toEqual([
			Array.from({ length: 7 }, () => 'sent'),
			[],
			Array.from({ length: 3 }, () => 'unknown'),
		]);
	});

	test('a person resolves it in Work Ledger: it did not arrive, and goes out; it arrived, and is a duplicate', async () => {
		const [lost, arrived] = [newChat(), newChat()];
		for (const chat of [lost, arrived]) server.behave(chat, { drop: 'after' });
		const unknown = await send([lost, arrived].map((chat) => ({ chat, text: 'x' })));
		for (const chat of [lost, arrived]) server.release(chat);
		const listed = await run({
			items: [{}],
			nodes: [workLedger({ resource: 'message', operation: 'list', chat: lost })],
		});
		expect(listed.json('Work Ledger')).toMatchObject([
			{ chatId: lost, state: 'unknown', preview: 'x', messageRef: field(unknown, 2).messageRef },
		]);
		const resolve = async (item: IDataObject, how: string, more: IDataObject = {}) =>
			await run({
				items: [item],
				nodes: [
					workLedger({ resource: 'message', operation: 'resolve', arrived: how, ...more }),
				],
			});
		const [first, second] = unknown.json('Telegram', 2);
		expect((await resolve(first, 'no')).json('Work Ledger')).toMatchObject([{ state: 'not_sent' }]);
		const yes = await resolve(second, 'yes', { messageId: '4242' });
		expect(yes.json('Work Ledger')).toMatchObject([{ state: 'sent', messageIds: [4242] }]);
		expect((await resolve(second, 'no')).error?.message).toMatch(/on record as sent/);
		const ran = await send([lost, arrived].map((chat) => ({ chat, text: 'x' })));
		expect(statuses(ran)).toEqual([['sent'], ['duplicate'], []]);
		expect(field(ran, 1).messageId).toBe(4242);
	});
});

describe('nothing left this machine: it is free to be sent again', () => {
	test.each([
		['a refused connection', 'http://127.0.0.1:1', /cannot be reached \(ECONNREFUSED\)/],
		['no such name', 'http://telegram.invalid', /name of Telegram's server is not found/],
		['no TLS at the other end', 'https', /connection to Telegram (failed|broke)/],
	])('%s', async (_, baseUrl, words) => {
		const chat = newChat();
		const url = baseUrl === 'https' ? server.url.replace('http:', 'https:') : baseUrl;
		const ran = await send([{ chat, text: 'x' }], {}, { telegram: { accessToken: TOKEN, baseUrl: url } });
		expect(field(ran, 2)).toMatchObject({ status: 'retry_later', reason: expect.stringMatching(words) });
		expect(statuses(await send([{ chat, text: 'x' }]))).toEqual([['sent'], [], []]);
		expect(server.deliveries(chat)).toHaveLength(1);
	});

	test.each(['12:34', 'no token', 'https://api.telegram.org/bot1:AA/'])(
		'a credential that cannot be right is said without repeating it: %s',
		async (accessToken) => {
			const ran = await send([{ chat: newChat(), text: 'x' }], {}, {
				telegram: { accessToken: `${accessToken} secret`, baseUrl: server.url },
			});
			expect(ran.error?.message).toMatch(/is no bot token/);
			expect(JSON.stringify(ran)).not.toContain('secret');
			expect(ran.error?.description).toMatch(/Nothing was sent/);
		},
	);
});

describe('what cannot be sent', () => {
	const wrong: Array<[string, IDataObject, IDataObject, RegExp]> = [
		['no chat', { text: 'x' }, {}, /Chat ID is empty/],
		['no text', { chat: '1' }, {}, /Text is empty/],
		['only tags', { chat: '1', text: '<b> </b>' }, { options: { parseMode: 'HTML' } }, /Text is empty/],
		['a lost value', { chat: '1', text: '[object Object]' }, {}, /a value was lost/],
		['half an emoji', { chat: '1', text: 'x\ud83d' }, {}, /half an emoji/],
		['a clash', { chat: '1', text: 'x', message: { text: 'hi' } }, {}, /already has a field \W+message/],
		['bad buttons', { chat: '1', text: 'x' }, { options: { replyMarkup: '{' } }, /no JSON/],
		['a bad thread', { chat: '1', text: 'x' }, { options: { threadId: 'x' } }, /Thread ID must be/],
		['no key', { chat: '1', text: 'x' }, { options: { key: '={{ $json.none }}' } }, /Own Key/],
		['no time', { chat: '1', text: 'x' }, { windowAmount: 0 }, /Remember For/],
	];

	test.each(wrong)('%s: refused before anything is sent', async (_, item, parameters, words) => {
		const good = { chat: newChat(), text: 'good' };
		const stopped = await send([good, item], parameters);
		expect(`${stopped.error?.message} ${stopped.error?.description}`).toMatch(words);
		expect(server.calls()).toHaveLength(0);
		for (const [onError, output] of [
			['continueRegularOutput', 2],
			['continueErrorOutput', 3],
		] as const) {
			const ran = await send([item], parameters, { settings: { onError } });
			expect(ran.error).toBeNull();
			expect(ran.out('Telegram', 0)).toEqual([]);
			expect(JSON.stringify(ran.json('Telegram', output))).toMatch(words);
			// what the item brought is still there
			expect(ran.json('Telegram', output)[0]).toMatchObject(item);
		}
	});

	test('the field gets another name where the item has one of its own', async () => {
		const chat = newChat();
		const item = { chat, text: 'x', message: { text: 'of the trigger' } };
		const ran = await send([item], { options: { field: 'sent' } });
		expect(ran.json('Telegram')).toMatchObject([{ message: { text: 'of the trigger' }, sent: { status: 'sent' } }]);
	});

	test('what an earlier run said about the item is no clash: it may be fed back', async () => {
		const message = { status: 'retry_later', message: 'Not sent: …', chatId: '1' };
		const ran = await send([{ chat: newChat(), text: 'x', message }]);
		expect(statuses(ran)).toEqual([['sent'], [], []]);
	});

	test('an error that comes with the item moves into the field: n8n would take the item for a failure', async () => {
		const ran = await send([{ chat: newChat(), text: 'x', error: 'before' }]);
		expect(ran.json('Telegram')[0].error).toBeUndefined();
		expect(field(ran, 0)).toMatchObject({ status: 'sent', inputError: 'before' });
	});
});

describe('case 67: with the ledger down nothing is sent', () => {
	const down = () => ({ ...stage.ledger.settings, port: 1 });

	test('update 900 twice goes out once; then the ledger is down, and 901 fails closed', async () => {
		const chat = newChat();
		const update = async (id: number, more: Partial<Flow> = {}) =>
			await send([{ chat, text: 'reply', update_id: id }], { options: { key: '=update {{ $json.update_id }}' } }, more);
		expect(statuses(await update(900))).toEqual([['sent'], [], []]);
		expect(statuses(await update(900))).toEqual([[], ['duplicate'], []]);
		const failed = await update(901, { credential: down });
		expect(failed.error?.message).toMatch(/cannot be reached/);
		expect(failed.error?.description).toMatch(/Nothing was sent/);
		expect(server.deliveries(chat)).toHaveLength(1);
		// the platform delivers it again
		expect(statuses(await update(901))).toEqual([['sent'], [], []]);
	}, 60_000);

	test.each(ON_ERROR)('under %s, with and without Always Output Data, no item leaves by Sent', async (onError) => {
		const runs = [false, true].map(async (alwaysOutputData) => {
			const seen: IDataObject[] = [];
			const ran = await run({
				credential: down,
				items: [{ chat: newChat(), text: 'x' }],
				nodes: [
					telegram(BY_ITEM, { onError, alwaysOutputData }),
					step('Next', (items) => {
						seen.push(...items.map(({ json }) => json));
						return items;
					}),
				],
			});
			return { alwaysOutputData, ran, seen };
		});
		for (const { alwaysOutputData, ran, seen } of await Promise.all(runs)) {
			expect(seen).toEqual([]);
			if (onError === 'stopWorkflow' || alwaysOutputData) {
				expect(ran.error?.message).toMatch(/cannot be reached/);
				continue;
			}
			const [json] = ran.json('Telegram', onError === 'continueRegularOutput' ? 2 : 3);
			const own = (onError === 'continueRegularOutput' ? json.message : (json.details as IDataObject).message) as IDataObject;
			expect(own).toMatchObject({ status: 'error', message: expect.stringMatching(/cannot be reached/) });
		}
		expect(server.calls()).toHaveLength(0);
	}, 60_000);

	test.each(ON_ERROR)('Always Output Data stops the workflow where all are duplicates, under %s', async (onError) => {
		const items = [{ chat: newChat(), text: 'x' }];
		await send(items);
		const ran = await send(items, {}, { settings: { onError, alwaysOutputData: true } });
		expect(ran.error?.message).toMatch(/Nothing leaves by Sent/);
	});

	test('when the ledger fails between sending and recording, the message is never taken for not sent', async () => {
		const [first, second] = [newChat(), newChat()];
		await stage.ledger.query(`
			create function fail_record() returns trigger language plpgsql as $$
			begin raise exception 'disk full' using errcode = '53100'; end $$;
			create trigger fail_record before update on idempotency.sent_messages
			for each row when (new.state = 'sent' and new.chat_id = '${first}') execute function fail_record()`);
		const items = [first, second].map((chat) => ({ chat, text: 'x' }));
		const ran = await send(items, {}, { settings: { onError: 'continueRegularOutput' } });
		expect(statuses(ran)).toEqual([['sent'], [], ['error']]);
		expect(field(ran, 0)).toMatchObject({ recorded: false, message: expect.stringMatching(/could not be told/) });
		await stage.ledger.query('drop function fail_record() cascade');
		expect(statuses(await send(items))).toEqual([['sent'], [], ['in_progress']]);
		await stage.ledger.query(
			`update idempotency.sent_messages set locked_until = clock_timestamp() where chat_id = $1`,
			[first],
		);
		expect(statuses(await send(items))).toEqual([[], ['duplicate'], ['unknown']]);
		expect(server.deliveries(first)).toHaveLength(1);
	});

	/** The ledger fails where `when` holds, until the returned function is called. */
	async function failing(table: string, event: string, when: string) {
		await stage.ledger.query(`
			create function fail_here() returns trigger language plpgsql as $$
			begin raise exception 'disk full' using errcode = '53100'; end $$;
			create trigger fail_here before ${event} on idempotency.${table}
			for each row when (${when}) execute function fail_here()`);
		return async () => await stage.ledger.query('drop function fail_here() cascade');
	}

	test('when the ledger fails in the middle of reserving, what it had reserved is free at once', async () => {
		const chats = [newChat(), newChat()];
		const mend = await failing('sent_messages', 'insert', `new.chat_id = '${chats[1]}'`);
		const items = chats.map((chat, i) => ({ chat, text: 'x', hours: i + 1 }));
		const perItem = { windowAmount: '={{ $json.hours }}' };
		expect((await send(items, perItem)).error?.message).toMatch(/disk full/);
		await mend();
		expect(statuses(await send(items, perItem))).toEqual([['sent', 'sent'], [], []]);
	});

	test('when the ledger fails while a moved group is followed, nothing is out and the message is free at once', async () => {
		const [old, supergroup] = [`-${newChat()}`, `-100${newChat()}`];
		server.behave(old, { migrateTo: supergroup });
		const mend = await failing('message_chats', 'update', `new.moved_to = '${supergroup}'`);
		expect((await send([{ chat: old, text: 'x' }])).error?.message).toMatch(/disk full/);
		await mend();
		expect(statuses(await send([{ chat: old, text: 'x' }]))).toEqual([['sent'], [], []]);
		expect(server.deliveries(supergroup)).toHaveLength(1);
	});

	test('a part that was resolved while its sender slept: the item does not leave as sent', async () => {
		const chat = newChat();
		server.behave(chat, { hold: true });
		const text = 'word '.repeat(1_200);
		const slow = send([{ chat, text }]);
		await server.held(chat);
		await stage.ledger.query(
			`update idempotency.sent_messages set locked_until = clock_timestamp() where chat_id = '${chat}'`,
		);
		const unknown = await send([{ chat, text }]);
		await run({
			items: unknown.json('Telegram', 2),
			nodes: [workLedger({ resource: 'message', operation: 'resolve', arrived: 'no' })],
		});
		server.release(chat);
		const ran = await slow;
		expect(statuses(ran)).toEqual([[], [], ['in_progress']]);
		expect(field(ran, 2)).toMatchObject({ sentParts: 1, parts: 2, copyPossible: true });
	});

	test('what was sent before the ledger failed is said, and delivered again it is a duplicate', async () => {
		const chats = [newChat(), newChat(), newChat()];
		await stage.ledger.query(`
			create function fail_mark() returns trigger language plpgsql as $$
			begin raise exception 'disk full' using errcode = '53100'; end $$;
			create trigger fail_mark before update on idempotency.sent_messages
			for each row when (new.state = 'sending' and new.chat_id = '${chats[1]}') execute function fail_mark()`);
		const items = chats.map((chat) => ({ chat, text: 'x' }));
		const ran = await send(items);
		expect(ran.error?.message).toMatch(/disk full/);
		expect(ran.error?.description).toMatch(/1 of 3 messages were sent before that/);
		await stage.ledger.query('drop function fail_mark() cascade');
		const again = await send(items);
		expect(statuses(again)).toEqual([['sent', 'sent'], ['duplicate'], []]);
		expect(chats.map((chat) => server.deliveries(chat).length)).toEqual([1, 1, 1]);
	});
});

describe('as the tool of an agent', () => {
	test('everything leaves by the first output, in text that a model can read', async () => {
		const chat = newChat();
		const items = [{}];
		const nodes = [telegramTool({ chatId: chat, text: 'Hello' })];
		const first = await run({ items, nodes });
		expect(first.json('Telegram')).toMatchObject([{ response: expect.stringMatching(/^Sent to chat \d+ \(message \d+\)\.$/) }]);
		const second = await run({ items, nodes });
		expect(second.json('Telegram')).toMatchObject([{ response: expect.stringMatching(/^Already sent to chat/) }]);
		const wrong = await run({ items, nodes: [telegramTool({ chatId: 'Bob', text: 'Hello' })] });
		expect(wrong.json('Telegram')).toMatchObject([{ response: expect.stringMatching(/^Chat ID must be/) }]);
		const down = await run({ items, nodes, credential: { ...stage.ledger.settings, host: '' } });
		expect(down.json('Telegram')).toMatchObject([{ response: expect.stringMatching(/host: is empty/) }]);
	});

	test('a text that the model left out, or gave as a list, is not sent', async () => {
		const chat = newChat();
		const nodes = [telegramTool({ chatId: chat, text: "=Hello {{ $fromAI('text') }}" })];
		for (const [item, says] of [
			[{}, /^The argument "text" is missing/],
			[{ text: ['a', 'b'] }, /^The argument "text" is a list, not one text/],
		] as const) {
			const ran = await run({ items: [item as IDataObject], nodes });
			expect(ran.json('Telegram')).toMatchObject([{ response: expect.stringMatching(says) }]);
		}
		expect(server.deliveries(chat)).toEqual([]);
	});
});
