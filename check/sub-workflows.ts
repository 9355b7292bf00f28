import type { Analysis } from './analysis';
import { settlesClaim } from './knowledge/own-nodes';
import { isRecord, located, textOf, type Workflow, type WorkflowNode } from './workflow';

/** One call of another workflow. */
interface Call {
	/** Id or name. */
	target: string;
	node: string;
	/** "entry": guarded as well as this workflow's own callers are. */
	standing: 'guarded' | 'entry' | 'open';
}

/** What is kept of a given workflow while the others are read: a few names, never its nodes. */
export interface Survey {
	id: string | null;
	name: string;
	/** What it calls. */
	calls: readonly Call[];
	/** Steps with effects that its entry reaches without a claim of its own. */
	openEffects: readonly string[];
	/** All its steps with effects, guarded or not. */
	effects: readonly string[];
	/** Whether it completes or fails claims. */
	settles: boolean;
}

export interface Callers {
	/** "unknown": no given workflow calls this one. */
	all: 'guarded' | 'open' | 'unknown';
	/** A caller that holds no claim, as "node in workflow"; null for none. */
	open: string | null;
}

export const NO_CALLERS: Callers = { all: 'unknown', open: null };

export function survey(analysis: Analysis): Survey {
	const { workflow, effects } = analysis;
	const calls: Call[] = [];
	for (const node of workflow.nodes) {
		if (node.disabled || analysis.stepAt(node).does !== 'calls-workflow') continue;
		const target = targetOf(node, workflow);
		if (target === '') continue;
		const ways = analysis.unguardedWays(node);
		const isTool = !analysis.standingOf(node).reached;
		calls.push({
			target,
			node: node.name,
			// an agent calls its tools as often as it likes, whatever the agent's own claim says
			standing:
				isTool || ways.some(({ start }) => start !== 'entry')
					? 'open'
					: ways.length > 0
						? 'entry'
						: 'guarded',
		});
	}
	return {
		id: workflow.id,
		name: workflow.name,
		calls,
		openEffects: effects
			.filter(({ node }) => analysis.unguardedWays(node).some(({ start }) => start === 'entry'))
			.map(({ node }) => node.name),
		effects: effects.map(({ node }) => node.name),
		settles: workflow.nodes.some(settlesClaim),
	};
}

export interface Called {
	/** As the calling node names it. */
	name: string;
	survey: Survey | null;
}

/** All workflows that were given, as far as one has to know of another. */
export class GivenWorkflows {
	private readonly byId = new Map<string, Survey>();

	/** Null where several have one name. */
	private readonly byName = new Map<string, Survey | null>();

	private readonly callersOf = new Map<Survey, Array<{ survey: Survey; call: Call }>>();

	private readonly standing = new Map<Survey, Callers['all']>();

	constructor(private readonly surveys: readonly Survey[] = []) {
		for (const each of surveys) {
			if (each.id !== null && !this.byId.has(each.id)) this.byId.set(each.id, each);
			this.byName.set(each.name, this.byName.has(each.name) ? null : each);
		}
		for (const caller of surveys) {
			for (const call of caller.calls) {
				const target = this.named(call.target);
				if (target === null) continue;
				const known = this.callersOf.get(target) ?? [];
				known.push({ survey: caller, call });
				this.callersOf.set(target, known);
			}
		}
		this.settle();
	}

	/** Who calls the workflow of this survey. */
	callers(of: Survey): Callers {
		const all = this.standing.get(of) ?? 'unknown';
		const open = (this.callersOf.get(of) ?? []).find(({ survey: caller, call }) =>
			this.isOpen(caller, call),
		);
		return {
			all,
			open: open === undefined ? null : `"${open.call.node}" in "${open.survey.name}"`,
		};
	}

	/** What an Execute Workflow node or a workflow tool calls; null for one whose target no text names. */
	called(node: WorkflowNode, within: Workflow): Called | null {
		const target = targetOf(node, within);
		if (target === '') return null;
		const survey = this.named(target);
		const shown = isRecord(node.parameters.workflowId)
			? textOf(node.parameters.workflowId.cachedResultName)
			: '';
		return { name: survey?.name ?? (shown || target), survey };
	}

	private named(target: string): Survey | null {
		return this.byId.get(target) ?? this.byName.get(target) ?? null;
	}

	/** Guarded is what no chain of calls from an open one reaches: workflows that only call each other stay guarded. */
	private settle(): void {
		for (const each of this.surveys) {
			this.standing.set(each, this.callersOf.has(each) ? 'guarded' : 'unknown');
		}
		let changed = true;
		while (changed) {
			changed = false;
			for (const [target, calls] of this.callersOf) {
				if (this.standing.get(target) !== 'guarded') continue;
				if (calls.some(({ survey: caller, call }) => this.isOpen(caller, call))) {
					this.standing.set(target, 'open');
					changed = true;
				}
			}
		}
	}

	private isOpen(caller: Survey, call: Call): boolean {
		if (call.standing !== 'entry') return call.standing === 'open';
		return this.standing.get(caller) !== 'guarded';
	}
}

/** A workflow that calls itself: what is called begins at its other trigger. */
const OWN_ID = /^=\s*\{\{\s*\$workflow\.id\s*\}\}\s*$/;

/** Id or name of what a node calls; '' where an expression names it. */
function targetOf({ parameters }: WorkflowNode, { id, name }: Workflow): string {
	const target = located(parameters.workflowId);
	if (OWN_ID.test(target)) return id ?? name;
	return target.startsWith('=') ? '' : target;
}
