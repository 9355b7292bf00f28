import {
	applyRule,
	isStatusField,
	STATUS_FIELD_PATTERN,
	type EvidenceRule,
} from '../../ledger/evidence/rules';
import { PatternMatcher } from '../../ledger/evidence/pattern';

const apply = (rule: EvidenceRule, record: Record<string, unknown>) =>
	applyRule(rule, record, new PatternMatcher());

const outcome = (rule: EvidenceRule, value: unknown) => apply(rule, { f: value }).outcome;

describe('a field', () => {
	const present = (field: string): EvidenceRule => ({ check: 'present', field });

	test('literally called so comes before the path', () => {
		const record = { 'deal.id': '', deal: { id: 'path' } };
		expect(apply(present('deal.id'), record).outcome).toBe('fails');
		expect(apply(present('deal.id'), { deal: { id: 'path' } }).outcome).toBe('holds');
		expect(apply(present('lines[0].sku'), { lines: [{ sku: 0 }] }).outcome).toBe('holds');
	});

	test.each([
		'__proto__',
		'constructor',
		'constructor.name',
		'toString',
		'a.__proto__',
		'a.length',
		'a.constructor',
	])('inherited by the record is no evidence: %s', (field) => {
		expect(apply(present(field), { a: [1] }).outcome).toBe('fails');
	});

	test.each([
		'deal.envelope_id',
		'deal..id',
		'.id',
		'id.',
		'lines[',
		'lines[x]',
		'a[0]b',
		'[object Object]',
	])('case 128: a path that is absent or odd does not hold: %s', (field) => {
		expect(apply(present(field), { deal: {}, lines: [1], id: 'x' })).toMatchObject({
			outcome: 'fails',
			reason: expect.stringMatching(/missing|no path/),
		});
	});

	test('without a name is a rule that cannot be applied', () => {
		expect(apply(present('  '), { '  ': 1 })).toMatchObject({ outcome: 'broken' });
	});
});

describe('equals', () => {
	const equals = (value: unknown): EvidenceRule => ({ check: 'equals', field: 'f', value });

	test.each([
		[7, '7'],
		['7', 7],
		[true, 'true'],
		[0, '0'],
		[false, 'false'],
		['approved', ' approved '],
		['e\u0301', '\u00e9'],
	])('compares text: %p and %p are one', (expected, value) => {
		expect(outcome(equals(expected), value)).toBe('holds');
	});

	test.each([
		['approved', 'Approved'],
		['approved', 'not approved'],
		['7', '7.0'],
		['1', true],
		['approved', ['approved']],
		['9007199254740992', 9007199254740992],
	])('does not guess: %p and %p differ', (expected, value) => {
		expect(outcome(equals(expected), value)).toBe('fails');
	});

	test.each([undefined, null, '', 'undefined', [], {}])(
		'with nothing to compare with (%p) cannot be applied, even where the field holds the same',
		(expected) => {
			expect(outcome(equals(expected), 'x')).toBe('broken');
			expect(outcome(equals(expected), expected)).not.toBe('holds');
		},
	);
});

describe('compares as number', () => {
	const rule = (comparison: 'eq' | 'gt' | 'gte' | 'lt' | 'lte', value: unknown): EvidenceRule => ({
		check: 'number',
		field: 'f',
		comparison,
		value,
	});

	test.each([
		['gt', 10, 10.5, 10],
		['gte', '10', 10, 9.99],
		['lt', 0, -1, 0],
		['lte', '0.5', '0.5', '0.51'],
		['eq', 1000, '1e3', 1001],
		['gte', 0, 0, -1],
	] as const)('%s %p: %p holds, %p does not', (comparison, limit, good, bad) => {
		expect(outcome(rule(comparison, limit), good)).toBe('holds');
		expect(outcome(rule(comparison, limit), bad)).toBe('fails');
	});

	test.each([
		'12,5',
		'1,000',
		'1.000,50',
		'007',
		'12 EUR',
		'0x10',
		' ',
		'Infinity',
		true,
		[12],
		2 ** 53,
		'9007199254740993',
	])('%p is no number, so it is neither above nor below', (value) => {
		for (const comparison of ['gt', 'gte', 'lt', 'lte', 'eq'] as const) {
			expect(outcome(rule(comparison, 12), value)).toBe('fails');
		}
	});

	test('a limit that is no number cannot be applied', () => {
		expect(apply(rule('gte', '12,5'), { f: 100 })).toMatchObject({
			outcome: 'broken',
			reason: expect.stringContaining('"12,5", which is not a number such as 12.5'),
		});
	});
});

