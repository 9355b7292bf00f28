'use strict';

/**
 * `npm run test:e2e`: sets up PostgreSQL and a real n8n with this package, runs the tests of
 * test/e2e/ against them, and stops everything. Arguments go to jest (`-- -t "a version bump"`).
 * The processes belong to this one; the tests ask it to kill or restart n8n, to cut the ledger off,
 * or to start what only some of them need (n8n in queue mode, an older PostgreSQL), over a small
 * local control server. Queue mode needs `redis-server` (the Debian package of that name).
 */

const http = require('node:http');
const path = require('node:path');
const { leftOut, leftOutMessage } = require('./outside-programs');

const { startPostgres } = require('./embedded-postgres');
const { choosePort, freePort } = require('./n8n/ports');
const { startQueueMode } = require('./n8n/queue-mode');
const { startSeverableProxy } = require('./n8n/severable-proxy');
const { createLedgerDatabase, createN8nDatabase } = require('./n8n/stage');
const { runTests } = require('./n8n/test-run');

/**
 * @param {Record<string, (parameters: URLSearchParams) => unknown>} orders By path; what they give
 *   or resolve to is the answer, as JSON.
 * @returns {Promise<{ url: string, close(): void }>}
 */
async function startControl(orders) {
	const server = http.createServer(async (request, response) => {
		const { pathname, searchParams } = new URL(request.url ?? '/', 'http://local');
		try {
			if (orders[pathname] === undefined) throw new Error(`unknown order ${pathname}`);
			const answer = await orders[pathname](searchParams);
			response.writeHead(200, { 'content-type': 'application/json' });
			response.end(JSON.stringify(answer ?? null));
		} catch (error) {
			response.writeHead(500).end(error instanceof Error ? error.message : String(error));
		}
	});
	const port = await freePort();
	await new Promise((resolve) => server.listen(port, '127.0.0.1', () => resolve(undefined)));
	return {
		url: `http://127.0.0.1:${port}`,
		close() {
			server.close();
			server.closeAllConnections();
		},
	};
}

/**
 * Puts the ledger behind a proxy and the processes under the orders of the tests.
 *
 * @param {import('./n8n/test-run').Opened} opened
 */
async function setUp({ stage, folder, report, atEnd }) {
	const { n8n, ledger, invoiceServer, postgres, runtime, installedNodes } = stage;
	const proxy = await startSeverableProxy(ledger);
	atEnd(() => proxy.close());
	/** @type {ReturnType<typeof startQueueMode> | null} */
	let queue = null;
	let queues = 0;
	const stopQueue = async () => {
		const stopped = queue;
		queue = null;
		// It may still be starting, or have failed to, which its own order has told.
		await (await stopped?.catch(() => null))?.stop();
	};
	atEnd(stopQueue);
	const runningQueue = async () => {
		if (queue === null) throw new Error('queue mode does not run');
		return await queue;
	};
	/** @type {Awaited<ReturnType<typeof startPostgres>> | null} */
	let crashing = null;
	const startCrashing = async (port = 0) => {
		// Not one of the ports that systems give to outgoing connections: those may take it meanwhile.
		const wish = {
			what: 'PostgreSQL',
			flag: '',
			wished: null,
			usual: 15_400 + (process.pid % 4_000),
		};
		return await startPostgres({
			dataFolder: path.join(folder, 'crashing-postgres'),
			port: port || (await choosePort(wish, () => undefined)),
		});
	};
	const control = await startControl({
		'/n8n/kill': () => n8n.kill(),
		'/n8n/start': () => n8n.start(),
		'/ledger/cut': () => proxy.cut(),
		'/ledger/restore': () => proxy.restore(),
		'/ledger/refused': () => proxy.refused(),
		// Only the tests that need them pay for these.
		'/ledger/start-14': async () => {
			const older = await startPostgres({ version: 14 });
			atEnd(() => older.stop());
			report(`PostgreSQL 14: ready on port ${older.port}`);
			return await createLedgerDatabase(older);
		},
		'/ledger/start-crashing': async () => {
			crashing = await startCrashing();
			atEnd(() => crashing?.stop());
			report(`a PostgreSQL that will crash: ready on port ${crashing.port}`);
			return await createLedgerDatabase(crashing);
		},
		// no checkpoint, every session cut off, recovery at the start
		'/ledger/crash': async () => {
			await crashing?.kill();
			crashing = await startCrashing(crashing?.port);
		},
		'/queue/start': async () => {
			// each begins anew: its credentials are encrypted with a key of its own
			queues += 1;
			const database = await createN8nDatabase(postgres, `n8n_queue_${queues}`);
			queue = startQueueMode({
				runtime,
				folder: path.join(folder, `queue-${queues}`),
				installedNodes,
				postgres: database,
				report,
			});
			const { baseUrl, email, password } = (await queue).client;
			return { baseUrl, email, password };
		},
		'/queue/executions': async () => (await runningQueue()).executions(),
		'/queue/kill-worker': async (parameters) =>
			await (await runningQueue()).killWorkerOf(parameters.get('execution') ?? ''),
		'/queue/start-dead-workers': async () => await (await runningQueue()).startDeadWorkers(),
		'/queue/restart-worker': async (parameters) =>
			await (
				await runningQueue()
			).restartWorker(parameters.get('name') ?? '', parameters.get('package') === 'installed'),
		'/queue/stop': stopQueue,
	});
	atEnd(() => control.close());
	const { baseUrl, email, password } = n8n.client;
	return {
		E2E_STAGE: JSON.stringify({
			n8n: { baseUrl, email, password },
			ledger,
			proxiedLedger: { ...ledger, host: '127.0.0.1', port: proxy.port },
			invoiceUrl: invoiceServer.url,
			controlUrl: control.url,
		}),
	};
}

runTests({
	name: 'e2e',
	checkout: path.dirname(__dirname),
	config: 'jest.e2e.config.js',
	words: process.argv.slice(2),
	leftOut: () => leftOutMessage(leftOut('test/e2e/')),
	setUp,
}).catch((error) => {
	process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
	process.exitCode = 1;
});
