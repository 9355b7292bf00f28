import type { Graph } from '../graph';
import { isRecord, type Connection, type WorkflowNode } from '../workflow';
import { shortOf } from './node-type';
import { isClaim } from './own-nodes';

/** Hand on each item as one item, or drop it. */
const ONE_TO_ONE = /^(?:crypto|dateTime|filter|if|limit|noOp|renameKeys|set|sort|switch|wait)$/;

/**
 * The connections that close a Loop Over Items whose items were claimed one by one before it. What comes back by them
 * leaves by Done only: each round takes items of its own, with claims of their own, from what first came in. Where one
 * claim may stand for many items of the loop it is left out, for there a round does meet what the one before it did.
 */
export function closingConnections(graph: Graph): Set<Connection> {
	const closing = new Set<Connection>();
	const { nodes } = graph.workflow;
	const claims = nodes.filter((node) => isClaim(node) && !node.disabled);
	const claimed = graph.reachable(
		claims.flatMap(({ index }) => graph.next[index]),
		handsOnOneByOne,
	);
	for (const loop of nodes) {
		if (!isLoop(loop) || !claimed.has(loop.index)) continue;
		const rounds = graph.next[loop.index].filter(({ output }) => output === roundOutput(loop));
		const body = graph.reachable(rounds, ({ index }) => index !== loop.index);
		const back = graph.previous[loop.index].filter(({ from }) => body.has(from));
		const first = graph.previous[loop.index].filter(({ from }) => !body.has(from));
		if (back.length === 0 || !claimedOneByOne(graph, first)) continue;
		for (const connection of back) closing.add(connection);
	}
	return closing;
}

/** "Loop" was the first output until it changed places with "Done". */
export const roundOutput = ({ typeVersion }: WorkflowNode): number => (typeVersion < 3 ? 0 : 1);

function isLoop({ type, parameters, disabled }: WorkflowNode): boolean {
	const options = isRecord(parameters.options) ? parameters.options : {};
	// with Reset, what comes back is what the next rounds take
	return shortOf(type) === 'splitInBatches' && !disabled && (options.reset ?? false) === false;
}

function handsOnOneByOne({ type, disabled }: WorkflowNode): boolean {
	return disabled || ONE_TO_ONE.test(shortOf(type));
}

function claimedOneByOne(graph: Graph, connections: readonly Connection[]): boolean {
	const seen = new Set<number>();
	const open = connections.map(({ from }) => from);
	for (const at of open) {
		if (seen.has(at)) continue;
		seen.add(at);
		const node = graph.workflow.nodes[at];
		if (isClaim(node) && !node.disabled) continue;
		const before = graph.previous[at];
		if (before.length === 0 || !handsOnOneByOne(node)) return false;
		open.push(...before.map(({ from }) => from));
	}
	return open.length > 0;
}
