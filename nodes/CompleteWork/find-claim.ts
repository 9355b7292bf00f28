import type { IDataObject, IExecuteFunctions, INodeExecutionData } from 'n8n-workflow';

import { isOwnField, readField, resultText, type OpenClaim, type Works } from '../../ledger';
import { lineageOf } from '../execution/lineage';
import { nodesBefore, pairedItem } from '../execution/nodes-before';
import {
	answerStatus,
	asWorkField,
	DEFAULT_FIELD,
	isOpenClaim,
	isToken,
	openClaimsIn,
	type OpenField,
	type WorkField,
} from '../execution/work-field';

export const CLAIM_NODE_TYPES = /(^|\.)claimWork$/;
const TRIGGER_TYPES = /(^|\.)workLedgerTrigger$/;
const COMPLETE_NODE_TYPES = /(^|\.)completeWork$/;

/** What Complete Work answers when a claim is over for its owner. */
const SETTLED_STATUSES = new Set(['completed', 'failed', 'released', 'not_owner']);

/** Names that answers of other systems use for their own records, too. */
const AMBIGUOUS_NAME = /^(_?id|uuid|guid|key|no|nr|number|code|name)$/i;

/** A claim that Complete Work may settle. */
export interface FoundClaim {
	workId: string;
	token: string;
	key: string | null;
	kind: string | null;
}

export type Search = { claims: FoundClaim[] } | { problem: string };

/** A Claim Work before this node, or a trigger that hands out claimed work. */
interface ClaimNode {
	name: string;
	disabled: boolean;
	/** The name of the field it adds, as it stands on the node. */
	field: unknown;
}

/** An item as Claim Work let it pass. */
interface ClaimedItem {
	field: WorkField;
	item: IDataObject;
}

/** What the person set on the node for this item. */
export interface GivenClaim {
	token: string;
	workId: string;
	field: string;
}

/**
 * Finds the claim of an item, in this order: what is given on the node; the item's own field; the paired item of the
 * nearest executed Claim Work that was claimed; the only open claim of this execution. Never guesses: an item without a
 * claim gets an error, because completing the wrong work is worse than completing none.
 */
export class ClaimSearch {
	private claimNodes: ClaimNode[] | null = null;
	private readonly completeNodes = new Set<string>();
	/** By token, with the node that claimed. */
	private claimedItems: Map<string, ClaimedItem & { by: string }> | null = null;
	private openClaim: Promise<OpenClaim | null> | null = null;
	private readonly worksByKey = new Map<string, Map<string, ClaimedItem>>();

	constructor(
		private readonly context: IExecuteFunctions,
		private readonly works: Works,
		/** Items come here that nobody claimed, because Claim Work is in shadow mode. */
		private readonly mayHoldNoClaim = false,
	) {}

	async find(input: INodeExecutionData, itemIndex: number, given: GivenClaim): Promise<Search> {
		if (given.token !== '' || given.workId !== '') return this.fromOptions(input, given);

		const answer = answerOn(input.json, given.field);
		const status = answerStatus(answer);
		if (status !== null) {
			const open = openClaimsIn(answer);
			if (open.length > 0) {
				const problem =
					open.length === 1 ? this.otherKeyProblem(open[0], input.json, given.field) : null;
				return problem === null ? { claims: open.map(foundIn) } : { problem };
			}
			return status === 'claimed' ? withoutToken() : notClaimed(status);
		}
		const collected = collectedClaims(input.json, given.field);
		if (collected.length > 0) return { claims: collected.map(foundIn) };

		const paired = this.fromPairedItem(itemIndex, input.json, given.field);
		if (paired !== null) return paired;
		// Claim Work refused it, but could not say so in the field itself
		if (answerStatus(input.json[`${given.field}Answer`]) === 'refused')
			return notClaimed('refused');

		const disabled = this.claimNodesBefore().find((node) => node.disabled);
		if (disabled !== undefined) return passedDisabled(disabled);
		// in shadow mode others came through without any claim, and their results are not this claim's
		const mayBeAnother = this.mayHoldNoClaim && this.context.getInputData().length > 1;
		const open = mayBeAnother ? null : await this.onlyOpenClaim();
		if (open !== null)
			return {
				claims: [{ workId: open.workId, token: open.token, key: open.key, kind: open.kind }],
			};
		return {
			problem:
				this.claimNodesBefore().length === 0
					? 'No claim was found for this item: there is no Claim Work before this node. Put one directly before the step that has the effect; in a sub-workflow pass its field on to it, or set Work ID and Claim Token in the options.'
					: 'No claim was found for this item: it passed no Claim Work, or a step between lost the connection of items. Keep the field of Claim Work on the item, or set Work ID and Claim Token in the options.',
		};
	}

