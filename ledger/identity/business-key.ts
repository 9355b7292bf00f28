import { types } from 'node:util';

import stableStringify from 'fast-json-stable-stringify';

import type { Plain } from './canonical';
import { readPlain, refuseInexactNumber, unsupported } from './canonical';
import { instantText, momentText } from './moments';
import type { ReadingOptions } from './reading';
import { numberFromText } from './reading';
import { IdentityRefusal, fieldWords, shown } from './refusal';
import type { Scope, WorkIdentity } from './scope';
import { identityOf, readScope } from './scope';
import { cleanText, plainDecimal, refuseEmptyText, refuseUnresolved } from './text';

/** A field of the business key; `name` is how refusals call it. */
export interface KeyPart {
	name: string;
	value: unknown;
}

const NO_OPTIONS: ReadingOptions = Object.freeze({});

/**
 * The identity of work that has a key. One part: its text, so that 7 and "7" are one, and
 * `sha256("invoice:v1:1001")` is what anybody computes. Several parts, or one that is a list:
 * their canonical JSON, types kept.
 *
 * @throws IdentityRefusal when a part is missing, empty or has lost its value; `bad_scope`
 */
export function identifyByKey(
	scope: Scope,
	parts: KeyPart[],
	options: ReadingOptions = NO_OPTIONS,
): WorkIdentity {
	const read = readScope(scope);
	if (parts.length === 0) {
		throw new IdentityRefusal(
			'no_key',
			null,
			'No key field is named.',
			'Enter the field that tells one piece of work from another, such as "order_id".',
		);
	}
	if (parts.length > 1) return identityOf(read, compositeKey(parts, options));

	const [{ name, value }] = parts;
	if (Array.isArray(value)) return identityOf(read, listKey(name, value, options));
	const text = singleText(name, value, options);
	// Behind a bracket it could equal the canonical JSON of several parts.
	return text.startsWith('[') || text.startsWith('{')
		? identityOf(read, stableStringify([readPlain(text, name, options)]), text)
		: identityOf(read, text);
}

/** A list as the only part: its elements are the parts. */
function listKey(name: string, list: unknown[], options: ReadingOptions): string {
	const elements = options.arraysAsSets === true ? readPlain(list, name, options) : list;
	const parts = (elements as unknown[]).map((value, index) => ({
		name: `${name}[${index}]`,
		value,
	}));
	if (parts.length === 0) throw emptyPart(name, 'an empty list');
	if (parts.length > 1) return compositeKey(parts, options);
	// One element is one key, not a list of one.
	const [only] = parts;
	const text = singleText(only.name, only.value, options);
	return text.startsWith('[') || text.startsWith('{')
		? stableStringify([readPlain(text, only.name, options)])
		: text;
}

function compositeKey(parts: KeyPart[], options: ReadingOptions): string {
	const names = new Set<string>();
	const values: Plain[] = [];
	for (const { name, value } of parts) {
		if (names.has(name)) {
			throw new IdentityRefusal(
				'repeated_field',
				name,
				`The key field ${shown(name)} is named twice.`,
				'Name each key field once.',
			);
		}
		names.add(name);
		refuseMissing(name, value);
		const plain = readPlain(value, name, options);
		if (typeof plain === 'string') {
			refuseEmptyText(plain, name, options.glued === true);
			refuseUnresolved(plain, name);
		}
		if (plain === null) refuseMissing(name, null);
		if (typeof plain === 'object' && plain !== null && Object.keys(plain).length === 0) {
			throw emptyPart(name, Array.isArray(plain) ? 'an empty list' : 'an empty object');
		}
		values.push(plain);
	}
	return stableStringify(values);
}

/** The text of a single key. No canonical JSON on this path: it is the one that must be fast. */
function singleText(name: string, value: unknown, options: ReadingOptions): string {
	switch (typeof value) {
		case 'string': {
			const text = cleanText(value, name, options.collapseWhiteSpace);
			refuseEmptyText(text, name, options.glued === true);
			refuseUnresolved(text, name);
			return options.readDates === true || options.readNumbers === true
				? readSingleText(text, options)
				: text;
		}
		case 'number':
			refuseInexactNumber(value, name);
			return plainDecimal(value);
		case 'boolean':
		case 'bigint':
			return String(value);
		case 'object':
			return value === null ? refuseMissing(name, value) : objectText(name, value, options);
		case 'undefined':
			return refuseMissing(name, value);
		default:
			throw unsupported(name, `a ${typeof value}`);
	}
}

function readSingleText(text: string, options: ReadingOptions): string {
	if (options.readDates === true) {
		const instant = instantText(text);
		if (instant !== null) return instant;
	}
	if (options.readNumbers !== true) return text;
	const number = numberFromText(text);
	return number === null ? text : plainDecimal(number);
}

/** Objects that stand for one value: dates, boxed values, and those whose `toJSON` gives text. */
function objectText(name: string, value: object, options: ReadingOptions): string {
	const moment = momentText(value, name);
	if (moment !== null) return moment;
	if (types.isBoxedPrimitive(value)) return singleText(name, value.valueOf(), options);
	if (!Array.isArray(value) && typeof (value as { toJSON?: unknown }).toJSON === 'function') {
		const plain = readPlain(value, name, options);
		if (typeof plain !== 'object') return singleText(name, plain, options);
	}
	throw new IdentityRefusal(
		'object_key',
		name,
		`The key field ${shown(name)} holds ${Array.isArray(value) ? 'a list' : 'an object'} with ` +
			'several values, not one value.',
		'Pick a field inside it (such as "order.id"), or identify the work by content hash.',
	);
}

function refuseMissing(name: string, value: unknown): string {
	if (value !== undefined && value !== null) return '';
	throw new IdentityRefusal(
		'missing',
		name,
		value === null
			? `${fieldWords(name)} is null.`
			: `${fieldWords(name)} is missing in this item.`,
		'Check the spelling of the name, or choose a field that every item has.',
	);
}

function emptyPart(name: string, what: string): IdentityRefusal {
	return new IdentityRefusal(
		'empty',
		name,
		`${fieldWords(name)} is ${what}.`,
		'Fill it before this node, or choose a field that every item has.',
	);
}
