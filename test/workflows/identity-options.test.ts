import { createHash, randomUUID } from 'node:crypto';
import type { IDataObject } from 'n8n-workflow';

import { claim, complete, type Ran } from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

interface Work extends IDataObject {
	status: string;
	workId: string;
}

const OUTPUTS = [0, 1, 2, 3];

/** What Claim Work put on each item, in the order of the input. */
function answers(ran: Ran): Work[] {
	const items = OUTPUTS.flatMap((output) => ran.out('Claim Work', output));
	const at = ({ pairedItem }: (typeof items)[number]) => (pairedItem as { item: number }).item;
	return items.sort((a, b) => at(a) - at(b)).map(({ json }) => json.work as Work);
}

/** Claims one batch and tells, per item, which work it is: equal letters are one work, `-` was refused. */
async function identities(items: IDataObject[], parameters: IDataObject): Promise<string> {
	const ran = await stage.run({
		items,
		nodes: [claim({ kind: stage.newKind(), ...parameters }, { onError: 'continueRegularOutput' })],
	});
	expect(ran.error).toBeNull();
	const letters = new Map<string, string>();
	return answers(ran)
		.map(({ status, workId }) => {
			if (status === 'refused') return '-';
			const letter = letters.get(workId) ?? String.fromCharCode(97 + letters.size);
			letters.set(workId, letter);
			return letter;
		})
		.join('');
}

/** A work id that nobody else has. */
const someWorkId = () => createHash('sha256').update(randomUUID()).digest('hex');

const urls = (...addresses: unknown[]): IDataObject[] =>
	addresses.map((url) => ({ url }) as IDataObject);

