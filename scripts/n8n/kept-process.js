'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { setTimeout: delay } = require('node:timers/promises');

/**
 * @param {number} group
 * @returns {boolean} Whether a process of the group still runs.
 */
function groupLives(group) {
	try {
		process.kill(-group, 0);
		return true;
	} catch {
		// Nobody is left, or (EPERM) the number went to somebody else's processes meanwhile.
		return false;
	}
}

/**
 * @typedef {object} Start
 * @property {string} what Its name in messages.
 * @property {string} command
 * @property {string[]} parameters
 * @property {string} folder Its working directory.
 * @property {NodeJS.ProcessEnv} env
 * @property {string} ready What it writes when it is ready.
 */

/**
 * A server as a process group of its own, behind a keeper: it ends with this process, however that
 * happens, and can be killed on the spot with all its children. May be started again.
 */
class KeptProcess {
	/** @param {string} logFile Appended to; its folder has to exist. */
	constructor(logFile) {
		this.logFile = logFile;
		/** @type {import('node:child_process').ChildProcess | null} */
		this.child = null;
	}

	/**
	 * Starts it and waits until it says that it is ready.
	 *
	 * @param {Start} start
	 * @param {(line: string) => void} [report] Is called every 10 s with what it waits for.
	 * @throws {Error} With the end of its log, when it ends before or takes over 5 minutes.
	 */
	async start({ what, command, parameters, folder, env, ready }, report = () => {}) {
		if (this.child !== null) throw new Error(`this ${what} runs already`);
		const from = fs.existsSync(this.logFile) ? fs.statSync(this.logFile).size : 0;
		const log = fs.openSync(this.logFile, 'a');
		const keeper = path.join(__dirname, 'keeper.js');
		const child = spawn(process.execPath, [keeper, command, ...parameters], {
			cwd: folder,
			env,
			detached: true,
			stdio: ['pipe', log, log],
		});
		fs.closeSync(log);
		this.child = child;
		let ended = false;
		child.once('error', () => (ended = true));
		child.once('exit', () => {
			ended = true;
			if (this.child === child) this.child = null;
		});
		const since = Date.now();
		let said = since;
		for (;;) {
			const written = fs.readFileSync(this.logFile).subarray(from).toString('utf8');
			if (written.includes(ready)) return;
			if (ended || Date.now() - since > 300_000) {
				await this.kill();
				const tail = written.trim().split('\n').slice(-25).join('\n');
				throw new Error(`${what} ${ended ? 'ended' : 'was not ready in 5 minutes'}:\n${tail}`);
			}
			if (Date.now() - said > 10_000) {
				said = Date.now();
				report(`waiting for ${what}, ${Math.round((said - since) / 1000)} s`);
			}
			await delay(100);
		}
	}

	/** @param {NodeJS.Signals} signal @param {number} patienceMs */
	async #end(signal, patienceMs) {
		const child = this.child;
		if (child === null || child.pid === undefined) return;
		const group = child.pid;
		const send = (/** @type {NodeJS.Signals} */ what) => {
			try {
				process.kill(-group, what);
			} catch {
				// Nobody of the group is left.
			}
		};
		send(signal);
		const since = Date.now();
		while (groupLives(group) && Date.now() - since < patienceMs) await delay(50);
		if (groupLives(group)) send('SIGKILL');
		while (groupLives(group) && Date.now() - since < patienceMs + 10_000) await delay(50);
		this.child = null;
	}

	/** Asks it to end, and its whole process group after 20 s; nothing else is touched. */
	async stop() {
		await this.#end('SIGTERM', 20_000);
	}

	/** Kills it and its children on the spot, as a crash would. */
	async kill() {
		await this.#end('SIGKILL', 0);
	}
}

module.exports = { KeptProcess };
