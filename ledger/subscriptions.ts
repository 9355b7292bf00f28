import { randomUUID } from 'crypto';

import type { Caller, ClaimAnswer, HoldAnswer, HoldItem, WorkReport } from './contract';
import type { LedgerConnection } from './connection';
import { readableText } from './json-text';
import type { MessageReport } from './messages';
import { quotedIdentifier } from './settings';
import {
	HOLD_COLUMNS,
	claimAnswer,
	holdAnswers,
	utc,
	type ClaimRow,
	type HoldRow,
} from './work-answers';
import { callerOptions } from './works';

/** How long a hand-out lasts without a heartbeat: after that its n8n counts as gone, and it is handed out again. */
export const HAND_OUT_LEASE_SECONDS = 120;

const MAX_ERROR_LENGTH = 4_000;

/** What is told to a subscription. */
export type SubscriptionEvent = 'dead_letter' | 'retry_due';

export interface DeadLetterFilter {
	states: Array<'dead' | 'held'>;
	/** `null`: every kind. */
	kinds: string[] | null;
	/** At most 100. */
	limit: number;
}

/** Dead letters handed out together. One execution handles them and reports under their token. */
export interface HandOut {
	subscription: string;
	token: string;
	letters: DeadLetter[];
}

export interface DeadLetter {
	/** How often this death was handed out, this time included. */
	handOut: number;
	/** After so many it is given up. */
	handOuts: number;
	lockedUntil: string;
	work: WorkReport;
}

/** Messages that may have arrived, handed out together; handled and reported as dead letters are. */
export interface MessageHandOut {
	subscription: string;
	token: string;
	letters: MessageLetter[];
}

export type MessageLetter = Omit<DeadLetter, 'work'> & { message: MessageReport };

/** A failed work that was due, claimed for the one who asked. */
export interface DueWork {
	/** Always `claimed`. */
	answer: ClaimAnswer;
	work: WorkReport;
}

/** Where an announcement stands after a report. */
export interface AnnouncementStanding {
	/** The work's id, or the message's reference. */
	workId: string;
	/** `not_owner`: it was handed out anew meanwhile. */
	status: 'acknowledged' | 'waiting' | 'given_up' | 'not_owner';
	handOut: number | null;
	nextAttemptAt: string | null;
}

/** Where the next page of `clear` begins; `null` at the beginning and at the end. */
export type ClearCursor = [subscription: string, subjectId: string] | null;

/**
 * What is told to others: dead letters, each once per subscription, and retries that are due, each to one. All methods
 * throw `LedgerError`. Sent again after a lost answer, a call gives the same answer: its tokens are made before it is sent.
 */
export class Subscriptions {
	private readonly schema: string;

	/** @internal */
	constructor(private readonly connection: LedgerConnection) {
		this.schema = quotedIdentifier(connection.settings.schema);
	}

	/**
	 * Hands out dead letters that the subscription was not told of. Either several for the first time, or a single one
	 * again. None: an empty list. They are the caller's until the lease ends (`HAND_OUT_LEASE_SECONDS`; `extend`).
	 */
	async announce(
		subscription: string,
		{ states, kinds, limit }: DeadLetterFilter,
		caller: Caller = {},
		leaseSeconds = HAND_OUT_LEASE_SECONDS,
	): Promise<HandOut> {
		const token = randomUUID();
		const rows = await this.connection.query<{
			hand_out: number;
			hand_outs: number;
			locked_until: string;
			work: WorkReport;
		}>(
			`select hand_out, hand_outs, to_json(locked_until) as locked_until, work
			from ${this.schema}.announce_dead_letters($1::text, $2::text[], $3::text[], $4::integer, $5::uuid, $6::jsonb)`,
			[
				subscription,
				states,
				kinds,
				limit,
				token,
				JSON.stringify({ lease_s: leaseSeconds, ...callerOptions(caller) }),
			],
		);
		const letters = rows.map((row) => ({
			handOut: row.hand_out,
			handOuts: row.hand_outs,
			lockedUntil: utc(row.locked_until) as string,
			work: row.work,
		}));
		return { subscription, token, letters };
	}

	/** Hands out messages of which nobody knows whether they arrived, as `announce` hands out dead letters. */
	async announceMessages(
		subscription: string,
		limit: number,
		caller: Caller = {},
		leaseSeconds = HAND_OUT_LEASE_SECONDS,
	): Promise<MessageHandOut> {
		const token = randomUUID();
		const rows = await this.connection.query<{
			hand_out: number;
			hand_outs: number;
			locked_until: string;
			message: MessageReport;
		}>(
			`select hand_out, hand_outs, to_json(locked_until) as locked_until, message
			from ${this.schema}.announce_unknown_messages($1::text, $2::integer, $3::uuid, $4::jsonb)`,
			[
				subscription,
				limit,
				token,
				JSON.stringify({ lease_s: leaseSeconds, ...callerOptions(caller) }),
			],
		);
		const letters = rows.map((row) => ({
			handOut: row.hand_out,
			handOuts: row.hand_outs,
			lockedUntil: utc(row.locked_until) as string,
			message: row.message,
		}));
		return { subscription, token, letters };
	}

