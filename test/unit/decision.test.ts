import { createHash } from 'node:crypto';
import * as fc from 'fast-check';

import {
	compareParts,
	decisionKeyOf,
	readModelAnswer,
	SchemaCheck,
	usableAnswer,
	type AnswerTerms,
	type DecisionQuestion,
} from '../../ledger';
import { MAX_DECISION_BYTES } from '../../ledger/decision-answer';

const QUESTION: DecisionQuestion = {
	kind: 'classify-mail',
	model: 'gpt-test',
	promptVersion: 'v1',
	input: { subject: 'Invoice', text: 'Please pay' },
};

const key = (change: Partial<DecisionQuestion> = {}) =>
	decisionKeyOf({ ...QUESTION, ...change }).decisionKey;

/** How many keys these make. */
const distinct = (...changes: Array<Partial<DecisionQuestion>>) =>
	new Set(changes.map((change) => key(change))).size;

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

describe('the key of a question', () => {
	test('is what anybody computes: sha256 over canonical JSON, long parts by their own hash', () => {
		const tools = '[{"name":"a"}]';
		const computed = sha256(
			JSON.stringify({
				input: sha256('{"subject":"Invoice","text":"Please pay"}'),
				kind: 'classify-mail',
				model: 'gpt-test',
				promptVersion: 'v1',
				temperature: '0',
				tools: sha256(tools),
			}),
		);
		expect(key({ temperature: 0, tools })).toBe(computed);
	});

	test.each([
		['temperature', 0, '0', ' 0 ', '0.0', -0],
		['temperature', 0.7, '0.7', '0.70', '7e-1'],
		['maxTokens', 1000, '1000', '1e3'],
	] as Array<[keyof DecisionQuestion, ...unknown[]]>)(
		'case 72: %s %j is one, however it is written',
		(name, ...values) => {
			expect(distinct(...values.map((value) => ({ [name]: value })))).toBe(1);
		},
	);

	test('case 72: absent differs from every value; undefined, null and an empty text are absent', () => {
		for (const name of [
			'temperature',
			'maxTokens',
			'toolChoice',
			'tools',
			'outputSchema',
		] as const) {
			expect(distinct({}, { [name]: undefined }, { [name]: null }, { [name]: '' })).toBe(1);
			expect(distinct({}, { [name]: 0 }, { [name]: 'none' })).toBe(3);
		}
		expect(distinct({}, { further: {} }, { further: '' }, { further: { seed: null } })).toBe(1);
		expect(distinct({}, { further: { seed: 0 } }, { further: { seed: '0' } })).toBe(2);
	});

	test('a version or model is no number: "1.10" is not "1.1", but 1 is "1"', () => {
		for (const name of ['promptVersion', 'model', 'kind'] as const) {
			expect(
				distinct({ [name]: '1.1' }, { [name]: '1.10' }, { [name]: '1.1 ' }, { [name]: 1.1 }),
			).toBe(2);
		}
	});

	test('values of different parts are never taken for each other', () => {
		expect(
			distinct(
				{ temperature: 1 },
				{ maxTokens: 1 },
				{ toolChoice: 1 },
				{ tools: '1' },
				{ outputSchema: '1' },
			),
		).toBe(5);
	});

	test('tools and schema count by what they say, not by spacing and order', () => {
		expect(
			distinct(
				{ outputSchema: '{"type":"object","required":["a"]}' },
				{ outputSchema: ' {\n"required": ["a"], "type": "object" }' },
				{ outputSchema: { required: ['a'], type: 'object' } },
			),
		).toBe(1);
		expect(
			distinct(
				{ toolChoice: '{"type":"tool","name":"x"}' },
				{ toolChoice: '{ "name": "x", "type": "tool" }' },
				{ toolChoice: { type: 'tool', name: 'x' } },
			),
		).toBe(1);
		expect(key({ outputSchema: '{"type": ["string", "null"]}' })).toBe(
			key({ outputSchema: { type: ['string', 'null'] } }),
		);
		expect(
			distinct(
				{ outputSchema: '{"required":["a","b"]}' },
				{ outputSchema: '{"required":["b","a"]}' },
			),
		).toBe(2);
	});

	test('the input is read as the content of a work: order of fields, NFC and volatile fields do not count, text case does', () => {
		expect(
			distinct(
				{ input: { a: 'é', b: { c: 1 } } },
				{ input: { b: { c: 1 }, a: 'e\u0301' } },
				{ input: { a: 'é', b: { c: 1 }, received_at: 'now' } },
				{
					input: { a: 'é', b: { c: 1 }, decision: { status: 'busy', decisionKey: 'a'.repeat(64) } },
				},
			),
		).toBe(1);
		expect(distinct({ input: { a: 'x' } }, { input: { a: 'X' } }, { input: { a: ['x'] } })).toBe(3);
	});

	test('any change of any part makes another key (property)', () => {
		const text = fc
			.string({ minLength: 1, maxLength: 20 })
			.filter((t) => /\w/.test(t) && !/null|undefined|NaN|Infinity|\d/.test(t));
		fc.assert(
			fc.property(
				text,
				text,
				fc.constantFrom('kind', 'model', 'promptVersion', 'toolChoice', 'tools'),
				(a, b, name) => {
					fc.pre(a.trim().normalize('NFC') !== b.trim().normalize('NFC'));
					expect(distinct({ [name]: a }, { [name]: b })).toBe(2);
				},
			),
		);
	});

	test.each([
		['kind', '', 'Decision is empty'],
		['model', undefined, 'Model is empty'],
		['model', '[object Object]', 'Model" is the text'],
		['promptVersion', 'undefined', 'Prompt Version" is the text'],
		['tools', 'tools: [object Object]', 'Tools" is the text'],
		['temperature', Number.NaN, 'not a number that can be compared'],
		['further', '[1]', 'Further Parameters is no JSON object'],
		['further', 'top_p=0.9', 'Further Parameters is no JSON object'],
		['kind', 'a\0b', 'NUL'],
		['input', {}, 'holds nothing'],
	])('refuses a %s of %j in words', (name, value, message) => {
		expect(() => key({ [name]: value })).toThrow(message);
	});

	test('keeps its parts readable and bounded', () => {
		const { parts } = decisionKeyOf({
			...QUESTION,
			promptVersion: 'p'.repeat(100_000),
			input: { text: '😀'.repeat(50_000) },
		});
		expect(parts.promptVersion).toMatchObject({
			length: 100_000,
			sha256: sha256('p'.repeat(100_000)),
		});
		expect(parts.promptVersion.text).toHaveLength(4_000);
		expect(parts.input.text.isWellFormed()).toBe(true);
		expect(JSON.stringify(parts).length).toBeLessThan(40_000);
		expect(parts.temperature).toBeUndefined();
	});

	test('an expression that nobody resolved is no model and no prompt: all who typed it would get one answer', () => {
		for (const name of ['kind', 'model', 'promptVersion', 'tools', 'temperature'])
			expect(() => key({ [name]: '{{ $json.value }}' })).toThrow(/as it was typed/);
		// a prompt with its places for values is a prompt: what stands there is asked about apart
		expect(distinct({ promptVersion: 'Classify {{ $json.text }}' }, {})).toBe(2);
		expect(distinct({ input: { text: 'Use {{ $json.id }} there' } }, {})).toBe(2);
	});

	test('a model that was chosen from a list is the one that was typed', () => {
		const chosen = { __rl: true, mode: 'list', value: 'gpt-test', cachedResultName: 'GPT Test' };
		expect(distinct({}, { model: chosen }, { model: { ...chosen, mode: 'id' } })).toBe(1);
	});

	test('case 77: what was lost before it came here is refused: all who lost it would get one answer', () => {
		for (const lost of [
			{ input: { text: '[object Object]' } },
			{ input: { mail: { parts: ['a', '[object Object],[object Object]'] } } },
			{ promptVersion: 'Classify [object Object]' },
			{ model: {} },
			{ model: [] },
		])
			expect(() => key(lost)).toThrow(/\[object Object\]|is empty/);
		// who asks about such a text asks about a text
		expect(key({ input: { text: 'My page shows [object Object]' } })).toHaveLength(64);
	});
});

