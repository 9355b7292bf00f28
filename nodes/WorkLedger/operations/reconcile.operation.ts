import type { IDataObject, INodeProperties } from 'n8n-workflow';

import {
	identifyByKey,
	parseFieldNames,
	readField,
	referenceText,
	type Finding,
	type ReconciledRange,
	type ReconciliationSummary,
	type TargetRecord,
} from '../../../ledger';
import type { Parameters } from '../../execution/parameters';
import { fieldNameProblem, withField } from '../../execution/work-field';
import { findingWords, summaryWords } from '../finding-words';
import { checkedNumber, readNumber } from '../../execution/number';
import { shownFor, type AllItemsOperation, type Call, type Leaving } from '../operation';

const DEFAULT_FIELD = 'reconcile';
const DAY_SECONDS = 86_400;

const shown = shownFor('reconciliation', 'reconcile');
const shownIf = (more: Record<string, string[]>) => ({
	displayOptions: { show: { ...shown.displayOptions.show, ...more } },
});

const properties: INodeProperties[] = [
	{
		displayName:
			'All items are the records of the target system. Nothing is changed; what drifts is written to the decision log. Where the list may be empty, switch on "Always Output Data" in the node before this one, and the option "An Empty Item Is No Record" here.',
		name: 'reconcileNotice',
		type: 'notice',
		default: '',
		...shown,
	},
	{
		displayName: 'Kind',
		name: 'kind',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. invoice',
		description: 'As on Claim Work',
		...shown,
	},
	{
		displayName: 'Version',
		name: 'version',
		type: 'string',
		default: 'v1',
		required: true,
		description: 'The version of the works, as it stands on their Claim Work',
		...shown,
	},
	{
		displayName: 'Reference Field',
		name: 'referenceField',
		type: 'string',
		typeOptions: { requiresDataPath: 'single' },
		default: 'id',
		required: true,
		placeholder: 'e.g. ID or invoice.number',
		description:
			'The field that holds what Complete Work stored as External Reference. Compared as text, without white space around it.',
		...shown,
	},
	{
		displayName: 'The Record Also Holds',
		name: 'namedBy',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Nothing Else',
				value: 'nothing',
				description: 'Records and works are compared by reference only',
			},
			{
				name: 'The Business Key',
				value: 'key',
				description: 'The key fields of Claim Work, under whatever name the target keeps them',
			},
			{
				name: 'The Work ID',
				value: 'workId',
				description: 'The 64 hex digits that were sent as idempotency key or into a field',
			},
		],
		default: 'nothing',
		description:
			'What names the work on a record. With it, work that is held, dead or has another reference is found too.',
		...shown,
	},
	{
		displayName: 'Key Fields',
		name: 'recordKeyFields',
		type: 'string',
		typeOptions: { requiresDataPath: 'multiple' },
		default: '',
		required: true,
		placeholder: 'e.g. metadata.order_id',
		description:
			'Name of the field on the record, or several separated by commas in the order of Claim Work. A record without them is compared by its reference.',
		...shownIf({ namedBy: ['key'] }),
	},
	{
		displayName: 'Work ID Field',
		name: 'workIdField',
		type: 'string',
		typeOptions: { requiresDataPath: 'single' },
		default: '',
		required: true,
		placeholder: 'e.g. metadata.work_id',
		description: 'Name of the field in which the record holds the work ID',
		...shownIf({ namedBy: ['workId'] }),
	},
	{
		displayName: 'Works Done',
		name: 'range',
		type: 'options',
		noDataExpression: true,
		options: [
			{ name: 'Between Two Times', value: 'between' },
			{ name: 'In the Last Days', value: 'last' },
		],
		default: 'last',
		description: 'Works done in this time must have a record among the items',
		...shown,
	},
	{
		displayName: 'Days',
		name: 'lastDays',
		type: 'number',
		typeOptions: { minValue: 0 },
		default: 7,
		description: 'Works that were done in so many days before now',
		...shownIf({ range: ['last'] }),
	},
	{
		displayName: 'From',
		name: 'from',
		type: 'dateTime',
		default: '',
		required: true,
		description: 'This moment belongs to the range',
		...shownIf({ range: ['between'] }),
	},
	{
		displayName: 'To',
		name: 'to',
		type: 'dateTime',
		default: '',
		required: true,
		description:
			'This moment belongs to the next range. It should lie before the records were listed.',
		...shownIf({ range: ['between'] }),
	},
	{
		displayName: 'Findings That Leave',
		name: 'findings',
		type: 'multiOptions',
		options: [
			{ name: 'Cannot Be Compared', value: 'not_comparable' },
			{ name: 'Different Key', value: 'different_key' },
			{ name: 'Different Reference', value: 'different_reference' },
			{ name: 'Duplicated in Target', value: 'duplicated_in_target' },
			{ name: 'In Target, but Work Is Not Done', value: 'not_done' },
			{ name: 'Matched', value: 'matched' },
			{ name: 'Missing in Target', value: 'missing_in_target' },
			{ name: 'Unknown to the Ledger', value: 'unknown_to_ledger' },
		],
		// all that a person has to look at
		default: [
			'different_key',
			'different_reference',
			'duplicated_in_target',
			'missing_in_target',
			'not_comparable',
			'not_done',
			'unknown_to_ledger',
		],
		description: 'The last item is always the summary with all counts',
		...shown,
	},
	{
		displayName: 'Options',
		name: 'options',
		type: 'collection',
		placeholder: 'Add Option',
		default: {},
		options: [
			{
				displayName: 'An Empty Item Is No Record',
				name: 'emptyIsNone',
				type: 'boolean',
				default: false,
				description:
					'Whether a single empty item, as "Always Output Data" sends it, means that the target has no records. Every work of the range is missing then.',
			},
			{
				displayName: 'Field Name',
				name: 'field',
				type: 'string',
				default: DEFAULT_FIELD,
				description: 'Name of the field that is added to each item',
			},
			{
				displayName: 'Leave Out the Last (Minutes)',
				name: 'settleMinutes',
				type: 'number',
				typeOptions: { minValue: 0 },
				default: 60,
				description:
					'With In the Last Days: the range ends so long before now, because work done after the records were listed would seem missing',
			},
			{
				displayName: 'Margin (Hours)',
				name: 'marginHours',
				type: 'number',
				typeOptions: { minValue: 0 },
				default: 24,
				description:
					'Works done so long before or after the range are not missing, but a record with their reference is matched, not unknown',
			},
		],
		...shown,
	},
];

