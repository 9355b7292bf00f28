'use strict';

/**
 * The rules a history of one work must keep, written from the contract and not from the ledger's code. Pure: the recorded
 * history of one work goes in, the violations come out. A rule speaks only where it can be sure: an answer that was lost
 * may or may not have been committed, and is never held against the ledger.
 */

const { createHash } = require('node:crypto');

/** What is looked for. */
const CLASSES = {
	two_owners: 'two live owners of one attempt, by the clock of the database',
	replaced_token: 'a completion (or another report) accepted under a replaced token',
	done_in_window: 'done work claimed inside its window, or undone',
	over_limit: 'an attempt above the limit, or one that was not counted',
	held_claimed: "held or dead work claimed without a person or its owner's word",
	early_claim: 'failed work claimed before it was due',
	landed_claimed: 'work claimed again although the reference of its effect was recorded',
	impossible_state:
		'work that is neither done, dead, held, running nor failed with a next attempt time',
	undecided_change: 'a change without its row in the decision log, or a row without its change',
	lost_result: 'a result or reference that was accepted and is gone',
	lost_work: 'work that vanished without a purge, a release or a person',
	false_answer: 'an answer that the ledger never stood by',
	effect_without_claim: 'an effect under a claim that the ledger does not know',
	fired_twice: 'two effects of work that is held in doubt, without a person between them',
	unannounced: 'work handed out as untried although the attempt before left an effect',
	stuck: 'work that could not be brought to its end afterwards',
};

/** @typedef {keyof typeof CLASSES} ViolationClass */
/** @typedef {{ class: ViolationClass, work: string, text: string }} Violation */

/**
 * How the work stood after a change, as the prove's trigger saw it. Times are microseconds of the database's clock.
 *
 * @typedef {object} Change
 * @property {number} seq One sequence numbers changes and decisions.
 * @property {string} xmin The transaction.
 * @property {number} at
 * @property {boolean} gone The row was removed; all else is as it was before.
 * @property {string} state
 * @property {number} generation
 * @property {number} attempt
 * @property {number} maxAttempts
 * @property {string} onLapse
 * @property {string | null} token
 * @property {number | null} lockedUntil
 * @property {number | null} nextAttemptAt
 * @property {number | null} completedAt
 * @property {string | null} result JSON text
 * @property {string | null} resultHash
 * @property {string | null} externalRef
 * @property {boolean} stub
 */

/**
 * A row of the decision log.
 *
 * @typedef {object} Decision
 * @property {number} seq
 * @property {string} xmin
 * @property {number} at
 * @property {string} event
 * @property {string} outcome
 * @property {number | null} generation
 * @property {number | null} attempt
 * @property {string | null} token
 * @property {{ mode: string, seconds?: number, kind?: string } | null} window
 * @property {boolean} force
 * @property {string | null} result
 * @property {string | null} externalRef
 */

/**
 * What a worker was told about this work in one call; null: the answer was lost.
 *
 * @typedef {object} Told
 * @property {string} status
 * @property {string | null} state
 * @property {number | null} generation
 * @property {number | null} attempt
 * @property {number | null} lockedUntil
 * @property {string | null} previousOutcome
 * @property {any} result
 * @property {string | null} externalRef
 * @property {string[]} flags late, repeated, purged; or what differed: result, external_ref
 */

/** @typedef {{ op: string, token: string | null, offered: string | null, told: Told | null }} Asked */

/**
 * @typedef {object} History
 * @property {string} name `kind:version:key`
 * @property {Change[]} changes
 * @property {Decision[]} decisions
 * @property {Asked[]} asked
 * @property {string[]} effects Tokens under which an effect was left.
 * @property {Pick<Change, 'state' | 'generation' | 'attempt' | 'token' | 'lockedUntil' | 'nextAttemptAt' | 'completedAt'> | null} row
 *   The work at the end; null: there is none.
 */

/**
 * @typedef {object} Surroundings
 * @property {boolean} drained Afterwards every work was brought to its end.
 * @property {(kind: string, after: number, until: number) => boolean} succeeded Was any work of that kind done in that time?
 */

