import type { IDataObject } from 'n8n-workflow';

import type { SendResult } from './sending';

export const OUTPUT = { sent: 0, duplicate: 1, notSent: 2 } as const;
export const OUTPUT_NAMES = ['Sent', 'Duplicate', 'Not Sent'];

export function outputOf({ status }: SendResult): number {
	if (status === 'sent') return OUTPUT.sent;
	return status === 'duplicate' ? OUTPUT.duplicate : OUTPUT.notSent;
}

/** What the item gains. Only what says something: no field of it is null. */
export function messageField(result: SendResult, mode: string): IDataObject {
	const field: IDataObject = {
		status: result.status,
		message: sentence(result, mode),
		chatId: result.chatId,
	};
	const values: IDataObject = {
		movedFrom: result.movedFrom,
		messageRef: result.messageRef,
		messageId: result.messageIds[0],
		messageIds: result.partCount > 1 ? result.messageIds : null,
		parts: result.partCount > 1 ? result.partCount : null,
		sentParts: result.partCount > 1 ? result.messageIds.length : null,
		sentAt: result.sentAt,
		retryAt: result.retryAt,
		reason: result.reason,
		owner: result.owner as IDataObject | null,
		copyPossible: result.copyPossible,
		contentDiffers: result.contentDiffers,
		plainText: result.plainText,
		recorded: result.recorded ? null : false,
	};
	for (const [name, value] of Object.entries(values)) {
		if (value === null || value === undefined) continue;
		if (value !== false || name === 'recorded') field[name] = value;
	}
	return field;
}

/** The result as a sentence, for people in the editor and for agents. */
function sentence(result: SendResult, mode: string): string {
	const { messageIds, partCount, reason } = result;
	const id =
		messageIds.length > 0 ? ` (message ${messageIds.map((one) => one ?? '?').join(', ')})` : '';
	const parts =
		partCount > 1 && result.status !== 'sent' && result.status !== 'duplicate'
			? ` ${messageIds.length} of its ${partCount} parts are out; a later run sends only the missing ones.`
			: '';
	switch (result.status) {
		case 'sent': {
			const copy = result.copyPossible
				? ' An earlier attempt may have arrived as well: the reader may have it twice.'
				: '';
			const plain = result.plainText
				? ' Without its formatting, which Telegram could not parse.'
				: '';
			const unrecorded = result.recorded
				? ''
				: ' The ledger could not be told: there it will stand as unknown.';
			return `Sent to chat ${result.chatId}${id}.${copy}${plain}${unrecorded}`;
		}
		case 'duplicate': {
			const when = result.sentAt === null ? 'before' : `at ${result.sentAt}`;
			const differs = result.contentDiffers
				? ' The text of this item is another one: it was not sent.'
				: '';
			const test =
				mode === 'manual' ? ' To test again, change the text, or shorten "Remember For".' : '';
			return `Already sent to chat ${result.chatId} ${when}${id}. Not sent again.${differs}${test}`;
		}
		case 'permanent':
			return `Not sent: ${withStop(reason)} Trying again as it is will not help.${parts}`;
		case 'retry_later':
			return `Not sent: ${withStop(reason)} Send it again${result.retryAt === null ? ' later' : ` after ${result.retryAt}`}.${parts}`;
		case 'unknown':
			return `It may have been sent: ${withStop(reason)} ${
				result.resends
					? 'The next run sends it again, as you chose: the reader may get it twice.'
					: 'It is not sent again before a person has looked into the chat (Work Ledger → Message → Resolve).'
			}${parts}`;
		case 'in_progress':
			return `Not sent here: ${withStop(reason)}`;
		case 'mismatch':
			return `Not sent: ${withStop(reason)} Send the new text under another key.${parts}`;
		case 'error':
			return `Not sent, for the ledger failed: ${withStop(reason)}${parts}`;
	}
}

function withStop(reason: string | null): string {
	const text = reason ?? 'no reason given';
	return /[.!?]$/.test(text) ? text : `${text}.`;
}
