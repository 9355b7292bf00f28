/** Why a value cannot be an identity. Stable: test vectors and other languages use these words. */
export type RefusalCode =
	/** The kind or version cannot be used. */
	| 'bad_scope'
	/** No key field was named at all. */
	| 'no_key'
	/** undefined or null: the item lacks the field. */
	| 'missing'
	/** Nothing is left after trimming, or an empty list or object. */
	| 'empty'
	/** Text such as "undefined" or "[object Object]": a mistake upstream turned into text. */
	| 'bad_text'
	/** An integer beyond 2^53-1: it was rounded before it came here. */
	| 'unsafe_integer'
	/** NaN or an infinity. */
	| 'not_finite'
	| 'invalid_date'
	/** Half an emoji: text that is not Unicode. */
	| 'lone_surrogate'
	/** An object where one value is expected. */
	| 'object_key'
	/** Functions, symbols, maps, binary data, … */
	| 'unsupported_type'
	| 'circular'
	| 'too_deep'
	/** Two field names of one object are the same in Unicode NFC. */
	| 'field_name_clash'
	/** One key field was named twice. */
	| 'repeated_field'
	/** Reading the value threw. */
	| 'unreadable'
	/** Nothing is left of the content once the fields that change each time are out. */
	| 'empty_content'
	/** Not an absolute http(s) address. */
	| 'not_a_url';

const SHOWN_LENGTH = 80;

/**
 * This item has no usable identity. The message is one or two plain sentences: what is wrong with
 * which field, and how to cure it. Recognise it by `name`, not by `instanceof`: n8n may hold two
 * copies of a package.
 */
export class IdentityRefusal extends Error {
	readonly code: RefusalCode;

	/** The field as the user names it (`lines[0].sku`); `null` when the whole value is meant. */
	readonly field: string | null;

	/** What to do about it; also the end of the message. */
	readonly cure: string;

	constructor(code: RefusalCode, field: string | null, problem: string, cure: string) {
		super(`${problem} ${cure}`);
		this.name = 'IdentityRefusal';
		this.code = code;
		this.field = field;
		this.cure = cure;
	}
}

/**
 * A value as an error message may show it: at most 80 characters, control characters visible,
 * user name and password of an address masked.
 */
export function shown(value: unknown): string {
	if (typeof value !== 'string') {
		return typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean'
			? shorten(String(value), SHOWN_LENGTH)
			: value === null
				? 'null'
				: `(${typeof value})`;
	}
	// Cut first: a message about a text of 5 MB must not cost 5 MB of work.
	const start = visibleControls(maskCredentials(value.slice(0, 4 * SHOWN_LENGTH)));
	return `"${shorten(start, SHOWN_LENGTH - 2)}"`;
}

/** `The key field "order_id"`, or the given words where no field has a name. */
export function fieldWords(field: string | null, otherwise = 'The value'): string {
	return field === null ? otherwise : `The field ${shown(field)}`;
}

/** Control characters as the symbols Unicode has for them (NUL becomes U+2400). */
export function visibleControls(text: string): string {
	return text.replace(CONTROLS, (character) => {
		const code = character.charCodeAt(0);
		if (code < 0x20) return String.fromCharCode(0x2400 + code);
		if (code === 0x7f) return '\u2421';
		// NEL and the two separators are line ends; the other C1 controls have no symbol of their own.
		return code === 0x85 || code >= 0x2028 ? '\u2424' : '\u2426';
	});
}

/** Whether `visibleControls` would change anything. */
export function hasControls(text: string): boolean {
	return text.search(CONTROLS) !== -1;
}

// eslint-disable-next-line no-control-regex -- finding control characters is the purpose
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g;

/** `https://user:secret@host` as `https://***@host`. */
export function maskCredentials(text: string): string {
	return text.replace(/(:[/\\]{2,})[^/\\?#\s]*@/g, '$1***@');
}

function shorten(text: string, length: number): string {
	const whole = text.length <= length ? text : `${text.slice(0, length - 1)}…`;
	// A cut through an emoji leaves half of it, which PostgreSQL and JSON readers refuse.
	return whole.replace(/\p{Cs}/gu, '\ufffd');
}
