import { LedgerError } from '../../ledger';
import { askedAgain, as, ASK, DecisionStage, question } from './decision-stage';
import { again, CALLER, newWork, Stage } from './stage';

let stage: Stage;
let on: DecisionStage;
beforeAll(async () => {
	stage = await Stage.open({ maxConnections: 8 });
	on = new DecisionStage(stage);
});
afterAll(async () => {
	await stage.close();
});

describe('a look-up', () => {
	test('of a new question: decide, with a token and a lease', async () => {
		const item = question();
		const answer = await on.lookUp(item, { leaseSeconds: 60 });
		expect(answer).toMatchObject({
			outcome: 'decide',
			state: 'deciding',
			attempt: 1,
			token: item.token,
		});
		expect(await stage.secondsUntil(answer.lockedUntil)).toBeGreaterThan(55);
		expect(await on.history(item)).toEqual(['look_up: decide']);
	});

	test('sent again with its token (the answer was lost) gets the first answer, and is not logged twice', async () => {
		const item = await on.deciding();
		expect(await on.lookUp(item)).toMatchObject({
			outcome: 'decide',
			attempt: 1,
			token: item.token,
		});
		expect(await on.history(item)).toEqual(['look_up: decide']);
	});

	test('sent again after its lease lapsed holds the question once more', async () => {
		const item = await on.deciding();
		await on.elapse(item);
		const answer = await on.lookUp(item);
		expect(answer).toMatchObject({ outcome: 'decide', attempt: 1 });
		expect(await stage.secondsUntil(answer.lockedUntil)).toBeGreaterThan(200);
	});

	test('costs one round trip, of one question as of a thousand, and so does a store', async () => {
		const asked = jest.spyOn(stage.ledger.connection, 'query');
		const items = Array.from({ length: 1_000 }, () => question());
		for (const some of [[question()], items]) {
			asked.mockClear();
			await stage.ledger.decisions.lookUpAndWait(some, ASK, { seconds: 30 });
			expect(asked).toHaveBeenCalledTimes(1);
			asked.mockClear();
			const stored = await stage.ledger.decisions.store(
				some.map((item) => ({ ...item, valueText: '{"label":"a"}', rawText: 'null' })),
				CALLER,
			);
			expect(asked).toHaveBeenCalledTimes(1);
			expect(new Set(stored.map(({ outcome }) => outcome))).toEqual(new Set(['stored']));
			asked.mockClear();
			const again = await stage.ledger.decisions.lookUpAndWait(some.map(askedAgain), ASK, {
				seconds: 30,
			});
			expect(asked).toHaveBeenCalledTimes(1);
			expect(again.map(({ outcome }) => outcome)).toEqual(some.map(() => 'replay'));
		}
		asked.mockRestore();
	});

	test('that waits for one question while it holds another leaves before the lease of that one ends', async () => {
		const busy = await on.deciding();
		const own = question();
		const answers = await stage.ledger.decisions.lookUpAndWait(
			[own, askedAgain(busy)],
			{ ...ASK, leaseSeconds: 2, caller: as('101') },
			{ seconds: 20 },
		);
		expect(answers.map(({ outcome }) => outcome)).toEqual(['decide', 'busy']);
		expect(await stage.secondsUntil(answers[0].lockedUntil)).toBeGreaterThan(0);
		// however often it looked
		expect(await on.history(busy)).toEqual(['look_up: decide', 'look_up: busy']);
	});

	test('of a question that another one decides: busy, with its owner and no token', async () => {
		const item = await on.deciding();
		const answer = await on.lookUp(askedAgain(item), { caller: as('101') });
		expect(answer).toMatchObject({ outcome: 'busy', token: null, owner: { execution: '100' } });
		expect(answer.value).toBeUndefined();
	});

	test('of a stored decision: replay, with the value, when and by which execution it was made', async () => {
		const item = await on.decided({ label: 'invoice', score: 0.9 });
		const answer = await on.lookUp(askedAgain(item), { caller: as('101') });
		expect(answer).toMatchObject({
			outcome: 'replay',
			value: { label: 'invoice', score: 0.9 },
			token: null,
			owner: { execution: '100', workflow: 'workflow-1' },
		});
		expect(await stage.secondsUntil(answer.decidedAt)).toBeLessThanOrEqual(0);
		expect(await on.history(item)).toEqual(['look_up: decide', 'store: stored', 'look_up: replay']);
	});

	test('after a crash (case 79): the lease lapses, and the next one decides as attempt 2', async () => {
		const item = await on.deciding();
		await on.elapse(item);
		const next = askedAgain(item);
		expect(await on.lookUp(next)).toMatchObject({
			outcome: 'decide',
			attempt: 2,
			token: next.token,
		});
	});

	test('of one question twice in a batch: the first decides, the second is busy', async () => {
		const item = question();
		const other = question();
		const answers = await stage.ledger.decisions.lookUp([item, other, askedAgain(item)], ASK);
		expect(answers.map(({ outcome }) => outcome)).toEqual(['decide', 'decide', 'busy']);
		expect(answers.map(({ decisionKey }) => decisionKey)).toEqual([
			item.decisionKey,
			other.decisionKey,
			item.decisionKey,
		]);
	});

	test('waits for who decides, in polls, and replays the answer', async () => {
		const item = await on.deciding();
		const waiting = stage.ledger.decisions.lookUpAndWait(
			[askedAgain(item)],
			{ ...ASK, caller: as('101') },
			{ seconds: 20 },
		);
		// it has met the running one before that one stores
		for (;;) {
			if ((await on.history(item)).includes('look_up: busy')) break;
			await stage.query('select pg_sleep(0.01)');
		}
		await on.store(item, { label: 'spam' });
		expect((await waiting)[0]).toMatchObject({ outcome: 'replay', value: { label: 'spam' } });
		// the polls in between are not logged
		expect((await on.history(item)).filter((line) => line === 'look_up: busy')).toHaveLength(1);
	});

	test('does not wait for a question that its own execution, or the one that called it, decides', async () => {
		const item = await on.deciding();
		for (const caller of [CALLER, { ...as('205'), parentExecution: '100' }]) {
			const startedAt = performance.now();
			const [answer] = await stage.ledger.decisions.lookUpAndWait(
				[askedAgain(item)],
				{ ...ASK, caller },
				{ seconds: 20 },
			);
			expect(answer.outcome).toBe('busy');
			expect(performance.now() - startedAt).toBeLessThan(5_000);
		}
	});

	test('that is cancelled while it waits frees what it was to decide', async () => {
		const busy = await on.deciding();
		const own = question();
		const abort = new AbortController();
		abort.abort();
		await expect(
			stage.ledger.decisions.lookUpAndWait(
				[own, askedAgain(busy)],
				{ ...ASK, caller: as('101') },
				{ seconds: 20, signal: abort.signal },
			),
		).rejects.toMatchObject({ code: 'cancelled' });
		expect(await on.row(own)).toMatchObject({ state: 'open' });
		expect(await on.row(busy)).toMatchObject({ state: 'deciding' });
	});

	test('with an option that the ledger does not know is refused, and decides nothing', async () => {
		const item = question();
		await expect(
			stage.query(
				`select * from idempotency.look_up_decisions($1::text[], $2::uuid[], null, '{"kind": "k", "lease": 5}')`,
				[[item.decisionKey], [item.token]],
			),
		).rejects.toMatchObject({ code: '22023', message: 'unknown option: lease' });
		await expect(on.row(item)).rejects.toThrow('no such decision');
	});
});

