import { createHash, randomUUID } from 'node:crypto';
import fc from 'fast-check';

import type { Finding, ReconcileRequest, TargetRecord, WorkState } from '../../ledger';
import { identifyByKey, referenceText } from '../../ledger';
import { CALLER, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open({ queryTimeoutSeconds: 60 });
});
afterAll(async () => {
	await stage.close();
});

const FROM = '2026-03-01T00:00:00.000Z';
const TO = '2026-03-02T00:00:00.000Z';
const HOUR = 3_600_000;
/** A moment so many hours after the range begins. */
const at = (hours: number): string => new Date(Date.parse(FROM) + hours * HOUR).toISOString();

let kinds = 0;
const newKind = () => `reconciled${++kinds}`;

const idOf = (kind: string, key: string) =>
	identifyByKey({ kind }, [{ name: 'k', value: key }]).workId;

/** A row of the ledger as a test puts it there. */
interface Put {
	key: string;
	state?: WorkState | 'lapsed';
	ref?: string | null;
	/** Hours after the range begins; null: never. Left out: done in the middle of the range. */
	doneAt?: number | null;
	generation?: number;
	/** References of earlier generations. */
	earlier?: string[];
	outcomeKnown?: boolean;
}

/** Many works at once, done at times of the test's choice. */
async function put(kind: string, works: Put[]): Promise<void> {
	await stage.query(
		`insert into idempotency.work_log (work_id, kind, version, key, state, generation, token, locked_until,
			next_attempt_at, external_ref, outcome_known, created_at, updated_at, first_started_at, claimed_at, completed_at, last_done_at)
		select w.id, $1, 'v1', w.key, case w.state when 'lapsed' then 'running' else w.state end, w.generation, gen_random_uuid(),
			case w.state when 'running' then now() + interval '1 hour' when 'lapsed' then now() - interval '1 hour' end,
			case w.state when 'failed' then now() end, w.ref, w."outcomeKnown", now(), now(), now(), now(),
			case w.state when 'done' then w.done end, w.done
		from json_to_recordset($2) as w(id text, key text, state text, generation integer, ref text, "outcomeKnown" boolean, done timestamptz)`,
		[
			kind,
			JSON.stringify(
				works.map(
					({
						key,
						state = 'done',
						ref = null,
						doneAt = 12,
						generation = 1,
						outcomeKnown = true,
					}) => ({
						id: idOf(kind, key),
						...{ key, state, ref, generation, outcomeKnown },
						done: doneAt === null ? null : at(doneAt),
					}),
				),
			),
		],
	);
	for (const { key, earlier = [] } of works) {
		for (const [i, ref] of earlier.entries()) {
			await stage.query(
				`insert into idempotency.decision_log (work_id, event, outcome, generation, attempt, external_ref)
				values ($1, 'claim', 'claimed', $2, 1, $3)`,
				[idOf(kind, key), i + 2, ref],
			);
		}
	}
}

type Asked = Omit<ReconcileRequest, 'kind' | 'range' | 'records'> & Partial<ReconcileRequest>;

const compare = async (kind: string, records: TargetRecord[], more: Asked = {}) =>
	await stage.ledger.reconciliation.compare(
		{ kind, range: { from: FROM, to: TO }, marginSeconds: 3600, records, ...more },
		CALLER,
	);

/** A record without a key, or with that of a work. */
const record = (reference: string, kind?: string, key?: string): TargetRecord => ({
	reference,
	workId: kind === undefined || key === undefined ? null : idOf(kind, key),
});

/** Each finding in one line: the record or "-", its status, the work's key or "-". */
const lines = (findings: Finding[]) =>
	findings.map(({ record, status, key }) => `${record ?? '-'} ${status} ${key ?? '-'}`);

const runId = (kind: string) => createHash('sha256').update(`:reconcile:${kind}:v1`).digest('hex');

