import { closeSharedLedgers } from '../../ledger';
import { MessageStage } from '../integration/messages-stage';
import { activate, type ActiveTrigger } from './run-trigger';

/** Work Ledger Trigger tells of messages of unknown fate like of dead letters. */

let stage: MessageStage;
const active: ActiveTrigger[] = [];
beforeAll(async () => {
	stage = await MessageStage.open();
});
beforeEach(async () => {
	await stage.base.query('truncate idempotency.sent_messages, idempotency.announcements');
});
afterEach(async () => {
	await Promise.all(active.splice(0).map(async (trigger) => await trigger.deactivate()));
});
afterAll(async () => {
	await closeSharedLedgers();
	await stage.close();
});

async function trigger(parameters: Record<string, unknown> = {}): Promise<ActiveTrigger> {
	const activated = await activate({
		credential: stage.base.settings,
		parameters: { intervalSeconds: 1, ...parameters } as never,
	});
	active.push(activated);
	return activated;
}

test('a sender vanished in the middle: the message starts an execution, once', async () => {
	const message = await stage.sending();
	await stage.elapse(message);
	const told = await trigger();
	const [execution] = await told.untilStarted(1);
	expect(execution.items).toMatchObject([
		{
			json: {
				event: 'dead_letter',
				kind: 'telegram',
				state: 'unknown',
				chatId: message.chatId,
				preview: message.preview,
				messageRef: expect.stringMatching(/^[0-9a-f]{64}$/),
				summary: expect.stringMatching(/may have arrived: .* Look into the chat, then resolve it\.$/),
				lastError: expect.stringMatching(/vanished/),
				announcement: { nth: 1, of: 5 },
			},
		},
	]);
	execution.end('success');
	const next = await stage.unknown();
	const [, second] = await told.untilStarted(2);
	expect(second.items[0].json.chatId).toBe(next.chatId);
	second.end('success');
	for (;;) {
		const [{ open }] = await stage.base.query<{ open: number }>(
			`select count(*)::int as open from idempotency.announcements where state <> 'acknowledged'`,
		);
		if (open === 0) break;
		await stage.base.query('select pg_sleep(0.01)');
	}
	expect(told.started).toHaveLength(2);
});

test('chosen alone, it tells of messages only; with other kinds, of none', async () => {
	await stage.unknown();
	const alone = await trigger({ states: ['unknown'] });
	const [execution] = await alone.untilStarted(1);
	execution.end('success');
	const settings = { states: ['dead', 'held', 'unknown'], kinds: 'invoice' };
	const others = await trigger({ ...settings, options: { subscription: 'others' } });
	const telegram = await trigger({ ...settings, kinds: 'invoice, telegram', options: { subscription: 'both' } });
	const [told] = await telegram.untilStarted(1);
	told.end('success');
	expect(others.started).toEqual([]);
});

test('a run in the editor shows such a message, or a made-up one, and reserves nothing', async () => {
	const look = async () => {
		const activated = await activate({
			credential: stage.base.settings,
			parameters: { states: ['unknown'] },
			mode: 'manual',
		});
		return (await activated.manualRun())[0].json;
	};
	const madeUp = await look();
	expect(madeUp).toMatchObject({ kind: 'telegram', state: 'unknown', sample: true, madeUp: true });
	const message = await stage.unknown();
	const found = await look();
	expect(found).toMatchObject({ chatId: message.chatId, sample: true, madeUp: false });
	expect(Object.keys(madeUp)).toEqual(Object.keys(found));
	expect(await stage.base.query('select 1 from idempotency.announcements')).toEqual([]);
});
