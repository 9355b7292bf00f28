import { createHash, randomBytes, randomUUID } from 'crypto';

import type { Caller, WorkReport } from './contract';
import type { LedgerConnection } from './connection';
import { LedgerError } from './errors';
import { readableText } from './json-text';
import { quotedIdentifier } from './settings';
import { callerOptions, referenceProblem } from './works';

/** What a link does to its work: `landed` and `not_landed` say what became of it. */
export type LinkAction = 'replay' | 'landed' | 'not_landed';

/** Seconds; longer than this no link lives. */
export const MAX_LINK_SECONDS = 30 * 86_400;
const DEFAULT_LINK_SECONDS = 86_400;
const MAX_BY_LENGTH = 200;

/** The work a link is about: no payload and no result, because who opens a link sees it. */
export type LinkedWork = Pick<
	WorkReport,
	| 'workId'
	| 'kind'
	| 'version'
	| 'key'
	| 'state'
	| 'generation'
	| 'attempt'
	| 'maxAttempts'
	| 'outcomeKnown'
	| 'lastError'
	| 'externalRef'
	| 'nextAttemptAt'
	| 'completedAt'
	| 'updatedAt'
	| 'owner'
>;

/** Who used a link, as the caller of that time said. */
export type LinkUser = Record<string, string> & { by?: string };

interface LinkReport<Status extends string> {
	status: Status;
	/** Why not, or what happened since; null where it worked. */
	reason: string | null;
	/** The same call was answered before; nothing changed. */
	repeated: boolean;
	/** null, as all that follows, where the link is not known. */
	action: LinkAction | null;
	externalRef: string | null;
	createdAt: string | null;
	expiresAt: string | null;
	usedAt: string | null;
	usedBy: LinkUser | null;
	/** How the work stood when the link had been used. */
	outcome: {
		status: 'replayed' | 'resolved';
		state: WorkReport['state'];
		externalRef?: string;
		waitsForDelivery?: boolean;
	} | null;
	/** As it is now; null when the ledger holds it no more. */
	work: LinkedWork | null;
}

export type CreatedLink = LinkReport<'created' | 'refused' | 'unknown_work'> & {
	/** Only when created, and only here: the ledger keeps its hash. */
	nonce: string | null;
};

export type LinkStatus =
	| 'usable'
	/** Somebody used it: when, who and what it did is in the answer. */
	| 'used'
	| 'expired'
	/** Something happened to the work since the link was made. */
	| 'overtaken'
	/** The work cannot be replayed or resolved now. */
	| 'refused'
	/** Mistyped, or purged: a link is kept for 30 days after it expired. */
	| 'unknown';

export type SeenLink = LinkReport<LinkStatus>;
export type RedeemedLink = LinkReport<'redeemed' | Exclude<LinkStatus, 'usable'>>;

export interface NewLink {
	workId: string;
	action: LinkAction;
	/** Default 86,400 (a day), at most 30 days. */
	ttlSeconds?: number;
	/** For `landed`: what the effect is called at the target. */
	externalRef?: string;
}

/**
 * Links that do one thing to one work, once, for whoever holds them: for a chat message or an e-mail about a dead letter. A
 * link is a nonce of 128 random bits; the ledger keeps its SHA-256 only, and neither errors nor logs ever hold it.
 */
export class ActionLinks {
	private readonly schema: string;

	/** @internal */
	constructor(private readonly connection: LedgerConnection) {
		this.schema = quotedIdentifier(connection.settings.schema);
	}

	/**
	 * A link for the work as it stands now; whatever happens to the work overtakes it. Refused where the action is not open
	 * to the work. Throws `LedgerError` (`bad_input`) for a time to live or a reference that cannot be.
	 */
	async create(link: NewLink, caller: Caller = {}): Promise<CreatedLink> {
		const ttlSeconds = link.ttlSeconds ?? DEFAULT_LINK_SECONDS;
		if (!(ttlSeconds > 0 && ttlSeconds <= MAX_LINK_SECONDS)) {
			throw new LedgerError(
				'bad_input',
				`ttlSeconds is ${String(ttlSeconds)}.`,
				`Use seconds above 0 and at most ${MAX_LINK_SECONDS} (30 days).`,
			);
		}
		// before the statement: sent again, it makes the same link
		const nonce = randomBytes(16).toString('base64url');
		const [{ answer }] = await this.connection.query<{ answer: Omit<CreatedLink, 'nonce'> }>(
			`select ${this.schema}.create_action_link($1::text, $2::text, $3::text, $4::double precision, $5::text, $6::jsonb) as answer`,
			[
				link.workId,
				link.action,
				nonceHash(nonce),
				ttlSeconds,
				storable(link.externalRef),
				JSON.stringify(callerOptions(caller)),
			],
		);
		return { ...answer, nonce: answer.status === 'created' ? nonce : null };
	}

	/** What the link would do now, without using it; changes and logs nothing. */
	async look(nonce: string): Promise<SeenLink> {
		const [{ answer }] = await this.connection.query<{ answer: SeenLink }>(
			`select ${this.schema}.look_at_action_link($1::text) as answer`,
			[nonceHash(nonce)],
		);
		return answer;
	}

	/**
	 * Does what the link is for, once. Refused, it uses nothing up and changes nothing.
	 *
	 * @param how.by who does it, for people: a name or a chat's user id. At most 200 characters are kept.
	 * @param how.externalRef for `landed`, instead of the link's own
	 */
	async redeem(
		nonce: string,
		how: { by?: string; externalRef?: string } = {},
		caller: Caller = {},
	): Promise<RedeemedLink> {
		const by = how.by === undefined || how.by === '' ? undefined : how.by;
		const [{ answer }] = await this.connection.query<{ answer: RedeemedLink }>(
			`select ${this.schema}.redeem_action_link($1::text, $2::uuid, $3::text, $4::jsonb) as answer`,
			[
				nonceHash(nonce),
				randomUUID(),
				storable(how.externalRef),
				JSON.stringify({
					...callerOptions(caller),
					by: by === undefined ? undefined : readableText(by, MAX_BY_LENGTH),
				}),
			],
		);
		return answer;
	}
}

function nonceHash(nonce: string): string {
	return createHash('sha256').update(nonce).digest('hex');
}

function storable(externalRef: string | undefined): string | null {
	const problem = referenceProblem(externalRef);
	if (problem === null) return externalRef ?? null;
	throw new LedgerError('bad_input', problem, 'Use the identifier as the target system writes it.');
}
