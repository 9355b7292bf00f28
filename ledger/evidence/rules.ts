import { isCode, parsePath, readField } from '../identity/field-path';
import { identifyByKey, type KeyPart } from '../identity/business-key';
import { IdentityRefusal, shown } from '../identity/refusal';
import { isStorableText } from '../json-text';
import { compareDates, holds, isTimeZone, readDate, readNumber, type Comparison } from './compare';
import type { PatternMatcher } from './pattern';
import { comparableText, foundText, isPresent } from './present';

/** Work of the ledger by its identity: a value of its own as key, or fields of the record. */
export interface EvidenceWork {
	kind: string;
	/** Default `v1`. */
	version?: string;
	/** Names of fields, as Claim Work's Key Fields. */
	keyFields?: string[];
	/** Used where no fields are named. */
	key?: unknown;
}

/** One piece of evidence a record must show. `name` is how people call it; without one it says what it checks. */
export type EvidenceRule = {
	name?: string;
	/** The name of its field came out of an expression: one that is missing may be a value. */
	fieldByExpression?: boolean;
} & (
	| { check: 'present'; field: string }
	/** The field's text equals; 7 equals "7", capitals count, and spaces around it do not. */
	| { check: 'equals'; field: string; value: unknown }
	/** The whole text matches a regular expression. */
	| { check: 'matches'; field: string; pattern: string; ignoreCase?: boolean }
	| { check: 'number'; field: string; comparison: Comparison; value: unknown }
	/** `zone`: IANA name; needed where a side has no zone, or a day meets a moment. */
	| { check: 'date'; field: string; comparison: Comparison; value: unknown; zone?: string }
	/** This work is done. */
	| { check: 'done'; work: EvidenceWork }
	/** The field equals the external reference of this work, which is done. */
	| { check: 'reference'; field: string; work: EvidenceWork }
	/** Decided by the caller (n8n's conditions). `fields`: those it looks at, for the warning about stages. */
	| {
			check: 'condition';
			holds: boolean;
			found: string;
			expected: string;
			reason: string;
			fields?: string[];
	  }
	/** What stands on the node cannot be used; `reason` ends a sentence that begins with the rule. */
	| { check: 'broken'; reason: string }
);

/** What a rule asks of the ledger. */
export interface LedgerQuestion {
	workId: string;
	kind: string;
	version: string;
	key: string;
	/** The text that must equal the work's reference; null: it must only be done. */
	reference: string | null;
}

/** What came of a rule, as far as the record alone tells. */
export type Finding =
	| { outcome: 'holds' }
	| { outcome: 'fails'; found: string; reason: string }
	/** The rule itself cannot be applied: nothing passes. */
	| { outcome: 'broken'; found: string; reason: string }
	| { outcome: 'asks'; found: string; question: LedgerQuestion };

const COMPARISON_WORDS: Record<Comparison, [number: string, date: string]> = {
	eq: ['is', 'is'],
	gt: ['is above', 'is after'],
	gte: ['is at least', 'is on or after'],
	lt: ['is below', 'is before'],
	lte: ['is at most', 'is on or before'],
};

/** The rule in a few words: its own name, or what it checks. */
export function ruleName(rule: EvidenceRule): string {
	const name = rule.name?.trim() ?? '';
	if (name !== '') return name.slice(0, 200);
	if (rule.check === 'condition') return 'Condition';
	if (rule.check === 'broken') return 'Rule';
	if (rule.check === 'done') return `${workWords(rule.work)} is done`;
	return `${rule.field.trim().slice(0, 100) || 'A field'} ${expectedText(rule)}`;
}

/** What the rule asks for, behind the name of its field. */
export function expectedText(rule: EvidenceRule): string {
	switch (rule.check) {
		case 'present':
			return 'is present';
		case 'equals':
			return `equals ${foundText(rule.value)}`;
		case 'matches':
			return `matches ${shown(rule.pattern)}`;
		case 'number':
			return `${COMPARISON_WORDS[rule.comparison]?.[0]} ${foundText(rule.value)}`;
		case 'date':
			return `${COMPARISON_WORDS[rule.comparison]?.[1]} ${foundText(rule.value)}`;
		case 'done':
			return 'is done';
		case 'reference':
			return `equals the reference of ${workWords(rule.work)}`;
		case 'condition':
			return rule.expected;
		case 'broken':
			return 'a rule that can be applied';
	}
}

