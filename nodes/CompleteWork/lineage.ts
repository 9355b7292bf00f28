import type {
	IExecuteFunctions,
	INodeExecutionData,
	IRunExecutionData,
	ISourceData,
} from 'n8n-workflow';

/**
 * The items of given nodes that an input item was put together from. n8n's own `$('…').item` gives one item or throws
 * ("Multiple matches found") where a step such as Aggregate made one item of several; this follows every pairing.
 * Empty where pairing is lost, or where this n8n does not show the data of the execution to nodes.
 */
export function originsOf(
	context: IExecuteFunctions,
	itemIndex: number,
	isOrigin: (nodeName: string) => boolean,
): INodeExecutionData[] {
	// not part of n8n's declared interface, so it may be missing
	const { runExecutionData } = context as unknown as { runExecutionData?: IRunExecutionData };
	const runData = runExecutionData?.resultData?.runData;
	const start = context.getExecuteData().source?.main?.[0];
	if (runData === undefined || start === undefined || start === null) return [];

	const origins: INodeExecutionData[] = [];
	const seen = new Set<string>();
	const open: Array<[ISourceData, number]> = [[start, itemIndex]];
	for (let next = open.pop(); next !== undefined; next = open.pop()) {
		const [{ previousNode, previousNodeOutput = 0, previousNodeRun = 0 }, index] = next;
		const step = JSON.stringify([previousNode, previousNodeOutput, previousNodeRun, index]);
		if (seen.has(step)) continue;
		seen.add(step);
		const task = runData[previousNode]?.[previousNodeRun];
		const item = task?.data?.main?.[previousNodeOutput]?.[index];
		if (item === undefined || item === null) continue;
		if (isOrigin(previousNode)) {
			origins.push(item);
			continue;
		}
		const pairs = Array.isArray(item.pairedItem) ? item.pairedItem : [item.pairedItem];
		for (const pair of pairs) {
			if (pair === undefined) continue;
			const {
				item: before,
				input = 0,
				sourceOverwrite,
			} = typeof pair === 'number' ? { item: pair } : pair;
			const source = sourceOverwrite ?? task.source[input];
			if (source !== undefined && source !== null) open.push([source, before]);
		}
	}
	// the stack turned the order round
	return origins.reverse();
}
