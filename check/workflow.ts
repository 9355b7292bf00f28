/** A workflow as the check reads it: what n8n's exports of any age have in common. */

export type OnError = 'stop' | 'continue' | 'errorOutput';

export interface WorkflowNode {
	/** Its place in `Workflow.nodes`. */
	index: number;
	name: string;
	/** As exported, such as "n8n-nodes-base.httpRequest". */
	type: string;
	/** 1 where the export names none. */
	typeVersion: number;
	parameters: Readonly<Record<string, unknown>>;
	disabled: boolean;
	onError: OnError;
	retryOnFail: boolean;
	alwaysOutputData: boolean;
	/** Only the first of its items is taken, the others are dropped. */
	executeOnce: boolean;
}

/** What a node says by itself, wherever it stands. */
export type NodeSettings = Pick<WorkflowNode, 'type' | 'typeVersion' | 'parameters' | 'disabled'>;

export interface Connection {
	/** "main", or how a sub-node serves its root: "ai_tool", "ai_languageModel", … */
	kind: string;
	from: number;
	output: number;
	to: number;
	input: number;
}

export interface Workflow {
	/** Null where the export names none. */
	id: string | null;
	name: string;
	nodes: readonly WorkflowNode[];
	connections: readonly Connection[];
	/** The id of the workflow that n8n starts when this one fails; null for none. */
	errorWorkflow: string | null;
	/** What could not be read of it, a sentence each. */
	notices: readonly string[];
}

export function isRecord(value: unknown): value is Record<string, unknown> {
	return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A text parameter, or `fallback` where it is missing or no text. */
export function textOf(value: unknown, fallback = ''): string {
	return typeof value === 'string' ? value : fallback;
}

/** The value of a member that may itself hold `{ value }` (n8n's resource locator). */
export function located(value: unknown): string {
	if (isRecord(value)) return located(value.value);
	return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
}

export interface ParameterText {
	/** Name of the member that holds it; for a list's element the name of the list. */
	name: string;
	/** "name" members beside it, as in a header's `{ name, value }`; empty where there is none. */
	label: string;
	text: string;
}

const MAX_TEXTS = 20_000;

/** Every text and number in a node's parameters, without recursion: an export may be nested to any depth. */
export function* parameterTexts(parameters: unknown): Generator<ParameterText> {
	const open: Array<{ name: string; label: string; value: unknown }> = [
		{ name: '', label: '', value: parameters },
	];
	let left = MAX_TEXTS;
	while (open.length > 0 && left-- > 0) {
		const { name, label, value } = open.pop()!;
		if (typeof value === 'string' || typeof value === 'number') {
			yield { name, label, text: String(value) };
		} else if (Array.isArray(value)) {
			for (const each of value) open.push({ name, label, value: each });
		} else if (isRecord(value)) {
			const own = textOf(value.name) || textOf(value.key) || textOf(value.fieldId);
			for (const [member, each] of Object.entries(value)) {
				open.push({ name: member, label: own || label, value: each });
			}
		}
	}
}
