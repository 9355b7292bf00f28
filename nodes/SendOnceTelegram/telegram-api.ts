import http from 'http';
import https from 'https';
import { randomBytes } from 'crypto';
import type { Socket } from 'net';

/**
 * Node's own http and https, not n8n's helper: whether a message can have arrived hangs on what the socket has seen, and
 * the helper's errors do not tell a time-out while connecting from one while waiting for the answer. Proxies of the
 * environment work all the same: n8n installs them as the global agents, which are used where they are not Node's own.
 */

export interface TelegramAccess {
	/** The secret: it stands in every address, so no address and no error of a socket is shown as it is. */
	accessToken: string;
	/** Default https://api.telegram.org. */
	baseUrl?: string;
}

/** A file to upload; everything else of a call is a parameter. */
export interface Upload {
	field: 'document' | 'photo';
	fileName: string;
	mimeType: string;
	data: Buffer;
}

export interface TimeOuts {
	/** Until the connection stands, TLS included. */
	connectMs: number;
	/** From then on until the answer is complete. */
	answerMs: number;
}

/** What became of a request. Only `unknown` may have arrived. */
export type Outcome =
	| { outcome: 'sent'; messageId: number }
	/** Nothing, or not all of the request left this machine. */
	| { outcome: 'not_sent'; error: string }
	/** Telegram answered no. `bot`: it refuses the bot itself, so every message. */
	| { outcome: 'refused'; error: string; code: number; bot: boolean }
	| { outcome: 'unparsed'; error: string }
	| { outcome: 'migrated'; chatId: string; error: string }
	| { outcome: 'flooded'; retryAfterSeconds: number; error: string }
	| { outcome: 'unknown'; error: string };

/** Without a word from a proxy on how long. */
const DEFAULT_RETRY_AFTER_S = 30;
/** A pause of nothing would be asked for again and again; a longer one is as long as the ledger keeps it. */
const LEAST_RETRY_AFTER_S = 1;
const MOST_RETRY_AFTER_S = 86_400;
const ONE_WRITE_BYTES = 16_000;
const MAX_ANSWER_BYTES = 1024 * 1024;
/** A connection that rested longer may be closed at the other end already, and then nobody knows. */
const REUSE_WITHIN_MS = 1_000;

export class TelegramApi {
	/** The bot's own number: the part of the token that is no secret, the same for every token of this bot. */
	readonly bot: string;
	private readonly base: URL;
	private readonly token: string;
	private agent: http.Agent | null = null;
	private lastEnd = 0;

	/** Throws, with the cure and without the token, for what cannot be a credential. */
	constructor(access: TelegramAccess) {
		this.token = String(access.accessToken ?? '').trim();
		const [, bot] = /^(\d+):[\w-]+$/.exec(this.token) ?? [];
		if (bot === undefined) {
			throw new Error(
				'The access token in the Telegram credential is no bot token. Copy it from BotFather: digits, a colon, letters.',
			);
		}
		this.bot = BigInt(bot).toString();
		const given = String(access.baseUrl ?? '').trim() || 'https://api.telegram.org';
		const base = URL.canParse(given) ? new URL(given) : null;
		if (
			base === null ||
			!/^https?:$/.test(base.protocol) ||
			base.search !== '' ||
			base.hash !== '' ||
			loginOf(base) === null
		) {
			throw new Error(
				'The base URL in the Telegram credential is no web address. The usual one is https://api.telegram.org.',
			);
		}
		this.base = base;
	}

	/** Sends one message. Never throws: everything that can happen is an outcome. */
	async send(
		method: string,
		parameters: Record<string, unknown>,
		upload: Upload | null,
		timeOuts: TimeOuts,
	): Promise<Outcome> {
		const { body, contentType } =
			upload === null ? jsonBody(parameters) : formBody(parameters, upload);
		const answer = await this.exchange(method, body, contentType, timeOuts).catch(
			// thrown before anything was written
			(error: unknown): Outcome => ({
				outcome: 'not_sent',
				error: this.redact(failureWords(error as NodeJS.ErrnoException)),
			}),
		);
		return 'outcome' in answer ? answer : readAnswer(answer, (text) => this.redact(text));
	}

	/** Closes what connections are kept. */
	close(): void {
		this.agent?.destroy();
		this.agent = null;
	}

	/** No text leaves this class with the token in it, plain or as an address writes it. */
	private redact(text: string): string {
		const secret = this.token.slice(this.token.indexOf(':') + 1);
		return text
			.replaceAll(this.token, '<token>')
			.replaceAll(encodeURIComponent(this.token), '<token>')
			.replaceAll(secret, '<token>')
			.replaceAll(/bot\d+:[\w-]+/g, 'bot<token>')
			.slice(0, 500);
	}

