import { randomUUID } from 'node:crypto';

import { again, BOT, DAY, MessageStage, newMessage } from './messages-stage';

/** Unknown messages are announced like dead letters: each once per subscription, acknowledged or told again. */

let stage: MessageStage;
let subscription: string;
beforeAll(async () => {
	stage = await MessageStage.open();
});
beforeEach(async () => {
	subscription = `name ${randomUUID()}`;
	await stage.base.query('truncate idempotency.sent_messages, idempotency.announcements');
});
afterAll(async () => {
	await stage.close();
});

const announce = async (limit = 100, to = subscription) =>
	await stage.ledger.subscriptions.announceMessages(to, limit);

test('each is handed out once per subscription, with all that is known of it', async () => {
	const message = await stage.unknown();
	await stage.sent();
	await stage.sending();
	const first = await announce();
	expect(first.letters).toEqual([
		{
			handOut: 1,
			handOuts: 5,
			lockedUntil: expect.stringMatching(/Z$/),
			message: expect.objectContaining({
				chatId: message.chatId,
				state: 'unknown',
				preview: message.preview,
				bot: BOT,
			}),
		},
	]);
	expect((await announce()).letters).toEqual([]);
	expect((await announce(100, 'name other')).letters).toHaveLength(1);
	await stage.ledger.subscriptions.acknowledge(first);
	expect((await announce()).letters).toEqual([]);
	expect(await stage.history(message)).toEqual([
		'reserve: reserved',
		'send: unknown',
		'announce: handed_out',
		'announce: handed_out',
		'announce: acknowledged',
	]);
});

test('two callers at once: each message goes to one of them', async () => {
	for (let i = 0; i < 20; i++) await stage.unknown();
	const both = await Promise.all([announce(20), announce(20)]);
	const refs = both.flatMap(({ letters }) => letters.map(({ message }) => message.messageRef));
	const rest = (await announce()).letters.map(({ message }) => message.messageRef);
	expect(new Set([...refs, ...rest]).size).toBe(20);
	expect([...refs, ...rest]).toHaveLength(20);
});

test('the same call sent again gets the same messages', async () => {
	await stage.unknown();
	const token = randomUUID();
	const ask = async () =>
		await stage.base.query(
			`select message_ref, hand_out from idempotency.announce_unknown_messages($1, 10, $2, '{}')`,
			[subscription, token],
		);
	const first = await ask();
	expect(first).toHaveLength(1);
	expect(await ask()).toEqual(first);
});

test('what was not handled comes again, alone', async () => {
	for (let i = 0; i < 2; i++) await stage.unknown();
	const failed = await announce();
	expect(failed.letters).toHaveLength(2);
	await stage.ledger.subscriptions.notHandled(failed, 'mail server down');
	expect((await announce()).letters).toEqual([]);
	await stage.base.query(
		'update idempotency.announcements set next_attempt_at = clock_timestamp()',
	);
	for (let i = 0; i < 2; i++)
		expect((await announce()).letters).toEqual([expect.objectContaining({ handOut: 2 })]);
});

test('what its n8n left behind comes again, and the fifth time is the last', async () => {
	await stage.unknown();
	for (const nth of [1, 2, 3, 4, 5]) {
		const handOut = await announce();
		expect(handOut.letters).toEqual([expect.objectContaining({ handOut: nth })]);
		expect(await stage.ledger.subscriptions.extend(handOut)).toBe(1);
		await stage.base.query('update idempotency.announcements set locked_until = clock_timestamp()');
	}
	expect((await announce()).letters).toEqual([]);
	expect(await stage.base.query('select state from idempotency.announcements')).toEqual([
		{ state: 'given_up' },
	]);
});

test('resolved and unknown once more it is news; a resolved one is forgotten', async () => {
	const message = await stage.unknown();
	const [letter] = (await announce()).letters;
	await stage.base.query(
		`update idempotency.announcements set state = 'acknowledged', locked_until = null`,
	);
	await stage.ledger.messages.resolve([letter.message.messageRef], { arrived: false });
	await announce();
	expect(await stage.base.query('select 1 from idempotency.announcements')).toEqual([]);
	await stage.unknown(again(message));
	expect((await announce()).letters).toHaveLength(1);
	const resent = again(message);
	await stage.reserve(resent, { resendUnknown: true, windowSeconds: DAY });
	await stage.mark(resent);
	await stage.settle(resent, { outcome: 'unknown' });
	await stage.base.query(
		`update idempotency.announcements set state = 'acknowledged', locked_until = null`,
	);
	expect((await announce()).letters).toEqual([expect.objectContaining({ handOut: 1 })]);
});

test('a message whose sender vanished is swept first', async () => {
	const message = await stage.sending(newMessage());
	await stage.elapse(message);
	expect((await announce()).letters).toEqual([]);
	await stage.ledger.messages.sweep(100);
	expect((await announce()).letters).toHaveLength(1);
});
