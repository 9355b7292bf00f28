'use strict';

/**
 * One worker of a prove: a process of its own with the package's client, which plays its part of the plan and records what
 * it was told and what it did. Started by `crew.js`, which may kill or stop it at any moment.
 *
 * Two files per incarnation. `effects`: a line before anything else happens after an effect, which is the effect itself, so
 * none can be undone and none is unrecorded. `history`: a line per call once its answer is there; without an answer the
 * call may have been committed or not, and the line says that it was lost.
 */

const { createHash, randomUUID } = require('node:crypto');
const fs = require('node:fs');

const { createLedger } = require('../../ledger');
const { KINDS, planStep } = require('./plan');

/**
 * @typedef {object} Job
 * @property {string | number} seed
 * @property {number} worker
 * @property {number} incarnation
 * @property {number[]} from The step each lane begins with; its length is the number of lanes.
 * @property {object} settings Of the ledger.
 * @property {string} history A file, as is `effects`.
 * @property {string} effects
 * @property {boolean} drain Instead of the plan: bring every work to its end.
 */

/** @typedef {{ name: string, workId: string, token: string, landed: string | null }} Held */

/** Claims a lane remembers after it stopped reporting on them. */
const LARGEST_PILE = 300;
const LATE_AT_ONCE = 24;
const STEPS_PER_REPORT = 20;
const RETENTION_SECONDS = 3_600;

/** @type {Job} */
const job = JSON.parse(process.argv[2]);
const ledger = createLedger(job.settings);
const history = fs.openSync(job.history, 'a');
const effects = fs.openSync(job.effects, 'a');
let stopping = false;
/** Works asked about in calls that were answered. */
let operations = 0;

const workIds = new Map();

/** Written out here as in the contract: work_id = sha256(kind:version:key). @param {string} name */
function workIdOf(name) {
	let id = workIds.get(name);
	if (id === undefined) {
		if (workIds.size > 10_000) workIds.clear();
		id = createHash('sha256').update(name).digest('hex');
		workIds.set(name, id);
	}
	return id;
}

/** @param {string} kind @param {string} key */
const nameOf = (kind, key) => `${kind}:v1:${key}`;

/** @param {any} answer */
function told(answer) {
	return [
		answer.status,
		answer.state ?? null,
		answer.generation ?? null,
		answer.attempt ?? null,
		answer.lockedUntil ?? null,
		answer.previousOutcome ?? null,
		answer.result ?? null,
		answer.externalRef ?? null,
		[
			answer.late && 'late',
			answer.repeated && 'repeated',
			answer.resultPurged && 'purged',
			...(answer.differs ?? []),
		]
			.filter(Boolean)
			.join(' '),
	];
}

/**
 * Makes one call and records it.
 *
 * @param {string} op
 * @param {Array<{ name: string, token?: string | null, offered?: string | null }>} works
 * @param {() => Promise<any[]>} call Answers in the order of the works.
 * @returns {Promise<any[] | null>} null: its answer was lost
 */
async function record(op, works, call) {
	if (works.length === 0) return [];
	const asked = works.map(({ name, token, offered }) => [name, token ?? null, offered ?? null]);
	try {
		const answers = await call();
		operations += works.length;
		const line = { op, works: asked.map((work, i) => [...work, told(answers[i])]) };
		fs.writeSync(history, `${JSON.stringify(line)}\n`);
		return answers;
	} catch (error) {
		// a bug of this program must not pass as a fault it has survived
		if (error?.name !== 'LedgerError') throw error;
		fs.writeSync(
			history,
			`${JSON.stringify({ op, works: asked.map((work) => [...work, null]), lost: error.code })}\n`,
		);
		if (!LOST.has(error.code)) throw error;
		return null;
	}
}

/** The failures that the faults cause; any other is the ledger's own. */
const LOST = new Set([
	'unreachable',
	'timeout',
	'connection_lost',
	'too_many_connections',
	'starting_up',
	'busy',
]);

