import { checkTogether, readWorkflowValue } from '../../check';
import { short, workflow } from './fixtures';

type Json = Record<string, unknown>;
type Node = Json & { name: string; type: string };

const base = (name: string, type: string, parameters: Json = {}, more: Json = {}): Node => ({
	name,
	type: `n8n-nodes-base.${type}`,
	parameters,
	...more,
});
const own = (name: string, type: string, parameters: Json = {}): Node => ({
	name,
	type: `n8n-nodes-idempotency.${type}`,
	parameters,
});

const WEBHOOK = base('Webhook', 'webhook', { path: 'orders' });
const CLAIM = own('Claim', 'claimWork', { kind: 'order', keyFields: 'body.id' });
const SPLIT = base('Rows', 'splitOut', { fieldToSplitOut: 'body.lines' });
const POST = base('Post', 'httpRequest', { method: 'POST', url: 'https://stock.example/items' });
const COMPLETE = own('Complete', 'completeWork');

/** What the rule finds in nodes that stand in a row. */
function found(rule: string, ...row: Node[]): string[] {
	const connections = row.slice(1).map(({ name }, at): [string, string] => [row[at].name, name]);
	return foundIn(rule, workflow(row, connections));
}

function foundIn(rule: string, ...values: Json[]): string[] {
	const read = values.map((value) => readWorkflowValue(value));
	expect(read.flatMap(({ problems }) => problems)).toEqual([]);
	return checkTogether(read.flatMap(({ workflows }) => workflows)).flatMap(({ findings }) =>
		findings.filter((finding) => finding.rule === rule).map(short),
	);
}

const rows = (...between: Node[]): string[] =>
	found('claim-covers-many', WEBHOOK, CLAIM, ...between, POST, COMPLETE);

const WARNED = ['warning claim-covers-many @ Post'];

describe('one claim before many effects is found behind what makes many items of one', () => {
	const code = (jsCode: string, more: Json = {}) => base('Code', 'code', { jsCode, ...more });

	test.each<[string, Node]>([
		['Split Out', SPLIT],
		['Item Lists, by its default', base('Lists', 'itemLists', {}, { typeVersion: 1 })],
		['Item Lists', base('Lists', 'itemLists', { operation: 'splitOutItems' }, { typeVersion: 3 })],
		['a table from a file, by its default', base('Extract', 'extractFromFile')],
		['a spreadsheet', base('Sheet', 'extractFromFile', { operation: 'xlsx' })],
		['the older spreadsheet node', base('Sheet', 'spreadsheetFile', { operation: 'fromFile' })],
		['code: map', code('return $json.body.lines.map((line) => ({ json: line }));')],
		['code: map of the first', code("return $input.first().json['lines'].map(l => ({json: l}))")],
		['code: another node', code("return $('Claim').first().json.body.lines.map(f)")],
		['code: flatMap', code('return items.flatMap((item) => item.json.lines);')],
		[
			'code: push',
			code(
				'const out = [];\nfor (const item of items) {\n for (const line of item.json.lines) {\n  out.push({ json: line });\n }\n}\nreturn out;',
			),
		],
		[
			'the oldest code node',
			base('Code', 'function', { functionCode: 'return items[0].json.a.map(f)' }),
		],
	])('%s', (_, node) => {
		expect(rows(node)).toEqual(WARNED);
	});

	test.each<[string, Node[]]>([
		['nothing between', []],
		['one item for each', [base('Set', 'set')]],
		['a loop over items that were claimed one by one', [base('Loop', 'splitInBatches')]],
		['text from a file', [base('Extract', 'extractFromFile', { operation: 'pdf' })]],
		['rows joined again', [SPLIT, base('All', 'aggregate')]],
		[
			'rows joined again by Item Lists',
			[SPLIT, base('All', 'itemLists', { operation: 'summarize' })],
		],
		['one of the rows', [SPLIT, base('First', 'limit')]],
		['one of the rows by Execute Once', [SPLIT, base('First', 'noOp', {}, { executeOnce: true })]],
		['a file of all rows', [SPLIT, base('File', 'convertToFile')]],
		['a claim per row', [SPLIT, own('Claim Row', 'claimWork', { kind: 'line', keyFields: 'sku' })]],
		['a disabled Split Out', [{ ...SPLIT, disabled: true }]],
		['code: items one by one', [code('return items.map((item) => ({ json: item.json }));')]],
		['code: one item', [code('return [{ json: { lines: $json.lines.map((l) => l.sku) } }];')]],
		[
			'code: a sum',
			[code('let n = 0; for (const l of $json.lines) { n += l.n; }\nreturn { json: { n } };')],
		],
		['code for each item', [code('return $json.lines.map(f)', { mode: 'runOnceForEachItem' })]],
		['code in a comment', [code('// return $json.lines.map(f)\nreturn items;')]],
		[
			'what is done is skipped',
			[SPLIT, own('Skip', 'workLedger', { resource: 'checkpoint', operation: 'continueAfter' })],
		],
		[
			'the reference is recorded',
			[own('Record', 'completeWork', { operation: 'recordReference' }), SPLIT],
		],
	])('not behind %s', (_, between) => {
		expect(rows(...between)).toEqual([]);
	});

	test('an update, a message sent once and a key per row are not reported', () => {
		const put = base('Put', 'httpRequest', { method: 'PUT', url: 'https://stock.example/1' });
		const once = own('Tell', 'sendOnceTelegram');
		const keyed = keyedBy('={{ $json.work.workId }}-{{ $json.sku }}');
		for (const node of [put, once, keyed]) {
			expect(found('claim-covers-many', WEBHOOK, CLAIM, SPLIT, node, COMPLETE)).toEqual([]);
		}
	});

	test.each([
		'={{ $json.work.workId }}',
		"={{ $('Claim').item.json.work.workId }}",
		'={{$json["work"].workId}}',
	])('many rows under one idempotency key are an error: %s', (raw) => {
		expect(found('claim-covers-many', WEBHOOK, CLAIM, SPLIT, keyedBy(raw), COMPLETE)).toEqual([
			'error claim-covers-many @ Keyed',
		]);
		expect(found('claim-covers-many', WEBHOOK, CLAIM, keyedBy(raw), COMPLETE)).toEqual([]);
	});

	test('a claim that comes from the caller, or from the ledger, counts as one', () => {
		const entry = base('Entry', 'executeWorkflowTrigger');
		const sub = workflow(
			[entry, SPLIT, POST],
			[
				['Entry', 'Rows'],
				['Rows', 'Post'],
			],
			{ id: 'Sub' },
		);
		const call = base('Call', 'executeWorkflow', { workflowId: { value: 'Sub' } });
		const parent = workflow(
			[WEBHOOK, CLAIM, call, COMPLETE],
			[
				['Webhook', 'Claim'],
				['Claim', 'Call'],
				['Call', 'Complete'],
			],
			{ id: 'Parent' },
		);
		expect(foundIn('claim-covers-many', sub)).toEqual([]);
		expect(foundIn('claim-covers-many', sub, parent)).toEqual(WARNED);
		const due = own('Due', 'workLedgerTrigger', { event: 'retry_due' });
		expect(found('claim-covers-many', due, SPLIT, POST, COMPLETE)).toEqual(WARNED);
	});

	test('the call of a workflow for each row counts as its effects', () => {
		const sub = workflow([base('Entry', 'executeWorkflowTrigger'), POST], [['Entry', 'Post']], {
			id: 'Sub',
		});
		const call = base('Call', 'executeWorkflow', { workflowId: { value: 'Sub' } });
		const parent = workflow(
			[WEBHOOK, CLAIM, SPLIT, call, COMPLETE],
			[
				['Webhook', 'Claim'],
				['Claim', 'Rows'],
				['Rows', 'Call'],
				['Call', 'Complete'],
			],
			{ id: 'Parent' },
		);
		expect(foundIn('claim-covers-many', sub, parent)).toEqual(['warning claim-covers-many @ Call']);
	});

	function keyedBy(value: string): Node {
		return base('Keyed', 'httpRequest', {
			method: 'POST',
			url: 'https://stock.example/items',
			headerParameters: { parameters: [{ name: 'Idempotency-Key', value }] },
		});
	}
});

