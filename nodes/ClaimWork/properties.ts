import type { INodeProperties } from 'n8n-workflow';

import { DEFAULT_TRACKING_PARAMETERS, DEFAULT_VOLATILE_FIELDS } from '../../ledger';
import { DEFAULT_FIELD } from '../execution/work-field';

/** The three parts of the contract in view: identity, window, response; the rest under Options. */
export const properties: INodeProperties[] = [
	{
		displayName: 'Mode',
		name: 'mode',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Guard',
				value: 'guard',
				description: 'Each piece of work passes once',
			},
			{
				name: 'Shadow: Report Only',
				value: 'shadow',
				description:
					'Every item passes, and the ledger records which would have been held back. For trying it out on a running business.',
			},
		],
		default: 'guard',
		description: 'Whether duplicates are held back, or only reported',
	},
	{
		displayName:
			'Shadow mode: nothing is guarded. Every item leaves by Claimed, duplicates and refused ones too, and also when the ledger cannot be reached. <code>work.wouldHave</code> says what would have happened; Work Ledger → Statistics sums it up. Choose Guard when you have seen enough.',
		name: 'shadowNotice',
		type: 'notice',
		default: '',
		displayOptions: { show: { mode: ['shadow'] } },
	},
	{
		displayName: 'Kind',
		name: 'kind',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. invoice',
		description:
			'The business this work is, in one word. One kind means one business: flows with the same kind and key guard each other.',
	},
	{
		displayName: 'Version',
		name: 'version',
		type: 'string',
		default: 'v1',
		required: true,
		description:
			'Part of the identity. Raise it to do all work of this kind anew, for example after a mistake.',
	},
	{
		displayName: 'Identify By',
		name: 'identity',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Content',
				value: 'content',
				description: 'Equal content is equal work. For items without any number of their own.',
			},
			{
				name: 'Key Expression',
				value: 'expression',
				description: 'A value you put together yourself',
			},
			{
				name: 'Key Fields',
				value: 'fields',
				description:
					'One or several fields of the item that name the business object, such as an order number',
			},
			{
				name: "The Ledger's Work",
				value: 'ledger',
				description:
					'The item comes from a trigger, replay or retry of the ledger and already names its work',
			},
			{
				name: 'URL',
				value: 'url',
				description:
					'An address, whatever tracking parameters it carries and in whatever order its query stands. For scrapers.',
			},
		],
		default: 'fields',
		description:
			'What counts as the same work. Too narrow, and a redelivery is done again; too wide, and new work is taken for a duplicate.',
	},
	{
		displayName: 'Key Fields',
		name: 'keyFields',
		type: 'string',
		typeOptions: { requiresDataPath: 'multiple' },
		default: '',
		required: true,
		placeholder: 'e.g. order_id',
		description:
			'Name of the field, or several names separated by commas. Choose the business object (invoice, order, deal + stage), not the event: three events about one invoice carry three event IDs and would bill it three times.',
		hint: 'The business object, not the event or delivery',
		displayOptions: { show: { identity: ['fields'] } },
	},
	{
		displayName: 'Key',
		name: 'key',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. {{ $json.order_id }}',
		description:
			'A value that is the same each time the same work arrives. It must not depend on the execution, the time or chance: those differ on every retry, and the duplicate would not be recognised.',
		displayOptions: { show: { identity: ['expression'] } },
	},
	{
		displayName: 'Fields That Count',
		name: 'contentFields',
		type: 'string',
		typeOptions: { requiresDataPath: 'multiple' },
		default: '',
		placeholder: 'e.g. customer, lines, total',
		description:
			'Names separated by commas. Empty: the whole item, except fields that change with each delivery (see Options).',
		displayOptions: { show: { identity: ['content'] } },
	},
	{
		displayName: 'URL Field',
		name: 'urlField',
		type: 'string',
		typeOptions: { requiresDataPath: 'single' },
		default: 'url',
		required: true,
		placeholder: 'e.g. url',
		description: 'Name of the field that holds the address',
		displayOptions: { show: { identity: ['url'] } },
	},
	{
		displayName: 'Remember',
		name: 'window',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Forever',
				value: 'forever',
				description: 'Finished work is never done again. Right for money, mails and records.',
			},
			{
				name: 'For a Time After It Is Done',
				value: 'duration',
				description:
					'Finished work may be done again later. Longer than any sender repeats: some replay after days.',
			},
			{
				name: 'Only While It Runs',
				value: 'while_running',
				description: 'A lock: no two at once, but each finished run may be followed by another',
			},
			{
				name: 'Until Another Kind Succeeds',
				value: 'until_success',
				description:
					'Finished work may be done again once work of another kind has been done after it (remind until it is paid)',
			},
		],
		default: 'forever',
		description: 'How long finished work is remembered. What is repeated after that is done again.',
	},
	{
		displayName: 'Kind That Ends It',
		name: 'windowKind',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. payment',
		description:
			'Any work of this kind that is done later lets this work be done again. Running that kind once more changes nothing.',
		displayOptions: { show: { window: ['until_success'] } },
	},
	{
		displayName: 'Time',
		name: 'windowAmount',
		type: 'number',
		typeOptions: { minValue: 0 },
		default: 7,
		displayOptions: { show: { window: ['duration'] } },
		description: 'Counted from the completion of the work',
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
		default: 'days',
		description: 'Of the time above',
		displayOptions: { show: { window: ['duration'] } },
	},
	{
		displayName: 'A Duplicate Gets',
		name: 'response',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'The Original Result',
				value: 'original',
				description: 'It leaves by Duplicate with what Complete Work stored',
			},
			{
				name: 'An Error',
				value: 'error',
				description: 'The node fails, and claims of the same batch are undone',
			},
			{
				name: 'Nothing',
				value: 'nothing',
				description:
					'It is dropped. A webhook that answers when the last node finishes then fails with status 500, and its sender repeats.',
			},
		],
		default: 'original',
		description: 'What happens with work that was done before',
	},
	{
		displayName: 'If a Run Dies Halfway',
		name: 'onLapse',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Run It Again',
				value: 'run_again',
				description:
					'Safe where the target takes an idempotency key or overwrites by a unique field',
			},
			{
				name: 'Hold for Review',
				value: 'hold',
				description:
					'For everything else: nobody knows whether the effect happened, so a person decides',
			},
		],
		default: 'run_again',
		description:
			'What happens when an execution disappears between claim and completion (a crash, a restart, a lease that ends)',
	},
	{
		displayName: 'Wait for Running Work (Seconds)',
		name: 'wait',
		type: 'number',
		typeOptions: { minValue: 0, maxValue: 600 },
		default: 0,
		description:
			'When the same work runs elsewhere right now: how long to wait for its result before leaving by Busy. 0 does not wait.',
	},
	{
		displayName: 'Options',
		name: 'options',
		type: 'collection',
		placeholder: 'Add Option',
		default: {},
		options: [
			{
				displayName: 'Allow a Key That Changes',
				name: 'allowVolatileKey',
				type: 'boolean',
				default: false,
				description:
					'Whether to accept a key built from the execution, the time or chance. Only for work that is meant to be done once per run.',
			},
			{
				displayName: 'Attempts',
				name: 'maxAttempts',
				type: 'number',
				typeOptions: { minValue: 1, maxValue: 1000000 },
				default: 5,
				description:
					'How often work is tried before it is dead and waits for a person. Keeps work that kills its run from doing so for ever. Failed work is tried again by its next delivery, or by a Work Ledger Trigger (Retry Due).',
			},
			{
				displayName: 'Decision Carried Out',
				name: 'decision',
				type: 'string',
				default: '',
				placeholder: 'e.g. {{ $json.decision.decisionKey }}',
				description:
					'Key of the stored decision (Cache LLM Decision) that this work carries out; Work Ledger → Explain shows it. Empty: the decision on the item, if it carries one.',
			},
			{
				displayName: 'Field Name',
				name: 'field',
				type: 'string',
				default: DEFAULT_FIELD,
				description:
					'Name of the field that is added to each item. Choose another where items have a field of this name already.',
			},
			{
				displayName: 'Fields That Must Not Change',
				name: 'matchFields',
				type: 'string',
				typeOptions: { requiresDataPath: 'multiple' },
				default: '',
				placeholder: 'e.g. amount, currency',
				description:
					'Names separated by commas. When the same key comes with other values in them, the item leaves by Needs Attention and is never answered as if it were equal.',
			},
			{
				displayName: 'Keep the Item Until Done',
				name: 'storePayload',
				type: 'boolean',
				default: true,
				description:
					'Whether the item is kept in the ledger until the work is done, so that it can be replayed (at most 256 kB)',
			},
			{
				displayName: 'Keep the Part After #',
				name: 'keepFragment',
				type: 'boolean',
				default: false,
				description:
					'Whether, with URL, addresses that differ only after # are different work. Routes such as #/item/7 always are.',
			},
			{
				displayName: 'Lease (Seconds)',
				name: 'leaseSeconds',
				type: 'number',
				typeOptions: { minValue: 1, maxValue: 31622400 },
				default: 3600,
				description:
					'How long this run owns the work. Longer than the slowest run: when it ends without completion, the work counts as lost.',
			},
			{
				displayName: 'Leave Out Fields',
				name: 'volatileFields',
				type: 'string',
				typeOptions: { rows: 3 },
				default: DEFAULT_VOLATILE_FIELDS.join(', '),
				description:
					'With Content: fields that do not count, separated by commas. Names at any depth, paths (meta.timestamp) and wildcards (*_at).',
			},
			{
				displayName: 'Leave Out Query Names',
				name: 'trackingParameters',
				type: 'string',
				typeOptions: { rows: 3 },
				default: DEFAULT_TRACKING_PARAMETERS.join(', '),
				description:
					'With URL: names in the query that do not count, separated by commas; * stands for anything',
			},
			{
				displayName: 'Manual Runs Apart',
				name: 'testSpace',
				type: 'boolean',
				default: false,
				description:
					'Whether runs started in the editor claim in a space that production never meets. Their effects are real all the same.',
			},
			{
				displayName: 'Read Values',
				name: 'reading',
				type: 'multiOptions',
				options: [
					{
						name: 'Dates in Any Notation',
						value: 'readDates',
						description: 'Two notations of one instant are equal; text without a zone stays text',
					},
					{
						name: 'JSON in Text',
						value: 'readJson',
						description: 'Text that holds an object or a list is read as one',
					},
					{
						name: 'Lists in Any Order',
						value: 'arraysAsSets',
						description: 'The order of a list does not count',
					},
					{
						name: 'Numbers in Text',
						value: 'readNumbers',
						description: '"7.50" and 7.5 are equal; "007" stays text',
					},
					{
						name: 'White Space as One Space',
						value: 'collapseWhiteSpace',
						description: 'Runs of spaces and line breaks inside a text count as one space',
					},
				],
				default: [],
				description:
					'What else counts as equal. Off by default, because each of these joins values that may differ.',
			},
			{
				displayName: 'Retry After, at First (Seconds)',
				name: 'backoffBaseSeconds',
				type: 'number',
				typeOptions: { minValue: 0, maxValue: 31622400 },
				default: 30,
				description:
					'Failed work is due again after a random time up to this, doubled with each attempt',
			},
			{
				displayName: 'Retry After, at Most (Seconds)',
				name: 'backoffCapSeconds',
				type: 'number',
				typeOptions: { minValue: 0, maxValue: 31622400 },
				default: 3600,
				description: 'The longest time failed work waits for its next attempt',
			},
			{
				displayName: 'Run ID',
				name: 'runId',
				type: 'string',
				default: '',
				placeholder: 'e.g. nightly 2026-01-31',
				description:
					'Names a business run (a nightly batch) in the ledger. Never part of the identity: a new run is not new work.',
			},
			{
				displayName: 'Show What Was Hashed',
				name: 'showCanonical',
				type: 'boolean',
				default: false,
				description:
					'Whether the text behind the work ID is added to the item, to see why two items are (not) the same',
			},
		],
	},
];
