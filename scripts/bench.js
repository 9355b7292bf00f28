'use strict';

/**
 * `npm run bench`: what the ledger costs, each figure beside its neighbour's of the same run, on an
 * embedded PostgreSQL of its own. Progress goes to standard error; standard output gets tables and,
 * on its last line, one JSON object.
 */

const os = require('node:os');
const path = require('node:path');
const { parseArgs } = require('node:util');

const { buildIfOlder } = require('./bench/build');
const { rounded, tableText } = require('./bench/measure');

const CHECKOUT = path.dirname(__dirname);
/** In the order in which they run; each file says what it measures. */
const PARTS = ['core', 'growth', 'peers', 'n8n', 'memory', 'instructions'];
/** Asks for a program that few machines have. */
const BY_NAME_ONLY = 'instructions';

const HELP = `npm run bench [-- options]

  --only LIST   parts, separated by commas; without it: core
                  core    raw SQL, with and without a log, the functions, the client, the nodes
                  growth  claims and duplicates in a ledger of 0, 1 and 10 million works
                  peers   pg-boss, graphile-worker, DBOS (installed into a cache folder)
                  n8n     a real n8n: the Postgres node and Remove Duplicates beside the ledger's
                          nodes, and a webhook workflow with and without them
                  memory  100,000 items in one execution
                  instructions
                          what the server executes for a claim and a completion,
                          counted by valgrind (Linux)
  --all         all parts but instructions
  --rounds N    measurements of each figure; the median is shown (default 5, at least 5)
  --seconds S   length of one measurement (default 0.5)
  --millions N  the largest ledger of growth (default 10)
  --items N     items of one execution in the part n8n (default 10,000)
  --json        only the JSON object, without the tables
  --help        this text

The exit code is 0 whenever everything was measured, whether targets were reached or not.
`;

function readOptions() {
	const { values } = parseArgs({
		options: {
			only: { type: 'string', default: 'core' },
			all: { type: 'boolean', default: false },
			rounds: { type: 'string', default: '5' },
			seconds: { type: 'string', default: '0.5' },
			millions: { type: 'string', default: '10' },
			items: { type: 'string', default: '10000' },
			json: { type: 'boolean', default: false },
			help: { type: 'boolean', default: false },
		},
	});
	if (values.help) return null;
	const rounds = Number(values.rounds);
	const seconds = Number(values.seconds);
	const millions = Number(values.millions);
	const items = Number(values.items);
	const names = values.all
		? PARTS.filter((name) => name !== BY_NAME_ONLY)
		: values.only.split(',').map((name) => name.trim());
	const unknown = names.filter((name) => !PARTS.includes(name));
	if (unknown.length > 0) {
		throw new Error(`--only: no part is named ${unknown.join(', ')}. Parts: ${PARTS.join(', ')}.`);
	}
	if (!Number.isInteger(rounds) || rounds < 5) throw new Error('--rounds: 5 or more.');
	if (!(seconds >= 0.1 && seconds <= 600)) throw new Error('--seconds: from 0.1 to 600.');
	if (!Number.isInteger(items) || items < 100 || items > 100_000) {
		throw new Error('--items: from 100 to 100000.');
	}
	if (!(millions >= 1 && millions <= 100)) throw new Error('--millions: from 1 to 100.');
	return { names, rounds, seconds, millions, items, json: values.json };
}

/** @param {string} name @returns {import('./bench/measure').Part} */
function loadPart(name) {
	return require(`./bench/${name}`)[name];
}

/** @param {import('./bench/measure').Target[]} targets */
function targetTable(targets) {
	return {
		title: 'to reach',
		columns: ['ratio', 'target', ''],
		rows: targets.map(({ what, ratio, target, reached }) => [
			what,
			ratio.toFixed(2),
			String(target),
			reached ? 'reached' : 'missed',
		]),
	};
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
	const { names, rounds, seconds, millions, items, json } = options;
	await buildIfOlder(CHECKOUT, report);
	const load = () => rounded(os.loadavg()[0], 2);
	const machine = {
		node: process.versions.node,
		cores: os.cpus().length,
		loadAverage: { before: load(), after: 0 },
	};
	/** @type {Record<string, object>} */
	const parts = {};
	const targets = [];
	for (const name of names) {
		const part = loadPart(name);
		const bench = { rounds, seconds, millions, items, report, checkout: CHECKOUT };
		const loadBefore = load();
		const measured = await part.run(bench);
		parts[name] = { ...measured.result, loadAverage: { before: loadBefore, after: load() } };
		targets.push(...measured.targets);
		if (json) continue;
		console.log(`\n## ${part.title}\n`);
		for (const table of measured.tables) console.log(`${tableText(table)}\n`);
		for (const note of measured.notes) console.log(note);
		console.log(`Load average ${loadBefore} before, ${load()} after.`);
	}
	machine.loadAverage.after = load();
	if (!json) {
		if (targets.length > 0) console.log(`\n${tableText(targetTable(targets))}`);
		console.log(`
Medians of ${rounds} rounds of ${seconds} s; a ratio is the median of the rounds' own ratios.
Node.js ${machine.node}, ${machine.cores} cores, load average ${machine.loadAverage.before} before, ${machine.loadAverage.after} after.
`);
	}
	console.log(JSON.stringify({ rounds, seconds, ...machine, targets, parts }));
}

main().catch((error) => {
	console.error(error instanceof Error ? error.message : error);
	process.exitCode = 1;
});
