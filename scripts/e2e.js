'use strict';

/**
 * `npm run test:e2e`: sets up PostgreSQL and a real n8n with this package, runs the tests of
 * test/e2e/ against them, and stops everything. Arguments go to jest (`-- -t "a version bump"`).
 * The processes belong to this one; the tests ask it to kill or restart n8n, to cut the ledger off,
 * or to start what only some of them need (n8n in queue mode, an older PostgreSQL), over a small
 * local control server. Queue mode needs `redis-server` (the Debian package of that name).
 */

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { leftOut, leftOutMessage } = require('./outside-programs');

const { startPostgres } = require('./embedded-postgres');
const { choosePort, freePort } = require('./n8n/ports');
const { startQueueMode } = require('./n8n/queue-mode');
const { takeTurn } = require('./n8n/turn');
const { startSeverableProxy } = require('./n8n/severable-proxy');
const { createLedgerDatabase, createN8nDatabase, createStage, progress } = require('./n8n/stage');

const CHECKOUT = path.dirname(__dirname);
const FOLDER = path.join(CHECKOUT, '.local', 'e2e');
const RESULTS = path.join(CHECKOUT, '.local', 'e2e-results.json');

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
 * @param {NodeJS.ProcessEnv} env
 * @returns {Promise<boolean>} Whether all tests passed.
 */
function runTests(env) {
	const jest = spawn(
		process.execPath,
		[
			path.join(CHECKOUT, 'node_modules', 'jest', 'bin', 'jest.js'),
			'--config=jest.e2e.config.js',
			'--runInBand',
			'--json',
			`--outputFile=${RESULTS}`,
			...process.argv.slice(2),
		],
		// The report goes to standard error; --json would repeat the file on standard output.
		{ cwd: CHECKOUT, env: { ...process.env, ...env }, stdio: ['ignore', 'ignore', 'inherit'] },
	);
	return new Promise((resolve, reject) => {
		jest.once('error', reject);
		jest.once('close', (code) => resolve(code === 0));
	});
}

async function main() {
	const report = progress();
	const endTurn = await takeTurn(FOLDER, report);
	// Every run begins with an empty ledger and an n8n that has never started.
	fs.rmSync(FOLDER, { recursive: true, force: true });
	fs.rmSync(RESULTS, { force: true });
	const stage = createStage({
		checkout: CHECKOUT,
		folder: FOLDER,
		choosePorts: async () => ({ n8n: await freePort(), invoices: await freePort() }),
		report,
	});
	let stopping = false;
	/** @type {(() => void | Promise<void>)[]} */
	const closers = [];
	const close = async () => {
		for (const closeOne of closers.splice(0)) await closeOne();
		await stage.close();
	};
	for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
		process.on(signal, () => {
			if (stopping) process.exit(130);
			stopping = true;
			void close().then(() => process.exit(130));
		});
	}
	let passed = false;
	try {
		const { n8n, ledger, invoiceServer, postgres, runtime, installedNodes } = await stage.open();
		const proxy = await startSeverableProxy(ledger);
		closers.push(() => proxy.close());
		/** @type {ReturnType<typeof startQueueMode> | null} */
		let queue = null;
		let queues = 0;
		const stopQueue = async () => {
			const stopped = queue;
			queue = null;
			// It may still be starting, or have failed to, which its own order has told.
			await (await stopped?.catch(() => null))?.stop();
		};
		closers.push(stopQueue);
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
				dataFolder: path.join(FOLDER, 'crashing-postgres'),
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
				closers.push(() => older.stop());
				report(`PostgreSQL 14: ready on port ${older.port}`);
				return await createLedgerDatabase(older);
			},
			'/ledger/start-crashing': async () => {
				crashing = await startCrashing();
				closers.push(() => crashing?.stop());
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
					folder: path.join(FOLDER, `queue-${queues}`),
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
			'/queue/stop': stopQueue,
		});
		closers.push(() => control.close());
		const { baseUrl, email, password } = n8n.client;
		report('tests: running');
		passed = await runTests({
			E2E_STAGE: JSON.stringify({
				n8n: { baseUrl, email, password },
				ledger,
				proxiedLedger: { ...ledger, host: '127.0.0.1', port: proxy.port },
				invoiceUrl: invoiceServer.url,
				controlUrl: control.url,
			}),
		});
		if (!passed) report(`n8n's log: ${path.relative(process.cwd(), n8n.logFile)}`);
	} catch (error) {
		if (!stopping) {
			process.stderr.write(`\n${error instanceof Error ? error.message : String(error)}\n`);
		}
	} finally {
		await close();
	}
	if (stopping) return;
	report('stopped PostgreSQL and n8n');
	if (fs.existsSync(RESULTS)) {
		const results = JSON.parse(fs.readFileSync(RESULTS, 'utf8'));
		process.stdout.write(
			`${leftOutMessage(leftOut('test/e2e/'))}\ne2e: ${results.numPassedTests} passed, ${results.numFailedTests} failed\n`,
		);
	}
	process.exitCode = passed ? 0 : 1;
	endTurn();
}

main().catch((error) => {
	process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
	process.exitCode = 1;
});
