import type { IDataObject } from 'n8n-workflow';

import { readNumber } from '../../execution/number';
import { shownFor, type LedgerOperation } from '../operation';
import { standing, story } from '../story';
import { readWorkId } from '../which-work';

export const explain: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Explain',
		value: 'explain',
		action: 'Explain a work',
		description: 'State, owner and whole history of one work, in words: why was this a duplicate?',
	},
	properties: [
		{
			displayName: 'History Rows',
			name: 'historyLimit',
			type: 'number',
			typeOptions: { minValue: 1, maxValue: 1000 },
			default: 200,
			description: 'How many of its newest decisions to show',
			...shownFor('work', 'explain'),
		},
	],
	async run(call) {
		const workId = readWorkId(call);
		const limit = readNumber(call.parameters, call.itemIndex, 'historyLimit', {
			label: 'History Rows',
			least: 1,
			most: 1000,
			whole: true,
		});
		const explanation = await call.ledger.admin.explain(workId, limit);
		if (explanation === null) {
			return [
				{
					workId,
					found: false,
					summary: 'The ledger has never seen this work.',
					story: [],
					history: [],
				},
			];
		}
		const { work, history, more } = explanation;
		return [
			{
				workId,
				found: true,
				summary:
					work === null
						? 'The work is gone, its history is not.'
						: `This work is ${standing(work)}`,
				story: story(explanation),
				work: work as unknown as IDataObject,
				history: history as unknown as IDataObject[],
				olderHistory: more,
			},
		];
	},
};
