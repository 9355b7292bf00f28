import net from 'node:net';

/** A TCP proxy in front of PostgreSQL that can lose an answer after the server has given it. */
export interface CuttableProxy {
	port: number;
	/** Answers lost so far. */
	lost: number;
	/**
	 * Loses the answer to the next statement that holds this text, and its connection.
	 *
	 * @param missing So many bytes of its end; without it, all of it.
	 */
	loseAnswerTo(text: string, missing?: number): void;
	/** Answers this many new connections, from the next loss on, as a server that is starting up does (57P03). */
	thenStartUpFor(connections: number): void;
	close(): Promise<void>;
}

/** PostgreSQL's ErrorResponse, as it stands in the protocol. */
const STARTING_UP = (() => {
	const fields = Buffer.from('SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0');
	const header = Buffer.alloc(5, 'E');
	header.writeInt32BE(fields.length + 4, 1);
	return Buffer.concat([header, fields]);
})();

/** ReadyForQuery outside a transaction: the end of each answer. */
const READY = Buffer.from('Z\0\0\0\x05I');

/** A text with a name is sent once per connection, with it (PostgreSQL's Parse), and afterwards the name alone. */
function namedIn(data: Buffer): Array<[string, string]> {
	const found = data.toString('latin1').matchAll(/(idempotency [0-9a-f]{40})\0([^\0]+)\0/g);
	return [...found].map(([, name, text]) => [name, text]);
}

function holds(data: Buffer, wanted: string, texts: Map<string, string>): boolean {
	if (data.includes(wanted)) return true;
	return [...texts].some(([name, text]) => text.includes(wanted) && data.includes(name));
}

/** @param port Where it listens; 0: any free port. */
export async function startProxy(
	target: { host: string; port: number },
	port = 0,
): Promise<CuttableProxy> {
	let armed: string | null = null;
	let missing = Infinity;
	let startUps = 0;
	const sockets = new Set<net.Socket>();
	const server = net.createServer((client) => {
		if (proxy.lost > 0 && startUps > 0) {
			startUps -= 1;
			client.on('error', () => {});
			client.once('data', () => client.end(STARTING_UP));
			return;
		}
		const upstream = net.connect(target.port, target.host);
		const texts = new Map<string, string>();
		let losing = false;
		let answer = Buffer.alloc(0);
		for (const socket of [client, upstream]) {
			sockets.add(socket);
			socket.on('error', () => {});
		}
		client.on('data', (data) => {
			for (const [name, text] of namedIn(data)) texts.set(name, text);
			if (armed !== null && holds(data, armed, texts)) {
				armed = null;
				losing = true;
			}
			upstream.write(data);
		});
		upstream.on('data', (data) => {
			if (!losing) {
				client.write(data);
				return;
			}
			// outside a transaction the server answers after its commit
			answer = Buffer.concat([answer, data]);
			if (missing < Infinity && !answer.includes(READY, answer.length - READY.length)) return;
			proxy.lost += 1;
			if (missing < Infinity) client.end(answer.subarray(0, answer.length - missing));
			else client.destroy();
			upstream.destroy();
		});
		client.on('close', () => upstream.destroy());
		upstream.on('close', () => client.destroy());
	});
	await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
	const proxy: CuttableProxy = {
		port: (server.address() as net.AddressInfo).port,
		lost: 0,
		loseAnswerTo(text, last = Infinity) {
			armed = text;
			missing = last;
		},
		thenStartUpFor(connections) {
			startUps = connections;
		},
		async close() {
			for (const socket of sockets) socket.destroy();
			await new Promise((resolve) => server.close(resolve));
		},
	};
	return proxy;
}
