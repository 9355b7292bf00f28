/**
 * The words of the contract as types: what is asked of the ledger and what it answers.
 * The behaviour behind them lives in `migrations/functions/*.sql`; this file only names it.
 * Times are UTC ISO text, durations are seconds and say so in their name.
 */

/** Who asks. Kept on the work and in the decision log; nothing here is part of an identity. */
export interface Caller {
	instance?: string;
	workflow?: string;
	workflowName?: string;
	execution?: string;
	/** The execution that called this one as a sub-workflow. */
	parentExecution?: string;
	node?: string;
	/** n8n's mode: `manual`, `trigger`, `webhook`, `retry`, … */
	mode?: string;
	/** A business run (a nightly batch, a scrape). A new run is not new work. */
	runId?: string;
}

/** How long finished work is remembered, and therefore when it may be done again. */
export type ClaimWindow =
	| { mode: 'forever' }
	/** Counted from the completion. */
	| { mode: 'duration'; seconds: number }
	/** Only running, held and waiting-after-crash work stands in the way; done, failed and dead do not. */
	| { mode: 'while_running' }
	/** Until any work of that kind has been done after this one was; running that kind again changes nothing. */
	| { mode: 'until_success'; kind: string };

/** What happens to work whose owner vanished: nobody knows whether its effect landed. */
export type OnLapse = 'run_again' | 'hold';

/** Everything about a claim that is the same for all items of a call. What is left out has the contract's default. */
export interface ClaimPolicy {
	/** Business name of the work; may not contain ":". */
	kind: string;
	/** May not contain ":". Default `v1`. */
	version?: string;
	/** Default: forever. */
	window?: ClaimWindow;
	/** Default `run_again`. */
	onLapse?: OnLapse;
	/** Default 3600. */
	leaseSeconds?: number;
	/** Claims that count, the first included. Default 5. */
	maxAttempts?: number;
	/** Default 30. */
	backoffBaseSeconds?: number;
	/** Default 3600. */
	backoffCapSeconds?: number;
	caller?: Caller;
	/** A repeated look while waiting: Busy answers are not written to the decision log again. */
	poll?: boolean;
	/**
	 * The caller acts whatever the answer is, and only wants to know it (shadow mode). What it claims is never handed out
	 * for a retry, never held and never dead: no payload is kept, and a failure leaves it waiting for its next delivery.
	 */
	shadow?: boolean;
}

export interface ClaimItem {
	/** sha256, 64 lower-case hex digits. */
	workId: string;
	/** The readable key; at most 1,000 code points are kept. */
	key: string;
	/** A fresh UUID, made before the statement is sent; sending it again is answered with the first answer. */
	token: string;
	/** JSON text kept until the work is done, for a replay. `null`: not kept. */
	payload?: string | null;
	/** Digest per field that must not change under the same key. */
	match?: Record<string, string>;
	/** The stored decision that this work carries out. */
	decisionKey?: string;
}

export type ClaimStatus =
	| 'claimed'
	| 'duplicate'
	| 'in_progress'
	| 'not_due'
	| 'mismatch'
	| 'held'
	| 'dead';

export type WorkState = 'running' | 'done' | 'failed' | 'dead' | 'held';

export interface ClaimAnswer {
	workId: string;
	status: ClaimStatus;
	/** The state of the work after this answer. */
	state: WorkState;
	generation: number;
	attempt: number;
	/** Only when claimed. */
	token: string | null;
	lockedUntil: string | null;
	nextAttemptAt: string | null;
	/** What is known of the attempt before this one; `unknown` means its effect may have landed. */
	previousOutcome: 'failed' | 'unknown' | null;
	lastError: string | null;
	/** The stored result, of a duplicate. */
	result: unknown;
	externalRef: string | null;
	completedAt: string | null;
	/** Who holds the work, or did it; for a claim after a lapse or failure: who held it before. */
	owner: (Caller & { claimedAt?: string }) | null;
	/** A duplicate whose original came from another workflow (or n8n instance). */
	otherWorkflow: boolean;
	/** The result of old work was purged; only its reference and hash are left. */
	resultPurged: boolean;
	/** This answer settled a lapsed lease by the reference recorded before it. */
	late: boolean;
	/** Names of the match fields that differ. */
	mismatch: string[];
}

export interface HoldItem {
	workId: string;
	/** `null` never matches. */
	token: string | null;
}

export interface CompleteItem extends HoldItem {
	/** Any value; what JSON cannot carry becomes a marker (see `resultText`). `undefined`: no result. */
	result?: unknown;
	externalRef?: string | null;
}

export interface FailItem extends HoldItem {
	error: string;
	/** `no`: the effect certainly did not land. `unknown`: it may have. */
	landed: 'no' | 'unknown';
	/** Do not try again: dead at once (unless it may have landed and the policy is hold). */
	permanent?: boolean;
}

/** What was let through in shadow mode without a claim, and what became of it. */
export interface PassedItem {
	workId: string;
	/** A fresh UUID: sending it again writes nothing more. */
	nonce: string;
	/** Any value, as for a completion. `undefined`: no result. */
	result?: unknown;
	externalRef?: string | null;
}

/** The operation that had nothing to settle, because the item was let through without a claim. */
export type PassedEvent = 'complete' | 'fail' | 'record_reference' | 'extend' | 'release';

export interface ReferenceItem extends HoldItem {
	externalRef: string;
}

export interface ExtendItem extends HoldItem {
	/** From now; `undefined`: the lease the work was claimed with. */
	leaseSeconds?: number;
}

