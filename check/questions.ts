import type { Analysis } from './analysis';
import type { Finding } from './finding';
import { claimKeys } from './knowledge/keys';
import { ownName, ownOperation } from './knowledge/own-nodes';
import type { EffectReport } from './report';
import { some } from './rules/wording';
import { isRecord, textOf, type WorkflowNode } from './workflow';

export interface Answer {
	/** "audit": the six of the half-hour audit; "go-live": the five before a workflow is switched on. */
	list: 'audit' | 'go-live';
	question: string;
	answer: string;
	/** Null where the question does not arise. */
	good: boolean | null;
}

/** The audit's six questions and the five before go-live, answered from what the rules found. */
export function answers(
	analysis: Analysis,
	effects: readonly EffectReport[],
	findings: readonly Finding[],
): Answer[] {
	const counts = (...rules: string[]) =>
		findings.filter(({ rule, switchedOff }) => rules.includes(rule) && switchedOff === null);
	const own = (name: string) =>
		analysis.workflow.nodes.filter((node) => !node.disabled && ownName(node.type) === name);
	const open = effects.filter(({ guard, repeats }) => guard === 'none' && repeats === 'doubles');
	const audit = (question: string, good: boolean | null, answer: string): Answer => ({
		list: 'audit',
		question,
		answer,
		good,
	});
	const goLive = (question: string, good: boolean | null, answer: string): Answer => ({
		list: 'go-live',
		question,
		answer,
		good,
	});
	const keyFindings = counts('volatile-key', 'delivery-key');
	const { claims } = analysis;
	const elsewhere = claimElsewhere(effects);
	const claimed = claims.length > 0 || elsewhere !== null;
	const keepsPayload = claims.filter(storesPayload);
	const references = own('completeWork').filter(
		(node) =>
			ownOperation(node) === 'recordReference' || textOf(node.parameters.externalRef) !== '',
	);
	const gates = own('checkEvidenceGate');
	const moving = new Set(
		analysis.effects.filter(({ node }) => analysis.movesStage(node)).map(({ node }) => node.name),
	);
	const moves = effects.filter(({ node }) => moving.has(node));
	const stage = counts('stage-before-reference');
	return [
		audit(
			'What breaks if it runs twice?',
			open.length === 0,
			open.length === 0
				? 'Nothing that was found: every step that would double is guarded.'
				: `${some(open.map(({ node }) => node))} ${open.length === 1 ? 'happens' : 'happen'} twice.`,
		),
		audit(
			'Where does the id come from?',
			claimed && keyFindings.length === 0,
			claims.length === 0
				? (elsewhere ?? 'From nowhere: no claim names the work.')
				: `${claims.map(identity).slice(0, 3).join('; ')}${claims.length > 3 ? ' …' : ''}.${keyFindings.length === 0 ? '' : ` It changes from run to run at ${some(keyFindings.map(({ node }) => node ?? ''))}.`}`,
		),
		betweenModelAndWrite(analysis, counts('answer-not-stored', 'agent-tool-unguarded'), audit),
		audit(
			'Which calls have a key, a unique field, or hope?',
			effects.every(({ tier, guard }) => tier < 3 || guard !== 'none'),
			tiers(effects),
		),
		audit(
			'Where does the payload go after five failures, and who sees it?',
			claimed && keepsPayload.length === claims.length,
			keepsPayload.length > 0 || (claims.length === 0 && elsewhere !== null)
				? `Into the ledger, as a dead letter with its data. Work Ledger Trigger (dead letters) or Work Ledger → List shows it to a person${own('workLedgerTrigger').length > 0 ? '; the trigger is here' : ''}.`
				: analysis.workflow.errorWorkflow !== null
					? 'Nowhere: the error workflow hears of the failure, and the data stays in the list of executions until n8n prunes it.'
					: 'Nowhere: it is in the list of executions until n8n prunes it, and nobody is told.',
		),
		audit(
			'Can one item be replayed?',
			claimed && keepsPayload.length === claims.length,
			claimed && keepsPayload.length === claims.length
				? 'Yes: Work Ledger → Replay, one work without the rest of its batch.'
				: claims.length > 0
					? 'Only when it is delivered again: the claim does not keep the item.'
					: 'No: only the whole execution, and with it everything that had already happened.',
		),
		goLive(
			'Twice in the same second: one effect?',
			open.length === 0,
			open.length === 0
				? 'Yes, as far as claims and keys go.'
				: `No: ${some(open.map(({ node }) => node))}.`,
		),
		goLive(
			'Is the key derived from the work?',
			claimed && keyFindings.length === 0,
			!claimed
				? 'There is no key.'
				: keyFindings.length === 0
					? 'Yes, as far as the texts of the nodes tell.'
					: `No: ${some(keyFindings.map(({ node }) => node ?? ''))}.`,
		),
		goLive(
			'Is the reference written back first?',
			references.length > 0 && stage.length === 0,
			stage.length > 0
				? `No: ${some(stage.map(({ node }) => node ?? ''))} moves the record before.`
				: references.length > 0
					? `Yes: ${some(references.map(({ name }) => name))} ${references.length === 1 ? 'stores' : 'store'} it.`
					: 'No Complete Work stores an external reference.',
		),
		goLive(
			'Is the evidence checked before a record advances?',
			moves.length === 0 ? null : gates.length > 0,
			moves.length === 0
				? 'No record is moved along here.'
				: gates.length > 0
					? `Yes: ${some(gates.map(({ name }) => name))}.`
					: `No: ${some(moves.map(({ node }) => node))} without Check Evidence Gate.`,
		),
		goLive(
			'Can it be proved afterwards?',
			claimed,
			claimed
				? 'Yes: every decision is in the decision log (Work Ledger → Explain).'
				: 'Only from the list of executions, until n8n prunes it.',
		),
	];
}

