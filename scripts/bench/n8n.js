'use strict';

/**
 * Part "n8n": a real n8n with this package installed, on an embedded PostgreSQL.
 *
 * - One execution with many items: Claim Work and Complete Work, beside n8n's Postgres node with raw
 *   SQL for each item, and Remove Duplicates. The time is n8n's own, of the nodes alone.
 * - A webhook workflow with and without the two nodes: requests per second, and how long an answer takes.
 */

const fs = require('node:fs');
const path = require('node:path');

const { freePort } = require('../n8n/ports');
const { LEDGER_CREDENTIAL_TYPE, createStage, ledgerCredential } = require('../n8n/stage');
const { Rates, demand, median, quantile, rotated, rounded, target } = require('./measure');

/** Callers of the webhook at the same time. */
const CALLERS = 10;
const RAW_TABLE = `create table raw_order (order_id text primary key, state text not null,
	claimed_at timestamptz not null default now(), result text)`;

/** @typedef {{ name: string, type: string, typeVersion: number, parameters: object, credentials?: object }} Node */

/** @param {string} id @param {Node[]} nodes One after another. */
const flow = (id, nodes) => ({
	id,
	name: id,
	settings: { executionOrder: 'v1' },
	nodes: nodes.map((node, at) => ({ id: `${id}-${at}`, position: [at * 200, 0], ...node })),
	connections: Object.fromEntries(
		nodes
			.slice(1)
			.map(({ name }, at) => [
				nodes[at].name,
				{ main: [[{ node: name, type: 'main', index: 0 }]] },
			]),
	),
});

/** @param {string} route @returns {Node & { webhookId: string }} */
const webhook = (route) => ({
	name: 'Webhook',
	type: 'n8n-nodes-base.webhook',
	typeVersion: 2,
	webhookId: route,
	parameters: { httpMethod: 'POST', path: route, responseMode: 'lastNode', options: {} },
});

/** @type {Node} */
const SPLIT = {
	name: 'Split Out',
	type: 'n8n-nodes-base.splitOut',
	typeVersion: 1,
	parameters: { fieldToSplitOut: 'body.orders', options: {} },
};
/** One item, so that the answer is small. @type {Node} */
const LAST = {
	name: 'Last',
	type: 'n8n-nodes-base.limit',
	typeVersion: 1,
	parameters: { maxItems: 1 },
};
/** @param {string} keyFields @returns {Node} */
const claim = (keyFields) => ({
	name: 'Claim Work',
	type: 'n8n-nodes-idempotency.claimWork',
	typeVersion: 1,
	credentials: { [LEDGER_CREDENTIAL_TYPE]: {} },
	parameters: { kind: 'order', version: 'v1', identity: 'fields', keyFields, options: {} },
});
/** @type {Node} */
const COMPLETE = {
	name: 'Complete Work',
	type: 'n8n-nodes-idempotency.completeWork',
	typeVersion: 1,
	credentials: { [LEDGER_CREDENTIAL_TYPE]: {} },
	parameters: { operation: 'complete', result: 'item', options: {} },
};
/** @param {string} name @param {string} query @param {string} queryBatching @returns {Node} */
const postgresNode = (name, query, queryBatching) => ({
	name,
	type: 'n8n-nodes-base.postgres',
	typeVersion: 2.6,
	credentials: { postgres: {} },
	parameters: {
		operation: 'executeQuery',
		query,
		options: { queryReplacement: '={{ [$json.order_id] }}', queryBatching },
	},
});
const CLAIM_SQL = `insert into raw_order (order_id, state) values ($1, 'running')
	on conflict (order_id) do nothing returning order_id`;
const COMPLETE_SQL = `update raw_order set state = 'done', result = 'done' where order_id = $1 returning order_id`;

/** The nodes under the clock. @type {Record<string, { title: string, nodes: Node[] }>} */
const WAYS = {
	ledger: { title: 'Claim Work, Complete Work', nodes: [claim('order_id'), COMPLETE] },
	postgresEach: {
		title: 'Postgres node, a query for each item',
		nodes: [
			postgresNode('Claim', CLAIM_SQL, 'independently'),
			postgresNode('Complete', COMPLETE_SQL, 'independently'),
		],
	},
	postgresSingle: {
		title: 'Postgres node, queries joined (its default)',
		nodes: [
			postgresNode('Claim', CLAIM_SQL, 'single'),
			postgresNode('Complete', COMPLETE_SQL, 'single'),
		],
	},
	removeDuplicates: {
		title: 'Remove Duplicates (claims only, keeps no result)',
		nodes: [
			{
				name: 'Remove Duplicates',
				type: 'n8n-nodes-base.removeDuplicates',
				typeVersion: 2,
				parameters: {
					operation: 'removeItemsSeenInPreviousExecutions',
					logic: 'removeItemsWithAlreadySeenKeyValues',
					dedupeValue: '={{ $json.order_id }}',
					options: { historySize: 1_000_000 },
				},
			},
		],
	},
};

/** @type {Node} */
const ANSWER = {
	name: 'Answer',
	type: 'n8n-nodes-base.set',
	typeVersion: 3.4,
	parameters: { mode: 'raw', jsonOutput: '={{ { ok: true } }}', options: {} },
};

