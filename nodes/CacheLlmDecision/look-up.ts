import { randomUUID } from 'crypto';
import type { IDataObject, IExecuteFunctions } from 'n8n-workflow';

import {
	decisionKeyOf,
	isCode,
	DEFAULT_VOLATILE_FIELDS,
	isPresent,
	parseFieldNames,
	readField,
	volatileBesides,
	volatileSources,
	type DecisionAnswer,
	type DecisionQuestion,
	type Ledger,
	type LookUpItem,
	type LookUpPolicy,
} from '../../ledger';
import { inputOf } from '../execution/agent-tool';
import { callerOf } from '../execution/caller';
import { DEFAULT_DECISION_FIELD, decisionStatus, openDecision } from '../execution/decision-field';
import { isTool } from '../execution/failing-closed';
import type { Parameters } from '../execution/parameters';
import { fieldNameProblem, withoutFields } from '../execution/work-field';
import { checkedNumber } from '../execution/number';
import { decisionFieldOf } from './answer';
import { LOOK_UP } from './outputs';
import { parameterProblem } from '../execution/problems';
import type { Placement } from './placement';
import { readNeedsApproval } from './read';

/** An item that can be looked up. */
interface Asked {
	itemIndex: number;
	field: string;
	item: LookUpItem;
}

/** Items that go into one statement: all but the question is the same for them. */
interface AskedGroup {
	policy: LookUpPolicy;
	waitSeconds: number;
	asked: Asked[];
}

/** Looks every item up. Nothing leaves by Replay or Decide unless the ledger said so. */
export async function lookUp(
	context: IExecuteFunctions,
	ledgerFor: () => Promise<Ledger>,
	parameters: Parameters,
	placement: Placement,
): Promise<void> {
	const groups = readGroups(context, parameters, placement);
	if (placement.stops && placement.problems.length > 0) return;

	const answered: Answered[] = [];
	let ledger: Ledger | null = null;
	try {
		ledger = await ledgerFor();
		for (const { policy, waitSeconds, asked } of groups) {
			const answers = await ledger.decisions.lookUpAndWait(
				asked.map(({ item }) => item),
				policy,
				{ seconds: waitSeconds, signal: context.getExecutionCancelSignal() },
			);
			asked.forEach((one, i) => answered.push({ one, answer: answers[i], policy }));
		}
	} catch (error) {
		await freeAll(ledger, answered);
		const message = `${parameterProblem(error)} Nothing was passed on.`;
		for (const { asked } of groups) {
			for (const { itemIndex, field } of asked) {
				placement.problem({ itemIndex, field, message, status: 'error' });
			}
		}
		return;
	}
	const stopsOnEmpty = context.getNode().alwaysOutputData === true && !isTool(context);
	// then the workflow stops before anybody is asked
	if (stopsOnEmpty && !answered.some(({ answer }) => answer.outcome === 'replay')) {
		await freeAll(ledger, answered);
	}
	for (const { one, answer, policy } of answered) {
		const field = decisionFieldOf(answer, answer.outcome, policy.kind, {
			replayed: answer.outcome === 'replay',
		});
		placement.place(one.itemIndex, outputOf(answer), one.field, field);
	}
}

interface Answered {
	one: Asked;
	answer: DecisionAnswer;
	policy: LookUpPolicy;
}

/** A throw strands no question: what this execution was to decide is free again, or its lease ends. */
async function freeAll(ledger: Ledger | null, answered: Answered[]): Promise<void> {
	const held = answered.filter(({ answer }) => answer.outcome === 'decide');
	if (ledger === null || held.length === 0) return;
	const freed = held.map(({ one }) => ({
		...one.item,
		rawText: 'null',
		reason: 'the look-up failed',
	}));
	await ledger.decisions.free(freed, held[0].policy.caller).catch(() => undefined);
}

function outputOf({ outcome }: DecisionAnswer): number {
	switch (outcome) {
		case 'replay':
			return LOOK_UP.replay;
		case 'decide':
			return LOOK_UP.decide;
		case 'busy':
			return LOOK_UP.busy;
		default:
			return LOOK_UP.notApproved;
	}
}

function readGroups(
	context: IExecuteFunctions,
	parameters: Parameters,
	placement: Placement,
): AskedGroup[] {
	const caller = callerOf(context);
	const groups = new Map<string, AskedGroup>();
	const volatile = volatileParameters(parameters);
	const leftOut = new LeftOut();
	inputOf(context).forEach(({ json }, itemIndex) => {
		let field = DEFAULT_DECISION_FIELD;
		try {
			field = readFieldName(parameters, itemIndex, json);
			if (
				volatile !== null &&
				parameters.option<unknown>('allowVolatileKey', itemIndex, false) !== true
			) {
				throw new Error(volatile);
			}
			const { decisionKey, parts, kind } = decisionKeyOf(
				readQuestion(parameters, itemIndex, withoutFields(json, [field]), leftOut),
			);
			const policy: LookUpPolicy = {
				kind,
				needsApproval: readNeedsApproval(parameters, itemIndex),
				leaseSeconds: checkedNumber(parameters.option<unknown>('leaseSeconds', itemIndex, 300), {
					label: 'Lease (Seconds)',
					least: 0.001,
					most: 31_622_400,
				}),
				caller,
			};
			const waitSeconds = checkedNumber(parameters.read<unknown>('wait', itemIndex, 0), {
				label: "Wait for Another's Decision (Seconds)",
				least: 0,
				most: 600,
			});
			const groupKey = JSON.stringify([policy, waitSeconds]);
			const group = groups.get(groupKey) ?? { policy, waitSeconds, asked: [] };
			groups.set(groupKey, group);
			// made here, before anything is sent: a resend after a lost answer finds its own look-up by it
			const item = { decisionKey, parts, token: randomUUID() };
			group.asked.push({ itemIndex, field, item });
		} catch (error) {
			placement.problem({ itemIndex, field, message: parameterProblem(error), status: 'refused' });
		}
	});
	return [...groups.values()];
}

