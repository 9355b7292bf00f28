import type { Client } from 'pg';

import type { MessageItem } from '../../ledger';
import { again, BOT, DAY, hash, MessageStage, newMessage } from './messages-stage';
import { CALLER } from './stage';

let stage: MessageStage;
beforeAll(async () => {
	stage = await MessageStage.open();
});
afterAll(async () => {
	await stage.close();
});

const ask = async (client: Client, messages: MessageItem[]) =>
	(
		await client.query<{ ord: number; status: string }>(
			`select ord, status from idempotency.reserve_messages($1, $2, $3, $4, $5, '{}') order by ord`,
			[
				BOT,
				messages.map(({ chatId }) => chatId),
				messages.map(({ messageKey }) => messageKey),
				messages.map(({ token }) => token),
				messages.map(({ contentHash, partHashes }) =>
					JSON.stringify({ content_hash: contentHash, part_hashes: partHashes }),
				),
			],
		)
	).rows.map(({ status }) => status);

const parts = (count: number) => Array.from({ length: count }, (_, i) => hash(`part ${i}`));

describe('a message is reserved, marked, sent and recorded', () => {
	test('and is a duplicate afterwards, with the original id and time', async () => {
		const message = newMessage();
		expect(await stage.reserve(message)).toMatchObject({ status: 'reserved', state: 'reserved' });
		expect(await stage.mark(message)).toMatchObject({ status: 'sending', state: 'sending' });
		const sent = await stage.settle(message, { outcome: 'sent', messageId: 4_294_967_297 });
		expect(sent).toMatchObject({ status: 'recorded', state: 'sent', messageIds: [4_294_967_297] });
		const duplicate = await stage.reserve(again(message));
		expect(duplicate).toMatchObject({
			status: 'duplicate',
			messageIds: [4_294_967_297],
			sentAt: sent.sentAt,
			owner: { execution: CALLER.execution },
		});
		expect(await stage.history(message)).toEqual([
			'reserve: reserved',
			'send: sent',
			'reserve: duplicate',
		]);
	});

	test('another chat, another bot or another text is another message', async () => {
		const message = await stage.sent();
		expect(await stage.reserve(again(message, { chatId: '1' }))).toMatchObject({
			status: 'reserved',
		});
		expect(await stage.reserve(newMessage({ chatId: message.chatId }))).toMatchObject({
			status: 'reserved',
		});
		const policy = { windowSeconds: null, leaseSeconds: 600, resendUnknown: false };
		const [other] = await stage.ledger.messages.reserve('4712', [again(message)], policy);
		expect(other.status).toBe('reserved');
	});

	test('under an own key another content is a duplicate too, and says that it differs', async () => {
		const message = await stage.sent();
		expect(
			await stage.reserve(again(message, { contentHash: hash('another'), partHashes: parts(2) })),
		).toMatchObject({ status: 'duplicate', contentDiffers: true });
	});

	test('in its window only; afterwards it is sent anew, as another generation', async () => {
		const message = await stage.sent();
		await stage.age(message, DAY - 60);
		expect((await stage.reserve(again(message))).status).toBe('duplicate');
		await stage.age(message, 120);
		expect((await stage.reserve(again(message), { windowSeconds: null })).status).toBe('duplicate');
		const next = again(message);
		expect(await stage.reserve(next)).toMatchObject({
			status: 'reserved',
			generation: 2,
			messageIds: [],
		});
	});

	test('what nobody can ask for any more is forgotten; what lasts forever is not', async () => {
		const [old, lasting, unknown] = [await stage.sent(), newMessage(), await stage.unknown()];
		await stage.reserve(lasting, { windowSeconds: null });
		await stage.mark(lasting);
		await stage.settle(lasting, { outcome: 'sent' });
		for (const message of [old, lasting, unknown]) await stage.age(message, 100 * DAY);
		await stage.reserve(newMessage());
		expect(await stage.rows(old)).toEqual([]);
		expect(await stage.rows(lasting)).toHaveLength(1);
		expect(await stage.rows(unknown)).toHaveLength(1);
	});
});