/** A record as this operation needs it; null: the one empty item that stands for none. */
type Read = TargetRecord | null;

export const reconcile: AllItemsOperation<Read> = {
	resource: 'reconciliation',
	option: {
		name: 'Reconcile',
		value: 'reconcile',
		action: 'Compare the target system with the ledger',
		description: 'What is missing, unknown, duplicated or different, of all records at once',
	},
	properties,
	read(call) {
		const { context, parameters, itemIndex, json } = call;
		if (Object.keys(json).length === 0 && context.getInputData().length === 1) {
			if (parameters.option<unknown>('emptyIsNone', itemIndex, false) === true) return null;
			throw new Error(
				'The only item is empty: the target system gave no record, or the step before failed to read them. If an empty list is possible, switch on the option "An Empty Item Is No Record".',
			);
		}
		fieldName(call);
		const name = requiredName(parameters, itemIndex, 'referenceField', 'Reference Field', 'id');
		const reference = referenceText(name, readField(json, name).value);
		return { reference, workId: workIdOf(call) };
	},
	async runAll(entries) {
		const [{ call }] = entries;
		const { ledger, parameters, itemIndex, caller, context } = call;
		const read = entries.flatMap(({ call: each, value }) =>
			value === null ? [] : [{ call: each, record: value }],
		);
		const records = read.map(({ record }) => record);
		refuseKeyNowhere(parameters, itemIndex, records);
		const { kind, version } = scopeOf(parameters, itemIndex);
		const unreadable = context.getInputData().length - entries.length;
		const { summary, findings } = await ledger.reconciliation.compare(
			{
				kind,
				version,
				range: readRange(call),
				marginSeconds:
					3600 *
					checkedNumber(parameters.option<unknown>('marginHours', itemIndex, 24), {
						label: 'Margin (Hours)',
						least: 0,
						most: 880_000,
					}),
				records,
				unreadable,
			},
			caller,
		);

		const itemOf = (record: number) => read[record].call.itemIndex;
		// of a work without a record, no item is the origin: naming one would hand that one's data to the steps behind
		const ofAll = context.getInputData().length === 1 ? [0] : [];
		const chosen = new Set(parameters.read<string[]>('findings', itemIndex, []));
		const leaving = findings
			.filter(({ status }) => chosen.has(status))
			.map((finding): Leaving => {
				const at = finding.record;
				const targetRef = at === null ? '' : records[at].reference;
				const isNamed = at !== null && records[at].workId !== null;
				const value = {
					...shownFinding(finding, kind, version, records, itemOf),
					message: findingWords(finding, { kind, targetRef, isNamed, unreadable, summary, itemOf }),
				};
				if (at === null) return { json: { [fieldName(call)]: value }, items: ofAll };
				const own = read[at].call;
				const input = context.getInputData()[own.itemIndex];
				const { json, binary } = withField(input, own.itemIndex, fieldName(own), value);
				return { json, binary, items: [own.itemIndex] };
			});
		leaving.push({
			json: { [fieldName(call)]: shownSummary(summary, kind, version) },
			items: ofAll,
		});
		return leaving;
	},
};

