import type { IDataObject, INodeExecutionData } from 'n8n-workflow';

import {
	MAX_RESULT_BYTES,
	parseFieldNames,
	readField,
	resultText,
	type Caller,
	type HoldAnswer,
	type Works,
} from '../../ledger';
import { checkedNumber } from '../execution/number';
import { unknownChoice, type Parameters } from '../execution/parameters';
import { readReference } from '../execution/reference';
import { withoutOwnFields } from '../execution/work-field';
import type { FoundClaim } from './find-claim';
import { OPERATIONS, type Operation } from './properties';

/** One claim to settle, with what the node says about it. */
export interface Settlement {
	itemIndex: number;
	field: string;
	claim: FoundClaim;
	result?: unknown;
	externalRef: string | null;
	error: string;
	landed: 'no' | 'unknown';
	permanent: boolean;
	leaseSeconds?: number;
	warnings: string[];
}

/** Throws for a choice that an edited or imported workflow may hold. */
export function readOperation(parameters: Parameters): Operation {
	const chosen = parameters.text('operation', 0, 'complete');
	const operation = OPERATIONS.find((each) => each === chosen);
	if (operation !== undefined) return operation;
	throw unknownChoice('Operation', chosen);
}

/** Reads what this operation needs for an item. Throws, naming the field, for what cannot be used. */
export function readSettlement(
	operation: Operation,
	parameters: Parameters,
	input: INodeExecutionData,
	itemIndex: number,
	field: string,
): Omit<Settlement, 'claim'> {
	const warnings: string[] = [];
	const settlement: Omit<Settlement, 'claim'> = {
		itemIndex,
		field,
		externalRef: null,
		error: '',
		landed: 'unknown',
		permanent: false,
		warnings,
	};
	switch (operation) {
		case 'complete':
			settlement.result = unlessItFails(
				() => readResult(parameters, input.json, itemIndex),
				{ $notStored: 'the expression failed' },
				'The result was not stored',
				warnings,
			);
			settlement.externalRef = unlessItFails(
				() => givenReference(parameters, itemIndex, warnings),
				null,
				'No reference was stored',
				warnings,
			);
			break;
		case 'recordReference': {
			const { reference, warning, isEmpty } = readReference(parameters, 'externalRef', itemIndex);
			if (reference === null) {
				throw new Error(
					isEmpty || warning === null
						? 'External Reference is empty: there is nothing to record. Choose the field with the ID that the target gave.'
						: warning,
				);
			}
			settlement.externalRef = reference;
			if (warning !== null) warnings.push(warning);
			break;
		}
		case 'fail':
			settlement.error =
				unlessItFails(
					() => errorText(parameters.read<unknown>('error', itemIndex, '')),
					'',
					'The reason was not read',
					warnings,
				) ||
				incomingError(input) ||
				'The step failed.';
			settlement.landed = parameters.read<'no' | 'unknown'>('landed', itemIndex, 'unknown');
			if (!['no', 'unknown'].includes(settlement.landed)) {
				throw unknownChoice('Did the Effect Land?', settlement.landed);
			}
			settlement.permanent = unlessItFails(
				() => parameters.optionFlag('permanent', 'Do Not Retry', itemIndex, false),
				false,
				'It is tried again as the claim says',
				warnings,
			);
			break;
		case 'extend': {
			const lease = parameters.option<unknown>('leaseSeconds', itemIndex, undefined);
			if (lease !== undefined) {
				settlement.leaseSeconds = checkedNumber(lease, {
					label: 'Lease (Seconds)',
					least: 0.001,
					most: 31_622_400,
				});
			}
			break;
		}
		case 'release':
		case 'failByExecution':
			break;
	}
	return settlement;
}

/** The effect has landed, or failed: an expression that fails must not keep that from being recorded. */
function unlessItFails<T>(read: () => T, otherwise: T, outcome: string, warnings: string[]): T {
	try {
		return read();
	} catch (error) {
		const message = error instanceof Error ? error.message : String(error);
		warnings.push(`${outcome}, because its expression fails for this item: ${message}`);
		return otherwise;
	}
}

/**
 * Sends all settlements of one operation, in one round trip per 5,000. Items that came from one claim (an order split
 * into its lines) settle it once, together.
 */
export async function settle(
	works: Works,
	operation: Operation,
	settlements: Settlement[],
	caller: Caller,
): Promise<HoldAnswer[]> {
	const groups: Settlement[][] = [];
	const byClaim = new Map<string, number>();
	const groupOf = settlements.map((settlement) => {
		const { workId, token } = settlement.claim;
		const claim = `${workId} ${token}`;
		const at = byClaim.get(claim) ?? groups.push([]) - 1;
		byClaim.set(claim, at);
		groups[at].push(settlement);
		return at;
	});
	const offered = groups.map(together);
	boundSharedResults(groups, offered);
	const answers = await send(works, operation, offered, caller);
	return groupOf.map((at) => answers[at]);
}

