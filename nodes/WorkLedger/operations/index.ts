import type { INodeProperties } from 'n8n-workflow';

import type { Parameters } from '../../execution/parameters';
import type { AllItemsOperation, LedgerOperation, Resource } from '../operation';
import { checkWorkflow } from './check-workflow.operation';
import { checkpointContinueAfter } from './checkpoint-continue-after.operation';
import { checkpointGet } from './checkpoint-get.operation';
import { checkpointList } from './checkpoint-list.operation';
import { checkpointReset } from './checkpoint-reset.operation';
import { checkpointSave } from './checkpoint-save.operation';
import { createLink } from './create-link.operation';
import { explain } from './explain.operation';
import { firesTwice } from './fires-twice.operation';
import { forget } from './forget.operation';
import { list } from './list.operation';
import { lookAtLink } from './look-at-link.operation';
import { messageList } from './message-list.operation';
import { messageResolve } from './message-resolve.operation';
import { purge } from './purge.operation';
import { reconcile } from './reconcile.operation';
import { redeemLink } from './redeem-link.operation';
import { releaseByForce } from './release-by-force.operation';
import { replay } from './replay.operation';
import { resolve } from './resolve.operation';
import { statistics } from './statistics.operation';

type Operation = LedgerOperation | AllItemsOperation;

/** In the order the editor shows them: by resource, then by name. */
const OPERATIONS: Operation[] = [
	checkWorkflow,
	checkpointContinueAfter,
	checkpointGet,
	checkpointList,
	checkpointReset,
	checkpointSave,
	createLink,
	explain,
	firesTwice,
	forget,
	list,
	lookAtLink,
	messageList,
	messageResolve,
	purge,
	reconcile,
	redeemLink,
	releaseByForce,
	replay,
	resolve,
	statistics,
];

const RESOURCES: Array<{ name: string; value: Resource; description: string; first: string }> = [
	{
		name: 'Checkpoint',
		value: 'checkpoint',
		description: 'How far a run has come, so that the next one goes on there',
		first: 'get',
	},
	{
		name: 'Message',
		value: 'message',
		description: 'Telegram messages of which nobody knows whether they arrived',
		first: 'list',
	},
	{
		name: 'Reconciliation',
		value: 'reconciliation',
		description: "The target system's records against the ledger",
		first: 'reconcile',
	},
	{
		name: 'Work',
		value: 'work',
		description: 'One piece of work, or many: what happened to it, and putting it right',
		first: 'explain',
	},
	{
		name: 'Workflow',
		value: 'workflow',
		description: "A workflow's JSON: which of its steps would have their effect twice",
		first: 'check',
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

/** What the node does, in the words of its panel; a choice of another version as it stands. */
export const SUBTITLE = `={{ (${JSON.stringify(
	Object.fromEntries(
		OPERATIONS.map(({ resource, option }) => [
			`${resource} ${String(option.value)}`,
			`${RESOURCES.find(({ value }) => value === resource)?.name}: ${option.name}`,
		]),
	),
)})[$parameter["resource"] + " " + $parameter["operation"]] || $parameter["operation"] }}`;

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
