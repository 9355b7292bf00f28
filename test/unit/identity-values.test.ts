import { createHash } from 'node:crypto';

import { DateTime, Duration } from 'luxon';

import type { KeyPart, ReadingOptions } from '../../ledger/identity';
import {
	canonicalJson,
	identifyByContent,
	identifyByKey,
	identifyByUrl,
	IdentityRefusal,
	isOwnField,
	workIdOf,
} from '../../ledger/identity';

const scope = { kind: 'invoice' };

const keyOf = (value: unknown, options?: ReadingOptions) =>
	identifyByKey(scope, [{ name: 'order_id', value }], options);

function refusal(run: () => unknown): IdentityRefusal {
	try {
		run();
	} catch (error) {
		if (error instanceof IdentityRefusal) return error;
		throw error;
	}
	throw new Error('was not refused');
}

describe('one key', () => {
	test('"7", 7, 7n and "7 " are one id, "07" is another (case 27)', () => {
		const ids = ['7', 7, 7n, '7 ', '07'].map((value) => keyOf(value).workId);
		expect(new Set(ids.slice(0, 4)).size).toBe(1);
		expect(ids[4]).not.toBe(ids[0]);
	});

	test('in a composite and in content, "7" and 7 stay apart (case 27)', () => {
		const composite = (value: unknown): string =>
			identifyByKey(scope, [
				{ name: 'a', value: 'x' },
				{ name: 'b', value },
			]).workId;
		expect(composite('7')).not.toBe(composite(7));
		expect(identifyByContent(scope, { a: '7' }).workId).not.toBe(
			identifyByContent(scope, { a: 7 }).workId,
		);
	});

	test('a field that is not there is refused, never hashed (case 101)', () => {
		for (const value of [undefined, null, '', ' \t', 'undefined', 'null', [], [undefined]]) {
			const { field, message } = refusal(() => keyOf(value));
			expect(field).toMatch(/^order_id/);
			expect(message).toContain('order_id');
		}
	});

	test('two 19-digit ids that became one number are refused, with the cure (case 94, fact S10)', () => {
		const rounded = JSON.parse('[7615917337495251231,7615917337495251232]') as number[];
		expect(rounded[0]).toBe(rounded[1]);
		for (const value of [...rounded, -rounded[0], 2 ** 53, 1e21, 1e300]) {
			const { code, cure } = refusal(() => keyOf(value));
			expect(code).toBe('unsafe_integer');
			expect(cure).toContain('ask the API for a string id');
		}
		expect(keyOf('7615917337495251231').workId).not.toBe(keyOf('7615917337495251232').workId);
		expect(keyOf(7615917337495251231n).workId).toBe(keyOf('7615917337495251231').workId);
	});

	test('-0 is 0, and NaN or an infinity is refused instead of becoming null (fact S10)', () => {
		expect(keyOf(-0).canonical).toBe('0');
		expect(canonicalJson({ n: -0 })).toBe('{"n":0}');
		for (const value of [NaN, Infinity, -Infinity]) {
			expect(refusal(() => keyOf(value)).code).toBe('not_finite');
			const nested = refusal(() => identifyByContent(scope, { lines: [{ price: value }] }));
			expect([nested.code, nested.field]).toEqual(['not_finite', 'lines[0].price']);
		}
	});

	test('decimals never have an exponent', () => {
		expect(keyOf(1e-7).canonical).toBe('0.0000001');
		expect(keyOf(-1.5e-10).canonical).toBe('-0.00000000015');
		expect(Number(keyOf(5e-324).canonical)).toBe(5e-324);
		expect(keyOf(5e-324).canonical).not.toContain('e');
	});

	test('functions, symbols and objects are refused', () => {
		expect(refusal(() => keyOf(() => 1)).code).toBe('unsupported_type');
		expect(refusal(() => keyOf(Symbol('x'))).code).toBe('unsupported_type');
		expect(refusal(() => keyOf({ id: 1 })).code).toBe('object_key');
		expect(refusal(() => keyOf([{ id: 1 }])).code).toBe('object_key');
		expect(refusal(() => keyOf(new Map())).code).toBe('object_key');
	});

	test('a composite names the part that is missing', () => {
		const parts: KeyPart[] = [
			{ name: 'order_id', value: '1' },
			{ name: 'customer.id', value: undefined },
		];
		const { code, field, message } = refusal(() => identifyByKey(scope, parts));
		expect([code, field]).toEqual(['missing', 'customer.id']);
		expect(message).toContain('customer.id');
	});

	test('a list that contains itself is refused, not followed', () => {
		const list: unknown[] = [];
		list.push(list);
		expect(refusal(() => keyOf(list)).code).toBe('object_key');
		expect(refusal(() => keyOf([1, list])).code).toBe('circular');
	});

	test('a text in brackets never equals a composite or a list', () => {
		const ids = [
			keyOf('["a","b"]'),
			keyOf(['a', 'b']),
			keyOf('["a"]'),
			keyOf(['["a"]', 'b']),
			keyOf('["a","b"]', { readJson: true }),
			keyOf('{"a":1}'),
			keyOf('{"a":1}', { readJson: true }),
		].map(({ workId }) => workId);
		expect(new Set(ids).size).toBe(ids.length);
	});

	test('with the sets option the order of a list does not matter, that of fields does', () => {
		const options = { arraysAsSets: true };
		expect(keyOf(['b', 'a', 'b'], options).workId).toBe(keyOf(['a', 'b'], options).workId);
		const two = (a: unknown, b: unknown): string =>
			identifyByKey(
				scope,
				[
					{ name: 'from', value: a },
					{ name: 'to', value: b },
				],
				options,
			).workId;
		expect(two('x', 'y')).not.toBe(two('y', 'x'));
	});
});

