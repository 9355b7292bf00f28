import { payloadText } from '../../ledger';
import { again, CALLER, newWork, PATHS, POLICY, Stage } from '../integration/stage';
import { runChild } from './processes';
import type { ManyAnswer, ManyJob } from './many-items';
import type { ZoneAnswer, ZoneJob } from './time-zone';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

function nested(levels: number): unknown {
	let value: unknown = 'deep';
	for (let level = 0; level < levels; level++) value = level % 2 ? [value] : { in: value };
	return value;
}

/** Everything a webhook or a model may send, in one value. */
const HOSTILE: unknown = {
	...(JSON.parse(
		'{"__proto__": {"polluted": true}, "constructor": {"prototype": {"polluted": true}}, "toJSON": "no function"}',
	) as object),
	'10': 'ten',
	'9': 'nine',
	'-1': 'minus',
	'1e3': 'numeric-looking',
	'': 'empty name',
	$1: '$1 $2 $$ $tag$ %s :name',
	'a,b': 'Smith, John',
	"x,'y": '"quoted" and \'quoted\' and `quoted` \\ {a,b} NULL',
	nul: 'a\0b',
	lone: ['x\ud83d', '\ude00y', '\ud83d\ud83d'],
	emoji: '😀👩‍👩‍👧 é é',
	levels: nested(40),
	times: ['2025-08-19T00:00:00', '2025-08-19', '2025-03-30T02:30:00+01:00'],
	numbers: [0, 1e21, 1e-7, 0.1, Number.MAX_SAFE_INTEGER, 5e-324, 1.7976931348623157e308],
	big: '9007199254740993',
	separators: '\u2028\u2029\ufeff\u0085',
	large: 'é,"$1\\'.repeat(800_000),
};

describe.each(PATHS)('hostile values at size, sent %s', (path) => {
	test('come back equal as result: 5 MB, 40 levels, odd names, NUL, half an emoji (cases 40, 43)', async () => {
		expect(Buffer.byteLength(JSON.stringify(HOSTILE))).toBeGreaterThan(5 * 1024 * 1024);
		const item = await stage.claimed();
		await stage.complete(item, { result: HOSTILE, externalRef: "x,'y $1" }, path);
		const answer = await stage.claim(again(item), {}, path);
		expect(answer).toMatchObject({ status: 'duplicate', externalRef: "x,'y $1" });
		expect(JSON.stringify(answer.result) === JSON.stringify(HOSTILE)).toBe(true);
		expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
		expect(Object.getPrototypeOf(answer.result)).toBe(Object.prototype);
		// its own member of that name, not its prototype
		expect(Object.keys(answer.result as object)).toContain('__proto__');
	});

	test('are kept byte-equal as payload', async () => {
		const small = { ...(HOSTILE as object), large: 'é' };
		const { text, warnings } = payloadText(small);
		expect(warnings).toEqual([]);
		const item = await stage.claimed({ ...newWork(), payload: text }, {}, path);
		const [row] = await stage.query<{ kept: string }>(
			'select payload::text as kept from idempotency.work_log where work_id = $1',
			[item.workId],
		);
		expect(row.kept).toBe(text);
	});

	const circular: Record<string, unknown> = { name: 'loop' };
	circular.self = circular;
	const MARKED: Array<[string, unknown, unknown, RegExp]> = [
		[
			'a circular value',
			circular,
			{ name: 'loop', self: { $notStored: 'circular reference' } },
			/circular/,
		],
		['a BigInt', { id: 9007199254740993n }, { id: '9007199254740993' }, /BigInt/],
		['an invalid date', { at: new Date(NaN) }, { at: null }, /invalid date/],
		[
			'a number that JSON has not',
			{ n: [NaN, Infinity, 1] },
			{ n: [null, null, 1] },
			/NaN or infinite/,
		],
		[
			'a function beside a BigInt',
			{ f: () => 1, big: 1n },
			{ f: { $notStored: 'function' }, big: '1' },
			/function/,
		],
		[
			'a member that throws',
			{
				get bad(): string {
					throw new Error('card 4111');
				},
				good: 1,
			},
			{ $notStored: 'not readable' },
			/could not be read/,
		],
		[
			'more than 16 MB',
			{ text: 'x'.repeat(17_000_000) },
			{ $notStored: 'too large', bytes: 17_000_011, limit: 16_777_216 },
			/too large/,
		],
	];
	test.each(MARKED)(
		'%s is stored as said, with a warning, and the work is done',
		async (_, result, stored, warning) => {
			const item = await stage.claimed();
			const completion = await stage.complete(item, { result }, path);
			expect(completion).toMatchObject({ status: 'completed', state: 'done' });
			expect(completion.warnings.join()).toMatch(warning);
			expect(completion.warnings.join()).not.toContain('4111');
			expect((await stage.claim(again(item), {}, path)).result).toEqual(stored);
		},
	);

	test('dates come back as UTC ISO, nulls without a warning (case 45)', async () => {
		const item = await stage.claimed();
		const result = { at: new Date(Date.UTC(2026, 0, 1, 10)), none: null, gone: undefined };
		expect((await stage.complete(item, { result }, path)).warnings).toEqual([]);
		expect((await stage.claim(again(item), {}, path)).result).toEqual({
			at: '2026-01-01T10:00:00.000Z',
			none: null,
		});
	});
});

