'use strict';

/**
 * The checker of a prove, a program of its own: `node checker.js <job as JSON>`. It knows nothing of the ledger's code,
 * only its two tables, the prove's own change log, and the files that the workers wrote. It prints one JSON object.
 *
 * Memory stays bounded however long the run was: the files are split by work into buckets on disk, the tables are read
 * through cursors in the same order, and one bucket at a time is in memory.
 */

const { createHash } = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');
const { Client } = require('pg');

const { CLASSES, checkWork } = require('./check-work');

/** @typedef {{ server: object, folder: string, drained: boolean }} Job */

const FLUSH_CHARACTERS = 16 * 1024 * 1024;
const FETCH_ROWS = 5_000;
/** Violations that are told in full. */
const TOLD_IN_FULL = 20;

const US = (/** @type {string} */ column) => `(extract(epoch from ${column}) * 1e6)::bigint::text`;

const DECISIONS = `
	select work_id, id::text as seq, xmin::text as xmin, ${US('at')} as at, event, outcome, generation, attempt, token,
		checked -> 'window' as window, detail ->> 'force' = 'true' as force, result::text as result, external_ref
	from idempotency.decision_log order by work_id collate "C", id`;
const CHANGES = `
	select work_id, seq::text as seq, xmin::text as xmin, ${US('at')} as at, gone, state, generation, attempt,
		max_attempts, on_lapse, token, ${US('locked_until')} as locked_until, ${US('next_attempt_at')} as next_attempt_at,
		${US('completed_at')} as completed_at, result, result_hash, external_ref, stub
	from prove.change_log order by work_id collate "C", seq`;
const ROWS = `
	select work_id, state, generation, attempt, token, ${US('locked_until')} as locked_until,
		${US('next_attempt_at')} as next_attempt_at, ${US('completed_at')} as completed_at
	from idempotency.work_log order by work_id collate "C"`;

/** Rows in the order of their works; `upTo` takes those of one bucket. */
class Ordered {
	/** @param {Client} client @param {string} name @param {string} query */
	constructor(client, name, query) {
		this.client = client;
		this.name = name;
		this.query = query;
		/** @type {any[]} */
		this.rows = [];
		this.at = 0;
		this.ended = false;
	}

	async open() {
		await this.client.query(`declare ${this.name} no scroll cursor for ${this.query}`);
	}

	/**
	 * @param {string} bucket The first two digits of a work's id.
	 * @param {(row: any) => void} take
	 */
	async upTo(bucket, take) {
		for (;;) {
			if (this.at === this.rows.length) {
				if (this.ended) return;
				({ rows: this.rows } = await this.client.query(`fetch ${FETCH_ROWS} from ${this.name}`));
				this.at = 0;
				this.ended = this.rows.length < FETCH_ROWS;
				if (this.rows.length === 0) return;
			}
			if (this.rows[this.at].work_id.slice(0, 2) > bucket) return;
			take(this.rows[this.at++]);
		}
	}
}

/** What workers wrote, split by the first two digits of the work's id. */
class Buckets {
	/** @param {string} folder */
	constructor(folder) {
		this.folder = folder;
		fs.rmSync(folder, { recursive: true, force: true });
		fs.mkdirSync(folder, { recursive: true });
		/** @type {Map<string, string[]>} */
		this.waiting = new Map();
		this.characters = 0;
	}

	/** @param {string} id @param {unknown[]} entry */
	add(id, entry) {
		const bucket = id.slice(0, 2);
		const line = JSON.stringify([id, ...entry]);
		const lines = this.waiting.get(bucket) ?? [];
		lines.push(line);
		this.waiting.set(bucket, lines);
		this.characters += line.length;
		if (this.characters > FLUSH_CHARACTERS) this.flush();
	}

	flush() {
		for (const [bucket, lines] of this.waiting) {
			fs.appendFileSync(path.join(this.folder, bucket), `${lines.join('\n')}\n`);
		}
		this.waiting.clear();
		this.characters = 0;
	}

	/** @param {string} bucket @param {(entry: any[]) => void} take */
	async read(bucket, take) {
		const file = path.join(this.folder, bucket);
		if (fs.existsSync(file)) await forEachLine(file, (line) => take(JSON.parse(line)));
	}
}

