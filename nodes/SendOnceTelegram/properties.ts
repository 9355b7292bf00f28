import type { INodeProperties } from 'n8n-workflow';

export const DEFAULT_MESSAGE_FIELD = 'message';

const shown = (show: Record<string, string[]>) => ({ displayOptions: { show } });
const withMedia = { operation: ['photo', 'document'] };

export const properties: INodeProperties[] = [
	{
		displayName: 'Operation',
		name: 'operation',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Send Document',
				value: 'document',
				action: 'Send a document once',
				description: 'A file of any kind, with a caption',
			},
			{
				name: 'Send Message',
				value: 'message',
				action: 'Send a message once',
				description: 'A text; long ones go out in parts',
			},
			{
				name: 'Send Photo',
				value: 'photo',
				action: 'Send a photo once',
				description: 'A picture, with a caption',
			},
		],
		default: 'message',
	},
	{
		displayName: 'Chat ID',
		name: 'chatId',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. 123456789 or @my_channel',
		description:
			'The number of the chat, or the @name of a public channel or group. As number or as text it is the same chat.',
	},
	{
		displayName: 'Text',
		name: 'text',
		type: 'string',
		typeOptions: { rows: 4 },
		default: '',
		required: true,
		placeholder: 'e.g. Order {{ $json.order }} is paid',
		description:
			'Sent as it stands, unless a parse mode is chosen under Options. A text longer than 4,096 characters goes out in parts.',
		...shown({ operation: ['message'] }),
	},
	{
		displayName: 'File From',
		name: 'source',
		type: 'options',
		noDataExpression: true,
		options: [
			{ name: 'Binary Data', value: 'binary', description: 'A file on the item' },
			{
				name: 'File ID',
				value: 'fileId',
				description: 'The ID that Telegram gave to a file it knows',
			},
			{ name: 'URL', value: 'url', description: 'Telegram fetches it from a public address' },
		],
		default: 'binary',
		description: 'Where the file comes from',
		...shown(withMedia),
	},
	{
		displayName: 'Binary Field',
		name: 'binaryProperty',
		type: 'string',
		default: 'data',
		required: true,
		hint: 'The name of the input field that holds the file',
		...shown({ ...withMedia, source: ['binary'] }),
	},
	{
		displayName: 'File ID',
		name: 'fileId',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. {{ $json.photo.file_id }}',
		description: 'As Telegram gave it to this bot: each bot has IDs of its own for a file',
		...shown({ ...withMedia, source: ['fileId'] }),
	},
	{
		displayName: 'URL',
		name: 'fileUrl',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. https://example.com/picture.jpg',
		description:
			'The whole address counts as what is sent: one that changes each time (signed URLs) is a new message each time, unless you set an Own Key',
		...shown({ ...withMedia, source: ['url'] }),
	},
	{
		displayName: 'Caption',
		name: 'caption',
		type: 'string',
		typeOptions: { rows: 2 },
		default: '',
		description: 'At most 1,024 characters stand below the file; the rest follows as a message',
		...shown(withMedia),
	},
	{
		displayName: 'Remember For',
		name: 'window',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'A Time',
				value: 'duration',
				description: 'The same message to the same chat within this time is a duplicate',
			},
			{ name: 'Forever', value: 'forever', description: 'The same message never goes out again' },
		],
		default: 'duration',
		description:
			'How long the same message to the same chat counts as a duplicate. What was sent is what the reader sees: text, file, buttons.',
	},
	{
		displayName: 'Time',
		name: 'windowAmount',
		type: 'number',
		typeOptions: { minValue: 0 },
		default: 24,
		description:
			'Longer than any sender repeats: what comes again after it goes out as a second copy',
		...shown({ window: ['duration'] }),
	},
	{
		displayName: 'Unit',
		name: 'windowUnit',
		type: 'options',
		noDataExpression: true,
		options: [
			{ name: 'Days', value: 'days' },
			{ name: 'Hours', value: 'hours' },
			{ name: 'Minutes', value: 'minutes' },
			{ name: 'Seconds', value: 'seconds' },
		],
		default: 'hours',
		description: 'Of the time above',
		...shown({ window: ['duration'] }),
	},
	{
		displayName: 'If Nobody Knows Whether It Arrived',
		name: 'onUnknown',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Do Not Send Again',
				value: 'hold',
				description:
					'At most once: it leaves by Not Sent as unknown, and a person looks into the chat',
			},
			{
				name: 'Send Again',
				value: 'resend',
				description: 'At least once: the reader may get it twice',
			},
		],
		default: 'hold',
		description:
			'After a time-out or a crash in the middle of sending. Telegram offers no way to ask, so exactly once cannot be had.',
	},
	{
		displayName: 'Options',
		name: 'options',
		type: 'collection',
		placeholder: 'Add Option',
		default: {},
		options: [
			{
				displayName: 'Buttons',
				name: 'buttons',
				type: 'fixedCollection',
				typeOptions: { multipleValues: true, sortable: true },
				placeholder: 'Add Button',
				default: {},
				description: 'Buttons below the message',
				options: [
					{
						displayName: 'Button',
						name: 'button',
						values: [
							{
								displayName: 'Label',
								name: 'text',
								type: 'string',
								default: '',
								placeholder: 'e.g. Approve',
								description: 'What stands on the button',
							},
							{
								displayName: 'Does',
								name: 'does',
								type: 'options',
								options: [
									{ name: 'Open an Address', value: 'url' },
									{ name: 'Send a Callback', value: 'callback_data' },
								],
								default: 'url',
								description: 'What happens when somebody presses it',
							},
							{
								displayName: 'Address or Callback Data',
								name: 'value',
								type: 'string',
								default: '',
								description: 'Callback data hold at most 64 bytes',
							},
							{
								displayName: 'In the Same Row as the One Before',
								name: 'sameRow',
								type: 'boolean',
								default: false,
								description: 'Whether it stands beside the button before it, not below',
							},
						],
					},
				],
			},
			{
				displayName: 'Disable Link Preview',
				name: 'noLinkPreview',
				type: 'boolean',
				default: false,
				description: 'Whether to show no preview of the first link in the text',
			},
			{
				displayName: 'Field Name',
				name: 'field',
				type: 'string',
				default: DEFAULT_MESSAGE_FIELD,
				description:
					'Name of the field that is added to the item. Items of the Telegram Trigger already have a field "message": choose another name there, for example sent.',
			},
			{
				displayName: 'File Name',
				name: 'fileName',
				type: 'string',
				default: '',
				placeholder: 'e.g. invoice-1001.pdf',
				description: 'Instead of the name of the binary data',
				displayOptions: { show: { '/operation': ['document', 'photo'], '/source': ['binary'] } },
			},
			{
				displayName: 'Keep Text Out of the Ledger',
				name: 'hideText',
				type: 'boolean',
				default: false,
				description:
					'Whether to store no preview. By default the first 200 characters are kept, so that people know which message an entry is about.',
			},
			{
				displayName: 'Messages per Second',
				name: 'rate',
				type: 'number',
				typeOptions: { minValue: 1 },
				default: 25,
				description:
					'Of this bot, over all its workflows and workers. Telegram allows about 30; more only for bots that pay for it.',
			},
			{
				displayName: 'Own Key',
				name: 'key',
				type: 'string',
				default: '',
				placeholder: 'e.g. {{ $json.work.workId }}',
				description:
					'What makes two sendings to a chat the same message, instead of their content: a work ID, an order number with a word before it',
			},
			{
				displayName: 'Parse Mode',
				name: 'parseMode',
				type: 'options',
				options: [
					{ name: 'HTML', value: 'HTML' },
					{ name: 'Markdown (Legacy)', value: 'Markdown' },
					{ name: 'MarkdownV2', value: 'MarkdownV2' },
					{ name: 'None', value: '' },
				],
				default: '',
				description:
					'How Telegram reads markup in the text. With none, every character is shown as it is; otherwise some of them must be escaped.',
			},
			{
				displayName: 'Plain Text if It Cannot Be Parsed',
				name: 'plainFallback',
				type: 'boolean',
				default: false,
				description:
					'Whether to send the text without formatting where Telegram cannot parse its markup',
			},
			{
				displayName: 'Protect Content',
				name: 'protect',
				type: 'boolean',
				default: false,
				description: 'Whether to keep readers from forwarding and saving it',
			},
			{
				displayName: 'Reply Markup (JSON)',
				name: 'replyMarkup',
				type: 'json',
				default: '',
				description:
					"Telegram's reply_markup, instead of Buttons: for example a keyboard, or buttons built by an expression",
			},
			{
				displayName: 'Reply to Message ID',
				name: 'replyTo',
				type: 'string',
				default: '',
				placeholder: 'e.g. {{ $json.message.message_id }}',
				description: 'The message in the same chat that this one answers',
			},
			{
				displayName: 'Send Silently',
				name: 'silent',
				type: 'boolean',
				default: false,
				description: 'Whether it arrives without a sound',
			},
			{
				displayName: 'Thread ID',
				name: 'threadId',
				type: 'string',
				default: '',
				placeholder: 'e.g. 12',
				description: 'The topic of a forum (message_thread_id)',
			},
			{
				displayName: 'Time-Out (Seconds)',
				name: 'timeoutSeconds',
				type: 'number',
				typeOptions: { minValue: 1, maxValue: 600 },
				default: 30,
				description:
					'How long to wait for an answer of Telegram. After that nobody knows whether the message arrived.',
			},
			{
				displayName: 'Wait for Telegram at Most (Seconds)',
				name: 'maxWaitSeconds',
				type: 'number',
				typeOptions: { minValue: 0, maxValue: 3600 },
				default: 30,
				description:
					'How long one execution waits, all in all, when Telegram asks for a pause (error 429). What would take longer leaves by Not Sent with the time to come back.',
			},
		],
	},
];
