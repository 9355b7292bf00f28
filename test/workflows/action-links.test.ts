import type { IDataObject } from 'n8n-workflow';

import {
	claim,
	complete,
	step,
	workLedger,
	workLedgerTool,
	type NodeOfTest,
	type Ran,
} from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

const PAGE = 'https://n8n.example.com/webhook/action';

/** Order 1 of a new kind, dead or held. */
async function broken(state: 'dead' | 'held' = 'dead', number = 1): Promise<string> {
	const kind = stage.newKind();
	const ran = await stage.run({
		items: orders(number),
		nodes: [
			claim(byOrder(kind, state === 'held' ? { onLapse: 'hold' } : {})),
			complete({
				operation: 'fail',
				error: 'card declined',
				landed: state === 'held' ? 'unknown' : 'no',
				options: { permanent: state === 'dead' },
			}),
		],
	});
	expect(ran.error).toBeNull();
	expect((await stage.work(kind)).state).toBe(state);
	return kind;
}

async function ledger(
	parameters: IDataObject,
	items: IDataObject[] = orders(1),
	settings: NodeOfTest['settings'] = {},
): Promise<Ran> {
	return await stage.run({ items, nodes: [workLedger(parameters, settings)] });
}

/** The one item that leaves. */
async function answer(parameters: IDataObject, items?: IDataObject[]): Promise<IDataObject> {
	const ran = await ledger(parameters, items);
	expect(ran.error).toBeNull();
	const [first, ...rest] = ran.out('Work Ledger');
	expect(rest).toEqual([]);
	expect(first.pairedItem).toEqual({ item: 0 });
	expect(first.json).not.toHaveProperty('error');
	return first.json;
}

const creating = (kind: string, more: IDataObject = {}): IDataObject => ({
	operation: 'createLink',
	whichWork: 'key',
	kind,
	key: '={{ $json.order }}',
	linkAction: 'replay',
	...more,
});
const REDEEM = { operation: 'redeemLink', nonce: '={{ $json.query.nonce }}' };
const LOOK = { operation: 'lookAtLink', nonce: '={{ $json.query.nonce }}' };

/** The request that comes in when the link is followed. */
const followed = (link: IDataObject): IDataObject[] => [{ query: { nonce: link.nonce } }];

async function unchanged(kind: string, act: () => Promise<unknown>): Promise<void> {
	const standing = async () => [
		await stage.rows(kind),
		await stage.ledger.query('select * from idempotency.action_links order by nonce_hash'),
	];
	const before = await standing();
	await act();
	expect(await standing()).toEqual(before);
}

describe('create action link', () => {
	test('answers the nonce, the whole address for a message, and what the work is', async () => {
		const kind = await broken();
		const link = await answer(creating(kind, { pageUrl: `${PAGE}?lang=en` }));
		expect(link).toMatchObject({
			status: 'created',
			action: 'replay',
			nonce: expect.stringMatching(/^[\w-]{22}$/),
			url: `${PAGE}?lang=en&nonce=${String(link.nonce)}`,
			workId: (await stage.work(kind)).work_id,
			work: { kind, key: '1', state: 'dead', lastError: 'card declined', attempt: 1 },
			message: `A link that replays ${kind} 1, once, until ${String(link.expiresAt)}.`,
		});
		expect(await stage.ledger.secondsUntil(link.expiresAt as string)).toBeGreaterThan(86_000);
	});

	test('without a page there is no address; the time to live is in hours', async () => {
		const kind = await broken();
		const link = await answer(creating(kind, { validHours: 0.5 }));
		expect(link).not.toHaveProperty('url');
		const seconds = await stage.ledger.secondsUntil(link.expiresAt as string);
		expect(seconds).toBeGreaterThan(1_700);
		expect(seconds).toBeLessThanOrEqual(1_800);
	});

	test('makes a link for each item, and the items go on to the operations on one work', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1, 2),
			nodes: [claim(byOrder(kind)), complete({ operation: 'fail', error: 'x', landed: 'no', options: { permanent: true } })],
		});
		const ran = await ledger(creating(kind), orders(1, 2));
		expect(ran.out('Work Ledger').map(({ pairedItem }) => pairedItem)).toEqual([{ item: 0 }, { item: 1 }]);
		const [one, two] = ran.json('Work Ledger');
		expect(one.nonce).not.toBe(two.nonce);
		await answer(REDEEM, followed(two));
		expect(await stage.works(kind)).toEqual(['1 dead', '2 failed']);
		expect(await answer({ operation: 'explain' }, [one])).toMatchObject({ found: true, workId: one.workId });
	});

	test('under Retry On Fail makes one link per item, though another item fails', async () => {
		const kind = await broken();
		const ran = await ledger(creating(kind), orders(1, 2), {
			retryOnFail: true,
			maxTries: 2,
			waitBetweenTries: 0,
		});
		expect(ran.error?.message).toMatch(/^The ledger holds no such work/);
		const workId = (await stage.work(kind)).work_id;
		expect(
			await stage.ledger.query('select 1 from idempotency.action_links where work_id = $1', [workId]),
		).toHaveLength(1);
	});
});

