import {
	isLedgerError,
	type Caller,
	type MessageAnswer,
	type Messages,
	type ReservePolicy,
} from '../../ledger';
import { messageOf } from '../execution/problems';
import type { Outgoing, Pace } from './request';
import type { Outcome, TelegramApi } from './telegram-api';

/** Messages that are reserved, and so kept from others, at a time. */
const CHUNK = 500;
/** An unused reservation is free again after this; a batch that takes longer reserves again what others took. */
const RESERVATION_S = 600;
const CONNECT_S = 10;
/** A turn further away than this means a queue that grows faster than Telegram takes it. */
const LONGEST_TURN_S = 10;
/** So many requests in a row without an answer, and the rest is not tried: it would only fill the list of the unknown. */
const TROUBLE_LIMIT = 3;
/** So many chats in a row that Telegram told to wait: it means the bot, not the chats. */
const FLOOD_LIMIT = 5;
const TAKEN_OVER =
	'This execution took so long that the message was taken over or resolved meanwhile.';

export type SendStatus =
	| 'duplicate'
	| 'error'
	| 'in_progress'
	| 'mismatch'
	| 'permanent'
	| 'retry_later'
	| 'sent'
	| 'unknown';

/** What became of one message. */
export interface SendResult {
	status: SendStatus;
	/** Why not, in a sentence; null where it was sent. */
	reason: string | null;
	chatId: string;
	movedFrom: string | null;
	messageRef: string | null;
	messageIds: Array<number | null>;
	partCount: number;
	sentAt: string | null;
	/** UTC; null: at once, or nobody knows. */
	retryAt: string | null;
	copyPossible: boolean;
	contentDiffers: boolean;
	/** Sent without its formatting, as Telegram could not parse it. */
	plainText: boolean;
	/** False: it is out, and the ledger could not be told. */
	recorded: boolean;
	owner: Record<string, string> | null;
	/** By choice the next run sends it again although it may have arrived. */
	resends: boolean;
}

/** A message on its way. */
interface Underway {
	message: Outgoing;
	answer: MessageAnswer;
	messageIds: Array<number | null>;
	plain: boolean;
	/** A moved chat was followed in this run. */
	followed: boolean;
	slot: string | null;
}

/** Why nothing more is sent in this run. */
interface Stop {
	status: 'error' | 'permanent' | 'retry_later';
	reason: string;
}

/**
 * Sends messages one after another, each at most once: reserved, marked directly before its request, settled directly
 * behind it. What Telegram makes wait is taken up again when its time has come; other chats go on meanwhile.
 */
export class Sending {
	/** The ledger failed: who asked for "Stop Workflow" throws it. */
	failure: unknown = null;
	private readonly results = new Map<Outgoing, SendResult>();
	/** Local times (ms) before which nothing goes to a chat. */
	private readonly blocked = new Map<string, number>();
	private wholeBotUntil = 0;
	private waitedMs = 0;
	private trouble = 0;
	private readonly flooded = new Set<string>();
	private stop: Stop | null = null;
	/** References that this run has reserved. */
	private readonly ours = new Set<string>();
	/** A group by its old and its new id is one chat: these are the same as another message of their batch, by its reference. */
	private readonly twins = new Map<Outgoing, string>();
	/** Taken off the queue, and nothing was sent under their reservation. */
	private readonly unused: Underway[] = [];

	constructor(
		private readonly messages: Messages,
		private readonly api: TelegramApi,
		private readonly pace: Pace,
		private readonly caller: Caller,
		private readonly signal: AbortSignal | undefined,
	) {}

	/** Never throws; every message has its result. */
	async sendAll(all: Outgoing[]): Promise<Map<Outgoing, SendResult>> {
		for (let at = 0; at < all.length; at += CHUNK) {
			const chunk = all.slice(at, at + CHUNK);
			if (this.stop !== null) {
				for (const message of chunk) this.results.set(message, stopped(message, this.stop));
				continue;
			}
			await this.sendChunk(chunk);
		}
		return this.results;
	}

	private async sendChunk(chunk: Outgoing[]): Promise<void> {
		let queue: Underway[] = [];
		try {
			queue = await this.reserve(chunk);
			await this.drain(queue);
		} catch (error) {
			this.failure ??= error;
			this.stop = { status: 'error', reason: messageOf(error) };
		}
		await this.giveBack(queue);
		for (const message of chunk) {
			if (!this.results.has(message)) this.results.set(message, this.answerOfTwin(message, chunk));
		}
	}

