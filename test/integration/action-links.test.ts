import { createHash } from 'node:crypto';
import type { Client } from 'pg';

import { createLedger } from '../../ledger';
import type {
	CreatedLink,
	LinkAction,
	NewLink,
	RedeemedLink,
	SeenLink,
} from '../../ledger/action-links';
import { startProxy } from './cuttable-proxy';
import { again, CALLER, from, newWork, Stage } from './stage';

let stage: Stage;
let one: Client;
beforeAll(async () => {
	stage = await Stage.open();
	one = await stage.connect();
});
afterAll(async () => {
	await stage.close();
});

type Made = CreatedLink & { nonce: string };
type Item = { workId: string };

const WHO = { ...CALLER, node: 'Work Ledger', execution: '300' };

async function link(item: Item, more: Partial<NewLink> = {}): Promise<Made> {
	const made = await stage.ledger.actionLinks.create(
		{ workId: item.workId, action: 'replay', ...more },
		CALLER,
	);
	if (made.nonce === null) throw new Error(`no link: ${made.reason}`);
	return made as Made;
}

const look = async ({ nonce }: { nonce: string }): Promise<SeenLink> =>
	await stage.ledger.actionLinks.look(nonce);

const redeem = async (
	{ nonce }: { nonce: string },
	how: { by?: string; externalRef?: string } = {},
): Promise<RedeemedLink> => await stage.ledger.actionLinks.redeem(nonce, how, WHO);

const hashOf = (nonce: string) => createHash('sha256').update(nonce).digest('hex');

/** The link expired a second ago. */
async function expire({ nonce }: { nonce: string }, ago = '1 second'): Promise<void> {
	await stage.query(
		`update idempotency.action_links set expires_at = clock_timestamp() - $2::interval where nonce_hash = $1`,
		[hashOf(nonce), ago],
	);
}

const linkRows = async () =>
	await stage.query('select * from idempotency.action_links order by nonce_hash');

/** The work, its link and its log stand as before, but for the one row that tells of the refusal. */
async function refusedWithoutTrace(
	item: Item,
	act: () => Promise<unknown>,
	logged: string[],
): Promise<void> {
	const before = [await stage.findRow(item), await linkRows()];
	const log = await stage.history(item);
	await act();
	expect([await stage.findRow(item), await linkRows()]).toEqual(before);
	expect((await stage.history(item)).slice(log.length)).toEqual(logged);
}

