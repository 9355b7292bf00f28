import { CLASSES, checkWork } from '../../scripts/prove/check-work';
import { succeededIn } from '../../scripts/prove/checker';

/**
 * The checker's own teeth: hand-written histories, each with one broken promise, beside clean ones. Times are microseconds
 * of the database's clock.
 */

type History = Parameters<typeof checkWork>[0];
type Change = History['changes'][number];
type Decision = History['decisions'][number];
type Told = NonNullable<History['asked'][number]['told']>;
type ViolationClass = keyof typeof CLASSES;

const SECOND = 1_000_000;
const LEASE = 10 * SECOND;
const [ANN, BEN] = ['token-of-ann', 'token-of-ben'];
const RESULT = '{"effect":"e1"}';

/** Writes a history down as the prove would have recorded it. */
class Recording {
	readonly history: History = {
		name: 'invoice:v1:1001',
		changes: [],
		decisions: [],
		asked: [],
		effects: [],
		row: null,
	};
	private seq = 0;
	private transactions = 0;
	private image: Change = {
		seq: 0,
		xmin: '',
		at: 0,
		gone: false,
		state: 'running',
		generation: 1,
		attempt: 1,
		maxAttempts: 3,
		onLapse: 'run_again',
		token: ANN,
		lockedUntil: LEASE,
		nextAttemptAt: null,
		completedAt: null,
		result: null,
		resultHash: null,
		externalRef: null,
		stub: false,
	};
	drained = false;
	successes: number[] = [];

	/** One transaction at a time: what it changed (null: nothing), and what it decided. */
	at(time: number, change: Partial<Change> | null, ...decisions: Array<Partial<Decision>>): this {
		const xmin = String(++this.transactions);
		for (const decision of decisions) {
			this.history.decisions.push({
				seq: ++this.seq,
				xmin,
				at: time,
				event: 'claim',
				outcome: 'claimed',
				generation: 1,
				attempt: 1,
				token: ANN,
				window: null,
				force: false,
				result: null,
				externalRef: null,
				...decision,
			});
		}
		if (change !== null) {
			this.image = { ...this.image, ...change, seq: ++this.seq, xmin, at: time };
			this.history.changes.push(this.image);
		}
		this.history.row = this.image.gone ? null : this.image;
		return this;
	}

	claim(time: number, token: string, change: Partial<Change> = {}, mode = 'forever'): this {
		return this.at(
			time,
			{ state: 'running', token, lockedUntil: time + LEASE, nextAttemptAt: null, ...change },
			{ token, window: { mode, seconds: 5, kind: 'close' } },
		);
	}

	complete(time: number, token = ANN, result: string | null = RESULT): this {
		return this.at(
			time,
			{ state: 'done', completedAt: time, result },
			{ event: 'complete', outcome: 'completed', token },
		);
	}

	told(op: string, token: string | null, told: Partial<Told>, offered: string | null = null): this {
		this.history.asked.push({
			op,
			token,
			offered,
			told: {
				status: 'claimed',
				state: this.image.state,
				generation: this.image.generation,
				attempt: this.image.attempt,
				lockedUntil: null,
				previousOutcome: null,
				result: null,
				externalRef: null,
				flags: [],
				...told,
			},
		});
		return this;
	}

	effect(token: string): this {
		this.history.effects.push(token);
		return this;
	}

	get found(): ViolationClass[] {
		const succeeded = succeededIn(new Map([['close', this.successes]]));
		const violations = checkWork(this.history, { drained: this.drained, succeeded });
		return [...new Set(violations.map((violation) => violation.class))];
	}
}

/** Claimed, done, and asked for again. */
const done = () =>
	new Recording()
		.claim(0, ANN)
		.told('claim', ANN, { status: 'claimed', lockedUntil: LEASE })
		.effect(ANN)
		.complete(SECOND)
		.told('complete', ANN, { status: 'completed' }, 'e1');

