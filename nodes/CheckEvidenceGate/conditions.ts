import {
	executeFilterCondition,
	isFilterValue,
	type FilterConditionValue,
	type FilterValue,
	type IDataObject,
	type INodeParameters,
} from 'n8n-workflow';

import { foundText, isPresent, isStatusField, type EvidenceRule } from '../../ledger';

/** These ask for nothing to be there, so nothing has to be. */
const ASKS_FOR_NOTHING = new Set(['notExists', 'empty']);

/**
 * A rule out of n8n's condition builder. n8n decides each condition by itself; two of its ways would let a record pass
 * without evidence: a form that was not filled in compares '' with '' and is true, and "is not equal to" is true for a
 * field that is missing. So a condition has to look at the record, and what it looks at has to be there.
 *
 * @param raw As it stands on the node, expressions unresolved.
 */
export function conditionRule(
	name: string | undefined,
	value: unknown,
	raw: unknown,
	itemIndex: number,
): EvidenceRule {
	const broken = (reason: string): EvidenceRule => ({ name, check: 'broken', reason });
	if (!isFilterValue(value as INodeParameters) || (value as FilterValue).conditions.length === 0) {
		return broken('has no conditions. Add one, or remove the rule.');
	}
	const filter = value as FilterValue;
	const written = (raw as { conditions?: unknown } | null | undefined)?.conditions;
	const judged = filter.conditions.map((condition, i) =>
		judge(condition, filter, itemIndex, i, Array.isArray(written) ? written[i] : undefined),
	);
	const blind = judged.find(({ looks }) => !looks);
	if (blind !== undefined) {
		return broken(
			'has a condition that looks at no value of the record. Drag a field into it, so that it holds an expression.',
		);
	}
	const failed = judged.filter(({ problem }) => problem !== null);
	const fields = judged.flatMap(({ statusFields }) => statusFields);
	const holds = filter.combinator === 'or' ? failed.length < judged.length : failed.length === 0;
	return {
		name,
		check: 'condition',
		holds,
		found: judged
			.map(({ found }) => found)
			.join(', ')
			.slice(0, 300),
		expected: judged
			.map(({ expected }) => expected)
			.join(` ${filter.combinator} `)
			.slice(0, 300),
		reason: failed
			.map(({ problem }) => problem)
			.join('; ')
			.slice(0, 500),
		...(fields.length > 0 ? { fields } : {}),
	};
}

interface Judged {
	/** Whether it looks at the record at all. */
	looks: boolean;
	/** Why it does not hold; null where it does. */
	problem: string | null;
	found: string;
	expected: string;
	/** Stages and statuses among what it looks at. */
	statusFields: string[];
}

function judge(
	condition: FilterConditionValue,
	filter: FilterValue,
	itemIndex: number,
	index: number,
	raw: unknown,
): Judged {
	const { leftValue, rightValue, operator } = condition;
	const operation = operator?.operation ?? '?';
	const { leftValue: left, rightValue: right } = (raw ?? condition) as IDataObject;
	const rightText = operator?.singleValue === true ? '' : ` ${foundText(rightValue)}`;
	const judged = {
		looks: looksAtRecord(left) || looksAtRecord(right),
		found: foundText(leftValue),
		expected: `${foundText(left)} ${operation}${rightText}`,
		statusFields: [left, right].flatMap(fieldsIn).filter(isStatusField),
	};
	const missing =
		(holdsExpression(left) && !isPresent(leftValue)) ||
		(holdsExpression(right) && operator?.singleValue !== true && !isPresent(rightValue));
	if (missing && !ASKS_FOR_NOTHING.has(operation)) {
		return { ...judged, problem: `${judged.expected}: a value it looks at is missing` };
	}
	try {
		const holds = executeFilterCondition(condition, filter.options, { index, itemIndex });
		return {
			...judged,
			// anything but true is no
			problem: (holds as unknown) === true ? null : `${judged.expected}: found ${judged.found}`,
		};
	} catch (error) {
		// n8n throws where a value has another type than the condition
		const message = error instanceof Error ? error.message : String(error);
		return { ...judged, problem: `${judged.expected}: ${message.slice(0, 200)}` };
	}
}

function holdsExpression(raw: unknown): boolean {
	return typeof raw === 'string' && raw.startsWith('=');
}

/** What is the same whatever the record is. */
const BESIDE_RECORD =
	/\$(?:now|today|execution|workflow|vars|env|secrets|itemIndex|runIndex|prevNode|parameter|nodeVersion|nodeId|webhookId|jmespath|ifEmpty|if|min|max|not)\b/g;

/** An expression that gives a value of the record: "=approved" is a fixed text that only looks like one. */
function looksAtRecord(raw: unknown): boolean {
	if (!holdsExpression(raw)) return false;
	const codes = (raw as string).match(/\{\{[^]*?\}\}/g) ?? [];
	return codes.some((code) => code.replace(BESIDE_RECORD, '').includes('$'));
}

/** The fields of the record that an expression names, as paths; a method behind them is none. */
function fieldsIn(raw: unknown): string[] {
	if (!holdsExpression(raw)) return [];
	const named =
		/(?:\$json|\.json)((?:\??\.[\p{L}_$][\p{L}\p{N}_$]*(?!\(|[\p{L}\p{N}_$])|(?:\?\.)?\[\s*(?:"[^"\]]*"|'[^'\]]*'|\d+)\s*\])+)/gu;
	return [...(raw as string).matchAll(named)].map(([, path]) =>
		path
			.replace(/(?:\?\.)?\[\s*["']?([^"'\]]*)["']?\s*\]/g, '.$1')
			.replace(/\?\./g, '.')
			.replace(/^\./, ''),
	);
}
