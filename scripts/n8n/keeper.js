'use strict';

/**
 * Stands between the process that asked for an n8n and n8n itself, as the leader of their process
 * group. When that process dies, however it happens, the pipe on this one's standard input closes
 * and n8n is ended too; and when n8n ends, its task runner goes with it. Started only by
 * `instance.js`: keeper.js <command> <arguments…>
 */

const { spawn } = require('node:child_process');

const [command = '', ...parameters] = process.argv.slice(2);
const n8n = spawn(command, parameters, { stdio: ['ignore', 'inherit', 'inherit'] });

// These go to the whole group: n8n ends by them, and this process when n8n has ended.
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
	process.on(signal, () => {});
}

const endGroup = () => process.kill(-process.pid, 'SIGKILL');
n8n.on('exit', endGroup);
n8n.on('error', (error) => {
	process.stderr.write(`${command} could not be started: ${error.message}\n`);
	process.exitCode = 1;
	process.stdin.destroy();
});

process.stdin.resume();
process.stdin.on('close', () => {
	n8n.kill('SIGTERM');
	setTimeout(endGroup, 5_000);
});
