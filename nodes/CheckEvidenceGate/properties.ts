import type { INodeProperties, INodePropertyCollection } from 'n8n-workflow';

import { STATUS_FIELD_PATTERN } from '../../ledger';
import { DEFAULT_FIELD } from './answer';

const ON_A_FIELD = ['present', 'equals', 'matches', 'number', 'date', 'reference'];

const forChecks = (...check: string[]) => ({ displayOptions: { show: { check } } });

const PRESENT_WORDS =
	'A field is present if it holds a value. 0 and false are values. Not present are: a missing field, null, empty or blank text, the texts "null", "undefined", "NaN" and "[object Object]", and lists and objects that are empty or hold nothing else.';

/** The form of one rule. */
const ruleFields: INodeProperties[] = [
	{
		displayName: 'Evidence',
		name: 'check',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Condition',
				value: 'condition',
				description: 'The conditions of n8n itself, for what the others cannot say',
			},
			{
				name: 'Field Compared as Date',
				value: 'date',
				description: 'Before or after a day or moment, such as an approval of this year',
			},
			{
				name: 'Field Compared as Number',
				value: 'number',
				description: 'Above or below a number, such as an amount',
			},
			{
				name: 'Field Equals',
				value: 'equals',
				description: 'Exactly this text or number, such as the decision "approved"',
			},
			{
				name: "Field Equals a Work's Reference",
				value: 'reference',
				description:
					'The record holds the ID that the ledger has for finished work: what was written back is really there',
			},
			{
				name: 'Field Is Present',
				value: 'present',
				description: 'There is a value, such as the envelope ID of a signed contract',
			},
			{
				name: 'Field Matches a Pattern',
				value: 'matches',
				description: 'The value looks as it must, such as INV- and digits',
			},
			{
				name: 'Work Is Done',
				value: 'done',
				description: 'The ledger says that this work (kind and key) is done',
			},
		],
		default: 'present',
		description: 'What the record has to show',
	},
	{
		displayName: 'Field',
		name: 'field',
		type: 'string',
		typeOptions: { requiresDataPath: 'single' },
		default: '',
		placeholder: 'e.g. envelope_id',
		description:
			'Name of the field, or a path such as deal.envelope_id; a field that is literally called so comes first. Choose what the step leaves behind (a number, an ID, a name), not the stage it puts the card into.',
		...forChecks(...ON_A_FIELD),
	},
	{
		displayName:
			'This looks like a stage or status: it says where somebody put the record, not what happened. Use what the step leaves behind, such as an invoice number or an approver.',
		name: 'statusNotice',
		type: 'notice',
		default: '',
		displayOptions: {
			show: { check: ON_A_FIELD, field: [{ _cnd: { regex: STATUS_FIELD_PATTERN } }] },
		},
	},
	{
		displayName: 'Comparison',
		name: 'comparison',
		type: 'options',
		noDataExpression: true,
		options: [
			{ name: 'Above / After', value: 'gt' },
			{ name: 'At Least / On or After', value: 'gte' },
			{ name: 'At Most / On or Before', value: 'lte' },
			{ name: 'Below / Before', value: 'lt' },
			{ name: 'Equal', value: 'eq' },
		],
		default: 'gte',
		description: 'How the field has to stand to the value',
		...forChecks('number', 'date'),
	},
	{
		displayName: 'Value',
		name: 'value',
		type: 'string',
		default: '',
		placeholder: 'e.g. approved',
		description: 'What the field has to be. Text, number or an expression.',
		hint: 'Compared as text: 7 equals "7". Capitals count, spaces around it do not.',
		...forChecks('equals'),
	},
	{
		displayName: 'Value',
		name: 'value',
		type: 'string',
		default: '',
		placeholder: 'e.g. 1000',
		description: 'The number to compare with',
		hint: 'Numbers such as 12.5. "12,5" and "1,000" can be read in two ways, so they are no numbers here.',
		...forChecks('number'),
	},
	{
		displayName: 'Value',
		name: 'value',
		type: 'string',
		default: '',
		placeholder: 'e.g. 2026-01-31',
		description: 'The day or moment to compare with',
		hint: 'A day (2026-01-31), or a moment with its time zone (2026-01-31T10:00:00Z, or an expression such as $now)',
		...forChecks('date'),
	},
	{
		displayName: 'Time Zone',
		name: 'zone',
		type: 'string',
		default: '',
		placeholder: 'e.g. Europe/Berlin',
		description:
			'Only where a time has no zone of its own, or a day is compared with a moment. Without it such a comparison is blocked, never guessed.',
		...forChecks('date'),
	},
	{
		displayName: 'Pattern',
		name: 'pattern',
		type: 'string',
		default: '',
		placeholder: 'e.g. INV-[0-9]+',
		description:
			'A regular expression, without slashes. The whole value has to match. It has a tenth of a second for each value.',
		...forChecks('matches'),
	},
	{
		displayName: 'Ignore Upper and Lower Case',
		name: 'ignoreCase',
		type: 'boolean',
		default: false,
		description: 'Whether a and A are the same to the pattern',
		...forChecks('matches'),
	},
	{
		displayName: 'Kind',
		name: 'kind',
		type: 'string',
		default: '',
		placeholder: 'e.g. invoice',
		description: 'The kind of the work, as it stands on its Claim Work',
		...forChecks('done', 'reference'),
	},
	{
		displayName: 'Version',
		name: 'version',
		type: 'string',
		default: 'v1',
		description: 'The version of the work, as it stands on its Claim Work',
		...forChecks('done', 'reference'),
	},
	{
		displayName: 'Key By',
		name: 'keyBy',
		type: 'options',
		noDataExpression: true,
		options: [
			{ name: 'Fields of the Record', value: 'fields' },
			{ name: 'A Value', value: 'value' },
		],
		default: 'fields',
		description: 'How the record tells which work is meant',
		...forChecks('done', 'reference'),
	},
	{
		displayName: 'Key Fields',
		name: 'keyFields',
		type: 'string',
		typeOptions: { requiresDataPath: 'multiple' },
		default: '',
		placeholder: 'e.g. order_id',
		description:
			'The fields that hold the key of the work, in the order of its Claim Work, separated by commas',
		displayOptions: { show: { check: ['done', 'reference'], keyBy: ['fields'] } },
	},
	{
		displayName: 'Key',
		name: 'key',
		type: 'string',
		default: '',
		placeholder: 'e.g. {{ $json.order_id }}',
		description: 'The key of the work; for several key fields an expression that gives a list',
		displayOptions: { show: { check: ['done', 'reference'], keyBy: ['value'] } },
	},
	{
		displayName: 'Conditions',
		name: 'conditions',
		type: 'filter',
		default: {},
		typeOptions: { filter: { caseSensitive: true, typeValidation: 'strict', version: 2 } },
		description:
			'Each has to look at a value of the record that is present, unless it asks for an empty one',
		...forChecks('condition'),
	},
	{
		displayName: 'Name',
		name: 'name',
		type: 'string',
		default: '',
		placeholder: 'e.g. Signed contract',
		description: 'How this rule is called where it does not hold. Empty: what it checks.',
	},
];