function shownFinding(
	finding: Finding,
	kind: string,
	version: string,
	records: TargetRecord[],
	itemOf: (record: number) => number,
): IDataObject {
	const { status, record, workId, key, state, externalRef, doneAt, by } = finding;
	return {
		status,
		workId,
		kind,
		version,
		key,
		state,
		externalRef,
		targetRef: record === null ? null : records[record].reference,
		doneAt,
		matchedBy: by,
		...(finding.earlierGeneration === null ? {} : { earlierGeneration: finding.earlierGeneration }),
		...(status === 'duplicated_in_target'
			? {
					duplicates: finding.records.map((each) => ({
						item: itemOf(each),
						targetRef: records[each].reference,
					})),
					duplicateCount: Math.max(finding.sameReference, finding.sameWork),
				}
			: {}),
		...(status === 'not_done' ? { lastError: finding.lastError } : {}),
	};
}

function shownSummary(
	{ findings, ...rest }: ReconciliationSummary,
	kind: string,
	version: string,
): IDataObject {
	return {
		status: 'summary',
		message: summaryWords({ findings, ...rest }),
		kind,
		version,
		...rest,
		counts: { ...Object.fromEntries(ALL_STATUSES.map((status) => [status, 0])), ...findings },
	};
}

const ALL_STATUSES = [
	'different_key',
	'different_reference',
	'duplicated_in_target',
	'missing_in_target',
	'not_comparable',
	'not_done',
	'unknown_to_ledger',
	'matched',
];

function requiredName(
	parameters: Parameters,
	itemIndex: number,
	parameter: string,
	label: string,
	fallback = '',
): string {
	const name = parameters.text(parameter, itemIndex, fallback).trim();
	if (name !== '') return name;
	throw new Error(`${label} is empty. Enter the name of the field on the records.`);
}

/** The work that the record names; null: none, so it is compared by its reference. */
function workIdOf({ parameters, itemIndex, json }: Call): string | null {
	switch (parameters.read<string>('namedBy', itemIndex, 'nothing')) {
		case 'nothing':
			return null;
		case 'workId': {
			const name = requiredName(parameters, itemIndex, 'workIdField', 'Work ID Field');
			const { value } = readField(json, name);
			if (isNothing(value)) return null;
			const workId = String(value).trim().toLowerCase();
			if (/^[0-9a-f]{64}$/.test(workId)) return workId;
			throw new Error(
				`The field "${name}" holds no work id: 64 hex digits are needed, as Claim Work puts them on the item under work.workId.`,
			);
		}
		case 'key': {
			const names = parseFieldNames(parameters.text('recordKeyFields', itemIndex));
			const parts = names.map((name) => ({ name, value: readField(json, name).value }));
			// somebody's own record carries no key; one that carries half of it is a mistake
			if (names.length > 0 && parts.every(({ value }) => isNothing(value))) return null;
			return identifyByKey(scopeOf(parameters, itemIndex), parts).workId;
		}
		default:
			throw new Error(
				'"The Record Also Holds" is set to what this version does not know. Choose it anew.',
			);
	}
}

