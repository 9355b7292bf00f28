import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import path from 'node:path';
import tls from 'node:tls';

import { HttpsProxyAgent } from 'https-proxy-agent';

import { startTelegramServer } from '../../scripts/n8n/telegram-server';
import { TelegramApi, type Outcome } from '../../nodes/SendOnceTelegram/telegram-api';

/** What can be known of a request: that it was never sent, that it was refused, or nothing. */

const SECRET = 'AAH-very_secret_part';
const TOKEN = `4711:${SECRET}`;
const TIMES = { connectMs: 300, answerMs: 300 };
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

const opened: TelegramApi[] = [];
afterEach(() => {
	for (const api of opened.splice(0)) api.close();
});
function apiAt(baseUrl: string): TelegramApi {
	const api = new TelegramApi({ accessToken: TOKEN, baseUrl });
	opened.push(api);
	return api;
}

async function send(
	baseUrl: string,
	more: { file?: Buffer; text?: string } = {},
): Promise<Outcome> {
	const upload =
		more.file === undefined
			? null
			: { field: 'document' as const, fileName: 'a.bin', mimeType: 'x/y', data: more.file };
	const outcome = await apiAt(baseUrl).send(
		upload === null ? 'sendMessage' : 'sendDocument',
		{ chat_id: '1', text: more.text ?? 'Hello' },
		upload,
		TIMES,
	);
	expect(JSON.stringify(outcome)).not.toContain(SECRET);
	return outcome;
}

/** A listener that does with each connection what the test says. */
async function listener(take: (socket: net.Socket) => void) {
	const sockets = new Set<net.Socket>();
	const own = net.createServer((socket) => {
		sockets.add(socket);
		socket.on('error', () => undefined);
		take(socket);
	});
	await new Promise<void>((resolve) => own.listen(0, '127.0.0.1', resolve));
	return {
		port: (own.address() as net.AddressInfo).port,
		close: async () => {
			for (const socket of sockets) socket.destroy();
			await new Promise((resolve) => own.close(resolve));
		},
	};
}

describe('certainly not sent', () => {
	test.each([
		['connection refused', 'http://127.0.0.1:1'],
		['no such name', 'http://telegram.invalid'],
	])('%s', async (_, url) => {
		expect(await send(url)).toMatchObject({ outcome: 'not_sent' });
	});

	test('a TLS handshake that is never answered', async () => {
		const mute = await listener(() => undefined);
		expect(await send(`https://127.0.0.1:${mute.port}`)).toEqual({
			outcome: 'not_sent',
			error: 'No connection to Telegram within 0.3 s.',
		});
		await mute.close();
	});

	test('an upload whose connection broke before all of it was written', async () => {
		// nobody reads: what the two machines hold in between is far less than this
		const broken = await listener((socket) => {
			socket.pause();
			setTimeout(() => socket.resetAndDestroy(), 100);
		});
		const file = Buffer.alloc(40 * 1024 * 1024, 1);
		expect(await send(`http://127.0.0.1:${broken.port}`, { file })).toMatchObject({
			outcome: 'not_sent',
		});
		await broken.close();
	});

	test('an upload that nobody reads, when the time is over', async () => {
		const idle = await listener((socket) => void socket.pause());
		const file = Buffer.alloc(40 * 1024 * 1024, 1);
		expect(await send(`http://127.0.0.1:${idle.port}`, { file })).toMatchObject({
			outcome: 'not_sent',
		});
		await idle.close();
	});
});

describe('nobody knows', () => {
	test.each([0, 1, 10, 30])(
		'a text whose connection broke after %i bytes had been read',
		async (dropAtByte) => {
			server.behave('*', { dropAtByte });
			expect(await send(server.url)).toMatchObject({ outcome: 'unknown' });
			expect(server.deliveries()).toEqual([]);
		},
	);

	test.each([1, 20, 40])('an answer that breaks off after %i bytes', async (cutAnswerAt) => {
		server.behave('*', { cutAnswerAt });
		expect(await send(server.url)).toMatchObject({ outcome: 'unknown' });
		expect(server.deliveries()).toHaveLength(1);
	});

	test('no answer in time, also when the event loop was busy all the while', async () => {
		server.behave('*', { hold: true });
		const file = Buffer.alloc(100_000, 1);
		const outcome = send(server.url, { file });
		await server.held('1');
		const until = Date.now() + 500;
		while (Date.now() < until);
		expect(await outcome).toMatchObject({
			outcome: 'unknown',
			error: expect.stringMatching(/0\.3 s/),
		});
	});

	test('an answer of a size that no answer has', async () => {
		server.behave('*', {
			answer: `{"ok": true, "result": {"message_id": 1}, "x": "${'x'.repeat(2e6)}"}`,
		});
		expect(await send(server.url)).toMatchObject({ outcome: 'unknown' });
	});
});

