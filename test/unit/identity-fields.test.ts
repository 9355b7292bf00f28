import {
	DEFAULT_TRACKING_PARAMETERS,
	DEFAULT_VOLATILE_FIELDS,
	identifyByUrl,
	keyHints,
	parseFieldNames,
	readField,
	volatileSources,
} from '../../ledger/identity';

describe('reading a field by name', () => {
	const record = {
		order: { id: 7, 'a.b': 1 },
		'order.id': 'literal',
		lines: [{ sku: 'S1' }, { sku: 'S2' }],
		headers: { 'x-request-id': 'r' },
		none: undefined,
		list: [1, 2],
		text: 'abc',
	};
	const read = (name: string): unknown => readField(record, name);

	test('a field literally called so comes before a path', () => {
		expect(read('order.id')).toEqual({ found: true, value: 'literal' });
		expect(readField({ order: { id: 7 } }, 'order.id')).toEqual({ found: true, value: 7 });
	});

	test('paths go through objects and lists', () => {
		expect(read('lines[1].sku')).toEqual({ found: true, value: 'S2' });
		expect(read('lines.0.sku')).toEqual({ found: true, value: 'S1' });
		expect(read('headers["x-request-id"]')).toEqual({ found: true, value: 'r' });
		expect(read("order['a.b']")).toEqual({ found: true, value: 1 });
		expect(read('["order"].id')).toEqual({ found: true, value: 7 });
		expect(read('none')).toEqual({ found: true, value: undefined });
	});

	test('nothing inherited is found, and no odd path throws', () => {
		const parsed = JSON.parse('{"__proto__":{"a":1}}') as Record<string, unknown>;
		expect(readField(parsed, '__proto__.a').found).toBe(false);
		const inherited = Object.create({ id: 7 }) as Record<string, unknown>;
		expect(readField(inherited, 'id').found).toBe(false);
		for (const name of [
			...['constructor', 'order.constructor.name', '__proto__', 'order.__proto__', 'toString'],
			...['list.length', 'text.length', 'text[0]', 'lines[2].sku', 'lines[-1]', 'lines[01]'],
			...[
				'',
				'.',
				'..',
				'order.',
				'.order',
				'order..id',
				'lines[',
				'lines[]',
				'lines[0]sku',
				'[*]',
			],
		]) {
			expect(read(name)).toEqual({ found: false, value: undefined });
		}
	});

	test('a list of names is split at commas, trimmed, each once', () => {
		expect(parseFieldNames(' order_id, customer.id ,,order_id,\nlines[0].sku ')).toEqual([
			'order_id',
			'customer.id',
			'lines[0].sku',
		]);
		expect(parseFieldNames('a["x,y"], b')).toEqual(['a["x,y"]', 'b']);
		expect(parseFieldNames('a[, b')).toEqual(['a[', 'b']);
		expect(parseFieldNames(' , ')).toEqual([]);
	});
});

