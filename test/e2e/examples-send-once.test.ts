/** send-once-over-any-channel.json: a channel without idempotency keys, played by a server that counts what it sent. */

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import { importShipped, nodeOf } from './shipped';
import { closeLedger, n8n, order, queryLedger, until } from './stage';

interface Message {
	to: string;
	text: string;
}

const sent: Message[] = [];
/** By recipient: answer with this status and send nothing; or send, and keep the answer. */
const behaviours = new Map<string, number | 'hold'>();
let server: Server;
let held: () => void = () => undefined;

beforeAll(async () => {
	server = createServer((request, response) => {
		let text = '';
		request.on('data', (piece) => (text += piece));
		request.on('end', () => {
			const message = JSON.parse(text) as Message;
			const behaviour = behaviours.get(message.to);
			behaviours.delete(message.to);
			if (typeof behaviour === 'number') {
				response.writeHead(behaviour, { 'content-type': 'application/json' });
				response.end('{"message":"refused"}');
				return;
			}
			sent.push(message);
			if (behaviour === 'hold') {
				held();
				return;
			}
			response.writeHead(200, { 'content-type': 'application/json' });
			response.end(JSON.stringify({ id: `msg-${sent.length}` }));
		});
	});
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
	const { port } = server.address() as AddressInfo;
	await importShipped('send-once-over-any-channel.json', (workflow) => {
		nodeOf(workflow, 'Send Notice').parameters.url = `http://127.0.0.1:${port}/messages`;
		Object.assign(nodeOf(workflow, 'Claim Work').parameters.options as object, { leaseSeconds: 2 });
	});
});

afterAll(async () => {
	server.closeAllConnections();
	await new Promise((resolve) => server.close(resolve));
	await closeLedger();
});

const deliver = async (to: string, text = 'Your parcel is on its way') =>
	await n8n.webhook('send-notice', { notice_id: 7, to, text });
const sentTo = (to: string) => sent.filter((message) => message.to === to);
const read = async (to: string) =>
	(
		await queryLedger<{ state: string; attempt: number; outcome_known: boolean }>(
			`select state, attempt, outcome_known from :schema.work_log where kind = 'notice' and key like $1`,
			[`%${to}%`],
		)
	)[0];

test('delivered twice in the same instant it is sent once, with its fingerprint; later the first message is named', async () => {
	const answers = await Promise.all([deliver('anna'), deliver('anna')]);
	expect(answers.map(({ body }) => body.status)).toContain('sent');
	const again = await deliver('anna');
	expect(again).toMatchObject({ status: 200, body: { status: 'sent_before', messageId: 'msg-1' } });
	const [{ fingerprint }] = await queryLedger<{ fingerprint: string }>(
		`select left(work_id, 10) as fingerprint from :schema.work_log where kind = 'notice' and key like '%anna%'`,
	);
	expect(sentTo('anna').map(({ text }) => text)).toEqual([
		`Your parcel is on its way\n\nRef. ${fingerprint}`,
	]);
	expect(await read('anna')).toEqual({ state: 'done', attempt: 1, outcome_known: true });
});

test('another text under the same notice is not sent as if it were the same', async () => {
	await deliver('otto');
	const other = await deliver('otto', 'Your parcel is lost');
	expect(other).toMatchObject({ status: 409, body: { status: 'mismatch' } });
	expect(sentTo('otto')).toHaveLength(1);
});

test('a refused address was certainly not sent: it is due again later, not held', async () => {
	behaviours.set('nobody', 422);
	expect(await deliver('nobody')).toMatchObject({ status: 502, body: { status: 'not_sent' } });
	expect(sentTo('nobody')).toEqual([]);
	expect(await read('nobody')).toEqual({ state: 'failed', attempt: 1, outcome_known: true });
});

test('a server error may have been sent: held for a person, and not sent again', async () => {
	behaviours.set('maybe', 500);
	expect(await deliver('maybe')).toMatchObject({ status: 409, body: { status: 'held' } });
	expect(await deliver('maybe')).toMatchObject({ status: 409, body: { status: 'held' } });
	expect(await read('maybe')).toEqual({ state: 'held', attempt: 1, outcome_known: false });
});

test('n8n killed between send and record: the repetition is held, the reader has one message', async () => {
	behaviours.set('killed', 'hold');
	const isHeld = new Promise<void>((resolve) => {
		held = resolve;
	});
	const lost = deliver('killed').catch(() => null);
	await isHeld;
	await order('/n8n/kill');
	await lost;
	await order('/n8n/start');
	await until('its lease has ended', async () => {
		const [{ over }] = await queryLedger<{ over: boolean }>(
			`select locked_until < clock_timestamp() as over from :schema.work_log
			where kind = 'notice' and key like '%killed%'`,
		);
		return over;
	});
	const again = await deliver('killed');
	expect(again).toMatchObject({ status: 409, body: { status: 'held' } });
	expect(sentTo('killed')).toHaveLength(1);
	expect(await read('killed')).toEqual({ state: 'held', attempt: 1, outcome_known: false });
});