describe('a link that replays', () => {
	test.each(['dead', 'held', 'failed'] as const)(
		'makes %s work due, once, and says what it did',
		async (state) => {
			const item = await stage.workThatIs(state);
			const made = await link(item);
			expect(made).toMatchObject({
				status: 'created',
				action: 'replay',
				repeated: false,
				work: {
					workId: item.workId,
					kind: 'invoice',
					key: item.key,
					state,
					lastError: 'no answer',
				},
			});
			expect(await redeem(made, { by: 'Ada' })).toMatchObject({
				status: 'redeemed',
				outcome: { status: 'replayed', state: 'failed', waitsForDelivery: true },
				usedBy: { by: 'Ada', execution: '300' },
				work: { state: 'failed', attempt: 0 },
			});
			expect(await stage.row(item)).toMatchObject({ state: 'failed', attempt: 0, token: null });
			expect(await stage.claim(again(item))).toMatchObject({ status: 'claimed', attempt: 1 });
		},
	);

	test('used again is told when, by whom, and what it did; nothing happens twice', async () => {
		const item = await stage.workThatIs('dead');
		const made = await link(item);
		const first = await redeem(made, { by: 'Ada' });
		await refusedWithoutTrace(item, async () => {
			const second = await redeem(made, { by: 'Bob' });
			expect(second).toMatchObject({
				status: 'used',
				usedAt: first.usedAt,
				usedBy: { by: 'Ada' },
				outcome: first.outcome,
				reason: `it was used at ${first.usedAt} by Ada: the work was replayed`,
			});
		}, ['redeem_link: used']);
	});

	test('used by nobody in particular names the execution', async () => {
		const made = await link(await stage.workThatIs('dead'));
		await redeem(made);
		expect((await redeem(made)).reason).toMatch(/ by execution 300: the work was replayed$/);
	});

	test('by two people in the same second does one thing: the second waits and is told of the first', async () => {
		const item = await stage.workThatIs('dead');
		const made = await link(item);
		await one.query('begin');
		const { rows } = await one.query(
			`select idempotency.redeem_action_link($1, gen_random_uuid(), null, '{"by": "Ada"}') ->> 'status' as status`,
			[hashOf(made.nonce)],
		);
		expect(rows).toEqual([{ status: 'redeemed' }]);
		const second = redeem(made, { by: 'Bob' });
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({ status: 'used', usedBy: { by: 'Ada' } });
		expect((await stage.history(item)).filter((entry) => entry.startsWith('replay'))).toEqual([
			'replay: due',
		]);
	});

	test('of which the first rolls back is free for the second: a process that dies here uses nothing up', async () => {
		const item = await stage.workThatIs('dead');
		const made = await link(item);
		const dying = await stage.connect();
		const [{ pid }] = (await dying.query('select pg_backend_pid() as pid')).rows;
		await dying.query('begin');
		await dying.query('select idempotency.redeem_action_link($1, gen_random_uuid(), null, null)', [
			hashOf(made.nonce),
		]);
		const second = redeem(made);
		await stage.untilWaiting(1);
		await stage.query('select pg_terminate_backend($1)', [pid]);
		expect(await second).toMatchObject({ status: 'redeemed' });
		expect(await stage.row(item)).toMatchObject({ state: 'failed', attempt: 0 });
	});

	test('against a person who replays at the same moment: one replay, and the link says so', async () => {
		const item = await stage.workThatIs('dead');
		const made = await link(item);
		await one.query('begin');
		await one.query('select * from idempotency.replay_works(array[$1::text], null)', [item.workId]);
		const second = redeem(made);
		await stage.untilWaiting(1);
		await one.query('commit');
		expect(await second).toMatchObject({
			status: 'overtaken',
			reason: expect.stringMatching(/^a person made it due again at /),
		});
	});

	test('whose answer was lost is answered as it was the first time, and done once', async () => {
		const item = await stage.workThatIs('dead');
		const made = await link(item);
		const proxy = await startProxy(stage.settings);
		const far = createLedger({ ...stage.settings, host: '127.0.0.1', port: proxy.port });
		try {
			proxy.loseAnswerTo('redeem_action_link');
			expect(await far.actionLinks.redeem(made.nonce, { by: 'Ada' }, WHO)).toMatchObject({
				status: 'redeemed',
				repeated: true,
				usedBy: { by: 'Ada' },
				outcome: { status: 'replayed' },
			});
			expect(proxy.lost).toBe(1);
		} finally {
			await far.close();
			await proxy.close();
		}
		expect((await stage.history(item)).slice(-2)).toEqual(['replay: due', 'redeem_link: redeemed']);
	});
});

describe('a link that resolves', () => {
	test.each(['held', 'dead'] as const)(
		'%s work that landed: done, with the reference given when the link is used',
		async (state) => {
			const item = await stage.workThatIs(state);
			const made = await link(item, { action: 'landed', externalRef: 'inv_1' });
			expect(await redeem(made, { externalRef: 'inv_2' })).toMatchObject({
				status: 'redeemed',
				outcome: { status: 'resolved', state: 'done', externalRef: 'inv_2' },
			});
			expect(await stage.claim(again(item))).toMatchObject({
				status: 'duplicate',
				externalRef: 'inv_2',
			});
			expect((await redeem(made)).reason).toMatch(/: the work was resolved as landed$/);
		},
	);

	test('keeps the reference it was made with where nobody gives another', async () => {
		const item = await stage.workThatIs('held');
		await redeem(await link(item, { action: 'landed', externalRef: 'inv_1' }));
		expect(await stage.row(item)).toMatchObject({ state: 'done', external_ref: 'inv_1' });
	});

	test('work that did not land: due now, its outcome known', async () => {
		const item = await stage.workThatIs('held');
		const made = await link(item, { action: 'not_landed' });
		expect(await redeem(made)).toMatchObject({ status: 'redeemed', outcome: { state: 'failed' } });
		expect(await stage.row(item)).toMatchObject({
			state: 'failed',
			attempt: 0,
			outcome_known: true,
		});
		expect((await redeem(made)).reason).toMatch(/: the work was resolved as not landed$/);
	});
});

