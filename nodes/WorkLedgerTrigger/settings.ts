import type { IDataObject, ITriggerFunctions } from 'n8n-workflow';

import { parseFieldNames, type Caller, type SubscriptionEvent } from '../../ledger';
import { nodeError } from '../execution/failing-closed';
import { DEFAULT_FIELD, fieldNameProblem } from '../execution/work-field';
import { checkedNumber } from '../execution/number';

/** What stands on the node. */
export interface TriggerSettings {
	event: SubscriptionEvent;
	states: Array<'dead' | 'held'>;
	/** Whether messages of unknown fate are told of, too. */
	messages: boolean;
	/** `null`: every kind. */
	kinds: string[] | null;
	intervalSeconds: number;
	/** This node, over all its activations in this process. */
	node: string;
	/** Who is told once: the same over restarts and over all n8n instances that run this workflow. */
	subscription: string;
	/** Dead letters that start one execution together, at most. */
	perRun: number;
	/** The field with the claim, on a retry. */
	field: string;
	caller: Caller;
}

/** Reads the node once, when it is activated. Throws, naming the field and the cure, for what cannot be used. */
export function readSettings(context: ITriggerFunctions): TriggerSettings {
	const event = context.getNodeParameter('event', 'dead_letter') as SubscriptionEvent;
	const states = context.getNodeParameter('states', ['dead', 'held', 'unknown']) as Array<
		TriggerSettings['states'][number] | 'unknown'
	>;
	const kinds = parseFieldNames(String(context.getNodeParameter('kinds', '') ?? ''));
	const options = context.getNodeParameter('options', {}) as IDataObject;
	const workflow = context.getWorkflow();
	const node = `node ${workflow.id ?? ''} ${context.getNode().id}`;
	const name = String(options.subscription ?? '').trim();
	const field = (options.field ?? DEFAULT_FIELD) as string;

	const problem = (() => {
		if (!['dead_letter', 'retry_due'].includes(event)) {
			return `Event is set to "${String(event).slice(0, 50)}", which this version does not know. Choose it anew on the node.`;
		}
		if (
			event === 'dead_letter' &&
			(!Array.isArray(states) ||
				states.length === 0 ||
				states.some((state) => !['dead', 'held', 'unknown'].includes(state)))
		) {
			return 'States is empty or holds a state that this version does not know. Choose Dead, Held, Unknown Message or several of them.';
		}
		if (kinds.some((kind) => kind.includes(':'))) {
			return 'Kinds holds a ":", which no kind may hold. Enter the kinds as Claim Work names them, separated by commas.';
		}
		if (name.length > 200) return 'Subscription Name is longer than 200 characters.';
		return event === 'retry_due' ? fieldNameProblem(field) : null;
	})();
	if (problem !== null) throw nodeError(context, problem);
	const number = (given: unknown, label: string, most: number, whole = false) => {
		try {
			return checkedNumber(given, { label, least: 1, most, whole });
		} catch (error) {
			throw nodeError(context, (error as Error).message);
		}
	};
	return {
		event,
		states: states.filter((state) => state !== 'unknown'),
		messages:
			event === 'dead_letter' &&
			states.includes('unknown') &&
			(kinds.length === 0 || kinds.includes('telegram')),
		kinds: kinds.length === 0 ? null : kinds,
		intervalSeconds: number(
			context.getNodeParameter('intervalSeconds', 15),
			'Look Every (Seconds)',
			86_400,
		),
		node,
		subscription: name === '' ? node : `name ${name}`,
		perRun: number(options.perRun ?? 1, 'Works per Run', 100, true),
		field,
		caller: {
			instance: context.getInstanceId(),
			workflow: workflow.id,
			workflowName: workflow.name,
			node: context.getNode().name,
			mode: context.getMode(),
		},
	};
}
