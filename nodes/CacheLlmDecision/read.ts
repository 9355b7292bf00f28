import type { IDataObject } from 'n8n-workflow';

import { asDecisionField, DEFAULT_DECISION_FIELD } from '../execution/decision-field';
import type { Parameters } from '../execution/parameters';
import { fieldNameProblem } from '../execution/work-field';

/** The key that is given on the node, else that on the item. Throws, with the cure, where there is none. */
export function readDecisionKey(
	parameters: Parameters,
	itemIndex: number,
	json: IDataObject,
): string {
	const given = parameters.text('decisionKey', itemIndex).trim();
	return checkedKey(given === '' ? keyOn(json) : given, 'Decision Key');
}

export function checkedKey(key: unknown, label: string): string {
	if (typeof key === 'string' && /^[0-9a-f]{64}$/.test(key)) return key;
	throw new Error(
		`${label} names no decision: 64 hex digits are needed, as the look-up puts them on the item under decision.decisionKey.`,
	);
}

function keyOn(json: IDataObject): unknown {
	const own = Object.values(json).find((value) => asDecisionField(value) !== null);
	return asDecisionField(own)?.decisionKey ?? json.decisionKey;
}

/** Throws for what is neither yes nor no: an expression that fails to say so must not switch the approval off. */
export function readNeedsApproval(parameters: Parameters, itemIndex: number): boolean {
	const given = parameters.read<unknown>('needsApproval', itemIndex, false);
	if (given === true || given === 'true') return true;
	if (given === false || given === 'false') return false;
	throw new Error(
		`"Needs Approval" is ${given === undefined ? 'nothing' : JSON.stringify(given).slice(0, 50)}, not true or false. Check its expression.`,
	);
}

/** The name of the field, or the default where the option cannot be read. */
export function fieldOf(parameters: Parameters, itemIndex: number): string {
	try {
		const named = parameters.option<string>('field', itemIndex, DEFAULT_DECISION_FIELD);
		return fieldNameProblem(named) === null ? named : DEFAULT_DECISION_FIELD;
	} catch {
		return DEFAULT_DECISION_FIELD;
	}
}
