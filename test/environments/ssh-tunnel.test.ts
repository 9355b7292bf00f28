import type { Duplex } from 'node:stream';

import { closeSharedLedgers, createLedger, type Ledger } from '../../ledger';
import { freePort } from '../../scripts/embedded-postgres';
import { CALLER, newWork, POLICY, Stage } from '../integration/stage';
import { SshOfN8n } from './n8n-ssh';
import { createKeyPair, SshServer } from './ssh-server';

const PASSWORD = 'tunnel p@ss/w$rd';
const plain = createKeyPair();
const protectedByPassphrase = createKeyPair('open sesame');

let stage: Stage;
let ssh: SshServer;
let n8n: SshOfN8n;

beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});
beforeEach(async () => {
	n8n = new SshOfN8n();
	ssh = new SshServer({
		user: 'jump',
		password: PASSWORD,
		keys: [plain.public, protectedByPassphrase.public],
	});
	await ssh.listen();
});
afterEach(async () => {
	await closeSharedLedgers();
	n8n.end();
	await ssh.stop();
});

/** The form of the credential, filled in with a password. */
function form(change: object = {}): object {
	return {
		...stage.database.config,
		maxConnections: 3,
		sshTunnel: true,
		sshAuthenticateWith: 'password',
		sshHost: '127.0.0.1',
		sshPort: ssh.port,
		sshUser: 'jump',
		sshPassword: PASSWORD,
		...change,
	};
}

function withKey(privateKey: string, passphrase?: string): object {
	return form({ sshAuthenticateWith: 'privateKey', privateKey, passphrase });
}

/** As it arrives after a paste into a field of one line. */
const onOneLine = (pem: string) => pem.replace(/\r?\n/g, ' ');

async function claim(ledger: Ledger, item = newWork()) {
	return (await ledger.works.claim([item], POLICY))[0];
}

/** Claimed means that a committed row says so. */
async function expectClaimedOnce(item: { workId: string; token: string }): Promise<void> {
	expect(await stage.row(item)).toMatchObject({ state: 'running', attempt: 1, token: item.token });
	expect(await stage.history(item)).toEqual(['claim: claimed']);
}

describe('through an SSH host', () => {
	test.each([
		['a password', () => form()],
		['a private key', () => withKey(plain.private)],
		['a private key pasted on one line', () => withKey(onOneLine(plain.private))],
		[
			'a private key under a passphrase',
			() => withKey(protectedByPassphrase.private, 'open sesame'),
		],
		[
			'a private key under a passphrase, pasted on one line',
			() => withKey(onOneLine(protectedByPassphrase.private), 'open sesame'),
		],
	])('a work is claimed and completed, logged in with %s', async (_, credential) => {
		const ledger = await n8n.ledger(credential());
		const item = newWork();
		expect(await claim(ledger, item)).toMatchObject({ status: 'claimed' });
		const completion = { ...item, result: { text: 'é'.repeat(300_000) } };
		expect(await ledger.works.complete([completion], CALLER)).toMatchObject([
			{ status: 'completed' },
		]);
		expect(await claim(ledger, { ...item, token: newWork().token })).toMatchObject({
			status: 'duplicate',
			result: completion.result,
		});
		expect(ssh.channels).toBeGreaterThan(0);
		expect(await n8n.test(credential())).toEqual({
			status: 'OK',
			message: expect.stringContaining('is ready'),
		});
	});

	test('many calls at once share one SSH session and no more connections than the pool allows', async () => {
		const ledger = await n8n.ledger(form());
		const answers = await Promise.all(Array.from({ length: 60 }, async () => await claim(ledger)));
		expect(new Set(answers.map(({ status }) => status))).toEqual(new Set(['claimed']));
		expect([ssh.sessions, ssh.channels <= 3]).toEqual([1, true]);
	});
});

describe('a tunnel that does not open says what is wrong, without a secret', () => {
	const SECRETS = [PASSWORD, 'not the password', plain.private.split('\n')[1]];

	async function messageOf(credential: object): Promise<string> {
		const { status, message } = await n8n.test(credential);
		expect(status).toBe('Error');
		for (const secret of SECRETS) expect(message).not.toContain(secret);
		const failure = await claim(await n8n.ledger(credential)).catch((error: unknown) => error);
		expect(failure).toMatchObject({ name: 'LedgerError', message });
		for (const secret of SECRETS) expect(JSON.stringify(failure)).not.toContain(secret);
		return message;
	}

	test('a wrong SSH password', async () => {
		expect(await messageOf(form({ sshPassword: 'not the password' }))).toMatch(
			/SSH host .* refused the login\. Check SSH user and SSH password/,
		);
	});

	test('a key that the host does not know', async () => {
		expect(await messageOf(withKey(createKeyPair().private))).toMatch(/refused the login/);
	});

	test('a text that is no key', async () => {
		expect(await messageOf(withKey('not a key'))).toMatch(/SSH private key .* cannot be read/);
	});

	test('a key under a passphrase, without it or with a wrong one', async () => {
		for (const passphrase of [undefined, 'open says me'])
			expect(await messageOf(withKey(protectedByPassphrase.private, passphrase))).toMatch(
				/SSH private key .* cannot be read .*its passphrase/,
			);
	});

	test('nobody listens at the SSH host', async () => {
		expect(await messageOf(form({ sshPort: await freePort() }))).toMatch(
			/SSH tunnel .* could not be opened \(ECONNREFUSED\)\. Check SSH host and SSH port/,
		);
	});

	test('the SSH host does not forward', async () => {
		ssh.refusesForwarding = true;
		expect(await messageOf(form())).toMatch(/SSH host does not reach PostgreSQL.*forwarding/);
	});

	test('the SSH host finds no PostgreSQL there', async () => {
		expect(await messageOf(form({ port: await freePort() }))).toMatch(
			/SSH host does not reach PostgreSQL at 127\.0\.0\.1/,
		);
	});
});

