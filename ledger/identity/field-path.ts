/**
 * `order.id`, `lines[0].sku`, `headers["x-request-id"]` as segments; `null` when it is no path.
 * `*` is a segment like any other here.
 */
export function parsePath(text: string): string[] | null {
	const segments: string[] = [];
	const step = /\.?([^.[\]]+)|\[\s*(?:"([^"]*)"|'([^']*)'|(\d+|\*))\s*\]/y;
	if (text.startsWith('.')) return null;
	while (step.lastIndex < text.length) {
		const atStart = step.lastIndex === 0;
		const found = step.exec(text);
		if (found === null) return null;
		// "a[0]b" is no path: behind a bracket a name needs its dot.
		if (!atStart && found[1] !== undefined && !found[0].startsWith('.')) return null;
		segments.push((found[1] ?? found[2] ?? found[3] ?? found[4]).trim());
	}
	return segments.length === 0 ? null : segments;
}

/**
 * A field of an item by the name the user typed: a field literally called so comes first, then a
 * path. Only what the data itself holds is found, never anything inherited: `constructor` and
 * `__proto__` are no fields.
 */
export function readField(
	record: Record<string, unknown>,
	name: string,
): { found: boolean; value: unknown } {
	const literal = ownMember(record, name);
	if (literal.found) return literal;
	if (!name.includes('.') && !name.includes('[')) return literal;
	const path = parsePath(name);
	if (path === null) return literal;
	let step: { found: boolean; value: unknown } = { found: true, value: record };
	for (const segment of path) {
		step = ownMember(step.value, segment);
		if (!step.found) break;
	}
	return step;
}

const NOT_FOUND = Object.freeze({ found: false, value: undefined });

function ownMember(holder: unknown, name: string): { found: boolean; value: unknown } {
	if (typeof holder !== 'object' || holder === null || name === '__proto__') return NOT_FOUND;
	// An array's `length` is its own property too, but nobody's field.
	if (Array.isArray(holder) && !/^(0|[1-9]\d*)$/.test(name)) return NOT_FOUND;
	if (!Object.prototype.hasOwnProperty.call(holder, name)) return NOT_FOUND;
	return { found: true, value: (holder as Record<string, unknown>)[name] };
}

/**
 * A comma-separated list of field names: trimmed, empty ones dropped, each once. A comma inside
 * `["…"]` belongs to the name.
 */
export function parseFieldNames(text: string): string[] {
	const pieces = text.match(/(?:\[\s*"[^"]*"\s*\]|\[\s*'[^']*'\s*\]|[^,])+/g) ?? [];
	return [...new Set(pieces.map((piece) => piece.trim()).filter((piece) => piece !== ''))];
}

/** Whether a name that no field has looks like an expression: `{{ $json.id }}`, `$json.id`, `json.id`, `"id"`. */
export function isCode(name: string): boolean {
	return /[{}$;\n"']|^json\./.test(name);
}

/** A path as messages show it. */
export function pathText(root: string | null, path: ReadonlyArray<string | number>): string | null {
	let text = root ?? '';
	for (const segment of path) {
		if (typeof segment === 'number') text += `[${segment}]`;
		else if (/^[^.[\]"'\s]+$/.test(segment)) text += text === '' ? segment : `.${segment}`;
		else text += `[${JSON.stringify(segment)}]`;
	}
	return text === '' ? null : text;
}