describe('by URL', () => {
	const byUrl = (options: IDataObject = {}, urlField = 'url'): IDataObject => ({
		identity: 'url',
		urlField,
		options,
	});

	test('case 95: all of utm goes, other names stay', async () => {
		const items = urls(
			'https://shop.example/p?atag=1&utm_medium=x&utm_source=y',
			'https://shop.example/p?utm_campaign=z&atag=1',
			'https://shop.example/p?atag=1',
			'https://shop.example/p?atag=2',
		);
		expect(await identities(items, byUrl())).toBe('aaab');
	});

	test('case 97: repeated names keep their order, different names do not', async () => {
		const pages = urls('https://a.example/?p=2&p=1', 'https://a.example/?p=1&p=2');
		expect(await identities(pages, byUrl())).toBe('ab');
		const query = urls('https://a.example/?b=1&a=2', 'https://a.example/?a=2&b=1');
		expect(await identities(query, byUrl())).toBe('aa');
	});

	test('notation does not count; path case, ?ref and signatures do', async () => {
		const items = urls(
			'https://shop.example/a/c%2fd',
			'HTTPS://Shop.Example:443/a/b/../c%2Fd',
			'https://shop.example/A/c%2Fd',
			'https://shop.example/a/c%2Fd?ref=2',
			'https://shop.example/a/c%2Fd?X-Amz-Signature=aB',
			'https://shop.example/a/c%2Fd?X-Amz-Signature=ab',
			'http://shop.example/a/c%2Fd',
		);
		expect(await identities(items, byUrl())).toBe('aabcdef');
	});

	test.each([
		['edited: only what it names goes', 'session, Tr*', 'abbc'],
		['emptied: everything counts', '', 'abcd'],
	])('the list of query names %s', async (_, trackingParameters, expected) => {
		const items = urls(
			'https://a.example/?utm_source=y',
			'https://a.example/?id=7',
			'https://a.example/?SESSION=1&id=7&track=2',
			'https://a.example/?id=7&utm_source=y',
		);
		expect(await identities(items, byUrl({ trackingParameters }))).toBe(expected);
	});

	test.each([
		[false, 'aab'],
		[true, 'abc'],
	])('the part after # counts by option (%p); routes always do', async (keepFragment, expected) => {
		const items = urls(
			'https://a.example/p',
			'https://a.example/p#top',
			'https://a.example/p#/item/7',
		);
		expect(await identities(items, byUrl({ keepFragment }))).toBe(expected);
	});

	test('the field may be a path', async () => {
		const items = [
			{ page: { links: [{ href: 'https://a.example/?utm_id=1' }] } },
			{ page: { links: [{ href: 'https://a.example/' }] } },
			{ page: { links: [] } },
		];
		expect(await identities(items, byUrl({}, 'page.links[0].href'))).toBe('aa-');
	});

	test('what is no complete address is refused per item, the rest is claimed', async () => {
		const kind = stage.newKind();
		const bad = [
			undefined,
			null,
			'',
			'undefined',
			'/p',
			'ftp://a.example/',
			'http:p',
			'https://',
			7,
			{ href: 'https://a.example/' },
		];
		const ran = await stage.run({
			items: [...urls(...bad), ...urls('https://a.example/')],
			nodes: [claim({ kind, ...byUrl() }, { onError: 'continueRegularOutput' })],
		});
		expect(answers(ran).map(({ status }) => status)).toEqual([
			...bad.map(() => 'refused'),
			'claimed',
		]);
		expect(await stage.works(kind)).toEqual(['https://a.example/ running']);
	});

	test('user name and password count, and are shown nowhere', async () => {
		const kind = stage.newKind();
		const items = urls(
			'https://bob:hunter2@a.example/p',
			'https://bob:hunter3@a.example/p',
			'https://bob:hunter2@:bad',
		);
		const parameters = {
			kind,
			...byUrl({ showCanonical: true, storePayload: false }),
		};
		const ran = await stage.run({
			items,
			nodes: [
				claim(parameters, { onError: 'continueRegularOutput' }),
				complete({ result: 'none' }),
			],
		});
		const [first, second, refused] = answers(ran);
		expect(first.workId).not.toBe(second.workId);
		expect([first.status, second.status, refused.status]).toEqual(['claimed', 'claimed', 'refused']);
		expect(first).toMatchObject({
			key: 'https://***@a.example/p',
			canonical: 'https://***@a.example/p',
		});
		const again = await stage.run({ items: items.slice(0, 2), nodes: [claim(parameters)] });
		const kept = await stage.ledger.query(
			`select row_to_json(w)::text as row from idempotency.work_log w where kind = $1
			union all select row_to_json(d)::text from idempotency.decision_log d
			join idempotency.work_log w using (work_id) where w.kind = $1`,
			[kind],
		);
		expect(kept.length).toBeGreaterThan(4);
		expect(JSON.stringify([answers(ran), answers(again), kept])).not.toMatch(/hunter/);
	});

	test('a refused address does not show its password in the error either', async () => {
		const ran = await stage.run({
			items: urls('https://bob:hunter2@:bad', 'https://bob:hunter2@a b/'),
			nodes: [claim({ kind: stage.newKind(), ...byUrl() })],
		});
		expect(ran.error?.message).toMatch(/cannot be claimed/);
		expect(JSON.stringify(ran.error)).toMatch(/is not a complete web address/);
		expect(JSON.stringify(ran.error)).not.toMatch(/hunter/);
	});
});

