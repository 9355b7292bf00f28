'use strict';

/**
 * A small Bot API server, as far as sending goes: it counts what it delivered, and misbehaves to order. What stands in a
 * behaviour holds for a chat, or for all (`*`), for so many `times`, or for every nth call.
 *
 *     POST /bot<token>/sendMessage|sendPhoto|sendDocument   JSON or multipart, answered as Telegram does
 *     PUT  /control/:chat      a behaviour          DELETE /control/:chat   forgets it, and lets go what is held
 *     GET  /control/:chat/held resolves once an answer of this chat is held open
 *     GET  /deliveries         what was delivered   GET /calls              every call, delivered or not
 */

const http = require('node:http');

/**
 * @typedef {object} Behaviour
 * @property {boolean} [hold] Keep the answer open until it is let go.
 * @property {boolean} [deliver] Whether the message is delivered; by default unless `fail` says otherwise.
 * @property {{ code: number, description: string, parameters?: object }} [fail] Answer with this error.
 * @property {'before' | 'after'} [drop] Reset the connection before or after the delivery, without an answer.
 * @property {number} [dropAtByte] Reset the connection after so many bytes of the request's body.
 * @property {number} [cutAnswerAt] Break the answer off after so many bytes.
 * @property {string} [answer] Answer 200 with this text.
 * @property {string} [migrateTo] The group has become this supergroup.
 * @property {number} [times] For how many calls; without it until it is changed.
 * @property {number} [every] Only for every nth call.
 */

/** @typedef {{ bot: string, chat: string, method: string, text: string, parseMode: string | null, messageId: number, parameters: Record<string, any>, file: { name: string, type: string, size: number } | null }} Delivery */

const MAX_TEXT = 4096;
const MAX_CAPTION = 1024;

/**
 * @param {{ port?: number, server?: import('node:http').Server }} [options] `server`: one that speaks TLS.
 */
