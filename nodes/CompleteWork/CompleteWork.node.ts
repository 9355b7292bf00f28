import {
	NodeConnectionTypes,
	NodeOperationError,
	type IDataObject,
	type IExecuteFunctions,
	type INodeExecutionData,
	type INodeType,
	type INodeTypeDescription,
} from 'n8n-workflow';

import type { HoldAnswer, Ledger } from '../../ledger';
import { callerOf } from '../execution/caller';
import { ledgerOf, testLedger } from '../execution/credential';
import {
	errorOutputItem,
	onErrorOf,
	refuseEmptyFirstOutput,
	stopOnThrow,
	type OnError,
} from '../execution/failing-closed';
import { Parameters } from '../execution/parameters';
import {
	messageOf,
	parameterProblem,
	problemsError,
	type ItemProblem,
} from '../execution/problems';
import {
	answerStatus,
	asWorkField,
	DEFAULT_FIELD,
	fieldNameProblem,
	freeFieldName,
	isOpenClaim,
	openClaimsIn,
	withField,
	withInputError,
} from '../execution/work-field';
import { warning } from '../execution/workflow-hints';
import { failByExecution } from './fail-by-execution';
import { FailuresBefore } from './failed-before';
import { ClaimSearch } from './find-claim';
import { OUTPUT, OUTPUT_NAMES, isAccepted, settledField } from './answer';
import { properties, type Operation } from './properties';
import { readOperation, readSettlement, settle, type Settlement } from './settle';
import { passedField, recordPassed, ShadowSearch, type PassedShadow } from './shadow';

export class CompleteWork implements INodeType {
	description: INodeTypeDescription = {
		displayName: 'Complete Work',
		name: 'completeWork',
		icon: { light: 'file:complete-work.svg', dark: 'file:complete-work.dark.svg' },
		group: ['transform'],
		version: 1,
		subtitle:
			'={{ ({ complete: "complete, store the result", fail: "fail", failByExecution: "fail by execution", recordReference: "record reference", extend: "extend lease", release: "release the claim" })[$parameter["operation"]] }}',
		description: 'Report what became of claimed work: done with its result, failed, or given back',
		defaults: { name: 'Complete Work' },
		inputs: [NodeConnectionTypes.Main],
		outputs: [NodeConnectionTypes.Main, NodeConnectionTypes.Main],
		outputNames: OUTPUT_NAMES,
		// a model must not copy tokens: the recommended guarded tool is a sub-workflow with claim, effect and completion
		usableAsTool: undefined,
		credentials: [{ name: 'idempotencyLedgerApi', required: true, testedBy: 'testLedger' }],
		properties,
	};

	methods = { credentialTest: { testLedger } };

	async execute(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
		try {
			return await completeItems.call(this);
		} catch (error) {
			// whatever it is: under "Continue" n8n would send every item on as completed
			stopOnThrow(this);
			throw new NodeOperationError(this.getNode(), error as Error);
		}
	}
}

async function completeItems(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
	const items = this.getInputData();
	const parameters = new Parameters(this);
	const placement = new Placement(items, onErrorOf(this), new ShadowSearch(this));
	const ledger = await ledgerOf(this).catch((error: unknown) => {
		items.forEach((_, i) => placement.problem(i, fieldOf(parameters, i), messageOf(error)));
		return null;
	});
	if (ledger !== null) await settleItems(this, ledger, parameters, placement);

	// what could be settled is settled: an effect that landed must be on record even if another item has a problem
	if (placement.problems.length > 0 && onErrorOf(this) === 'stop') {
		throw problemError(this, placement.problems, items.length);
	}
	if (placement.problems.length > 0) {
		const [{ message }] = placement.problems;
		const { length } = placement.problems;
		this.addExecutionHints(
			warning(`${length} ${length === 1 ? 'item was' : 'items were'} not settled. ${message}`),
		);
	}
	const outputs = placement.outputs();
	const empty = refuseEmptyFirstOutput(this, outputs, OUTPUT_NAMES[OUTPUT.completed]);
	if (empty !== null) throw empty;
	return outputs;
}