describe("by the ledger's work", () => {
	const byLedger = (kind: string, options: IDataObject = {}): IDataObject => ({
		kind,
		identity: 'ledger',
		options,
	});

	/** An item as it leaves by Duplicate: it names its work, but holds no claim. */
	async function duplicateOf(kind: string, parameters: IDataObject = {}): Promise<IDataObject> {
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind, parameters)), complete({ result: 'none' })],
		});
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind, parameters))],
		});
		return ran.json('Claim Work', 1)[0];
	}

	test('the id, kind, version and key on the item stand, whatever the rest of it says now', async () => {
		const kind = stage.newKind();
		const item = await duplicateOf(kind, { version: 'v7' });
		const ran = await stage.run({
			items: [{ ...item, order: 999, total: 'changed' }],
			nodes: [claim(byLedger('another'))],
		});
		expect(answers(ran)).toMatchObject([
			{
				status: 'duplicate',
				workId: (item.work as Work).workId,
				kind,
				version: 'v7',
				key: '1',
			},
		]);
		expect(await stage.works('another')).toEqual([]);
	});

	test.each(['workId', 'work_id'])('%s in the item names it, with the kind of the node', async (name) => {
		const kind = stage.newKind();
		const { workId } = (await duplicateOf(kind)).work as Work;
		const ran = await stage.run({
			items: [{ [name]: workId }],
			nodes: [claim(byLedger(kind))],
		});
		expect(answers(ran)).toMatchObject([{ status: 'duplicate', workId }]);
		expect(await stage.works(kind)).toEqual(['1 done']);
	});

	test('work that is due is claimed, attempt 2, and completed as the same work', async () => {
		const kind = stage.newKind();
		const first = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind, { options: { backoffBaseSeconds: 0 } })),
				complete({ operation: 'fail', landed: 'no', error: 'declined' }),
			],
		});
		// the item of a failed completion names its work too
		const items = first.json('Complete Work');
		const ran = await stage.run({
			items,
			nodes: [claim(byLedger(kind)), complete({ result: 'none' })],
		});
		expect(ran.error).toBeNull();
		expect(ran.json('Claim Work')[0].work).toMatchObject({ status: 'claimed', attempt: 2, key: '1' });
		expect(await stage.works(kind)).toEqual(['1 done']);
	});

	test.each([
		['nothing', {}],
		['an id that is too short', { workId: 'ab12' }],
		['capital digits', { workId: 'A'.repeat(64) }],
		['a number', { work_id: 7 }],
		['a list', { workId: ['a'.repeat(64)] }],
	])('an item that names its work by %s is refused, the rest is claimed', async (_, bad) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [bad, { workId: someWorkId() }],
			nodes: [claim(byLedger(kind), { onError: 'continueRegularOutput' })],
		});
		const [refused, claimed] = answers(ran);
		expect([refused.status, claimed.status]).toEqual(['refused', 'claimed']);
		expect(refused.message).toMatch(/names no work of the ledger/);
	});

	test.each([
		['a kind with ":"', { kind: 'a:b' }],
		['a kind that is a number', { kind: 7 }],
		['an empty kind', { kind: ' ' }],
		['a version with NUL', { version: 'v\u00001' }],
		['a version that is an object', { version: { v: 1 } }],
	])('an item whose field holds %s is refused, the rest is claimed', async (_, odd) => {
		const kind = stage.newKind();
		const work = { status: 'due', workId: someWorkId(), kind, version: 'v1', ...odd };
		const ran = await stage.run({
			items: [{ work }, { workId: someWorkId() }],
			nodes: [claim(byLedger(kind), { onError: 'continueRegularOutput' })],
		});
		expect(answers(ran).map(({ status }) => status)).toEqual(['refused', 'claimed']);
	});

	test('a key on the item that is no text does not stop the batch', async () => {
		const kind = stage.newKind();
		const [odd, plain] = [someWorkId(), someWorkId()];
		const work = { status: 'due', workId: odd, kind, version: 'v1', key: { a: 1 } };
		const ran = await stage.run({
			items: [{ work }, { workId: plain }],
			nodes: [claim(byLedger(kind))],
		});
		expect(ran.error).toBeNull();
		expect(answers(ran).map(({ status }) => status)).toEqual(['claimed', 'claimed']);
		expect((await stage.rows(kind)).map(({ key }) => key)).toEqual([odd, plain].sort());
	});

	test('the claim that the item brings is recognised: the same token, no second attempt', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), claim(byLedger(kind), {}, 'Again')],
		});
		expect(ran.error).toBeNull();
		const [first] = ran.json('Claim Work').map(({ work }) => work as IDataObject);
		expect(ran.json('Again').map(({ work }) => work)).toMatchObject([
			{ status: 'claimed', token: first.token, attempt: 1 },
		]);
		expect(await stage.works(kind)).toEqual(['1 running']);
		const { work_id: workId } = (await stage.rows(kind))[0];
		expect(await stage.ledger.history({ workId })).toEqual(['claim: claimed']);
	});

	test('without a kind, neither on the item nor on the node, it is refused', async () => {
		const ran = await stage.run({ items: [{ workId: 'a'.repeat(64) }], nodes: [claim(byLedger('={{ "" }}'))] });
		expect(ran.error?.message).toMatch(/kind is empty/);
	});
});