describe('a link is bound to the episode it was made in', () => {
	/** What happens between the making of a link and its use, and the words that tell of it. */
	const since: Array<[string, (item: ReturnType<typeof newWork>) => Promise<unknown>, RegExp]> = [
		[
			'a replay',
			async (item) => await stage.ledger.admin.replay([item.workId]),
			/^a person made it due again at 2/,
		],
		[
			'a claim that runs',
			async (item) => {
				await stage.ledger.admin.replay([item.workId]);
				await stage.claimed(again(item), from({ execution: '777' }));
			},
			/^it was claimed anew at \S+ by execution 777 and is running$/,
		],
		[
			'a late success of its owner',
			async (item) => await stage.complete(item, { externalRef: 'inv_9' }),
			/^it was done at \S+ by execution 100 \(reference inv_9\)$/,
		],
		[
			'a person who said that it landed',
			async (item) => await stage.ledger.admin.resolve([item.workId], { landed: true }),
			/^it was done at \S+, as a person said$/,
		],
		[
			'a second death',
			async (item) => {
				await stage.ledger.admin.replay([item.workId]);
				const next = await stage.claimed(again(item), from({ execution: '778' }));
				await stage.fail(next, { permanent: true });
			},
			/^it was claimed anew at \S+ by execution 778 and is dead again$/,
		],
		[
			'being forgotten',
			async (item) =>
				await stage.query('delete from idempotency.work_log where work_id = $1', [item.workId]),
			/^the ledger holds no such work any more/,
		],
	];

	test.each(since)('%s overtakes it, in words', async (_, happen, words) => {
		const item = await stage.workThatIs('dead');
		const made = await link(item);
		await happen(item);
		expect(await look(made)).toMatchObject({
			status: 'overtaken',
			reason: expect.stringMatching(words),
		});
		await refusedWithoutTrace(item, async () => {
			expect(await redeem(made)).toMatchObject({
				status: 'overtaken',
				reason: expect.stringMatching(words),
				usedAt: null,
			});
		}, ['redeem_link: overtaken']);
	});

	test('two episodes without a token are two: work that was replayed, died, and was replayed again', async () => {
		const item = await stage.workThatIs('held');
		await stage.ledger.admin.replay([item.workId]);
		const made = await link(item, { action: 'landed' });
		const next = await stage.claimed(again(item));
		await stage.fail(next, { landed: 'unknown' });
		await stage.ledger.admin.replay([item.workId]);
		expect(await stage.row(item)).toMatchObject({ state: 'failed', attempt: 0, token: null });
		expect(await redeem(made)).toMatchObject({ status: 'overtaken' });
	});

	test('two claims at one moment, of a clock that stood still, are two by their tokens', async () => {
		const item = await stage.workThatIs('dead');
		const made = await link(item);
		await stage.query('update idempotency.work_log set token = $2 where work_id = $1', [
			item.workId,
			newWork().token,
		]);
		expect(await redeem(made)).toMatchObject({ status: 'overtaken' });
	});

	test('a claim that was undone did not happen: the link holds', async () => {
		const item = await stage.workThatIs('failed');
		const made = await link(item);
		await stage.becomeDue(item);
		const next = await stage.claimed(again(item));
		expect((await look(made)).status).toBe('overtaken');
		await stage.release(next);
		expect((await redeem(made)).status).toBe('redeemed');
	});

	test('its owner may still make known that it did not land: then there is nothing to resolve', async () => {
		const item = await stage.claimed();
		await stage.fail(item, { landed: 'unknown' });
		const made = await link(item, { action: 'landed' });
		await stage.fail(item, { landed: 'no' });
		await refusedWithoutTrace(item, async () => {
			expect(await redeem(made)).toMatchObject({
				status: 'refused',
				reason: expect.stringMatching(/known not to have landed/),
			});
		}, ['redeem_link: refused']);
	});
});

describe('a link that cannot be used', () => {
	test('expired: nothing changes, and it is told since when', async () => {
		const item = await stage.workThatIs('dead');
		const made = await link(item);
		await expire(made);
		expect((await look(made)).status).toBe('expired');
		await refusedWithoutTrace(item, async () => {
			expect(await redeem(made)).toMatchObject({
				status: 'expired',
				reason: expect.stringMatching(/^it expired at 2/),
			});
		}, ['redeem_link: expired']);
	});

	test.each([
		['of a stranger', 'AAAAAAAAAAAAAAAAAAAAAA'],
		['empty', ''],
		['no nonce at all', `'; drop table idempotency.action_links; --`],
		['one MB long', 'x'.repeat(1_000_000)],
	])('%s: not known, and nothing else is told', async (_, nonce) => {
		const before = await stage.query('select count(*) from idempotency.decision_log');
		const nothing = {
			status: 'unknown',
			reason: 'it is not known (mistyped, or so old that it was purged)',
			repeated: false,
			action: null,
			externalRef: null,
			createdAt: null,
			expiresAt: null,
			usedAt: null,
			usedBy: null,
			outcome: null,
			work: null,
		};
		expect(await look({ nonce })).toEqual(nothing);
		expect(await redeem({ nonce })).toEqual(nothing);
		expect(await stage.query('select count(*) from idempotency.decision_log')).toEqual(before);
	});
});