describe('the scope', () => {
	test('kind a with version b:c and kind a:b with version c cannot be mixed up (case 91)', () => {
		for (const bad of [
			{ kind: 'a', version: 'b:c' },
			{ kind: 'a:b', version: 'c' },
		]) {
			expect(refusal(() => identifyByKey(bad, [{ name: 'k', value: 1 }])).code).toBe('bad_scope');
			expect(refusal(() => workIdOf(bad.kind, bad.version, '1')).code).toBe('bad_scope');
			expect(refusal(() => identifyByContent(bad, { a: 1 })).code).toBe('bad_scope');
			expect(refusal(() => identifyByUrl(bad, 'https://a.example')).code).toBe('bad_scope');
		}
	});

	test('a name that is lost, broken or endless is refused', () => {
		const bad = ['', ' ', 'undefined', 'null', '[object Object]', 'NaN', 'a\u0000b', 'x\ud83d'];
		for (const kind of [...bad, 'x'.repeat(201), 7, null, undefined]) {
			const { code, field } = refusal(() => workIdOf(kind as string, 'v1', '1'));
			expect([code, field]).toEqual(['bad_scope', 'kind']);
		}
		expect(refusal(() => workIdOf('invoice', '', '1')).field).toBe('version');
		expect(workIdOf('x'.repeat(200), 'v1', '1')).toHaveLength(64);
	});
});

