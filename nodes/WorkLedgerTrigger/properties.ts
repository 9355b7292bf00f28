import type { INodeProperties } from 'n8n-workflow';

import { DEFAULT_FIELD } from '../execution/work-field';

export const properties: INodeProperties[] = [
	{
		displayName: 'Event',
		name: 'event',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Dead Letter',
				value: 'dead_letter',
				description:
					'Work that failed for good, or is held because nobody knows whether its effect landed. Each once.',
			},
			{
				name: 'Retry Due',
				value: 'retry_due',
				description:
					'Failed work whose next attempt is due. It arrives claimed, with its data: do it, then Complete Work.',
			},
		],
		default: 'dead_letter',
		description: 'What starts an execution',
	},
	{
		displayName:
			'Each item starts an execution of its own. When that ends without an error, the dead letter counts as handled; otherwise it comes again, after 1, 5, 25 and 125 minutes.',
		name: 'deadLetterNotice',
		type: 'notice',
		default: '',
		displayOptions: { show: { event: ['dead_letter'] } },
	},
	{
		displayName:
			'The item is what the first attempt received, and its claim is already made (field "work"): connect the effect, then Complete Work. A Claim Work between lets it pass. Works that are remembered only while they run, or without stored data, are not retried; manual runs apart from production only if Kinds names them.',
		name: 'retryNotice',
		type: 'notice',
		default: '',
		displayOptions: { show: { event: ['retry_due'] } },
	},
	{
		displayName: 'States',
		name: 'states',
		type: 'multiOptions',
		options: [
			{
				name: 'Dead',
				value: 'dead',
				description: 'Its attempts are used up, or it was given up at once',
			},
			{ name: 'Held', value: 'held', description: 'Its effect may have landed: a person decides' },
			{
				name: 'Unknown Message',
				value: 'unknown',
				description:
					'A message of Send-Once Telegram that may have arrived: a person looks into the chat. Of the kind "telegram".',
			},
		],
		default: ['dead', 'held', 'unknown'],
		required: true,
		description: 'What counts as a dead letter here',
		displayOptions: { show: { event: ['dead_letter'] } },
	},
	{
		displayName: 'Kinds',
		name: 'kinds',
		type: 'string',
		default: '',
		placeholder: 'e.g. invoice, refund',
		description: 'As Claim Work names them, separated by commas',
		hint: 'Empty: every kind',
	},
	{
		displayName: 'Look Every (Seconds)',
		name: 'intervalSeconds',
		type: 'number',
		typeOptions: { minValue: 1, maxValue: 86400 },
		default: 15,
		description:
			'Counted from the end of one look to the next, so that two never overlap. Each look also settles work whose lease has ended without a report.',
	},
	{
		displayName: 'Options',
		name: 'options',
		type: 'collection',
		placeholder: 'Add Option',
		default: {},
		options: [
			{
				displayName: 'Field Name',
				name: 'field',
				type: 'string',
				default: DEFAULT_FIELD,
				description: 'Name of the field that is added to each item, as on Claim Work',
				displayOptions: { show: { '/event': ['retry_due'] } },
			},
			{
				displayName: 'Subscription Name',
				name: 'subscription',
				type: 'string',
				default: '',
				placeholder: 'e.g. on-call',
				description:
					'Triggers with the same name share what they are told: each dead letter goes to one of them. Empty: this node of this workflow, on every n8n where it runs. Another name is told everything anew.',
				displayOptions: { show: { '/event': ['dead_letter'] } },
			},
			{
				displayName: 'Works per Run',
				name: 'perRun',
				type: 'number',
				typeOptions: { minValue: 1, maxValue: 100 },
				default: 1,
				description:
					'So many dead letters at most start one execution together, as several items. One that comes again comes alone.',
				displayOptions: { show: { '/event': ['dead_letter'] } },
			},
		],
	},
];