describe('one owner at a time', () => {
	test("another worker's live reservation is in progress, with its owner", async () => {
		const message = newMessage();
		await stage.reserve(message);
		const other = again(message);
		expect(await stage.reserve(other)).toMatchObject({
			status: 'in_progress',
			owner: { execution: CALLER.execution },
			lockedUntil: expect.stringMatching(/Z$/),
		});
		expect((await stage.mark(other)).status).toBe('not_owner');
	});

	test('a reservation that was never used is free after its lease; its owner cannot send any more', async () => {
		const message = newMessage();
		await stage.reserve(message);
		await stage.elapse(message);
		const next = again(message);
		expect(await stage.reserve(next)).toMatchObject({ status: 'reserved', attempt: 2 });
		expect((await stage.mark(message)).status).toBe('not_owner');
		expect((await stage.mark(next)).status).toBe('sending');
	});

	test('a lapsed reservation that nobody took is still its owner’s', async () => {
		const message = newMessage();
		await stage.reserve(message);
		await stage.elapse(message);
		expect((await stage.mark(message)).status).toBe('sending');
	});

	test('released, it is free at once; what is marked is not released', async () => {
		const [idle, busy] = [newMessage(), await stage.sending()];
		await stage.reserve(idle);
		const released = await stage.ledger.messages.release(BOT, [busy, idle], { error: 'why' });
		expect(released.map(({ status }) => status)).toEqual(['refused', 'released']);
		expect(await stage.row(idle)).toMatchObject({ state: 'not_sent', last_error: 'why' });
		expect((await stage.row(busy)).state).toBe('sending');
		expect((await stage.reserve(again(idle))).status).toBe('reserved');
	});

	test('two batches in opposite orders at the same moment: each message once, and no deadlock', async () => {
		// without the ledger's connection, which would send a deadlocked call again
		const clients = [await stage.base.connect(), await stage.base.connect()];
		for (let round = 0; round < 10; round++) {
			const messages = Array.from({ length: 60 }, () => newMessage());
			const twins = [...messages].reverse().map((message) => again(message));
			const [one, two] = await Promise.all([ask(clients[0], messages), ask(clients[1], twins)]);
			two.reverse();
			const pairs = one.map((status, i) => [status, two[i]].sort().join());
			expect(new Set(pairs)).toEqual(new Set(['in_progress,reserved']));
		}
	});

	test('two claims of one message in the same moment: the second waits and finds it taken', async () => {
		const message = newMessage();
		const client = await stage.base.connect();
		await client.query('begin');
		await client.query(
			`select idempotency.reserve_messages($1, array[$2], array[$3], array[$4::uuid], array[$5::jsonb], '{}')`,
			[
				BOT,
				message.chatId,
				message.messageKey,
				message.token,
				JSON.stringify({ content_hash: message.contentHash, part_hashes: message.partHashes }),
			],
		);
		const second = stage.reserve(again(message));
		await stage.base.untilWaiting(1);
		await client.query('commit');
		expect((await second).status).toBe('in_progress');
	});
});

describe('a call sent again because its answer was lost gives the same answer', () => {
	test('reserve, mark and settle', async () => {
		const message = newMessage();
		for (let i = 0; i < 2; i++)
			expect(await stage.reserve(message)).toMatchObject({ status: 'reserved', attempt: 1 });
		for (let i = 0; i < 2; i++) expect((await stage.mark(message)).status).toBe('sending');
		for (let i = 0; i < 2; i++) {
			expect(await stage.settle(message, { outcome: 'sent', messageId: 5 })).toMatchObject({
				status: 'recorded',
				state: 'sent',
				messageIds: [5],
			});
		}
		expect(await stage.history(message)).toEqual(['reserve: reserved', 'send: sent']);
	});

	test.each(['not_sent', 'refused', 'unknown', 'flooded'])('settled as %s', async (outcome) => {
		const message = await stage.sending();
		const first = await stage.settle(message, { outcome, retryAfterSeconds: 0 });
		const second = await stage.settle(message, { outcome, retryAfterSeconds: 0 });
		expect([first.status, second.status]).toEqual(['recorded', 'recorded']);
		expect(second.state).toBe(first.state);
		expect(await stage.history(message)).toEqual(['reserve: reserved', `send: ${outcome}`]);
	});
});

