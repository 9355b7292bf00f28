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
			'Works per kind and state with the oldest of each, the duplicates that were suppressed, and those that shadow mode would have saved',
	},
	properties: [
		{
			displayName: 'Kind',
			name: 'statisticsKind',
			type: 'string',
			default: '',
			placeholder: 'e.g. invoice',
			description: 'Empty: all kinds',
			...shownFor('work', 'statistics'),
		},
		{
			displayName: 'Decisions of the Last (Hours)',
			name: 'sinceHours',
			type: 'number',
			typeOptions: { minValue: 0 },
			default: 24,
			description: 'How far back the decision log is counted',
			...shownFor('work', 'statistics'),
		},
		{
			displayName: 'Hour by Hour for the Last (Hours)',
			name: 'byHours',
			type: 'number',
			typeOptions: { minValue: 0, maxValue: 744 },
			default: 0,
			description:
				'For a chart: claimed, duplicates suppressed and failed in each clock hour, the one going on included. 0: not asked.',
			...shownFor('work', 'statistics'),
		},
		{
			displayName: 'Oldest Waiting Works',
			name: 'oldestWaiting',
			type: 'number',
			typeOptions: { minValue: 0, maxValue: 100 },
			default: 0,
			description:
				'How many to show of the works that wait to be gone on with, the oldest first: failed ones, and those whose owner vanished. 0: not asked.',
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
		const atMost = (parameter: string, label: string, most: number) =>
			readNumber(parameters, itemIndex, parameter, { label, least: 0, most, whole: true }) ||
			undefined;
		const { works, decisions, ...more } = await admin.statistics(kind, hours * 3600, {
			hours: atMost('byHours', 'Hour by Hour for the Last (Hours)', 744),
			waiting: atMost('oldestWaiting', 'Oldest Waiting Works', 100),
		});
		const claims = decisions.filter(({ event }) => event === 'claim');
		const guarded = claims.filter(({ shadow }) => shadow !== true);
		const watched = claims.filter(({ shadow }) => shadow === true);
		return [
			{
				works: works as unknown as IDataObject[],
				decisions: decisions as unknown as IDataObject[],
				duplicatesSuppressed: duplicatesIn(guarded),
				wouldHaveSaved: duplicatesIn(watched),
				shadow: [...new Set(watched.map((each) => each.kind))].map((each) => {
					const own = watched.filter((claim) => claim.kind === each);
					return {
						kind: each,
						wouldHaveSaved: duplicatesIn(own),
						wouldHave: Object.fromEntries(own.map(({ outcome, count }) => [outcome, count])),
					};
				}),
				sinceHours: hours,
				...(more.hours === undefined ? {} : { hours: more.hours as unknown as IDataObject[] }),
				...(more.waiting === undefined
					? {}
					: { waiting: more.waiting as unknown as IDataObject[] }),
			},
		];
	},
};

/** Claims that met work that was done or running: what would have been, or was not, done twice. */
function duplicatesIn(claims: Array<{ outcome: string; count: string }>): string {
	return claims
		.filter(({ outcome }) => ['duplicate', 'in_progress'].includes(outcome))
		.reduce((total, { count }) => total + BigInt(count), 0n)
		.toString();
}
