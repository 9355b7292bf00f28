'use strict';

/**
 * `npm test`: everything a change has to pass, in a fresh clone without a step before it. What
 * follows `--` goes to Jest (`npm test -- test/ledger`).
 */

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { leftOut, leftOutMessage, playingLess } = require('./outside-programs');

const checkout = path.dirname(__dirname);
const results = path.join(checkout, '.local', 'test-results.json');

/**
 * @param {string} title
 * @param {string} command
 * @param {string[]} parameters
 */
function step(title, command, parameters) {
	console.log(`\n== ${title}`);
	const started = Date.now();
	const { status, error } = spawnSync(command, parameters, {
		cwd: checkout,
		stdio: 'inherit',
		// npm is a command file on Windows, which only a shell runs.
		shell: process.platform === 'win32',
	});
	if (error) console.error(`Cannot run ${command}: ${error.message}`);
	if (status !== 0) {
		console.error(`\n${title}: failed.`);
		process.exit(status ?? 1);
	}
	console.log(`   ${((Date.now() - started) / 1000).toFixed(1)} s`);
}

const major = Number(process.versions.node.split('.')[0]);
if (major < 20) {
	console.error(`Node.js 20 or newer is needed; this is ${process.version}.`);
	process.exit(1);
}

fs.rmSync(results, { force: true });
fs.mkdirSync(path.dirname(results), { recursive: true });

// npm writes this file when an installation is complete.
if (!fs.existsSync(path.join(checkout, 'node_modules', '.package-lock.json'))) {
	step('Dependencies (npm ci)', 'npm', ['ci', '--ignore-scripts']);
}
step('PostgreSQL for the tests', process.execPath, [path.join(__dirname, 'prepare-postgres.js')]);
step('Types, lint, format (npm run check)', 'npm', ['run', '--silent', 'check']);
step('Tests', process.execPath, [
	path.join('node_modules', 'jest', 'bin', 'jest.js'),
	'--json',
	`--outputFile=${results}`,
	...process.argv.slice(2),
]);
console.log(
	leftOutMessage(
		leftOut().filter(({ file }) => !file.startsWith('test/e2e/')),
		playingLess(),
	),
);