function readQuestion(
	parameters: Parameters,
	itemIndex: number,
	json: IDataObject,
	leftOut: LeftOut,
): DecisionQuestion {
	const influences = parameters.read<IDataObject>('influences', itemIndex, {});
	return {
		kind: parameters.text('kind', itemIndex),
		model: parameters.read<unknown>('model', itemIndex, ''),
		promptVersion: parameters.read<unknown>('promptVersion', itemIndex, ''),
		temperature: influences.temperature,
		maxTokens: influences.maxTokens,
		toolChoice: influences.toolChoice,
		tools: influences.tools,
		outputSchema: influences.outputSchema,
		further: influences.further,
		input: readInput(parameters, itemIndex, json),
		volatileFields: leftOut.of(parameters, itemIndex),
	};
}

function readInput(parameters: Parameters, itemIndex: number, json: IDataObject): unknown {
	const from = parameters.read<string>('input', itemIndex, 'fields');
	if (from === 'item') return json;
	if (from !== 'fields') {
		throw new Error(
			`"Asked About" is set to "${String(from).slice(0, 50)}", which this version does not know. Choose it anew.`,
		);
	}
	const names = parseFieldNames(parameters.text('inputFields', itemIndex));
	if (names.length === 0) {
		throw new Error(
			'"Input Fields" is empty. Name the fields that the prompt uses, such as subject, text; or choose the whole item.',
		);
	}
	const asked = Object.fromEntries(
		names.map((name) => {
			const { found, value } = readField(json, name);
			if (!found || value === undefined) {
				const isValue = parameters.isExpression('inputFields') || isCode(name);
				throw new Error(
					isValue
						? `"Input Fields" takes names of fields, such as subject, text: ${parameters.isExpression('inputFields') ? 'its expression gives' : 'there stands'} "${name.slice(0, 80)}", and this item has no field of that name. Enter the names as fixed text, separated by commas.`
						: `The field "${name}" is missing in this item. Check its spelling in "Input Fields".`,
				);
			}
			return [name, value];
		}),
	);
	// all who ask about nothing would get what the model made of nothing for the first of them
	if (!isPresent(asked)) {
		throw new Error(
			`${names.map((name) => `"${name}"`).join(', ')} of this item ${names.length === 1 ? 'is' : 'are'} empty, so there is nothing to ask about. Look at the step that fills ${names.length === 1 ? 'it' : 'them'}.`,
		);
	}
	return asked;
}

/** Fields of the input that do not count; the list is compiled once for a batch. */
class LeftOut {
	private readonly known = new Map<string, readonly string[]>();

	of(parameters: Parameters, itemIndex: number): readonly string[] {
		const given = parameters.option<unknown>('volatileFields', itemIndex, undefined);
		const chosen =
			parameters.read<string>('input', itemIndex, 'fields') === 'item'
				? ''
				: parameters.text('inputFields', itemIndex);
		const index = JSON.stringify([given, chosen]);
		let fields = this.known.get(index);
		if (fields === undefined) {
			// a list that a person may have emptied on purpose
			const all =
				given === undefined || given === null
					? DEFAULT_VOLATILE_FIELDS
					: parseFieldNames(String(given));
			fields = volatileBesides(all, parseFieldNames(chosen));
			this.known.set(index, fields);
		}
		return fields;
	}
}

function readFieldName(parameters: Parameters, itemIndex: number, json: IDataObject): string {
	const field = parameters.option<string>('field', itemIndex, DEFAULT_DECISION_FIELD);
	const problem = fieldNameProblem(field);
	if (problem !== null) throw new Error(problem);
	if (!Object.hasOwn(json, field)) return field;
	// an answer of ours that is no open question may be replaced: so that Busy can wait and come back here
	if (decisionStatus(json[field]) !== null && openDecision(json[field]) === null) return field;
	throw new Error(
		openDecision(json[field]) === null
			? `The item already has a field "${field}", which would be lost. Choose another name in the option "Field Name".`
			: `The item already holds an open question in "${field}", whose token would be lost. Choose another name in the option "Field Name".`,
	);
}

const LABELS: Record<string, string> = {
	kind: 'Decision',
	model: 'Model',
	promptVersion: 'Prompt Version',
	inputFields: 'Input Fields',
	temperature: 'Temperature',
	maxTokens: 'Max Tokens',
	toolChoice: 'Tool Choice',
	tools: 'Tools',
	outputSchema: 'Output Schema',
	further: 'Further Parameters',
};

/** A key that is built from the execution, the time or chance is new on every retry. Read from the raw text. */
function volatileParameters(parameters: Parameters): string | null {
	const influences = parameters.raw('influences') as IDataObject | undefined;
	const raws: Array<[string, unknown]> = [
		...['kind', 'model', 'promptVersion', 'inputFields'].map((name): [string, unknown] => [
			name,
			parameters.raw(name),
		]),
		...Object.entries(typeof influences === 'object' ? influences : {}),
		...(typeof influences === 'string' ? [['influences', influences] as [string, unknown]] : []),
	];
	for (const [name, raw] of raws) {
		const sources = typeof raw === 'string' ? volatileSources(raw) : [];
		if (sources.length > 0) {
			return `${LABELS[name] ?? name} uses ${sources.join(' and ')}, which differs each time the same question is asked: the model would be asked again on every retry. Use what is asked about, or switch on the option "Allow a Key That Changes".`;
		}
	}
	return null;
}
