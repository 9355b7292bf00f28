'use strict';

/**
 * `npm run test:e2e`: sets up PostgreSQL and a real n8n with this package, runs the tests of
 * test/e2e/ against them, and stops everything. Arguments go to jest (`-- -t "a version bump"`).
 * The processes belong to this one; the tests ask it to kill or restart n8n, or to cut the ledger
 * off, over a small local control server.
 */

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const { freePort } = require('./n8n/ports');
const { startSeverableProxy } = require('./n8n/severable-proxy');
const { createStage, progress } = require('./n8n/stage');

const CHECKOUT = path.dirname(__dirname);
const FOLDER = path.join(CHECKOUT, '.local', 'e2e');
const RESULTS = path.join(CHECKOUT, '.local', 'e2e-results.json');

/**
 * @param {Record<string, () => void | Promise<void>>} orders By path.
 * @returns {Promise<{ url: string, close(): void }>}
 */
async function startControl(orders) {
	const server = http.createServer(async (request, response) => {
		const order = orders[request.url ?? ''];
		try {
			if (order === undefined) throw new Error(`unknown order ${request.url}`);
			await order();
			response.writeHead(204).end();
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
		const { n8n, ledger, invoiceServer } = await stage.open();
		const proxy = await startSeverableProxy(ledger);
		closers.push(() => proxy.close());
		const control = await startControl({
			'/n8n/kill': () => n8n.kill(),
			'/n8n/start': () => n8n.start(),
			'/ledger/cut': () => proxy.cut(),
			'/ledger/restore': () => proxy.restore(),
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
			`\ne2e: ${results.numPassedTests} passed, ${results.numFailedTests} failed\n`,
		);
	}
	process.exitCode = passed ? 0 : 1;
}

main().catch((error) => {
	process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
	process.exitCode = 1;
});