describe('a record and its work', () => {
	test('by its reference: matched, missing, unknown', async () => {
		const kind = newKind();
		await put(kind, [
			{ key: '1', ref: 'inv_1' },
			{ key: '2', ref: 'inv_2' },
		]);
		const { findings, summary } = await compare(kind, [record('inv_1'), record('inv_9')]);
		expect(lines(findings)).toEqual([
			'0 matched 1',
			'1 unknown_to_ledger -',
			'- missing_in_target 2',
		]);
		expect(findings[2]).toMatchObject({
			externalRef: 'inv_2',
			doneAt: at(12),
			by: null,
			state: 'done',
		});
		expect(summary).toEqual({
			from: FROM,
			to: TO,
			marginSeconds: 3600,
			records: 2,
			works: 2,
			unreadable: 0,
			drifting: 1,
			findings: { matched: 1, unknown_to_ledger: 1, missing_in_target: 1 },
			unknown: ['inv_9'],
		});
	});

	test('by its key: another reference is said, none in the ledger is a match', async () => {
		const kind = newKind();
		await put(kind, [
			{ key: '1', ref: 'inv_1' },
			{ key: '2', ref: null },
		]);
		const { findings } = await compare(kind, [
			record('inv_7', kind, '1'),
			record('inv_2', kind, '2'),
		]);
		expect(lines(findings)).toEqual(['0 different_reference 1', '1 matched 2']);
		expect(findings[0]).toMatchObject({ externalRef: 'inv_1', by: 'key' });
	});

	test('the reference of one work under the key of another that the ledger does not hold', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', ref: 'inv_1' }]);
		const { findings } = await compare(kind, [record('inv_1', kind, 'nobody')]);
		expect(lines(findings)).toEqual(['0 different_key 1']);
	});

	test('a work whose reference is on the record of another work is missing, and says where it is', async () => {
		const kind = newKind();
		await put(kind, [
			{ key: '1', ref: 'inv_1' },
			{ key: '2', ref: 'inv_2' },
		]);
		const { findings } = await compare(kind, [record('inv_2', kind, '1')]);
		expect(lines(findings)).toEqual(['0 different_reference 1', '- missing_in_target 2']);
		expect(findings[1].takenBy).toBe(0);
	});

	test('two works with one reference: the record is of one, the other is missing', async () => {
		const kind = newKind();
		await put(kind, [
			{ key: '1', ref: 'inv_1' },
			{ key: '2', ref: 'inv_1' },
		]);
		const { findings } = await compare(kind, [record('inv_1')]);
		expect(findings.map(({ status }) => status)).toEqual(['matched', 'missing_in_target']);
		expect(findings[1].takenBy).toBe(0);
	});

	test('done without a reference, and named by no record: it cannot be compared, which is no drift', async () => {
		const kind = newKind();
		await put(kind, [
			{ key: '1', ref: null },
			{ key: '2', ref: '  ' },
		]);
		const { findings, summary } = await compare(kind, []);
		expect(findings.map(({ status }) => status)).toEqual(['not_comparable', 'not_comparable']);
		expect(summary.drifting).toBe(0);
		expect(await stage.log({ workId: runId(kind) })).toMatchObject([{ outcome: 'no_drift' }]);
	});

	test('white space around a reference does not count, on either side', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', ref: ' inv_1\n' }]);
		expect(lines((await compare(kind, [record('inv_1')])).findings)).toEqual(['0 matched 1']);
	});

	test('another kind or version with the same reference is other business', async () => {
		const [kind, other] = [newKind(), newKind()];
		await put(other, [{ key: '1', ref: 'inv_1' }]);
		await put(kind, [{ key: '1', ref: 'inv_1' }]);
		expect(lines((await compare(other, [record('inv_1')], { version: 'v2' })).findings)).toEqual([
			'0 unknown_to_ledger -',
		]);
		// its id, too, is that of the other kind
		expect(lines((await compare(kind, [record('inv_9', other, '1')])).findings)).toEqual([
			'0 unknown_to_ledger -',
			'- missing_in_target 1',
		]);
	});
});

