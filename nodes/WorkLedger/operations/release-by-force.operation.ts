import type { LedgerOperation } from '../operation';
import { readWorkId } from '../which-work';
import { outcome } from './by-a-person';

export const releaseByForce: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Release by Force',
		value: 'releaseByForce',
		action: 'Release a claim by force',
		description:
			'Undoes the claim of running work without its token, and fences its owner. Only when nothing was done.',
	},
	properties: [],
	async run(call) {
		return outcome(
			await call.ledger.admin.releaseByForce([readWorkId(call)], call.caller),
			'Released: anybody may claim it.',
		);
	},
};
