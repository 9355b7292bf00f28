import type { IDataObject, IExecuteFunctions, INodeExecutionData } from 'n8n-workflow';

import { isOwnField, readField, type Ledger, type OpenClaim } from '../../ledger';
import { asWorkField, isOpenClaim, type WorkField } from '../execution/work-field';

const CLAIM_NODE_TYPES = /(^|\.)claimWork$/;

/** A claim that Complete Work may settle. */
export interface FoundClaim {
	workId: string;
	token: string;
	key: string | null;
	kind: string | null;
}

export type Search = { claims: FoundClaim[] } | { problem: string };

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
	private claimNodes: string[] | null = null;
	private openClaim: Promise<OpenClaim | null> | null = null;

	constructor(
		private readonly context: IExecuteFunctions,
		private readonly ledger: Ledger,
	) {}

	async find(input: INodeExecutionData, itemIndex: number, given: GivenClaim): Promise<Search> {
		if (given.token !== '' || given.workId !== '') return this.fromOptions(input, given);

		const own = asWorkField(input.json[given.field]);
		if (own !== null) {
			return isOpenClaim(own)
				? { claims: [foundIn(own)] }
				: {
						problem: `This item is "${own.status}", not claimed, so there is nothing to settle. Connect only what leaves by Claimed to this node.`,
					};
		}
		const collected = collectedClaims(input.json, given.field);
		if (collected.length > 0) return { claims: collected.map(foundIn) };

		const paired = this.fromPairedItem(itemIndex, input.json);
		if (paired !== null) return paired;

		const open = await this.onlyOpenClaim();
		if (open !== null)
			return {
				claims: [{ workId: open.workId, token: open.token, key: open.key, kind: open.kind }],
			};
		return {
			problem:
				'No claim was found for this item: it passed no Claim Work (or a disabled one), or a step between lost the connection of items. Keep the field of Claim Work on the item, or set Work ID and Claim Token in the options.',
		};
	}

	private fromOptions(input: INodeExecutionData, given: GivenClaim): Search {
		const workId = given.workId || asWorkField(input.json[given.field])?.workId || '';
		if (!/^[0-9a-f]{64}$/.test(workId)) {
			return {
				problem: `Work ID must be the 64 hex digits that Claim Work put on the item, not "${workId.slice(0, 80)}".`,
			};
		}
		if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(given.token)) {
			return {
				problem:
					'Claim Token must be the token that Claim Work put on the item. Only claimed items have one.',
			};
		}
		return { claims: [{ workId, token: given.token, key: null, kind: null }] };
	}

	private fromPairedItem(itemIndex: number, json: IDataObject): Search | null {
		for (const nodeName of this.nearestClaimNodes()) {
			const claimed = this.pairedClaim(nodeName, itemIndex);
			if (claimed === null) continue;
			const problem = this.swapProblem(nodeName, claimed, json);
			return problem === null ? { claims: [foundIn(claimed.field)] } : { problem };
		}
		return null;
	}

	/** Claim Work nodes before this one, nearest first: `getParentNodes` alone lists outer ones first. */
	private nearestClaimNodes(): string[] {
		if (this.claimNodes !== null) return this.claimNodes;
		const found: string[] = [];
		const seen = new Set([this.context.getNode().name]);
		let border = [...seen];
		while (border.length > 0) {
			const next: string[] = [];
			for (const name of border) {
				for (const parent of this.context.getParentNodes(name, { depth: 1 })) {
					if (seen.has(parent.name)) continue;
					seen.add(parent.name);
					next.push(parent.name);
					if (CLAIM_NODE_TYPES.test(parent.type) && !parent.disabled) found.push(parent.name);
				}
			}
			border = next;
		}
		this.claimNodes = found;
		return found;
	}

	/** The item of a Claim Work that this item came from, if it was claimed there. n8n throws where pairing is lost. */
	private pairedClaim(
		nodeName: string,
		itemIndex: number,
	): { field: WorkField & { token: string }; item: IDataObject } | null {
		try {
			const node = this.context.getWorkflowDataProxy(itemIndex).$(nodeName) as {
				isExecuted?: boolean;
				item?: INodeExecutionData;
			};
			if (node.isExecuted !== true) return null;
			const json = node.item?.json ?? {};
			const field = claimOn(json);
			return field === null ? null : { field, item: json };
		} catch {
			return null;
		}
	}

	/**
	 * A node that reorders items without pairing them swaps tokens silently. Seen where the item still carries the claim's
	 * key fields with other values: those of another claimed item, or on an item that is otherwise still the claimed one.
	 * (An HTTP answer may well have an `id` of its own; that alone is no swap.)
	 */
	private swapProblem(
		nodeName: string,
		claimed: { field: WorkField; item: IDataObject },
		json: IDataObject,
	): string | null {
		const names = claimed.field.keyFields ?? [];
		const differing = names.filter((name) => {
			const now = readField(json, name);
			return now.found && keyText(now.value) !== keyText(readField(claimed.item, name).value);
		});
		if (differing.length === 0) return null;
		if (!this.isSwapped(nodeName, claimed, json, names) && !isStillTheItem(claimed, json))
			return null;
		return `The item's ${differing.join(', ')} is not that of its claim (${claimed.field.key ?? claimed.field.workId}): a step between changed the order of the items without keeping their connection. Keep the field of Claim Work on the item, or let that step set pairedItem.`;
	}

	private isSwapped(
		nodeName: string,
		claimed: { field: WorkField },
		json: IDataObject,
		names: string[],
	): boolean {
		const keyOf = (record: IDataObject) =>
			JSON.stringify(names.map((name) => keyText(readField(record, name).value)));
		const key = keyOf(json);
		const all = this.context.getWorkflowDataProxy(0).$(nodeName).all() as INodeExecutionData[];
		return all.some((other) => {
			const field = claimOn(other.json);
			return field !== null && field.workId !== claimed.field.workId && keyOf(other.json) === key;
		});
	}

	private async onlyOpenClaim(): Promise<OpenClaim | null> {
		this.openClaim ??= (async () => {
			const execution = this.context.getExecutionId();
			if (execution === undefined || execution === '') return null;
			const open = await this.ledger.works.openClaims(this.context.getInstanceId(), execution, 2);
			return open.length === 1 ? open[0] : null;
		})();
		return await this.openClaim;
	}
}

