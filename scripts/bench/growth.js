'use strict';

/**
 * Part "growth": what claims, completions and duplicates cost when the ledger holds 0, 1 and 10 million
 * works, beside raw SQL at the same size, and beside an empty ledger and an empty table on the same
 * server in the same rounds. The rows are made inside PostgreSQL, with ids that lie as
 * scattered as those of real works, a result and a decision log of two rows each.
 */

const { MODES, Rates, calls, measure, rounded, stockFor, target } = require('./measure');
const { POOL_SIZE, withServer } = require('./server');
const { KIND, SCHEMA, loadLedger, startClient, startRaw } = require('./sides');
const { Repeats, Stock, callerColumns, makeWorks } = require('./values');

const PLAYED = MODES.filter(({ name }) => name === 'single' || name === 'batch');
/** Rows made by one statement. */
const STEP = 250_000;
/** Done works that are claimed again. */
const KNOWN = 10_000;

const RESULT = `json_build_object('invoice', json_build_object('id', 'inv_' || gen_random_uuid(), 'number', '2026-' || n,
	'status', 'issued'), 'total', n, 'currency', 'EUR', 'pages', 1)`;
/** Made alike in both tables; the same ids. */
const IDS = `select n, encode(sha256(convert_to('${KIND}:v1:GROWN-' || n, 'UTF8')), 'hex') as id
	from generate_series($1::integer, $2::integer) n`;
const CALLER = JSON.stringify(callerColumns());

const FILL = {
	work_log: `insert into ${SCHEMA}.work_log (work_id, kind, version, key, state, token, window_mode,
			result, external_ref, settled_by, instance, workflow, workflow_name, execution, node, mode,
			created_at, updated_at, first_started_at, claimed_at, completed_at, last_done_at, locked_until)
		select id, '${KIND}', 'v1', 'GROWN-' || n, 'done', gen_random_uuid(), 'forever', ${RESULT}, 'inv_' || n, 'owner',
			c.instance, c.workflow, c.workflow_name, n::text, c.node, c.mode, t, t, t, t, t, t, t + interval '1 hour'
		from (${IDS}) ids, json_to_record('${CALLER}') as c(instance text, workflow text, workflow_name text, node text, mode text),
			lateral (select clock_timestamp() as t offset 0) clock`,
	decision_log: `insert into ${SCHEMA}.decision_log (work_id, event, outcome, generation, attempt, token, fired, checked)
		select id, event, outcome, 1, 1, gen_random_uuid(), '${CALLER}', case event when 'claim' then '{"window": {"mode": "forever"}}'::jsonb end
		from (${IDS}) ids, (values ('claim', 'claimed'), ('complete', 'completed')) as decided(event, outcome)`,
	raw_work: `insert into raw_work (work_id, kind, version, key, state, token, locked_until, result, external_ref, completed_at)
		select id, '${KIND}', 'v1', 'GROWN-' || n, 'done', gen_random_uuid(), now(), ${RESULT}, 'inv_' || n, now()
		from (${IDS}) ids`,
};

