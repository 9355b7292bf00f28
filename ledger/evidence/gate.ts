import { readableText } from '../json-text';
import { shown } from '../identity/refusal';
import type { PatternMatcher } from './pattern';
import { isPresent } from './present';
import {
	applyRule,
	expectedText,
	fieldOf,
	isStatusField,
	ruleName,
	type EvidenceRule,
	type Finding,
	type LedgerQuestion,
} from './rules';

/** A node with more rules is a mistake, and every one costs a look. */
const MAX_RULES = 500;
/** So many are kept in the decision log, and named in the sentence. */
const MAX_LOGGED = 20;
const MAX_NAMED = 5;

export interface EvidenceStage {
	name: string;
	rules: EvidenceRule[];
}

/** One record, and what it has to show. */
export interface EvidenceRequest {
	/** Under which the check stands in the decision log: 64 lower-case hex digits. */
	recordId: string;
	record: Record<string, unknown>;
	/** A ladder, the lowest stage first; a plain list of rules is one stage without a name. */
	stages: EvidenceStage[];
	/** The stage to move to; null for a plain list. */
	target: string | null;
	/** Whether the evidence of all lower stages is needed too. */
	requireLower: boolean;
	/** The check cannot be made at all (the node's settings cannot be read); logged, never passed. */
	refusal?: string;
}

export type EvidenceStatus =
	| 'passed'
	/** Evidence is missing, or nobody knows which is needed. */
	| 'blocked'
	/** The check cannot be made for this item. */
	| 'refused'
	/** A rule cannot be applied. */
	| 'error';

/** A rule that does not hold. */
export interface MissingEvidence {
	rule: string;
	/** null in a plain list. */
	stage: string | null;
	/** null where the rule looks elsewhere. */
	field: string | null;
	check: EvidenceRule['check'];
	/** At most 80 characters. */
	found: string;
	expected: string;
	reason: string;
}

export interface EvidenceAnswer {
	recordId: string;
	status: EvidenceStatus;
	/** A sentence for people. */
	message: string;
	/** The stage asked for; null in a plain list. */
	stage: string | null;
	/** The highest stage that the evidence supports; null: none, or a plain list. */
	supportedStage: string | null;
	/** Of the stages that were needed. */
	missing: MissingEvidence[];
	warnings: string[];
}

/** What the ledger holds of the work that a rule asks for. */
export interface LedgerFinding {
	holds: boolean;
	state?: string;
	external_ref?: string;
	completed_at?: string;
	lapsed?: boolean;
}

interface Applied {
	stage: number;
	rule: EvidenceRule;
	finding: Finding;
	needed: boolean;
}

/** A request with its rules applied, before the ledger is asked. */
export interface Evaluation {
	request: EvidenceRequest;
	target: number;
	applied: Applied[];
	/** Why it cannot pass whatever the evidence is. */
	problem: { status: 'blocked' | 'refused' | 'error'; reason: string } | null;
}

/** Applies all rules of all stages: those above the target tell which stage the evidence supports. */
export function evaluate(request: EvidenceRequest, patterns: PatternMatcher): Evaluation {
	const { stages, requireLower } = request;
	const { target, problem } = targetOf(request);
	const applied =
		problem !== null && problem.status !== 'blocked'
			? []
			: stages.flatMap(({ rules }, stage) =>
					rules.map((rule) => ({
						stage,
						rule,
						finding: applyRule(rule, request.record, patterns),
						needed: stage === target || (requireLower && stage < target),
					})),
				);
	const evaluation = { request, target, applied, problem };
	// what Always Output Data makes of nothing: a rule that asks for an empty field, or for other work, would hold
	if (problem === null && verdictOf(evaluation) === null && !isPresent(request.record)) {
		const reason = 'The item is empty, so nothing on it can be evidence.';
		return { ...evaluation, problem: { status: 'blocked', reason } };
	}
	return evaluation;
}