/**
 * Whole lines only: a killed process may leave a torn last one.
 *
 * @param {string} file
 * @param {(line: string) => void} take
 */
async function forEachLine(file, take) {
	let previous = null;
	for await (const line of readline.createInterface({ input: fs.createReadStream(file) })) {
		if (previous !== null) take(previous);
		previous = line;
	}
	if (previous !== null && endsWithNewline(file)) take(previous);
}

/** @param {string} file */
function endsWithNewline(file) {
	const { size } = fs.statSync(file);
	const handle = fs.openSync(file, 'r');
	const last = Buffer.alloc(1);
	fs.readSync(handle, last, 0, 1, size - 1);
	fs.closeSync(handle);
	return last.toString() === '\n';
}

const workIds = new Map();

/** @param {string} name `kind:version:key` */
function workIdOf(name) {
	let id = workIds.get(name);
	if (id === undefined) {
		if (workIds.size > 50_000) workIds.clear();
		id = createHash('sha256').update(name).digest('hex');
		workIds.set(name, id);
	}
	return id;
}

/** @param {string | null} text */
const numberOf = (text) => (text === null ? null : Number(text));

/** @param {any} row @returns {import('./check-work').Change} */
function changeOf(row) {
	return {
		seq: Number(row.seq),
		xmin: row.xmin,
		at: Number(row.at),
		gone: row.gone,
		state: row.state,
		generation: row.generation,
		attempt: row.attempt,
		maxAttempts: row.max_attempts,
		onLapse: row.on_lapse,
		token: row.token,
		lockedUntil: numberOf(row.locked_until),
		nextAttemptAt: numberOf(row.next_attempt_at),
		completedAt: numberOf(row.completed_at),
		result: row.result,
		resultHash: row.result_hash,
		externalRef: row.external_ref,
		stub: row.stub,
	};
}

/** @param {any} row @returns {import('./check-work').Decision} */
function decisionOf(row) {
	return {
		seq: Number(row.seq),
		xmin: row.xmin,
		at: Number(row.at),
		event: row.event,
		outcome: row.outcome,
		generation: row.generation,
		attempt: row.attempt,
		token: row.token,
		window: row.window,
		force: row.force === true,
		result: row.result,
		externalRef: row.external_ref,
	};
}

/** @param {any[] | null} told @returns {import('./check-work').Told | null} */
function toldOf(told) {
	if (told === null) return null;
	const [
		status,
		state,
		generation,
		attempt,
		lockedUntil,
		previousOutcome,
		result,
		externalRef,
		flags,
	] = told;
	return {
		status,
		state,
		generation,
		attempt,
		lockedUntil: lockedUntil === null ? null : Date.parse(lockedUntil) * 1000,
		previousOutcome,
		result,
		externalRef,
		flags: flags === '' ? [] : flags.split(' '),
	};
}

/**
 * @param {string} folder
 * @param {Buckets} buckets
 */
async function splitRecords(folder, buckets) {
	const totals = { operations: 0, calls: 0, answersLost: 0, effects: 0 };
	/** @type {Record<string, number>} */
	const answers = {};
	for (const name of fs.readdirSync(folder)) {
		const file = path.join(folder, name);
		if (name.startsWith('effects.')) {
			await forEachLine(file, (line) => {
				const [work, token] = JSON.parse(line);
				totals.effects++;
				buckets.add(workIdOf(work), ['effect', work, token]);
			});
		} else if (name.startsWith('history.')) {
			await forEachLine(file, (line) => {
				const { op, works, lost } = JSON.parse(line);
				totals.calls++;
				if (lost !== undefined) {
					totals.answersLost++;
					return;
				}
				totals.operations += works.length;
				for (const [work, token, offered, told] of works) {
					const answer = work === '' ? op : `${op}: ${told[0]}`;
					answers[answer] = (answers[answer] ?? 0) + 1;
					if (work !== '') buckets.add(workIdOf(work), ['asked', work, op, token, offered, told]);
				}
			});
		}
	}
	buckets.flush();
	return { totals, answers };
}