/** Claimed, and the lease over: swept, held or due, by the policy. */
const lapsed = (state: 'failed' | 'held') =>
	new Recording()
		.claim(0, ANN, { onLapse: state === 'held' ? 'hold' : 'run_again' })
		.told('claim', ANN, { status: 'claimed', lockedUntil: LEASE })
		.effect(ANN)
		.at(
			LEASE + 1,
			{ state, lockedUntil: null, nextAttemptAt: state === 'failed' ? LEASE + 1 : null },
			{ event: 'sweep', outcome: state },
		);

describe('a history that keeps every promise passes', () => {
	test('done once, and told again to whoever asks', () => {
		const history = done()
			.at(2 * SECOND, null, { outcome: 'duplicate', token: BEN })
			.told('claim', BEN, { status: 'duplicate', result: { effect: 'e1' } });
		history.drained = true;
		expect(history.found).toEqual([]);
	});

	test('run again after a lapse, and the late owner refused', () => {
		const history = lapsed('failed')
			.claim(LEASE + 2, BEN, { attempt: 2 })
			.told('claim', BEN, { previousOutcome: 'unknown' })
			.effect(BEN)
			.at(LEASE + 3, null, {
				event: 'complete',
				outcome: 'not_owner',
				token: ANN,
				result: RESULT,
			})
			.told('complete', ANN, { status: 'not_owner' }, 'e1')
			.complete(LEASE + 4, BEN);
		expect(history.found).toEqual([]);
	});

	test('held, resolved by a person, and done anew', () => {
		const history = lapsed('held')
			.at(
				LEASE + 2,
				{ state: 'failed', attempt: 0, token: null, nextAttemptAt: LEASE + 2 },
				{ event: 'resolve', outcome: 'due' },
			)
			.told('resolve', null, { status: 'resolved' })
			.claim(LEASE + 3, BEN, { attempt: 1 })
			.effect(BEN)
			.complete(LEASE + 4, BEN);
		expect(history.found).toEqual([]);
	});

	test('done again outside its window, its old result kept in the log', () => {
		const renewed = done();
		renewed.at(
			7 * SECOND,
			{ state: 'running', token: BEN, generation: 2, lockedUntil: 17 * SECOND, result: null },
			{ token: BEN, window: { mode: 'duration', seconds: 5 }, result: RESULT },
		);
		expect(renewed.found).toEqual([]);
	});

	test('a claim sent again after its lease lapsed keeps its token, without another decision', () => {
		const history = new Recording().claim(0, ANN).at(LEASE + 1, { lockedUntil: 2 * LEASE });
		expect(history.found).toEqual([]);
	});

	test('a lost answer is never held against the ledger', () => {
		const history = new Recording();
		history.history.asked.push({ op: 'claim', token: ANN, offered: null, told: null });
		expect(history.found).toEqual([]);
	});
});

