import type { IDataObject, INodeExecutionData } from 'n8n-workflow';

import { isOwnField } from '../../ledger';

export const DEFAULT_FIELD = 'work';

/**
 * Statuses of a claim that is still open on an item; `error`: Complete Work could not reach the ledger; `shadow`: let
 * through in shadow mode, where only what would have been claimed holds a token.
 */
const OPEN_STATUSES = new Set(['claimed', 'recorded', 'extended', 'error', 'shadow']);

/** What this package puts on an item about a work. */
export interface WorkField extends IDataObject {
	status: string;
	workId: string;
	kind?: string;
	version?: string;
	key?: string;
	token?: string;
	keyFields?: string[];
	message?: string;
}

/** A claim that its owner can still complete. */
export type OpenField = WorkField & { token: string };

export function asWorkField(value: unknown): WorkField | null {
	return isOwnField(value) && typeof (value as WorkField).workId === 'string'
		? (value as WorkField)
		: null;
}

/** Answers about an item that is no work: it was refused, or the ledger could not be asked. */
const STATUSES_WITHOUT_WORK = new Set(['refused', 'error', 'shadow']);

/** The status of what a node of this package answered about an item's work; null for anything else. */
export function answerStatus(value: unknown): string | null {
	const field = asWorkField(value);
	if (field !== null) return field.status;
	if (typeof value !== 'object' || value === null) return null;
	const { status, message, works } = value as IDataObject;
	if (typeof status !== 'string' || typeof message !== 'string') return null;
	return STATUSES_WITHOUT_WORK.has(status) || Array.isArray(works) ? status : null;
}

/** Whether an answer was given in shadow mode, where nothing is kept from passing. */
export function isShadow(answer: unknown): boolean {
	const status = answerStatus(answer);
	return status === 'shadow' || (status !== null && (answer as IDataObject).shadow === true);
}

/** Whether the field holds a claim that its owner can still complete. */
export function isOpenClaim(field: WorkField): field is OpenField {
	return OPEN_STATUSES.has(field.status) && isToken(field.token);
}

/** Anything else would make PostgreSQL refuse the whole batch. */
export function isToken(value: unknown): value is string {
	return typeof value === 'string' && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value);
}

/** The open claims in an answer; that about an aggregated item lists several. */
export function openClaimsIn(answer: unknown): OpenField[] {
	const field = asWorkField(answer);
	const works = field === null ? (answer as IDataObject | null | undefined)?.works : undefined;
	const fields = Array.isArray(works) ? works.map(asWorkField) : [field];
	return fields.filter((each) => each !== null).filter(isOpenClaim);
}

/**
 * Where an answer that settles nothing goes: into the field, unless it holds a value of the item's own or claims that
 * are still open, which would be lost; then beside it.
 */
export function freeFieldName(json: IDataObject, name: string): string {
	const isFree = (each: string) =>
		!Object.hasOwn(json, each) ||
		(answerStatus(json[each]) !== null && openClaimsIn(json[each]).length === 0);
	let free = name;
	for (let n = 1; !isFree(free); n++) free = `${name}Answer${n === 1 ? '' : n}`;
	return free;
}

/** What is wrong with a name for the field; null if nothing is. */
export function fieldNameProblem(name: unknown): string | null {
	if (typeof name !== 'string' || name.trim() === '')
		return 'The option "Field Name" is empty. Enter a name, for example work.';
	if (
		['error', 'json', 'binary', 'pairedItem', '__proto__', 'constructor', 'prototype'].includes(
			name,
		)
	) {
		return `The option "Field Name" may not be "${name}": n8n reads that name itself. Use another one, for example work.`;
	}
	return null;
}

/**
 * The item with the field added, as its last one. An incoming top-level `error` moves into the field: n8n would take the
 * item for a failure, and run the node again under "Retry On Fail".
 */
export function withField(
	input: INodeExecutionData,
	itemIndex: number,
	name: string,
	value: IDataObject,
): INodeExecutionData {
	// one copy of each item: a batch has thousands
	const json = withoutFields(input.json, ['error', name]);
	json[name] = withInputError(input, name, value);
	const item: INodeExecutionData = { json, pairedItem: { item: itemIndex } };
	if (input.binary !== undefined) item.binary = input.binary;
	return item;
}

/** Puts a value on an answer, unless it says nothing: null, undefined, false, an empty list. */
export function addSaid(field: IDataObject, name: string, value: unknown): void {
	if (value === null || value === undefined || value === false) return;
	if (Array.isArray(value) && value.length === 0) return;
	field[name] = value as IDataObject[string];
}

/** The field with the error that came with the item, or that moved into the field before. */
export function withInputError(
	{ json }: INodeExecutionData,
	name: string,
	value: IDataObject,
): IDataObject {
	const replaced = json[name] as IDataObject | null | undefined;
	const before = typeof replaced?.status === 'string' ? replaced.inputError : undefined;
	const inputError = json.error === undefined ? before : (json.error ?? before ?? null);
	return inputError === undefined ? value : { ...value, inputError };
}

export function withoutFields(json: IDataObject, names: string[]): IDataObject {
	const rest = { ...json };
	// what this package put there is the last one, and V8 takes that off in no time
	for (const name of names) if (Object.hasOwn(rest, name)) delete rest[name];
	return rest;
}

/** The item's own data, without what this package put on it or on the items that it was put together from. */
export function withoutOwnFields(json: IDataObject): IDataObject {
	const rest = { ...json };
	for (const [name, value] of Object.entries(rest)) {
		if (typeof value !== 'object' || value === null) continue;
		if (isOwnField(value) || isAnswerAboutSeveral(value)) delete rest[name];
		if (!Array.isArray(value)) continue;
		const list: unknown[] = value;
		if (list.length > 0 && list.every(isOwnField)) delete rest[name];
		else if (list.some(holdsOwnField)) rest[name] = list.map(withoutItsOwnFields) as IDataObject[];
	}
	return rest;
}

function isAnswerAboutSeveral(value: unknown): boolean {
	const works = (value as { works?: unknown } | null | undefined)?.works;
	return Array.isArray(works) && works.length > 0 && works.every(isOwnField);
}

function holdsOwnField(entry: unknown): boolean {
	return (
		typeof entry === 'object' &&
		entry !== null &&
		!Array.isArray(entry) &&
		Object.values(entry).some(isOwnField)
	);
}

function withoutItsOwnFields(entry: unknown): unknown {
	if (!holdsOwnField(entry)) return entry;
	return Object.fromEntries(
		Object.entries(entry as IDataObject).filter(([, value]) => !isOwnField(value)),
	);
}
