import { createRequire } from 'node:module';
import type {
	ICredentialTestFunctions,
	ICredentialsDecrypted,
	IDataObject,
	IExecuteFunctions,
	INodeCredentialTestResult,
	SSHCredentials,
	SSHTunnelFunctions,
} from 'n8n-workflow';

import type { Ledger } from '../../ledger';
import { ledgerOf, testLedger } from '../../nodes/execution/credential';

type SshClient = Awaited<ReturnType<SSHTunnelFunctions['getSSHClient']>>;

interface SshClientsManager {
	getClient(credentials: SSHCredentials): Promise<SshClient>;
	onShutdown(): void;
}

/** n8n's own keeper of SSH clients; this one file of n8n-core, because the whole of it takes a second to load. */
const { SSHClientsManager } = createRequire(require.resolve('n8n-core'))(
	'./execution-engine/ssh-clients-manager.js',
) as {
	SSHClientsManager: new (config: { idleTimeout: number }, logger: object) => SshClientsManager;
};

const nothing = () => {};
const quiet = { debug: nothing, warn: nothing, error: nothing, scoped: () => quiet };

/** An n8n process as far as the credential sees it: it lends SSH clients and keeps them for later. */
export class SshOfN8n {
	private readonly manager = new SSHClientsManager({ idleTimeout: 300 }, quiet);
	private readonly helpers = {
		getSSHClient: async (credentials: SSHCredentials) => await this.manager.getClient(credentials),
	};

	/** The ledger as a node of this process gets it. */
	async ledger(credential: object): Promise<Ledger> {
		return await ledgerOf({
			getCredentials: async () => credential as IDataObject,
			helpers: this.helpers,
		} as unknown as IExecuteFunctions);
	}

	/** The Test button of the credential. */
	async test(credential: object): Promise<INodeCredentialTestResult> {
		return await testLedger.call(
			{ helpers: this.helpers } as unknown as ICredentialTestFunctions,
			{ data: credential } as unknown as ICredentialsDecrypted,
		);
	}

	async client(credentials: SSHCredentials): Promise<SshClient> {
		return await this.manager.getClient(credentials);
	}

	/** The process ends. */
	end(): void {
		this.manager.onShutdown();
	}
}
