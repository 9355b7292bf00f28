import { randomUUID } from 'crypto';
import type { IDataObject, IExecuteFunctions, INodeExecutionData } from 'n8n-workflow';

import {
	contentHash,
	messageKey,
	messageParts,
	readChatId,
	sha256,
	textProblem,
	visibleText,
	volatileSources,
	MAX_PARTS,
	type MessageContent,
	type MessageItem,
	type MessageKind,
	type MessagePart,
	type ParseMode,
} from '../../ledger';
import type { Parameters } from '../execution/parameters';
import { answerStatus, fieldNameProblem } from '../execution/work-field';
import { checkedNumber } from '../execution/number';
import { DEFAULT_MESSAGE_FIELD } from './properties';
import type { Upload } from './telegram-api';

/** Telegram's limits, in UTF-16 units after entity parsing. */
const TEXT_LIMIT = 4_096;
const CAPTION_LIMIT = 1_024;
/** What Telegram takes from a bot. It also bounds the memory: one file at a time is held. */
const MAX_UPLOAD_BYTES = 50 * 1024 * 1024;

const SECONDS: Record<string, number> = { seconds: 1, minutes: 60, hours: 3600, days: 86_400 };

/** One request to the Bot API. */
export interface ApiCall {
	method: 'sendDocument' | 'sendMessage' | 'sendPhoto';
	parameters: Record<string, unknown>;
	upload: (() => Promise<Upload>) | null;
}

/** A message as an item asks for it. */
export interface Outgoing extends MessageItem {
	itemIndex: number;
	field: string;
	windowSeconds: number | null;
	resendUnknown: boolean;
	plainFallback: boolean;
	parts: MessagePart[];
	/** The call of one part, from 1; plain: without its parse mode. */
	call(part: number, plain: boolean): ApiCall;
	hints: string[];
}

/** Limits of the whole run, read from the first item. */
export interface Pace {
	rate: number;
	maxWaitSeconds: number;
	timeoutSeconds: number;
}

export function readPace(parameters: Parameters): Pace {
	const option = (name: string, label: string, least: number, most: number, otherwise: number) =>
		checkedNumber(parameters.option<unknown>(name, 0, otherwise), { label, least, most });
	return {
		rate: option('rate', 'Messages per Second', 0.01, 10_000, 25),
		maxWaitSeconds: option('maxWaitSeconds', 'Wait for Telegram at Most', 0, 3_600, 30),
		timeoutSeconds: option('timeoutSeconds', 'Time-Out', 1, 600, 30),
	};
}

/** Throws for a name that would lose a value of the item's own. */
export function readFieldName(options: IDataObject, json: IDataObject): string {
	const field = (options.field ?? DEFAULT_MESSAGE_FIELD) as string;
	const problem = fieldNameProblem(field);
	if (problem !== null) throw new Error(problem);
	const own = json[field] as IDataObject | null | undefined;
	const isOwnAnswer =
		answerStatus(own) !== null || (typeof own === 'object' && own !== null && isMessageField(own));
	if (!Object.hasOwn(json, field) || (isOwnAnswer && own?.token === undefined)) return field;
	throw new Error(
		`The item already has a field "${field}", which would be lost. Choose another name in the option "Field Name", for example sent.`,
	);
}

/** What an earlier Send-Once Telegram put on the item; one that was not asked for has no reference. */
export const isMessageField = ({ status, message, chatId, messageRef }: IDataObject) =>
	typeof status === 'string' &&
	(typeof messageRef === 'string' || (typeof message === 'string' && typeof chatId === 'string'));