/** The effect, and the only trace of it: a line. @param {Held} held @param {string} mark */
function land(held, mark) {
	held.landed = mark;
	fs.writeSync(effects, `${JSON.stringify([held.name, held.token])}\n`);
}

/** @param {Held[]} works @param {object} caller */
const complete = (works, caller, other = false) =>
	record(
		'complete',
		works.map((work) => ({ ...work, offered: offeredBy(work, other) })),
		() =>
			ledger.works.complete(
				works.map((work) => ({
					workId: work.workId,
					token: work.token,
					result: { effect: offeredBy(work, other) },
				})),
				caller,
			),
	);

/** @param {Held} work @param {boolean} other */
const offeredBy = (work, other) => (other ? `${work.landed} again` : work.landed);

/** @param {Held[]} works @param {object} caller @param {boolean} [permanent] */
const fail = (works, caller, permanent = false) =>
	record('fail', works, () =>
		ledger.works.fail(
			works.map(({ workId, token, landed }) => ({
				workId,
				token,
				error: 'the target said no',
				// the truth: what has left a line may have landed
				landed: landed === null ? 'no' : 'unknown',
				permanent,
			})),
			caller,
		),
	);

/** @param {Held[]} works @param {object} caller */
const recordReference = (works, caller) =>
	record('record_reference', works, () =>
		ledger.works.recordReference(
			works.map(({ workId, token, landed }) => ({ workId, token, externalRef: `ref ${landed}` })),
			caller,
		),
	);

/** @param {Held[]} works @param {object} caller */
const extend = (works, caller) =>
	record('extend', works, () =>
		ledger.works.extend(
			works.map(({ workId, token }) => ({ workId, token })),
			caller,
		),
	);

/** @param {Held[]} works @param {object} caller */
const release = (works, caller) =>
	record('release', works, () =>
		ledger.works.release(
			works.map(({ workId, token }) => ({ workId, token })),
			caller,
		),
	);

/**
 * @param {import('./plan').Step} step
 * @param {object} caller
 * @returns {Promise<Array<Held & { place: number }>>} what this call claimed
 */
async function claim(step, caller) {
	const items = step.keys.map((key) => {
		const name = nameOf(step.kind, key);
		return { name, workId: workIdOf(name), key, token: randomUUID() };
	});
	const policy = {
		kind: step.kind,
		...KINDS[step.kind].policy,
		leaseSeconds: step.leaseSeconds,
		poll: step.poll,
	};
	const send = (/** @type {boolean} */ freshTokens) =>
		record('claim', items, () =>
			ledger.works.claim(
				items.map(({ workId, key, token }) => ({
					workId,
					key,
					token,
					payload: JSON.stringify({ key }),
				})),
				{ ...policy, caller },
				{ freshTokens },
			),
		);
	let answers = await send(step.freshTokens && !step.again);
	if (step.again) answers = await send(false);
	return (answers ?? []).flatMap((answer, place) =>
		answer.status === 'claimed' ? [{ ...items[place], place, landed: null }] : [],
	);
}

/** One sequence of steps; the lanes of a worker share its pool. */
class Lane {
	/** @param {number} index @param {number} from */
	constructor(index, from) {
		this.index = index;
		this.n = from;
		/** Claims whose owner has stopped reporting; what it does late is another step. @type {Held[]} */
		this.pile = [];
		/** @type {string[]} */
		this.lost = [];
	}

	/** @param {string} [execution] */
	caller(execution = `${job.worker}.${job.incarnation}.${this.index}.${this.n}`) {
		return {
			instance: `worker ${job.worker}`,
			workflow: `workflow ${this.index}`,
			execution,
			parentExecution: this.parent(),
			node: 'prove',
			mode: 'trigger',
		};
	}

