import { checkTogether, readWorkflowValue } from '../../check';
import { short } from './fixtures';

const node = (name: string, type: string, parameters: Record<string, unknown> = {}) => ({
	name,
	type,
	typeVersion: 1,
	position: [0, 0],
	parameters,
});
const link = (to: string) => ({ main: [[{ node: to, type: 'main', index: 0 }]] });

const post = node('Pay Out', 'n8n-nodes-base.httpRequest', {
	method: 'POST',
	url: 'https://bank.example/payouts',
});

/** Webhook → Execute Workflow, whose sub-workflow is written into it. */
function calling(workflowJson: string) {
	return {
		name: 'Caller',
		nodes: [
			node('Webhook', 'n8n-nodes-base.webhook', { httpMethod: 'POST', path: 'pay' }),
			node('Run It', 'n8n-nodes-base.executeWorkflow', { source: 'parameter', workflowJson }),
		],
		connections: { Webhook: link('Run It') },
	};
}

const inside = JSON.stringify({
	nodes: [node('Start', 'n8n-nodes-base.executeWorkflowTrigger'), post],
	connections: { Start: link('Pay Out') },
});

function findings(value: unknown) {
	const { workflows, problems } = readWorkflowValue(value);
	return {
		problems,
		found: checkTogether(workflows).flatMap((report) => report.findings.map(short)),
	};
}

test('an unguarded effect in a sub-workflow that is written into its node is found', () => {
	const { problems, found } = findings(calling(inside));
	expect(problems).toEqual([]);
	expect(found).toContain('error unguarded-effect @ Pay Out');
	expect(found.filter((each) => each.includes('workflow-not-given'))).toEqual([]);
});

test('behind a claim of its caller the same effect is guarded', () => {
	const caller = calling(inside);
	const guarded = {
		...caller,
		nodes: [
			...caller.nodes,
			node('Claim Work', 'n8n-nodes-idempotency.claimWork', {
				kind: 'payout',
				keyFields: 'body.id',
			}),
			node('Complete Work', 'n8n-nodes-idempotency.completeWork'),
		],
		connections: {
			Webhook: link('Claim Work'),
			'Claim Work': link('Run It'),
			'Run It': link('Complete Work'),
		},
	};
	expect(findings(guarded).found).not.toContain('error unguarded-effect @ Pay Out');
	expect(findings(caller).found).toContain('error unguarded-effect @ Pay Out');
});

test.each(['{ broken', '[]', '7', 'null'])(
	'text that is no workflow (%s) is a line, not a crash',
	(text) => {
		const { problems } = findings(calling(text));
		expect(problems).toEqual(['The workflow in "Run It" of "Caller" could not be read.']);
	},
);

test('an expression is not evaluated: the sub-workflow stays unknown, and the check says so', () => {
	const { problems, found } = findings(calling('={{ $json.workflow }}'));
	expect(problems).toEqual([]);
	expect(found).toContain('note workflow-not-given @ Run It');
});

test('workflows inside workflows end at a depth, in a line', () => {
	let text = inside;
	for (let depth = 0; depth < 12; depth++) text = JSON.stringify(calling(text));
	const { workflows, problems } = readWorkflowValue(calling(text));
	expect(workflows.length).toBeLessThan(12);
	expect(problems).toEqual([expect.stringContaining('could not be read')]);
});