	/** The heartbeat of whoever handles a hand-out; answers how many letters are still its own. */
	async extend(
		handOut: HandOut | MessageHandOut,
		leaseSeconds = HAND_OUT_LEASE_SECONDS,
	): Promise<number> {
		const [{ held }] = await this.connection.query<{ held: number }>(
			`select ${this.schema}.extend_announcements($1::text, $2::text, $3::text[], $4::uuid, $5::double precision) as held`,
			[handOut.subscription, ...subjects(handOut), handOut.token, leaseSeconds],
		);
		return held;
	}

	/** The letters were handled: they are never handed out again. */
	async acknowledge(
		handOut: HandOut | MessageHandOut,
		caller: Caller = {},
	): Promise<AnnouncementStanding[]> {
		return await this.settle(handOut, null, caller);
	}

	/** The letters were not handled: they are handed out again after a growing delay, and given up after five times. */
	async notHandled(
		handOut: HandOut | MessageHandOut,
		error: string,
		caller: Caller = {},
	): Promise<AnnouncementStanding[]> {
		return await this.settle(handOut, readableText(error, MAX_ERROR_LENGTH), caller);
	}

	/** Claims failed works that are due and have their data, at most `limit` (1 to 100), longest due first. */
	async claimDue(
		subscription: string,
		kinds: string[] | null,
		limit: number,
		caller: Caller = {},
	): Promise<DueWork[]> {
		const tokens = Array.from({ length: limit }, () => randomUUID());
		const rows = await this.connection.query<{ answer: ClaimRow; work: WorkReport }>(
			`select answer, work from ${this.schema}.claim_due_works($1::text, $2::text[], $3::uuid[], $4::jsonb)`,
			[subscription, kinds, tokens, JSON.stringify(callerOptions(caller))],
		);
		return rows.map(({ answer, work }) => ({ answer: claimAnswer(answer), work }));
	}

	/**
	 * Fails works (may have landed) whose token still runs; what their owner has reported itself stands. Answers per work:
	 * `failed`, `completed` (by the reference recorded before), `refused` (settled already) or `not_owner`.
	 */
	async failIfRunning(
		items: HoldItem[],
		error: string,
		caller: Caller = {},
	): Promise<HoldAnswer[]> {
		const rows = await this.connection.query<HoldRow>(
			`select ${HOLD_COLUMNS} from ${this.schema}.fail_if_running($1::text[], $2::uuid[], $3::text[], $4::jsonb)`,
			[
				items.map(({ workId }) => workId),
				items.map(({ token }) => token),
				items.map(() => readableText(error, MAX_ERROR_LENGTH)),
				JSON.stringify(callerOptions(caller)),
			],
		);
		return holdAnswers(rows, items.length);
	}

	/** A work such as the subscription would be told of; nothing is reserved. `null`: there is none. */
	async sample(
		event: SubscriptionEvent,
		{ states, kinds }: Omit<DeadLetterFilter, 'limit'>,
	): Promise<WorkReport | null> {
		const [{ work }] = await this.connection.query<{ work: WorkReport | null }>(
			`select ${this.schema}.sample_work($1::text, $2::text[], $3::text[]) as work`,
			[event, states, kinds],
		);
		return work;
	}

	/** Looks at one page of announcements, of all subscriptions, and removes what is over. */
	async clear(after: ClearCursor, limit = 500): Promise<{ removed: number; after: ClearCursor }> {
		const [{ answer }] = await this.connection.query<{
			answer: { removed: number; after: ClearCursor };
		}>(`select ${this.schema}.clear_announcements($1::text, $2::text, $3::integer) as answer`, [
			after?.[0] ?? null,
			after?.[1] ?? null,
			limit,
		]);
		return answer;
	}

	private async settle(
		handOut: HandOut | MessageHandOut,
		error: string | null,
		caller: Caller,
	): Promise<AnnouncementStanding[]> {
		const rows = await this.connection.query<{
			subject_id: string;
			status: AnnouncementStanding['status'];
			hand_out: number | null;
			next_attempt_at: string | null;
		}>(
			`select subject_id, status, hand_out, to_json(next_attempt_at) as next_attempt_at
			from ${this.schema}.settle_announcements($1::text, $2::text, $3::text[], $4::uuid, $5::text, $6::jsonb)`,
			[
				handOut.subscription,
				...subjects(handOut),
				handOut.token,
				error,
				JSON.stringify(callerOptions(caller)),
			],
		);
		return rows.map((row) => ({
			workId: row.subject_id,
			status: row.status,
			handOut: row.hand_out,
			nextAttemptAt: utc(row.next_attempt_at),
		}));
	}
}

/** What kind of thing a hand-out is about, and which ones. */
function subjects({ letters }: HandOut | MessageHandOut): ['message' | 'work', string[]] {
	return [
		letters.some((letter) => 'message' in letter) ? 'message' : 'work',
		letters.map((letter) => ('message' in letter ? letter.message.messageRef : letter.work.workId)),
	];
}
