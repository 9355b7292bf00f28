import { Graph } from './graph';
import { fieldTexts } from './knowledge/http';
import { shortOf } from './knowledge/node-type';
import { isClaim, ownName } from './knowledge/own-nodes';
import { startKindOf, type StartKind } from './knowledge/starts';
import { stepOf, type Effect, type Step } from './knowledge/steps';
import { some } from './rules/wording';
import type { Callers, GivenWorkflows } from './sub-workflows';
import { START, Walk, type Marks, type NoClaim, type State } from './walk';
import type { Workflow, WorkflowNode } from './workflow';

export interface EffectStep {
	node: WorkflowNode;
	effect: Effect;
}

/** One way on which an item comes to a step without holding a claim. */
export interface Opening {
	start: StartKind;
	noClaim: NoClaim;
	/** Names of the nodes on the way. */
	way: string[];
}

/** How items come to a step. */
export interface Standing {
	/** Whether any run comes here. */
	reached: boolean;
	/** Whether one of the ways holds a claim that was made in this workflow. */
	claimedHere: boolean;
	/** The ways without a claim, the worst start first; empty: every way holds one. */
	openings: readonly Opening[];
	/** A way on which a model's answer comes here without having been stored; null for none. */
	unstoredAnswer: string[] | null;
	/** A way on which something created elsewhere comes here without its reference written back; null for none. */
	unwrittenReference: string[] | null;
}

/** Which start says most about a danger. */
const STARTS: readonly StartKind[] = ['automatic', 'entry', 'manual', 'error', 'ledger'];

/** Stores that hold rows: what is put there has no reference that would have to be written back. */
const STORES =
	/^(?:postgres|mySql|microsoftSql|snowflake|questDb|timescaleDb|crateDb|oracleDatabase|googleBigQuery|supabase|googleSheets|microsoftExcel\w*|dataTable|redis|mongoDb|elasticsearch|baserow|nocoDb|seaTable|stackby|awsDynamoDb|azureCosmosDb|googleFirebase\w*|kafka|rabbitmq|mqtt|amqp|awsSqs|vectorStore\w*)$/;

const STAGE_FIELD =
	/^(?:deal_?|pipeline_?|lead_?|order_?|record_?)?(?:stage|phase|status)(?:_?id)?$|^(?:id_?list|idlist|list_?id|column_?id)$/i;
const REFERENCE_FIELD =
	/(?:ref|reference|external|invoice|envelope|contract|order|job|message|ticket|charge|payment|document|issue|task|event)[\w ]*$/i;

/** What is known of one workflow; the rules read it. */
export class Analysis {
	readonly graph: Graph;

	readonly steps: readonly Step[];

	/** The steps with effects that stand in the flow; an agent's tools are not among them. */
	readonly effects: readonly EffectStep[];

	/** The enabled claims in the flow. */
	readonly claims: readonly WorkflowNode[];

	/** What could not be decided and was assumed, a sentence each. */
	readonly notices: string[] = [];

	private readonly starts = new Map<StartKind, WorkflowNode[]>();

	/** Community nodes that start runs, although their names do not say so. */
	private readonly unnamedTriggers = new Set<number>();

	private readonly walks: Array<{ start: StartKind; walk: Walk }> = [];

	private readonly standings = new Map<number, Standing>();

	constructor(
		readonly workflow: Workflow,
		/** The other workflows that were given, and who calls this one. */
		readonly given: GivenWorkflows,
		readonly callers: Callers,
	) {
		this.graph = new Graph(workflow);
		const { nodes } = workflow;
		const served = new Set(
			workflow.connections.filter(({ kind }) => kind !== 'main').map(({ from }) => from),
		);
		this.findStarts();
		this.steps = nodes.map((node) =>
			this.unnamedTriggers.has(node.index) ? { does: 'nothing' } : stepOf(node),
		);
		this.effects = nodes.flatMap((node) => {
			const step = this.steps[node.index];
			return step.does === 'writes' && !node.disabled && !served.has(node.index)
				? [{ node, effect: step.effect }]
				: [];
		});
		this.claims = nodes.filter(
			(node) => isClaim(node) && !node.disabled && !served.has(node.index),
		);
		const marks = this.marks();
		for (const start of STARTS) {
			const from = this.starts.get(start);
			if (from === undefined) continue;
			const guarded = start === 'ledger' || (start === 'entry' && callers.all === 'guarded');
			const state: State = guarded ? { ...START, claims: 1 } : START;
			this.walks.push({ start, walk: new Walk(this.graph, from, state, marks) });
		}
	}

	startsOf(kind: StartKind): readonly WorkflowNode[] {
		return this.starts.get(kind) ?? [];
	}

	/** Whether another workflow is the only one that starts this one. */
	get isSubWorkflow(): boolean {
		return this.starts.has('entry') && [...this.starts.keys()].every((kind) => kind === 'entry');
	}

	stepAt(node: WorkflowNode): Step {
		return this.steps[node.index];
	}

