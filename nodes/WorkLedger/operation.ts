import type {
	IDataObject,
	IExecuteFunctions,
	INodeProperties,
	INodePropertyOptions,
} from 'n8n-workflow';

import type { Administration, Caller } from '../../ledger';
import type { Parameters } from '../execution/parameters';

/** What an operation works with, for one item. */
export interface Call {
	context: IExecuteFunctions;
	admin: Administration;
	parameters: Parameters;
	itemIndex: number;
	json: IDataObject;
	caller: Caller;
}

/** An operation of Work Ledger: how it is offered, its fields, and what it does for one item. */
export interface LedgerOperation {
	option: INodePropertyOptions;
	properties: INodeProperties[];
	/** Answers the items that leave; throws, naming the field and the cure, for what cannot be done. */
	run(call: Call): Promise<IDataObject[]>;
}

export const shownFor = (...operations: string[]) => ({
	displayOptions: { show: { resource: ['work'], operation: operations } },
});
