import { checkTogether, readWorkflowValue } from '../../check';
import { checked, findingsOf, fixtureNames, short, workflow } from './fixtures';

/** Hand-made look-alikes of common shapes, and what each draws, exactly. */
const SHAPES: Record<string, string[]> = {
	'agent-retried': ['error agent-tool-unguarded @ Refund', 'error retry-repeats-effect @ Agent'],
	'claim-after': ['error unguarded-effect @ Create Invoice'],
	'community-node': ['warning unguarded-effect @ Push It', 'error unguarded-effect @ Add One'],
	'disabled-between': ['error unguarded-effect @ Create Invoice'],
	'disabled-claim': [
		'error unguarded-effect @ Create Invoice',
		'error guard-disabled @ Claim Work',
	],
	'disabled-effect': [],
	'disabled-merge': [],
	'duplicate-told': [],
	'error-output-elsewhere': ['warning failure-not-settled @ Create Invoice'],
	'error-workflow': [],
	'fail-on-success-path': ['warning failure-not-settled @ Create Invoice'],
	'fan-out': [],
	'half-guarded': ['error unguarded-effect @ Create Invoice'],
	'if-between': ['warning claim-left-open @ Claim Work'],
	'if-between-completed': [],
	'key-from-set': ['error volatile-key @ Claim Work'],
	// a person starts it, and does not do so in the same second
	'manual-beside': ['warning unguarded-effect @ Create Invoice'],
	'merge-append': ['error unguarded-effect @ Create Invoice'],
	// a joined item needs its claimed half
	'merge-joined': [],
	'nested-claims': [],
	'nested-lock-holds': [],
	'nested-lock-left-open': ['warning claim-left-open @ Lock'],
	'no-trigger': ['error unguarded-effect @ Create Invoice'],
	// at worst it is lost, never doubled
	'notice-after': [],
	'reads-only': [],
	'retry-runner': [],
	'sql-verbs': [
		'error unguarded-effect @ Insert',
		'note unguarded-effect @ Upsert',
		'error unguarded-effect @ Count Down',
		'warning unguarded-effect @ Hidden',
		'error unguarded-effect @ Default',
	],
	'stage-on-failure': [],
	'switched-off': [
		'error unguarded-effect @ Create Invoice',
		'error unguarded-effect @ Log Line (off)',
	],
	'two-triggers': [
		'error unguarded-effect @ Create Invoice',
		'warning schedule-overlaps @ Every 5 Minutes',
	],
	'wait-after-completion': [],
};

test('every shape that lies here is expected, and the other way round', () => {
	const shapes = fixtureNames().filter((name) => name.startsWith('shape.'));
	expect(shapes.map((name) => name.slice('shape.'.length))).toEqual(Object.keys(SHAPES));
});

test.each(Object.entries(SHAPES))('%s draws exactly what it should', (name, expected) => {
	expect(findingsOf(`shape.${name}`)).toEqual([expected]);
});

test('the way that passes the claim by is named', () => {
	const [{ findings }] = checked('shape.half-guarded');
	expect(findings[0].message).toContain(
		'a claim guards some ways here, but not "Order Webhook" → "New Customer?" → "Create Invoice"',
	);
	const [{ findings: left }] = checked('shape.if-between');
	expect(left[0].message).toContain('output 2 of "Paid?" leads nowhere');
});

test('a rule is switched off by a note with a reason, for one node; without a reason it stays on', () => {
	const [{ findings, notices }] = checked('shape.switched-off');
	expect(findings.map(({ switchedOff }) => switchedOff)).toEqual([
		null,
		{ by: 'note', reason: 'a second line harms nobody' },
	]);
	expect(notices).toEqual([
		expect.stringContaining('switches off failure-unhandled without a reason'),
		expect.stringContaining('switches off "no-such-rule", which is no rule'),
	]);
});

