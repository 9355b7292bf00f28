/**
 * What "On Error", "Always Output Data" and an agent do to items, for every node alike: each item that comes in leaves
 * once, paired and with its own fields, and none that has a problem leaves as a success (cases 14 and 140).
 */

import type { IDataObject, INodeExecutionData } from 'n8n-workflow';

import type { LedgerSettings } from '../../ledger';
import { startTelegramServer } from '../../scripts/n8n/telegram-server';
import {
	claim,
	claimTool,
	complete,
	decision,
	decisionTool,
	gate,
	gateTool,
	step,
	telegram,
	telegramTool,
	workLedger,
	workLedgerTool,
	type Link,
	type NodeOfTest,
	type Ran,
} from './run-workflow';
import { WorkflowStage, byOrder } from './stage';

const stage = WorkflowStage.forThisFile();
let server: Awaited<ReturnType<typeof startTelegramServer>>;
const approved: string[] = [];

/** A node under test, with items of which the second cannot be done. */
interface Subject {
	/** The node, and where it gets its items from; `Start` where nothing stands before it. */
	nodes(settings: NodeOfTest['settings']): NodeOfTest[];
	links?: Link[];
	tool?(settings: NodeOfTest['settings']): NodeOfTest;
	/** What the items hold besides; `at` 1 is the one that cannot be done. */
	item(at: number): IDataObject;
	/** The field that the node adds; null for a node that answers with items of its own. */
	field: string | null;
	outputs: number;
	/** Where the others leave. */
	good: number;
	/** The parameter that chooses what the node does. */
	choice: string;
}

const ask = (kind: string, more: IDataObject = {}): IDataObject => ({
	...{ kind, model: 'm', promptVersion: 'v1', inputFields: 'text', wait: 0 },
	...more,
});
const text = (at: number) => (at === 1 ? {} : { text: `question ${at}` });
const hex = (at: number) => (at === 1 ? 'no id' : `${at}`.repeat(64));
const id = (at: number) => ({ id: hex(at) });
const APPROVAL = { decisionKey: '={{ $json.key }}', approver: 'somebody' };

/** What Claim Work says of an item that it refused. */
const UNCLAIMED = { status: 'refused', message: 'no key', inputError: 'from before' };

let lastChat = 9_000;

const SUBJECTS: Record<string, Subject> = {
	'Claim Work': {
		nodes: (settings) => [claim(byOrder(stage.newKind()), settings)],
		tool: (settings) => claimTool(byOrder(stage.newKind()), settings),
		item: (at) => ({ order: at === 1 ? '' : at }),
		...{ field: 'work', outputs: 4, good: 0, choice: 'identity' },
	},
	'Complete Work': {
		nodes: (settings) => [
			claim(byOrder(stage.newKind())),
			step('Spoil', (items) =>
				items.map((item, at) => ({
					...item,
					json: { ...item.json, ...(at === 1 ? { work: UNCLAIMED } : {}) },
					pairedItem: { item: at },
				})),
			),
			complete({}, settings),
		],
		item: (at) => ({ order: at }),
		...{ field: 'work', outputs: 2, good: 0, choice: 'operation' },
	},
	'Look Up': {
		nodes: (settings) => [decision('lookUp', ask(stage.newKind()), settings)],
		tool: (settings) => decisionTool('lookUp', ask(stage.newKind()), settings),
		item: text,
		...{ field: 'decision', outputs: 4, good: 1, choice: 'operation' },
	},
	Store: {
		nodes: (settings) => [
			decision('lookUp', ask(stage.newKind(), { inputFields: 'order' }), {}, 'Ask'),
			decision(
				'store',
				{
					...{ answerFrom: 'expression', answer: '{"label": "a"}' },
					options: { decisionKey: '={{ $json.order === 1 ? "no key" : "" }}' },
				},
				settings,
			),
		],
		links: [
			['Start', 'Ask'],
			['Ask:1', 'Store'],
		],
		item: (at) => ({ order: at }),
		...{ field: 'decision', outputs: 3, good: 0, choice: 'operation' },
	},
	approve: {
		nodes: (settings) => [decision('approve', APPROVAL, settings)],
		tool: (settings) => decisionTool('approve', APPROVAL, settings),
		item: (at) => ({ key: at === 1 ? 'no key' : approved[at] }),
		...{ field: 'decision', outputs: 2, good: 0, choice: 'operation' },
	},
	get: {
		nodes: (settings) => [decision('get', APPROVAL, settings)],
		tool: (settings) => decisionTool('get', APPROVAL, settings),
		item: (at) => ({ key: at === 1 ? 'no key' : approved[at] }),
		...{ field: null, outputs: 1, good: 0, choice: 'operation' },
	},
	'Check Evidence Gate': {
		nodes: (settings) => [gate({ rules: { rule: [{ field: 'paid' }] } }, settings)],
		tool: (settings) => gateTool({ rules: { rule: [{ field: 'paid' }] } }, settings),
		// a value of its own where the answer belongs is refused
		item: (at) => ({ paid: 7, ...(at === 1 ? { gate: 'garden' } : {}) }),
		...{ field: 'gate', outputs: 2, good: 0, choice: 'mode' },
	},
	Telegram: {
		nodes: (settings) => [telegram({ ...SENDING }, settings)],
		tool: (settings) => telegramTool({ ...SENDING }, settings),
		item: (at) => ({ chat: at === 1 ? '' : String(++lastChat) }),
		...{ field: 'sent', outputs: 3, good: 0, choice: 'operation' },
	},
	'Work Ledger': {
		nodes: (settings) => [workLedger({ whichWork: 'id', workId: '={{ $json.id }}' }, settings)],
		tool: (settings) => workLedgerTool({ whichWork: 'id', workId: '={{ $json.id }}' }, settings),
		item: id,
		...{ field: null, outputs: 1, good: 0, choice: 'operation' },
	},
};
const SENDING = {
	...{ chatId: '={{ $json.chat }}', text: 'hello' },
	options: { field: 'sent' },
};
const NAMES = Object.keys(SUBJECTS);

