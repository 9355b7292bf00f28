import type { IDataObject, IExecuteFunctions, INodeExecutionData } from 'n8n-workflow';

import {
	compareParts,
	type DecisionFilter,
	type DecisionReport,
	type DecisionState,
	type Ledger,
} from '../../ledger';
import { toolItem, toolValue, upToMost } from '../execution/agent-tool';
import { callerOf } from '../execution/caller';
import { errorOutputItem, isTool, nodeError, onErrorOf } from '../execution/failing-closed';
import type { Parameters } from '../execution/parameters';
import { checkedNumber, readNumber } from '../execution/number';
import { decisionFieldOf } from './answer';
import type { Operation } from './outputs';
import { isAway, parameterProblem } from '../execution/problems';
import { checkedKey, readDecisionKey } from './read';

const PAGE = 100;
const MOST_LISTED = 10_000;

interface Call {
	ledger: Ledger;
	parameters: Parameters;
	itemIndex: number;
	json: IDataObject;
	caller: ReturnType<typeof callerOf>;
}

const OPERATIONS: Partial<Record<Operation, (call: Call) => Promise<IDataObject[]>>> = {
	get,
	compare,
	list,
	expire,
	statistics,
	purge,
};

/** What people do besides approving: one output, any number of items for each that came in. */
export async function administer(
	context: IExecuteFunctions,
	ledgerFor: () => Promise<Ledger>,
	parameters: Parameters,
	operation: Operation,
): Promise<INodeExecutionData[][]> {
	const left: INodeExecutionData[] = [];
	const caller = callerOf(context);
	const run = OPERATIONS[operation];
	let away: Error | null = null;
	for (const [itemIndex, item] of context.getInputData().entries()) {
		const pairedItem = { item: itemIndex };
		try {
			if (run === undefined) {
				throw new Error(
					`Operation "${String(operation).slice(0, 50)}" is not known to this version. Choose it anew.`,
				);
			}
			if (away !== null) throw away;
			const ledger = await ledgerFor();
			const found = await run({ ledger, parameters, itemIndex, json: item.json, caller });
			if (!isTool(context)) {
				left.push(...found.map((json) => ({ json, pairedItem })));
				continue;
			}
			// without any item the agent would get no answer at all
			const answers =
				found.length > 0 ? found : [{ summary: 'The ledger holds nothing like that.' }];
			left.push(...answers.map((json) => toolItem(itemIndex, toolText(json), json)));
		} catch (error) {
			if (isAway(error)) away = error as Error;
			const message = parameterProblem(error);
			const onError = onErrorOf(context);
			if (isTool(context)) left.push(toolItem(itemIndex, message, { status: 'error' }));
			else if (onError === 'stop') throw nodeError(context, message, { itemIndex });
			else if (onError === 'errorOutput') left.push(errorOutputItem(itemIndex, item, message, {}));
			else left.push({ ...item, json: { ...item.json, error: message }, pairedItem });
		}
	}
	return [isTool(context) ? upToMost(left) : left];
}

/** What an agent reads: where it stands, and the value where there is one to go by. */
function toolText({ summary, state, altered, expired, value }: IDataObject): string {
	const handedOut = ['stored', 'approved'].includes(String(state)) && !altered && !expired;
	return `${String(summary)}${handedOut ? toolValue('Decision', value ?? undefined) : ''}`;
}

async function get(call: Call): Promise<IDataObject[]> {
	const decisionKey = readDecisionKey(call.parameters, call.itemIndex, call.json);
	const found = await call.ledger.decisions.get(decisionKey);
	if (found === null) {
		return [{ found: false, decisionKey, summary: 'The ledger holds no such decision.' }];
	}
	return [
		{
			found: true,
			...reported(found.decision),
			history: found.history as unknown as IDataObject[],
		},
	];
}

/** Why did the same mail ask the model twice? */
async function compare(call: Call): Promise<IDataObject[]> {
	const { parameters, itemIndex, json, ledger } = call;
	const keys = [
		readDecisionKey(parameters, itemIndex, json),
		checkedKey(parameters.text('otherKey', itemIndex).trim(), 'Other Decision Key'),
	];
	const [first, second] = await Promise.all(
		keys.map(async (key) => await ledger.decisions.get(key)),
	);
	if (first === null || second === null) {
		throw new Error(
			`The ledger holds no decision ${first === null ? keys[0] : keys[1]} (any more).`,
		);
	}
	const differences = compareParts(first.decision.parts ?? {}, second.decision.parts ?? {});
	const words = differences.map(({ part, first: one, second: other, paths }) =>
		paths.length > 0
			? `${part} (${paths.slice(0, 5).join(', ')})`
			: one === null
				? `${part} (only the second has it)`
				: other === null
					? `${part} (only the first has it)`
					: part,
	);
	return [
		{
			summary:
				words.length === 0 ? 'It is the same question.' : `They differ in ${words.join('; ')}.`,
			same: words.length === 0,
			differences: differences as unknown as IDataObject[],
			first: keys[0],
			second: keys[1],
		},
	];
}