	/** Reserves a chunk; what needs no sending has its result at once. */
	private async reserve(chunk: Outgoing[]): Promise<Underway[]> {
		const queue: Underway[] = [];
		const firsts = new Set<string>();
		// the same message twice in a batch goes out once: the later one gets the answer of the first
		const asked = chunk.filter(({ chatId, messageKey }) => {
			const name = `${chatId} ${messageKey}`;
			return !firsts.has(name) && firsts.add(name);
		});
		for (const [policy, group] of byPolicy(asked)) {
			const answers = await this.messages
				.reserve(this.api.bot, group, policy, this.caller)
				.catch(async (error: unknown) => {
					const mayBe = isLedgerError(error) && error.answerLost;
					if (queue.length > 0 || mayBe) await this.free(asked, error);
					throw error;
				});
			for (const { status, messageRef } of answers)
				if (status === 'reserved') this.ours.add(messageRef);
			group.forEach((message, i) => {
				const answer = answers[i];
				if (this.isTwin(message, answer)) return;
				const underway = {
					message,
					answer,
					messageIds: [...answer.messageIds],
					plain: false,
					followed: false,
					slot: null,
				};
				if (answer.status === 'reserved') queue.push(underway);
				else this.finish(underway, answeredStatus(answer.status), answeredReason(answer));
			});
		}
		return queue.sort((a, b) => a.message.itemIndex - b.message.itemIndex);
	}

	/** Best effort, with the ledger out of reach: their leases end by themselves. */
	private async free(messages: Outgoing[], error: unknown): Promise<void> {
		await this.messages
			.release(this.api.bot, messages, { error: messageOf(error) }, this.caller)
			.catch(() => undefined);
	}

	/** Takes messages off the queue until it is empty or must not go on. */
	private async drain(queue: Underway[]): Promise<void> {
		while (queue.length > 0 && this.stop === null) {
			if (this.signal?.aborted === true) {
				this.stop = { status: 'retry_later', reason: 'The execution was cancelled.' };
				return;
			}
			const now = Date.now();
			const at = queue.findIndex(({ answer }) => this.dueAt(answer.chatId) <= now);
			if (at === -1) {
				const next = Math.min(...queue.map(({ answer }) => this.dueAt(answer.chatId)));
				if (this.waitedMs + next - now > this.pace.maxWaitSeconds * 1000) return;
				this.waitedMs += next - now;
				await sleep(next - now, this.signal);
				continue;
			}
			const [underway] = queue.splice(at, 1);
			// back in its place: the messages of a chat keep their order
			if ((await this.send(underway)) === 'deferred') queue.splice(at, 0, underway);
		}
	}

	private dueAt(chatId: string): number {
		return Math.max(this.wholeBotUntil, this.blocked.get(chatId) ?? 0);
	}

	private async send(underway: Underway): Promise<'deferred' | 'settled'> {
		const { message } = underway;
		try {
			while (underway.messageIds.length < message.parts.length) {
				const part = underway.messageIds.length + 1;
				const marked = await this.mark(underway, part);
				if (marked !== 'sending') return marked;
				const step = await this.sendPart(underway, part);
				if (step !== 'next') return step;
			}
			this.finish(underway, 'sent', null);
			return 'settled';
		} catch (error) {
			// the ledger failed: what was marked and not settled counts as unknown there once its lease ends
			this.failure ??= error;
			this.stop = { status: 'error', reason: messageOf(error) };
			if (!this.results.has(message)) this.finish(underway, 'error', messageOf(error));
			return 'settled';
		}
	}

