import type {
	IExecuteFunctions,
	INodeExecutionData,
	IRunExecutionData,
	ISourceData,
	ITaskData,
} from 'n8n-workflow';

import { isOwnField, resultText } from '../../ledger';
import { answerStatus } from './work-field';

export interface Lineage {
	/** The items of the given nodes that an input item was put together from. */
	origins: INodeExecutionData[];
	/** A step that made one item of several of them without saying of which; null where there is none. */
	guessedAt: string | null;
}

/**
 * Follows an input item back to given nodes. n8n's own `$('…').item` gives one item or throws ("Multiple matches found")
 * where a step such as Aggregate made one item of several; this follows every pairing. Without origins where pairing is
 * lost, or where this n8n does not show the data of the execution to nodes. `onTheWay` sees every item it passes.
 */
export function lineageOf(
	context: IExecuteFunctions,
	itemIndex: number,
	isOrigin: (nodeName: string) => boolean,
	onTheWay: (nodeName: string, item: INodeExecutionData, run: number) => void = () => undefined,
): Lineage {
	// not part of n8n's declared interface, so it may be missing
	const { runExecutionData } = context as unknown as { runExecutionData?: IRunExecutionData };
	const runData = runExecutionData?.resultData?.runData;
	const start = context.getExecuteData().source?.main?.[0];
	if (runData === undefined || start === undefined || start === null)
		return { origins: [], guessedAt: null };

	const origins: INodeExecutionData[] = [];
	let guessedAt: string | null = null;
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
		onTheWay(previousNode, item, previousNodeRun);
		if (isOrigin(previousNode)) {
			origins.push(item);
			continue;
		}
		const guess = guessedInput(task, item, runData);
		if (guess !== null) guessedAt = previousNode;
		const pairs = guess ?? (Array.isArray(item.pairedItem) ? item.pairedItem : [item.pairedItem]);
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
	// all that it was made of may come from one item
	return { origins: origins.reverse(), guessedAt: origins.length > 1 ? guessedAt : null };
}

/**
 * Where a step gives one item for several and no pairing (a Code node that sums them up, a pinned output), n8n itself
 * pairs it with the first. That cannot be told from a step that chose the first, except by what it let through: who
 * chooses keeps the item, or at least what this package put there. Gives all that went in; null where nothing is guessed.
 */
function guessedInput(
	{ data, source }: ITaskData,
	{ json, pairedItem }: INodeExecutionData,
	runData: IRunExecutionData['resultData']['runData'],
): number[] | null {
	const [only, ...others] = data?.main ?? [];
	const [from] = source;
	if (others.length > 0 || only?.length !== 1 || source.length !== 1 || !from) return null;
	const pair = typeof pairedItem === 'object' && !Array.isArray(pairedItem) ? pairedItem : null;
	if (pair === null || pair.item !== 0 || Object.keys(pair).length > 1) return null;
	const { previousNode, previousNodeOutput = 0, previousNodeRun = 0 } = from;
	const input = runData[previousNode]?.[previousNodeRun]?.data?.main?.[previousNodeOutput] ?? [];
	if (input.length < 2) return null;
	const isChosen =
		Object.values(json).some((value) => isOwnField(value) || answerStatus(value) !== null) ||
		resultText(json).text === resultText(input[0].json).text;
	return isChosen ? null : [...input.keys()];
}
