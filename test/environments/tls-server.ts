import { chmodSync, chownSync, copyFileSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';

import { startPostgres, type RunningPostgres } from '../../scripts/embedded-postgres';

const OF_SERVER = path.join(__dirname, '../integration/certificates');
const OF_CLIENTS = path.join(__dirname, 'certificates');

/** PEM text of a file of this folder's certificates. */
export const clientPem = (name: string) => readFileSync(path.join(OF_CLIENTS, name), 'utf8');
/** The authority that signed the server's certificate. */
export const serverAuthority = readFileSync(path.join(OF_SERVER, 'authority.pem'), 'utf8');

/** A server that takes only TLS, with rules that ask some roles for a client certificate. */
export async function startTlsServer(rules: string[]): Promise<{
	server: RunningPostgres;
	admin: Client;
	stop(): Promise<void>;
}> {
	const server = await startPostgres({ settings: { max_connections: 20 } });
	const admin = new Client(server);
	await admin.connect();
	const { rows } = await admin.query<{ folder: string; rules: string }>(
		`select current_setting('data_directory') as folder, current_setting('hba_file') as rules`,
	);
	const { uid, gid } = statSync(rows[0].folder);
	const files = [
		[path.join(OF_SERVER, 'server.pem'), 'server.pem'],
		[path.join(OF_SERVER, 'server.key'), 'server.key'],
		[path.join(OF_CLIENTS, 'client-authority.pem'), 'clients.pem'],
	];
	for (const [from, name] of files) {
		const to = path.join(rows[0].folder, name);
		copyFileSync(from, to);
		chownSync(to, uid, gid);
		chmodSync(to, 0o600);
	}
	writeFileSync(rows[0].rules, `${[...rules, 'hostssl all all all scram-sha-256'].join('\n')}\n`);
	for (const change of [
		`ssl_cert_file = 'server.pem'`,
		`ssl_key_file = 'server.key'`,
		`ssl_ca_file = 'clients.pem'`,
		'ssl = on',
	])
		await admin.query(`alter system set ${change}`);
	await admin.query('select pg_reload_conf()');
	while ((await admin.query<{ ssl: string }>('show ssl')).rows[0].ssl !== 'on')
		await admin.query('select pg_sleep(0.01)');
	return {
		server,
		admin,
		async stop() {
			await admin.end();
			await server.stop();
		},
	};
}