	private async mark(
		underway: Underway,
		part: number,
	): Promise<'deferred' | 'sending' | 'settled'> {
		// a request may be made twice (without its formatting), and its report takes its time
		const leaseSeconds = 2 * (CONNECT_S + this.pace.timeoutSeconds) + 60;
		for (;;) {
			const request = {
				part,
				leaseSeconds,
				rate: this.pace.rate,
				maxWaitSeconds: LONGEST_TURN_S,
				slot: underway.slot,
			};
			const answer = await this.messages
				.mark(this.api.bot, this.hold(underway), request, this.caller)
				.catch(async (error: unknown) => {
					await this.unmark(underway, part, error);
					this.unused.push(underway);
					throw error;
				});
			// another worker may have followed the chat meanwhile
			if (answer.state !== null && answer.chatId !== underway.answer.chatId) {
				const movedFrom = underway.answer.chatId;
				underway.answer = { ...underway.answer, chatId: answer.chatId, movedFrom };
			}
			if (answer.status === 'sending') {
				underway.slot = null;
				return 'sending';
			}
			if (answer.status === 'not_owner') {
				this.finish(underway, 'in_progress', TAKEN_OVER);
				return 'settled';
			}
			const waitMs = Math.ceil(answer.waitSeconds * 1000);
			if (answer.why === 'flood') {
				this.defer(underway.answer.chatId, waitMs, answer.wholeBot);
				return 'deferred';
			}
			underway.slot = answer.slot;
			if (answer.slot === null) {
				// the queue for turns is full: that is for later, too
				this.stop = {
					status: 'retry_later',
					reason: `More messages wait for this bot than its ${this.pace.rate} messages per second let through.`,
				};
				return 'deferred';
			}
			await sleep(waitMs, this.signal);
			if (this.signal?.aborted === true) return 'deferred';
		}
	}

	/** The mark may stand although its answer was lost: nothing was sent under it. Best effort, as the lease ends anyway. */
	private async unmark(underway: Underway, part: number, error: unknown): Promise<void> {
		if (!isLedgerError(error) || !error.answerLost) return;
		await this.settle(underway, { outcome: 'not_sent', part, error: error.message }).catch(
			() => undefined,
		);
	}

	private async sendPart(
		underway: Underway,
		part: number,
	): Promise<'deferred' | 'next' | 'settled'> {
		const { message } = underway;
		let outcome = await this.request(underway, part);
		if (outcome.outcome === 'unparsed' && message.plainFallback && !underway.plain) {
			// Telegram has answered no: nothing is out, and the mark still stands
			underway.plain = true;
			outcome = await this.request(underway, part);
		}
		this.watchTrouble(outcome, underway.answer.chatId);
		switch (outcome.outcome) {
			case 'sent':
				return await this.recordSent(underway, part, outcome.messageId);
			case 'not_sent':
				await this.settle(underway, { outcome: 'not_sent', part, error: outcome.error });
				this.finish(underway, 'retry_later', outcome.error);
				return 'settled';
			case 'unknown':
				await this.settleUnknown(underway, part, outcome.error);
				return 'settled';
			case 'flooded': {
				const { error, retryAfterSeconds } = outcome;
				const wholeBot = this.flooded.size >= FLOOD_LIMIT;
				await this.settle(underway, {
					outcome: 'flooded',
					part,
					error,
					retryAfterSeconds,
					wholeBot,
				});
				this.defer(underway.answer.chatId, retryAfterSeconds * 1000, wholeBot);
				return 'deferred';
			}
			case 'migrated':
				return await this.follow(underway, part, outcome.chatId, outcome.error);
			case 'unparsed':
				await this.settle(underway, { outcome: 'refused', part, error: outcome.error });
				this.finish(underway, 'permanent', outcome.error);
				return 'settled';
			case 'refused':
				await this.settle(underway, { outcome: 'refused', part, error: outcome.error });
				this.finish(underway, 'permanent', outcome.error);
				if (outcome.bot) {
					this.stop = {
						status: 'permanent',
						reason: `${outcome.error}. Telegram does not know this bot: check the access token and the base URL in its credential.`,
					};
				}
				return 'settled';
		}
	}

	private async request(underway: Underway, part: number): Promise<Outcome> {
		const { method, parameters, upload } = underway.message.call(part, underway.plain);
		let file = null;
		try {
			file = upload === null ? null : await upload();
		} catch (error) {
			return { outcome: 'not_sent', error: `The file could not be read: ${messageOf(error)}` };
		}
		return await this.api.send(method, { chat_id: underway.answer.chatId, ...parameters }, file, {
			connectMs: CONNECT_S * 1000,
			answerMs: this.pace.timeoutSeconds * 1000,
		});
	}