describe('Telegram’s answers', () => {
	test.each([
		[{ code: 400, description: "Bad Request: can't parse entities: x" }, { outcome: 'unparsed' }],
		[
			{ code: 400, description: 'Bad Request: chat not found' },
			{ outcome: 'refused', bot: false },
		],
		[
			{ code: 403, description: 'Forbidden: bot was blocked' },
			{ outcome: 'refused', bot: false },
		],
		[
			{ code: 401, description: 'Unauthorized' },
			{ outcome: 'refused', bot: true },
		],
		[
			{ code: 404, description: 'Not Found' },
			{ outcome: 'refused', bot: true },
		],
		[
			{ code: 413, description: 'Request Entity Too Large' },
			{ outcome: 'refused', bot: false },
		],
		[
			{ code: 429, description: 'Too Many', parameters: { retry_after: 34 } },
			{ outcome: 'flooded', retryAfterSeconds: 34 },
		],
		[
			{ code: 429, description: 'of a proxy' },
			{ outcome: 'flooded', retryAfterSeconds: 30 },
		],
		[
			{ code: 400, description: 'upgraded', parameters: { migrate_to_chat_id: -100123 } },
			{ outcome: 'migrated', chatId: '-100123' },
		],
		[{ code: 500, description: 'Internal' }, { outcome: 'unknown' }],
		[
			{ code: 302, description: 'Found' },
			{ outcome: 'refused', bot: false },
		],
	])('%j', async (fail, expected) => {
		server.behave('*', { fail });
		expect(await send(server.url)).toMatchObject(expected);
	});

	test('a base URL that only leads elsewhere is said as such', async () => {
		server.behave('*', { fail: { code: 301, description: 'Moved' } });
		expect(await send(server.url)).toMatchObject({
			outcome: 'refused',
			error: expect.stringContaining('The base URL only leads to another address'),
		});
	});

	test.each([
		[{ ok: false, error_code: 400, description: 'chat not found' }, { outcome: 'refused' }],
		[
			{ ok: false, error_code: 429, description: 'Too Many', parameters: { retry_after: 34 } },
			{ outcome: 'flooded', retryAfterSeconds: 34 },
		],
		[{ ok: false, error_code: 502, description: 'Bad Gateway' }, { outcome: 'unknown' }],
		[{ ok: false }, { outcome: 'unknown' }],
		[{ ok: false, error_code: 200 }, { outcome: 'unknown' }],
		[
			{ ok: true, error_code: 400, result: { message_id: 7 } },
			{ outcome: 'sent', messageId: 7 },
		],
	])('a gateway that wraps %j in a 200 says what Telegram said', async (body, expected) => {
		server.behave('*', { answer: JSON.stringify(body) });
		expect(await send(server.url)).toMatchObject(expected);
	});

	test.each([
		[0, 1],
		[1e17, 86_400],
	])('a pause of %s s is taken as %s s', async (retryAfter, taken) => {
		const parameters = { retry_after: retryAfter };
		server.behave('1', { fail: { code: 429, description: 'Too Many Requests', parameters } });
		expect(await send(server.url)).toMatchObject({ outcome: 'flooded', retryAfterSeconds: taken });
	});

	test('a token that Telegram repeats is hidden', async () => {
		server.behave('*', { fail: { code: 400, description: `see /bot${TOKEN}/x and ${SECRET}` } });
		expect(await send(server.url)).toMatchObject({ error: expect.stringContaining('<token>') });
	});
});

