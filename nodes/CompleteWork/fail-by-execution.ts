import type { IDataObject } from 'n8n-workflow';

import type { Caller, FailedWork, Works } from '../../ledger';

/** What the Error Trigger hands over; `execution` is missing when a trigger node failed. */
interface ErrorTriggerPayload extends IDataObject {
	execution?: {
		id?: string | number;
		retryOf?: string | number;
		error?: ExecutionError;
		lastNodeExecuted?: string;
	};
	trigger?: { error?: ExecutionError };
}

/** n8n's message is general ("the service was not able to …"); the description is what the target said. */
interface ExecutionError {
	message?: string;
	description?: string | null;
}

/** Settles what a failed execution left open, and says so. */
export async function failByExecution(
	works: Works,
	json: IDataObject,
	givenExecution: string,
	instance: string,
	caller: Caller,
): Promise<IDataObject> {
	const { execution, trigger } = json as ErrorTriggerPayload;
	// n8n's Retry has a new execution id, but the claim was made by the first one
	const executions = (
		givenExecution !== '' ? [givenExecution] : [execution?.id, execution?.retryOf]
	)
		.filter((id) => id !== undefined && id !== null && id !== '')
		.map(String);
	if (isSample(execution) && executions[0] === String(execution?.id)) {
		return {
			status: 'nothing_to_fail',
			message:
				'This is the example that the Error Trigger shows in a manual test, with made-up execution ids: nothing was settled.',
			works: [],
		};
	}
	if (executions.length === 0) {
		if (trigger !== undefined) {
			return {
				status: 'nothing_to_fail',
				message: 'A trigger failed before there was an execution: no work was claimed.',
				works: [],
			};
		}
		throw new Error(
			execution === undefined
				? 'There is no execution id on this item. Begin this workflow with an Error Trigger, or set Execution ID.'
				: 'The Error Trigger does not say which execution failed, so its works cannot be found. Let the failed workflow save its failed production executions (workflow settings); its works are settled when their lease ends.',
		);
	}
	const reason = reasonOf(execution?.error ?? trigger?.error, execution?.lastNodeExecuted);
	const settled = await works.failExecution(instance, executions, reason, caller);
	return {
		status: settled.length === 0 ? 'nothing_to_fail' : 'failed',
		message:
			settled.length === 0
				? `Execution ${executions.join(', ')} left no work open.`
				: `${settled.length} ${settled.length === 1 ? 'work' : 'works'} of execution ${executions.join(', ')} settled: ${summary(settled)}.`,
		executions,
		works: settled as unknown as IDataObject[],
	};
}

function reasonOf(error: ExecutionError | undefined, node: string | undefined): string {
	const { message = 'The execution failed.', description } = error ?? {};
	const why = description && description !== message ? `${message} (${description})` : message;
	return node ? `${node}: ${why}` : why;
}

/**
 * Run by hand, the Error Trigger makes up a failure of execution 231, a retry of 34 (n8n 2.41, ErrorTrigger.node.ts): real
 * executions have these numbers, and their works may be running. Only the example has a number as its id.
 */
function isSample(execution: ErrorTriggerPayload['execution']): boolean {
	return (
		typeof execution?.id === 'number' &&
		execution.error?.message === 'Example Error Message' &&
		execution.lastNodeExecuted === 'Node With Error'
	);
}

function summary(settled: FailedWork[]): string {
	const counts = new Map<string, number>();
	for (const { state } of settled) counts.set(state, (counts.get(state) ?? 0) + 1);
	return [...counts].map(([state, count]) => `${count} ${state}`).join(', ');
}
