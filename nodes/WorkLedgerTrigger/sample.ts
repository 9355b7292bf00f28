import type { INodeExecutionData, ITriggerFunctions } from 'n8n-workflow';

import type { MessageReport, WorkReport } from '../../ledger';
import { ledgerOf } from '../execution/credential';
import { letterJson, messageLetterItem, retrySample } from './item';
import type { TriggerSettings } from './settings';

/**
 * What a run in the editor shows: the newest work of the kind, or a made-up one where there is none. Nothing is swept,
 * reserved, claimed or acknowledged. Throws `LedgerError`.
 */
export async function sampleItem(
	context: ITriggerFunctions,
	settings: TriggerSettings,
): Promise<INodeExecutionData> {
	const { subscriptions, messages } = await ledgerOf(context);
	const found = await subscriptions.sample(settings.event, settings);
	if (found === null && settings.messages) {
		const page = await messages.list({ states: ['unknown'] }, 1);
		const message = page.messages.at(0);
		// without the choice of works, a work would show fields that never come
		if (message !== undefined || settings.states.length === 0) {
			return messageSample(context, message ?? null, settings);
		}
	}
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

function messageSample(
	context: ITriggerFunctions,
	found: MessageReport | null,
	settings: TriggerSettings,
): INodeExecutionData {
	const letter = { message: found ?? madeUpMessage(settings), handOut: 1, handOuts: 5 };
	return {
		json: {
			...messageLetterItem(context, { ...letter, lockedUntil: '' }).json,
			sample: true,
			madeUp: found === null,
			explanation:
				found === null
					? 'The ledger holds no message of unknown fate, so this one is made up. Activate the workflow to be told of real ones.'
					: 'A look at the newest message of unknown fate: it was not reserved, and stays as it is. Activate the workflow to be told of it.',
		},
	};
}

function madeUpMessage({ caller }: TriggerSettings): MessageReport {
	const now = new Date().toISOString();
	return {
		messageRef: '0'.repeat(64),
		bot: '0',
		chatId: '0',
		state: 'unknown',
		kind: 'message',
		preview: 'a made-up message',
		generation: 1,
		attempt: 1,
		parts: 1,
		sentParts: 0,
		messageIds: [null],
		lastError: 'a made-up error.',
		retryAt: null,
		lockedUntil: null,
		windowSeconds: null,
		owner: { instance: caller.instance ?? '', workflow: caller.workflow ?? '', execution: '1' },
		createdAt: now,
		sendingAt: now,
		sentAt: null,
		updatedAt: now,
	};
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
