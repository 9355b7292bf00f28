import {
	traverseNodeParameters,
	type FromAIArgument,
	type IDataObject,
	type IExecuteFunctions,
	type INodeExecutionData,
	type IRunExecutionData,
} from 'n8n-workflow';

import { isTool } from './failing-closed';
import { messageOf } from './problems';
import { withoutFields } from './work-field';

/** What a model reads costs its owner money in every further turn, and pushes other things out of its sight. */
const MOST_TEXT = 4_000;
/** Characters of all items of one answer. */
const MOST_ANSWER = 16_000;
const MOST_VALUE = 300;
const MOST_NAME = 64;
const MOST_PROBLEMS = 10;

/** What only the holder of a claim or of a link may have, and what may be of any size. */
const NOT_FOR_MODELS = new Set([
	...['token', 'nonce', 'canonical', 'payload', 'raw', 'result', 'value', 'error'],
]);
/** Texts that the response says already; an answer may be called so, too. */
const IN_RESPONSE = new Set(['message', 'response', 'summary']);

/**
 * The items that came in. To a tool of its agent from version 3 on n8n adds the id of the call, another one each time:
 * with it no two calls would be about the same content.
 */
export function inputOf(context: IExecuteFunctions): INodeExecutionData[] {
	const items = context.getInputData();
	if (!isTool(context)) return items;
	return items.map((item) => ({ ...item, json: withoutFields(item.json, ['toolCallId']) }));
}

/**
 * An item that leaves a tool. n8n sends all of it to the model, so it is one text, and beside it only small facts: no
 * token, no stored result or payload of any size.
 */
export function toolItem(
	itemIndex: number,
	text: string,
	facts: IDataObject = {},
): INodeExecutionData {
	return {
		json: { ...factsFor(facts), response: cut(text) },
		pairedItem: { item: itemIndex },
	};
}

/** The single values of an answer, and one level below it; what is empty says nothing. */
function factsFor(facts: IDataObject, depth = 1): IDataObject {
	return Object.fromEntries(
		Object.entries(facts).flatMap(([name, value]): Array<[string, IDataObject[string]]> => {
			if (NOT_FOR_MODELS.has(name) || value === null || value === undefined) return [];
			if (typeof value === 'string' && (value.length > MOST_VALUE || IN_RESPONSE.has(name)))
				return [];
			if (typeof value !== 'object') return [[name, value]];
			return depth > 0 && !Array.isArray(value)
				? [[name, factsFor(value as IDataObject, depth - 1)]]
				: [];
		}),
	);
}

/** Stored JSON as the end of a text; undefined: nothing. */
export function toolValue(label: string, value: unknown): string {
	return value === undefined ? '' : ` ${label}: ${JSON.stringify(value)}`;
}

/** As many of them as a model may be given; what is left out is told. */
export function upToMost(items: INodeExecutionData[]): INodeExecutionData[] {
	let length = 0;
	const fit = items.findIndex(({ json }, index) => {
		length += JSON.stringify(json).length;
		return index > 0 && length > MOST_ANSWER;
	});
	if (fit === -1) return items;
	const more = `${items.length - fit} more are not shown. Ask for fewer at a time.`;
	return [...items.slice(0, fit), { json: { response: more }, pairedItem: items[fit].pairedItem }];
}

function cut(text: string): string {
	if (text.length <= MOST_TEXT) return text;
	// no half of a pair at the end
	const start = text.slice(0, MOST_TEXT).replace(/[\uD800-\uDBFF]$/, '');
	return `${start}… (cut: the first ${start.length} of ${text.length} characters)`;
}

/**
 * The answer to a call whose arguments are not those that the model was asked for; null where they are, and for a node
 * that is no tool. Agents up to version 2 check arguments themselves, later ones do not: a list would be joined to text,
 * a gap would close silently ("Hello "), and what nobody asked for would lie over the agent's own item, where a key or a
 * proof is read.
 */
export function refusedCall(context: IExecuteFunctions): INodeExecutionData[][] | null {
	if (!isTool(context)) return null;
	const asked = askedFor(context);
	const items = context.getInputData();
	for (const itemIndex of items.keys()) {
		const names = new Set(asked.map(({ key }) => key));
		const problems = [
			...asked.flatMap((argument) => problemOf(context, argument, itemIndex) ?? []),
			...passedArguments(context, itemIndex)
				.filter((name) => !names.has(name))
				.map((name) => `This tool takes no argument "${name.slice(0, MOST_NAME)}".`),
		].slice(0, MOST_PROBLEMS);
		if (problems.length === 0) continue;
		const text = `${problems.join(' ')} Nothing was done. Call this tool again with the right arguments.`;
		return [[toolItem(itemIndex, text, { status: 'refused' })]];
	}
	return null;
}

/** Names of what the model passed. Where n8n does not show the data of the execution to nodes: none. */
function passedArguments(context: IExecuteFunctions, itemIndex: number): string[] {
	// not part of n8n's declared interface, so they may be missing
	const { runExecutionData, runIndex = 0 } = context as unknown as {
		runExecutionData?: IRunExecutionData;
		runIndex?: number;
	};
	const task = runExecutionData?.resultData?.runData?.[context.getNode().name]?.[runIndex];
	return Object.keys(task?.inputOverride?.ai_tool?.[0]?.[itemIndex]?.json ?? {});
}

/** Every `$fromAI` of the node, each once. */
function askedFor(context: IExecuteFunctions): FromAIArgument[] {
	const found: FromAIArgument[] = [];
	try {
		traverseNodeParameters(context.getNode().parameters, found);
	} catch {
		// n8n itself refuses such a node before it is called
		return [];
	}
	return [...new Map(found.map((argument) => [argument.key, argument])).values()];
}

function problemOf(
	context: IExecuteFunctions,
	{ key, type = 'string', defaultValue }: FromAIArgument,
	itemIndex: number,
): string | null {
	let value: unknown;
	try {
		value = context.evaluateExpression(`{{ $fromAI(${JSON.stringify(key)}) }}`, itemIndex);
	} catch (error) {
		return `The argument "${key}" cannot be read: ${messageOf(error)}.`;
	}
	if (value === undefined || value === null) {
		return defaultValue === undefined ? `The argument "${key}" is missing.` : null;
	}
	// a number for a text, or the other way round, is read as what it says
	if (typeof value !== 'object' || type === 'json') return null;
	return `The argument "${key}" is ${Array.isArray(value) ? 'a list' : 'an object'}, not ${NEEDED[type]}.`;
}

const NEEDED = { string: 'one text', number: 'one number', boolean: 'true or false' } as const;