/** Reports of an owner, by its token. */
const OWNERS_EVENTS = new Set(['complete', 'fail', 'extend', 'release', 'record_reference']);
const REFUSED = new Set(['not_owner', 'refused']);
/** Decisions that always change the row. */
const CHANGING = new Set([
	'claim/claimed',
	'complete/completed',
	'release/released',
	'replay/due',
	'resolve/due',
	'resolve/done',
]);
/** Milliseconds are what clients are told. */
const TOLD_US = 1_000;

/** A change and the decisions of one transaction about this work. */
/** @typedef {{ first: number, changes: Change[], decisions: Decision[] }} Transaction */

/**
 * @param {History} history
 * @param {Surroundings} surroundings
 * @returns {Violation[]}
 */
function checkWork(history, surroundings) {
	const check = new WorkCheck(history, surroundings);
	check.followTransactions();
	check.compareAnswers();
	check.compareEffects();
	check.compareEnd();
	return check.violations;
}

class WorkCheck {
	/** @param {History} history @param {Surroundings} surroundings */
	constructor(history, surroundings) {
		this.history = history;
		this.surroundings = surroundings;
		/** @type {Violation[]} */
		this.violations = [];
		/** How it stands; null: no row. @type {Change | null} */
		this.now = null;
		/** Every state the row ever was in: state/generation/attempt. @type {Set<string>} */
		this.stood = new Set();
		/** Per token: the claim that brought it. @type {Map<string, Grant>} */
		this.grants = new Map();
		/** Tokens under which the work was done at some time. @type {Set<string>} */
		this.doneUnder = new Set();
		/** Per generation: every result it ever had. @type {Map<number, Set<string | null>>} */
		this.results = new Map();
		/** Generations that were purged to a stub. @type {Set<number>} */
		this.stubs = new Set();
		/** event/token of every decision. @type {Set<string>} */
		this.decided = new Set();
		/** event/outcome → how often. @type {Map<string, number>} */
		this.counts = new Map();
		/** Tries between which no person stepped in. @type {Epoch} */
		this.epoch = { tokens: [] };
	}

	/** @param {ViolationClass} name @param {string} text */
	found(name, text) {
		this.violations.push({ class: name, work: this.history.name, text });
	}

	followTransactions() {
		for (const transaction of transactionsOf(this.history)) {
			this.checkReports(transaction);
			this.checkDecided(transaction);
			const before = this.now;
			for (const change of transaction.changes) {
				this.checkChange(this.now, change, transaction.decisions);
				this.follow(change);
			}
			this.endEpoch(before, transaction);
		}
	}

	/** Whose word counted in this transaction? @param {Transaction} transaction */
	checkReports({ changes, decisions }) {
		const images = [this.now, ...changes].map((image) => (image?.gone ? null : image));
		for (const decision of decisions) {
			this.decided.add(`${decision.event}/${decision.token}`);
			const outcome = `${decision.event}/${decision.outcome}`;
			this.counts.set(outcome, (this.counts.get(outcome) ?? 0) + 1);
			if (!OWNERS_EVENTS.has(decision.event) || decision.outcome === 'refused') continue;
			if (decision.outcome === 'not_owner') {
				// a release may come before the claim it undoes, whose answer was lost
				if (
					decision.event !== 'release' &&
					images.every((image) => image !== null && image.token === decision.token)
				) {
					this.found(
						'false_answer',
						`${describe(decision)}: refused although its token was the row's`,
					);
				}
			} else if (!images.some((image) => image !== null && image.token === decision.token)) {
				this.found(
					'replaced_token',
					`${describe(decision)}: accepted, but the row's token was ${images[0]?.token ?? 'none'}`,
				);
			}
		}
	}

	/** Nothing changes without a decision, and no such decision without a change. @param {Transaction} transaction */
	checkDecided({ changes, decisions }) {
		if (changes.length === 0) {
			for (const decision of decisions) {
				if (CHANGING.has(`${decision.event}/${decision.outcome}`)) {
					this.found('undecided_change', `${describe(decision)}: decided, but nothing changed`);
				}
			}
			return;
		}
		if (decisions.length > 0) return;
		const [change] = changes;
		const before = this.now;
		const isResend =
			changes.length === 1 &&
			before !== null &&
			!change.gone &&
			before.state === 'running' &&
			change.state === 'running' &&
			before.token === change.token &&
			before.generation === change.generation &&
			before.attempt === change.attempt &&
			before.result === change.result &&
			before.externalRef === change.externalRef &&
			Number(before.lockedUntil) <= change.at &&
			Number(before.lockedUntil) < Number(change.lockedUntil);
		// sent again after its lease had lapsed, a claim keeps its token and gets a lease again: not another decision
		if (!isResend) {
			this.found(
				'undecided_change',
				`${describeChange(before, change)}: no decision in its transaction`,
			);
		}
	}

