import type { Rule } from '../finding';

/** A sub-workflow that the check has not seen. */
export const workflowNotGiven: Rule = {
	id: 'workflow-not-given',
	title: 'A sub-workflow that was not given',
	severity: 'note',
	*find(analysis) {
		const tools = new Set(
			analysis.workflow.connections
				.filter(({ kind }) => kind === 'ai_tool')
				.map(({ from }) => from),
		);
		for (const node of analysis.workflow.nodes) {
			if (node.disabled || analysis.stepAt(node).does !== 'calls-workflow') continue;
			const called = analysis.calledBy(node);
			if (called !== null && called.survey !== null) continue;
			const open = tools.has(node.index) || analysis.unguardedWays(node).length > 0;
			if (!open) continue;
			yield {
				node,
				severity: 'note',
				message:
					called === null
						? 'It calls a workflow that an expression, a file or an address names, so its effects are unknown.'
						: `It calls "${called.name}", which was not given, so its effects are unknown.`,
				twice:
					'Whatever the called workflow does is done again, unless it holds a claim of its own.',
				fix: 'Check both together: give the file or folder of the called workflow, too.',
			};
		}
	},
};
