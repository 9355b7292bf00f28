/** Example deal-pipeline.json: deal → job → contract → invoice, in four systems that deliver twice. */

import { startDealSystems, type Deal, type DealSystems } from './deal-systems';
import { importShipped, nodeOf, shipped } from './shipped';
import { closeLedger, invoiceServer, leaseEnded, n8n, order, queryLedger, until } from './stage';

const FILE = 'deal-pipeline.json';
const ROUTE = 'deal-changed';

let systems: DealSystems;
let workflowId: string;

/** Imports it as it is shipped, its addresses pointed at the systems of these tests; a test may set Claim Job otherwise. */
async function importPipeline(
	claimJob: { wait?: number; options?: Record<string, number> } = {},
): Promise<string> {
	const { crm, jobs, contracts } = systems;
	return await importShipped(FILE, (workflow) => {
		const addresses = [
			['https://crm.example', crm.url],
			['https://jobs.example', jobs.url],
			['https://sign.example', contracts.url],
		];
		for (const { parameters } of workflow.nodes) {
			if (typeof parameters.url !== 'string') continue;
			for (const [from, to] of addresses) {
				parameters.url = String(parameters.url).replace(from, to);
			}
		}
		Object.assign(nodeOf(workflow, 'Claim Job').parameters, claimJob);
	});
}

beforeAll(async () => {
	systems = await startDealSystems(async (body) => await n8n.webhook(ROUTE, body));
	workflowId = await importPipeline();
});

afterAll(async () => {
	await systems.close();
	await closeLedger();
});

const addDeal = (deal_id: string, fields: Partial<Deal> = {}) =>
	systems.crm.add({
		deal_id,
		stage: 'Offered',
		title: `Deal ${deal_id}`,
		customer: 'ACME',
		amount: 900,
		accepted_quote: `Q-${deal_id}`,
		...fields,
	});

const quiet = async () =>
	await until(
		'every delivery is answered',
		async () => await Promise.resolve(systems.crm.isQuiet()),
	);

async function moved(dealId: string, fields: Partial<Deal>): Promise<Deal> {
	systems.crm.set(dealId, fields);
	await quiet();
	return systems.crm.deal(dealId);
}

async function signed(dealId: string): Promise<Deal> {
	systems.contracts.sign(dealId);
	await quiet();
	return systems.crm.deal(dealId);
}

const works = async (dealId: string) =>
	await queryLedger(
		`select kind, state, generation, attempt, external_ref from :schema.work_log
		where kind like 'deal-%' and key = $1 order by first_started_at`,
		[dealId],
	);

/** One of each thing, on the deal, in its own system and in the ledger. */
async function expectOneOfEach(dealId: string): Promise<void> {
	const { crm, jobs, contracts } = systems;
	const { job_id, contract_id, invoice_no, stage, blocked_because } = crm.deal(dealId);
	expect([stage, blocked_because]).toEqual(['Invoiced', '']);
	expect(jobs.of(dealId).map((job) => job.job_id)).toEqual([job_id]);
	expect(contracts.of(dealId).map(({ envelope_id }) => envelope_id)).toEqual([contract_id]);
	const invoices = await invoiceServer.invoices(dealId);
	expect(invoices.map(({ invoice_id }) => invoice_id)).toEqual([invoice_no]);
	const done = { state: 'done', generation: 1, attempt: 1 };
	expect(await works(dealId)).toEqual([
		{ ...done, kind: 'deal-job', external_ref: job_id },
		{ ...done, kind: 'deal-contract', external_ref: contract_id },
		{ ...done, kind: 'deal-invoice', external_ref: invoice_no },
	]);
}

test('both gates of the shipped flow have the same ladder', () => {
	const workflow = shipped(FILE);
	const ladders = workflow.nodes
		.filter(({ type }) => type.endsWith('.checkEvidenceGate'))
		.map(({ parameters }) => parameters.stages);
	expect(ladders).toHaveLength(2);
	expect(ladders[0]).toEqual(ladders[1]);
});

