'use strict';

const { execFile } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { promisify } = require('node:util');

const run = promisify(execFile);

const SOURCES = ['credentials', 'ledger', 'migrations', 'nodes', 'gulpfile.js', 'tsconfig.json'];

/** @param {string} entry @returns {number} The newest change at or below it, ms; 0 without it. */
function newestChange(entry) {
	const found = fs.statSync(entry, { throwIfNoEntry: false });
	if (found === undefined) return 0;
	if (!found.isDirectory()) return found.mtimeMs;
	const below = fs.readdirSync(entry).map((name) => newestChange(path.join(entry, name)));
	// The folder's own time tells of removed files.
	return Math.max(found.mtimeMs, ...below);
}

/**
 * Installs the npm packages where there are none, and builds where dist is missing or older than
 * the sources.
 *
 * @param {string} checkout
 * @param {(line: string) => void} report
 */
async function buildIfOlder(checkout, report) {
	const npm = async (/** @type {string[]} */ parameters) => {
		try {
			await run('npm', parameters, { cwd: checkout, shell: process.platform === 'win32' });
		} catch (error) {
			throw new Error(`npm ${parameters.join(' ')} failed:\n${error.stdout}\n${error.stderr}`);
		}
	};
	// npm writes this file when an installation is complete.
	if (!fs.existsSync(path.join(checkout, 'node_modules', '.package-lock.json'))) {
		report('npm packages: installing');
		await npm(['ci', '--ignore-scripts', '--no-audit', '--no-fund']);
	}
	// What the compiler writes: copied files may keep the times of their sources.
	const compiled = path.join(checkout, 'dist', 'ledger', 'index.js');
	const sources = Math.max(...SOURCES.map((name) => newestChange(path.join(checkout, name))));
	if (newestChange(compiled) > sources) return;
	report('build: compiling');
	await npm(['run', 'build']);
}

module.exports = { buildIfOlder };