describe('duplicates in the target', () => {
	test('two records with one reference list each other', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', ref: 'inv_1' }]);
		const { findings, summary } = await compare(kind, [
			record('inv_1'),
			record('inv_5'),
			record('inv_1'),
			record('inv_5'),
		]);
		expect(lines(findings)).toEqual([
			'0 duplicated_in_target 1',
			'1 duplicated_in_target -',
			'2 duplicated_in_target 1',
			'3 duplicated_in_target -',
		]);
		expect(findings[0]).toMatchObject({
			sameReference: 2,
			records: expect.arrayContaining([0, 2]),
		});
		expect(findings[1]).toMatchObject({ sameReference: 2, records: [1, 3] });
		// one work drifts
		expect(summary.drifting).toBe(1);
	});

	test('two records for one work, by key or by key and reference', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', ref: 'inv_1' }]);
		const { findings } = await compare(kind, [record('inv_1'), record('inv_2', kind, '1')]);
		expect(lines(findings)).toEqual(['0 duplicated_in_target 1', '1 duplicated_in_target 1']);
		expect(findings[0]).toMatchObject({ sameReference: 1, sameWork: 2, records: [0, 1] });
	});

	test('two records under one key that the ledger never saw', async () => {
		const kind = newKind();
		const { findings } = await compare(kind, [record('a', kind, 'x'), record('b', kind, 'x')]);
		expect(lines(findings)).toEqual(['0 duplicated_in_target -', '1 duplicated_in_target -']);
	});

	test('many of one kind list the first 20 and count all', async () => {
		const kind = newKind();
		const { findings } = await compare(
			kind,
			Array.from({ length: 50 }, () => record('same')),
		);
		expect(findings).toHaveLength(50);
		expect(findings[49]).toMatchObject({
			sameReference: 50,
			records: Array.from({ length: 20 }, (_, i) => i),
		});
	});

	test('work that was begun anew has a record of each time: no duplicate, not unknown', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', ref: 'mail_2', generation: 2, earlier: ['mail_1'] }]);
		const { findings, summary } = await compare(kind, [
			record('mail_1', kind, '1'),
			record('mail_2', kind, '1'),
		]);
		expect(lines(findings)).toEqual(['0 matched 1', '1 matched 1']);
		expect(findings.map(({ earlierGeneration }) => earlierGeneration)).toEqual([1, null]);
		expect(summary.drifting).toBe(0);
		expect(lines((await compare(kind, [record('mail_1')])).findings)).toEqual([
			'0 matched 1',
			'- missing_in_target 1',
		]);
	});

	test('really begun anew: by a claim outside the window, and run again on purpose', async () => {
		const item = { workId: idOf('weekly', '1'), key: '1', token: randomUUID() };
		const policy = { kind: 'weekly', window: { mode: 'duration', seconds: 60 } } as const;
		await stage.claimed(item, policy);
		await stage.complete(item, { externalRef: 'mail_1' });
		await stage.age(item, 120);
		const second = { ...item, token: randomUUID() };
		await stage.claimed(second, policy);
		await stage.complete(second, { externalRef: 'mail_2' });
		await stage.ledger.admin.replay([item.workId], { again: true });
		const third = { ...item, token: randomUUID() };
		await stage.claimed(third, policy);
		await stage.complete(third, { externalRef: 'mail_3' });
		const records = ['mail_1', 'mail_2', 'mail_3', 'mail_4'].map((reference) => record(reference));
		const { findings } = await compare('weekly', records, {
			range: { lastSeconds: 3600, settleSeconds: 0 },
		});
		expect(lines(findings)).toEqual([
			'0 matched 1',
			'1 matched 1',
			'2 matched 1',
			'3 unknown_to_ledger -',
		]);
		expect(findings.map(({ earlierGeneration }) => earlierGeneration)).toEqual([1, 2, null, null]);
	});
});

