import type { Analysis } from '../analysis';
import type { Rule } from '../finding';
import { ownName } from '../knowledge/own-nodes';
import type { WorkflowNode } from '../workflow';
import { way } from './wording';

/** A model's answer is acted on without having been stored first. */
export const answerNotStored: Rule = {
	id: 'answer-not-stored',
	title: "A model's answer is applied without being stored first",
	severity: 'warning',
	*find(analysis) {
		for (const node of acting(analysis)) {
			const { unstoredAnswer } = analysis.standingOf(node);
			if (unstoredAnswer === null) continue;
			yield {
				node,
				severity: 'warning',
				message: `What a model answered is applied here without having been stored: ${way(unstoredAnswer)}.`,
				twice:
					'The model is asked again and answers differently: the second run does something else, and nobody can say what the first one was told.',
				fix: 'Decide, store, then apply: Cache LLM Decision (Look Up) before the model, (Store) behind it, and this step behind Stored and Replay.',
			};
		}
	},
};

function* acting(analysis: Analysis): Generator<WorkflowNode> {
	for (const { node } of analysis.effects) yield node;
	// another answer is another text, and so another message
	for (const node of analysis.workflow.nodes) {
		if (ownName(node.type) === 'sendOnceTelegram' && !node.disabled) yield node;
	}
}
