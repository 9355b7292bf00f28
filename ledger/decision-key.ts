import { createHash } from 'crypto';
import stableStringify from 'fast-json-stable-stringify';

import { lostIn } from './decision-answer';
import { IdentityRefusal, identifyByContent } from './identity';
import { readPlain, type Plain } from './identity/canonical';
import { numberFromText, type ReadingOptions } from './identity/reading';
import { cleanText, plainDecimal, refuseEmptyText } from './identity/text';
import { VolatileFields } from './identity/volatile-fields';
import { isStorableText } from './json-text';

/** Everything that influences what a model answers. What is undefined or null is absent, which differs from every value. */
export interface DecisionQuestion {
	/** What is decided, in a word (`classify-mail`): two questions with a prompt "v1" are two. */
	kind: string;
	model: unknown;
	/** Raised when the prompt's text changes; or the prompt itself. */
	promptVersion: unknown;
	temperature?: unknown;
	maxTokens?: unknown;
	toolChoice?: unknown;
	/** A value, or its JSON as text. Hashed. */
	tools?: unknown;
	/** A value, or its JSON as text. Hashed. */
	outputSchema?: unknown;
	/** Any further parameters (top_p, seed, …): an object, or its JSON as text. */
	further?: unknown;
	/** What is asked about: read as the content of a work, see `volatileFields`. */
	input: unknown;
	/** Fields of the input that do not count; see `ContentOptions`. */
	volatileFields?: readonly string[];
}

/** A part of a key as the ledger keeps it. */
export interface DecisionPart {
	/** The beginning of its text. */
	text: string;
	/** Of the whole text, hex: two parts are equal when these are. */
	sha256: string;
	/** Characters of the whole text, where it was cut. */
	length?: number;
}

export type DecisionParts = Record<string, DecisionPart>;

export interface DecisionKey {
	/** sha256, 64 lower-case hex digits. */
	decisionKey: string;
	kind: string;
	/** By name: what the key was made of. */
	parts: DecisionParts;
}

/** However it is written: of a prompt's version, in contrast, "1.10" is not "1.1". */
const NUMERIC: ReadingOptions = { readNumbers: true };

/** Characters kept of a part, so that people can read and compare it. */
const KEPT_CHARACTERS = 4_000;
const KEPT_OF_INPUT = 20_000;

/**
 * The key of a question: sha256 over the canonical JSON of its parts. The same question has the same key in any order of
 * its fields and whatever its numbers are written as (`0` and "0" are one).
 *
 * @throws IdentityRefusal naming the part and the cure
 */
export function decisionKeyOf(question: DecisionQuestion): DecisionKey {
	const kind = requiredText('Decision', question.kind);
	if (!isStorableText(kind) || kind.length > 200) {
		throw new IdentityRefusal(
			'bad_scope',
			'Decision',
			'Decision is longer than 200 characters, or holds a NUL character.',
			'Say what is decided in a word, such as classify-mail.',
		);
	}
	refuseLostInput(question.input);
	const { canonical } = identifyByContent({ kind: 'decision' }, question.input, {
		volatileFields: question.volatileFields,
	});
	const texts: Record<string, string | undefined> = {
		kind,
		model: requiredText('Model', question.model),
		promptVersion: requiredText('Prompt Version', question.promptVersion),
		temperature: parameterText('Temperature', question.temperature, NUMERIC),
		maxTokens: parameterText('Max Tokens', question.maxTokens, NUMERIC),
		toolChoice: structureText('Tool Choice', question.toolChoice),
		tools: structureText('Tools', question.tools),
		outputSchema: structureText('Output Schema', question.outputSchema),
		further: furtherText(question.further),
		input: canonical,
	};
	const parts: DecisionParts = {};
	for (const [name, text] of Object.entries(texts)) {
		if (text !== undefined)
			parts[name] = partOf(text, name === 'input' ? KEPT_OF_INPUT : KEPT_CHARACTERS);
	}
	// what may be long counts by its hash
	const hashed = Object.fromEntries(
		Object.entries(texts).map(([name, text]) => [
			name,
			text !== undefined && ['tools', 'outputSchema', 'further', 'input'].includes(name)
				? sha256(text)
				: text,
		]),
	);
	return { decisionKey: sha256(stableStringify(hashed)), kind, parts };
}

