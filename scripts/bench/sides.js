'use strict';

/**
 * The sides of the comparison. Each claims and completes works over a pool of the same settings:
 *
 * - `client`: the public client, `createLedger(…).works`;
 * - `functions`: the ledger's SQL functions, called without the client;
 * - `raw`: one insert and one update on a table with a primary key only, without a log; or with the
 *   ledger's indexes and one log row for each, in the same statement; or as named statements;
 * - `nodes`: Claim Work and Complete Work in n8n's engine.
 */

const { randomUUID } = require('node:crypto');
const path = require('node:path');

const { startEngine } = require('./engine');
const { KIND, VERSION, caller, callerColumns } = require('./values');

/** @typedef {import('./values').Work} Work */
/** @typedef {import('pg').Pool} Pool */

/**
 * @typedef {object} Side
 * @property {string[]} tables What it fills; the first holds the works.
 * @property {(works: Work[]) => Promise<number>} fire Claims and completes; how many were completed.
 * @property {(works: Work[]) => Promise<number>} meetDuplicates Claims done works; how many were
 *   answered as duplicates.
 */

/**
 * @typedef {object} Steps
 * @property {(works: Work[]) => Promise<number>} claim How many were claimed.
 * @property {(works: Work[]) => Promise<number>} complete How many were completed.
 */

/** @template {Steps} Side @param {Side} side @returns {Side & { fire: (works: Work[]) => Promise<number> }} */
function inTwoSteps(side) {
	return {
		...side,
		async fire(works) {
			const claimed = await side.claim(works);
			if (claimed !== works.length) throw new Error(`${claimed} of ${works.length} were claimed.`);
			return await side.complete(works);
		},
	};
}

const POLICY = {
	kind: KIND,
	version: VERSION,
	window: { mode: 'forever' },
	onLapse: 'run_again',
	leaseSeconds: 3600,
	maxAttempts: 5,
	backoffBaseSeconds: 30,
	backoffCapSeconds: 3600,
};

const SCHEMA = 'idempotency';
const LEDGER_TABLES = [`${SCHEMA}.work_log`, `${SCHEMA}.decision_log`];

/**
 * @param {{ createLedger: (settings: object) => any, decisionKeyOf: (question: object) => object }} ledgerModule
 * @param {object} server
 * @param {string} [schema]
 */
async function startClient(ledgerModule, server, schema = SCHEMA) {
	const ledger = ledgerModule.createLedger({ ...server, schema });
	await ledger.install();
	const side = inTwoSteps({
		tables: LEDGER_TABLES,
		/** @param {Work[]} works */
		async claim(works) {
			const answers = await ledger.works.claim(works, { ...POLICY, caller: caller() });
			return count(answers, (answer) => answer.status === 'claimed');
		},
		/** @param {Work[]} works */
		async complete(works) {
			const answers = await ledger.works.complete(works, caller());
			return count(answers, (answer) => answer.status === 'completed');
		},
		/** @param {Work[]} works */
		async meetDuplicates(works) {
			const answers = await ledger.works.claim(works, { ...POLICY, caller: caller() });
			return count(answers, (answer) => answer.status === 'duplicate');
		},
	});
	/** @type {object[]} */
	const questions = [];
	let next = 0;
	const replays = {
		/** Stores so many decisions. @param {number} count */
		async prepare(count) {
			for (let n = 0; n < count; n++) {
				const input = { n, text: `mail ${n} `.repeat(30) };
				const question = { kind: KIND, model: 'model', promptVersion: 'v1', input };
				questions.push({ ...ledgerModule.decisionKeyOf(question), token: randomUUID() });
			}
			const policy = { kind: KIND, caller: caller() };
			await ledger.decisions.lookUp(questions, policy);
			const valueText = '{"label":"invoice"}';
			const answers = questions.map((question) => ({ ...question, valueText, rawText: '""' }));
			await ledger.decisions.store(answers, caller());
		},
		/** Looks so many up; how many were replayed. @param {number} count */
		async take(count) {
			const asked = Array.from({ length: count }, () => ({
				...questions[next++ % questions.length],
				token: randomUUID(),
			}));
			const answers = await ledger.decisions.lookUp(asked, { kind: KIND, caller: caller() });
			return answers.filter((/** @type {any} */ answer) => answer.outcome === 'replay').length;
		},
	};
	return { side, replays, ledger, close: () => ledger.close() };
}