const isNothing = (value: unknown) =>
	value === undefined || value === null || (typeof value === 'string' && value.trim() === '');

/** A field that is on no record at all is misspelt: works would be compared by reference without anybody noticing. */
function refuseKeyNowhere(
	parameters: Parameters,
	itemIndex: number,
	records: TargetRecord[],
): void {
	const namedBy = parameters.read<string>('namedBy', itemIndex, 'nothing');
	if (namedBy === 'nothing' || records.length === 0) return;
	if (records.some(({ workId }) => workId !== null)) return;
	const [label, parameter] =
		namedBy === 'key' ? ['Key Fields', 'recordKeyFields'] : ['Work ID Field', 'workIdField'];
	throw new Error(
		`${label}: no record has a value in "${parameters.text(parameter, itemIndex)}". Check the spelling, or set "The Record Also Holds" to "Nothing Else".`,
	);
}

/** Kind and version as claims write them. */
function scopeOf(parameters: Parameters, itemIndex: number): { kind: string; version: string } {
	const scope = {
		kind: parameters.text('kind', itemIndex),
		version: parameters.text('version', itemIndex, 'v1'),
	};
	return identifyByKey(scope, [{ name: 'Kind', value: 'any' }]);
}

function readRange({ parameters, itemIndex, context }: Call): ReconciledRange {
	if (parameters.read<string>('range', itemIndex, 'last') === 'between') {
		const zone = context.getTimezone();
		return {
			from: readTime(parameters.read<unknown>('from', itemIndex, ''), 'From', zone),
			to: readTime(parameters.read<unknown>('to', itemIndex, ''), 'To', zone),
		};
	}
	return {
		lastSeconds:
			DAY_SECONDS *
			readNumber(parameters, itemIndex, 'lastDays', { label: 'Days', least: 0.001, most: 36_500 }),
		settleSeconds:
			60 *
			checkedNumber(parameters.option<unknown>('settleMinutes', itemIndex, 60), {
				label: 'Leave Out the Last (Minutes)',
				least: 0,
				most: 50_000_000,
			}),
	};
}

const TIME =
	/^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?\s?(Z|[+-]\d\d(?::?\d\d)?)?)?$/i;

/** A time as PostgreSQL reads it; without an offset it is meant in the workflow's time zone. */
function readTime(given: unknown, label: string, zone: string): string {
	// dates and Luxon values write themselves with their offset
	const text =
		typeof given === 'object' && given !== null ? JSON.stringify(given).replaceAll('"', '') : given;
	const found = typeof text === 'string' ? TIME.exec(text.trim()) : null;
	if (found === null) {
		throw new Error(
			`${label} must be a time such as 2026-03-01T00:00:00Z, not ${(JSON.stringify(text) ?? 'undefined').slice(0, 50)}.`,
		);
	}
	return found[1] === undefined ? `${found[0]} ${zone}` : found[0];
}

/** Throws where it would hide data of the record's own. */
function fieldName({ parameters, itemIndex, json }: Call): string {
	const field = parameters.option<string>('field', itemIndex, DEFAULT_FIELD);
	const problem = fieldNameProblem(field);
	if (problem !== null) throw new Error(problem);
	if (!Object.hasOwn(json, field) || isFinding(json[field])) return field;
	throw new Error(
		`The item already has a field "${field}", which would be lost. Choose another name in the option "Field Name".`,
	);
}

/** What an earlier run of this operation put there. */
function isFinding(value: unknown): boolean {
	const { status, message } = (value ?? {}) as IDataObject;
	return typeof message === 'string' && [...ALL_STATUSES, 'summary'].includes(String(status));
}
