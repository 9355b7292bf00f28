'use strict';

/**
 * A language model to test against: it speaks OpenAI's chat interface, answers differently every time it is asked, and
 * counts. What it is asked twice shows, because the second answer is another one. As the model of an agent it calls the
 * tools that a test orders, and keeps what it read from them.
 *
 *     POST /v1/chat/completions  → {"label": "answer 1"}, then 2, … as text (or what `say` gives for that number),
 *                                  streamed where that is asked for
 *     GET  /v1/models            → the one model
 *     GET  /calls?about=text     → { calls }: how often it was asked with that text in a message
 *     POST /pause/:name          → {} at once, or as soon as the name is released: a step to stop a workflow at
 */

const http = require('node:http');

const MODEL = 'test-model';

/**
 * How the next answers are given; what is left out is as always.
 *
 * @typedef {object} Answering
 * @property {string} [content] In the place of what it says by itself.
 * @property {string} [finishReason] In the place of `stop`.
 * @property {string} [hold] Not before this name is released.
 * @property {number} [status] An error with this status in the place of an answer.
 * @property {ToolCall[]} [calls] Calls of tools in the place of text, all in one turn.
 */

/**
 * @typedef {object} ToolCall
 * @property {string} [tool] The tool's name; where it is left out, the first that is offered.
 * @property {unknown} arguments Sent as JSON, whatever the tool asked for.
 */

/**
 * A request as the agent sent it.
 *
 * @typedef {{ messages: any[], tools: any[] }} Asked
 */

/** @param {http.IncomingMessage} request @returns {Promise<any>} */
async function readJson(request) {
	const chunks = [];
	for await (const chunk of request) chunks.push(chunk);
	const text = Buffer.concat(chunks).toString('utf8');
	return text === '' ? {} : JSON.parse(text);
}

/** @param {number} number */
const sayLabel = (number) => JSON.stringify({ label: `answer ${number}` });

/**
 * @param {{ port?: number, say?: (number: number) => string }} [options] `port`: 0 or nothing is any free one. `say`: what
 *   it answers the nth time it is asked; another text each time.
 */