describe('what may have arrived', () => {
	test('is unknown when the sender vanished between marking and recording, and never sent again by default', async () => {
		const message = await stage.sending();
		expect((await stage.reserve(again(message))).status).toBe('in_progress');
		await stage.elapse(message);
		for (let i = 0; i < 2; i++) {
			expect(await stage.reserve(again(message))).toMatchObject({
				status: 'unknown',
				lastError: expect.stringMatching(/may have arrived/),
			});
		}
		expect(await stage.history(message)).toEqual([
			'reserve: reserved',
			'reserve: in_progress',
			// settled, and answered twice
			'reserve: unknown',
			'reserve: unknown',
			'reserve: unknown',
		]);
	});

	test('at least once: it is sent again, and says that a copy is possible', async () => {
		const message = await stage.unknown();
		const next = again(message);
		expect(await stage.reserve(next, { resendUnknown: true })).toMatchObject({
			status: 'reserved',
			copyPossible: true,
		});
		await stage.mark(next);
		await stage.settle(next, { outcome: 'sent', messageId: 9 });
		expect((await stage.reserve(again(message))).status).toBe('duplicate');
	});

	test.each(['not_sent', 'refused', 'released', 'lapsed'])(
		'stays unknown when the second attempt is %s',
		async (how) => {
			const message = await stage.unknown();
			const next = again(message);
			await stage.reserve(next, { resendUnknown: true });
			if (how === 'released') await stage.ledger.messages.release(BOT, [next], { error: 'why' });
			else if (how === 'lapsed') await stage.elapse(next);
			else {
				await stage.mark(next);
				await stage.settle(next, { outcome: how });
			}
			expect((await stage.reserve(again(message))).status).toBe('unknown');
		},
	);

	test('is recorded as sent when its sender reports late', async () => {
		const message = await stage.sending();
		await stage.elapse(message);
		await stage.reserve(again(message));
		expect(await stage.settle(message, { outcome: 'sent', messageId: 3 })).toMatchObject({
			status: 'recorded',
			state: 'sent',
			messageIds: [3],
		});
	});

	test('a late report after somebody sent it again changes nothing, and both copies are in the log', async () => {
		const message = await stage.sending();
		await stage.elapse(message);
		const next = again(message);
		await stage.reserve(next, { resendUnknown: true });
		expect((await stage.settle(message, { outcome: 'sent', messageId: 3 })).status).toBe(
			'not_owner',
		);
		await stage.mark(next);
		await stage.settle(next, { outcome: 'sent', messageId: 4 });
		const log = await stage.base.query<{ detail: { message_id?: number } }>(
			`select detail from idempotency.decision_log where event = 'send' and work_id =
				(select message_ref from idempotency.sent_messages where message_key = $1) order by id`,
			[message.messageKey],
		);
		expect(log.map(({ detail }) => detail.message_id)).toEqual([3, 4]);
	});

	test('is forgotten with its window: the same text tomorrow is another message', async () => {
		const message = await stage.unknown();
		await stage.age(message, DAY + 1);
		expect(await stage.reserve(again(message))).toMatchObject({
			status: 'reserved',
			generation: 2,
			copyPossible: false,
		});
	});

	test('the sweep settles what senders left behind: begun is unknown, not begun is free', async () => {
		const [begun, idle, alive] = [await stage.sending(), newMessage(), await stage.sending()];
		await stage.reserve(idle);
		for (const message of [begun, idle]) await stage.elapse(message);
		await stage.ledger.messages.sweep(5_000, CALLER);
		expect((await stage.row(begun)).state).toBe('unknown');
		expect((await stage.row(idle)).state).toBe('not_sent');
		expect((await stage.row(alive)).state).toBe('sending');
	});
});

