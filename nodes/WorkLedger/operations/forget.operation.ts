import type { LedgerOperation } from '../operation';
import { readWorkId } from '../which-work';
import { outcome } from './by-a-person';

export const forget: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Forget Test Run',
		value: 'forget',
		action: 'Forget a test run',
		description:
			'Work whose every attempt was a manual one in the editor is deleted, so that the test can be run again',
	},
	properties: [],
	async run(call) {
		return outcome(
			await call.ledger.admin.forgetTestRuns([readWorkId(call)], call.caller),
			'Forgotten: it can be tested again.',
		);
	},
};
