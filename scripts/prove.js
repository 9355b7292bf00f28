'use strict';

/**
 * `npm run prove`: several worker processes with the package's client on one embedded PostgreSQL, faults of every kind, and
 * a checker that reads what was recorded and looks for broken promises. docs/proof.md says what is checked.
 */

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { setTimeout: delay } = require('node:timers/promises');
const { parseArgs } = require('node:util');

const { isInstalled } = require('./outside-programs');
const { CLASSES } = require('./prove/check-work');
const { Crew, faketimeLibrary } = require('./prove/crew');
const { injectFaults } = require('./prove/faults');
const { Server } = require('./prove/server');
const { createRunFolder } = require('./run-folder');

// the client and the pooler are written in TypeScript, and nothing is built
require('../test/environments/load-typescript');

const FOLDER_PREFIX = 'n8n-nodes-idempotency-prove-';
/** Callers at the same time in one worker. */
const LANES = 3;
const PROGRESS_MS = 10_000;
/** What a worker may take for the step it is at, a client's retries included. */
const STOP_MS = 60_000;
const MOST_SECONDS = 86_400;

const WRONG = ['lease', 'completion'];

const HELP = `npm run prove [-- options]

  --seconds S    how long the workers run (default 30)
  --minutes M    the same in minutes
  --operations N until so many are done as well, however slow the machine (default 0; at most a day)
  --workers N    worker processes (default 4)
  --seed SEED    repeats a run's plan: the operations of each worker and the order of the faults (timing still differs)
  --wrong SQL    lease or completion: puts well-known wrong SQL in place of the ledger's; the checker must find it
  --json         only one JSON object
  --keep         keeps the recorded histories and says where
  --help         this text

Exit code 0: no violation and no deadlock. 1: violations. 2: the run itself failed.
`;

/**
 * @typedef {object} Options
 * @property {number} seconds
 * @property {number} operations
 * @property {number} workers
 * @property {string} seed
 * @property {string | null} wrong
 * @property {boolean} json
 * @property {boolean} keep
 */

/** @returns {Options | null} null: only the help was asked for. */
function readOptions() {
	const { values } = parseArgs({
		options: {
			seconds: { type: 'string' },
			minutes: { type: 'string' },
			operations: { type: 'string', default: '0' },
			workers: { type: 'string', default: '4' },
			seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 32)) },
			wrong: { type: 'string' },
			json: { type: 'boolean', default: false },
			keep: { type: 'boolean', default: false },
			help: { type: 'boolean', default: false },
		},
	});
	if (values.help) return null;
	const seconds =
		values.minutes === undefined ? Number(values.seconds ?? 30) : Number(values.minutes) * 60;
	const workers = Number(values.workers);
	if (values.minutes !== undefined && values.seconds !== undefined) {
		throw new Error('--seconds or --minutes, not both.');
	}
	if (!(seconds >= 1 && seconds <= MOST_SECONDS)) throw new Error('--seconds: from 1 to a day.');
	const operations = Number(values.operations);
	if (!Number.isInteger(operations) || operations < 0 || operations > 1e9) {
		throw new Error('--operations: from 0 to 1000000000.');
	}
	if (!Number.isInteger(workers) || workers < 2 || workers > 16) {
		throw new Error('--workers: from 2 to 16.');
	}
	const wrong = values.wrong ?? null;
	if (wrong !== null && !WRONG.includes(wrong)) throw new Error(`--wrong: ${WRONG.join(' or ')}.`);
	const { seed, json, keep } = values;
	return { seconds, operations, workers, seed, wrong, json, keep };
}

/** Faults that need other programs: left out where one is missing, but not in CI. */
function programs() {
	const found = {
		pgbouncer: isInstalled('pgbouncer'),
		// elsewhere a library is not put before a program in this way
		faketime: process.platform === 'linux' && isInstalled('faketime'),
	};
	const missing = Object.entries(found).flatMap(([name, there]) => (there ? [] : [name]));
	if (missing.length > 0 && process.env.CI === 'true') {
		throw new Error(`Missing, and required in CI: apt-get install ${missing.join(' ')}`);
	}
	return { ...found, missing };
}