describe('canonical JSON', () => {
	test('a sorted replacer list gives different invoices one hash, this gives two (case 83, fact S2)', () => {
		const a = { id: 1, customer: { name: 'A' }, lines: [{ sku: 'S1' }] };
		const b = { id: 1, customer: { name: 'B' }, lines: [{ sku: 'S9' }] };
		const wellKnown = (value: object): string =>
			createHash('sha256')
				.update(JSON.stringify(value, Object.keys(value).sort()))
				.digest('hex');
		expect(wellKnown(a)).toBe(wellKnown(b));
		expect(identifyByContent(scope, a).workId).not.toBe(identifyByContent(scope, b).workId);
	});

	test('é as one code point or two is one id, as value and as name (case 87)', () => {
		const [nfc, nfd] = ['caf\u00e9', 'cafe\u0301'];
		expect(keyOf(nfc).workId).toBe(keyOf(nfd).workId);
		expect(canonicalJson({ [nfc]: nfc })).toBe(canonicalJson({ [nfd]: nfd }));
		expect(refusal(() => canonicalJson({ [nfc]: 1, [nfd]: 2 })).code).toBe('field_name_clash');
		expect(canonicalJson({ [nfc]: 1, [nfd]: undefined })).toBe(canonicalJson({ [nfc]: 1 }));
	});

	test('crafted texts do not collide (case 89)', () => {
		expect(canonicalJson({ a: '1', b: '2' })).not.toBe(canonicalJson({ a: '1"\u0000b:"2' }));
	});

	test('what JSON drops is dropped, what it writes as null is null', () => {
		const sparse: unknown[] = [1];
		sparse[2] = 3;
		expect(canonicalJson({ a: undefined, f: () => 1, s: Symbol('x'), b: 1 })).toBe('{"b":1}');
		expect(canonicalJson([undefined, () => 1, null])).toBe('[null,null,null]');
		expect(canonicalJson(sparse)).toBe('[1,null,3]');
	});

	test('dates, big integers, boxed values and errors have a text', () => {
		expect(canonicalJson({ d: new Date(0) })).toBe('{"d":"1970-01-01T00:00:00.000Z"}');
		expect(canonicalJson({ n: 9007199254740993n })).toBe('{"n":"9007199254740993"}');
		expect(canonicalJson([Object('x'), Object(7), Object(false)])).toBe('["x",7,false]');
		expect(canonicalJson(new TypeError('no'))).toBe('{"message":"no","name":"TypeError"}');
		expect(canonicalJson(new URL('https://a.example'))).toBe('"https://a.example/"');
		expect(canonicalJson(Duration.fromObject({ hours: 1 }))).toBe('"PT1H"');
	});

	test('what has no text of its own is refused with its place', () => {
		const bad = [new Map([[1, 2]]), new Set([1]), Buffer.from('x'), new Uint8Array(2), /x/];
		for (const value of [...bad, Promise.resolve(1), new ArrayBuffer(1)]) {
			const { code, field } = refusal(() => canonicalJson({ a: [value] }));
			expect([code, field]).toEqual(['unsupported_type', 'a[0]']);
		}
		expect(refusal(() => canonicalJson(undefined)).code).toBe('missing');
		expect(refusal(() => canonicalJson(() => 1)).code).toBe('unsupported_type');
	});

	test('__proto__ from JSON.parse is data and changes no prototype', () => {
		const hostile: unknown = JSON.parse('{"__proto__":{"isAdmin":true},"a":1}');
		expect(canonicalJson(hostile)).toBe('{"__proto__":{"isAdmin":true},"a":1}');
		expect(({} as { isAdmin?: boolean }).isAdmin).toBeUndefined();
		expect(canonicalJson(hostile)).not.toBe(canonicalJson({ a: 1 }));
	});

	test('toJSON is data when it is data, and followed when it is a function', () => {
		expect(canonicalJson({ toJSON: 'x' })).toBe('{"toJSON":"x"}');
		expect(canonicalJson({ a: { toJSON: () => ({ b: [1] }) } })).toBe('{"a":{"b":[1]}}');
		const endless = { toJSON: (): unknown => ({ toJSON: endless.toJSON }) };
		expect(refusal(() => canonicalJson(endless)).code).toBe('too_deep');
	});

	test('a value that contains itself is refused; one that is used twice is not', () => {
		const loop: Record<string, unknown> = { a: [{}] };
		(loop.a as unknown[])[0] = loop;
		expect(refusal(() => canonicalJson(loop)).code).toBe('circular');
		const shared = { x: 1 };
		expect(canonicalJson({ a: shared, b: [shared, shared] })).toBe(
			'{"a":{"x":1},"b":[{"x":1},{"x":1}]}',
		);
	});

	test('40 and 200 levels are read; 201 and 100,000 are refused without exhausting the stack', () => {
		const nested = (levels: number): unknown => {
			let value: unknown = 1;
			for (let level = 0; level < levels; level++) value = level % 2 ? [value] : { v: value };
			return value;
		};
		expect(canonicalJson(nested(40))).toBe(JSON.stringify(nested(40)));
		expect(canonicalJson(nested(200))).toBe(JSON.stringify(nested(200)));
		expect(refusal(() => canonicalJson(nested(201))).code).toBe('too_deep');
		expect(refusal(() => canonicalJson(nested(100_000))).code).toBe('too_deep');
		const text = '['.repeat(100_000) + ']'.repeat(100_000);
		expect(refusal(() => canonicalJson({ text }, { readJson: true })).code).toBe('too_deep');
	});

	test('a getter that throws is a refusal of this item, without its message', () => {
		const trap = {
			get secret(): string {
				throw new Error('password=hunter2');
			},
		};
		const { code, message } = refusal(() => canonicalJson({ trap }));
		expect(code).toBe('unreadable');
		expect(message).not.toContain('hunter2');
	});
});

