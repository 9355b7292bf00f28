/** ledger-page.json: what somebody sees of the ledger without n8n, and what their buttons do. */

import { randomUUID } from 'node:crypto';

import { createLedger, identifyByKey, type ClaimPolicy, type Ledger } from '../../ledger';
import { importShipped } from './shipped';
import {
	closeLedger,
	importLedgerCredential,
	ledgerDatabase,
	n8n,
	order,
	queryLedger,
} from './stage';

const USER = 'on-call';
const PASSWORD = 'p@ss:w/ord';
const HIDDEN = 'what only a replay may see';
const KIND = 'page-invoice';
const HOSTILE =
	'</script><script>alert(1)</script>"\'`><img src=x onerror=alert(1)> &lt; \u202Efdp.exe שלום';
const URL_OF_PAGE = `${n8n.baseUrl}/webhook/work-ledger`;
const CALLER = { workflowName: `Orders ${HOSTILE}`, execution: '77', mode: 'webhook' };

interface Seeded {
	workId: string;
	token: string;
	key: string;
}

let ledger: Ledger;
let page: string;

beforeAll(async () => {
	ledger = createLedger(ledgerDatabase);
	const auth = await n8n.importCredential({
		name: 'Who May See the Ledger',
		type: 'httpBasicAuth',
		data: { user: USER, password: PASSWORD },
	});
	page = await importShipped('ledger-page.json', () => undefined, {
		...(await importLedgerCredential('Ledger behind a Proxy')),
		httpBasicAuth: auth,
	});
});

afterAll(async () => {
	await n8n.rest('POST', `/workflows/${page}/deactivate`);
	await ledger.close();
	await closeLedger();
});

async function claim(key: string, policy: Partial<ClaimPolicy> = {}): Promise<Seeded> {
	const kind = policy.kind ?? KIND;
	const { workId } = identifyByKey({ kind, version: 'v1' }, [{ name: 'Key', value: key }]);
	const token = randomUUID();
	await ledger.works.claim([{ workId, key, token, payload: JSON.stringify({ note: HIDDEN }) }], {
		kind,
		caller: CALLER,
		...policy,
	});
	return { workId, token, key };
}

async function failed(
	key: string,
	how: { error?: string; landed?: 'no' | 'unknown'; permanent?: boolean },
	policy: Partial<ClaimPolicy> = {},
): Promise<Seeded> {
	const work = await claim(key, policy);
	await ledger.works.fail([{ ...work, error: 'HTTP 500', landed: 'no', ...how }], CALLER);
	return work;
}

const dead = async (key: string, error = 'HTTP 500', kind = KIND) =>
	await failed(key, { error, permanent: true }, { kind });
const held = async (key: string) =>
	await failed(key, { error: 'timed out', landed: 'unknown' }, { onLapse: 'hold' });

interface Answer {
	status: number;
	html: string;
	/** As a person reads it. */
	text: string;
}

async function ask(
	{ query = {}, form }: { query?: Record<string, string>; form?: Record<string, string> } = {},
	authorization: string | null = `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString('base64')}`,
): Promise<Answer> {
	const response = await fetch(`${URL_OF_PAGE}?${new URLSearchParams(query).toString()}`, {
		method: form === undefined ? 'GET' : 'POST',
		headers: authorization === null ? {} : { authorization },
		body: form === undefined ? undefined : new URLSearchParams(form),
	});
	const html = await response.text();
	return { status: response.status, html, text: textOf(html) };
}

const decoded = (text: string): string =>
	text.replace(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code)));

const textOf = (html: string): string =>
	decoded(html.replace(/<style>[^<]*<\/style>/g, '').replace(/<[^>]*>/g, ' ')).replace(/\s+/g, ' ');

const valueOf = (html: string, field: string): string =>
	new RegExp(`name="${field}" value="([^"]*)"`).exec(html)?.[1] ?? '';

/** The page that asks; answers the nonce on its button. */
async function nonceFor(work: Seeded, action: string): Promise<string> {
	const { status, html } = await ask({ form: { work: work.workId, action } });
	expect(status).toBe(200);
	expect(valueOf(html, 'nonce')).toMatch(/^[\w-]{22}$/);
	return valueOf(html, 'nonce');
}

const press = async (nonce: string, more: Record<string, string> = {}) =>
	await ask({ form: { nonce, by: 'Ada', ...more } });

