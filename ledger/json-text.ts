/**
 * Values on their way into a `json` column. `json`, not jsonb: text is kept as it is, NUL and lone surrogates included
 * (JSON.stringify writes them as escapes, which `json` accepts).
 */

/** Bytes of JSON text; a larger result becomes a marker. */
export const MAX_RESULT_BYTES = 16 * 1024 * 1024;
/** Bytes of JSON text; a larger payload is not kept, so the work cannot be replayed from the ledger. */
export const MAX_PAYLOAD_BYTES = 256 * 1024;

export interface JsonText {
	/** null: nothing to store. */
	text: string | null;
	warnings: string[];
}

/**
 * A result as JSON text. Never throws: completing work must not fail because of its result. What JSON cannot carry
 * becomes a marker and a warning.
 */
export function resultText(value: unknown): JsonText {
	const { text, warnings } = jsonText(value);
	if (text === null) return { text, warnings };
	const bytes = Buffer.byteLength(text);
	if (bytes <= MAX_RESULT_BYTES) return { text, warnings };
	const marker = JSON.stringify({ $notStored: 'too large', bytes, limit: MAX_RESULT_BYTES });
	return {
		text: marker,
		warnings: [
			...warnings,
			`The result is too large to store (${bytes} bytes, limit ${MAX_RESULT_BYTES}): a marker was stored instead.`,
		],
	};
}

/** A payload as JSON text; null (with a warning) when it is over the cap. Never throws. */
export function payloadText(value: unknown): JsonText {
	const { text, warnings } = jsonText(value);
	const bytes = text === null ? 0 : Buffer.byteLength(text);
	if (bytes <= MAX_PAYLOAD_BYTES) return { text, warnings };
	return {
		text: null,
		warnings: [
			`The item is too large to keep for a replay (${bytes} bytes, limit ${MAX_PAYLOAD_BYTES}).`,
		],
	};
}

function jsonText(value: unknown): JsonText {
	if (value === undefined) return { text: null, warnings: [] };
	try {
		// undefined for a bare function or symbol
		const text = JSON.stringify(value) as string | undefined;
		if (text !== undefined)
			return { text, warnings: text.includes('null') ? lostAsNull(value) : [] };
	} catch {
		// circular, BigInt, a throwing getter or toJSON, or too deep: told apart below
	}
	const warnings = new Set<string>();
	try {
		const marked = withMarkers(value, [], warnings);
		const text = (JSON.stringify(marked) as string | undefined) ?? 'null';
		return { text, warnings: [...warnings, ...lostAsNull(marked)] };
	} catch {
		return {
			text: JSON.stringify({ $notStored: 'not representable as JSON' }),
			warnings: ['The value cannot be written as JSON: a marker was stored instead.'],
		};
	}
}

const MAX_DEPTH = 1000;

function withMarkers(value: unknown, ancestors: object[], warnings: Set<string>): unknown {
	if (typeof value === 'bigint') {
		warnings.add('A BigInt was stored as text.');
		return value.toString();
	}
	if (typeof value === 'function' || typeof value === 'symbol') {
		warnings.add(`A ${typeof value} was stored as a marker.`);
		return { $notStored: typeof value };
	}
	if (typeof value !== 'object' || value === null) return value;
	if (ancestors.includes(value)) {
		warnings.add('A circular reference was stored as a marker.');
		return { $notStored: 'circular reference' };
	}
	if (ancestors.length >= MAX_DEPTH) {
		warnings.add('A value nested too deeply was stored as a marker.');
		return { $notStored: 'nested too deeply' };
	}
	const inner = [...ancestors, value];
	try {
		if (isInvalidDate(value)) return value;
		const { toJSON } = value as { toJSON?: unknown };
		if (typeof toJSON === 'function')
			return withMarkers((toJSON as () => unknown).call(value), inner, warnings);
		if (Array.isArray(value)) return value.map((entry) => withMarkers(entry, inner, warnings));
		// fromEntries defines own properties, "__proto__" included
		return Object.fromEntries(
			Object.keys(value).map((key) => [
				key,
				withMarkers((value as Record<string, unknown>)[key], inner, warnings),
			]),
		);
	} catch {
		warnings.add('A value that could not be read was stored as a marker.');
		return { $notStored: 'not readable' };
	}
}

/** JSON writes these as null without a word. For values without cycles, as JSON.stringify has taken them. */
function lostAsNull(value: unknown): string[] {
	const warnings = new Set<string>();
	const open: unknown[] = [value];
	while (open.length > 0) {
		const next = open.pop();
		if (typeof next === 'number' && !Number.isFinite(next))
			warnings.add('A number that is NaN or infinite was stored as null.');
		if (typeof next !== 'object' || next === null) continue;
		if (isInvalidDate(next)) warnings.add('An invalid date was stored as null.');
		// an object that writes itself has decided what it is
		else if (typeof (next as { toJSON?: unknown }).toJSON !== 'function')
			for (const entry of Object.values(next)) open.push(entry);
	}
	return [...warnings];
}

/** By its class's name: a date may come from another realm (the Code node's). */
function isInvalidDate(value: object): boolean {
	return (
		Object.prototype.toString.call(value) === '[object Date]' &&
		Number.isNaN((value as Date).getTime())
	);
}

/** NUL, and either half of a pair. */
const MAY_NEED_REPAIR = /[\0\ud800-\udfff]/;

/**
 * Text as PostgreSQL's `text` can hold it: NUL and lone surrogates become visible replacements. For what people read
 * (errors, names), never for what is compared or sent on.
 */
export function readableText(value: string, maxLength: number): string {
	// nearly every text needs nothing, and every call has some
	if (value.length <= maxLength && !MAY_NEED_REPAIR.test(value)) return value;
	return value.slice(0, maxLength).toWellFormed().replaceAll('\0', '\u2400');
}

/** Whether PostgreSQL's `text` holds this value byte-equal. */
export function isStorableText(value: string): boolean {
	return !value.includes('\0') && value.isWellFormed();
}