/** @type {import('./measure').Part} */
const growth = {
	name: 'growth',
	title: 'a ledger that grows',
	run: ({ rounds, seconds, report, checkout, millions }) =>
		withServer(async ({ access, version, newPool, upkeep }, closers) => {
			const settings = { ...access, maxConnections: POOL_SIZE };
			const ledgerModule = loadLedger(checkout);
			const client = await startClient(ledgerModule, settings);
			const emptyClient = await startClient(ledgerModule, settings, 'empty_ledger');
			closers.push(client.close, emptyClient.close);
			const sides = {
				rawEmpty: await startRaw(newPool(), { table: 'raw_empty' }),
				clientEmpty: emptyClient.side,
				raw: await startRaw(newPool()),
				client: client.side,
			};
			const names = /** @type {(keyof typeof sides)[]} */ (Object.keys(sides));
			const known = makeWorks(KNOWN);
			for (const name of names) {
				for (let at = 0; at < KNOWN; at += 1_000) {
					await sides[name].fire(known.slice(at, at + 1_000));
				}
			}
			const sizes = [...new Set([Math.min(1, millions), millions])];
			let filled = 0;
			const fillTo = async (/** @type {number} */ rows) => {
				// Built once behind the rows, indexes take a tenth of the time.
				const indexes = await dropIndexes(upkeep);
				await Promise.all(
					Object.values(FILL).map(async (statement) => {
						for (let first = filled; first < rows; first += STEP) {
							await upkeep.query(statement, [first + 1, Math.min(first + STEP, rows)]);
						}
					}),
				);
				filled = rows;
				report(`growth: ${rows.toLocaleString('en-US')} works made`);
				await Promise.all(indexes.map((create) => upkeep.query(create)));
				report('growth: indexes built');
				await upkeep.query('vacuum (analyze)');
				await upkeep.query('checkpoint');
			};
			/** @type {Record<string, Record<string, { works: Rates, duplicates: Rates }>>} */
			const measured = {};
			/** @type {Record<string, Record<string, number>>} */
			const bytes = {};
			for (const size of sizes) {
				await fillTo(size * 1_000_000);
				bytes[size] = await bytesPerWork(upkeep, size * 1_000_000 + KNOWN);
				const modes = (measured[size] = Object.fromEntries(
					PLAYED.map(({ name }) => [name, { works: new Rates(), duplicates: new Rates() }]),
				));
				for (let round = 0; round < rounds; round++) {
					report(`growth: ${size} million, round ${round + 1} of ${rounds}`);
					for (const mode of PLAYED) {
						await upkeep.query('checkpoint');
						const firing = names.map((name) => {
							const stock = new Stock(stockFor(mode, seconds));
							return [name, calls(sides[name].fire, stock, 'done')];
						});
						const repeating = names.map((name) => [
							name,
							calls(sides[name].meetDuplicates, new Repeats(known), 'duplicates'),
						]);
						const { works, duplicates } = modes[mode.name];
						works.add(await measure(mode, seconds, Object.fromEntries(firing), round));
						duplicates.add(await measure(mode, seconds / 2, Object.fromEntries(repeating), round));
					}
				}
			}
			const largest = sizes[sizes.length - 1];
			/** What is left of a rate, in the same round. @param {string} mode @param {'raw' | 'client'} name */
			const left = (mode, name) =>
				measured[largest][mode].works.ratio(name, name === 'raw' ? 'rawEmpty' : 'clientEmpty');
			const perSize = (/** @type {'works' | 'duplicates'} */ what) =>
				Object.fromEntries(
					sizes.map((size) => [
						`${size} million`,
						Object.fromEntries(
							PLAYED.map(({ name }) => [name, measured[size][name][what].medians()]),
						),
					]),
				);
			const table = (/** @type {string} */ title, /** @type {'works' | 'duplicates'} */ what) => ({
				title,
				columns: ['raw SQL, one', 'client, one', 'raw SQL, 1,000', 'client, 1,000'],
				rows: sizes.flatMap((size) => {
					const cells = (
						/** @type {'raw' | 'rawEmpty'} */ raw,
						/** @type {'client' | 'clientEmpty'} */ own,
					) =>
						PLAYED.flatMap(({ name }) => {
							const medians = measured[size][name][what].medians();
							return [medians[raw], medians[own]];
						});
					return [
						[`${size} million works`, ...cells('raw', 'client')],
						['an empty one, same rounds', ...cells('rawEmpty', 'clientEmpty')],
					];
				}),
			});
			return {
				result: {
					postgres: version,
					worksPerSecond: perSize('works'),
					duplicatesPerSecond: perSize('duplicates'),
					left: Object.fromEntries(
						PLAYED.map(({ name }) => [
							name,
							{ raw: left(name, 'raw'), client: left(name, 'client') },
						]),
					),
					bytesPerWork: bytes,
				},
				targets: [
					target(`${largest} million / empty, one at a time`, left('single', 'client'), 0.8),
					target(
						`${largest} million / empty, batches, as a share of raw SQL's own`,
						rounded(left('batch', 'client') / left('batch', 'raw'), 3),
						0.8,
					),
				],
				tables: [
					table('works/s', 'works'),
					table('duplicates/s', 'duplicates'),
					{
						title: 'bytes per work',
						columns: Object.keys(Object.values(bytes)[0] ?? {}),
						rows: Object.entries(bytes).map(([size, one]) => [
							`${size} million works`,
							...Object.values(one),
						]),
					},
				],
				notes: [
					'Done works with a result of about 150 bytes, without payload, and two log rows each. One: one at a time; 1,000: batches of 1,000.',
				],
			};
		}),
};

/**
 * @param {import('pg').Pool} pool
 * @returns {Promise<string[]>} What builds them again.
 */
async function dropIndexes(pool) {
	const { rows } = await pool.query(
		`select i.indexrelid::regclass::text as name, i.indrelid::regclass::text as table, c.conname,
			pg_get_indexdef(i.indexrelid) as definition, pg_get_constraintdef(c.oid) as constraint
		from pg_index i left join pg_constraint c on c.conindid = i.indexrelid
		where i.indrelid = any($1::regclass[])`,
		[[`${SCHEMA}.work_log`, `${SCHEMA}.decision_log`, 'raw_work']],
	);
	for (const { name, table, conname } of rows) {
		await pool.query(
			conname === null ? `drop index ${name}` : `alter table ${table} drop constraint ${conname}`,
		);
	}
	return rows.map(({ table, conname, constraint, definition }) =>
		conname === null ? definition : `alter table ${table} add constraint ${conname} ${constraint}`,
	);
}

/** @param {import('pg').Pool} pool @param {number} works */
async function bytesPerWork(pool, works) {
	const { rows } = await pool.query(
		`select pg_table_size('${SCHEMA}.work_log') as work_log, pg_indexes_size('${SCHEMA}.work_log') as its_indexes,
			pg_table_size('${SCHEMA}.decision_log') as decision_log, pg_indexes_size('${SCHEMA}.decision_log') as log_indexes,
			pg_total_relation_size('raw_work') as raw`,
	);
	return Object.fromEntries(
		Object.entries(rows[0]).map(([name, size]) => [name, Math.round(Number(size) / works)]),
	);
}

module.exports = { growth };