describe.each([
	['in the same instant', 0],
	['400 ms apart', 400],
])('every change delivered twice %s', (_, gapMs) => {
	const dealId = `deal-${gapMs}`;

	beforeAll(() => systems.crm.deliverAfter(gapMs));
	afterAll(() => systems.crm.deliverAfter(0));

	test('a won deal gets one job and one contract, and waits for the signature', async () => {
		addDeal(dealId);
		const deal = await moved(dealId, { stage: 'Won' });
		expect(deal).toMatchObject({
			stage: 'Job',
			job_id: systems.jobs.of(dealId)[0].job_id,
			contract_id: systems.contracts.of(dealId)[0].envelope_id,
			blocked_because: expect.stringContaining('Signature'),
		});
		expect(deal).not.toHaveProperty('invoice_no');
	});

	test('signed, it goes on to one invoice', async () => {
		await signed(dealId);
		await expectOneOfEach(dealId);
	});

	test('dragged back and forward again it still has one of each', async () => {
		await moved(dealId, { stage: 'Won' });
		await expectOneOfEach(dealId);
		// by a hand that does not wait for the answer
		systems.crm.set(dealId, { stage: 'Job' });
		systems.crm.set(dealId, { stage: 'Won' });
		systems.crm.set(dealId, { stage: 'Contract' });
		await quiet();
		await expectOneOfEach(dealId);
		expect(await invoiceServer.calls(dealId)).toBe(1);
	});
});

/** What was decided about the job of a deal, in order. */
const decided = async (dealId: string) =>
	(
		await queryLedger<{ outcome: string }>(
			`select d.outcome from :schema.decision_log d join :schema.work_log w using (work_id)
			where w.kind = 'deal-job' and w.key = $1 order by d.id`,
			[dealId],
		)
	).map(({ outcome }) => outcome);

async function secondIsBusy(dealId: string): Promise<void> {
	await until('the second delivery has met the first', async () =>
		(await decided(dealId)).includes('in_progress'),
	);
}

describe('while the first delivery has the job made', () => {
	afterAll(async () => void (await importPipeline()));

	test('the second waits for it, and writes back and advances by the same reference', async () => {
		const { crm, jobs } = systems;
		addDeal('waiting');
		const held = jobs.nextAnswerHeld('waiting');
		crm.set('waiting', { stage: 'Won' });
		const release = await held;
		await secondIsBusy('waiting');
		release();
		await quiet();
		const expected = ['claimed', 'in_progress', 'recorded', 'completed', 'duplicate'];
		expect(await decided('waiting')).toEqual(expected);
		expect(jobs.of('waiting')).toHaveLength(1);
		expect(crm.deal('waiting')).toMatchObject({
			stage: 'Job',
			job_id: jobs.of('waiting')[0].job_id,
		});
	});

	test('the second, told not to wait, is sent away as busy and comes again', async () => {
		const { crm, jobs } = systems;
		await importPipeline({ wait: 0 });
		addDeal('busy');
		const held = jobs.nextAnswerHeld('busy');
		crm.set('busy', { stage: 'Won' });
		const release = await held;
		await until(
			'the second is answered',
			async () => await Promise.resolve(crm.answers('busy').length > 0),
		);
		expect(crm.answers('busy')[0]).toMatchObject({ status: 503, body: { status: 'in_progress' } });
		release();
		await quiet();
		expect(jobs.of('busy')).toHaveLength(1);
		expect(crm.deal('busy').stage).toBe('Job');
	});
});

test('a job that could not be made is answered as failed, then waits for a person; the deal stays where it is', async () => {
	const { crm, jobs } = systems;
	await importPipeline({ options: { maxAttempts: 1 } });
	addDeal('refused');
	jobs.refuse('refused');
	crm.set('refused', { stage: 'Won' });
	await quiet();
	await crm.redeliver('refused');
	await importPipeline();
	const answers = crm.answers('refused').map(({ status, body }) => [status, body.status]);
	expect(answers).toEqual(expect.arrayContaining([[502, 'failed']]));
	expect(answers.at(-1)).toEqual([409, 'dead']);
	expect(crm.deal('refused')).toMatchObject({ stage: 'Won' });
	expect(await works('refused')).toMatchObject([{ kind: 'deal-job', state: 'dead' }]);
});