	/** @param {Change | null} before @param {Change} after @param {Decision[]} decisions */
	checkChange(before, after, decisions) {
		const was = describeChange(before, after);
		const by = (/** @type {string[]} */ ...events) =>
			decisions.some((decision) => events.includes(decision.event));
		if (after.gone) {
			const purged = by('purge') && (after.state === 'done' || after.state === 'dead');
			const released = by('release') && after.state === 'running';
			if (!purged && !released && !by('forget'))
				this.found('lost_work', `${was}: by ${named(decisions)}`);
			if (released && after.externalRef !== null) {
				this.found('lost_result', `${was}: released with reference ${after.externalRef}`);
			}
			return;
		}
		this.checkState(after, was);
		this.checkResult(before, after, decisions, was);
		if (isClaim(before, after)) this.checkClaim(before, after, decisions, was);
		if (before === null) return;
		const live = before.state === 'running' && after.at < Number(before.lockedUntil);
		if (live && after.state !== 'running' && by('claim', 'sweep')) {
			this.found('two_owners', `${was}: settled by ${named(decisions)} while its lease was live`);
		}
		if (
			before.state === 'done' &&
			after.state !== 'done' &&
			after.state !== 'running' &&
			!by('replay')
		) {
			this.found('done_in_window', `${was}: undone by ${named(decisions)}`);
		}
		if (before.state === 'held' && after.state !== 'held' && after.state !== 'running') {
			const owner = decisions.some(
				({ event, outcome, token }) =>
					['complete', 'fail', 'record_reference'].includes(event) &&
					!REFUSED.has(outcome) &&
					token === before.token,
			);
			if (!owner && !by('replay', 'resolve')) {
				this.found('held_claimed', `${was}: by ${named(decisions)}`);
			}
		}
	}

	/** @param {Change | HistoryRow} image @param {string} was */
	checkState(image, was) {
		const possible =
			(image.state === 'running' && image.token !== null && image.lockedUntil !== null) ||
			(image.state === 'done' && image.completedAt !== null) ||
			(image.state === 'failed' && image.nextAttemptAt !== null) ||
			image.state === 'dead' ||
			image.state === 'held';
		if (!possible) this.found('impossible_state', was);
	}

	/** @param {Change | null} before @param {Change} after @param {Decision[]} decisions @param {string} was */
	checkClaim(before, after, decisions, was) {
		const { token } = after;
		if (after.attempt > after.maxAttempts) {
			this.found('over_limit', `${was}: attempt ${after.attempt} of ${after.maxAttempts}`);
		}
		const first = before === null || before.generation !== after.generation;
		if (after.attempt !== (first ? 1 : before.attempt + 1)) {
			this.found(
				'over_limit',
				`${was}: attempt ${after.attempt} follows ${first ? 0 : before.attempt}`,
			);
		}
		if (before === null) return;
		const window = decisions.find(
			(decision) => decision.event === 'claim' && decision.token === token,
		)?.window ?? {
			mode: 'forever',
		};
		if (before.state === 'running' && after.at < Number(before.lockedUntil)) {
			this.found(
				'two_owners',
				`${was}: claimed ${Number(before.lockedUntil) - after.at} µs before the lease of ${before.token} ended`,
			);
		}
		if (before.state === 'done' && !this.isOutside(window, Number(before.completedAt), after.at)) {
			this.found(
				'done_in_window',
				`${was}: claimed ${after.at - Number(before.completedAt)} µs after its completion, window ${JSON.stringify(window)}`,
			);
		}
		if (before.state === 'held' || (before.state === 'dead' && window.mode !== 'while_running')) {
			this.found('held_claimed', was);
		}
		if (
			before.state === 'failed' &&
			window.mode !== 'while_running' &&
			after.at < Number(before.nextAttemptAt)
		) {
			this.found(
				'early_claim',
				`${was}: ${Number(before.nextAttemptAt) - after.at} µs before it was due`,
			);
		}
		if (before.generation === after.generation && before.externalRef !== null) {
			this.found('landed_claimed', `${was}: ${before.externalRef}`);
		}
	}