	/** Ten steps in a row are sub-workflows of one execution. */
	parent() {
		return `${job.worker}.${job.incarnation}.${this.index}.parent.${Math.floor(this.n / 10)}`;
	}

	async run() {
		while (!stopping) {
			const step = planStep(job.seed, job.worker, this.index, this.n);
			await this.play(step);
			this.n++;
			if (this.n % STEPS_PER_REPORT === 0) report({ lane: this.index, next: this.n, operations });
		}
	}

	/** @param {import('./plan').Step} step */
	async play(step) {
		const names = [...new Set(step.keys.map((key) => nameOf(step.kind, key)))];
		const works = names.map((name) => ({ name }));
		const ids = names.map(workIdOf);
		const caller = this.caller();
		switch (step.does) {
			case 'work':
				await this.work(step, caller);
				break;
			case 'late':
				await this.late(step, caller);
				break;
			case 'sweep':
				await record('sweep', [{ name: '' }], async () => {
					const swept = await ledger.admin.sweep(200, caller);
					return [{ status: String(swept.length) }];
				});
				break;
			case 'replay':
				await record('replay', works, () =>
					ledger.admin.replay(ids, { force: step.force, again: step.anew }, caller),
				);
				break;
			case 'resolve':
				await record('resolve', works, () =>
					ledger.admin.resolve(
						ids,
						step.landed
							? { landed: true, result: { effect: `a person, ${caller.execution}` } }
							: { landed: false },
						caller,
					),
				);
				break;
			case 'release by force':
				await record('release_by_force', works, () => ledger.admin.releaseByForce(ids, caller));
				break;
			case 'fail execution': {
				const executions = [...this.lost.splice(0, 3), ...(step.force ? [this.parent()] : [])];
				if (executions.length === 0) break;
				await record('fail_execution', [{ name: '' }], async () => {
					const failed = await ledger.works.failExecution(
						`worker ${job.worker}`,
						executions,
						'the execution crashed',
						caller,
					);
					return [{ status: String(failed.length) }];
				});
				break;
			}
			case 'purge':
				await record('purge', [{ name: '' }], async () => {
					const purged = await ledger.admin.purge(
						{
							states: step.force ? ['done', 'dead'] : ['done'],
							olderThanSeconds: step.leaseSeconds,
							keepStub: step.keepStub,
							atMost: 40,
						},
						caller,
					);
					return [{ status: String(purged) }];
				});
				break;
			case 'purge decisions':
				// nothing is that old: the history must stay for the checker
				await record('purge_decisions', [{ name: '' }], async () => {
					const purged = await ledger.admin.purgeDecisions(RETENTION_SECONDS, 1_000);
					return [{ status: String(purged) }];
				});
				break;
		}
	}

	/** Claims, and lets each claimed work meet its fate. @param {import('./plan').Step} step @param {any} caller */
	async work(step, caller) {
		const held = await claim(step, caller);
		/** @param {...string} fates */
		const with_ = (...fates) => held.filter(({ place }) => fates.includes(step.fates[place]));
		const mark = (/** @type {Held & { place: number }} */ work) =>
			land(work, `${caller.execution}.${work.place}`);

		await fail(with_('fail before'), caller);
		await fail(with_('fail for good'), caller, true);
		await release(with_('release'), caller);
		await extend(with_('extend and complete'), caller);
		with_(
			'complete',
			'complete twice',
			'record and complete',
			'record and vanish',
			'extend and complete',
			'fail after',
			'vanish after',
		).forEach(mark);
		await fail(with_('fail after'), caller);
		await recordReference(with_('record and complete', 'record and vanish'), caller);
		await complete(
			with_('complete', 'complete twice', 'record and complete', 'extend and complete'),
			caller,
		);
		// the first result stands, whatever a second report says
		const twice = with_('complete twice');
		await complete(twice, caller, step.again);

		const vanished = with_('record and vanish', 'vanish after', 'dawdle');
		this.pile.push(...vanished);
		this.pile.splice(0, this.pile.length - LARGEST_PILE);
		if (vanished.length > 0) this.lost.push(caller.execution);
		this.lost.splice(0, this.lost.length - 20);
	}

