'use strict';

/**
 * Part "core": one work is one claim and one completion. Raw SQL, the ledger's functions, its client
 * and its nodes beside each other, then duplicates, then look-ups of stored decisions.
 */

const { MODES, Rates, calls, demand, measure, stockFor, target } = require('./measure');
const { POOL_SIZE, withServer } = require('./server');
const { functionsSide, loadLedger, startClient, startNodes, startRaw } = require('./sides');
const { Repeats, Stock, makeWorks } = require('./values');

/** Done works that stand in each table before each measurement. */
const PREFILLED = 10_000;

/** What the works are done by, in the tables' order. */
const TITLES = {
	raw: 'raw SQL',
	rawNamed: 'by name',
	rawLogged: 'raw + log',
	functions: 'functions',
	client: 'client',
	nodes: 'nodes',
	nodesByExpression: 'by expression',
};
/** @typedef {keyof typeof TITLES} SideName */

const DUPLICATE_SIDES = /** @type {const} */ (['raw', 'rawLogged', 'functions', 'client', 'nodes']);

const WORK_TARGETS = { single: 0.85, ten: 0.75, batch: 0.6, large: 0.6 };

/** @param {string} table */
function copyOf(table) {
	return `public.prefilled_${table.replace(/\W/g, '_')}`;
}

/** @type {import('./measure').Part} */
const core = {
	name: 'core',
	title: 'the ledger beside raw SQL',
	run: ({ rounds, seconds, report, checkout }) =>
		withServer(async ({ access, version, newPool, upkeep }, closers) => {
			const settings = { ...access, maxConnections: POOL_SIZE };
			const { side: client, replays, close } = await startClient(loadLedger(checkout), settings);
			closers.push(close);
			/** @type {Record<SideName, import('./sides').Side>} */
			const sides = {
				raw: await startRaw(newPool()),
				rawNamed: await startRaw(newPool(), { table: 'raw_named', named: true }),
				rawLogged: await startRaw(newPool(), { table: 'raw_logged', logged: true }),
				functions: functionsSide(newPool()),
				client,
				...startNodes(checkout, access),
			};
			const names = /** @type {SideName[]} */ (Object.keys(TITLES));

			// The same done works in all of them; copied aside, so that every measurement starts from them.
			const doneWorks = makeWorks(PREFILLED);
			for (const name of /** @type {const} */ (['raw', 'rawNamed', 'rawLogged', 'client'])) {
				await sides[name].fire(doneWorks);
			}
			const tables = [...new Set(names.flatMap((name) => sides[name].tables))];
			for (const table of tables) {
				await upkeep.query(`create table ${copyOf(table)} as select * from ${table}`);
			}
			await replays.prepare(PREFILLED);
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

			const rates = perMode(() => new Rates());
			const duplicateRates = perMode(() => new Rates());
			const replayRates = perMode(() => new Rates());
			for (let round = 0; round < rounds; round++) {
				report(`core: round ${round + 1} of ${rounds}`);
				for (const mode of MODES) {
					await reset();
					const firing = names.map((name) => {
						const stock = new Stock(stockFor(mode, seconds));
						return [name, calls(sides[name].fire, stock, 'done')];
					});
					rates[mode.name].add(await measure(mode, seconds, Object.fromEntries(firing), round));
					// 10,000 in a batch say nothing new about duplicates
					if (mode.name === 'large') continue;
					await reset();
					const repeating = DUPLICATE_SIDES.map((name) => {
						const repeats = new Repeats(doneWorks);
						return [name, calls(sides[name].meetDuplicates, repeats, 'duplicates')];
					});
					const half = seconds / 2;
					duplicateRates[mode.name].add(
						await measure(mode, half, Object.fromEntries(repeating), round),
					);
					const replay = async (/** @type {number} */ count) =>
						demand(count, await replays.take(count), 'replayed');
					replayRates[mode.name].add(await measure(mode, half, { client: replay }));
				}
			}

			const ofDuplicates = MODES.filter(({ name }) => name !== 'large');
			return {
				result: {
					postgres: version,
					poolSize: POOL_SIZE,
					prefilledWorks: PREFILLED,
					worksPerSecond: perMode(({ name }) => rates[name].medians()),
					shareOfRaw: perMode(({ name }) =>
						Object.fromEntries(names.map((side) => [side, rates[name].ratio(side, 'raw')])),
					),
					duplicatesPerSecond: perMode(({ name }) => duplicateRates[name].medians(), ofDuplicates),
					replaysPerSecond: perMode(({ name }) => replayRates[name].medians(), ofDuplicates),
				},
				targets: [
					...MODES.map(({ name, title }) =>
						target(
							`client / raw SQL, ${title}`,
							rates[name].ratio('client', 'raw'),
							WORK_TARGETS[name],
						),
					),
					target('nodes / client, batches of 10,000', rates.large.ratio('nodes', 'client'), 0.6),
				],
				tables: [
					{
						title: 'works/s',
						columns: Object.values(TITLES),
						rows: MODES.map(({ name, title }) => {
							const medians = rates[name].medians();
							return [title, ...names.map((side) => medians[side])];
						}),
					},
					{
						title: 'share of raw SQL',
						columns: Object.values(TITLES),
						rows: MODES.map(({ name, title }) => [
							title,
							...names.map((side) => rates[name].ratio(side, 'raw').toFixed(2)),
						]),
					},
					{
						title: 'duplicates/s',
						columns: DUPLICATE_SIDES.map((side) => TITLES[side]),
						rows: ofDuplicates.map(({ name, title }) => {
							const medians = duplicateRates[name].medians();
							return [title, ...DUPLICATE_SIDES.map((side) => medians[side])];
						}),
					},
					{
						title: 'replays/s',
						columns: ['client'],
						rows: ofDuplicates.map(({ name, title }) => [
							title,
							replayRates[name].medians().client,
						]),
					},
				],
				notes: [
					"A work is one claim and one completion. Raw SQL: one insert and one update on a table with a primary key only, no log. By name: the same as named statements, as the client sends its own where no pooler stands between. Raw + log: without names, with the ledger's indexes and a log row each.",
					'A duplicate is a claim of done work: one round trip; the ledger answers with the stored result and logs it, raw SQL with no row.',
					'A replay is a look-up of a stored decision of a language model: the stored value comes back, and is logged.',
					"Nodes: Claim Work and Complete Work in one execution of n8n's engine per call, key fields by name; by expression: the key is {{ $json.order_id }}.",
				],
			};
		}),
};

/**
 * @template T
 * @param {(mode: import('./measure').Mode) => T} value
 * @param {import('./measure').Mode[]} [modes]
 * @returns {Record<string, T>} By the modes' names.
 */
function perMode(value, modes = MODES) {
	return Object.fromEntries(modes.map((mode) => [mode.name, value(mode)]));
}

module.exports = { core };
