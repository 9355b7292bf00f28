import type { Analysis } from '../analysis';
import { claimKeys, type KeyText } from '../knowledge/keys';
import type { WorkflowNode } from '../workflow';

/** Every key in a workflow: of its claims, and those that its calls send along. */
export function* keysOf(analysis: Analysis): Generator<{ node: WorkflowNode; key: KeyText }> {
	for (const node of analysis.claims) {
		for (const key of claimKeys(node)) yield { node, key };
	}
	for (const node of analysis.workflow.nodes) {
		const step = analysis.stepAt(node);
		if (node.disabled || step.does !== 'writes' || step.effect.key === null) continue;
		const { name, raw } = step.effect.key;
		yield { node, key: { where: name, raw, isFieldList: false } };
	}
}