	/** @param {NonNullable<Decision['window']>} window @param {number} completedAt @param {number} at */
	isOutside(window, completedAt, at) {
		if (window.mode === 'while_running') return true;
		if (window.mode === 'duration') return completedAt + Number(window.seconds) * 1e6 <= at;
		return (
			window.mode === 'until_success' &&
			this.surroundings.succeeded(String(window.kind), completedAt, at)
		);
	}

	/** @param {Change | null} before @param {Change} after @param {Decision[]} decisions @param {string} was */
	checkResult(before, after, decisions, was) {
		if (before === null) return;
		const moved = (/** @type {'result' | 'externalRef'} */ field) =>
			decisions.some((decision) => decision[field] === before[field]);
		if (before.result !== null && after.result !== before.result) {
			const hashed = after.stub && after.resultHash === sha256(before.result);
			if (after.result !== null || !(hashed || moved('result'))) {
				this.found('lost_result', `${was}: ${before.result} became ${after.result}`);
			}
		}
		if (
			before.externalRef !== null &&
			after.externalRef !== before.externalRef &&
			!moved('externalRef')
		) {
			this.found(
				'lost_result',
				`${was}: reference ${before.externalRef} became ${after.externalRef}`,
			);
		}
		const restored =
			before.state === 'running' &&
			after.state === 'done' &&
			decisions.some(({ event, outcome }) => event === 'release' && outcome === 'released');
		if (restored && !after.stub && !this.results.get(after.generation)?.has(after.result)) {
			this.found('lost_result', `${was}: given back with ${after.result}`);
		}
	}

	/** @param {Change} change */
	follow(change) {
		const before = this.now;
		if (change.gone) {
			this.now = null;
			return;
		}
		const { token, state, generation } = change;
		this.stood.add(`${state}/${generation}/${change.attempt}`);
		if (isClaim(before, change) && token !== null) {
			if (before === null || before.generation !== generation) this.epoch = { tokens: [] };
			// a claim that is sent again after a person has undone it is the same owner's: its token stands for both
			const earlier = this.grants.get(token);
			this.grants.set(token, {
				stands: [...(earlier?.stands ?? []), `${generation}/${change.attempt}`],
				lockedUntil: Math.max(earlier?.lockedUntil ?? 0, Number(change.lockedUntil)),
				holds: change.onLapse === 'hold',
				epoch: this.epoch,
				previous: this.epoch.tokens.at(-1) ?? null,
			});
			this.epoch.tokens.push(token);
		}
		const grant = token === null ? undefined : this.grants.get(token);
		if (grant !== undefined && state === 'running') {
			grant.lockedUntil = Math.max(grant.lockedUntil, Number(change.lockedUntil));
		}
		if (state === 'done') {
			if (token !== null) this.doneUnder.add(token);
			if (change.stub) this.stubs.add(generation);
			else {
				const results = this.results.get(generation) ?? new Set();
				results.add(change.result);
				this.results.set(generation, results);
			}
		}
		this.now = change;
	}

	/** A person's word, or another generation, allows the next effect. @param {Change | null} before @param {Transaction} transaction */
	endEpoch(before, { decisions }) {
		for (const { event, outcome, token, force } of decisions) {
			if (event === 'release' && outcome === 'released' && token !== null) {
				// undone: as if it had never been claimed
				const tokens = this.grants.get(token)?.epoch.tokens ?? [];
				const place = tokens.indexOf(token);
				if (place >= 0) tokens.splice(place, 1);
			}
			const byPerson = (event === 'replay' || event === 'resolve') && outcome === 'due';
			if (byPerson || (event === 'release' && outcome === 'released' && force)) {
				this.epoch = { tokens: [] };
			}
		}
		if (this.now === null || (before !== null && before.generation > this.now.generation)) {
			this.epoch = { tokens: [] };
		}
	}

