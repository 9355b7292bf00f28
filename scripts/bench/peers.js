'use strict';

/**
 * Part "peers": "this unique work happens once and its result is kept", as pg-boss, graphile-worker
 * and DBOS are documented to do it, on one PostgreSQL with the ledger. Each is installed by the bench
 * only, into the cache folder, in a version that runs on Node.js 20. The effect itself does nothing.
 *
 * - pg-boss: a job whose id is the work's; sent, fetched, completed with its output, in three round
 *   trips, with its defaults, its upkeep switched off. That is less than the ledger keeps: the id stays
 *   taken as long as the job is kept (by default, archived after 12 hours and removed after 7 days), a
 *   duplicate is not answered with the output, a job is completed by its id, without a token of the
 *   attempt, and nothing is logged.
 * - graphile-worker: a job whose key is the work's, run by a worker of this process. A finished job is
 *   forgotten, key and all, so the task also writes its result to a table with a primary key.
 * - DBOS: a workflow whose id is the work's, with one step.
 *
 * Raw SQL stands beside them: two statements without a log, the least that claims and completes.
 */

const { createHash } = require('node:crypto');
const path = require('node:path');

const { bring } = require('../n8n/runtime');
const { MODES, Rates, calls, measure, stockFor, target } = require('./measure');
const { POOL_SIZE, withServer } = require('./server');
const { loadLedger, startClient, startRaw } = require('./sides');
const { Stock } = require('./values');

/** @typedef {import('./values').Work} Work */
/** @typedef {(works: Work[]) => Promise<number>} Fire How many were done. */
/** @typedef {{ fire: Fire, close(): Promise<void> }} Peer */
/** @typedef {{ host: string, port: number, user: string, password: string, database: string }} Access */

const PACKAGES = {
	pgBoss: { packageName: 'pg-boss', version: '10.4.2' },
	graphileWorker: { packageName: 'graphile-worker', version: '0.16.6' },
	dbos: { packageName: '@dbos-inc/dbos-sdk', version: '5.3.0' },
};

/** @param {keyof typeof PACKAGES} peer @param {(line: string) => void} report @returns {Promise<any>} */
async function load(peer, report) {
	const { packageName, version } = PACKAGES[peer];
	const folder = await bring(
		{
			name: `bench-${packageName.replace(/\W+/g, '-')}-${version}`,
			packageName,
			spec: `${packageName}@${version}`,
			what: `${packageName} ${version}`,
			takes: 'seconds',
		},
		report,
	);
	return require(path.join(folder, 'node_modules', packageName));
}

const MOST_LOOKS = 100;

