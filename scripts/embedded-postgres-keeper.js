'use strict';

/**
 * Stands between the process that asked for a PostgreSQL server and the server itself, in a
 * session of its own. A Ctrl-C in the terminal therefore never hits the server directly, and a
 * parent that dies, even by SIGKILL, closes the pipe on this process's stdin: the server is then
 * shut down and a temporary folder removed. Started only by `embedded-postgres.js`.
 */

const { spawn } = require('node:child_process');
const fs = require('node:fs');

/**
 * @typedef {object} KeeperJob
 * @property {string} binary
 * @property {string[]} parameters
 * @property {string} dataFolder
 * @property {string} logFile
 * @property {number | null} uid the account the server runs as; `null`: this one
 * @property {number | null} gid
 * @property {string | null} removeFolder removed once the server has ended
 */

/** After this long a server that was asked to shut down is made to. */
const SHUTDOWN_MS = 15_000;

const job = /** @type {KeeperJob} */ (JSON.parse(process.argv[2] ?? ''));
const log = fs.openSync(job.logFile, 'a');
const server = spawn(job.binary, job.parameters, {
	cwd: job.dataFolder,
	env: { PATH: process.env.PATH, TZ: process.env.TZ, LC_ALL: 'C' },
	stdio: ['ignore', log, log],
	...(job.uid === null ? {} : { uid: job.uid, gid: job.gid ?? undefined }),
});

let stopping = false;

/** @param {NodeJS.Signals} signal SIGINT ends sessions and writes a checkpoint, SIGQUIT does not */
function stop(signal) {
	if (stopping) return;
	stopping = true;
	server.kill(signal);
	setTimeout(() => server.kill('SIGQUIT'), SHUTDOWN_MS).unref();
}

let order = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (text) => {
	order += text;
});
process.stdin.on('close', () => stop(order === 'crash' ? 'SIGQUIT' : 'SIGINT'));
process.stdin.on('error', () => stop('SIGINT'));
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
	process.on(signal, () => stop('SIGINT'));
}

/** @param {number} code */
function leave(code) {
	if (job.removeFolder !== null) fs.rmSync(job.removeFolder, { recursive: true, force: true });
	process.exit(code);
}

server.on('error', (error) => {
	fs.writeSync(log, `cannot run ${job.binary}: ${error.message}\n`);
	// Kept for the parent, which reads the log and then removes the folder itself.
	process.exit(1);
});
server.on('exit', (code) => {
	if (stopping) leave(0);
	else process.exit(code ?? 1);
});