describe('resolved by a person', () => {
	const refOf = async (message: { messageKey: string }) => {
		const [{ message_ref }] = await stage.base.query<{ message_ref: string }>(
			'select message_ref from idempotency.sent_messages where message_key = $1',
			[message.messageKey],
		);
		return message_ref;
	};

	test('it arrived: a duplicate from now on', async () => {
		const message = await stage.unknown();
		const ref = await refOf(message);
		const [answer] = await stage.ledger.messages.resolve([ref], { arrived: true }, CALLER);
		expect(answer).toMatchObject({ status: 'resolved', state: 'sent', messageIds: [null] });
		expect((await stage.reserve(again(message))).status).toBe('duplicate');
		// its sender was only slow, and knows the id
		await stage.settle(message, { outcome: 'sent', messageId: 12 });
		expect((await stage.row(message)).message_ids).toEqual(['12']);
	});

	test('it did not: it goes out with its next delivery, and its old sender is fenced', async () => {
		const message = await stage.unknown();
		const [answer] = await stage.ledger.messages.resolve([await refOf(message)], {
			arrived: false,
		});
		expect(answer).toMatchObject({ status: 'resolved', state: 'not_sent' });
		expect((await stage.settle(message, { outcome: 'sent' })).status).toBe('not_owner');
		expect(await stage.reserve(again(message))).toMatchObject({
			status: 'reserved',
			copyPossible: false,
		});
	});

	test('a message that is under way, sent or free is refused; one twice at once is resolved once', async () => {
		for (const message of [await stage.sending(), await stage.sent()]) {
			const [answer] = await stage.ledger.messages.resolve([await refOf(message)], {
				arrived: true,
			});
			expect(answer.status).toBe('refused');
			expect(answer.reason).toMatch(/sent/);
		}
		const ref = await refOf(await stage.unknown());
		const both = await Promise.all([
			stage.ledger.messages.resolve([ref], { arrived: true }),
			stage.ledger.messages.resolve([ref], { arrived: false }),
		]);
		expect(both.map(([{ status }]) => status).sort()).toEqual(['refused', 'resolved']);
		const [nobody] = await stage.ledger.messages.resolve([hash('nothing')], { arrived: true });
		expect(nobody.status).toBe('not_found');
	});

	test('a part that arrived: the rest goes out with the next delivery', async () => {
		const message = newMessage({ partHashes: parts(3) });
		await stage.reserve(message);
		await stage.mark(message);
		await stage.settle(message, { outcome: 'unknown' });
		const [answer] = await stage.ledger.messages.resolve(
			[await refOf(message)],
			{ arrived: true, messageId: 50 },
			CALLER,
		);
		expect(answer).toMatchObject({ state: 'not_sent', messageIds: [50] });
		expect(await stage.reserve(again(message))).toMatchObject({
			status: 'reserved',
			messageIds: [50],
		});
	});
});

describe('a message in parts', () => {
	test('is recorded part by part, and the next run sends only what is missing', async () => {
		const message = newMessage({ partHashes: parts(3) });
		await stage.reserve(message);
		await stage.mark(message);
		expect(await stage.settle(message, { outcome: 'sent', messageId: 1 })).toMatchObject({
			state: 'reserved',
			messageIds: [1],
		});
		await stage.mark(message, { part: 2 });
		await stage.settle(message, { outcome: 'not_sent', part: 2 });
		const next = again(message);
		expect(await stage.reserve(next)).toMatchObject({ status: 'reserved', messageIds: [1] });
		expect((await stage.mark(next, { part: 1 })).status).toBe('not_owner');
		for (const part of [2, 3]) {
			expect((await stage.mark(next, { part })).status).toBe('sending');
			await stage.settle(next, { outcome: 'sent', part, messageId: part });
		}
		expect(await stage.reserve(again(message))).toMatchObject({
			status: 'duplicate',
			messageIds: [1, 2, 3],
		});
	});

	test('that were begun with another text are not continued', async () => {
		const message = newMessage({ partHashes: parts(2) });
		await stage.reserve(message);
		await stage.mark(message);
		await stage.settle(message, { outcome: 'sent', messageId: 1 });
		await stage.ledger.messages.release(BOT, [message], { error: 'why' });
		const other = again(message, { contentHash: hash('x'), partHashes: [hash('y'), hash('z')] });
		expect((await stage.reserve(other)).status).toBe('mismatch');
		expect((await stage.reserve(again(message))).status).toBe('reserved');
	});
});

/** One of two parts is out, the other is free. */
async function halfSent(message: MessageItem, policy = {}): Promise<MessageItem> {
	await stage.reserve(message, policy);
	await stage.mark(message);
	await stage.settle(message, { outcome: 'sent', messageId: 61 });
	await stage.ledger.messages.release(BOT, [message], { error: 'why' });
	return message;
}

