import { randomUUID } from 'node:crypto';
import type { IDataObject } from 'n8n-workflow';

import {
	claim,
	complete,
	decision,
	decisionTool,
	http,
	nextExecutionId,
	step,
	workLedger,
	type Link,
	type NodeOfTest,
	type Ran,
	type Step,
} from './run-workflow';
import { WorkflowStage } from './stage';

const stage = WorkflowStage.forThisFile();

const MAIL = { id: 7, subject: 'Invoice', text: 'Please pay' };

/** A look-up of a question of its own kind. */
const asking = (kind: string, more: IDataObject = {}): IDataObject => ({
	kind,
	model: 'model-1',
	promptVersion: 'v1',
	inputFields: 'subject, text',
	wait: 0,
	...more,
});

/** A model that answers differently every time, as Basic LLM Chain hands its answer on. */
class Model {
	calls = 0;

	constructor(private readonly say = (n: number) => `{"label": "answer ${n}"}`) {}

	get chain(): Step {
		return http(() => ({ text: this.say(++this.calls) }));
	}
}

/** Start → Look Up → Decide → Model → Store → Apply ← Replay */
const LINKS: Link[] = [
	['Start', 'Look Up'],
	['Look Up:0', 'Apply'],
	['Look Up:1', 'Model'],
	['Model', 'Store'],
	['Store:0', 'Apply'],
];

interface Asked {
	kind: string;
	model: Step;
	lookUp?: IDataObject;
	store?: IDataObject;
	apply?: NodeOfTest;
	settings?: Parameters<typeof decision>[2];
	items?: IDataObject[];
}

async function ask({ kind, model, lookUp, store, apply, settings, items = [MAIL] }: Asked): Promise<Ran> {
	return await stage.run({
		items,
		nodes: [
			decision('lookUp', asking(kind, lookUp), settings),
			step('Model', model),
			decision('store', store),
			apply ?? step('Apply', http((json) => json)),
		],
		links: LINKS.map(([from, to]) => [from, to === 'Apply' && apply !== undefined ? apply.name : to]),
	});
}

/** What the nodes said of each item, by output. */
const said = (ran: Ran, node: string, output: number) =>
	ran.json(node, output).map(({ decision: field }) => field as IDataObject);

/** The key of the only question of a kind. */
async function onlyKey(kind: string): Promise<string> {
	const rows = await stage.ledger.query<{ decision_key: string }>(
		'select decision_key from idempotency.llm_decisions where kind = $1',
		[kind],
	);
	if (rows.length !== 1) throw new Error(`there are ${rows.length} questions of ${kind}`);
	return rows[0].decision_key;
}

describe('decide once', () => {
	test('the second run replays the first answer, and the model is asked once (case 79)', async () => {
		const kind = stage.newKind();
		const model = new Model();
		const first = await ask({ kind, model: model.chain });
		const second = await ask({ kind, model: model.chain });
		expect(model.calls).toBe(1);
		expect(said(first, 'Store', 0)).toMatchObject([{ status: 'stored', value: { label: 'answer 1' } }]);
		const [replayed] = said(second, 'Look Up', 0);
		expect(replayed).toMatchObject({ status: 'replay', replayed: true, value: { label: 'answer 1' } });
		expect(second.json('Apply')).toMatchObject([{ decision: { value: { label: 'answer 1' } } }]);
	});

	test('a replayed decision says so, when it was made and by which execution', async () => {
		const kind = stage.newKind();
		const model = new Model();
		await ask({ kind, model: model.chain });
		const ran = await ask({ kind, model: model.chain });
		const [field] = said(ran, 'Look Up', 0);
		const owner = field.decidedBy as IDataObject;
		expect(owner).toMatchObject({ workflow: 'workflow-1', workflowName: 'Test flow' });
		expect(field.message).toBe(
			`Replayed: decided at ${String(field.decidedAt)} by execution ${String(owner.execution)}. The model was not asked again.`,
		);
	});

	test('each item keeps its data, binary and pairing, and gains the field', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [
				{ json: { ...MAIL, error: 'from before' }, binary: { file: { data: '', mimeType: 'text/plain' } } },
				{ json: { ...MAIL, text: 'other' } },
			],
			nodes: [decision('lookUp', asking(kind))],
		});
		const [first, second] = ran.out('Look Up', 1);
		expect(first).toMatchObject({ json: MAIL, binary: { file: { mimeType: 'text/plain' } }, pairedItem: { item: 0 } });
		expect(first.json.error).toBeUndefined();
		expect(first.json.decision).toMatchObject({ status: 'decide', inputError: 'from before' });
		expect(second.pairedItem).toEqual({ item: 1 });
	});

	test('decided, then killed before it was applied (case 79): the next run applies the first answer', async () => {
		const kind = stage.newKind();
		const work = stage.newKind();
		const model = new Model();
		const dies = step('Apply', () => {
			throw new Error('the process dies here');
		});
		const crashed = await ask({ kind, model: model.chain, apply: dies });
		expect(crashed.status).toBe('error');
		const applied = await ask({
			kind,
			model: model.chain,
			apply: claim({ kind: work, keyFields: 'id' }),
		});
		expect(model.calls).toBe(1);
		expect(applied.json('Claim Work')).toMatchObject([
			{ decision: { value: { label: 'answer 1' } }, work: { status: 'claimed' } },
		]);
	});

	test('two first runs at once agree on one winner: the loser gets it back and goes on with it (case 79)', async () => {
		const kind = stage.newKind();
		// the first model call outlives its lease; while it lasts, another run decides and stores
		const slow = new Model(() => '{"label": "A"}');
		const fast = new Model(() => '{"label": "B"}');
		const ran = await ask({
			kind,
			model: async (items) => {
				await stage.ledger.query(
					`update idempotency.llm_decisions set locked_until = clock_timestamp() where kind = $1`,
					[kind],
				);
				const other = await ask({ kind, model: fast.chain });
				expect(said(other, 'Store', 0)).toMatchObject([{ status: 'stored', value: { label: 'B' } }]);
				return await slow.chain(items);
			},
		});
		expect(said(ran, 'Store', 0)).toMatchObject([{ status: 'superseded', value: { label: 'B' } }]);
		expect(ran.json('Apply')).toMatchObject([{ decision: { value: { label: 'B' } } }]);
	});

	test('of many at once one asks the model; the others wait for its answer and replay it', async () => {
		const kind = stage.newKind();
		const model = new Model();
		let others: Array<Promise<Ran>> = [];
		const first = await ask({
			kind,
			model: async (items) => {
				others = [1, 2, 3].map(async () => await ask({ kind, model: model.chain, lookUp: { wait: 25 } }));
				for (;;) {
					const rows = await stage.ledger.query(
						`select 1 from idempotency.decision_log d join idempotency.llm_decisions l on l.decision_key = d.work_id
						where l.kind = $1 and d.outcome = 'busy'`,
						[kind],
					);
					if (rows.length === 3) break;
					await stage.ledger.query('select pg_sleep(0.01)');
				}
				return await model.chain(items);
			},
		});
		const waited = await Promise.all(others);
		expect(model.calls).toBe(1);
		expect(said(first, 'Store', 0)).toMatchObject([{ status: 'stored' }]);
		for (const ran of waited) {
			expect(said(ran, 'Look Up', 0)).toMatchObject([{ status: 'replay', value: { label: 'answer 1' } }]);
		}
	});

	test('who does not wait leaves by Busy, with the owner and the end of its lease', async () => {
		const kind = stage.newKind();
		const executionId = nextExecutionId();
		await stage.run({ items: [MAIL], executionId, nodes: [decision('lookUp', asking(kind))] });
		const ran = await stage.run({ items: [MAIL], nodes: [decision('lookUp', asking(kind))] });
		expect(said(ran, 'Look Up', 2)).toMatchObject([
			{ status: 'busy', owner: { execution: executionId }, lockedUntil: expect.any(String) },
		]);
		expect(said(ran, 'Look Up', 2)[0].token).toBeUndefined();
	});

	test('one item twice in a batch: the first decides, the second is busy at once, however long it may wait', async () => {
		const ran = await stage.run({
			items: [MAIL, MAIL],
			nodes: [decision('lookUp', asking(stage.newKind(), { wait: 600 }))],
		});
		expect(said(ran, 'Look Up', 1)).toHaveLength(1);
		expect(said(ran, 'Look Up', 2)).toHaveLength(1);
	});
});