/** @param {Pool} pool */
function functionsSide(pool) {
	const claimOptions = () =>
		JSON.stringify({
			kind: KIND,
			version: VERSION,
			window: POLICY.window,
			on_lapse: POLICY.onLapse,
			lease_s: POLICY.leaseSeconds,
			max_attempts: POLICY.maxAttempts,
			backoff_base_s: POLICY.backoffBaseSeconds,
			backoff_cap_s: POLICY.backoffCapSeconds,
			caller: callerColumns(),
		});
	const answers = async (/** @type {Work[]} */ works) => {
		if (works.length === 1) {
			const [work] = works;
			return await pool.query(
				`select * from ${SCHEMA}.claim_work($1::text, $2::text, $3::uuid, $4::json, null, $5::jsonb)`,
				[work.workId, work.key, work.token, work.payload, claimOptions()],
			);
		}
		return await pool.query(
			`select * from ${SCHEMA}.claim_works($1::text[], $2::text[], $3::uuid[], $4::json[], null, $5::jsonb)`,
			[
				works.map((work) => work.workId),
				works.map((work) => work.key),
				works.map((work) => work.token),
				works.map((work) => work.payload),
				claimOptions(),
			],
		);
	};
	return inTwoSteps({
		tables: LEDGER_TABLES,
		/** @param {Work[]} works */
		async claim(works) {
			const { rows } = await answers(works);
			return count(rows, (row) => row.status === 'claimed');
		},
		/** @param {Work[]} works */
		async complete(works) {
			const options = JSON.stringify({ caller: callerColumns() });
			const [work] = works;
			const { rows } =
				works.length === 1
					? await pool.query(
							`select * from ${SCHEMA}.complete_work($1::text, $2::uuid, $3::json, $4::text, $5::jsonb)`,
							[work.workId, work.token, JSON.stringify(work.result), work.externalRef, options],
						)
					: await pool.query(
							`select * from ${SCHEMA}.complete_works($1::text[], $2::uuid[], $3::json[], $4::text[], $5::jsonb)`,
							[...completionColumns(works), options],
						);
			return count(rows, (row) => row.status === 'completed');
		},
		/** @param {Work[]} works */
		async meetDuplicates(works) {
			const { rows } = await answers(works);
			return count(rows, (row) => row.status === 'duplicate');
		},
	});
}

/** The useful columns of the ledger's works, and nothing besides the primary key. */
const rawTable = (/** @type {string} */ name) => `
	create table ${name} (
		work_id text collate "C" primary key,
		kind text not null,
		version text not null,
		key text,
		state text not null,
		token uuid,
		locked_until timestamptz,
		attempt integer not null default 1,
		payload json,
		result json,
		external_ref text,
		created_at timestamptz not null default now(),
		updated_at timestamptz not null default now(),
		completed_at timestamptz
	)`;

/** The ledger's secondary indexes and its log, on raw SQL's columns. */
const rawLog = (/** @type {string} */ name) => `
	create index on ${name} (locked_until) where state = 'running';
	create index on ${name} (kind, completed_at) where completed_at is not null;
	create table ${name}_log (
		id bigint generated always as identity,
		at timestamptz not null default clock_timestamp(),
		work_id text collate "C" not null,
		event text not null,
		outcome text not null,
		attempt integer,
		token uuid,
		fired jsonb,
		external_ref text
	);
	create index on ${name}_log using hash (work_id);
	create index on ${name}_log using brin (at)`;