/** Reads what an item asks for. Throws, naming the field and the cure, for what cannot be sent. */
export async function readOutgoing(
	context: IExecuteFunctions,
	parameters: Parameters,
	item: INodeExecutionData,
	itemIndex: number,
): Promise<Outgoing> {
	// once: an expression among them is evaluated with every reading
	const options = parameters.read<IDataObject>('options', itemIndex, {});
	const field = readFieldName(options, item.json);
	const kind = parameters.read<MessageKind>('operation', itemIndex, 'message');
	if (!['document', 'message', 'photo'].includes(kind)) {
		throw new Error(`Operation "${String(kind).slice(0, 50)}" is not known. Choose it anew.`);
	}
	const chatId = readChatId(parameters.read<unknown>('chatId', itemIndex, ''));
	const textField = kind === 'message' ? 'Text' : 'Caption';
	const textName = kind === 'message' ? 'text' : 'caption';
	// it would reach the reader as it stands, and only once
	parameters.refuseTyped(textName, textField);
	const text = readText(parameters.text(textName, itemIndex), textField);
	const parseMode = readParseMode(optionText(options, 'parseMode'));
	if (kind === 'message' && visibleText(text, parseMode).trim() === '') {
		throw new Error('Text is empty: there is nothing to send. Choose the field with the text.');
	}
	const plainFallback = options.plainFallback === true;
	const limits = { first: kind === 'message' ? TEXT_LIMIT : CAPTION_LIMIT, rest: TEXT_LIMIT };
	const { parts, mode } = cutParts(text, parseMode, limits, plainFallback, textField);

	const file =
		kind === 'message' ? null : await readFile(context, parameters, options, itemIndex, kind);
	const replyMarkup = readMarkup(options);
	const threadId = readId(optionText(options, 'threadId'), 'Thread ID');
	const replyTo = readId(optionText(options, 'replyTo'), 'Reply to Message ID');
	const linkPreview = options.noLinkPreview !== true;
	const content: MessageContent = {
		kind,
		text,
		parseMode,
		media: file?.identity ?? null,
		replyMarkup,
		threadId,
		replyTo,
		linkPreview,
	};
	const hash = contentHash(content);
	const { ownKey, hints } = readOwnKey(parameters, options, itemIndex);

	const shared = {
		...(threadId === null ? {} : { message_thread_id: threadId }),
		...(options.silent === true ? { disable_notification: true } : {}),
		...(options.protect === true ? { protect_content: true } : {}),
	};
	return {
		itemIndex,
		field,
		chatId,
		messageKey: messageKey(ownKey === null ? { contentHash: hash } : { ownKey }),
		token: randomUUID(),
		contentHash: hash,
		partHashes: parts.map((part) => sha256(part.text)),
		kind,
		preview: options.hideText === true ? null : previewOf(visibleText(text, mode), kind, file),
		windowSeconds: readWindow(parameters, itemIndex),
		resendUnknown: readOnUnknown(parameters, itemIndex),
		plainFallback,
		parts,
		hints,
		call(part, plain) {
			const { text: marked, plain: bare } = parts[part - 1];
			const words = plain ? bare : marked;
			const ends = {
				...(part === 1 && replyTo !== null ? { reply_parameters: { message_id: replyTo } } : {}),
				...(part === parts.length && replyMarkup !== null ? { reply_markup: replyMarkup } : {}),
				...(mode === null || plain || words === '' ? {} : { parse_mode: mode }),
				...shared,
			};
			if (file !== null && part === 1) {
				return {
					method: kind === 'photo' ? 'sendPhoto' : 'sendDocument',
					parameters: {
						...(file.upload === null ? { [kind]: file.reference } : {}),
						...(words === '' ? {} : { caption: words }),
						...ends,
					},
					upload: file.upload,
				};
			}
			return {
				method: 'sendMessage',
				parameters: {
					text: words,
					...(linkPreview ? {} : { link_preview_options: { is_disabled: true } }),
					...ends,
				},
				upload: null,
			};
		},
	};
}

/** Unset, undefined and null are ''. */
const optionText = (options: IDataObject, name: string) => String(options[name] ?? '');

/** Texts that stand where a value was lost upstream. */
const MISTAKES = new Set(['undefined', 'null', 'NaN', '[object Object]']);

function readText(text: string, field: string): string {
	if (MISTAKES.has(text.trim())) {
		throw new Error(
			`${field} is "${text.trim()}": a value was lost on its way here. Check the field it names.`,
		);
	}
	const problem = textProblem(text);
	if (problem !== null) throw new Error(`${field} ${problem}`);
	return text;
}