describe('storing', () => {
	test('first stored wins; the loser gets the winner back, and what it said is in the log (case 79)', async () => {
		const item = await on.deciding();
		await on.elapse(item);
		const next = await on.deciding(askedAgain(item), { caller: as('101') });
		expect(await on.store(next, 'B', {}, as('101'))).toMatchObject({
			outcome: 'stored',
			value: 'B',
		});
		expect(await on.store(item, 'A')).toMatchObject({
			outcome: 'superseded',
			value: 'B',
			owner: { execution: '101' },
		});
		const lost = (await on.log(item)).find(({ outcome }) => outcome === 'superseded');
		expect(lost).toMatchObject({ result: 'A', token: item.token });
	});

	test('a decider whose lease has lapsed, but who stores first, wins over the one who took over', async () => {
		const item = await on.deciding();
		await on.elapse(item);
		const next = await on.deciding(askedAgain(item), { caller: as('101') });
		expect(await on.store(item, 'A')).toMatchObject({ outcome: 'stored', value: 'A' });
		expect(await on.store(next, 'B', {}, as('101'))).toMatchObject({
			outcome: 'superseded',
			value: 'A',
		});
		expect(await on.row(item)).toMatchObject({ value: 'A', execution: '100', latency_ms: null });
	});

	test('that comes late gets the winner, also one whose time to live is over: it is no question again', async () => {
		const item = await on.deciding();
		await on.elapse(item);
		const next = await on.deciding(askedAgain(item), { caller: as('101') });
		await on.store(item, 'A', { ttlSeconds: 3600 });
		await on.outlive(item);
		const late = await on.store(next, 'B', {}, as('101'));
		expect(late).toMatchObject({ outcome: 'superseded', value: 'A', token: null });
	});

	test('sent again with its token and value changes nothing and gives the first answer', async () => {
		const item = await on.deciding();
		const first = await on.store(item, { n: 1 });
		const again = await on.store(item, { n: 1 });
		expect(again).toEqual({ ...first, repeated: true });
		expect(await on.history(item)).toEqual(['look_up: decide', 'store: stored']);
	});

	test('a token that no look-up gave stores nothing', async () => {
		const item = await on.deciding();
		expect(await on.store(askedAgain(item), 'X')).toMatchObject({
			outcome: 'not_stored',
			state: 'deciding',
		});
		expect(await on.store({ ...item, token: null as unknown as string }, 'X')).toMatchObject({
			outcome: 'not_stored',
		});
		expect(await on.store(question(), 'X')).toMatchObject({ outcome: 'not_stored', state: null });
		expect(await on.row(item)).toMatchObject({ state: 'deciding', token: item.token });
	});

	test('keeps the value byte for byte, the raw text beside it, tokens, cost and how long it took', async () => {
		const item = await on.deciding();
		const valueText = '{"b": 1.10, "a": "NUL \\u0000, \\"$1\\", é", "big": 12345678901234567890}';
		const rawText = JSON.stringify('```json\n' + valueText + '\n``` \u0000');
		const usage = { inputTokens: 120, outputTokens: 7, cost: 0.0003 };
		await stage.ledger.decisions.store([{ ...item, valueText, rawText, ...usage }], CALLER);
		const [row] = await stage.query(
			'select value::text, raw::text, input_tokens, output_tokens, cost, latency_ms from idempotency.llm_decisions where decision_key = $1',
			[item.decisionKey],
		);
		expect(row).toMatchObject({
			value: valueText,
			raw: rawText,
			input_tokens: '120',
			output_tokens: '7',
			cost: '0.0003',
		});
		expect(row.latency_ms).toBeGreaterThan(0);
	});

	test('an answer that cannot be used frees the key at once, and is kept in the log', async () => {
		const item = await on.deciding();
		expect(await on.free(item)).toMatchObject({
			outcome: 'not_stored',
			state: 'open',
			reason: 'cut off',
		});
		expect(await on.lookUp(askedAgain(item))).toMatchObject({
			outcome: 'decide',
			attempt: 2,
			reason: 'cut off',
		});
		const refused = (await on.log(item)).find(({ outcome }) => outcome === 'not_stored');
		expect(refused).toMatchObject({ result: 'half an ans', detail: { reason: 'cut off' } });
	});

	test('freeing twice logs once; freeing a question that another one decides leaves it to that one', async () => {
		const item = await on.deciding();
		await on.free(item);
		await on.free(item);
		expect(await on.history(item)).toEqual(['look_up: decide', 'store: not_stored']);
		const next = await on.deciding(askedAgain(item));
		await on.free(item, 'late');
		expect(await on.row(item)).toMatchObject({ state: 'deciding', token: next.token });
	});

	test('an answer that cannot be used gets the one that was stored meanwhile', async () => {
		const item = await on.deciding();
		await on.elapse(item);
		const next = await on.deciding(askedAgain(item), { caller: as('101') });
		await on.store(next, 'B', {}, as('101'));
		expect(await on.free(item)).toMatchObject({ outcome: 'superseded', value: 'B' });
	});

	test('two of one batch under one key: the first is stored, the second gets it back', async () => {
		const item = await on.deciding();
		const answers = await stage.ledger.decisions.store(
			[
				{ ...item, valueText: '"A"', rawText: '"A"' },
				{ ...item, valueText: '"B"', rawText: '"B"' },
			],
			CALLER,
		);
		expect(answers.map(({ outcome, value }) => [outcome, value])).toEqual([
			['stored', 'A'],
			['superseded', 'A'],
		]);
	});
});

