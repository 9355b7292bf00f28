import type { Rule } from '../finding';
import { way } from './wording';

/** The claim is completed before the effect has happened. */
export const completedBeforeEffect: Rule = {
	id: 'completed-before-effect',
	title: 'A claim is completed before its effect',
	severity: 'error',
	*find(analysis) {
		const calls = analysis.callsWithEffects.map(({ node, what }) => ({
			node,
			effect: { what, kind: 'record', repeats: 'doubles', certain: true },
		}));
		for (const { node, effect } of [...analysis.effects, ...calls]) {
			for (const { noClaim, way: names } of analysis.standingOf(node).openings) {
				if (noClaim !== 'settled-empty' && noClaim !== 'settled') continue;
				// behind finished work: a message is at worst lost, never doubled; an update is made again
				const harmless = effect.kind === 'message' || effect.repeats === 'converges';
				if (noClaim === 'settled' && harmless) continue;
				const first = noClaim === 'settled-empty';
				yield {
					node,
					severity: first && effect.certain ? 'error' : 'warning',
					message: `${effect.what} comes after the completion of its claim: ${way(names)}.`,
					twice: first
						? 'If this step fails or the process dies, the work counts as done: every repetition is a duplicate, and the effect never happens.'
						: 'If the process dies behind the completion, the work counts as done and this step is never made up for.',
					fix: first
						? 'Put Complete Work behind this step, and Complete Work (Fail) behind its error output.'
						: 'Put Complete Work behind the last step that has to happen, or give this step a claim of its own.',
				};
				break;
			}
		}
	},
};
