import type { LedgerOperation } from '../operation';
import { checkpointWords, readCheckpoint } from '../which-checkpoint';

export const checkpointReset: LedgerOperation = {
	resource: 'checkpoint',
	option: {
		name: 'Reset',
		value: 'reset',
		action: 'Reset a checkpoint',
		description:
			'The next run begins at the start, and may compare otherwise. Also for runs that are over.',
	},
	properties: [],
	async run(call) {
		const which = readCheckpoint(call);
		const { status, cursor } = await call.ledger.checkpoints.reset(which, call.caller);
		return [
			{
				...which,
				status,
				message:
					status === 'reset'
						? `Checkpoint ${checkpointWords(which)} is gone, it was at ${cursor}.`
						: `There was no checkpoint ${checkpointWords(which)}.`,
				before: cursor,
			},
		];
	},
};