describe('work that is not done although its record is there', () => {
	test.each([
		['held', { outcomeKnown: false }, true],
		['dead', { outcomeKnown: false }, true],
		['failed', { outcomeKnown: false }, true],
		['lapsed', {}, true],
		['running', {}, false],
	] as const)('%s work is found by its key, with its state', async (state, more, drifts) => {
		const kind = newKind();
		await put(kind, [{ key: '1', state, doneAt: null, ...more }]);
		const { findings, summary } = await compare(kind, [record('inv_1', kind, '1')]);
		expect(findings).toMatchObject([
			{
				status: 'not_done',
				state: state === 'lapsed' ? 'running' : state,
				lapsed: state === 'lapsed',
				by: 'key',
			},
		]);
		// a live owner is about to say so: that is no drift
		expect(summary.drifting).toBe(drifts ? 1 : 0);
		expect(await stage.log({ workId: idOf(kind, '1') })).toHaveLength(drifts ? 1 : 0);
	});

	test('running work whose reference is recorded is found by it', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', state: 'lapsed', ref: 'inv_1', doneAt: null }]);
		const { findings } = await compare(kind, [record('inv_1')]);
		expect(findings).toMatchObject([
			{ status: 'not_done', key: '1', by: 'reference', lapsed: true },
		]);
	});

	test('resolved as landed with the reference that was found, the next run is content', async () => {
		const item = await stage.workThatIs('held');
		const found = [{ reference: 'inv_held', workId: item.workId }];
		const range = { lastSeconds: 3600, settleSeconds: 0 };
		const { findings } = await compare('invoice', found, { range });
		expect(findings).toMatchObject([{ status: 'not_done', state: 'held', outcomeKnown: false }]);
		await stage.ledger.admin.resolve([item.workId], { landed: true, externalRef: 'inv_held' });
		expect(lines((await compare('invoice', found, { range })).findings)).toEqual([
			`0 matched ${item.key}`,
		]);
	});
});

describe('the range', () => {
	test('is half open: its first moment belongs to it, its last to the next', async () => {
		const kind = newKind();
		await put(kind, [
			{ key: 'before', ref: 'a', doneAt: -0.001 },
			{ key: 'first', ref: 'b', doneAt: 0 },
			{ key: 'last', ref: 'c', doneAt: 23.999 },
			{ key: 'after', ref: 'd', doneAt: 24 },
		]);
		const { findings, summary } = await compare(kind, []);
		expect(findings.map(({ key }) => key).sort()).toEqual(['first', 'last']);
		expect(summary.works).toBe(2);
		// two ranges side by side owe each work a record once
		const next = await compare(kind, [], { range: { from: TO, to: at(48) } });
		expect(next.findings.map(({ key }) => key)).toEqual(['after']);
	});

	test('work done just outside it is matched by its record, and not missing without', async () => {
		const kind = newKind();
		await put(kind, [
			{ key: 'just before', ref: 'a', doneAt: -1 },
			{ key: 'just after', ref: 'b', doneAt: 24.99 },
			{ key: 'far', ref: 'c', doneAt: 25 },
		]);
		const records = ['a', 'b', 'c'].map((reference) => record(reference));
		expect(lines((await compare(kind, records)).findings)).toEqual([
			'0 matched just before',
			'1 matched just after',
			'2 unknown_to_ledger -',
		]);
		expect((await compare(kind, [])).findings).toEqual([]);
		expect(lines((await compare(kind, records, { marginSeconds: 0 })).findings)).toEqual([
			'0 unknown_to_ledger -',
			'1 unknown_to_ledger -',
			'2 unknown_to_ledger -',
		]);
	});

	test('a record that names its work finds it whenever it was done', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', ref: 'a', doneAt: -10_000 }]);
		expect(lines((await compare(kind, [record('a', kind, '1')])).findings)).toEqual([
			'0 matched 1',
		]);
	});

	test('of the last days ends before what is newer than the records', async () => {
		const item = await stage.claimed();
		await stage.complete(item, { externalRef: 'fresh' });
		const statusOf = async (settleSeconds: number) =>
			(await compare('invoice', [], { range: { lastSeconds: 3600, settleSeconds } })).findings.find(
				({ workId }) => workId === item.workId,
			)?.status;
		expect(await statusOf(60)).toBeUndefined();
		expect(await statusOf(0)).toBe('missing_in_target');
		await stage.age(item, 61);
		expect(await statusOf(60)).toBe('missing_in_target');
	});
});

