import type { Rule } from '../finding';
import { isGuard, nameOfGuard } from './guards';

export const guardAlwaysOutputData: Rule = {
	id: 'guard-always-output-data',
	title: 'A Claim, Gate or Send-Once with Always Output Data',
	severity: 'warning',
	*find({ workflow }) {
		for (const node of workflow.nodes) {
			if (node.disabled || !node.alwaysOutputData || !isGuard(node)) continue;
			yield {
				node,
				severity: 'warning',
				message: `${nameOfGuard(node)} has Always Output Data: n8n would send an empty item to the next step when nothing passed, so the node stops the workflow instead.`,
				twice:
					'The second delivery gets an error instead of the original result, and its sender tries again and again.',
				fix: 'Switch Always Output Data off in the settings of this node.',
			};
		}
	},
};
