import { errorIn, excludesErrors, isGatewayText, likelyErrorIn } from './decision-error';
import { isPresent } from './evidence/present';
import { readField } from './identity';
import { isInvisible } from './identity/text';
import type { SchemaCheck } from './decision-schema';
import { isMembers, isSaid, listOf, membersOf, textOrNull, type Members } from './json-members';

/**
 * What came back from a model, in the shapes of n8n's model nodes and of the common HTTP interfaces, and whether it may be
 * kept as a decision.
 */

/** What the answer must be. */
export type AnswerForm = 'object' | 'json' | 'text';

export interface AnswerTerms {
	form: AnswerForm;
	/** Names of fields that the value must hold. */
	requiredFields: string[];
	schema?: SchemaCheck;
	/** Where the step before the ledger drops it (n8n's chains do), a person may say what it was. */
	finishReason?: string;
}

export interface ModelAnswer {
	/** The value to keep, before it is parsed: text, or data that a parser or tool call gave. */
	content: unknown;
	finishReason: string | null;
	inputTokens: number | null;
	outputTokens: number | null;
	/** What failed, where the body says so. */
	error: string | null;
	/** What failed if this is an error: every field is named like an error's, and it looks like one. */
	likelyError: string | null;
}

/** An answer that may be stored. */
export interface UsableAnswer {
	/** As JSON text. */
	valueText: string;
	/** What the model said, word for word, as a JSON text. */
	rawText: string;
}

/** Bytes of JSON text of a value; the raw answer likewise. */
export const MAX_DECISION_BYTES = 1024 * 1024;

const CUT_OFF = new Set([
	...[
		'length',
		'max_tokens',
		'max_output_tokens',
		'model_length',
		'model_context_window_exceeded',
		'incomplete',
	],
	// an answer that is not at its end
	...['in_progress', 'queued', 'cancelled', 'canceled', 'pause_turn', 'starting', 'processing'],
]);
const FILTERED = new Set([
	...[
		'content_filter',
		'content_filtered',
		'guardrail_intervened',
		'refusal',
		'safety',
		'recitation',
		'language',
	],
	...[
		'blocklist',
		'prohibited_content',
		'spii',
		'image_safety',
		'malformed_function_call',
		'unexpected_tool_call',
		'too_many_tool_calls',
		'other',
		'error',
		'failed',
	],
]);

/** Reads the answer out of what a model's step gave. An item of no known shape is itself the answer. */
export function readModelAnswer(item: Members): ModelAnswer {
	const json = bodyOf(item);
	const answer: ModelAnswer = {
		content: undefined,
		finishReason: null,
		inputTokens: null,
		outputTokens: null,
		error: errorIn(item) ?? errorIn(json) ?? errorIn(listOf(json.choices)[0] ?? {}),
		likelyError: likelyErrorIn(item) ?? likelyErrorIn(json),
	};
	const usage = membersOf(json.usage ?? json.usageMetadata ?? json.tokenUsage);
	answer.inputTokens = count(
		usage.prompt_tokens ??
			usage.input_tokens ??
			usage.promptTokenCount ??
			usage.promptTokens ??
			usage.inputTokens ??
			json.prompt_eval_count,
	);
	answer.outputTokens = count(
		usage.completion_tokens ??
			usage.output_tokens ??
			usage.candidatesTokenCount ??
			usage.completionTokens ??
			usage.outputTokens ??
			json.eval_count,
	);

	const said = knownAnswer(json) ?? {
		finishReason: textOrNull(
			json.finish_reason ?? json.finishReason ?? json.stop_reason ?? json.stopReason,
		),
		content: isBodyWithoutAnswer(json) ? undefined : chainContent(json),
	};
	return { ...answer, ...said };
}

