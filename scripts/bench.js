'use strict';

/**
 * `npm run bench`: works per second through the ledger (claim + complete, with the decision log)
 * beside raw SQL without a log, in one run on one embedded PostgreSQL, and duplicates and replays of
 * decisions per second.
 * Progress goes to standard error; standard output gets a table and, on its last line, one JSON
 * object.
 */

const os = require('node:os');
const path = require('node:path');
const { parseArgs } = require('node:util');

const { buildIfOlder } = require('./bench/build');
const { Repeats, Stock, makeWorks } = require('./bench/values');

const CHECKOUT = path.dirname(__dirname);
/** Done works that stand in each table before each measurement. */
const PREFILLED = 10_000;
/** Runs before the clock starts: plans, caches, and the first touch of each page since a checkpoint. */
const WARM_UP_SHARE = 0.3;
/** The client's default, and the raw pool's. */
const POOL_SIZE = 10;

const HELP = `npm run bench [-- options]

  --rounds N    measurements of each figure; the median is shown (default 7, at least 5)
  --seconds S   length of one measurement (default 1; of duplicates and replays, half of it)
  --json        only the JSON object, without the table
  --help        this text

The exit code is 0 whenever everything was measured, whether targets were reached or not.
`;

/**
 * @typedef {object} Mode
 * @property {string} name
 * @property {string} title
 * @property {number} lanes Callers at the same time.
 * @property {number} size Works in one call.
 * @property {number} target Least share of the raw rate.
 * @property {number} stockPerSecond Works to make in advance.
 */

/** @type {Mode[]} */
const MODES = [
	{ name: 'single', title: 'one at a time', lanes: 1, size: 1, target: 0.7, stockPerSecond: 4_000 },
	{ name: 'ten', title: 'ten at once', lanes: 10, size: 1, target: 0.6, stockPerSecond: 10_000 },
	{
		name: 'batch',
		title: 'batches of 1,000',
		lanes: 1,
		size: 1_000,
		target: 0.5,
		stockPerSecond: 40_000,
	},
];

/**
 * @typedef {object} Options
 * @property {number} rounds
 * @property {number} seconds
 * @property {boolean} json
 */

/** @returns {Options | null} null: only the help was asked for. */
function readOptions() {
	const { values } = parseArgs({
		options: {
			rounds: { type: 'string', default: '7' },
			seconds: { type: 'string', default: '1' },
			json: { type: 'boolean', default: false },
			help: { type: 'boolean', default: false },
		},
	});
	if (values.help) return null;
	const rounds = Number(values.rounds);
	const seconds = Number(values.seconds);
	if (!Number.isInteger(rounds) || rounds < 5) throw new Error('--rounds: 5 or more.');
	if (!(seconds >= 0.1 && seconds <= 600)) throw new Error('--seconds: from 0.1 to 600.');
	return { rounds, seconds, json: values.json };
}

/**
 * Calls until the time is over; a call that began within it counts.
 *
 * @param {Mode} mode
 * @param {number} seconds
 * @param {(count: number) => Promise<void>} work Does so many works.
 * @returns {Promise<number>} Works per second.
 */
async function measure(mode, seconds, work) {
	const runFor = async (/** @type {number} */ forSeconds) => {
		const started = performance.now();
		const deadline = started + forSeconds * 1000;
		let done = 0;
		const lane = async () => {
			while (performance.now() < deadline) {
				await work(mode.size);
				done += mode.size;
			}
		};
		await Promise.all(Array.from({ length: mode.lanes }, lane));
		return (done * 1000) / (performance.now() - started);
	};
	await runFor(seconds * WARM_UP_SHARE);
	return await runFor(seconds);
}

/** @param {number} expected @param {number} counted @param {string} what */
function demand(expected, counted, what) {
	if (counted !== expected) throw new Error(`${counted} of ${expected} works were ${what}.`);
}

/**
 * @param {import('./bench/sides').Side} side
 * @param {import('./bench/values').Work[]} works
 */
async function fireOnce(side, works) {
	demand(works.length, await side.claim(works), 'claimed');
	demand(works.length, await side.complete(works), 'completed');
}

/**
 * @param {Options} options
 * @param {(line: string) => void} report
 */
