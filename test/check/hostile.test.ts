import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

import * as fc from 'fast-check';

import { checkTogether, readWorkflowText, readWorkflowValue } from '../../check';
import { check } from '../../check/command';
import { FOLDER, short, workflow } from './fixtures';

const hook = { name: 'Hook', type: 'n8n-nodes-base.webhook' };
const send = { name: 'Send', type: 'n8n-nodes-base.emailSend' };
const plain = workflow([hook, send], [['Hook', 'Send']]);

const findings = (value: unknown): string[] =>
	checkTogether(readWorkflowValue(value).workflows).flatMap((each) => each.findings.map(short));
const FOUND = ['error unguarded-effect @ Send', 'warning failure-unhandled'];

describe('forms in which n8n hands out workflows', () => {
	test.each([
		['as it is', plain],
		['in a list', [plain]],
		['under "workflow", as templates are', { workflow: plain }],
		['doubly, as the template service answers', { workflow: { id: 1, workflow: plain } }],
		['under "data", as the API answers', { data: plain }],
		['as a page of the API', { data: [plain], nextCursor: null }],
		['under "workflows"', { workflows: [plain] }],
		['in an execution', { id: 231, workflowData: plain }],
		['as an item', [{ json: plain }]],
	])('%s', (_, value) => {
		expect(readWorkflowValue(value).problems).toEqual([]);
		expect(findings(value)).toEqual(FOUND);
	});

	test('with a byte order mark', () => {
		const { workflows, problems } = readWorkflowText(`\ufeff${JSON.stringify(plain)}`);
		expect({ workflows: workflows.length, problems }).toEqual({ workflows: 1, problems: [] });
	});

	test('from before n8n 1.0: without versions, with continueOnFail and requestMethod', () => {
		const old = workflow(
			[
				{ name: 'Start', type: 'n8n-nodes-base.cron' },
				{
					name: 'Post',
					type: 'n8n-nodes-base.httpRequest',
					continueOnFail: true,
					parameters: { requestMethod: 'POST', url: 'https://a.example/orders' },
				},
				{
					name: 'Get',
					type: 'n8n-nodes-base.httpRequest',
					parameters: { url: 'https://a.example/orders' },
				},
			],
			[
				['Start', 'Post'],
				['Post', 'Get'],
			],
		);
		expect(findings(old)).toEqual([
			'error unguarded-effect @ Post',
			'warning schedule-overlaps @ Start',
			'warning failure-unhandled',
		]);
	});

	test('with connections by id, without lists of outputs, or with empty outputs', () => {
		const nodes = [
			{ ...hook, id: 'a' },
			{ ...send, id: 'b' },
		];
		for (const connections of [
			{ a: { main: [[{ node: 'b', type: 'main', index: 0 }]] } },
			{ Hook: { main: [{ node: 'Send', type: 'main', index: 0 }] } },
			{ Hook: { main: [['Send'], null] } },
			{ Hook: { main: [[null, { node: 'Send' }]], ai_tool: null } },
		]) {
			expect(findings({ nodes, connections })).toEqual(FOUND);
		}
	});
});