/** Who names the work where no claim stands here; null for nobody. */
function claimElsewhere(effects: readonly EffectReport[]): string | null {
	if (effects.some(({ guard }) => guard === 'claim of the trigger')) {
		return 'From the ledger: its trigger hands out works that are claimed already.';
	}
	if (effects.some(({ guard }) => guard === 'claim of the caller')) {
		return 'From the claim of the calling workflow.';
	}
	return effects.every(({ guard }) => guard === 'send-once' || guard === 'not reached')
		? 'From chat and content: Send-Once Telegram makes it.'
		: null;
}

function betweenModelAndWrite(
	analysis: Analysis,
	found: readonly Finding[],
	audit: (question: string, good: boolean | null, answer: string) => Answer,
): Answer {
	const question = 'What happens between model and write?';
	const models = analysis.workflow.nodes.filter(
		(node) => !node.disabled && ['model', 'agent'].includes(analysis.stepAt(node).does),
	);
	if (models.length === 0) return audit(question, null, 'No model takes part.');
	if (found.length === 0) return audit(question, true, 'No answer is applied that was not stored.');
	return audit(
		question,
		false,
		`Nothing: ${some(found.map(({ node }) => node ?? ''))} acts on an answer that a second run does not get again.`,
	);
}

function tiers(effects: readonly EffectReport[]): string {
	const named = (tier: number) => effects.filter((effect) => effect.tier === tier);
	const part = (tier: number, words: string) => {
		const each = named(tier);
		return each.length === 0 ? [] : [`${words}: ${some(each.map(({ node }) => node))}`];
	};
	return `${[...part(1, 'Key'), ...part(2, 'unique field'), ...part(3, 'hope')].join('; ')}.`;
}

function identity(claim: WorkflowNode): string {
	const { parameters } = claim;
	const keys = claimKeys(claim).filter(({ where }) => where !== 'Kind' && where !== 'Version');
	const kind = textOf(parameters.kind) || 'a kind not named';
	const by = textOf(parameters.identity, 'fields');
	const from =
		keys.length > 0
			? keys.map(({ raw }) => raw.slice(0, 80)).join(', ')
			: by === 'ledger'
				? "the ledger's work"
				: by;
	return `${kind} by ${from}`;
}

function storesPayload({ parameters }: WorkflowNode): boolean {
	return !(isRecord(parameters.options) && parameters.options.storePayload === false);
}
