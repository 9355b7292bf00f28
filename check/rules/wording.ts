/** The names on a way, for a sentence. */
export function way(names: readonly string[]): string {
	return names.map((name) => (name === '…' ? name : `"${name}"`)).join(' → ');
}

/** Two or three of several names, for a sentence. */
export function some(names: readonly string[]): string {
	const shown = names.slice(0, 3).map((name) => `"${name}"`);
	const more = names.length - shown.length;
	return `${shown.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}