describe('what makes another question', () => {
	/** How many questions look-ups with these settings make of one item. */
	async function keys(...variants: IDataObject[]): Promise<number> {
		const kind = stage.newKind();
		for (const more of variants) {
			const ran = await stage.run({ items: [MAIL], nodes: [decision('lookUp', asking(kind, more))] });
			expect(ran.status).toBe('success');
		}
		const [{ count }] = await stage.ledger.query<{ count: number }>(
			'select count(*)::int as count from idempotency.llm_decisions where kind = $1',
			[kind],
		);
		return count;
	}

	test('case 72: temperature 0, 0.7, unset and "0" are three keys', async () => {
		expect(
			await keys(
				{ influences: { temperature: 0 } },
				{ influences: { temperature: 0.7 } },
				{},
				{ influences: { temperature: '={{ "0" }}' } },
			),
		).toBe(3);
	});

	test('case 72: so are max tokens 100, 200 and unset', async () => {
		expect(
			await keys({ influences: { maxTokens: 100 } }, { influences: { maxTokens: 200 } }, {}, { influences: { maxTokens: '={{ undefined }}' } }),
		).toBe(3);
	});

	test('model, prompt version, tools, schema, tool choice and further parameters count; spacing and order do not', async () => {
		expect(
			await keys(
				{},
				{ model: 'model-2' },
				{ promptVersion: 'v2' },
				{ influences: { tools: '[{"name": "a", "strict": true}]' } },
				{ influences: { tools: '={{ [{ strict: true, name: "a" }] }}' } },
				{ influences: { outputSchema: '{"type": "object"}' } },
				{ influences: { outputSchema: '{ "type":\n"object" }' } },
				{ influences: { toolChoice: 'auto' } },
				{ influences: { further: '{"seed": 7, "top_p": 0.9}' } },
				{ influences: { further: '={{ { top_p: "0.9", seed: 7 } }}' } },
			),
		).toBe(7);
	});

	test('only the chosen fields count; of the whole item all but what changes with each delivery', async () => {
		const kind = stage.newKind();
		const look = async (item: IDataObject, more: IDataObject) =>
			(await stage.run({ items: [item], nodes: [decision('lookUp', asking(kind, more))] })).json('Look Up', 1)
				.length;
		expect(await look(MAIL, {})).toBe(1);
		expect(await look({ ...MAIL, id: 8 }, {})).toBe(0);
		expect(await look({ ...MAIL, text: 'other' }, {})).toBe(1);
		const whole = { input: 'item' };
		expect(await look({ ...MAIL, received_at: '2026-01-01' }, whole)).toBe(1);
		expect(await look({ ...MAIL, received_at: '2026-01-02', work: { status: 'claimed', workId: 'a'.repeat(64) } }, whole)).toBe(0);
		expect(await look({ ...MAIL, id: 8 }, whole)).toBe(1);
	});

	test('a field that is chosen counts, although it is one that changes with each delivery', async () => {
		const kind = stage.newKind();
		const look = async (item: IDataObject) =>
			(
				await stage.run({
					items: [item],
					nodes: [decision('lookUp', asking(kind, { inputFields: 'text, timestamp, meta' }))],
				})
			).json('Look Up', 1).length;
		expect(await look({ text: 'a', timestamp: 1, meta: { request_id: 1 } })).toBe(1);
		expect(await look({ text: 'a', timestamp: 2, meta: { request_id: 1 } })).toBe(1);
		expect(await look({ text: 'a', timestamp: 2, meta: { request_id: 2 } })).toBe(0);
	});

	test.each([
		['promptVersion', 'Prompt Version', '=v1 {{ $now }}', '$now'],
		['model', 'Model', '={{ "m" + $execution.id }}', '$execution'],
	])('a %s that is new on every run is refused, naming it', async (name, label, expression, source) => {
		const ran = await stage.run({
			items: [MAIL],
			nodes: [decision('lookUp', asking(stage.newKind(), { [name]: expression }))],
		});
		expect(ran.error?.message).toContain(`${label} uses ${source}`);
	});

	test('so is a parameter of the model; an option allows it', async () => {
		const influences = { further: '={{ { "seed": Math.random() } }}' };
		const kind = stage.newKind();
		const ran = await stage.run({ items: [MAIL], nodes: [decision('lookUp', asking(kind, { influences }))] });
		expect(ran.error?.message).toContain('Further Parameters uses Math.random');
		const allowed = await stage.run({
			items: [MAIL],
			nodes: [decision('lookUp', asking(kind, { influences, options: { allowVolatileKey: true } }))],
		});
		expect(said(allowed, 'Look Up', 1)).toHaveLength(1);
	});

	test('an item without a field that the question needs is refused before anything is asked', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [MAIL, { id: 8, subject: 'no text' }],
			nodes: [decision('lookUp', asking(kind))],
		});
		expect(ran.error?.message).toContain('The field "text" is missing in this item');
		await expect(onlyKey(kind)).rejects.toThrow('there are 0 questions');
	});

	test('an expression where names of fields belong is refused with the cure', async () => {
		for (const inputFields of ['={{ $json.text }}', '{{ $json.text }}', 'subject, $json.text']) {
			const ran = await stage.run({
				items: [MAIL],
				nodes: [decision('lookUp', asking(stage.newKind(), { inputFields }))],
			});
			expect(ran.error?.message).toMatch(/"Input Fields" takes names of fields.*as fixed text/);
		}
	});

	test('case 101: an item whose chosen fields are all empty asks about nothing, and is refused; one of them is enough', async () => {
		const kind = stage.newKind();
		for (const nothing of ['', ' ', null, [], 'undefined']) {
			const ran = await stage.run({
				items: [{ ...MAIL, subject: nothing, text: '' }],
				nodes: [decision('lookUp', asking(kind))],
			});
			expect(ran.error?.message).toContain('are empty, so there is nothing to ask about');
		}
		await expect(onlyKey(kind)).rejects.toThrow('there are 0 questions');
		await stage.run({
			items: [{ ...MAIL, subject: 0, text: '' }],
			nodes: [decision('lookUp', asking(kind))],
		});
		expect(await onlyKey(kind)).toHaveLength(64);
	});

	test.each([
		['kind', 'Decision is empty'],
		['model', 'Model is empty'],
		['promptVersion', 'Prompt Version is empty'],
		['inputFields', '"Input Fields" is empty'],
	])('a look-up whose %s is empty for an item is refused', async (name, message) => {
		const ran = await stage.run({
			items: [MAIL],
			nodes: [decision('lookUp', asking(stage.newKind(), { [name]: '={{ $json.absent }}' }))],
		});
		expect(ran.error?.message).toContain(message);
	});

	test('two questions can be compared: what differs?', async () => {
		const kind = stage.newKind();
		const first = await stage.run({
			items: [MAIL],
			nodes: [decision('lookUp', asking(kind, { influences: { temperature: 0 } }))],
		});
		const second = await stage.run({
			items: [{ ...MAIL, text: 'Please pay now' }],
			nodes: [decision('lookUp', asking(kind, { promptVersion: 'v2' }))],
		});
		const [one, other] = [first, second].map((ran) => String(said(ran, 'Look Up', 1)[0].decisionKey));
		const ran = await stage.run({
			items: [{}],
			nodes: [decision('compare', { decisionKey: one, otherKey: other }, {}, 'Compare')],
		});
		expect(ran.json('Compare')).toMatchObject([
			{
				same: false,
				summary: 'They differ in promptVersion; temperature (only the first has it); input (text).',
			},
		]);
	});
});

