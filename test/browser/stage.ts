/** What scripts/e2e-browser.js has set up. */

import path from 'node:path';

import { N8nClient } from '../../scripts/n8n/client';
import { LEDGER_CREDENTIAL_TYPE, ledgerCredential } from '../../scripts/n8n/stage';
import { name as PACKAGE } from '../../package.json';

interface StageAccess {
	n8n: { baseUrl: string; email: string; password: string };
	ledger: { host: string; port: number; user: string; password: string; database: string };
	invoiceUrl: string;
	chromium: string;
	/** Folder for what a person saw when a step failed. */
	evidence: string;
	/** Folder for pictures. */
	images: string;
}

function readAccess(): StageAccess {
	const text = process.env.BROWSER_STAGE;
	if (text === undefined) throw new Error('these tests run by `npm run test:e2e:browser`');
	return JSON.parse(text) as StageAccess;
}

export const access = readAccess();
export const n8n = new N8nClient(access.n8n);
export { PACKAGE };

export const picture = (name: string): string => path.join(access.images, `${name}.png`);

/** The package as the panel installs it, without the panel: for files whose promise is another. */
export async function packageInstalled(): Promise<void> {
	const installed = (await n8n.rest('GET', '/community-packages')) as Array<{
		packageName: string;
	}>;
	if (installed.some(({ packageName }) => packageName === PACKAGE)) return;
	await n8n.rest('POST', '/community-packages', { name: PACKAGE });
}

/** Credentials by type, as `importWorkflow` takes them. */
export async function importLedgerCredential() {
	const credential = await n8n.importCredential({
		name: 'Idempotency Ledger',
		type: LEDGER_CREDENTIAL_TYPE,
		data: ledgerCredential(access.ledger),
	});
	return { [LEDGER_CREDENTIAL_TYPE]: credential };
}
