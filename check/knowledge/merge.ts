import { isRecord, textOf, type WorkflowNode } from '../workflow';
import { plainType } from './node-type';

/**
 * Whether a node hands on an item only with a partner from every one of its inputs. Append, and joins that keep what has
 * no partner, hand on the items of one input alone.
 */
export function joinsInputs({ type, typeVersion, parameters }: WorkflowNode): boolean {
	if (plainType(type) !== 'n8n-nodes-base.merge') return false;
	const mode = textOf(parameters.mode, 'append');
	if (typeVersion < 2) return ['keepKeyMatches', 'multiplex'].includes(mode);
	if (mode === 'chooseBranch') return true;
	if (mode !== 'combine') return false;
	const options = isRecord(parameters.options) ? parameters.options : {};
	const by = textOf(parameters.combineBy, textOf(parameters.combinationMode, 'combineByFields'));
	if (by === 'combineByPosition' || by === 'mergeByPosition')
		return options.includeUnpaired !== true;
	if (by === 'combineAll' || by === 'multiplex') return true;
	return textOf(parameters.joinMode, 'keepMatches') === 'keepMatches';
}
