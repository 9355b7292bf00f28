import type { Rule } from '../finding';

/** Nobody hears of a failure. */
export const failureUnhandled: Rule = {
	id: 'failure-unhandled',
	title: 'Nothing handles failure',
	severity: 'warning',
	*find(analysis) {
		const { workflow, graph, effects } = analysis;
		if (workflow.errorWorkflow !== null || analysis.isSubWorkflow) return;
		// an error workflow has nobody behind it
		if (analysis.startsOf('error').length > 0) return;
		const acting = effects.filter(({ node }) => analysis.standingOf(node).reached);
		if (acting.length === 0) return;
		const handled = workflow.nodes.some(
			(node) =>
				!node.disabled &&
				node.onError === 'errorOutput' &&
				graph.next[node.index].some(({ output }) => output > 0),
		);
		if (handled) return;
		yield {
			node: null,
			severity: 'warning',
			message: `It has ${acting.length === 1 ? 'a step' : `${acting.length} steps`} with effects, no error workflow, and no step with a connected error output.`,
			twice:
				'A run that dies halfway is seen by nobody; the sender delivers it again, and what had happened before the failure happens twice.',
			fix: 'Settings → Error workflow: one that begins with an Error Trigger and holds Complete Work (Fail by Execution); and Work Ledger Trigger (dead letters) tells a person what was given up.',
		};
	},
};
