import { hasControls, IdentityRefusal, fieldWords, shown, visibleControls } from './refusal';

/** PostgreSQL keeps the key beside the hash; so much of it (in code points) is kept. */
export const READABLE_CODE_POINTS = 1000;

/**
 * What a mistake upstream looks like once it has become text. Hashing one of them would give all
 * items with that mistake one identity, and all but the first would get a stranger's result.
 */
const MISTAKES: ReadonlySet<string> = new Set([
	'undefined',
	'null',
	'[object Object]',
	'NaN',
	'Infinity',
	'-Infinity',
	'Invalid Date',
	'Invalid DateTime',
	// of databases and their exports
	'NULL',
	// what a spreadsheet shows in a cell whose formula failed
	...['#N/A', '#REF!', '#VALUE!', '#NAME?', '#DIV/0!', '#NUM!', '#NULL!', '#ERROR!', '#SPILL!'],
]);

/** Nothing but lost values: `[object Promise]` (a missing await), `undefined undefined`, a list of objects as text. */
const ONLY_LOST =
	/^(?:(?:undefined|null|NaN|Invalid Date(?:Time)?|\[object \w+\])[^\p{L}\p{N}[]*)+$/u;

const AN_OBJECT = /\[object \w+\]/;

/** White space, zero-width characters, blanks that count as letters (U+3164, U+2800) and the like. */
const INVISIBLE = /^[\s\p{Cf}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]*$/u;

/** Whether there is nothing in a text that a person could read. */
export function isInvisible(text: string): boolean {
	// looked at only where the text does not begin as most do
	const first = text.charCodeAt(0);
	return text === '' || ((first <= 32 || first > 126) && INVISIBLE.test(text));
}

/** What is left of `a-b` without its parts is "-", one key for all items that lack them. */
const SAYS_SOMETHING = /[\p{L}\p{N}\p{Extended_Pictographic}]/u;

const GLUED_MISTAKES: ReadonlySet<string> = new Set(['undefined', 'null', 'NaN']);

export function isMistake(text: string): boolean {
	return MISTAKES.has(text) || ONLY_LOST.test(text) || isUnresolved(text);
}

/**
 * An expression or merge field that nobody has resolved, as a whole: `{{ $json.order }}` typed where n8n's switch stands on
 * Fixed, `{{user_id}}` of a system that has no value for it. It is the same text for every item.
 */
function isUnresolved(text: string): boolean {
	if (BARE_EXPRESSION.test(text)) return true;
	if (!text.endsWith('}}')) return false;
	return text.startsWith('{{') || (/^=\s*\{\{/.test(text) && text.includes('$'));
}

/** `$json.order`, `$("Start").item.json.order`: an expression that has lost its braces, too. */
const BARE_EXPRESSION = /^\$(?:(?:json|input|node)[.[]|\(['"`])\S*$/;

/** The first expression of n8n that stands in a text as it was typed (`inv-{{ $json.order }}`); null for none. */
export function unresolvedIn(text: string): string | null {
	for (let open = text.indexOf('{{'); open !== -1; open = text.indexOf('{{', open + 2)) {
		const close = text.indexOf('}}', open);
		if (close === -1) return null;
		const part = text.slice(open, close + 2);
		if (part.includes('$')) return part;
		open = close;
	}
	return null;
}

/** @throws IdentityRefusal `bad_text` for a text in which an expression stands as it was typed. */
export function refuseUnresolved(text: string, field: string): void {
	const part = isUnresolved(text) ? text : unresolvedIn(text);
	if (part === null) return;
	throw new IdentityRefusal(
		'bad_text',
		field,
		`${fieldWords(field)} holds ${shown(part)} as it was typed: nobody has resolved it, so it would be the same for every item.`,
		'If it stands on the node, switch the field from Fixed to Expression; else look at the node that makes this value.',
	);
}

/**
 * Text as every identity reads it: trimmed (ECMAScript white space: Unicode White_Space without
 * U+0085, with U+FEFF), then Unicode NFC. Not NFKC, which would join `①` and `1`.
 *
 * @throws IdentityRefusal `lone_surrogate`: UTF-8 has no bytes for it, and what libraries put there
 * instead would give different texts one hash.
 */
export function cleanText(text: string, field: string | null, collapseWhiteSpace = false): string {
	if (!isWellFormed(text)) {
		throw new IdentityRefusal(
			'lone_surrogate',
			field,
			`${fieldWords(field, 'The text')} holds half of an emoji or other symbol (cut text): ` +
				`${shown(text)}.`,
			'Cut texts by whole characters before this node, or choose another field.',
		);
	}
	const clean = text.trim().normalize('NFC');
	return collapseWhiteSpace ? clean.replace(/\s+/g, ' ') : clean;
}

/** @throws IdentityRefusal `empty` or `bad_text` for a clean text that says nothing. */
export function refuseEmptyText(text: string, field: string, glued: boolean): void {
	if (isInvisible(text)) {
		throw new IdentityRefusal(
			'empty',
			field,
			`${fieldWords(field)} is empty.`,
			'Fill it before this node, or choose a field that every item has.',
		);
	}
	if (isUnresolved(text)) refuseUnresolved(text, field);
	if (isMistake(text)) {
		throw new IdentityRefusal(
			'bad_text',
			field,
			`${fieldWords(field)} is the text ${shown(text)}, which means that the value was lost.`,
			'Look at the node that makes this value, or choose a field that every item has.',
		);
	}
	if (!glued) return;
	if (!SAYS_SOMETHING.test(text)) {
		throw new IdentityRefusal(
			'bad_text',
			field,
			`${fieldWords(field)} is only separators: ${shown(text)}.`,
			'Check the expression: the fields it puts together are missing in this item.',
		);
	}
	const lost = gluedMistake(text);
	if (lost !== null) {
		throw new IdentityRefusal(
			'bad_text',
			field,
			`${fieldWords(field)} holds "${lost}" where a value was meant: ${shown(text)}.`,
			'Check the expression: one of the fields it puts together is missing in this item.',
		);
	}
}

/** The lost value inside a text put together by an expression (`inv-undefined`), or `null`. */
function gluedMistake(text: string): string | null {
	if (text.includes('Invalid Date')) return 'Invalid Date';
	const object = AN_OBJECT.exec(text);
	if (object !== null) return object[0];
	// Most keys hold none of them: look before splitting.
	if (!/undefined|null|NaN/.test(text)) return null;
	return text.split(/[^\p{L}\p{N}]+/u).find((piece) => GLUED_MISTAKES.has(piece)) ?? null;
}

/** A finite number as plain decimal text, never with an exponent; -0 is "0". */
export function plainDecimal(value: number): string {
	const text = String(value); // -0 prints as "0"
	const mark = text.indexOf('e');
	if (mark === -1) return text;
	const sign = text.startsWith('-') ? '-' : '';
	const [whole, fraction = ''] = text.slice(sign.length, mark).split('.');
	const exponent = Number(text.slice(mark + 1));
	const digits = whole + fraction;
	const point = whole.length + exponent;
	if (point <= 0) return `${sign}0.${'0'.repeat(-point)}${digits}`;
	if (point >= digits.length) return `${sign}${digits}${'0'.repeat(point - digits.length)}`;
	return `${sign}${digits.slice(0, point)}.${digits.slice(point)}`;
}

/** The first 1,000 code points, control characters visible: PostgreSQL text refuses NUL. */
export function readable(text: string): string {
	let start = text;
	if (text.length > READABLE_CODE_POINTS) {
		// At most two UTF-16 units each, so that a key of 5 MB is not spread out as a whole.
		start = Array.from(text.slice(0, 2 * READABLE_CODE_POINTS))
			.slice(0, READABLE_CODE_POINTS)
			.join('');
	}
	return hasControls(start) ? visibleControls(start) : start;
}

export function isWellFormed(text: string): boolean {
	// In Node.js since version 20; TypeScript's ES2022 library does not know it yet.
	return (text as unknown as { isWellFormed(): boolean }).isWellFormed();
}