describe('dates (case 99)', () => {
	const instant = '2026-01-01T10:00:00.000Z';

	test('Date and Luxon values of one instant are one id', () => {
		const values = [
			new Date(instant),
			DateTime.fromISO(instant, { zone: 'America/Chicago' }),
			DateTime.fromISO(instant, { zone: 'Asia/Kolkata', locale: 'hi' }),
			instant,
		];
		expect(new Set(values.map((value) => keyOf(value).workId)).size).toBe(1);
		expect(new Set(values.map((value) => canonicalJson({ value }))).size).toBe(1);
	});

	test('text is left alone unless the option is on', () => {
		const [utc, paris] = ['2026-01-01T10:00:00Z', '2026-01-01T11:00:00+01:00'];
		expect(keyOf(utc).workId).not.toBe(keyOf(paris).workId);
		const options = { readDates: true };
		expect(keyOf(utc, options).workId).toBe(keyOf(paris, options).workId);
		expect(keyOf(utc, options).workId).toBe(keyOf(new Date(instant)).workId);
	});

	test('invalid dates are refused', () => {
		for (const value of [new Date(NaN), DateTime.fromISO('yesterday'), DateTime.invalid('x')]) {
			expect(refusal(() => keyOf(value)).code).toBe('invalid_date');
			const nested = refusal(() => canonicalJson({ due: value }));
			expect([nested.code, nested.field]).toEqual(['invalid_date', 'due']);
		}
	});
});

describe('content', () => {
	const id = '0123456789abcdef'.repeat(4);

	test("this package's own fields never count, wherever a node or an Aggregate put them", () => {
		const own = { status: 'claimed', workId: id, token: 'fresh' };
		const decision = { status: 'replay', decisionKey: id };
		const plain = identifyByContent(scope, { order: { id: 1 }, lines: [{ n: 1 }] }).workId;
		const dressed = identifyByContent(scope, {
			order: { id: 1, work: own },
			lines: [{ n: 1, decision }],
			work: own,
			works: [own, own],
		}).workId;
		expect(dressed).toBe(plain);
		const named = { volatileFields: [] };
		expect(identifyByContent(scope, { a: 1, myClaim: own }, named).canonical).toBe('{"a":1}');
	});

	test('only what these nodes write is taken for theirs', () => {
		expect(isOwnField({ status: 'claimed', workId: id })).toBe(true);
		expect(isOwnField(Object.assign(Object.create(null), { status: '', decisionKey: id }))).toBe(
			true,
		);
		const inherited: unknown = Object.create({ status: 'claimed', workId: id });
		for (const value of [
			{ status: 'claimed' },
			{ status: 1, workId: id },
			{ status: 'claimed', workId: id.slice(1) },
			{ status: 'claimed', workId: `${id}0` },
			{ status: 'claimed', workId: id.toUpperCase() },
			inherited,
			[{ status: 'claimed', workId: id }],
			null,
			'claimed',
		]) {
			expect(isOwnField(value)).toBe(false);
		}
	});

	test('deliveries that differ in time and delivery id are one work (case 3)', () => {
		const delivery = (at: string, delivery_id: string): unknown => ({
			deal: 4711,
			stage: 3,
			delivery_id,
			meta: { timestamp: at, host: 'crm.example' },
			headers: { 'X-Request-Id': delivery_id },
		});
		expect(identifyByContent(scope, delivery('1', 'a')).workId).toBe(
			identifyByContent(scope, delivery('2', 'b')).workId,
		);
	});

	test('a path counts from the root, through lists with or without their level', () => {
		const content = { lines: [{ id: 1, n: { id: 2 } }], id: 3, other: { lines: { id: 4 } } };
		for (const pattern of ['lines[*].id', 'lines.*.id', 'lines.id', 'lines[0].id']) {
			expect(identifyByContent(scope, content, { volatileFields: [pattern] }).canonical).toBe(
				'{"id":3,"lines":[{"n":{"id":2}}],"other":{"lines":{"id":4}}}',
			);
		}
	});

	test('a wildcard keeps to whole words: *_at is no "format"', () => {
		const content = { format: 1, seenAt: 2, seen_at: 3, at: 4, flat: 5 };
		expect(identifyByContent(scope, content, { volatileFields: ['*_at'] }).canonical).toBe(
			'{"at":4,"flat":5,"format":1}',
		);
	});

	test('nothing left to tell items apart is refused (case 101)', () => {
		for (const content of [{}, [], null, { received_at: 1 }, { a: undefined }]) {
			expect(refusal(() => identifyByContent(scope, content)).code).toBe('empty_content');
		}
		for (const content of [
			...[{ body: {} }, { meta: { timestamp: 1 }, lines: [{ timestamp: 2 }, {}] }],
			...[{ email: null, phone: '' }, { email: ' \u200b', tags: [[]] }, { email: 'NULL' }],
		]) {
			expect(refusal(() => identifyByContent(scope, content)).code).toBe('empty_content');
		}
		for (const content of [{ a: 0 }, { a: false }, { a: [{ b: null }, { c: '-' }] }]) {
			expect(identifyByContent(scope, content).workId).toMatch(/^[0-9a-f]{64}$/);
		}
		expect(refusal(() => identifyByContent(scope, { a: 1 }, { volatileFields: ['*'] })).code).toBe(
			'empty_content',
		);
		expect(refusal(() => identifyByContent(scope, ' ')).code).toBe('empty');
		expect(refusal(() => identifyByContent(scope, '[object Object]')).code).toBe('bad_text');
	});
});