describe('the way of a link', () => {
	test('a message, a preview that looks, a person who replays: the work runs once, with its data', async () => {
		const kind = await broken();
		const link = await answer(creating(kind, { pageUrl: PAGE }));
		for (let bot = 0; bot < 2; bot++) {
			expect(await answer(LOOK, followed(link))).toMatchObject({
				status: 'usable',
				usable: true,
				action: 'replay',
				work: { kind, key: '1', state: 'dead' },
				message: `This link replays ${kind} 1, which is dead (card declined). It can be used once, until ${String(link.expiresAt)}.`,
			});
		}
		expect((await stage.work(kind)).state).toBe('dead');
		expect(
			await answer({ ...REDEEM, redeemedBy: 'Ada' }, followed(link)),
		).toMatchObject({
			status: 'redeemed',
			message: `Replayed: ${kind} 1 is due now.`,
			usedBy: { by: 'Ada', workflow_name: 'Test flow' },
			work: { state: 'failed' },
		});
		const ran = await stage.run({ items: orders(1), nodes: [claim(byOrder(kind)), complete()] });
		expect((ran.json('Complete Work')[0].work as IDataObject).status).toBe('completed');
		expect(await answer(LOOK, followed(link))).toMatchObject({
			usable: false,
			status: 'used',
			message: expect.stringMatching(/^This link cannot be used: it was used at \S+ by Ada: the work was replayed\.$/),
		});
	});

	test('a second click, or the first one sent again, is told what the first did: no error, nothing twice', async () => {
		const kind = await broken();
		const link = await answer(creating(kind));
		const first = await answer({ ...REDEEM, redeemedBy: 'Ada' }, followed(link));
		await unchanged(kind, async () => {
			expect(await answer({ ...REDEEM, redeemedBy: 'Bob' }, followed(link))).toMatchObject({
				status: 'used',
				usedAt: first.usedAt,
				usedBy: { by: 'Ada' },
				outcome: { status: 'replayed', state: 'failed' },
				message: `This link did its work before: it was used at ${String(first.usedAt)} by Ada: the work was replayed.`,
			});
		});
	});

	test('two clicks at once: one replays, the other is told so', async () => {
		const kind = await broken();
		const link = await answer(creating(kind));
		const both = await Promise.all([
			answer({ ...REDEEM, redeemedBy: 'Ada' }, followed(link)),
			answer({ ...REDEEM, redeemedBy: 'Bob' }, followed(link)),
		]);
		expect(both.map(({ status }) => status).sort()).toEqual(['redeemed', 'used']);
		const { work_id: workId } = await stage.work(kind);
		expect((await stage.ledger.history({ workId })).filter((row) => row === 'replay: due')).toHaveLength(1);
	});

	test('it landed: done, with the reference that the person enters', async () => {
		const kind = await broken('held');
		const link = await answer(creating(kind, { linkAction: 'landed', linkReference: 'INV-1' }));
		expect((await answer(LOOK, followed(link))).message).toMatch(
			/^This link says that it landed: \w+ 1, which is held \(card declined\)\./,
		);
		expect(
			await answer({ ...REDEEM, linkReference: ' INV-2 ' }, followed(link)),
		).toMatchObject({
			status: 'redeemed',
			message: `Resolved: ${kind} 1 landed and is done.`,
			work: { state: 'done', externalRef: 'INV-2' },
		});
	});

	test('it did not land: due now', async () => {
		const kind = await broken('held');
		const link = await answer(creating(kind, { linkAction: 'not_landed' }));
		expect((await answer(REDEEM, followed(link))).message).toBe(
			`Resolved as not landed: ${kind} 1 is due now.`,
		);
		expect(await stage.work(kind)).toMatchObject({ state: 'failed', outcome_known: true });
	});

	test('before it is replayed, whoever looks is told that the effect may have landed', async () => {
		const kind = await broken('held');
		const warning = 'Its effect may have landed: look at the target system first.';
		expect((await answer(LOOK, followed(await answer(creating(kind))))).message).toContain(warning);
		const said = await answer(creating(kind, { linkAction: 'landed' }));
		expect((await answer(LOOK, followed(said))).message).not.toContain(warning);
	});

	test('work whose data are not kept: it says that it waits for its next delivery', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind, { options: { storePayload: false } })),
				complete({ operation: 'fail', error: 'x', landed: 'no', options: { permanent: true } }),
			],
		});
		const link = await answer(creating(kind));
		expect((await answer(REDEEM, followed(link))).message).toMatch(/done when it is delivered again\.$/);
	});

	test('what has happened since the message overtakes the link, in words', async () => {
		const kind = await broken();
		const link = await answer(creating(kind));
		await answer({ operation: 'replay', whichWork: 'key', kind, key: '1' });
		await stage.run({ items: orders(1), nodes: [claim(byOrder(kind)), complete()] });
		await unchanged(kind, async () => {
			const ran = await ledger(REDEEM, followed(link));
			expect(ran.error?.message).toMatch(
				/^The link for kind\d+ 1 cannot be used: it was done at \S+ by execution \d+\. Nothing was changed\.$/,
			);
			expect(await answer(LOOK, followed(link))).toMatchObject({ usable: false, status: 'overtaken' });
		});
	});

	test('a replay that fails again needs a new link: the old one cannot run it twice', async () => {
		const kind = await broken();
		const link = await answer(creating(kind));
		await answer({ operation: 'replay', whichWork: 'key', kind, key: '1' });
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete({ operation: 'fail', error: 'again', landed: 'no', options: { permanent: true } })],
		});
		expect((await stage.work(kind)).state).toBe('dead');
		const ran = await ledger(REDEEM, followed(link));
		expect(ran.error?.message).toMatch(/it was claimed anew at \S+ by execution \d+ and is dead again/);
		const fresh = await answer(creating(kind));
		expect(await answer(REDEEM, followed(fresh))).toMatchObject({ status: 'redeemed' });
	});

	test('the history in words names the link, who used it, and why it was refused', async () => {
		const kind = await broken();
		const link = await answer(creating(kind));
		await answer({ ...REDEEM, redeemedBy: 'Ada' }, followed(link));
		await answer({ ...REDEEM, redeemedBy: 'Bob' }, followed(link));
		const { story } = await answer({ operation: 'explain', whichWork: 'key', kind, key: '1' });
		const [, , created, replayed, redeemed, used] = story as string[];
		expect(created).toMatch(/: execution \d+ of "Test flow" asked for create link \(replay\), found it dead → created/);
		expect(replayed).toMatch(/: Ada, by execution \d+ of "Test flow" asked for replay, found it dead → due/);
		expect(redeemed).toMatch(/: Ada, by execution \d+ of "Test flow" asked for redeem link \(replay\) → redeemed/);
		expect(used).toMatch(/: Bob, by execution .* → used, .*: it was used at \S+ by Ada: the work was replayed\.$/);
	});
});

