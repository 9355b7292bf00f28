import type { IDataObject } from 'n8n-workflow';

import { isOwnField, type EvidenceAnswer } from '../../ledger';
import type { GateItem } from './request';

/** Outputs of Check Evidence Gate, in their order on the canvas. */
export const OUTPUT = { passed: 0, blocked: 1 } as const;
export const OUTPUT_NAMES = ['Passed', 'Blocked'];

export const DEFAULT_FIELD = 'gate';

/** What the item gains. Only what says something: no field of it is null or empty. */
export function gateField(answer: EvidenceAnswer, { record }: GateItem): IDataObject {
	const { status, message, stage, supportedStage, recordId, missing } = answer;
	const field: IDataObject = { status, message };
	if (stage !== null) Object.assign(field, { stage, supportedStage });
	if (missing.length > 0) {
		field.missing = missing.map((one) =>
			Object.fromEntries(Object.entries(one).filter(([, value]) => value !== null)),
		) as IDataObject[];
	}
	const warnings = warningsOf(answer, record);
	if (warnings.length > 0) field.warnings = warnings;
	field.recordId = recordId;
	if (record.name !== null) field.record = record.name;
	return field;
}

function warningsOf({ warnings }: EvidenceAnswer, record: GateItem['record']): string[] {
	return record.warning === null ? warnings : [...warnings, record.warning];
}

/** The warnings of all items, each once; null where there are none. */
export function hintsOf(answers: EvidenceAnswer[], gates: GateItem[]): string | null {
	const hints = new Set(answers.flatMap((answer, i) => warningsOf(answer, gates[i].record)));
	return hints.size === 0 ? null : [...hints].slice(0, 10).join(' ');
}

/** Whether a value was put there by this node: a second gate may replace it. */
export function isGateField(value: unknown): boolean {
	return isOwnField(value) && typeof (value as IDataObject).recordId === 'string';
}

/** What an agent reads: the sentence, and everything that is missing. */
export function toolText({ message, missing }: IDataObject): string {
	const listed = (Array.isArray(missing) ? (missing as IDataObject[]) : []).map(
		({ rule, found, expected, reason }) =>
			`- ${String(rule)}: expected ${String(expected)}, found ${String(found)} (${String(reason)})`,
	);
	return [String(message), ...listed].join('\n');
}
