import {
	NodeConnectionTypes,
	NodeOperationError,
	type IDataObject,
	type IExecuteFunctions,
	type INodeExecutionData,
	type INodeType,
	type INodeTypeDescription,
} from 'n8n-workflow';

import type { EvidenceAnswer } from '../../ledger';
import { inputOf, refusedCall, toolItem } from '../execution/agent-tool';
import { callerOf } from '../execution/caller';
import { ledgerOf, testLedger } from '../execution/credential';
import {
	errorOutputItem,
	isTool,
	nodeError,
	onErrorOf,
	refuseEmptyFirstOutput,
	stopOnThrow,
	stoppingError,
} from '../execution/failing-closed';
import { problemsError } from '../execution/problems';
import { withField, withInputError } from '../execution/work-field';
import { warning } from '../execution/workflow-hints';
import { OUTPUT, OUTPUT_NAMES, gateField, hintsOf, toolText } from './answer';
import { hints } from './hints';
import { properties } from './properties';
import { readRequests, type GateItem } from './request';

export class CheckEvidenceGate implements INodeType {
	description: INodeTypeDescription = {
		displayName: 'Check Evidence Gate',
		name: 'checkEvidenceGate',
		icon: { light: 'file:check-evidence-gate.svg', dark: 'file:check-evidence-gate.dark.svg' },
		group: ['transform'],
		version: 1,
		subtitle:
			'={{ $parameter["mode"] === "ladder" ? "evidence for " + ($parameter["targetBy"] === "field" ? "the stage in " + ($parameter["targetField"] || "?") : ($parameter["target"] || "?")) : ({ 0: "no rules yet", 1: "1 rule" })[(($parameter["rules"] || {}).rule || []).length] || $parameter["rules"].rule.length + " rules" }}',
		description:
			'Let a record advance only when the evidence is on it (approval, stage gate, check before an action)',
		defaults: { name: 'Check Evidence Gate' },
		inputs: [NodeConnectionTypes.Main],
		outputs: [NodeConnectionTypes.Main, NodeConnectionTypes.Main],
		outputNames: OUTPUT_NAMES,
		hints,
		usableAsTool: true,
		credentials: [{ name: 'idempotencyLedgerApi', required: true, testedBy: 'testLedger' }],
		properties,
	};

	methods = { credentialTest: { testLedger } };

	async execute(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
		try {
			return await checkItems.call(this);
		} catch (error) {
			// whatever it is: under "Continue" n8n would send every item on as passed
			if (!isTool(this)) stopOnThrow(this);
			throw new NodeOperationError(this.getNode(), error as Error);
		}
	}
}

interface Failure {
	message: string;
	description: string;
}

async function checkItems(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
	const refusedTool = refusedCall(this);
	if (refusedTool !== null) return refusedTool;
	const items = inputOf(this);
	const stops = onErrorOf(this) === 'stop' && !isTool(this);
	const caller = callerOf(this);
	const gates = readRequests(this, items, caller);

	// what stops the workflow is known before anything passes: the others are not checked, nor logged as passed
	const refused = gates.filter(({ request }) => request.refusal !== undefined);
	const asked = stops && refused.length > 0 ? refused : gates;
	let answers: EvidenceAnswer[];
	try {
		const { evidence } = await ledgerOf(this);
		answers = await evidence.check(
			asked.map(({ request }) => request),
			caller,
		);
	} catch (error) {
		const { message, description } = failureOf(error);
		if (stops) throw nodeError(this, message, { description });
		// it says more than that the first output is empty
		if (this.getNode().alwaysOutputData === true && !isTool(this)) {
			throw stoppingError(this, message, description);
		}
		return place(
			this,
			items,
			gates.map((gate) => ({
				gate,
				output: OUTPUT.blocked,
				field: {
					status: 'error',
					message: `${message} ${description}`,
					recordId: gate.request.recordId,
				},
			})),
		);
	}

	if (stops) {
		const problems = answers.flatMap(({ status, message }, i) =>
			status === 'refused' || status === 'error'
				? [{ itemIndex: asked[i].itemIndex, message }]
				: [],
		);
		if (problems.length > 0) {
			throw problemsError(this, problems, {
				several: 'items cannot be checked; none passed',
				alone: 'No item has passed.',
			});
		}
	}
	const outputs = place(
		this,
		items,
		gates.map((gate, i) => ({
			gate,
			output: answers[i].status === 'passed' ? OUTPUT.passed : OUTPUT.blocked,
			field: gateField(answers[i], gate),
		})),
	);
	const warnings = hintsOf(answers, gates);
	if (warnings !== null) this.addExecutionHints(warning(warnings));
	const empty = isTool(this)
		? null
		: refuseEmptyFirstOutput(this, outputs, OUTPUT_NAMES[OUTPUT.passed]);
	if (empty !== null) throw empty;
	return outputs;
}

/** Each item at its output, in the order of the input. What could not be checked leaves by Error where there is one. */
function place(
	context: IExecuteFunctions,
	items: INodeExecutionData[],
	placed: Array<{ gate: GateItem; output: number; field: IDataObject }>,
): INodeExecutionData[][] {
	const outputs: INodeExecutionData[][] = OUTPUT_NAMES.map(() => []);
	const hasErrorOutput = onErrorOf(context) === 'errorOutput';
	for (const { gate, output, field } of placed) {
		const { itemIndex, fieldName } = gate;
		const input = items[itemIndex];
		if (isTool(context)) {
			// only the first output reaches an agent
			outputs[OUTPUT.passed].push(toolItem(itemIndex, toolText(field), { [fieldName]: field }));
		} else if (hasErrorOutput && (field.status === 'refused' || field.status === 'error')) {
			outputs[output].push(
				errorOutputItem(itemIndex, input, String(field.message), {
					[fieldName]: withInputError(input, fieldName, field),
				}),
			);
		} else outputs[output].push(withField(input, itemIndex, fieldName, field));
	}
	return outputs;
}

function failureOf(error: unknown): Failure {
	const { problem, cure, message } = error as { problem?: string; cure?: string; message?: string };
	return {
		message: problem ?? message ?? 'The ledger could not be asked.',
		description:
			`${cure ?? ''} No item has passed: every check is written to the decision log, and that was not possible.`.trim(),
	};
}