describe('approval', () => {
	test('what was asked for with approval is a proposal: nobody gets it to apply until it is approved', async () => {
		const item = await on.deciding(question(), { needsApproval: true });
		expect(await on.store(item, { send: 'mail' })).toMatchObject({
			outcome: 'proposed',
			state: 'proposed',
		});
		for (const needsApproval of [true, false]) {
			expect(await on.lookUp(askedAgain(item), { needsApproval })).toMatchObject({
				outcome: 'waiting',
			});
		}
		expect(await on.judge(item, true, 'Ada')).toMatchObject({
			outcome: 'approved',
			approver: 'Ada',
		});
		const answer = await on.lookUp(askedAgain(item), { needsApproval: true });
		expect(answer).toMatchObject({ outcome: 'replay', value: { send: 'mail' }, approver: 'Ada' });
		expect(await stage.secondsUntil(answer.judgedAt)).toBeLessThanOrEqual(0);
	});

	test('one that was stored without approval does not pass a look-up, or a loser, that needs it', async () => {
		const item = await on.deciding();
		await on.elapse(item);
		const next = await on.deciding(askedAgain(item));
		await on.store(next, 'B');
		expect(await on.lookUp(askedAgain(item), { needsApproval: true })).toMatchObject({
			outcome: 'waiting',
		});
		expect(await on.store(item, 'A', { needsApproval: true })).toMatchObject({
			outcome: 'waiting',
		});
		expect(await on.lookUp(askedAgain(item))).toMatchObject({ outcome: 'replay' });
		await on.judge(item, true, 'Ada');
		expect(await on.lookUp(askedAgain(item), { needsApproval: true })).toMatchObject({
			outcome: 'replay',
		});
	});

	test('a lapsed decider that needed approval still stores a proposal', async () => {
		const item = await on.deciding(question(), { needsApproval: true });
		await on.elapse(item);
		await on.deciding(askedAgain(item));
		expect(await on.store(item, 'A')).toMatchObject({ outcome: 'proposed' });
	});

	test('case 80: a link that a preview service opened names no approver and approves nothing; the person who declines later is obeyed', async () => {
		const item = await on.decided({ pay: 100 }, { needsApproval: true });
		for (const approver of ['', '   ', '\t']) {
			await expect(on.judge(item, true, approver)).rejects.toBeInstanceOf(LedgerError);
		}
		expect(await on.row(item)).toMatchObject({ state: 'proposed', approver: null });
		expect(await on.judge(item, false, 'Grace')).toMatchObject({
			outcome: 'rejected',
			approver: 'Grace',
		});
		expect(await on.judge(item, true, 'preview-bot')).toMatchObject({
			outcome: 'stands',
			state: 'rejected',
			approver: 'Grace',
		});
		expect(await on.lookUp(askedAgain(item))).toMatchObject({ outcome: 'rejected' });
		expect(await on.history(item)).toEqual([
			...[
				'look_up: decide',
				'store: proposed',
				'judge: rejected',
				'judge: stands',
				'look_up: rejected',
			],
		]);
	});

	test('the same verdict by the same approver is a resend; by another one it is told who was first', async () => {
		const item = await on.decided('x', { needsApproval: true });
		const first = await on.judge(item, true, 'Ada');
		expect(await on.judge(item, true, 'Ada')).toEqual({ ...first, repeated: true });
		expect(await on.judge(item, true, 'Grace')).toMatchObject({
			outcome: 'stands',
			state: 'approved',
			approver: 'Ada',
		});
	});

	test('of another value than the approver saw is refused', async () => {
		const item = await on.decided('first', { needsApproval: true });
		const { valueHash } = await on.lookUp(askedAgain(item));
		await stage.ledger.decisions.expire([item.decisionKey], CALLER);
		await on.store(await on.deciding(askedAgain(item), { needsApproval: true }), 'second');
		expect(await on.judge(item, true, 'Ada', valueHash)).toMatchObject({
			outcome: 'refused',
			state: 'proposed',
		});
		const { valueHash: shown } = await on.lookUp(askedAgain(item));
		expect(await on.judge(item, true, 'Ada', shown)).toMatchObject({ outcome: 'approved' });
	});

	test('of what is not decided, unknown or expired is refused in words', async () => {
		expect(await on.judge(question(), true, 'Ada')).toMatchObject({
			outcome: 'refused',
			reason: 'the ledger holds no such decision',
		});
		expect(await on.judge(await on.deciding(), true, 'Ada')).toMatchObject({
			outcome: 'refused',
			reason: 'nothing is decided yet',
		});
		const old = await on.decided('x', { ttlSeconds: 60 });
		await on.outlive(old);
		expect(await on.judge(old, true, 'Ada')).toMatchObject({
			outcome: 'refused',
			reason: expect.stringMatching(/^it expired at/),
		});
	});

	test('a value that was changed in the table after it was approved is not handed out, nor approved', async () => {
		const item = await on.decided({ pay: 100 }, { needsApproval: true });
		await on.judge(item, true, 'Ada');
		await on.tamper(item, { pay: 9_999 });
		const answer = await on.lookUp(askedAgain(item));
		expect(answer.outcome).toBe('altered');
		expect(answer.value).toBeUndefined();
		const waiting = await on.decided('x', { needsApproval: true });
		await on.tamper(waiting, 'y');
		expect(await on.judge(waiting, true, 'Ada')).toMatchObject({ outcome: 'refused' });
	});
});