describe('a tunnel that dies (case 37)', () => {
	test('while idle: the next call opens another and claims once', async () => {
		const ledger = await n8n.ledger(form());
		await claim(ledger);
		ssh.cut();
		const item = newWork();
		expect(await claim(ledger, item)).toMatchObject({ status: 'claimed' });
		await expectClaimedOnce(item);
		expect(ssh.sessions).toBe(2);
	});

	test('while idle, and the host comes back later: a clear error between, then the same ledger works on', async () => {
		const ledger = await n8n.ledger(form());
		await claim(ledger);
		const { port } = ssh;
		await ssh.stop();
		const item = newWork();
		await expect(claim(ledger, item)).rejects.toMatchObject({ code: 'unreachable' });
		expect(await stage.findRow(item)).toBeNull();
		await ssh.listen(port);
		expect(await claim(ledger, item)).toMatchObject({ status: 'claimed' });
		await expectClaimedOnce(item);
	});

	test('and comes back on another port: new connections go there, without a restart', async () => {
		const ledger = createLedger({
			...stage.settings,
			tunnel: {
				identity: 'moving',
				open: async (host, port) => {
					const client = await n8n.client({
						sshAuthenticateWith: 'password',
						sshHost: '127.0.0.1',
						sshPort: ssh.port,
						sshUser: 'jump',
						sshPassword: PASSWORD,
					});
					return await new Promise<Duplex>((resolve, reject) => {
						client.forwardOut('127.0.0.1', 0, host, port, (error: unknown, channel: Duplex) => {
							if (error) reject(error as Error);
							else resolve(channel);
						});
					});
				},
			},
		});
		try {
			await claim(ledger);
			const first = ssh.port;
			await ssh.stop();
			await ssh.listen();
			expect(ssh.port).not.toBe(first);
			const item = newWork();
			expect(await claim(ledger, item)).toMatchObject({ status: 'claimed' });
			await expectClaimedOnce(item);
		} finally {
			await ledger.close();
		}
	});

	test('while a statement runs: it is sent again through a new tunnel, and claims once', async () => {
		const ledger = await n8n.ledger(form());
		await claim(ledger);
		const item = newWork();
		const holder = await stage.connect();
		await holder.query('begin');
		await holder.query(
			`select from idempotency.claim_work($1, 'k', gen_random_uuid(), null, null, '{"kind": "invoice"}')`,
			[item.workId],
		);
		const running = claim(ledger, item);
		await stage.untilWaiting(1);
		ssh.cut();
		// the cut one still waits in the server, and the one sent again behind it
		await stage.untilWaiting(2);
		await holder.query('rollback');
		expect(await running).toMatchObject({ status: 'claimed', attempt: 1, token: item.token });
		await expectClaimedOnce(item);
	});

	test('after the commit, before the answer: the claim is found again by its token', async () => {
		const ledger = await n8n.ledger(form());
		await claim(ledger);
		const item = newWork();
		ssh.loseAnswerTo('claim_work(');
		expect(await claim(ledger, item)).toMatchObject({ status: 'claimed', token: item.token });
		expect(ssh.sessions).toBe(2);
		await expectClaimedOnce(item);
	});

	test('without a word: the next new connection finds out, and goes through another', async () => {
		await claim(await n8n.ledger(form()));
		ssh.freeze();
		const item = newWork();
		// another pool on the SSH client that n8n keeps
		expect(await claim(await n8n.ledger(form({ maxConnections: 4 })), item)).toMatchObject({
			status: 'claimed',
		});
		await expectClaimedOnce(item);
		expect(ssh.sessions).toBe(2);
	});

	test('without a word, as behind a router that forgot it: a time-out, never a claim without a row', async () => {
		const ledger = await n8n.ledger(form({ queryTimeoutSeconds: 1, connectTimeoutSeconds: 1 }));
		await claim(ledger);
		ssh.freeze();
		const item = newWork();
		await expect(claim(ledger, item)).rejects.toMatchObject({ code: 'timeout' });
		expect(await stage.findRow(item)).toBeNull();
		ssh.cut();
		expect(await claim(ledger, item)).toMatchObject({ status: 'claimed' });
		await expectClaimedOnce(item);
	});
});