/**
 * @param {Options} options
 * @param {(line: string) => void} say
 * @param {Array<() => Promise<void> | void>} cleanUp What ends what was started, the last first.
 */
async function prove(options, say, cleanUp) {
	const { seconds, seed } = options;
	const { pgbouncer, faketime, missing } = programs();
	if (missing.length > 0) {
		say(
			`left out, for want of other programs: ${missing.join(', ')} (apt-get install ${missing.join(' ')})`,
		);
	}
	const folder = createRunFolder(FOLDER_PREFIX);
	const records = path.join(folder, 'records');
	fs.mkdirSync(records);
	cleanUp.push(() => {
		if (options.keep) say(`records: ${records}`);
		else fs.rmSync(folder, { recursive: true, force: true });
	});
	// where the pooler's files go
	process.env.IDEMPOTENCY_TEST_FOLDER = folder;
	const server = new Server(folder);
	cleanUp.push(async () => await server.remove());
	say(`seed ${seed}; starting PostgreSQL`);
	const direct = await server.start();
	await install(server, direct, options.wrong);
	let pooled = direct;
	if (pgbouncer) {
		const { startPgBouncer } = require('../test/environments/pgbouncer');
		const pooler = await startPgBouncer(direct);
		cleanUp.push(async () => await pooler.stop());
		pooled = pooler.config;
		// after a restart of PostgreSQL it would by itself wait 15 s before it looks again, and half the workers with it
		const console = await pooler.console();
		await console.query('set server_login_retry = 1');
		await console.end();
	}

	const crew = new Crew({
		seed,
		lanes: LANES,
		folder: records,
		faketime: faketime ? faketimeLibrary() : null,
		settings: Array.from({ length: options.workers }, (_, index) => ({
			// every second worker goes through the pooler
			...(index % 2 === 1 ? pooled : direct),
			maxConnections: LANES,
			connectTimeoutSeconds: 5,
			queryTimeoutSeconds: 10,
			automaticMigration: false,
		})),
	});
	cleanUp.push(async () => await crew.kill());
	await crew.start();
	say('the workers run');
	const started = performance.now();
	const isOver = () => {
		const ran = (performance.now() - started) / 1000;
		const enough = ran >= seconds && crew.operations >= options.operations;
		return enough || ran >= MOST_SECONDS || crew.failure !== null;
	};
	const injected = {
		'workers killed': 0,
		'pauses beyond a lease': 0,
		'backends terminated': 0,
		'PostgreSQL restarts': 0,
	};
	const progress = setInterval(() => say(`${crew.operations} operations`), PROGRESS_MS);
	cleanUp.push(() => clearInterval(progress));
	await Promise.all([
		injectFaults({ seed, crew, server, wholeRound: options.wrong === null, isOver, injected }),
		untilOver(isOver),
	]);
	clearInterval(progress);
	const running = (performance.now() - started) / 1000;
	say('stopping the workers');
	await within(STOP_MS, crew.stop());
	// wrong SQL is found out long before, and need not bring anything to its end
	const drained = options.wrong === null;
	if (drained) {
		say('bringing every work to its end');
		// a healthy worker, for whom nothing is broken any more
		const [healer] = crew.workers;
		await healer.start(true);
		await within(STOP_MS, healer.ended);
	}
	if (crew.failure !== null) throw new Error(crew.failure);

	await server.countDeadlocks();
	say('checking');
	const report = await check({ server: direct, folder: records, drained });
	return {
		seed,
		seconds: Math.round(running),
		workers: options.workers,
		wrong: options.wrong,
		...report,
		deadlocks: server.deadlocks,
		perSecond: Math.round(report.operations / running),
		faults: {
			...injected,
			'workers with a shifted clock': crew.shifted,
			'workers through PgBouncer': pgbouncer ? Math.floor(options.workers / 2) : 0,
		},
		leftOut: missing,
	};
}

/**
 * @param {Server} server
 * @param {object} settings
 * @param {string | null} wrong
 */
async function install(server, settings, wrong) {
	const { createLedger } = require('../ledger');
	const ledger = createLedger(settings);
	await ledger.install();
	await ledger.close();
	const files = ['recording.sql', ...(wrong === null ? [] : [path.join('wrong', `${wrong}.sql`)])];
	for (const file of files) {
		await server.query(fs.readFileSync(path.join(__dirname, 'prove', file), 'utf8'));
	}
}

