import { approvalFlow, claimWork, importFlow } from './flow';
import {
	closeLedger,
	decisions,
	invoiceServer,
	leaseEnded,
	n8n,
	order,
	queryLedger,
} from './stage';

/** Delivers an order and waits until its execution is asleep. */
async function waiting(kind: string, orderId: string, attempt = 1) {
	const asked = await n8n.webhook(kind, { order_id: orderId });
	expect(asked).toMatchObject({ status: 202, body: { work: { status: 'claimed', attempt } } });
	const [work] = await queryLedger<{ execution: string; token: string }>(
		`select execution, token from :schema.work_log where kind = $1 and key = $2`,
		[kind, orderId],
	);
	if (work === undefined) throw new Error('nothing was claimed');
	await n8n.executionReaches(work.execution, ['waiting']);
	return { ...work, resumeUrl: String(asked.body.resumeUrl) };
}

async function expectDoneOnce(kind: string, orderId: string, token: string) {
	const [invoice, ...others] = await invoiceServer.invoices(orderId);
	expect(others).toEqual([]);
	expect(await invoiceServer.calls(orderId)).toBe(1);
	expect(
		await queryLedger(
			`select state, attempt, token, external_ref from :schema.work_log
			where kind = $1 and key = $2`,
			[kind, orderId],
		),
	).toEqual([{ state: 'done', attempt: 1, token, external_ref: invoice?.invoice_id }]);
}

afterAll(closeLedger);

describe('a Wait between claim and completion', () => {
	test('keeps the claim: a duplicate meanwhile is Busy, and the resumed execution completes with its token', async () => {
		const kind = 'wait-resumed';
		await importFlow(approvalFlow(kind));
		const { resumeUrl, token, execution } = await waiting(kind, 'approved');
		const meanwhile = await n8n.webhook(kind, { order_id: 'approved' });
		const resumed = await n8n.post(resumeUrl, { approved: true });
		const afterwards = await n8n.webhook(kind, { order_id: 'approved' });

		expect(meanwhile).toMatchObject({
			status: 503,
			body: { work: { status: 'in_progress', owner: { execution } } },
		});
		expect(resumed).toMatchObject({ status: 200, body: { work: { status: 'completed' } } });
		expect(afterwards).toMatchObject({
			status: 200,
			body: { work: { status: 'duplicate', result: { invoice_id: resumed.body.invoice_id } } },
		});
		await expectDoneOnce(kind, 'approved', token);
		expect(await n8n.execution(execution)).toMatchObject({ status: 'success' });
		expect((await decisions(kind)).map(({ event, outcome }) => `${event}: ${outcome}`)).toEqual([
			'claim: claimed',
			'claim: in_progress',
			'complete: completed',
			'claim: duplicate',
		]);
	});

	test('outlives a crash of n8n: the execution resumes after the restart and completes with its token', async () => {
		const kind = 'wait-crashed';
		await importFlow(approvalFlow(kind));
		const one = await waiting(kind, 'slept-through-1');
		const two = await waiting(kind, 'slept-through-2');
		await order('/n8n/kill');
		await order('/n8n/start');
		const meanwhile = await n8n.webhook(kind, { order_id: 'slept-through-1' });
		const resumed = [
			await n8n.post(two.resumeUrl, { approved: true }),
			await n8n.post(one.resumeUrl, { approved: true }),
		];

		expect(meanwhile).toMatchObject({ status: 503, body: { work: { status: 'in_progress' } } });
		for (const { status, body } of resumed) {
			expect(status).toBe(200);
			expect(body.work).toMatchObject({ status: 'completed' });
		}
		await expectDoneOnce(kind, 'slept-through-1', one.token);
		await expectDoneOnce(kind, 'slept-through-2', two.token);
	});

	test('longer than its lease: completed late while nobody else claimed it, refused once somebody did (cases 108, 109)', async () => {
		const kind = 'wait-lapsed';
		await importFlow(approvalFlow(kind, claimWork(kind, { options: { leaseSeconds: 2 } })));
		const alone = await waiting(kind, 'overslept-alone');
		const stale = await waiting(kind, 'overslept-taken');
		await leaseEnded(kind);
		const late = await n8n.post(alone.resumeUrl, { approved: true });
		const next = await waiting(kind, 'overslept-taken', 2);
		const refused = await n8n.post(stale.resumeUrl, { approved: true });
		const done = await n8n.post(next.resumeUrl, { approved: true });

		expect(late).toMatchObject({
			status: 200,
			body: { work: { status: 'completed', late: true } },
		});
		await expectDoneOnce(kind, 'overslept-alone', alone.token);
		expect(refused).toMatchObject({ status: 200, body: { work: { status: 'not_owner' } } });
		expect(done).toMatchObject({ status: 200, body: { work: { status: 'completed' } } });
		// The stale owner had asked as well; the key kept it at one.
		expect(await invoiceServer.invoices('overslept-taken')).toHaveLength(1);
		expect(
			await queryLedger(
				`select state, attempt, token from :schema.work_log where key = 'overslept-taken'`,
			),
		).toEqual([{ state: 'done', attempt: 2, token: next.token }]);
	});
});