	/** What owners do whose lease may be over, and whose work somebody else may hold. @param {import('./plan').Step} step @param {any} caller */
	async late(step, caller) {
		const old = this.pile.splice(0, LATE_AT_ONCE);
		const mark = (/** @type {Held} */ work, /** @type {number} */ i) => {
			if (work.landed === null) land(work, `${caller.execution}.late.${i}`);
		};
		switch (step.late) {
			case 'complete':
				old.forEach(mark);
				await complete(old, caller);
				break;
			case 'fail':
				await fail(old, caller, step.force);
				break;
			case 'record':
				old.forEach(mark);
				await recordReference(old, caller);
				break;
			case 'release': {
				// an owner whose effect has landed does not undo its claim
				const untouched = old.filter(({ landed }) => landed === null);
				await release(untouched, caller);
				await fail(
					old.filter(({ landed }) => landed !== null),
					caller,
				);
				break;
			}
			case 'extend': {
				const answers = (await extend(old, caller)) ?? [];
				const still = old.filter((_, i) => answers[i]?.status === 'extended');
				still.forEach(mark);
				await complete(still, caller);
				break;
			}
		}
	}
}

/**
 * Brings every work to its end, as a healthy crew with a person would: what cannot be brought there is stuck. Bounded, so
 * that a wrong ledger ends the drain, too.
 */
async function drain() {
	const lane = new Lane(0, 0);
	for (let idle = 0; idle < 60; idle++) {
		await ledger.admin.sweep(5_000, lane.caller());
		const { works } = await ledger.admin.list(
			{ states: ['running', 'failed', 'held', 'dead'] },
			1_000,
		);
		if (works.length === 0) return;
		for (const kind of Object.keys(KINDS)) {
			const mine = works.filter((work) => work.kind === kind);
			const named = (/** @type {any[]} */ list) =>
				list.map(({ key }) => ({ name: nameOf(kind, key) }));
			const doubtful = mine.filter(({ state }) => state === 'held' || state === 'dead');
			await record('resolve', named(doubtful), () =>
				ledger.admin.resolve(
					doubtful.map(({ workId }) => workId),
					{ landed: false },
					lane.caller(),
				),
			);
			const failed = mine.filter(({ state }) => state === 'failed');
			await record('replay', named(failed), () =>
				ledger.admin.replay(
					failed.map(({ workId }) => workId),
					{},
					lane.caller(),
				),
			);
			const due = [...doubtful, ...failed].map(({ key }) => String(key));
			if (due.length === 0) continue;
			lane.n++;
			const step = { ...planStep(0, 0, 0, 0), kind, keys: due, leaseSeconds: 60, again: false };
			const held = await claim(step, lane.caller());
			held.forEach((work) => land(work, `${lane.caller().execution}.${work.place}`));
			await complete(held, lane.caller());
			if (held.length > 0) idle = 0;
		}
		if (works.some(({ state }) => state === 'running')) {
			// leases end by the database's clock; the next round looks again
			await new Promise((resolve) => setTimeout(resolve, 100));
		}
	}
}

/** @param {object} message */
function report(message) {
	// gone: the parent has died, and `disconnect` ends this process
	if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}

async function main() {
	// Ctrl-C goes to the whole group of processes: the parent decides what becomes of its workers
	process.on('SIGINT', () => undefined);
	process.on('message', () => {
		stopping = true;
	});
	process.on('disconnect', () => process.exit(0));
	report({ clock: Date.now() });
	if (job.drain) await drain();
	else await Promise.all(job.from.map((from, index) => new Lane(index, from).run()));
	report({ done: true, operations });
	await ledger.close();
	process.exit(0);
}

main().catch((error) => {
	console.error(error);
	process.exit(1);
});