const rule: INodePropertyCollection[] = [{ displayName: 'Rule', name: 'rule', values: ruleFields }];

const stage: INodePropertyCollection[] = [
	{
		displayName: 'Stage',
		name: 'stage',
		values: [
			{
				displayName: 'Name',
				name: 'name',
				type: 'string',
				default: '',
				placeholder: 'e.g. Contract',
				description: 'As the target names it; capitals count',
			},
			{
				displayName: 'Rules',
				name: 'rules',
				type: 'fixedCollection',
				typeOptions: { multipleValues: true, sortable: true },
				placeholder: 'Add Rule',
				default: {},
				options: rule,
				description: 'The evidence that a record must show to be in this stage; all of it',
			},
		],
	},
];

export const properties: INodeProperties[] = [
	{
		displayName: 'Evidence For',
		name: 'mode',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'A Ladder of Stages',
				value: 'ladder',
				description: 'A pipeline: each stage has its evidence, and needs that of the stages below',
			},
			{ name: 'One Step', value: 'list', description: 'One list of rules; all have to hold' },
		],
		default: 'list',
		description: 'Whether records take one step, or climb from stage to stage',
	},
	{
		displayName: 'Rules',
		name: 'rules',
		type: 'fixedCollection',
		typeOptions: { multipleValues: true, sortable: true },
		placeholder: 'Add Rule',
		default: {},
		options: rule,
		description: 'The evidence that a record must show to pass; all of it',
		displayOptions: { show: { mode: ['list'] } },
	},
	{
		displayName: 'Stages',
		name: 'stages',
		type: 'fixedCollection',
		typeOptions: { multipleValues: true, sortable: true },
		placeholder: 'Add Stage',
		default: {},
		options: stage,
		description: 'In their order, the lowest first',
		displayOptions: { show: { mode: ['ladder'] } },
	},
	{
		displayName: PRESENT_WORDS,
		name: 'presentNotice',
		type: 'notice',
		default: '',
	},
	{
		displayName: 'Stage to Move To',
		name: 'targetBy',
		type: 'options',
		noDataExpression: true,
		options: [
			{ name: 'A Value', value: 'value', description: 'A stage by name, or an expression' },
			{
				name: 'Field of the Record',
				value: 'field',
				description: 'The record says where it wants to go',
			},
		],
		default: 'value',
		description: 'The stage whose evidence the record needs',
		displayOptions: { show: { mode: ['ladder'] } },
	},
	{
		displayName: 'Stage',
		name: 'target',
		type: 'string',
		default: '',
		placeholder: 'e.g. Contract',
		description: 'Name of the stage. One that the ladder does not have is blocked.',
		displayOptions: { show: { mode: ['ladder'], targetBy: ['value'] } },
	},
	{
		displayName: 'Field With the Stage',
		name: 'targetField',
		type: 'string',
		typeOptions: { requiresDataPath: 'single' },
		default: '',
		placeholder: 'e.g. target_stage',
		description:
			'The field that names the stage to move to. It asks for the move and proves nothing.',
		displayOptions: { show: { mode: ['ladder'], targetBy: ['field'] } },
	},
	{
		displayName: 'Record Kind',
		name: 'recordKind',
		type: 'string',
		default: '',
		placeholder: 'e.g. deal',
		description:
			'What these records are. With the key fields it is the name under which every check stands in the decision log (Work Ledger → Explain).',
	},
	{
		displayName: 'Record Key Fields',
		name: 'recordKeyFields',
		type: 'string',
		typeOptions: { requiresDataPath: 'multiple' },
		default: '',
		placeholder: 'e.g. deal_id',
		description:
			'The fields that tell one record from another. Empty: a check is found by the record ID on the item only.',
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
				description: 'Name of the field that is added to each item',
			},
			{
				displayName: 'Need the Evidence of Lower Stages',
				name: 'requireLower',
				type: 'boolean',
				default: true,
				description:
					'Whether a stage needs the evidence of all stages below it too. Off: only its own.',
				displayOptions: { show: { '/mode': ['ladder'] } },
			},
			{
				displayName: 'Record Version',
				name: 'recordVersion',
				type: 'string',
				default: 'v1',
				description:
					"Part of the record's name in the decision log. Set it where the records are works of another version.",
			},
		],
	},
];