	private async exchange(
		method: string,
		body: Buffer,
		contentType: string,
		{ connectMs, answerMs }: TimeOuts,
	): Promise<Outcome | Answer> {
		const { protocol, pathname } = this.base;
		const transport = protocol === 'https:' ? https : http;
		return await new Promise((resolve) => {
			/** The request may have left this machine: its connection stood when the first byte was to be written. */
			let connected = false;
			let over = false;
			let timer: NodeJS.Timeout | undefined;
			const request = transport.request({
				protocol,
				hostname: this.base.hostname.replace(/^\[|\]$/g, ''),
				port: this.base.port || undefined,
				path: `${pathname.replace(/\/+$/, '')}/bot${this.token}/${method}`,
				...(this.base.username === '' ? {} : { auth: loginOf(this.base) }),
				method: 'POST',
				headers: { 'content-type': contentType, 'content-length': body.length },
				agent: this.agentFor(transport),
			});
			const end = (result: Outcome | Answer) => {
				if (over) return;
				over = true;
				clearTimeout(timer);
				this.lastEnd = Date.now();
				resolve(result);
			};
			const fail = (error: NodeJS.ErrnoException, words?: string) => {
				// Asked before the socket is destroyed, which empties its queue. What fits into one packet of TLS is written
				// at once, before the socket can tell: there only a connection that never stood proves anything.
				const isComplete =
					connected && (body.length <= ONE_WRITE_BYTES || request.writableFinished);
				const reason = this.redact(words ?? failureWords(error));
				end(
					isComplete
						? { outcome: 'unknown', error: `${reason} The message may have arrived.` }
						: { outcome: 'not_sent', error: reason },
				);
				request.destroy();
			};
			const waitForAnswer = () => {
				if (over || connected) return;
				connected = true;
				clearTimeout(timer);
				// on a busy machine timers come before the news of what was written: let those in first
				timer = setTimeout(
					() =>
						setImmediate(fail, new Error(), `Telegram did not answer within ${answerMs / 1000} s.`),
					answerMs,
				);
			};
			timer = setTimeout(
				() =>
					setImmediate(() => {
						if (!connected)
							fail(new Error(), `No connection to Telegram within ${connectMs / 1000} s.`);
					}),
				connectMs,
			);
			/** A proxy that refuses the tunnel answers in its own name: nothing has gone to Telegram. */
			const isTunnel = (socket: Socket | null) =>
				protocol === 'http:' || (socket as { encrypted?: boolean } | null)?.encrypted === true;
			request.once('socket', (socket) => {
				if (!isTunnel(socket)) return;
				// a proxy's tunnel arrives ready; secureConnecting is Node's own word for a handshake that is not over
				const { secureConnecting } = socket as unknown as { secureConnecting?: boolean };
				if (socket.connecting || secureConnecting === true) {
					socket.once(protocol === 'https:' ? 'secureConnect' : 'connect', waitForAnswer);
				} else {
					waitForAnswer();
				}
			});
			request.on('error', fail);
			request.once('response', (response) => {
				if (!isTunnel(request.socket)) {
					const status = response.statusCode ?? 0;
					fail(new Error(), `The proxy does not let the request through (HTTP status ${status}).`);
					return;
				}
				// it has read enough to answer
				waitForAnswer();
				const pieces: Buffer[] = [];
				let size = 0;
				response.on('data', (piece: Buffer) => {
					size += piece.length;
					if (size <= MAX_ANSWER_BYTES) pieces.push(piece);
				});
				response.once('error', fail);
				response.once('close', () => {
					if (!response.complete) fail(new Error(), 'The answer of Telegram broke off.');
				});
				response.once('end', () => {
					end({
						status: response.statusCode ?? 0,
						retryAfter: response.headers['retry-after'],
						text: size > MAX_ANSWER_BYTES ? '' : Buffer.concat(pieces).toString('utf8'),
					});
				});
			});
			request.end(body);
		});
	}

	private agentFor(transport: typeof http | typeof https): http.Agent {
		// a proxy of the environment
		if (transport.globalAgent.constructor !== transport.Agent) return transport.globalAgent;
		if (Date.now() - this.lastEnd > REUSE_WITHIN_MS) this.close();
		this.agent ??= new transport.Agent({ keepAlive: true, maxSockets: 1 });
		return this.agent;
	}
}

