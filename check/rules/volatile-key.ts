import type { Analysis } from '../analysis';
import type { Rule } from '../finding';
import { fieldsOfKey, keyFieldNames, type KeyText } from '../knowledge/keys';
import { fieldTexts } from '../knowledge/http';
import { volatileSources } from '../../ledger/identity/volatile-expressions';
import { shortOf } from '../knowledge/node-type';
import type { WorkflowNode } from '../workflow';
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

/** The Set node upstream that fills the key's field from something volatile. */
function volatileOrigin(
	analysis: Analysis,
	node: WorkflowNode,
	key: KeyText,
): { node: WorkflowNode; field: string; sources: string[] } | null {
	const names = new Set([...keyFieldNames(key), ...fieldsOfKey(key)]);
	if (names.size === 0 || !analysis.workflow.nodes.some(({ type }) => shortOf(type) === 'set')) {
		return null;
	}
	for (const at of analysis.graph.ancestors([node.index])) {
		const ancestor = analysis.workflow.nodes[at];
		if (ancestor.disabled || shortOf(ancestor.type) !== 'set') continue;
		for (const { field, text } of fieldTexts(ancestor.parameters)) {
			if (!names.has(field)) continue;
			const sources = volatileSources(text);
			if (sources.length > 0) return { node: ancestor, field, sources };
		}
	}
	return null;
}
