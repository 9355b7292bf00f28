import { DateTime } from 'luxon';

import { comparableText, foundText, isPresent } from '../../ledger';

/** Section 7's list, which the node shows: what counts as present. */
describe('case 130: what counts as present', () => {
	const circular: Record<string, unknown> = {};
	circular.self = circular;
	const unreadable = new Proxy(
		{},
		{
			ownKeys: () => {
				throw new Error('unreadable');
			},
		},
	);

	test.each<[string, unknown]>([
		['0', 0],
		['-0', -0],
		['false', false],
		['the text 0', '0'],
		['the text false', 'false'],
		['a text', ' x '],
		['a BigInt', 1n],
		['a date', new Date('2026-01-01')],
		['a Luxon date', DateTime.fromISO('2026-01-01')],
		['a list with one value', [null, 0]],
		['a list of a list with a value', [[], ['x']]],
		['an object with one value', { a: null, b: false }],
		['text that only begins like a lost value', 'null-7'],
		['a list with a value as text', '[null, 0]'],
		['a text about expressions', 'Use {{ $json.id }} there'],
	])('%s does', (_, value) => {
		expect(isPresent(value)).toBe(true);
	});

	test.each<[string, unknown]>([
		['undefined', undefined],
		['null', null],
		['empty text', ''],
		['white space', ' \t\n '],
		['invisible characters', '\u200b\u00a0\ufeff'],
		['the text null', 'null'],
		['the text undefined', ' undefined '],
		['the text [object Object]', '[object Object]'],
		['a text that an object was glued into', 'INV-[object Object]'],
		['blanks that count as letters', '\u3164\u115f\u2800'],
		['the error of a spreadsheet', '#N/A'],
		['the text NaN', 'NaN'],
		['an empty list as text', '[]'],
		['a list of null as text', '[null, null]'],
		['an empty object as text', '{ }'],
		['empty text in quotes', '""'],
		['an expression that nobody resolved', '{{ $json.envelope_id }}'],
		['one with its sign', '={{ $json.envelope_id }}'],
		['a merge field without a value', ' {{envelope_id}} '],
		['NaN', Number.NaN],
		['an infinity', Number.POSITIVE_INFINITY],
		['an invalid date', new Date('nope')],
		['an invalid Luxon date', DateTime.fromISO('nope')],
		['an empty list', []],
		['a list of null', [null]],
		['a list of empty text', ['']],
		['a list of empty lists', [[], [null, {}]]],
		['an empty object', {}],
		['an object of nothing', { id: null, lines: [] }],
		['a circular value of nothing', circular],
		['a value that cannot be read', unreadable],
		['a function', () => 1],
	])('%s does not', (_, value) => {
		expect(isPresent(value)).toBe(false);
	});
});

test('values of any kind compare as one text, or as none', () => {
	expect([7, '7', ' 7 ', 7n, new String('7')].map(comparableText)).toEqual([
		'7',
		'7',
		'7',
		'7',
		'7',
	]);
	expect([true, -0, 1e21].map(comparableText)).toEqual(['true', '0', null]);
	expect(comparableText('e\u0301')).toBe('\u00e9');
	expect(comparableText(new Date('2026-01-01'))).toBe('2026-01-01T00:00:00.000Z');
	expect([undefined, null, [], ['a'], { a: 1 }, new Date('nope')].map(comparableText)).toEqual(
		Array(6).fill(null),
	);
});

test('what was found is shown short, and without the password in an address', () => {
	expect(foundText('x'.repeat(5_000_000))).toHaveLength(80);
	expect(foundText('https://me:secret@host/x')).toBe('"https://***@host/x"');
	expect(
		[undefined, null, '', [], [null], [1, 2], {}, { a: null }, { a: 1 }].map(foundText),
	).toEqual([
		...['nothing', 'null', '""', 'an empty list', 'a list of nothing', 'a list of 2'],
		...['an empty object', 'an object of nothing', 'an object'],
	]);
});