describe('links that cannot be used', () => {
	test('looking at them is an answer, not an error', async () => {
		const kind = await broken();
		const link = await answer(creating(kind));
		await stage.ledger.query(
			`update idempotency.action_links set expires_at = clock_timestamp() - interval '1 hour' where work_id = $1`,
			[link.workId],
		);
		const cases: Array<[IDataObject, string, RegExp]> = [
			[link, 'expired', /^This link cannot be used: it expired at \S+\.$/],
			[{ nonce: 'AAAAAAAAAAAAAAAAAAAAAA' }, 'unknown', /^This link cannot be used: it is not known /],
			[{ nonce: '' }, 'unknown', /its address holds no nonce/],
			[{}, 'unknown', /its address holds no nonce/],
		];
		await unchanged(kind, async () => {
			for (const [given, status, words] of cases) {
				expect(await answer(LOOK, followed(given))).toMatchObject({
					usable: false,
					status,
					message: expect.stringMatching(words),
				});
			}
		});
	});

	test('of a nonce that nobody knows nothing else is told', async () => {
		const seen = await answer(LOOK, [{ query: { nonce: 'AAAAAAAAAAAAAAAAAAAAAA' } }]);
		const { status, reason, message, usable, ...rest } = seen;
		expect([status, usable, typeof reason, typeof message]).toEqual(['unknown', false, 'string', 'string']);
		expect(Object.values(rest).every((value) => value === null)).toBe(true);
	});

	const redeemed = async (settings: NodeOfTest['settings']) => {
		const kind = await broken();
		const link = await answer(creating(kind));
		const items = [{ query: { nonce: 'nobody' } }, ...followed(link)];
		return { kind, link, ran: await ledger(REDEEM, items, settings) };
	};
	const WORDS = /^This link cannot be used: it is not known .*Nothing was changed\.$/;

	test('redeeming one is an error on its item under Continue; the rest goes on, paired', async () => {
		const { kind, ran } = await redeemed({ onError: 'continueRegularOutput' });
		expect(ran.error).toBeNull();
		expect(ran.out('Work Ledger')).toMatchObject([
			{ json: { query: { nonce: 'nobody' }, error: expect.stringMatching(WORDS) }, pairedItem: { item: 0 } },
			{ json: { status: 'redeemed' }, pairedItem: { item: 1 } },
		]);
		expect((await stage.work(kind)).state).toBe('failed');
	});

	test('and leaves by the error output, alone', async () => {
		const { ran } = await redeemed({ onError: 'continueErrorOutput' });
		expect(ran.out('Work Ledger')).toMatchObject([{ json: { status: 'redeemed' }, pairedItem: { item: 1 } }]);
		expect(ran.out('Work Ledger', 1)).toMatchObject([
			{ json: { error: expect.stringMatching(WORDS) }, pairedItem: { item: 0 } },
		]);
	});

	test('and stops the workflow otherwise, before what comes behind it', async () => {
		const { kind, ran } = await redeemed({});
		expect(ran.error?.message).toMatch(WORDS);
		expect((await stage.work(kind)).state).toBe('dead');
	});
});