const BINARY = { file: { data: 'eA==', mimeType: 'text/plain' } };
/** Names that n8n's error output reads itself. */
const OWN = { message: 'own', details: { own: true }, error: 'from before' };

const itemsOf = (subject: Subject): INodeExecutionData[] =>
	[0, 1, 2].map((at) => ({ json: { at, ...OWN, ...subject.item(at) }, binary: BINARY }));

const ON_ERROR = ['continueRegularOutput', 'continueErrorOutput'] as const;
const SETTINGS = ON_ERROR.flatMap((onError) =>
	[false, true].map((alwaysOutputData) => ({ onError, alwaysOutputData })),
);

beforeAll(async () => {
	server = await startTelegramServer();
	const kind = stage.newKind();
	const ran = await stage.run({
		items: [0, 1, 2].map((order) => ({ order })),
		nodes: [
			decision('lookUp', ask(kind, { inputFields: 'order', needsApproval: true })),
			decision('store', { answerFrom: 'expression', answer: '{"label": "a"}' }),
		],
		links: [
			['Start', 'Look Up'],
			['Look Up:1', 'Store'],
		],
	});
	approved.push(
		...ran.json('Store', 1).map((json) => String((json.decision as IDataObject).decisionKey)),
	);
});
afterAll(async () => {
	await server.close();
});

/** One that can never be reached, which is known at once. */
const down = (): LedgerSettings => ({ ...stage.ledger.settings, host: '' });
const up = (): LedgerSettings => stage.ledger.settings;

async function runOf(
	nodes: NodeOfTest[],
	subject: Subject,
	credential = up,
): Promise<Ran> {
	return await stage.run({
		credential,
		telegram: { accessToken: '4711:secret', baseUrl: server.url },
		items: itemsOf(subject),
		nodes,
		links: subject.links,
	});
}

/** Items of the node under test with the output they left by; without what Always Output Data makes up. */
function leaving(ran: Ran, node: string, outputs: number) {
	return Array.from({ length: outputs + 1 }, (_, output) => output).flatMap((output) =>
		ran
			.out(node, output)
			.filter(({ json, pairedItem }) => !(Array.isArray(pairedItem) && Object.keys(json).length === 0))
			.map((item) => ({ output, ...item, at: (item.pairedItem as { item: number }).item })),
	);
}