describe('several workflows together', () => {
	test('a sub-workflow whose every caller claims is guarded; alone it is not known to be', () => {
		expect(findingsOf('family.sub-plain')).toEqual([['warning unguarded-effect @ Create Invoice']]);
		expect(findingsOf('family.parent-claims', 'family.sub-plain')).toEqual([[], []]);
		const [, { effects }] = checked('family.parent-claims', 'family.sub-plain');
		expect(effects.map(({ guard }) => guard)).toEqual(['claim of the caller']);
	});

	test('one caller without a claim opens it, and is named', () => {
		const reports = checked('family.parent-claims', 'family.parent-bare', 'family.sub-plain');
		expect(reports.map(({ findings }) => findings.map(short))).toEqual([
			[],
			['note workflow-not-given @ Run Guarded'],
			['error unguarded-effect @ Create Invoice'],
		]);
		expect(reports[2].findings[0].message).toContain(
			'called by "Run Sub-Workflow" in "Calls without a claim"',
		);
	});

	test('a sub-workflow that claims by itself needs nothing from its callers', () => {
		const names = ['family.parent-bare', 'family.sub-guarded', 'family.sub-plain'];
		expect(findingsOf(...names).slice(0, 2)).toEqual([[], []]);
	});

	test('an agent may hold a workflow that guards itself, and none that does not', () => {
		const [agent, , plain] = findingsOf(
			...['family.agent', 'family.sub-guarded', 'family.sub-plain'],
		);
		expect(agent).toEqual([
			'error agent-tool-unguarded @ Send Plain',
			'warning agent-tool-unguarded @ MCP',
		]);
		expect(plain).toEqual(['error unguarded-effect @ Create Invoice']);
	});

	test('an agent whose tool is the other half of its own workflow is read as one that calls a workflow', () => {
		const own = { __rl: true, mode: 'id', value: '={{ $workflow.id }}' };
		const flowOf = (claims: boolean) => {
			const named = (name: string, type: string, parameters: object = {}) => ({
				name,
				type,
				parameters,
			});
			const made = workflow(
				[
					named('Case', 'n8n-nodes-base.webhook'),
					named('Agent', '@n8n/n8n-nodes-langchain.agent'),
					named('Tool', '@n8n/n8n-nodes-langchain.toolWorkflow', { workflowId: own }),
					named('Called', 'n8n-nodes-base.executeWorkflowTrigger'),
					named('Claim Work', 'n8n-nodes-idempotency.claimWork', { kind: 'k', keyFields: 'id' }),
					named('Refund', 'n8n-nodes-base.httpRequest', {
						method: 'POST',
						url: 'https://a.example/r',
					}),
					named('Complete Work', 'n8n-nodes-idempotency.completeWork'),
				],
				[
					['Case', 'Agent'],
					['Called', claims ? 'Claim Work' : 'Refund'],
					['Claim Work', 'Refund'],
					['Refund', 'Complete Work'],
				],
			);
			const connections = made.connections as Record<string, object>;
			connections.Tool = { ai_tool: [[{ node: 'Agent', type: 'ai_tool', index: 0 }]] };
			return checkTogether(readWorkflowValue(made).workflows)[0]
				.findings.map(short)
				.filter((each) => /agent-tool|not-given|unguarded/.test(each));
		};
		expect(flowOf(true)).toEqual([]);
		expect(flowOf(false)).toContain('error agent-tool-unguarded @ Tool');
	});

	test('what a called workflow does counts at the call: in loops, tries, schedules, behind a completion', () => {
		expect(findingsOf('family.schedule-loop', 'family.sub-plain')).toEqual([
			[
				'error retry-repeats-effect @ Run Sub-Workflow',
				'error loop-repeats-effect @ Run Sub-Workflow',
				'warning schedule-overlaps @ Every 5 Minutes',
			],
			['error unguarded-effect @ Create Invoice'],
		]);
		expect(findingsOf('family.completed-then-calls', 'family.sub-plain')[0]).toEqual([
			'error completed-before-effect @ Run Sub-Workflow',
		]);
		const [{ calls }] = checked('family.parent-bare', 'family.sub-plain');
		expect(calls).toEqual([
			{ node: 'Run Sub-Workflow', workflow: 'Send invoice', effects: ['Create Invoice'] },
			{ node: 'Run Guarded', workflow: 'Send invoice', effects: null },
		]);
	});

	test('workflows that only call each other in a circle come to an end', () => {
		const ring = (id: string, next: string) =>
			workflow(
				[
					{ name: 'Called', type: 'n8n-nodes-base.executeWorkflowTrigger' },
					{ name: 'Send', type: 'n8n-nodes-base.emailSend' },
					{
						name: 'Next',
						type: 'n8n-nodes-base.executeWorkflow',
						parameters: { workflowId: next },
					},
				],
				[
					['Called', 'Send'],
					['Send', 'Next'],
				],
				{ id },
			);
		const start = workflow(
			[
				{ name: 'Hook', type: 'n8n-nodes-base.webhook' },
				{ name: 'Call', type: 'n8n-nodes-base.executeWorkflow', parameters: { workflowId: 'a' } },
			],
			[['Hook', 'Call']],
			{ id: 'start' },
		);
		const circle = [ring('a', 'b'), ring('b', 'a')];
		const severities = (given: unknown[]) =>
			checkTogether(readWorkflowValue(given).workflows).flatMap(({ findings }) =>
				findings.filter(({ node }) => node === 'Send').map(short),
			);
		expect(severities([...circle, start])).toEqual([
			'error unguarded-effect @ Send',
			'error unguarded-effect @ Send',
		]);
	});
});

