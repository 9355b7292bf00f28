import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { chownSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';

import { freePort } from '../../scripts/embedded-postgres';
import { createTestFolder, type PostgresConfig } from '../postgres/database';

export interface PgBouncer {
	/** As the server's own settings, with the pooler's port. */
	config: PostgresConfig;
	/** A connection to its console; it takes `show servers` and the like. */
	console(): Promise<Client>;
	stop(): Promise<void>;
}

/** The server connections a pooler of this test may open. */
export const SERVER_CONNECTIONS = 2;

/**
 * PgBouncer in transaction mode in front of a server, refusing every startup parameter that it refuses by default.
 *
 * @throws {Error} that names the command where the program is missing
 */
export async function startPgBouncer(server: PostgresConfig): Promise<PgBouncer> {
	// Debian installs it where only root's PATH looks
	const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` };
	if (spawnSync('pgbouncer', ['--version'], { env }).error) {
		throw new Error(
			'PgBouncer is missing. On Debian or Ubuntu: apt-get install -y --no-install-recommends pgbouncer',
		);
	}
	const folder = createTestFolder('pgbouncer');
	const port = await freePort();
	const file = (name: string) => path.join(folder, name);
	writeFileSync(file('users'), `"${server.user}" "${server.password}"\n`, { mode: 0o600 });
	writeFileSync(
		file('pgbouncer.ini'),
		`[databases]
* = host=${server.host} port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${file('users')}
admin_users = ${server.user}
pool_mode = transaction
default_pool_size = ${SERVER_CONNECTIONS}
max_db_connections = ${SERVER_CONNECTIONS}
max_client_conn = 200
logfile = ${file('log')}
`,
	);
	// it refuses to run as root
	const account = process.getuid?.() === 0 ? accountOf('nobody') : null;
	if (account !== null)
		for (const name of ['', 'users', 'pgbouncer.ini'])
			chownSync(file(name), account.uid, account.gid);
	const child = spawn('pgbouncer', ['--quiet', file('pgbouncer.ini')], {
		stdio: 'ignore',
		env,
		...(account ?? {}),
	});
	const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
	const config = { ...server, port };
	const openConsole = async () => {
		const client = new Client({ ...config, database: 'pgbouncer' });
		client.on('error', () => {});
		await client.connect();
		return client;
	};
	for (;;) {
		const client = await openConsole().catch((error: { code?: string }) => {
			if (error.code === 'ECONNREFUSED' && child.exitCode === null) return null;
			throw new Error(
				`PgBouncer did not start: ${String(error)}\n${readFileSync(file('log'), 'utf8')}`,
			);
		});
		if (client !== null) {
			await client.end();
			break;
		}
	}
	return {
		config,
		console: openConsole,
		async stop() {
			child.kill('SIGKILL');
			await ended;
		},
	};
}

function accountOf(name: string): { uid: number; gid: number } {
	const id = (flag: string) => Number(execFileSync('id', [flag, name], { encoding: 'utf8' }));
	return { uid: id('-u'), gid: id('-g') };
}
