import { createHash, randomUUID } from 'node:crypto';

import type {
	Ledger,
	MessageAnswer,
	MessageItem,
	ReservePolicy,
	ReserveStatus,
	Settlement,
} from '../../ledger';
import { CALLER, Stage } from './stage';

export const BOT = '4711';
export const DAY = 86_400;
export const POLICY: ReservePolicy = {
	windowSeconds: DAY,
	leaseSeconds: 600,
	resendUnknown: false,
};

export const hash = (text: string) => createHash('sha256').update(text).digest('hex');

/** A message to a chat that nobody has written to, unless one is given. */
export function newMessage(change: Partial<MessageItem> & { text?: string } = {}): MessageItem {
	const { text = randomUUID(), ...rest } = change;
	return {
		chatId: `9${Math.floor(Math.random() * 1e12)}`,
		messageKey: hash(text),
		token: randomUUID(),
		contentHash: hash(text),
		partHashes: [hash(`part of ${text}`)],
		kind: 'message',
		preview: text,
		...rest,
	};
}

/** The same message asked for once more: by another execution, with a token of its own. */
export const again = (message: MessageItem, change: Partial<MessageItem> = {}): MessageItem => ({
	...message,
	token: randomUUID(),
	...change,
});

interface MessageRow {
	chat_id: string;
	state: string;
	generation: number;
	attempt: number;
	token: string | null;
	doubt: boolean;
	message_ids: Array<string | null>;
	last_error: string | null;
	preview: string | null;
	expires_at: Date | null;
}

/** A ledger with the steps of one message around it. */
export class MessageStage {
	private constructor(
		readonly base: Stage,
		readonly ledger: Ledger,
	) {}

	static async open(): Promise<MessageStage> {
		const base = await Stage.open();
		return new MessageStage(base, base.ledger);
	}

	async close(): Promise<void> {
		await this.base.close();
	}

	async reserve(
		message: MessageItem,
		policy: Partial<ReservePolicy> = {},
	): Promise<MessageAnswer<ReserveStatus>> {
		const all = { ...POLICY, ...policy };
		return (await this.ledger.messages.reserve(BOT, [message], all, CALLER))[0];
	}

	async mark(message: MessageItem, change: { part?: number; rate?: number; slot?: string } = {}) {
		return await this.ledger.messages.mark(
			BOT,
			message,
			{ part: 1, leaseSeconds: 60, rate: 10_000, maxWaitSeconds: 10, slot: null, ...change },
			CALLER,
		);
	}

	async settle(message: MessageItem, what: Record<string, unknown> & { outcome: string }) {
		const whole = { part: 1, error: 'why', messageId: 1, ...what } as unknown as Settlement;
		return await this.ledger.messages.settle(BOT, message, whole, 600, CALLER);
	}

	/** Reserved and marked: its request may be on its way. */
	async sending(message: MessageItem = newMessage()): Promise<MessageItem> {
		const reserved = await this.reserve(message);
		if (reserved.status !== 'reserved') throw new Error(`not reserved but ${reserved.status}`);
		const marked = await this.mark(message);
		if (marked.status !== 'sending') throw new Error(`not marked but ${marked.status}`);
		return message;
	}

	async sent(message: MessageItem = newMessage(), messageId = 77): Promise<MessageItem> {
		await this.sending(message);
		await this.settle(message, { outcome: 'sent', messageId });
		return message;
	}

	async unknown(message: MessageItem = newMessage()): Promise<MessageItem> {
		await this.sending(message);
		await this.settle(message, { outcome: 'unknown' });
		return message;
	}

	async rows(message: { messageKey: string }): Promise<MessageRow[]> {
		return await this.base.query<MessageRow>(
			'select * from idempotency.sent_messages where message_key = $1 order by chat_id',
			[message.messageKey],
		);
	}

	async row(message: { messageKey: string }): Promise<MessageRow> {
		const rows = await this.rows(message);
		if (rows.length !== 1) throw new Error(`there are ${rows.length} such messages`);
		return rows[0];
	}

	/** What was decided about it, as "event: outcome". */
	async history(message: { messageKey: string }): Promise<string[]> {
		const rows = await this.base.query<{ event: string; outcome: string }>(
			`select d.event, d.outcome from idempotency.decision_log d
			join idempotency.sent_messages m on m.message_ref = d.work_id where m.message_key = $1 order by d.id`,
			[message.messageKey],
		);
		return rows.map(({ event, outcome }) => `${event}: ${outcome}`);
	}

	/** Its lease ended a second ago. */
	async elapse(message: { messageKey: string }): Promise<void> {
		await this.move(message, "locked_until = clock_timestamp() - interval '1 second'");
	}

	/** All of it happened so many seconds earlier. */
	async age(message: { messageKey: string }, seconds: number): Promise<void> {
		const names = [
			'sent_at',
			'sending_at',
			'created_at',
			'updated_at',
			'expires_at',
			'locked_until',
		];
		await this.move(
			message,
			names.map((name) => `${name} = ${name} - make_interval(secs => ${seconds})`).join(', '),
		);
	}

	private async move(message: { messageKey: string }, change: string): Promise<void> {
		const moved = await this.base.query(
			`update idempotency.sent_messages set ${change} where message_key = $1 returning 1`,
			[message.messageKey],
		);
		if (moved.length === 0) throw new Error('there is no such message to move in time');
	}
}
