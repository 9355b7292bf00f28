import type { Analysis } from '../analysis';
import type { Rule } from '../finding';
import { fieldsOfKey, keyFieldNames, type KeyText } from '../knowledge/keys';
import { fieldTexts } from '../knowledge/http';
import { volatileSources } from '../../ledger/identity/volatile-expressions';
import { shortOf } from '../knowledge/node-type';
import { parameterTexts, textOf, type WorkflowNode } from '../workflow';
import { keysOf } from './keys-of';

/** A key from the execution, the time or chance. */
export const volatileKey: Rule = {
	id: 'volatile-key',
	title: 'A key from the execution id, the time or chance',
	severity: 'error',
	*find(analysis) {
		for (const { node, key } of keysOf(analysis)) {
			const sources = volatileSources(key.raw.startsWith('=') ? key.raw : `=${key.raw}`);
			const origin = sources.length > 0 ? null : volatileOrigin(analysis, node, key);
			if (sources.length === 0 && origin === null) continue;
			yield {
				node,
				severity: 'error',
				message:
					origin === null
						? `${key.where} is made from ${sources.join(', ')}.`
						: `${key.where} reads "${origin.field}", which "${origin.node.name}" makes from ${origin.sources.join(', ')}.`,
				twice:
					'Every run has another key: the second is never recognised as a duplicate, and both do the work.',
				fix: 'Take a value that is the same each time the same work arrives: the number of the order or invoice, or record and stage; for a schedule, the day or hour it is for.',
			};
		}
	},
};

/** The node upstream that fills the key's field from something volatile. */
function volatileOrigin(
	analysis: Analysis,
	node: WorkflowNode,
	key: KeyText,
): { node: WorkflowNode; field: string; sources: string[] } | null {
	const names = new Set([...keyFieldNames(key), ...fieldsOfKey(key)]);
	if (names.size === 0 || !analysis.workflow.nodes.some(({ type }) => FILLS.has(shortOf(type)))) {
		return null;
	}
	for (const at of analysis.graph.ancestors([node.index])) {
		const ancestor = analysis.workflow.nodes[at];
		if (ancestor.disabled) continue;
		for (const { field, sources } of volatileFields(ancestor, names)) {
			if (names.has(field) && sources.length > 0) return { node: ancestor, field, sources };
		}
	}
	return null;
}

/** Nodes that can be seen to fill a field. */
const FILLS: ReadonlySet<string> = new Set([
	'set',
	'code',
	'function',
	'functionItem',
	'crypto',
	'dateTime',
]);

/** The fields that a node fills, and what in them changes with each run. */
function* volatileFields(
	node: WorkflowNode,
	names: ReadonlySet<string>,
): Generator<{ field: string; sources: string[] }> {
	const { parameters, typeVersion } = node;
	switch (shortOf(node.type)) {
		case 'set':
			for (const { field, text } of fieldTexts(parameters)) {
				if (names.has(field)) yield { field, sources: volatileSources(text) };
			}
			break;
		case 'crypto':
			if (parameters.action === 'generate')
				yield { field: textOf(parameters.dataPropertyName, 'data'), sources: ['a random value'] };
			break;
		case 'dateTime':
			if (typeVersion >= 2 && textOf(parameters.operation, 'getCurrentDate') === 'getCurrentDate')
				yield {
					field: textOf(parameters.outputFieldName, 'currentDate'),
					sources: ['the current time'],
				};
			break;
		case 'code':
		case 'function':
		case 'functionItem':
			yield* assigned(parameters, names);
	}
}

/** `order_id: randomUUID()`, `json["order_id"] = Date.now()`. */
function* assigned(
	parameters: WorkflowNode['parameters'],
	names: ReadonlySet<string>,
): Generator<{ field: string; sources: string[] }> {
	for (const { name, text } of parameterTexts(parameters)) {
		if (!/code$/i.test(name)) continue;
		// from the beginning of a name: a picture in the code is one word of a million letters
		const assignments = /(?<![\w$])([\w$]+)["'`]?\]?\s*(?:=(?![=>])|:(?!:))\s*([^;,\n]{1,500})/g;
		for (const [, field, value] of text.slice(0, 200_000).matchAll(assignments)) {
			if (names.has(field)) yield { field, sources: volatileSources(`={{ ${value} }}`) };
		}
	}
}