function readParseMode(given: string): ParseMode | null {
	if (given === '') return null;
	if (given === 'HTML' || given === 'Markdown' || given === 'MarkdownV2') return given;
	throw new Error(`Parse Mode "${given.slice(0, 50)}" is not known. Choose it anew.`);
}

function cutParts(
	text: string,
	parseMode: ParseMode | null,
	limits: { first: number; rest: number },
	plainFallback: boolean,
	field: string,
): { parts: MessagePart[]; mode: ParseMode | null } {
	const parts = messageParts(text, parseMode, limits);
	if (parts !== null) return { parts, mode: parseMode };
	const plain = plainFallback ? messageParts(text, null, limits) : null;
	if (plain !== null) return { parts: plain, mode: null };
	throw new Error(
		parseMode === null || messageParts(text, null, limits) === null
			? `${field} is too long: more than ${MAX_PARTS} messages. Send it as a document.`
			: `${field} is longer than one message and cannot be cut without breaking its ${parseMode}. Use HTML, which can be cut anywhere, close every marker within a paragraph, or switch on "Plain Text if It Cannot Be Parsed".`,
	);
}

interface File {
	identity: NonNullable<MessageContent['media']>;
	/** What stands in the call: an address or a file id. */
	reference: string;
	upload: (() => Promise<Upload>) | null;
	name: string | null;
}

async function readFile(
	context: IExecuteFunctions,
	parameters: Parameters,
	options: IDataObject,
	itemIndex: number,
	kind: 'document' | 'photo',
): Promise<File> {
	switch (parameters.read<string>('source', itemIndex, 'binary')) {
		case 'url': {
			const url = parameters.text('fileUrl', itemIndex).trim();
			if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
				throw new Error(
					'URL is no web address. Enter one that Telegram can reach, such as https://example.com/picture.jpg.',
				);
			}
			return { identity: { url }, reference: url, upload: null, name: null };
		}
		case 'fileId': {
			const fileId = parameters.text('fileId', itemIndex).trim();
			if (!/^[\w-]{10,300}$/.test(fileId)) {
				throw new Error(
					'File ID is none that Telegram gave. Take it from a message of the Telegram Trigger, for example message.document.file_id.',
				);
			}
			return { identity: { fileId }, reference: fileId, upload: null, name: null };
		}
		default: {
			const property = parameters.text('binaryProperty', itemIndex, 'data').trim();
			const { fileName, mimeType } = context.helpers.assertBinaryData(itemIndex, property);
			const data = await context.helpers.getBinaryDataBuffer(itemIndex, property);
			if (data.length === 0) throw new Error(`The file in "${property}" is empty.`);
			if (data.length > MAX_UPLOAD_BYTES) {
				throw new Error(
					`The file in "${property}" is larger than 50 MB, which a bot cannot upload. Send it by URL.`,
				);
			}
			const name = optionText(options, 'fileName').trim() || (fileName ?? kind);
			return {
				identity: { sha256: sha256(data), fileName: kind === 'document' ? name : '' },
				reference: '',
				name,
				// read again when it is its turn: the files of a batch together may fill the memory
				upload: async () => ({
					field: kind,
					fileName: name,
					mimeType: mimeType ?? 'application/octet-stream',
					data: await context.helpers.getBinaryDataBuffer(itemIndex, property),
				}),
			};
		}
	}
}

function readMarkup(options: IDataObject): IDataObject | null {
	const given: unknown = options.replyMarkup ?? '';
	const form = options.buttons as { button?: IDataObject[] } | undefined;
	const buttons = form?.button ?? [];
	if (given === '') return buttons.length === 0 ? null : inlineButtons(buttons);
	if (buttons.length > 0) {
		throw new Error('Both Buttons and Reply Markup are set. Keep one of them.');
	}
	const markup: unknown = typeof given === 'string' ? parsedJson(given) : given;
	if (markup === undefined) {
		throw new Error('Reply Markup is no JSON. Check its brackets and quotes.');
	}
	if (typeof markup !== 'object' || markup === null || Array.isArray(markup)) {
		throw new Error(
			'Reply Markup must be an object, for example {"inline_keyboard": [[{"text": "Open", "url": "https://example.com"}]]}.',
		);
	}
	return markup as IDataObject;
}

