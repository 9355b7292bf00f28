import type { Rule } from '../finding';
import { isClaim } from '../knowledge/own-nodes';
import { isSchedule } from '../knowledge/starts';
import { some } from './wording';

/** A schedule that may fire while its last run is still at work. */
export const scheduleOverlaps: Rule = {
	id: 'schedule-overlaps',
	title: 'A schedule that can overlap itself',
	severity: 'warning',
	*find(analysis) {
		const open = [
			...analysis.effects.filter(({ effect }) => effect.repeats === 'doubles'),
			...analysis.callsWithEffects,
		].filter(({ node }) => analysis.unguardedWays(node).length > 0);
		if (open.length === 0) return;
		for (const node of analysis.startsOf('automatic')) {
			if (!isSchedule(node)) continue;
			const reached = analysis.graph.reachable(
				analysis.graph.next[node.index],
				(each) => each.disabled || !isClaim(each),
			);
			const hit = open.filter((step) => reached.has(step.node.index));
			if (hit.length === 0) continue;
			yield {
				node,
				severity: 'warning',
				message: `Nothing keeps its runs apart, and they reach ${some(hit.map((step) => step.node.name))} without a claim.`,
				twice:
					'A run that takes longer than the interval meets the next one, and two main instances both fire: both read the same open items and both act on them.',
				fix: 'Directly behind the schedule: Claim Work with a fixed key and Remember "Only While It Runs" (a lock), Complete Work at the end; or a claim per item before each effect.',
			};
		}
	},
};