describe('the decision log', () => {
	test('has a row for each drifting work and one for the run, none for what matched', async () => {
		const kind = newKind();
		await put(kind, [
			{ key: 'matched', ref: 'a' },
			{ key: 'missing', ref: 'b' },
			{ key: 'other', ref: 'c' },
		]);
		await compare(kind, [record('a'), record('x', kind, 'other'), record('u')], { unreadable: 3 });
		expect(await stage.log({ workId: idOf(kind, 'matched') })).toEqual([]);
		expect(await stage.log({ workId: idOf(kind, 'missing') })).toMatchObject([
			{
				event: 'reconcile',
				outcome: 'missing_in_target',
				external_ref: 'b',
				fired: { execution: '100' },
				checked: { from: FROM, to: TO, unreadable: 3 },
			},
		]);
		expect(await stage.log({ workId: idOf(kind, 'other') })).toMatchObject([
			{ outcome: 'different_reference', external_ref: 'c', detail: { targetRef: 'x' } },
		]);
		expect(await stage.log({ workId: runId(kind) })).toMatchObject([
			{
				event: 'reconcile',
				outcome: 'drift',
				checked: { kind, version: 'v1' },
				detail: { records: 3, works: 3, unreadable: 3, drifting: 2, unknown: ['u'] },
			},
		]);
	});

	test('lists the first 20 unknown references and counts all', async () => {
		const kind = newKind();
		const { summary } = await compare(
			kind,
			Array.from({ length: 30 }, (_, i) => record(`u${i}`)),
		);
		expect(summary.unknown).toEqual(Array.from({ length: 20 }, (_, i) => `u${i}`));
		expect(summary.findings).toEqual({ unknown_to_ledger: 30 });
	});

	test('no work has the id of a run', async () => {
		const kind = newKind();
		await compare(kind, []);
		// the nearest that a work can come: no kind is empty
		expect(idOf('reconcile', `${kind}:v1`)).not.toBe(runId(kind));
		expect(() => idOf('', kind)).toThrow(/kind is empty/);
	});

	test('the same call sent again while the first is still at work logs once', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', ref: 'a' }]);
		const options = JSON.stringify({ from: FROM, to: TO, run: randomUUID() });
		const call = `select status from idempotency.reconcile_works($1, 'v1', '{x}', null, $2)`;
		const [one, two] = [await stage.connect(), await stage.connect()];
		await one.query('begin');
		const first = await one.query(call, [kind, options]);
		const second = two.query(call, [kind, options]);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect((await second).rows).toEqual(first.rows);
		expect(await stage.log({ workId: idOf(kind, '1') })).toHaveLength(1);
		expect(await stage.log({ workId: runId(kind) })).toHaveLength(1);
	});

	test('two runs in the same second do not wait for each other, and each is logged', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', ref: 'a' }]);
		const one = await stage.connect();
		await one.query('begin');
		const call = `select status from idempotency.reconcile_works($1, 'v1', '{}', null, $2)`;
		await one.query(call, [kind, JSON.stringify({ from: FROM, to: TO })]);
		const { findings } = await compare(kind, []);
		await one.query('commit');
		expect(lines(findings)).toEqual(['- missing_in_target 1']);
		expect(await stage.log({ workId: runId(kind) })).toHaveLength(2);
	});

	test('a run that dies before its commit leaves nothing', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', ref: 'a' }]);
		const one = await stage.connect();
		const [{ pid }] = (await one.query<{ pid: number }>('select pg_backend_pid() as pid')).rows;
		await one.query('begin');
		await one.query(`select 1 from idempotency.reconcile_works($1, 'v1', '{}', null, $2)`, [
			kind,
			JSON.stringify({ from: FROM, to: TO }),
		]);
		await stage.query('select pg_terminate_backend($1, 10000)', [pid]);
		expect(await stage.log({ workId: idOf(kind, '1') })).toEqual([]);
		expect(await stage.log({ workId: runId(kind) })).toEqual([]);
	});

	test('neither changes a work nor waits for one that is being completed', async () => {
		const kind = newKind();
		await put(kind, [{ key: '1', state: 'running', doneAt: null }]);
		const before = await stage.row({ workId: idOf(kind, '1') });
		const one = await stage.connect();
		await one.query('begin');
		await one.query('select 1 from idempotency.work_log where work_id = $1 for update', [
			before.work_id,
		]);
		expect(lines((await compare(kind, [record('a', kind, '1')])).findings)).toEqual([
			'0 not_done 1',
		]);
		await one.query('commit');
		expect(await stage.row({ workId: before.work_id })).toEqual(before);
	});
});