async function run({ rounds, seconds }, report) {
	await buildIfOlder(CHECKOUT, report);
	const { Pool } = require('pg');
	const { startPostgres } = require('./embedded-postgres');
	const { functionsSide, loadLedger, startClient, startRaw } = require('./bench/sides');

	// Vacuum, analyze and checkpoints are done by hand, outside the measured time.
	const postgres = await startPostgres({ settings: { autovacuum: 'off' } });
	const { host, port, user, password, database } = postgres;
	const server = { host, port, user, password, database };
	const newPool = () => {
		const pool = new Pool({
			...server,
			max: POOL_SIZE,
			idleTimeoutMillis: 30_000,
			keepAlive: true,
		});
		// The server may end before the last idle connection has said goodbye.
		pool.on('error', () => undefined);
		return pool;
	};
	const pools = { raw: newPool(), functions: newPool(), upkeep: newPool() };
	const { upkeep } = pools;
	/** @type {(() => Promise<void>)[]} */
	const closers = [];
	try {
		const {
			side: client,
			replays,
			close,
		} = await startClient(loadLedger(CHECKOUT), {
			...server,
			maxConnections: POOL_SIZE,
		});
		closers.push(close);
		const sides = {
			raw: await startRaw(pools.raw),
			functions: functionsSide(pools.functions),
			client,
		};
		const { rows } = await upkeep.query('show server_version');
		const postgresVersion = rows[0].server_version.split(' ')[0];

		// The same done works in both; copied aside, so that every measurement starts from them.
		const doneWorks = makeWorks(PREFILLED);
		const tables = [...sides.raw.tables, ...client.tables];
		for (const side of [sides.raw, client]) await fireOnce(side, doneWorks);
		for (const table of tables) {
			await upkeep.query(`create table ${copyOf(table)} as select * from ${table}`);
		}
		const reset = async () => {
			for (const table of tables) {
				await upkeep.query(`truncate ${table}`);
				await upkeep.query(
					`insert into ${table} overriding system value select * from ${copyOf(table)}`,
				);
				await upkeep.query(`vacuum (analyze) ${table}`);
			}
			await upkeep.query('checkpoint');
		};

		/** @type {Record<string, Record<string, number[]>>} rates by mode and side */
		const rates = {};
		/** @type {Record<string, Record<string, number[]>>} */
		const duplicateRates = {};
		/** @type {Record<string, number[]>} by mode */
		const replayRates = {};
		const names = /** @type {(keyof typeof sides)[]} */ (Object.keys(sides));
		for (let round = 0; round < rounds; round++) {
			report(`round ${round + 1} of ${rounds}`);
			// Nobody is always the first of a round.
			const order = names.map((_, i) => names[(i + round) % names.length]);
			for (const mode of MODES) {
				for (const name of order) {
					const stock = new Stock(Math.ceil(mode.stockPerSecond * seconds * (1 + WARM_UP_SHARE)));
					await reset();
					const rate = await measure(mode, seconds, (count) =>
						fireOnce(sides[name], stock.take(count)),
					);
					((rates[mode.name] ??= {})[name] ??= []).push(rate);
				}
				for (const name of order) {
					const repeats = new Repeats(doneWorks);
					await reset();
					const rate = await measure(mode, seconds / 2, async (count) =>
						demand(count, await sides[name].meetDuplicates(repeats.take(count)), 'duplicates'),
					);
					((duplicateRates[mode.name] ??= {})[name] ??= []).push(rate);
				}
				const repeats = new Repeats(replays.questions);
				await reset();
				const rate = await measure(mode, seconds / 2, async (count) =>
					demand(count, await replays.replay(repeats.take(count)), 'replayed'),
				);
				(replayRates[mode.name] ??= []).push(rate);
			}
		}
		return { postgresVersion, rates, duplicateRates, replayRates };
	} finally {
		for (const close of closers) await close();
		await Promise.all(Object.values(pools).map((pool) => pool.end()));
		await postgres.stop();
	}
}

/** @param {string} table */
function copyOf(table) {
	return `public.prefilled_${table.replace(/^.*\./, '')}`;
}