describe('a message of which a part is out', () => {
	test('is continued for as long as it is remembered, and whole again afterwards', async () => {
		const short = await halfSent(newMessage({ partHashes: parts(2) }));
		await stage.age(short, DAY - 60);
		const next = again(short);
		expect(await stage.reserve(next)).toMatchObject({ generation: 1, messageIds: [61] });
		await stage.ledger.messages.release(BOT, [next], { error: 'why' });
		await stage.age(short, 120);
		expect(await stage.reserve(again(short))).toMatchObject({ generation: 2, messageIds: [] });
	});

	test('is not forgotten before its window is over', async () => {
		const long = { windowSeconds: 100 * DAY };
		const message = await halfSent(newMessage({ partHashes: parts(2) }), long);
		await stage.age(message, 60 * DAY);
		await stage.reserve(newMessage());
		expect(await stage.reserve(again(message), long)).toMatchObject({ messageIds: [61] });
	});

	test('counts over one of which nothing is, where two chats turn out to be one', async () => {
		const [old, supergroup] = ['-4009', '-100131'];
		const begun = await halfSent(newMessage({ chatId: old, partHashes: parts(2) }));
		const idle = again(begun, { chatId: supergroup });
		await stage.reserve(idle);
		await stage.ledger.messages.release(BOT, [idle], { error: 'why' });
		const met = await stage.sending(newMessage({ chatId: old }));
		await stage.ledger.messages.follow(BOT, met, supergroup, 600);
		expect(await stage.reserve(again(idle))).toMatchObject({ messageIds: [61] });
	});
});

