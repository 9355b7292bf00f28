'use strict';

/**
 * The sides of the comparison. Each claims and completes works over a pool of the same settings:
 *
 * - `client`: the public client, `createLedger(…).works`;
 * - `functions`: the ledger's SQL functions, called without the client;
 * - `raw`: one insert and one update on a table with a primary key only, without a log.
 */

const { randomUUID } = require('node:crypto');
const path = require('node:path');

const { DECISION_KIND, KIND, VERSION, caller, makeQuestions } = require('./values');

/** @typedef {import('./values').Work} Work */
/** @typedef {import('pg').Pool} Pool */

/**
 * @typedef {object} Side
 * @property {string[]} tables What it fills; the first holds the works.
 * @property {(works: Work[]) => Promise<number>} claim How many were claimed.
 * @property {(works: Work[]) => Promise<number>} complete How many were completed.
 * @property {(works: Work[]) => Promise<number>} meetDuplicates Claims done works; how many were
 *   answered as duplicates.
 */

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
 * @param {{ createLedger: (settings: object) => any, decisionKeyOf: (question: object) => any }} ledgerModule
 * @param {object} server
 */
async function startClient(ledgerModule, server) {
	const ledger = ledgerModule.createLedger({ ...server, schema: SCHEMA });
	await ledger.install();
	/** @type {Side} */
	const side = {
		tables: LEDGER_TABLES,
		async claim(works) {
			const answers = await ledger.works.claim(works, { ...POLICY, caller: caller() });
			return count(answers, (answer) => answer.status === 'claimed');
		},
		async complete(works) {
			const answers = await ledger.works.complete(works, caller());
			return count(answers, (answer) => answer.status === 'completed');
		},
		async meetDuplicates(works) {
			const answers = await ledger.works.claim(works, { ...POLICY, caller: caller() });
			return count(answers, (answer) => answer.status === 'duplicate');
		},
	};
	return { side, replays: await startReplays(ledgerModule, ledger), close: () => ledger.close() };
}

/** Decided questions for every measurement. */
const DECIDED = 10_000;

/**
 * Look-ups of stored decisions, each answered with the value.
 *
 * @param {{ decisionKeyOf: (question: object) => any }} ledgerModule
 * @param {any} ledger
 */
async function startReplays({ decisionKeyOf }, { decisions }) {
	const policy = () => ({
		kind: DECISION_KIND,
		needsApproval: false,
		leaseSeconds: 300,
		caller: caller(),
	});
	const questions = makeQuestions(DECIDED).map((question) => ({
		...decisionKeyOf(question),
		token: randomUUID(),
	}));
	await decisions.lookUp(questions, policy());
	await decisions.store(
		questions.map(({ decisionKey, token }, i) => {
			const valueText = JSON.stringify({ label: 'invoice', confidence: (i % 100) / 100 });
			return { decisionKey, token, valueText, rawText: JSON.stringify(valueText) };
		}),
		caller(),
	);
	return {
		/** Asked again and again. */
		questions,
		/** @param {object[]} asked @returns {Promise<number>} How many were replayed. */
		async replay(asked) {
			const answers = await decisions.lookUp(asked, policy());
			return count(answers, ({ outcome }) => outcome === 'replay');
		},
	};
}

/** @param {Pool} pool @returns {Side} */
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
	return {
		tables: LEDGER_TABLES,
		async claim(works) {
			const { rows } = await answers(works);
			return count(rows, (row) => row.status === 'claimed');
		},
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
		async meetDuplicates(works) {
			const { rows } = await answers(works);
			return count(rows, (row) => row.status === 'duplicate');
		},
	};
}

/** The useful columns of the ledger's works, and nothing besides the primary key. */
const RAW_TABLE = `
	create table raw_work (
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

/** @param {Pool} pool @returns {Promise<Side>} */
async function startRaw(pool) {
	await pool.query(RAW_TABLE);
	const claim = async (/** @type {Work[]} */ works) => {
		const { rows } = await pool.query(
			`insert into raw_work (work_id, kind, version, key, state, token, locked_until, payload)
			select i.work_id, $5, $6, i.key, 'running', i.token, now() + interval '1 hour', i.payload
			from unnest($1::text[], $2::text[], $3::uuid[], $4::json[])
				as i(work_id, key, token, payload)
			on conflict (work_id) do update
				set token = excluded.token, locked_until = excluded.locked_until,
					attempt = raw_work.attempt + 1, updated_at = now()
				where raw_work.state = 'running' and raw_work.locked_until < now()
			returning work_id, token, attempt, locked_until`,
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
	return {
		tables: ['raw_work'],
		claim,
		async complete(works) {
			const [work] = works;
			const { rows } =
				works.length === 1
					? await pool.query(
							`update raw_work
							set state = 'done', result = $3::json, external_ref = $4, payload = null,
								completed_at = now(), updated_at = now()
							where work_id = $1 and token = $2::uuid
							returning work_id, state, completed_at`,
							[work.workId, work.token, JSON.stringify(work.result), work.externalRef],
						)
					: await pool.query(
							`update raw_work w
							set state = 'done', result = i.result, external_ref = i.external_ref, payload = null,
								completed_at = now(), updated_at = now()
							from unnest($1::text[], $2::uuid[], $3::json[], $4::text[])
								as i(work_id, token, result, external_ref)
							where w.work_id = i.work_id and w.token = i.token
							returning w.work_id, w.state, w.completed_at`,
							completionColumns(works),
						);
			return rows.length;
		},
		async meetDuplicates(works) {
			return works.length - (await claim(works));
		},
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

function callerColumns() {
	const { workflowName, ...fields } = caller();
	return { ...fields, workflow_name: workflowName };
}

/** @template T @param {T[]} list @param {(entry: T) => boolean} matches */
function count(list, matches) {
	return list.filter(matches).length;
}

/** @param {string} checkout @returns {any} The built package's ledger, as a user of it gets it. */
function loadLedger(checkout) {
	return require(path.join(checkout, 'index.js'));
}

module.exports = { functionsSide, loadLedger, startClient, startRaw };