/** @param {number[]} values */
function median(values) {
	const sorted = [...values].sort((a, b) => a - b);
	const middle = sorted.length >> 1;
	return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * The median of the rounds' own ratios: neighbours in time share what else the machine did.
 *
 * @param {number[]} ours
 * @param {number[]} raw
 */
function medianRatio(ours, raw) {
	return rounded(median(ours.map((rate, i) => rate / raw[i])), 3);
}

/** @param {number} value @param {number} digits */
function rounded(value, digits) {
	return Number(value.toFixed(digits));
}

/**
 * @template T
 * @param {(mode: Mode) => T} value
 * @returns {Record<string, T>} By the modes' names.
 */
function perMode(value) {
	return Object.fromEntries(MODES.map((mode) => [mode.name, value(mode)]));
}

/**
 * @param {Options} options
 * @param {Awaited<ReturnType<typeof run>>} measured
 * @param {number} loadBefore
 */
function summary({ rounds, seconds }, measured, loadBefore) {
	const { postgresVersion, rates, duplicateRates, replayRates } = measured;
	const medians = (/** @type {Record<string, number[]>} */ bySide) =>
		Object.fromEntries(
			Object.entries(bySide).map(([name, values]) => [name, Math.round(median(values))]),
		);
	return {
		rounds,
		seconds,
		poolSize: POOL_SIZE,
		prefilledWorks: PREFILLED,
		postgres: postgresVersion,
		node: process.versions.node,
		cores: os.cpus().length,
		loadAverage: { before: rounded(loadBefore, 2), after: rounded(os.loadavg()[0], 2) },
		worksPerSecond: perMode((mode) => medians(rates[mode.name])),
		functionsRatio: perMode((mode) =>
			medianRatio(rates[mode.name].functions, rates[mode.name].raw),
		),
		duplicatesPerSecond: perMode((mode) => medians(duplicateRates[mode.name])),
		replaysPerSecond: perMode((mode) => Math.round(median(replayRates[mode.name]))),
		targets: perMode((mode) => {
			const ratio = medianRatio(rates[mode.name].client, rates[mode.name].raw);
			return { ratio, target: mode.target, reached: ratio >= mode.target };
		}),
	};
}

/** @param {ReturnType<typeof summary>} result */
function printTable(result) {
	const number = (/** @type {number} */ value) => value.toLocaleString('en-US');
	const line = (/** @type {string[]} */ cells) =>
		console.log(cells.map((cell, i) => (i === 0 ? cell.padEnd(20) : cell.padStart(14))).join(''));
	const section = (/** @type {string} */ title, /** @type {string[]} */ columns) => {
		console.log('');
		line([title, ...columns]);
	};

	section('works/s', ['raw SQL', 'functions', 'client', 'client/raw', 'target']);
	for (const { name, title } of MODES) {
		const { raw, functions, client } = result.worksPerSecond[name];
		const { ratio, target, reached } = result.targets[name];
		const verdict = `${target} ${reached ? 'reached' : 'missed'}`;
		line([title, number(raw), number(functions), number(client), ratio.toFixed(2), verdict]);
	}
	section('duplicates/s', ['raw SQL', 'functions', 'client']);
	for (const { name, title } of MODES) {
		const { raw, functions, client } = result.duplicatesPerSecond[name];
		line([title, number(raw), number(functions), number(client)]);
	}
	section('replays/s', ['', '', 'client']);
	for (const { name, title } of MODES) line([title, '', '', number(result.replaysPerSecond[name])]);
	const { before, after } = result.loadAverage;
	console.log(`
A work is one claim and one completion; the ledger's sides write the decision log, raw SQL does not.
A duplicate is a claim of done work: the ledger answers with the stored result and logs it, raw SQL with no row.
A replay is a look-up of a stored decision: the ledger answers with its value and logs it.
Medians of ${result.rounds} rounds of ${result.seconds} s; the ratio is the median of the rounds' ratios.
PostgreSQL ${result.postgres} (default fsync), Node.js ${result.node}, ${result.cores} cores, load average ${before} before, ${after} after.
`);
}

async function main() {
	const options = readOptions();
	if (options === null) {
		process.stdout.write(HELP);
		return;
	}
	const since = Date.now();
	const report = (/** @type {string} */ line) => {
		const elapsed = ((Date.now() - since) / 1000).toFixed(1).padStart(6);
		process.stderr.write(`[${elapsed} s] ${line}\n`);
	};
	const loadBefore = os.loadavg()[0];
	const result = summary(options, await run(options, report), loadBefore);
	if (!options.json) printTable(result);
	console.log(JSON.stringify(result));
}

main().catch((error) => {
	console.error(error instanceof Error ? error.message : error);
	process.exitCode = 1;
});
