import { randomUUID } from 'node:crypto';

import {
	workIdOf,
	type EvidenceAnswer,
	type EvidenceRequest,
	type EvidenceRule,
} from '../../ledger';
import { CALLER, newWork, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

const present = (field: string): EvidenceRule => ({ check: 'present', field });
const done = (key: string): EvidenceRule => ({ check: 'done', work: { kind: 'invoice', key } });
const reference = (key: string, field = 'invoice_no'): EvidenceRule => ({
	check: 'reference',
	field,
	work: { kind: 'invoice', key },
});

/** A record that nobody has checked before, and a plain list of rules. */
function request(
	record: Record<string, unknown>,
	rules: EvidenceRule[],
	more: Partial<EvidenceRequest> = {},
): EvidenceRequest {
	return {
		recordId: workIdOf('deal', 'v1', randomUUID()),
		record,
		stages: [{ name: '', rules }],
		target: null,
		requireLower: true,
		...more,
	};
}

/** Each stage asks for the field that is named like it. */
function ladder(
	target: string,
	record: Record<string, unknown>,
	more: Partial<EvidenceRequest> = {},
): EvidenceRequest {
	const stages = ['job', 'contract', 'invoice'].map((name) => ({
		name,
		rules: [present(`${name}_id`)],
	}));
	return request(record, [], { stages, target, ...more });
}

async function check(asked: EvidenceRequest): Promise<EvidenceAnswer> {
	return (await stage.ledger.evidence.check([asked], CALLER))[0];
}

const log = async ({ recordId }: EvidenceRequest) => await stage.log({ workId: recordId });

describe('a list of rules', () => {
	test('passes where every rule holds, and the check is in the decision log', async () => {
		const asked = request({ approver: 'Ann', amount: 0 }, [present('approver'), present('amount')]);
		expect(await check(asked)).toEqual({
			recordId: asked.recordId,
			status: 'passed',
			message: 'Passed: the evidence is on the record (2 rules).',
			stage: null,
			supportedStage: null,
			missing: [],
			warnings: [],
		});
		expect(await log(asked)).toEqual([
			expect.objectContaining({
				event: 'check_evidence',
				outcome: 'passed',
				token: expect.stringMatching(/^[0-9a-f-]{36}$/),
				fired: expect.objectContaining({ execution: '100', workflow: 'workflow-1' }),
				checked: { rules: 2 },
				detail: null,
				generation: null,
			}),
		]);
	});

	test('case 128: an empty record is blocked, and every missing field is listed', async () => {
		const asked = request({}, [present('deal.envelope_id'), present('approver')]);
		const answer = await check(asked);
		expect(answer).toMatchObject({
			status: 'blocked',
			missing: [
				{
					rule: 'deal.envelope_id is present',
					stage: null,
					field: 'deal.envelope_id',
					check: 'present',
					found: 'nothing',
					expected: 'is present',
					reason: 'the field is missing',
				},
				{ rule: 'approver is present', found: 'nothing' },
			],
		});
		expect(answer.message).toBe(
			'Blocked: 2 of 2 rules do not hold. deal.envelope_id is present: the field is missing; approver is present: the field is missing.',
		);
		expect(await log(asked)).toEqual([
			expect.objectContaining({
				outcome: 'blocked',
				detail: {
					missing: [
						{
							rule: 'deal.envelope_id is present',
							field: 'deal.envelope_id',
							found: 'nothing',
							reason: 'the field is missing',
						},
						expect.objectContaining({ field: 'approver' }),
					],
				},
			}),
		]);
	});

	test('without a rule nothing passes, and the cure is said', async () => {
		const asked = request({ a: 1 }, []);
		expect(await check(asked)).toMatchObject({
			status: 'error',
			message: expect.stringContaining('Add at least one rule'),
		});
		expect((await log(asked)).map(({ outcome }) => outcome)).toEqual(['error']);
	});

	test('one rule that cannot be applied keeps everything from passing, and is named', async () => {
		const asked = request({ no: 'INV-7', approver: 'Ann' }, [
			present('approver'),
			{ name: 'Number', check: 'matches', field: 'no', pattern: '[' },
		]);
		expect(await check(asked)).toMatchObject({
			status: 'error',
			message: expect.stringMatching(/"Number" has a pattern that cannot be read/),
			missing: [{ rule: 'Number', check: 'matches' }],
		});
		expect((await log(asked)).map(({ outcome }) => outcome)).toEqual(['error']);
	});

	test('a status field as evidence draws a warning, and still counts', async () => {
		expect(await check(request({ dealstage: 'won' }, [present('dealstage')]))).toMatchObject({
			status: 'passed',
			warnings: [expect.stringContaining('"dealstage" is a stage or status')],
		});
	});

	test('values that SQL text cannot hold are checked and logged like others', async () => {
		const asked = request({ 'a\0b': 'x\0y\ud800', n: '\0' }, [
			{ name: 'N\0L', check: 'equals', field: 'a\0b', value: '\ud800$1\0' },
			reference('nul', 'n'),
		]);
		expect(await check(asked)).toMatchObject({ status: 'blocked', missing: [{}, {}] });
		expect((await log(asked)).map(({ outcome }) => outcome)).toEqual(['blocked']);
	});

	test('what is found is bounded on the item and in the log, however large the record', async () => {
		const rules = Array.from(
			{ length: 100 },
			(_, i): EvidenceRule => ({
				check: 'equals',
				field: `f${i}`,
				value: 'y',
			}),
		);
		const record = Object.fromEntries(rules.map((_, i) => [`f${i}`, 'x'.repeat(100_000)]));
		const asked = request(record, rules);
		const answer = await check(asked);
		expect(answer.missing).toHaveLength(100);
		expect(JSON.stringify(answer).length).toBeLessThan(50_000);
		const [row] = await log(asked);
		expect((row.detail as { missing: unknown[] }).missing).toHaveLength(20);
		expect(JSON.stringify(row.detail).length).toBeLessThan(8_000);
	});
});

describe('a ladder', () => {
	test('passing a stage needs its evidence and that of all below', async () => {
		expect(await check(ladder('contract', { job_id: 1, contract_id: 2 }))).toMatchObject({
			status: 'passed',
			stage: 'contract',
			supportedStage: 'contract',
		});
		expect(await check(ladder('contract', { contract_id: 2 }))).toMatchObject({
			status: 'blocked',
			supportedStage: null,
			missing: [{ stage: 'job', field: 'job_id' }],
		});
	});

	test('says the highest stage that the evidence supports, above the target and below', async () => {
		const all = { job_id: 1, contract_id: 2, invoice_id: 3 };
		expect(await check(ladder('job', all))).toMatchObject({
			status: 'passed',
			supportedStage: 'invoice',
		});
		const answer = await check(ladder('invoice', { job_id: 1, contract_id: [null] }));
		expect(answer).toMatchObject({
			status: 'blocked',
			supportedStage: 'job',
			missing: [{ stage: 'contract' }, { stage: 'invoice' }],
		});
		expect(answer.message).toContain('The evidence supports "job".');
	});

	test('by choice a stage needs its own evidence only', async () => {
		const own = { requireLower: false };
		expect(await check(ladder('invoice', { invoice_id: 3 }, own))).toMatchObject({
			status: 'passed',
			supportedStage: 'invoice',
		});
	});

	test('a stage that it does not have is blocked, with the known ones; capitals are pointed out', async () => {
		const asked = ladder('Contract', { job_id: 1 });
		expect(await check(asked)).toMatchObject({
			status: 'blocked',
			message:
				'There is no stage "Contract". The stages of this ladder are: "job", "contract", "invoice". Capitals count: there is "contract". The evidence supports "job".',
			supportedStage: 'job',
		});
		expect((await log(asked)).map(({ outcome }) => outcome)).toEqual(['blocked']);
		expect(await check(ladder(' ', { job_id: 1 }))).toMatchObject({
			status: 'blocked',
			message: expect.stringContaining('names no stage to move to'),
		});
		expect(await check(ladder('constructor', {}))).toMatchObject({ status: 'blocked' });
	});

	test('a stage without rules never passes: nothing would prove it', async () => {
		const stages = [
			{ name: 'new', rules: [] },
			{ name: 'job', rules: [present('job_id')] },
		];
		const record = { job_id: 1 };
		expect(await check(request(record, [], { stages, target: 'new' }))).toMatchObject({
			status: 'blocked',
			message: expect.stringContaining('"new" has no rules'),
		});
		expect(await check(request(record, [], { stages, target: 'job' }))).toMatchObject({
			status: 'passed',
		});
	});

	test.each([
		['two stages of one name', ['job', ' job ']],
		['a stage without a name', ['job', '']],
	])('%s is a mistake that lets nothing pass', async (_, names) => {
		const stages = names.map((name) => ({ name, rules: [present('job_id')] }));
		const asked = request({ job_id: 1 }, [], { stages, target: 'job' });
		expect(await check(asked)).toMatchObject({ status: 'error' });
	});

	test('a rule that cannot be applied to a higher stage does not keep a lower one', async () => {
		const stages = [
			{ name: 'job', rules: [present('job_id')] },
			{ name: 'paid', rules: [{ check: 'equals', field: 'paid', value: undefined } as const] },
		];
		const asked = { ...request({ job_id: 1, paid: 1 }, []), stages };
		expect(await check({ ...asked, target: 'job' })).toMatchObject({
			status: 'passed',
			supportedStage: 'job',
		});
		expect(await check({ ...asked, target: 'paid' })).toMatchObject({ status: 'error' });
	});
});

describe('evidence in the ledger', () => {
	/** Work in a state, and a rule that asks for it by its key. */
	async function work(state: Parameters<Stage['workThatIs']>[0]) {
		const item = await stage.workThatIs(state);
		return item;
	}

	test('is work that is done, by kind and key', async () => {
		const item = await work('done');
		const asked = request({ deal: 1 }, [done(item.key)]);
		expect(await check(asked)).toMatchObject({ status: 'passed' });
		const [row] = await log(asked);
		expect(row.checked).toEqual({
			rules: 1,
			ledger: [
				{
					rule: 'invoice v1 is done',
					work_id: item.workId,
					kind: 'invoice',
					key: item.key,
					needed: true,
					holds: true,
					state: 'done',
					external_ref: 'inv_7',
					completed_at: expect.stringMatching(/Z$/),
				},
			],
		});
	});

	test.each([
		['running', 'running'],
		['lapsed', 'running'],
		['failed', 'failed'],
		['held', 'held'],
		['dead', 'dead'],
	] as const)('is not work that is %s, and the state is said', async (state, found) => {
		const item = await work(state);
		const asked = request({ invoice_no: 'inv_7' }, [done(item.key), reference(item.key)]);
		expect(await check(asked)).toMatchObject({
			status: 'blocked',
			missing: [
				{ found, reason: expect.stringContaining('not done') },
				{ found, check: 'reference' },
			],
		});
		expect((await log(asked)).map(({ outcome }) => outcome)).toEqual(['blocked']);
	});

	test('case 128: lets no empty record pass, whatever is done', async () => {
		const item = await work('done');
		const asked = request({}, [done(item.key)]);
		expect(await check(asked)).toMatchObject({
			status: 'blocked',
			message: expect.stringContaining('The item is empty'),
		});
		expect((await log(asked)).map(({ outcome }) => outcome)).toEqual(['blocked']);
	});

	test('is not work that the ledger does not hold', async () => {
		expect(await check(request({ deal: 1 }, [done(randomUUID())]))).toMatchObject({
			status: 'blocked',
			missing: [{ found: 'no such work' }],
		});
	});

	test('is not a recorded reference alone: the work has to be done', async () => {
		const item = await stage.claimed();
		await stage.record(item, 'INV-9');
		const asked = request({ invoice_no: 'INV-9' }, [reference(item.key)]);
		expect(await check(asked)).toMatchObject({
			status: 'blocked',
			missing: [{ found: 'running' }],
		});
		await stage.complete(item);
		expect(await check({ ...asked })).toMatchObject({ status: 'passed' });
	});

	test('the field has to equal the reference, as text and as a whole', async () => {
		const item = await stage.claimed();
		await stage.complete(item, { externalRef: '1001' });
		const outcomes = ['1001', 1001, ' 1001 ', '1002', '10010', '', null, ['1001']].map(
			async (no) => (await check(request({ invoice_no: no }, [reference(item.key)]))).status,
		);
		expect(await Promise.all(outcomes)).toEqual([
			...['passed', 'passed', 'passed'],
			...['blocked', 'blocked', 'blocked', 'blocked', 'blocked'],
		]);
		expect(await check(request({ invoice_no: 'x' }, [reference(item.key)]))).toMatchObject({
			missing: [{ found: '"1001"', reason: expect.stringContaining('the field holds "x"') }],
		});
	});

	test('done work without a reference equals no field', async () => {
		const item = await stage.claimed();
		await stage.complete(item);
		expect(await check(request({ invoice_no: 'null' }, [reference(item.key)]))).toMatchObject({
			status: 'blocked',
		});
		expect(await check(request({ invoice_no: 'x' }, [reference(item.key)]))).toMatchObject({
			missing: [{ found: 'no reference' }],
		});
	});

	test('of a higher stage tells what is supported, and does not keep a lower stage', async () => {
		const item = await work('running');
		const stages = [
			{ name: 'job', rules: [present('job_id')] },
			{ name: 'invoiced', rules: [done(item.key)] },
		];
		const asked = request({ job_id: 1 }, [], { stages, target: 'job' });
		expect(await check(asked)).toMatchObject({ status: 'passed', supportedStage: 'job' });
		await stage.complete(item);
		expect(await check(asked)).toMatchObject({ status: 'passed', supportedStage: 'invoiced' });
	});

	test('work whose result was purged down to a stub is evidence as before', async () => {
		const item = await work('done');
		await stage.age(item, 1_000);
		await stage.ledger.admin.purge({ states: ['done'], olderThanSeconds: 900, atMost: 10 });
		expect(await stage.row(item)).toMatchObject({ result: null });
		const asked = request({ invoice_no: 'inv_7' }, [reference(item.key)]);
		expect(await check(asked)).toMatchObject({ status: 'passed' });
	});
});

describe('one statement', () => {
	test('answers a thousand records in their order, each with its own row', async () => {
		const item = await stage.workThatIs('done');
		let statements = 0;
		const { connection } = stage.ledger;
		const query = connection.query.bind(connection);
		const counted = jest.spyOn(connection, 'query').mockImplementation(async (...asked) => {
			statements++;
			return await query(...asked);
		});
		const requests = Array.from({ length: 1_000 }, (_, i) =>
			request({ n: i, job_id: i % 2 === 0 ? 'x' : '' }, [present('job_id'), done(item.key)]),
		);
		const answers = await stage.ledger.evidence.check(requests, CALLER);
		counted.mockRestore();
		expect(statements).toBe(1);
		expect(answers.map(({ recordId }) => recordId)).toEqual(requests.map((r) => r.recordId));
		expect(answers.map(({ status }) => status)).toEqual(
			requests.map((_, i) => (i % 2 === 0 ? 'passed' : 'blocked')),
		);
		const rows = await stage.query(
			`select work_id, outcome from idempotency.decision_log where work_id = any($1) order by id`,
			[requests.map((r) => r.recordId)],
		);
		expect(rows).toEqual(
			requests.map((r, i) => ({
				work_id: r.recordId,
				outcome: i % 2 === 0 ? 'passed' : 'blocked',
			})),
		);
	});

	test('the same record twice in a batch is checked and logged twice', async () => {
		const asked = request({ a: 1 }, [present('a')]);
		const answers = await stage.ledger.evidence.check([asked, { ...asked, record: {} }], CALLER);
		expect(answers.map(({ status }) => status)).toEqual(['passed', 'blocked']);
		expect((await log(asked)).map(({ outcome }) => outcome)).toEqual(['passed', 'blocked']);
	});
});

describe('a call that is sent again because its answer was lost', () => {
	const CALL = `select ord, record_id, outcome, ledger
		from idempotency.check_evidence($1::text[], $2::uuid[], $3::jsonb[], '{}')`;

	/** Two checks, the second of work that is done now. */
	async function call() {
		const item = await stage.workThatIs('done');
		const ask = { rule: 'r', work_id: item.workId, needed: true };
		return {
			item,
			values: [
				[workIdOf('deal', 'v1', randomUUID()), workIdOf('deal', 'v1', randomUUID())],
				[randomUUID(), randomUUID()],
				[
					{ stage: null, rules: 1, verdict: 'blocked', missing: [{ rule: 'x' }], ledger: [] },
					{ stage: null, rules: 1, verdict: null, missing: [], ledger: [ask] },
				].map((one) => JSON.stringify(one)),
			] as [string[], string[], string[]],
		};
	}
	const rowsOf = async (ids: string[]) =>
		await stage.query(`select outcome from idempotency.decision_log where work_id = any($1)`, [
			ids,
		]);

	test('gets the first answer, and nothing is logged twice, although the ledger has moved on', async () => {
		const { item, values } = await call();
		const first = await stage.query(CALL, values);
		expect(first.map(({ outcome }) => outcome)).toEqual(['blocked', 'passed']);
		await stage.query(
			`update idempotency.work_log set state = 'held', completed_at = null where work_id = $1`,
			[item.workId],
		);
		expect(await stage.query(CALL, values)).toEqual(first);
		expect(await rowsOf(values[0])).toHaveLength(2);
	});

	test('waits for the first sending where that still runs, and gets its answer', async () => {
		const { values } = await call();
		const slow = await stage.connect();
		const fast = await stage.connect();
		await slow.query('begin');
		const { rows: first } = await slow.query(CALL, values);
		const again = fast.query(CALL, values);
		await stage.untilWaiting(1);
		await slow.query('commit');
		expect((await again).rows).toEqual(first);
		expect(await rowsOf(values[0])).toHaveLength(2);
	});

	test('is the first one where the server died before the commit', async () => {
		const { values } = await call();
		const lost = await stage.connect();
		await lost.query('begin');
		await lost.query(CALL, values);
		await lost.query('rollback');
		expect((await stage.query(CALL, values)).map(({ outcome }) => outcome)).toEqual([
			'blocked',
			'passed',
		]);
		expect(await rowsOf(values[0])).toHaveLength(2);
	});
});

describe('in plain SQL', () => {
	const one = { stage: null, rules: 1, verdict: null, missing: [], ledger: [] };
	const ask = async (
		asked: object,
		id: unknown = newWork().workId,
		token: unknown = randomUUID(),
	) =>
		(
			await stage.query<{ outcome: string }>(
				`select outcome from idempotency.check_evidence($1, $2, $3, null)`,
				[[id], [token], [JSON.stringify(asked)]],
			)
		).map(({ outcome }) => outcome);

	test('nobody can say "passed": the function decides', async () => {
		await expect(ask({ ...one, verdict: 'passed' })).rejects.toMatchObject({ code: '22023' });
		expect(await ask(one)).toEqual(['passed']);
		expect(await ask({ ...one, missing: [{ rule: 'x' }] })).toEqual(['blocked']);
	});

	test('without a rule nothing passes', async () => {
		expect(await ask({ ...one, rules: 0 })).toEqual(['blocked']);
		await expect(ask({ ...one, rules: undefined })).rejects.toMatchObject({ code: '22023' });
	});

	test.each([
		['a misspelt part', { ...one, verdct: 'blocked' }, undefined, undefined],
		['a check that is no object', [], undefined, undefined],
		['ledger that is no list', { ...one, ledger: {} }, undefined, undefined],
		['a record_id in capitals', one, 'A'.repeat(64), undefined],
		['no record_id', one, null, undefined],
		['no token', one, undefined, null],
	])('%s is refused, and nothing is logged', async (_, asked, id, token) => {
		await expect(ask(asked, id, token)).rejects.toMatchObject({ code: '22023' });
	});

	test('a question about no work is not answered with yes', async () => {
		expect(await ask({ ...one, ledger: [{}] })).toEqual(['blocked']);
		expect(await ask({ ...one, ledger: [{ work_id: null, needed: true }] })).toEqual(['blocked']);
	});
});

test('two checks of one record in the same instant are both made and both logged', async () => {
	const asked = request({ a: 1 }, [present('a')]);
	const answers = await Promise.all([check(asked), check(asked)]);
	expect(answers.map(({ status }) => status)).toEqual(['passed', 'passed']);
	expect(await log(asked)).toHaveLength(2);
});

test('a check sees work that is done the moment its completion is committed, and not before', async () => {
	const item = await stage.claimed();
	const asked = request({ deal: 1 }, [done(item.key)]);
	const owner = await stage.connect();
	await owner.query('begin');
	await owner.query(`select * from idempotency.complete_work($1, $2, null, null, null)`, [
		item.workId,
		item.token,
	]);
	expect(await check(asked)).toMatchObject({ status: 'blocked', missing: [{ found: 'running' }] });
	await owner.query('commit');
	expect(await check(asked)).toMatchObject({ status: 'passed' });
});

test('with the ledger out of reach a check throws: it has no answer that could be taken for passed', async () => {
	const { createLedger } = await import('../../ledger');
	const nowhere = createLedger({ ...stage.settings, port: 1 });
	await expect(nowhere.evidence.check([request({ a: 1 }, [present('a')])])).rejects.toMatchObject({
		name: 'LedgerError',
		code: 'unreachable',
	});
	await nowhere.close();
});

test('a failed write of the log lets nothing pass, not even by a field alone', async () => {
	await stage.query(`
		create function no_log() returns trigger language plpgsql as $$
		begin raise exception 'disk full' using errcode = '53100'; end $$;
		create trigger no_log before insert on idempotency.decision_log
		for each row when (new.event = 'check_evidence' and new.checked ->> 'stage' = 'poison')
		execute function no_log()`);
	const asked = request({ a: 1 }, [], {
		stages: [{ name: 'poison', rules: [present('a')] }],
		target: 'poison',
	});
	await expect(check(asked)).rejects.toMatchObject({ name: 'LedgerError' });
	expect(await log(asked)).toEqual([]);
});