async function startTelegramServer({ port = 0, server = http.createServer() } = {}) {
	/** @type {Delivery[]} */
	const deliveries = [];
	/** @type {{ bot: string, chat: string, text: string, outcome: string }[]} */
	const calls = [];
	/** @type {Map<string, Behaviour & { seen: number }>} */
	const behaviours = new Map();
	/** @type {Map<string, (() => void)[]>} */
	const held = new Map();
	/** @type {Map<string, (() => void)[]>} */
	const watchers = new Map();
	let lastId = 100;
	let connections = 0;

	/** @param {string} chat @returns {Behaviour} */
	const behaviourOf = (chat) => {
		for (const name of [chat, '*']) {
			const one = behaviours.get(name);
			if (one === undefined) continue;
			one.seen += 1;
			if (one.every !== undefined && one.seen % one.every !== 0) continue;
			if (one.times !== undefined && one.times-- <= 0) continue;
			return one;
		}
		return {};
	};

	/** @param {string} chat */
	const letGo = (chat) => {
		for (const go of held.get(chat) ?? []) go();
		held.delete(chat);
	};

	/** @param {http.IncomingMessage} request @param {http.ServerResponse} response */
	const takeCall = async (request, response) => {
		const [, token, method] = /^\/(?:.*\/)?bot([^/]+)\/(\w+)$/.exec(request.url ?? '') ?? [];
		if (token === undefined || !/^send(Message|Photo|Document)$/.test(method)) {
			return reply(response, 404, { ok: false, error_code: 404, description: 'Not Found' });
		}
		const dropAt = behaviours.get('*')?.dropAtByte;
		/** @type {Buffer[]} */
		const pieces = [];
		let size = 0;
		if (dropAt === 0) return reset(request);
		for await (const piece of request) {
			pieces.push(piece);
			size += piece.length;
			if (dropAt !== undefined && size >= dropAt) return reset(request);
		}
		const { parameters, file } = readBody(request, Buffer.concat(pieces));
		const bot = token.split(':')[0];
		const chat = String(parameters.chat_id);
		const text = String(parameters.text ?? parameters.caption ?? '');
		const behaviour = behaviourOf(chat);
		const call = { bot, chat, text, outcome: 'no answer' };
		calls.push(call);

		if (behaviour.drop === 'before') return reset(request);
		const problem =
			behaviour.fail ??
			(behaviour.migrateTo === undefined
				? problemOf(parameters, text, file)
				: {
						code: 400,
						description: 'Bad Request: group chat was upgraded to a supergroup chat',
						parameters: { migrate_to_chat_id: Number(behaviour.migrateTo) },
					});
		let messageId = 0;
		if (behaviour.deliver ?? problem === null) {
			messageId = ++lastId;
			const parseMode = parameters.parse_mode ?? null;
			deliveries.push({ bot, chat, method, text, parseMode, messageId, parameters, file });
		}
		if (behaviour.hold === true) {
			await new Promise((resolve) => {
				held.set(chat, [...(held.get(chat) ?? []), () => resolve(undefined)]);
				for (const tell of watchers.get(chat) ?? []) tell();
				watchers.delete(chat);
			});
		}
		if (behaviour.drop === 'after') return reset(request);
		call.outcome = problem === null ? 'ok' : String(problem.code);
		const body =
			problem === null
				? { ok: true, result: { message_id: messageId, chat: { id: parameters.chat_id }, date: 1 } }
				: {
						ok: false,
						error_code: problem.code,
						description: problem.description,
						parameters: problem.parameters,
					};
		if (behaviour.cutAnswerAt !== undefined) {
			const whole = JSON.stringify(body);
			response.writeHead(200, { 'content-length': whole.length });
			response.write(whole.slice(0, behaviour.cutAnswerAt), () => request.socket.destroy());
			return;
		}
		if (behaviour.answer !== undefined) {
			response.writeHead(200).end(behaviour.answer);
			return;
		}
		reply(response, problem?.code ?? 200, body);
	};

	/** @param {http.IncomingMessage} request @param {http.ServerResponse} response @param {string} path */
	const control = async (request, response, path) => {
		if (path === '/deliveries') return reply(response, 200, deliveries);
		if (path === '/calls') return reply(response, 200, calls);
		const [, chat, look] = /^\/control\/([^/]+)(\/held)?$/.exec(path) ?? [];
		const name = decodeURIComponent(chat ?? '');
		if (look !== undefined) await api.held(name);
		else if (request.method === 'DELETE') api.release(name);
		else {
			const pieces = [];
			for await (const piece of request) pieces.push(piece);
			api.behave(name, JSON.parse(Buffer.concat(pieces).toString('utf8')));
		}
		reply(response, 200, {});
	};

	server.on('connection', () => {
		connections += 1;
	});
	server.on('request', (request, response) => {
		const path = request.url ?? '/';
		const isOrder = /^\/(control|deliveries|calls)/.test(path);
		(isOrder ? control(request, response, path) : takeCall(request, response)).catch(() =>
			request.socket.destroy(),
		);
	});
	await new Promise((resolve, reject) => {
		server.once('error', reject);
		server.listen(port, '127.0.0.1', () => resolve(undefined));
	});
	const address = /** @type {import('node:net').AddressInfo} */ (server.address());

	const api = {
		port: address.port,
		url: `http://127.0.0.1:${address.port}`,
		/** @param {string} [chat] @returns {Delivery[]} */
		deliveries: (chat) => deliveries.filter((one) => chat === undefined || one.chat === chat),
		/** @param {string} [chat] How often a chat was called, whatever came of it. */
		calls: (chat) => calls.filter((one) => chat === undefined || one.chat === chat),
		connections: () => connections,
		/** @param {string} chat `*` for all. @param {Behaviour} behaviour */
		behave: (chat, behaviour) => {
			behaviours.set(chat, { ...behaviour, seen: 0 });
		},
		/** Resolves once an answer to this chat is held open. @param {string} chat */
		held: (chat) =>
			new Promise((resolve) => {
				if (held.has(chat)) resolve(undefined);
				else watchers.set(chat, [...(watchers.get(chat) ?? []), () => resolve(undefined)]);
			}),
		/** Forgets a behaviour and lets go what it held. @param {string} chat */
		release: (chat) => {
			behaviours.delete(chat);
			letGo(chat);
		},
		/** Begins anew. */
		reset: () => {
			behaviours.clear();
			for (const chat of [...held.keys()]) letGo(chat);
			deliveries.length = 0;
			calls.length = 0;
		},
		/** @returns {Promise<void>} */
		close: () =>
			new Promise((resolve) => {
				for (const chat of [...held.keys()]) letGo(chat);
				server.close(() => resolve());
				server.closeAllConnections();
			}),
	};
	return api;
}