/** A job's id, in pg-boss's form, from a work's. @param {string} workId */
function uuidOf(workId) {
	const hex = createHash('md5').update(workId).digest('hex');
	return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

/** @param {any} PgBoss @param {Access} access @returns {Promise<Peer>} */
async function startPgBoss(PgBoss, access) {
	const boss = new PgBoss({ ...access, max: POOL_SIZE, supervise: false, schedule: false });
	boss.on('error', () => undefined);
	await boss.start();
	await boss.createQueue('work');
	return {
		async fire([work]) {
			const id = await boss.send('work', JSON.parse(work.payload), { id: uuidOf(work.workId) });
			if (id === null) return 0;
			// Ten at once: each takes a job of its own, not always the one it has sent. One whose job another took may not
			// see that one's yet, and looks again.
			let [job] = await boss.fetch('work');
			for (let look = 1; job === undefined && look < MOST_LOOKS; look++) {
				[job] = await boss.fetch('work');
			}
			await boss.complete('work', job.id, work.result);
			return 1;
		},
		close: async () => await boss.stop({ graceful: false, wait: true }),
	};
}

/**
 * @param {any} worker @param {import('pg').Pool} pool
 * @returns {Promise<Peer>}
 */
async function startGraphileWorker(worker, pool) {
	await pool.query(
		'create table graphile_result (work_id text collate "C" primary key, result json not null)',
	);
	/** @type {Map<string, () => void>} */
	const waiting = new Map();
	const runner = await worker.run({
		pgPool: pool,
		concurrency: POOL_SIZE,
		noHandleSignals: true,
		logger: new worker.Logger(() => () => undefined),
		taskList: {
			/** @param {any} payload @param {any} helpers */
			work: async ({ workId, result }, helpers) => {
				await helpers.query(
					'insert into graphile_result values ($1, $2) on conflict (work_id) do nothing',
					[workId, JSON.stringify(result)],
				);
			},
		},
	});
	runner.events.on('job:success', (/** @type {any} */ { job }) => waiting.get(job.key)?.());
	return {
		async fire([work]) {
			const { workId, payload, result } = work;
			const done = new Promise((resolve) => waiting.set(workId, () => resolve(undefined)));
			const order = JSON.parse(payload);
			await runner.addJob('work', { workId, order, result }, { jobKey: workId });
			await done;
			waiting.delete(workId);
			return 1;
		},
		close: async () => await runner.stop(),
	};
}

/** @param {any} sdk @param {Access} access @returns {Promise<Peer>} */
async function startDbos({ DBOS }, { host, port, user, password, database }) {
	const address = `${user}:${encodeURIComponent(password)}@${host}:${port}`;
	DBOS.setConfig({
		name: 'bench',
		systemDatabaseUrl: `postgresql://${address}/${database}_dbos`,
		systemDatabasePoolSize: POOL_SIZE,
		runAdminServer: false,
		logLevel: 'error',
	});
	const workflow = DBOS.registerWorkflow(
		async (/** @type {object} */ _order, /** @type {object} */ result) =>
			await DBOS.runStep(async () => result, { name: 'effect' }),
		{ name: 'work' },
	);
	await DBOS.launch();
	return {
		async fire([work]) {
			const handle = await DBOS.startWorkflow(workflow, { workflowID: work.workId })(
				JSON.parse(work.payload),
				work.result,
			);
			const result = await handle.getResult();
			return result === undefined || result === null ? 0 : 1;
		},
		close: async () => await DBOS.shutdown(),
	};
}

const TITLES = {
	client: 'ledger',
	raw: 'raw SQL',
	pgBoss: 'pg-boss',
	graphileWorker: 'graphile-worker',
	dbos: 'DBOS',
};
/** @typedef {keyof typeof TITLES} Name */

const PLAYED = MODES.filter(({ name }) => name === 'single' || name === 'ten');

/** @type {import('./measure').Part} */
const peers = {
	name: 'peers',
	title: 'the ledger beside pg-boss, graphile-worker and DBOS',
	run: ({ rounds, seconds, report, checkout }) =>
		withServer(async ({ access, version, newPool, upkeep }, closers) => {
			const modules = {
				pgBoss: await load('pgBoss', report),
				graphileWorker: await load('graphileWorker', report),
				dbos: await load('dbos', report),
			};
			await upkeep.query(`create database ${access.database}_dbos`);
			const settings = { ...access, maxConnections: POOL_SIZE };
			const client = await startClient(loadLedger(checkout), settings);
			/** @type {Record<Name, Peer>} */
			const sides = {
				client: { fire: client.side.fire, close: client.close },
				raw: { ...(await startRaw(newPool())), close: async () => undefined },
				pgBoss: await startPgBoss(modules.pgBoss, access),
				graphileWorker: await startGraphileWorker(modules.graphileWorker, newPool()),
				dbos: await startDbos(modules.dbos, access),
			};
			for (const { close } of Object.values(sides)) closers.push(close);
			const names = /** @type {Name[]} */ (Object.keys(TITLES));
			const rates = Object.fromEntries(PLAYED.map(({ name }) => [name, new Rates()]));
			for (let round = 0; round < rounds; round++) {
				report(`peers: round ${round + 1} of ${rounds}`);
				for (const mode of PLAYED) {
					await upkeep.query('vacuum (analyze)');
					await upkeep.query('checkpoint');
					const firing = names.map((name) => {
						const stock = new Stock(stockFor(mode, seconds));
						return [name, calls(sides[name].fire, stock, 'done')];
					});
					rates[mode.name].add(await measure(mode, seconds, Object.fromEntries(firing), round));
				}
			}
			const others = /** @type {Name[]} */ (names.filter((name) => name !== 'client'));
			const { single, ten } = rates;
			return {
				result: {
					postgres: version,
					versions: Object.fromEntries(
						Object.entries(PACKAGES).map(([name, one]) => [name, one.version]),
					),
					worksPerSecond: { single: single.medians(), ten: ten.medians() },
					ledgerRatio: Object.fromEntries(
						PLAYED.map(({ name }) => [
							name,
							Object.fromEntries(
								others.map((other) => [other, rates[name].ratio('client', other)]),
							),
						]),
					),
				},
				targets: [
					target('ledger / DBOS, one at a time', single.ratio('client', 'dbos'), 1.7),
					target('ledger / DBOS, ten at once', ten.ratio('client', 'dbos'), 1.8),
					target('ledger / pg-boss, one at a time', single.ratio('client', 'pgBoss'), 2.7),
				],
				tables: [
					{
						title: 'works/s',
						columns: Object.values(TITLES),
						rows: PLAYED.map(({ name, title }) => {
							const medians = rates[name].medians();
							return [title, ...names.map((side) => medians[side])];
						}),
					},
					{
						title: 'the ledger, times as fast as',
						columns: others.map((name) => TITLES[name]),
						rows: PLAYED.map(({ name, title }) => [
							title,
							...others.map((other) => rates[name].ratio('client', other).toFixed(2)),
						]),
					},
				],
				notes: [
					'Each does unique work once and keeps its result. They are built for other things besides: queues that hand work to other processes, workflows of many steps.',
					'Raw SQL: an insert and an update, without a log. pg-boss: an insert, a fetch and a completion; a duplicate is refused without its result, and nothing is logged.',
					'graphile-worker forgets finished jobs: its task also writes the result to a table with a primary key.',
				],
			};
		}),
};

module.exports = { peers };
