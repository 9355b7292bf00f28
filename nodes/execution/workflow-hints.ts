import type { IExecuteFunctions, NodeExecutionHint } from 'n8n-workflow';

import {
	claimLeftOpen,
	DEFAULT_LEASE_SECONDS,
	NEVER_COMPLETED,
	outlasted,
	ownName,
	settlesClaim,
	waitOf,
	waitOutlastsLease,
	type Words,
} from '../../check';
import { nodesBefore } from './nodes-before';

/** A warning in the output pane; what it says tells what to do. */
export const warning = (message: string): NodeExecutionHint => ({
	message,
	type: 'warning',
	location: 'outputPane',
});

/** In the words and under the name of the workflow check. */
const finding = (rule: { id: string }, node: string, { message, twice, fix }: Words) =>
	warning(`${rule.id} at "${node}": ${message} ${twice} ${fix}`);

/**
 * What the nodes behind a Claim Work will do to its claim. Looked at in runs from the editor only, where the person who
 * builds the workflow sees it. Silent where it cannot be told: loops, sub-workflows.
 */
export function hintsBehindClaim(
	context: IExecuteFunctions,
	leaseSeconds = DEFAULT_LEASE_SECONDS,
): NodeExecutionHint[] {
	if (context.getMode() !== 'manual') return [];
	const { name } = context.getNode();
	const behindOf = (node: string) =>
		context
			.getChildNodes(node, { includeNodeParameters: true })
			.filter((each) => !each.disabled)
			.map((each) => ({ ...each, parameters: each.parameters ?? {} }));
	const behind = behindOf(name);

	const mayBeSettledElsewhere =
		behind.some(({ type }) => /executeWorkflow$/i.test(type)) ||
		context.getExecutionContext()?.parentExecutionId !== undefined ||
		nodesBefore(context).some(({ type }) => /executeWorkflowTrigger$/.test(type));
	if (!mayBeSettledElsewhere && !behind.some(settlesClaim)) {
		return [finding(claimLeftOpen, name, NEVER_COMPLETED)];
	}

	// behind one of these the lease has begun anew, or is over
	const resets = behind.filter(({ type }) => ownName(type) === 'completeWork');
	return behind.flatMap((node) => {
		// the check's own reading goes through n8n's table of operations, which few nodes need
		if (!/\.wait$/.test(node.type) && !/AndWait$/.test(String(node.parameters.operation)))
			return [];
		const seconds = waitOf(node)?.seconds ?? null;
		if (seconds === null || seconds < leaseSeconds) return [];
		const after = behindOf(node.name);
		// a way back to the claim, such as Busy → Wait → Claim Work, holds none while it waits
		const holds = after.some(settlesClaim) && !after.some((each) => each.name === name);
		const isReset = resets.some((each) =>
			context.getChildNodes(each.name).some((child) => child.name === node.name),
		);
		return holds && !isReset
			? [finding(waitOutlastsLease, node.name, outlasted(seconds, leaseSeconds, name))]
			: [];
	});
}

/** What the caller of a webhook gets when no item leaves this node. Null where no webhook waits for an answer. */
export function hintForWaitingCaller(
	context: IExecuteFunctions,
	why: string,
	cure: string,
): NodeExecutionHint | null {
	for (const { name, type, disabled, parameters } of nodesBefore(context)) {
		if (disabled || !/(^|\.)webhook$/.test(type)) continue;
		const { responseMode, responseData = 'firstEntryJson' } = parameters;
		let answer: string;
		if (responseMode === 'responseNode') answer = 'gets an empty answer with status 200';
		else if (responseMode !== 'lastNode') continue;
		else if (/^firstEntry/.test(String(responseData)))
			answer =
				'gets an error (status 500, "No item to return was found"), and most senders then deliver again';
		else answer = 'gets an empty answer';
		return warning(`${why}, and whoever called "${name}" ${answer}. ${cure}`);
	}
	return null;
}