const row = async ({ workId }: Seeded) =>
	(
		await queryLedger<{ state: string; attempt: number; external_ref: string | null }>(
			'select state, attempt, external_ref from :schema.work_log where work_id = $1',
			[workId],
		)
	)[0];

const times = async ({ workId }: Seeded, event: string): Promise<number> =>
	(
		await queryLedger<{ count: number }>(
			`select count(*)::integer as count from :schema.decision_log
			where work_id = $1 and event = $2`,
			[workId, event],
		)
	)[0].count;

/** Everything that a page could change. */
const contents = async () =>
	await queryLedger(
		`select (select md5(string_agg(w::text, ';' order by w.work_id)) from :schema.work_log w) as works,
			(select count(*) from :schema.decision_log) as decisions,
			(select count(*) from :schema.action_links) as links`,
	);

const TAG = /<(\/?)([a-z][a-z0-9]*|!doctype)((?:\s+[a-zA-Z-]+(?:="[^"<>]*")?)*)\s*>/g;
const TAGS = new Set(
	(
		'!doctype html head meta title style body header main footer a form input button h1 h2 ul ol li b bdi span small ' +
		'section div p figure figcaption svg rect text details summary table thead tbody tr th td time dl dt dd code label'
	).split(' '),
);

/** A browser sees the page's own tags and nothing else: whatever came from outside is text. */
function expectOnlyOwnMarkup({ html }: Answer): void {
	const markup = html.replace(/<style>[^<]*<\/style>/, '');
	const tags = [...markup.matchAll(TAG)];
	expect(tags.length).toBeGreaterThan(20);
	expect(tags.filter(([, , name]) => !TAGS.has(name)).map(([tag]) => tag)).toEqual([]);
	const attributes = tags.flatMap(([, , , text]) => [
		...text.replace(/"[^"]*"/g, '').matchAll(/([a-zA-Z-]+)/g),
	]);
	expect(
		attributes.map(([, name]) => name).filter((name) => /^(on|src|style$)/i.test(name)),
	).toEqual([]);
	for (const [, address] of markup.matchAll(/(?:href|action)="([^"]*)"/g)) {
		if (!['work', ''].includes(address))
			expect(address).toMatch(/^(\?|replay$|landed$|not_landed$)/);
	}
	expect(markup.replace(TAG, '')).not.toMatch(/[<>]/);
	// signs that steer the direction of text are shown by their number
	expect(html).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/);
}

function expectNoSecret({ html }: Answer, token: string): void {
	const basic = Buffer.from(`${USER}:${PASSWORD}`).toString('base64');
	for (const secret of [PASSWORD, basic, ledgerDatabase.password, HIDDEN, token]) {
		expect(html).not.toContain(secret);
	}
}

test('nobody sees or does anything without the password', async () => {
	const work = await dead('stranger');
	const nonce = await nonceFor(work, 'replay');
	const before = await contents();
	const guess = `Basic ${Buffer.from(`${USER}:guess`).toString('base64')}`;
	for (const authorization of [null, guess]) {
		expect((await ask({}, authorization)).status).toBe(401);
		expect(
			(await ask({ form: { work: work.workId, action: 'replay' } }, authorization)).status,
		).toBe(401);
		expect((await ask({ form: { nonce, by: 'stranger' } }, authorization)).status).toBe(401);
	}
	expect(await contents()).toEqual(before);
});

