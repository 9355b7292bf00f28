import type { INodeProperties } from 'n8n-workflow';

import type { Parameters } from '../../execution/parameters';
import type { AllItemsOperation, LedgerOperation, Resource } from '../operation';
import { explain } from './explain.operation';
import { forget } from './forget.operation';
import { list } from './list.operation';
import { purge } from './purge.operation';
import { releaseByForce } from './release-by-force.operation';
import { replay } from './replay.operation';
import { resolve } from './resolve.operation';
import { statistics } from './statistics.operation';

type Operation = LedgerOperation | AllItemsOperation;

/** In the order the editor shows them: by resource, then by name. */
const OPERATIONS: Operation[] = [
	explain,
	forget,
	list,
	purge,
	releaseByForce,
	replay,
	resolve,
	statistics,
];

const RESOURCES: Array<{ name: string; value: Resource; description: string; first: string }> = [
	{
		name: 'Work',
		value: 'work',
		description: 'One piece of work, or many: what happened to it, and putting it right',
		first: 'explain',
	},
];

/** The choice of resource and operation, and the fields of every operation. */
export const operationProperties: INodeProperties[] = [
	{
		displayName: 'Resource',
		name: 'resource',
		type: 'options',
		noDataExpression: true,
		options: RESOURCES.map(({ name, value, description }) => ({ name, value, description })),
		default: 'work',
	},
	...RESOURCES.map(
		({ value, first }): INodeProperties => ({
			displayName: 'Operation',
			name: 'operation',
			type: 'options',
			noDataExpression: true,
			displayOptions: { show: { resource: [value] } },
			options: OPERATIONS.filter(({ resource }) => resource === value).map(({ option }) => option),
			default: first,
		}),
	),
];

export const operationFields: INodeProperties[] = OPERATIONS.flatMap(
	({ properties }) => properties,
);

/** Throws for a choice that an edited or imported workflow may hold. */
export function chosenOperation(parameters: Parameters, itemIndex: number): Operation {
	const resource = parameters.text('resource', itemIndex, 'work');
	const chosen = parameters.text('operation', itemIndex, 'explain');
	const operation = OPERATIONS.find(
		(each) => each.resource === resource && each.option.value === chosen,
	);
	if (operation !== undefined) return operation;
	throw new Error(
		`Operation "${chosen.slice(0, 50)}" is not known to this version for "${resource.slice(0, 50)}". Choose it anew.`,
	);
}
