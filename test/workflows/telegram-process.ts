import { randomUUID } from 'node:crypto';

import { contentHash, createLedger, sha256, type LedgerSettings } from '../../ledger';
import type { Outgoing } from '../../nodes/SendOnceTelegram/request';
import { Sending } from '../../nodes/SendOnceTelegram/sending';
import { TelegramApi } from '../../nodes/SendOnceTelegram/telegram-api';

/** A worker that sends, in a process of its own: `node --require load-typescript.js telegram-process.ts <job as JSON>`. */
export interface SenderJob {
	settings: LedgerSettings;
	url: string;
	token: string;
	chats: string[];
	text: string;
	rate: number;
}

export function outgoing(chatId: string, text: string, itemIndex: number): Outgoing {
	const hash = contentHash({
		kind: 'message',
		text,
		parseMode: null,
		media: null,
		replyMarkup: null,
		threadId: null,
		replyTo: null,
		linkPreview: true,
	});
	return {
		itemIndex,
		field: 'message',
		chatId,
		messageKey: hash,
		token: randomUUID(),
		contentHash: hash,
		partHashes: [sha256(text)],
		kind: 'message',
		preview: text,
		windowSeconds: 86_400,
		resendUnknown: false,
		plainFallback: false,
		parts: [{ text, plain: text }],
		hints: [],
		call: () => ({ method: 'sendMessage', parameters: { text }, upload: null }),
	};
}

async function main({ settings, url, token, chats, text, rate }: SenderJob): Promise<void> {
	const ledger = createLedger(settings);
	const api = new TelegramApi({ accessToken: token, baseUrl: url });
	const pace = { rate, maxWaitSeconds: 60, timeoutSeconds: 30 };
	const sending = new Sending(ledger.messages, api, pace, {}, undefined);
	const messages = chats.map((chat, i) => outgoing(chat, text, i));
	const results = await sending.sendAll(messages);
	process.stdout.write(
		`${JSON.stringify(messages.map((message) => [message.chatId, results.get(message)?.status]))}\n`,
	);
	api.close();
	await ledger.close();
}

if (require.main === module) {
	main(JSON.parse(process.argv[2]) as SenderJob).catch((error: unknown) => {
		process.stderr.write(String(error));
		process.exit(1);
	});
}
