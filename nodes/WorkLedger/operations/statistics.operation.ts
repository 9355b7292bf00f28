import type { IDataObject } from 'n8n-workflow';

import { readNumber } from '../../execution/number';
import { shownFor, type LedgerOperation } from '../operation';

export const statistics: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Statistics',
		value: 'statistics',
		action: 'Count works and decisions',
		description:
			'Works per kind and state with the oldest of each, and the duplicates that were suppressed',
	},
	properties: [
		{
			displayName: 'Kind',
			name: 'statisticsKind',
			type: 'string',
			default: '',
			description: 'Empty: all kinds',
			...shownFor('work', 'statistics'),
		},
		{
			displayName: 'Decisions of the Last (Hours)',
			name: 'sinceHours',
			type: 'number',
			typeOptions: { minValue: 0 },
			default: 24,
			...shownFor('work', 'statistics'),
		},
	],
	async run({ ledger: { admin }, parameters, itemIndex }) {
		const hours = readNumber(parameters, itemIndex, 'sinceHours', {
			label: 'Decisions of the Last (Hours)',
			least: 0,
			most: 880_000,
		});
		const kind = parameters.text('statisticsKind', itemIndex).trim() || null;
		const { works, decisions } = await admin.statistics(kind, hours * 3600);
		const sum = decisions
			.filter(
				({ event, outcome }) => event === 'claim' && ['duplicate', 'in_progress'].includes(outcome),
			)
			.reduce((total, { count }) => total + BigInt(count), 0n);
		return [
			{
				works: works as unknown as IDataObject[],
				decisions: decisions as unknown as IDataObject[],
				duplicatesSuppressed: sum.toString(),
				sinceHours: hours,
			},
		];
	},
};