	private fromOptions(input: INodeExecutionData, given: GivenClaim): Search {
		const workId = given.workId || asWorkField(input.json[given.field])?.workId || '';
		if (!/^[0-9a-f]{64}$/.test(workId)) {
			return {
				problem: `Work ID must be the 64 hex digits that Claim Work put on the item, not "${workId.slice(0, 80)}".`,
			};
		}
		if (!isToken(given.token)) {
			return {
				problem:
					'Claim Token must be the token that Claim Work put on the item. Only claimed items have one.',
			};
		}
		return { claims: [{ workId, token: given.token, key: null, kind: null }] };
	}

	/** Null where the connection to every Claim Work is lost; an item that is known to hold no claim is a problem. */
	private fromPairedItem(itemIndex: number, json: IDataObject, fieldName: string): Search | null {
		let unclaimed: string | null = null;
		let settled: OpenField | null = null;
		const settledOnTheWay = this.settledOnTheWay(itemIndex);
		for (const node of this.claimNodesBefore()) {
			const item = node.disabled ? null : pairedItem(this.context, node.name, itemIndex);
			if (item === null) continue;
			const field = claimOn(item, fieldName);
			if (field === null) {
				unclaimed ??= answerStatus(answerOn(item, fieldName)) ?? lastAnswer(item) ?? 'refused';
				continue;
			}
			// an inner claim that its own Complete Work has settled: this one is for the outer
			if (settledOnTheWay.has(field.workId)) {
				settled ??= field;
				continue;
			}
			// the outer of two claims must not be taken for that of a disabled inner one
			const disabled = Object.hasOwn(item, fieldName)
				? undefined
				: this.claimNodesBefore().find((other) => other.disabled && other.field === fieldName);
			if (disabled !== undefined) return passedDisabled(disabled);
			const problem =
				this.guessProblem(node.name, itemIndex) ??
				this.swapProblem(node.name, { field, item }, json, fieldName);
			return problem === null ? { claims: [foundIn(field)] } : { problem };
		}
		// settling it once more changes nothing, and a difference is reported
		if (settled !== null) return { claims: [foundIn(settled)] };
		if (unclaimed !== null) return notClaimed(unclaimed);
		const together = this.fromOrigins(itemIndex, fieldName);
		return together.length > 0 ? { claims: together.map(foundIn) } : null;
	}

	/** Ids of the works that Complete Work nodes between have settled for this item, or for what it was made of. */
	private settledOnTheWay(itemIndex: number): Set<string> {
		const settled = new Set<string>();
		this.claimNodesBefore();
		if (this.completeNodes.size === 0) return settled;
		lineageOf(
			this.context,
			itemIndex,
			() => false,
			(name, { json }) => {
				if (!this.completeNodes.has(name)) return;
				for (const field of Object.values(json).flatMap((value) => asWorkField(value) ?? [])) {
					if (SETTLED_STATUSES.has(field.status)) settled.add(field.workId);
				}
			},
		);
		return settled;
	}

	/** The claims of all items that this one was put together from. */
	private fromOrigins(itemIndex: number, fieldName: string): OpenField[] {
		const enabled = new Set(
			this.claimNodesBefore().flatMap((node) => (node.disabled ? [] : [node.name])),
		);
		const { origins } = lineageOf(this.context, itemIndex, (name) => enabled.has(name));
		return eachOnce(origins.flatMap(({ json }) => claimOn(json, fieldName) ?? []));
	}

	private claimNodesBefore(): ClaimNode[] {
		if (this.claimNodes !== null) return this.claimNodes;
		const before = nodesBefore(this.context);
		for (const { name, type, disabled } of before) {
			if (COMPLETE_NODE_TYPES.test(type) && !disabled) this.completeNodes.add(name);
		}
		this.claimNodes = before
			.filter(
				({ type, disabled, parameters }) =>
					CLAIM_NODE_TYPES.test(type) ||
					// a dead letter comes without a claim, and a disabled trigger lets nothing pass
					(TRIGGER_TYPES.test(type) && !disabled && parameters.event === 'retry_due'),
			)
			.map(({ name, disabled, parameters }) => ({
				name,
				disabled,
				field: (parameters.options as IDataObject | undefined)?.field ?? DEFAULT_FIELD,
			}));
		return this.claimNodes;
	}

