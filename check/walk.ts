import type { Graph } from './graph';
import { isClaim, ownName, ownOperation, settlesClaim } from './knowledge/own-nodes';
import { closingConnections, roundOutput } from './knowledge/loops';
import { joinsInputs } from './knowledge/merge';
import type { Connection, WorkflowNode } from './workflow';

/** Why no claim is held where none is. */
export type NoClaim =
	/** none was made on the way here */
	| 'none'
	/** this item left a claim by Duplicate, Busy, Needs Attention or Error */
	| 'refused'
	/** it was completed before anything was done under it */
	| 'settled-empty'
	/** it was completed behind another effect */
	| 'settled';

/** What is true of an item on one way to a node. */
export interface State {
	/** How many claims are held; more than three are counted as three. */
	claims: number;
	/** Only where `claims` is 0. */
	noClaim: NoClaim;
	/** An effect was run under the innermost claim. */
	acted: boolean;
	/** A model answered, and its answer was not stored. */
	unstoredAnswer: boolean;
	/** Something was created elsewhere and its reference not written back. */
	unwrittenReference: boolean;
}

const NO_CLAIM: readonly NoClaim[] = ['none', 'refused', 'settled-empty', 'settled'];
const MAX_CLAIMS = 3;

export const START: State = {
	claims: 0,
	noClaim: 'none',
	acted: false,
	unstoredAnswer: false,
	unwrittenReference: false,
};

const codeOf = (s: State): number =>
	(s.claims * 4 + NO_CLAIM.indexOf(s.noClaim)) * 8 +
	(s.acted ? 4 : 0) +
	(s.unstoredAnswer ? 2 : 0) +
	(s.unwrittenReference ? 1 : 0);

const stateOf = (code: number): State => ({
	claims: code >> 5,
	noClaim: NO_CLAIM[(code >> 3) & 3],
	acted: (code & 4) !== 0,
	unstoredAnswer: (code & 2) !== 0,
	unwrittenReference: (code & 1) !== 0,
});

const STATES = (MAX_CLAIMS + 1) * 32;

/** What a node adds to the states; told by the analysis, which knows the nodes' steps. */
export interface Marks {
	/** An effect stands there. */
	acts(node: WorkflowNode): boolean;
	/** It creates something in another system that has a reference. */
	creates(node: WorkflowNode): boolean;
	/** A model answers there. */
	answers(node: WorkflowNode): boolean;
	/** It writes a reference to the record. */
	writesReference(node: WorkflowNode): boolean;
}

/**
 * Every state in which an item can come to each node, from the given starts: all ways are followed, each node once per
 * state, so the time grows with the workflow and not with the number of ways.
 */
export class Walk {
	private readonly seen: Uint8Array;

	/** For each node and state: the node and state before it, -1 at a start. */
	private readonly before: Int32Array;

	private readonly inputs = new Map<number, Map<number, Set<number>>>();

	private readonly expected = new Map<number, ReadonlySet<number>>();

	private readonly open: number[] = [];

	/** Behind them a way goes on at their loop's Done. */
	private readonly closing: ReadonlySet<Connection>;

	constructor(
		private readonly graph: Graph,
		starts: readonly WorkflowNode[],
		start: State,
		private readonly marks: Marks,
	) {
		const { nodes } = graph.workflow;
		this.seen = new Uint8Array(nodes.length * STATES);
		this.before = new Int32Array(nodes.length * STATES).fill(-1);
		this.closing = closingConnections(graph);
		const reached = graph.reachable(starts.flatMap(({ index }) => [...graph.next[index]]));
		for (const { index } of starts) this.enter(index, codeOf(start), -1);
		for (const { index } of starts) reached.add(index);
		// what is entered is put behind: the first way found is a shortest one
		for (const at of this.open) this.leave(at, reached);
		this.open.length = 0;
	}

	/** The states in which items come to the node; empty where none come. */
	statesAt(node: WorkflowNode): State[] {
		const states: State[] = [];
		for (let code = 0; code < STATES; code++) {
			if (this.seen[node.index * STATES + code] === 1) states.push(stateOf(code));
		}
		return states;
	}

	/** The names on the shortest way to the node in a state, from its start; long ways are shortened in the middle. */
	wayTo(node: WorkflowNode, state: State): string[] {
		const names: string[] = [];
		let at = node.index * STATES + codeOf(state);
		while (at !== -1) {
			names.push(this.graph.workflow.nodes[Math.floor(at / STATES)].name);
			at = this.before[at];
		}
		names.reverse();
		return names.length > 7 ? [...names.slice(0, 3), '…', ...names.slice(-3)] : names;
	}

