import type { IDataObject, IExecuteFunctions, INodeExecutionData } from 'n8n-workflow';

import type { Decisions, OpenDecision } from '../../ledger';
import {
	asDecisionField,
	decisionStatus,
	DEFAULT_DECISION_FIELD,
	openDecision,
} from '../execution/decision-field';
import { lineageOf } from '../execution/lineage';
import { nodesBefore, pairedItem } from '../execution/nodes-before';
import { isToken } from '../execution/work-field';

const DECISION_NODE_TYPES = /(^|\.)cacheLlmDecision$/;

/** A question whose answer may be stored. */
export interface FoundDecision {
	decisionKey: string;
	token: string;
	kind: string | null;
}

export type Search = FoundDecision | { problem: string };

/** A look-up before this node. */
interface LookUpNode {
	name: string;
	disabled: boolean;
	/** The name of the field it adds, as it stands on the node. */
	field: string;
}

/** What the person set on the node for this item. */
export interface GivenDecision {
	decisionKey: string;
	token: string;
	field: string;
}

/**
 * Finds the question that an answer belongs to, as Complete Work finds its claim: what is given on the node; the item's
 * own field; the paired item of the nearest executed look-up; the only open question of this execution. Never guesses:
 * an answer stored under the wrong question would be replayed for ever.
 */
export class DecisionSearch {
	private lookUps: LookUpNode[] | null = null;
	private onlyOpen: Promise<OpenDecision | null> | null = null;

	constructor(
		private readonly context: IExecuteFunctions,
		private readonly decisions: Decisions,
	) {}

	async find(input: INodeExecutionData, itemIndex: number, given: GivenDecision): Promise<Search> {
		if (given.token !== '' || given.decisionKey !== '') return fromOptions(input.json, given);
		const own = openDecision(input.json[given.field]);
		if (own !== null) return foundIn(own);
		const status = decisionStatus(input.json[given.field]);
		if (status !== null) return notDeciding(status);

		const paired = this.fromPairedItem(itemIndex, given.field);
		if (paired !== null) return paired;
		const disabled = this.lookUpsBefore().find((node) => node.disabled);
		if (disabled !== undefined) {
			return {
				problem: `"${disabled.name}" is disabled, so it let every item pass without a look-up. Enable it.`,
			};
		}
		const only = await this.onlyOpenDecision();
		return (
			only ?? {
				problem:
					'No look-up was found for this answer: it passed none, or a step between lost the connection of items. Keep the field of the look-up on the item, or set Decision Key and Decision Token in the options.',
			}
		);
	}

	/** Null where the connection to every look-up is lost. */
	private fromPairedItem(itemIndex: number, fieldName: string): Search | null {
		let closed: string | null = null;
		const lookUps = this.lookUpsFor(fieldName);
		for (const node of lookUps) {
			const item = pairedItem(this.context, node.name, itemIndex);
			if (item === null) continue;
			const field = item[node.field];
			const open = openDecision(field);
			if (open === null) {
				closed ??= decisionStatus(field) ?? 'refused';
				continue;
			}
			const { guessedAt } = lineageOf(this.context, itemIndex, (name) => name === node.name);
			return guessedAt === null ? foundIn(open) : severalAt(guessedAt);
		}
		if (closed !== null) return notDeciding(closed);
		const fields = new Map(lookUps.map(({ name, field }) => [name, field]));
		const { origins } = lineageOf(this.context, itemIndex, (name) => fields.has(name));
		const names = [...new Set(fields.values())];
		const open = origins.flatMap(({ json }) =>
			names.flatMap((name) => openDecision(json[name]) ?? []),
		);
		if (new Set(open.map(({ token }) => token)).size > 1) return severalAt(null);
		return open.length > 0 ? foundIn(open[0]) : null;
	}

	/** Nearest first. Of look-ups inside each other the one whose field this node names; else any. */
	private lookUpsFor(fieldName: string): LookUpNode[] {
		const enabled = this.lookUpsBefore().filter(({ disabled }) => !disabled);
		const named = enabled.filter(({ field }) => field === fieldName);
		return named.length > 0 ? named : enabled;
	}

	/** Nearest first. */
	private lookUpsBefore(): LookUpNode[] {
		this.lookUps ??= nodesBefore(this.context)
			.filter(
				({ type, parameters }) =>
					DECISION_NODE_TYPES.test(type) && (parameters.operation ?? 'lookUp') === 'lookUp',
			)
			.map(({ name, disabled, parameters }) => {
				const field = (parameters.options as IDataObject | undefined)?.field;
				return {
					name,
					disabled,
					field: typeof field === 'string' ? field : DEFAULT_DECISION_FIELD,
				};
			});
		return this.lookUps;
	}

	private async onlyOpenDecision(): Promise<FoundDecision | null> {
		this.onlyOpen ??= (async () => {
			const execution = this.context.getExecutionId();
			if (execution === undefined || execution === '') return null;
			const open = await this.decisions.openDecisions(this.context.getInstanceId(), execution, 2);
			return open.length === 1 ? open[0] : null;
		})();
		const only = await this.onlyOpen;
		return only === null
			? null
			: { decisionKey: only.decisionKey, token: only.token, kind: only.kind };
	}
}

function fromOptions(json: IDataObject, given: GivenDecision): Search {
	const decisionKey = given.decisionKey || asDecisionField(json[given.field])?.decisionKey || '';
	if (!/^[0-9a-f]{64}$/.test(decisionKey)) {
		return { problem: 'Decision Key must be the 64 hex digits that the look-up put on the item.' };
	}
	if (!isToken(given.token)) {
		return {
			problem:
				'Decision Token must be the token that the look-up put on the item. Only items that leave by Decide have one.',
		};
	}
	return { decisionKey, token: given.token, kind: null };
}

function foundIn({
	decisionKey,
	token,
	kind,
}: IDataObject & { decisionKey: string; token: string }): FoundDecision {
	return { decisionKey, token, kind: typeof kind === 'string' ? kind : null };
}

function notDeciding(status: string): Search {
	return {
		problem: `The look-up of this item said "${status}", not "decide", so there is nothing to store. Connect only what leaves by Decide to this node.`,
	};
}

function severalAt(node: string | null): Search {
	return {
		problem: `${node === null ? 'A step' : `"${node}"`} made one item of several questions, so their answers cannot be told apart. Ask the model item by item, or set Decision Key and Decision Token in the options.`,
	};
}
