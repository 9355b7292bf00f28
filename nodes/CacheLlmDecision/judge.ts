import type { IDataObject, IExecuteFunctions } from 'n8n-workflow';

import { isPresent, unresolvedIn, type DecisionAnswer, type Ledger } from '../../ledger';
import { callerOf } from '../execution/caller';
import { asDecisionField } from '../execution/decision-field';
import type { Parameters } from '../execution/parameters';
import { fieldNameProblem } from '../execution/work-field';
import { decisionFieldOf } from './answer';
import { JUDGE } from './outputs';
import { parameterProblem } from '../execution/problems';
import type { Placement } from './placement';
import { fieldOf, readDecisionKey } from './read';

/** Approves or rejects, item by item: a person judges one thing at a time. */
export async function judge(
	context: IExecuteFunctions,
	ledgerFor: () => Promise<Ledger>,
	parameters: Parameters,
	placement: Placement,
	approve: boolean,
): Promise<void> {
	const caller = callerOf(context);
	for (const [itemIndex, { json }] of context.getInputData().entries()) {
		const field = fieldOf(parameters, itemIndex);
		let status: 'refused' | 'error' = 'refused';
		try {
			const problem = fieldNameProblem(parameters.option<string>('field', itemIndex, field));
			if (problem !== null) throw new Error(problem);
			const decisionKey = readDecisionKey(parameters, itemIndex, json);
			const approver = readApprover(parameters, itemIndex);
			const reason = parameters.text('reason', itemIndex).trim();
			// what the item shows is what the approver saw
			const given = parameters.optionText('valueHash', itemIndex).trim();
			const valueHash = given !== '' ? given : (shownOn(json, decisionKey)?.valueHash ?? null);
			status = 'error';
			const { decisions } = await ledgerFor();
			const answer = await decisions.judge(
				decisionKey,
				{ approve, approver, reason, valueHash: valueHash as string | null },
				caller,
			);
			if (answer.outcome === 'refused') {
				status = 'refused';
				throw new Error(`Nothing was ${approve ? 'approved' : 'rejected'}: ${answer.reason}.`);
			}
			const value = decisionFieldOf(answer, answer.outcome, null, { repeated: answer.repeated });
			placement.place(itemIndex, outputOf(answer, approve), field, value);
		} catch (error) {
			placement.problem({ itemIndex, field, message: parameterProblem(error), status });
		}
	}
}

/** The decision as it stands on the item: in a field of this node, or as Get and List give it. */
function shownOn(json: IDataObject, decisionKey: string): IDataObject | undefined {
	return [...Object.values(json).map(asDecisionField), json].find(
		(shown) => shown?.decisionKey === decisionKey && typeof shown.valueHash === 'string',
	) as IDataObject | undefined;
}

/** What another approver said before in the same sense is as good. */
function outputOf({ state }: DecisionAnswer, approve: boolean): number {
	return state === (approve ? 'approved' : 'rejected') ? JUDGE.judged : JUDGE.notJudged;
}

/** A link that a program opened (a preview, a virus scanner) names nobody. */
function readApprover(parameters: Parameters, itemIndex: number): string {
	if (/\$fromAI\b/i.test(String(parameters.raw('approver')))) {
		throw new Error(
			'"Approver" is filled by the model: an agent must not approve its own action. Let a person approve it, in a workflow of its own.',
		);
	}
	const approver = parameters.text('approver', itemIndex).trim();
	const typed = unresolvedIn(approver);
	if (typed !== null) {
		throw new Error(
			`"Approver" holds ${typed.slice(0, 100)} as it was typed, which names nobody. Switch the field from Fixed to Expression.`,
		);
	}
	// of "user {{ $json.user }}" is left "user" where a program opened the link
	const isNobody =
		parameters.isAllEmpty('approver', itemIndex) ||
		['undefined', 'null', 'nan', 'false', 'true'].includes(approver.toLowerCase()) ||
		!isPresent(approver) ||
		approver.includes('[object Object]') ||
		!/[\p{L}\p{N}]/u.test(approver);
	if (isNobody || approver.length > 500) {
		throw new Error(
			'"Approver" is empty: nobody is named who decided this, so nothing was changed. Take it from a login, a signed form or a button that a person pressed, not from a link that any program opens.',
		);
	}
	return approver;
}
