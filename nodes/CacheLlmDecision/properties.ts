import type { INodeProperties, INodePropertyOptions } from 'n8n-workflow';

import { DEFAULT_VOLATILE_FIELDS } from '../../ledger';
import { DEFAULT_DECISION_FIELD } from '../execution/decision-field';

const shownFor = (...operations: string[]) => ({
	displayOptions: { show: { operation: operations } },
});

const fieldName: INodeProperties = {
	displayName: 'Field Name',
	name: 'field',
	type: 'string',
	default: DEFAULT_DECISION_FIELD,
	description: 'Name of the field that is added to each item',
};

const STATES: INodePropertyOptions[] = [
	{ name: 'Approved', value: 'approved' },
	{ name: 'Being Decided', value: 'deciding' },
	{ name: 'Not Decided', value: 'open' },
	{ name: 'Rejected', value: 'rejected' },
	{ name: 'Stored', value: 'stored' },
	{ name: 'Waiting for Approval', value: 'proposed' },
];

/** What the question is made of, in view; the rest under Options. */
export const properties: INodeProperties[] = [
	{
		displayName: 'Operation',
		name: 'operation',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Approve',
				value: 'approve',
				action: 'Approve a decision',
				description: 'Let the stored answer be applied from now on. The first verdict stands.',
			},
			{
				name: 'Compare',
				value: 'compare',
				action: 'Compare two decisions',
				description: 'What differs between two questions: why was the model asked twice?',
			},
			{
				name: 'Expire',
				value: 'expire',
				action: 'Expire a decision',
				description: 'The next look-up decides anew, whatever was stored, approved or rejected',
			},
			{
				name: 'Get',
				value: 'get',
				action: 'Get a decision',
				description:
					'The answer, what the model said word for word, what was asked, and the history',
			},
			{
				name: 'List',
				value: 'list',
				action: 'List decisions',
				description:
					'Decisions by state, the newest change first; such as those that wait for approval',
			},
			{
				name: 'Look Up',
				value: 'lookUp',
				action: 'Look up a decision',
				description:
					'Before the model: replay what is decided already. Of many at once, one asks the model.',
			},
			{
				name: 'Purge',
				value: 'purge',
				action: 'Purge old decisions',
				description:
					'Deletes decisions that have not changed for long; their questions would be asked anew',
			},
			{
				name: 'Reject',
				value: 'reject',
				action: 'Reject a decision',
				description: 'The stored answer must not be applied. The first verdict stands.',
			},
			{
				name: 'Statistics',
				value: 'statistics',
				action: 'Show statistics of decisions',
				description: 'What replay saved: calls, tokens, cost and time',
			},
			{
				name: 'Store',
				value: 'store',
				action: 'Store a decision',
				description:
					'Behind the model: keep its answer. The first one stored is the one that counts.',
			},
		],
		default: 'lookUp',
	},

	// Look Up
	{
		displayName: 'Decision',
		name: 'kind',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. classify-mail',
		description:
			'What is decided, in a word. Part of the key: two prompts that are both called "v1" stay apart.',
		...shownFor('lookUp'),
	},
	{
		displayName: 'Model',
		name: 'model',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. gpt-4o-2024-08-06',
		description:
			'As it stands on the model node. Part of the key: another model may answer otherwise.',
		...shownFor('lookUp'),
	},
	{
		displayName: 'Prompt Version',
		name: 'promptVersion',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. v1',
		description:
			'Raise it whenever you change the text of the prompt, or give the text itself by expression',
		hint: 'Raise it when the prompt changes: answers to the old one are not replayed then',
		...shownFor('lookUp'),
	},
	{
		displayName: 'Asked About',
		name: 'input',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Chosen Fields',
				value: 'fields',
				description: 'The fields that the prompt uses. Nothing else makes it another question.',
			},
			{
				name: 'Whole Item',
				value: 'item',
				description:
					'Everything on the item, except fields that change with each delivery (see Options)',
			},
		],
		default: 'fields',
		description: 'What the model is asked about: the same data is the same question',
		...shownFor('lookUp'),
	},
	{
		displayName: 'Input Fields',
		name: 'inputFields',
		type: 'string',
		typeOptions: { requiresDataPath: 'multiple' },
		default: '',
		required: true,
		placeholder: 'e.g. subject, text',
		description:
			'Names separated by commas: every field that the prompt uses. One that is left out here, but used in the prompt, would get the answer to another question.',
		displayOptions: { show: { operation: ['lookUp'], input: ['fields'] } },
	},
	{
		displayName: 'What Else Influences the Answer',
		name: 'influences',
		type: 'collection',
		placeholder: 'Add Setting of the Model',
		default: {},
		description:
			'As it stands on the model node. A setting that is not added here counts as not set, which is something else than any value.',
		options: [
			{
				displayName: 'Further Parameters',
				name: 'further',
				type: 'json',
				default: '',
				placeholder: 'e.g. {"top_p": 0.9, "seed": 7}',
				description: 'Any other settings, as a JSON object',
			},
			{
				displayName: 'Max Tokens',
				name: 'maxTokens',
				type: 'number',
				default: 1000,
				description: 'The longest answer that the model may give',
			},
			{
				displayName: 'Output Schema',
				name: 'outputSchema',
				type: 'json',
				default: '',
				placeholder: 'e.g. {"type": "object", "required": ["label"]}',
				description: 'Pasted or by expression. Spacing and the order of fields do not count.',
			},
			{
				displayName: 'Temperature',
				name: 'temperature',
				type: 'number',
				typeOptions: { numberPrecision: 3 },
				default: 0,
				description: '0 is something else than not set',
			},
			{
				displayName: 'Tool Choice',
				name: 'toolChoice',
				type: 'string',
				default: '',
				placeholder: 'e.g. auto',
				description: 'Whether the model may, must or must not call a tool, in its own word',
			},
			{
				displayName: 'Tools',
				name: 'tools',
				type: 'json',
				default: '',
				description:
					'The tools that the model may call, pasted or by expression. Spacing and the order of fields do not count.',
			},
		],
		...shownFor('lookUp'),
	},
	{
		displayName: 'Needs Approval',
		name: 'needsApproval',
		type: 'boolean',
		default: false,
		description:
			'Whether an answer must be approved by a person before it leaves by Replay. Until then it leaves by Not Approved.',
		...shownFor('lookUp'),
	},
	{
		displayName: "Wait for Another's Decision (Seconds)",
		name: 'wait',
		type: 'number',
		typeOptions: { minValue: 0, maxValue: 600 },
		default: 30,
		description:
			'When another execution asks the model the same question right now: how long to wait for its answer before leaving by Busy. 0 does not wait.',
		...shownFor('lookUp'),
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
					'Whether to accept a key built from the execution, the time or chance. Only where each run is to ask anew.',
			},
			fieldName,
			{
				displayName: 'Lease (Seconds)',
				name: 'leaseSeconds',
				type: 'number',
				typeOptions: { minValue: 1, maxValue: 31622400 },
				default: 300,
				description:
					'How long the one who asks the model owns the question. Longer than the slowest answer: when it ends, the next one asks.',
			},
			{
				displayName: 'Leave Out Fields',
				name: 'volatileFields',
				type: 'string',
				typeOptions: { rows: 3 },
				default: DEFAULT_VOLATILE_FIELDS.join(', '),
				description:
					'Fields of the item that do not count, separated by commas. Names at any depth, paths (meta.timestamp) and wildcards (*_at).',
			},
		],
		...shownFor('lookUp'),
	},

	// Store
	{
		displayName: 'Answer',
		name: 'answerFrom',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Expression',
				value: 'expression',
				description: 'You say where the answer stands',
			},
			{
				name: 'Found by Itself',
				value: 'auto',
				description:
					"The answer of n8n's Basic LLM Chain, AI Agent and model nodes, or of a call to OpenAI, Anthropic, Gemini or Ollama. An item of any other shape is itself the answer.",
			},
		],
		default: 'auto',
		description: 'Where the model said it',
		...shownFor('store'),
	},
	{
		displayName: 'Answer Value',
		name: 'answer',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. {{ $json.choices[0].message.content }}',
		description: 'Text, or an object that was parsed already',
		displayOptions: { show: { operation: ['store'], answerFrom: ['expression'] } },
	},
	{
		displayName: 'The Answer Must Be',
		name: 'form',
		type: 'options',
		noDataExpression: true,
		options: [
			{ name: 'An Object', value: 'object', description: 'JSON such as {"label": "invoice"}' },
			{ name: 'Any JSON', value: 'json', description: 'Also a list, a number or a text in quotes' },
			{ name: 'Text', value: 'text', description: 'Anything the model says' },
		],
		default: 'object',
		description: 'An answer that is something else is not stored, and leaves by Not Stored',
		...shownFor('store'),
	},
	{
		displayName: 'Required Fields',
		name: 'requiredFields',
		type: 'string',
		default: '',
		placeholder: 'e.g. label, confidence',
		description: 'Names separated by commas. An answer that lacks one of them is not stored.',
		displayOptions: { show: { operation: ['store'], form: ['object'] } },
	},
	{
		displayName: 'Needs Approval',
		name: 'needsApproval',
		type: 'boolean',
		default: false,
		description:
			'Whether a person has to approve the answer before it is applied. The look-up may have asked for it already.',
		...shownFor('store'),
	},
	{
		displayName: 'Options',
		name: 'options',
		type: 'collection',
		placeholder: 'Add Option',
		default: {},
		options: [
			{
				displayName: 'Cost',
				name: 'cost',
				type: 'number',
				typeOptions: { numberPrecision: 6 },
				default: 0,
				description: 'Of this call, in any currency: statistics tell what replay saved',
			},
			{
				displayName: 'Decision Key',
				name: 'decisionKey',
				type: 'string',
				default: '',
				description: 'Empty: found by itself, on the item or by its connection with the look-up',
			},
			{
				displayName: 'Decision Token',
				name: 'token',
				type: 'string',
				typeOptions: { password: true },
				default: '',
				description: 'Empty: found by itself',
			},
			fieldName,
			{
				displayName: 'Finish Reason',
				name: 'finishReason',
				type: 'string',
				default: '',
				placeholder: 'e.g. {{ $json.finish_reason }}',
				description:
					'Why the model stopped, where the node before does not pass it on in a known place. An answer that was cut off or filtered is not stored.',
			},
			{
				displayName: 'Input Tokens',
				name: 'inputTokens',
				type: 'number',
				default: 0,
				description: 'Not set: read from the answer where it says so',
			},
			{
				displayName: 'JSON Schema',
				name: 'schema',
				type: 'json',
				default: '',
				placeholder: 'e.g. {"type": "object", "required": ["label"]}',
				description: 'An answer that does not fit is not stored',
			},
			{
				displayName: 'Latency (Ms)',
				name: 'latencyMs',
				type: 'number',
				default: 0,
				description: 'Not set: the time from the look-up to now',
			},
			{
				displayName: 'Output Tokens',
				name: 'outputTokens',
				type: 'number',
				default: 0,
				description: 'Not set: read from the answer where it says so',
			},
			{
				displayName: 'Time to Live (Hours)',
				name: 'ttlHours',
				type: 'number',
				typeOptions: { minValue: 0 },
				default: 24,
				description:
					'After that the question is asked anew. Not set, or 0: the answer is kept for good.',
			},
		],
		...shownFor('store'),
	},

	// One decision
	{
		displayName: 'Decision Key',
		name: 'decisionKey',
		type: 'string',
		default: '',
		placeholder: 'e.g. {{ $json.decision.decisionKey }}',
		description: '64 hex digits. Empty: the decision on the item.',
		...shownFor('approve', 'reject', 'get', 'compare', 'expire'),
	},
	{
		displayName: 'Other Decision Key',
		name: 'otherKey',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. {{ $json.other.decisionKey }}',
		description: 'The decision to compare with, 64 hex digits',
		...shownFor('compare'),
	},
	{
		displayName: 'Approver',
		name: 'approver',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. {{ $json.user.email }}',
		description:
			'Who decided this. From a login, a signed form or a button: a link alone is opened by preview services and virus scanners, too.',
		hint: 'Without an approver nothing is approved or rejected',
		...shownFor('approve', 'reject'),
	},
	{
		displayName: 'Reason',
		name: 'reason',
		type: 'string',
		default: '',
		placeholder: 'e.g. amount checked by phone',
		description: 'Shown to whoever looks the decision up',
		...shownFor('approve', 'reject'),
	},
	{
		displayName: 'Options',
		name: 'options',
		type: 'collection',
		placeholder: 'Add Option',
		default: {},
		options: [
			fieldName,
			{
				displayName: 'Value Hash',
				name: 'valueHash',
				type: 'string',
				default: '',
				placeholder: 'e.g. {{ $json.decision.valueHash }}',
				description:
					'Of the value that was shown to the approver: any other is refused. Empty: that of the decision on the item, if it carries one.',
			},
		],
		...shownFor('approve', 'reject'),
	},

	// Many decisions
	{
		displayName: 'States',
		name: 'states',
		type: 'multiOptions',
		options: STATES,
		default: ['proposed'],
		description: 'None chosen: all',
		...shownFor('list'),
	},
	{
		displayName: 'Limit',
		name: 'limit',
		type: 'number',
		typeOptions: { minValue: 1 },
		default: 50,
		description: 'Max number of results to return',
		...shownFor('list'),
	},
	{
		displayName: 'Filters',
		name: 'filters',
		type: 'collection',
		placeholder: 'Add Filter',
		default: {},
		options: [
			{
				displayName: 'Continue After',
				name: 'cursor',
				type: 'string',
				default: '',
				description: 'The cursor on the last item of the page before',
			},
			{
				displayName: 'Decision',
				name: 'kind',
				type: 'string',
				default: '',
				placeholder: 'e.g. classify-mail',
				description: 'What is decided, as Look Up names it',
			},
			{
				displayName: 'Execution ID',
				name: 'execution',
				type: 'string',
				default: '',
				description: 'Decisions that this execution made, or makes',
			},
		],
		...shownFor('list'),
	},
	{
		displayName: 'Decision',
		name: 'statisticsKind',
		type: 'string',
		default: '',
		placeholder: 'e.g. classify-mail',
		description: 'Empty: all',
		...shownFor('statistics'),
	},
	{
		displayName: 'Of the Last (Hours)',
		name: 'sinceHours',
		type: 'number',
		typeOptions: { minValue: 0 },
		default: 24,
		description: 'How far back replays are counted',
		...shownFor('statistics'),
	},
	{
		displayName: 'Older Than (Days)',
		name: 'olderThanDays',
		type: 'number',
		typeOptions: { minValue: 0 },
		default: 365,
		description:
			'Days since the last change. What waits for approval stays. A question whose answer is deleted is asked anew when it comes again.',
		...shownFor('purge'),
	},
	{
		displayName: 'At Most (Rows)',
		name: 'atMost',
		type: 'number',
		typeOptions: { minValue: 1 },
		default: 100000,
		description: 'Stops after so many, in short batches that no look-up waits for',
		...shownFor('purge'),
	},
];
