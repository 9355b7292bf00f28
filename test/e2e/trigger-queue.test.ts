/** Work Ledger Trigger where the main only hands out, and workers execute; see scripts/n8n/queue-mode.js. */

import { N8nClient } from '../../scripts/n8n/client';
import { completeWork, flow, importFlow, importFlowWith, pass } from './flow';
import { closeLedger, invoiceServer, ledgerDatabase, n8n, order } from './stage';
import {
	announced,
	delayIsOver,
	makeFailed,
	tell,
	telling,
	trigger,
	untilDecided,
} from './trigger-stage';

let queue: N8nClient;

const intoQueue = async (workflow: ReturnType<typeof flow>) =>
	await importFlowWith(queue, ledgerDatabase, 'Idempotency Ledger', workflow);

beforeAll(async () => {
	queue = new N8nClient(await order<ConstructorParameters<typeof N8nClient>[0]>('/queue/start'));
}, 240_000);

afterAll(async () => {
	await order('/queue/stop');
	await closeLedger();
});

test('the end of an execution on a worker counts, well or badly, also where n8n keeps no executions', async () => {
	const kind = 'queue-told';
	const unsaved = telling(kind);
	Object.assign(unsaved.settings, {
		saveDataSuccessExecution: 'none',
		saveDataErrorExecution: 'none',
	});
	await intoQueue(unsaved);
	await invoiceServer.behave('queue-told-1', { fail: 500, times: 1 });
	const workId = await makeFailed(kind, 'queue-told-1', 'for good');
	await untilDecided(workId, 'announce', 'waiting');
	await delayIsOver(workId);
	await untilDecided(workId, 'announce', 'acknowledged');
	expect(await invoiceServer.calls('queue-told-1')).toBe(2);
});

test("an execution that a worker put to sleep is n8n's to go on with: acknowledged", async () => {
	const kind = 'queue-asleep';
	await intoQueue(
		flow(
			kind,
			[
				trigger(kind, 'dead_letter'),
				{
					name: 'Wait',
					type: 'n8n-nodes-base.wait',
					typeVersion: 1.1,
					webhookId: `${kind}-wait`,
					parameters: { resume: 'webhook', httpMethod: 'POST', options: {} },
				},
				pass('End'),
			],
			{ 'Work Ledger Trigger': ['Wait'], Wait: ['End'] },
		),
	);
	const workId = await makeFailed(kind, 'queue-asleep-1', 'for good');
	await untilDecided(workId, 'announce', 'acknowledged');
	expect((await queue.executions(kind)).map(({ status }) => status)).toEqual(['waiting']);
});

test('two n8n that share a subscription: each of 40 dead letters is told once, by one of them', async () => {
	const kind = 'queue-shared';
	const onCall = { subscription: 'on-call' };
	const id = await importFlow(telling(`${kind}-1`, kind, onCall));
	await intoQueue(telling(`${kind}-2`, kind, onCall));
	const keys = Array.from({ length: 40 }, (_, at) => `queue-shared-${at}`);
	const works = await Promise.all(keys.map(async (key) => await makeFailed(kind, key, 'for good')));
	for (const workId of works) await untilDecided(workId, 'announce', 'acknowledged');
	for (const key of keys) expect(await invoiceServer.calls(key)).toBe(1);
	const [here, there] = [await n8n.executions(`${kind}-1`), await queue.executions(`${kind}-2`)];
	expect(here.length + there.length).toBe(keys.length);
	// otherwise it was no race
	expect(here.length).toBeGreaterThan(0);
	expect(there.length).toBeGreaterThan(0);
	await n8n.rest('POST', `/workflows/${id}/deactivate`);
});

test('a worker is killed while it tells of one and retries another: both come again, neither is lost', async () => {
	const [letters, retries] = ['queue-killed-letter', 'queue-killed-retry'];
	await intoQueue(telling(letters));
	await intoQueue(
		flow(retries, [trigger(retries, 'retry_due'), tell, completeWork()], {
			'Work Ledger Trigger': ['Tell'],
			Tell: ['Complete Work'],
		}),
	);
	await invoiceServer.behave(letters, { hold: true });
	const letter = await makeFailed(letters, letters, 'for good');
	await invoiceServer.invoiceHeld(letters);
	const [telling1] = await queue.executions(letters);
	const byWorker = await order<Record<string, string[]>>('/queue/executions');
	const [doomed] = Object.entries(byWorker).find(([, ids]) => ids.includes(telling1.id)) ?? [''];
	// retries, until one runs on the worker that will be killed
	const held: Array<{ key: string; workId: string }> = [];
	let isThere = false;
	while (!isThere) {
		const key = `${retries}-${held.length}`;
		await invoiceServer.behave(key, { hold: true });
		held.push({ key, workId: await makeFailed(retries, key, 'due') });
		await invoiceServer.invoiceHeld(key);
		const [newest] = await queue.executions(retries);
		isThere = (await order<Record<string, string[]>>('/queue/executions'))[doomed].includes(
			newest.id,
		);
	}
	await order(`/queue/kill-worker?execution=${telling1.id}`);
	for (const key of [letters, ...held.map((each) => each.key)]) await invoiceServer.release(key);

	const lost = held[held.length - 1];
	await untilDecided(letter, 'announce', 'waiting');
	await untilDecided(lost.workId, 'fail', 'failed');
	await delayIsOver(letter);
	await untilDecided(letter, 'announce', 'acknowledged');
	expect(await announced(letter)).toEqual(['handed_out', 'waiting', 'handed_out', 'acknowledged']);
	for (const { workId } of held) await untilDecided(workId, 'complete', 'completed');
	expect(await invoiceServer.calls(lost.key)).toBe(2);
});