/**
 * When works of the kinds that end a window were done: one number each.
 *
 * @param {Client} client
 */
async function readSuccesses(client) {
	const { rows } = await client.query(`
		select kind, ${US('completed_at')} as at from prove.change_log
		where state = 'done' and not gone and kind in (
			select distinct checked -> 'window' ->> 'kind' from idempotency.decision_log
			where checked -> 'window' ->> 'mode' = 'until_success')
		group by kind, completed_at order by kind, completed_at`);
	/** @type {Map<string, number[]>} */
	const times = new Map();
	for (const { kind, at } of rows) {
		const own = times.get(kind) ?? [];
		own.push(Number(at));
		times.set(kind, own);
	}
	return times;
}

/** @param {Map<string, number[]>} successes */
function succeededIn(successes) {
	return (/** @type {string} */ kind, /** @type {number} */ after, /** @type {number} */ until) => {
		const times = successes.get(kind) ?? [];
		let low = 0;
		let high = times.length;
		while (low < high) {
			const middle = (low + high) >>> 1;
			if (times[middle] > after) high = middle;
			else low = middle + 1;
		}
		return low < times.length && times[low] <= until;
	};
}

/** @param {Job} job */
async function main({ server, folder, drained }) {
	const buckets = new Buckets(path.join(folder, 'buckets'));
	const { totals, answers } = await splitRecords(folder, buckets);
	const client = new Client(server);
	await client.connect();
	await client.query('begin isolation level repeatable read read only');
	const surroundings = { drained, succeeded: succeededIn(await readSuccesses(client)) };
	const tables = {
		decisions: new Ordered(client, 'decisions', DECISIONS),
		changes: new Ordered(client, 'changes', CHANGES),
		rows: new Ordered(client, 'works', ROWS),
	};
	for (const table of Object.values(tables)) await table.open();

	/** @type {Record<string, number>} */
	const byClass = Object.fromEntries(Object.keys(CLASSES).map((name) => [name, 0]));
	const told = [];
	const seen = { works: 0, changes: 0, decisions: 0 };
	let violations = 0;
	for (let number = 0; number < 256; number++) {
		const bucket = number.toString(16).padStart(2, '0');
		/** @type {Map<string, import('./check-work').History>} */
		const histories = new Map();
		const of = (/** @type {string} */ id, name = id) => {
			let history = histories.get(id);
			if (history === undefined) {
				history = { name, changes: [], decisions: [], asked: [], effects: [], row: null };
				histories.set(id, history);
			}
			return history;
		};
		await buckets.read(bucket, ([id, what, name, ...rest]) => {
			const history = of(id, name);
			if (what === 'effect') history.effects.push(rest[0]);
			else {
				const [op, token, offered, answer] = rest;
				history.asked.push({ op, token, offered, told: toldOf(answer) });
			}
		});
		await tables.decisions.upTo(bucket, (row) => of(row.work_id).decisions.push(decisionOf(row)));
		await tables.changes.upTo(bucket, (row) => of(row.work_id).changes.push(changeOf(row)));
		await tables.rows.upTo(bucket, (row) => {
			of(row.work_id).row = {
				state: row.state,
				generation: row.generation,
				attempt: row.attempt,
				token: row.token,
				lockedUntil: numberOf(row.locked_until),
				nextAttemptAt: numberOf(row.next_attempt_at),
				completedAt: numberOf(row.completed_at),
			};
		});
		for (const history of histories.values()) {
			seen.works++;
			seen.changes += history.changes.length;
			seen.decisions += history.decisions.length;
			for (const violation of checkWork(history, surroundings)) {
				violations++;
				byClass[violation.class]++;
				if (told.length < TOLD_IN_FULL) told.push(violation);
			}
		}
	}
	await client.query('commit');
	await client.end();
	console.log(
		JSON.stringify({
			...totals,
			...seen,
			answers,
			violations,
			byClass,
			told,
			memoryMb: Math.round(process.resourceUsage().maxRSS / 1024),
		}),
	);
}

if (require.main === module) {
	main(JSON.parse(process.argv[2])).catch((error) => {
		console.error(error);
		process.exitCode = 1;
	});
}

module.exports = { succeededIn };