describe('a key expression that changes each time is recognised (case 22)', () => {
	test.each<[string, string[]]>([
		['={{ $execution.id }}', ['$execution']],
		['={{ $execution["id"] }}', ['$execution']],
		['={{ $json.id || $execution.id }}', ['$execution']],
		['={{ $json.id }}-{{ $now }}', ['$now']],
		["={{ $json.name }}'s order {{ $now.toISO() }}", ['$now']],
		['={{ $today.toISODate() }}', ['$today']],
		['={{ Date.now() }}', ['Date.now']],
		["={{ Date['now']() }}", ['Date.now']],
		['={{ Date[`now`]() }}', ['Date.now']],
		['={{ Date /* why */ . // not\n now() }}', ['Date.now']],
		['={{ Date?.now?.() }}', ['Date.now']],
		['={{ (Date).now() }}', ['Date.now']],
		['={{ globalThis.Date.now() }}', ['Date.now']],
		["={{ globalThis['Date']['now']() }}", ['Date.now']],
		['={{ new Date().getTime() }}', ['new Date()']],
		['={{ +new Date }}', ['new Date()']],
		['={{ new (Date)( ) }}', ['new Date()']],
		['={{ new globalThis.Date() }}', ['new Date()']],
		['={{ Date() }}', ['Date()']],
		['={{ Math.random() }}', ['Math.random']],
		['={{ Math["random"]() }}', ['Math.random']],
		['={{ crypto.randomUUID() }}', ['randomUUID']],
		["={{ require('crypto').randomBytes(8) }}", ['randomBytes']],
		['={{ ["a", "b"].randomItem() }}', ['randomItem']],
		['={{ DateTime.now() }}', ['DateTime.now']],
		['={{ DateTime.local() }}', ['DateTime.local']],
		["={{ DateTime.utc({ locale: 'de' }) }}", ['DateTime.utc']],
		['={{ DateTime.fromISO($json.at).diffNow() }}', ['diffNow']],
		['={{ $itemIndex }}', ['$itemIndex']],
		['={{ $runIndex + 1 }}', ['$runIndex']],
		['={{ $prevNode.runIndex }}', ['$prevNode.runIndex']],
		['={{ $node["Loop"].context["currentRunIndex"] }}', ['currentRunIndex']],
		['={{ `order ${ $json.id } ${ `${ $now }` }` }}', ['$now']],
		['={{ { $now } }}', ['$now']],
		['={{ [...[$now]] }}', ['$now']],
		['={{ $json.a ? $now : 1 }}', ['$now']],
		['={{ $json.a.replace(/["\'`]/g, "") + $now }}', ['$now']],
		['={{ $json.a / 2 + $now / 2 }}', ['$now']],
		['={{ "it\'s" + $now }}', ['$now']],
		['={{ "\\"" + $now + "\\"" }}', ['$now']],
		["={{ it's + $now }}", ['$now']],
		['={{ $now', ['$now']],
		['={{ $execution.id }}{{ $now }}{{ $execution.id }}', ['$execution', '$now']],
	])('%s', (expression, sources) => {
		expect(volatileSources(expression)).toEqual(sources);
	});

	test.each([
		'$execution.id',
		'order-7',
		'',
		'=',
		'=plain $now text',
		'=\\{{ $now }}',
		'=at {{ $json.at }} Date.now() {{ $json.b }}',
		'={{ $json.order_id }}',
		'={{ $json.now }}',
		'={{ $json.$now }}',
		'={{ $json?.$execution }}',
		'={{ $json["$now"] }}',
		"={{ $json['Date.now()'] }}",
		'={{ "costs $now" }}',
		'={{ `the $now of ${ $json.id }` }}',
		'={{ $json.a /* $now */ }}',
		'={{ $json.a // $now\n }}',
		'={{ { $now: $json.id }.id }}',
		'={{ $json.Date.now }}',
		'={{ new Date($json.created).toISOString() }}',
		'={{ Date.parse($json.created) }}',
		'={{ DateTime.utc(2026, 1, 1) }}',
		'={{ DateTime.local(2026) }}',
		'={{ DateTime.fromISO($json.at).toUTC().toISO() }}',
		'={{ $json.date instanceof Date }}',
		'={{ $nowhere + my$now }}',
		'={{ $json.uuid }}',
		'={{ $workflow.id + $json.id }}',
		'={{ $json.a.match(/$now/) }}',
	])('left alone: %s', (expression) => {
		expect(volatileSources(expression)).toEqual([]);
	});

	test('no text makes it throw or hang', () => {
		for (const piece of [
			'{{',
			'`${',
			'"',
			"'",
			'/*',
			'/[',
			'(',
			'\\',
			'?.',
			'\ud83d',
			'{{`${{{`',
		]) {
			expect(volatileSources(`={{ ${piece} $now`).length).toBeLessThanOrEqual(1);
			const long = `={{ ${piece.repeat(5000)} }}`;
			const started = performance.now();
			volatileSources(long);
			expect(performance.now() - started).toBeLessThan(2000);
		}
	});
});