/** @param {Pool} pool @param {{ table?: string, logged?: boolean, named?: boolean }} [options] */
async function startRaw(pool, { table = 'raw_work', logged = false, named = false } = {}) {
	await pool.query(rawTable(table));
	if (logged) await pool.query(rawLog(table));
	/**
	 * @param {string} statement Returns its rows' work_id, token and attempt.
	 * @param {string} event @param {unknown[]} values
	 */
	const send = async (statement, event, values) => {
		const text = logged
			? `with w as (${statement}), logged as (
					insert into ${table}_log (work_id, event, outcome, attempt, token, fired)
					select w.work_id, '${event}', 'accepted', w.attempt, w.token, $${values.length + 1}::jsonb from w)
				select * from w`
			: statement;
		const fired = logged ? [JSON.stringify(callerColumns())] : [];
		// one update for a single work, another one for many
		const name = named ? `${event} ${text.includes('unnest') ? 'many' : 'one'}` : undefined;
		return (await pool.query({ name, text, values: [...values, ...fired] })).rows;
	};
	const claim = async (/** @type {Work[]} */ works) => {
		const rows = await send(
			`insert into ${table} (work_id, kind, version, key, state, token, locked_until, payload)
			select i.work_id, $5, $6, i.key, 'running', i.token, now() + interval '1 hour', i.payload
			from unnest($1::text[], $2::text[], $3::uuid[], $4::json[])
				as i(work_id, key, token, payload)
			on conflict (work_id) do update
				set token = excluded.token, locked_until = excluded.locked_until,
					attempt = ${table}.attempt + 1, updated_at = now()
				where ${table}.state = 'running' and ${table}.locked_until < now()
			returning work_id, token, attempt, locked_until`,
			'claim',
			[
				works.map((work) => work.workId),
				works.map((work) => work.key),
				works.map((work) => work.token),
				works.map((work) => work.payload),
				KIND,
				VERSION,
			],
		);
		return rows.length;
	};
	return inTwoSteps({
		tables: logged ? [table, `${table}_log`] : [table],
		claim,
		/** @param {Work[]} works */
		async complete(works) {
			const [work] = works;
			const rows =
				works.length === 1
					? await send(
							`update ${table}
							set state = 'done', result = $3::json, external_ref = $4, payload = null,
								completed_at = now(), updated_at = now()
							where work_id = $1 and token = $2::uuid
							returning work_id, token, attempt, state, completed_at`,
							'complete',
							[work.workId, work.token, JSON.stringify(work.result), work.externalRef],
						)
					: await send(
							`update ${table} w
							set state = 'done', result = i.result, external_ref = i.external_ref, payload = null,
								completed_at = now(), updated_at = now()
							from unnest($1::text[], $2::uuid[], $3::json[], $4::text[])
								as i(work_id, token, result, external_ref)
							where w.work_id = i.work_id and w.token = i.token
							returning w.work_id, w.token, w.attempt, w.state, w.completed_at`,
							'complete',
							completionColumns(works),
						);
			return rows.length;
		},
		/** @param {Work[]} works */
		async meetDuplicates(works) {
			return works.length - (await claim(works));
		},
	});
}

/**
 * Both ways to name the key on Claim Work.
 *
 * @param {string} checkout
 * @param {object} access
 */
function startNodes(checkout, access) {
	const engine = startEngine(checkout, { ...access, schema: SCHEMA, tls: 'off' });
	/** @param {object} identity @returns {Side} */
	const side = (identity) => {
		const claim = engine.claim({ kind: KIND, version: VERSION, ...identity });
		const items = (/** @type {Work[]} */ works) => works.map((work) => work.order);
		return {
			tables: LEDGER_TABLES,
			async fire(works) {
				const ran = await engine.run([claim, engine.complete], items(works));
				return ran.out('Complete Work').length;
			},
			async meetDuplicates(works) {
				const ran = await engine.run([claim], items(works));
				return ran.out('Claim Work', 1).length;
			},
		};
	};
	return {
		nodes: side({ identity: 'fields', keyFields: 'order_id' }),
		nodesByExpression: side({ identity: 'expression', key: '={{ $json.order_id }}' }),
	};
}

/** @param {Work[]} works */
function completionColumns(works) {
	return [
		works.map((work) => work.workId),
		works.map((work) => work.token),
		works.map((work) => JSON.stringify(work.result)),
		works.map((work) => work.externalRef),
	];
}

/** @template T @param {T[]} list @param {(entry: T) => boolean} matches */
function count(list, matches) {
	return list.filter(matches).length;
}

/** @param {string} checkout @returns {any} The built package's ledger, as a user of it gets it. */
function loadLedger(checkout) {
	return require(path.join(checkout, 'index.js'));
}

module.exports = {
	KIND,
	LEDGER_TABLES,
	SCHEMA,
	functionsSide,
	loadLedger,
	startClient,
	startNodes,
	startRaw,
};