describe('a lock that is all there is between an event and its effect', () => {
	const LOCK = own('Lock', 'claimWork', {
		kind: 'order',
		keyFields: 'id',
		window: 'while_running',
	});
	const READ = base('Read', 'httpRequest', { url: 'https://stock.example/items' });
	const locked = (start: Node, ...between: Node[]) =>
		found('lock-forgets', start, ...between, POST, COMPLETE);
	const FOUND = ['warning lock-forgets @ Lock'];

	test('is found behind events, steps between included', () => {
		expect(locked(WEBHOOK, LOCK)).toEqual(FOUND);
		expect(locked(base('Form', 'formTrigger'), LOCK, base('Set', 'set'))).toEqual(FOUND);
		expect(locked(base('Mail', 'gmailTrigger'), LOCK, READ)).toEqual(FOUND);
		expect(locked(WEBHOOK, LOCK, { ...LOCK, name: 'Inner' })).toEqual([
			'warning lock-forgets @ Inner',
		]);
		expect(locked(WEBHOOK, LOCK, base('If', 'if'))).toEqual(FOUND);
	});

	test('is not found behind a schedule or a person, before or behind a claim that remembers', () => {
		expect(locked(base('Nightly', 'scheduleTrigger'), LOCK)).toEqual([]);
		expect(locked(base('Test', 'manualTrigger'), LOCK)).toEqual([]);
		expect(locked(WEBHOOK, LOCK, CLAIM)).toEqual([]);
		expect(locked(WEBHOOK, CLAIM, LOCK)).toEqual([]);
	});

	test('is not found where something is looked up under it and a branch decides', () => {
		expect(locked(WEBHOOK, LOCK, READ, base('If', 'if'))).toEqual([]);
		expect(locked(WEBHOOK, LOCK, READ, own('Gate', 'checkEvidenceGate'))).toEqual([]);
	});

	test('is not found for updates and for what sends a key', () => {
		const put = base('Put', 'httpRequest', { method: 'PUT', url: 'https://stock.example/1' });
		expect(found('lock-forgets', WEBHOOK, LOCK, put, COMPLETE)).toEqual([]);
	});
});