describe('hints about a key', () => {
	const now = Date.UTC(2026, 0, 1, 6, 0, 0);
	const hints = (name: string, value: unknown, executionId?: string): string[] =>
		keyHints(String(value), [{ name, value }], { executionId, now });

	test('a delivery id or time stamp among the key fields is a volatile field in key (case 3)', () => {
		for (const name of ['delivery_id', 'meta.timestamp', 'body.receivedAt', 'X-Request-Id']) {
			expect(hints(name, 'x')).toEqual([expect.stringContaining('volatile field in key')]);
		}
		const parts = [
			{ name: 'deal_id', value: 4711 },
			{ name: 'stage', value: 3 },
		];
		expect(keyHints('[4711,3]', parts, { executionId: '9', now })).toEqual([]);
	});

	test('the execution id or the start time is flagged as not retry-safe (case 5)', () => {
		expect(hints('id', '231', '231')).toEqual([expect.stringContaining('not retry-safe')]);
		expect(hints('id', 231, '231')).toHaveLength(1);
		expect(hints('id', '2310', '231')).toEqual([]);
		for (const time of [
			...[now + 100, String(now - 3_600_000), Math.floor(now / 1000), `job-${now + 400}`],
			...['2026-01-01T06:00:00.100Z', '2026-01-01 07:00:30+01:00', new Date(now)],
		]) {
			expect(hints('slot', time)).toEqual([expect.stringContaining('not retry-safe')]);
		}
		for (const time of [
			...['2026-01-01', '06:00', '2026-01-01T05:00:00Z', now - 3 * 86_400_000, '1001'],
			...[new Date(NaN), null, { a: 1 }],
		]) {
			expect(hints('slot', time)).toEqual([]);
		}
	});

	test('a date as the time zone of the machine writes it is a hint, in UTC it is none (case 99)', () => {
		const date = new Date('2025-01-01T10:00:00Z');
		expect(hints('slot', `inv-${String(date)}`)).toEqual([expect.stringContaining('time zone')]);
		for (const text of [date.toISOString(), date.toUTCString(), 'Thu Jan 01 2026']) {
			expect(hints('slot', text)).toEqual([]);
		}
	});

	test('a random value is a hint only where the name tells of a message, not of a record', () => {
		const uuid = '3f2b8c1e-9d4a-4b6f-8a2c-1e5d7f9b0a3c';
		expect(hints('message_id', uuid)).toEqual([expect.stringContaining('looks random')]);
		expect(hints('customer_id', uuid)).toEqual([]);
		expect(hints('message_id', '17')).toEqual([]);
	});
});

describe('addresses (cases 95, 97)', () => {
	const id = (url: unknown, options?: Parameters<typeof identifyByUrl>[2]): string =>
		identifyByUrl({ kind: 'page' }, url, options).workId;

	test('all of utm goes, atag stays (case 95)', () => {
		const pages = ['?atag=1&utm_medium=x&utm_source=y', '?utm_campaign=z&atag=1', '?atag=1'];
		expect(new Set(pages.map((query) => id(`https://a.example/p${query}`))).size).toBe(1);
		expect(id('https://a.example/p')).not.toBe(id('https://a.example/p?atag=1'));
	});

	test('sorting keeps the order of repeated names (case 97)', () => {
		expect(id('https://a.example/?p=2&p=1')).not.toBe(id('https://a.example/?p=1&p=2'));
		expect(id('https://a.example/?b=1&a=2')).toBe(id('https://a.example/?a=2&b=1'));
		expect(id('https://a.example/?p=2&a=0&p=1')).toBe(id('https://a.example/?a=0&p=2&p=1'));
	});

	test('tracking names count in any case and encoding', () => {
		expect(id('https://a.example/?UTM_Source=x&%67clid=y&z=1')).toBe(id('https://a.example/?z=1'));
	});

	test('an empty list keeps every parameter; the default one spares what sites use', () => {
		const tracked = 'https://a.example/?utm_source=x';
		expect(id(tracked, { trackingParameters: [] })).not.toBe(id(tracked));
		for (const name of ['ref', 'source', 'id', 'tag', 'atag', 'at_id', 'q', 'p', 'utm']) {
			expect(id(`https://a.example/?${name}=1`)).not.toBe(id('https://a.example/'));
		}
	});

	test('an address that is canonical already comes out byte for byte', () => {
		for (const url of [
			'https://b.example/f?X-Amz-Date=20260101T000000Z&X-Amz-Signature=ab%2Fc%3D%3D',
			"https://a.example/(x)/~y/a!$&'*+,;=:@/%E2%82%AC?a=(1)*'!&b=/?:@&c=%ZZ&d=1%",
			'https://a.example/?a;b=1',
			'https://[2001:db8::1]:8443/p',
		]) {
			const { canonical } = identifyByUrl({ kind: 'page' }, url);
			expect(canonical).toBe(url.replaceAll("a=(1)*'!", 'a=(1)*%27!'));
		}
	});

	test('a URL object is read like its text', () => {
		expect(id(new URL('https://A.example/p#x'))).toBe(id('https://a.example/p'));
	});
});

test('the default lists cannot be changed by one user for all', () => {
	expect(Object.isFrozen(DEFAULT_VOLATILE_FIELDS)).toBe(true);
	expect(Object.isFrozen(DEFAULT_TRACKING_PARAMETERS)).toBe(true);
});