describe('a deal dragged ahead by hand is blocked, and what is missing is listed', () => {
	const missing = ['Job', 'Contract', 'Signature'];
	test.each<[string, string, Partial<Deal>, string[]]>([
		['nothing', 'Contract', {}, missing],
		['numbers that somebody typed', 'Contract', { job_id: 'JOB-1', contract_id: 7 }, missing],
		[
			'empty values',
			'Invoiced',
			{ job_id: 'null', contract_id: '', contract_signed_at: [null], invoice_no: 0 },
			[...missing, 'Invoice'],
		],
		['no accepted quote', 'Won', { accepted_quote: '' }, ['Accepted quote']],
	])('%s on it (cases 128, 130)', async (evidence, stage, fields, expected) => {
		const dealId = `ahead-${evidence.replaceAll(' ', '-')}`;
		addDeal(dealId, fields);
		const deal = await moved(dealId, { stage });
		const answers = systems.crm.answers(dealId);
		expect(answers.map(({ status }) => status)).toEqual([200, 200]);
		for (const { body } of answers) {
			expect(body.status).toBe('blocked');
			expect((body.missing as Array<{ rule: string }>).map(({ rule }) => rule)).toEqual(expected);
		}
		expect(deal).toMatchObject({ ...fields, stage, blocked_because: answers[0].body.message });
		expect(await works(dealId)).toEqual([]);
		const made = [systems.jobs.of(dealId), systems.contracts.of(dealId)];
		expect([...made, await invoiceServer.invoices(dealId)]).toEqual([[], [], []]);
		const checks = await queryLedger(
			`select outcome from :schema.decision_log where event = 'check_evidence'
				and work_id = encode(sha256(convert_to('deal:v1:' || $1, 'UTF8')), 'hex')`,
			[dealId],
		);
		expect(checks).toEqual([{ outcome: 'blocked' }, { outcome: 'blocked' }]);
	});

	test('a quote with the number 0 is one (case 130)', async () => {
		addDeal('quote-0', { accepted_quote: 0 });
		expect(await moved('quote-0', { stage: 'Won' })).toMatchObject({ stage: 'Job' });
	});
});

test('killed while a job is made, and while its id is written back: the next delivery finishes both deals with the jobs they have', async () => {
	const { crm, jobs } = systems;
	await importPipeline({ options: { leaseSeconds: 10 } });
	addDeal('killed-making');
	addDeal('killed-writing');
	const held = [jobs.nextAnswerHeld('killed-making'), crm.nextWriteHeld('killed-writing')];
	crm.set('killed-making', { stage: 'Won' });
	crm.set('killed-writing', { stage: 'Won' });
	await Promise.all(held);
	await order('/n8n/kill');
	await quiet();
	for (const dealId of ['killed-making', 'killed-writing']) {
		expect(jobs.of(dealId)).toHaveLength(1);
		expect(crm.deal(dealId)).not.toHaveProperty('job_id');
		expect(crm.answers(dealId).map(({ status }) => status)).toEqual([0, 0]);
	}
	await order('/n8n/start');
	await leaseEnded('deal-job');
	await importPipeline();
	await Promise.all([crm.redeliver('killed-making'), crm.redeliver('killed-writing')]);
	await quiet();

	for (const [dealId, attempt, searches] of [
		['killed-making', 2, 1],
		['killed-writing', 1, 0],
	] as const) {
		const [job, ...others] = jobs.of(dealId);
		expect(others).toEqual([]);
		expect(crm.deal(dealId)).toMatchObject({ stage: 'Job', job_id: job.job_id });
		expect(jobs.searches(job.marker)).toBe(searches);
		expect((await works(dealId))[0]).toEqual({
			kind: 'deal-job',
			state: 'done',
			generation: 1,
			attempt,
			external_ref: job.job_id,
		});
		await signed(dealId);
		expect(crm.deal(dealId)).toMatchObject({ stage: 'Invoiced', invoice_no: expect.any(String) });
		expect(jobs.of(dealId)).toHaveLength(1);
	}
});

test('no run ended in an error but the killed ones', async () => {
	const filter = encodeURIComponent(JSON.stringify({ workflowId, status: ['error'] }));
	const { results } = await n8n.rest('GET', `/executions?filter=${filter}&limit=5`);
	const failed = await Promise.all(
		results.map(async ({ id }: { id: string }) => {
			const { ran, error } = await n8n.execution(id);
			return [ran.at(-1), error];
		}),
	);
	expect(failed).toEqual([]);
});