describe('what is not stored', () => {
	/** Runs once and gives what left by Not Stored; the key must be free, so that the next run asks again. */
	async function notStored(answer: IDataObject, store: IDataObject = {}): Promise<IDataObject> {
		const kind = stage.newKind();
		const model = new Model();
		const ran = await ask({ kind, model: http(() => answer), store });
		expect(ran.status).toBe('success');
		expect(ran.json('Apply')).toEqual([]);
		const next = await ask({ kind, model: model.chain });
		expect(said(next, 'Store', 0)).toMatchObject([{ status: 'stored', value: { label: 'answer 1' } }]);
		return said(ran, 'Store', 2)[0];
	}

	const openai = (content: unknown, finish_reason = 'stop'): IDataObject => ({
		choices: [{ message: { role: 'assistant', content }, finish_reason }] as IDataObject[],
		usage: { prompt_tokens: 90, completion_tokens: 5 },
	});

	test.each([
		['OpenAI', openai('{"label": "inv', 'length'), 'cut off (finish reason "length")'],
		['Anthropic', { content: [{ type: 'text', text: '{"label": "a"}' }], stop_reason: 'max_tokens' }, 'cut off'],
		['Gemini', { candidates: [{ content: { parts: [{ text: '{"label": "a"}' }] }, finishReason: 'MAX_TOKENS' }] }, 'cut off'],
		['Ollama', { message: { content: '{"label": "a"}' }, done_reason: 'length' }, 'cut off'],
		['Responses', { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' }, output: [] }, 'cut off'],
	])('case 74: an answer cut off at the token limit (%s)', async (_, answer, reason) => {
		expect(await notStored(answer as IDataObject)).toMatchObject({
			status: 'not_stored',
			reason: expect.stringContaining(reason),
		});
	});

	test('case 74: one that the chain hands on without its finish reason, by its broken JSON', async () => {
		expect(await notStored({ text: '{"label": "inv' })).toMatchObject({ reason: expect.stringContaining('not JSON') });
	});

	test('case 74: one whose finish reason a person points at', async () => {
		const store = { options: { finishReason: '={{ $json.why }}' } };
		expect(await notStored({ text: '{"label": "a"}', why: 'length' }, store)).toMatchObject({
			reason: expect.stringContaining('cut off'),
		});
	});

	test.each([
		['OpenAI', openai('', 'content_filter')],
		['a refusal', { choices: [{ message: { refusal: 'I cannot' }, finish_reason: 'stop' }] }],
		['Anthropic', { content: [], stop_reason: 'refusal' }],
		['Gemini', { candidates: [{ finishReason: 'SAFETY' }] }],
		['Gemini, the prompt', { promptFeedback: { blockReason: 'PROHIBITED_CONTENT' } }],
	])('a filtered answer (%s)', async (_, answer) => {
		expect(await notStored(answer as unknown as IDataObject)).toMatchObject({
			reason: expect.stringContaining('did not answer'),
		});
	});

	test.each([
		['an error body', { error: { message: 'Rate limit reached', type: 'requests' } }, 'Rate limit reached'],
		['an error as text', { error: 'model overloaded' }, 'model overloaded'],
		['an error of Anthropic', { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }, 'Overloaded'],
		['a status', { statusCode: 503, body: 'down' }, 'HTTP status 503'],
		['text in the place of an object', { text: 'It is an invoice.' }, 'not JSON'],
		['a list in the place of an object', { text: '[1, 2]' }, 'a list, but an object is required'],
		['an agent that reached its limit', { output: 'Agent stopped due to max iterations.' }, 'reached its limit'],
		['an empty answer', { text: '   ' }, 'empty'],
		['no answer', {}, 'No answer was found'],
		['case 77: the text "[object Object]"', { text: '[object Object]' }, '[object Object]'],
		['case 77: it inside a value', { output: { label: 'a', note: '[object Object]' } }, 'note'],
		['a block that is no text', { content: [{ type: 'image' }, { type: 'text', text: 'a' }], stop_reason: 'end_turn' }, 'image'],
	])('%s', async (_, answer, reason) => {
		expect(await notStored(answer as unknown as IDataObject)).toMatchObject({
			status: 'not_stored',
			reason: expect.stringContaining(reason),
		});
	});

	test('an expression that was typed where n8n stands on Fixed is no answer', async () => {
		const store = { answerFrom: 'expression', answer: '{{ $json.text }}', form: 'text' };
		expect(await notStored({ text: 'It is an invoice.' }, store)).toMatchObject({
			reason: expect.stringContaining('from Fixed to Expression'),
		});
	});

	test('an error as its vendor writes it, a stream, and thoughts without an end', async () => {
		for (const [answer, reason] of [
			[{ code: 'InvalidApiKey', message: 'No such key.', request_id: 'a1' }, 'No such key.'],
			[{ data: 'data: {"choices":[]}\n\ndata: [DONE]\n' }, '"stream"'],
			[{ output: '<think>It may be' }, 'cut off'],
		] as Array<[IDataObject, string]>) {
			expect(await notStored(answer, { form: 'text' })).toMatchObject({
				status: 'not_stored',
				reason: expect.stringContaining(reason),
			});
		}
	});

	test('a value that lacks a required field, or has it empty', async () => {
		const store = { requiredFields: 'label, customer.name' };
		expect(await notStored({ text: '{"label": "", "customer": {}}' }, store)).toMatchObject({
			reason: 'The answer lacks the fields label, customer.name.',
		});
	});

	test('a value that does not fit the JSON Schema, with what is wrong', async () => {
		const schema = '{"type": "object", "required": ["label"], "properties": {"label": {"enum": ["answer 1", "spam"]}}}';
		const store = { options: { schema } };
		expect(await notStored({ text: '{"label": "ham"}' }, store)).toMatchObject({
			reason: expect.stringMatching(/does not fit the JSON Schema.*label/),
		});
	});

	test('a schema that is none, or whose pattern would run for ever, in bounded time', async () => {
		const evil = { properties: { label: { pattern: '^(a+)+$' } } };
		const startedAt = performance.now();
		expect(
			await notStored({ text: JSON.stringify({ label: `${'a'.repeat(60)}!` }) }, { options: { schema: JSON.stringify(evil) } }),
		).toMatchObject({ reason: expect.stringContaining('took more than') });
		expect(performance.now() - startedAt).toBeLessThan(5_000);
		expect(await notStored({ text: '{"label": "a"}' }, { options: { schema: 'type: object' } })).toMatchObject({
			reason: expect.stringContaining('The JSON Schema is not JSON'),
		});
	});

	test('an answer that came as several items', async () => {
		const kind = stage.newKind();
		const ran = await ask({
			kind,
			model: () => [1, 2].map((n) => ({ json: { text: `{"n": ${n}}` }, pairedItem: { item: 0 } })),
		});
		expect(said(ran, 'Store', 2)).toMatchObject([
			{ status: 'not_stored', reason: expect.stringContaining('came as 2 items') },
			{ status: 'not_stored' },
		]);
	});

	test('what the model said is in the history all the same', async () => {
		const kind = stage.newKind();
		await ask({ kind, model: http(() => ({ text: 'It is an invoice.' })) });
		const ran = await stage.run({
			items: [{ decisionKey: await onlyKey(kind) }],
			nodes: [decision('get', {}, {}, 'Get')],
		});
		const [{ history, summary }] = ran.json('Get');
		expect(summary).toContain('the next look-up decides');
		expect(history).toMatchObject([{ event: 'look_up' }, { outcome: 'not_stored', result: 'It is an invoice.' }]);
	});
});

describe('what is stored', () => {
	async function stored(answer: IDataObject, store: IDataObject = {}): Promise<IDataObject> {
		const ran = await ask({ kind: stage.newKind(), model: http(() => answer), store });
		const [field] = said(ran, 'Store', 0);
		if (field === undefined) throw new Error(String(said(ran, 'Store', 2)[0]?.reason));
		return field;
	}

	test.each([
		['Basic LLM Chain', { text: '{"label": "a"}' }],
		['Basic LLM Chain with a parser', { output: { label: 'a' } }],
		['AI Agent', { output: '{"label": "a"}', intermediateSteps: [] }],
		['OpenAI', { choices: [{ message: { content: '{"label": "a"}' }, finish_reason: 'stop' }] }],
		['OpenAI, a forced tool', { choices: [{ message: { content: null, tool_calls: [{ function: { name: 'f', arguments: '{"label": "a"}' } }] }, finish_reason: 'tool_calls' }] }],
		['OpenAI Responses', { status: 'completed', output: [{ type: 'reasoning' }, { type: 'message', content: [{ type: 'output_text', text: '{"label": "a"}' }] }] }],
		['Anthropic', { content: [{ type: 'thinking', thinking: 'hm' }, { type: 'text', text: '{"label": "a"}' }], stop_reason: 'end_turn' }],
		['Anthropic, a forced tool', { content: [{ type: 'tool_use', name: 'f', input: { label: 'a' } }], stop_reason: 'tool_use' }],
		['Gemini', { candidates: [{ content: { parts: [{ text: '{"label": ' }, { text: '"a"}' }] }, finishReason: 'STOP' }] }],
		['Ollama', { message: { role: 'assistant', content: '{"label": "a"}' }, done_reason: 'stop' }],
		['an item that was put together before', { label: 'a' }],
		['a code fence', { text: '```json\n{"label": "a"}\n```' }],
		['case 77: content blocks in the place of text', { text: [{ type: 'text', text: '{"label": "a"}' }] }],
	])('%s', async (_, answer) => {
		expect(await stored(answer as unknown as IDataObject)).toMatchObject({ status: 'stored', value: { label: 'a' } });
	});

	test('an answer of the names of an error, which the schema tells from one', async () => {
		const answer = { title: 'Smith v. Jones', code: 450 };
		await expect(stored(answer)).rejects.toThrow('put them into one field named "output"');
		const schema = {
			type: 'object',
			required: ['title', 'code'],
			properties: { title: { enum: ['Smith v. Jones', 'Doe v. Roe'] }, code: { type: 'integer' } },
		};
		const options = { schema: JSON.stringify(schema) };
		expect(await stored(answer, { options })).toMatchObject({ value: answer });
		await expect(stored({ title: 'Unauthorized', code: 401 }, { options })).rejects.toThrow('Unauthorized');
		expect(await stored({ output: answer })).toMatchObject({ value: answer });
	});

	test('text where text is asked for, and an expression where the answer stands elsewhere', async () => {
		expect(await stored({ text: 'It is an invoice.' }, { form: 'text' })).toMatchObject({ value: 'It is an invoice.' });
		const deep = { answerFrom: 'expression', answer: '={{ $json.deep.answer }}' };
		expect(await stored({ deep: { answer: '{"label": "b"}' } }, deep)).toMatchObject({ value: { label: 'b' } });
		expect(await stored({ text: '[1, null]' }, { form: 'json' })).toMatchObject({ value: [1, null] });
	});

	test('with the raw text beside it, tokens from the answer and the cost that was entered', async () => {
		const kind = stage.newKind();
		const raw = '```json\n{"label": "a"}\n```';
		await ask({
			kind,
			model: http(() => ({
				choices: [{ message: { content: raw }, finish_reason: 'stop' }] as IDataObject[],
				usage: { prompt_tokens: 90, completion_tokens: 5 },
			})),
			store: { options: { cost: 0.002 } },
		});
		await ask({ kind, model: new Model().chain });
		const ran = await stage.run({
			items: [{ decisionKey: await onlyKey(kind) }],
			nodes: [
				decision('get', {}, {}, 'Get'),
				decision('statistics', { statisticsKind: kind, sinceHours: 24 }, {}, 'Statistics'),
			],
		});
		expect(ran.json('Get')).toMatchObject([
			{ raw, inputTokens: 90, outputTokens: 5, cost: 0.002, latencyMs: expect.any(Number) },
		]);
		expect(ran.json('Statistics')).toMatchObject([
			{ summary: `Replay saved ${kind}: 1 calls, 90 + 5 tokens, cost 0.002.` },
		]);
	});

	test('for a time to live', async () => {
		const kind = stage.newKind();
		const model = new Model();
		const ran = await ask({ kind, model: model.chain, store: { options: { ttlHours: 2 } } });
		const until = Date.parse(String(said(ran, 'Store', 0)[0].expiresAt)) - Date.now();
		expect(until).toBeGreaterThan(7_000_000);
		expect(until).toBeLessThan(7_300_000);
	});
});

describe('Store finds the question of an answer', () => {
	test('by the paired item, among several, whichever order the steps between keep', async () => {
		const kind = stage.newKind();
		const items = [1, 2, 3].map((n) => ({ subject: 's', text: `mail ${n}` }));
		const ran = await ask({
			kind,
			items,
			model: (all) =>
				all.map(({ json }, i) => ({ json: { text: JSON.stringify({ about: json.text }) }, pairedItem: { item: i } })).reverse(),
		});
		expect(said(ran, 'Store', 0)).toHaveLength(3);
		const again = await ask({ kind, items, model: new Model().chain });
		expect(again.json('Look Up', 0)).toMatchObject(
			items.map(({ text }) => ({ text, decision: { value: { about: text } } })),
		);
	});

	test('by its own field, although a step lost the pairing', async () => {
		const kind = stage.newKind();
		const items = [1, 2].map((n) => ({ subject: 's', text: `mail ${n}` }));
		await ask({
			kind,
			items,
			model: (all) =>
				[...all].reverse().map(({ json }) => ({
					json: { decision: json.decision, output: { about: json.text } },
				})),
		});
		const again = await ask({ kind, items, model: new Model().chain });
		expect(again.json('Look Up', 0)).toMatchObject(
			items.map(({ text }) => ({ decision: { value: { about: text } } })),
		);
	});

	test('as the only open question of the execution', async () => {
		const kind = stage.newKind();
		const ran = await ask({ kind, model: () => [{ json: { text: '{"label": "a"}' }, pairedItem: { item: 99 } }] });
		expect(said(ran, 'Store', 0)).toMatchObject([{ status: 'stored' }]);
	});

	test('of look-ups inside each other: the nearest, or the one whose field it names', async () => {
		const [outer, inner] = [stage.newKind(), stage.newKind()];
		const answers = (name: string) => step(name, http(() => ({ text: JSON.stringify({ by: name }) })));
		const second = { options: { field: 'second' } };
		const ran = await stage.run({
			items: [MAIL],
			nodes: [
				decision('lookUp', asking(outer), {}, 'Outer'),
				decision('lookUp', asking(inner, second), {}, 'Inner'),
				answers('Inner Model'),
				decision('store', second, {}, 'Store Inner'),
				answers('Outer Model'),
				decision('store', {}, {}, 'Store Outer'),
			],
			links: [
				['Start', 'Outer'],
				['Outer:1', 'Inner'],
				['Inner:1', 'Inner Model'],
				['Inner Model', 'Store Inner'],
				['Store Inner', 'Outer Model'],
				['Outer Model', 'Store Outer'],
			],
		});
		expect(ran.json('Store Inner')).toMatchObject([{ second: { kind: inner, value: { by: 'Inner Model' } } }]);
		expect(said(ran, 'Store Outer', 0)).toMatchObject([{ kind: outer, value: { by: 'Outer Model' } }]);
	});

	test('never by guessing: with two open questions and no pairing the answer is refused', async () => {
		const kind = stage.newKind();
		const ran = await ask({
			kind,
			items: [1, 2].map((n) => ({ subject: 's', text: `mail ${n}` })),
			model: () => [{ json: { text: '{"label": "a"}' }, pairedItem: { item: 99 } }],
		});
		expect(ran.error?.message).toContain('No look-up was found for this answer');
	});

	test('not of a step that made one item of several', async () => {
		const kind = stage.newKind();
		const ran = await ask({
			kind,
			items: [1, 2].map((n) => ({ subject: 's', text: `mail ${n}` })),
			model: (items) => [{ json: { text: '{"label": "both"}' }, pairedItem: items.map((_, item) => ({ item })) }],
		});
		expect(ran.error?.message).toContain('made one item of several questions');
	});

	test('not of a step that made one item of several without saying so: n8n would pair it with the first', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [MAIL, { ...MAIL, text: 'other' }],
			nodes: [
				decision('lookUp', asking(kind)),
				step('Model', () => [{ json: { text: '{"label": "of both"}' } }]),
				decision('store', {}, { onError: 'continueRegularOutput' }),
			],
			links: [
				['Start', 'Look Up'],
				['Look Up:1', 'Model'],
				['Model', 'Store'],
			],
		});
		expect(said(ran, 'Store', 0)).toEqual([]);
		expect(said(ran, 'Store', 2)).toMatchObject([
			{ message: expect.stringContaining('"Model" made one item of several questions') },
		]);
	});

	test('not where the look-up said something else than decide', async () => {
		const kind = stage.newKind();
		await ask({ kind, model: new Model().chain });
		const ran = await stage.run({
			items: [MAIL],
			nodes: [decision('lookUp', asking(kind)), step('Model', new Model().chain), decision('store')],
			links: [
				['Start', 'Look Up'],
				['Look Up:0', 'Model'],
				['Model', 'Store'],
			],
		});
		expect(ran.error?.message).toContain('said "replay", not "decide"');
	});

	test('nor behind a disabled look-up', async () => {
		const ran = await stage.run({
			items: [MAIL],
			nodes: [
				decision('lookUp', asking(stage.newKind()), { disabled: true }),
				step('Model', new Model().chain),
				decision('store'),
			],
		});
		expect(ran.error?.message).toContain('"Look Up" is disabled');
	});

	test('by a key and token that a person gives', async () => {
		const kind = stage.newKind();
		const first = await stage.run({ items: [MAIL], nodes: [decision('lookUp', asking(kind))] });
		const { decisionKey, token } = said(first, 'Look Up', 1)[0];
		const ran = await stage.run({
			items: [{ text: '{"label": "a"}' }],
			nodes: [decision('store', { options: { decisionKey, token } })],
		});
		expect(said(ran, 'Store', 0)).toMatchObject([{ status: 'stored', decisionKey }]);
		const bad = await stage.run({
			items: [{ text: '{"label": "a"}' }],
			nodes: [decision('store', { options: { decisionKey, token: 'x' } })],
		});
		expect(bad.error?.message).toContain('Decision Token must be');
	});
});