async function list({ ledger, parameters, itemIndex }: Call): Promise<IDataObject[]> {
	const limit = readNumber(parameters, itemIndex, 'limit', {
		label: 'Limit',
		least: 1,
		most: MOST_LISTED,
		whole: true,
	});
	const given = parameters.read<IDataObject>('filters', itemIndex, {});
	const text = (name: string) =>
		given[name] === undefined || given[name] === '' ? undefined : String(given[name]);
	const states = parameters.chosen<DecisionState>('states', 'States', itemIndex, []);
	const filter: DecisionFilter = {
		states: states.length === 0 ? undefined : states,
		kind: text('kind'),
		execution: text('execution'),
	};
	const found: IDataObject[] = [];
	let cursor = text('cursor') ?? null;
	do {
		const page = await ledger.decisions.list(filter, Math.min(PAGE, limit - found.length), cursor);
		cursor = page.cursor;
		found.push(...page.decisions.map(reported));
	} while (cursor !== null && found.length < limit);
	const last = found.at(-1);
	if (last !== undefined && cursor !== null) last.cursor = cursor;
	return found;
}

async function expire({
	ledger,
	parameters,
	itemIndex,
	json,
	caller,
}: Call): Promise<IDataObject[]> {
	const decisionKey = readDecisionKey(parameters, itemIndex, json);
	const [answer] = await ledger.decisions.expire([decisionKey], caller);
	if (answer.outcome === 'refused') throw new Error(`Nothing was expired: ${answer.reason}.`);
	const { status, message, ...rest } = decisionFieldOf(answer, answer.outcome, null, {
		repeated: answer.repeated,
	});
	return [{ status, summary: message, ...rest }];
}

async function statistics({ ledger, parameters, itemIndex }: Call): Promise<IDataObject[]> {
	const hours = readNumber(parameters, itemIndex, 'sinceHours', {
		label: 'Of the Last (Hours)',
		least: 0,
		most: 880_000,
	});
	const kind = parameters.text('statisticsKind', itemIndex).trim();
	const found = await ledger.decisions.statistics(kind === '' ? null : kind, hours * 3600);
	const saved = found.saved.map(
		({ kind: name, calls, inputTokens, outputTokens, cost }) =>
			`${name}: ${calls} calls, ${inputTokens} + ${outputTokens} tokens${Number(cost) > 0 ? `, cost ${cost}` : ''}`,
	);
	return [
		{
			summary:
				saved.length === 0
					? 'Nothing was replayed in that time.'
					: `Replay saved ${saved.join('; ')}.`,
			...found,
		},
	];
}

async function purge({ ledger, parameters, itemIndex, caller }: Call): Promise<IDataObject[]> {
	const days = readNumber(parameters, itemIndex, 'olderThanDays', {
		label: 'Older Than (Days)',
		least: 0,
		most: 36_500,
	});
	const atMost = checkedNumber(parameters.read<unknown>('atMost', itemIndex, 100_000), {
		label: 'At Most (Rows)',
		least: 1,
		most: 100_000_000,
		whole: true,
	});
	const purged = await ledger.decisions.purge(days * 86_400, atMost, caller);
	return [{ status: 'purged', summary: `${purged} decisions deleted.`, purged }];
}

function reported(decision: DecisionReport): IDataObject {
	return { summary: standing(decision), ...decision } as unknown as IDataObject;
}

function standing(decision: DecisionReport): string {
	const by =
		decision.owner.execution === undefined ? '' : ` by execution ${decision.owner.execution}`;
	const { reason } = decision;
	if (decision.altered) return 'The value is not the one that was stored: it is not handed out.';
	if (decision.expired) return `Expired at ${decision.expiresAt}: the next look-up decides anew.`;
	switch (decision.state) {
		case 'open':
			return `Not decided${reason === null ? '' : ` (${reason})`}: the next look-up decides.`;
		case 'deciding':
			return decision.lapsed
				? `Its decider${by} did not report until ${decision.lockedUntil}: the next look-up decides.`
				: `Being decided${by} until ${decision.lockedUntil} at the latest.`;
		case 'stored':
			return `Decided at ${decision.decidedAt}${by}.`;
		case 'proposed':
			return `Decided at ${decision.decidedAt}${by}, and waits for approval.`;
		case 'approved':
		case 'rejected':
			return `Decided at ${decision.decidedAt}${by}, ${decision.state} by ${decision.approver} at ${decision.judgedAt}${reason === null ? '' : ` (${reason})`}.`;
	}
}
