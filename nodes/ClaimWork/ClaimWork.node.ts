import {
	NodeConnectionTypes,
	NodeOperationError,
	type IDataObject,
	type IExecuteFunctions,
	type INodeExecutionData,
	type INodeType,
	type INodeTypeDescription,
	type NodeExecutionHint,
} from 'n8n-workflow';

import type { ClaimAnswer, Ledger } from '../../ledger';
import { inputOf, refusedCall, toolItem, toolValue } from '../execution/agent-tool';
import { ledgerOf, testLedger } from '../execution/credential';
import {
	errorOutputItem,
	isTool,
	nodeError,
	onErrorOf,
	refuseEmptyFirstOutput,
	stopOnThrow,
	stoppingError,
	type OnError,
} from '../execution/failing-closed';
import { problemsError } from '../execution/problems';
import { freeFieldName, withField, withInputError } from '../execution/work-field';
import { hintForWaitingCaller, hintsBehindClaim, warning } from '../execution/workflow-hints';
import { OUTPUT, OUTPUT_NAMES, outputOf, workFieldOf } from './answer';
import { hints } from './hints';
import { properties } from './properties';
import { readRequest, type Claim, type ClaimGroup, type Refused, type Request } from './request';
import { passInShadow } from './shadow';

export class ClaimWork implements INodeType {
	description: INodeTypeDescription = {
		displayName: 'Claim Work',
		name: 'claimWork',
		icon: { light: 'file:claim-work.svg', dark: 'file:claim-work.dark.svg' },
		group: ['transform'],
		version: 1,
		subtitle:
			'={{ ($parameter["mode"] === "shadow" ? "SHADOW, guards nothing: " : "") + ($parameter["kind"] || "?") + " " + ($parameter["version"] || "v1") + " by " + ({ fields: $parameter["keyFields"] || "?", expression: "expression", content: "content", url: "URL", ledger: "the ledger" })[$parameter["identity"]] + ", " + ({ forever: "forever", duration: "for " + $parameter["windowAmount"] + " " + $parameter["windowUnit"], while_running: "while it runs", until_success: "until " + $parameter["windowKind"] })[$parameter["window"]] + ", duplicates get " + ({ original: "the original", error: "an error", nothing: "nothing" })[$parameter["response"]] }}',
		description:
			'Let each piece of work through once (idempotency, deduplication, lock): duplicates get the original result',
		defaults: { name: 'Claim Work' },
		inputs: [NodeConnectionTypes.Main],
		outputs: [
			NodeConnectionTypes.Main,
			NodeConnectionTypes.Main,
			NodeConnectionTypes.Main,
			NodeConnectionTypes.Main,
		],
		outputNames: OUTPUT_NAMES,
		hints,
		usableAsTool: true,
		credentials: [{ name: 'idempotencyLedgerApi', required: true, testedBy: 'testLedger' }],
		properties,
	};

	methods = { credentialTest: { testLedger } };

	async execute(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
		try {
			return await claimItems.call(this);
		} catch (error) {
			// whatever it is: under "Continue" n8n would send every item on as claimed
			if (!isTool(this)) stopOnThrow(this);
			throw new NodeOperationError(this.getNode(), error as Error);
		}
	}
}