describe('the way to Telegram', () => {
	test('messages that follow one another share a connection', async () => {
		const api = apiAt(server.url);
		const before = server.connections();
		for (let i = 0; i < 5; i++)
			await api.send('sendMessage', { chat_id: '1', text: 'x' }, null, TIMES);
		expect(server.connections() - before).toBe(1);
	});

	test('a base URL with a path, and one with a login of its own', async () => {
		const url = server.url.replace('http://', 'http://user:pass@');
		expect(await send(`${url}/telegram/`)).toMatchObject({ outcome: 'sent' });
	});

	test('a proxy that n8n has installed as the global agent is used', async () => {
		class ProxyAgent extends http.Agent {
			used = 0;
			override createConnection(
				...given: Parameters<http.Agent['createConnection']>
			): ReturnType<http.Agent['createConnection']> {
				this.used += 1;
				return super.createConnection(...given);
			}
		}
		const own = http.globalAgent;
		const proxy = new ProxyAgent();
		http.globalAgent = proxy;
		try {
			expect(await send(server.url)).toMatchObject({ outcome: 'sent' });
			expect(proxy.used).toBe(1);
		} finally {
			http.globalAgent = own;
			proxy.destroy();
		}
	});

	test.each(['', 'api.telegram.org', 'ftp://x', 'https://x/?a=1', 'https://a%zz:b@x'])(
		'a base URL that cannot be right is refused in words: "%s"',
		(baseUrl) => {
			const make = () => new TelegramApi({ accessToken: TOKEN, baseUrl });
			if (baseUrl === '') expect(make().bot).toBe('4711');
			else expect(make).toThrow(/no web address/);
		},
	);
});

describe('over TLS', () => {
	const pem = (name: string) =>
		readFileSync(path.join(__dirname, '../integration/certificates', name), 'utf8');
	const certificate = { key: pem('server.key'), cert: pem('server.pem') };

	/** As a system that trusts the test's authority: an agent of its own stands where n8n installs a proxy's. */
	class TrustingAgent extends https.Agent {
		constructor() {
			super({ ca: pem('authority.pem') });
		}
	}
	async function trusting<T>(run: () => Promise<T>): Promise<T> {
		const own = https.globalAgent;
		const agent = new TrustingAgent();
		https.globalAgent = agent;
		try {
			return await run();
		} finally {
			https.globalAgent = own;
			agent.destroy();
		}
	}

	test('a certificate that is not trusted: not sent, and nothing arrived', async () => {
		const secure = await startTelegramServer({ server: https.createServer(certificate) });
		const url = secure.url.replace('http:', 'https:');
		expect(await send(url)).toMatchObject({ outcome: 'not_sent' });
		expect(secure.calls()).toEqual([]);
		expect(await trusting(async () => await send(url))).toMatchObject({ outcome: 'sent' });
		secure.behave('*', { drop: 'after' });
		expect(await trusting(async () => await send(url))).toMatchObject({ outcome: 'unknown' });
		await secure.close();
	});

	test.each([407, 502, 503])('a proxy that lets nobody through (%s): not sent', async (status) => {
		const proxy = await listener((socket) => {
			socket.once('data', () => socket.end(`HTTP/1.1 ${status} No\r\ncontent-length: 2\r\n\r\nno`));
		});
		const own = https.globalAgent;
		https.globalAgent = new HttpsProxyAgent(`http://127.0.0.1:${proxy.port}`) as https.Agent;
		try {
			expect(await send('https://telegram.invalid')).toEqual({
				outcome: 'not_sent',
				error: `The proxy does not let the request through (HTTP status ${status}).`,
			});
		} finally {
			https.globalAgent = own;
			await proxy.close();
		}
	});

	test('an upload that nobody reads is not sent; a text that nobody answers may have arrived', async () => {
		const idle = tls.createServer(certificate, (socket) => {
			socket.on('error', () => undefined);
			socket.pause();
		});
		await new Promise<void>((resolve) => idle.listen(0, '127.0.0.1', resolve));
		const url = `https://127.0.0.1:${(idle.address() as net.AddressInfo).port}`;
		const file = Buffer.alloc(40 * 1024 * 1024, 1);
		expect(await trusting(async () => await send(url, { file }))).toMatchObject({
			outcome: 'not_sent',
		});
		expect(await trusting(async () => await send(url))).toMatchObject({ outcome: 'unknown' });
		idle.close();
	});
});
