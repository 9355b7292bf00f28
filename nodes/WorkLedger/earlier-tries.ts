import type { IDataObject, IExecuteFunctions } from 'n8n-workflow';

import { isTool } from '../execution/failing-closed';

/** By n8n's own data of one run of the node, which is the same object in every try. */
const answered = new WeakMap<object, Map<number, IDataObject[]>>();

/**
 * What the items of this run were answered in earlier tries. Under "Retry On Fail" one item with an error runs the whole
 * node again, and what was replayed a moment ago would then be refused as "due already": a success shown as a failure.
 */
export function earlierTries(context: IExecuteFunctions): Map<number, IDataObject[]> {
	// an agent may call its tool many times within one run, with other words each time
	if (isTool(context)) return new Map();
	const run = context.getExecuteData();
	const known = answered.get(run) ?? new Map<number, IDataObject[]>();
	answered.set(run, known);
	return known;
}
