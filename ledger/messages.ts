import type { QueryResultRow } from 'pg';

import type { Caller } from './contract';
import type { LedgerConnection } from './connection';
import { isStorableText, readableText } from './json-text';
import { quotedIdentifier } from './settings';
import { inOrder, utc } from './work-answers';
import { callerOptions } from './works';

/** Messages per statement. */
const CHUNK = 500;

export type MessageState = 'not_sent' | 'refused' | 'reserved' | 'sending' | 'sent' | 'unknown';

/** What names a message and holds its reservation. */
export interface MessageHold {
	/** In its one form, see `readChatId`. */
	chatId: string;
	/** See `messageKey`. */
	messageKey: string;
	/** A fresh UUID per reservation, made before the call. */
	token: string;
}

export interface MessageItem extends MessageHold {
	contentHash: string;
	/** One per part, in order. */
	partHashes: string[];
	kind: string;
	/** What people see of it in the ledger; null keeps the text out of it. */
	preview: string | null;
}

export interface ReservePolicy {
	/** Seconds that a sent message is remembered; null: forever. */
	windowSeconds: number | null;
	/** Seconds until an unused reservation is free again. */
	leaseSeconds: number;
	/** Send what may have arrived once more: at least once instead of at most once. */
	resendUnknown: boolean;
}

export type ReserveStatus =
	| 'duplicate'
	| 'in_progress'
	| 'mismatch'
	| 'not_owner'
	| 'reserved'
	| 'unknown';

export interface MessageAnswer<Status extends string = string> {
	/** Names the message in the ledger: 64 hex digits. */
	messageRef: string;
	/** In its newest form: a group that moved has only its new id here. */
	chatId: string;
	status: Status;
	/** null where the ledger holds no such message. */
	state: MessageState | null;
	generation: number | null;
	attempt: number | null;
	lockedUntil: string | null;
	/** UTC; when to come back, where the status is one of waiting. */
	retryAt: string | null;
	/** One per part that is out; null for one whose id nobody knows. */
	messageIds: Array<number | null>;
	partCount: number | null;
	sentAt: string | null;
	lastError: string | null;
	/** The chat's id as it was asked for, where the chat has moved. */
	movedFrom: string | null;
	/** Under an own key: what stands in the ledger shows something else. */
	contentDiffers: boolean;
	/** An earlier attempt may have arrived: sending it makes a second copy then. */
	copyPossible: boolean;
	owner: Record<string, string> | null;
	reason: string | null;
	/** Why to wait: Telegram's limit, or our own turn. */
	why: 'flood' | 'turn' | null;
	wholeBot: boolean;
	/** The turn that this caller holds; hand it back with the next `mark`. */
	slot: string | null;
	/** By the database's clock. */
	waitSeconds: number;
}

export interface MarkRequest {
	/** From 1. */
	part: number;
	/** Seconds until a request that nobody reported on counts as of unknown fate; longer than its time-out. */
	leaseSeconds: number;
	/** Messages per second of this bot, over all workers. */
	rate: number;
	maxWaitSeconds: number;
	slot: string | null;
}

export type Settlement =
	| { outcome: 'sent'; messageId: number; part: number }
	| { outcome: 'not_sent' | 'refused' | 'unknown'; part: number; error: string }
	| {
			outcome: 'flooded';
			part: number;
			error: string;
			retryAfterSeconds: number;
			wholeBot: boolean;
	  };

export interface MessageFilter {
	states?: MessageState[];
	bot?: string;
	chat?: string;
	/** Part of the preview, in any case. */
	text?: string;
}

export interface MessageReport {
	messageRef: string;
	bot: string;
	chatId: string;
	state: MessageState;
	kind: string | null;
	preview: string | null;
	generation: number;
	attempt: number;
	parts: number;
	sentParts: number;
	messageIds: Array<number | null>;
	lastError: string | null;
	retryAt: string | null;
	lockedUntil: string | null;
	windowSeconds: number | null;
	owner: Record<string, string> | null;
	createdAt: string;
	sendingAt: string | null;
	sentAt: string | null;
	updatedAt: string;
}

export interface MessagePage {
	messages: MessageReport[];
	/** For the next page; null on the last. */
	cursor: string | null;
}

interface AnswerRow extends QueryResultRow {
	ord: number;
	message_ref: string;
	chat_id: string;
	status: string;
	state: MessageState | null;
	generation: number | null;
	attempt: number | null;
	locked_until: string | null;
	retry_at: string | null;
	message_ids: Array<number | null> | null;
	part_count: number | null;
	sent_at: string | null;
	last_error: string | null;
	more: {
		movedFrom?: string;
		contentDiffers?: boolean;
		copyPossible?: boolean;
		owner?: Record<string, string>;
		reason?: string;
		why?: 'flood' | 'turn';
		wholeBot?: boolean;
		slot?: string;
		waitSeconds?: number;
	} | null;
}

