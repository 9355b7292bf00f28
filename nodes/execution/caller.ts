import type { IExecuteFunctions } from 'n8n-workflow';

import type { Caller } from '../../ledger';

/** Who asks, as the ledger records it. Nothing of it is part of an identity. */
export function callerOf(context: IExecuteFunctions, runId?: string): Caller {
	const workflow = context.getWorkflow();
	return {
		instance: context.getInstanceId(),
		workflow: workflow.id,
		workflowName: workflow.name,
		execution: context.getExecutionId(),
		parentExecution: context.getExecutionContext()?.parentExecutionId,
		node: context.getNode().name,
		mode: context.getMode(),
		runId,
	};
}