describe('bad input', () => {
	test.each([
		['a negative time', { validHours: -1 }, /^Valid for \(Hours\) must be a number from 0\.01 to 720, not -1\.$/],
		['no time', { validHours: '={{ $json.nope }}' }, /^Valid for \(Hours\) must be/],
		['more than 30 days', { validHours: 721 }, /^Valid for \(Hours\) must be/],
		['a page that is no address', { pageUrl: 'webhook/action' }, /^Page URL is no web address\./],
		['a page of another protocol', { pageUrl: 'javascript:alert(1)' }, /^Page URL is no web address\./],
		['a page with a password', { pageUrl: 'https://me:hush@n8n.example.com/x' }, /^Page URL holds a user name or password(?!.*hush)/],
		['an unknown action', { linkAction: 'explode' }, /^"What the Link Does" must be/],
		['work nobody knows', { key: '="77"' }, /^The ledger holds no such work/],
		['an id that is none', { whichWork: 'id', workId: 'inv-1' }, /^Work ID names no work/],
		['a reference too long', { linkAction: 'landed', linkReference: 'x'.repeat(2_001) }, /longer than 2000/],
	])('%s is a clear error on the item, and makes no link', async (_, bad, words) => {
		const kind = await broken();
		await unchanged(kind, async () => {
			const ran = await ledger(creating(kind, bad), orders(1), { onError: 'continueRegularOutput' });
			expect(ran.error).toBeNull();
			expect(ran.json('Work Ledger')).toEqual([
				{ ...orders(1)[0], error: expect.stringMatching(words) },
			]);
		});
	});

	test.each([
		['running', [], /it is running until .* No link was made\.$/],
		['done', [complete()], /it is done; .* No link was made\.$/],
	] as Array<[string, NodeOfTest[], RegExp]>)('%s work is refused, in words', async (_, nodes, words) => {
		const kind = stage.newKind();
		await stage.run({ items: orders(1), nodes: [claim(byOrder(kind)), ...nodes] });
		await unchanged(kind, async () => {
			expect((await ledger(creating(kind))).error?.message).toMatch(words);
		});
	});

	test('an empty nonce tells where it should come from', async () => {
		const ran = await ledger(REDEEM, [{ query: {} }]);
		expect(ran.error?.message).toMatch(/^Nonce is empty\. .*\$json\.query\.nonce/);
	});

	test('a ledger that cannot be reached redeems nothing, and its error does not hold the nonce', async () => {
		const kind = await broken();
		const link = await answer(creating(kind));
		const ran = await stage.run({
			items: followed(link),
			nodes: [workLedger(REDEEM)],
			credential: { ...stage.ledger.settings, host: '' },
		});
		expect(ran.status).toBe('error');
		expect(JSON.stringify(ran.error)).not.toContain(link.nonce);
		expect((await stage.work(kind)).state).toBe('dead');
	});
});