/** What a body of a known shape says; null where it has none. */
function knownAnswer(json: Members): Pick<ModelAnswer, 'content' | 'finishReason'> | null {
	// n8n's Gemini node hands on the candidate alone
	const [candidate] = isCandidate(json.content) ? [json] : listOf(json.candidates);
	const [choice] = listOf(json.choices);
	const [result] = listOf(json.results);
	const { blockReason } = membersOf(json.promptFeedback);
	if (choice !== undefined) {
		// OpenAI and what speaks like it
		const message = membersOf(choice.message);
		const reason = textOrNull(choice.finish_reason ?? choice.native_finish_reason);
		return {
			finishReason: isSaid(message.refusal) ? 'refusal' : reason,
			content: messageContent(message, choice.text),
		};
	}
	if (candidate !== undefined || typeof blockReason === 'string') {
		// Gemini
		return {
			finishReason: textOrNull(candidate?.finishReason ?? blockReason),
			content: orNothing(membersOf(candidate?.content).parts),
		};
	}
	if (typeof json.stop_reason === 'string' && json.content !== undefined) {
		// Anthropic
		return { finishReason: json.stop_reason, content: orNothing(json.content) };
	}
	if ('output' in json && typeof json.status === 'string' && isMembers(json.urls)) {
		// Replicate: a text comes in pieces
		const { output } = json;
		const isText = Array.isArray(output) && output.every((one) => typeof one === 'string');
		return { finishReason: json.status, content: isText ? output.join('') : orNothing(output) };
	}
	if (isResponse(json)) {
		// OpenAI's Responses; n8n's OpenAI node hands on its messages alone
		const { reason } = membersOf(json.incomplete_details);
		const status = textOrNull(json.status ?? listOf(json.output).at(-1)?.status);
		return {
			finishReason: status === 'completed' ? 'stop' : (textOrNull(reason) ?? status),
			content: responseContent(json.output as unknown[]),
		};
	}
	if (isMembers(json.message) && json.message.content !== undefined) {
		// Ollama, and n8n's OpenAI node before Responses
		const reason = textOrNull(json.finish_reason ?? json.done_reason);
		return {
			finishReason: json.done === false ? 'incomplete' : reason,
			content: messageContent(json.message, undefined),
		};
	}
	if (typeof json.stopReason === 'string' && isMembers(membersOf(json.output).message)) {
		// Bedrock's Converse
		const { content } = membersOf(membersOf(json.output).message);
		return { finishReason: json.stopReason, content: orNothing(content) };
	}
	if (result !== undefined && 'outputText' in result) {
		// Bedrock's Titan
		return { finishReason: textOrNull(result.completionReason), content: result.outputText };
	}
	if (typeof json.response === 'string' && typeof json.done === 'boolean') {
		// Ollama without a chat
		return {
			finishReason: json.done ? textOrNull(json.done_reason) : 'incomplete',
			content: json.response,
		};
	}
	return null;
}

/**
 * The body of an answer. The HTTP Request node puts status and headers around it where "Include Response Headers and
 * Status" is on, and gives it as the text `data` where it does not know that it is JSON.
 */
function bodyOf(item: Members): Members {
	const isFull = isMembers(item.headers) && 'statusCode' in item;
	const body = isFull ? (item.body ?? item.data) : isOnly(item, 'data') ? item.data : item;
	if (typeof body !== 'string') return isMembers(body) ? body : { output: body ?? undefined };
	const parsed = parsedAnswer(body.trim())?.value;
	const isBody = (one: Members) =>
		knownAnswer(one) !== null ||
		errorIn(one) !== null ||
		likelyErrorIn(one) !== null ||
		isBodyWithoutAnswer(one);
	if (isMembers(parsed) && isBody(parsed)) return parsed;
	if (isStream(body)) {
		return { error: 'the answer came as a stream. Set "stream" to false in the request' };
	}
	// what a proxy says, not a model
	return isGatewayText(body) ? {} : { text: body };
}

