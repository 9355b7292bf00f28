import { randomUUID } from 'crypto';
import type { IDataObject, IExecuteFunctions, INodeExecutionData } from 'n8n-workflow';

import type { Caller, PassedEvent, Works } from '../../ledger';
import { nodesBefore, pairedItem } from '../execution/nodes-before';
import type { Parameters } from '../execution/parameters';
import { answerStatus, asWorkField, isShadow, openClaimsIn } from '../execution/work-field';
import { answerOn, CLAIM_NODE_TYPES } from './find-claim';
import type { Operation } from './properties';
import { readSettlement } from './settle';

/** What Claim Work said of an item that it let through in shadow mode; of some only that it did. */
export type ShadowAnswer = IDataObject & { status: string };

/**
 * Tells which items passed a Claim Work in shadow mode. Those are never kept from passing here either: a business that
 * is only watched must not be stopped by what watches it.
 */
export class ShadowSearch {
	private claimNodes: Array<{ name: string; shadow: boolean; disabled: boolean }> | null = null;

	constructor(private readonly context: IExecuteFunctions) {}

	/** Null for an item that was really guarded, and where nobody can tell. */
	find({ json }: INodeExecutionData, itemIndex: number, field: string): ShadowAnswer | null {
		const own = answerOn(json, field);
		if (answerStatus(own) !== null) return isShadow(own) ? (own as ShadowAnswer) : null;
		// it could not say so in the field itself
		const beside = json[`${field}Answer`];
		if (isShadow(beside)) return beside as ShadowAnswer;

		const nodes = this.nodes();
		if (!nodes.some(({ shadow }) => shadow)) return null;
		for (const { name, disabled } of nodes) {
			const item = disabled ? null : pairedItem(this.context, name, itemIndex);
			if (item === null) continue;
			const answer = Object.values(item)
				.filter((value) => answerStatus(value) !== null)
				.at(-1);
			return isShadow(answer) ? (answer as ShadowAnswer) : null;
		}
		return this.allInShadow() ? { status: 'shadow' } : null;
	}

	/** Whether nothing before this node guards anything, and that on purpose. */
	allInShadow(): boolean {
		const nodes = this.nodes();
		return nodes.length > 0 && nodes.every(({ shadow, disabled }) => shadow && !disabled);
	}

	private nodes() {
		this.claimNodes ??= nodesBefore(this.context)
			.filter(({ type }) => CLAIM_NODE_TYPES.test(type))
			.map(({ name, disabled, parameters }) => ({
				name,
				disabled,
				shadow: parameters.mode === 'shadow',
			}));
		return this.claimNodes;
	}
}

/** What stands on an item that is passed on although its claim, if it has one, could not be settled. */
export function passedField(answer: ShadowAnswer, problem: string): IDataObject {
	const unclaimed = openClaimsIn(answer).length === 0 && answer.wouldHave !== undefined;
	return unclaimed
		? {
				...answer,
				status: 'shadow',
				message: 'Passed on in shadow mode: it holds no claim, so there is nothing to settle.',
			}
		: {
				...answer,
				status: 'shadow',
				wouldHave: 'error',
				message: `Passed on in shadow mode, would have been stopped here. ${problem}`,
			};
}

const EVENTS: Readonly<Record<Exclude<Operation, 'failByExecution'>, PassedEvent>> = {
	complete: 'complete',
	fail: 'fail',
	recordReference: 'record_reference',
	extend: 'extend',
	release: 'release',
};

/** An item that was let through without a claim. */
export interface PassedShadow {
	itemIndex: number;
	field: string;
	answer: ShadowAnswer;
}

/**
 * Records what became of items that were let through without a claim: each may be a second effect. Best effort, for the
 * ledger guards nothing here; answers what is to be said on all of them where it failed.
 */
export async function recordPassed(
	works: Works,
	operation: Operation,
	passed: PassedShadow[],
	input: INodeExecutionData[],
	parameters: Parameters,
	caller: Caller,
): Promise<string | null> {
	if (operation === 'failByExecution') return null;
	const items = passed.flatMap(({ itemIndex, field, answer }) => {
		const workId = asWorkField(answer)?.workId;
		if (workId === undefined) return [];
		return [
			{ workId, nonce: randomUUID(), ...what(operation, parameters, input, itemIndex, field) },
		];
	});
	if (items.length === 0) return null;
	try {
		await works.passShadow(items, EVENTS[operation], caller);
		return null;
	} catch (error) {
		return `It was not recorded: ${error instanceof Error ? error.message : String(error)}`;
	}
}

/** The result and reference as a completion would store them; nothing where the parameters cannot be read. */
function what(
	operation: Operation,
	parameters: Parameters,
	input: INodeExecutionData[],
	itemIndex: number,
	field: string,
): { result?: unknown; externalRef?: string | null } {
	try {
		const { result, externalRef } = readSettlement(
			operation,
			parameters,
			input[itemIndex],
			itemIndex,
			field,
		);
		return { result, externalRef };
	} catch {
		return {};
	}
}