function workWords({ kind, version, keyFields }: EvidenceWork): string {
	const by = keyFields === undefined ? '' : ` by ${keyFields.join(' + ').slice(0, 100)}`;
	return `${kind} ${version ?? 'v1'}${by}`;
}

/** The field of the record that a rule looks at; null where it looks elsewhere. */
export function fieldOf(rule: EvidenceRule): string | null {
	return 'field' in rule ? rule.field : null;
}

/** Applies one rule to a record. Never throws: what cannot be applied is `broken`. */
export function applyRule(
	rule: EvidenceRule,
	record: Record<string, unknown>,
	patterns: PatternMatcher,
): Finding {
	try {
		return apply(rule, record, patterns);
	} catch (error) {
		const reason = error instanceof Error ? error.message : String(error);
		return { outcome: 'broken', found: 'nothing', reason: `cannot be applied: ${reason}` };
	}
}

function apply(
	rule: EvidenceRule,
	record: Record<string, unknown>,
	patterns: PatternMatcher,
): Finding {
	if (rule.check === 'broken') return { outcome: 'broken', found: 'nothing', reason: rule.reason };
	if (rule.check === 'condition') {
		const { found, reason } = rule;
		return rule.holds === true ? HOLDS : { outcome: 'fails', found, reason };
	}
	if (rule.check === 'done') return ask(rule.work, null, record, 'nothing');
	if (rule.field.trim() === '') {
		return { outcome: 'broken', found: 'nothing', reason: 'names no field. Enter its name.' };
	}
	const value = valueOf(record, rule.field.trim(), rule.fieldByExpression === true);
	if ('reason' in value) return { outcome: 'fails', found: 'nothing', reason: value.reason };
	const found = foundText(value.value);
	if (!isPresent(value.value)) {
		return { outcome: 'fails', found, reason: `it holds ${found}, which is no value` };
	}
	const fails = (reason: string): Finding => ({ outcome: 'fails', found, reason });
	const broken = (reason: string): Finding => ({ outcome: 'broken', found, reason });
	switch (rule.check) {
		case 'present':
			return HOLDS;
		case 'equals': {
			if (!isPresent(rule.value)) {
				return broken('has no value to compare with. Enter it, or check the expression.');
			}
			const expected = comparableText(rule.value);
			if (expected === null) return broken('compares with something that is not one value.');
			const text = comparableText(value.value);
			if (text === null) return fails(`it holds ${found}, not one exact value`);
			return text === expected ? HOLDS : fails(`it is ${found}`);
		}
		case 'matches': {
			const text = comparableText(value.value);
			if (text === null) return fails(`it holds ${found}, not one exact value`);
			const match = patterns.match(rule.pattern, rule.ignoreCase === true, text);
			if ('problem' in match) return broken(`has a pattern that ${match.problem}`);
			return match.matches ? HOLDS : fails(`${found} does not match as a whole`);
		}
		case 'number': {
			const limit = readNumber(rule.value);
			if ('problem' in limit) {
				return broken(`compares with ${foundText(rule.value)}, which ${limit.problem}.`);
			}
			if (!isComparison(rule.comparison)) return broken(UNKNOWN_COMPARISON);
			const number = readNumber(value.value);
			if ('problem' in number) return fails(`${found} ${number.problem}`);
			return holds(number.value - limit.value, rule.comparison) ? HOLDS : fails(`it is ${found}`);
		}
		case 'date': {
			const zone = rule.zone === undefined || rule.zone === '' ? null : rule.zone;
			if (zone !== null && !isTimeZone(zone)) {
				return broken(`has an unknown time zone, ${shown(zone)}. Use one such as Europe/Berlin.`);
			}
			const limit = readDate(rule.value, zone);
			if ('problem' in limit) {
				return broken(`compares with ${foundText(rule.value)}, which ${limit.problem}.`);
			}
			if (!isComparison(rule.comparison)) return broken(UNKNOWN_COMPARISON);
			const date = readDate(value.value, zone);
			if ('problem' in date) return fails(`${found} ${date.problem}`);
			const order = compareDates(date.value, limit.value, zone);
			if ('problem' in order) return fails(`${found} ${order.problem}`);
			return holds(order.value, rule.comparison) ? HOLDS : fails(`it is ${found}`);
		}
		case 'reference': {
			const text =
				typeof value.value === 'string' ? value.value.trim() : comparableText(value.value);
			if (text === null || !isStorableText(text)) {
				return fails(`it holds ${found}, not one exact value`);
			}
			return ask(rule.work, text, record, found);
		}
		default:
			return broken('is of a sort that this version does not know. Choose it anew on the node.');
	}
}

