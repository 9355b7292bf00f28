'use strict';

const crypto = require('node:crypto');
const net = require('node:net');
const { setTimeout: delay } = require('node:timers/promises');

const PATIENCE_MS = 30 * 60_000;

/**
 * Waits until no other run holds this folder. The turn is a listening port made from the folder's name: two can never
 * hold it, and it ends with the process however that dies, which no file does.
 *
 * @param {string} folder
 * @param {(line: string) => void} report
 * @returns {Promise<() => void>} Ends the turn.
 * @throws {Error} when the port is still taken after half an hour
 */
async function takeTurn(folder, report) {
	const port =
		20_000 + (crypto.createHash('sha256').update(folder).digest().readUInt16BE() % 10_000);
	const since = Date.now();
	for (let told = false; ; told = true) {
		const server = await listen(port);
		if (server !== null) return () => server.close();
		if (Date.now() - since > PATIENCE_MS) {
			throw new Error(`port ${port}, by which runs in ${folder} take turns, is still taken`);
		}
		if (!told) report('another run uses this folder: waiting for its end');
		await delay(1_000);
	}
}

/**
 * @param {number} port
 * @returns {Promise<net.Server | null>} null where somebody else listens.
 */
function listen(port) {
	return new Promise((resolve, reject) => {
		const server = net.createServer();
		server.once('error', (/** @type {NodeJS.ErrnoException} */ error) => {
			if (error.code === 'EADDRINUSE') resolve(null);
			else reject(error);
		});
		server.listen(port, '127.0.0.1', () => resolve(server.unref()));
	});
}

module.exports = { takeTurn };
