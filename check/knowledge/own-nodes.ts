import { textOf, type NodeSettings, type WorkflowNode } from '../workflow';

/** The nodes of this package, also where a custom-extension folder gave them n8n's own prefix. */
const OWN = /^(?:n8n-nodes-idempotency|CUSTOM)\.(\w+?)(Tool)?$/;

const NAMES = [
	'claimWork',
	'completeWork',
	'cacheLlmDecision',
	'checkEvidenceGate',
	'sendOnceTelegram',
	'workLedger',
	'workLedgerTrigger',
] as const;

export type OwnName = (typeof NAMES)[number];

/** Which of this package's nodes it is; null for any other node. */
export function ownName(type: string): OwnName | null {
	const found = OWN.exec(type);
	return NAMES.find((name) => name === found?.[1]) ?? null;
}

/** A Claim Work that guards something: one in shadow mode lets every item through its first output. */
export const isClaim = (node: WorkflowNode): boolean =>
	ownName(node.type) === 'claimWork' && !isShadowClaim(node);

export const isShadowClaim = ({ type, parameters }: WorkflowNode): boolean =>
	ownName(type) === 'claimWork' && parameters.mode === 'shadow';

/** The operation of a node of this package, its default where the export leaves it out. */
export function ownOperation({ type, parameters }: NodeSettings): string {
	const defaults: Partial<Record<OwnName, string>> = {
		completeWork: 'complete',
		cacheLlmDecision: 'lookUp',
	};
	const own = ownName(type);
	return textOf(parameters.operation, own === null ? '' : (defaults[own] ?? ''));
}

/** Whether the node ends a claim: Complete, Fail or Release. */
export function settlesClaim(node: NodeSettings): boolean {
	return (
		ownName(node.type) === 'completeWork' &&
		!node.disabled &&
		['complete', 'fail', 'release'].includes(ownOperation(node))
	);
}

/** Whether the node says that a claim's effect failed, or that it was not tried. */
export function failsClaim(node: WorkflowNode): boolean {
	return settlesClaim(node) && ownOperation(node) !== 'complete';
}
