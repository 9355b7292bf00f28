import { types } from 'node:util';

import { momentText } from '../identity/moments';
import { shown } from '../identity/refusal';
import { isInvisible, isMistake, plainDecimal } from '../identity/text';

/** Deeper than any record; a circular value ends here. */
const MAX_DEPTH = 20;

/**
 * Whether a value is there at all (DESIGN section 7, case 130). 0 and false are; null, empty or invisible text, the
 * texts that lost values leave behind ("null", "undefined", "NaN", "[object Object]" …), invalid dates and functions are
 * not. A list or object is present only if some member is.
 */
export function isPresent(value: unknown): boolean {
	try {
		return isThere(value, 0);
	} catch {
		// a getter or proxy that throws: what cannot be read is no evidence
		return false;
	}
}

function isThere(value: unknown, depth: number): boolean {
	switch (typeof value) {
		case 'string':
			return !isInvisible(value) && !isLostValue(value.trim());
		case 'number':
			return Number.isFinite(value);
		case 'boolean':
		case 'bigint':
			return true;
		case 'object':
			return value !== null && depth < MAX_DEPTH && isObjectThere(value, depth);
		default:
			return false;
	}
}

function isLostValue(text: string): boolean {
	return isMistake(text) || EMPTY_JSON.test(text) || text.includes('[object Object]');
}

/** An empty list, object or text that a step before wrote as JSON. */
const EMPTY_JSON = /^(?:\[[\s,]*(?:null[\s,]*)*\]|\{\s*\}|""|'')$/;

function isObjectThere(value: object, depth: number): boolean {
	if (types.isBoxedPrimitive(value)) return isThere(value.valueOf(), depth);
	// throws for an invalid date
	if (momentText(value, null) !== null) return true;
	return Object.values(value).some((member) => isThere(member, depth + 1));
}

/**
 * A single value as the text that is compared: trimmed, in Unicode NFC; numbers in plain decimal, dates as UTC ISO.
 * null for what is not one value (a list, an object), and for an integer beyond 2^53-1, which was rounded upstream.
 */
export function comparableText(value: unknown): string | null {
	switch (typeof value) {
		case 'string':
			return value.trim().normalize('NFC');
		case 'number':
			return isExact(value) ? plainDecimal(value) : null;
		case 'boolean':
		case 'bigint':
			return String(value);
		case 'object':
			return value === null ? null : objectText(value);
		default:
			return null;
	}
}

function objectText(value: object): string | null {
	try {
		return types.isBoxedPrimitive(value)
			? comparableText(value.valueOf())
			: momentText(value, null);
	} catch {
		return null;
	}
}

/** False for NaN, infinities and integers that a number cannot hold exactly. */
export function isExact(value: number): boolean {
	return Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value));
}

/** What was found, for people: at most 80 characters, passwords in addresses masked. */
export function foundText(value: unknown): string {
	if (value === undefined) return 'nothing';
	if (typeof value !== 'object' || value === null) return shown(value);
	const text = objectText(value);
	if (text !== null) return shown(text);
	try {
		if (types.isDate(value)) return 'an invalid date';
		if (Array.isArray(value)) {
			if (value.length === 0) return 'an empty list';
			return isPresent(value) ? `a list of ${value.length}` : 'a list of nothing';
		}
		if (Object.keys(value).length === 0) return 'an empty object';
		return isPresent(value) ? 'an object' : 'an object of nothing';
	} catch {
		return 'a value that cannot be read';
	}
}
