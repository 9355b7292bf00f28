'use strict';

/**
 * Part "memory": 100,000 items through Claim Work and Complete Work in one execution of n8n's engine,
 * in a process of its own, beside the same execution with two nodes that pass their items on.
 */

const { fork } = require('node:child_process');

const { median, rotated } = require('./measure');
const { withServer } = require('./server');
const { LEDGER_TABLES, loadLedger, startClient } = require('./sides');

const ITEMS = 100_000;

/** @typedef {{ peakMb: number, seconds: number }} Run */

/** @param {Run[]} runs @returns {Run} */
function medianRun(runs) {
	return {
		peakMb: median(runs.map(({ peakMb }) => peakMb)),
		seconds: median(runs.map(({ seconds }) => seconds)),
	};
}

/**
 * @param {string} checkout @param {object} access @param {boolean} withLedger
 * @returns {Promise<Run>}
 */
function runApart(checkout, access, withLedger) {
	return new Promise((resolve, reject) => {
		const child = fork(__filename, [JSON.stringify({ checkout, access, withLedger })], {
			execArgv: [],
		});
		child.once('message', (/** @type {any} */ measured) => resolve(measured));
		child.once('error', reject);
		child.once('exit', (code) => reject(new Error(`the run of memory ended with ${code}`)));
	});
}

/** @type {import('./measure').Part} */
const memory = {
	name: 'memory',
	title: `${ITEMS.toLocaleString('en-US')} items in one execution`,
	run: ({ rounds, report, checkout }) =>
		withServer(async ({ access, version, upkeep }, closers) => {
			const client = await startClient(loadLedger(checkout), access);
			closers.push(client.close);
			/** @type {Record<'without' | 'withLedger', Run[]>} */
			const runs = { without: [], withLedger: [] };
			const names = /** @type {(keyof typeof runs)[]} */ (Object.keys(runs));
			for (let round = 0; round < rounds; round++) {
				report(`memory: round ${round + 1} of ${rounds}`);
				for (const name of rotated(names, round)) {
					// the same orders each time: to the ledger they are to be new
					await upkeep.query(`truncate ${LEDGER_TABLES.join(', ')}`);
					runs[name].push(await runApart(checkout, access, name === 'withLedger'));
				}
			}
			const without = medianRun(runs.without);
			const withLedger = medianRun(runs.withLedger);
			const row = (
				/** @type {string} */ title,
				/** @type {typeof without} */ { peakMb, seconds },
			) => [title, peakMb, seconds.toFixed(1), Math.round(ITEMS / seconds)];
			return {
				result: { postgres: version, items: ITEMS, without, withLedger },
				targets: [],
				tables: [
					{
						title: '',
						columns: ['peak MB', 'seconds', 'items/s'],
						rows: [
							row('two nodes that pass items on', without),
							row('Claim Work, Complete Work', withLedger),
						],
					},
				],
				notes: ['Peak: the largest resident set of the whole process, items and engine included.'],
			};
		}),
};

/** @param {{ checkout: string, access: object, withLedger: boolean }} job */
async function measureHere({ checkout, access, withLedger }) {
	const { startEngine } = require('./engine');
	const { makeWorks, KIND } = require('./values');
	const engine = startEngine(checkout, { ...access, schema: 'idempotency', tls: 'off' });
	const items = makeWorks(ITEMS).map(({ payload }) => JSON.parse(payload));
	const nodes = withLedger
		? [engine.claim({ kind: KIND, identity: 'fields', keyFields: 'order_id' }), engine.complete]
		: [engine.pass('Claim Work'), engine.pass('Complete Work')];
	const started = performance.now();
	const ran = await engine.run(nodes, items);
	const seconds = (performance.now() - started) / 1000;
	const left = ran.out('Complete Work').length;
	if (left !== ITEMS) throw new Error(`${left} of ${ITEMS} items came out.`);
	// maxRSS is in kB
	process.send?.({ peakMb: Math.round(process.resourceUsage().maxRSS / 1024), seconds });
}

if (require.main === module) {
	measureHere(JSON.parse(process.argv[2])).then(
		() => process.exit(0),
		(error) => {
			console.error(error instanceof Error ? error.message : error);
			process.exit(1);
		},
	);
}

module.exports = { memory };
