import type { IDataObject, INodeExecutionData, ITriggerFunctions } from 'n8n-workflow';

import type { Caller, DeadLetter, DueWork, MessageLetter, WorkReport } from '../../ledger';
import { workFieldOf } from '../ClaimWork/answer';
import { freeFieldName, withField, type WorkField } from '../execution/work-field';
import { messageStanding, standing } from '../WorkLedger/story';

/** What a person needs to know of a dead letter, on its item. */
export function deadLetterItem(
	context: ITriggerFunctions,
	{ work, handOut, handOuts }: DeadLetter,
): INodeExecutionData {
	return { json: { ...letterJson(context, work), announcement: { nth: handOut, of: handOuts } } };
}

/** The same of a message of which nobody knows whether it arrived. */
export function messageLetterItem(
	context: ITriggerFunctions,
	{ message, handOut, handOuts }: MessageLetter,
): INodeExecutionData {
	return {
		json: {
			event: 'dead_letter',
			summary: messageStanding(message),
			kind: 'telegram',
			state: message.state,
			messageRef: message.messageRef,
			chatId: message.chatId,
			preview: message.preview,
			parts: message.parts,
			sentParts: message.sentParts,
			messageIds: message.messageIds,
			attempts: message.attempt,
			lastError: message.lastError,
			who: message.owner as IDataObject | null,
			executionUrl: executionUrl(context, callerOfOwner(message.owner)),
			at: message.updatedAt,
			announcement: { nth: handOut, of: handOuts },
		},
	};
}

/** The ledger keeps who asked in its own spelling. */
const callerOfOwner = (owner: Record<string, string> | null): Caller => ({
	instance: owner?.instance,
	workflow: owner?.workflow,
	execution: owner?.execution,
});

export function letterJson(context: ITriggerFunctions, work: WorkReport): IDataObject {
	return {
		event: 'dead_letter',
		summary: `${work.kind} ${work.key ?? work.workId} is ${standing(work)}`,
		kind: work.kind,
		version: work.version,
		key: work.key,
		workId: work.workId,
		state: work.state,
		attempts: work.attempt,
		maxAttempts: work.maxAttempts,
		lastError: work.lastError,
		outcomeKnown: work.outcomeKnown,
		externalRef: work.externalRef,
		who: work.owner as IDataObject,
		executionUrl: executionUrl(context, work.owner),
		payload: work.payload as IDataObject,
		at: work.updatedAt,
		firstStartedAt: work.firstStartedAt,
	};
}

/** The item as the first attempt received it, with the claim that Claim Work would have put on it. */
export function retryItem(
	context: ITriggerFunctions,
	{ answer, work }: DueWork,
	fieldName: string,
): INodeExecutionData {
	const field = workFieldOf(
		{ identity: identityOf(work), keyFields: [], canonical: null, hints: [], warnings: [] },
		answer,
		context.getMode(),
		work.maxAttempts,
	);
	return withRetryField(context, work, fieldName, field, answer.owner ?? {});
}

/** A retry without its claim: for a look at the shape. */
export function retrySample(
	context: ITriggerFunctions,
	work: WorkReport,
	fieldName: string,
	message: string,
): INodeExecutionData {
	const { workId, kind, version, key, fingerprint } = identityOf(work);
	const { generation, attempt, lastError } = work;
	const field = { status: 'sample', message, workId, kind, version, key, fingerprint, generation };
	return withRetryField(
		context,
		work,
		fieldName,
		{ ...field, attempt: attempt + 1, lastError, nextAttemptAt: work.nextAttemptAt },
		work.owner,
	);
}

function identityOf(work: WorkReport) {
	return {
		workId: work.workId,
		kind: work.kind,
		version: work.version,
		key: work.key ?? work.workId,
		fingerprint: work.workId.slice(0, 10),
	};
}

function withRetryField(
	context: ITriggerFunctions,
	work: WorkReport,
	fieldName: string,
	field: WorkField,
	previousOwner: Caller,
): INodeExecutionData {
	const { payload } = work;
	// another client of the ledger may have stored a value that n8n takes for no item
	const json = (
		typeof payload === 'object' && payload !== null && !Array.isArray(payload)
			? payload
			: { payload }
	) as IDataObject;
	const item = withField({ json }, 0, freeFieldName(json, fieldName), {
		...field,
		event: 'retry_due',
		maxAttempts: work.maxAttempts,
		executionUrl: executionUrl(context, previousOwner),
		firstStartedAt: work.firstStartedAt,
	});
	// a trigger's item comes from nowhere
	return { json: item.json };
}

/** Where a person sees the execution; null where it ran on another n8n, or is not known. */
function executionUrl(context: ITriggerFunctions, owner: Caller): string | null {
	const base = context.getInstanceBaseUrl();
	if (!base || owner.instance !== context.getInstanceId()) return null;
	if (owner.workflow === undefined || owner.execution === undefined) return null;
	return `${base.replace(/\/$/, '')}/workflow/${encodeURIComponent(owner.workflow)}/executions/${encodeURIComponent(owner.execution)}`;
}
