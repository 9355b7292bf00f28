import net from 'node:net';

import { checkLedger, createLedger, isLedgerError } from '../../ledger';
import { newWork, POLICY } from './stage';

/** What poolers and hosted servers say at the door instead of PostgreSQL's own states; each in its own words. */

const SECRET = 'p@ss-of-the-test';
const closing: Array<() => Promise<void>> = [];
afterEach(async () => {
	await Promise.all(closing.splice(0).map(async (close) => await close()));
});

/** A server that refuses every client with this state and these words. */
async function doorman(code: string, words: string): Promise<{ port: number; asked(): number }> {
	const fields = Buffer.from(`SFATAL\0VFATAL\0C${code}\0M${words}\0\0`);
	const answer = Buffer.alloc(5 + fields.length);
	answer.write('E');
	answer.writeUInt32BE(fields.length + 4, 1);
	fields.copy(answer, 5);
	let asked = 0;
	const server = net.createServer((client) => {
		asked++;
		client.on('error', () => {});
		client.once('data', () => client.end(answer));
	});
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	closing.push(async () => await new Promise<void>((resolve) => server.close(() => resolve())));
	return { port: (server.address() as net.AddressInfo).port, asked: () => asked };
}

const at = (port: number) => ({
	host: '127.0.0.1',
	port,
	database: 'postgres',
	user: 'postgres',
	password: SECRET,
});

const NONE_FREE = /no free connection.*Lower "Maximum Connections"/;
const PROJECT = /knows no project for user "postgres".*project in the user name/;
const TLS = /accepts only encrypted connections.*TLS to "Require" or "Verify"/;

test.each([
	['XX000', 'Tenant or user not found', PROJECT],
	['XX000', '(ENOTFOUND) tenant/user postgres.abcdefgh not found', PROJECT],
	['XX000', 'Max client connections reached', NONE_FREE],
	[
		'XX000',
		'MaxClientsInSessionMode: max clients reached - in Session mode max clients are limited to pool_size',
		NONE_FREE,
	],
	['XX000', '(EMAXCONNSESSION) max clients reached in session mode', NONE_FREE],
	['XX000', '(ECHECKOUTTIMEOUT) unable to check out connection from the pool', NONE_FREE],
	['08P01', 'no more connections allowed (max_client_conn)', NONE_FREE],
	['XX000', 'SSL connection is required', TLS],
	['28000', 'SSL connection is required. Please specify SSL options and retry.', TLS],
	['08P01', 'SSL required', TLS],
	['XX000', 'connection is insecure (try using `sslmode=require`)', TLS],
	[
		'53100',
		'could not extend file "base/1/2": No space left on device',
		/no disk space left.*Free/,
	],
	['XX000', 'cache lookup failed for type 7', /answered: cache lookup failed for type 7/],
])('%s "%s" is told with its cure', async (code, words, expected) => {
	const { port } = await doorman(code, words);
	const { ok, message } = await checkLedger(at(port));
	expect({ ok, message }).toEqual({ ok: false, message: expect.stringMatching(expected) });
	expect(message).not.toContain(SECRET);
});

test('a pooler that is full is asked again, one that knows no project is not', async () => {
	for (const [words, expected] of [
		['Max client connections reached', 'too_many_connections'],
		['Tenant or user not found', 'wrong_password'],
	]) {
		const { port, asked } = await doorman('XX000', words);
		const ledger = createLedger(at(port));
		const failure: unknown = await ledger.works.claim([newWork()], POLICY).catch((e: unknown) => e);
		await ledger.close();
		expect([words, isLedgerError(failure) && failure.code, asked() > 1]).toEqual([
			words,
			expected,
			expected === 'too_many_connections',
		]);
	}
});