/** Whoever's text was lost would get the answer that the first of them got. */
function refuseLostInput(input: unknown): void {
	const path = lostIn(input);
	if (path === null) return;
	throw new IdentityRefusal(
		'bad_text',
		path === '' ? 'Input' : path,
		`The field "${path === '' ? 'Input' : path}" holds "[object Object]": its value was lost before it came here.`,
		'Look at the node that makes this value: it turned an object into text.',
	);
}

/**
 * Of the fields that do not count, those that do not count although these were chosen by name: who chooses `timestamp`
 * asks about it.
 */
export function volatileBesides(
	patterns: readonly string[],
	chosen: readonly string[],
): readonly string[] {
	return patterns.filter((pattern) => {
		const fields = new VolatileFields([pattern]);
		return !chosen.some((name) => fields.hasName(name) || fields.step(fields.start, name) === null);
	});
}

function partOf(text: string, kept: number): DecisionPart {
	const start = text.slice(0, kept).toWellFormed();
	return {
		text: start,
		sha256: sha256(text),
		...(text.length > kept ? { length: text.length } : {}),
	};
}

function requiredText(name: string, value: unknown): string {
	const text = parameterText(name, value);
	if (text !== undefined && !['[]', '{}'].includes(text)) return text;
	throw new IdentityRefusal(
		'missing',
		name,
		`${name} is empty.`,
		'It is part of what the model is asked, so enter it: without it two different questions would look the same.',
	);
}

/** A parameter as text, numbers as decimal text; undefined where it is not set. */
function parameterText(
	name: string,
	value: unknown,
	options: ReadingOptions = {},
): string | undefined {
	if (value === undefined || value === null) return undefined;
	if (isChosenFromList(value)) return parameterText(name, value.value, options);
	const plain = readPlain(value, name, options);
	if (typeof plain === 'number') return plainDecimal(plain);
	if (typeof plain !== 'string') return stableStringify(plain);
	if (plain === '') return undefined;
	refuseEmptyText(plain, name, false);
	if (plain.includes('[object Object]')) refuseEmptyText('[object Object]', name, false);
	return plain;
}

/** What n8n's fields with a list hold: beside the value how it was chosen, which changes nothing. */
function isChosenFromList(value: unknown): value is { value: unknown } {
	return typeof value === 'object' && value !== null && '__rl' in value && 'value' in value;
}

/** Canonical JSON of a structure, pasted as JSON or given as a value; other text stays text. */
function structureText(name: string, value: unknown): string | undefined {
	if (typeof value !== 'string') {
		return value === undefined || value === null
			? undefined
			: stableStringify(readPlain(value, name, {}));
	}
	const text = cleanText(value, name);
	if (text === '') return undefined;
	refuseEmptyText(text, name, false);
	const parsed = parsedJson(text);
	if (parsed !== undefined) return stableStringify(readPlain(parsed, name, {}));
	// in JSON a "null" is a type; in other text an object was lost
	if (text.includes('[object Object]')) refuseEmptyText('[object Object]', name, false);
	return text;
}

function furtherText(value: unknown): string | undefined {
	const parsed = typeof value === 'string' ? (parsedJson(value) ?? value.trim()) : value;
	if (parsed === undefined || parsed === null || parsed === '') return undefined;
	const plain = readPlain(parsed, 'Further Parameters', {});
	if (typeof plain !== 'object' || plain === null || Array.isArray(plain)) {
		throw new IdentityRefusal(
			'unsupported_type',
			'Further Parameters',
			'Further Parameters is no JSON object.',
			'Enter for example {"top_p": 0.9, "seed": 7}.',
		);
	}
	// null means "not sent", as absent does
	const set = Object.entries(plain).filter(([, member]) => member !== null);
	return set.length === 0 ? undefined : stableStringify(Object.fromEntries(set.map(asDecimal)));
}

function asDecimal([name, member]: [string, Plain]): [string, Plain] {
	const number = typeof member === 'string' ? numberFromText(member) : member;
	return [name, typeof number === 'number' ? plainDecimal(number) : member];
}

/** undefined where the text is no JSON. */
function parsedJson(text: string): unknown {
	try {
		return JSON.parse(text) as unknown;
	} catch {
		return undefined;
	}
}

function sha256(text: string): string {
	return createHash('sha256').update(text).digest('hex');
}
