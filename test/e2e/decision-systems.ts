/** What the examples about decisions act on: a help desk with cases, and systems that take tickets and actions. */

import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Case {
	case_id: string;
	order_id: string;
	text: string;
}

/** A call that made something, as it came. */
interface Made {
	/** `tickets` or `actions`. */
	collection: string;
	/** The body, byte for byte. */
	text: string;
	id: string;
	key: string;
}

/**
 * Takes no notice of idempotency keys: every call makes another ticket or action, so that what is done twice shows.
 *
 *     POST /api/tickets  { … } → 201 { ticket_id }        POST /api/actions  { … } → 201 { action_id }
 *     GET  /api/cases/:id      → the case
 */
export async function startDecisionSystems() {
	const made: Made[] = [];
	const cases = new Map<string, Case>();

	const server = createServer((request, response) => {
		void (async () => {
			const chunks: Buffer[] = [];
			for await (const chunk of request) chunks.push(chunk as Buffer);
			const [, , collection, id] = (request.url ?? '').split('/').map(decodeURIComponent);
			const reply = (status: number, body: unknown) => {
				response.writeHead(status, { 'content-type': 'application/json' });
				response.end(JSON.stringify(body));
			};
			if (request.method === 'GET') {
				const found = collection === 'cases' ? cases.get(id) : undefined;
				reply(found === undefined ? 404 : 200, found ?? { message: 'no such case' });
				return;
			}
			const one: Made = {
				collection,
				text: Buffer.concat(chunks).toString('utf8'),
				id: `${collection}-${made.length + 1}`,
				key: String(request.headers['idempotency-key']),
			};
			made.push(one);
			reply(201, { [collection === 'tickets' ? 'ticket_id' : 'action_id']: one.id });
		})();
	});
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
	return {
		url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
		addCase: (one: Case) => void cases.set(one.case_id, one),
		/** What was made of this collection whose body holds the text. */
		made: (collection: 'tickets' | 'actions', text: string) =>
			made.filter((one) => one.collection === collection && one.text.includes(text)),
		close: async () => {
			server.closeAllConnections();
			await new Promise((resolve) => server.close(resolve));
		},
	};
}
