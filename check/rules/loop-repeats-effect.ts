import type { Rule } from '../finding';

/** An unguarded effect inside a loop. */
export const loopRepeatsEffect: Rule = {
	id: 'loop-repeats-effect',
	title: 'A loop over an unguarded effect',
	severity: 'error',
	*find(analysis) {
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
