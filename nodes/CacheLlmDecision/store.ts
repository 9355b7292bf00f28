import type { IDataObject, IExecuteFunctions } from 'n8n-workflow';

import {
	isOwnField,
	parseFieldNames,
	readModelAnswer,
	SchemaCheck,
	usableAnswer,
	type AnswerForm,
	type AnswerTerms,
	type DecisionAnswer,
	type FreeItem,
	type Ledger,
	type StoreItem,
} from '../../ledger';
import { inputOf } from '../execution/agent-tool';
import { callerOf } from '../execution/caller';
import { DEFAULT_DECISION_FIELD } from '../execution/decision-field';
import type { Parameters } from '../execution/parameters';
import { fieldNameProblem } from '../execution/work-field';
import { checkedNumber } from '../execution/number';
import { decisionFieldOf } from './answer';
import { DecisionSearch, type FoundDecision } from './find-decision';
import { STORE } from './outputs';
import { parameterProblem } from '../execution/problems';
import type { Placement } from './placement';
import { fieldOf, readNeedsApproval } from './read';

const FORMS: AnswerForm[] = ['object', 'json', 'text'];

interface Offer {
	itemIndex: number;
	field: string;
	found: FoundDecision;
	send: { store: StoreItem } | { free: FreeItem };
}

/** Stores every answer that can be used, and frees the key of every other one. */
export async function store(
	context: IExecuteFunctions,
	ledgerFor: () => Promise<Ledger>,
	parameters: Parameters,
	placement: Placement,
): Promise<void> {
	const items = inputOf(context);
	const caller = callerOf(context);
	let ledger: Ledger;
	try {
		ledger = await ledgerFor();
	} catch (error) {
		items.forEach((_, itemIndex) => {
			const field = fieldOf(parameters, itemIndex);
			placement.problem({ itemIndex, field, message: parameterProblem(error), status: 'error' });
		});
		return;
	}
	const search = new DecisionSearch(context, ledger.decisions);
	const schemas = new Map<unknown, SchemaCheck>();
	const found: Array<{ itemIndex: number; field: string; found: FoundDecision }> = [];
	for (const [itemIndex, input] of items.entries()) {
		const field = fieldOf(parameters, itemIndex);
		try {
			const problem = fieldNameProblem(
				parameters.option<string>('field', itemIndex, DEFAULT_DECISION_FIELD),
			);
			if (problem !== null) throw new Error(problem);
			const searched = await search.find(input, itemIndex, {
				field,
				decisionKey: parameters.optionText('decisionKey', itemIndex).trim(),
				token: parameters.optionText('token', itemIndex).trim(),
			});
			if ('problem' in searched) throw new Error(searched.problem);
			found.push({ itemIndex, field, found: searched });
		} catch (error) {
			placement.problem({ itemIndex, field, message: parameterProblem(error), status: 'refused' });
		}
	}

	const perToken = new Map<string, number>();
	for (const { found: one } of found) perToken.set(one.token, (perToken.get(one.token) ?? 0) + 1);
	const offers = found.map((one): Offer => {
		const count = perToken.get(one.found.token) ?? 1;
		const send =
			count === 1
				? readOffer(parameters, items[one.itemIndex].json, one, schemas)
				: freed(
						one.found,
						'null',
						`The answer came as ${count} items. Put them together before this node (Aggregate), or ask for one value.`,
					);
		return { ...one, send };
	});
	try {
		await send(ledger, offers, caller, placement);
	} catch (error) {
		for (const { itemIndex, field } of offers) {
			placement.problem({ itemIndex, field, message: parameterProblem(error), status: 'error' });
		}
	}
}

