import type { Rule } from '../finding';
import { isClaim, ownName } from '../knowledge/own-nodes';
import { waitOf } from '../knowledge/waits';

/** What follows a wait that a call ends is not claimed behind it. */
export const waitResumesTwice: Rule = {
	id: 'wait-resumes-twice',
	title: 'A wait that can resume twice before an effect',
	severity: 'warning',
	*find(analysis) {
		const effects = new Map(analysis.effects.map((step) => [step.node.index, step]));
		for (const wait of analysis.workflow.nodes) {
			if (waitOf(wait)?.byCall !== true || !analysis.standingOf(wait).reached) continue;
			const behind = analysis.graph.reachable(
				analysis.graph.next[wait.index],
				(node) => node.disabled || !(isClaim(node) || ownName(node.type) === 'sendOnceTelegram'),
			);
			for (const at of behind) {
				const step = effects.get(at);
				if (step === undefined || at === wait.index) continue;
				if (step.effect.repeats === 'converges' || step.effect.key !== null) continue;
				yield {
					node: wait,
					severity: 'warning',
					message: `"${step.node.name}" follows this wait without a claim in between: ${step.effect.what}.`,
					twice:
						'The link to resume is opened twice (a second click, a link preview), or a resumed run starts over from the top: what follows happens again, under the old claim or none.',
					fix: 'Put Claim Work behind the wait, with the key of what was approved. For approvals: Check Evidence Gate behind the wait, so that a bare call without approver does not pass.',
				};
				break;
			}
		}
	},
};