	private async recordSent(
		underway: Underway,
		part: number,
		messageId: number,
	): Promise<'next' | 'settled'> {
		underway.messageIds.push(messageId);
		const isLast = part === underway.message.parts.length;
		const answer = await this.settle(underway, { outcome: 'sent', part, messageId }).catch(
			(error: unknown) => {
				// it is out: that is what the item says, whatever the ledger could be told
				if (isLast) this.finish(underway, 'sent', null, { recorded: false });
				throw error;
			},
		);
		if (isLast) underway.answer.sentAt = answer.sentAt;
		if (answer.status === 'recorded') return 'next';
		// a lease of minutes ended in between, and somebody sends it again by choice: both copies are in the log
		if (isLast) this.finish(underway, 'sent', null, { copyPossible: true });
		else this.finish(underway, 'in_progress', TAKEN_OVER, { copyPossible: true });
		return 'settled';
	}

	private async settleUnknown(underway: Underway, part: number, error: string): Promise<void> {
		try {
			await this.settle(underway, { outcome: 'unknown', part, error });
		} finally {
			this.finish(underway, 'unknown', error);
		}
	}

	private async follow(
		underway: Underway,
		part: number,
		newChatId: string,
		error: string,
	): Promise<'next' | 'settled'> {
		if (underway.followed) {
			// once: a chat that moves while it is followed is left to the next run
			await this.settle(underway, { outcome: 'not_sent', part, error });
			this.finish(underway, 'retry_later', error);
			return 'settled';
		}
		underway.followed = true;
		const { message } = underway;
		const movedFrom = underway.answer.chatId;
		const answer = await this.messages
			.follow(this.api.bot, this.hold(underway), newChatId, RESERVATION_S, this.caller)
			.catch(async (failure: unknown) => {
				// Telegram refused it, so nothing is out, whether the ledger has moved the chat or not
				await this.settle(underway, { outcome: 'not_sent', part, error }).catch(() => undefined);
				this.unused.push(underway);
				throw failure;
			});
		underway.answer = { ...answer, movedFrom };
		if (answer.status === 'reserved') return 'next';
		if (this.isTwin(message, answer)) return 'settled';
		underway.messageIds = [...answer.messageIds];
		this.finish(underway, answeredStatus(answer.status), answeredReason(answer));
		return 'settled';
	}

	private watchTrouble({ outcome }: Outcome, chatId: string): void {
		this.trouble = outcome === 'not_sent' || outcome === 'unknown' ? this.trouble + 1 : 0;
		if (outcome === 'flooded') this.flooded.add(chatId);
		else this.flooded.clear();
		if (this.trouble >= TROUBLE_LIMIT) {
			this.stop = {
				status: 'retry_later',
				reason: `${TROUBLE_LIMIT} requests in a row had no answer of Telegram: the rest of the batch was not tried.`,
			};
		}
	}

	private defer(chatId: string, waitMs: number, wholeBot: boolean): void {
		const until = Date.now() + waitMs;
		if (wholeBot) this.wholeBotUntil = Math.max(this.wholeBotUntil, until);
		this.blocked.set(chatId, Math.max(this.blocked.get(chatId) ?? 0, until));
	}

	/** Frees what was reserved and not sent, and says when to come back. */
	private async giveBack(queue: Underway[]): Promise<void> {
		const unsent = queue.filter(({ message }) => !this.results.has(message));
		const byTime = new Map<string | null, Underway[]>();
		for (const underway of unsent) {
			const due = this.dueAt(underway.answer.chatId);
			const retryAt = due > Date.now() ? new Date(due).toISOString() : null;
			byTime.set(retryAt, [...(byTime.get(retryAt) ?? []), underway]);
			const { status, reason } = this.stop ?? {
				status: 'retry_later',
				reason: `Telegram asks for a pause, longer than the ${this.pace.maxWaitSeconds} s that this execution may wait.`,
			};
			this.finish(underway, status, reason, { retryAt });
		}
		const freed = this.unused.splice(0);
		if (freed.length > 0) byTime.set(null, [...(byTime.get(null) ?? []), ...freed]);
		for (const [retryAt, group] of byTime) {
			// best effort: with the ledger out of reach the leases end by themselves
			await this.messages
				.release(
					this.api.bot,
					group.map((underway) => this.hold(underway)),
					{ error: this.stop?.reason ?? 'Telegram asks for a pause.', retryAt },
					this.caller,
				)
				.catch(() => undefined);
		}
	}

