import { Client } from 'pg';

import { checkLedger, closeSharedLedgers, createLedger, type LedgerSettings } from '../../ledger';
import type { RunningPostgres } from '../../scripts/embedded-postgres';
import { newWork, POLICY } from '../integration/stage';
import { SshOfN8n } from './n8n-ssh';
import { SshServer } from './ssh-server';
import { clientPem, serverAuthority, startTlsServer } from './tls-server';

let server: RunningPostgres;
let admin: Client;
let stop: () => Promise<void>;

beforeAll(async () => {
	({ server, admin, stop } = await startTlsServer([
		'hostssl all ledger_client all cert',
		'hostssl all careful_client all scram-sha-256 clientcert=verify-full',
	]));
	for (const role of ['ledger_client', 'careful_client', 'plain_client'])
		await admin.query(
			`create role ${role} login password 'pw'; grant create on database postgres to ${role}`,
		);
});
afterAll(async () => {
	await stop?.();
});

function settingsOf(user: string, change: Partial<LedgerSettings> = {}): LedgerSettings {
	const { host, port, database } = server;
	return {
		...{ host, port, database, user, password: 'pw', schema: `of_${user}` },
		...{ tls: 'verify' as const, ca: serverAuthority },
		...change,
	};
}

const pair = (name: string) => ({
	clientCert: clientPem(`${name}.pem`),
	clientPrivateKey: clientPem(`${name}.key`),
});
const onOneLine = (pem: string) => pem.replace(/\r?\n/g, ' ');

describe('a server that demands a client certificate', () => {
	test('takes the one made out to the user, and works are claimed', async () => {
		const ledger = createLedger(settingsOf('ledger_client', { ...pair('client'), password: '' }));
		try {
			expect(await ledger.works.claim([newWork()], POLICY)).toMatchObject([{ status: 'claimed' }]);
			const [{ name }] = await ledger.connection.query<{ name: string }>(
				'select client_dn as name from pg_stat_ssl where pid = pg_backend_pid()',
				[],
			);
			expect(name).toBe('/CN=ledger_client');
		} finally {
			await ledger.close();
		}
	});

	test('takes it pasted on one line, and with TLS set to "Require"', async () => {
		const { clientCert, clientPrivateKey } = pair('client');
		const pasted = {
			clientCert: onOneLine(clientCert),
			clientPrivateKey: onOneLine(clientPrivateKey),
		};
		for (const tls of ['verify', 'require'] as const)
			expect(await checkLedger(settingsOf('ledger_client', { ...pasted, tls }))).toMatchObject({
				ok: true,
			});
	});

	const refused: Array<[string, string, Partial<LedgerSettings>]> = [
		['none', 'ledger_client', {}],
		['none beside the right password', 'careful_client', {}],
		["another user's", 'ledger_client', pair('other-client')],
		['one by an authority it does not know', 'ledger_client', pair('stranger')],
	];
	test.each(refused)(
		'refuses %s, and the message names the two fields',
		async (_, user, change) => {
			const { ok, message } = await checkLedger(settingsOf(user, change));
			expect(ok).toBe(false);
			expect(message).toMatch(
				new RegExp(
					`wants a client certificate .* user "${user}".* Client Certificate .* Client Key`,
				),
			);
		},
	);

	test.each([
		['the key of another certificate', { clientPrivateKey: clientPem('stranger.key') }],
		['a key that is none', { clientPrivateKey: 'not a key' }],
		['a certificate that is none', { clientCert: 'not a certificate' }],
	])('%s in the credential is said so, without the key', async (_, change) => {
		const { ok, message } = await checkLedger(
			settingsOf('ledger_client', { ...pair('client'), ...change }),
		);
		expect(ok).toBe(false);
		expect(message).toMatch(/in the credential cannot be used .*Client Key/);
		for (const name of ['client.key', 'stranger.key'])
			expect(message).not.toContain(clientPem(name).split('\n')[1]);
	});
});

describe('TLS through an SSH tunnel', () => {
	let ssh: SshServer;
	let n8n: SshOfN8n;
	beforeAll(async () => {
		ssh = new SshServer({ user: 'jump', password: 'secret', keys: [] });
		await ssh.listen();
		n8n = new SshOfN8n();
	});
	afterAll(async () => {
		await closeSharedLedgers();
		n8n.end();
		await ssh.stop();
	});

	const form = (change: object) => ({
		...settingsOf('plain_client'),
		...{ sshTunnel: true, sshAuthenticateWith: 'password', sshHost: '127.0.0.1' },
		...{ sshPort: ssh.port, sshUser: 'jump', sshPassword: 'secret' },
		...change,
	});

	test.each(['require', 'verify'])('"%s" encrypts inside the tunnel', async (tls) => {
		const ledger = await n8n.ledger(form({ tls }));
		expect(await ledger.works.claim([newWork()], POLICY)).toMatchObject([{ status: 'claimed' }]);
		const [{ ssl }] = await ledger.connection.query<{ ssl: boolean }>(
			'select ssl from pg_stat_ssl where pid = pg_backend_pid()',
			[],
		);
		expect(ssl).toBe(true);
		expect(ssh.channels).toBeGreaterThan(0);
	});

	test('"verify" refuses a server that another authority signed', async () => {
		expect(await n8n.test(form({ ca: clientPem('stranger.pem') }))).toEqual({
			status: 'Error',
			message: expect.stringMatching(/certificate of .* was not accepted/),
		});
	});

	test('"off" at this server says that it takes only TLS', async () => {
		expect(await n8n.test(form({ tls: 'off' }))).toEqual({
			status: 'Error',
			message: expect.stringMatching(/only encrypted connections/),
		});
	});

	test('a client certificate is shown through the tunnel, too', async () => {
		const credential = {
			...form(pair('client')),
			...{ user: 'ledger_client', schema: 'of_ledger_client' },
		};
		expect(await n8n.test(credential)).toMatchObject({ status: 'OK' });
	});

	test('the tunnel dies and the next call makes another, encrypted again (case 37)', async () => {
		const ledger = await n8n.ledger(form({ maxConnections: 2 }));
		await ledger.works.claim([newWork()], POLICY);
		ssh.cut();
		expect(await ledger.works.claim([newWork()], POLICY)).toMatchObject([{ status: 'claimed' }]);
	});
});