describe('compares as date', () => {
	const rule = (
		comparison: 'eq' | 'gt' | 'gte' | 'lt' | 'lte',
		value: unknown,
		zone?: string,
	): EvidenceRule => ({ check: 'date', field: 'f', comparison, value, zone });

	test.each([
		['gte', '2026-01-31', '2026-01-31', '2026-01-30'],
		['lt', '2026-01-31', '2026-01-30', '2026-01-31'],
		['gt', '2026-01-31T10:00:00Z', '2026-01-31T11:00:01+01:00', '2026-01-31T11:00:00+01:00'],
		[
			'eq',
			'2026-01-31T10:00:00Z',
			new Date('2026-01-31T10:00:00Z'),
			new Date('2026-01-31T10:00:00.001Z'),
		],
		['lte', '2026-01-31T10:00:00.5Z', '2026-01-31T10:00:00.5Z', '2026-01-31T10:00:00.5000001Z'],
	] as const)('%s %p: %p holds, %p does not', (comparison, limit, good, bad) => {
		expect(outcome(rule(comparison, limit), good)).toBe('holds');
		expect(outcome(rule(comparison, limit), bad)).toBe('fails');
	});

	test.each([
		'05/06/2026',
		'5.6.2026',
		'2026-02-30',
		'2026-1-5',
		'today',
		20260105,
		1767225600000,
		'1767225600',
		'Jan 5 2026',
		'2026-01-31T10:00:00',
		new Date('nope'),
	])('%p can be read in two ways or none, so it is neither before nor after', (value) => {
		for (const comparison of ['gt', 'gte', 'lt', 'lte', 'eq'] as const) {
			expect(outcome(rule(comparison, '2026-01-31T10:00:00Z'), value)).toBe('fails');
		}
	});

	test('a day and a moment are compared in the time zone of the rule, and not without one', () => {
		const late = '2026-01-31T23:30:00Z';
		expect(outcome(rule('eq', '2026-01-31'), late)).toBe('fails');
		expect(outcome(rule('gt', '2026-01-31'), late)).toBe('fails');
		expect(outcome(rule('eq', '2026-01-31', 'UTC'), late)).toBe('holds');
		expect(outcome(rule('eq', '2026-02-01', 'Europe/Berlin'), late)).toBe('holds');
		expect(outcome(rule('lt', late, 'Europe/Berlin'), '2026-01-31')).toBe('holds');
	});

	test('a time without a zone is read in that of the rule, but not where clocks show it twice or never', () => {
		const at = (text: string, zone?: string) =>
			apply(rule('eq', '2026-07-01T10:00:00Z', zone), { f: text });
		expect(at('2026-07-01T12:00:00', 'Europe/Berlin').outcome).toBe('holds');
		expect(at('2026-07-01 12:00', 'Europe/Berlin').outcome).toBe('holds');
		expect(at('2026-07-01T12:00:00.1', 'Europe/Berlin').outcome).toBe('fails');
		expect(at('2026-07-01T12:00:00')).toMatchObject({
			reason: expect.stringContaining('time zone'),
		});
		for (const text of ['2026-03-29T02:30:00', '2026-10-25T02:30:00', '2026-02-30T10:00:00']) {
			expect(at(text, 'Europe/Berlin')).toMatchObject({
				outcome: 'fails',
				reason: expect.stringContaining('does not exist, or exists twice, in Europe/Berlin'),
			});
		}
	});

	test('a limit or zone that cannot be read cannot be applied', () => {
		expect(outcome(rule('gt', '05/06/2026'), '2026-01-01')).toBe('broken');
		expect(outcome(rule('gt', undefined), '2026-01-01')).toBe('broken');
		expect(outcome(rule('gt', '2026-01-01', 'Mars/Base'), '2026-01-01')).toBe('broken');
	});
});