// to_json writes times in ISO whatever the session's date style is, and big integers as numbers
const COLUMNS = `ord, message_ref, chat_id, status, state, generation, attempt, to_json(locked_until) as locked_until,
	to_json(retry_at) as retry_at, to_json(message_ids) as message_ids, part_count, to_json(sent_at) as sent_at,
	last_error, more`;

/**
 * Messages that go out once: reserve, mark directly before each request, settle directly behind it. Every call may be
 * sent again with the same tokens. Throws `LedgerError` where the whole call failed.
 */
export class Messages {
	private readonly schema: string;

	/** @internal */
	constructor(private readonly connection: LedgerConnection) {
		this.schema = quotedIdentifier(connection.settings.schema);
	}

	/** Reserves messages before anything is sent; one statement per 500. `bot`: the digits of its token before the ":". */
	async reserve(
		bot: string,
		items: MessageItem[],
		policy: ReservePolicy,
		caller: Caller = {},
	): Promise<Array<MessageAnswer<ReserveStatus>>> {
		const options = JSON.stringify({
			window_s: policy.windowSeconds,
			lease_s: policy.leaseSeconds,
			resend_unknown: policy.resendUnknown,
			...callerOptions(caller),
		});
		const answers: Array<MessageAnswer<ReserveStatus>> = [];
		for (const chunk of chunks(items)) {
			const details = chunk.map((item) =>
				JSON.stringify({
					content_hash: item.contentHash,
					part_hashes: item.partHashes,
					kind: item.kind,
					preview: item.preview === null ? null : readableText(item.preview, 400),
				}),
			);
			answers.push(
				...(await this.ask<ReserveStatus>(
					'reserve_messages($1::text, $2::text[], $3::text[], $4::uuid[], $5::jsonb[], $6::jsonb)',
					[bot, ...names(chunk), details, options],
					chunk.length,
				)),
			);
		}
		return answers;
	}

	/** Directly before a request: from here on the message counts as possibly sent. `wait`: nothing was marked. */
	async mark(
		bot: string,
		message: MessageHold,
		request: MarkRequest,
		caller: Caller = {},
	): Promise<MessageAnswer<'not_owner' | 'sending' | 'wait'>> {
		const [answer] = await this.ask<'not_owner' | 'sending' | 'wait'>(
			'mark_message($1::text, $2::text, $3::text, $4::uuid, $5::jsonb)',
			[
				bot,
				message.chatId,
				message.messageKey,
				message.token,
				JSON.stringify({
					part: request.part,
					lease_s: request.leaseSeconds,
					rate: request.rate,
					max_wait_s: request.maxWaitSeconds,
					slot: request.slot,
					...callerOptions(caller),
				}),
			],
			1,
		);
		return answer;
	}

	/** Directly behind a request: what became of it. */
	async settle(
		bot: string,
		message: MessageHold,
		what: Settlement,
		leaseSeconds: number,
		caller: Caller = {},
	): Promise<MessageAnswer<'not_owner' | 'recorded'>> {
		const [answer] = await this.ask<'not_owner' | 'recorded'>(
			'settle_message($1::text, $2::text, $3::text, $4::uuid, $5::text, $6::bigint, $7::jsonb)',
			[
				bot,
				message.chatId,
				message.messageKey,
				message.token,
				what.outcome,
				what.outcome === 'sent' ? what.messageId : null,
				JSON.stringify({
					part: what.part,
					lease_s: leaseSeconds,
					...(what.outcome === 'sent' ? {} : { error: readableText(what.error, 1_000) }),
					...(what.outcome === 'flooded'
						? { retry_after_s: what.retryAfterSeconds, whole_bot: what.wholeBot }
						: {}),
					...callerOptions(caller),
				}),
			],
			1,
		);
		return answer;
	}

	/** Gives reservations back that were not used; what was marked stays. */
	async release(
		bot: string,
		messages: MessageHold[],
		why: { error: string; retryAt?: string | null },
		caller: Caller = {},
	): Promise<MessageAnswer[]> {
		const options = JSON.stringify({
			error: readableText(why.error, 1_000),
			retry_at: why.retryAt,
			...callerOptions(caller),
		});
		const answers: MessageAnswer[] = [];
		for (const chunk of chunks(messages)) {
			answers.push(
				...(await this.ask(
					'release_messages($1::text, $2::text[], $3::text[], $4::uuid[], $5::jsonb)',
					[bot, ...names(chunk), options],
					chunk.length,
				)),
			);
		}
		return answers;
	}

