import type {
	ICredentialTestFunctions,
	ICredentialsDecrypted,
	IExecuteFunctions,
	INodeCredentialTestResult,
} from 'n8n-workflow';

import { checkLedger, sharedLedger, type Ledger, type LedgerSettings } from '../../ledger';

/**
 * The ledger of the node's credential. One pool per credential and process: it outlives the execution.
 * Throws `LedgerError` for settings that cannot be right, and n8n's own error where no credential is chosen.
 */
export async function ledgerOf(context: IExecuteFunctions): Promise<Ledger> {
	const credential = await context.getCredentials<LedgerSettings>('idempotencyLedgerApi');
	return sharedLedger(credential);
}

/** The Test button of the credential. Opens one connection of its own and closes it. */
export async function testLedger(
	this: ICredentialTestFunctions,
	credential: ICredentialsDecrypted,
): Promise<INodeCredentialTestResult> {
	const { ok, message } = await checkLedger(credential.data as unknown as LedgerSettings);
	return { status: ok ? 'OK' : 'Error', message };
}