export type HoldStatus =
	| 'completed'
	| 'failed'
	| 'recorded'
	| 'extended'
	| 'released'
	/** By a person: due now. */
	| 'replayed'
	/** By a person: it landed, or it did not. */
	| 'resolved'
	/** By a person: the test run is gone. */
	| 'forgotten'
	/** The token is the owner's, but the work is past this operation; `reason` says why. */
	| 'refused'
	/** Somebody else owns the work now; nothing was written to it, all that was offered is in the decision log. */
	| 'not_owner';

export interface HoldAnswer {
	workId: string;
	status: HoldStatus;
	/** `null` when the ledger holds no such work (any more). */
	state: WorkState | null;
	generation: number | null;
	attempt: number | null;
	lockedUntil: string | null;
	nextAttemptAt: string | null;
	/** What is stored now. */
	result: unknown;
	externalRef: string | null;
	completedAt: string | null;
	lastError: string | null;
	/** Accepted although the lease had lapsed or the work had been settled meanwhile. */
	late: boolean;
	/** The same call was answered before; nothing changed. */
	repeated: boolean;
	/** What differs from the first completion, which stands: `result`, `external_ref`. */
	differs: string[];
	/** Why it was refused, or who owns the work now; `null` otherwise. */
	reason: string | null;
	warnings: string[];
	key: string | null;
	kind: string | null;
	/** Due, but without stored data to hand out: it is done when it is delivered again. */
	waitsForDelivery: boolean;
}

/** A work as the ledger shows it to people. Times are UTC ISO text. */
export interface WorkReport {
	workId: string;
	kind: string;
	version: string;
	key: string | null;
	state: WorkState;
	generation: number;
	/** 0: made due by a person and not claimed since. */
	attempt: number;
	maxAttempts: number;
	/** `shadow`: claimed by a caller that acted whatever the answer was. */
	onLapse: OnLapse | 'shadow';
	window: ClaimWindow['mode'];
	lockedUntil: string | null;
	/** Running, but its lease has ended: the next claim or sweep settles it. */
	lapsed: boolean;
	nextAttemptAt: string | null;
	outcomeKnown: boolean;
	settledBy: 'owner' | 'lapse' | 'execution' | 'reference' | 'person' | null;
	lastError: string | null;
	externalRef: string | null;
	decisionKey: string | null;
	result: unknown;
	resultPurged: boolean;
	payload: unknown;
	owner: Caller & { claimedAt?: string };
	createdAt: string;
	firstStartedAt: string;
	claimedAt: string;
	updatedAt: string;
	completedAt: string | null;
	lastDoneAt: string | null;
}

/** A row of the decision log. */
export interface Decision {
	at: string;
	event: string;
	outcome: string;
	generation: number | null;
	attempt: number | null;
	token: string | null;
	/** Who asked, in the spelling of SQL (`workflow_name`). */
	fired: Record<string, string> | null;
	checked: Record<string, unknown> | null;
	detail: Record<string, unknown> | null;
	result: unknown;
	externalRef: string | null;
}

export interface Explanation {
	/** null: the work is gone (released, forgotten, purged), but its history is not. */
	work: WorkReport | null;
	/** Oldest first. */
	history: Decision[];
	/** There is older history than this. */
	more: boolean;
}

export interface WorkFilter {
	states?: WorkState[];
	kind?: string;
	runId?: string;
	/** Part of the readable key, in any case. */
	text?: string;
	execution?: string;
	/** Seconds since the last change. */
	olderThanSeconds?: number;
}

export interface LedgerStatistics {
	/** Counts are text: they may exceed what a number holds exactly. */
	works: Array<{ kind: string; state: WorkState; count: string; oldestAt: string; lapsed: string }>;
	/** What was decided in the time asked for; kind is null where the work is gone. */
	decisions: Array<{
		kind: string | null;
		event: string;
		outcome: string;
		count: string;
		/** What would have been decided, had shadow mode been off; nothing was suppressed. */
		shadow?: true;
	}>;
	sinceSeconds: number;
	/** Oldest first, hours without a decision included; only when asked for. */
	hours?: HourOfDecisions[];
	/** The oldest beginning first; only when asked for. */
	waiting?: WaitingWork[];
}

/** What was decided in one clock hour. Counts are text. */
export interface HourOfDecisions {
	/** Its beginning. */
	at: string;
	claimed: string;
	/** Claims that were told "duplicate" or "in progress": an effect that was suppressed. */
	duplicates: string;
	/** Attempts that ended without success, those whose owner vanished included. */
	failed: string;
}

/** Work that waits for somebody to go on with it: failed, or running with a lease that ended without a report. */
export type WaitingWork = Pick<
	WorkReport,
	| 'workId'
	| 'kind'
	| 'version'
	| 'key'
	| 'state'
	| 'lapsed'
	| 'attempt'
	| 'maxAttempts'
	| 'firstStartedAt'
	| 'updatedAt'
	| 'lockedUntil'
	| 'nextAttemptAt'
	| 'outcomeKnown'
	| 'lastError'
> & {
	/** A claim, a delivery or a sweep may go on with it now. */
	due: boolean;
	/** Its data are not kept, so it is done when it is delivered again. */
	waitsForDelivery: boolean;
};

export interface FailedWork {
	workId: string;
	kind: string;
	key: string | null;
	state: WorkState;
	attempt: number;
	nextAttemptAt: string | null;
	/** The work belonged to a sub-workflow of the failed execution. */
	child: boolean;
}