describe('matches a pattern', () => {
	const rule = (pattern: string, ignoreCase = false): EvidenceRule => ({
		check: 'matches',
		field: 'f',
		pattern,
		ignoreCase,
	});

	test('as a whole: what only contains it does not match', () => {
		expect(outcome(rule('INV-[0-9]+'), 'INV-7')).toBe('holds');
		expect(outcome(rule('INV-[0-9]+'), 'no INV-7 yet')).toBe('fails');
		expect(outcome(rule('INV|REF'), 'INVOICE')).toBe('fails');
		expect(outcome(rule('inv-7', true), 'INV-7')).toBe('holds');
		expect(outcome(rule('[0-9]+'), 1001)).toBe('holds');
		expect(outcome(rule('.*'), ['INV-7'])).toBe('fails');
	});

	test.each([
		['[', 'cannot be read'],
		['a)(b', 'cannot be read'],
		['abc\\', 'cannot be read'],
		['', 'is empty'],
		['/^INV-[0-9]+$/i', 'between slashes'],
		['x'.repeat(1_001), 'longer than 1000'],
	])('%p cannot be applied', (pattern, words) => {
		expect(apply(rule(pattern), { f: 'INV-7' })).toMatchObject({
			outcome: 'broken',
			reason: expect.stringContaining(words),
		});
	});

	const BAD = '(a+)+b';
	const SLOW = 'a'.repeat(40);

	test('one that would take for ever ends after a tenth of a second, and nothing passes', () => {
		const startedAt = performance.now();
		expect(apply(rule(BAD), { f: SLOW })).toMatchObject({
			outcome: 'broken',
			reason: expect.stringContaining('takes longer than 100 ms on this value'),
		});
		expect(performance.now() - startedAt).toBeLessThan(2_000);
		// the next one is tried as if nothing had happened
		expect(outcome(rule('a+'), SLOW)).toBe('holds');
	});

	test('a thousand items with such values take two seconds together, not two minutes', () => {
		const patterns = new PatternMatcher();
		const before = process.cpuUsage();
		const findings = Array.from({ length: 1_000 }, () =>
			applyRule(rule(BAD), { f: SLOW }, patterns),
		);
		// of the processor's time: others may be at work here, too
		const { user, system } = process.cpuUsage(before);
		expect((user + system) / 1000).toBeLessThan(6_000);
		expect(findings.every((finding) => finding.outcome === 'broken')).toBe(true);
		expect(findings[999]).toMatchObject({ reason: expect.stringContaining('was not tried') });
	});

	test('ten thousand ordinary values are all tried', () => {
		const patterns = new PatternMatcher();
		const findings = Array.from({ length: 10_000 }, (_, i) =>
			applyRule(rule('INV-[0-9]+'), { f: `INV-${i}` }, patterns),
		);
		expect(findings.every((finding) => finding.outcome === 'holds')).toBe(true);
	});
});

test('a rule of an unknown sort or comparison cannot be applied', () => {
	expect(apply({ check: 'smells', field: 'f' } as never, { f: 1 }).outcome).toBe('broken');
	for (const comparison of ['near', 'toString', undefined]) {
		const rule = { check: 'number', field: 'f', comparison, value: 1 } as never;
		expect(apply(rule, { f: 1 }).outcome).toBe('broken');
	}
});

describe('work of the ledger', () => {
	const done = (work: object): EvidenceRule => ({
		check: 'done',
		work: { kind: 'invoice', ...work },
	});

	test('is named as Claim Work names it', () => {
		const asked = apply(done({ keyFields: ['order'] }), { order: 1001 });
		expect(asked).toMatchObject({
			outcome: 'asks',
			question: {
				workId: 'a28b0a8aa78e0730d346184ef17e20ee07d5da2296c18d8a929b25331c8584e3',
				reference: null,
			},
		});
		expect(apply(done({ key: '1001' }), {})).toEqual(asked);
	});

	test('that the record does not name fails; that the rule does not name cannot be applied', () => {
		expect(apply(done({ keyFields: ['order'] }), {}).outcome).toBe('fails');
		expect(apply(done({ keyFields: ['order'] }), { order: 'undefined' }).outcome).toBe('fails');
		expect(apply(done({ key: undefined }), {}).outcome).toBe('fails');
		expect(apply(done({ keyFields: [] }), { order: 1 }).outcome).toBe('broken');
		expect(apply(done({ kind: '', keyFields: ['order'] }), { order: 1 }).outcome).toBe('broken');
	});
});

describe('a field that holds a stage or status', () => {
	const suspicious = [
		...['stage', 'status', 'Status', 'dealstage', 'deal_stage', 'dealStage', 'hs_pipeline_stage'],
		...['lifecyclestage', 'StageName', 'stage_id', 'deal.stage', 'lines[0].status', 'work.status'],
		...['state', 'phase', 'pipeline', 'board column', 'invoice-status'],
	];
	const evidence = [
		...['envelope_id', 'invoice_no', 'approver', 'decision', 'statement', 'estate', 'phased_out'],
		...['status.invoice_id', 'columns_total', 'invoice.number'],
	];

	test.each(suspicious)('is recognised: %s', (field) => {
		expect(isStatusField(field)).toBe(true);
	});

	test.each(evidence)('is not suspected: %s', (field) => {
		expect(isStatusField(field)).toBe(false);
	});

	test('the pattern of the form warns of the usual names, and of no evidence', () => {
		const warns = (field: string) => new RegExp(STATUS_FIELD_PATTERN).test(field);
		expect(evidence.filter(warns)).toEqual([]);
		expect(suspicious.filter((field) => !warns(field))).toEqual([]);
	});
});
