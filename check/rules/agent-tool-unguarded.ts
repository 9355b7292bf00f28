import type { Analysis } from '../analysis';
import type { Found, Rule } from '../finding';
import { startKindOf } from '../knowledge/starts';
import type { WorkflowNode } from '../workflow';
import { effectOfTool } from './tools';

/** An agent holds a tool with an effect that nothing guards. */
export const agentToolUnguarded: Rule = {
	id: 'agent-tool-unguarded',
	title: 'An agent holds a tool with an effect and without a guard',
	severity: 'error',
	*find(analysis) {
		for (const root of analysis.workflow.nodes) {
			if (root.disabled) continue;
			const isRoot = analysis.stepAt(root).does === 'agent' || startKindOf(root) !== null;
			if (!isRoot) continue;
			for (const { node: tool, kind } of analysis.graph.subNodesOf(root)) {
				const found = kind === 'ai_tool' ? effectOfTool(analysis, tool) : null;
				if (found === null) continue;
				yield {
					node: tool,
					severity: found.certain && !isGuarded(analysis, root) ? 'error' : 'warning',
					message: `"${root.name}" may call it: ${found.what}, without a guard.`,
					twice:
						'A model calls a tool again when it is unsure, and a repeated run forgets what was called: each call has its effect anew.',
					fix: 'Make the tool one sub-workflow: Claim Work → effect → Complete Work, with a key from its arguments. A second call then reads "already done". For Telegram: Send-Once Telegram as the tool.',
				} satisfies Found;
			}
		}
	},
};

/** Whether the agent itself runs once; its tools may still be called more than once in that run. */
function isGuarded(analysis: Analysis, root: WorkflowNode): boolean {
	const { reached, openings } = analysis.standingOf(root);
	return reached && startKindOf(root) === null && openings.length === 0;
}
