import type { IExecuteFunctions, NodeOperationError } from 'n8n-workflow';

import { isLedgerError, type LedgerErrorCode } from '../../ledger';
import { nodeError } from './failing-closed';

/** What is wrong with an item. */
export interface ItemProblem {
	itemIndex: number;
	message: string;
}

const MOST_SHOWN = 20;

/** What was thrown, in its own words. */
export function messageOf(error: unknown): string {
	return error instanceof Error ? error.message : String(error);
}

/** A ledger that is away is asked for seconds; a thousand items would take an hour to learn the same. */
const AWAY: ReadonlySet<LedgerErrorCode> = new Set(['unreachable', 'starting_up', 'timeout']);

/** Whether the next item would wait as long, for the same answer. */
export function isAway(error: unknown): boolean {
	return isLedgerError(error) && AWAY.has(error.code);
}

/** The same for a parameter: n8n's own words for an expression that fails ("Invalid expression") do not say which one. */
export function parameterProblem(error: unknown): string {
	const message = messageOf(error);
	const { context } = error as { context?: { parameter?: unknown } };
	return typeof context?.parameter === 'string'
		? `The expression of the parameter "${context.parameter}" fails for this item: ${message}`
		: message;
}

/**
 * One error for all items that stop the workflow: the first of them is shown in the editor, and at most 20 are listed.
 * `alone` describes what became of the rest where there is one problem only, `after` follows the list.
 */
export function problemsError(
	context: IExecuteFunctions,
	problems: ItemProblem[],
	words: { several: string; alone?: string; after?: string },
): NodeOperationError {
	const [{ itemIndex, message }] = problems;
	if (problems.length === 1) {
		return nodeError(context, message, { description: words.alone, itemIndex });
	}
	const shown = problems
		.slice(0, MOST_SHOWN)
		.map((problem) => `Item ${problem.itemIndex}: ${problem.message}`);
	const more = problems.length > MOST_SHOWN ? ` (and ${problems.length - MOST_SHOWN} more)` : '';
	const after = words.after === undefined ? '' : ` ${words.after}`;
	return nodeError(context, `${problems.length} ${words.several}`, {
		description: `${shown.join(' ')}${more}${after}`,
		itemIndex,
	});
}
