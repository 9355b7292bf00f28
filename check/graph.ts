import type { Connection, Workflow, WorkflowNode } from './workflow';

export interface SubNode {
	node: WorkflowNode;
	/** "ai_tool", "ai_languageModel", … */
	kind: string;
}

/**
 * Which node hands its items to which, as n8n runs it: a disabled node hands on what comes to its first input, through
 * its first output. Sub-nodes (tools, models) hang on their roots and are no steps of their own.
 */
export class Graph {
	readonly next: ReadonlyArray<readonly Connection[]>;

	readonly previous: ReadonlyArray<readonly Connection[]>;

	private readonly subNodes = new Map<number, SubNode[]>();

	constructor(readonly workflow: Workflow) {
		const { nodes, connections } = workflow;
		const next: Connection[][] = nodes.map(() => []);
		const previous: Connection[][] = nodes.map(() => []);
		for (const connection of connections) {
			const { kind, from, output, to, input } = connection;
			if (kind !== 'main') {
				const known = this.subNodes.get(to) ?? [];
				known.push({ node: nodes[from], kind });
				this.subNodes.set(to, known);
			} else if (!(nodes[from].disabled && output > 0) && !(nodes[to].disabled && input > 0)) {
				next[from].push(connection);
				previous[to].push(connection);
			}
		}
		this.next = next;
		this.previous = previous;
	}

	/** The sub-nodes that serve a root, those that serve its sub-nodes included; disabled ones left out. */
	subNodesOf(root: WorkflowNode): SubNode[] {
		const found: SubNode[] = [];
		const seen = new Set([root.index]);
		const open = [root.index];
		while (open.length > 0) {
			for (const sub of this.subNodes.get(open.pop()!) ?? []) {
				if (seen.has(sub.node.index) || sub.node.disabled) continue;
				seen.add(sub.node.index);
				found.push(sub);
				open.push(sub.node.index);
			}
		}
		return found;
	}

	/** Which nodes can be reached from the given connections' ends. `through` decides whether a node is passed. */
	reachable(
		from: Iterable<Connection>,
		through: (node: WorkflowNode) => boolean = () => true,
	): Set<number> {
		const seen = new Set<number>();
		const open = [...from].map(({ to }) => to);
		while (open.length > 0) {
			const at = open.pop()!;
			if (seen.has(at)) continue;
			seen.add(at);
			if (!through(this.workflow.nodes[at])) continue;
			for (const { to } of this.next[at]) if (!seen.has(to)) open.push(to);
		}
		return seen;
	}

	/** Every node from which one that `is` tells of can be reached, those themselves included. */
	leadingTo(is: (node: WorkflowNode) => boolean): Set<number> {
		const goals = this.workflow.nodes.filter(is).map(({ index }) => index);
		return new Set([...goals, ...this.ancestors(goals)]);
	}

	/** Every node from which one of the given can be reached. */
	ancestors(of: readonly number[]): Set<number> {
		const seen = new Set<number>();
		const open = [...of];
		while (open.length > 0) {
			for (const { from } of this.previous[open.pop()!]) {
				if (seen.has(from)) continue;
				seen.add(from);
				open.push(from);
			}
		}
		return seen;
	}

	/** The nodes that stand on a circle (Tarjan's strongly connected components, without recursion). */
	onCircles(): Set<number> {
		const circles = new Set<number>();
		const order = new Int32Array(this.next.length).fill(-1);
		const low = new Int32Array(this.next.length);
		const onStack = new Uint8Array(this.next.length);
		const stack: number[] = [];
		let counter = 0;
		for (let root = 0; root < this.next.length; root++) {
			if (order[root] !== -1) continue;
			const calls: Array<{ at: number; edge: number }> = [];
			const enter = (at: number): void => {
				order[at] = low[at] = counter++;
				onStack[at] = 1;
				stack.push(at);
				calls.push({ at, edge: 0 });
			};
			enter(root);
			while (calls.length > 0) {
				const call = calls[calls.length - 1];
				const edges = this.next[call.at];
				if (call.edge < edges.length) {
					const { to } = edges[call.edge++];
					if (to === call.at) circles.add(to);
					if (order[to] === -1) enter(to);
					else if (onStack[to] === 1) low[call.at] = Math.min(low[call.at], order[to]);
					continue;
				}
				calls.pop();
				const caller = calls.at(-1);
				if (caller !== undefined) low[caller.at] = Math.min(low[caller.at], low[call.at]);
				if (low[call.at] !== order[call.at]) continue;
				const from = stack.lastIndexOf(call.at);
				const component = stack.splice(from);
				for (const member of component) {
					onStack[member] = 0;
					if (component.length > 1) circles.add(member);
				}
			}
		}
		return circles;
	}
}
