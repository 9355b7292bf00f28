'use strict';

/**
 * What a worker does, as a pure function of seed, worker, lane and step: the same seed gives the same plan. What is
 * answered depends on timing, and so does what a fate is played on: it falls on the works that were claimed.
 */

/**
 * @typedef {object} Kind
 * @property {number} hot Keys that everybody meets all the time.
 * @property {number} fresh Keys of a window that moves on, so that there is always work nobody has seen.
 * @property {object} policy
 */

const BACKOFF = { backoffBaseSeconds: 0.6, backoffCapSeconds: 2 };

/** @type {Record<string, Kind>} */
const KINDS = {
	invoice: {
		hot: 12,
		fresh: 48,
		policy: { window: { mode: 'forever' }, onLapse: 'run_again', maxAttempts: 3, ...BACKOFF },
	},
	payment: {
		hot: 12,
		fresh: 48,
		policy: { window: { mode: 'forever' }, onLapse: 'hold', maxAttempts: 4, ...BACKOFF },
	},
	digest: {
		hot: 24,
		fresh: 0,
		policy: {
			window: { mode: 'duration', seconds: 0.7 },
			onLapse: 'run_again',
			maxAttempts: 5,
			...BACKOFF,
		},
	},
	sync: {
		hot: 24,
		fresh: 0,
		policy: { window: { mode: 'while_running' }, onLapse: 'hold', maxAttempts: 2, ...BACKOFF },
	},
	report: {
		hot: 24,
		fresh: 0,
		policy: {
			window: { mode: 'until_success', kind: 'close' },
			onLapse: 'run_again',
			maxAttempts: 3,
			...BACKOFF,
		},
	},
	close: {
		hot: 3,
		fresh: 0,
		policy: {
			window: { mode: 'duration', seconds: 0.5 },
			onLapse: 'hold',
			maxAttempts: 3,
			...BACKOFF,
		},
	},
	// large batches: most of a run's operations
	bulk: {
		hot: 600,
		fresh: 0,
		policy: { window: { mode: 'while_running' }, onLapse: 'run_again', maxAttempts: 3, ...BACKOFF },
	},
	fragile: {
		hot: 12,
		fresh: 24,
		policy: { window: { mode: 'forever' }, onLapse: 'run_again', maxAttempts: 1, ...BACKOFF },
	},
};

/** What becomes of a claimed work. "land" leaves an effect. [fate, weight] */
const FATES = /** @type {const} */ ([
	['complete', 50],
	['complete twice', 4],
	['record and complete', 8],
	['record and vanish', 3],
	['extend and complete', 5],
	['fail before', 9],
	['fail after', 6],
	['fail for good', 2],
	['release', 5],
	['vanish before', 2],
	['vanish after', 3],
	['dawdle', 4],
]);

/** @typedef {typeof FATES[number][0]} Fate */

/** What is done with the claims whose owners have vanished or dawdle. */
const LATE = /** @type {const} */ (['complete', 'complete', 'fail', 'extend', 'record', 'release']);

/** [step, weight] */
const STEPS = /** @type {const} */ ([
	['work', 70],
	['late', 12],
	['sweep', 4],
	['replay', 3],
	['resolve', 4],
	['release by force', 1],
	['fail execution', 3],
	['purge', 2],
	['purge decisions', 1],
]);

const LEASES_SECONDS = [0.15, 0.4, 1.2];
/** Steps after which the window of fresh keys moves on by one key. */
const STEPS_PER_FRESH_KEY = 1;
/** Works that one replay, resolve or forced release names at most. */
const MOST_FOR_A_PERSON = 12;

/**
 * mulberry32, seeded with a hash (FNV-1a) of the parts: small, and the same everywhere.
 *
 * @param {...(string | number)} parts
 * @returns {() => number} from 0 to 1, 1 excluded
 */
function random(...parts) {
	let state = 0x811c9dc5;
	for (const character of parts.join('/')) {
		state = Math.imul(state ^ character.charCodeAt(0), 0x01000193);
	}
	return () => {
		state = (state + 0x6d2b79f5) | 0;
		let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
		mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
		return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
	};
}

/**
 * @template T
 * @param {readonly (readonly [T, number])[]} weighted
 * @param {() => number} next
 * @returns {T}
 */
function draw(weighted, next) {
	const total = weighted.reduce((sum, [, weight]) => sum + weight, 0);
	let left = next() * total;
	for (const [value, weight] of weighted) {
		left -= weight;
		if (left < 0) return value;
	}
	return weighted[0][0];
}

/**
 * @template T
 * @param {readonly T[]} values
 * @param {() => number} next
 * @returns {T}
 */
function pick(values, next) {
	return values[Math.floor(next() * values.length)];
}

/**
 * Different ones, in a random order.
 *
 * @template T
 * @param {readonly T[]} values
 * @param {number} count
 * @param {() => number} next
 * @returns {T[]}
 */
function someOf(values, count, next) {
	const left = [...values];
	for (let i = 0; i < count; i++) {
		const other = i + Math.floor(next() * (left.length - i));
		[left[i], left[other]] = [left[other], left[i]];
	}
	return left.slice(0, count);
}

/**
 * @typedef {object} Step
 * @property {typeof STEPS[number][0]} does
 * @property {string} kind
 * @property {string[]} keys One, or a batch in which a key may come twice.
 * @property {Fate[]} fates One per key.
 * @property {number} leaseSeconds
 * @property {boolean} again The claim is sent twice with the same tokens.
 * @property {boolean} poll As while waiting: Busy answers are not written to the decision log.
 * @property {boolean} freshTokens What a failed call may have claimed is released.
 * @property {typeof LATE[number]} late
 * @property {boolean} force
 * @property {boolean} anew
 * @property {boolean} landed
 * @property {boolean} keepStub
 */

/**
 * @param {string | number} seed
 * @param {number} worker
 * @param {number} lane
 * @param {number} n
 * @returns {Step}
 */
function planStep(seed, worker, lane, n) {
	const next = random(seed, worker, lane, n);
	const does = draw(STEPS, next);
	const kind = pick(Object.keys(KINDS), next);
	const { hot, fresh } = KINDS[kind];
	const oldest = Math.floor(n / STEPS_PER_FRESH_KEY);
	const all = Array.from({ length: hot + fresh }, (_, place) =>
		place < hot ? `hot ${place}` : `${oldest + place - hot}`,
	);
	const size = next() < 0.25 ? 1 : 2 + Math.floor(next() * (all.length - 1));
	const keys = someOf(all, does === 'work' ? size : Math.min(size, MOST_FOR_A_PERSON), next);
	// a batch may hold a key twice, anywhere
	if (size > 1 && next() < 0.2) keys.splice(Math.floor(next() * size), 0, pick(keys, next));
	return {
		does,
		kind,
		keys,
		fates: keys.map(() => draw(FATES, next)),
		leaseSeconds: pick(LEASES_SECONDS, next),
		again: next() < 0.04,
		poll: next() < 0.1,
		freshTokens: next() < 0.5,
		late: pick(LATE, next),
		force: next() < 0.3,
		anew: next() < 0.3,
		landed: next() < 0.5,
		keepStub: next() < 0.6,
	};
}

module.exports = { KINDS, planStep, random, pick };
