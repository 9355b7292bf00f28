import type { Duplex } from 'stream';
import type {
	ICredentialTestFunctions,
	ICredentialsDecrypted,
	IExecuteFunctions,
	INodeCredentialTestResult,
	SSHCredentials,
	SSHTunnelFunctions,
} from 'n8n-workflow';

import { checkLedger, pemText, sharedLedger, type Ledger, type LedgerSettings } from '../../ledger';

/** What the credential's form holds: the ledger's settings, and the tunnel in n8n's own words. */
type LedgerCredential = Omit<LedgerSettings, 'tunnel'> & { sshTunnel?: boolean } & SSHCredentials;

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
			open: async (host, port) => {
				const client = await getSSHClient(ssh);
				return await new Promise((resolve, reject) => {
					client.forwardOut(
						'127.0.0.1',
						0,
						host,
						port,
						(error: Error | undefined, channel: Duplex) => {
							if (error) reject(error);
							else resolve(channel);
						},
					);
				});
			},
		},
	};
}

/**
 * The ledger of the node's credential. One pool per credential and process: it outlives the execution.
 * Throws `LedgerError` for settings that cannot be right, and n8n's own error where no credential is chosen.
 */
export async function ledgerOf(context: IExecuteFunctions): Promise<Ledger> {
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
