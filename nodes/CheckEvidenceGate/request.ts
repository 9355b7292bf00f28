import type { IDataObject, IExecuteFunctions, INodeExecutionData } from 'n8n-workflow';

import {
	identifyByKey,
	parseFieldNames,
	readField,
	unnamedRecordId,
	type Caller,
	type Comparison,
	type EvidenceRequest,
	type EvidenceRule,
	type EvidenceStage,
	type EvidenceWork,
} from '../../ledger';
import { Parameters } from '../execution/parameters';
import { fieldNameProblem } from '../execution/work-field';
import { DEFAULT_FIELD, isGateField } from './answer';
import { conditionRule } from './conditions';

/** One item with what it has to show. */
export interface GateItem {
	itemIndex: number;
	/** Where the answer goes. */
	fieldName: string;
	request: EvidenceRequest;
	record: RecordName;
}

/** How the decision log calls the record. */
interface RecordName {
	/** "deal v1 77"; null where it has no name. */
	name: string | null;
	warning: string | null;
}

/** What a rule's form holds. */
interface RuleForm extends IDataObject {
	check?: string;
	name?: string;
	field?: string;
	conditions?: IDataObject;
}

/** Reads what the node asks of each item. Never throws: what cannot be read is a refusal of that item. */
export function readRequests(
	context: IExecuteFunctions,
	items: INodeExecutionData[],
	caller: Caller,
): GateItem[] {
	const parameters = new Parameters(context);
	return items.map(({ json }, itemIndex) => {
		const field = fieldNameOf(parameters, itemIndex, json);
		const { recordId, ...record } = nameRecord(parameters, json, itemIndex, caller);
		const base = { recordId, record: json, stages: [], target: null, requireLower: true };
		const item = { itemIndex, fieldName: field.name, record };
		if (field.problem !== null) return { ...item, request: { ...base, refusal: field.problem } };
		try {
			return { ...item, request: { ...base, ...readGate(parameters, json, itemIndex) } };
		} catch (error) {
			return { ...item, request: { ...base, refusal: messageOf(error) } };
		}
	});
}

function readGate(
	parameters: Parameters,
	json: IDataObject,
	itemIndex: number,
): Pick<EvidenceRequest, 'stages' | 'target' | 'requireLower'> {
	const mode = parameters.read<string>('mode', itemIndex, 'list');
	if (mode === 'list') {
		const { rule } = parameters.read<{ rule?: unknown }>('rules', itemIndex, {});
		const raw = (parameters.raw('rules') as { rule?: unknown } | undefined)?.rule;
		const rules = readRules(rule, raw, itemIndex);
		return { stages: [{ name: '', rules }], target: null, requireLower: true };
	}
	if (mode !== 'ladder') {
		throw new Error(
			`Evidence For is set to "${mode.slice(0, 50)}", which this version does not know. Choose it anew on the node.`,
		);
	}
	const { stage } = parameters.read<{ stage?: unknown }>('stages', itemIndex, {});
	const raw = listOf((parameters.raw('stages') as { stage?: unknown } | undefined)?.stage);
	return {
		stages: listOf(stage).map(({ name, rules }, i): EvidenceStage => {
			const own = raw[i]?.rules as { rule?: unknown } | undefined;
			const { rule } = (rules ?? {}) as { rule?: unknown };
			return { name: textOf(name), rules: readRules(rule, own?.rule, itemIndex) };
		}),
		target: readTarget(parameters, json, itemIndex),
		requireLower: parameters.option<unknown>('requireLower', itemIndex, true) !== false,
	};
}

/** Text, for a stage that is missing: '' is no stage. */
function readTarget(parameters: Parameters, json: IDataObject, itemIndex: number): string {
	if (parameters.read<string>('targetBy', itemIndex, 'value') !== 'field') {
		return textOf(parameters.read<unknown>('target', itemIndex, ''));
	}
	return textOf(readField(json, parameters.text('targetField', itemIndex).trim()).value);
}

function readRules(given: unknown, raw: unknown, itemIndex: number): EvidenceRule[] {
	const written = listOf(raw);
	return listOf(given).map((form, i) => {
		const rule = readRule(form, written[i], itemIndex);
		const field: unknown = written[i]?.field;
		const fieldByExpression = typeof field === 'string' && field.startsWith('=');
		return fieldByExpression ? { ...rule, fieldByExpression } : rule;
	});
}