	compareAnswers() {
		/** @type {Map<string, number>} */
		const people = new Map();
		for (const asked of this.history.asked) {
			if (asked.told === null) continue;
			if (asked.op === 'claim') this.compareClaim(asked, asked.told);
			else if (asked.token !== null) this.compareReport(asked, asked.told);
			else people.set(asked.told.status, (people.get(asked.told.status) ?? 0) + 1);
			const { state, generation, attempt } = asked.told;
			if (state !== null && !this.stood.has(`${state}/${generation}/${attempt}`)) {
				this.found(
					'false_answer',
					`${describeAsked(asked)}: it never was ${state} in generation ${generation}, attempt ${attempt}`,
				);
			}
		}
		const count = (/** @type {string[]} */ ...outcomes) =>
			outcomes.reduce((sum, outcome) => sum + (this.counts.get(outcome) ?? 0), 0);
		for (const [status, decided] of /** @type {const} */ ([
			['replayed', count('replay/due')],
			['resolved', count('resolve/due', 'resolve/done')],
			['released', count('release/released')],
		])) {
			if ((people.get(status) ?? 0) > decided) {
				this.found(
					'undecided_change',
					`people were told ${status} ${people.get(status)} times, decided ${decided} times`,
				);
			}
		}
	}

	/** @param {Asked} asked @param {Told} told */
	compareClaim(asked, told) {
		if (told.status === 'claimed') {
			const grant = asked.token === null ? undefined : this.grants.get(asked.token);
			if (grant === undefined || !this.decided.has(`claim/${asked.token}`)) {
				this.found(
					'undecided_change',
					`${describeAsked(asked)}: the ledger knows of no such claim`,
				);
				return;
			}
			const stand = `${told.generation}/${told.attempt}`;
			if (!grant.stands.includes(stand)) {
				this.found(
					'false_answer',
					`${describeAsked(asked)}: told generation/attempt ${stand}, it was ${grant.stands.join(', ')}`,
				);
			}
			if (Number(told.lockedUntil) > grant.lockedUntil + TOLD_US) {
				this.found(
					'two_owners',
					`${describeAsked(asked)}: told a longer lease than the ledger kept`,
				);
			}
			grant.told = told.previousOutcome ?? 'nothing';
		}
		if (told.status === 'duplicate') {
			const generation = Number(told.generation);
			const known = told.flags.includes('purged')
				? this.stubs.has(generation)
				: [...(this.results.get(generation) ?? [])].some((text) => sameValue(text, told.result));
			if (!known) {
				this.found(
					'lost_result',
					`${describeAsked(asked)}: told ${JSON.stringify(told.result)}, which generation ${generation} never had`,
				);
			}
		}
	}

	/** @param {Asked} asked @param {Told} told */
	compareReport(asked, told) {
		const grant = this.grants.get(String(asked.token));
		if (
			told.status === 'extended' &&
			Number(told.lockedUntil) > (grant?.lockedUntil ?? 0) + TOLD_US
		) {
			this.found('two_owners', `${describeAsked(asked)}: told a longer lease than the ledger kept`);
		}
		if (!told.flags.includes('repeated') && !this.decided.has(`${asked.op}/${asked.token}`)) {
			this.found(
				'undecided_change',
				`${describeAsked(asked)}: told ${told.status}, not in the decision log`,
			);
		}
		if (asked.op !== 'complete') return;
		const offered = JSON.stringify({ effect: asked.offered });
		if (told.status === 'completed') {
			if (!this.doneUnder.has(String(asked.token))) {
				this.found(
					'replaced_token',
					`${describeAsked(asked)}: told completed, but it never was done under it`,
				);
			}
			const kept = [...this.results.values()].some((results) => results.has(offered));
			if (!kept && !told.flags.includes('result')) {
				this.found(
					'lost_result',
					`${describeAsked(asked)}: told completed, ${offered} was never stored`,
				);
			}
		}
		const refused = told.status === 'not_owner' || told.flags.includes('result');
		if (
			refused &&
			!this.history.decisions.some(
				({ event, token, result }) =>
					event === 'complete' && token === asked.token && result === offered,
			)
		) {
			this.found(
				'lost_result',
				`${describeAsked(asked)}: refused, and ${offered} is not in the decision log`,
			);
		}
	}

