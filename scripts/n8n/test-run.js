'use strict';

/** A run of Jest against a real n8n: what `npm run test:e2e` and `npm run test:e2e:browser` share. */

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const { freePort } = require('./ports');
const { createStage, progress } = require('./stage');
const { takeTurn } = require('./turn');

/**
 * @typedef {object} TestRun
 * @property {string} name Of the run in messages, and of its folder in .local.
 * @property {string} checkout
 * @property {string} config Jest's configuration.
 * @property {string[]} words What goes to Jest.
 * @property {boolean} [panel] Whether the tests install the package through n8n's panel; otherwise it is installed before.
 * @property {() => string} [leftOut] What to say at the end of tests that did not run.
 * @property {(open: Opened) => NodeJS.ProcessEnv | Promise<NodeJS.ProcessEnv>} setUp Gives what the tests find in their
 *   environment.
 */

/**
 * @typedef {object} Opened
 * @property {import('./stage').Stage} stage
 * @property {string} folder
 * @property {import('./stage').Report} report
 * @property {(close: () => void | Promise<void>) => void} atEnd Is done before n8n and PostgreSQL are stopped.
 */

/**
 * @param {TestRun} run @param {string} results @param {NodeJS.ProcessEnv} env
 * @returns {Promise<boolean>} Whether all tests passed.
 */
function runJest({ checkout, config, words }, results, env) {
	const jest = spawn(
		process.execPath,
		[
			path.join(checkout, 'node_modules', 'jest', 'bin', 'jest.js'),
			`--config=${config}`,
			'--runInBand',
			'--json',
			`--outputFile=${results}`,
			...words,
		],
		// The report goes to standard error; --json would repeat the file on standard output.
		{ cwd: checkout, env: { ...process.env, ...env }, stdio: ['ignore', 'ignore', 'inherit'] },
	);
	return new Promise((resolve, reject) => {
		jest.once('error', reject);
		jest.once('close', (code) => resolve(code === 0));
	});
}

/**
 * Sets up PostgreSQL and n8n, runs the tests, and stops everything, however it ends. The exit code tells whether all
 * passed; `.local/<name>-results.json` has Jest's results.
 *
 * @param {TestRun} run
 */
async function runTests(run) {
	const { name, checkout } = run;
	const folder = path.join(checkout, '.local', name);
	const results = path.join(checkout, '.local', `${name}-results.json`);
	const report = progress();
	const endTurn = await takeTurn(folder, report);
	// Every run begins with an empty ledger and an n8n that has never started.
	fs.rmSync(folder, { recursive: true, force: true });
	fs.rmSync(results, { force: true });
	const stage = createStage({
		checkout,
		folder,
		choosePorts: async () => ({ n8n: await freePort(), invoices: await freePort() }),
		report,
		panel: run.panel,
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
		const opened = await stage.open();
		const atEnd = (/** @type {() => void | Promise<void>} */ closeOne) =>
			void closers.push(closeOne);
		const env = await run.setUp({ stage: opened, folder, report, atEnd });
		report('tests: running');
		passed = await runJest(run, results, env);
		if (!passed) report(`n8n's log: ${path.relative(process.cwd(), opened.n8n.logFile)}`);
	} catch (error) {
		if (!stopping) {
			process.stderr.write(`\n${error instanceof Error ? error.message : String(error)}\n`);
		}
	} finally {
		await close();
	}
	if (stopping) return;
	report('stopped PostgreSQL and n8n');
	if (fs.existsSync(results)) {
		const { numPassedTests, numFailedTests } = JSON.parse(fs.readFileSync(results, 'utf8'));
		process.stdout.write(
			`${run.leftOut?.() ?? ''}\n${name}: ${numPassedTests} passed, ${numFailedTests} failed\n`,
		);
	}
	process.exitCode = passed ? 0 : 1;
	endTurn();
}

module.exports = { runTests };
