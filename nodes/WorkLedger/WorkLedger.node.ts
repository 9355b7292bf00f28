import {
	NodeConnectionTypes,
	type IDataObject,
	type IExecuteFunctions,
	type INodeExecutionData,
	type INodeType,
	type INodeTypeDescription,
} from 'n8n-workflow';

import { inputOf, refusedCall, toolItem, upToMost } from '../execution/agent-tool';
import { callerOf } from '../execution/caller';
import { ledgerOf, testLedger } from '../execution/credential';
import { errorOutputItem, isTool, nodeError, onErrorOf } from '../execution/failing-closed';
import { Parameters } from '../execution/parameters';
import { isAway, messageOf } from '../execution/problems';
import { ALL_ITEMS, earlierTries } from './earlier-tries';
import type { AllItemsOperation, Call, Leaving, LedgerOperation, Problem } from './operation';
import { chosenOperation, operationFields, operationProperties, SUBTITLE } from './operations';
import { whichCheckpoint } from './which-checkpoint';
import { whichWork } from './which-work';

export class WorkLedger implements INodeType {
	description: INodeTypeDescription = {
		displayName: 'Work Ledger',
		name: 'workLedger',
		icon: { light: 'file:work-ledger.svg', dark: 'file:work-ledger.dark.svg' },
		group: ['transform'],
		version: 1,
		subtitle: SUBTITLE,
		description:
			'Look into the ledger and put right what failed: explain, list, replay, resolve, purge',
		defaults: { name: 'Work Ledger' },
		inputs: [NodeConnectionTypes.Main],
		outputs: [NodeConnectionTypes.Main],
		usableAsTool: true,
		credentials: [{ name: 'idempotencyLedgerApi', required: true, testedBy: 'testLedger' }],
		properties: [...operationProperties, ...whichWork, ...whichCheckpoint, ...operationFields],
	};

	methods = { credentialTest: { testLedger } };

	async execute(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
		const refusedTool = refusedCall(this);
		if (refusedTool !== null) return refusedTool;
		const input = inputOf(this);
		const onError = onErrorOf(this);
		const left: INodeExecutionData[] = [];
		for (const each of await answers(this, input, onError === 'stop' && !isTool(this))) {
			if (!isProblem(each)) {
				left.push(leavingItem(this, each));
				continue;
			}
			const { item: itemIndex, problem } = each;
			const pairedItem = { item: itemIndex };
			if (isTool(this)) left.push(toolItem(itemIndex, problem, { status: 'error' }));
			else if (onError === 'stop') throw nodeError(this, problem, { itemIndex });
			else if (onError === 'errorOutput')
				left.push(errorOutputItem(itemIndex, input[itemIndex], problem, {}));
			else
				left.push({
					...input[itemIndex],
					json: { ...input[itemIndex].json, error: problem },
					pairedItem,
				});
		}
		if (isTool(this) && left.length === 0) {
			// without any item the agent would get no answer at all
			left.push(toolItem(0, 'The ledger holds nothing like that.'));
		}
		return [isTool(this) ? upToMost(left) : left];
	}
}

const isProblem = (each: Leaving | Problem): each is Problem => 'problem' in each;

/** Every item's answer or problem, in order. `stop`: the first problem is the last thing that is done. */
async function answers(
	context: IExecuteFunctions,
	input: INodeExecutionData[],
	stop: boolean,
): Promise<Array<Leaving | Problem>> {
	const parameters = new Parameters(context);
	const caller = callerOf(context);
	const answered = earlierTries(context);
	const all: Array<Leaving | Problem> = [];
	const entries: Array<{ call: Call; value: unknown }> = [];
	let together: AllItemsOperation | undefined;
	let away: string | null = null;
	for (const [itemIndex, { json }] of input.entries()) {
		const before = answered.get(itemIndex);
		if (before !== undefined) {
			all.push(...before);
			continue;
		}
		if (away !== null) {
			all.push({ item: itemIndex, problem: away });
			continue;
		}
		try {
			const operation = chosenOperation(parameters, itemIndex);
			const ledger = await ledgerOf(context);
			const call: Call = { context, ledger, parameters, itemIndex, json, caller };
			if ('read' in operation) {
				together = operation;
				entries.push({ call, value: operation.read(call) });
				continue;
			}
			const leaving = await one(operation, call);
			answered.set(itemIndex, leaving);
			all.push(...leaving);
		} catch (error) {
			all.push({ item: itemIndex, problem: messageOf(error) });
			if (stop) return all;
			if (isAway(error)) away = messageOf(error);
		}
	}
	if (together === undefined || entries.length === 0) return all;
	try {
		const leaving = answered.get(ALL_ITEMS) ?? (await together.runAll(entries));
		answered.set(ALL_ITEMS, leaving);
		return [...leaving, ...all];
	} catch (error) {
		const failed = entries.map(({ call: { itemIndex } }) => itemIndex);
		return [...failed.map((item) => ({ item, problem: messageOf(error) })), ...all];
	}
}

async function one(operation: LedgerOperation, call: Call): Promise<Leaving[]> {
	return (await operation.run(call)).map((json) => ({ json, items: [call.itemIndex] }));
}

function leavingItem(
	context: IExecuteFunctions,
	{ json, binary, items }: Leaving,
): INodeExecutionData {
	if (isTool(context)) return toolItem(items[0] ?? 0, toolText(json), json);
	return {
		json,
		...(binary === undefined ? {} : { binary }),
		pairedItem: items.length === 1 ? { item: items[0] } : items.map((item) => ({ item })),
	};
}

/** What an agent reads: the sentence, the story of a work, and the address that a link was made for. */
function toolText(json: IDataObject): string {
	const { summary, message, story, url } = json;
	const said = summary ?? message;
	if (said === undefined) return JSON.stringify(json);
	const lines = Array.isArray(story) ? story : [];
	return [String(said), ...lines, ...(url === undefined ? [] : [url])].map(String).join('\n');
}