describe('case 62: a group that became a supergroup', () => {
	test('is followed: the reservation goes along, and both ids are one from now on', async () => {
		const [old, supergroup] = ['-4001', '-100123'];
		const earlier = await stage.sent(newMessage({ chatId: old }));
		const message = await stage.sending(newMessage({ chatId: old }));
		const followed = await stage.ledger.messages.follow(BOT, message, supergroup, 600, CALLER);
		expect(followed).toMatchObject({ status: 'reserved', chatId: supergroup, movedFrom: old });
		// the sender goes on under either id
		expect((await stage.mark(message)).chatId).toBe(supergroup);
		await stage.settle({ ...message, chatId: supergroup }, { outcome: 'sent', messageId: 8 });
		for (const chatId of [old, supergroup]) {
			expect(await stage.reserve(again(message, { chatId }))).toMatchObject({
				status: 'duplicate',
				chatId: supergroup,
				messageIds: [8],
			});
			expect((await stage.reserve(again(earlier, { chatId }))).status).toBe('duplicate');
		}
	});

	test('what is known under the new id already is not sent a second time', async () => {
		const [old, supergroup] = ['-4002', '-100124'];
		const known = await stage.sent(newMessage({ chatId: supergroup }), 31);
		const met = await stage.sending(again(known, { chatId: old }));
		expect(await stage.ledger.messages.follow(BOT, met, supergroup, 600)).toMatchObject({
			status: 'duplicate',
			messageIds: [31],
		});
		expect(await stage.rows(known)).toHaveLength(1);
	});

	test('what was sent under the old id counts over a failure under the new one', async () => {
		const [old, supergroup] = ['-4003', '-100125'];
		const failed = await stage.sending(newMessage({ chatId: supergroup }));
		await stage.settle(failed, { outcome: 'refused' });
		await stage.sent(again(failed, { chatId: old }), 32);
		const met = await stage.sending(newMessage({ chatId: old }));
		await stage.ledger.messages.follow(BOT, met, supergroup, 600);
		expect(await stage.reserve(again(failed))).toMatchObject({
			status: 'duplicate',
			messageIds: [32],
		});
	});

	test('a worker that asks while the chat moves waits, and gets the answer of the new chat', async () => {
		const [old, supergroup] = ['-4004', '-100126'];
		const sent = await stage.sent(newMessage({ chatId: old }), 33);
		const met = await stage.sending(newMessage({ chatId: old }));
		const client = await stage.base.connect();
		await client.query('begin');
		await client.query(`select idempotency.follow_chat($1, $2, $3, $4, $5, '{}')`, [
			BOT,
			old,
			supergroup,
			met.messageKey,
			met.token,
		]);
		const asked = stage.reserve(again(sent));
		await stage.base.untilWaiting(1);
		await client.query('commit');
		expect(await asked).toMatchObject({ status: 'duplicate', chatId: supergroup });
	});

	test('two workers learn of it at once: the second is told the same', async () => {
		const [old, supergroup] = ['-4005', '-100127'];
		const met = [newMessage({ chatId: old }), newMessage({ chatId: old })];
		for (const message of met) await stage.sending(message);
		const answers = await Promise.all(
			met.map(async (one) => await stage.ledger.messages.follow(BOT, one, supergroup, 600)),
		);
		expect(answers.map(({ status, chatId }) => [status, chatId])).toEqual([
			['reserved', supergroup],
			['reserved', supergroup],
		]);
	});

	test('while the same message is reserved under the new id, it is followed afterwards and found there', async () => {
		const [old, supergroup] = ['-4007', '-100129'];
		await stage.sent(newMessage({ chatId: supergroup }));
		const met = await stage.sending(newMessage({ chatId: old }));
		const other = again(met, { chatId: supergroup });
		const client = await stage.base.connect();
		await client.query('begin');
		await ask(client, [other]);
		const followed = stage.ledger.messages.follow(BOT, met, supergroup, 600);
		await stage.base.untilWaiting(1);
		await client.query('commit');
		expect(await followed).toMatchObject({ status: 'in_progress', chatId: supergroup });
		expect(await stage.row(met)).toMatchObject({ chat_id: supergroup, token: other.token });
	});

	test('batches that name it by its old and its new id at the same moment: no deadlock', async () => {
		const [old, supergroup, between] = ['-4008', '-100130', '-2'];
		const met = await stage.sending(newMessage({ chatId: old }));
		await stage.ledger.messages.follow(BOT, met, supergroup, 600);
		const clients = [await stage.base.connect(), await stage.base.connect()];
		for (let round = 0; round < 5; round++) {
			const texts = Array.from({ length: 40 }, () => newMessage());
			const inChats = (chats: string[]) =>
				texts.flatMap((text) => chats.map((chatId) => again(text, { chatId })));
			const [one, two] = await Promise.all([
				ask(clients[0], inChats([between, old])),
				ask(clients[1], inChats([supergroup, between])),
			]);
			expect([...one, ...two].filter((status) => status === 'reserved')).toHaveLength(80);
		}
	});

	test('whose new id has the same message from a sender that vanished: nobody knows', async () => {
		const [old, supergroup] = ['-4010', '-100132'];
		const lost = await stage.sending(newMessage({ chatId: supergroup }));
		await stage.elapse(lost);
		const met = await stage.sending(again(lost, { chatId: old }));
		expect((await stage.ledger.messages.follow(BOT, met, supergroup, 600)).status).toBe('unknown');
	});

	test('in a circle it is not followed', async () => {
		const met = await stage.sending(newMessage({ chatId: '-4006' }));
		await stage.ledger.messages.follow(BOT, met, '-100128', 600);
		const back = await stage.sending(newMessage({ chatId: '-100128' }));
		expect((await stage.ledger.messages.follow(BOT, back, '-4006', 600)).status).toBe('not_owner');
		expect((await stage.row(back)).state).toBe('not_sent');
	});
});

