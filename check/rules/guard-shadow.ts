import type { Rule } from '../finding';
import { isShadowClaim } from '../knowledge/own-nodes';

export const guardShadow: Rule = {
	id: 'guard-shadow',
	title: 'A Claim in shadow mode',
	severity: 'warning',
	*find({ workflow }) {
		for (const node of workflow.nodes) {
			if (node.disabled || !isShadowClaim(node)) continue;
			yield {
				node,
				severity: 'warning',
				message: 'Claim Work is in shadow mode: it reports, and lets every item through.',
				twice: 'Both runs pass, and the second is counted as one that would have been saved.',
				fix: 'When you have seen enough (Work Ledger, Statistics), set its Mode to Guard.',
			};
		}
	},
};
