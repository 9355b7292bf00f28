'use strict';

/**
 * A small invoice API that behaves like a payment provider's: `POST /invoices` creates an invoice,
 * and a call with an `Idempotency-Key` it has seen gets the invoice of the first call. Without a
 * key every call creates another one, which makes a duplicate visible. Tests order misbehaviour per
 * order: an answer that is slow, fails, or is held open after the invoice exists.
 *
 *     POST /invoices            { order_id, amount? } → 201 (created) or 200 (same key)
 *     GET  /invoices?order_id=… → the invoices of an order, or all
 *     PUT  /control/:order_id   { delayMs?, fail?, created?, hold?, times? } how calls for this
 *                               order are answered
 *     DELETE /control/:order_id  releases what is held and forgets the orders
 *     GET  /control/:order_id    → { calls }, however they were answered
 *     GET  /control/:order_id/held   the same, as soon as an invoice's answer is held open
 */

const crypto = require('node:crypto');
const http = require('node:http');

/**
 * @typedef {object} Behaviour
 * @property {number} [delayMs] Wait before the invoice is made.
 * @property {number} [fail] Answer with this status and create nothing.
 * @property {boolean} [created] With `fail`: the invoice is created all the same.
 * @property {boolean} [hold] Create the invoice, then keep the answer until released.
 * @property {number} [times] For how many calls; without it until the behaviour is changed.
 */

/** @typedef {{ invoice_id: string, order_id: string, amount: number, created_at: string }} Invoice */

/** @param {http.IncomingMessage} request @returns {Promise<any>} */
async function readJson(request) {
	const chunks = [];
	for await (const chunk of request) chunks.push(chunk);
	const text = Buffer.concat(chunks).toString('utf8');
	return text === '' ? {} : JSON.parse(text);
}

/**
 * @param {{ port?: number }} [options] 0 or nothing: any free port.
 * @returns {Promise<{ port: number, url: string, invoices(orderId?: string): Invoice[],
 *   calls(orderId: string): number, close(): Promise<void> }>}
 */
async function startInvoiceServer({ port = 0 } = {}) {
	/** @type {Invoice[]} */
	const invoices = [];
	/** @type {Map<string, Invoice>} */
	const byKey = new Map();
	/** @type {Map<string, number>} */
	const calls = new Map();
	/** @type {Map<string, Behaviour>} */
	const behaviours = new Map();
	/** @type {Map<string, (() => void)[]>} Answers held open, by order. */
	const held = new Map();
	/** @type {Map<string, (() => void)[]>} Who waits until an answer is held, by order. */
	const watchers = new Map();

	/** @param {string} orderId */
	const find = (orderId) => invoices.filter((invoice) => invoice.order_id === orderId);

	/** @param {string} orderId @returns {Promise<void>} */
	const holdAnswer = (orderId) =>
		new Promise((resolve) => {
			held.set(orderId, [...(held.get(orderId) ?? []), resolve]);
			for (const tell of watchers.get(orderId) ?? []) tell();
			watchers.delete(orderId);
		});

	/** @param {string} orderId */
	const release = (orderId) => {
		for (const answer of held.get(orderId) ?? []) answer();
		held.delete(orderId);
	};

	/**
	 * @param {http.IncomingMessage} request
	 * @returns {Promise<{ status: number, body: unknown }>}
	 */
	async function answer(request) {
		const url = new URL(request.url ?? '/', 'http://local');
		const [, root, orderInPath, point] = url.pathname.split('/').map(decodeURIComponent);
		if (root === 'invoices' && request.method === 'GET') {
			const orderId = url.searchParams.get('order_id');
			return { status: 200, body: orderId === null ? invoices : find(orderId) };
		}
		if (root === 'invoices' && request.method === 'POST') {
			const order = await readJson(request);
			const orderId = String(order.order_id ?? '');
			if (orderId === '') return { status: 422, body: { message: 'order_id is missing' } };
			calls.set(orderId, (calls.get(orderId) ?? 0) + 1);
			const behaviour = behaviours.get(orderId) ?? {};
			if (behaviour.times !== undefined && --behaviour.times <= 0) behaviours.delete(orderId);
			if (behaviour.delayMs) await new Promise((done) => setTimeout(done, behaviour.delayMs));
			const failure = { status: behaviour.fail ?? 0, body: { message: 'the service refused' } };
			if (behaviour.fail && !behaviour.created) return failure;
			const key = request.headers['idempotency-key'];
			const first = typeof key === 'string' ? byKey.get(key) : undefined;
			const invoice = first ?? {
				// Random, as the server forgets with its process and the ledger does not.
				invoice_id: `INV-${crypto.randomBytes(4).toString('hex').toUpperCase()}`,
				order_id: orderId,
				amount: Number(order.amount ?? 0),
				created_at: new Date().toISOString(),
			};
			if (first === undefined) {
				invoices.push(invoice);
				if (typeof key === 'string') byKey.set(key, invoice);
			}
			if (behaviour.fail) return failure;
			if (behaviour.hold) await holdAnswer(orderId);
			return { status: first === undefined ? 201 : 200, body: invoice };
		}
		if (root === 'control' && orderInPath !== undefined) {
			if (request.method === 'PUT') {
				behaviours.set(orderInPath, await readJson(request));
				return { status: 200, body: {} };
			}
			if (request.method === 'DELETE') {
				behaviours.delete(orderInPath);
				release(orderInPath);
				return { status: 200, body: {} };
			}
			if (request.method === 'GET') {
				if (point === 'held' && !held.has(orderInPath)) {
					await new Promise((done) => {
						const tell = () => done(undefined);
						watchers.set(orderInPath, [...(watchers.get(orderInPath) ?? []), tell]);
					});
				}
				return { status: 200, body: { calls: calls.get(orderInPath) ?? 0 } };
			}
		}
		return { status: 404, body: { message: 'no such page' } };
	}

	const server = http.createServer((request, response) => {
		answer(request).then(
			({ status, body }) => {
				response.writeHead(status, { 'content-type': 'application/json' });
				response.end(JSON.stringify(body));
			},
			(error) => {
				response.writeHead(400, { 'content-type': 'application/json' });
				response.end(JSON.stringify({ message: String(error.message) }));
			},
		);
	});
	await new Promise((resolve, reject) => {
		server.once('error', reject);
		server.listen(port, '127.0.0.1', () => resolve(undefined));
	});
	const address = /** @type {import('node:net').AddressInfo} */ (server.address());
	return {
		port: address.port,
		url: `http://127.0.0.1:${address.port}`,
		invoices: (orderId) => (orderId === undefined ? [...invoices] : find(orderId)),
		calls: (orderId) => calls.get(orderId) ?? 0,
		close: () =>
			new Promise((resolve) => {
				for (const orderId of held.keys()) release(orderId);
				server.close(() => resolve());
				server.closeAllConnections();
			}),
	};
}

module.exports = { startInvoiceServer };
