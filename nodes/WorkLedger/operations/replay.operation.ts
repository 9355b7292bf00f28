import { shownFor, type LedgerOperation } from '../operation';
import { readWorkId } from '../which-work';
import { outcome } from './by-a-person';

export const replay: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Replay',
		value: 'replay',
		action: 'Replay a work',
		description:
			'Failed, dead or held work becomes due now, with all its attempts, and its old owner is fenced off',
	},
	properties: [
		{
			displayName: 'Run Again on Purpose',
			name: 'again',
			type: 'boolean',
			default: false,
			description: 'Whether finished work is done once more. Its effect will happen a second time.',
			...shownFor('work', 'replay'),
		},
		{
			displayName: 'By Force',
			name: 'force',
			type: 'boolean',
			default: false,
			description:
				'Whether running work is taken from its owner. Only when that run is surely gone.',
			...shownFor('work', 'replay'),
		},
	],
	async run(call) {
		const {
			ledger: { admin },
			parameters,
			itemIndex,
			caller,
		} = call;
		const how = {
			again: parameters.read<boolean>('again', itemIndex, false) === true,
			force: parameters.read<boolean>('force', itemIndex, false) === true,
		};
		return outcome(await admin.replay([readWorkId(call)], how, caller), 'Due now.');
	},
};
