/** The last part of a type: "slack" of "n8n-nodes-base.slack". */
export function shortOf(type: string): string {
	return type.slice(type.lastIndexOf('.') + 1);
}

/** A node as an agent's tool is a copy of the node, named with "Tool" behind it. */
export function plainType(type: string): string {
	return type.endsWith('Tool') && !type.endsWith('.Tool') ? type.slice(0, -'Tool'.length) : type;
}

/** Triggers of n8n's own that are not called so. */
const TRIGGERS: ReadonlySet<string> = new Set([
	'webhook',
	'cron',
	'interval',
	'start',
	'emailReadImap',
]);

export function isTrigger(type: string): boolean {
	const short = shortOf(type);
	return TRIGGERS.has(short) || /trigger$/i.test(short);
}
