import type { Analysis } from '../analysis';
import type { Rule } from '../finding';
import { failsClaim, settlesClaim } from '../knowledge/own-nodes';
import type { WorkflowNode } from '../workflow';

/** A guarded effect whose failure leaves the claim open. */
export const failureNotSettled: Rule = {
	id: 'failure-not-settled',
	title: 'A guarded effect whose error output does not lead to a fail',
	severity: 'warning',
	*find(analysis) {
		// in a sub-workflow n8n's Retry starts at the caller, and so passes the claim again
		if (analysis.claims.length === 0 || analysis.isSubWorkflow) return;
		const failing = analysis.graph.leadingTo(failsClaim);
		for (const node of guardedSteps(analysis)) {
			const outputs = analysis.graph.next[node.index];
			const errors =
				node.onError === 'stop'
					? []
					: node.onError === 'errorOutput'
						? outputs.filter(({ output }) => output > 0)
						: outputs;
			if (errors.some(({ to }) => failing.has(to))) continue;
			const settledLater = node.onError === 'stop' && analysis.workflow.errorWorkflow !== null;
			yield {
				node,
				severity: settledLater ? 'note' : 'warning',
				message: `${message(node)}${settledLater ? ' An error workflow is set: it settles the claim if it holds Complete Work (Fail by Execution).' : ''}`,
				twice:
					node.onError === 'continue'
						? 'A failure goes on as if it had succeeded; the work counts as done, and no repetition makes up for it.'
						: "n8n's Retry of the failed execution starts at this very step with the old token and does not pass Claim Work again: two runs may do it side by side.",
				fix: 'Set On Error of this node to "Continue (using error output)" and connect the error output to Complete Work (Fail).',
			};
		}
	},
};

function* guardedSteps(analysis: Analysis): Generator<WorkflowNode> {
	const settling = analysis.graph.leadingTo(settlesClaim);
	for (const { node, effect } of analysis.effects) {
		const { reached, openings, claimedHere } = analysis.standingOf(node);
		if (!reached || !claimedHere || openings.length > 0) continue;
		// news beside the work (to a log, or of a failure): the work's own completion does not wait for it
		const isBeside = !analysis.graph.next[node.index].some(({ to }) => settling.has(to));
		if (effect.kind === 'message' && isBeside && analysis.effects.length > 1) continue;
		yield node;
	}
	for (const node of analysis.workflow.nodes) {
		if (node.disabled || analysis.stepAt(node).does !== 'calls-workflow') continue;
		const { reached, openings, claimedHere } = analysis.standingOf(node);
		const called = analysis.calledBy(node)?.survey ?? null;
		const acts = called === null || called.openEffects.length > 0;
		if (acts && reached && claimedHere && openings.length === 0) yield node;
	}
}

function message({ onError }: WorkflowNode): string {
	switch (onError) {
		case 'stop':
			return 'When it fails, the execution ends and its claim stays open until the lease ends.';
		case 'continue':
			return 'On Error is "Continue": a failure leaves by the regular output, and nothing behind it fails the claim.';
		case 'errorOutput':
			return 'Its error output does not lead to Complete Work (Fail) or (Release).';
	}
}
