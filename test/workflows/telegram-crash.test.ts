import { spawn } from 'node:child_process';
import path from 'node:path';

import { startTelegramServer } from '../../scripts/n8n/telegram-server';
import { Stage } from '../integration/stage';
import { Sending } from '../../nodes/SendOnceTelegram/sending';
import { TelegramApi } from '../../nodes/SendOnceTelegram/telegram-api';
import { createLedger, type LedgerSettings } from '../../ledger';
import { startProxy } from '../integration/cuttable-proxy';
import { outgoing, type SenderJob } from './telegram-process';

/** A worker killed at every named point and at random ones; the platform delivers its whole batch once more. */

let stage: Stage;
let server: Awaited<ReturnType<typeof startTelegramServer>>;
beforeAll(async () => {
	stage = await Stage.open();
	server = await startTelegramServer();
});
afterEach(() => {
	server.reset();
});
afterAll(async () => {
	await server.close();
	await stage.close();
});

let batches = 0;
const newBatch = (count: number) => {
	batches += 1;
	return Array.from({ length: count }, (_, i) => String(batches * 10_000 + i));
};

type Statuses = Map<string, string>;

/** A worker with a batch; `results` rejects when it is killed. */
function worker(chats: string[], more: Partial<SenderJob> = {}) {
	const job: SenderJob = {
		settings: stage.settings,
		url: server.url,
		token: '815:secret-of-the-bot',
		chats,
		text: 'Good night',
		rate: 10_000,
		...more,
	};
	const child = spawn(
		process.execPath,
		[
			'--require',
			path.join(__dirname, '../environments/load-typescript.js'),
			path.join(__dirname, 'telegram-process.ts'),
			JSON.stringify(job),
		],
		{ stdio: ['ignore', 'pipe', 'inherit'] },
	);
	let output = '';
	child.stdout.on('data', (piece: Buffer) => (output += piece.toString()));
	const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
	return {
		results: async (): Promise<Statuses> => {
			await ended;
			return new Map(JSON.parse(output) as Array<[string, string]>);
		},
		kill: async () => {
			child.kill('SIGKILL');
			await ended;
		},
	};
}

/** The dead worker's leases end; its statements, should one still wait, are gone with it. */
async function leasesEnd(): Promise<void> {
	await stage.query(
		`update idempotency.sent_messages set locked_until = clock_timestamp() - interval '1 second'
		where state in ('reserved', 'sending')`,
	);
}

const countOf = (statuses: Statuses) => {
	const counts: Record<string, number> = {};
	for (const status of statuses.values()) counts[status] = (counts[status] ?? 0) + 1;
	return counts;
};

const copies = (chats: string[]) => chats.map((chat) => server.deliveries(chat).length);

/** No chat has two; who has none is listed as unknown; and what is listed as unknown is the one that was under way. */
async function expectNoneTwice(chats: string[], repeated: Statuses): Promise<void> {
	const delivered = copies(chats);
	expect(Math.max(...delivered)).toBe(1);
	const unknown = await stage.ledger.messages.list({ states: ['unknown'] }, 1_000);
	const listed = new Set(unknown.messages.map(({ chatId }) => chatId));
	chats.forEach((chat, i) => {
		if (delivered[i] === 0) expect(listed).toContain(chat);
		expect(repeated.get(chat)).toMatch(listed.has(chat) ? /^unknown$/ : /^(sent|duplicate)$/);
	});
	expect(chats.filter((chat) => listed.has(chat)).length).toBeLessThanOrEqual(1);
}

test('killed after it reserved: all go out with the repetition', async () => {
	const chats = newBatch(20);
	const client = await stage.connect();
	// its first mark waits for the pacing row
	await client.query(`insert into idempotency.message_pacing values ('815', clock_timestamp()) on conflict do nothing`);
	await client.query('begin');
	await client.query('select 1 from idempotency.message_pacing for update');
	const first = worker(chats);
	await stage.untilWaiting(1);
	await first.kill();
	// PostgreSQL does not notice that the client of a waiting statement has died; in life its connection is cut
	await stage.query(
		`select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock'`,
	);
	await client.query('commit');
	await leasesEnd();
	const second = await worker(chats).results();
	expect(countOf(second)).toEqual({ sent: 20 });
	expect(new Set(copies(chats))).toEqual(new Set([1]));
}, 60_000);

test.each([
	['after it marked a message, before the message is out', { hold: true, deliver: false }, 0],
	['after a message is out, before it is recorded', { hold: true }, 1],
])('killed %s: that one is unknown, the others go out', async (_, behaviour, delivered) => {
	const chats = newBatch(20);
	server.behave(chats[7], behaviour);
	const first = worker(chats);
	await server.held(chats[7]);
	await first.kill();
	server.release(chats[7]);
	// not before its lease has ended: it might be alive
	const early = await worker(chats).results();
	expect(countOf(early)).toEqual({ duplicate: 7, in_progress: 13 });
	await leasesEnd();
	const second = await worker(chats).results();
	expect(countOf(second)).toEqual({ duplicate: 7, unknown: 1, sent: 12 });
	expect(second.get(chats[7])).toBe('unknown');
	expect(copies(chats)).toEqual(chats.map((_chat, i) => (i === 7 ? delivered : 1)));
	await expectNoneTwice(chats, second);
}, 60_000);

