import { readNumber } from '../../execution/number';
import { shownFor, type LedgerOperation } from '../operation';

const DAY_SECONDS = 86_400;

export const purge: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Purge',
		value: 'purge',
		action: 'Purge old works',
		description:
			'Frees space: results and data of old finished works, and old rows of the decision log',
	},
	properties: [
		{
			displayName: 'Older Than (Days)',
			name: 'olderThanDays',
			type: 'number',
			typeOptions: { minValue: 0 },
			default: 180,
			description: 'Days since the last change of the work. Longer than any sender repeats.',
			...shownFor('work', 'purge'),
		},
		{
			displayName: 'Dead Works Too',
			name: 'dead',
			type: 'boolean',
			default: false,
			description:
				'Whether works that wait for a person are purged too. Their data cannot be replayed afterwards.',
			...shownFor('work', 'purge'),
		},
		{
			displayName: 'Keep What "Forever" Needs',
			name: 'keepStub',
			type: 'boolean',
			default: true,
			description:
				'Whether the identity, state and reference stay, so that a late duplicate is still recognised',
			...shownFor('work', 'purge'),
		},
		{
			displayName: 'Decision Log Older Than (Days)',
			name: 'logDays',
			type: 'number',
			typeOptions: { minValue: 0 },
			default: 0,
			description: 'The history has a retention of its own. 0 keeps all of it.',
			...shownFor('work', 'purge'),
		},
		{
			displayName: 'At Most (Rows)',
			name: 'atMost',
			type: 'number',
			typeOptions: { minValue: 1 },
			default: 100000,
			description: 'Stops after so many, in short batches that no claim waits for',
			...shownFor('work', 'purge'),
		},
	],
	async run({ ledger: { admin }, parameters, itemIndex, caller }) {
		const days = readNumber(parameters, itemIndex, 'olderThanDays', {
			label: 'Older Than (Days)',
			least: 0,
			most: 36_500,
		});
		const logDays = readNumber(parameters, itemIndex, 'logDays', {
			label: 'Decision Log Older Than (Days)',
			least: 0,
			most: 36_500,
		});
		const atMost = readNumber(parameters, itemIndex, 'atMost', {
			label: 'At Most (Rows)',
			least: 1,
			most: 100_000_000,
			whole: true,
		});
		const dead = parameters.read<boolean>('dead', itemIndex, false) === true;
		const keepStub = parameters.read<boolean>('keepStub', itemIndex, true) !== false;
		const works = await admin.purge(
			{
				states: dead ? ['done', 'dead'] : ['done'],
				olderThanSeconds: days * DAY_SECONDS,
				keepStub,
				atMost,
			},
			caller,
		);
		const decisions = logDays === 0 ? 0 : await admin.purgeDecisions(logDays * DAY_SECONDS, atMost);
		return [
			{
				status: 'purged',
				message: `${works} works ${keepStub ? 'purged down to what "forever" needs' : 'deleted'}, ${decisions} rows of the decision log deleted.`,
				works,
				decisions,
			},
		];
	},
};