/** @param {() => boolean} isOver */
async function untilOver(isOver) {
	while (!isOver()) await delay(50);
}

/** @param {number} ms @param {Promise<void>} work */
async function within(ms, work) {
	const late = delay(ms, 'late', { ref: false });
	if ((await Promise.race([work, late])) === 'late') throw new Error('A worker did not end.');
}

/** The checker is a program of its own. @param {import('./prove/checker').Job} job */
async function check(job) {
	const child = spawn(
		process.execPath,
		[path.join(__dirname, 'prove', 'checker.js'), JSON.stringify(job)],
		{ stdio: ['ignore', 'pipe', 'inherit'] },
	);
	let text = '';
	child.stdout.setEncoding('utf8').on('data', (part) => {
		text += part;
	});
	const code = await new Promise((resolve) => child.once('close', resolve));
	if (code !== 0) throw new Error('The checker failed.');
	return JSON.parse(text);
}

/** @param {Awaited<ReturnType<typeof prove>>} report */
function show(report) {
	const lines = [
		`operations  ${report.operations} on ${report.works} works in ${report.calls} calls, ${report.perSecond} per second; ${report.answersLost} calls whose answer was lost`,
		`recorded    ${report.effects} effects, ${report.changes} changes, ${report.decisions} decisions; the checker took ${report.memoryMb} MB`,
		`faults      ${Object.entries(report.faults)
			.map(([name, count]) => `${name} ${count}`)
			.join(', ')}`,
		...(report.leftOut.length > 0 ? [`left out    ${report.leftOut.join(', ')}`] : []),
		`answers     ${Object.entries(report.answers)
			.sort()
			.map(([name, count]) => `${name} ${count}`)
			.join(', ')}`,
		'',
		...Object.entries(CLASSES).map(
			([name, text]) => `${String(report.byClass[name]).padStart(9)}  ${text}`,
		),
		...report.told.map(({ class: name, work, text }) => `  ${name}: ${work}: ${text}`),
		`${String(report.deadlocks).padStart(9)}  deadlocks, by PostgreSQL's own count`,
		'',
		`${report.violations} violations; to repeat this plan: npm run prove -- ${repeatOptions(report)}`,
	];
	return lines.join('\n');
}

/** @param {Awaited<ReturnType<typeof prove>>} report */
function repeatOptions({ seed, workers, seconds, wrong }) {
	const options = { seed, workers, seconds, ...(wrong === null ? {} : { wrong }) };
	return Object.entries(options)
		.map(([name, value]) => `--${name} ${value}`)
		.join(' ');
}

async function main() {
	const options = readOptions();
	if (options === null) {
		console.log(HELP);
		return;
	}
	/** @type {Array<() => Promise<void> | void>} */
	const cleanUp = [];
	/** @type {Promise<void> | null} */
	let cleaned = null;
	const clean = () => (cleaned ??= cleanAll(cleanUp));
	for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
		process.once(signal, () => {
			console.error('\nstopping');
			void clean().finally(() => process.exit(130));
		});
	}
	const began = performance.now();
	const say = (/** @type {string} */ line) =>
		console.error(
			`prove [${String(Math.round((performance.now() - began) / 1000)).padStart(3)} s] ${line}`,
		);
	try {
		const report = await prove(options, say, cleanUp);
		console.log(options.json ? JSON.stringify(report) : show(report));
		process.exitCode = report.violations + report.deadlocks > 0 ? 1 : 0;
	} catch (error) {
		// what a clean-up cut short is no failure
		if (cleaned === null) console.error(error instanceof Error ? error.message : error);
		process.exitCode = 2;
	}
	await clean();
}

/** @param {Array<() => Promise<void> | void>} steps */
async function cleanAll(steps) {
	for (const step of steps.reverse()) {
		try {
			await step();
		} catch (error) {
			console.error(`prove: could not clean up: ${error}`);
		}
	}
}

main().catch((error) => {
	console.error(error.message);
	process.exitCode = 2;
});