describe('limits', () => {
	test('case 56: a chat that Telegram told to wait is left alone by every worker, others go on', async () => {
		const message = await stage.sending();
		await stage.settle(message, { outcome: 'flooded', retryAfterSeconds: 34 });
		const other = newMessage({ chatId: message.chatId });
		await stage.reserve(other);
		for (const blocked of [message, other]) {
			const answer = await stage.mark(blocked);
			expect(answer).toMatchObject({ status: 'wait', why: 'flood', slot: null });
			expect(answer.waitSeconds).toBeGreaterThan(30);
			expect(answer.waitSeconds).toBeLessThanOrEqual(34);
		}
		expect((await stage.row(message)).state).toBe('reserved');
		await stage.sending();
	});

	test('a message that waits for its chat stays reserved until it may go, and a lease longer', async () => {
		const message = await stage.sending();
		const waiting = await stage.settle(message, {
			outcome: 'flooded',
			retryAfterSeconds: 3_000,
			wholeBot: false,
		});
		const [until, retryAt] = [waiting.lockedUntil, waiting.retryAt].map((time) =>
			Date.parse(time ?? ''),
		);
		expect(until - retryAt).toBe(600_000);
		expect((await stage.reserve(again(message))).status).toBe('in_progress');
	});

	test('two workers told to wait by one chat in the same moment: both are recorded, and no deadlock', async () => {
		const chatId = '90431';
		const messages = [newMessage({ chatId }), newMessage({ chatId })];
		for (const message of messages) await stage.sending(message);
		const clients = [await stage.base.connect(), await stage.base.connect()];
		const reader = await stage.base.connect();
		await reader.query('begin');
		await reader.query('select 1 from idempotency.message_chats where chat_id = $1 for share', [
			chatId,
		]);
		// without the ledger's connection, which would send a deadlocked call again
		const settled: Array<Promise<{ rows: unknown[] }>> = [];
		for (const [i, { messageKey, token }] of messages.entries()) {
			settled.push(
				clients[i].query(
					`select status from idempotency.settle_message($1, $2, $3, $4, 'flooded', null, '{"retry_after_s": 9}')`,
					[BOT, chatId, messageKey, token],
				),
			);
			await stage.base.untilWaiting(i + 1);
		}
		await reader.query('commit');
		for (const { rows } of await Promise.all(settled))
			expect(rows).toEqual([{ status: 'recorded' }]);
	});

	test('workers together stay below the overall rate: each turn is given once', async () => {
		const messages = await Promise.all(
			Array.from({ length: 20 }, async () => {
				const message = newMessage();
				await stage.reserve(message);
				return message;
			}),
		);
		const marked = await Promise.all(
			messages.map(async (message) => await stage.mark(message, { rate: 2 })),
		);
		const turns = marked
			.map(({ status, slot, waitSeconds }) =>
				status === 'sending' ? 0 : slot === null ? null : waitSeconds,
			)
			.filter((turn) => turn !== null)
			.sort((a, b) => a - b);
		// a turn is half a second; what is further away than 10 s gets none
		expect(turns.length).toBeGreaterThanOrEqual(19);
		turns.slice(1).forEach((turn, i) => expect(turn - turns[i]).toBeGreaterThan(0.4));
	});

	test('a turn that has come is used with the slot; without it, it is a new one', async () => {
		await stage.base.query('delete from idempotency.message_pacing');
		const [first, second] = [newMessage(), newMessage()];
		await stage.reserve(first);
		await stage.reserve(second);
		await stage.mark(first, { rate: 100 });
		const wait = await stage.mark(second, { rate: 2 });
		if (wait.status === 'wait') {
			await stage.base.query('select pg_sleep($1)', [wait.waitSeconds]);
			expect((await stage.mark(second, { rate: 2, slot: wait.slot as string })).status).toBe(
				'sending',
			);
		}
		expect((await stage.row(second)).state).toBe('sending');
	});

	test('when the bot as a whole is told to wait, every chat waits', async () => {
		await stage.base.query('delete from idempotency.message_pacing');
		const message = await stage.sending();
		const whole = { outcome: 'flooded', retryAfterSeconds: 60, wholeBot: true };
		await stage.settle(message, whole);
		const other = newMessage();
		await stage.reserve(other);
		expect(await stage.mark(other)).toMatchObject({ status: 'wait', why: 'flood', wholeBot: true });
		await stage.base.query('delete from idempotency.message_pacing');
	});
});