function targetOf(request: EvidenceRequest): Pick<Evaluation, 'target' | 'problem'> {
	const { stages, target } = request;
	const cannot = (status: 'blocked' | 'refused' | 'error', reason: string) => ({
		target: -1,
		problem: { status, reason },
	});
	if (request.refusal !== undefined) return cannot('refused', request.refusal);
	const count = stages.reduce((sum, { rules }) => sum + rules.length, 0);
	if (count === 0) {
		return cannot(
			'error',
			'This gate has no rules, so it would check nothing. Add at least one rule.',
		);
	}
	if (count > MAX_RULES) {
		return cannot('error', `This gate has ${count} rules; at most ${MAX_RULES} are allowed.`);
	}
	if (target === null) return { target: 0, problem: null };

	const names = stages.map(({ name }) => name.trim());
	if (names.includes('')) {
		return cannot('error', 'A stage of the ladder has no name. Enter one, or remove the stage.');
	}
	const twice = names.find((name, i) => names.indexOf(name) !== i);
	if (twice !== undefined) {
		return cannot('error', `The ladder has two stages ${shown(twice)}. Rename or remove one.`);
	}
	const known = `The stages of this ladder are: ${names.map(shown).join(', ').slice(0, 2_000)}.`;
	const wanted = target.trim();
	if (wanted === '') return cannot('blocked', `The item names no stage to move to. ${known}`);
	const at = names.indexOf(wanted);
	if (at === -1) {
		const like = names.find((name) => name.toLowerCase() === wanted.toLowerCase());
		const hint = like === undefined ? '' : ` Capitals count: there is ${shown(like)}.`;
		return cannot('blocked', `There is no stage ${shown(wanted)}. ${known}${hint}`);
	}
	if (stages[at].rules.length === 0) {
		return {
			target: at,
			problem: {
				status: 'blocked',
				reason: `The stage ${shown(wanted)} has no rules, so nothing would prove that a record belongs there. Add at least one rule to it.`,
			},
		};
	}
	return { target: at, problem: null };
}

/** What the record alone decides: null leaves it to the ledger. */
function verdictOf({ applied, problem }: Evaluation): 'blocked' | 'refused' | 'error' | null {
	if (problem !== null) return problem.status;
	const needed = applied.filter((one) => one.needed);
	if (needed.some(({ finding }) => finding.outcome === 'broken')) return 'error';
	return needed.some(({ finding }) => finding.outcome === 'fails') ? 'blocked' : null;
}

type Asking = Applied & { finding: { outcome: 'asks'; question: LedgerQuestion } };

function asking({ applied }: Evaluation): Asking[] {
	return applied.filter((one): one is Asking => one.finding.outcome === 'asks');
}

/** The check as the SQL function takes it, as JSON text. */
export function checkText(evaluation: Evaluation): string {
	const { request, applied, problem } = evaluation;
	const missing = applied.flatMap((one) =>
		one.needed && (one.finding.outcome === 'fails' || one.finding.outcome === 'broken')
			? [missingEntry(request, one, one.finding.found, one.finding.reason)]
			: [],
	);
	return JSON.stringify({
		stage: request.target === null ? null : readableText(request.target, 200),
		rules: applied.filter(({ needed }) => needed).length,
		verdict: verdictOf(evaluation),
		missing: [
			...(problem === null ? [] : [{ reason: readableText(problem.reason, 500) }]),
			...missing.slice(0, MAX_LOGGED).map(({ rule, field, found, reason }) => ({
				rule: readableText(rule, 200),
				...(field === null ? {} : { field: readableText(field, 200) }),
				found: readableText(found, 100),
				reason: readableText(reason, 500),
			})),
		],
		ledger: asking(evaluation).map(({ rule, needed, finding: { question } }) => ({
			rule: readableText(ruleName(rule), 200),
			needed,
			work_id: question.workId,
			kind: question.kind,
			key: readableText(question.key, 200),
			...(question.reference === null ? {} : { reference: question.reference }),
		})),
	});
}

/** The answer, once the ledger has decided and said what it holds. Fails closed where the two do not fit. */
export function conclude(
	evaluation: Evaluation,
	outcome: string,
	ledger: LedgerFinding[],
): EvidenceAnswer {
	const { request, problem } = evaluation;
	const found = new Map(asking(evaluation).map((one, i) => [one as Applied, ledger[i]]));
	const missing: MissingEvidence[] = [];
	const failed = new Set<number>();
	for (const one of evaluation.applied) {
		const entry = missingOf(request, one, found.get(one));
		if (entry === null) continue;
		failed.add(one.stage);
		if (one.needed) missing.push(entry);
	}
	const status = statusOf(outcome, verdictOf(evaluation), missing);
	const supportedStage = supported(evaluation, failed);
	return {
		recordId: request.recordId,
		status,
		message: sentence(evaluation, status, supportedStage, missing),
		stage: request.target,
		supportedStage,
		missing,
		warnings: problem === null || problem.status === 'blocked' ? statusWarnings(request) : [],
	};
}