describe('expiry', () => {
	test('after its time to live a decision is made anew, and the old one stays in the log', async () => {
		const item = await on.decided('old', { ttlSeconds: 3600 });
		expect(await on.lookUp(askedAgain(item))).toMatchObject({ outcome: 'replay' });
		await on.outlive(item);
		const next = askedAgain(item);
		expect(await on.lookUp(next)).toMatchObject({ outcome: 'decide', generation: 2, attempt: 1 });
		expect((await on.log(item)).find(({ event }) => event === 'expire')).toMatchObject({
			result: 'old',
		});
		// who decided the generation before has no say in this one
		expect(await on.store(item, 'late')).toMatchObject({ outcome: 'not_stored' });
		expect(await on.store(next, 'new')).toMatchObject({ outcome: 'stored', value: 'new' });
	});

	test('by a person opens a rejected question again; its old verdict is in the log', async () => {
		const item = await on.decided('no', { needsApproval: true });
		await on.judge(item, false, 'Ada');
		const [answer] = await stage.ledger.decisions.expire([item.decisionKey], CALLER);
		expect(answer).toMatchObject({ outcome: 'expired', state: 'open' });
		expect(answer.value).toBeUndefined();
		const [again] = await stage.ledger.decisions.expire([item.decisionKey], CALLER);
		expect(again).toMatchObject({ outcome: 'expired', repeated: true });
		expect(await on.lookUp(askedAgain(item))).toMatchObject({ outcome: 'decide', generation: 2 });
		expect((await on.log(item)).filter(({ event }) => event === 'expire')).toMatchObject([
			{ result: 'no', detail: { approver: 'Ada', verdict: 'rejected' } },
		]);
	});

	test('by a person fences off who decides right now: its answer is not stored', async () => {
		const item = await on.deciding();
		await stage.ledger.decisions.expire([item.decisionKey], CALLER);
		expect(await on.store(item, 'late')).toMatchObject({ outcome: 'not_stored', state: 'open' });
	});

	test('of an unknown key is refused', async () => {
		const [answer] = await stage.ledger.decisions.expire([question().decisionKey], CALLER);
		expect(answer).toMatchObject({ outcome: 'refused', state: null });
	});

	test('a purge takes old decisions in batches, but nothing that waits for approval or is being decided', async () => {
		const [old, fresh, proposed, running] = [
			await on.decided('a'),
			await on.decided('b'),
			await on.decided('c', { needsApproval: true }),
			await on.deciding(),
		];
		for (const item of [old, proposed, running]) await on.age(item, 400);
		const more = await Promise.all([1, 2, 3].map(async () => await on.decided('d')));
		for (const item of more) await on.age(item, 400);
		expect(await stage.ledger.decisions.purge(365 * 86_400, 2, CALLER)).toBe(2);
		expect(await stage.ledger.decisions.purge(365 * 86_400, 1_000, CALLER)).toBe(2);
		await expect(on.row(old)).rejects.toThrow('no such decision');
		for (const item of [fresh, proposed, running]) await on.row(item);
		expect(await on.history(old)).toContain('purge: deleted');
	});
});

