import type { IExecuteFunctions, INodeExecutionData, IRunExecutionData } from 'n8n-workflow';

import { resultText } from '../../ledger';
import { lineageOf } from '../execution/lineage';
import { CLAIM_NODE_TYPES } from './find-claim';

const SHOWN = 200;

/**
 * Whether an item that is to be completed came out of a failure. Under "Continue" n8n sends a failure out as if it had
 * succeeded: as an item with `error`, or, where the step threw, as the very item that went in. It is completed all the
 * same, since only the person who built the flow knows whether the effect landed; but it is said.
 */
export class FailuresBefore {
	/** Runs of steps in this execution that failed and did not stop it, as `run name`. */
	private readonly failed: ReadonlySet<string>;
	private readonly claimNodes: ReadonlySet<string>;
	/** The first warning, for the person who builds the flow. */
	said: string | null = null;

	constructor(private readonly context: IExecuteFunctions) {
		// not part of n8n's declared interface, so it may be missing
		const { runExecutionData } = context as unknown as { runExecutionData?: IRunExecutionData };
		const runs = Object.entries(runExecutionData?.resultData?.runData ?? {});
		this.failed = new Set(
			runs.flatMap(([name, tasks]) =>
				tasks.flatMap(({ error }, run) => (error === undefined ? [] : [`${run} ${name}`])),
			),
		);
		this.claimNodes = new Set(
			this.failed.size === 0
				? []
				: context
						.getParentNodes(context.getNode().name)
						.flatMap(({ name, type }) => (CLAIM_NODE_TYPES.test(type) ? [name] : [])),
		);
	}

	/** What to say of the item; null where nothing failed. */
	warningFor(input: INodeExecutionData, itemIndex: number): string | null {
		const error = errorOn(input);
		const step = error === null ? this.failedStep(itemIndex) : null;
		if (error === null && step === null) return null;
		const what = error === null ? `"${step}" failed` : `this item came with an error (${error})`;
		const warning = `Completed, although ${what}: if its effect did not land, it is remembered as done all the same, and no repetition makes up for it. Set On Error of that step to "Continue (using error output)" and connect the error output to a Complete Work with the operation Fail.`;
		this.said ??= warning;
		return warning;
	}

	/** A failed step between the claim and here that this item passed. */
	private failedStep(itemIndex: number): string | null {
		if (this.failed.size === 0) return null;
		let found: string | null = null;
		lineageOf(
			this.context,
			itemIndex,
			(name) => this.claimNodes.has(name),
			(name, _, run) => {
				if (this.failed.has(`${run} ${name}`) && !this.claimNodes.has(name)) found ??= name;
			},
		);
		return found;
	}
}

/** The error on an item in words; null where there is none. An empty text or list, 0 and false are how some say "none". */
function errorOn({ json, error: ofItem }: INodeExecutionData): string | null {
	const error: unknown = ofItem ?? json.error;
	if (!error) return null;
	if (typeof error !== 'object') return String(error).slice(0, SHOWN);
	const { message } = error as { message?: unknown };
	if (typeof message === 'string' && message !== '') return message.slice(0, SHOWN);
	return Object.keys(error).length === 0 ? null : (resultText(error).text ?? '').slice(0, SHOWN);
}