test('as a tool of an agent every answer is a text that a model can read', async () => {
	const kind = await broken();
	const link = await answer(creating(kind));
	const read = async (parameters: IDataObject) => {
		const ran = await stage.run({ items: followed(link), nodes: [workLedgerTool(parameters)] });
		expect(ran.error).toBeNull();
		return ran.json('Work Ledger')[0].response;
	};
	expect(await read(LOOK)).toMatch(/^This link replays/);
	expect(await read(REDEEM)).toBe(`Replayed: ${kind} 1 is due now.`);
	expect(await read(REDEEM)).toMatch(/^This link did its work before/);
	expect(await read({ ...REDEEM, nonce: 'nobody' })).toMatch(/it is not known/);
});

test('a link redeemed while its work completes late: one of them stands, and the link tells which', async () => {
	const kind = stage.newKind();
	let nonce: unknown;
	const slow = await stage.run({
		items: orders(1),
		nodes: [
			claim(byOrder(kind, { onLapse: 'hold' })),
			step('Sweep', async (items) => {
				const { work_id: workId } = await stage.work(kind);
				await stage.ledger.elapse({ workId });
				await stage.ledger.ledger.admin.sweep(100);
				({ nonce } = await answer(creating(kind, { linkAction: 'not_landed' })));
				return items;
			}),
			complete({ externalRef: 'late-1' }),
		],
	});
	expect(slow.error).toBeNull();
	expect(await stage.work(kind)).toMatchObject({ state: 'done', external_ref: 'late-1' });
	const ran = await ledger(REDEEM, [{ query: { nonce } }]);
	expect(ran.error?.message).toMatch(/it was done at \S+ by execution \d+ \(reference late-1\)/);
	expect((await stage.work(kind)).state).toBe('done');
});