describe('what differs between two questions', () => {
	const parts = (change: Partial<DecisionQuestion>) =>
		decisionKeyOf({ ...QUESTION, ...change }).parts;

	test('names the part, both texts, and inside of objects the paths', () => {
		const one = parts({
			temperature: 0,
			input: { subject: 'Invoice', lines: [{ sku: 'a' }, { sku: 'b' }] },
		});
		const other = parts({
			model: 'other',
			input: { subject: 'Invoice', lines: [{ sku: 'a' }, { sku: 'c' }], extra: 1 },
		});
		expect(compareParts(one, other)).toEqual([
			{ part: 'model', first: 'gpt-test', second: 'other', paths: [] },
			{ part: 'temperature', first: '0', second: null, paths: [] },
			expect.objectContaining({ part: 'input', paths: ['extra', 'lines[1].sku'] }),
		]);
		expect(compareParts(one, one)).toEqual([]);
	});

	test('tells a difference behind the part that is kept, too', () => {
		const long = 'x'.repeat(30_000);
		expect(
			compareParts(parts({ input: { t: `${long}a` } }), parts({ input: { t: `${long}b` } })),
		).toMatchObject([{ part: 'input', paths: [] }]);
	});
});

describe('an answer', () => {
	const TERMS: AnswerTerms = { form: 'object', requiredFields: [] };
	const read = (json: Record<string, unknown>, terms: Partial<AnswerTerms> = {}) =>
		usableAnswer(readModelAnswer(json), { ...TERMS, ...terms });

	test('is kept with the raw text, word for word', () => {
		const said = ' ```\n{"a": 1.0}\n``` ';
		expect(read({ text: said })).toEqual({ valueText: '{"a":1}', rawText: JSON.stringify(said) });
	});

	test.each([
		[{ text: '{"a":1} and more' }],
		[{ text: 'Here: {"a":1}' }],
		[{ text: '```json\n{"a":1}' }],
		[{ text: '{"a":1}{"b":2}' }],
	])('%j is not taken for JSON', (json) => {
		expect(read(json)).toMatchObject({ problem: expect.stringContaining('not JSON') });
	});

	const LABEL = '{"label":"a"}';
	const blocks = (type: string, text: unknown = LABEL) => [{ type, text }];
	const message = (status: string, text: unknown = LABEL) => ({
		output: [{ id: 'm', type: 'message', status, content: blocks('output_text', text) }],
	});
	const chat = (finishReason: string) => ({
		choices: [{ message: { content: LABEL }, finish_reason: finishReason }],
	});
	const full = (body: unknown) => ({ body, headers: {}, statusCode: 200, statusMessage: 'OK' });

	test.each<[string, Record<string, unknown>]>([
		["n8n's Anthropic node", { content: blocks('text'), merged_response: undefined }],
		["n8n's Anthropic node, merged", { content: blocks('text'), merged_response: LABEL }],
		[
			"n8n's Gemini node",
			{ content: { parts: [{ text: LABEL }], role: 'model' }, finishReason: 'STOP', index: 0 },
		],
		["n8n's OpenAI node", message('completed')],
		["n8n's OpenAI node, parsed", message('completed', { label: 'a' })],
		["n8n's MiniMax node", { content: LABEL, reasoning_content: 'hm' }],
		[
			'Ollama without a chat',
			{ model: 'm', created_at: 'now', response: LABEL, done: true, done_reason: 'stop' },
		],
		['a response with its headers', full(chat('stop'))],
		['a response that came as text', { data: JSON.stringify(chat('stop')) }],
		[
			'a response that came as text, with its headers',
			{ data: JSON.stringify(chat('stop')), headers: {}, statusCode: 200 },
		],
		['the text of an endpoint of your own', { data: LABEL }],
		['an object from an endpoint of your own', full({ label: 'a' })],
		[
			"Bedrock's Converse",
			{ output: { message: { content: [{ text: LABEL }] } }, stopReason: 'end_turn', usage: {} },
		],
		["Bedrock's Titan", { results: [{ outputText: LABEL, completionReason: 'FINISH' }] }],
		['Replicate, in pieces', { status: 'succeeded', output: ['{"label"', ':"a"}'], urls: {} }],
		[
			'a message whose refusal is empty',
			{ choices: [{ message: { content: LABEL, refusal: '' } }] },
		],
		['a step that says that nothing failed', { error: null, output: { label: 'a' } }],
	])('of %s is what the model said, not what stands around it', (_, json) => {
		expect(read(json)).toMatchObject({ valueText: LABEL });
	});

	test.each<[string, Record<string, unknown>]>([
		['OpenAI without a choice', { object: 'chat.completion', created: 1, choices: [], usage: {} }],
		['Gemini without a candidate', { usageMetadata: { promptTokenCount: 3 }, modelVersion: 'g' }],
		['Gemini without a part', { candidates: [{ content: { role: 'model' } }] }],
		['Anthropic without a block', { type: 'message', content: [], stop_reason: 'end_turn' }],
		['Responses without a message', { object: 'response', status: 'completed', output: [] }],
		['text, without a candidate', { data: '{"usageMetadata":{"promptTokenCount":3}}' }],
		['a response with headers alone', { headers: {}, statusCode: 204 }],
		['a proxy: a page', { data: '<html><body>502 Bad Gateway</body></html>' }],
		['a proxy: a page with its headers', full('<!DOCTYPE html><title>502</title>')],
	])('of %s says nothing, so nothing is stored', (_, json) => {
		for (const form of ['object', 'json', 'text'] as const) {
			expect(read(json, { form })).toMatchObject({
				problem: expect.stringContaining('No answer was found'),
			});
		}
	});

	test.each<[string, Record<string, unknown>, string]>([
		['a list of errors', { errors: [{ message: 'no credit' }], data: null }, 'no credit'],
		['a status', { message: 'Unauthorized', code: 401 }, 'Unauthorized'],
		['a status as text', { title: 'Too many', status: '429' }, 'Too many'],
		['a failure', { success: false, message: 'over quota' }, 'over quota'],
		['the detail of a framework', { detail: 'Not Found' }, 'Not Found'],
		["n8n's own words", { errorMessage: 'timed out', errorDetails: {} }, 'timed out'],
		[
			'a choice that failed',
			{ choices: [{ ...chat('stop').choices[0], error: { message: 'gone' } }] },
			'gone',
		],
	])('a body that is an error by %s is not stored', (_, json, words) => {
		expect(read(json)).toMatchObject({ problem: expect.stringContaining(words) });
		expect(read({ body: json, headers: {}, statusCode: 200 })).toMatchObject({
			problem: expect.stringContaining(words),
		});
	});

	test.each<[Record<string, unknown>]>([
		[{ status: 'open', reason: 'new' }],
		[{ code: 7, message: 'hello' }],
		[{ success: false, reason: 'not eligible' }],
		[{ detail: 'red', label: 'car' }],
		[{ errors: [], message: 'all is well' }],
	])('%j is no error body', (json) => {
		expect(read(json)).toMatchObject({ valueText: JSON.stringify(json) });
	});

	test.each<[string, Record<string, unknown>, string]>([
		['Mistral and Kong', { message: 'Unauthorized', request_id: 'a1' }, 'Unauthorized'],
		['DashScope', { code: 'InvalidApiKey', message: 'No key.', request_id: 'a1' }, 'No key.'],
		['DashScope without an id', { code: 'Throttling.RateQuota', message: 'Slow' }, 'Slow'],
		['Databricks', { error_code: 'PERMISSION_DENIED', message: 'no' }, 'no'],
		['Baidu', { error_code: 336_000, error_msg: 'Internal error', id: 'a1' }, 'Internal error'],
		[
			'Cloudflare',
			{ success: false, errors: [{ message: 'no model', code: 5006 }], messages: [], result: {} },
			'no model',
		],
		['watsonx', { errors: [{ message: 'no token' }], trace: 'a1', status_code: 401 }, 'no token'],
		['MiniMax', { base_resp: { status_code: 1004, status_msg: 'login fail' } }, 'login fail'],
		['Apigee', { fault: { faultstring: 'Invalid ApiKey', detail: {} } }, 'Invalid ApiKey'],
		['Tencent', { Response: { Error: { Code: 'Auth', Message: 'sign' }, RequestId: 'a' } }, 'sign'],
		['AWS', { Message: 'User is not authorized' }, 'not authorized'],
		['AWS without its operation', { Output: { __type: 'UnknownOperation' } }, 'UnknownOperation'],
		['a problem without its status', { type: 'about:blank', title: 'No', detail: 'key' }, 'key'],
		['a status in words', { status: 'error', message: 'no credit' }, 'no credit'],
		[
			'OpenAI, unwrapped',
			{ message: 'Slow down', type: 'requests_error', param: null, code: null },
			'Slow down',
		],
	])('a body of an error as %s write it is not stored', (_, json, words) => {
		for (const form of ['object', 'json', 'text'] as const) {
			for (const item of [json, full(json), { data: JSON.stringify(json) }])
				expect(read(item, { form })).toMatchObject({ problem: expect.stringContaining(words) });
		}
	});

	test.each([
		'upstream connect error or disconnect/reset before headers. reset reason: timeout',
		'no healthy upstream',
		'error code: 502',
		'Bad Gateway',
		'503 Service Unavailable',
		'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>',
	])('what a gateway says in the place of a model is no text of it: %s', (text) => {
		for (const item of [{ data: text }, full(text)]) {
			expect(read(item, { form: 'text' })).toMatchObject({
				problem: expect.stringContaining('No answer was found'),
			});
		}
		// who has it from a chain has it from a model
		expect(read({ text }, { form: 'text' })).toHaveProperty('valueText');
	});

	test('a message alone is what gateways say: who takes it for the answer says so', () => {
		for (const json of [{ message: 'Too many requests' }, { id: 'a1', message: 'invalid token' }]) {
			expect(read(json, { form: 'text' })).toMatchObject({
				problem: expect.stringContaining('Say where it stands under "Answer"'),
			});
			const said = { ...readModelAnswer(json), content: json.message };
			expect(usableAnswer(said, { ...TERMS, form: 'text' })).toHaveProperty('valueText');
		}
	});

	test.each([
		['data: {"choices":[{"delta":{"content":"in"}}]}\n\ndata: [DONE]\n\n'],
		[': ping\n\nevent: message_start\ndata: {"type":"message_start"}\n\n'],
		['{"model":"m","response":"in","done":false}\n{"model":"m","response":"","done":true}\n'],
		['{"message":{"content":"in"},"done":false}\n{"message":{"content":"v"},"done":true}'],
	])('an answer that came as a stream is not stored in pieces: %j', (text) => {
		for (const form of ['object', 'json', 'text'] as const) {
			for (const item of [{ data: text }, full(text)])
				expect(read(item, { form })).toMatchObject({
					problem: expect.stringContaining('"stream"'),
				});
		}
	});

	test.each([
		['data: what the model calls so\nevent: another'],
		['{"label":"a"}\n{"label":"b"}'],
		['id: 7'],
	])('%j is no stream', (text) => {
		expect(read({ data: text }, { form: 'text' })).toMatchObject({
			valueText: JSON.stringify(text),
		});
	});

	test('work that is fetched when it is over is no answer', () => {
		for (const object of ['batch', 'thread.run', 'chat.completion.chunk']) {
			expect(read({ id: 'a1', object, status: 'queued', last_error: null })).toMatchObject({
				problem: expect.stringContaining('No answer was found'),
			});
		}
		expect(read({ id: 'a1', object: 'chair' })).toHaveProperty('valueText');
	});

	test.each([
		['<think>Is {"a":1} right?</think>\n{"label":"a"}'],
		['<thinking>\nhm\n</thinking>```json\n{"label":"a"}\n```'],
		['I wonder.\n</think>\n\n{"label":"a"}'],
	])('what a model thought aloud is not part of its answer: %j', (text) => {
		expect(read({ text })).toEqual({ valueText: LABEL, rawText: JSON.stringify(text) });
		expect(read({ text: '<think>hm</think>\n\nIt is spam.' }, { form: 'text' })).toMatchObject({
			valueText: '"It is spam."',
		});
	});

	test('case 74: a model that was cut off while it thought has not answered', () => {
		for (const form of ['object', 'json', 'text'] as const) {
			expect(read({ text: '<think>It may be spam, but' }, { form })).toMatchObject({
				problem: expect.stringContaining('cut off'),
			});
			expect(read({ text: '<think>It is spam.</think>\n' }, { form })).toMatchObject({
				problem: 'The answer is empty.',
			});
		}
	});

	test('the end of a thought within an answer stays where it is', () => {
		const text = '{"label":"a","note":"</think>"}';
		expect(read({ text })).toMatchObject({ valueText: text });
		const words = 'Write <think> before and </think> behind it.';
		expect(read({ text: words }, { form: 'text' })).toMatchObject({
			valueText: JSON.stringify(words),
		});
	});

	describe('whose every field is named like an error’s', () => {
		const schema = (properties: Record<string, unknown>, required = Object.keys(properties)) =>
			new SchemaCheck({ type: 'object', properties, required });
		const CASE = { title: 'Smith v. Jones', code: 450 };
		const KINDS = { enum: ['Smith v. Jones', 'Doe v. Roe'] };

		test('is refused with the cure where nothing tells it from one', () => {
			for (const own of [
				undefined,
				schema({ title: { type: 'string' }, code: { type: 'integer' } }),
				schema({ title: { type: 'string', minLength: 3, maxLength: 40 } }),
				schema({ code: { minimum: 440, maximum: 460 } }),
				schema({ title: { pattern: '^[A-Z]' } }),
				// what may be missing need not be looked at
				schema({ title: KINDS }, []),
			]) {
				const refused = read(CASE, { schema: own });
				expect(refused).toMatchObject({ problem: expect.stringContaining('Smith v. Jones.') });
				expect(refused).toMatchObject({ problem: expect.stringContaining('named "output"') });
			}
			expect(read({ output: CASE })).toMatchObject({ valueText: JSON.stringify(CASE) });
		});

		test('is stored where the schema lets nothing into a required field that an error may hold', () => {
			for (const own of [
				schema({ title: KINDS }),
				schema({ title: { type: 'string' }, code: { const: 450 } }),
				schema({
					title: { type: 'string', pattern: '^\\w+ v\\. \\w+$' },
					code: { type: 'integer' },
				}),
			]) {
				for (const item of [CASE, full(CASE), { data: JSON.stringify(CASE) }])
					expect(read(item, { schema: own })).toMatchObject({ valueText: JSON.stringify(CASE) });
			}
		});

		test('no error passes by such a schema, whatever it holds (property)', () => {
			const schemas = [
				schema({ title: KINDS }),
				schema({ code: { const: 450 } }),
				schema({ code: { enum: [404, 450] }, title: { type: 'string' } }),
				schema({ code: { const: 429 } }),
				schema({ title: { type: 'string' } }),
				new SchemaCheck({ oneOf: [{ required: ['title'] }, { required: ['message'] }] }),
				new SchemaCheck({ properties: { title: { type: 'string' }, code: { type: 'number' } } }),
			];
			const status = fc.constantFrom(400, 401, 403, 404, 408, 422, 429, 500, 502, 503, 504, 529);
			fc.assert(
				fc.property(
					fc.constantFrom(...schemas),
					status,
					fc.constantFrom('Not Found', 'Unauthorized', 'You have run out of credits.', ''),
					fc.constantFrom('title', 'message', 'detail'),
					(own, code, words, name) => {
						expect(read({ [name]: words, code }, { schema: own })).toHaveProperty('problem');
					},
				),
				{ numRuns: 60 },
			);
		});

		test('an error that does not fit the schema is told in its own words', () => {
			expect(
				read({ message: 'no credit', code: 402 }, { schema: schema({ label: {} }) }),
			).toMatchObject({ problem: expect.stringContaining("The model's step failed: no credit.") });
		});
	});

	test('a list of objects with types and texts of their own is the answer, no blocks of a message', () => {
		const output = [
			{ type: 'complaint', text: 'late' },
			{ type: 'praise', text: 'kind' },
		];
		expect(read({ output }, { form: 'json' })).toMatchObject({ valueText: JSON.stringify(output) });
	});

	test('a text in which nobody could read anything is empty, and a required field with such a text is missing', () => {
		expect(read({ output: '\u200b \u3164' }, { form: 'text' })).toMatchObject({
			problem: 'The answer is empty.',
		});
		for (const text of ['\u200b', 'null', 'undefined', '#REF!'])
			expect(read({ output: { label: text } }, { requiredFields: ['label'] })).toMatchObject({
				problem: 'The answer lacks the field label.',
			});
	});

	test.each<[string, Record<string, unknown>]>([
		["n8n's OpenAI node", message('incomplete')],
		["n8n's Gemini node", { content: { parts: [{ text: LABEL }] }, finishReason: 'MAX_TOKENS' }],
		['a response with its headers', full(chat('length'))],
		['a response that came as text', { data: JSON.stringify(chat('length')) }],
		['Ollama without a chat', { model: 'm', response: LABEL, done: true, done_reason: 'length' }],
		['Ollama, in pieces', { model: 'm', message: { content: LABEL }, done: false }],
		[
			'a response in the background',
			{ object: 'response', ...message('completed'), status: 'queued' },
		],
		['Anthropic, paused', { content: blocks('text'), stop_reason: 'pause_turn' }],
		[
			"Bedrock's Converse",
			{ output: { message: { content: [{ text: LABEL }] } }, stopReason: 'max_tokens' },
		],
		["Bedrock's Titan", { results: [{ outputText: LABEL, completionReason: 'LENGTH' }] }],
		['Replicate, still at work', { status: 'processing', output: LABEL, urls: {} }],
		['a node that names the reason as Bedrock does', { text: LABEL, stopReason: 'max_tokens' }],
	])('case 74: of %s that is not whole is not stored', (_, json) => {
		for (const form of ['object', 'json', 'text'] as const) {
			expect(read(json, { form })).toMatchObject({ problem: expect.stringContaining('cut off') });
		}
	});

	test('that is a refusal or an error is not stored, wherever it stands', () => {
		const refusal = [{ type: 'message', content: [{ type: 'refusal', refusal: 'I cannot.' }] }];
		const other = {
			candidates: [{ content: { parts: [{ text: LABEL }] }, finishReason: 'OTHER' }],
		};
		for (const form of ['object', 'json', 'text'] as const) {
			for (const json of [{ object: 'response', status: 'completed', output: refusal }, other]) {
				expect(read(json, { form })).toMatchObject({
					problem: expect.stringContaining('did not answer'),
				});
			}
			for (const json of [full({ error: { message: 'busy' } }), { data: '{"error":"busy"}' }]) {
				expect(read(json, { form })).toMatchObject({ problem: "The model's step failed: busy" });
			}
		}
	});

	test.each([
		['{"order": 7615917337495251231}', 'The field "order"'],
		['{"lines": [{"id": 9007199254740993}]}', 'The field "lines.0.id"'],
		['{"amount": 1e999}', 'The field "amount"'],
		['9007199254740993', 'The answer'],
	])('case 94: %s would be stored rounded, so it is refused', (text, where) => {
		expect(read({ text }, { form: where === 'The answer' ? 'json' : 'object' })).toMatchObject({
			problem: expect.stringContaining(`${where} holds a number that is too long`),
		});
		expect(read({ text }, { form: 'text' })).toHaveProperty('valueText');
	});

	test('case 77: blocks that are not all text are refused, a list of typed objects that was asked for is not', () => {
		const content = [{ type: 'text', text: '{}' }, { type: 'audio' }];
		expect(read({ content, stop_reason: 'end_turn' })).toMatchObject({
			problem: expect.stringContaining('"audio"'),
		});
		expect(read({ output: [{ type: 'refund', amount: 3 }] }, { form: 'json' })).toMatchObject({
			valueText: '[{"type":"refund","amount":3}]',
		});
		expect(read({ text: '[{"type":"text","text":"a"}]' }, { form: 'json' })).toMatchObject({
			valueText: '[{"type":"text","text":"a"}]',
		});
	});

	test('case 77: "[object Object]" is refused wherever it is a whole text, also several of them', () => {
		for (const text of ['[object Object]', '[object Object],[object Object]']) {
			expect(read({ text }, { form: 'text' })).toMatchObject({ problem: expect.any(String) });
			expect(read({ output: { list: ['a', { deep: text }] } })).toMatchObject({
				problem: expect.stringContaining('list.1.deep'),
			});
		}
		expect(
			read({ text: 'The page shows [object Object] in its title.' }, { form: 'text' }),
		).toHaveProperty('valueText');
	});

	test('of more than the limit is refused', () => {
		const text = JSON.stringify({ a: 'x'.repeat(MAX_DECISION_BYTES) });
		expect(read({ text })).toMatchObject({
			problem: expect.stringContaining('too large'),
			rawText: 'null',
		});
	});

	test('that JSON cannot carry is refused, never thrown', () => {
		const circular: Record<string, unknown> = { label: 'a' };
		circular.self = circular;
		expect(read({ output: circular })).toMatchObject({
			problem: 'The answer cannot be written as JSON.',
		});
		expect(read({ output: { n: 1n } })).toMatchObject({
			problem: 'The answer cannot be written as JSON.',
		});
	});

	test('reading never throws, whatever the item is (property)', () => {
		fc.assert(
			fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (json) => {
				const usable = read(json as Record<string, unknown>, { form: 'json' });
				expect(typeof ('problem' in usable ? usable.problem : usable.valueText)).toBe('string');
			}),
		);
		for (const name of [
			'choices',
			'candidates',
			'content',
			'output',
			'message',
			'usage',
			'error',
			'promptFeedback',
		]) {
			for (const odd of [null, 0, '', [], [null], {}, [[]], true])
				read({ [name]: odd, stop_reason: 'x', status: 'y' });
		}
	});
});