async function send(
	{ decisions }: Ledger,
	offers: Offer[],
	caller: ReturnType<typeof callerOf>,
	placement: Placement,
): Promise<void> {
	const storing = offers.flatMap((offer) =>
		'store' in offer.send ? [{ offer, item: offer.send.store }] : [],
	);
	const freeing = offers.flatMap((offer) =>
		'free' in offer.send ? [{ offer, item: offer.send.free }] : [],
	);
	const stored = await decisions.store(
		storing.map(({ item }) => item),
		caller,
	);
	const free = await decisions.free(
		freeing.map(({ item }) => item),
		caller,
	);
	const answered: Array<[Offer, DecisionAnswer]> = [
		...storing.map(({ offer }, i): [Offer, DecisionAnswer] => [offer, stored[i]]),
		...freeing.map(({ offer }, i): [Offer, DecisionAnswer] => [offer, free[i]]),
	];
	for (const [{ itemIndex, field, found }, answer] of answered) {
		const value = decisionFieldOf(answer, answer.outcome, found.kind, {
			repeated: answer.repeated,
		});
		placement.place(itemIndex, outputOf(answer), field, value);
	}
}

function outputOf({ outcome }: DecisionAnswer): number {
	switch (outcome) {
		case 'stored':
		case 'superseded':
			return STORE.stored;
		case 'not_stored':
			return STORE.notStored;
		default:
			return STORE.notApproved;
	}
}

/** The answer as it is stored; or the key freed, with the reason: a parameter that fails must not keep it. */
function readOffer(
	parameters: Parameters,
	json: IDataObject,
	{ itemIndex, found }: { itemIndex: number; found: FoundDecision },
	schemas: Map<unknown, SchemaCheck>,
): Offer['send'] {
	try {
		const answer = readModelAnswer(withoutOwn(json));
		if (parameters.read<string>('answerFrom', itemIndex, 'auto') === 'expression') {
			// as it stands it would be the answer to every question
			parameters.refuseTyped('answer', '"Answer Value"');
			answer.content = parameters.read<unknown>('answer', itemIndex, undefined);
		}
		const usable = usableAnswer(answer, readTerms(parameters, itemIndex, schemas));
		if ('problem' in usable) return freed(found, usable.rawText, usable.problem);
		const number = (name: string, label: string, otherwise: number | null, whole = false) => {
			const given = parameters.option<unknown>(name, itemIndex, undefined);
			if (given === undefined || given === null || given === '') return otherwise;
			return checkedNumber(given, { label, least: 0, most: Number.MAX_SAFE_INTEGER, whole });
		};
		const ttlHours = number('ttlHours', 'Time to Live (Hours)', null);
		return {
			store: {
				...found,
				...usable,
				needsApproval: readNeedsApproval(parameters, itemIndex),
				ttlSeconds: ttlHours === null || ttlHours === 0 ? null : Math.min(ttlHours * 3600, 3.2e9),
				inputTokens: number('inputTokens', 'Input Tokens', answer.inputTokens, true),
				outputTokens: number('outputTokens', 'Output Tokens', answer.outputTokens, true),
				cost: number('cost', 'Cost', null),
				latencyMs: number('latencyMs', 'Latency (Ms)', null),
			},
		};
	} catch (error) {
		return freed(found, 'null', parameterProblem(error));
	}
}

function readTerms(
	parameters: Parameters,
	itemIndex: number,
	schemas: Map<unknown, SchemaCheck>,
): AnswerTerms {
	const form = parameters.read<AnswerForm>('form', itemIndex, 'object');
	if (!FORMS.includes(form)) {
		throw new Error(
			`"The Answer Must Be" is set to "${String(form).slice(0, 50)}", which this version does not know. Choose it anew.`,
		);
	}
	const given = parameters.option<unknown>('schema', itemIndex, '');
	const hasSchema = given !== '' && given !== undefined && given !== null;
	const key = typeof given === 'object' ? JSON.stringify(given) : given;
	if (hasSchema && !schemas.has(key)) schemas.set(key, new SchemaCheck(given));
	const finishReason = parameters.optionText('finishReason', itemIndex).trim();
	return {
		form,
		requiredFields: parseFieldNames(parameters.text('requiredFields', itemIndex)),
		schema: hasSchema ? schemas.get(key) : undefined,
		finishReason: finishReason === '' ? undefined : finishReason,
	};
}

function freed(found: FoundDecision, rawText: string, reason: string): { free: FreeItem } {
	return { free: { ...found, rawText, reason } };
}

function withoutOwn(json: IDataObject): IDataObject {
	return Object.fromEntries(Object.entries(json).filter(([, value]) => !isOwnField(value)));
}