/** What every item that leaves must be, wherever it leaves. */
function expectKept(left: ReturnType<typeof leaving>, subject: Subject, problems: Set<number>): void {
	expect(left.map(({ at }) => at).sort()).toEqual([0, 1, 2]);
	const given = itemsOf(subject);
	for (const { output, at, json, binary } of left) {
		const where = { at, output };
		const isError = output === subject.outputs;
		// Work Ledger and its like answer with items of their own
		if (subject.field === null && !problems.has(at)) {
			expect({ ...where, error: json.error }).toEqual({ ...where, error: undefined });
			continue;
		}
		const { error, details, ...own } = given[at].json;
		// each run of the table makes up its own chat
		delete own.chat;
		expect({ ...where, ...json }).toMatchObject({ ...where, ...own });
		expect({ ...where, binary }).toEqual({ ...where, binary: BINARY });
		expect(json.details).toMatchObject(details as IDataObject);
		if (subject.field === null || isError) expect(typeof json.error).toBe('string');
		else expect(json).not.toHaveProperty('error');
		if (subject.field === null) continue;
		const answers = isError ? (json.details as IDataObject) : json;
		const answer = (answers[`${subject.field}Answer`] ?? answers[subject.field]) as IDataObject;
		// the answer stands beside a question that is still open, which keeps the error
		const kept = [answer, json[subject.field] as IDataObject].map((each) => each?.inputError);
		expect({ ...where, kept }).toEqual({ ...where, kept: expect.arrayContaining([error]) });
		expect(typeof answer.message).toBe('string');
	}
}

const outputsBy = (left: ReturnType<typeof leaving>) =>
	Object.fromEntries(left.map(({ at, output }) => [at, output]));

describe.each(NAMES)('%s', (name) => {
	const subject = SUBJECTS[name];
	const guards = subject.field !== null;
	const problemOutput = (onError: (typeof ON_ERROR)[number]) =>
		onError === 'continueErrorOutput' ? subject.outputs : subject.outputs - 1;

	test.each(SETTINGS)('one item of a batch cannot be done, under %j', async (settings) => {
		const ran = await runOf(subject.nodes(settings), subject);
		const left = leaving(ran, name, subject.outputs);
		if (settings.alwaysOutputData && subject.good > 0) {
			expect(ran.error?.message).toMatch(/"Always Output Data" would send an empty item/);
			expect(left).toEqual([]);
			return;
		}
		expect(ran.error).toBeNull();
		expectKept(left, subject, new Set([1]));
		expect(outputsBy(left)).toEqual({
			...{ 0: subject.good, 2: subject.good },
			1: problemOutput(settings.onError),
		});
	});

	test.each(SETTINGS)('the ledger is down, under %j', async (settings) => {
		const nodes = subject.nodes(settings);
		// those before it had their answer while it was up
		let looks = 0;
		const before = nodes.filter(({ type }) => type.startsWith('n8n-nodes-')).length - 1;
		const ran = await runOf(nodes, subject, () =>
			++looks <= before ? up() : down(),
		);
		const left = leaving(ran, name, subject.outputs);
		if (settings.alwaysOutputData && guards) {
			expect(ran.error).toMatchObject({ node: name });
			expect(left).toEqual([]);
			return;
		}
		expect(ran.error).toBeNull();
		expectKept(left, subject, new Set([0, 1, 2]));
		const output = problemOutput(settings.onError);
		expect(outputsBy(left)).toEqual({ 0: output, 1: output, 2: output });
	});

	test.each(ON_ERROR)('a choice that this version does not know is no success, under %s', async (onError) => {
		for (const choice of ['explode', "={{ $('Nobody').item.json.x }}"]) {
			const nodes = subject.nodes({ onError });
			const node = nodes.at(-1) as NodeOfTest;
			const parameters = { ...node.parameters, [subject.choice]: choice };
			const ran = await runOf([...nodes.slice(0, -1), { ...node, parameters }], subject);
			const left = leaving(ran, name, subject.outputs);
			const passed = left.filter(({ output, json }) => output < Math.max(1, subject.outputs - 1) && json.error === undefined);
			expect([choice, passed]).toEqual([choice, []]);
			const said = JSON.stringify([ran.error, left.map(({ json }) => json)]);
			expect(said).toMatch(choice === 'explode' ? /not know/ : /Nobody/);
		}
	});

	if (subject.tool === undefined) return;
	const { tool } = subject;

	test('as a tool the agent gets one text per item, whatever On Error says (case 140)', async () => {
		for (const onError of ['stopWorkflow', ...ON_ERROR] as const) {
			for (const credential of [undefined, down]) {
				const ran = await runOf([tool({ onError })], { ...subject, links: undefined }, credential);
				expect(ran.error).toBeNull();
				const left = leaving(ran, name, subject.outputs);
				expect(outputsBy(left)).toEqual({ 0: 0, 1: 0, 2: 0 });
				expect(left).toHaveLength(3);
				for (const { json, at } of left) {
					expect(json).not.toHaveProperty('error');
					expect([at, String(json.response)]).toEqual([at, expect.stringMatching(/\w{3}/)]);
					if (credential !== undefined && at !== 1) expect(json.response).toMatch(/host: is empty/);
				}
			}
		}
	});
});