describe('how values are read', () => {
	const content = (options: IDataObject = {}): IDataObject => ({ identity: 'content', options });

	test.each([
		['readNumbers', [{ n: '7.50' }, { n: 7.5 }, { n: '007' }, { n: '7' }], 'abcd', 'aabc'],
		[
			'readDates',
			[
				{ at: '2026-01-01T10:00:00Z' },
				{ at: '2026-01-01T11:00:00+01:00' },
				{ at: '2026-01-01T10:00:00' },
			],
			'abc',
			'aab',
		],
		['readJson', [{ o: '{"b":1,"a":2}' }, { o: { a: 2, b: 1 } }, { o: '{"b":1' }], 'abc', 'aab'],
		['collapseWhiteSpace', [{ t: 'a  b' }, { t: 'a\n b' }, { t: 'ab' }], 'abc', 'aab'],
		['arraysAsSets', [{ l: [1, 2] }, { l: [2, 1] }, { l: [2, 1, 1] }, { l: [1] }], 'abcd', 'aaab'],
	])('content: %s joins what it names only when it is on', async (option, items, off, on) => {
		expect(await identities(items, content())).toBe(off);
		expect(await identities(items, content({ reading: [] }))).toBe(off);
		expect(await identities(items, content({ reading: [option] }))).toBe(on);
	});

	test.each([
		['readNumbers', [{ k: '7.50' }, { k: 7.5 }], 'ab', 'aa'],
		['readDates', [{ k: '2026-01-01T10:00:00Z' }, { k: '2026-01-01T11:00:00+01:00' }], 'ab', 'aa'],
		['collapseWhiteSpace', [{ k: 'a  b' }, { k: 'a b' }], 'ab', 'aa'],
	])('key fields: %s joins only when it is on', async (option, items, off, on) => {
		const by = (options: IDataObject) => ({ keyFields: 'k', options });
		expect(await identities(items, by({}))).toBe(off);
		expect(await identities(items, by({ reading: [option] }))).toBe(on);
	});

	test('several at once, and on one side only they make other work', async () => {
		const items = [{ a: '{"n":"1.0"}' }, { a: { n: 1 } }];
		expect(await identities(items, content({ reading: ['readJson'] }))).toBe('ab');
		expect(await identities(items, content({ reading: ['readJson', 'readNumbers'] }))).toBe('aa');
	});
});

describe('fields that do not count', () => {
	const without = (volatileFields: string): IDataObject => ({
		identity: 'content',
		options: { volatileFields },
	});

	test('a name counts at any depth, a path only from the root', async () => {
		const items = [
			{ id: 1, meta: { timestamp: 1 }, lines: [{ meta: { timestamp: 5 } }] },
			{ id: 1, meta: { timestamp: 2 }, lines: [{ meta: { timestamp: 5 } }] },
			{ id: 1, meta: { timestamp: 1 }, lines: [{ meta: { timestamp: 6 } }] },
		];
		expect(await identities(items, without('timestamp'))).toBe('aaa');
		expect(await identities(items, without('meta.timestamp'))).toBe('aab');
		expect(await identities(items, without(''))).toBe('abc');
	});

	test('wildcards, list levels and quoted names', async () => {
		const items = [
			{ id: 1, seen_at: 1, lines: [{ id: 1, sku: 'a' }], headers: { 'x.y': 1 } },
			{ id: 1, seen_at: 2, lines: [{ id: 2, sku: 'a' }], headers: { 'x.y': 2 } },
			{ id: 2, seen_at: 1, lines: [{ id: 1, sku: 'a' }], headers: { 'x.y': 1 } },
		];
		expect(await identities(items, without('*_at, lines[*].id, headers["x.y"]'))).toBe('aab');
		expect(await identities(items, without('*At, lines.id, headers.*'))).toBe('aab');
		expect(await identities(items, without('*_at, lines[*].id'))).toBe('abc');
	});

	test('the list of its own replaces the default list', async () => {
		const items = [{ a: 1, received_at: 1 }, { a: 1, received_at: 2 }];
		expect(await identities(items, { identity: 'content' })).toBe('aa');
		expect(await identities(items, without('request_id'))).toBe('ab');
	});

	test('a list that leaves nothing refuses the item', async () => {
		expect(await identities([{ a: 1 }, { b: 1 }], without('a'))).toBe('-a');
		expect(await identities([{ a: 1 }, { b: 1 }], without('*'))).toBe('--');
	});

	test('fields that count are looked through as well', async () => {
		const items = [
			{ customer: { name: 'A', updated_at: 1 }, note: 1 },
			{ customer: { name: 'A', updated_at: 2 }, note: 2 },
			{ note: 1 },
		];
		expect(await identities(items, { identity: 'content', contentFields: 'customer' })).toBe('aa-');
	});
});