describe('what cannot be read is said in a line, and the rest is checked', () => {
	test.each([
		['{"nodes": [', /^No valid JSON: /],
		['', /^The file is empty\.$/],
		['   ', /^The file is empty\.$/],
		['null', /^The file is no workflow: it has no list of nodes\.$/],
		['"text"', /^The file is no workflow/],
		['[]', /^The list is empty: no workflow in it\.$/],
		['[[[[[[[{"nodes":[]}]]]]]]]', /^Entry 1 is a list in too many lists, and was not read\.$/],
		['[1, {"nodes": []}]', /^Entry 1 is no workflow/],
		['{"nodes": {}}', /^The file is no workflow/],
	])('%j', (text, line) => {
		const { problems } = readWorkflowText(text);
		expect(problems).toEqual([expect.stringMatching(line)]);
	});

	test('nodes without a type, connections to nowhere and names given twice', () => {
		const odd = {
			name: 'odd',
			nodes: [null, 7, { name: 'typeless' }, hook, send, { ...send }],
			connections: {
				Hook: { main: [[{ node: 'Send' }, { node: 'Ghost' }]] },
				Phantom: { main: [[{ node: 'Send' }]] },
			},
		};
		const [report] = checkTogether(readWorkflowValue(odd).workflows);
		expect(report.notices).toEqual([
			'3 of its nodes could not be read: they have no type.',
			'Several nodes have one name, and connections reach only the first: "Send".',
			'Connections name nodes that are not there: "Ghost", "Phantom".',
			'No trigger leads to "Send", so nothing was found there.',
		]);
		expect(report.findings.map(short)).toEqual(FOUND);
	});

	test('connections in a form of their own', () => {
		const [report] = checkTogether(
			readWorkflowValue({ ...plain, connections: [{ from: 'Hook', to: 'Send' }] }).workflows,
		);
		expect(report.notices).toEqual([
			'Its connections are not in a form that n8n exports; it is read without them.',
			'No trigger leads to "Send", so nothing was found there.',
		]);
	});

	test('names that JavaScript gives a meaning', () => {
		const names = ['__proto__', 'constructor', 'toString'];
		const text = JSON.stringify({
			nodes: [hook, ...names.map((name) => ({ name, type: 'n8n-nodes-base.emailSend' }))],
			connections: {},
		}).replace(
			'"connections":{}',
			`"connections":{"Hook":{"main":[[{"node":"__proto__"}]]},"__proto__":{"main":[[{"node":"constructor"}]]},"constructor":{"main":[[{"node":"toString"}]]}}`,
		);
		const [report] = checkTogether(readWorkflowText(text).workflows);
		expect(report.findings.map(short).slice(0, 3)).toEqual(
			names.map((name) => `error unguarded-effect @ ${name}`),
		);
	});

	test('parameters of any form and depth', () => {
		const deep = `${'{"a":['.repeat(20_000)}"$now"${']}'.repeat(20_000)}`;
		const text = JSON.stringify(plain).replace(
			'"type":"n8n-nodes-base.emailSend"',
			`"type":"n8n-nodes-base.emailSend","parameters":${deep}`,
		);
		const [report] = checkTogether(readWorkflowText(text).workflows);
		expect(report.findings.map(short)).toEqual(FOUND);
	});

	test('whatever stands in the members of a workflow, nothing is thrown', () => {
		const types = [
			...['webhook', 'httpRequest', 'postgres', 'merge', 'if', 'switch', 'wait', 'code', 'set'],
			...['scheduleTrigger', 'executeWorkflow', 'stickyNote', 'splitInBatches', 'slackTool'],
		].map((name) => `n8n-nodes-base.${name}`);
		const own = ['claimWork', 'completeWork', 'cacheLlmDecision', 'sendOnceTelegram'].map(
			(name) => `n8n-nodes-idempotency.${name}`,
		);
		const langchain = ['agent', 'toolWorkflow', 'openAi'].map(
			(name) => `@n8n/n8n-nodes-langchain.${name}`,
		);
		const type = fc.oneof(fc.constantFrom(...types, ...own, ...langchain), fc.string());
		const name = fc.constantFrom('a', 'b', 'c', 'd', '__proto__');
		const value = fc.jsonValue({ maxDepth: 3 });
		const node = fc.record(
			{
				...{ name: fc.oneof(name, value), type, typeVersion: fc.oneof(fc.nat(5), value) },
				...{ parameters: fc.oneof(fc.dictionary(parameterName(), value), value) },
				...{ disabled: value, onError: value, retryOnFail: fc.boolean(), alwaysOutputData: value },
			},
			{ requiredKeys: ['type'] },
		);
		const target = fc.record({ node: fc.oneof(name, value), index: fc.oneof(fc.nat(3), value) });
		const outputs = fc.array(fc.oneof(fc.array(target, { maxLength: 3 }), value), { maxLength: 4 });
		const kind = fc.constantFrom('main', 'ai_tool');
		const any = fc.record({
			nodes: fc.array(fc.oneof(node, value), { maxLength: 8 }),
			connections: fc.oneof(fc.dictionary(name, fc.dictionary(kind, outputs)), value),
			settings: value,
			name: value,
			id: value,
		});
		fc.assert(
			fc.property(any, (given) => {
				for (const report of checkTogether(readWorkflowValue(given).workflows)) {
					JSON.stringify(report);
				}
			}),
			{ numRuns: 500 },
		);
	});
});

function parameterName() {
	return fc.constantFrom(
		...['operation', 'resource', 'method', 'url', 'query', 'options', 'rules', 'mode', 'resume'],
		...['workflowId', 'key', 'keyFields', 'identity', 'jsCode', 'content', 'amount', 'unit'],
	);
}