/** @type {import('./measure').Part} */
const n8n = {
	name: 'n8n',
	title: "a real n8n: many items, and a webhook's cost",
	async run({ rounds, seconds, items, report, checkout }) {
		const folder = path.join(checkout, '.local', 'bench-n8n');
		fs.rmSync(folder, { recursive: true, force: true });
		const stage = createStage({
			checkout,
			folder,
			choosePorts: async () => ({ n8n: await freePort(), invoices: await freePort() }),
			report,
		});
		try {
			const { n8n: instance, ledger, runtime } = await stage.open();
			const { client } = instance;
			const { Client } = require('pg');
			const database = new Client(ledger);
			await database.connect();
			await database.query(RAW_TABLE);
			const { rows: version } = await database.query('show server_version');
			await database.end();
			const { host, port, user, password } = ledger;
			const credentials = {
				[LEDGER_CREDENTIAL_TYPE]: await client.importCredential({
					name: 'Ledger',
					type: LEDGER_CREDENTIAL_TYPE,
					data: ledgerCredential(ledger),
				}),
				postgres: await client.importCredential({
					name: 'Postgres',
					type: 'postgres',
					data: { host, port, user, password, database: ledger.database, ssl: 'disable' },
				}),
			};
			const importFlow = async (/** @type {string} */ id, /** @type {Node[]} */ nodes) =>
				await client.importWorkflow(flow(id, [webhook(id), ...nodes]), { credentials });
			for (const [way, { nodes }] of Object.entries(WAYS)) {
				await importFlow(way, [SPLIT, ...nodes, LAST]);
			}
			await importFlow('with-ledger', [claim('body.order_id'), ANSWER, COMPLETE]);
			await importFlow('without-ledger', [ANSWER]);

			let orders = 0;
			const nextOrder = () => `ORD-${++orders}`;

			const rates = new Rates();
			for (let round = 0; round < rounds; round++) {
				for (const way of rotated(Object.keys(WAYS), round)) {
					report(`n8n: ${WAYS[way].title}, round ${round + 1} of ${rounds}`);
					const body = { orders: Array.from({ length: items }, () => ({ order_id: nextOrder() })) };
					const url = `${client.baseUrl}/webhook/${way}`;
					const { status } = await client.post(url, body, 600_000);
					if (status !== 200) throw new Error(`${way} was answered with ${status}`);
					const [last] = await client.lastExecutions(way, 1);
					const ended = await client.executionReaches(last, ['success', 'error']);
					const { nodes } = WAYS[way];
					demand(items, ended.json(nodes[nodes.length - 1].name).length, way);
					const ms = nodes.reduce((sum, { name }) => sum + ended.tookMs(name), 0);
					rates.add({ [way]: (items * 1000) / ms });
				}
			}

			/** @type {Record<string, number[]>} */
			const latencies = { 'with-ledger': [], 'without-ledger': [] };
			const calls = new Rates();
			const span = Math.max(4 * seconds, 2);
			for (let round = 0; round <= rounds; round++) {
				report(`n8n: webhook, ${round === 0 ? 'warm-up' : `round ${round} of ${rounds}`}`);
				for (const route of rotated(Object.keys(latencies), round)) {
					const { perSecond, tookMs } = await call(client, route, span, nextOrder);
					if (round === 0) continue;
					calls.add({ [route]: perSecond });
					latencies[route].push(...tookMs);
				}
			}

			const medians = rates.medians();
			const perSecond = calls.medians();
			const webhooks = Object.entries(latencies).map(([route, tookMs]) => ({
				route,
				perSecond: perSecond[route],
				p50Ms: rounded(median(tookMs), 1),
				p99Ms: rounded(quantile(tookMs, 0.99), 1),
			}));
			return {
				result: {
					postgres: version[0].server_version.split(' ')[0],
					n8n: runtime.n8nVersion,
					items,
					itemsPerSecond: medians,
					callers: CALLERS,
					webhooks,
				},
				targets: [
					target(
						`nodes / a query for each item, ${items} items`,
						rates.ratio('ledger', 'postgresEach'),
						15,
					),
					target(
						'webhook with the nodes / without, requests',
						calls.ratio('with-ledger', 'without-ledger'),
						0.85,
					),
				],
				tables: [
					{
						title: `${items.toLocaleString('en-US')} items in one execution`,
						columns: ['items/s', "the ledger's nodes, times as fast"],
						rows: Object.entries(WAYS).map(([way, { title }]) => [
							title,
							medians[way],
							rates.ratio('ledger', way).toFixed(2),
						]),
					},
					{
						title: `webhook, ${CALLERS} callers`,
						columns: ['requests/s', 'p50 ms', 'p99 ms'],
						rows: webhooks.map((one) => [one.route, one.perSecond, one.p50Ms, one.p99Ms]),
					},
				],
				notes: [
					`n8n ${runtime.n8nVersion} with its defaults (expression engine included), its own database on the same PostgreSQL.`,
					'Claimed and completed; the Postgres node by an insert and an update of a narrow table, without log, lease or stored item.',
				],
			};
		} finally {
			await stage.close();
			fs.rmSync(folder, { recursive: true, force: true });
		}
	},
};

/**
 * @param {import('../n8n/client').N8nClient} client
 * @param {string} route @param {number} seconds @param {() => string} nextOrder
 */
async function call(client, route, seconds, nextOrder) {
	/** @type {number[]} */
	const tookMs = [];
	const started = performance.now();
	const caller = async () => {
		while (performance.now() - started < seconds * 1000) {
			const sent = performance.now();
			const { status } = await client.webhook(route, { order_id: nextOrder() });
			if (status !== 200) throw new Error(`${route} was answered with ${status}`);
			tookMs.push(performance.now() - sent);
		}
	};
	await Promise.all(Array.from({ length: CALLERS }, caller));
	return { perSecond: (tookMs.length * 1000) / (performance.now() - started), tookMs };
}

module.exports = { n8n };
