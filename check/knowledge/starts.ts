import type { WorkflowNode } from '../workflow';
import { isTrigger, shortOf } from './node-type';
import { ownName } from './own-nodes';

/** Who starts a run: the outside or a clock, a person, another workflow, a failure, or the ledger. */
export type StartKind = 'automatic' | 'manual' | 'entry' | 'error' | 'ledger';

const MANUAL: ReadonlySet<string> = new Set([
	'manualTrigger',
	'manualChatTrigger',
	'start',
	'evaluationTrigger',
]);

/** How a node starts runs; null for a node that starts none. A disabled one is classified as well. */
export function startKindOf({ type, parameters }: WorkflowNode): StartKind | null {
	const short = shortOf(type);
	if (ownName(type) === 'workLedgerTrigger') {
		// retries come with their claim; a dead letter is news of a failure
		return parameters.event === 'retry_due' ? 'ledger' : 'error';
	}
	if (MANUAL.has(short)) return 'manual';
	if (short === 'executeWorkflowTrigger') return 'entry';
	if (short === 'errorTrigger') return 'error';
	return isTrigger(type) ? 'automatic' : null;
}

export function isSchedule({ type }: WorkflowNode): boolean {
	return ['scheduleTrigger', 'cron', 'interval'].includes(shortOf(type));
}