describe('size', () => {
	const MODES = ['chain', 'mesh'] as const;

	/** `chain`: one behind the other; `mesh`: each leads to two others, circles and merges included. */
	function large(count: number, mode: (typeof MODES)[number]): unknown {
		const types = ['httpRequest', 'merge', 'if', 'claimWork', 'completeWork'];
		const nodes = Array.from({ length: count }, (_, i) => {
			const type = types[i % types.length];
			const own = type.endsWith('Work') ? 'n8n-nodes-idempotency' : 'n8n-nodes-base';
			const parameters = { method: 'POST', url: 'https://a.example/orders', mode: 'combine' };
			return { name: `n${i}`, type: `${own}.${type}`, typeVersion: 3, parameters };
		});
		const links = nodes.flatMap(
			(_, i): Array<[string, string, number?]> =>
				mode === 'chain'
					? i + 1 < count
						? [[`n${i}`, `n${i + 1}`]]
						: []
					: [
							[`n${i}`, `n${(i * 7 + 1) % count}`],
							[`n${i}`, `n${(i * 13 + 5) % count}`, 1],
						],
		);
		return workflow([{ ...hook }, ...nodes], [['Hook', 'n0'], ...links]);
	}

	test.each(MODES)(
		'5,000 nodes in a %s are checked within seconds',
		(mode) => {
			const from = performance.now();
			const [report] = checkTogether(readWorkflowValue(large(5000, mode)).workflows);
			expect(report.nodes).toBe(5001);
			expect(report.findings.length).toBeGreaterThan(100);
			// 1 s on an idle machine; a way of checking that grows with the square of the nodes takes minutes
			expect(performance.now() - from).toBeLessThan(20_000);
		},
		60_000,
	);

	test.each([
		['a picture in a Code node', `return { order_id: 7, picture: "${'A'.repeat(150_000)}" };`],
		['a Code node full of empty lines', '\n'.repeat(150_000)],
		['a Code node of unfinished comments', '/*'.repeat(50_000)],
		['a statement of assignments', `update t ${'set a = a '.repeat(5_000)}`],
	])('%s is read within seconds', (_, text) => {
		const made = { name: 'Made', type: 'n8n-nodes-base.code', parameters: { jsCode: text } };
		const asked = {
			name: 'Asked',
			type: 'n8n-nodes-base.postgres',
			parameters: { operation: 'executeQuery', query: text },
		};
		const claim = {
			name: 'Claim',
			type: 'n8n-nodes-idempotency.claimWork',
			parameters: { kind: 'invoice', keyFields: 'order_id' },
		};
		const long = workflow(
			[hook, made, asked, claim, send],
			[
				['Hook', 'Made'],
				['Made', 'Asked'],
				['Asked', 'Claim'],
				['Claim', 'Send'],
			],
		);
		const from = performance.now();
		expect(findings(long)).toContain('error claim-left-open @ Claim');
		// an expression that grows with the square of its text takes a minute
		expect(performance.now() - from).toBeLessThan(5_000);
	});

	test('more nodes than any editor opens are refused in a line', () => {
		const [report] = checkTogether(readWorkflowValue(large(20_001, 'chain')).workflows);
		expect(report.notices).toEqual(['It has 20002 nodes and was not checked; the limit is 20000.']);
	});

	test('2,000 files are checked in under 10 s, one at a time', async () => {
		const folder = mkdtempSync(path.join(tmpdir(), 'workflow-check-'));
		try {
			const texts = readdirSync(FOLDER).map((file) =>
				readFileSync(path.join(FOLDER, file), 'utf8'),
			);
			for (let i = 0; i < 2000; i++) {
				writeFileSync(path.join(folder, `${i}.json`), texts[i % texts.length]);
			}
			let bytes = 0;
			let last = '';
			const out = async (text: string) => {
				bytes += text.length;
				last = text;
				await Promise.resolve();
			};
			const from = performance.now();
			await check(['--format', 'json', folder], { out, error: () => undefined }, '0');
			// 2.3 s on an idle machine, for files of 30 nodes
			expect(performance.now() - from).toBeLessThan(10_000);
			expect(last).toContain('"workflows":2000');
			expect(bytes).toBeGreaterThan(1_000_000);
		} finally {
			rmSync(folder, { recursive: true, force: true });
		}
	}, 60_000);
});
