import type { IDataObject, INodeExecutionData } from 'n8n-workflow';

import { isOwnField } from '../../ledger';

export const DEFAULT_FIELD = 'work';

/** Statuses of a claim that is still open on an item. */
const OPEN_STATUSES = new Set(['claimed', 'recorded', 'extended']);

/** What this package puts on an item about a work. */
export interface WorkField extends IDataObject {
	status: string;
	workId: string;
	kind?: string;
	version?: string;
	key?: string;
	token?: string;
	keyFields?: string[];
	message?: string;
}

export function asWorkField(value: unknown): WorkField | null {
	return isOwnField(value) && typeof (value as WorkField).workId === 'string'
		? (value as WorkField)
		: null;
}

/** Whether the field holds a claim that its owner can still complete. */
export function isOpenClaim(field: WorkField): field is WorkField & { token: string } {
	return OPEN_STATUSES.has(field.status) && typeof field.token === 'string' && field.token !== '';
}

/** What is wrong with a name for the field; null if nothing is. */
export function fieldNameProblem(name: unknown): string | null {
	if (typeof name !== 'string' || name.trim() === '')
		return 'The option "Field Name" is empty. Enter a name, for example work.';
	if (
		['error', 'json', 'binary', 'pairedItem', '__proto__', 'constructor', 'prototype'].includes(
			name,
		)
	) {
		return `The option "Field Name" may not be "${name}": n8n reads that name itself. Use another one, for example work.`;
	}
	return null;
}

/**
 * The item with the field added. An incoming top-level `error` moves into the field: n8n would take the item for a
 * failure, and run the node again under "Retry On Fail".
 */
export function withField(
	input: INodeExecutionData,
	itemIndex: number,
	name: string,
	value: IDataObject,
): INodeExecutionData {
	const { error, ...rest } = input.json;
	const field = error === undefined ? value : { ...value, inputError: error };
	return {
		...(input.binary === undefined ? {} : { binary: input.binary }),
		json: { ...rest, [name]: field },
		pairedItem: { item: itemIndex },
	};
}

/** The item's own data, without what this package put on it. */
export function withoutOwnFields(json: IDataObject): IDataObject {
	return Object.fromEntries(Object.entries(json).filter(([, value]) => !isOwnField(value)));
}