describe('approval', () => {
	const verdict = (operation: 'approve' | 'reject', parameters: IDataObject, settings = {}) =>
		decision(operation, parameters, settings, 'Verdict');

	async function proposed(): Promise<{ kind: string; decisionKey: string; model: Model }> {
		const kind = stage.newKind();
		const model = new Model();
		const ran = await ask({ kind, model: model.chain, lookUp: { needsApproval: true } });
		expect(ran.json('Apply')).toEqual([]);
		expect(said(ran, 'Store', 1)).toMatchObject([{ status: 'proposed', value: { label: 'answer 1' } }]);
		return { kind, decisionKey: await onlyKey(kind), model };
	}

	test('what was approved is applied byte for byte; until then nothing is', async () => {
		const { kind, decisionKey, model } = await proposed();
		const waiting = await ask({ kind, model: model.chain, lookUp: { needsApproval: true } });
		expect(waiting.json('Apply')).toEqual([]);
		expect(said(waiting, 'Look Up', 3)).toMatchObject([{ status: 'waiting', value: { label: 'answer 1' } }]);
		const approved = await stage.run({
			items: [{ decisionKey }],
			nodes: [verdict('approve', { approver: 'ada@example.com', reason: 'fine' })],
		});
		const [{ valueHash }] = said(approved, 'Verdict', 0);
		const ran = await ask({ kind, model: model.chain, lookUp: { needsApproval: true } });
		expect(ran.json('Apply')).toMatchObject([
			{ decision: { status: 'replay', approver: 'ada@example.com', valueHash, value: { label: 'answer 1' } } },
		]);
		expect(model.calls).toBe(1);
	});

	test('that an expression asks for in words is needed; one that says neither yes nor no switches nothing off', async () => {
		for (const where of ['lookUp', 'store'] as const) {
			const kind = stage.newKind();
			const asked = (needsApproval: string) =>
				ask({
					kind,
					model: new Model().chain,
					[where]: { needsApproval },
					settings: { onError: 'continueRegularOutput' },
				});
			const unclear = await asked('={{ $json.nope }}');
			expect(unclear.json('Apply')).toEqual([]);
			const [field] = where === 'lookUp' ? said(unclear, 'Look Up', 3) : said(unclear, 'Store', 2);
			expect(field.message).toContain('"Needs Approval" is nothing, not true or false');
			expect(said(await asked('={{ "true" }}'), 'Store', 1)).toMatchObject([{ status: 'proposed' }]);
		}
	});

	test('rejected: every look-up leaves by Not Approved with the reason, until it is expired', async () => {
		const { kind, decisionKey, model } = await proposed();
		await stage.run({
			items: [{ decisionKey }],
			nodes: [verdict('reject', { approver: 'ada@example.com', reason: 'wrong customer' })],
		});
		const ran = await ask({ kind, model: model.chain });
		expect(said(ran, 'Look Up', 3)).toMatchObject([
			{ status: 'rejected', reason: 'wrong customer', message: expect.stringContaining('To decide it anew: Expire') },
		]);
		await stage.run({ items: [{ decisionKey }], nodes: [decision('expire', {}, {}, 'Expire')] });
		const anew = await ask({ kind, model: model.chain });
		expect(said(anew, 'Store', 0)).toMatchObject([{ value: { label: 'answer 2' } }]);
	});

	test('case 80: a preview service opens the approval link: without an approver nothing advances, and the person who declines later is obeyed', async () => {
		const { kind, decisionKey, model } = await proposed();
		const links = [{ decisionKey }, { decisionKey, approver: '' }, { decisionKey, approver: 'undefined' }, { decisionKey, approver: null }];
		for (const query of links) {
			const bot = await stage.run({
				items: [query],
				nodes: [verdict('approve', { approver: '={{ $json.approver }}' })],
			});
			expect(bot.error?.message).toContain('"Approver" is empty');
		}
		const person = await stage.run({
			items: [{ decisionKey, approver: 'grace@example.com' }],
			nodes: [verdict('reject', { approver: '={{ $json.approver }}' })],
		});
		expect(said(person, 'Verdict', 0)).toMatchObject([{ status: 'rejected', approver: 'grace@example.com' }]);
		const late = await stage.run({
			items: [{ decisionKey }],
			nodes: [verdict('approve', { approver: 'somebody' })],
		});
		expect(late.json('Verdict', 0)).toEqual([]);
		expect(said(late, 'Verdict', 1)).toMatchObject([
			{ status: 'stands', message: expect.stringContaining('rejected by grace@example.com') },
		]);
		expect((await ask({ kind, model: model.chain })).json('Apply')).toEqual([]);
	});

	test('case 80: what is left of a text around an approver who is missing names nobody; half a name does', async () => {
		const { decisionKey } = await proposed();
		for (const [approver, words] of [
			['=Telegram user {{ $json.first }} {{ $json.last }}', '"Approver" is empty'],
			['=by {{ $json.first }}', '"Approver" is empty'],
			['{{ $json.first }}', 'Switch the field from Fixed to Expression'],
			['by {{ $json.first }}', 'Switch the field from Fixed to Expression'],
			['#N/A', '"Approver" is empty'],
		]) {
			const ran = await stage.run({ items: [{ decisionKey }], nodes: [verdict('approve', { approver })] });
			expect(ran.error?.message).toContain(words);
		}
		const person = await stage.run({
			items: [{ decisionKey, first: 'Grace' }],
			nodes: [verdict('approve', { approver: '={{ $json.first }} {{ $json.last }}' })],
		});
		expect(said(person, 'Verdict', 0)).toMatchObject([{ status: 'approved', approver: 'Grace' }]);
	});

	test('of another value than the item shows is refused', async () => {
		const { kind, decisionKey, model } = await proposed();
		const shown = await ask({ kind, model: model.chain, lookUp: { needsApproval: true } });
		await stage.run({ items: [{ decisionKey }], nodes: [decision('expire', {}, {}, 'Expire')] });
		await ask({ kind, model: model.chain, lookUp: { needsApproval: true } });
		const ran = await stage.run({
			items: shown.json('Look Up', 3),
			nodes: [verdict('approve', { approver: 'ada@example.com' })],
		});
		expect(ran.error?.message).toContain('it is not the value that was shown to the approver');
	});

	test('of another value than Get or List showed is refused, too', async () => {
		for (const operation of ['get', 'list']) {
			const { kind, decisionKey, model } = await proposed();
			const show = { get: { decisionKey }, list: { filters: { kind } } }[operation];
			const shown = await stage.run({ items: [{}], nodes: [decision(operation, show)] });
			await stage.run({ items: [{ decisionKey }], nodes: [decision('expire', {}, {}, 'Expire')] });
			await ask({ kind, model: model.chain, lookUp: { needsApproval: true } });
			const ran = await stage.run({
				items: shown.json(operation),
				nodes: [verdict('approve', { approver: 'ada@example.com' })],
			});
			expect(ran.error?.message).toContain('it is not the value that was shown to the approver');
		}
	});

	test('what waits can be listed, and a problem leaves by Not Approved when the flow is to go on', async () => {
		const { kind, decisionKey } = await proposed();
		const listed = await stage.run({
			items: [{}],
			nodes: [decision('list', { states: ['proposed'], limit: 10, filters: { kind } }, {}, 'List')],
		});
		expect(listed.json('List')).toMatchObject([{ decisionKey, summary: expect.stringContaining('waits for approval') }]);
		const ran = await stage.run({
			items: [{ decisionKey }, { decisionKey: 'unknown' }],
			nodes: [verdict('approve', { approver: 'ada@example.com' }, { onError: 'continueRegularOutput' })],
		});
		expect(said(ran, 'Verdict', 0)).toMatchObject([{ status: 'approved' }]);
		expect(said(ran, 'Verdict', 1)).toMatchObject([{ status: 'refused' }]);
	});
});