	private enter(node: number, code: number, before: number): void {
		const at = node * STATES + code;
		if (this.seen[at] === 1) return;
		this.seen[at] = 1;
		this.before[at] = before;
		this.open.push(at);
	}

	private leave(at: number, reached: ReadonlySet<number>): void {
		const node = this.graph.workflow.nodes[Math.floor(at / STATES)];
		const state = stateOf(at % STATES);
		for (const connection of this.graph.next[node.index]) {
			const code = codeOf(stateBehind(node, connection.output, state, this.marks));
			for (const each of this.goingOn(connection)) {
				const target = this.graph.workflow.nodes[each.to];
				if (!target.disabled && joinsInputs(target)) {
					this.join(each, code, at, reached);
				} else {
					this.enter(each.to, code, at);
				}
			}
		}
	}

	/** The connection itself, or where a way goes on that comes back to a loop. */
	private goingOn(connection: Connection): ReadonlySet<Connection> {
		const found = new Set([connection]);
		for (const each of found) {
			if (!this.closing.has(each)) continue;
			const loop = this.graph.workflow.nodes[each.to];
			for (const next of this.graph.next[loop.index]) {
				if (next.output !== roundOutput(loop)) found.add(next);
			}
		}
		for (const each of found) if (this.closing.has(each)) found.delete(each);
		return found;
	}

	/** An item leaves an inner join only with a partner from every input, so the best guarded of them counts. */
	private join(
		{ to, input }: Connection,
		code: number,
		at: number,
		reached: ReadonlySet<number>,
	): void {
		const known = this.inputs.get(to) ?? new Map<number, Set<number>>();
		this.inputs.set(to, known);
		const own = known.get(input) ?? new Set<number>();
		known.set(input, own);
		if (own.has(code)) return;
		own.add(code);
		const expected =
			this.expected.get(to) ??
			new Set(
				this.graph.previous[to]
					.filter(({ from }) => reached.has(from))
					.map((connection) => connection.input),
			);
		this.expected.set(to, expected);
		if (known.size < expected.size) return;
		// what each input can bring at least decides how badly guarded a joined item can be
		const lowest = Math.max(
			...[...known.values()].map((codes) => Math.min(...[...codes].map(rank))),
		);
		for (const codes of known.values()) {
			for (const each of codes) if (rank(each) >= lowest) this.enter(to, each, at);
		}
	}
}

/** How well guarded: claims first, then why there is none. */
const rank = (code: number): number => code >> 3;

/** What is true of an item behind an output of a node. */
function stateBehind(node: WorkflowNode, output: number, state: State, marks: Marks): State {
	if (node.disabled) return state;
	if (isClaim(node)) {
		if (output === 0) {
			return {
				...state,
				claims: Math.min(state.claims + 1, MAX_CLAIMS),
				noClaim: 'none',
				acted: false,
			};
		}
		return state.claims > 0 ? state : { ...state, noClaim: 'refused' };
	}
	if (settlesClaim(node)) {
		const behind = { ...state, unwrittenReference: false };
		if (state.claims === 0) return behind;
		const claims = state.claims - 1;
		return {
			...behind,
			claims,
			noClaim: claims > 0 ? 'none' : state.acted ? 'settled' : 'settled-empty',
			// the outer claim has the inner one's effect under it
			acted: claims > 0 && state.acted,
		};
	}
	switch (ownName(node.type)) {
		case 'completeWork':
			return ownOperation(node) === 'recordReference'
				? { ...state, unwrittenReference: false }
				: state;
		case 'cacheLlmDecision':
			// Replay and Stored hand on what is kept, and so does Not Approved of a proposal
			return output === 0 || (output === 1 && ownOperation(node) === 'store')
				? { ...state, unstoredAnswer: false }
				: state;
		case 'sendOnceTelegram':
			return { ...state, acted: true };
		case null:
			break;
		default:
			return state;
	}
	const failed = node.onError === 'errorOutput' && output > 0;
	const acts = marks.acts(node);
	return {
		...state,
		acted: state.claims > 0 && (state.acted || acts),
		unstoredAnswer: state.unstoredAnswer || (marks.answers(node) && !failed),
		unwrittenReference:
			marks.creates(node) && !failed
				? true
				: state.unwrittenReference && !marks.writesReference(node),
	};
}
