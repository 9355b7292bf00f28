import type { IDataObject } from 'n8n-workflow';

import type { ClaimAnswer, WorkIdentity } from '../../ledger';
import { addSaid, type WorkField } from '../execution/work-field';
import type { Claim } from './request';

/** Outputs of Claim Work, in their order on the canvas. */
export const OUTPUT = { claimed: 0, duplicate: 1, busy: 2, needsAttention: 3 } as const;
export const OUTPUT_NAMES = ['Claimed', 'Duplicate', 'Busy', 'Needs Attention'];

export function outputOf(answer: ClaimAnswer): number {
	switch (answer.status) {
		case 'claimed':
			return OUTPUT.claimed;
		case 'duplicate':
			return OUTPUT.duplicate;
		case 'in_progress':
		case 'not_due':
			return OUTPUT.busy;
		default:
			return OUTPUT.needsAttention;
	}
}

/** What the item says of a claim besides the ledger's answer. */
type ShownClaim = Pick<Claim, 'keyFields' | 'hints' | 'warnings' | 'canonical'> & {
	identity: Omit<WorkIdentity, 'canonical'>;
};

/** What the item gains. Only what says something: no field of it is null. */
export function workFieldOf(
	claim: ShownClaim,
	answer: ClaimAnswer,
	mode: string,
	maxAttempts: number,
): WorkField {
	const { identity } = claim;
	const field: WorkField = {
		status: answer.status,
		message: sentence(answer, mode, maxAttempts),
		workId: identity.workId,
		kind: identity.kind,
		version: identity.version,
		key: identity.key,
		fingerprint: identity.fingerprint,
		generation: answer.generation,
		attempt: answer.attempt,
	};
	const add = (name: string, value: unknown) => addSaid(field, name, value);
	if (answer.status === 'claimed') {
		add('token', answer.token);
		add('lockedUntil', answer.lockedUntil);
		// each item its own list: a step behind may change it
		add('keyFields', [...claim.keyFields]);
		add('previousOutcome', answer.previousOutcome);
		add('lastError', answer.lastError);
		add('previousOwner', answer.owner);
	} else {
		add('lockedUntil', answer.lockedUntil);
		add('nextAttemptAt', answer.nextAttemptAt);
		add('completedAt', answer.completedAt);
		add('externalRef', answer.externalRef);
		add('lastError', answer.lastError);
		add('owner', answer.owner);
		add('otherWorkflow', answer.otherWorkflow);
		add('resultPurged', answer.resultPurged);
		add('late', answer.late);
		add('mismatch', answer.mismatch);
	}
	// a duplicate says what the original's result was, also when that was null
	if (answer.status === 'duplicate') field.result = (answer.result ?? null) as IDataObject;
	add('canonical', claim.canonical);
	add('hints', claim.hints);
	add('warnings', claim.warnings);
	return field;
}

/** The answer as a sentence, for people in the editor and for agents. */
export function sentence(answer: ClaimAnswer, mode: string, maxAttempts: number): string {
	const by = answer.owner?.execution === undefined ? '' : ` by execution ${answer.owner.execution}`;
	const ref = answer.externalRef === null ? '' : ` (reference ${answer.externalRef})`;
	switch (answer.status) {
		case 'claimed':
			if (answer.previousOutcome === 'unknown') {
				return `Claimed, attempt ${answer.attempt} of ${maxAttempts}. The attempt before it${by} did not report: its effect may have landed. Where the target takes no idempotency key, look there before you act.`;
			}
			return answer.previousOutcome === 'failed'
				? `Claimed, attempt ${answer.attempt} of ${maxAttempts}. The attempt before it failed: ${answer.lastError ?? 'no reason given'}.`
				: `Claimed, attempt ${answer.attempt} of ${maxAttempts}.`;
		case 'duplicate': {
			const where = answer.otherWorkflow
				? ` in workflow "${answer.owner?.workflowName ?? answer.owner?.workflow ?? 'unknown'}"`
				: '';
			const test =
				mode === 'manual'
					? ' To test again: Work Ledger → Forget test run, or raise the version.'
					: '';
			const purged = answer.resultPurged ? ' Its result was purged.' : '';
			return `Already done at ${answer.completedAt}${by}${where}${ref}.${purged}${test}`;
		}
		case 'in_progress':
			return `Running${by} now; its lease ends at ${answer.lockedUntil}. Come back after that, or raise "Wait for Running Work".`;
		case 'not_due':
			return `Failed before (${answer.lastError ?? 'no reason given'}); the next attempt is due at ${answer.nextAttemptAt}.`;
		case 'mismatch':
			return `The same key came with other values in: ${answer.mismatch.join(', ')}. Nothing was claimed or replayed: find out which delivery is right.`;
		case 'held':
			return `Held for review: ${answer.lastError ?? 'nobody knows whether the effect landed'}. A person decides whether it landed (Work Ledger → Resolve).`;
		case 'dead':
			return `Dead after ${answer.attempt} attempts: ${answer.lastError ?? 'no reason given'}. Mend the cause, see at the target whether its effect landed, then replay or resolve it (Work Ledger).`;
	}
}
