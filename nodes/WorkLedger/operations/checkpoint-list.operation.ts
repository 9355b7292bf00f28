import type { IDataObject } from 'n8n-workflow';

import { readNumber } from '../../execution/number';
import { shownFor, type LedgerOperation } from '../operation';
import { checkpointWords } from '../which-checkpoint';

const PAGE = 500;

export const checkpointList: LedgerOperation = {
	resource: 'checkpoint',
	option: {
		name: 'List',
		value: 'list',
		action: 'List checkpoints',
		description: 'Checkpoints by name and run, and where each stands',
	},
	properties: [
		{
			displayName: 'Limit',
			name: 'limit',
			type: 'number',
			typeOptions: { minValue: 1 },
			default: 50,
			description: 'Max number of results to return',
			...shownFor('checkpoint', 'list'),
		},
		{
			displayName: 'Filters',
			name: 'checkpointFilters',
			type: 'collection',
			placeholder: 'Add Filter',
			default: {},
			options: [
				{
					displayName: 'Continue After',
					name: 'cursor',
					type: 'string',
					default: '',
					description: 'The nextPage on the last item of the page before',
				},
				{
					displayName: 'Name',
					name: 'name',
					type: 'string',
					default: '',
					description: 'All runs of one checkpoint',
				},
				{
					displayName: 'Text',
					name: 'text',
					type: 'string',
					default: '',
					description: 'Part of the name or run ID, in any case',
				},
			],
			...shownFor('checkpoint', 'list'),
		},
	],
	async run({ ledger, parameters, itemIndex }) {
		const given = parameters.read<IDataObject>('checkpointFilters', itemIndex, {});
		const text = (name: string) =>
			given[name] === undefined || given[name] === '' ? undefined : String(given[name]);
		const limit = readNumber(parameters, itemIndex, 'limit', {
			label: 'Limit',
			least: 1,
			most: 100_000,
			whole: true,
		});
		const filter = { name: text('name'), text: text('text') };
		const found: IDataObject[] = [];
		let cursor = text('cursor') ?? null;
		do {
			const page = await ledger.checkpoints.list(
				filter,
				Math.min(PAGE, limit - found.length),
				cursor,
			);
			cursor = page.cursor;
			found.push(
				...page.checkpoints.map((checkpoint) => ({
					...(checkpoint as unknown as IDataObject),
					message: `Checkpoint ${checkpointWords(checkpoint)} stands at ${checkpoint.cursor} since ${checkpoint.savedAt}.`,
				})),
			);
		} while (cursor !== null && found.length < limit);
		const last = found.at(-1);
		// not "cursor", as a list of works calls it: that is where the checkpoint stands
		if (last !== undefined && cursor !== null) last.nextPage = cursor;
		return found;
	},
};