/** What the items of one claim say as one: all results as a list, and the first reference. */
function together(group: Settlement[]): Settlement {
	const [first] = group;
	if (group.length === 1) return first;
	const references = [...new Set(group.flatMap(({ externalRef }) => externalRef ?? []))];
	if (references.length > 1) {
		for (const { warnings } of group) {
			warnings.push(
				`The ${group.length} items of this claim have ${references.length} references; ${references[0]} was stored as the reference of the work.`,
			);
		}
	}
	return {
		...first,
		permanent: group.some(({ permanent }) => permanent),
		result: group.some(({ result }) => result !== undefined)
			? group.map(({ result }) => result ?? null)
			: undefined,
		externalRef: references[0] ?? null,
		landed: group.every(({ landed }) => landed === 'no') ? 'no' : 'unknown',
	};
}

/**
 * An item that was put together from many is the result of each of their works. Ten thousand copies of a list of ten
 * thousand would fill the memory and the database, so copies together are at most as large as one result may be.
 */
function boundSharedResults(groups: Settlement[][], offered: Settlement[]): void {
	const claimsOfItem = new Map<number, number>();
	let most = 1;
	for (const group of groups) {
		for (const { itemIndex } of group) {
			const claims = (claimsOfItem.get(itemIndex) ?? 0) + 1;
			claimsOfItem.set(itemIndex, claims);
			most = Math.max(most, claims);
		}
	}
	if (most === 1) return;
	const bounded = new Map<string, unknown>();
	groups.forEach((group, k) => {
		const copies = group.reduce(
			(most, { itemIndex }) => Math.max(most, claimsOfItem.get(itemIndex) ?? 1),
			1,
		);
		if (copies === 1 || offered[k].result === undefined) return;
		const items = group.map(({ itemIndex }) => itemIndex).join();
		if (!bounded.has(items)) {
			const bytes = Buffer.byteLength(resultText(offered[k].result).text ?? '');
			const isTooLarge = bytes * copies > MAX_RESULT_BYTES;
			const marker = { $notStored: 'too large for each of several works', bytes, works: copies };
			bounded.set(items, isTooLarge ? marker : offered[k].result);
			for (const { warnings } of isTooLarge ? group : []) {
				warnings.push(
					`The result is too large to store with each of ${copies} works (${bytes} bytes each): a marker was stored instead. Choose fewer fields under "Result to Store".`,
				);
			}
		}
		offered[k] = { ...offered[k], result: bounded.get(items) };
	});
}

async function send(
	works: Works,
	operation: Operation,
	settlements: Settlement[],
	caller: Caller,
): Promise<HoldAnswer[]> {
	switch (operation) {
		case 'complete':
			return await works.complete(
				settlements.map(({ claim: { workId, token }, result, externalRef }) => ({
					workId,
					token,
					result,
					externalRef,
				})),
				caller,
			);
		case 'fail':
			return await works.fail(
				settlements.map(({ claim: { workId, token }, error, landed, permanent }) => ({
					workId,
					token,
					error,
					landed,
					permanent,
				})),
				caller,
			);
		case 'recordReference':
			return await works.recordReference(
				settlements.map(({ claim: { workId, token }, externalRef }) => ({
					workId,
					token,
					externalRef: externalRef ?? '',
				})),
				caller,
			);
		case 'extend':
			return await works.extend(
				settlements.map(({ claim: { workId, token }, leaseSeconds }) => ({
					workId,
					token,
					leaseSeconds,
				})),
				caller,
			);
		case 'release':
			return await works.release(
				settlements.map(({ claim: { workId, token } }) => ({ workId, token })),
				caller,
			);
		case 'failByExecution':
			return [];
	}
}

function readResult(parameters: Parameters, json: IDataObject, itemIndex: number): unknown {
	switch (parameters.read<string>('result', itemIndex, 'item')) {
		case 'none':
			return undefined;
		case 'fields': {
			const names = parseFieldNames(parameters.text('resultFields', itemIndex));
			return Object.fromEntries(
				names.flatMap((name) => {
					const { found, value } = readField(json, name);
					return found ? [[name, value]] : [];
				}),
			);
		}
		case 'expression':
			return parameters.read<unknown>('resultValue', itemIndex, null) ?? null;
		default: {
			const result = withoutOwnFields(json);
			if (!Object.hasOwn(result, 'error')) return result;
			const { error, ...rest } = result;
			return error === undefined || error === null ? rest : { ...rest, error };
		}
	}
}

/** Completing must not fail because of the reference (the effect has landed): what is none becomes a warning. */
function givenReference(
	parameters: Parameters,
	itemIndex: number,
	warnings: string[],
): string | null {
	const { reference, warning } = readReference(parameters, 'externalRef', itemIndex);
	if (warning !== null) warnings.push(warning);
	return reference;
}

/** The error that n8n's error output, or an earlier node of this package, put on the item. */
function incomingError(input: INodeExecutionData): string {
	const values: unknown[] = [
		input.json.error,
		...Object.values(input.json).map((value) => (value as IDataObject | null)?.inputError),
		input.error,
	];
	return values.map(errorText).find((text) => text !== '') ?? '';
}

/** Some nodes give an error as text, others as an object. */
function errorText(value: unknown): string {
	if (typeof value === 'boolean' || value === undefined || value === null) return '';
	if (typeof value !== 'object') return String(value);
	const { message } = value as { message?: unknown };
	if (typeof message === 'string' && message !== '') return message;
	return resultText(value).text ?? '';
}
