import type { INodeProperties } from 'n8n-workflow';

import { DEFAULT_FIELD } from '../execution/work-field';

export const OPERATIONS = [
	'complete',
	'extend',
	'fail',
	'failByExecution',
	'recordReference',
	'release',
] as const;

export type Operation = (typeof OPERATIONS)[number];

const show = (...operations: Operation[]) => ({
	displayOptions: { show: { operation: operations } },
});

export const properties: INodeProperties[] = [
	{
		displayName: 'Operation',
		name: 'operation',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Complete',
				value: 'complete',
				action: 'Complete work',
				description: 'The effect has landed: store its result, so that duplicates get it',
			},
			{
				name: 'Extend Lease',
				value: 'extend',
				action: 'Extend the lease of work',
				description: 'The work takes longer: keep others off it',
			},
			{
				name: 'Fail',
				value: 'fail',
				action: 'Fail work',
				description: 'The step failed: retry later, hold or give up, by the policy of the claim',
			},
			{
				name: 'Fail by Execution',
				value: 'failByExecution',
				action: 'Fail the work of a failed execution',
				description: 'In an error workflow: settle what the failed execution left open',
			},
			{
				name: 'Record Reference',
				value: 'recordReference',
				action: 'Record the reference of an effect',
				description:
					'Directly after the effect: write down what it is called at the target. From then on a crash cannot repeat it.',
			},
			{
				name: 'Release',
				value: 'release',
				action: 'Release a claim',
				description: 'Nothing was done: undo the claim, as if it had never been made',
			},
		],
		default: 'complete',
	},
	{
		displayName: 'Result to Store',
		name: 'result',
		type: 'options',
		noDataExpression: true,
		options: [
			{ name: 'The Item', value: 'item', description: 'The data that arrives here' },
			{ name: 'Chosen Fields', value: 'fields', description: 'Some of its fields' },
			{ name: 'A Value', value: 'expression', description: 'Whatever an expression gives' },
			{ name: 'Nothing', value: 'none', description: 'Only that it was done, and its reference' },
		],
		default: 'item',
		description: 'What a duplicate of this work will get',
		...show('complete'),
	},
	{
		displayName: 'Fields',
		name: 'resultFields',
		type: 'string',
		typeOptions: { requiresDataPath: 'multiple' },
		default: '',
		placeholder: 'e.g. invoice_id, url',
		description: 'Names separated by commas',
		displayOptions: { show: { operation: ['complete'], result: ['fields'] } },
	},
	{
		displayName: 'Value',
		name: 'resultValue',
		type: 'string',
		default: '',
		placeholder: 'e.g. {{ $json.invoice }}',
		description: 'The result to store; objects are kept as they are',
		displayOptions: { show: { operation: ['complete'], result: ['expression'] } },
	},
	{
		displayName: 'External Reference',
		name: 'externalRef',
		type: 'string',
		default: '',
		placeholder: 'e.g. {{ $json.invoice_number }}',
		description:
			'What the effect is called at the target (invoice number, message ID). It proves that it landed, and lets you compare the two systems.',
		...show('complete', 'recordReference'),
	},
	{
		displayName: 'Did the Effect Land?',
		name: 'landed',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'It May Have',
				value: 'unknown',
				description: 'A time-out, a lost answer, an error after sending. When in doubt, this one.',
			},
			{
				name: 'Certainly Not',
				value: 'no',
				description: 'Refused before anything happened: bad input, no connection, card declined',
			},
		],
		default: 'unknown',
		description:
			'Work whose effect may have landed is not simply repeated where the claim says "Hold for Review"',
		...show('fail'),
	},
	{
		displayName: 'Reason',
		name: 'error',
		type: 'string',
		default: '',
		placeholder: 'e.g. {{ $json.error.message }}',
		description:
			'What went wrong, for the people who read the ledger. Empty: the error that arrives with the item.',
		...show('fail'),
	},
	{
		displayName:
			'Failed work is not tried again by itself: the next delivery of the same work does it, or a <b>Work Ledger Trigger</b> with the event Retry Due in an active workflow.',
		name: 'retryNotice',
		type: 'notice',
		default: '',
		displayOptions: { show: { operation: ['fail'] }, hide: { 'options.permanent': [true] } },
	},
	{
		displayName:
			'Use this in a workflow that begins with an Error Trigger. Work that the failed execution had claimed and not completed is settled: its effect may have landed.',
		name: 'failByExecutionNotice',
		type: 'notice',
		default: '',
		...show('failByExecution'),
	},
	{
		displayName: 'Execution ID',
		name: 'executionId',
		type: 'string',
		default: '',
		placeholder: 'e.g. 231',
		description: 'The execution that failed. Empty: the one that the Error Trigger names.',
		...show('failByExecution'),
	},
	{
		displayName: 'Options',
		name: 'options',
		type: 'collection',
		placeholder: 'Add Option',
		default: {},
		options: [
			{
				displayName: 'Claim Token',
				name: 'token',
				type: 'string',
				typeOptions: { password: true },
				default: '',
				placeholder: "e.g. {{ $('Claim Work').item.json.work.token }}",
				description:
					'Only where this node cannot find the claim by itself. Use together with Work ID.',
				displayOptions: { hide: { '/operation': ['failByExecution'] } },
			},
			{
				displayName: 'Do Not Retry',
				name: 'permanent',
				type: 'boolean',
				default: false,
				description:
					'Whether trying again is useless (a card that is declined for good): the work is dead at once',
				displayOptions: { show: { '/operation': ['fail'] } },
			},
			{
				displayName: 'Field Name',
				name: 'field',
				type: 'string',
				default: DEFAULT_FIELD,
				description: 'Name of the field that Claim Work added to the item',
			},
			{
				displayName: 'Lease (Seconds)',
				name: 'leaseSeconds',
				type: 'number',
				typeOptions: { minValue: 1, maxValue: 31622400 },
				default: 3600,
				description:
					'How long from now the work is kept. Without this option: as long as it was claimed for.',
				displayOptions: { show: { '/operation': ['extend'] } },
			},
			{
				displayName: 'Work ID',
				name: 'workId',
				type: 'string',
				default: '',
				placeholder: "e.g. {{ $('Claim Work').item.json.work.workId }}",
				description:
					'Only where this node cannot find the claim by itself. Use together with Claim Token.',
				displayOptions: { hide: { '/operation': ['failByExecution'] } },
			},
		],
	},
];
