import type { Analysis } from '../analysis';
import type { Rule } from '../finding';
import { joinsInputs } from '../knowledge/merge';
import { shortOf } from '../knowledge/node-type';
import { isClaim, ownName, settlesClaim } from '../knowledge/own-nodes';
import { isSchedule } from '../knowledge/starts';
import type { WorkflowNode } from '../workflow';
import { some } from './wording';

/** A lock is the only claim between an event and its effect. */
export const lockForgets: Rule = {
	id: 'lock-forgets',
	title: 'An event guarded by a lock only',
	severity: 'warning',
	*find(analysis) {
		const doubling = analysis.effects.filter(
			({ effect }) => effect.repeats === 'doubles' && effect.key === null && effect.certain,
		);
		const locks = analysis.claims.filter(isLock);
		if (doubling.length === 0 || locks.length === 0) return;
		const events = analysis
			.startsOf('automatic')
			.filter((node) => !isSchedule(node) && !OF_N8N_ITSELF.test(shortOf(node.type)));
		if (events.length === 0) return;
		const unclaimed = analysis.graph.reachable(
			events.flatMap(({ index }) => analysis.graph.next[index]),
			(node) => node.disabled || !isClaim(node) || isLock(node),
		);
		const underLocks = underALockAlone(
			analysis,
			locks.filter(({ index }) => unclaimed.has(index)),
		);
		for (const lock of locks) {
			const steps = doubling.filter(({ node }) => underLocks.get(node.index) === lock);
			if (steps.length === 0) continue;
			yield {
				node: lock,
				severity: 'warning',
				message: `Remember is "Only While It Runs", and no other claim stands before ${some(steps.map(({ node }) => node.name))}.`,
				twice:
					'In the same second one of two gets it. A delivery that is repeated a minute later, when the first has ended, finds nothing remembered and does it again.',
				fix: 'Set Remember to "Forever", or "For a Time After It Is Done" (longer than any sender repeats). A lock is for runs that have to be kept apart: put a claim with the key of the single piece of work behind it.',
			};
		}
	},
};

/** Starts that nobody delivers twice. */
const OF_N8N_ITSELF = /^(?:n8nTrigger|workflowTrigger)$/;

const isLock = ({ parameters }: WorkflowNode): boolean => parameters.window === 'while_running';

/** Nodes that can hold back what somebody looked up before. */
const BRANCHES = /^(?:if|switch|filter|removeDuplicates|compareDatasets|code|function)$/;

/** What is reached with a lock held, without another claim, and without a look at the target that decides; and the lock. */
function underALockAlone(
	analysis: Analysis,
	locks: readonly WorkflowNode[],
): Map<number, WorkflowNode> {
	const { graph, workflow } = analysis;
	const found = new Map<number, WorkflowNode>();
	const seen = new Set<number>();
	const open = locks.flatMap((lock) =>
		graph.next[lock.index]
			.filter(({ output }) => output === 0)
			.map(({ to }) => ({ at: to, lock, looked: false })),
	);
	for (const { at, lock, looked } of open) {
		const code = at * 2 + (looked ? 1 : 0);
		if (seen.has(code)) continue;
		seen.add(code);
		if (!found.has(at)) found.set(at, lock);
		const node = workflow.nodes[at];
		let looks = looked;
		if (!node.disabled) {
			if (isClaim(node) || settlesClaim(node) || joinsInputs(node)) continue;
			if (['checkEvidenceGate', 'cacheLlmDecision'].includes(ownName(node.type) ?? '')) continue;
			// looked up and decided under a lock is a guard of its own
			if (looked && BRANCHES.test(shortOf(node.type))) continue;
			looks ||= ['reads', 'calls-workflow'].includes(analysis.stepAt(node).does);
		}
		for (const { to } of graph.next[at]) open.push({ at: to, lock, looked: looks });
	}
	return found;
}
