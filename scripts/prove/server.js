'use strict';

/** The PostgreSQL of a prove, and the prove's own connection to it, which outlives a restart. */

const fs = require('node:fs');
const path = require('node:path');
const { Client } = require('pg');

const { startPostgres } = require('../embedded-postgres');
const { choosePort } = require('../n8n/ports');

/**
 * Below the ports that systems give to outgoing connections: while the server is down, one of those would else take its
 * port, and it could not come back.
 */
const FIRST_PORT = 15_400;
const PORTS = 4_000;

class Server {
	/** @param {string} folder */
	constructor(folder) {
		this.folder = path.join(folder, 'postgres');
		/** @type {import('../embedded-postgres').RunningPostgres | null} */
		this.postgres = null;
		/** @type {Client | null} */
		this.client = null;
		/** The restart that goes on. @type {Promise<void>} */
		this.restart = Promise.resolve();
		this.closed = false;
		/** As PostgreSQL counts them; a crash loses its counts, so they are read before. */
		this.deadlocks = 0;
	}

	/** @returns {Promise<{ host: string, port: number, user: string, password: string, database: string }>} */
	async start() {
		this.postgres = await startPostgres({
			dataFolder: this.folder,
			port: this.postgres?.port ?? (await freePort()),
			settings: { max_connections: 80 },
		});
		const { host, port, user, password, database } = this.postgres;
		this.client = new Client({ host, port, user, password, database });
		this.client.on('error', () => undefined);
		await this.client.connect();
		return { host, port, user, password, database };
	}

	/** As a machine without power: no checkpoint, every session cut off, recovery at the start. */
	async crash() {
		if (this.closed) return;
		this.restart = (async () => {
			await this.countDeadlocks();
			await this.postgres?.kill();
			await this.client?.end().catch(() => undefined);
			await this.start();
			// A crash loses what autovacuum has counted. With one every few seconds it would never come, and rows that change
			// all the time would keep their dead versions, and calls grow slower by the minute.
			await this.query('vacuum idempotency.work_log');
		})();
		await this.restart;
	}

	/** Adds what PostgreSQL has counted since its start. */
	async countDeadlocks() {
		const { rows } = await this.query('select sum(deadlocks)::integer as n from pg_stat_database');
		this.deadlocks += rows[0].n;
	}

	/** @param {string} text @param {unknown[]} [values] */
	async query(text, values) {
		if (this.client === null) throw new Error('PostgreSQL was not started.');
		return await this.client.query(text, values);
	}

	/** Ends it and removes its data. */
	async remove() {
		this.closed = true;
		await this.restart.catch(() => undefined);
		await this.client?.end().catch(() => undefined);
		await this.postgres?.kill();
		// for root it may lie elsewhere
		for (const folder of [this.folder, this.postgres?.folder]) {
			if (folder !== undefined) fs.rmSync(folder, { recursive: true, force: true });
		}
	}
}

async function freePort() {
	const usual = FIRST_PORT + (process.pid % PORTS);
	return await choosePort({ what: 'PostgreSQL', flag: '', wished: null, usual }, () => undefined);
}

module.exports = { Server };
