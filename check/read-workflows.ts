import {
	isRecord,
	textOf,
	type Connection,
	type OnError,
	type Workflow,
	type WorkflowNode,
} from './workflow';

export interface ReadWorkflows {
	workflows: Workflow[];
	/** Why something in the text is no workflow, a sentence each. */
	problems: string[];
}

/** How deep a workflow may be wrapped: `{ data: [{ workflow: { … } }] }` and the like. */
const MAX_WRAPPERS = 6;
const WRAPPERS = ['workflow', 'workflows', 'workflowData', 'data', 'items', 'json', 'results'];
const MAX_LISTED = 5;

/** The workflows in the text of one file, in any form n8n exports or answers them. Never throws. */
export function readWorkflowText(text: string): ReadWorkflows {
	let value: unknown;
	try {
		value = JSON.parse(text.charCodeAt(0) === 0xfeff ? text.slice(1) : text);
	} catch (error) {
		const empty = text.trim() === '';
		return {
			workflows: [],
			problems: [empty ? 'The file is empty.' : `No valid JSON: ${firstLine(error)}.`],
		};
	}
	return readWorkflowValue(value);
}

/** The workflows in a value that was parsed already. Never throws. */
export function readWorkflowValue(value: unknown): ReadWorkflows {
	const workflows: Workflow[] = [];
	const problems: string[] = [];
	const open: Array<{ value: unknown; wrappers: number; where: string }> = [
		{ value, wrappers: 0, where: '' },
	];
	let others = 0;
	// entries are put behind, so that workflows come in the order of the file
	for (const { value: each, wrappers, where } of open) {
		if (Array.isArray(each)) {
			if (each.length === 0) problems.push(`${where || 'The list'} is empty: no workflow in it.`);
			if (wrappers < MAX_WRAPPERS) {
				each.forEach((entry, i) =>
					open.push({ value: entry, wrappers: wrappers + 1, where: `Entry ${i + 1}` }),
				);
			} else if (each.length > 0) {
				problems.push(`${where || 'The list'} is a list in too many lists, and was not read.`);
			}
			continue;
		}
		if (isRecord(each)) {
			if (Array.isArray(each.nodes)) {
				const workflow = workflowFrom(each, each.nodes);
				workflows.push(workflow);
				for (const { id, name, text } of definedInside(workflow)) {
					const inside = parsed(text);
					if (isRecord(inside) && wrappers < MAX_WRAPPERS) {
						open.push({ value: { ...inside, id, name }, wrappers: wrappers + 1, where: name });
					} else problems.push(`${name} could not be read.`);
				}
				continue;
			}
			const wrapper = WRAPPERS.find(
				(name) => typeof each[name] === 'object' && each[name] !== null,
			);
			if (wrapper !== undefined && wrappers < MAX_WRAPPERS) {
				open.push({ value: each[wrapper], wrappers: wrappers + 1, where });
				continue;
			}
		}
		others++;
		if (others <= MAX_LISTED) {
			problems.push(`${where || 'The file'} is no workflow: it has no list of nodes.`);
		}
	}
	if (others > MAX_LISTED) {
		problems.push(`${others - MAX_LISTED} further entries are no workflows.`);
	}
	return { workflows, problems };
}

/** Nodes whose sub-workflow is written into them ("Define Below"), as text. */
const CALLS_A_WORKFLOW = /\.(executeWorkflow|toolWorkflow)$/;

/** Whether a node holds its sub-workflow itself; an expression is not evaluated, so it stays unknown. */
function holdsWorkflow(type: string, parameters: Record<string, unknown>): boolean {
	const text = textOf(parameters.workflowJson);
	return (
		CALLS_A_WORKFLOW.test(type) &&
		parameters.source === 'parameter' &&
		text.trim() !== '' &&
		!text.startsWith('=')
	);
}

/** What a workflow inside a node is called, and known by: n8n gives it neither name nor id. */
const nameInside = (node: string, workflow: string) => `The workflow in "${node}" of "${workflow}"`;

function definedInside({ name: workflow, nodes }: Workflow) {
	return nodes
		.filter(({ type, parameters }) => holdsWorkflow(type, parameters))
		.map(({ name, parameters }) => {
			const inside = nameInside(name, workflow);
			return { id: inside, name: inside, text: textOf(parameters.workflowJson) };
		});
}

function parsed(text: string): unknown {
	try {
		return JSON.parse(text);
	} catch {
		return null;
	}
}

