import {
	NodeConnectionTypes,
	type IDataObject,
	type IExecuteFunctions,
	type INodeExecutionData,
	type INodeType,
	type INodeTypeDescription,
} from 'n8n-workflow';

import { callerOf } from '../execution/caller';
import { ledgerOf, testLedger } from '../execution/credential';
import { errorOutputItem, isTool, nodeError, onErrorOf } from '../execution/failing-closed';
import { Parameters } from '../execution/parameters';
import { earlierTries } from './earlier-tries';
import { OPERATIONS, chosenOperation } from './operations';
import { whichWork } from './which-work';

export class WorkLedger implements INodeType {
	description: INodeTypeDescription = {
		displayName: 'Work Ledger',
		name: 'workLedger',
		icon: { light: 'file:work-ledger.svg', dark: 'file:work-ledger.dark.svg' },
		group: ['transform'],
		version: 1,
		subtitle: '={{ $parameter["operation"] + ": " + $parameter["resource"] }}',
		description:
			'Look into the ledger and put right what failed: explain, list, replay, resolve, purge',
		defaults: { name: 'Work Ledger' },
		inputs: [NodeConnectionTypes.Main],
		outputs: [NodeConnectionTypes.Main],
		usableAsTool: true,
		credentials: [{ name: 'idempotencyLedgerApi', required: true, testedBy: 'testLedger' }],
		properties: [
			{
				displayName: 'Resource',
				name: 'resource',
				type: 'options',
				noDataExpression: true,
				options: [{ name: 'Work', value: 'work' }],
				default: 'work',
			},
			{
				displayName: 'Operation',
				name: 'operation',
				type: 'options',
				noDataExpression: true,
				displayOptions: { show: { resource: ['work'] } },
				options: OPERATIONS.map(({ option }) => option),
				default: 'explain',
			},
			...whichWork,
			...OPERATIONS.flatMap(({ properties }) => properties),
		],
	};

	methods = { credentialTest: { testLedger } };

	async execute(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
		const items = this.getInputData();
		const onError = onErrorOf(this);
		const parameters = new Parameters(this);
		const caller = callerOf(this);
		const answered = earlierTries(this);
		const left: INodeExecutionData[] = [];
		for (const [itemIndex, item] of items.entries()) {
			try {
				let answer = answered.get(itemIndex);
				if (answer === undefined) {
					const operation = chosenOperation(parameters, itemIndex);
					const { admin } = await ledgerOf(this);
					const call = { context: this, admin, parameters, itemIndex, json: item.json, caller };
					answer = await operation.run(call);
					answered.set(itemIndex, answer);
				}
				const leaving = isTool(this) ? forAgent(answer) : answer;
				left.push(...leaving.map((json) => ({ json, pairedItem: { item: itemIndex } })));
			} catch (error) {
				const message = error instanceof Error ? error.message : String(error);
				if (isTool(this))
					left.push({ json: { response: message }, pairedItem: { item: itemIndex } });
				else if (onError === 'stop') throw nodeError(this, message, { itemIndex });
				else if (onError === 'errorOutput')
					left.push(errorOutputItem(itemIndex, item, message, {}));
				else left.push({ json: { ...item.json, error: message }, pairedItem: { item: itemIndex } });
			}
		}
		return [left];
	}
}

/** One text that a model can read, beside the data. Without any item the agent would get no answer at all. */
function forAgent(answer: IDataObject[]): IDataObject[] {
	if (answer.length === 0) return [{ response: 'The ledger holds nothing like that.' }];
	return answer.map((json) => ({
		response: String(json.summary ?? json.message ?? JSON.stringify(json)),
		...json,
	}));
}