test('one bad value spoils nothing for the rest of its batch', async () => {
	const items = Array.from({ length: 4 }, () => newWork());
	await stage.works.claim(items, POLICY);
	const loop: unknown[] = [];
	loop.push(loop);
	const results = [1n, loop, { text: 'a\0b' }, { good: '😀' }];
	const completions = await stage.works.complete(
		items.map((item, i) => ({ ...item, result: results[i] })),
		CALLER,
	);
	expect(completions.map(({ status, warnings }) => [status, warnings.length])).toEqual([
		['completed', 1],
		['completed', 1],
		['completed', 0],
		['completed', 0],
	]);
});

test('numbers of the log beyond 2^53 are read exactly (case 42)', async () => {
	await stage.query(
		`select setval(pg_get_serial_sequence('idempotency.decision_log', 'id'), 9007199254740992)`,
	);
	const item = await stage.claimed();
	await stage.complete(item);
	expect((await stage.log(item)).map(({ id }) => id)).toEqual([
		'9007199254740993',
		'9007199254740994',
	]);
});

test('100,000 items in one claim and one completion: chunks in order, memory bounded', async () => {
	await stage.query(
		'create table before_many as select coalesce(max(id), 0) as id from idempotency.decision_log',
	);
	const job: ManyJob = { settings: stage.settings, items: 100_000, bytes: 2_000 };
	// the payloads and results, written out at once, would take 200 MB each
	const { claims, completions, wrong, peakMegabytes } = await runChild<ManyAnswer>(
		'many-items.ts',
		job,
		{ flags: ['--max-old-space-size=260'] },
	);
	expect({ claims, completions, wrong }).toEqual({
		claims: { claimed: 100_000 },
		completions: { completed: 100_000 },
		wrong: 0,
	});
	expect(peakMegabytes).toBeLessThan(260);
	// the log tells in which order they came: each work within its chunk of 5,000
	const rows = await stage.query(
		`select event, count(*)::int as chunks, bool_and(size = 5000) as full, bool_and(last - first = 4999) as whole
		from (
			select event, w.key::int / 5000 as chunk, count(*) as size,
				min(d.n) as first, max(d.n) as last, min(d.n) / 5000 as place
			from (
				select event, work_id, row_number() over (partition by event order by id) - 1 as n
				from idempotency.decision_log where id > (select id from before_many)
			) d
			join idempotency.work_log w using (work_id)
			group by event, w.key::int / 5000
		) c where place = chunk group by event order by event`,
	);
	expect(rows).toEqual([
		{ event: 'claim', chunks: 20, full: true, whole: true },
		{ event: 'complete', chunks: 20, full: true, whole: true },
	]);
}, 90_000);

test('identities, windows and times are the same on machines in other time zones (cases 45, 99)', async () => {
	const zones = ['UTC', 'America/Chicago', 'Asia/Kolkata'];
	const done = await stage.claimed();
	await stage.complete(done, { result: { at: '2025-08-19T00:00:00' } });
	await stage.age(done, 3_500);
	const old = await stage.claimed();
	await stage.complete(old, { result: 1 });
	await stage.age(old, 3_700);
	const { completed_at } = await stage.row(done);

	const job: ZoneJob = { settings: stage.settings, workId: done.workId, windowSeconds: 3_600 };
	const answers: ZoneAnswer[] = [];
	for (const TZ of zones)
		answers.push(await runChild<ZoneAnswer>('time-zone.ts', job, { env: { TZ } }));
	expect(answers.map(({ offset }) => offset)).toEqual([0, 360, -330]);
	for (const answer of answers) {
		expect(answer).toMatchObject({
			ids: answers[0].ids,
			duplicate: {
				status: 'duplicate',
				result: { at: '2025-08-19T00:00:00' },
				completedAt: completed_at?.toISOString(),
			},
		});
		expect(new Set(answer.ids).size).toBe(1);
		expect(answer.leaseSeconds).toBeGreaterThan(3_590);
		expect(answer.leaseSeconds).toBeLessThan(3_610);
		expect(answer.stored).toEqual({
			plain: '2025-08-19T00:00:00',
			date: '2026-01-01T10:00:00.000Z',
		});
	}
	// outside the window it is claimed anew, wherever it is asked from
	const late: ZoneJob = { ...job, workId: old.workId };
	const { duplicate } = await runChild<ZoneAnswer>('time-zone.ts', late, {
		env: { TZ: 'Asia/Kolkata' },
	});
	expect(duplicate).toMatchObject({ status: 'claimed', generation: 2 });
});
