import {
	NodeConnectionTypes,
	type NodeOperationError,
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
	nodeError,
	onErrorOf,
	refuseEmptyFirstOutput,
} from '../execution/failing-closed';
import { Parameters } from '../execution/parameters';
import {
	asWorkField,
	DEFAULT_FIELD,
	fieldNameProblem,
	freeFieldName,
	isOpenClaim,
	withField,
} from '../execution/work-field';
import { failByExecution } from './fail-by-execution';
import { ClaimSearch } from './find-claim';
import { OUTPUT, OUTPUT_NAMES, isAccepted, settledField } from './answer';
import { properties, type Operation } from './properties';
import { readSettlement, settle, type Settlement } from './settle';

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
		const items = this.getInputData();
		const onError = onErrorOf(this);
		const parameters = new Parameters(this);
		const operation = parameters.read<Operation>('operation', 0, 'complete');
		const caller = callerOf(this);
		const placed: Array<{ output: number; item: INodeExecutionData }> = [];
		const problems: Array<{ itemIndex: number; message: string }> = [];

		const place = (itemIndex: number, output: number, field: string, value: IDataObject) => {
			placed[itemIndex] = { output, item: withField(items[itemIndex], itemIndex, field, value) };
		};
		const placeProblem = (itemIndex: number, field: string, message: string, status = 'error') => {
			problems.push({ itemIndex, message });
			if (onError === 'errorOutput') {
				placed[itemIndex] = {
					output: OUTPUT.notOwner,
					item: errorOutputItem(itemIndex, items[itemIndex], message, {
						[field]: { status, message },
					}),
				};
				return;
			}
			// the claim stays on the item: it may come back when the cause is mended
			const { json } = items[itemIndex];
			const own = asWorkField(json[field]);
			if (status === 'error' && own !== null && isOpenClaim(own)) {
				place(itemIndex, OUTPUT.notOwner, field, { ...own, status, message });
			} else {
				place(itemIndex, OUTPUT.notOwner, freeFieldName(json, field), { status, message });
			}
		};

		let ledger: Ledger | null = null;
		try {
			ledger = await ledgerOf(this);
		} catch (error) {
			items.forEach((_, i) => placeProblem(i, fieldOf(parameters, i), messageOf(error)));
		}

		const settlements: Settlement[] = [];
		const search = ledger === null ? null : new ClaimSearch(this, ledger);
		for (let i = 0; i < items.length && ledger !== null && search !== null; i++) {
			let field = DEFAULT_FIELD;
			try {
				const named = parameters.option<string>('field', i, DEFAULT_FIELD);
				const nameProblem = fieldNameProblem(named);
				if (nameProblem !== null) {
					placeProblem(i, field, nameProblem);
					continue;
				}
				field = named;
				if (operation === 'failByExecution') {
					const outcome = await failByExecution(
						ledger.works,
						items[i].json,
						parameters.text('executionId', i),
						this.getInstanceId(),
						caller,
					);
					place(i, OUTPUT.completed, field, outcome);
					continue;
				}
				const found = await search.find(items[i], i, {
					field,
					token: optionText(parameters, 'token', i),
					workId: optionText(parameters, 'workId', i),
				});
				if ('problem' in found) {
					placeProblem(i, field, found.problem, 'refused');
					continue;
				}
				const settlement = readSettlement(operation, parameters, items[i], i, field);
				for (const claim of found.claims) settlements.push({ ...settlement, claim });
			} catch (error) {
				placeProblem(i, field, messageOf(error));
			}
		}

		if (ledger !== null && settlements.length > 0) {
			try {
				const answers = await settle(ledger.works, operation, settlements, caller);
				for (const [itemIndex, own] of byItem(settlements, answers)) {
					const { field } = own[0].settlement;
					const value = settledField(operation, own, asWorkField(items[itemIndex].json[field]));
					place(
						itemIndex,
						own.every(({ answer }) => isAccepted(answer)) ? OUTPUT.completed : OUTPUT.notOwner,
						field,
						value,
					);
				}
			} catch (error) {
				const fields = new Map(settlements.map(({ itemIndex, field }) => [itemIndex, field]));
				for (const [itemIndex, field] of fields) {
					placeProblem(itemIndex, field, messageOf(error));
				}
			}
		}

		// what could be settled is settled: an effect that landed must be on record even if another item has a problem
		if (problems.length > 0 && onError === 'stop') throw problemError(this, problems, items.length);
		const outputs: INodeExecutionData[][] = OUTPUT_NAMES.map(() => []);
		for (const { output, item } of placed) outputs[output].push(item);
		const empty = refuseEmptyFirstOutput(this, outputs, OUTPUT_NAMES[OUTPUT.completed]);
		if (empty !== null) throw empty;
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

function optionText(parameters: Parameters, name: string, itemIndex: number): string {
	const value = parameters.option<unknown>(name, itemIndex, '');
	return value === undefined || value === null ? '' : String(value).trim();
}

function byItem(
	settlements: Settlement[],
	answers: HoldAnswer[],
): Map<number, Array<{ settlement: Settlement; answer: HoldAnswer }>> {
	const grouped = new Map<number, Array<{ settlement: Settlement; answer: HoldAnswer }>>();
	settlements.forEach((settlement, k) => {
		const own = grouped.get(settlement.itemIndex) ?? [];
		own.push({ settlement, answer: answers[k] });
		grouped.set(settlement.itemIndex, own);
	});
	return grouped;
}

function problemError(
	context: IExecuteFunctions,
	problems: Array<{ itemIndex: number; message: string }>,
	total: number,
): NodeOperationError {
	const [first] = problems;
	const others = total - problems.length;
	const rest =
		others > 0 ? ` The other ${others} ${others === 1 ? 'item was' : 'items were'} settled.` : '';
	if (problems.length === 1) {
		return nodeError(context, first.message, {
			description: rest.trim() || undefined,
			itemIndex: first.itemIndex,
		});
	}
	const shown = problems
		.slice(0, 20)
		.map(({ itemIndex, message }) => `Item ${itemIndex}: ${message}`);
	return nodeError(context, `${problems.length} items could not be settled`, {
		description: `${shown.join(' ')}${problems.length > 20 ? ` (and ${problems.length - 20} more)` : ''}${rest}`,
		itemIndex: first.itemIndex,
	});
}

function messageOf(error: unknown): string {
	return error instanceof Error ? error.message : String(error);
}
