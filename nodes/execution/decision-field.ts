import type { IDataObject } from 'n8n-workflow';

import { isOwnField } from '../../ledger';
import { isToken } from './work-field';

export const DEFAULT_DECISION_FIELD = 'decision';

/** What Cache LLM Decision puts on an item. */
export interface DecisionField extends IDataObject {
	status: string;
	message: string;
	decisionKey: string;
}

/** A question that its bearer decides. */
export type OpenDecisionField = DecisionField & { token: string };

export function asDecisionField(value: unknown): DecisionField | null {
	return isOwnField(value) && typeof (value as DecisionField).decisionKey === 'string'
		? (value as DecisionField)
		: null;
}

/** Statuses of an item that could not be looked up, or whose answer could not be stored; it may come back. */
const WITHOUT_DECISION = new Set(['refused', 'error']);

/** The status of what Cache LLM Decision answered about an item; null for anything else. */
export function decisionStatus(value: unknown): string | null {
	const field = asDecisionField(value);
	if (field !== null) return field.status;
	if (typeof value !== 'object' || value === null) return null;
	const { status, message } = value as IDataObject;
	return typeof status === 'string' && typeof message === 'string' && WITHOUT_DECISION.has(status)
		? status
		: null;
}

/** `error`: Store could not reach the ledger. */
export function openDecision(value: unknown): OpenDecisionField | null {
	const field = asDecisionField(value);
	return field !== null && ['decide', 'error'].includes(field.status) && isToken(field.token)
		? (field as OpenDecisionField)
		: null;
}

/** Where an answer goes that settles nothing: beside a value of the item's own, or a question that is still open. */
export function freeDecisionField(json: IDataObject, name: string): string {
	const isFree = (each: string) =>
		!Object.hasOwn(json, each) ||
		(decisionStatus(json[each]) !== null && openDecision(json[each]) === null);
	let free = name;
	for (let n = 1; !isFree(free); n++) free = `${name}Answer${n === 1 ? '' : n}`;
	return free;
}

/** The key of the decision on an item that may be applied: it was replayed, stored or approved. Null where there is none. */
export function appliedDecision(json: IDataObject): string | null {
	const applied = Object.values(json).find((value) =>
		['replay', 'stored', 'superseded', 'approved'].includes(asDecisionField(value)?.status ?? ''),
	);
	return asDecisionField(applied)?.decisionKey ?? null;
}