describe('the list', () => {
	test('shows what a person must look at, page by page, and finds a moved chat by its old id', async () => {
		const chatId = '-4100';
		const messages = [];
		for (let i = 0; i < 5; i++) messages.push(await stage.unknown(newMessage({ chatId })));
		const met = await stage.sending(newMessage({ chatId }));
		await stage.ledger.messages.follow(BOT, met, '-100200', 600);
		const filter = { states: ['unknown' as const], chat: chatId };
		const first = await stage.ledger.messages.list(filter, 3);
		const second = await stage.ledger.messages.list(filter, 3, first.cursor);
		const listed = [...first.messages, ...second.messages].map(({ preview }) => preview);
		expect(listed).toEqual(messages.map(({ preview }) => preview).reverse());
		expect(second.cursor).toBeNull();
		expect(first.messages[0]).toMatchObject({ chatId: '-100200', state: 'unknown', bot: BOT });
	});

	test('refuses a filter or cursor that it does not know', async () => {
		const { messages } = stage.ledger;
		await expect(messages.list({ states: ['lost'] as never }, 5)).rejects.toThrow(/states must be/);
		await expect(messages.list({ x: 1 } as never, 5)).rejects.toThrow(/filter may hold/);
		await expect(messages.list({}, 5, 'now')).rejects.toThrow(/cursor/);
	});
});

test('a batch of 400 is reserved in one statement, logged message by message', async () => {
	const messages = Array.from({ length: 400 }, () => newMessage());
	const policy = { windowSeconds: DAY, leaseSeconds: 600, resendUnknown: false };
	const answers = await stage.ledger.messages.reserve(BOT, messages, policy, CALLER);
	expect(new Set(answers.map(({ status }) => status))).toEqual(new Set(['reserved']));
	const [{ logged }] = await stage.base.query<{ logged: number }>(
		`select count(distinct work_id)::int as logged from idempotency.decision_log where work_id = any($1)`,
		[answers.map(({ messageRef }) => messageRef)],
	);
	expect(logged).toBe(400);
});

test('hostile text passes as text', async () => {
	const hostile = `'; drop table sent_messages; --`;
	const message = newMessage({ chatId: hostile, preview: `${hostile} \u0000 \ud800` });
	await stage.sent(message);
	expect((await stage.row(message)).preview).toContain('drop table');
	expect((await stage.reserve(again(message))).status).toBe('duplicate');
});

describe('what the functions refuse', () => {
	const reserve = async (
		more: Partial<Record<'bot' | 'chats' | 'tokens' | 'details' | 'options', unknown>>,
	) =>
		await stage.base.query('select idempotency.reserve_messages($1, $2, $3, $4, $5, $6)', [
			more.bot ?? BOT,
			more.chats ?? ['1'],
			[hash('refused')],
			more.tokens ?? ['aaaaaaaa-0000-4000-8000-000000000001'],
			more.details ?? ['{"content_hash": "c", "part_hashes": ["p"]}'],
			more.options ?? '{}',
		]);

	test.each<[string, Parameters<typeof reserve>[0], RegExp]>([
		['no bot', { bot: '' }, /needs a bot/],
		['no chat', { chats: [null] }, /needs a bot, a chat/],
		['no token', { tokens: [null] }, /a fresh UUID/],
		['fewer tokens than messages', { tokens: [] }, /a fresh UUID/],
		[
			'no parts',
			{ details: ['{"content_hash": "c", "part_hashes": []}'] },
			/part_hashes of 1 to 1000/,
		],
		['no content', { details: ['{"part_hashes": ["p"]}'] }, /content_hash/],
		['an option nobody knows', { options: '{"lease": 5}' }, /options may hold/],
		['a lease of nothing', { options: '{"lease_s": 0}' }, /lease_s from 1/],
		['a window of nothing', { options: '{"window_s": 0}' }, /window_s must be/],
		['a window without end', { options: '{"window_s": "Infinity"}' }, /window_s must be/],
	])('%s', async (_, more, words) => {
		await expect(reserve(more)).rejects.toThrow(words);
		expect(await stage.rows({ messageKey: hash('refused') })).toEqual([]);
	});

	test('a rate of nothing, an outcome nobody knows, a chat that moves to itself', async () => {
		const message = newMessage();
		await stage.reserve(message);
		await expect(stage.mark(message, { rate: 0 })).rejects.toThrow(/rate must be/);
		await expect(stage.settle(message, { outcome: 'lost' })).rejects.toThrow(/outcome must be/);
		await expect(stage.ledger.messages.follow(BOT, message, message.chatId, 600)).rejects.toThrow(
			/moves to another/,
		);
		await expect(
			stage.base.query(`select idempotency.resolve_messages('{}', null, null, null)`),
		).rejects.toThrow(/arrived must be/);
	});
});
