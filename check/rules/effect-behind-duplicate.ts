import type { Rule } from '../finding';
import { way } from './wording';

/** An effect behind Duplicate, Busy, Needs Attention or Error: those items hold no claim. */
export const effectBehindDuplicate: Rule = {
	id: 'effect-behind-duplicate',
	title: 'An effect for items that were refused a claim',
	severity: 'error',
	*find(analysis) {
		for (const { node, effect } of analysis.effects) {
			const opening = analysis
				.standingOf(node)
				.openings.find(({ noClaim }) => noClaim === 'refused');
			// telling somebody about a duplicate, or writing its reference once more, is what those outputs are for
			if (opening === undefined || effect.kind === 'message') continue;
			if (effect.repeats === 'converges') continue;
			yield {
				node,
				severity: effect.certain ? 'error' : 'warning',
				message: `${effect.what} stands behind an output of Claim Work other than Claimed: ${way(opening.way)}.`,
				twice:
					'Exactly the duplicates run it: it happens again because it is known to have happened.',
				fix: 'Connect it to the output Claimed. Behind Duplicate, use the stored result: {{ $json.work.result }}.',
			};
		}
	},
};
