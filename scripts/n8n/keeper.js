'use strict';

/**
 * Stands between the process that asked for a server (n8n, Redis) and the server itself, as the
 * leader of their process group. When that process dies, however it happens, the pipe on this one's
 * standard input closes and the server is ended too; and when it ends, its children (n8n's task
 * runner) go with it. Started only by `kept-process.js`: keeper.js <command> <arguments…>
 */

const { spawn } = require('node:child_process');

const [command = '', ...parameters] = process.argv.slice(2);
const server = spawn(command, parameters, { stdio: ['ignore', 'inherit', 'inherit'] });

// These go to the whole group: the server ends by them, and this process when it has ended.
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
	process.on(signal, () => {});
}

const endGroup = () => process.kill(-process.pid, 'SIGKILL');
server.on('exit', endGroup);
server.on('error', (error) => {
	process.stderr.write(`${command} could not be started: ${error.message}\n`);
	process.exitCode = 1;
	process.stdin.destroy();
});

process.stdin.resume();
process.stdin.on('close', () => {
	server.kill('SIGTERM');
	setTimeout(endGroup, 5_000);
});
