import {
	NodeConnectionTypes,
	NodeOperationError,
	type IDataObject,
	type IExecuteFunctions,
	type INodeExecutionData,
	type INodeType,
	type INodeTypeDescription,
} from 'n8n-workflow';

import { inputOf, refusedCall, toolItem } from '../execution/agent-tool';
import { callerOf } from '../execution/caller';
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
import { Parameters } from '../execution/parameters';
import { messageOf, problemsError, type ItemProblem } from '../execution/problems';
import { fieldNameProblem, withField, withInputError } from '../execution/work-field';
import { warning } from '../execution/workflow-hints';
import { OUTPUT, OUTPUT_NAMES, messageField, outputOf } from './answer';
import { DEFAULT_MESSAGE_FIELD, properties } from './properties';
import { isMessageField, readOutgoing, readPace, type Outgoing } from './request';
import { Sending, type SendResult } from './sending';
import { TelegramApi, type TelegramAccess } from './telegram-api';

export class SendOnceTelegram implements INodeType {
	description: INodeTypeDescription = {
		displayName: 'Send-Once Telegram',
		name: 'sendOnceTelegram',
		icon: { light: 'file:send-once-telegram.svg', dark: 'file:send-once-telegram.dark.svg' },
		group: ['output'],
		version: 1,
		subtitle:
			'={{ ({ message: "message", photo: "photo", document: "document" })[$parameter["operation"]] + " to " + ($parameter["chatId"] || "?") + ", once " + ($parameter["window"] === "forever" ? "forever" : "in " + $parameter["windowAmount"] + " " + $parameter["windowUnit"]) + ($parameter["onUnknown"] === "resend" ? ", at least once" : "") }}',
		description:
			'Send a Telegram message once: a repeated delivery, a retry or a lost answer makes no second copy',
		defaults: { name: 'Send-Once Telegram' },
		inputs: [NodeConnectionTypes.Main],
		outputs: [NodeConnectionTypes.Main, NodeConnectionTypes.Main, NodeConnectionTypes.Main],
		outputNames: OUTPUT_NAMES,
		usableAsTool: true,
		credentials: [
			// eslint-disable-next-line @n8n/community-nodes/no-credential-reuse, @n8n/community-nodes/valid-credential-references -- n8n's own: people have it already, its base URL included, and a second place for the same token would be worse
			{ name: 'telegramApi', displayName: 'Telegram Bot', required: true },
			{
				name: 'idempotencyLedgerApi',
				displayName: 'Idempotency Ledger',
				required: true,
				testedBy: 'testLedger',
			},
		],
		properties,
	};

	methods = { credentialTest: { testLedger } };

	async execute(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
		try {
			return await sendItems.call(this);
		} catch (error) {
			// whatever it is: under "Continue" n8n would send every item on as sent
			if (!isTool(this)) stopOnThrow(this);
			throw new NodeOperationError(this.getNode(), error as Error);
		}
	}
}

