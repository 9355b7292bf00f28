import type { INodeExecutionData, ITriggerFunctions } from 'n8n-workflow';

import type { WorkReport } from '../../ledger';
import { ledgerOf } from '../execution/credential';
import { letterJson, retrySample } from './item';
import type { TriggerSettings } from './settings';

/**
 * What a run in the editor shows: the newest work of the kind, or a made-up one where there is none. Nothing is swept,
 * reserved, claimed or acknowledged. Throws `LedgerError`.
 */
export async function sampleItem(
	context: ITriggerFunctions,
	settings: TriggerSettings,
): Promise<INodeExecutionData> {
	const { subscriptions } = await ledgerOf(context);
	const found = await subscriptions.sample(settings.event, settings);
	const which = settings.event === 'dead_letter' ? 'dead letter' : 'retry';
	const explanation =
		found === null
			? `The ledger holds no ${which} that this node would hand out, so this one is made up. Activate the workflow to be told of real ones.`
			: `A look at the newest ${which}: it was not reserved, and stays as it is. Activate the workflow to be told of it.`;
	const work = found ?? madeUp(settings);
	if (settings.event === 'dead_letter') {
		return {
			json: {
				...letterJson(context, work),
				announcement: { nth: 1, of: 5 },
				sample: true,
				madeUp: found === null,
				explanation,
			},
		};
	}
	const item = retrySample(context, work, settings.field, explanation);
	return { json: { ...item.json, sample: true, madeUp: found === null } };
}

function madeUp({ event, states, kinds, caller }: TriggerSettings): WorkReport {
	const now = new Date().toISOString();
	const state = event === 'retry_due' ? 'failed' : states.includes('dead') ? 'dead' : 'held';
	return {
		workId: '0'.repeat(64),
		kind: kinds?.[0] ?? 'invoice',
		version: 'v1',
		key: 'made-up',
		state,
		generation: 1,
		attempt: state === 'dead' ? 5 : 1,
		maxAttempts: 5,
		onLapse: state === 'held' ? 'hold' : 'run_again',
		window: 'forever',
		lockedUntil: null,
		lapsed: false,
		nextAttemptAt: state === 'failed' ? now : null,
		outcomeKnown: state !== 'held',
		settledBy: 'owner',
		lastError: 'a made-up error',
		externalRef: null,
		decisionKey: null,
		result: null,
		resultPurged: false,
		payload: { order_id: 'made-up' },
		owner: { ...caller, execution: '1', claimedAt: now },
		createdAt: now,
		firstStartedAt: now,
		claimedAt: now,
		updatedAt: now,
		completedAt: null,
		lastDoneAt: null,
	};
}