describe('Loop Over Items between a claim and its completion', () => {
	const looped = (between: string, loop: Record<string, unknown>, rounds: number) =>
		checkTogether(
			readWorkflowValue(
				workflow(
					[
						{ name: 'Hook', type: 'n8n-nodes-base.webhook' },
						{ name: 'Claim', type: 'n8n-nodes-idempotency.claimWork' },
						{ name: 'Between', type: between },
						{ name: 'Loop', type: 'n8n-nodes-base.splitInBatches', ...loop },
						{
							name: 'Send',
							type: 'n8n-nodes-base.httpRequest',
							parameters: { method: 'POST', url: 'https://a.example/b' },
						},
						{ name: 'Complete', type: 'n8n-nodes-idempotency.completeWork' },
						{
							name: 'After',
							type: 'n8n-nodes-base.httpRequest',
							parameters: { method: 'POST', url: 'https://a.example/b' },
						},
					],
					[
						['Hook', 'Claim'],
						['Claim', 'Between'],
						['Between', 'Loop'],
						['Loop', 'Send', rounds],
						['Send', 'Complete'],
						['Complete', 'Loop'],
						['Loop', 'After', 1 - rounds],
					],
				),
			).workflows,
		)
			.flatMap(({ findings }) => findings.map(short))
			.filter((each) => each.includes('completed-before-effect'));
	const AFTER = 'warning completed-before-effect @ After';
	const SEND = 'warning completed-before-effect @ Send';

	test('each round has items with claims of their own; what comes out of Done is completed', () => {
		expect(looped('n8n-nodes-base.set', { typeVersion: 3 }, 1)).toEqual([AFTER]);
		expect(looped('n8n-nodes-base.set', { typeVersion: 2 }, 0)).toEqual([AFTER]);
	});

	test('one claim for many items is completed by the first round', () => {
		expect(looped('n8n-nodes-base.splitOut', { typeVersion: 3 }, 1)).toContain(SEND);
	});

	test('with Reset a round takes what came back', () => {
		const reset = { typeVersion: 3, parameters: { options: { reset: '={{ true }}' } } };
		expect(looped('n8n-nodes-base.set', reset, 1)).toContain(SEND);
	});
});
