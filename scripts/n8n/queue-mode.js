'use strict';

/**
 * n8n in queue mode, as larger installations run it: one main that answers webhooks, two workers
 * that execute, a Redis between them. Three processes with a user folder, a copy of this package
 * and a port each; the workers' are their health checks'.
 */

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');

const { N8nInstance } = require('./instance');
const { freePort } = require('./ports');
const { startRedis } = require('./redis');

const WORKERS = ['worker-1', 'worker-2'];

/**
 * A dead worker's jobs are found stalled within seconds, not within Bull's usual minute. (n8n itself
 * gives a stalled execution 30 s more before it fails it, which no setting changes.)
 */
const STALLED = {
	QUEUE_WORKER_LOCK_DURATION: '10000',
	QUEUE_WORKER_LOCK_RENEW_TIME: '3000',
	QUEUE_WORKER_STALLED_INTERVAL: '3000',
};

/**
 * @param {object} options
 * @param {import('./runtime').Runtime} options.runtime
 * @param {string} options.folder Where all user folders live.
 * @param {string} options.installedNodes An `.n8n/nodes` folder with this package, which is copied.
 * @param {import('./instance').InstanceSettings['postgres']} options.postgres
 * @param {(line: string) => void} options.report
 */
async function startQueueMode({ runtime, folder, installedNodes, postgres, report }) {
	const redis = await startRedis(path.join(folder, 'redis'));
	const mainPort = await freePort();
	const env = {
		EXECUTIONS_MODE: 'queue',
		QUEUE_BULL_REDIS_HOST: '127.0.0.1',
		QUEUE_BULL_REDIS_PORT: String(redis.port),
		// All of them read the same credentials.
		N8N_ENCRYPTION_KEY: crypto.randomBytes(24).toString('base64url'),
		// A worker writes the addresses at which a waiting execution goes on.
		WEBHOOK_URL: `http://127.0.0.1:${mainPort}/`,
		...STALLED,
	};
	/** @param {string} name @param {'main' | 'worker'} role @param {number} port */
	const create = (name, role, port) => {
		const own = path.join(folder, name);
		fs.cpSync(installedNodes, path.join(own, '.n8n', 'nodes'), { recursive: true });
		return { name, n8n: new N8nInstance({ runtime, folder: own, port, postgres, role, env }) };
	};
	const main = create('main', 'main', mainPort);
	const workers = await Promise.all(
		WORKERS.map(async (name) => create(name, 'worker', await freePort())),
	);
	// Killed, as nothing of them is kept; together, as each would take its time.
	const stop = async () => {
		await Promise.all([main, ...workers].map(({ n8n }) => n8n.kill()));
		await redis.stop();
	};
	try {
		report('queue mode: starting a main and two workers');
		// n8n lets one of them migrate its database, and the others wait for that.
		await Promise.all([main, ...workers].map(({ n8n }) => n8n.start(report)));
		report('queue mode: ready');
	} catch (error) {
		await stop();
		throw error;
	}

	/** @param {{ n8n: N8nInstance }} worker @returns {string[]} Ids of the executions it began. */
	const executionsOf = ({ n8n }) =>
		[...fs.readFileSync(n8n.logFile, 'utf8').matchAll(/Worker started execution (\d+) /g)].map(
			([, id]) => id,
		);

	return {
		client: main.n8n.client,
		/** @returns {Record<string, string[]>} Ids of the executions that each worker began. */
		executions: () =>
			Object.fromEntries(workers.map((worker) => [worker.name, executionsOf(worker)])),
		/** @param {string} executionId Kills the worker that began it, as a crash would. */
		async killWorkerOf(executionId) {
			const worker = workers.find((one) => executionsOf(one).includes(executionId));
			if (worker === undefined) throw new Error(`no worker began execution ${executionId}`);
			await worker.n8n.kill();
		},
		/** Starts the workers that were killed, with the folders they had. */
		async startDeadWorkers() {
			const dead = workers.filter(({ n8n }) => !n8n.running);
			await Promise.all(dead.map(({ n8n }) => n8n.start(report)));
		},
		/**
		 * Starts a worker anew, as from another image: with this package, or without it.
		 *
		 * @param {string} name
		 * @param {boolean} withPackage
		 */
		async restartWorker(name, withPackage) {
			const worker = workers.find((one) => one.name === name);
			if (worker === undefined) throw new Error(`no worker is called ${name}`);
			await worker.n8n.kill();
			const nodes = path.join(folder, name, '.n8n', 'nodes');
			fs.rmSync(nodes, { recursive: true, force: true });
			if (withPackage) fs.cpSync(installedNodes, nodes, { recursive: true });
			await worker.n8n.start(report);
		},
		stop,
	};
}

module.exports = { startQueueMode };