describe('a JSON Schema', () => {
	test.each([
		['2020-12', { prefixItems: [{ type: 'number' }] }, ['a']],
		[
			'7',
			{ $schema: 'http://json-schema.org/draft-07/schema#', items: [{ type: 'number' }] },
			['a'],
		],
		['7', { $schema: 'http://json-schema.org/draft-07/schema#', exclusiveMinimum: 3 }, 3],
		[
			'4',
			{ $schema: 'http://json-schema.org/draft-04/schema#', minimum: 3, exclusiveMinimum: true },
			3,
		],
	])('of draft %s is read as such', (_, schema, value) => {
		expect(new SchemaCheck(schema).problemOf(value)).toContain('does not fit');
	});

	test('says which field is wrong, and nothing where it fits', () => {
		const check = new SchemaCheck(
			'{"type":"object","required":["label"],"properties":{"label":{"enum":["a","b"]}},"additionalProperties":false}',
		);
		expect(check.problemOf({ label: 'a' })).toBeNull();
		expect(check.problemOf({})).toContain('label');
		expect(check.problemOf({ label: 'c' })).toContain('#/label');
		expect(check.problemOf({ label: 'a', more: 1 })).toContain('more');
	});

	test('a pattern that would run for centuries ends in time, and all values of a call together', () => {
		const check = new SchemaCheck({ properties: { a: { pattern: '^(a+)+$' } } });
		const value = { a: `${'a'.repeat(80)}!` };
		const startedAt = performance.now();
		const problems = Array.from({ length: 40 }, () => check.problemOf(value));
		expect(performance.now() - startedAt).toBeLessThan(4_000);
		expect(problems[0]).toContain('took more than');
		expect(problems[39]).toContain('which is all they get');
		// another call is not affected
		expect(new SchemaCheck({ type: 'object' }).problemOf(value)).toBeNull();
	});

	test.each([
		['not JSON', 'type: object', 'The JSON Schema is not JSON'],
		['a list', '[]', 'no JSON object'],
		['an example', { label: 'invoice' }, 'would let everything pass'],
		["OpenAI's form", { name: 'mail', strict: true, schema: { type: 'object' } }, 'under "schema"'],
		['empty', '{}', 'would let everything pass'],
		['a reference to another host', { $ref: 'https://example.com/schema' }, 'cannot be used'],
		['a circle', { $ref: '#' }, 'cannot be used'],
		['a pattern that is none', { pattern: '(' }, 'cannot be used'],
	])('that is %s fits nothing, and says so', (_, schema, problem) => {
		expect(new SchemaCheck(schema).problemOf('text')).toContain(problem);
	});
});