function workflowFrom(from: Record<string, unknown>, entries: unknown[]): Workflow {
	const notices: string[] = [];
	const ownName = textOf(from.name) || 'workflow without a name';
	const nodes: WorkflowNode[] = [];
	const byName = new Map<string, number>();
	const byId = new Map<string, number>();
	let unreadable = 0;
	const repeated: string[] = [];
	for (const entry of entries) {
		if (!isRecord(entry) || typeof entry.type !== 'string') {
			unreadable++;
			continue;
		}
		const index = nodes.length;
		const name = textOf(entry.name) || textOf(entry.id) || `node ${index + 1}`;
		const node = nodeFrom(entry, entry.type, name, index);
		nodes.push(
			holdsWorkflow(node.type, node.parameters)
				? { ...node, parameters: { ...node.parameters, workflowId: nameInside(name, ownName) } }
				: node,
		);
		// connections name their nodes, so of two with one name n8n itself knows only one
		if (byName.has(name)) repeated.push(name);
		else byName.set(name, index);
		if (typeof entry.id === 'string') byId.set(entry.id, index);
	}
	if (unreadable > 0)
		notices.push(`${unreadable} of its nodes could not be read: they have no type.`);
	if (repeated.length > 0) {
		notices.push(
			`Several nodes have one name, and connections reach only the first: ${listed(repeated)}.`,
		);
	}
	const settings = isRecord(from.settings) ? from.settings : {};
	return {
		id: typeof from.id === 'string' || typeof from.id === 'number' ? String(from.id) : null,
		name: ownName,
		nodes,
		connections: connectionsFrom(
			from.connections,
			(name) => byName.get(name) ?? byId.get(name),
			notices,
		),
		errorWorkflow: textOf(settings.errorWorkflow) || null,
		notices,
	};
}

function nodeFrom(
	entry: Record<string, unknown>,
	type: string,
	name: string,
	index: number,
): WorkflowNode {
	const version = Number(entry.typeVersion ?? 1);
	return {
		index,
		name,
		type,
		typeVersion: Number.isFinite(version) ? version : 1,
		parameters: isRecord(entry.parameters) ? entry.parameters : {},
		disabled: entry.disabled === true,
		onError: onErrorOf(entry),
		retryOnFail: entry.retryOnFail === true,
		alwaysOutputData: entry.alwaysOutputData === true,
		executeOnce: entry.executeOnce === true,
	};
}

function onErrorOf({ onError, continueOnFail }: Record<string, unknown>): OnError {
	if (onError === 'continueErrorOutput') return 'errorOutput';
	if (onError === 'continueRegularOutput') return 'continue';
	// exports from before n8n 1.0 have no onError
	return onError === undefined && continueOnFail === true ? 'continue' : 'stop';
}

function connectionsFrom(
	from: unknown,
	nodeNamed: (name: string) => number | undefined,
	notices: string[],
): Connection[] {
	const connections: Connection[] = [];
	if (from === undefined || from === null) return connections;
	if (!isRecord(from)) {
		notices.push('Its connections are not in a form that n8n exports; it is read without them.');
		return connections;
	}
	const missing = new Set<string>();
	for (const [source, kinds] of Object.entries(from)) {
		const sourceIndex = nodeNamed(source);
		if (sourceIndex === undefined) {
			missing.add(source);
			continue;
		}
		if (!isRecord(kinds)) continue;
		for (const [kind, outputs] of Object.entries(kinds)) {
			if (!Array.isArray(outputs)) continue;
			outputs.forEach((targets: unknown, output) => {
				for (const target of Array.isArray(targets) ? targets : [targets]) {
					const name = typeof target === 'string' ? target : isRecord(target) ? target.node : null;
					if (typeof name !== 'string') continue;
					const to = nodeNamed(name);
					if (to === undefined) {
						missing.add(name);
						continue;
					}
					const input = isRecord(target) && Number.isInteger(target.index) ? target.index : 0;
					connections.push({ kind, from: sourceIndex, output, to, input: input as number });
				}
			});
		}
	}
	if (missing.size > 0) {
		notices.push(`Connections name nodes that are not there: ${listed([...missing])}.`);
	}
	return connections;
}

function listed(names: string[]): string {
	const shown = names.slice(0, MAX_LISTED).map((name) => `"${name.slice(0, 80)}"`);
	const more = names.length - shown.length;
	return `${shown.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

function firstLine(error: unknown): string {
	const message = error instanceof Error ? error.message : String(error);
	return message.split('\n')[0].slice(0, 160).replace(/\.$/, '');
}
