'use strict';

/** The faults of a prove, one at a time in a seeded order, until its time is over. */

const { setTimeout: delay } = require('node:timers/promises');

const { pick, random } = require('./plan');

/** @typedef {'workers killed' | 'pauses beyond a lease' | 'backends terminated' | 'PostgreSQL restarts'} Fault */

/** One round; after the first, PostgreSQL is restarted in every second one: that costs all workers a second or two. */
const ROUND = /** @type {const} */ (['kill', 'pause', 'backends', 'restart']);
const GAP_MS = { least: 250, most: 900 };
const MOST_BACKENDS = 3;
/** For a moment at which a worker holds a claim. */
const MOST_LOOKS = 200;

/**
 * @param {object} on
 * @param {string | number} on.seed
 * @param {import('./crew').Crew} on.crew
 * @param {import('./server').Server} on.server
 * @param {boolean} on.wholeRound A run without a fault of each kind proves less than it says: do not end before.
 * @param {() => boolean} on.isOver
 * @param {Record<Fault, number>} on.injected Counts, added to as they happen.
 */
async function injectFaults({ seed, crew, server, wholeRound, isOver, injected }) {
	const next = random(seed, 'faults');
	const mayEnd = (/** @type {number} */ round) =>
		crew.failure !== null || ((round > 0 || !wholeRound) && isOver());
	for (let round = 0; !mayEnd(round); round++) {
		for (const fault of shuffled(ROUND, next)) {
			await delay(GAP_MS.least + next() * (GAP_MS.most - GAP_MS.least));
			if (mayEnd(round)) return;
			const worker = pick(crew.workers, next);
			switch (fault) {
				case 'kill':
					await worker.killAndRestart();
					injected['workers killed']++;
					break;
				case 'pause':
					if (await pauseBeyondLease(worker, server)) injected['pauses beyond a lease']++;
					break;
				case 'backends':
					injected['backends terminated'] += await terminateBackends(server, next);
					break;
				case 'restart':
					if (round % 2 === 1) break;
					await server.crash();
					injected['PostgreSQL restarts']++;
					break;
			}
		}
	}
}

/**
 * Stops a worker until the leases it holds are over by the database's clock.
 *
 * @param {import('./crew').Worker} worker
 * @param {import('./server').Server} server
 * @returns {Promise<boolean>} false: it held nothing at that moment
 */
async function pauseBeyondLease(worker, server) {
	for (let look = 0; look < MOST_LOOKS; look++) {
		worker.pause();
		try {
			const { rows } = await server.query(
				`select max(locked_until)::text as until from idempotency.work_log
				where state = 'running' and instance = $1 and locked_until > clock_timestamp()`,
				[worker.instance],
			);
			if (rows[0].until !== null) {
				while (!(await hasPassed(server, rows[0].until))) await delay(20);
				return true;
			}
		} finally {
			worker.resume();
		}
		await delay(20);
	}
	return false;
}

/** @param {import('./server').Server} server @param {string} time */
async function hasPassed(server, time) {
	const { rows } = await server.query('select clock_timestamp() > $1::timestamptz as passed', [
		time,
	]);
	return rows[0].passed;
}

/** Those that are in the middle of something first. @param {import('./server').Server} server @param {() => number} next */
async function terminateBackends(server, next) {
	const { rows } = await server.query(
		`select count(*) filter (where pg_terminate_backend(pid))::integer as ended
		from (
			select pid from pg_stat_activity
			where backend_type = 'client backend' and pid <> pg_backend_pid() and datname = current_database()
			order by state <> 'active', md5(pid::text || $2)
			limit $1
		) chosen`,
		[1 + Math.floor(next() * MOST_BACKENDS), String(next())],
	);
	return rows[0].ended;
}

/**
 * @template T
 * @param {readonly T[]} values
 * @param {() => number} next
 */
function shuffled(values, next) {
	return values
		.map((value) => ({ value, place: next() }))
		.sort((a, b) => a.place - b.place)
		.map(({ value }) => value);
}

module.exports = { injectFaults };