describe('looking at a link', () => {
	test('uses nothing up, writes nothing and shows neither data nor result', async () => {
		const item = await stage.claimed({ ...newWork(), payload: '{"card":"4000"}' });
		await stage.fail(item, { permanent: true });
		const made = await link(item);
		await refusedWithoutTrace(item, async () => {
			for (let i = 0; i < 3; i++) {
				const seen = await look(made);
				expect(seen).toMatchObject({ status: 'usable', reason: null, work: { state: 'dead' } });
				expect(JSON.stringify(seen)).not.toContain('4000');
			}
		}, []);
		expect((await redeem(made)).status).toBe('redeemed');
	});
});

describe('making a link', () => {
	test.each([
		['running', 'replay', /it is running until/],
		['done', 'replay', /it is done/],
		['running', 'landed', /it is running until/],
		['done', 'not_landed', /it is done already/],
		['failed', 'landed', /known not to have landed/],
	] as Array<['running' | 'done' | 'failed', LinkAction, RegExp]>)(
		'for %s work to %s is refused, and makes none',
		async (state, action, words) => {
			const item = await stage.workThatIs(state);
			await refusedWithoutTrace(item, async () => {
				const made = await stage.ledger.actionLinks.create({ workId: item.workId, action });
				expect(made).toMatchObject({
					status: 'refused',
					nonce: null,
					reason: expect.stringMatching(words),
				});
			}, []);
		},
	);

	test('for work nobody knows is refused', async () => {
		const made = await stage.ledger.actionLinks.create({
			workId: newWork().workId,
			action: 'replay',
		});
		expect(made).toMatchObject({ status: 'unknown_work', nonce: null, work: null });
	});

	test.each([
		['a negative time', { ttlSeconds: -1 }, /ttlSeconds is -1/],
		['no time', { ttlSeconds: 0 }, /ttlSeconds is 0/],
		['no number', { ttlSeconds: NaN }, /ttlSeconds is NaN/],
		['more than 30 days', { ttlSeconds: 30 * 86_400 + 1 }, /at most 2592000 \(30 days\)/],
		['a reference with NUL', { action: 'landed', externalRef: 'a\0' }, /NUL/],
		[
			'a reference too long',
			{ action: 'landed', externalRef: 'x'.repeat(2001) },
			/longer than 2000/,
		],
		['a reference for a replay', { externalRef: 'inv_1' }, /goes with the action landed/],
		[
			'an unknown action',
			{ action: 'explode' as LinkAction },
			/action must be replay, landed or not_landed/,
		],
	] as Array<[string, Partial<NewLink>, RegExp]>)(
		'with %s is bad input, and makes none',
		async (_, bad, words) => {
			const item = await stage.workThatIs('dead');
			await refusedWithoutTrace(item, async () => {
				await expect(link(item, bad)).rejects.toMatchObject({
					code: 'bad_input',
					message: expect.stringMatching(words),
				});
			}, []);
		},
	);

	test('lives a day unless another time is given', async () => {
		const item = await stage.workThatIs('dead');
		const day = await stage.secondsUntil((await link(item)).expiresAt);
		expect(day).toBeGreaterThan(86_300);
		expect(day).toBeLessThanOrEqual(86_400);
		const hour = await stage.secondsUntil((await link(item, { ttlSeconds: 3600 })).expiresAt);
		expect(hour).toBeGreaterThan(3500);
		expect(hour).toBeLessThanOrEqual(3600);
	});

	test('whose answer was lost makes one link, and its nonce works', async () => {
		const item = await stage.workThatIs('dead');
		const proxy = await startProxy(stage.settings);
		const far = createLedger({ ...stage.settings, host: '127.0.0.1', port: proxy.port });
		try {
			const before = (await linkRows()).length;
			proxy.loseAnswerTo('create_action_link');
			const made = await far.actionLinks.create({ workId: item.workId, action: 'replay' });
			expect(made).toMatchObject({ status: 'created', repeated: true });
			expect(proxy.lost).toBe(1);
			expect((await linkRows()).length).toBe(before + 1);
			expect((await redeem({ nonce: made.nonce ?? '' })).status).toBe('redeemed');
		} finally {
			await far.close();
			await proxy.close();
		}
		expect(
			(await stage.history(item)).filter((entry) => entry === 'create_link: created'),
		).toHaveLength(1);
	});

	test('sent twice at once with one nonce makes one link', async () => {
		const item = await stage.workThatIs('dead');
		const create = `select idempotency.create_action_link($1, 'replay', $2, 60, null, null) ->> 'status' as status`;
		const values = [item.workId, hashOf('the same')];
		await one.query('begin');
		await one.query(create, values);
		const second = stage.connect().then(async (client) => await client.query(create, values));
		await stage.untilWaiting(1);
		await one.query('commit');
		expect((await second).rows).toEqual([{ status: 'created' }]);
		expect(
			(await stage.history(item)).filter((entry) => entry === 'create_link: created'),
		).toHaveLength(1);
	});

	test('with a nonce that another link has is refused', async () => {
		const item = await stage.workThatIs('dead');
		const { nonce } = await link(item);
		await expect(
			stage.query(`select idempotency.create_action_link($1, 'landed', $2, 60, null, null)`, [
				item.workId,
				hashOf(nonce),
			]),
		).rejects.toThrow(/belongs to another link/);
	});

	test('purges a few links that expired a month ago, and no others', async () => {
		await stage.query('delete from idempotency.action_links');
		const item = await stage.workThatIs('dead');
		const old: Made[] = [];
		for (let i = 0; i < 25; i++) old.push(await link(item));
		for (const each of old.slice(0, 24)) await expire(each, '31 days');
		await expire(old[24], '29 days');
		await link(item);
		expect(await linkRows()).toHaveLength(4 + 1 + 1);
		await link(item);
		expect(await linkRows()).toHaveLength(1 + 2);
		expect((await look(old[0])).status).toBe('unknown');
		expect((await look(old[24])).status).toBe('expired');
	});
});

