import type { Analysis } from '../analysis';
import type { Rule } from '../finding';
import { isClaim, ownName, ownOperation, settlesClaim } from '../knowledge/own-nodes';
import { rowsBehind } from '../knowledge/rows';
import type { WorkflowNode } from '../workflow';

/** One claim, then a node that makes many items of one, then an effect for each of them. */
export const claimCoversMany: Rule = {
	id: 'claim-covers-many',
	title: 'One claim for many effects',
	severity: 'error',
	*find(analysis) {
		const effects = new Map(
			analysis.effects
				.filter(({ effect }) => effect.repeats === 'doubles')
				.map(({ node, effect }) => [node.index, effect]),
		);
		const calls = new Map(analysis.callsWithEffects.map(({ node, what }) => [node.index, what]));
		if (effects.size === 0 && calls.size === 0) return;
		for (const [at, { claim, rows }] of splitUnderAClaim(analysis)) {
			const node = analysis.workflow.nodes[at];
			const effect = effects.get(at);
			const what = effect?.what ?? calls.get(at);
			if (what === undefined) continue;
			const whose = claim === null ? 'the claim that comes with the item' : `"${claim.name}"`;
			if (effect !== undefined && effect.key !== null) {
				if (!isTheWorkAlone(effect.key.raw)) continue;
				yield {
					node,
					severity: 'error',
					message: `"${rows.name}" makes many items of one, and each sends the same ${effect.key.name}: the id of ${whose}.`,
					twice:
						'The target takes the second row for a repetition of the first: one row happens, the others get its answer.',
					fix: `Claim Work behind "${rows.name}", with the key of the single row (such as order and line): each row then has an id of its own. Or add what tells the rows apart to ${effect.key.name}.`,
				};
				continue;
			}
			yield {
				node,
				severity: 'warning',
				message: `${what}: it happens for each item that "${rows.name}" makes, and ${whose} is one for all of them.`,
				twice:
					'When row 40 of 100 fails or the process dies there, the next attempt of the work begins with row 1, and the first 39 happen again.',
				fix: `Move Claim Work behind "${rows.name}", directly before this step, with the key of the single row (such as order and line), and Complete Work behind it: a new attempt then skips the rows that are done. Or send all rows in one request.`,
			};
		}
	},
};

/** `={{ $json.work.workId }}` and nothing that tells one row from another. */
function isTheWorkAlone(raw: string): boolean {
	return /^=\s*["']?\{\{[^{}+,`]*\bwork_?id\s*\}\}["']?\s*$/i.test(raw);
}

interface Split {
	/** Null for one that was made outside this workflow. */
	claim: WorkflowNode | null;
	/** The node that made many items of one. */
	rows: WorkflowNode;
}

/** The nodes that are reached by the many items which a node has made of one claimed item. */
function splitUnderAClaim(analysis: Analysis): Map<number, Split> {
	const { graph, workflow } = analysis;
	const found = new Map<number, Split>();
	const elsewhere = [
		...analysis.startsOf('ledger'),
		...(analysis.callers.all === 'guarded' ? analysis.startsOf('entry') : []),
	];
	const behind = (from: WorkflowNode, claim: WorkflowNode | null) =>
		graph.next[from.index]
			.filter(({ output }) => output === 0)
			.map(({ to }) => ({ at: to, claim, rows: null as WorkflowNode | null }));
	const open = [
		...analysis.claims.flatMap((claim) => behind(claim, claim)),
		...elsewhere.flatMap((start) => behind(start, null)),
	];
	// each node once with one item and once with many, whatever the number of claims
	const seen = new Set<number>();
	for (const { at, claim, rows } of open) {
		const code = at * 2 + (rows === null ? 0 : 1);
		if (seen.has(code)) continue;
		seen.add(code);
		const node = workflow.nodes[at];
		// Execute Once does the first row only
		if (rows !== null && !node.executeOnce) found.set(at, { claim, rows });
		if (endsTheWay(node)) continue;
		const made = rowsBehind(node);
		if (made === 'fewer') continue;
		for (const { to } of graph.next[at]) {
			open.push({ at: to, claim, rows: made === 'more' ? node : rows });
		}
	}
	return found;
}

/** Behind these each row has a claim of its own, is skipped where it is done, or the claim is not open any more. */
function endsTheWay(node: WorkflowNode): boolean {
	if (node.disabled) return false;
	if (isClaim(node) || settlesClaim(node)) return true;
	const operation = ownOperation(node);
	return (
		(ownName(node.type) === 'completeWork' && operation === 'recordReference') ||
		(ownName(node.type) === 'workLedger' && operation === 'continueAfter')
	);
}