describe('Claim Work and the decision it carries out', () => {
	test('takes the decision on the item, and explain shows it', async () => {
		const kind = stage.newKind();
		const work = stage.newKind();
		const model = new Model();
		await ask({ kind, model: model.chain });
		const ran = await stage.run({
			items: [MAIL],
			nodes: [decision('lookUp', asking(kind)), claim({ kind: work, keyFields: 'id' }), complete(), workLedger({ whichWork: 'item' })],
		});
		const decisionKey = await onlyKey(kind);
		const [{ story, work: shown }] = ran.json('Work Ledger') as Array<{ story: string[]; work: IDataObject }>;
		expect(shown.decisionKey).toBe(decisionKey);
		expect(story).toContain(`It carries out decision ${decisionKey} (Cache LLM Decision → Get shows it).`);
	});

	test('takes one that a person names, and refuses what is none', async () => {
		const work = stage.newKind();
		const named = 'a'.repeat(64);
		await stage.run({ items: [MAIL], nodes: [claim({ kind: work, keyFields: 'id', options: { decision: named } })] });
		const [row] = await stage.ledger.query('select decision_key from idempotency.work_log where kind = $1', [work]);
		expect(row.decision_key).toBe(named);
		const bad = await stage.run({ items: [MAIL], nodes: [claim({ kind: work, keyFields: 'id', options: { decision: 'x' } })] });
		expect(bad.error?.message).toContain('Decision Carried Out must be a decision key');
	});

	test('does not take one that may not be applied', async () => {
		const work = stage.newKind();
		const kind = stage.newKind();
		await stage.run({ items: [MAIL], nodes: [decision('lookUp', asking(kind)), claim({ kind: work, keyFields: 'id' })],
			links: [['Start', 'Look Up'], ['Look Up:1', 'Claim Work']] });
		const [row] = await stage.ledger.query('select decision_key from idempotency.work_log where kind = $1', [work]);
		expect(row.decision_key).toBeNull();
	});
});