/** Events of a server, or lines of JSON such as Ollama's: each holds a few letters of the answer. */
function isStream(body: string): boolean {
	const lines = body.split(/\r?\n/).filter((line) => line.trim() !== '');
	const [first] = lines;
	if (first === undefined) return false;
	if (/^(data|event|id|retry)?:/.test(first)) {
		return (
			lines.every((line) => /^(data|event|id|retry)?:/.test(line)) &&
			lines.some((line) => /^data: ?(\{|\[DONE\])/.test(line))
		);
	}
	if (lines.length < 2) return false;
	const piece = parsedAnswer(first.trim())?.value;
	return isMembers(piece) && (knownAnswer(piece) !== null || typeof piece.done === 'boolean');
}

function isOnly(item: Members, name: string): boolean {
	return typeof item[name] === 'string' && Object.keys(item).length === 1;
}

function isCandidate(content: unknown): boolean {
	return isMembers(content) && (Array.isArray(content.parts) || content.role === 'model');
}

function isResponse({ output, status, object }: Members): boolean {
	if (!Array.isArray(output)) return false;
	if (typeof status === 'string' || object === 'response') return true;
	return (
		output.length > 0 &&
		output.every(
			(one) => isMembers(one) && one.type === 'message' && listOf(one.content).length > 0,
		)
	);
}

/** What OpenAI calls work that has to be fetched when it is over. */
const JOB = /^(batch|thread(\..+)?|chat\.completion\.chunk)$/;

/** A body of OpenAI or Gemini in which nothing was said: itself it is no answer. */
function isBodyWithoutAnswer({ choices, object, candidates, usageMetadata, id }: Members): boolean {
	const isChat = Array.isArray(choices) && typeof object === 'string';
	const isJob = typeof id === 'string' && typeof object === 'string' && JOB.test(object);
	return isChat || isJob || (isMembers(usageMetadata) && listOf(candidates).length === 0);
}

/** A list of blocks that is empty says nothing. */
function orNothing(content: unknown): unknown {
	return Array.isArray(content) && content.length === 0 ? undefined : content;
}

/** The answer as it may be stored, or why it may not. Never throws. */
export function usableAnswer(
	answer: ModelAnswer,
	terms: AnswerTerms,
): UsableAnswer | { problem: string; rawText: string } {
	const raw = rawOf(answer.content);
	const finishReason = terms.finishReason ?? answer.finishReason;
	const problem = (words: string) => ({ problem: words, rawText: raw });
	if (answer.error !== null) return problem(`The model's step failed: ${answer.error}`);
	if (answer.likelyError !== null && !isAnswerBySchema(answer.content, terms.schema)) {
		return problem(
			`The model's step failed: ${withStop(answer.likelyError)} If this is the answer itself, its fields are named as those of an error: put them into one field named "output" before this node, or set a JSON Schema that no error fits.`,
		);
	}
	const ended = finishReason?.trim().toLowerCase() ?? '';
	if (CUT_OFF.has(ended)) {
		return problem(
			`The answer was cut off (finish reason "${finishReason}"). Raise the token limit, or ask for less.`,
		);
	}
	if (FILTERED.has(ended))
		return problem(`The model did not answer (finish reason "${finishReason}").`);
	const flat = flattened(answer.content);
	if ('problem' in flat) return problem(flat.problem);

	const isText = typeof flat.content === 'string';
	let value: unknown = flat.content;
	if (isText) {
		const thought = withoutThinking((flat.content as string).trim());
		if (thought === null) {
			return problem(
				'The answer was cut off while the model was still thinking (<think> without an end). Raise the token limit.',
			);
		}
		const { text } = thought;
		if (thought.isShorter) value = text;
		if (isInvisible(text)) return problem('The answer is empty.');
		if (/^Agent stopped due to (max iterations|iteration limit or time limit)\.?$/.test(text)) {
			return problem(
				'The agent reached its limit before it had an answer. Raise "Max Iterations", or give it fewer tools.',
			);
		}
		if (isLost(text)) {
			return problem(
				`The answer is the text "${text.slice(0, 40)}": a step before this one turned an object into text.`,
			);
		}
		if (terms.form !== 'text') {
			const parsed = parsedAnswer(text);
			if (parsed === undefined) {
				return problem(
					`The answer is not JSON: "${text.slice(0, 80).toWellFormed()}". If text is what you want, set "The Answer Must Be" to Text.`,
				);
			}
			value = parsed.value;
		}
	} else if (flat.content === undefined || flat.content === null) {
		return problem('No answer was found in the item. Say where it stands under "Answer".');
	}
	if (terms.form === 'object' && !isMembers(value)) {
		return problem(`The answer is ${kindOf(value)}, but an object is required.`);
	}
	if (terms.form === 'text' && typeof value !== 'string') {
		return problem(`The answer is ${kindOf(value)}, but text is required.`);
	}
	const lost = lostIn(value);
	if (lost !== null)
		return problem(
			`The field "${lost}" holds "[object Object]": its value was lost before it came here.`,
		);
	const rounded = roundedIn(value);
	if (rounded !== null)
		return problem(
			`${rounded === '' ? 'The answer' : `The field "${rounded}"`} holds a number that is too long to be kept exactly. Ask the model to give long numbers as text.`,
		);
	const missing = terms.requiredFields.filter(
		(name) => !isMembers(value) || isMissing(readField(value, name).value),
	);
	if (missing.length > 0) {
		return problem(
			`The answer lacks ${missing.length === 1 ? 'the field' : 'the fields'} ${missing.join(', ')}.`,
		);
	}
	if (terms.schema !== undefined) {
		const unfit = terms.schema.problemOf(value);
		if (unfit !== null) return problem(unfit);
	}
	let valueText: string;
	try {
		valueText = JSON.stringify(value);
	} catch {
		return problem('The answer cannot be written as JSON.');
	}
	for (const [what, text] of [
		['value', valueText],
		['raw text', raw],
	]) {
		const bytes = Buffer.byteLength(text);
		if (bytes > MAX_DECISION_BYTES) {
			return {
				problem: `The ${what} is too large to store: ${bytes} bytes of ${MAX_DECISION_BYTES}.`,
				rawText: 'null',
			};
		}
	}
	return { valueText, rawText: raw };
}

function isAnswerBySchema(content: unknown, schema: SchemaCheck | undefined): boolean {
	if (schema === undefined) return false;
	const value = typeof content === 'string' ? parsedAnswer(content.trim())?.value : content;
	return isMembers(value) && schema.problemOf(value) === null && excludesErrors(schema, value);
}

function withStop(text: string): string {
	return /[.!?]$/.test(text) ? text : `${text}.`;
}

/** What a message says: its text, its blocks, or the arguments of the one tool that it calls. */
function messageContent(message: Members, otherwise: unknown): unknown {
	const { content } = message;
	const isEmpty = content === undefined || content === null || content === '';
	const [call, ...more] = listOf(message.tool_calls);
	if (isEmpty && call !== undefined && more.length === 0) return membersOf(call.function).arguments;
	return isEmpty ? otherwise : orNothing(content);
}

function responseContent(output: unknown[]): unknown {
	const entries = listOf(output);
	const messages = entries.filter(({ type }) => type === 'message');
	if (messages.length > 0) return messages.flatMap(({ content }) => listOf(content));
	const calls = entries.filter(({ type }) => type === 'function_call');
	return calls.length === 1 ? calls[0].arguments : undefined;
}

/** Names beside the answer in what n8n's chains and agents give. */
const BESIDE = new Set([
	// where it says something, the answer is an error
	'error',
	'intermediateSteps',
	'sessionId',
	'finish_reason',
	'finishReason',
	'stop_reason',
	'usage',
	'tokenUsage',
	'model',
	'id',
	// n8n's own nodes of Anthropic, Gemini, MiniMax, Moonshot and Alibaba
	'merged_response',
	'mergedResponse',
	'reasoning_content',
	'fullResponse',
]);

/** Basic LLM Chain: `text`, or `output` with a parser. Agent: `output`. Else the item itself. */
function chainContent(json: Members): unknown {
	const names = Object.keys(json).filter((name) => !BESIDE.has(name) && json[name] !== undefined);
	if (names.length === 1) {
		const [name] = names;
		if (['text', 'output', 'content', 'response', 'completion', 'message'].includes(name)) {
			const value = json[name];
			// no step answers so, but gateways say so why they did not let the request through
			if (name === 'message' && typeof value === 'string') return undefined;
			return isMembers(value) && Object.keys(value).length === 1 && typeof value.text === 'string'
				? value.text
				: value;
		}
	}
	return names.length === 0 ? undefined : json;
}

/** Of the blocks in which models answer. */
const BLOCK_TYPES = new Set([
	...['text', 'output_text', 'refusal', 'tool_use', 'thinking', 'redacted_thinking', 'reasoning'],
	...['image', 'image_url', 'input_text', 'function_call', 'tool_call', 'server_tool_use'],
]);

/** Content blocks as one text, or the input of the one tool that they call (case 77). */
function flattened(content: unknown): { content: unknown } | { problem: string } {
	if (!Array.isArray(content) || content.length === 0) return { content };
	const blocks: unknown[] = content;
	if (!blocks.every(isMembers)) return { content };
	const refusal = blocks.find((block) => block.type === 'refusal' && isSaid(block.refusal));
	if (refusal !== undefined)
		return { problem: `The model did not answer: "${String(refusal.refusal).slice(0, 200)}".` };
	// n8n's OpenAI node parses the text where JSON was asked for
	if (blocks.length === 1 && blocks[0].type === 'output_text' && isMembers(blocks[0].text))
		return { content: blocks[0].text };
	const isBlock = (block: Members) =>
		typeof block.type === 'string' ||
		typeof block.text === 'string' ||
		isMembers(block.functionCall);
	if (!blocks.every(isBlock)) return { content };
	// a list of objects that have a type of their own may well be what was asked for
	if (!blocks.some((block) => block.type === undefined || BLOCK_TYPES.has(String(block.type))))
		return { content };
	const saying = blocks.filter(
		({ type, thought }) =>
			!['thinking', 'redacted_thinking', 'reasoning'].includes(String(type)) && thought !== true,
	);
	const texts = saying.filter(({ text }) => typeof text === 'string');
	const calls = saying.filter(
		({ type, functionCall }) => type === 'tool_use' || isMembers(functionCall),
	);
	if (texts.length + calls.length < saying.length) {
		const other = saying.find((block) => !texts.includes(block) && !calls.includes(block));
		// a list of typed objects may well be what was asked for
		if (texts.length === 0 && calls.length === 0) return { content };
		return {
			problem: `The answer holds a block of type "${String(other?.type)}", which has no text.`,
		};
	}
	const text = texts.map((block) => String(block.text)).join('');
	if (calls.length === 0) return { content: text };
	if (calls.length > 1)
		return { problem: `The answer calls ${calls.length} tools: a decision is one value.` };
	return { content: calls[0].input ?? membersOf(calls[0].functionCall).args };
}

/**
 * What was said behind the thoughts of a model that thinks aloud (DeepSeek, Qwen); some write the end of them alone. null:
 * they have no end.
 */
function withoutThinking(text: string): { text: string; isShorter: boolean } | null {
	const [opening] = /^<(?:think|thinking)>/i.exec(text) ?? [''];
	const closing = /<\/(?:think|thinking)>/i.exec(text);
	if (closing === null) return opening === '' ? { text, isShorter: false } : null;
	// within an answer it is a text like any other
	const isAlone = !/<(?:think|thinking)>/i.test(text) && parsedAnswer(text) === undefined;
	if (opening === '' && !isAlone) return { text, isShorter: false };
	return { text: text.slice(closing.index + closing[0].length).trim(), isShorter: true };
}

/** The JSON of a text, also inside one code fence; undefined where it is none. */
function parsedAnswer(text: string): { value: unknown } | undefined {
	const fenced = /^```[\w-]*[ \t]*\r?\n([^]*?)\r?\n?```$/.exec(text);
	try {
		return { value: JSON.parse(fenced === null ? text : fenced[1]) as unknown };
	} catch {
		return undefined;
	}
}

/** What the model said, as JSON text. */
function rawOf(content: unknown): string {
	try {
		return (JSON.stringify(content) as string | undefined) ?? 'null';
	} catch {
		return 'null';
	}
}

function isLost(text: string): boolean {
	return /^(\[object Object\][,\s]*)+$/.test(text) || text === 'undefined';
}

/** The path of a text that is what is left of an object; null where there is none. */
export function lostIn(value: unknown): string | null {
	return pathOf(
		value,
		(one) => typeof one === 'string' && /^(\[object Object\][,\s]*)+$/.test(one.trim()),
	);
}

/** The path of a number that JSON, or what was before, has rounded (case 94); null where there is none. */
function roundedIn(value: unknown): string | null {
	return pathOf(
		value,
		(one) =>
			typeof one === 'number' &&
			(Number.isInteger(one) ? !Number.isSafeInteger(one) : !Number.isFinite(one)),
	);
}

/** The path of the first value that is so, '' for the whole; null where none is. */
function pathOf(value: unknown, isSo: (one: unknown) => boolean): string | null {
	const open: Array<[string, unknown]> = [['', value]];
	const seen = new Set<unknown>();
	for (let next = open.pop(); next !== undefined; next = open.pop()) {
		const [path, one] = next;
		if (isSo(one)) return path;
		if (typeof one !== 'object' || one === null || seen.has(one)) continue;
		seen.add(one);
		for (const [name, inner] of Object.entries(one))
			open.push([path === '' ? name : `${path}.${name}`, inner]);
	}
	return null;
}

/** An empty list or object is an answer; a text in which nobody could read one is none. */
function isMissing(value: unknown): boolean {
	return (typeof value !== 'object' || value === null) && !isPresent(value);
}

function kindOf(value: unknown): string {
	if (value === null) return 'null';
	return Array.isArray(value)
		? 'a list'
		: typeof value === 'object'
			? 'an object'
			: `a ${typeof value}`;
}

function count(value: unknown): number | null {
	return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null;
}