/** Finds the claim of each item and settles them all in one call; each item is placed with its answer or its problem. */
async function settleItems(
	context: IExecuteFunctions,
	{ works }: Ledger,
	parameters: Parameters,
	placement: Placement,
): Promise<void> {
	const items = context.getInputData();
	let operation: Operation;
	try {
		operation = readOperation(parameters);
	} catch (error) {
		const problem = parameterProblem(error);
		items.forEach((_, i) => placement.problem(i, fieldOf(parameters, i), problem));
		return;
	}
	const caller = callerOf(context);
	const { shadows } = placement;
	const search = new ClaimSearch(context, works, shadows.allInShadow());
	const failures = operation === 'complete' ? new FailuresBefore(context) : null;
	const settlements: Settlement[] = [];
	const passed: PassedShadow[] = [];
	for (const [i, item] of items.entries()) {
		let field = DEFAULT_FIELD;
		try {
			const named = parameters.option<string>('field', i, DEFAULT_FIELD);
			const nameProblem = fieldNameProblem(named);
			if (nameProblem !== null) {
				placement.problem(i, field, nameProblem);
				continue;
			}
			field = named;
			if (operation === 'failByExecution') {
				const execution = parameters.text('executionId', i);
				const instance = context.getInstanceId();
				const outcome = await failByExecution(works, item.json, execution, instance, caller);
				placement.place(i, OUTPUT.completed, field, outcome);
				continue;
			}
			const found = await search.find(item, i, {
				field,
				token: parameters.optionText('token', i).trim(),
				workId: parameters.optionText('workId', i).trim(),
			});
			if ('problem' in found) {
				placement.problem(i, field, found.problem, 'refused');
				const answer = shadows.find(item, i, field);
				if (answer !== null && openClaimsIn(answer).length === 0)
					passed.push({ itemIndex: i, field, answer });
				continue;
			}
			const settlement = readSettlement(operation, parameters, item, i, field);
			const failure = failures?.warningFor(item, i) ?? null;
			if (failure !== null) settlement.warnings.push(failure);
			for (const claim of found.claims) settlements.push({ ...settlement, claim });
		} catch (error) {
			placement.problem(i, field, messageOf(error));
		}
	}
	if (passed.length > 0) {
		const warning = await recordPassed(works, operation, passed, items, parameters, caller);
		if (warning !== null) placement.warn(passed, warning);
	}
	if (settlements.length === 0) return;

	try {
		const answers = await settle(works, operation, settlements, caller);
		for (const own of byItem(settlements, answers)) {
			const i = own[0].settlement.itemIndex;
			const { field } = own[0].settlement;
			const accepted = own.every(({ answer }) => isAccepted(answer));
			const value = settledField(operation, own, asWorkField(items[i].json[field]));
			const shadow = shadows.find(items[i], i, field);
			if (shadow !== null) {
				const seen = accepted ? {} : { status: 'shadow', wouldHave: value.status };
				placement.place(i, OUTPUT.completed, field, { ...value, ...seen, shadow: true });
				continue;
			}
			placement.place(i, accepted ? OUTPUT.completed : OUTPUT.notOwner, field, value);
		}
		if (failures?.said) context.addExecutionHints(warning(failures.said));
	} catch (error) {
		const fields = new Map(settlements.map(({ itemIndex, field }) => [itemIndex, field]));
		for (const [i, field] of fields) placement.problem(i, field, messageOf(error));
	}
}

/** Where each item leaves, in the order of the input. */
class Placement {
	readonly problems: Array<{ itemIndex: number; message: string }> = [];
	private readonly placed: Array<{ output: number; item: INodeExecutionData }> = [];

	constructor(
		private readonly items: INodeExecutionData[],
		private readonly onError: OnError,
		readonly shadows: ShadowSearch,
	) {}

	place(itemIndex: number, output: number, field: string, value: IDataObject): void {
		const item = withField(this.items[itemIndex], itemIndex, field, value);
		this.placed[itemIndex] = { output, item };
	}

	problem(itemIndex: number, field: string, message: string, status = 'error'): void {
		const input = this.items[itemIndex];
		const shadow = this.shadows.find(input, itemIndex, field);
		if (shadow !== null) {
			const free = answerStatus(input.json[field]) !== null;
			const name = free ? field : freeFieldName(input.json, field);
			this.place(itemIndex, OUTPUT.completed, name, passedField(shadow, message));
			return;
		}
		this.problems.push({ itemIndex, message });
		if (this.onError === 'errorOutput') {
			const value = withInputError(input, field, { status, message });
			const item = errorOutputItem(itemIndex, input, message, { [field]: value });
			this.placed[itemIndex] = { output: OUTPUT.notOwner, item };
			return;
		}
		// the claim stays on the item: it may come back when the cause is mended
		const own = asWorkField(input.json[field]);
		if (status === 'error' && own !== null && isOpenClaim(own)) {
			this.place(itemIndex, OUTPUT.notOwner, field, { ...own, status, message });
		} else {
			const free = freeFieldName(input.json, field);
			this.place(itemIndex, OUTPUT.notOwner, free, { status, message });
		}
	}

	/** Said on items that were passed on in shadow mode. */
	warn(passed: PassedShadow[], warning: string): void {
		for (const { itemIndex, field } of passed) {
			const { json } = this.placed[itemIndex].item;
			const name = answerStatus(json[`${field}Answer`]) === 'shadow' ? `${field}Answer` : field;
			json[name] = { ...(json[name] as IDataObject), warnings: [warning] };
		}
	}

	outputs(): INodeExecutionData[][] {
		const outputs: INodeExecutionData[][] = OUTPUT_NAMES.map(() => []);
		for (const { output, item } of this.placed) outputs[output].push(item);
		return outputs;
	}
}

/** The name of the field, or the default where the option cannot be read. */
function fieldOf(parameters: Parameters, itemIndex: number): string {
	try {
		const named = parameters.option<string>('field', itemIndex, DEFAULT_FIELD);
		return fieldNameProblem(named) === null ? named : DEFAULT_FIELD;
	} catch {
		return DEFAULT_FIELD;
	}
}

/** The claims of each item stand one behind another. */
function byItem(
	settlements: Settlement[],
	answers: HoldAnswer[],
): Array<Array<{ settlement: Settlement; answer: HoldAnswer }>> {
	const grouped: Array<Array<{ settlement: Settlement; answer: HoldAnswer }>> = [];
	settlements.forEach((settlement, k) => {
		const one = { settlement, answer: answers[k] };
		if (k > 0 && settlements[k - 1].itemIndex === settlement.itemIndex) grouped.at(-1)?.push(one);
		else grouped.push([one]);
	});
	return grouped;
}

function problemError(
	context: IExecuteFunctions,
	problems: ItemProblem[],
	total: number,
): NodeOperationError {
	const others = total - problems.length;
	const rest =
		others > 0
			? `The other ${others} ${others === 1 ? 'item was' : 'items were'} settled.`
			: undefined;
	return problemsError(context, problems, {
		several: 'items could not be settled',
		alone: rest,
		after: rest,
	});
}
