import type {
	IDataObject,
	IExecuteFunctions,
	INodeExecutionData,
	INodeProperties,
	INodePropertyOptions,
} from 'n8n-workflow';

import type { Caller, Ledger } from '../../ledger';
import type { Parameters } from '../execution/parameters';

/** What an operation works with, for one item. */
export interface Call {
	context: IExecuteFunctions;
	ledger: Ledger;
	parameters: Parameters;
	itemIndex: number;
	json: IDataObject;
	caller: Caller;
}

export type Resource = 'checkpoint' | 'message' | 'reconciliation' | 'work' | 'workflow';

interface Offered {
	resource: Resource;
	/** How the editor offers it; its value is unique within the resource. */
	option: INodePropertyOptions;
	properties: INodeProperties[];
}

/** An operation of Work Ledger on one item: how it is offered, its fields, and what it does. */
export interface LedgerOperation extends Offered {
	/** Answers the items that leave; throws, naming the field and the cure, for what cannot be done. */
	run(call: Call): Promise<IDataObject[]>;
}

/** An item that leaves an operation over all items, and the input items it stands for. */
export interface Leaving {
	json: IDataObject;
	binary?: INodeExecutionData['binary'];
	items: number[];
}

/** Why an item could not be done: names the field and the cure. */
export interface Problem {
	item: number;
	problem: string;
}

/** An operation of Work Ledger that needs all items at once. */
export interface AllItemsOperation<T = unknown> extends Offered {
	/**
	 * What it needs of one item; throws, naming the field and the cure, for a bad one. Under "Stop Workflow" one bad item
	 * stops the node before `runAll`; otherwise the others go on without it.
	 */
	read(call: Call): T;
	/**
	 * Called once with what was read, in the order of the items, and not at all where nothing was. Answers a problem for an
	 * item that could not be done; throws for all of them.
	 */
	runAll(entries: Array<{ call: Call; value: T }>): Promise<Array<Leaving | Problem>>;
}

export const shownFor = (resource: Resource, ...operations: string[]) => ({
	displayOptions: { show: { resource: [resource], operation: operations } },
});