/** `passed` only where the database and the record agree on it. */
function statusOf(
	outcome: string,
	verdict: EvidenceStatus | null,
	missing: MissingEvidence[],
): EvidenceStatus {
	if (outcome === 'passed') return verdict ?? (missing.length === 0 ? 'passed' : 'blocked');
	return outcome === 'refused' || outcome === 'error' ? outcome : 'blocked';
}

function missingOf(
	request: EvidenceRequest,
	one: Applied,
	ledger: LedgerFinding | undefined,
): MissingEvidence | null {
	const { finding } = one;
	switch (finding.outcome) {
		case 'holds':
			return null;
		case 'fails':
		case 'broken':
			return missingEntry(request, one, finding.found, finding.reason);
		case 'asks': {
			if (ledger?.holds === true) return null;
			const { found, reason } = ledgerWords(finding.question, ledger);
			return missingEntry(request, one, found, reason);
		}
	}
}

function missingEntry(
	{ target, stages }: EvidenceRequest,
	{ rule, stage }: Applied,
	found: string,
	reason: string,
): MissingEvidence {
	return {
		rule: ruleName(rule),
		stage: target === null ? null : stages[stage].name.trim(),
		field: fieldOf(rule),
		check: rule.check,
		found,
		expected: expectedText(rule),
		reason,
	};
}

function ledgerWords(
	{ kind, version, key, reference }: LedgerQuestion,
	ledger: LedgerFinding | undefined,
): { found: string; reason: string } {
	const work = `${kind} ${version} ${shown(key)}`;
	if (ledger?.state === undefined) {
		return { found: 'no such work', reason: `the ledger holds no work ${work}` };
	}
	const { state, external_ref: stored, lapsed } = ledger;
	if (state !== 'done') {
		const more = lapsed === true ? ', but its lease ended without a report' : '';
		return { found: state, reason: `the work ${work} is ${state}${more}, not done` };
	}
	return stored === undefined
		? { found: 'no reference', reason: `the work ${work} is done, but without a reference` }
		: {
				found: shown(stored),
				reason: `the work ${work} is done with the reference ${shown(stored)}, and the field holds ${shown(reference)}`,
			};
}

/** Stages without rules prove nothing and need nothing. */
function supported(evaluation: Evaluation, failed: Set<number>): string | null {
	const { request, applied } = evaluation;
	if (request.target === null || applied.length === 0 || !isPresent(request.record)) return null;
	let highest: string | null = null;
	for (const [stage, { name, rules }] of request.stages.entries()) {
		if (failed.has(stage)) {
			if (request.requireLower) break;
		} else if (rules.length > 0) highest = name.trim();
	}
	return highest;
}

function sentence(
	{ request, applied, problem }: Evaluation,
	status: EvidenceStatus,
	supportedStage: string | null,
	missing: MissingEvidence[],
): string {
	const supports =
		request.target === null || applied.length === 0
			? ''
			: supportedStage === null
				? ' The evidence supports no stage of the ladder yet.'
				: ` The evidence supports ${shown(supportedStage)}.`;
	if (problem !== null) return `${problem.reason}${supports}`;
	const count = applied.filter(({ needed }) => needed).length;
	const rules = count === 1 ? '1 rule' : `${count} rules`;
	const goal = request.target === null ? '' : ` for ${shown(request.target.trim())}`;
	if (status === 'passed') {
		return `Passed: the evidence${goal} is on the record (${rules}).${supports}`;
	}
	const named = missing
		.slice(0, MAX_NAMED)
		.map(({ rule, check, reason }) =>
			check === 'broken' || status === 'error' ? `"${rule}" ${reason}` : `${rule}: ${reason}`,
		)
		.join('; ');
	const more = missing.length > MAX_NAMED ? `; and ${missing.length - MAX_NAMED} more` : '';
	const begin =
		status === 'error'
			? `Nothing passes${goal}, because a rule cannot be applied`
			: `Blocked: ${missing.length} of ${rules}${goal} ${missing.length === 1 ? 'does' : 'do'} not hold`;
	return `${begin}. ${named}${more}.${supports}`.replace(/\.\./g, '.');
}

function statusWarnings({ stages }: EvidenceRequest): string[] {
	const fields = stages.flatMap(({ rules }) =>
		rules.flatMap((rule) => (rule.check === 'condition' ? (rule.fields ?? []) : [fieldOf(rule)])),
	);
	const named = new Set(fields.filter((field) => field !== null && isStatusField(field)));
	return [...named].map(
		(field) =>
			`${shown(field)} is a stage or status: it says where somebody put the record, not what happened. Use what the step leaves behind, such as an invoice number.`,
	);
}