describe('Show What Was Hashed', () => {
	const options = { showCanonical: true };

	test.each([
		['a key', { order: 7 }, byOrder('k', { options }), '7'],
		['several keys', { order: 7, shop: 'a' }, { keyFields: 'shop, order', options }, '["a",7]'],
		['content', { b: 1, a: 'x ', received_at: 1 }, { identity: 'content', options }, '{"a":"x","b":1}'],
		[
			'a URL',
			{ url: 'https://A.example/?utm_id=1&b=1&a=2' },
			{ identity: 'url', options },
			'https://a.example/?a=2&b=1',
		],
	] as Array<[string, IDataObject, IDataObject, string]>)(
		'adds the text behind the work id: %s',
		async (_, item, parameters, canonical) => {
			const kind = stage.newKind();
			const ran = await stage.run({ items: [item], nodes: [claim({ ...parameters, kind })] });
			const [work] = answers(ran);
			expect(work.canonical).toBe(canonical);
			const [{ id }] = await stage.ledger.query<{ id: string }>(
				`select encode(sha256(convert_to($1, 'UTF8')), 'hex') as id`,
				[`${kind}:v1:${canonical}`],
			);
			expect(work.workId).toBe(id);
		},
	);

	test('is off by default', async () => {
		const ran = await stage.run({ items: orders(1), nodes: [claim(byOrder(stage.newKind()))] });
		expect(answers(ran)[0]).not.toHaveProperty('canonical');
	});
});

describe('hints', () => {
	const run = async (items: IDataObject[], parameters: IDataObject) =>
		await stage.run({ items, nodes: [claim({ kind: stage.newKind(), ...parameters })] });

	test('case 3: a delivery id or time in the key is named, once per batch; deal and stage are not', async () => {
		const deal = (i: number) => ({
			deal: 4711,
			stage: 3,
			meta: { timestamp: `2026-01-01T00:00:0${i}Z` },
			delivery_id: `d${i}`,
		});
		const items = [deal(0), deal(1), deal(2)];
		const good = await run(items, { keyFields: 'deal, stage' });
		expect(good.hints('Claim Work')).toEqual([]);
		expect(answers(good).map(({ status }) => status)).toEqual([
			'claimed',
			'in_progress',
			'in_progress',
		]);
		const bad = await run(items, { keyFields: 'deal, meta.timestamp, delivery_id' });
		expect(answers(bad).map(({ status }) => status)).toEqual(['claimed', 'claimed', 'claimed']);
		const [hint, ...more] = bad.hints('Claim Work');
		expect(more).toEqual([]);
		expect(hint.match(/volatile field in key/g)).toHaveLength(2);
		expect(hint).toContain('meta.timestamp');
		expect(hint).toContain('delivery_id');
	});

	test.each(['order', 'url'])('case 5: the present time in the value of %s gets a hint', async (name) => {
		const now = Date.now();
		const ran = await run(
			[{ order: `run-${now}`, url: `https://a.example/?t=${now}` }],
			name === 'url' ? { identity: 'url' } : { keyFields: name },
		);
		expect(ran.hints('Claim Work').join()).toMatch(/not retry-safe/);
	});

	test('a random request id gets a hint, a UUID that is a record does not', async () => {
		const id = '7b0f2c1e-9d1a-4c55-8d0e-2f9b1c6a7d11';
		expect((await run([{ messageId: id }], { keyFields: 'messageId' })).hints('Claim Work')).toEqual([
			expect.stringContaining('looks random'),
		]);
		expect((await run([{ customer: id }], { keyFields: 'customer' })).hints('Claim Work')).toEqual([]);
	});
});

test('what every item would have in common is refused per item, and the rest is claimed', async () => {
	const keys = ['{{ $json.order_id }}', 'inv-{{ $json.order_id }}', 'inv-7'];
	const items = keys.map((order_id) => ({ order_id }));
	expect(await identities(items, { identity: 'fields', keyFields: 'order_id' })).toBe('--a');

	const bodies = [{ body: {} }, { body: { email: null, tags: [] } }, { body: { email: 'a' } }];
	const byBody = { identity: 'content', contentFields: 'body' };
	expect(await identities(bodies, byBody)).toBe('--a');

	const pages = urls('https:///imprint', 'https://undefined/imprint', 'https://a.example/imprint');
	expect(await identities(pages, { identity: 'url', urlField: 'url' })).toBe('--a');
});
