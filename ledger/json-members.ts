/** Parsed JSON of which nothing is known: what a model's vendor sent. */
export type Members = Record<string, unknown>;

export function isMembers(value: unknown): value is Members {
	return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The fields of an object; none of anything else. */
export function membersOf(value: unknown): Members {
	return isMembers(value) ? value : {};
}

/** The objects in a list; none of anything else. */
export function listOf(value: unknown): Members[] {
	return Array.isArray(value) ? (value as unknown[]).filter(isMembers) : [];
}

export function isSaid(value: unknown): value is string {
	return typeof value === 'string' && value !== '';
}

export function textOrNull(value: unknown): string | null {
	return isSaid(value) ? value : null;
}