describe('what people see', () => {
	test('the readable key is at most 1,000 code points of text that PostgreSQL takes', () => {
		const { key, canonical } = keyOf('a\u0000\u001b\u007f\u0085b');
		expect(key).toBe('a\u2400\u241b\u2421\u2424b');
		expect(canonical).toBe('a\u0000\u001b\u007f\u0085b');
		const long = keyOf('😀'.repeat(3000));
		expect([...long.key]).toHaveLength(1000);
		expect(long.key).toBe('😀'.repeat(1000));
	});

	test('the hash is over the whole text, not over the readable key', () => {
		expect(keyOf(`${'x'.repeat(1000)}a`).workId).not.toBe(keyOf(`${'x'.repeat(1000)}b`).workId);
		expect(keyOf('x'.repeat(5_000_000)).key).toHaveLength(1000);
	});

	test('a refusal shows at most 80 characters of a value, and no credentials', () => {
		const long = `ftp://user:hunter2@host/${'x'.repeat(5_000_000)}`;
		const { message } = refusal(() => identifyByUrl(scope, long));
		expect(message).not.toContain('hunter2');
		expect(message.length).toBeLessThan(250);
		const half = refusal(() => keyOf(`${'😀'.repeat(1000)}\ud83d`));
		expect(half.message.length).toBeLessThan(300);
		expect((half.message as unknown as { isWellFormed(): boolean }).isWellFormed()).toBe(true);
	});

	test('the password of an address counts but is not shown', () => {
		const a = identifyByUrl(scope, 'https://user:one@host.example/p');
		const b = identifyByUrl(scope, 'https://user:two@host.example/p');
		expect(a.workId).not.toBe(b.workId);
		expect(a.key).toBe('https://***@host.example/p');
	});
});

test.each(['\u200b', '\u2060\u200b \ufeff'])(
	'a key of invisible characters is empty: %j',
	(value) => {
		expect(() => identifyByKey({ kind: 'k' }, [{ name: 'order', value }])).toThrow(/is empty/);
	},
);

test.each(['-', '::', ' / ', '_-_'])(
	'a key of separators alone is what an expression leaves of missing fields: %j',
	(value) => {
		const parts = [{ name: 'Key', value }];
		expect(() => identifyByKey({ kind: 'k' }, parts, { glued: true })).toThrow(/only separators/);
		expect(identifyByKey({ kind: 'k' }, parts).key).toBe(value.trim());
	},
);

test('an address whose host was lost is no page: all such items would be one', () => {
	for (const url of [
		...['https:///imprint', 'https:////shop.example', 'https://?q=1', 'https://\\page'],
		...['https://undefined/imprint', 'https://null', 'https://undefined.shop.example/'],
		...['https://.shop.example/', 'https://www..example/'],
	]) {
		expect(refusal(() => identifyByUrl(scope, url)).code).toBe('not_a_url');
	}
	for (const url of ['https://nullschool.example/', 'https://my-undefined.example/null']) {
		expect(identifyByUrl(scope, url).canonical).toBe(url);
	}
});
