import { Analysis } from './analysis';
import type { Finding } from './finding';
import { ownName } from './knowledge/own-nodes';
import { placementOf, type Tier } from './knowledge/tiers';
import { answers, type Answer } from './questions';
import { RULES } from './rules';
import { some } from './rules/wording';
import { GivenWorkflows, NO_CALLERS, survey, type Callers, type Survey } from './sub-workflows';
import { finding, switchedOffByNotes, type SwitchedOff } from './switched-off';
import type { Workflow } from './workflow';

/** What keeps a step from having its effect twice. */
export type Guard =
	| 'claim'
	| 'claim of the caller'
	| 'claim of the trigger'
	| 'send-once'
	| 'key at the target'
	| 'completed claim'
	| 'none'
	| 'not reached';

export interface EffectReport {
	node: string;
	what: string;
	kind: 'money' | 'message' | 'record' | 'command';
	/** "doubles": a second run makes one more; "converges": it leaves things as they are. */
	repeats: 'doubles' | 'converges';
	guard: Guard;
	/** An agent may call it as a tool. */
	tool: boolean;
	tier: Tier;
	/** False where nothing is known of the target. */
	tierKnown: boolean;
	/** What to put where. */
	advice: string;
}

/** A workflow that is called, at once or as a tool. */
export interface CallReport {
	node: string;
	/** As the node names it; null where an expression, a file or an address does. */
	workflow: string | null;
	/** Names of its steps with effects; null for a workflow that was not given. */
	effects: readonly string[] | null;
}

export interface WorkflowReport {
	id: string | null;
	name: string;
	nodes: number;
	/** Steps that only read or ask a model. */
	reads: number;
	effects: EffectReport[];
	calls: CallReport[];
	/** In the order of the rules; those switched off are among them, marked. */
	findings: Finding[];
	/** The audit's six questions and the five before go-live; empty where nothing has an effect. */
	questions: Answer[];
	/** What could not be read or was assumed, a sentence each. */
	notices: string[];
}

/** Beyond this a workflow is not checked; n8n's editor gives up far earlier. */
export const MAX_NODES = 20_000;

const RULE_IDS: ReadonlySet<string> = new Set(RULES.map(({ id }) => id));

/** What others have to know of a workflow. */
export function surveyOf(workflow: Workflow): Survey {
	const linked = workflow.nodes.some(({ type }) =>
		/\.(?:executeWorkflowTrigger|executeWorkflow|toolWorkflow|executeWorkflowTool)$/.test(type),
	);
	if (linked && workflow.nodes.length <= MAX_NODES) {
		return survey(new Analysis(workflow, new GivenWorkflows(), NO_CALLERS));
	}
	const { id, name } = workflow;
	return { id, name, calls: [], openEffects: [], effects: [], settles: false };
}

/** Checks one workflow; `given` knows the others that were given with it. Runs, evaluates and sends nothing. */
export function checkWorkflow(
	workflow: Workflow,
	given: GivenWorkflows = new GivenWorkflows(),
	callers: Callers = NO_CALLERS,
	switchedOff: readonly SwitchedOff[] = [],
): WorkflowReport {
	const { id, name, nodes } = workflow;
	if (nodes.length > MAX_NODES) {
		const notice = `It has ${nodes.length} nodes and was not checked; the limit is ${MAX_NODES}.`;
		return {
			...{
				id,
				name,
				nodes: nodes.length,
				reads: 0,
				effects: [],
				calls: [],
				findings: [],
				questions: [],
			},
			notices: [...workflow.notices, notice],
		};
	}
	const analysis = new Analysis(workflow, given, callers);
	const notes = switchedOffByNotes(workflow, RULE_IDS);
	const off = [...switchedOff, ...notes.off];
	const findings = RULES.flatMap((rule) =>
		[...rule.find(analysis)].map((found) => finding(rule, found, off)),
	);
	const effects = effectReports(analysis);
	return {
		id,
		name,
		nodes: nodes.length,
		reads: nodes.filter((node) => ['reads', 'model'].includes(analysis.stepAt(node).does)).length,
		effects,
		calls: nodes.flatMap((node) => {
			if (node.disabled || analysis.stepAt(node).does !== 'calls-workflow') return [];
			const called = analysis.calledBy(node);
			return [
				{
					node: node.name,
					workflow: called?.name ?? null,
					effects: called?.survey?.effects ?? null,
				},
			];
		}),
		findings,
		questions: effects.length === 0 ? [] : answers(analysis, effects, findings),
		notices: [...workflow.notices, ...analysis.notices, ...unreached(effects), ...notes.notices],
	};
}

/** Checks workflows that may call each other, in their order. */
export function checkTogether(
	workflows: readonly Workflow[],
	switchedOff: readonly SwitchedOff[] = [],
): WorkflowReport[] {
	const surveys = workflows.map(surveyOf);
	const given = new GivenWorkflows(surveys);
	return workflows.map((workflow, i) =>
		checkWorkflow(workflow, given, given.callers(surveys[i]), switchedOff),
	);
}

/** Silence about a step that no way leads to would look like safety. */
function unreached(effects: readonly EffectReport[]): string[] {
	const names = effects.filter(({ guard }) => guard === 'not reached').map(({ node }) => node);
	return names.length === 0
		? []
		: [`No trigger leads to ${some(names)}, so nothing was found there.`];
}

function effectReports(analysis: Analysis): EffectReport[] {
	const reports: EffectReport[] = [];
	const inFlow = new Set(analysis.effects.map(({ node }) => node.index));
	for (const node of analysis.workflow.nodes) {
		if (node.disabled) continue;
		if (ownName(node.type) === 'sendOnceTelegram') {
			reports.push({
				node: node.name,
				what: 'Telegram: message, through Send-Once Telegram',
				kind: 'message',
				repeats: 'doubles',
				guard: 'send-once',
				tool: !analysis.standingOf(node).reached,
				tier: 3,
				tierKnown: true,
				advice: 'Telegram takes no key: the ledger keeps what was sent.',
			});
			continue;
		}
		const step = analysis.stepAt(node);
		if (step.does !== 'writes') continue;
		const { what, kind, repeats } = step.effect;
		const { tier, known, advice } = placementOf({ node, effect: step.effect });
		const tool = !inFlow.has(node.index);
		const guard = tool
			? step.effect.key === null
				? 'none'
				: 'key at the target'
			: guardOf(analysis, node.index, step.effect.key !== null);
		reports.push({
			...{ node: node.name, what, kind, repeats, guard, tool },
			...{ tier, tierKnown: known, advice },
		});
	}
	return reports;
}

function guardOf(analysis: Analysis, index: number, hasKey: boolean): Guard {
	const node = analysis.workflow.nodes[index];
	const { reached, openings, claimedHere } = analysis.standingOf(node);
	if (!reached) return 'not reached';
	if (analysis.unguardedWays(node).length > 0) return hasKey ? 'key at the target' : 'none';
	if (openings.length > 0) return 'completed claim';
	if (claimedHere) return 'claim';
	return analysis.startsOf('ledger').length > 0 ? 'claim of the trigger' : 'claim of the caller';
}
