import type { Analysis } from '../analysis';
import type { Rule, Words } from '../finding';
import { plainType, shortOf } from '../knowledge/node-type';
import { isClaim, ownName, settlesClaim } from '../knowledge/own-nodes';
import { isRecord, textOf, type Connection, type WorkflowNode } from '../workflow';

const MAX_CLAIMS = 3;
/** How far the place where a way ends is looked for. */
const MAX_LOOKED_AT = 500;

/** What is said of a claim that no node settles. */
export const NEVER_COMPLETED: Words = {
	message: 'Nothing behind it completes the claim.',
	twice:
		'Until the lease ends, repetitions are told that it runs; from then on they run it again, and in the end it is a dead letter although it was done.',
	fix: 'Let every way behind Claimed end in Complete Work: Complete where it was done or deliberately skipped, Fail where it failed, Release where nothing was done.',
};

/** A claim that nothing completes, or that some way leaves open. */
export const claimLeftOpen: Rule = {
	id: 'claim-left-open',
	title: 'A claim that is never completed, or not on every way',
	severity: 'error',
	*find(analysis) {
		const { graph, claims } = analysis;
		if (claims.length === 0) return;
		const settled = settledWays(analysis);
		const settling = graph.leadingTo((node) => settles(analysis, node));
		for (const claim of claims) {
			const claimed = graph.next[claim.index].filter(({ output }) => output === 0);
			if (claimed.some(({ to }) => settled.has(codeOf(to, 1)))) continue;
			const ends = claimed.some(({ to }) => settling.has(to));
			if (!ends) {
				const bySubWorkflow = analysis.isSubWorkflow && claimed.length > 0;
				yield {
					node: claim,
					severity: bySubWorkflow ? 'warning' : 'error',
					...NEVER_COMPLETED,
					...(claimed.length === 0
						? { message: 'Its output Claimed leads nowhere, so the claim is never completed.' }
						: {}),
					...(bySubWorkflow
						? {
								message: 'Nothing behind it completes the claim, unless the calling workflow does.',
							}
						: {}),
				};
				continue;
			}
			yield {
				node: claim,
				severity: 'warning',
				message: `Some ways behind it do not complete the claim${whereItEnds(analysis, claimed, settled)}.`,
				twice:
					'Items on that way stay claimed until the lease ends and are then worked on again, whatever was decided about them.',
				fix: NEVER_COMPLETED.fix,
			};
		}
	},
};

const codeOf = (node: number, claims: number): number => node * (MAX_CLAIMS + 1) + claims;

/**
 * At which nodes, with how many claims held, an item is sure to have its innermost claims settled. Where an item takes one
 * of several outputs (IF) each of them must lead there; where it is copied to several nodes one is enough.
 */
function settledWays(analysis: Analysis): Set<number> {
	const { nodes } = analysis.workflow;
	const settled = new Set<number>();
	const open: number[] = [];
	const look = (node: WorkflowNode, claims: number): void => {
		const code = codeOf(node.index, claims);
		if (settled.has(code) || !isSettled(analysis, node, claims, settled)) return;
		settled.add(code);
		open.push(code);
	};
	for (const node of nodes) for (let claims = 1; claims <= MAX_CLAIMS; claims++) look(node, claims);
	for (const code of open) {
		for (const { from } of analysis.graph.previous[Math.floor(code / (MAX_CLAIMS + 1))]) {
			for (let claims = 1; claims <= MAX_CLAIMS; claims++) look(nodes[from], claims);
		}
	}
	return settled;
}

function isSettled(
	analysis: Analysis,
	node: WorkflowNode,
	claims: number,
	settled: ReadonlySet<number>,
): boolean {
	const next = analysis.graph.next[node.index];
	const leads = (connections: readonly Connection[], held: number): boolean =>
		connections.some(({ to }) => settled.has(codeOf(to, held)));
	if (node.disabled) return leads(next, claims);
	if (shortOf(node.type) === 'stopAndError') return true;
	if (node.executeOnce) return false;
	if (settles(analysis, node)) {
		if (claims === 1) return true;
		return leads(
			next.filter(({ output }) => output === 0),
			claims - 1,
		);
	}
	const behind = (output: number): readonly Connection[] =>
		next.filter((connection) => connection.output === output);
	if (isClaim(node)) {
		const held = Math.min(claims + 1, MAX_CLAIMS);
		return (
			connectedOutputs(next).every((output) =>
				leads(behind(output), output === 0 ? held : claims),
			) && behind(0).length > 0
		);
	}
	const outputs = exclusiveOutputs(node, next);
	// what comes out in success has to be settled there; its error output is the business of failure-not-settled
	if (outputs === null) return leads(hasErrorOutput(analysis, node) ? behind(0) : next, claims);
	return outputs.length > 0 && outputs.every((output) => leads(behind(output), claims));
}

