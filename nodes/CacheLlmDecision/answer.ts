import type { IDataObject } from 'n8n-workflow';

import type { DecisionAnswer } from '../../ledger';
import type { DecisionField } from '../execution/decision-field';

/** What the item gains. Only what says something: no field of it is null, except a value that is. */
export function decisionFieldOf(
	answer: DecisionAnswer,
	status: string,
	kind: string | null,
	more: IDataObject = {},
): DecisionField {
	const field: DecisionField = {
		status,
		message: sentence(answer, status),
		decisionKey: answer.decisionKey,
	};
	const values: IDataObject = {
		kind,
		attempt: answer.attempt,
		generation: answer.generation === 1 ? null : answer.generation,
		token: answer.token,
		lockedUntil: answer.lockedUntil,
		valueHash: answer.valueHash,
		decidedAt: answer.decidedAt,
		[answer.decidedAt === null ? 'owner' : 'decidedBy']: answer.owner as IDataObject | null,
		expiresAt: answer.expiresAt,
		approver: answer.approver,
		judgedAt: answer.judgedAt,
		reason: answer.reason,
		...more,
	};
	if (answer.value !== undefined) field.value = answer.value as IDataObject;
	for (const [name, value] of Object.entries(values)) {
		if (value !== null && value !== undefined && value !== false) field[name] = value;
	}
	return field;
}

function sentence(answer: DecisionAnswer, status: string): string {
	const by = answer.owner?.execution === undefined ? '' : ` by execution ${answer.owner.execution}`;
	const approval =
		answer.state === 'approved' ? ` Approved by ${answer.approver} at ${answer.judgedAt}.` : '';
	const why = answer.reason === null ? '' : `: ${answer.reason}`;
	switch (status) {
		case 'replay':
			return `Replayed: decided at ${answer.decidedAt}${by}. The model was not asked again.${approval}`;
		case 'decide':
			return (answer.attempt ?? 1) > 1
				? `Decide now, attempt ${answer.attempt}${answer.reason === null ? ': the one before did not report' : `; the answer before was not stored${why}`}.`
				: 'Decide now: ask the model, then store its answer.';
		case 'busy':
			return `Being decided${by} right now, until ${answer.lockedUntil} at the latest. Come back after that, or raise "Wait for Another's Decision".`;
		case 'waiting':
			return `Decided at ${answer.decidedAt}${by}, and waits for approval.`;
		case 'altered':
			return 'The value in the ledger is not the one that was stored: somebody changed it. It is not handed out; expire it to decide anew.';
		case 'stored':
			return `Stored.${approval}`;
		case 'superseded':
			return `Another answer was stored first, at ${answer.decidedAt}${by}: that one counts.${approval}`;
		case 'proposed':
			return 'Stored as a proposal: it waits for approval.';
		case 'not_stored':
			return `Not stored${why}.`.replace('..', '.');
		case 'approved':
			return `Approved by ${answer.approver} at ${answer.judgedAt}.`;
		case 'rejected':
			return `Rejected by ${answer.approver} at ${answer.judgedAt}${why}. To decide it anew: Expire.`;
		case 'stands':
			return `It was ${answer.state} by ${answer.approver} at ${answer.judgedAt} before: that stands.`;
		case 'expired':
			return 'Expired: the next look-up decides anew.';
		default:
			return `Nothing was changed${why}.`.replace('..', '.');
	}
}
