import type { IDataObject } from 'n8n-workflow';

import type { MessageState } from '../../../ledger';
import { readNumber } from '../../execution/number';
import { shownFor, type LedgerOperation } from '../operation';
import { messageStanding } from '../story';

const PAGE = 500;
/** What the list settles before it looks: more than senders that vanish at one time leave behind. */
const SWEPT = 1_000;

export const messageList: LedgerOperation = {
	resource: 'message',
	option: {
		name: 'List',
		value: 'list',
		action: 'List messages',
		description: 'Telegram messages by state and chat, the newest change first',
	},
	properties: [
		{
			displayName: 'States',
			name: 'messageStates',
			type: 'multiOptions',
			options: [
				{ name: 'Being Sent', value: 'sending' },
				{ name: 'Not Sent', value: 'not_sent' },
				{ name: 'Refused by Telegram', value: 'refused' },
				{ name: 'Reserved', value: 'reserved' },
				{ name: 'Sent', value: 'sent' },
				{ name: 'Unknown', value: 'unknown' },
			],
			default: ['unknown'],
			description: 'None chosen: all',
			...shownFor('message', 'list'),
		},
		{
			displayName: 'Chat ID',
			name: 'chat',
			type: 'string',
			default: '',
			placeholder: 'e.g. 123456789',
			description: 'Empty: all chats. A group that has moved is found by its old ID, too.',
			...shownFor('message', 'list'),
		},
		{
			displayName: 'Text in the Message',
			name: 'messageText',
			type: 'string',
			default: '',
			description: 'Part of its first 200 characters, in any case. Empty: any.',
			...shownFor('message', 'list'),
		},
		{
			displayName: 'Limit',
			name: 'messageLimit',
			type: 'number',
			typeOptions: { minValue: 1 },
			default: 50,
			description: 'Max number of results to return',
			...shownFor('message', 'list'),
		},
		{
			displayName: 'Continue After',
			name: 'messageCursor',
			type: 'string',
			default: '',
			description: 'The cursor on the last item of the page before. Empty: from the beginning.',
			...shownFor('message', 'list'),
		},
	],
	async run({ ledger, parameters, itemIndex, caller }) {
		const text = (name: string) => parameters.text(name, itemIndex).trim() || undefined;
		const states = parameters.chosen<MessageState>('messageStates', 'States', itemIndex, [
			'unknown',
		]);
		const limit = readNumber(parameters, itemIndex, 'messageLimit', {
			label: 'Limit',
			least: 1,
			most: 100_000,
			whole: true,
		});
		const filter = {
			states: states.length === 0 ? undefined : states,
			chat: text('chat'),
			text: text('messageText'),
		};
		// whose sender vanished is unknown only once somebody looks
		await ledger.messages.sweep(SWEPT, caller);
		const found: IDataObject[] = [];
		let cursor = text('messageCursor') ?? null;
		do {
			const page = await ledger.messages.list(filter, Math.min(PAGE, limit - found.length), cursor);
			cursor = page.cursor;
			found.push(
				...page.messages.map(
					(message) =>
						({ ...message, summary: messageStanding(message) }) as unknown as IDataObject,
				),
			);
		} while (cursor !== null && found.length < limit);
		const last = found.at(-1);
		if (last !== undefined && cursor !== null) last.cursor = cursor;
		return found;
	},
};
