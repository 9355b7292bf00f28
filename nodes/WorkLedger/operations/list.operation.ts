import type { IDataObject } from 'n8n-workflow';

import type { WorkFilter, WorkState } from '../../../ledger';
import { checkedNumber, readNumber } from '../../execution/number';
import { shownFor, type LedgerOperation } from '../operation';
import { standing } from '../story';

const PAGE = 500;

export const list: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'List',
		value: 'list',
		action: 'List works',
		description: 'Works by state, kind, age, run or text, the newest change first',
	},
	properties: [
		{
			displayName: 'States',
			name: 'states',
			type: 'multiOptions',
			options: [
				{ name: 'Dead', value: 'dead' },
				{ name: 'Done', value: 'done' },
				{ name: 'Failed', value: 'failed' },
				{ name: 'Held', value: 'held' },
				{ name: 'Running', value: 'running' },
			],
			default: ['dead', 'held'],
			description: 'None chosen: all',
			...shownFor('work', 'list'),
		},
		{
			displayName: 'Limit',
			name: 'limit',
			type: 'number',
			typeOptions: { minValue: 1 },
			default: 50,
			description: 'Max number of results to return',
			...shownFor('work', 'list'),
		},
		{
			displayName: 'Filters',
			name: 'filters',
			type: 'collection',
			placeholder: 'Add Filter',
			default: {},
			options: [
				{
					displayName: 'Continue After',
					name: 'cursor',
					type: 'string',
					default: '',
					description: 'The cursor on the last item of the page before',
				},
				{
					displayName: 'Execution ID',
					name: 'execution',
					type: 'string',
					default: '',
					description: 'Works that this execution claimed last',
				},
				{
					displayName: 'Kind',
					name: 'kind',
					type: 'string',
					default: '',
					placeholder: 'e.g. invoice',
					description: 'Works of this kind only',
				},
				{
					displayName: 'Not Changed for (Hours)',
					name: 'olderThanHours',
					type: 'number',
					typeOptions: { minValue: 0 },
					default: 24,
					description: 'Works that nothing has touched for so long: what hangs',
				},
				{
					displayName: 'Run ID',
					name: 'runId',
					type: 'string',
					default: '',
					placeholder: 'e.g. nightly 2026-01-31',
					description: 'Works that were claimed last with this run ID',
				},
				{
					displayName: 'Text in the Key',
					name: 'text',
					type: 'string',
					default: '',
					description: 'Part of the readable key, in any case',
				},
			],
			...shownFor('work', 'list'),
		},
	],
	async run({ ledger: { admin }, parameters, itemIndex }) {
		const given = parameters.read<IDataObject>('filters', itemIndex, {});
		const states = parameters.chosen<WorkState>('states', 'States', itemIndex, []);
		const limit = readNumber(parameters, itemIndex, 'limit', {
			label: 'Limit',
			least: 1,
			most: 100_000,
			whole: true,
		});
		const hours = Object.hasOwn(given, 'olderThanHours')
			? checkedNumber(given.olderThanHours, {
					label: 'Not Changed for (Hours)',
					least: 0,
					most: 880_000,
				})
			: undefined;
		const text = (name: string) =>
			given[name] === undefined || given[name] === '' ? undefined : String(given[name]);
		const filter: WorkFilter = {
			states: states.length === 0 ? undefined : states,
			kind: text('kind'),
			runId: text('runId'),
			execution: text('execution'),
			text: text('text'),
			olderThanSeconds: hours === undefined ? undefined : hours * 3600,
		};
		const found: IDataObject[] = [];
		let cursor = text('cursor') ?? null;
		do {
			const page = await admin.list(filter, Math.min(PAGE, limit - found.length), cursor);
			cursor = page.cursor;
			found.push(
				...page.works.map(
					(work) =>
						({ ...work, summary: `This work is ${standing(work)}` }) as unknown as IDataObject,
				),
			);
		} while (cursor !== null && found.length < limit);
		const last = found.at(-1);
		if (last !== undefined && cursor !== null) last.cursor = cursor;
		return found;
	},
};