describe('the nonce', () => {
	test('is 128 random bits, and stands nowhere in the ledger: only its hash does', async () => {
		const item = await stage.workThatIs('dead');
		const made = await link(item);
		expect(made.nonce).toMatch(/^[A-Za-z0-9_-]{22}$/);
		expect((await link(item)).nonce).not.toBe(made.nonce);
		await look(made);
		await redeem(made);
		await redeem(made);
		const everything = await stage.query<{ text: string }>(
			`select t::text as text from idempotency.action_links t
			union all select d::text from idempotency.decision_log d
			union all select w::text from idempotency.work_log w`,
		);
		expect(everything.some(({ text }) => text.includes(hashOf(made.nonce)))).toBe(true);
		expect(everything.filter(({ text }) => text.includes(made.nonce))).toEqual([]);
	});

	test('is in no error: neither where the ledger refuses, nor where somebody sends it in place of its hash', async () => {
		const item = await stage.workThatIs('dead');
		const { nonce } = await link(item);
		await expect(
			stage.query(`select idempotency.create_action_link($1, 'replay', $2, 60, null, null)`, [
				item.workId,
				nonce,
			]),
		).rejects.toMatchObject({
			message: expect.not.stringContaining(nonce),
			where: expect.not.stringContaining(nonce),
		});
		const away = createLedger({ ...stage.settings, host: '127.0.0.1', port: 1 });
		await expect(away.actionLinks.redeem(nonce)).rejects.toMatchObject({
			message: expect.not.stringContaining(nonce),
		});
		await away.close();
	});
});

test('the decision log tells who made the link and who used it for what', async () => {
	const item = await stage.workThatIs('dead');
	const made = await link(item);
	await redeem(made, { by: 'Ada' });
	await redeem(made, { by: 'Bob' });
	expect((await stage.log(item)).slice(-4)).toMatchObject([
		{
			event: 'create_link',
			outcome: 'created',
			fired: { execution: '100' },
			detail: { action: 'replay', expiresAt: made.expiresAt },
		},
		{ event: 'replay', outcome: 'due', fired: { by: 'Ada', execution: '300' } },
		{
			event: 'redeem_link',
			outcome: 'redeemed',
			fired: { by: 'Ada' },
			detail: { action: 'replay' },
		},
		{
			event: 'redeem_link',
			outcome: 'used',
			fired: { by: 'Bob' },
			detail: { reason: expect.stringMatching(/ by Ada: /) },
		},
	]);
});