test('the overview counts what the ledger holds, and looking changes nothing', async () => {
	const kind = 'page-counts';
	await dead('1', 'HTTP 422', kind);
	await failed('2', { landed: 'unknown' }, { kind, onLapse: 'hold' });
	await failed('3', { landed: 'unknown' }, { kind, onLapse: 'hold' });
	const waiting = await failed('oldest of all', { error: 'HTTP 503' }, { kind });
	await claim('4', { kind });
	for (const key of ['5', '6', '7']) {
		const done = await claim(key, { kind });
		await ledger.works.complete([{ ...done, externalRef: `INV-${key}` }], CALLER);
		await claim(key, { kind });
	}
	await queryLedger(
		`update :schema.work_log set first_started_at = first_started_at - interval '400 days' where work_id = $1`,
		[waiting.workId],
	);
	const watched = await claim('watched', { kind: 'page-watched', shadow: true });
	await ledger.works.complete([watched], CALLER);
	await claim('watched', { kind: 'page-watched', shadow: true });
	const before = await contents();
	const overview = await ask();
	expect(overview.status).toBe(200);
	expect(overview.text).toMatch(/page-counts 1 2 1 1 3 /);

	const [total] = await queryLedger<Record<string, number>>(
		`with decided as (
			select outcome from :schema.decision_log
			where event = 'claim' and not coalesce(checked ? 'shadow', false)
				and at >= date_bin('1 hour', now(), 'epoch') - interval '23 hours'
		)
		select count(*) filter (where state = 'dead')::integer as dead,
			count(*) filter (where state = 'held')::integer as held,
			count(*) filter (where state = 'done')::integer as done,
			(select count(*)::integer from decided where outcome = 'claimed') as claimed,
			(select count(*)::integer from decided where outcome in ('duplicate', 'in_progress')) as duplicates
		from :schema.work_log`,
	);
	expect(overview.text).toMatch(
		new RegExp(`${total.dead} Dead .*${total.held} Held .*${total.done} Done `),
	);
	expect(overview.text).toContain(`Waiting for a person ${total.dead + total.held} `);
	expect(overview.text).toContain(`${total.claimed} claimed`);
	expect(overview.text).toContain(`${total.duplicates} duplicates suppressed`);
	expect(overview.html.match(/<rect /g)).toHaveLength(3 * 24);
	const [{ saved }] = await queryLedger<{ saved: number }>(
		`select count(*)::integer as saved from :schema.decision_log
		where event = 'claim' and checked ? 'shadow' and outcome in ('duplicate', 'in_progress')`,
	);
	expect(saved).toBeGreaterThan(0);
	expect(overview.text).toContain(`Shadow mode would have saved ${saved} more`);
	expect(overview.text).toMatch(
		/Oldest waiting work page-counts oldest of all HTTP 503 Began 400 days ago/,
	);

	const queries: Array<Record<string, string>> = [
		{ work: waiting.workId },
		{ find: 'oldest' },
		{ kind, state: 'held' },
	];
	for (const query of queries) {
		expect((await ask({ query })).status).toBe(200);
	}
	expect(await contents()).toEqual(before);
});

test('text from outside is text on every page, and no page holds a secret', async () => {
	const work = await dead(
		HOSTILE,
		`${HOSTILE} in the error`,
		`page ${HOSTILE.replaceAll(':', '')}`,
	);
	const pages = {
		overview: await ask(),
		search: await ask({ query: { find: HOSTILE } }),
		kind: await ask({ query: { kind: HOSTILE, state: '"><b>,dead' } }),
		history: await ask({ query: { work: work.workId } }),
		asked: await ask({ form: { work: work.workId, action: 'landed' } }),
		refused: await ask({ form: { work: HOSTILE, action: HOSTILE } }),
	};
	for (const each of Object.values(pages)) {
		expectOnlyOwnMarkup(each);
		expectNoSecret(each, work.token);
	}
	const read = HOSTILE.replace('\u202E', '[U+202E]');
	for (const name of ['overview', 'search', 'history', 'asked'] as const) {
		expect([name, pages[name].text.includes(`${read} in the error`)]).toEqual([name, true]);
	}
	const done = await press(valueOf(pages.asked.html, 'nonce'), { by: HOSTILE, reference: HOSTILE });
	expect(done.status).toBe(200);
	for (const each of [done, await ask({ query: { work: work.workId } })]) expectOnlyOwnMarkup(each);
});

test('a button only asks; the next page’s button replays, pressed twice at once it replays once, and an old one in another tab is told so', async () => {
	const work = await dead('pressed');
	expect((await ask()).html).toContain(`name="work" value="${work.workId}"`);
	const [nonce, otherTab] = [await nonceFor(work, 'replay'), await nonceFor(work, 'replay')];
	expect(await row(work)).toMatchObject({ state: 'dead' });

	const pressed = await Promise.all([press(nonce), press(nonce)]);
	expect(pressed.map(({ status }) => status)).toEqual([200, 200]);
	expect(
		pressed.map(({ text }) => /(Done before|Done) (Replayed|This button)/.exec(text)?.[0]).sort(),
	).toEqual(['Done Replayed', 'Done before This button']);
	expect(await row(work)).toMatchObject({ state: 'failed', attempt: 0 });

	const late = await press(otherTab);
	expect(late).toMatchObject({
		status: 409,
		text: expect.stringContaining('a person made it due again'),
	});
	expect(late.text).toContain('Nothing was changed');
	expect(await times(work, 'replay')).toBe(1);

	// the list of yesterday, still open: its button is told how the work stands now
	const stale = await ask({ form: { work: work.workId, action: 'replay' } });
	expect(stale).toMatchObject({ status: 409, text: expect.stringContaining('it is due already') });
	const invented = await press('A'.repeat(22));
	expect(invented).toMatchObject({ status: 409, text: expect.stringContaining('cannot be used') });
});

