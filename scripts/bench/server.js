'use strict';

const { startPostgres } = require('../embedded-postgres');

/** The client's default, and that of the pools beside it. */
const POOL_SIZE = 10;

/**
 * @typedef {object} BenchServer
 * @property {{ host: string, port: number, user: string, password: string, database: string }} access
 * @property {string} version
 * @property {() => import('pg').Pool} newPool Ends with the server.
 * @property {import('pg').Pool} upkeep
 * @property {import('../embedded-postgres').RunningPostgres} postgres
 */

/**
 * An embedded PostgreSQL for one part of the bench. Vacuum, analyze and checkpoints are done by hand,
 * outside the measured time.
 *
 * @template T
 * @param {(server: BenchServer, closers: (() => Promise<void>)[]) => Promise<T>} work `closers` run
 *   when it is over, whatever came of it, the last added first.
 * @returns {Promise<T>}
 */
async function withServer(work) {
	const { Pool } = require('pg');
	const postgres = await startPostgres({ settings: { autovacuum: 'off', max_wal_size: '8GB' } });
	const { host, port, user, password, database } = postgres;
	const access = { host, port, user, password, database };
	/** @type {(() => Promise<void>)[]} */
	const closers = [() => postgres.stop()];
	const newPool = () => {
		const pool = new Pool({
			...access,
			max: POOL_SIZE,
			idleTimeoutMillis: 30_000,
			keepAlive: true,
		});
		// The server may end before the last idle connection has said goodbye.
		pool.on('error', () => undefined);
		closers.push(() => pool.end());
		return pool;
	};
	try {
		const upkeep = newPool();
		const { rows } = await upkeep.query('show server_version');
		const version = rows[0].server_version.split(' ')[0];
		return await work({ access, version, newPool, upkeep, postgres }, closers);
	} finally {
		for (const close of closers.reverse()) await close();
	}
}

module.exports = { POOL_SIZE, withServer };
