import type {
	IDataObject,
	IExecuteFunctions,
	INodeExecutionData,
	NodeOperationError,
} from 'n8n-workflow';

import { asDecisionField, freeDecisionField, openDecision } from '../execution/decision-field';
import { inputOf, toolItem, toolValue } from '../execution/agent-tool';
import { errorOutputItem, isTool, onErrorOf } from '../execution/failing-closed';
import { problemsError, type ItemProblem } from '../execution/problems';
import { withField, withInputError } from '../execution/work-field';

export interface PlacedProblem extends ItemProblem {
	field: string;
	/** `error`: the ledger could not be asked; else the item cannot be used. */
	status: 'refused' | 'error';
}

/** Where each item leaves, in the order of the input. */
export class Placement {
	readonly problems: PlacedProblem[] = [];
	private readonly placed: Array<{ output: number; item: INodeExecutionData } | undefined>;
	private readonly items: INodeExecutionData[];
	private readonly tool: boolean;

	/** @param names The operation's outputs; what is in doubt leaves by the last. */
	constructor(
		private readonly context: IExecuteFunctions,
		private readonly names: readonly string[],
	) {
		this.items = inputOf(context);
		this.placed = new Array<undefined>(this.items.length);
		this.tool = isTool(context);
	}

	/** Whether a problem stops the workflow. */
	get stops(): boolean {
		return onErrorOf(this.context) === 'stop' && !this.tool;
	}

	place(itemIndex: number, output: number, field: string, value: IDataObject): void {
		const item = this.tool
			? toolItem(itemIndex, toolText(value), { [field]: value })
			: withField(this.items[itemIndex], itemIndex, field, value);
		this.placed[itemIndex] = { output: this.tool ? 0 : output, item };
	}

	problem(problem: PlacedProblem): void {
		this.problems.push(problem);
		const { itemIndex, field, message, status } = problem;
		const input = this.items[itemIndex];
		const last = this.names.length - 1;
		if (onErrorOf(this.context) === 'errorOutput' && !this.tool) {
			const value = withInputError(input, field, { status, message });
			const item = errorOutputItem(itemIndex, input, message, { [field]: value });
			this.placed[itemIndex] = { output: last, item };
			return;
		}
		// the question stays on the item: it may come back when the cause is mended
		const open = asDecisionField(input.json[field]);
		if (status === 'error' && openDecision(open) !== null) {
			this.place(itemIndex, last, field, { ...open, status, message });
		} else {
			this.place(itemIndex, last, freeDecisionField(input.json, field), { status, message });
		}
	}

	/** Throw it where problems stop the workflow. */
	error(nothingElse: string): NodeOperationError {
		return problemsError(this.context, this.problems, {
			several: 'items have a problem',
			alone: nothingElse,
			after: nothingElse,
		});
	}

	outputs(): INodeExecutionData[][] {
		const outputs: INodeExecutionData[][] = this.names.map(() => []);
		for (const placed of this.placed) {
			if (placed !== undefined) outputs[placed.output].push(placed.item);
		}
		return outputs;
	}
}

/** What an agent reads: the sentence, and the value where there is one to go by. */
function toolText(value: IDataObject): string {
	const handedOut = ['replay', 'stored', 'superseded', 'approved'].includes(String(value.status));
	return `${String(value.message)}${handedOut ? toolValue('Decision', value.value) : ''}`;
}
