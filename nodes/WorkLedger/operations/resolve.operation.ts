import { readOptionalReference } from '../../execution/reference';
import { shownFor, type LedgerOperation } from '../operation';
import { readWorkId } from '../which-work';
import { outcome } from './by-a-person';

export const resolve: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Resolve',
		value: 'resolve',
		action: 'Resolve a work',
		description:
			'Held or dead work, or failed work whose effect may have landed: say what became of it',
	},
	properties: [
		{
			displayName: 'Did the Effect Land?',
			name: 'landed',
			type: 'options',
			noDataExpression: true,
			options: [
				{
					name: 'Yes: It Is Done',
					value: 'yes',
					description: 'Duplicates get its result from now on',
				},
				{ name: 'No: Do It Again', value: 'no', description: 'Due now, with all its attempts' },
			],
			default: 'yes',
			description: 'Look at the target system before you answer',
			...shownFor('work', 'resolve'),
		},
		{
			displayName: 'External Reference',
			name: 'externalRef',
			type: 'string',
			default: '',
			placeholder: 'e.g. INV-2041',
			description: 'What the effect is called at the target, such as the invoice number',
			displayOptions: { show: { resource: ['work'], operation: ['resolve'], landed: ['yes'] } },
		},
		{
			displayName: 'Result',
			name: 'result',
			type: 'json',
			default: '',
			placeholder: 'e.g. {"invoice": "INV-2041"}',
			description: 'What duplicates get, as JSON. Empty: nothing.',
			displayOptions: { show: { resource: ['work'], operation: ['resolve'], landed: ['yes'] } },
		},
	],
	async run(call) {
		const {
			ledger: { admin },
			parameters,
			itemIndex,
			caller,
		} = call;
		const workId = readWorkId(call);
		const landed = parameters.read<unknown>('landed', itemIndex, undefined);
		if (landed !== 'yes' && landed !== 'no') {
			throw new Error('"Did the Effect Land?" must be yes or no. Choose it anew.');
		}
		if (landed === 'no') {
			return outcome(
				await admin.resolve([workId], { landed: false }, caller),
				'It did not land: due now.',
			);
		}
		const given = parameters.read<unknown>('result', itemIndex, '');
		const what = {
			landed: true as const,
			externalRef: readOptionalReference(parameters, 'externalRef', itemIndex),
			result: typeof given === 'string' ? parsed(given) : given,
		};
		return outcome(await admin.resolve([workId], what, caller), 'It landed: done.');
	},
};

function parsed(text: string): unknown {
	if (text.trim() === '') return undefined;
	try {
		return JSON.parse(text);
	} catch {
		return badResult();
	}
}

function badResult(): never {
	throw new Error('Result is not JSON. Enter for example {"invoice": 12}, or leave it empty.');
}