	/** n8n pairs one item that was made of several with the first of them, so the others' claims would stay open. */
	private guessProblem(nodeName: string, itemIndex: number): string | null {
		const { guessedAt } = lineageOf(this.context, itemIndex, (name) => name === nodeName);
		return guessedAt === null
			? null
			: `"${guessedAt}" made one item of several and does not say of which, so their claims cannot be told apart. Let it set pairedItem, use an Aggregate step in its place, or set Work ID and Claim Token in the options.`;
	}

	/** An item that carries its own claim, but the key of another: a step between mixed two items up. */
	private otherKeyProblem(field: OpenField, json: IDataObject, fieldName: string): string | null {
		if (field.keyFields === undefined) return null;
		if (this.claimedItems === null) {
			this.claimedItems = new Map();
			for (const node of this.claimNodesBefore()) {
				if (node.disabled) continue;
				for (const { json: item } of this.allItems(node.name)) {
					const claimed = claimOn(item, fieldName);
					if (claimed !== null) {
						this.claimedItems.set(claimed.token, { field: claimed, item, by: node.name });
					}
				}
			}
		}
		const claimed = this.claimedItems.get(field.token);
		return claimed?.field.workId === field.workId
			? this.swapProblem(claimed.by, claimed, json, fieldName)
			: null;
	}

	/** All items of a node; none where it did not run. */
	private allItems(nodeName: string): INodeExecutionData[] {
		try {
			return this.context.getWorkflowDataProxy(0).$(nodeName).all() as INodeExecutionData[];
		} catch {
			return [];
		}
	}

	/**
	 * A step that reorders or mixes up items gives them each other's claims silently. Seen where the item still carries the
	 * claim's key fields, with other values. An HTTP answer may well have an `id` or `name` of its own: of such names only
	 * another claimed item counts, or an item that is otherwise still the claimed one.
	 */
	private swapProblem(
		nodeName: string,
		claimed: ClaimedItem,
		json: IDataObject,
		fieldName: string,
	): string | null {
		const names = claimed.field.keyFields ?? [];
		const differing = names.filter((name) => {
			const now = readField(json, name);
			// what is no single value any more is no other key
			const isValue = ['string', 'number', 'boolean'].includes(typeof now.value);
			return isValue && keyText(now.value) !== keyText(readField(claimed.item, name).value);
		});
		if (differing.length === 0) return null;
		const isAmbiguous = (name: string) => AMBIGUOUS_NAME.test(name.split(/[.\]]/).at(-1) ?? name);
		if (
			differing.every(isAmbiguous) &&
			!this.isSwapped(nodeName, claimed, json, names, fieldName) &&
			!isStillTheItem(claimed, json)
		)
			return null;
		return `The item's ${differing.join(', ')} is not that of its claim (${claimed.field.key ?? claimed.field.workId}): a step between changed the order of the items without keeping their connection. Keep the field of Claim Work on the item, or let that step set pairedItem.`;
	}

	/** Whether this is another item that was claimed there: by its key, and because it brings nothing new or kept the other fields. */
	private isSwapped(
		nodeName: string,
		claimed: ClaimedItem,
		json: IDataObject,
		names: string[],
		fieldName: string,
	): boolean {
		const keyOf = (record: IDataObject) =>
			JSON.stringify(names.map((name) => keyText(readField(record, name).value)));
		// indexed once per batch: asked for every item
		const index = JSON.stringify([nodeName, fieldName, names]);
		let works = this.worksByKey.get(index);
		if (works === undefined) {
			works = new Map();
			for (const other of this.allItems(nodeName)) {
				const field = claimOn(other.json, fieldName);
				if (field !== null) works.set(keyOf(other.json), { field, item: other.json });
			}
			this.worksByKey.set(index, works);
		}
		const other = works.get(keyOf(json));
		if (other === undefined || other.field.workId === claimed.field.workId) return false;
		// both sides may count their ids from 1: an answer with an id of its own is no swap
		return (
			isStillTheItem(other, json) ||
			Object.keys(json).every((name) => Object.hasOwn(other.item, name))
		);
	}

	private async onlyOpenClaim(): Promise<OpenClaim | null> {
		this.openClaim ??= (async () => {
			const execution = this.context.getExecutionId();
			if (execution === undefined || execution === '') return null;
			const open = await this.works.openClaims(this.context.getInstanceId(), execution, 2);
			return open.length === 1 ? open[0] : null;
		})();
		return await this.openClaim;
	}
}

