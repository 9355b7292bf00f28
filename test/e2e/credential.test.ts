import { LEDGER_CREDENTIAL_TYPE } from '../../scripts/n8n/stage';
import { importLedgerCredential, ledgerData, n8n } from './stage';

async function pressTestButton(data: Record<string, unknown>) {
	const credentials = await importLedgerCredential('Idempotency Ledger');
	const credential = credentials[LEDGER_CREDENTIAL_TYPE];
	return await n8n.rest('POST', '/credentials/test', {
		credentials: { ...credential, type: LEDGER_CREDENTIAL_TYPE, data },
	});
}

describe('the test button of the credential in a real n8n (case 138)', () => {
	test('is content with a ledger it can reach', async () => {
		expect(await pressTestButton(ledgerData())).toMatchObject({ status: 'OK' });
	});

	test('tells a wrong password from a server that cannot be reached', async () => {
		const wrong = await pressTestButton({ ...ledgerData(), password: 'not the password' });
		const unreachable = await pressTestButton({ ...ledgerData(), port: 1 });

		expect(wrong).toMatchObject({ status: 'Error', message: expect.stringMatching(/password/i) });
		expect(unreachable).toMatchObject({
			status: 'Error',
			message: expect.stringMatching(/reach/i),
		});
		expect(wrong.message).not.toContain('not the password');
	});
});
