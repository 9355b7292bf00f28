import { isDeepStrictEqual } from 'node:util';

import fc from 'fast-check';

import { canonicalJson, identifyByContent, identifyByKey } from '../../ledger/identity';

const scope = { kind: 'invoice' };

/** JSON values over a small alphabet, so that two of them are often nearly or quite equal. */
const text = fc.oneof(
	fc.string({ unit: fc.constantFrom('a', 'b', '"', ',', ':', '[', '{', '\u0000', '\\', '1') }),
	fc.string({ unit: 'grapheme' }),
	fc.constantFrom(
		'',
		'1',
		'null',
		'__proto__',
		'{"a":1}',
		'[1]',
		'é',
		'e\u0301',
		'2026-01-01T10:00:00+01:00',
	),
);
const number = fc.oneof(
	fc.maxSafeInteger(),
	fc.constantFrom(0, -0, 1, 1.5, 1e-7),
	fc
		.double({ noNaN: true, noDefaultInfinity: true })
		.filter((value) => Math.abs(value) <= Number.MAX_SAFE_INTEGER),
);
const json = fc.letrec<{ value: unknown }>((tie) => ({
	value: fc.oneof(
		{ maxDepth: 4, withCrossShrink: true },
		fc.oneof(text, number, fc.boolean(), fc.constant(null)),
		fc.array(tie('value'), { maxLength: 4 }),
		fc.array(fc.tuple(text, tie('value')), { maxLength: 4 }).map((members) => fromMembers(members)),
	),
})).value;

/** An object without names that would clash in NFC, which is refused. */
function fromMembers(members: ReadonlyArray<readonly [string, unknown]>): object {
	const unique = new Map(members.map(([name, value]) => [name.normalize('NFC'), value]));
	return Object.fromEntries([...unique].map(([name, value]) => [name, value]));
}

function reversed(value: unknown): unknown {
	if (Array.isArray(value)) return value.map(reversed);
	if (typeof value !== 'object' || value === null) return value;
	return Object.fromEntries(
		Object.entries(value)
			.reverse()
			.map(([name, member]) => [name, reversed(member)]),
	);
}

/** The oracle: the same reading rules, as a structure and without any text form. */
function meaning(value: unknown): unknown {
	if (typeof value === 'string') return value.trim().normalize('NFC');
	if (typeof value === 'number') return value === 0 ? 0 : value;
	if (Array.isArray(value)) return value.map(meaning);
	if (typeof value !== 'object' || value === null) return value;
	return new Map(
		Object.entries(value).map(([name, member]) => [name.normalize('NFC'), meaning(member)]),
	);
}

const everyOption = fc.record({
	readNumbers: fc.boolean(),
	readDates: fc.boolean(),
	readJson: fc.boolean(),
	collapseWhiteSpace: fc.boolean(),
	arraysAsSets: fc.boolean(),
});

describe('properties of canonical content', () => {
	test('the order of fields never matters', () => {
		fc.assert(
			fc.property(json, everyOption, (value, options) => {
				expect(canonicalJson(reversed(value), options)).toBe(canonicalJson(value, options));
			}),
		);
	});

	test('two values have one text exactly if they mean the same: nothing collides', () => {
		const pair = fc.oneof(
			fc.tuple(json, json),
			json.map((value): [unknown, unknown] => [value, reversed(value)]),
			// The same value with its text form in place of a part of it.
			json.map((value): [unknown, unknown] => [[value], [JSON.stringify(value)]]),
		);
		fc.assert(
			fc.property(pair, ([a, b]) => {
				expect(canonicalJson(a) === canonicalJson(b)).toBe(
					isDeepStrictEqual(meaning(a), meaning(b)),
				);
			}),
			{ numRuns: 1000 },
		);
	});

	test('reading what was read changes nothing', () => {
		fc.assert(
			fc.property(json, everyOption, (value, options) => {
				const once = canonicalJson(value, options);
				expect(canonicalJson(JSON.parse(once), options)).toBe(once);
				expect(canonicalJson(JSON.parse(once))).toBe(
					canonicalJson(JSON.parse(canonicalJson(JSON.parse(once)))),
				);
			}),
			{ numRuns: 500 },
		);
	});

	test('with arrays as sets, order and repetition never matter', () => {
		const options = { arraysAsSets: true };
		fc.assert(
			fc.property(fc.array(json, { maxLength: 5 }), (list) => {
				expect(canonicalJson([...list].reverse().concat(list), options)).toBe(
					canonicalJson(list, options),
				);
			}),
		);
	});

	test('volatile fields never matter, whatever they hold', () => {
		fc.assert(
			fc.property(json, json, (value, noise) => {
				const content = { id: 1, deep: { value } };
				const noisy = { received_at: noise, id: 1, deep: { traceId: noise, value } };
				expect(identifyByContent(scope, noisy).workId).toBe(
					identifyByContent(scope, content).workId,
				);
			}),
		);
	});

	test('what is already canonical JSON is left byte for byte', () => {
		expect(canonicalJson({ b: [1, { d: 'x', c: null }], a: true })).toBe(
			'{"a":true,"b":[1,{"c":null,"d":"x"}]}',
		);
	});
});

describe('properties of keys', () => {
	const keyText = text.filter((value) => !/^(?:|null)$/.test(value.trim()));

	test('one key and several keys never collide', () => {
		fc.assert(
			fc.property(keyText, fc.array(keyText, { minLength: 2, maxLength: 4 }), (single, several) => {
				const parts = several.map((value, index) => ({ name: `f${index}`, value }));
				const composite = identifyByKey(scope, parts);
				const aimed = [single, composite.canonical, JSON.stringify(several)];
				for (const value of aimed) {
					expect(identifyByKey(scope, [{ name: 'k', value }]).workId).not.toBe(composite.workId);
				}
			}),
			{ numRuns: 500 },
		);
	});

	test('two single keys are one work exactly if their clean texts are equal', () => {
		fc.assert(
			fc.property(keyText, keyText, (a, b) => {
				const id = (value: string): string =>
					identifyByKey(scope, [{ name: 'k', value }]).canonical;
				expect(id(a) === id(b)).toBe(a.trim().normalize('NFC') === b.trim().normalize('NFC'));
			}),
			{ numRuns: 500 },
		);
	});

	test('a safe integer and its text are one work', () => {
		fc.assert(
			fc.property(fc.maxSafeInteger(), (value) => {
				expect(identifyByKey(scope, [{ name: 'k', value }]).workId).toBe(
					identifyByKey(scope, [{ name: 'k', value: String(value) }]).workId,
				);
			}),
		);
	});

	test('any finite number has a plain decimal text that means it', () => {
		fc.assert(
			fc.property(number, (value) => {
				const { canonical } = identifyByKey(scope, [{ name: 'k', value }]);
				expect(canonical).toMatch(/^-?\d+(?:\.\d+)?$/);
				expect(Number(canonical)).toBe(value + 0);
			}),
		);
	});
});
