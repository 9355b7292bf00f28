import type { INodeProperties } from 'n8n-workflow';

import { identifyByKey } from '../../ledger';
import { asWorkField } from '../execution/work-field';
import type { Call } from './operation';

const OPERATIONS = ['createLink', 'explain', 'replay', 'resolve', 'forget', 'releaseByForce'];

const shown = { resource: ['work'], operation: OPERATIONS };

/** How one work is named: shared by every operation on one work. */
export const whichWork: INodeProperties[] = [
	{
		displayName: 'Which Work',
		name: 'whichWork',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'By Kind and Key',
				value: 'key',
				description: 'As Claim Work names it: the kind, and the key such as an order number',
			},
			{
				name: 'By Work ID',
				value: 'id',
				description: 'The 64 hex digits that stand on every item of Claim Work',
			},
			{
				name: 'The Work on the Item',
				value: 'item',
				description: 'The item carries a field of Claim Work, or workId',
			},
		],
		default: 'item',
		description: 'How the work is named that is meant',
		displayOptions: { show: shown },
	},
	{
		displayName: 'Work ID',
		name: 'workId',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. {{ $json.work.workId }}',
		description: 'The 64 hex digits that Claim Work puts on the item',
		displayOptions: { show: { ...shown, whichWork: ['id'] } },
	},
	{
		displayName: 'Kind',
		name: 'kind',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. invoice',
		description: 'The kind of the work, as it stands on its Claim Work',
		displayOptions: { show: { ...shown, whichWork: ['key'] } },
	},
	{
		displayName: 'Version',
		name: 'version',
		type: 'string',
		default: 'v1',
		required: true,
		description: 'The version of the work, as it stands on its Claim Work',
		displayOptions: { show: { ...shown, whichWork: ['key'] } },
	},
	{
		displayName: 'Key',
		name: 'key',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. {{ $json.order_id }}',
		description:
			'The value of the key field. For several key fields: an expression that gives them as a list, in the order of the node that claimed.',
		displayOptions: { show: { ...shown, whichWork: ['key'] } },
	},
];

/** The id of the work that the item or the node names. Throws, with the cure, where it names none. */
export function readWorkId({ parameters, itemIndex, json }: Call): string {
	switch (parameters.read<string>('whichWork', itemIndex, 'item')) {
		case 'key':
			return identifyByKey(
				{
					kind: parameters.text('kind', itemIndex),
					version: parameters.text('version', itemIndex, 'v1'),
				},
				[{ name: 'Key', value: parameters.read<unknown>('key', itemIndex, '') }],
				{ glued: true },
			).workId;
		case 'id':
			return checked(parameters.text('workId', itemIndex).trim(), 'Work ID');
		default: {
			const fields = Object.values(json).map(asWorkField);
			const named = fields.find((field) => field !== null)?.workId ?? json.workId ?? json.work_id;
			return checked(named, 'The item');
		}
	}
}

function checked(workId: unknown, where: string): string {
	if (typeof workId === 'string' && /^[0-9a-f]{64}$/.test(workId)) return workId;
	throw new Error(
		`${where} names no work: 64 hex digits are needed, as Claim Work puts them on the item under work.workId.`,
	);
}
