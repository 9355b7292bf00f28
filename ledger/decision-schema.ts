import { createContext, Script } from 'vm';
import { Validator, type Schema } from '@cfworker/json-schema';

/**
 * A pattern such as `(a+)+$` can take centuries for a text of fifty characters, and nothing else runs in n8n meanwhile.
 * V8 ends what runs under a vm time-out wherever it is, a regular expression included.
 */
const VALUE_MS = 500;
const CALL_MS = 2_000;
const GUARDED = new Script('work()');
// one context for all: making one costs a millisecond
const sandbox = { work: (): void => undefined };
let context: ReturnType<typeof createContext> | null = null;

/**
 * A JSON Schema (drafts 4, 7, 2019-09, 2020-12) for the values of one call: half a second for each, two for all of them.
 * The validator interprets the schema; it compiles no code, reads no network and has no dependencies.
 */
export class SchemaCheck {
	private readonly schema: Schema | null;
	private readonly unusable: string | null;
	private spentMs = 0;

	/** @param given The schema, or its JSON as text. What is no schema fits nothing, and says so. */
	constructor(given: unknown) {
		const read = readSchema(given);
		this.schema = typeof read === 'string' ? null : read;
		this.unusable = typeof read === 'string' ? read : null;
	}

	/** What is wrong with a value, in words; null where it fits. Never throws. */
	problemOf(value: unknown): string | null {
		return this.guarded(
			(schema) => problemBy(schema, value),
			(problem) => problem,
		);
	}

	/** Whether not one of the values fits; false also where that cannot be told. Never throws. */
	fitsNone(values: unknown[]): boolean {
		return this.guarded(
			(schema) => {
				const validator = new Validator(schema, draftOf(schema), true);
				return !values.some((value) => validator.validate(value).valid);
			},
			() => false,
		);
	}

	/** Ends what takes too long; `otherwise` is told why there is no result. */
	private guarded<T>(work: (schema: Schema) => T, otherwise: (problem: string) => T): T {
		const { schema } = this;
		if (schema === null) return otherwise(this.unusable ?? '');
		const left = CALL_MS - this.spentMs;
		if (left <= 0) {
			return otherwise(
				`Checking the JSON Schema took ${CALL_MS} ms for earlier items, which is all they get.`,
			);
		}
		let result: T | undefined;
		const startedAt = performance.now();
		context ??= createContext(sandbox);
		sandbox.work = () => {
			result = work(schema);
		};
		try {
			GUARDED.runInContext(context, { timeout: Math.min(VALUE_MS, Math.ceil(left)) });
			return result as T;
		} catch (error) {
			const { code, message } = error as { code?: string; message?: string };
			return otherwise(
				code === 'ERR_SCRIPT_EXECUTION_TIMEOUT'
					? `Checking the JSON Schema took more than ${VALUE_MS} ms and was ended: look for a pattern such as (a+)+ in it.`
					: `The JSON Schema cannot be used: ${String(message).slice(0, 300)}`,
			);
		} finally {
			this.spentMs += performance.now() - startedAt;
			sandbox.work = () => undefined;
		}
	}
}

/** Keywords whose error only says that something inside does not fit. */
const OUTER = new Set(['properties', 'items', 'prefixItems', 'additionalItems', '$ref', 'allOf']);

function problemBy(schema: Schema, value: unknown): string | null {
	const { valid, errors } = new Validator(schema, draftOf(schema), false).validate(value);
	if (valid) return null;
	const inner = errors.filter(({ keyword }) => !OUTER.has(keyword));
	const told = (inner.length > 0 ? inner : errors)
		.slice(0, 5)
		.map(({ instanceLocation, error }) => `${instanceLocation}: ${error}`);
	return `It does not fit the JSON Schema. ${told.join(' ')}`.slice(0, 1_000);
}

/** The schema, or what is wrong with it. */
function readSchema(given: unknown): Schema | string {
	let schema = given;
	if (typeof given === 'string') {
		try {
			schema = JSON.parse(given) as unknown;
		} catch {
			return 'The JSON Schema is not JSON. Paste it as it stands, for example {"type": "object", "required": ["label"]}.';
		}
	}
	if (typeof schema !== 'object' || schema === null || Array.isArray(schema))
		return 'The JSON Schema is no JSON object.';
	// an example, or the form in which OpenAI takes a schema: as a schema it would let everything pass
	return Object.keys(schema).some((name) => KEYWORDS.has(name))
		? (schema as Schema)
		: 'The JSON Schema holds none of the words of a schema (type, properties, required …), so it would let everything pass. Paste the schema itself: not an example, and of OpenAI\'s form only what stands under "schema".';
}

/** Those that a value can fail to fit. */
const KEYWORDS = new Set([
	...['type', 'enum', 'const', 'format', '$ref', '$dynamicRef', '$recursiveRef'],
	...['properties', 'required', 'patternProperties', 'additionalProperties', 'propertyNames'],
	...['minProperties', 'maxProperties', 'dependencies', 'dependentRequired', 'dependentSchemas'],
	...['unevaluatedProperties', 'items', 'prefixItems', 'additionalItems', 'contains', 'minItems'],
	...['maxItems', 'uniqueItems', 'unevaluatedItems', 'allOf', 'anyOf', 'oneOf', 'not', 'if'],
	...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf', 'divisibleBy'],
	...['minLength', 'maxLength', 'pattern'],
]);

function draftOf({ $schema }: Schema): '4' | '7' | '2019-09' | '2020-12' {
	const named = /draft-0?4\b|draft-0?[67]\b|2019-09/.exec(String($schema ?? ''))?.[0];
	if (named === undefined) return '2020-12';
	return named === '2019-09' ? named : named.endsWith('4') ? '4' : '7';
}