test('400 items to 400 chats, killed at random points, repeated: no chat gets two', async () => {
	for (let round = 0; round < 2; round++) {
		const chats = newBatch(400);
		const after = 1 + Math.floor(Math.random() * 395);
		const first = worker(chats);
		// the chat at whose delivery it dies, a moment sooner or later
		server.behave(chats[after], { hold: Math.random() < 0.5 });
		while (server.calls(chats[after]).length === 0) await stage.query('select pg_sleep(0.005)');
		await first.kill();
		server.release(chats[after]);
		await leasesEnd();
		const second = await worker(chats).results();
		expect(second.size).toBe(400);
		await expectNoneTwice(chats, second);
		const third = await worker(chats).results();
		expect(countOf(third).sent).toBeUndefined();
		expect(Math.max(...copies(chats))).toBe(1);
	}
}, 240_000);

test('two workers drain one list while every fifth call is answered 429: each message exactly once', async () => {
	const chats = newBatch(100);
	server.behave('*', {
		every: 5,
		fail: { code: 429, description: 'Too Many Requests: retry after 1', parameters: { retry_after: 1 } },
	});
	const both = await Promise.all([worker(chats).results(), worker([...chats].reverse()).results()]);
	const again = await worker(chats).results();
	expect(copies(chats)).toEqual(chats.map(() => 1));
	for (const chat of chats) {
		const statuses = both.map((one) => one.get(chat));
		// one sent it, the other was told so or left it alone
		expect(statuses.filter((status) => status === 'sent')).toHaveLength(1);
		expect(again.get(chat)).toBe('duplicate');
	}
	expect(server.calls().filter(({ outcome }) => outcome === '429').length).toBeGreaterThan(20);
}, 120_000);

test('workers together stay below the bot’s rate', async () => {
	const [one, two] = [newBatch(15), newBatch(15)];
	const pace = { rate: 20 };
	const [first, second] = await Promise.all([
		worker(one, pace).results(),
		worker(two, pace).results(),
	]);
	expect([countOf(first), countOf(second)]).toEqual([{ sent: 15 }, { sent: 15 }]);
	const [{ span }] = await stage.query<{ span: number }>(
		`select extract(epoch from max(sending_at) - min(sending_at))::float8 as span
		from idempotency.sent_messages where chat_id = any($1)`,
		[[...one, ...two]],
	);
	// 30 messages are 29 turns of 50 ms
	expect(span).toBeGreaterThan(1.4);
}, 60_000);

/** The same in this process, on a ledger of its own. */
async function sendHere(chats: string[], settings: LedgerSettings, signal?: AbortSignal) {
	const ledger = createLedger(settings);
	const api = new TelegramApi({ accessToken: '815:secret-of-the-bot', baseUrl: server.url });
	const pace = { rate: 10_000, maxWaitSeconds: 60, timeoutSeconds: 30 };
	const sending = new Sending(ledger.messages, api, pace, {}, signal);
	const messages = chats.map((chat, i) => outgoing(chat, 'Good night', i));
	const results = await sending.sendAll(messages);
	api.close();
	await ledger.close();
	return messages.map((message) => results.get(message)?.status);
}

test.each(['reserve_messages', 'mark_message', 'settle_message'])(
	'the answer to %s is lost, and the call sent again: each message exactly once',
	async (call) => {
		const chats = newBatch(5);
		const proxy = await startProxy(stage.database.config);
		try {
			proxy.loseAnswerTo(`.${call}(`);
			const statuses = await sendHere(chats, { ...stage.settings, port: proxy.port });
			expect(proxy.lost).toBe(1);
			expect(statuses).toEqual(chats.map(() => 'sent'));
			expect(copies(chats)).toEqual(chats.map(() => 1));
		} finally {
			await proxy.close();
		}
	},
);

test('the answer to a mark is lost and the ledger stays away: nothing was sent, and all are free at once', async () => {
	const chats = newBatch(3);
	const proxy = await startProxy(stage.database.config);
	try {
		proxy.loseAnswerTo('.mark_message(');
		// all further tries of that call
		proxy.thenStartUpFor(4);
		const statuses = await sendHere(chats, { ...stage.settings, port: proxy.port });
		expect(statuses).toEqual(['error', 'error', 'error']);
	} finally {
		await proxy.close();
	}
	expect(copies(chats)).toEqual([0, 0, 0]);
	expect(await sendHere(chats, stage.settings)).toEqual(['sent', 'sent', 'sent']);
}, 60_000);

test('a cancelled execution stops waiting, and what it did not send is free at once', async () => {
	const chats = newBatch(3);
	server.behave(chats[1], {
		times: 1,
		fail: { code: 429, description: 'Too Many Requests', parameters: { retry_after: 50 } },
	});
	const cancel = new AbortController();
	const sent = sendHere(chats, stage.settings, cancel.signal);
	while (server.deliveries(chats[2]).length === 0) await stage.query('select pg_sleep(0.005)');
	cancel.abort();
	expect(await sent).toEqual(['sent', 'retry_later', 'sent']);
	await stage.query('update idempotency.message_chats set blocked_until = null');
	expect(await sendHere(chats, stage.settings)).toEqual(['duplicate', 'sent', 'duplicate']);
});
