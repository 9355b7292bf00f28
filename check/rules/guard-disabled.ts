import type { Rule } from '../finding';
import { ownName } from '../knowledge/own-nodes';
import { isGuard, nameOfGuard } from './guards';

export const guardDisabled: Rule = {
	id: 'guard-disabled',
	title: 'A Claim, Gate or Send-Once that is disabled',
	severity: 'error',
	*find({ workflow }) {
		for (const node of workflow.nodes) {
			if (!node.disabled || !isGuard(node)) continue;
			const sends = ownName(node.type) === 'sendOnceTelegram';
			yield {
				node,
				severity: 'error',
				message: `${nameOfGuard(node)} is disabled: n8n hands every item on to the first output, unchecked.`,
				twice: sends
					? 'The message is not sent at all, and what follows goes on as if it had been.'
					: 'Both runs pass, and so does what should have been held back.',
				fix: 'Enable it, or delete it together with what it guards.',
			};
		}
	},
};
