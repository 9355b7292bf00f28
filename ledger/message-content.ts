import { createHash } from 'crypto';
import stringify from 'fast-json-stable-stringify';

import { identifyByKey, unresolvedIn } from './identity';
import type { ParseMode } from './message-parts';

export type MessageKind = 'document' | 'message' | 'photo';

/** Everything of a message that its reader sees. How it is delivered (silently, protected) is not part of it. */
export interface MessageContent {
	kind: MessageKind;
	/** The text, or the caption of a photo or document. */
	text: string;
	parseMode: ParseMode | null;
	/** By what it is, not by how it is reached: of a file its bytes. */
	media: { url: string } | { fileId: string } | { sha256: string; fileName: string } | null;
	/** Buttons and the like, as the Bot API takes them. */
	replyMarkup: unknown;
	/** The topic of a forum that it appears in. */
	threadId: number | null;
	/** The message that it answers. */
	replyTo: number | null;
	/** Whether the first link shows a preview. */
	linkPreview: boolean;
}

/** sha256, hex. Space around a text is nothing that its reader sees; the same letters in other code points look the same. */
export function contentHash(content: MessageContent): string {
	const text = content.text.trim().normalize('NFC');
	return sha256(`telegram:v1:${stringify({ ...content, text })}`);
}

/** What makes two sendings one message in a chat: what they show, or a key of the caller's own. */
export function messageKey(content: { contentHash: string } | { ownKey: unknown }): string {
	if ('contentHash' in content) return content.contentHash;
	// throws IdentityRefusal for an empty key, "undefined" and the like
	return identifyByKey({ kind: 'telegram' }, [{ name: 'Own Key', value: content.ownKey }], {
		glued: true,
	}).workId;
}

/**
 * A chat's id in its one form: numbers and their text are one chat, and a @name means one chat in capitals and small
 * letters. Throws an error that names the cure.
 */
export function readChatId(value: unknown): string {
	const text =
		typeof value === 'number' || typeof value === 'bigint' || typeof value === 'string'
			? plainSigns(String(value))
			: '';
	if (/^@[A-Za-z]\w{2,}$/.test(text)) return text.toLowerCase();
	if (/^[+-]?\d{1,20}$/.test(text) && BigInt(text) !== 0n) {
		if (typeof value === 'number' && !Number.isSafeInteger(value)) {
			throw new Error(`Chat ID ${text} was rounded on its way here. Pass it as text.`);
		}
		return BigInt(text).toString();
	}
	if (unresolvedIn(text) !== null) {
		throw new Error(
			`Chat ID holds ${text.slice(0, 100)} as it was typed. Switch the field from Fixed to Expression.`,
		);
	}
	if (typeof value === 'object' && value !== null) {
		throw new Error(
			`Chat ID is ${Array.isArray(value) ? 'a list' : 'an object'}. Choose the field inside it, such as message.chat.id.`,
		);
	}
	const [, name] = PUBLIC_NAME.exec(text) ?? [];
	if (name !== undefined) {
		throw new Error(`Chat ID is no number. If it is a public channel or group, enter @${name}.`);
	}
	throw new Error(
		text === '' || text === 'undefined' || text === 'null'
			? 'Chat ID is empty. Choose the field with the number of the chat, or enter the @name of a channel.'
			: 'Chat ID must be a number such as 123456789 or -1001234567890, or the @name of a public channel or group.',
	);
}

/** As it is copied from a page: with its typographic minus, and marks of direction that nobody sees. */
function plainSigns(text: string): string {
	return text
		.replace(/[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, '')
		.trim()
		.replace(/^[\u2010-\u2015\u2212\ufe63\uff0d](?=\d)/, '-');
}

const PUBLIC_NAME = /^(?:(?:https?:\/\/)?(?:t|telegram)\.me\/)?([A-Za-z]\w{3,31})\/?$/;

export function sha256(text: string | Uint8Array): string {
	return createHash('sha256').update(text).digest('hex');
}
