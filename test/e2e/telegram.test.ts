/** Send-Once Telegram in n8n's queue mode, with two worker processes; see scripts/n8n/telegram-server.js. */

import { N8nClient } from '../../scripts/n8n/client';
import { startTelegramServer } from '../../scripts/n8n/telegram-server';
import { flow, type FlowNode } from './flow';
import {
	allExecutionsEnded,
	closeLedger,
	importCredentialOf,
	ledgerDatabase,
	order,
	queryLedger,
	until,
} from './stage';

const TOKEN = '4711:AAH-secret_of_the_bot';
let queue: N8nClient;
let server: Awaited<ReturnType<typeof startTelegramServer>>;

beforeAll(async () => {
	server = await startTelegramServer();
	queue = new N8nClient(await order<ConstructorParameters<typeof N8nClient>[0]>('/queue/start'));
}, 240_000);

afterAll(async () => {
	await server.close();
	await order('/queue/stop');
	await closeLedger();
});

/** Webhook → one item per chat → Send-Once Telegram; answers at once, as a queue that delivers would have it. */
async function importSender(route: string): Promise<string> {
	const telegram = await queue.importCredential({
		name: 'Bot',
		type: 'telegramApi',
		data: { accessToken: TOKEN, baseUrl: server.url },
	});
	const nodes: FlowNode[] = [
		{
			name: 'Webhook',
			type: 'n8n-nodes-base.webhook',
			typeVersion: 2,
			webhookId: route,
			parameters: { httpMethod: 'POST', path: route, responseMode: 'onReceived', options: {} },
		},
		{
			name: 'Chats',
			type: 'n8n-nodes-base.splitOut',
			typeVersion: 1,
			parameters: { fieldToSplitOut: 'body.chats', options: { destinationFieldName: 'chat' } },
		},
		{
			name: 'Telegram',
			type: 'n8n-nodes-idempotency.sendOnceTelegram',
			typeVersion: 1,
			credentials: {
				telegramApi: { id: '', name: '' },
				idempotencyLedgerApi: { id: '', name: '' },
			},
			parameters: { chatId: '={{ $json.chat }}', text: 'Server is down', options: { rate: 1000 } },
		},
	];
	const workflow = flow(route, nodes, { Webhook: ['Chats'], Chats: ['Telegram'] });
	const credentials = {
		...(await importCredentialOf(queue, 'Idempotency Ledger', ledgerDatabase)),
		telegramApi: telegram,
	};
	return await queue.importWorkflow(workflow, { credentials });
}

const chatsOf = (first: number, count: number) =>
	Array.from({ length: count }, (_, i) => String(first + i));

async function deliver(route: string, chats: string[]): Promise<void> {
	expect((await queue.webhook(route, { chats })).status).toBe(200);
}

/** By status, over all executions of the workflow that have ended well. */
async function outcomes(workflowId: string): Promise<Record<string, number>> {
	const counts: Record<string, number> = {};
	for (const execution of await queue.executions(workflowId)) {
		expect(
			JSON.stringify([0, 1, 2].map((output) => execution.json('Telegram', output))),
		).not.toContain('secret_of_the_bot');
		for (const output of [0, 1, 2]) {
			for (const { message } of execution.json('Telegram', output)) {
				counts[message.status] = (counts[message.status] ?? 0) + 1;
			}
		}
	}
	return counts;
}

const copies = (chats: string[]) => chats.map((chat) => server.deliveries(chat).length);

test('one list delivered four times in the same instant to two workers: every chat gets one message', async () => {
	const id = await importSender('telegram-pairs');
	const chats = chatsOf(10_000, 40);
	await Promise.all([1, 2, 3, 4].map(async () => await deliver('telegram-pairs', chats)));
	await until('four executions have begun', async () => (await queue.executions(id)).length === 4);
	await allExecutionsEnded(queue);
	expect(copies(chats)).toEqual(chats.map(() => 1));
	const counts = await outcomes(id);
	expect(counts.sent).toBe(40);
	expect(Object.values(counts).reduce((sum, count) => sum + count, 0)).toBe(160);
	// otherwise it was no race between processes
	const byWorker = Object.values(await order<Record<string, string[]>>('/queue/executions'));
	for (const executions of byWorker) expect(executions.length).toBeGreaterThan(0);
});

test('a worker is killed while a message is out and not recorded: that one is unknown, the others go out once (case 53)', async () => {
	const id = await importSender('telegram-killed');
	const chats = chatsOf(20_000, 20);
	server.behave(chats[9], { hold: true });
	await deliver('telegram-killed', chats);
	await server.held(chats[9]);
	const [{ execution }] = await queryLedger<{ execution: string }>(
		`select owner ->> 'execution' as execution from :schema.sent_messages where chat_id = $1`,
		[chats[9]],
	);
	await order(`/queue/kill-worker?execution=${execution}`);
	server.release(chats[9]);
	await queryLedger(
		`update :schema.sent_messages set locked_until = clock_timestamp() - interval '1 second'
		where state in ('reserved', 'sending')`,
	);
	await deliver('telegram-killed', chats);
	await until('the repetition has ended', async () =>
		(await queue.executions(id)).some(({ status }) => status === 'success'),
	);
	expect(await outcomes(id)).toEqual({ duplicate: 9, unknown: 1, sent: 10 });
	expect(copies(chats)).toEqual(chats.map(() => 1));
	expect(
		await queryLedger(`select chat_id from :schema.sent_messages where state = 'unknown'`),
	).toEqual([{ chat_id: chats[9] }]);
});
