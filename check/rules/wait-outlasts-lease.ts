import type { Analysis } from '../analysis';
import type { Rule, Words } from '../finding';
import { ownName, ownOperation, settlesClaim } from '../knowledge/own-nodes';
import { spanText, waitOf } from '../knowledge/waits';
import { isRecord, type WorkflowNode } from '../workflow';

export const DEFAULT_LEASE_SECONDS = 3600;

/** A wait between claim and completion that is longer than the lease. */
export const waitOutlastsLease: Rule = {
	id: 'wait-outlasts-lease',
	title: 'A wait longer than the lease',
	severity: 'warning',
	*find(analysis) {
		if (analysis.claims.length === 0) return;
		const waits = new Map(
			analysis.workflow.nodes.flatMap((node) => {
				const wait = waitOf(node);
				return wait === null || wait.seconds === null ? [] : [[node.index, wait.seconds]];
			}),
		);
		if (waits.size === 0) return;
		for (const claim of analysis.claims) {
			const leases = shortestLeases(analysis, claim);
			for (const [at, seconds] of waits) {
				const lease = leases.get(at);
				if (lease === undefined || seconds < lease) continue;
				const wait = analysis.workflow.nodes[at];
				yield { node: wait, severity: 'warning', ...outlasted(seconds, lease, claim.name) };
			}
		}
	},
};

/** What is said of a wait; `Infinity` for one without limit. */
export function outlasted(waitSeconds: number, leaseSeconds: number, claimName: string): Words {
	return {
		message: `It waits ${waitSeconds === Infinity ? '' : 'for '}${spanText(waitSeconds)}, and the lease of "${claimName}" ends after ${spanText(leaseSeconds)}.`,
		twice:
			'While this run waits, the next delivery takes the work over as a lost run; when the wait ends, both go on.',
		fix: 'Complete the claim before the wait and claim the rest of the work behind it; or raise the lease of Claim Work, or put Complete Work (Extend Lease) before the wait.',
	};
}

/** For each node that is reached with the claim held: the shortest lease in seconds that may be in force there. */
function shortestLeases(analysis: Analysis, claim: WorkflowNode): Map<number, number> {
	const leases = new Map<number, number>();
	const own = leaseOf(claim) ?? DEFAULT_LEASE_SECONDS;
	const open = analysis.graph.next[claim.index]
		.filter(({ output }) => output === 0)
		.map(({ to }) => ({ to, lease: own }));
	for (const { to, lease } of open) {
		if ((leases.get(to) ?? Infinity) <= lease) continue;
		leases.set(to, lease);
		const node = analysis.workflow.nodes[to];
		if (settlesClaim(node)) continue;
		const extends_ =
			!node.disabled && ownName(node.type) === 'completeWork' && ownOperation(node) === 'extend';
		const behind = extends_ ? (leaseOf(node) ?? own) : lease;
		for (const { to: next } of analysis.graph.next[to]) open.push({ to: next, lease: behind });
	}
	return leases;
}

function leaseOf({ parameters }: WorkflowNode): number | null {
	const seconds = isRecord(parameters.options) ? Number(parameters.options.leaseSeconds) : NaN;
	return Number.isFinite(seconds) ? seconds : null;
}
