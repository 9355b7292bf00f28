import type { IDataObject } from 'n8n-workflow';

import { shownFor, type LedgerOperation } from '../operation';
import { checkpointWords, readCheckpoint } from '../which-checkpoint';

export const checkpointGet: LedgerOperation = {
	resource: 'checkpoint',
	option: {
		name: 'Get',
		value: 'get',
		action: 'Get a checkpoint',
		description: 'How far the last run came: for the first page or date to ask the source for',
	},
	properties: [
		{
			displayName: 'If There Is None',
			name: 'startCursor',
			type: 'string',
			default: '',
			placeholder: 'e.g. 0',
			description:
				'The cursor to answer on the first run, so that the next step needs no case of its own. Empty: null.',
			...shownFor('checkpoint', 'get'),
		},
	],
	async run(call) {
		const which = readCheckpoint(call);
		const start = call.parameters.text('startCursor', call.itemIndex);
		const checkpoint = await call.ledger.checkpoints.get(which);
		if (checkpoint === null) {
			return [
				{
					...which,
					found: false,
					cursor: start === '' ? null : start,
					message: `There is no checkpoint ${checkpointWords(which)} yet: begin at the start.`,
				},
			];
		}
		return [
			{
				...(checkpoint as unknown as IDataObject),
				found: true,
				message: `Checkpoint ${checkpointWords(which)} stands at ${checkpoint.cursor} since ${checkpoint.savedAt}.`,
			},
		];
	},
};
