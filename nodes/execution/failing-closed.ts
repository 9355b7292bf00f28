import {
	NodeOperationError,
	type IDataObject,
	type IExecuteFunctions,
	type INodeExecutionData,
} from 'n8n-workflow';

/**
 * n8n fails open: under "Continue", and with an error output, a node that throws sends its whole input out of its first
 * output, as if all had succeeded; with "Always Output Data" an empty first output sends `{}`. For a node that guards an
 * effect both would run the effect. So nothing here throws unless the workflow is to stop, and then it does stop.
 */

/** The node's setting "On Error". */
export type OnError = 'stop' | 'continue' | 'errorOutput';

export function onErrorOf(context: IExecuteFunctions): OnError {
	const { onError, continueOnFail } = context.getNode();
	if (onError === 'continueErrorOutput') return 'errorOutput';
	// the engine goes by the older setting too, whatever the newer one says
	if (onError === 'continueRegularOutput' || continueOnFail === true) return 'continue';
	return 'stop';
}

/**
 * Whether this node runs as the tool of an agent. n8n names its copy `<name>Tool`; `isToolExecution()` does not tell
 * reliably. Only the first output reaches the agent.
 */
export function isTool(context: IExecuteFunctions): boolean {
	return context.getNode().type.endsWith('Tool');
}

/** From here on a throw stops the workflow, whatever "On Error" says: the engine reads the setting after the throw. */
export function stopOnThrow(context: IExecuteFunctions): void {
	const { node } = context.getExecuteData();
	node.onError = 'stopWorkflow';
	node.continueOnFail = false;
}

/**
 * n8n puts general words ("perhaps it is offline") in the place of a message that holds a code such as ECONNREFUSED, even
 * inside a user's value: here the message stays, which says what is wrong and where.
 */
export function nodeError(
	context: Pick<IExecuteFunctions, 'getNode'>,
	message: string,
	more: { description?: string; itemIndex?: number } = {},
): NodeOperationError {
	const error = new NodeOperationError(context.getNode(), message, more);
	error.message = message;
	error.messages = [];
	return error;
}

/** A failure for the whole node, whatever "On Error" says. */
export function stoppingError(
	context: IExecuteFunctions,
	message: string,
	description?: string,
): NodeOperationError {
	stopOnThrow(context);
	return nodeError(context, message, { description });
}

/**
 * An item for n8n's error output: n8n moves items whose json has only these keys there, and merges them into the input
 * item. A `message` or `details` of the item's own stays. It is not used for other outputs.
 */
export function errorOutputItem(
	itemIndex: number,
	input: INodeExecutionData,
	message: string,
	details: IDataObject,
): INodeExecutionData {
	return {
		json: {
			error: message,
			...(Object.hasOwn(input.json, 'message') ? {} : { message }),
			details: { ...ownDetails(input.json.details), ...details },
		},
		...(input.binary === undefined ? {} : { binary: input.binary }),
		pairedItem: { item: itemIndex },
	};
}

function ownDetails(details: unknown): IDataObject {
	return typeof details === 'object' && !Array.isArray(details) ? (details as IDataObject) : {};
}

/** Call with the outputs before returning them: with "Always Output Data" an empty first output must stop the workflow. */
export function refuseEmptyFirstOutput(
	context: IExecuteFunctions,
	outputs: INodeExecutionData[][],
	firstOutputName: string,
): NodeOperationError | null {
	if (context.getNode().alwaysOutputData !== true || outputs[0].length > 0) return null;
	return stoppingError(
		context,
		`Nothing leaves by ${firstOutputName}, and "Always Output Data" would send an empty item there`,
		'Switch off "Always Output Data" in the settings of this node: with it, n8n runs the steps behind that output although no item left by it. The workflow was stopped before that.',
	);
}
