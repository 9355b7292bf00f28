import type { Duplex } from 'stream';
import type {
	ICredentialTestFunctions,
	ICredentialsDecrypted,
	IExecuteFunctions,
	INodeCredentialTestResult,
	ITriggerFunctions,
	SSHCredentials,
	SSHTunnelFunctions,
} from 'n8n-workflow';

import { checkLedger, pemText, sharedLedger, type Ledger, type LedgerSettings } from '../../ledger';

type SSHClient = Awaited<ReturnType<SSHTunnelFunctions['getSSHClient']>>;

/** What the credential's form holds: the ledger's settings, and the tunnel in n8n's own words. */
type LedgerCredential = Omit<LedgerSettings, 'tunnel'> & { sshTunnel?: boolean } & SSHCredentials;

/**
 * n8n forgets its client of a credential when *any* client of that credential closes, so one that failed, closing late,
 * ends the next one in the middle of its login, which then never answers. A failure waits until it has closed.
 */
const SSH_CLOSING_MS = 300;

async function clientOf(
	ssh: SSHCredentials,
	getSSHClient: SSHTunnelFunctions['getSSHClient'],
): Promise<SSHClient> {
	const client = await getSSHClient(ssh).catch(async (error: unknown) => {
		await new Promise((resolve) => setTimeout(resolve, SSH_CLOSING_MS));
		throw error;
	});
	// small packets wait up to 40 ms for company otherwise, several times per statement
	client.setNoDelay(true);
	return client;
}

/**
 * n8n keeps a client for as long as it is asked for, also one whose host has vanished without a word, and every channel
 * asked of that one waits in vain (case 37). So each channel comes with a question that every host answers at once, with
 * "no" (RFC 4254, 7.1: there is no such forwarding); a client that stays silent is destroyed, and n8n then makes a new one.
 */
const SSH_SILENT_MS = 5_000;

async function openChannel(client: SSHClient, host: string, port: number): Promise<Duplex> {
	const silent = setTimeout(() => client.destroy(), SSH_SILENT_MS);
	silent.unref();
	try {
		client.unforwardIn('127.0.0.1', 1, () => clearTimeout(silent));
		return await new Promise<Duplex>((resolve, reject) => {
			const from = ['127.0.0.1', 0] as const;
			client.forwardOut(...from, host, port, (error: Error | undefined, channel: Duplex) => {
				if (error) reject(error);
				else resolve(channel);
			});
		});
	} finally {
		// the host has answered one of the two, or the client is gone
		clearTimeout(silent);
	}
}

/** Only the function is kept, not the context: the pool outlives the execution. */
function settingsOf(
	credential: LedgerCredential,
	{ getSSHClient }: SSHTunnelFunctions,
): LedgerSettings {
	if (credential.sshTunnel !== true) return credential;
	const ssh: SSHCredentials =
		credential.sshAuthenticateWith === 'privateKey'
			? {
					sshAuthenticateWith: 'privateKey',
					sshHost: credential.sshHost,
					sshPort: credential.sshPort,
					sshUser: credential.sshUser,
					privateKey: pemText(credential.privateKey) ?? '',
					passphrase: credential.passphrase,
				}
			: {
					sshAuthenticateWith: 'password',
					sshHost: credential.sshHost,
					sshPort: credential.sshPort,
					sshUser: credential.sshUser,
					sshPassword: credential.sshPassword,
				};
	return {
		...credential,
		tunnel: {
			identity: JSON.stringify(ssh),
			open: async (host, port) => await openChannel(await clientOf(ssh, getSSHClient), host, port),
		},
	};
}

/**
 * The ledger of the node's credential. One pool per credential and process: it outlives the execution.
 * Throws `LedgerError` for settings that cannot be right, and n8n's own error where no credential is chosen.
 */
export async function ledgerOf(context: IExecuteFunctions | ITriggerFunctions): Promise<Ledger> {
	const credential = await context.getCredentials<LedgerCredential>('idempotencyLedgerApi');
	return sharedLedger(settingsOf(credential, context.helpers));
}

/** The Test button of the credential. Opens one connection of its own and closes it. */
export async function testLedger(
	this: ICredentialTestFunctions,
	credential: ICredentialsDecrypted,
): Promise<INodeCredentialTestResult> {
	const { ok, message } = await checkLedger(
		settingsOf(credential.data as unknown as LedgerCredential, this.helpers),
	);
	return { status: ok ? 'OK' : 'Error', message };
}