	/** A group became a supergroup: both ids are one chat from now on. The message's reservation goes along. */
	async follow(
		bot: string,
		message: MessageHold,
		newChatId: string,
		leaseSeconds: number,
		caller: Caller = {},
	): Promise<MessageAnswer<ReserveStatus>> {
		const [answer] = await this.ask<ReserveStatus>(
			'follow_chat($1::text, $2::text, $3::text, $4::text, $5::uuid, $6::jsonb)',
			[
				bot,
				message.chatId,
				newChatId,
				message.messageKey,
				message.token,
				JSON.stringify({ lease_s: leaseSeconds, ...callerOptions(caller) }),
			],
			1,
		);
		return answer;
	}

	/** Settles messages whose sender vanished; at most `limit`. */
	async sweep(
		limit: number,
		caller: Caller = {},
	): Promise<Array<{ messageRef: string; state: MessageState }>> {
		const rows = await this.connection.query<{ message_ref: string; state: MessageState }>(
			`select message_ref, state from ${this.schema}.sweep_messages($1::integer, $2::jsonb)`,
			[limit, JSON.stringify(callerOptions(caller))],
		);
		return rows.map((row) => ({ messageRef: row.message_ref, state: row.state }));
	}

	/** One page of messages, the newest change first; at most 1,000. Throws `LedgerError` for a cursor it did not give. */
	async list(
		filter: MessageFilter,
		limit: number,
		cursor: string | null = null,
	): Promise<MessagePage> {
		const [{ answer }] = await this.connection.query<{ answer: MessagePage }>(
			`select ${this.schema}.list_messages($1::jsonb, $2::integer, $3::text) as answer`,
			[JSON.stringify(filter), limit, cursor],
		);
		return answer;
	}

	/** Says of messages of unknown fate whether they arrived; `messageId` where it is known. */
	async resolve(
		messageRefs: string[],
		what: { arrived: true; messageId?: number } | { arrived: false },
		caller: Caller = {},
	): Promise<Array<MessageAnswer<'not_found' | 'refused' | 'resolved'>>> {
		return await this.ask<'not_found' | 'refused' | 'resolved'>(
			'resolve_messages($1::text[], $2::boolean, $3::bigint, $4::jsonb)',
			[
				messageRefs,
				what.arrived,
				what.arrived ? (what.messageId ?? null) : null,
				JSON.stringify(callerOptions(caller)),
			],
			messageRefs.length,
		);
	}

	private async ask<Status extends string = string>(
		call: string,
		values: unknown[],
		expected: number,
	): Promise<Array<MessageAnswer<Status>>> {
		const rows = await this.connection.query<AnswerRow>(
			`select ${COLUMNS} from ${this.schema}.${call}`,
			values,
		);
		return inOrder(rows, expected).map((row) => messageAnswer<Status>(row));
	}
}

/** Why a text cannot be sent or kept as it is; null where it can. */
export function textProblem(text: string): string | null {
	return isStorableText(text)
		? null
		: 'holds a NUL character or half an emoji: it was cut somewhere before. Mend the step that cuts it.';
}

function messageAnswer<Status extends string>(row: AnswerRow): MessageAnswer<Status> {
	const more = row.more ?? {};
	return {
		messageRef: row.message_ref,
		chatId: row.chat_id,
		status: row.status as Status,
		state: row.state,
		generation: row.generation,
		attempt: row.attempt,
		lockedUntil: utc(row.locked_until),
		retryAt: utc(row.retry_at),
		messageIds: row.message_ids ?? [],
		partCount: row.part_count,
		sentAt: utc(row.sent_at),
		lastError: row.last_error,
		movedFrom: more.movedFrom ?? null,
		contentDiffers: more.contentDiffers ?? false,
		copyPossible: more.copyPossible ?? false,
		owner: more.owner ?? null,
		reason: more.reason ?? null,
		why: more.why ?? null,
		wholeBot: more.wholeBot ?? false,
		slot: more.slot ?? null,
		waitSeconds: more.waitSeconds ?? 0,
	};
}

function names(messages: MessageHold[]): unknown[][] {
	return [
		messages.map(({ chatId }) => chatId),
		messages.map(({ messageKey }) => messageKey),
		messages.map(({ token }) => token),
	];
}

function* chunks<Item>(items: Item[]): Generator<Item[]> {
	for (let at = 0; at < items.length; at += CHUNK) yield items.slice(at, at + CHUNK);
}