/** @param {http.IncomingMessage} request */
function reset(request) {
	request.socket.resetAndDestroy();
}

/** @param {http.ServerResponse} response @param {number} status @param {unknown} body */
function reply(response, status, body) {
	response.writeHead(status, { 'content-type': 'application/json' });
	response.end(JSON.stringify(body));
}

/** @param {http.IncomingMessage} request @param {Buffer} body */
function readBody(request, body) {
	const type = request.headers['content-type'] ?? '';
	/** @type {Record<string, any>} */
	let parameters = {};
	/** @type {Delivery['file']} */
	let file = null;
	const [, boundary] = /boundary=(.+)$/.exec(type) ?? [];
	if (boundary === undefined) {
		parameters = JSON.parse(body.toString('utf8'));
	} else {
		for (const part of body.toString('latin1').split(`--${boundary}`).slice(1, -1)) {
			const [head, ...rest] = part.replace(/^\r\n/, '').split('\r\n\r\n');
			const value = rest.join('\r\n\r\n').replace(/\r\n$/, '');
			const [, name] = / name="([^"]*)"/.exec(head) ?? [];
			const [, fileName] = / filename="([^"]*)"/.exec(head) ?? [];
			const text = Buffer.from(value, 'latin1').toString('utf8');
			if (fileName === undefined) parameters[name] = text;
			else {
				const [, fileType = ''] = /content-type: (.*)/i.exec(head) ?? [];
				const own = Buffer.from(fileName, 'latin1').toString('utf8');
				file = { name: own, type: fileType, size: value.length };
			}
		}
	}
	return { parameters, file };
}

/**
 * Telegram's own checks, as far as tests need them.
 *
 * @param {Record<string, any>} parameters @param {string} text @param {Delivery['file']} file
 */
function problemOf(parameters, text, file) {
	const bad = (/** @type {string} */ description) => ({
		code: 400,
		description: `Bad Request: ${description}`,
		parameters: undefined,
	});
	const isMedia = file !== null || 'photo' in parameters || 'document' in parameters;
	if (/\p{Cs}/u.test(text)) return bad('strings must be encoded in UTF-8');
	const visible = visibleText(text, parameters.parse_mode);
	if (visible === null) {
		return bad("can't parse entities: Can't find end of the entity starting at byte offset 2");
	}
	if (!isMedia && visible.trim() === '') return bad('message text is empty');
	if (visible.length > (isMedia ? MAX_CAPTION : MAX_TEXT)) {
		return bad(isMedia ? 'message caption is too long' : 'message is too long');
	}
	return null;
}

/** @param {string} text @param {unknown} mode @returns {string | null} Null: it cannot be parsed. */
function visibleText(text, mode) {
	if (mode === 'HTML') {
		/** @type {string[]} */
		const open = [];
		for (const [, slash, name] of text.matchAll(/<(\/?)([a-z-]+)[^>]*>/gi)) {
			if (slash === '') open.push(name);
			else if (open.pop() !== name) return null;
		}
		if (open.length > 0) return null;
		const bare = text.replace(/<\/?[a-z-]+[^>]*>/gi, '');
		if (bare.includes('<')) return null;
		return bare
			.replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)))
			.replace(/&(lt|gt|amp|quot);/g, '·');
	}
	if (mode === 'Markdown' || mode === 'MarkdownV2') {
		const bare = text.replace(/\\[^]/g, '·').replace(/```[^]*?```/g, (code) => code.slice(6));
		for (const marker of ['*', '_', '`']) {
			if ((bare.split(marker).length - 1) % 2 === 1) return null;
		}
		return bare.replace(/[*_`]/g, '');
	}
	return text;
}

module.exports = { startTelegramServer };
