import { createLedger, type LedgerSettings } from '../../ledger';
import { asChild } from './processes';

asChild<LedgerSettings>(async (settings) => {
	const ledger = createLedger(settings);
	try {
		return await ledger.install();
	} finally {
		await ledger.close();
	}
});
