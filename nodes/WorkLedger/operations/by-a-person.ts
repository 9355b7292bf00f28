import type { IDataObject } from 'n8n-workflow';

import type { HoldAnswer } from '../../../ledger';

/** The one answer of an operation on one work, as an item. A refusal is an error: nothing was changed, and it says why. */
export function outcome([answer]: HoldAnswer[], done: string): IDataObject[] {
	if (answer.status === 'not_owner') {
		throw new Error(
			`The ledger holds no such work (${answer.workId}). Check the kind, the version and the key.`,
		);
	}
	if (answer.status === 'refused') {
		throw new Error(
			`${answer.kind ?? 'The work'} ${answer.key ?? answer.workId}: ${answer.reason ?? 'it is past this'}. Nothing was changed.`,
		);
	}
	return [
		{
			status: answer.status,
			message: answer.waitsForDelivery
				? `${done} Its data are not kept, so it is done when it is delivered again.`
				: done,
			workId: answer.workId,
			kind: answer.kind,
			key: answer.key,
			state: answer.state,
			generation: answer.generation,
			attempt: answer.attempt,
			externalRef: answer.externalRef,
			nextAttemptAt: answer.nextAttemptAt,
			completedAt: answer.completedAt,
			waitsForDelivery: answer.waitsForDelivery,
		},
	];
}