async function claimItems(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
	if (this.getNodeParameter('mode', 0, 'guard') === 'shadow') return await passInShadow(this);
	const refusedTool = refusedCall(this);
	if (refusedTool !== null) return refusedTool;
	const items = inputOf(this);
	const onError = onErrorOf(this);
	const outputs = new Outputs(this, items, onError);

	const request = readRequest(this, items);
	if (request.refused.length > 0 && onError === 'stop' && !isTool(this)) {
		throw problemsError(this, request.refused, {
			several: 'items cannot be claimed; nothing was',
			alone: 'Nothing was claimed.',
		});
	}
	for (const refused of request.refused) outputs.refuse(refused);

	let failure: { message: string; description: string } | null = null;
	const answered: Array<{ claim: Claim; answer: ClaimAnswer; group: ClaimGroup }> = [];
	let ledger: Ledger | null = null;
	try {
		ledger = await ledgerOf(this);
		for (const group of request.groups) {
			const answers = await ledger.works.claimAndWait(
				group.claims.map((claim) => claim.item),
				group.policy,
				{
					seconds: group.waitSeconds,
					signal: this.getExecutionCancelSignal(),
					freshTokens: group.freshTokens,
				},
			);
			group.claims.forEach((claim, i) => answered.push({ claim, answer: answers[i], group }));
		}
	} catch (error) {
		failure = failureOf(error);
	}

	const duplicates = answered.filter(({ answer }) => answer.status === 'duplicate');
	if (
		failure === null &&
		request.response === 'error' &&
		duplicates.length > 0 &&
		onError === 'stop' &&
		!isTool(this)
	) {
		failure = duplicatesFailure(
			duplicates.map(({ answer, claim, group }) =>
				workFieldOf(claim, answer, this.getMode(), group.policy.maxAttempts),
			),
		);
	}
	if (failure !== null) {
		// a throw never strands a claim
		if (ledger !== null) await releaseAll(ledger, answered);
		if (onError === 'stop' && !isTool(this)) {
			throw nodeError(this, failure.message, { description: failure.description });
		}
		// it says more than that the first output is empty
		if (this.getNode().alwaysOutputData === true && !isTool(this)) {
			throw stoppingError(this, failure.message, failure.description);
		}
		const message = `${failure.message} ${failure.description}`;
		for (const { claims } of request.groups) {
			for (const claim of claims) outputs.fail(claim.itemIndex, claim.field, message);
		}
	} else {
		for (const { claim, answer, group } of answered) {
			outputs.answer(claim, answer, request.response, group.policy.maxAttempts);
		}
	}

	const built = outputs.build();
	if (!isTool(this)) {
		try {
			this.addExecutionHints(...hintsOf(this, request, answered, built));
		} catch {
			// a hint is no reason to throw, which would strand what was claimed
		}
	}
	const empty = isTool(this)
		? null
		: refuseEmptyFirstOutput(this, built, OUTPUT_NAMES[OUTPUT.claimed]);
	if (empty !== null) throw empty;
	return built;
}

/** What the workflow around this node will do to these claims, or to whoever waits for an answer. */
function hintsOf(
	context: IExecuteFunctions,
	{ groups, response }: Request,
	answered: Array<{ answer: ClaimAnswer }>,
	outputs: INodeExecutionData[][],
): NodeExecutionHint[] {
	const hints: NodeExecutionHint[] = [];
	if (answered.some(({ answer }) => answer.status === 'claimed')) {
		const leases = groups.map(({ policy }) => policy.leaseSeconds);
		hints.push(
			...hintsBehindClaim(
				context,
				leases.reduce((a, b) => Math.min(a, b)),
			),
		);
	}
	if (
		response === 'nothing' &&
		answered.length > 0 &&
		outputs.every(({ length }) => length === 0)
	) {
		const waiting = hintForWaitingCaller(
			context,
			'Every item was a duplicate and was dropped',
			'To answer such callers, set "A Duplicate Gets" to "The Original Result" and connect the output Duplicate.',
		);
		if (waiting !== null) hints.push(waiting);
	}
	return hints;
}

/** Collects items per output, in the order of the input. */
class Outputs {
	private readonly placed: Array<{ output: number; item: INodeExecutionData } | undefined>;
	private readonly hints = new Set<string>();
	// asked once: n8n copies the node for each who asks
	private readonly isTool: boolean;
	private readonly mode: string;

	constructor(
		private readonly context: IExecuteFunctions,
		private readonly items: INodeExecutionData[],
		private readonly onError: OnError,
	) {
		this.placed = new Array(items.length);
		this.isTool = isTool(context);
		this.mode = context.getMode();
	}

	answer(
		claim: Claim,
		answer: ClaimAnswer,
		response: Request['response'],
		maxAttempts: number,
	): void {
		const field = workFieldOf(claim, answer, this.mode, maxAttempts);
		for (const hint of claim.hints) this.hints.add(hint);
		if (answer.status === 'duplicate' && response === 'nothing' && !this.isTool) return;
		if (answer.status === 'duplicate' && response === 'error') {
			this.placeFailure(claim.itemIndex, claim.field, field);
			return;
		}
		this.place(outputOf(answer), claim.itemIndex, claim.field, field);
	}