describe('every broken promise is found', () => {
	const CASES: Array<[ViolationClass, string, () => Recording]> = [
		[
			'two_owners',
			'claimed before the lease of another ended',
			() => new Recording().claim(0, ANN).claim(LEASE - 1, BEN, { attempt: 2 }),
		],
		[
			'two_owners',
			'swept while its lease was live',
			() =>
				new Recording()
					.claim(0, ANN)
					.at(
						LEASE - 1,
						{ state: 'failed', nextAttemptAt: 0 },
						{ event: 'sweep', outcome: 'failed' },
					),
		],
		[
			'two_owners',
			'an owner told a longer lease than was kept',
			() => new Recording().claim(0, ANN).told('claim', ANN, { lockedUntil: LEASE + SECOND }),
		],
		[
			'replaced_token',
			'a completion accepted under a replaced token',
			() =>
				lapsed('failed')
					.claim(LEASE + 2, BEN, { attempt: 2 })
					.complete(LEASE + 3, ANN),
		],
		[
			'replaced_token',
			"a stale owner's failure written onto another's work",
			() =>
				lapsed('failed')
					.claim(LEASE + 2, BEN, { attempt: 2 })
					.at(
						LEASE + 3,
						{ state: 'failed', nextAttemptAt: LEASE + 3 },
						{ event: 'fail', outcome: 'failed', token: ANN },
					),
		],
		[
			'replaced_token',
			'a worker told completed, and the work never was done under its token',
			() =>
				new Recording()
					.claim(0, ANN)
					.told('complete', ANN, { status: 'completed', flags: ['repeated', 'result'] }, 'e1'),
		],
		[
			'done_in_window',
			'claimed although remembered forever',
			() => done().claim(99 * LEASE, BEN, { generation: 2, result: RESULT }),
		],
		[
			'done_in_window',
			'claimed inside a duration',
			() => done().claim(5 * SECOND, BEN, { generation: 2, result: RESULT }, 'duration'),
		],
		[
			'done_in_window',
			'claimed before the other kind succeeded again',
			() => {
				const history = done().claim(9 * SECOND, BEN, { generation: 2 }, 'until_success');
				// before its completion, and after its claim
				history.successes = [SECOND - 1, 9 * SECOND + 1];
				return history;
			},
		],
		[
			'done_in_window',
			'done, and then failed by a sweep',
			() =>
				done().at(
					2 * SECOND,
					{ state: 'failed', nextAttemptAt: 0 },
					{ event: 'sweep', outcome: 'failed' },
				),
		],
		[
			'over_limit',
			'a fourth attempt of three',
			() => lapsed('failed').claim(LEASE + 2, BEN, { attempt: 2, maxAttempts: 1 }),
		],
		[
			'over_limit',
			'an attempt that was not counted',
			() => lapsed('failed').claim(LEASE + 2, BEN, { attempt: 1 }),
		],
		[
			'held_claimed',
			'held work claimed',
			() => lapsed('held').claim(LEASE + 2, BEN, { attempt: 2 }),
		],
		[
			'held_claimed',
			'held work made due by a sweep',
			() =>
				lapsed('held').at(
					LEASE + 2,
					{ state: 'failed', nextAttemptAt: LEASE + 2 },
					{ event: 'sweep', outcome: 'failed' },
				),
		],
		[
			'held_claimed',
			'dead work claimed',
			() =>
				new Recording()
					.claim(0, ANN)
					.at(1, { state: 'dead' }, { event: 'fail', outcome: 'dead' })
					.claim(2, BEN, { attempt: 2 }),
		],
		[
			'early_claim',
			'claimed before its next attempt',
			() =>
				new Recording()
					.claim(0, ANN)
					.at(1, { state: 'failed', nextAttemptAt: SECOND }, { event: 'fail', outcome: 'failed' })
					.claim(SECOND - 1, BEN, { attempt: 2 }),
		],
		[
			'landed_claimed',
			'claimed again after its reference was recorded',
			() =>
				new Recording()
					.claim(0, ANN)
					.at(1, { externalRef: 'INV-1' }, { event: 'record_reference', outcome: 'recorded' })
					.claim(LEASE + 1, BEN, { attempt: 2 }),
		],
		[
			'impossible_state',
			'failed without a next attempt',
			() =>
				new Recording()
					.claim(0, ANN)
					.at(1, { state: 'failed' }, { event: 'fail', outcome: 'failed' }),
		],
		[
			'impossible_state',
			'a state nobody knows',
			() =>
				new Recording()
					.claim(0, ANN)
					.at(1, { state: 'lost' }, { event: 'fail', outcome: 'failed' }),
		],
		[
			'undecided_change',
			'a change without its row in the decision log',
			() => done().at(2 * SECOND, { stub: true }),
		],
		[
			'undecided_change',
			'a decision without its change',
			() => new Recording().claim(0, ANN).at(1, null, { event: 'complete', outcome: 'completed' }),
		],
		[
			'undecided_change',
			'a live lease moved without a decision',
			() => new Recording().claim(0, ANN).at(LEASE - 1, { lockedUntil: 2 * LEASE }),
		],
		[
			'undecided_change',
			'a claim that was acknowledged and lost in a crash',
			() => new Recording().told('claim', ANN, { status: 'claimed', state: null }),
		],
		[
			'undecided_change',
			'a row that is not as the last change left it',
			() => {
				const history = done();
				history.history.row = { ...done().history.row!, state: 'dead' };
				return history;
			},
		],
		[
			'lost_result',
			'overwritten by another',
			() =>
				done().at(
					2 * SECOND,
					{ result: '{"effect":"e2"}' },
					{ event: 'complete', outcome: 'completed' },
				),
		],
		[
			'lost_result',
			'cleared by a new generation, and not in the log',
			() => done().claim(9 * SECOND, BEN, { generation: 2, result: null }, 'duration'),
		],
		[
			'lost_result',
			'purged without a hash of it',
			() =>
				done().at(2 * SECOND, { stub: true, result: null }, { event: 'purge', outcome: 'stub' }),
		],
		[
			'lost_result',
			'a duplicate told a result that it never had',
			() => done().told('claim', BEN, { status: 'duplicate', result: { effect: 'another' } }),
		],
		[
			'lost_result',
			'accepted, and never stored',
			() =>
				new Recording()
					.claim(0, ANN)
					.complete(1, ANN, null)
					.told('complete', ANN, { status: 'completed' }, 'e1'),
		],
		[
			'lost_result',
			'refused, and not in the decision log in full',
			() =>
				lapsed('failed')
					.claim(LEASE + 2, BEN, { attempt: 2 })
					.at(LEASE + 3, null, { event: 'complete', outcome: 'not_owner', token: ANN })
					.told('complete', ANN, { status: 'not_owner' }, 'e1'),
		],
		[
			'lost_result',
			'a reference cleared by a claim',
			() =>
				new Recording()
					.claim(0, ANN)
					.at(1, { externalRef: 'INV-1' }, { event: 'record_reference', outcome: 'recorded' })
					.at(2, { externalRef: null }, { event: 'extend', outcome: 'extended' }),
		],
		[
			'lost_work',
			'held work removed by a purge',
			() =>
				lapsed('held').at(
					LEASE + 2,
					{ gone: true, state: 'held' },
					{ event: 'purge', outcome: 'deleted' },
				),
		],
		[
			'false_answer',
			'refused although the token was its own',
			() => new Recording().claim(0, ANN).at(1, null, { event: 'extend', outcome: 'not_owner' }),
		],
		[
			'false_answer',
			'told a state in which it never was',
			() => new Recording().claim(0, ANN).told('claim', BEN, { status: 'held', state: 'held' }),
		],
		[
			'effect_without_claim',
			'an effect under a claim the ledger does not know',
			() => done().effect(BEN),
		],
		[
			'fired_twice',
			'two effects of work that holds when in doubt',
			() =>
				lapsed('held')
					.at(
						LEASE + 2,
						{ state: 'failed', nextAttemptAt: LEASE + 2 },
						{ event: 'fail', outcome: 'failed' },
					)
					.claim(LEASE + 3, BEN, { attempt: 2 })
					.effect(BEN),
		],
		[
			'unannounced',
			'handed out as untried after an attempt that left an effect',
			() =>
				lapsed('failed')
					.claim(LEASE + 2, BEN, { attempt: 2 })
					.told('claim', BEN, { previousOutcome: 'failed' }),
		],
		[
			'stuck',
			'not brought to its end',
			() => {
				const history = lapsed('held');
				history.drained = true;
				return history;
			},
		],
	];

	test.each(CASES)('%s: %s', (name, _, history) => {
		expect(history().found).toContain(name);
	});

	test('each class has a history of its own', () => {
		expect(new Set(CASES.map(([name]) => name))).toEqual(new Set(Object.keys(CLASSES)));
	});
});
