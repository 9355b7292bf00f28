import type { IDataObject } from 'n8n-workflow';

import { shownFor, type Call, type LedgerOperation } from '../operation';

export const messageResolve: LedgerOperation = {
	resource: 'message',
	option: {
		name: 'Resolve',
		value: 'resolve',
		action: 'Resolve a message',
		description: 'A Telegram message that may have arrived: say whether it did',
	},
	properties: [
		{
			displayName: 'Message Reference',
			name: 'messageRef',
			type: 'string',
			default: '',
			description:
				'The 64 hex digits that Send-Once Telegram and the list put on an item. Empty: those of the item that arrives.',
			...shownFor('message', 'resolve'),
		},
		{
			displayName: 'Did It Arrive?',
			name: 'arrived',
			type: 'options',
			noDataExpression: true,
			options: [
				{
					name: 'No: Send It Again',
					value: 'no',
					description: 'It goes out with its next delivery',
				},
				{
					name: 'Yes: It Is in the Chat',
					value: 'yes',
					description: 'A duplicate from now on. Missing parts go out with its next delivery.',
				},
			],
			default: 'yes',
			description: 'Look into the chat before you answer',
			...shownFor('message', 'resolve'),
		},
		{
			displayName: 'Message ID',
			name: 'messageId',
			type: 'string',
			default: '',
			placeholder: 'e.g. 4711',
			description: 'Its number in the chat, if you know it',
			displayOptions: {
				show: { resource: ['message'], operation: ['resolve'], arrived: ['yes'] },
			},
		},
	],
	async run(call) {
		const { ledger, parameters, itemIndex, caller } = call;
		const messageRef = readRef(call);
		const arrived = parameters.read<unknown>('arrived', itemIndex, undefined);
		if (arrived !== 'yes' && arrived !== 'no') {
			throw new Error('"Did It Arrive?" must be yes or no. Choose it anew.');
		}
		const messageId = readMessageId(parameters.text('messageId', itemIndex).trim());
		const [answer] = await ledger.messages.resolve(
			[messageRef],
			arrived === 'yes' ? { arrived: true, messageId } : { arrived: false },
			caller,
		);
		if (answer.status === 'not_found') {
			throw new Error(`The ledger holds no such message (${messageRef}). Take it from the list.`);
		}
		if (answer.status === 'refused') {
			throw new Error(`${answer.reason ?? 'It is past this'}. Nothing was changed.`);
		}
		return [
			{
				status: answer.status,
				message:
					answer.state === 'sent'
						? 'It arrived: a duplicate from now on.'
						: 'It, or what is missing of it, goes out with its next delivery.',
				messageRef: answer.messageRef,
				chatId: answer.chatId,
				state: answer.state,
				messageIds: answer.messageIds,
			},
		];
	},
};

function readRef({ parameters, itemIndex, json }: Call): string {
	const given = parameters.text('messageRef', itemIndex).trim();
	const onItem = [json, ...Object.values(json)].map(
		(value) => (value as IDataObject | null | undefined)?.messageRef,
	);
	const ref = given === '' ? onItem.find((one) => typeof one === 'string') : given;
	if (typeof ref === 'string' && /^[0-9a-f]{64}$/.test(ref)) return ref;
	throw new Error(
		`${given === '' ? 'The item' : 'Message Reference'} names no message: 64 hex digits are needed, as Send-Once Telegram puts them on the item under message.messageRef.`,
	);
}

function readMessageId(text: string): number | undefined {
	if (text === '') return undefined;
	const id = Number(text);
	if (/^\d+$/.test(text) && Number.isSafeInteger(id)) return id;
	throw new Error('Message ID must be a whole number. Leave it empty if you do not know it.');
}