describe('refused in words that tell the cure, and nothing is logged', () => {
	test.each<[string, Asked, RegExp]>([
		[
			'a range that ends before it begins',
			{ range: { from: TO, to: FROM } },
			/range must begin before it ends/,
		],
		['an empty range', { range: { from: TO, to: TO } }, /range must begin before it ends/],
		[
			'no time at all',
			{ range: { from: 'soon', to: TO } },
			/invalid input syntax for type timestamp/,
		],
		['a negative time', { range: { lastSeconds: -1, settleSeconds: 0 } }, /last_s must be above 0/],
		[
			'a negative settling time',
			{ range: { lastSeconds: 1, settleSeconds: -1 } },
			/settle_s from 0/,
		],
		['a negative margin', { marginSeconds: -1 }, /margin_s must be from 0/],
		['no kind', { kind: '' }, /kind and version must be texts/],
		['an empty reference', { records: [record(' ')] }, /every record needs a reference/],
	])('%s', async (_, more, words) => {
		const kind = newKind();
		await expect(compare(kind, [], more)).rejects.toMatchObject({
			name: 'LedgerError',
			code: 'bad_input',
			message: expect.stringMatching(words),
		});
		expect(await stage.log({ workId: runId(more.kind ?? kind) })).toEqual([]);
	});

	test('a misspelt option from SQL', async () => {
		await expect(
			stage.query(
				`select 1 from idempotency.reconcile_works('k', 'v1', '{}', null, '{"form": "now"}')`,
			),
		).rejects.toThrow(/unknown option: form/);
	});

	test('more records than one run takes, from the package and from SQL', async () => {
		const many = Array.from({ length: 100_001 }, (_, i) => record(`r${i}`));
		await expect(compare(newKind(), many)).rejects.toMatchObject({
			code: 'bad_input',
			message: expect.stringMatching(/^100001 records .* Narrow the range/),
		});
		await expect(
			stage.query(
				`select 1 from idempotency.reconcile_works('k', 'v1', array(select 'r' || g from generate_series(1, 100001) g), null, $1)`,
				[JSON.stringify({ from: FROM, to: TO })],
			),
		).rejects.toThrow(/100001 records: one reconciliation takes at most 100000/);
	});

	test('more works in the range than one run looks at', async () => {
		const kind = newKind();
		await stage.query(
			`insert into idempotency.work_log (work_id, kind, version, state, created_at, updated_at, first_started_at, claimed_at, completed_at, last_done_at)
			select encode(sha256(convert_to($1 || g, 'UTF8')), 'hex'), $1, 'v1', 'done', t, t, t, t, t, t
			from generate_series(1, 100001) g, cast($2 as timestamptz) t`,
			[kind, at(1)],
		);
		await expect(compare(kind, [])).rejects.toMatchObject({
			code: 'bad_input',
			message: expect.stringMatching(/more than 100000 works .* Narrow the range, or the margin/),
		});
		expect(await stage.log({ workId: runId(kind) })).toEqual([]);
	});

	test.each<[string, unknown, RegExp]>([
		['a missing field', undefined, /"id" is missing in this item/],
		['an empty one', ' ', /"id" is empty/],
		['a lost value', 'undefined', /the value was lost/],
		['an integer that was rounded', 2 ** 53, /"id"/],
		['a list', ['inv_1'], /not one value/],
		['an object', { a: 1, b: 2 }, /not one value/],
		['NUL', 'inv\0_1', /"id" holds a NUL character/],
		['half an emoji', 'inv_\ud83d', /half of an emoji/],
		['a novel', 'x'.repeat(2001), /"id" is longer than 2000 characters/],
	])('%s as reference', (_, value, words) => {
		expect(() => referenceText('id', value)).toThrow(words);
	});
});