function readRule(form: RuleForm, raw: RuleForm | undefined, itemIndex: number): EvidenceRule {
	const name = textOf(form.name).trim() || undefined;
	const field = textOf(form.field);
	const comparison = textOf(form.comparison ?? 'gte') as Comparison;
	switch (form.check ?? 'present') {
		case 'present':
			return { name, check: 'present', field };
		case 'equals':
			return { name, check: 'equals', field, value: form.value };
		case 'matches':
			return {
				name,
				check: 'matches',
				field,
				pattern: textOf(form.pattern),
				ignoreCase: form.ignoreCase === true,
			};
		case 'number':
			return { name, check: 'number', field, comparison, value: form.value };
		case 'date':
			return {
				name,
				check: 'date',
				field,
				comparison,
				value: form.value,
				zone: textOf(form.zone).trim(),
			};
		case 'done':
			return { name, check: 'done', work: readWork(form) };
		case 'reference':
			return { name, check: 'reference', field, work: readWork(form) };
		case 'condition':
			return conditionRule(name, form.conditions, raw?.conditions, itemIndex);
		default:
			return {
				name,
				check: 'broken',
				reason: `is of the sort "${textOf(form.check).slice(0, 50)}", which this version does not know. Choose it anew on the node.`,
			};
	}
}

function readWork(form: RuleForm): EvidenceWork {
	const work = { kind: textOf(form.kind).trim(), version: textOf(form.version ?? 'v1') };
	return form.keyBy === 'value'
		? { ...work, key: form.key }
		: { ...work, keyFields: parseFieldNames(textOf(form.keyFields)) };
}

/** By kind and key, where the node names them and the item has them; else by its place in this execution. */
function nameRecord(
	parameters: Parameters,
	json: IDataObject,
	itemIndex: number,
	caller: Caller,
): RecordName & { recordId: string } {
	const unnamed = { recordId: unnamedRecordId(caller, itemIndex), name: null };
	try {
		const kind = parameters.text('recordKind', itemIndex).trim();
		const fields = parseFieldNames(parameters.text('recordKeyFields', itemIndex));
		if (kind === '' && fields.length === 0) return { ...unnamed, warning: null };
		const version = parameters.option<unknown>('recordVersion', itemIndex, 'v1');
		const identity = identifyByKey(
			{ kind, version: textOf(version) },
			fields.map((name) => ({ name, value: readField(json, name).value })),
		);
		return {
			recordId: identity.workId,
			name: `${identity.kind} ${identity.version} ${identity.key}`.slice(0, 300),
			warning: null,
		};
	} catch (error) {
		return {
			...unnamed,
			warning: `The decision log has this check under its record ID only: ${messageOf(error)}`,
		};
	}
}

function fieldNameOf(
	parameters: Parameters,
	itemIndex: number,
	json: IDataObject,
): { name: string; problem: string | null } {
	let name = DEFAULT_FIELD;
	let problem: string | null = null;
	try {
		const named = parameters.option<string>('field', itemIndex, DEFAULT_FIELD);
		problem = fieldNameProblem(named);
		if (problem === null) name = named;
	} catch (error) {
		problem = messageOf(error);
	}
	const isFree = (each: string) => !Object.hasOwn(json, each) || isGateField(json[each]);
	if (isFree(name)) return { name, problem };
	let free = name;
	for (let n = 1; !isFree(free); n++) free = `${name}Answer${n === 1 ? '' : n}`;
	return {
		name: free,
		problem:
			problem ??
			`The item already has a field "${name}", which would be lost. Choose another name in the option "Field Name".`,
	};
}

/**
 * Entries of a fixed collection. An edited workflow may have put anything there: what is no entry stays one, of a sort
 * that nothing knows, because a rule that is dropped would let records pass.
 */
function listOf(value: unknown): RuleForm[] {
	if (value === undefined || value === null) return [];
	return (Array.isArray(value) ? (value as unknown[]) : [value]).map((entry) =>
		typeof entry === 'object' && entry !== null ? (entry as RuleForm) : { check: '?' },
	);
}

/** Text, also where an expression gives a number; anything else is ''. */
function textOf(value: unknown): string {
	return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
		? String(value)
		: '';
}

/** n8n's own words for an expression that fails do not say which one. */
function messageOf(error: unknown): string {
	const message = error instanceof Error ? error.message : String(error);
	const { context } = error as { context?: { parameter?: unknown } };
	return typeof context?.parameter === 'string'
		? `An expression of the parameter "${context.parameter}" fails for this item: ${message}`
		: message;
}