test('held work is resolved as landed with its reference, or as not landed', async () => {
	const [landed, lost] = [await held('landed'), await held('lost')];
	const asked = await ask({ form: { work: landed.workId, action: 'landed' } });
	expect(asked.text).toContain('Its effect may have landed.');
	await press(valueOf(asked.html, 'nonce'), { reference: 'INV-77' });
	expect(await row(landed)).toMatchObject({ state: 'done', external_ref: 'INV-77' });
	await press(await nonceFor(lost, 'not_landed'));
	expect(await row(lost)).toMatchObject({ state: 'failed', attempt: 0 });
});

test('search finds by a part of the key or by the work’s id, page after page', async () => {
	const works = [];
	for (let index = 0; index < 51; index++) works.push(await dead(`Seek-${index}`));
	const first = await ask({ query: { find: 'sEEk-' } });
	expect(first.html.match(/<li class="work /g)).toHaveLength(50);
	expect(first.text).not.toContain('Seek-0 ');
	const next = /class="more" href="\?([^"]*)"/.exec(first.html)?.[1] ?? '';
	const second = await ask({ query: Object.fromEntries(new URLSearchParams(decoded(next))) });
	expect(second.html.match(/<li class="work /g)).toHaveLength(1);
	expect(second.text).toContain('Seek-0 ');
	expect((await ask({ query: { find: ` ${works[7].workId} ` } })).text).toMatch(
		/Seek-7 Dead .*Time line/,
	);
	expect((await ask({ query: { find: 'no such key' } })).text).toContain('No work is like that');
	expect(await ask({ query: { work: 'f'.repeat(64) } })).toMatchObject({ status: 404 });
	expect(await ask({ query: { work: 'nonsense' } })).toMatchObject({ status: 404 });
});

test('the time line tells what happened, in order, by whom', async () => {
	const work = await dead('told', 'card declined');
	await press(await nonceFor(work, 'replay'));
	const again = await claim('told');
	await ledger.works.complete([{ ...again, externalRef: 'INV-9' }], CALLER);
	await claim('told');
	const { text } = await ask({ query: { work: work.workId } });
	const story = [
		'Time line',
		'asked for claim → claimed, attempt 1',
		'asked for fail, found it running → dead, attempt 1: card declined',
		'asked for create link (replay)',
		'Ada, by execution',
		'asked for replay, found it dead → due',
		'asked for claim, found it failed → claimed',
		'asked for complete',
		'completed',
		'(reference INV-9)',
		'asked for claim, found it done → duplicate',
	];
	const places = story.map((words) => text.indexOf(words, text.indexOf('Time line')));
	expect(places.every((place) => place >= 0)).toBe(true);
	expect([...places].sort((a, b) => a - b)).toEqual(places);
});

test('a ledger that is away is said so, by page and button: no empty page, nothing done', async () => {
	const work = await dead('away');
	const nonce = await nonceFor(work, 'replay');
	await order('/ledger/cut');
	const queries: Array<Record<string, string>> = [{}, { find: 'away' }, { work: work.workId }];
	try {
		for (const query of queries) {
			const { status, text } = await ask({ query });
			expect([query, status]).toEqual([query, 503]);
			expect(text).toMatch(/The ledger could not be read .*(refused|reach|connect)/i);
			expect(text).not.toContain('No work is like that');
		}
		const pressed = await press(nonce);
		expect(pressed).toMatchObject({
			status: 409,
			text: expect.stringContaining('It was not done'),
		});
		expectNoSecret(pressed, work.token);
	} finally {
		await order('/ledger/restore');
	}
	expect(await row(work)).toMatchObject({ state: 'dead' });
	expect((await press(nonce)).text).toContain('Done Replayed');
});