async function startModelServer({ port = 0, say = sayLabel } = {}) {
	/** @type {Asked[]} */
	const asked = [];
	/** @type {Answering[]} */
	const ordered = [];
	/** @type {Set<string>} */
	const paused = new Set();
	/** Answers held open, by name. @type {Map<string, (() => void)[]>} */
	const held = new Map();
	/** Who waits until an answer is held, by name. @type {Map<string, (() => void)[]>} */
	const watchers = new Map();

	/** @param {string} about */
	const askedAbout = (about) =>
		asked.filter(({ messages }) => JSON.stringify(messages).includes(about));
	/** @param {string} about */
	const calls = (about) => askedAbout(about).length;

	/** @param {string} name @returns {Promise<void>} */
	const hold = (name) =>
		new Promise((resolve) => {
			held.set(name, [...(held.get(name) ?? []), resolve]);
			for (const tell of watchers.get(name) ?? []) tell();
			watchers.delete(name);
		});

	/** @param {string} name */
	const release = (name) => {
		paused.delete(name);
		for (const answer of held.get(name) ?? []) answer();
		held.delete(name);
	};

	/** @param {any} body @param {http.ServerResponse} response */
	async function complete({ messages = [], tools = [], stream = false }, response) {
		asked.push({ messages, tools });
		const number = asked.length;
		const how = ordered.shift() ?? {};
		const { content, hold: name, status } = how;
		const finishReason = how.finishReason ?? (how.calls === undefined ? 'stop' : 'tool_calls');
		if (name !== undefined) await hold(name);
		if (status !== undefined) {
			response.writeHead(status, { 'content-type': 'application/json' });
			response.end(
				JSON.stringify({ error: { message: 'the model refused', type: 'server_error' } }),
			);
			return;
		}
		const toolCalls = how.calls?.map((call, index) => ({
			index,
			id: `call-${number}-${index}`,
			type: 'function',
			function: {
				name: call.tool ?? tools[0]?.function?.name,
				arguments: JSON.stringify(call.arguments),
			},
		}));
		const message =
			toolCalls === undefined
				? { role: 'assistant', content: content ?? say(number) }
				: { role: 'assistant', content: null, tool_calls: toolCalls };
		const id = `chatcmpl-${number}`;
		const about = { id, created: 1, model: MODEL };
		const usage = { prompt_tokens: 20, completion_tokens: 5, total_tokens: 25 };
		if (!stream) {
			const choices = [{ index: 0, message, finish_reason: finishReason }];
			response.writeHead(200, { 'content-type': 'application/json' });
			response.end(JSON.stringify({ ...about, object: 'chat.completion', choices, usage }));
			return;
		}
		response.writeHead(200, { 'content-type': 'text/event-stream' });
		for (const choice of [
			{ index: 0, delta: message, finish_reason: null },
			{ index: 0, delta: {}, finish_reason: finishReason },
		]) {
			const chunk = { ...about, object: 'chat.completion.chunk', choices: [choice] };
			response.write(`data: ${JSON.stringify(chunk)}\n\n`);
		}
		response.end('data: [DONE]\n\n');
	}

	/** @param {http.IncomingMessage} request @param {http.ServerResponse} response */
	async function answer(request, response) {
		const { pathname, searchParams } = new URL(request.url ?? '/', 'http://local');
		/** @param {number} status @param {unknown} body */
		const send = (status, body) => {
			response.writeHead(status, { 'content-type': 'application/json' });
			response.end(JSON.stringify(body));
		};
		if (pathname === '/v1/chat/completions')
			return await complete(await readJson(request), response);
		if (pathname === '/v1/models') return send(200, { data: [{ id: MODEL, object: 'model' }] });
		if (pathname === '/calls') return send(200, { calls: calls(searchParams.get('about') ?? '') });
		if (pathname.startsWith('/pause/')) {
			const name = decodeURIComponent(pathname.slice('/pause/'.length));
			if (paused.has(name)) await hold(name);
			return send(200, {});
		}
		return send(404, { error: { message: 'no such page' } });
	}

	const server = http.createServer((request, response) => {
		answer(request, response).catch((error) => {
			response.writeHead(400, { 'content-type': 'application/json' });
			response.end(JSON.stringify({ error: { message: String(error.message) } }));
		});
	});
	await new Promise((resolve, reject) => {
		server.once('error', reject);
		server.listen(port, '127.0.0.1', () => resolve(undefined));
	});
	const address = /** @type {import('node:net').AddressInfo} */ (server.address());
	return {
		port: address.port,
		url: `http://127.0.0.1:${address.port}`,
		calls,
		/**
		 * What the tools answered in the conversation that says this, in the order of the calls, as the model read it.
		 *
		 * @param {string} about @returns {string[]}
		 */
		read: (about) =>
			(askedAbout(about).at(-1)?.messages ?? [])
				.filter(({ role }) => role === 'tool')
				.map(({ content: text }) => (typeof text === 'string' ? text : JSON.stringify(text))),
		/**
		 * The tools that the model was offered there.
		 *
		 * @param {string} about @returns {{ name: string, description: string, parameters: any }[]}
		 */
		offered: (about) =>
			(askedAbout(about).at(-1)?.tools ?? []).map((/** @type {any} */ tool) => tool.function),
		/** @param {Answering} how The next answer that is not ordered yet. */
		order: (how) => void ordered.push(how),
		/** @param {string} name Steps that ask for `/pause/:name` stop there from now on. */
		pause: (name) => void paused.add(name),
		/** Resolves when a step has stopped there. @param {string} name @returns {Promise<void>} */
		stoppedAt: async (name) => {
			if (held.has(name)) return;
			await new Promise((resolve) => {
				const tell = () => resolve(undefined);
				watchers.set(name, [...(watchers.get(name) ?? []), tell]);
			});
		},
		release,
		/** @returns {Promise<void>} */
		close: () =>
			new Promise((resolve) => {
				for (const name of held.keys()) release(name);
				server.close(() => resolve());
				server.closeAllConnections();
			}),
	};
}

module.exports = { startModelServer };
