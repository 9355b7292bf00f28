import type { Analysis } from '../analysis';
import type { Rule } from '../finding';
import type { WorkflowNode } from '../workflow';
import { effectOfTool } from './tools';
import { some } from './wording';

/** Retry On Fail on an effect that the target cannot tell from its repetition. */
export const retryRepeatsEffect: Rule = {
	id: 'retry-repeats-effect',
	title: 'Retry On Fail on an unguarded effect',
	severity: 'error',
	*find(analysis) {
		for (const { node, effect } of analysis.effects) {
			if (!node.retryOnFail || effect.repeats === 'converges' || effect.key !== null) continue;
			if (!analysis.standingOf(node).reached) continue;
			const open = analysis.unguardedWays(node).length > 0;
			yield {
				node,
				severity: open && effect.certain ? 'error' : 'warning',
				message: `Retry On Fail repeats it: ${effect.what}.${open ? '' : ' The claim before it does not see these tries.'}`,
				twice:
					'A time-out after the target has acted looks like a failure: n8n sends it again, up to five times.',
				fix: 'Switch Retry On Fail off. Let the error output lead to Complete Work (Fail, "It May Have"): the claim decides on a later attempt. Or send an idempotency key with it: {{ $json.work.workId }}.',
			};
		}
		for (const { node, what } of [...analysis.callsWithEffects, ...agentsWithEffects(analysis)]) {
			if (!node.retryOnFail) continue;
			yield {
				node,
				severity: analysis.unguardedWays(node).length > 0 ? 'error' : 'warning',
				message: `Retry On Fail repeats all of it: ${what}.`,
				twice:
					'When a later part fails, the earlier parts have happened already: the next try starts from the beginning and does them again.',
				fix: 'Switch Retry On Fail off, or give each effect inside a claim of its own: Claim Work → effect → Complete Work. A second try then finds it done.',
			};
		}
	},
};

/** Agents whose tools have effects: a new try does not know which of them were called. */
function agentsWithEffects(analysis: Analysis): Array<{ node: WorkflowNode; what: string }> {
	return analysis.workflow.nodes.flatMap((node) => {
		if (node.disabled || analysis.stepAt(node).does !== 'agent') return [];
		const tools = analysis.graph
			.subNodesOf(node)
			.filter(
				(sub) => sub.kind === 'ai_tool' && effectOfTool(analysis, sub.node)?.certain === true,
			);
		if (tools.length === 0) return [];
		return [
			{ node, what: `the agent may have called ${some(tools.map((tool) => tool.node.name))}` },
		];
	});
}
