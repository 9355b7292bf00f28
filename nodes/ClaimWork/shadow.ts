import type { IDataObject, IExecuteFunctions, INodeExecutionData } from 'n8n-workflow';

import type { ClaimAnswer } from '../../ledger';
import { inputOf, toolItem } from '../execution/agent-tool';
import { ledgerOf } from '../execution/credential';
import { isTool } from '../execution/failing-closed';
import { DEFAULT_FIELD, freeFieldName, withField } from '../execution/work-field';
import { warning } from '../execution/workflow-hints';
import { OUTPUT, OUTPUT_NAMES, outputOf, workFieldOf } from './answer';
import { readRequest, type Claim, type ClaimGroup, type Refused } from './request';

/** What an item would have met, had shadow mode been off. */
type WouldHave = ClaimAnswer['status'] | 'refused' | 'error';

/** What stands on an item that shadow mode let through. */
interface Shadow {
	itemIndex: number;
	fieldName: string;
	field: IDataObject & { wouldHave: WouldHave };
}

/**
 * Shadow mode: the one place where this package fails open, on purpose. Whatever the ledger says, or fails to say, every
 * item leaves by Claimed in the order of the input, and nothing is thrown.
 */
export async function passInShadow(context: IExecuteFunctions): Promise<INodeExecutionData[][]> {
	const items = inputOf(context);
	const shadows = await shadowsOf(context, items);
	const claimed: INodeExecutionData[] = [];
	for (const { itemIndex, fieldName, field } of shadows) {
		const name = freeFieldName(items[itemIndex].json, fieldName);
		claimed[itemIndex] = isTool(context)
			? toolItem(itemIndex, String(field.message), { [name]: field })
			: withField(items[itemIndex], itemIndex, name, field);
	}
	const others = shadows.filter(({ field }) => field.wouldHave !== 'claimed').length;
	context.addExecutionHints(
		warning(
			`Shadow mode: nothing is guarded. ${others} of ${items.length} items would not have left by ${OUTPUT_NAMES[OUTPUT.claimed]}, and passed all the same`,
		),
	);
	return OUTPUT_NAMES.map((_, output) => (output === OUTPUT.claimed ? claimed : []));
}

async function shadowsOf(
	context: IExecuteFunctions,
	items: INodeExecutionData[],
): Promise<Shadow[]> {
	try {
		const { groups, refused } = readRequest(context, items);
		return [...refused.map(refusedShadow), ...(await askedShadows(context, groups))];
	} catch (error) {
		// a parameter of the whole node cannot be read
		return items.map((_, itemIndex) => ({
			itemIndex,
			fieldName: DEFAULT_FIELD,
			field: failedField(error),
		}));
	}
}

/** The answers of the ledger; the first failure stands for all that was not asked, so that a business waits for it once. */
async function askedShadows(context: IExecuteFunctions, groups: ClaimGroup[]): Promise<Shadow[]> {
	const shadows: Shadow[] = [];
	let failure: unknown = null;
	for (const { claims, policy, freshTokens } of groups) {
		let answers: ClaimAnswer[] = [];
		try {
			if (failure === null) {
				const { works } = await ledgerOf(context);
				answers = await works.claim(
					claims.map(({ item }) => item),
					policy,
					{ freshTokens },
				);
			}
		} catch (error) {
			failure = error;
		}
		claims.forEach((claim, i) => {
			shadows.push({
				itemIndex: claim.itemIndex,
				fieldName: claim.field,
				field:
					i < answers.length
						? answeredField(claim, answers[i], context.getMode(), policy.maxAttempts)
						: { ...failedField(failure), ...named(claim) },
			});
		});
	}
	return shadows;
}

function answeredField(
	claim: Claim,
	answer: ClaimAnswer,
	mode: string,
	maxAttempts: number,
): Shadow['field'] {
	const { message, ...field } = workFieldOf(claim, answer, mode, maxAttempts);
	const output = OUTPUT_NAMES[outputOf(answer)];
	return {
		...field,
		status: 'shadow',
		wouldHave: answer.status,
		message: `Let through in shadow mode, ${answer.status === 'claimed' ? 'as it would have been without' : `would have left by ${output}`}. ${message}`,
	};
}

function refusedShadow({ itemIndex, field, message, code }: Refused): Shadow {
	return {
		itemIndex,
		fieldName: field,
		field: {
			status: 'shadow',
			wouldHave: 'refused',
			message: `Let through in shadow mode, would have been refused. ${message}`,
			code,
		},
	};
}

function failedField(error: unknown): Shadow['field'] {
	return {
		status: 'shadow',
		wouldHave: 'error',
		message: `Let through in shadow mode, would have been stopped: the ledger could not be asked. ${error instanceof Error ? error.message : String(error)}`,
	};
}

/** Which work it would have been: so that what becomes of it can be recorded when the ledger is back. */
function named({ identity: { workId, kind, version, key, fingerprint } }: Claim): IDataObject {
	return { workId, kind, version, key, fingerprint };
}
