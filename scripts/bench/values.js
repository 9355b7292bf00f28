'use strict';

/**
 * Works as a shop's order webhook would bring them: a payload of about 300 bytes, a result of about
 * 150, the caller's fields as n8n fills them. Made before the clock starts, the same for all sides.
 */

const { createHash, randomUUID } = require('node:crypto');

const KIND = 'invoice';
const VERSION = 'v1';

/**
 * @typedef {object} Work
 * @property {string} workId
 * @property {string} key
 * @property {string} token
 * @property {object} order The item, as it comes in
 * @property {string} payload Its JSON text
 * @property {object} result
 * @property {string} externalRef
 */

let made = 0;

/** @returns {Work} One that no call before has named. */
function makeWork() {
	const number = ++made;
	const key = `ORD-${100_000 + number}`;
	const cents = 1_000 + ((number * 7_919) % 90_000);
	const order = {
		order_id: key,
		event: 'order.paid',
		created_at: '2026-03-14T09:26:53.589Z',
		currency: 'EUR',
		total: cents / 100,
		customer: { id: `C-${number % 5_000}`, name: 'Zoë Müller', email: 'zoe@example.com' },
		lines: [
			{ sku: `SKU-${number % 700}`, quantity: 2, price: cents / 200 },
			{ sku: 'SHIPPING', quantity: 1, price: 4.9 },
		],
	};
	return {
		workId: createHash('sha256').update(`${KIND}:${VERSION}:${key}`).digest('hex'),
		key,
		token: randomUUID(),
		order,
		payload: JSON.stringify(order),
		result: {
			invoice: { id: `inv_${randomUUID()}`, number: `2026-${number}`, status: 'issued' },
			total: cents / 100,
			currency: 'EUR',
			pages: 1,
		},
		externalRef: `inv_${number}`,
	};
}

/** @param {number} count */
function makeWorks(count) {
	return Array.from({ length: count }, makeWork);
}

/** Works made in advance; one that runs dry makes more, then within the measured time. */
class Stock {
	/** @param {number} count */
	constructor(count) {
		this.works = makeWorks(count);
		this.next = 0;
	}

	/** @param {number} count @returns {Work[]} */
	take(count) {
		const missing = this.next + count - this.works.length;
		if (missing > 0) this.works.push(...makeWorks(missing));
		const taken = this.works.slice(this.next, this.next + count);
		this.next += count;
		return taken;
	}
}

/** Done works, claimed again and again with a fresh token each time. */
class Repeats {
	/** @param {Work[]} works */
	constructor(works) {
		this.works = works;
		this.next = 0;
	}

	/** @param {number} count @returns {Work[]} */
	take(count) {
		if (this.next + count > this.works.length) this.next = 0;
		const taken = this.works.slice(this.next, this.next + count);
		this.next += count;
		return taken.map((work) => ({ ...work, token: randomUUID() }));
	}
}

let executions = 0;

/** Every call comes from an execution of its own. */
function caller() {
	return {
		instance: '5f0e2b7a9c1d4e3f8a6b7c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f',
		workflow: 'kV3xQ9bTz81LmNpR',
		workflowName: 'Invoice from order webhook',
		execution: String(++executions),
		node: 'Claim Work',
		mode: 'webhook',
	};
}

/** The same in SQL's spelling. */
function callerColumns() {
	const { workflowName, ...fields } = caller();
	return { ...fields, workflow_name: workflowName };
}

module.exports = { KIND, VERSION, Repeats, Stock, caller, callerColumns, makeWorks };