/** Whether what leaves by another output than the first is its failure. */
function hasErrorOutput(analysis: Analysis, node: WorkflowNode): boolean {
	const { does } = analysis.stepAt(node);
	return (
		node.onError === 'errorOutput' && ['agent', 'calls-workflow', 'reads', 'writes'].includes(does)
	);
}

function settles(analysis: Analysis, node: WorkflowNode): boolean {
	if (settlesClaim(node)) return true;
	if (node.disabled || analysis.stepAt(node).does !== 'calls-workflow') return false;
	return analysis.calledBy(node)?.survey?.settles === true;
}

/** The outputs of which an item takes one; null for a node that sends items to any of its outputs. */
function exclusiveOutputs(node: WorkflowNode, next: readonly Connection[]): number[] | null {
	const { type, parameters } = node;
	if (plainType(type) === 'n8n-nodes-base.if') return [0, 1];
	if (plainType(type) === 'n8n-nodes-base.switch') return switchOutputs(parameters);
	// what they drop goes nowhere
	if (/^n8n-nodes-base\.(?:filter|limit|removeDuplicates)$/.test(plainType(type))) return [0, -1];
	switch (ownName(type)) {
		case 'checkEvidenceGate':
			return [0, 1];
		case 'sendOnceTelegram':
		case 'cacheLlmDecision':
			return connectedOutputs(next);
		default:
			return null;
	}
}

function switchOutputs(parameters: Readonly<Record<string, unknown>>): number[] {
	const options = isRecord(parameters.options) ? parameters.options : {};
	const rules = isRecord(parameters.rules)
		? (parameters.rules.values ?? parameters.rules.rules)
		: undefined;
	const count =
		textOf(parameters.mode, 'rules') === 'expression'
			? Number(parameters.numberOutputs ?? 4)
			: Array.isArray(rules)
				? rules.length
				: 0;
	const outputs = Array.from({ length: Math.min(Math.max(count || 0, 0), 100) }, (_, i) => i);
	// without a fallback, what no rule takes goes nowhere
	if (options.fallbackOutput === 'extra') return [...outputs, outputs.length];
	return outputs;
}

const connectedOutputs = (next: readonly Connection[]): number[] => [
	...new Set(next.map(({ output }) => output)),
];

/** "(at "Paid?", output 1)": the first place where a way ends without a completion. */
function whereItEnds(
	analysis: Analysis,
	from: readonly Connection[],
	settled: ReadonlySet<number>,
): string {
	const seen = new Set<number>();
	const open = from.map(({ to }) => to);
	for (const at of open) {
		if (seen.size > MAX_LOOKED_AT) break;
		if (seen.has(at) || settled.has(codeOf(at, 1))) continue;
		seen.add(at);
		const node = analysis.workflow.nodes[at];
		const next = analysis.graph.next[at];
		if (node.executeOnce && !node.disabled)
			return `: "${node.name}" takes the first item only (Execute Once)`;
		if (next.length === 0) return `: it ends at "${node.name}"`;
		if (hasErrorOutput(analysis, node) && next.every(({ output }) => output > 0))
			return `: what "${node.name}" gives in success goes nowhere`;
		const outputs = node.disabled ? null : exclusiveOutputs(node, next);
		for (const output of outputs ?? []) {
			if (next.some((connection) => connection.output === output)) continue;
			return output === -1
				? `: what "${node.name}" drops goes nowhere`
				: `: output ${output + 1} of "${node.name}" leads nowhere`;
		}
		for (const { to } of next) open.push(to);
	}
	return '';
}