	compareEffects() {
		const left = new Set(this.history.effects);
		/** @type {Map<Epoch, string[]>} */
		const together = new Map();
		for (const token of left) {
			const grant = this.grants.get(token);
			if (grant === undefined) {
				this.found('effect_without_claim', `token ${token}`);
				continue;
			}
			if (grant.holds) together.set(grant.epoch, [...(together.get(grant.epoch) ?? []), token]);
		}
		for (const tokens of together.values()) {
			if (tokens.length > 1) this.found('fired_twice', `under tokens ${tokens.join(', ')}`);
		}
		for (const [token, { told, previous, stands }] of this.grants) {
			// of a token that stands for two claims nobody can say which answer belongs to which
			if (stands.length > 1) continue;
			if (told !== undefined && told !== 'unknown' && previous !== null && left.has(previous)) {
				this.found(
					'unannounced',
					`token ${token} was told of ${told} before, but ${previous} had left an effect`,
				);
			}
		}
	}

	compareEnd() {
		const { row } = this.history;
		const last = this.now;
		if (row === null || last === null) {
			if (row !== last) {
				this.found(
					'undecided_change',
					`at the end ${row === null ? 'there is no row' : `it is ${row.state}`}, by the changes ${last === null ? 'there is none' : `it is ${last.state}`}`,
				);
			}
			return;
		}
		this.checkState(row, `at the end ${row.state}`);
		const same = /** @type {const} */ (['state', 'generation', 'attempt', 'token']).every(
			(field) => row[field] === last[field],
		);
		if (!same) {
			this.found('undecided_change', `at the end ${row.state}, by the last change ${last.state}`);
		}
		if (this.surroundings.drained && row.state !== 'done') this.found('stuck', row.state);
	}
}

/** @typedef {NonNullable<History['row']>} HistoryRow */
/** @typedef {{ tokens: string[] }} Epoch */
/**
 * @typedef {object} Grant
 * @property {string[]} stands generation/attempt of each claim this token was given.
 * @property {number} lockedUntil The latest end its lease ever had.
 * @property {boolean} holds
 * @property {Epoch} epoch
 * @property {string | null} previous The claim before it in its epoch.
 * @property {string} [told] What its owner was told of the attempt before; undefined: its answer was lost.
 */

/** @param {Change | null} before @param {Change} after */
function isClaim(before, after) {
	return (
		after.state === 'running' &&
		(before === null || before.token !== after.token || before.state !== 'running')
	);
}

/** @param {History} history @returns {Transaction[]} in the order in which they had the row */
function transactionsOf({ changes, decisions }) {
	/** @type {Map<string, Transaction>} */
	const all = new Map();
	const transaction = (/** @type {Change | Decision} */ { xmin, seq }) => {
		let found = all.get(xmin);
		if (found === undefined) all.set(xmin, (found = { first: seq, changes: [], decisions: [] }));
		found.first = Math.min(found.first, seq);
		return found;
	};
	for (const change of changes) transaction(change).changes.push(change);
	for (const decision of decisions) transaction(decision).decisions.push(decision);
	for (const { changes: own, decisions: decided } of all.values()) {
		own.sort((a, b) => a.seq - b.seq);
		decided.sort((a, b) => a.seq - b.seq);
	}
	return [...all.values()].sort((a, b) => a.first - b.first);
}

/** @param {string | null} text @param {any} value */
function sameValue(text, value) {
	return text === null ? value === null : text === JSON.stringify(value);
}

/** @param {string} text */
function sha256(text) {
	return createHash('sha256').update(text).digest('hex');
}

/** @param {Decision} decision */
function describe({ seq, event, outcome, token }) {
	return `decision ${seq} (${event}, ${outcome}, token ${token})`;
}

/** @param {Change | null} before @param {Change} after */
function describeChange(before, after) {
	const of = (/** @type {Change | null} */ image) =>
		image === null
			? 'nothing'
			: `${image.state} ${image.generation}.${image.attempt} ${image.token ?? 'without token'}`;
	return `change ${after.seq} (${of(before)} → ${after.gone ? 'removed' : of(after)})`;
}

/** @param {Asked} asked */
function describeAsked({ op, token, told }) {
	return `${op} with token ${token}, told ${told?.status}`;
}

/** @param {Decision[]} decisions */
function named(decisions) {
	return decisions.map(({ event, outcome }) => `${event} (${outcome})`).join(', ') || 'nobody';
}

module.exports = { CLASSES, checkWork };