const HOLDS: Finding = { outcome: 'holds' };
const UNKNOWN_COMPARISON =
	'compares in a way that this version does not know. Choose it anew on the node.';

function isComparison(given: string): boolean {
	return Object.hasOwn(COMPARISON_WORDS, given);
}

/** A literal name first, then a path; only what the record itself holds, nothing inherited. */
function valueOf(
	record: Record<string, unknown>,
	field: string,
	byExpression: boolean,
): { value: unknown } | { reason: string } {
	const { found, value } = readField(record, field);
	if (found) return { value };
	// what the editor makes of a field that is dragged into the box
	if (byExpression || isCode(field)) {
		return {
			reason: `the record has no field of that name. A name belongs there, such as envelope_id, ${byExpression ? 'and the expression gives a value' : 'and no expression'}: enter the name as fixed text`,
		};
	}
	return {
		reason:
			parsePath(field) === null
				? 'the record has no such field, and the name is no path such as order.id or lines[0].sku'
				: 'the field is missing',
	};
}

function ask(
	work: EvidenceWork,
	reference: string | null,
	record: Record<string, unknown>,
	found: string,
): Finding {
	const { keyFields } = work;
	const parts: KeyPart[] =
		keyFields === undefined
			? [{ name: 'Key', value: work.key }]
			: keyFields.map((name) => ({ name, value: readField(record, name).value }));
	try {
		const { workId, kind, version, key } = identifyByKey(work, parts);
		return { outcome: 'asks', found, question: { workId, kind, version, key, reference } };
	} catch (error) {
		const message = error instanceof Error ? error.message : String(error);
		const inData = error instanceof IdentityRefusal && !ABOUT_THE_RULE.has(error.code);
		return inData
			? { outcome: 'fails', found, reason: `the record does not tell which work: ${message}` }
			: { outcome: 'broken', found, reason: `names no work: ${message}` };
	}
}

/** Refusals that no other record would change. */
const ABOUT_THE_RULE = new Set(['bad_scope', 'no_key', 'repeated_field']);

/** Words that name where a record stands, not what is on it. */
const STATUS_WORDS = new Set([
	...['stage', 'status', 'state', 'phase', 'pipeline', 'column', 'lane', 'swimlane'],
	...['stages', 'statuses', 'stagename', 'statusname', 'stageid', 'statusid', 'pipelineid'],
]);

/** Whether a field's name says that it holds a stage or status, which somebody dragging a card can set (DESIGN 7). */
export function isStatusField(field: string): boolean {
	const names = (parsePath(field) ?? [field]).filter((segment) => !/^\d+$/.test(segment));
	const last = names[names.length - 1] ?? field;
	const words = last
		.replace(/([\p{Ll}\d])(\p{Lu})/gu, '$1 $2')
		.toLowerCase()
		.split(/[^\p{L}\d]+/u);
	return words.some((word) => STATUS_WORDS.has(word) || /(?:stage|status)$/.test(word));
}

/** `isStatusField` for forms that know nothing but regular expressions; it may warn less, never more. */
export const STATUS_FIELD_PATTERN =
	'(^|[^A-Za-z])([Ss]tage|[Ss]tatus|[Ss]tate|[Pp]hase|[Pp]ipeline|[Cc]olumn|[Ll]ane)([^A-Za-z.]|$)[^.]*$|(stage|status|Stage|Status)([_-]?(id|Id|ID|name|Name))?$';
