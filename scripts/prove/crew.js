'use strict';

/** The workers of a prove, seen from outside: started, killed and started again, stopped and continued. */

const { execFileSync, spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const LOADER = path.join(__dirname, '..', '..', 'test', 'environments', 'load-typescript.js');
/** How far the clocks of workers stand off, in seconds; each new incarnation has the next. */
const SHIFTS_SECONDS = [0, 420, -660, 259_200];

/**
 * @typedef {object} CrewOptions
 * @property {string | number} seed
 * @property {number} lanes
 * @property {string} folder Where histories go.
 * @property {object[]} settings Of the ledger, one for each worker.
 * @property {string | null} faketime The library that shifts a process's clock; null: all have the right time.
 */

/** @typedef {import('node:child_process').ChildProcess} Process */

class Crew {
	/** @param {CrewOptions} options */
	constructor(options) {
		this.options = options;
		/** @type {Worker[]} */
		this.workers = options.settings.map((settings, index) => new Worker(this, index, settings));
		this.shifted = 0;
		this.closed = false;
		/** What a worker said before it ended by itself. @type {string | null} */
		this.failure = null;
	}

	async start() {
		await Promise.all(this.workers.map((worker) => worker.start()));
	}

	/** Lets everybody finish the step they are at. */
	async stop() {
		await Promise.all(this.workers.map((worker) => worker.stop()));
	}

	/** Ends everybody now, and starts nobody any more. */
	async kill() {
		this.closed = true;
		for (const worker of this.workers) worker.end();
		await Promise.all(this.workers.map(({ ended }) => ended));
	}

	get operations() {
		return this.workers.reduce((sum, worker) => sum + worker.before + worker.operations, 0);
	}
}

class Worker {
	/** @param {Crew} crew @param {number} index @param {object} settings */
	constructor(crew, index, settings) {
		this.crew = crew;
		this.index = index;
		this.settings = settings;
		this.instance = `worker ${index}`;
		this.incarnation = 0;
		/** The next step of each lane. */
		this.next = Array.from({ length: crew.options.lanes }, () => 0);
		this.before = 0;
		this.operations = 0;
		/** @type {Process | null} */
		this.process = null;
		/** @type {Promise<void>} */
		this.ended = Promise.resolve();
		this.expected = false;
	}

	/** @param {boolean} [drain] @returns {Promise<void>} resolves when it runs */
	start(drain = false) {
		if (this.crew.closed) return Promise.resolve();
		const { seed, folder, faketime } = this.crew.options;
		this.before += this.operations;
		this.operations = 0;
		const shift =
			faketime === null
				? 0
				: SHIFTS_SECONDS[(this.index + this.incarnation) % SHIFTS_SECONDS.length];
		const name = drain ? 'drain' : `${this.index}.${this.incarnation}`;
		const job = {
			seed,
			worker: this.index,
			incarnation: drain ? 'drain' : this.incarnation,
			from: this.next,
			settings: this.settings,
			history: path.join(folder, `history.${name}.jsonl`),
			effects: path.join(folder, `effects.${name}.jsonl`),
			drain,
		};
		const child = spawn(
			process.execPath,
			['--require', LOADER, path.join(__dirname, 'worker.js'), JSON.stringify(job)],
			{
				stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
				env:
					shift === 0
						? process.env
						: {
								...process.env,
								LD_PRELOAD: faketime ?? '',
								FAKETIME: `${shift > 0 ? '+' : ''}${shift}s`,
							},
			},
		);
		this.incarnation++;
		this.process = child;
		this.expected = false;
		let said = '';
		child.stderr?.setEncoding('utf8').on('data', (text) => {
			said = (said + text).slice(-4_000);
		});
		this.ended = new Promise((resolve) => {
			child.once('exit', (code, signal) => {
				removeTraces(child.pid, shift);
				if (!this.expected && code !== 0) {
					this.crew.failure ??= `${this.instance} ended by itself (${signal ?? code}):\n${said}`;
				}
				resolve();
			});
		});
		return new Promise((resolve) => {
			void this.ended.then(resolve);
			child.on('message', (/** @type {any} */ message) => {
				if (message.clock !== undefined) {
					// counted only where it is seen to work
					if (Math.abs(message.clock - Date.now()) > 60_000) this.crew.shifted++;
					resolve();
				}
				if (message.operations !== undefined) this.operations = message.operations;
				if (message.next !== undefined) this.next[message.lane] = message.next;
			});
		});
	}

	end() {
		this.expected = true;
		this.process?.kill('SIGKILL');
	}

	async killAndRestart() {
		this.end();
		await this.ended;
		await this.start();
	}

	pause() {
		this.process?.kill('SIGSTOP');
	}

	resume() {
		this.process?.kill('SIGCONT');
	}

	async stop() {
		if (this.process?.connected) this.process.send({ stop: true }, () => undefined);
		await this.ended;
	}
}

/** A killed process leaves behind what libfaketime shares its offset through. @param {number | undefined} pid @param {number} shift */
function removeTraces(pid, shift) {
	if (shift === 0 || pid === undefined) return;
	for (const name of [`faketime_shm_${pid}`, `sem.faketime_sem_${pid}`]) {
		fs.rmSync(path.join('/dev/shm', name), { force: true });
	}
}

/** The library to preload, as the faketime program finds it; it understands `$LIB`. */
function faketimeLibrary() {
	return execFileSync('faketime', ['-f', '+0s', 'printenv', 'LD_PRELOAD'], {
		encoding: 'utf8',
	}).trim();
}

module.exports = { Crew, Worker, faketimeLibrary };