/** As HTTP wants it; null where it is written in a way that cannot be read. */
function loginOf({ username, password }: URL): string | null {
	try {
		return `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
	} catch {
		return null;
	}
}

interface Answer {
	status: number;
	retryAfter: string | undefined;
	text: string;
}

/** Telegram's `ok`, `error_code`, `description` and `parameters` (https://core.telegram.org/bots/api#making-requests). */
function readAnswer(
	{ status: httpStatus, retryAfter, text }: Answer,
	redact: (text: string) => string,
): Outcome {
	const body = parsed(text);
	// a server of one's own, or a gateway before it, may wrap a no in a 200
	const isWrapped = httpStatus < 300 && body?.ok === false && Number.isSafeInteger(body.error_code);
	const status = isWrapped ? (body.error_code as number) : httpStatus;
	const description = redact(
		typeof body?.description === 'string' ? body.description : `HTTP status ${status}`,
	);
	if (status >= 200 && status < 300) {
		const messageId = (body?.result as { message_id?: unknown } | undefined)?.message_id;
		if (body?.ok === true && Number.isSafeInteger(messageId))
			return { outcome: 'sent', messageId: messageId as number };
		return {
			outcome: 'unknown',
			error:
				'Telegram took the request, but its answer cannot be read. The message may have arrived.',
		};
	}
	if (status >= 500) {
		return {
			outcome: 'unknown',
			error: `Telegram failed (${description}). The message may have arrived.`,
		};
	}
	const details = body?.parameters as
		| { retry_after?: unknown; migrate_to_chat_id?: unknown }
		| undefined;
	const error = `Telegram refused it: ${description}`;
	if (status === 429) {
		const seconds = Number(details?.retry_after ?? retryAfter);
		const isGiven = Number.isFinite(seconds) && seconds >= 0;
		return {
			outcome: 'flooded',
			retryAfterSeconds: isGiven
				? Math.min(Math.max(seconds, LEAST_RETRY_AFTER_S), MOST_RETRY_AFTER_S)
				: DEFAULT_RETRY_AFTER_S,
			error,
		};
	}
	const moved = details?.migrate_to_chat_id;
	if (status === 400 && (typeof moved === 'number' || typeof moved === 'string')) {
		return { outcome: 'migrated', chatId: String(moved), error };
	}
	if (status === 400 && /can't parse entities|can't find end/i.test(description)) {
		return { outcome: 'unparsed', error };
	}
	if (status < 400) {
		return {
			outcome: 'refused',
			error: `The base URL only leads to another address (HTTP status ${status}). Enter that one in the Telegram credential; the usual one is https://api.telegram.org`,
			code: status,
			bot: false,
		};
	}
	// 404: no such bot; what is wrong with a chat is a 400
	return { outcome: 'refused', error, code: status, bot: status === 401 || status === 404 };
}

function parsed(text: string): Record<string, unknown> | null {
	try {
		const value: unknown = JSON.parse(text);
		return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
	} catch {
		return null;
	}
}

function failureWords(error: NodeJS.ErrnoException): string {
	const several = (error as { errors?: NodeJS.ErrnoException[] }).errors;
	const code = error.code ?? several?.[0]?.code;
	switch (code) {
		case 'ECONNREFUSED':
		case 'EHOSTUNREACH':
		case 'ENETUNREACH':
			return `Telegram cannot be reached (${code}).`;
		case 'ENOTFOUND':
		case 'EAI_AGAIN':
			return `The name of Telegram's server is not found (${code}).`;
		case 'ECONNRESET':
		case 'EPIPE':
			return `The connection to Telegram broke (${code}).`;
		default:
			return `The connection to Telegram failed (${code ?? error.message}).`;
	}
}

function jsonBody(parameters: Record<string, unknown>): { body: Buffer; contentType: string } {
	return { body: Buffer.from(JSON.stringify(parameters)), contentType: 'application/json' };
}

/** multipart/form-data, RFC 7578; objects as JSON, as the Bot API wants them. */
function formBody(
	parameters: Record<string, unknown>,
	upload: Upload,
): { body: Buffer; contentType: string } {
	const boundary = `n8n-${randomBytes(18).toString('hex')}`;
	const quoted = (text: string) => text.replace(/["\r\n]/g, (found) => encodeURIComponent(found));
	const pieces: Buffer[] = [];
	for (const [name, value] of Object.entries(parameters)) {
		if (value === undefined) continue;
		const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
		pieces.push(
			Buffer.from(
				`--${boundary}\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${text}\r\n`,
			),
		);
	}
	pieces.push(
		Buffer.from(
			`--${boundary}\r\ncontent-disposition: form-data; name="${upload.field}"; filename="${quoted(upload.fileName)}"\r\ncontent-type: ${upload.mimeType.replace(/[\r\n]/g, '')}\r\n\r\n`,
		),
		upload.data,
		Buffer.from(`\r\n--${boundary}--\r\n`),
	);
	return {
		body: Buffer.concat(pieces),
		contentType: `multipart/form-data; boundary=${boundary}`,
	};
}