	standingOf(node: WorkflowNode): Standing {
		const known = this.standings.get(node.index);
		if (known !== undefined) return known;
		const openings: Opening[] = [];
		const seen = new Set<string>();
		let reached = false;
		let claimedHere = false;
		let unstoredAnswer: string[] | null = null;
		let unwrittenReference: string[] | null = null;
		for (const { start, walk } of this.walks) {
			for (const state of walk.statesAt(node)) {
				reached = true;
				if (state.unstoredAnswer) unstoredAnswer ??= walk.wayTo(node, state);
				if (state.unwrittenReference) unwrittenReference ??= walk.wayTo(node, state);
				if (state.claims > 0) {
					claimedHere ||= this.claims.length > 0;
					continue;
				}
				const opening = `${start} ${state.noClaim}`;
				if (seen.has(opening)) continue;
				seen.add(opening);
				openings.push({ start, noClaim: state.noClaim, way: walk.wayTo(node, state) });
			}
		}
		const standing = { reached, claimedHere, openings, unstoredAnswer, unwrittenReference };
		this.standings.set(node.index, standing);
		return standing;
	}

	/** The ways on which no claim stands between the start and the step, or only its Duplicate or Busy output. */
	unguardedWays(node: WorkflowNode): readonly Opening[] {
		return this.standingOf(node).openings.filter(
			({ noClaim }) => noClaim === 'none' || noClaim === 'refused',
		);
	}

	/** The sub-workflow a node calls: its name, and what is known of it, null where it was not given. */
	calledBy(node: WorkflowNode): ReturnType<GivenWorkflows['called']> {
		return this.given.called(node, this.workflow);
	}

	/** The steps that call a given workflow whose effects have no claim of their own. */
	get callsWithEffects(): Array<{ node: WorkflowNode; what: string }> {
		return this.workflow.nodes.flatMap((node) => {
			if (node.disabled || this.stepAt(node).does !== 'calls-workflow') return [];
			const survey = this.calledBy(node)?.survey ?? null;
			if (survey === null || survey.openEffects.length === 0) return [];
			if (!this.standingOf(node).reached) return [];
			return [{ node, what: `"${survey.name}" runs ${some(survey.openEffects)}` }];
		});
	}

	/** Whether an update moves a record along. */
	movesStage(node: WorkflowNode): boolean {
		const step = this.stepAt(node);
		if (step.does !== 'writes' || node.disabled) return false;
		for (const { field } of fieldTexts(node.parameters)) if (STAGE_FIELD.test(field)) return true;
		return false;
	}

	private findStarts(): void {
		const { nodes } = this.workflow;
		const add = (kind: StartKind, node: WorkflowNode) =>
			this.starts.set(kind, [...(this.starts.get(kind) ?? []), node]);
		const all = nodes.flatMap((node) => {
			const kind = startKindOf(node);
			return kind === null ? [] : [{ kind, node }];
		});
		for (const { kind, node } of all) if (!node.disabled) add(kind, node);
		const roots = nodes.filter(
			({ index, type }) =>
				this.graph.previous[index].length === 0 &&
				this.graph.next[index].length > 0 &&
				shortOf(type) !== 'stickyNote',
		);
		for (const node of roots) {
			// a community node that nothing leads to can only be a trigger
			if (!isKnownPackage(node.type) && startKindOf(node) === null && !node.disabled) {
				add('automatic', node);
				this.unnamedTriggers.add(node.index);
			}
		}
		if (this.starts.size > 0) return;
		for (const { kind, node } of all) add(kind, node);
		if (this.starts.size > 0) {
			this.notices.push('All its triggers are disabled; it is read as if they were not.');
			return;
		}
		for (const node of roots) add('automatic', node);
		if (this.starts.size > 0) {
			this.notices.push('It has no trigger; each node without input is taken for a start.');
		}
	}

	private marks(): Marks {
		const isWrite = (node: WorkflowNode) => this.stepAt(node).does === 'writes';
		return {
			acts: (node) => isWrite(node) || this.stepAt(node).does === 'calls-workflow',
			creates: (node) => {
				const step = this.stepAt(node);
				return (
					step.does === 'writes' &&
					step.effect.certain &&
					step.effect.repeats === 'doubles' &&
					(step.effect.kind === 'record' || step.effect.kind === 'money') &&
					!STORES.test(shortOf(node.type).replace(/Tool$/, ''))
				);
			},
			answers: (node) => ['model', 'agent'].includes(this.stepAt(node).does),
			writesReference: (node) => {
				if (!isWrite(node)) return false;
				for (const { field, text } of fieldTexts(node.parameters)) {
					if (REFERENCE_FIELD.test(field) && /\{\{|\$/.test(text)) return true;
				}
				return false;
			},
		};
	}
}

function isKnownPackage(type: string): boolean {
	return /^(?:n8n-nodes-base|@n8n\/n8n-nodes-langchain)\./.test(type) || ownName(type) !== null;
}