function claimOn(json: IDataObject): (WorkField & { token: string }) | null {
	for (const value of Object.values(json)) {
		const field = asWorkField(value);
		if (field !== null && isOpenClaim(field)) return field;
	}
	return null;
}

/** Claims on the items that one item was put together from (Aggregate): a list of fields, or of items with the field. */
function collectedClaims(json: IDataObject, fieldName: string): WorkField[] {
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
	return collected.filter(isOpenClaim);
}

function foundIn(field: WorkField): FoundClaim {
	return {
		workId: field.workId,
		token: field.token as string,
		key: field.key ?? null,
		kind: field.kind ?? null,
	};
}

/** At least half of the claimed item's other fields are still there with their values. */
function isStillTheItem(
	claimed: { field: WorkField; item: IDataObject },
	json: IDataObject,
): boolean {
	const names = new Set((claimed.field.keyFields ?? []).map((name) => name.split(/[.[]/)[0]));
	const others = Object.keys(claimed.item).filter(
		(name) => !names.has(name) && !isOwnField(claimed.item[name]),
	);
	const kept = others.filter(
		(name) =>
			Object.hasOwn(json, name) &&
			JSON.stringify(json[name]) === JSON.stringify(claimed.item[name]),
	);
	return others.length > 0 && kept.length * 2 >= others.length;
}

function keyText(value: unknown): string {
	return typeof value === 'string' ? value.trim().normalize('NFC') : (JSON.stringify(value) ?? '');
}
