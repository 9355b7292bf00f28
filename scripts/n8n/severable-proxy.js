'use strict';

const net = require('node:net');

/**
 * A TCP proxy that can be cut: it stands between n8n and the ledger's PostgreSQL, so that the
 * ledger can be unreachable while n8n's own database, in the same server, stays up.
 *
 * @param {{ host: string, port: number }} target
 * @returns {Promise<{ port: number, cut(): void, restore(): void, refused(): number,
 *   close(): Promise<void> }>} `cut` ends the open connections and refuses new ones until `restore`;
 *   `refused` counts those since the last cut.
 */
async function startSeverableProxy(target) {
	/** @type {Set<net.Socket>} */
	const sockets = new Set();
	let open = true;
	let refused = 0;
	const server = net.createServer((client) => {
		if (!open) {
			refused++;
			return void client.destroy();
		}
		const upstream = net.connect(target.port, target.host);
		for (const [one, other] of [
			[client, upstream],
			[upstream, client],
		]) {
			sockets.add(one);
			one.on('error', () => other.destroy());
			one.on('close', () => {
				sockets.delete(one);
				other.destroy();
			});
			one.pipe(other);
		}
	});
	await new Promise((resolve, reject) => {
		server.once('error', reject);
		server.listen(0, '127.0.0.1', () => resolve(undefined));
	});
	const drop = () => {
		for (const socket of sockets) socket.destroy();
	};
	return {
		port: /** @type {net.AddressInfo} */ (server.address()).port,
		cut() {
			open = false;
			refused = 0;
			drop();
		},
		restore() {
			open = true;
		},
		refused: () => refused,
		close: () =>
			new Promise((resolve) => {
				server.close(() => resolve());
				drop();
			}),
	};
}

module.exports = { startSeverableProxy };