function parsedJson(text: string): unknown {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

function inlineButtons(buttons: IDataObject[]): IDataObject {
	const rows: IDataObject[][] = [];
	for (const { text, does, value, sameRow } of buttons) {
		const label = String(text ?? '').trim();
		const data = String(value ?? '').trim();
		if (label === '' || data === '') {
			throw new Error('A button lacks its label, or its address or callback data.');
		}
		const isCallback = does === 'callback_data';
		if (isCallback && Buffer.byteLength(data) > 64) {
			throw new Error(`The callback data of button "${label.slice(0, 50)}" are over 64 bytes.`);
		}
		if (sameRow !== true || rows.length === 0) rows.push([]);
		rows[rows.length - 1].push({ text: label, [isCallback ? 'callback_data' : 'url']: data });
	}
	return { inline_keyboard: rows };
}

function readId(given: string, label: string): number | null {
	const text = given.trim();
	if (text === '') return null;
	const id = Number(text);
	if (/^\d+$/.test(text) && Number.isSafeInteger(id) && id > 0) return id;
	throw new Error(`${label} must be a whole number such as 42, not "${text.slice(0, 50)}".`);
}

function readWindow(parameters: Parameters, itemIndex: number): number | null {
	const window = parameters.read<string>('window', itemIndex, 'duration');
	if (window === 'forever') return null;
	const unit = parameters.read<string>('windowUnit', itemIndex, 'hours');
	const amount = checkedNumber(parameters.read<unknown>('windowAmount', itemIndex, 24), {
		label: 'Time (under "Remember For")',
		least: 0,
		most: 3.2e9,
	});
	const seconds = amount * (SECONDS[unit] ?? NaN);
	if (seconds >= 1 && seconds <= 3.2e9) return seconds;
	throw new Error('"Remember For" must be at least 1 second and at most 100 years.');
}

function readOnUnknown(parameters: Parameters, itemIndex: number): boolean {
	const given = parameters.read<string>('onUnknown', itemIndex, 'hold');
	if (given === 'hold' || given === 'resend') return given === 'resend';
	throw new Error('"If Nobody Knows Whether It Arrived" is not known. Choose it anew.');
}

/** What changes with every run makes every run's message a new one. */
function readOwnKey(
	parameters: Parameters,
	options: IDataObject,
	itemIndex: number,
): { ownKey: unknown; hints: string[] } {
	const raw = (parameters.raw('options') as IDataObject | undefined)?.key;
	const ownKey: unknown = options.key ?? '';
	const isSet = typeof raw === 'string' ? raw !== '' : ownKey !== '';
	const sources = (value: unknown) => (typeof value === 'string' ? volatileSources(value) : []);
	if (isSet) {
		const [source] = sources(raw);
		if (source !== undefined) {
			throw new Error(
				`Own Key uses ${source}, which differs in every run: nothing would ever be a duplicate. Use a value that stays, such as an order number.`,
			);
		}
		const part = parameters.emptyOptionPart('key', itemIndex);
		if (part !== null) {
			throw new Error(
				`Own Key: ${part} gives nothing in this item, so it would be the key of every message without it. Check the field it names.`,
			);
		}
		return { ownKey, hints: [] };
	}
	const [source] = ['text', 'caption'].flatMap((name) => sources(parameters.raw(name)));
	return {
		ownKey: null,
		hints:
			source === undefined
				? []
				: [
						`The text uses ${source}, so every run sends another text and none is a duplicate. If it should go out once all the same, set the option "Own Key"`,
					],
	};
}

function previewOf(text: string, kind: MessageKind, file: File | null): string {
	const start = Array.from(text.slice(0, 400)).slice(0, 200).join('');
	if (file === null) return start;
	return [`[${kind}${file.name === null ? '' : ` ${file.name}`}]`, start].join(' ').trim();
}