describe('looking at decisions', () => {
	test('get shows what the key was made of, the value, what the model said and the history', async () => {
		const item = await on.deciding(question('a mail'));
		await on.store(item, { label: 'spam' });
		const found = await stage.ledger.decisions.get(item.decisionKey);
		expect(found?.decision).toMatchObject({
			kind: 'classify-mail',
			state: 'stored',
			value: { label: 'spam' },
			raw: '{"label":"spam"}',
			altered: false,
			parts: { model: { text: 'gpt-test' }, input: { text: '{"text":"a mail"}' } },
		});
		expect(found?.history.map(({ event, outcome }) => `${event}: ${outcome}`)).toEqual([
			...['look_up: decide', 'store: stored'],
		]);
		expect(await stage.ledger.decisions.get(question().decisionKey)).toBeNull();
	});

	test('list pages through by state and kind, without raw texts and without large values', async () => {
		const kind = 'listed';
		const items = [1, 2, 3].map(() => question());
		for (const item of items) await on.deciding(item, { kind });
		await on.store(items[0], 'x'.repeat(20_000));
		await on.store(items[1], 'small');
		const first = await stage.ledger.decisions.list({ kind }, 2);
		const second = await stage.ledger.decisions.list({ kind }, 2, first.cursor);
		expect([...first.decisions, ...second.decisions].map(({ decisionKey }) => decisionKey)).toEqual(
			[items[1], items[0], items[2]].map(({ decisionKey }) => decisionKey),
		);
		expect(second.cursor).toBeNull();
		expect(first.decisions[0]).toMatchObject({ value: 'small', raw: null, parts: null });
		expect(first.decisions[1]).toMatchObject({ value: null, valueBytes: 20_002 });
		const open = await stage.ledger.decisions.list({ kind, states: ['deciding'] }, 10);
		expect(open.decisions).toHaveLength(1);
		await expect(stage.ledger.decisions.list({}, 10, 'tomorrow')).rejects.toMatchObject({
			code: 'bad_input',
		});
	});

	test('statistics tell what replay saved: calls, tokens, cost and time', async () => {
		const kind = 'counted';
		const item = await on.deciding(question(), { kind });
		await on.store(item, 'x', { inputTokens: 100, outputTokens: 10, cost: 0.25 });
		for (let n = 0; n < 3; n++) await on.lookUp(askedAgain(item), { kind });
		const { saved, events, decisions } = await stage.ledger.decisions.statistics(kind);
		expect(saved).toMatchObject([
			{ kind, calls: '3', inputTokens: '300', outputTokens: '30', cost: '0.75' },
		]);
		expect(events).toContainEqual({ kind, event: 'look_up', outcome: 'replay', count: '3' });
		expect(decisions).toEqual([{ kind, state: 'stored', count: '1' }]);
	});

	test('the open questions of an execution are those that it decides', async () => {
		const item = await on.deciding(question(), { caller: as('777') });
		await on.decided();
		const open = await stage.ledger.decisions.openDecisions('instance-1', '777', 5);
		expect(open).toMatchObject([{ decisionKey: item.decisionKey, token: item.token }]);
	});
});

test('a work says which decision it carries out, and keeps saying so when it is claimed again', async () => {
	const decision = await on.decided();
	const work = { ...newWork(), decisionKey: decision.decisionKey };
	await stage.claimed(work);
	const explained = await stage.ledger.admin.explain(work.workId);
	expect(explained?.work?.decisionKey).toBe(decision.decisionKey);
	await stage.elapse(work);
	await stage.claimed(again(work, { decisionKey: undefined }));
	expect((await stage.ledger.admin.explain(work.workId))?.work?.decisionKey).toBe(
		decision.decisionKey,
	);
});