function notClaimed(status: string): Search {
	return {
		problem: `This item is "${status}", not claimed, so there is nothing to settle. Connect only what leaves by Claimed to this node.`,
	};
}

function withoutToken(): Search {
	return {
		problem:
			'This item says "claimed", but holds no token that could be that of its claim: a step changed or removed it. Pass the field of Claim Work on as it is, or set Work ID and Claim Token in the options.',
	};
}

function passedDisabled({ name }: ClaimNode): Search {
	return {
		problem: `No claim was found for this item: "${name}" is disabled, so it let every item pass unclaimed. Enable it, or set Work ID and Claim Token in the options.`,
	};
}

/** What a node of this package answered in this field; n8n keeps it under `details` where the item left by Error. */
export function answerOn(json: IDataObject, fieldName: string): unknown {
	if (Object.hasOwn(json, fieldName)) return json[fieldName];
	return json.error === undefined
		? undefined
		: (json.details as IDataObject | null | undefined)?.[fieldName];
}

/** The claim on an item of Claim Work: in the field that is asked for, else in the one the node added, its last. */
function claimOn(json: IDataObject, fieldName: string): OpenField | null {
	const asked = answerOn(json, fieldName);
	const answer =
		answerStatus(asked) === null
			? Object.values(json)
					.reverse()
					.find((value) => answerStatus(value) !== null)
			: asked;
	const field = asWorkField(answer);
	return field !== null && isOpenClaim(field) ? field : null;
}

/** Status of the last answer on an item. */
function lastAnswer(json: IDataObject): string | null {
	const statuses = Object.values(json).flatMap((value) => answerStatus(value) ?? []);
	return statuses.at(-1) ?? null;
}

/** Claims on the items that one item was put together from (Aggregate): a list of fields, or of items with the field. */
function collectedClaims(json: IDataObject, fieldName: string): OpenField[] {
	const collected: WorkField[] = [];
	for (const value of Object.values(json)) {
		if (!Array.isArray(value)) continue;
		for (const entry of value as unknown[]) {
			const field = isOwnField(entry)
				? asWorkField(entry)
				: asWorkField((entry as IDataObject | null | undefined)?.[fieldName]);
			if (field !== null) collected.push(field);
		}
	}
	return eachOnce(collected.filter(isOpenClaim));
}

/** An item may hold a claim twice: in a list of fields, and in a list of items. */
function eachOnce(claims: OpenField[]): OpenField[] {
	return [...new Map(claims.map((claim) => [claim.token, claim])).values()];
}

function foundIn(field: OpenField): FoundClaim {
	return {
		workId: field.workId,
		token: field.token,
		key: field.key ?? null,
		kind: field.kind ?? null,
	};
}

/** At least half of the claimed item's other fields are still there with their values. */
function isStillTheItem(claimed: ClaimedItem, json: IDataObject): boolean {
	const others = otherFields(claimed);
	const kept = others.filter(
		(name) => Object.hasOwn(json, name) && textOf(json[name]) === textOf(claimed.item[name]),
	);
	return others.length > 0 && kept.length * 2 >= others.length;
}

/** Names of a claimed item's fields besides its key and what this package added. */
function otherFields({ field, item }: ClaimedItem): string[] {
	const names = new Set((field.keyFields ?? []).map((name) => name.split(/[.[]/)[0]));
	return Object.keys(item).filter((name) => !names.has(name) && !isOwnField(item[name]));
}

function keyText(value: unknown): string {
	return typeof value === 'string' ? value.trim().normalize('NFC') : textOf(value);
}

/** For comparing: a value that JSON cannot carry (BigInt, circular) must not keep a claim from being completed. */
function textOf(value: unknown): string {
	return resultText(value).text ?? '';
}