async function sendItems(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
	const refusedTool = refusedCall(this);
	if (refusedTool !== null) return refusedTool;
	const items = inputOf(this);
	const onError = isTool(this) ? 'continue' : onErrorOf(this);
	const outputs = new Outputs(this, items, onError);
	const parameters = new Parameters(this);

	const wanted: Outgoing[] = [];
	const refused: ItemProblem[] = [];
	for (const [itemIndex, item] of items.entries()) {
		try {
			wanted.push(await readOutgoing(this, parameters, item, itemIndex));
		} catch (error) {
			refused.push({ itemIndex, message: messageOf(error) });
		}
	}
	if (refused.length > 0 && onError === 'stop') {
		throw problemsError(this, refused, {
			several: 'items cannot be sent; nothing was',
			alone: 'Nothing was sent.',
		});
	}
	for (const { itemIndex, message } of refused) {
		outputs.fail(itemIndex, fieldOf(parameters, itemIndex), { status: 'refused', message });
	}

	let failure: unknown = null;
	let results = new Map<Outgoing, SendResult>();
	try {
		const ledger = await ledgerOf(this);
		const api = new TelegramApi(
			await this.getCredentials<TelegramAccess & IDataObject>('telegramApi'),
		);
		const sending = new Sending(
			ledger.messages,
			api,
			readPace(parameters),
			callerOf(this),
			this.getExecutionCancelSignal(),
		);
		try {
			results = await sending.sendAll(wanted);
		} finally {
			api.close();
		}
		failure = sending.failure;
	} catch (error) {
		failure = error;
	}

	const sent = [...results.values()].filter(({ status }) => status === 'sent').length;
	if (failure !== null) {
		const { problem, cure } = failure as { problem?: string; cure?: string };
		const message = problem ?? messageOf(failure);
		const description = `${cure ?? ''} ${sent === 0 ? 'Nothing was sent.' : `${sent} of ${wanted.length} messages were sent before that; delivered again, they are duplicates.`}`;
		if (onError === 'stop') throw nodeError(this, message, { description: description.trim() });
		// it says more than that the first output is empty
		if (sent === 0 && this.getNode().alwaysOutputData === true && !isTool(this)) {
			throw stoppingError(this, message, description.trim());
		}
	}
	for (const message of wanted) {
		const result = results.get(message);
		if (result === undefined) {
			outputs.fail(message.itemIndex, message.field, {
				status: 'error',
				message: `Not sent: ${messageOf(failure)}`,
			});
		} else {
			outputs.place(message, result);
		}
	}

	const built = outputs.build();
	const empty = isTool(this)
		? null
		: refuseEmptyFirstOutput(this, built, OUTPUT_NAMES[OUTPUT.sent]);
	if (empty !== null) throw empty;
	return built;
}

/** Collects items per output, in the order of the input. */
class Outputs {
	private readonly placed: Array<{ output: number; item: INodeExecutionData } | undefined>;
	private readonly hints = new Set<string>();

	constructor(
		private readonly context: IExecuteFunctions,
		private readonly items: INodeExecutionData[],
		private readonly onError: OnError,
	) {
		this.placed = new Array(items.length);
	}

	place({ itemIndex, field, hints }: Outgoing, result: SendResult): void {
		for (const hint of hints) this.hints.add(hint);
		const value = messageField(result, this.context.getMode());
		if (result.status === 'error') this.fail(itemIndex, field, value);
		else this.put(outputOf(result), itemIndex, field, value);
	}

	/** What could not even be asked for: by Error where the node has that output, else by Not Sent; never by Sent. */
	fail(itemIndex: number, field: string, value: IDataObject): void {
		const input = this.items[itemIndex];
		if (this.onError === 'errorOutput') {
			const item = errorOutputItem(itemIndex, input, String(value.message), {
				[field]: withInputError(input, field, value),
			});
			this.placed[itemIndex] = { output: OUTPUT.notSent, item };
			return;
		}
		this.put(OUTPUT.notSent, itemIndex, freeName(input.json, field), value);
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

	private put(output: number, itemIndex: number, field: string, value: IDataObject): void {
		const item = isTool(this.context)
			? toolItem(itemIndex, String(value.message), { [field]: value })
			: withField(this.items[itemIndex], itemIndex, field, value);
		this.placed[itemIndex] = { output: isTool(this.context) ? OUTPUT.sent : output, item };
	}
}

/** Beside a value of the item's own, which is why an item may have been refused. */
function freeName(json: IDataObject, field: string): string {
	let free = field;
	for (let n = 1; Object.hasOwn(json, free) && !isOwn(json[free]); n++)
		free = `${field}Answer${n === 1 ? '' : n}`;
	return free;
}

const isOwn = (value: unknown) =>
	typeof value === 'object' && value !== null && isMessageField(value as IDataObject);

/** The name of the field, or the default where the option cannot be read. */
function fieldOf(parameters: Parameters, itemIndex: number): string {
	try {
		const named = parameters.option<string>('field', itemIndex, DEFAULT_MESSAGE_FIELD);
		return fieldNameProblem(named) === null ? named : DEFAULT_MESSAGE_FIELD;
	} catch {
		return DEFAULT_MESSAGE_FIELD;
	}
}
