import { chownSync, copyFileSync, chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';

import { startPostgres, type RunningPostgres } from '../../scripts/embedded-postgres';
import { checkLedger, createLedger, type Ledger, type LedgerSettings } from '../../ledger';
import { createTestFolder } from '../postgres/database';
import { CALLER, newWork, POLICY } from './stage';

const CERTIFICATES = path.join(__dirname, 'certificates');
const authority = readFileSync(path.join(CERTIFICATES, 'authority.pem'), 'utf8');
const stranger = readFileSync(path.join(CERTIFICATES, 'stranger.pem'), 'utf8');

/** A server of its own: few connections, TLS with a private authority, and it can be stopped. */
let server: RunningPostgres;
let admin: Client;
const dataFolder = createTestFolder('server');
const ledgers: Ledger[] = [];

function ledgerOn(change: Partial<LedgerSettings> = {}): Ledger {
	const { host, port, user, password, database } = server;
	const ledger = createLedger({ host, port, user, password, database, ...change });
	ledgers.push(ledger);
	return ledger;
}

async function encrypted(ledger: Ledger): Promise<boolean> {
	const [{ ssl }] = await ledger.connection.query<{ ssl: boolean }>(
		'select ssl from pg_stat_ssl where pid = pg_backend_pid()',
		[],
	);
	return ssl;
}

async function connectAdmin(): Promise<void> {
	admin = new Client(server);
	admin.on('error', () => {});
	await admin.connect();
}

beforeAll(async () => {
	server = await startPostgres({ dataFolder, settings: { max_connections: 20 } });
	await connectAdmin();
});
afterAll(async () => {
	await Promise.all(ledgers.map(async (ledger) => await ledger.close()));
	await admin.end();
	await server.stop();
});

test('150 claims and completions one after the other fit a server of 20 connections (case 30)', async () => {
	const ledger = ledgerOn({ maxConnections: 3 });
	let most = 0;
	for (let i = 0; i < 150; i++) {
		const item = newWork();
		const [claim] = await ledger.works.claim([item], POLICY);
		const [completion] = await ledger.works.complete([{ ...item, result: i }], CALLER);
		expect([claim.status, completion.status]).toEqual(['claimed', 'completed']);
		const { rows } = await admin.query<{ count: number }>(
			`select count(*)::int from pg_stat_activity where application_name = 'n8n-nodes-idempotency'`,
		);
		most = Math.max(most, rows[0].count);
	}
	expect(most).toBeGreaterThanOrEqual(1);
	expect(most).toBeLessThanOrEqual(3);
});

test('150 at once wait for a free connection instead of opening more (case 30)', async () => {
	const ledger = ledgerOn({ maxConnections: 3 });
	const answers = await Promise.all(
		Array.from({ length: 150 }, async (_, i) => {
			const item = newWork();
			const [claim] = await ledger.works.claim([item], POLICY);
			const [completion] = await ledger.works.complete([{ ...item, result: i }], CALLER);
			return [claim.status, completion.status];
		}),
	);
	expect(answers).toEqual(Array(150).fill(['claimed', 'completed']));
	expect(ledger.connection.openConnections).toBeLessThanOrEqual(3);
});

test('a server without a free connection is said so, and survived when one is free again', async () => {
	const clients: Client[] = [];
	await admin.query(`create role plain login password 'plain'`);
	await admin.query('grant create on database postgres to plain');
	const open = async () => {
		const client = new Client({ ...server, user: 'plain', password: 'plain' });
		client.on('error', () => {});
		await client.connect();
		clients.push(client);
	};
	await expect(
		(async () => {
			for (;;) await open();
		})(),
	).rejects.toMatchObject({ code: '53300' });
	const ledger = ledgerOn({ user: 'plain', password: 'plain', schema: 'plain' });
	await expect(ledger.works.claim([newWork()], POLICY)).rejects.toMatchObject({
		code: 'too_many_connections',
		message: expect.stringContaining('Maximum Connections'),
	});
	await Promise.all(clients.map(async (client) => await client.end()));
	expect(await ledger.works.claim([newWork()], POLICY)).toMatchObject([{ status: 'claimed' }]);
});

test('a password and a user with every special character connect (case 47)', async () => {
	const user = 'n8n.ledger@p/o:o#l';
	const password = `p@ss:w/o#r%d?&+ é'"\\`;
	const quoted = `"${user}"`;
	await admin.query(`create role ${quoted} login password '${password.replace(/'/g, "''")}'`);
	await admin.query(`create database "o'dd & n%20me" owner ${quoted}`);
	const settings = { user, password, database: "o'dd & n%20me" };
	expect(await ledgerOn(settings).works.claim([newWork()], POLICY)).toMatchObject([
		{ status: 'claimed' },
	]);
	const { message } = await checkLedger({ ...server, ...settings, password: `${password}x` });
	expect(message).toMatch(/wrong user name or password/);
	expect(message).not.toContain('p@ss');
});

test('an empty password does not fall back to the one of the n8n process', async () => {
	process.env.PGPASSWORD = server.password;
	try {
		const { ok, message } = await checkLedger({ ...server, password: '' });
		expect({ ok, message }).toEqual({
			ok: false,
			message: expect.stringMatching(/wrong user name or password/),
		});
	} finally {
		delete process.env.PGPASSWORD;
	}
});

describe('TLS (case 33)', () => {
	test('off at the server: "require" says that it offers none', async () => {
		const { ok, message } = await checkLedger({ ...server, tls: 'require' });
		expect({ ok, message }).toEqual({
			ok: false,
			message: expect.stringMatching(/does not offer TLS.*"Off"/),
		});
	});

	describe('with a certificate of a private authority', () => {
		beforeAll(async () => {
			const { rows } = await admin.query<{ data: string }>(`show data_directory`);
			const data = (rows[0] as unknown as { data_directory: string }).data_directory;
			const { uid, gid } = statSync(data);
			for (const name of ['server.pem', 'server.key']) {
				copyFileSync(path.join(CERTIFICATES, name), path.join(data, name));
				chownSync(path.join(data, name), uid, gid);
				chmodSync(path.join(data, name), 0o600);
			}
			await admin.query(`alter system set ssl_cert_file = 'server.pem'`);
			await admin.query(`alter system set ssl_key_file = 'server.key'`);
			await admin.query(`alter system set ssl = on`);
			await admin.query('select pg_reload_conf()');
			while ((await admin.query('show ssl')).rows[0].ssl !== 'on') {
				await admin.query('select pg_sleep(0.01)');
			}
		});

		test('"off" connects in the clear', async () => {
			expect(await encrypted(ledgerOn({ tls: 'off' }))).toBe(false);
		});

		test('"require" encrypts without asking who signed', async () => {
			expect(await encrypted(ledgerOn({ tls: 'require' }))).toBe(true);
		});

		test('"verify" with the pasted authority connects, also by IP address', async () => {
			expect(await encrypted(ledgerOn({ tls: 'verify', ca: authority }))).toBe(true);
		});

		test('"verify" takes a certificate pasted with blank lines around it', async () => {
			expect(await encrypted(ledgerOn({ tls: 'verify', ca: `\n\n  ${authority}\n\n` }))).toBe(true);
		});

		test.each([
			['without it', undefined],
			['with another authority', stranger],
		])('"verify" %s refuses, and the message names the fix', async (_, ca) => {
			const { ok, message } = await checkLedger({ ...server, tls: 'verify', ca });
			expect(ok).toBe(false);
			expect(message).toMatch(/certificate.*paste the certificate of the authority.*"Require"/s);
		});

		test('"verify" refuses a server under a name that its certificate does not hold', async () => {
			const { ok, message } = await checkLedger({
				...server,
				host: 'localhost',
				tls: 'verify',
				ca: authority,
			});
			expect(ok).toBe(false);
			expect(message).toMatch(/certificate/);
		});

		test('"off" at a server that takes only TLS says so', async () => {
			const { rows } = await admin.query<{ hba_file: string }>('show hba_file');
			const file = rows[0].hba_file;
			const before = readFileSync(file);
			try {
				writeFileSync(file, 'hostssl all all all scram-sha-256\n');
				await admin.query('select pg_reload_conf()');
				while ((await admin.query('select 1 from pg_hba_file_rules')).rows.length !== 1) {
					await admin.query('select pg_sleep(0.01)');
				}
				const refused = await checkLedger({ ...server, tls: 'off' });
				expect(refused).toEqual({
					ok: false,
					message: expect.stringMatching(/only encrypted connections.*"Require" or "Verify"/),
				});
				expect(await encrypted(ledgerOn({ tls: 'require' }))).toBe(true);
			} finally {
				writeFileSync(file, before);
				await admin.query('select pg_reload_conf()');
			}
		});

		test('an authority that is no certificate is a TLS error, too', async () => {
			const { ok, message } = await checkLedger({ ...server, tls: 'verify', ca: 'not a PEM' });
			expect(ok).toBe(false);
			expect(message).toMatch(/certificate/);
		});
	});
});

test('a server that goes away and comes back: an error in between, then the same ledger works on', async () => {
	const ledger = ledgerOn();
	const item = newWork();
	await ledger.works.claim([item], POLICY);
	const { port } = server;
	await server.kill();
	const failure = ledger.works.claim([newWork()], POLICY);
	await expect(failure).rejects.toMatchObject({ name: 'LedgerError', code: 'unreachable' });
	server = await startPostgres({ dataFolder, port, settings: { max_connections: 20 } });
	await connectAdmin();
	const [answer] = await ledger.works.claim([{ ...newWork(), workId: item.workId }], POLICY);
	expect(answer.status).toBe('in_progress');
});