test.each<[unknown, string]>([
	[7, '7'],
	[7.5, '7.5'],
	['7', '7'],
	[' 7\n', '7'],
	['[7]', '[7]'],
	[BigInt('9007199254740993'), '9007199254740993'],
	// not another Unicode form: the ledger keeps references byte-equal
	['e\u0301', 'e\u0301'],
])('the reference %p is compared as %p', (value, text) => {
	expect(referenceText('id', value)).toBe(text);
});

test('10,000 records against 10,000 works in one pass, in seconds', async () => {
	const kind = newKind();
	const works = Array.from({ length: 10_000 }, (_, i) => i);
	await put(
		kind,
		works.map((i) => ({
			key: `k${i}`,
			ref: i % 10 === 0 ? null : `inv_${i}`,
			doneAt: (i % 24) + 0.5,
		})),
	);
	const records = works.flatMap((i): TargetRecord[] => {
		if (i < 100) return [];
		if (i < 200) return [record(`other_${i}`, kind, `k${i}`)];
		if (i < 300) return [record(`inv_${i}`), record(`inv_${i}`)];
		return [record(`inv_${i}`, kind, i % 2 === 0 ? `k${i}` : undefined)];
	});
	const started = performance.now();
	const { findings, summary } = await compare(kind, records);
	const seconds = (performance.now() - started) / 1000;
	expect(findings).toHaveLength(records.length + 110);
	expect(summary).toMatchObject({ records: 10_000, works: 10_000 });
	expect(summary.findings).toEqual({
		// of the first 100, ten have no reference; of the pairs, ten references are on no work, which are then alone
		missing_in_target: 90,
		not_comparable: 20,
		different_reference: 90,
		matched: 9_700 + 10,
		duplicated_in_target: 200,
	});
	expect(seconds).toBeLessThan(5);
});

