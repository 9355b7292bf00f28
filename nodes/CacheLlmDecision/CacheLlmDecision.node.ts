import {
	NodeConnectionTypes,
	NodeOperationError,
	type IExecuteFunctions,
	type INodeExecutionData,
	type INodeType,
	type INodeTypeDescription,
} from 'n8n-workflow';

import { refusedCall } from '../execution/agent-tool';
import { ledgerOf, testLedger } from '../execution/credential';
import {
	isTool,
	refuseEmptyFirstOutput,
	stoppingError,
	stopOnThrow,
} from '../execution/failing-closed';
import { Parameters } from '../execution/parameters';
import { administer } from './administration';
import { hints } from './hints';
import { judge } from './judge';
import { lookUp } from './look-up';
import { outputNamesOf, OUTPUTS_EXPRESSION, type Operation } from './outputs';
import { Placement } from './placement';
import { properties } from './properties';
import { store } from './store';

export class CacheLlmDecision implements INodeType {
	description: INodeTypeDescription = {
		displayName: 'Cache LLM Decision',
		name: 'cacheLlmDecision',
		icon: { light: 'file:cache-llm-decision.svg', dark: 'file:cache-llm-decision.dark.svg' },
		group: ['transform'],
		version: 1,
		subtitle:
			'={{ ({ lookUp: "look up " + ($parameter["kind"] || "?") + ", " + ($parameter["model"] || "?"), store: "store the answer", approve: "approve", reject: "reject", get: "get", compare: "compare two", list: "list", expire: "expire", statistics: "statistics", purge: "purge" })[$parameter["operation"]] }}',
		description:
			'Ask a language model once: a retry replays the stored answer, and an action can be approved before it happens',
		defaults: { name: 'Cache LLM Decision' },
		inputs: [NodeConnectionTypes.Main],
		outputs: OUTPUTS_EXPRESSION,
		hints,
		usableAsTool: true,
		credentials: [{ name: 'idempotencyLedgerApi', required: true, testedBy: 'testLedger' }],
		properties,
	};

	methods = { credentialTest: { testLedger } };

	async execute(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
		try {
			return await decide.call(this);
		} catch (error) {
			// whatever it is: under "Continue" n8n would send every item on as decided
			if (!isTool(this)) stopOnThrow(this);
			throw new NodeOperationError(this.getNode(), error as Error);
		}
	}
}

async function decide(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
	const parameters = new Parameters(this);
	const operation = parameters.read<Operation>('operation', 0, 'lookUp');
	// who may judge is asked first there, in words of its own
	if (operation !== 'approve' && operation !== 'reject') {
		const refusedTool = refusedCall(this);
		if (refusedTool !== null) return refusedTool;
	}
	const names = outputNamesOf(operation);
	const placement = new Placement(this, names);
	const ledgerFor = async () => await ledgerOf(this);
	let nothingElse = '';
	switch (operation) {
		case 'lookUp':
			await lookUp(this, ledgerFor, parameters, placement);
			nothingElse = 'Nothing was looked up.';
			break;
		case 'store':
			await store(this, ledgerFor, parameters, placement);
			nothingElse = 'What could be stored is stored.';
			break;
		case 'approve':
		case 'reject':
			await judge(this, ledgerFor, parameters, placement, operation === 'approve');
			nothingElse = 'The others were judged.';
			break;
		default:
			return await administer(this, ledgerFor, parameters, operation);
	}
	const { problems } = placement;
	if (problems.length > 0 && placement.stops) {
		throw placement.error(problems.length === this.getInputData().length ? '' : nothingElse);
	}
	// it says more than that the first output is empty
	const failure = problems.find(({ status }) => status === 'error');
	if (failure !== undefined && this.getNode().alwaysOutputData === true && !isTool(this)) {
		throw stoppingError(this, failure.message);
	}
	const outputs = placement.outputs();
	const empty = isTool(this) ? null : refuseEmptyFirstOutput(this, outputs, names[0]);
	if (empty !== null) throw empty;
	return outputs;
}
