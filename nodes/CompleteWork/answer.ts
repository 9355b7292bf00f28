import type { IDataObject } from 'n8n-workflow';

import type { HoldAnswer } from '../../ledger';
import { addSaid, type WorkField } from '../execution/work-field';
import type { Operation } from './properties';
import type { Settlement } from './settle';

export const OUTPUT = { completed: 0, notOwner: 1 } as const;
export const OUTPUT_NAMES = ['Completed', 'Not Owner'];

export function isAccepted(answer: HoldAnswer): boolean {
	return answer.status !== 'not_owner' && answer.status !== 'refused';
}

/** What the item says after its claims were settled; several claims (an aggregated item) are listed. */
export function settledField(
	operation: Operation,
	settled: Array<{ settlement: Settlement; answer: HoldAnswer }>,
	before: WorkField | null,
): IDataObject {
	if (settled.length === 1)
		return singleField(operation, settled[0].settlement, settled[0].answer, before);
	const works = settled.map(({ settlement, answer }) =>
		singleField(operation, settlement, answer, null),
	);
	const refused = works.filter((_, i) => !isAccepted(settled[i].answer));
	return {
		status: refused.length > 0 ? 'not_owner' : String(works[0].status),
		message:
			refused.length > 0
				? `${refused.length} of ${works.length} claims on this item were refused.`
				: `${works.length} claims on this item were settled.`,
		works,
	};
}

function singleField(
	operation: Operation,
	settlement: Settlement,
	answer: HoldAnswer,
	before: WorkField | null,
): IDataObject {
	const field: IDataObject = {
		status: answer.status,
		message: sentence(answer),
		workId: answer.workId,
		state: answer.state,
	};
	const add = (name: string, value: unknown) => addSaid(field, name, value);
	add('kind', answer.kind ?? settlement.claim.kind);
	add('key', answer.key ?? settlement.claim.key);
	add('version', before?.version);
	add('keyFields', before?.keyFields);
	add('fingerprint', before?.fingerprint);
	add('generation', answer.generation);
	add('attempt', answer.attempt);
	add('externalRef', answer.externalRef);
	add('completedAt', answer.completedAt);
	add('lockedUntil', answer.lockedUntil);
	add('nextAttemptAt', answer.nextAttemptAt);
	add('lastError', answer.lastError);
	add('late', answer.late);
	add('repeated', answer.repeated);
	add('differs', answer.differs);
	add('reason', answer.reason);
	add('warnings', [...settlement.warnings, ...answer.warnings]);
	// what stands in the ledger, where it is not what this item offered
	if (answer.differs.includes('result') || (!isAccepted(answer) && answer.result !== null)) {
		field.result = answer.result as IDataObject;
	}
	// the claim is still open after these two: a later Complete Work needs its token
	if (operation === 'recordReference' || operation === 'extend') {
		if (isAccepted(answer) && answer.state === 'running') field.token = settlement.claim.token;
	}
	return field;
}

function sentence(answer: HoldAnswer): string {
	const late = answer.late
		? ' Late: the lease had ended, or the work had been settled meanwhile.'
		: '';
	switch (answer.status) {
		case 'completed':
			if (answer.differs.length > 0) {
				return `Done before with another ${answer.differs.join(' and ').replace('external_ref', 'reference')}: the first stands, this one is in the decision log. It may mean two effects; look at the target.`;
			}
			if (answer.reason !== null) return `Completed: ${answer.reason}.`;
			return answer.repeated ? 'Completed before; nothing changed.' : `Completed.${late}`;
		case 'failed':
			return answer.state === 'failed'
				? `Failed: the next attempt is due at ${answer.nextAttemptAt}.${late}`
				: answer.state === 'held'
					? `Failed, and held for review: the effect may have landed.${late}`
					: `Failed for good: the work is dead and waits for a person.${late}`;
		case 'recorded':
			return answer.differs.length > 0
				? `Another reference was recorded before (${answer.externalRef}): the first stands. It may mean two effects; look at the target.`
				: `Reference ${answer.externalRef} recorded.${late}`;
		case 'extended':
			return `The lease now ends at ${answer.lockedUntil}.${late}`;
		// by a person, in Work Ledger
		case 'replayed':
		case 'resolved':
		case 'forgotten':
			return `${answer.status}.`;
		case 'released':
			return 'Released, as if it had not been claimed.';
		case 'refused':
			return `Refused: ${answer.reason ?? 'the work is past this'}. Nothing was changed.`;
		case 'not_owner':
			return `No longer the owner: ${answer.reason ?? 'the work has another owner'}. Nothing was written to the work; what was offered is in the decision log. If the effect has landed twice, this is where it shows.`;
	}
}
