import type { IExecuteFunctions } from 'n8n-workflow';

import { isTool } from '../execution/failing-closed';
import type { Leaving, Problem } from './operation';

/** What was answered per item; an operation over all items answers under `ALL_ITEMS`. */
export type Answered = Map<number, Array<Leaving | Problem>>;

export const ALL_ITEMS = -1;

/** By n8n's own data of one run of the node, which is the same object in every try. */
const answered = new WeakMap<object, Answered>();

/**
 * What the items of this run were answered in earlier tries. Under "Retry On Fail" one item with an error runs the whole
 * node again, and what was replayed a moment ago would then be refused as "due already": a success shown as a failure.
 */
export function earlierTries(context: IExecuteFunctions): Answered {
	// an agent may call its tool many times within one run, with other words each time
	if (isTool(context)) return new Map();
	const run = context.getExecuteData();
	const known: Answered = answered.get(run) ?? (new Map() as Answered);
	answered.set(run, known);
	return known;
}