describe('as the tool of an agent', () => {
	test('everything leaves by the one output, in a text that a model can read', async () => {
		const kind = stage.newKind();
		await ask({ kind, model: new Model().chain });
		const ran = await stage.run({
			items: [MAIL, { ...MAIL, text: 'other' }, { id: 1 }],
			nodes: [decisionTool('lookUp', asking(kind))],
		});
		const answers = ran.json('Look Up').map(({ response }) => String(response));
		expect(answers[0]).toMatch(/^Replayed: decided at .* Decision: {"label":"answer 1"}$/);
		expect(answers[1]).toBe('Decide now: ask the model, then store its answer.');
		expect(answers[2]).toContain('The field "subject" is missing');
	});

	test('case 71: five equal items in one run: one decides, four are told that it is being decided', async () => {
		const ran = await stage.run({
			items: [1, 2, 3, 4, 5].map(() => MAIL),
			nodes: [decisionTool('lookUp', asking(stage.newKind()))],
		});
		expect(ran.json('Look Up').map(({ decision: field }) => (field as IDataObject).status)).toEqual([
			...['decide', 'busy', 'busy', 'busy', 'busy'],
		]);
	});

	test('case 68: an agent that forgot and asks again reads the stored decision', async () => {
		const kind = stage.newKind();
		await ask({ kind, model: new Model(() => '{"create": "ticket 12"}').chain });
		for (let call = 0; call < 2; call++) {
			const ran = await stage.run({ items: [MAIL], nodes: [decisionTool('lookUp', asking(kind))] });
			expect(ran.json('Look Up')[0].response).toContain('Decision: {"create":"ticket 12"}');
		}
	});

	test('what waits for approval is not told as something to go by', async () => {
		const kind = stage.newKind();
		await ask({ kind, model: new Model().chain, lookUp: { needsApproval: true } });
		const ran = await stage.run({ items: [MAIL], nodes: [decisionTool('lookUp', asking(kind))] });
		expect(ran.json('Look Up')[0].response).toMatch(/and waits for approval\.$/);
	});

	test('a model must not name the approver of its own action', async () => {
		const kind = stage.newKind();
		await ask({ kind, model: new Model().chain, lookUp: { needsApproval: true } });
		const ran = await stage.run({
			items: [{ decisionKey: await onlyKey(kind) }],
			nodes: [
				decisionTool('approve', {
					approver: "={{ /*n8n-auto-generated-fromAI-override*/ $fromAI('Approver', ``, 'string') }}",
				}),
			],
		});
		expect(ran.json('approve')[0].response).toContain('an agent must not approve its own action');
		const [{ state }] = await stage.ledger.query(
			'select state from idempotency.llm_decisions where kind = $1',
			[kind],
		);
		expect(state).toBe('proposed');
	});

	test('Get and List tell a model the value that counts, not one that waits for approval, and no key material', async () => {
		const kind = stage.newKind();
		await ask({ kind, model: new Model(() => '{"refund": 4711}').chain, lookUp: { needsApproval: true } });
		const decisionKey = await onlyKey(kind);
		const get = async () =>
			(await stage.run({ items: [{ decisionKey }], nodes: [decisionTool('get')] })).json('get')[0];
		const list = async () =>
			(
				await stage.run({
					items: [{}],
					nodes: [decisionTool('list', { states: [], limit: 5, filters: { kind } })],
				})
			).json('list')[0];
		for (const look of [get, list]) {
			const waiting = await look();
			expect(waiting.response).toMatch(/and waits for approval\.$/);
			expect(JSON.stringify(waiting)).not.toContain('4711');
		}
		await stage.run({
			items: [{ decisionKey }],
			nodes: [decision('approve', { approver: 'ada@example.com' })],
		});
		for (const look of [get, list])
			expect((await look()).response).toMatch(/approved by ada@example.com.* Decision: {"refund":4711}$/);
	});

	test('a list of nothing is told, too', async () => {
		const ran = await stage.run({
			items: [{}],
			nodes: [decisionTool('list', { limit: 5, filters: { kind: randomUUID() } })],
		});
		expect(ran.json('list')).toMatchObject([{ response: 'The ledger holds nothing like that.' }]);
	});
});