	private async settle(
		underway: Underway,
		what: Parameters<Messages['settle']>[2],
	): Promise<MessageAnswer<'not_owner' | 'recorded'>> {
		return await this.messages.settle(
			this.api.bot,
			this.hold(underway),
			what,
			RESERVATION_S,
			this.caller,
		);
	}

	private hold({ message, answer }: Underway) {
		return { chatId: answer.chatId, messageKey: message.messageKey, token: message.token };
	}

	private finish(
		underway: Underway,
		status: SendStatus,
		reason: string | null,
		more: Partial<SendResult> = {},
	): void {
		const { message, answer, messageIds, plain } = underway;
		this.results.set(message, {
			status,
			reason,
			chatId: answer.chatId,
			movedFrom: answer.movedFrom,
			messageRef: answer.messageRef,
			messageIds,
			partCount: status === 'duplicate' ? (answer.partCount ?? 1) : message.parts.length,
			sentAt: answer.sentAt,
			retryAt: answer.retryAt,
			copyPossible: answer.copyPossible,
			contentDiffers: answer.contentDiffers,
			plainText: plain && status === 'sent',
			recorded: true,
			owner: status === 'duplicate' || status === 'in_progress' ? answer.owner : null,
			resends: message.resendUnknown,
			...more,
		});
	}

	private isTwin(message: Outgoing, { status, messageRef }: MessageAnswer): boolean {
		if (status !== 'in_progress' || !this.ours.has(messageRef)) return false;
		this.twins.set(message, messageRef);
		return true;
	}

	/** The later of two equal messages in a batch: what the first became, or that it was not asked for. */
	private answerOfTwin(message: Outgoing, chunk: Outgoing[]): SendResult {
		const ref = this.twins.get(message);
		const twin = chunk.find(
			(other) =>
				other !== message &&
				(ref === undefined
					? other.chatId === message.chatId && other.messageKey === message.messageKey
					: this.results.get(other)?.messageRef === ref),
		);
		const result = twin === undefined ? undefined : this.results.get(twin);
		if (result === undefined) {
			return stopped(message, this.stop ?? { status: 'error', reason: 'It was not asked for.' });
		}
		return result.status === 'sent' ? { ...result, status: 'duplicate' } : result;
	}
}

function stopped(message: Outgoing, { status, reason }: Stop): SendResult {
	return {
		status,
		reason,
		chatId: message.chatId,
		movedFrom: null,
		messageRef: null,
		messageIds: [],
		partCount: message.parts.length,
		sentAt: null,
		retryAt: null,
		copyPossible: false,
		contentDiffers: false,
		plainText: false,
		recorded: true,
		owner: null,
		resends: message.resendUnknown,
	};
}

function answeredStatus(status: string): SendStatus {
	switch (status) {
		case 'duplicate':
		case 'in_progress':
		case 'mismatch':
		case 'unknown':
			return status;
		default:
			return 'retry_later';
	}
}

function answeredReason(answer: MessageAnswer): string | null {
	switch (answer.status) {
		case 'duplicate':
			return null;
		case 'in_progress':
			return `Another execution is sending it; its reservation ends at ${answer.lockedUntil}.`;
		case 'mismatch':
			return 'Another text was sent, or begun, under the same key: its missing parts would not fit.';
		case 'unknown':
			return answer.lastError ?? 'An earlier attempt may have arrived.';
		default:
			return 'Somebody else settled it meanwhile.';
	}
}

function byPolicy(messages: Outgoing[]): Array<[ReservePolicy, Outgoing[]]> {
	const groups = new Map<string, [ReservePolicy, Outgoing[]]>();
	for (const message of messages) {
		const { windowSeconds, resendUnknown } = message;
		const name = `${windowSeconds} ${resendUnknown}`;
		const policy = { windowSeconds, resendUnknown, leaseSeconds: RESERVATION_S };
		const group = groups.get(name) ?? [policy, []];
		group[1].push(message);
		groups.set(name, group);
	}
	return [...groups.values()];
}

/** Ends early when the execution is cancelled. */
async function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
	await new Promise<void>((resolve) => {
		const done = () => {
			clearTimeout(timer);
			signal?.removeEventListener('abort', done);
			resolve();
		};
		const timer = setTimeout(done, ms);
		signal?.addEventListener('abort', done, { once: true });
		if (signal?.aborted === true) done();
	});
}