	refuse(refused: Refused): void {
		this.placeFailure(refused.itemIndex, refused.field, {
			status: 'refused',
			message: refused.message,
			code: refused.code,
		});
	}

	fail(itemIndex: number, fieldName: string, message: string): void {
		this.placeFailure(itemIndex, fieldName, { status: 'error', message });
	}

	build(): INodeExecutionData[][] {
		const built: INodeExecutionData[][] = OUTPUT_NAMES.map(() => []);
		for (const placed of this.placed) {
			if (placed !== undefined) built[placed.output].push(placed.item);
		}
		if (this.hints.size > 0) {
			this.context.addExecutionHints(warning([...this.hints].join('. ')));
		}
		return built;
	}

	private place(output: number, itemIndex: number, fieldName: string, field: IDataObject): void {
		const item = this.isTool
			? toolItem(itemIndex, toolText(field, this.context.getExecutionId()), { [fieldName]: field })
			: withField(this.items[itemIndex], itemIndex, fieldName, field);
		this.placed[itemIndex] = { output: this.isTool ? OUTPUT.claimed : output, item };
	}

	/** What is no claim leaves by Error where the node has that output, else by Needs Attention; never by Claimed. */
	private placeFailure(itemIndex: number, fieldName: string, field: IDataObject): void {
		if (this.onError === 'errorOutput' && !this.isTool) {
			this.placed[itemIndex] = {
				output: OUTPUT.needsAttention,
				item: errorOutputItem(itemIndex, this.items[itemIndex], String(field.message), {
					[fieldName]: withInputError(this.items[itemIndex], fieldName, field),
				}),
			};
			return;
		}
		const name = freeFieldName(this.items[itemIndex].json, fieldName);
		this.place(OUTPUT.needsAttention, itemIndex, name, field);
	}
}

/** What an agent reads: the sentence, and the stored result of a duplicate. */
function toolText(field: IDataObject, executionId: string): string {
	// it would wait for itself
	if (field.status === 'in_progress' && isOwnExecution(field.owner, executionId)) {
		return `Claimed in this very run before, by an earlier call: do the work once, and do not claim it again. The lease ends at ${String(field.lockedUntil)}.`;
	}
	return `${String(field.message)}${toolValue('Result', field.result ?? undefined)}`;
}

const isOwnExecution = (owner: unknown, executionId: string) =>
	executionId !== '' && (owner as IDataObject | undefined)?.execution === executionId;

async function releaseAll(
	ledger: Ledger,
	answered: Array<{ claim: Claim; answer: ClaimAnswer; group: ClaimGroup }>,
): Promise<void> {
	const held = answered.filter(({ answer, claim }) => answer.status === 'claimed' && !claim.isOwn);
	if (held.length === 0) return;
	const [{ group }] = held;
	// best effort: with the ledger out of reach the leases end by themselves
	await ledger.works
		.release(
			held.map(({ claim }) => claim.item),
			group.policy.caller,
		)
		.catch(() => undefined);
}

function failureOf(error: unknown): { message: string; description: string } {
	const { problem, cure, message } = error as { problem?: string; cure?: string; message?: string };
	return {
		message: problem ?? message ?? 'The ledger could not be asked.',
		description: `${cure ?? ''} No item was passed on as claimed.`.trim(),
	};
}

function duplicatesFailure(duplicates: IDataObject[]): { message: string; description: string } {
	const listed = duplicates
		.slice(0, 10)
		.map((field) => `${String(field.key)}: ${String(field.message)}`);
	return {
		message: `${duplicates.length} of these items ${duplicates.length === 1 ? 'is a duplicate' : 'are duplicates'} of work that was done before`,
		description: `${listed.join(' ')}${duplicates.length > 10 ? ' …' : ''} Claims of the same batch were undone. To let duplicates pass with their original result, set "A Duplicate Gets" to "The Original Result".`,
	};
}
