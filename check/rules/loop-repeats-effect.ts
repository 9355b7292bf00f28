import type { Analysis, EffectStep } from '../analysis';
import type { Rule } from '../finding';
import { shortOf } from '../knowledge/node-type';
import { isClaim, settlesClaim } from '../knowledge/own-nodes';

/** An unguarded effect inside a loop. */
export const loopRepeatsEffect: Rule = {
	id: 'loop-repeats-effect',
	title: 'A loop over an unguarded effect',
	severity: 'error',
	*find(analysis) {
		yield* triedAgain(analysis);
		const doubling = analysis.effects.filter(
			({ effect }) => effect.repeats === 'doubles' && effect.key === null,
		);
		const open = [
			...doubling.map(({ node, effect }) => ({ node, ...effect })),
			...analysis.callsWithEffects.map((call) => ({ ...call, certain: true })),
		].filter(({ node }) => analysis.unguardedWays(node).length > 0);
		if (open.length === 0) return;
		const circles = analysis.graph.onCircles();
		for (const { node, what, certain } of open) {
			if (!circles.has(node.index)) continue;
			yield {
				node,
				severity: certain ? 'error' : 'warning',
				message: `It stands in a loop, without a claim: ${what}.`,
				twice:
					'When round 40 of 100 fails, the next run starts with round 1, and the first 39 happen again.',
				fix: 'Claim Work inside the loop, directly before this step, with the key of the single item; Complete Work behind it. A new run then skips what is done.',
			};
		}
	},
};

/** Effects whose error output leads back to them, with the item and the claim that they had. */
function* triedAgain(analysis: Analysis): ReturnType<Rule['find']> {
	for (const step of analysis.effects) {
		const { node, effect } = step;
		if (effect.repeats === 'converges' || effect.key !== null || !leadsBack(analysis, step))
			continue;
		// without a claim it is reported as any other loop
		if (analysis.unguardedWays(node).length > 0 || !analysis.standingOf(node).reached) continue;
		yield {
			node,
			severity: 'warning',
			message: `Its error output leads back to it: ${effect.what}. The claim before it does not see these tries.`,
			twice:
				'A time-out after the target has acted looks like a failure: each round does it once more.',
			fix: 'Let the error output lead to Complete Work (Fail, "It May Have"): the claim decides on a later attempt, and Work Ledger Trigger brings it back. Or send an idempotency key with it: {{ $json.work.workId }}.',
		};
	}
}

function leadsBack({ graph }: Analysis, { node }: EffectStep): boolean {
	if (node.onError !== 'errorOutput') return false;
	const errors = graph.next[node.index].filter(({ output }) => output > 0);
	// behind these it is another item, or another claim
	const ends = (each: typeof node) =>
		!each.disabled &&
		(isClaim(each) || settlesClaim(each) || shortOf(each.type) === 'splitInBatches');
	return graph.reachable(errors, (each) => !ends(each)).has(node.index);
}