describe('every record and every work gets exactly one finding (property)', () => {
	const KEYS = ['a', 'b', 'c', 'd', 'e', 'f'];
	const REFS = ['r1', 'r2', 'r3', 'r4', 'r5'];
	const DONE_AT = [-2, -1, -0.5, 0, 12, 23.9, 24, 24.5, 25, 26];

	const work = fc.record({
		state: fc.constantFrom<NonNullable<Put['state']>>(
			'done',
			'done',
			'done',
			'running',
			'lapsed',
			'failed',
			'held',
			'dead',
		),
		ref: fc.option(fc.constantFrom(...REFS)),
		doneAt: fc.constantFrom(...DONE_AT),
		earlier: fc.option(fc.constantFrom(...REFS, 'r6')),
	});
	const sets = fc.record({
		works: fc.uniqueArray(fc.tuple(fc.constantFrom(...KEYS), work), { selector: ([key]) => key }),
		records: fc.array(
			fc.record({
				ref: fc.constantFrom(...REFS, 'r6', 'r7'),
				key: fc.option(fc.constantFrom(...KEYS, 'stranger')),
			}),
			{ maxLength: 8 },
		),
	});

	/** What a person with two lists and a pencil would say. */
	function expected(
		works: Put[],
		records: Array<{ ref: string; key: string | null }>,
		order: (key: string) => string,
	): string[] {
		const within = (hours: number, from: number, to: number) => hours >= from && hours < to;
		const named = new Set(records.map(({ key }) => key));
		const seen = works
			.filter(({ key, state, ref, doneAt }) => {
				if (named.has(key)) return true;
				if (doneAt !== null && doneAt !== undefined && within(doneAt, -1, 25)) return true;
				return (state === 'running' || state === 'lapsed') && ref !== null;
			})
			.sort((a, b) => (order(a.key) < order(b.key) ? -1 : 1));
		const isOld = (w: Put, ref: string) => w.ref !== ref && (w.earlier ?? []).includes(ref);
		const holderOf = (ref: string): Put | undefined =>
			seen.find((w) => w.ref === ref && w.state === 'done') ??
			seen.find((w) => w.ref === ref) ??
			seen.find((w) => isOld(w, ref));

		const owners = records.map(({ ref, key }) => seen.find((w) => w.key === key) ?? holderOf(ref));
		const isOldRecord = records.map(
			({ ref }, i) => owners[i] !== undefined && isOld(owners[i], ref),
		);
		const said = records.map(({ ref, key }, i) => {
			const owner = owners[i];
			const identity = owner?.key ?? key;
			const rival = records.some(
				(other, j) =>
					j !== i &&
					(other.ref === ref ||
						(identity !== null &&
							!isOldRecord[i] &&
							!isOldRecord[j] &&
							(owners[j]?.key ?? other.key) === identity)),
			);
			if (rival) return `${i} duplicated_in_target ${owner?.key ?? '-'}`;
			if (owner === undefined) return `${i} unknown_to_ledger -`;
			if (key !== null && key !== owner.key) return `${i} different_key ${owner.key}`;
			if (isOldRecord[i]) return `${i} matched ${owner.key}`;
			if (owner.state !== 'done') return `${i} not_done ${owner.key}`;
			if (owner.ref !== null && owner.ref !== ref) return `${i} different_reference ${owner.key}`;
			return `${i} matched ${owner.key}`;
		});
		for (const w of seen) {
			const isOwed = w.state === 'done' && within(w.doneAt ?? -99, 0, 24);
			if (!isOwed || owners.some((owner, i) => owner === w && !isOldRecord[i])) continue;
			said.push(`- ${w.ref === null ? 'not_comparable' : 'missing_in_target'} ${w.key}`);
		}
		return said;
	}

	test('as a simple model says', async () => {
		await fc.assert(
			fc.asyncProperty(sets, async ({ works, records }) => {
				const kind = newKind();
				const rows = works.map(([key, { earlier, ...rest }]) => ({
					key,
					...rest,
					generation: earlier === null ? 1 : 2,
					earlier: earlier === null ? [] : [earlier],
				}));
				await put(kind, rows);
				const given = records.map(({ ref, key }) => record(ref, kind, key ?? undefined));
				const { findings, summary } = await compare(kind, given);
				const model = expected(rows, records, (key) => idOf(kind, key));
				expect(lines(findings).sort()).toEqual(model.sort());
				const total = Object.values(summary.findings).reduce((sum, count) => sum + count, 0);
				expect(total).toBe(findings.length);
				// one row in the log for each drifting work, at most
				const log = await stage.query<{ count: number }>(
					`select count(*)::int as count from idempotency.decision_log d join idempotency.work_log w using (work_id)
					where w.kind = $1 and d.event = 'reconcile' group by d.work_id`,
					[kind],
				);
				expect(log.every(({ count }) => count === 1)).toBe(true);
				expect(log).toHaveLength(summary.drifting);
			}),
			{ numRuns: 300 },
		);
	});
});
