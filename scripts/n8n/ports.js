'use strict';

const crypto = require('node:crypto');
const net = require('node:net');

/**
 * @param {number} port
 * @returns {Promise<number | null>} The port, or null when somebody else listens on it.
 */
function tryPort(port) {
	return new Promise((resolve, reject) => {
		const server = net.createServer();
		server.once('error', (/** @type {NodeJS.ErrnoException} */ error) => {
			if (error.code === 'EADDRINUSE' || error.code === 'EACCES') resolve(null);
			else reject(error);
		});
		server.listen(port, '127.0.0.1', () => {
			const { port: found } = /** @type {net.AddressInfo} */ (server.address());
			server.close(() => resolve(found));
		});
	});
}

/**
 * A port nobody listens on right now. Not one of those that the system gives away (port 0): until n8n listens, half a
 * minute later, any connection of anybody may be given it.
 *
 * @returns {Promise<number>}
 */
async function freePort() {
	for (;;) {
		const port = await tryPort(crypto.randomInt(10_000, 20_000));
		if (port !== null) return port;
	}
}

/**
 * A wished port is taken as it is or refused; a default one gives way to the next free one.
 *
 * @param {{ what: string, flag: string, wished: number | null, usual: number, not?: number[] }} need
 *   `not`: ports already given away in this run, on which nobody listens yet.
 * @param {(line: string) => void} report
 * @returns {Promise<number>}
 */
async function choosePort({ what, flag, wished, usual, not = [] }, report) {
	if (wished !== null) {
		if (!not.includes(wished) && (await tryPort(wished)) !== null) return wished;
		throw new Error(
			`${what}: port ${wished} (${flag}) is taken; choose another one or leave it out`,
		);
	}
	for (let port = usual; port < usual + 50; port++) {
		if (not.includes(port) || (await tryPort(port)) === null) continue;
		if (port !== usual) report(`${what}: port ${usual} is taken, using ${port} (${flag} sets it)`);
		return port;
	}
	return await freePort();
}

module.exports = { choosePort, freePort };
