'use strict';

const { execFile } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { promisify } = require('node:util');

const { KeptProcess } = require('./kept-process');
const { freePort } = require('./ports');

/**
 * A Redis on a free port of this machine that keeps nothing on disk: n8n's queue mode needs one.
 *
 * @param {string} folder For its log.
 * @returns {Promise<{ port: number, stop(): Promise<void> }>}
 * @throws {Error} When `redis-server` is not installed; the message names Debian's package.
 */
async function startRedis(folder) {
	try {
		await promisify(execFile)('redis-server', ['--version']);
	} catch {
		throw new Error(
			'redis-server was not found; the test of queue mode needs it: apt-get install redis-server',
		);
	}
	fs.mkdirSync(folder, { recursive: true });
	const port = await freePort();
	const server = new KeptProcess(path.join(folder, 'redis.log'));
	await server.start({
		what: 'Redis',
		command: 'redis-server',
		parameters: [
			...['--bind', '127.0.0.1', '--port', String(port), '--dir', folder],
			...['--save', '', '--appendonly', 'no', '--daemonize', 'no'],
		],
		folder,
		env: process.env,
		ready: 'Ready to accept connections',
	});
	return { port, stop: () => server.stop() };
}

module.exports = { startRedis };
