'use strict';

/** How a rate is taken, and what is said about several of them. */

/** Runs before the clock starts: plans, caches, and the first touch of each page since a checkpoint. */
const WARM_UP_SHARE = 0.3;

/**
 * @typedef {object} Mode
 * @property {string} name
 * @property {string} title
 * @property {number} lanes Callers at the same time.
 * @property {number} size Works in one call.
 * @property {number} stockPerSecond Works to make in advance.
 */

/** @type {Mode[]} */
const MODES = [
	{ name: 'single', title: 'one at a time', lanes: 1, size: 1, stockPerSecond: 4_000 },
	{ name: 'ten', title: 'ten at once', lanes: 10, size: 1, stockPerSecond: 10_000 },
	{ name: 'batch', title: 'batches of 1,000', lanes: 1, size: 1_000, stockPerSecond: 40_000 },
	{ name: 'large', title: 'batches of 10,000', lanes: 1, size: 10_000, stockPerSecond: 40_000 },
];

/** @param {string} name @returns {Mode} */
function modeNamed(name) {
	const mode = MODES.find((one) => one.name === name);
	if (mode === undefined) throw new Error(`no mode is named ${name}`);
	return mode;
}

/** Of a measurement; between two slices of one side the others have theirs. */
const SLICES = 5;

/**
 * The rates of several sides over the same while: each for a slice in its turn, so that whatever else the machine does falls
 * on all of them alike. A call that began within a slice counts.
 *
 * @template {string} Name
 * @param {Mode} mode
 * @param {number} seconds For each side.
 * @param {Record<Name, (count: number) => Promise<void>>} sides Each does so many works.
 * @param {number} [round] Who begins.
 * @returns {Promise<Record<Name, number>>} Works per second.
 */
async function measure(mode, seconds, sides, round = 0) {
	const names = /** @type {Name[]} */ (Object.keys(sides));
	const runs = names.map((name) => ({ name, work: sides[name], done: 0, ms: 0 }));
	for (const { work } of runs) await callFor(mode, seconds * WARM_UP_SHARE, work);
	for (let turn = round; runs.some(({ ms }) => ms < seconds * 1000); turn++) {
		for (const run of rotated(runs, turn)) {
			// calls that take longer than a slice
			if (run.ms >= seconds * 1000) continue;
			const { done, ms } = await callFor(mode, seconds / SLICES, run.work);
			run.done += done;
			run.ms += ms;
		}
	}
	const rates = runs.map(({ name, done, ms }) => [name, (done * 1000) / ms]);
	return /** @type {Record<Name, number>} */ (Object.fromEntries(rates));
}

/** @param {Mode} mode @param {number} seconds @param {(count: number) => Promise<void>} work */
async function callFor(mode, seconds, work) {
	const started = performance.now();
	const deadline = started + seconds * 1000;
	let done = 0;
	const lane = async () => {
		while (performance.now() < deadline) {
			await work(mode.size);
			done += mode.size;
		}
	};
	await Promise.all(Array.from({ length: mode.lanes }, lane));
	return { done, ms: performance.now() - started };
}

/** Works that a measurement of so many seconds may need. @param {Mode} mode @param {number} seconds */
function stockFor(mode, seconds) {
	return Math.ceil(Math.max(mode.stockPerSecond * seconds * (1 + WARM_UP_SHARE), 3 * mode.size));
}

/** @param {number} expected @param {number} counted @param {string} what */
function demand(expected, counted, what) {
	if (counted !== expected) throw new Error(`${counted} of ${expected} works were ${what}.`);
}

/**
 * @param {(works: import('./values').Work[]) => Promise<number>} call
 * @param {{ take(count: number): import('./values').Work[] }} source
 * @param {string} what All of them must be.
 */
function calls(call, source, what) {
	return async (/** @type {number} */ count) => demand(count, await call(source.take(count)), what);
}

/** @param {number[]} values */
function median(values) {
	return quantile(values, 0.5);
}

/** @param {number[]} values @param {number} share From 0 to 1; between two values, their mix. */
function quantile(values, share) {
	const sorted = [...values].sort((a, b) => a - b);
	const at = (sorted.length - 1) * share;
	const below = Math.floor(at);
	const above = Math.ceil(at);
	return sorted[below] + (sorted[above] - sorted[below]) * (at - below);
}

/**
 * The median of the rounds' own ratios: neighbours in time share what else the machine did.
 *
 * @param {number[]} ours
 * @param {number[]} theirs
 */
function medianRatio(ours, theirs) {
	return rounded(median(ours.map((rate, i) => rate / theirs[i])), 3);
}

/** @param {number} value @param {number} digits */
function rounded(value, digits) {
	return Number(value.toFixed(digits));
}

/** Nobody is always the first of a round. @template T @param {T[]} list @param {number} round */
function rotated(list, round) {
	return list.map((_, i) => list[(i + round) % list.length]);
}

/** Rates by name, one for each round. */
class Rates {
	constructor() {
		/** @type {Record<string, number[]>} */
		this.byName = {};
	}

	/** @param {Record<string, number>} rates Of one round. */
	add(rates) {
		for (const [name, rate] of Object.entries(rates)) (this.byName[name] ??= []).push(rate);
	}

	/** @returns {Record<string, number>} */
	medians() {
		return Object.fromEntries(
			Object.entries(this.byName).map(([name, rates]) => [name, Math.round(median(rates))]),
		);
	}

	/** @param {string} ours @param {string} theirs */
	ratio(ours, theirs) {
		return medianRatio(this.byName[ours], this.byName[theirs]);
	}
}

/**
 * @typedef {object} Target
 * @property {string} what
 * @property {number} ratio
 * @property {number} target Least ratio.
 * @property {boolean} reached
 */

/** @param {string} what @param {number} ratio @param {number} least @returns {Target} */
function target(what, ratio, least) {
	return { what, ratio, target: least, reached: ratio >= least };
}

/**
 * A part of the bench.
 *
 * @typedef {object} Part
 * @property {string} name
 * @property {string} title
 * @property {(bench: Bench) => Promise<Measured>} run
 */

/**
 * @typedef {object} Bench
 * @property {number} rounds
 * @property {number} seconds Length of one measurement.
 * @property {(line: string) => void} report
 * @property {number} millions Rows of the largest ledger that the growth part fills.
 * @property {number} items In one execution of the part n8n.
 * @property {string} checkout
 */

/**
 * @typedef {object} Measured
 * @property {object} result For programs.
 * @property {Target[]} targets
 * @property {Table[]} tables
 * @property {string[]} notes
 */

/** @typedef {{ title: string, columns: string[], rows: (string | number)[][] }} Table */

/** @param {Table} table @returns {string} */
function tableText({ title, columns, rows }) {
	const cells = [
		[title, ...columns],
		...rows.map((row) =>
			row.map((cell) => (typeof cell === 'number' ? cell.toLocaleString('en-US') : cell)),
		),
	];
	const widths = cells[0].map((_, i) => Math.max(...cells.map((row) => (row[i] ?? '').length)));
	return cells
		.map((row) =>
			row
				.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i] + 2)))
				.join('')
				.trimEnd(),
		)
		.join('\n');
}

module.exports = {
	MODES,
	Rates,
	calls,
	demand,
	measure,
	median,
	medianRatio,
	modeNamed,
	quantile,
	rotated,
	rounded,
	stockFor,
	tableText,
	target,
};
