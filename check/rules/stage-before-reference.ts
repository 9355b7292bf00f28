import type { Rule } from '../finding';
import { way } from './wording';

/** A record is moved along before the reference of what was created stands anywhere. */
export const stageBeforeReference: Rule = {
	id: 'stage-before-reference',
	title: 'A record moves stage before its reference is written back',
	severity: 'warning',
	*find(analysis) {
		for (const { node, effect } of analysis.effects) {
			const { unwrittenReference } = analysis.standingOf(node);
			if (unwrittenReference === null || effect.repeats !== 'converges') continue;
			if (!analysis.movesStage(node)) continue;
			yield {
				node,
				severity: 'warning',
				message: `It moves the record along before the id of what was created has been written back: ${way(unwrittenReference)}.`,
				twice:
					'If the process dies in between, the stage says that it was done and nobody can say what; moved back and forward again, it is created once more.',
				fix: 'Directly behind the step that creates: Complete Work (Record Reference). Then write the id to the record, let Check Evidence Gate require it, and move the stage last.',
			};
		}
	},
};
