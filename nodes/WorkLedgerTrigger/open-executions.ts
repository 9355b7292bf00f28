import type { INodeExecutionData, IRun, ITriggerFunctions } from 'n8n-workflow';

import type { Ledger } from '../../ledger';

/** Executions that one trigger has open in this process, at most. */
export const MAX_OPEN = 10;

/** How an execution ended. Waiting: n8n keeps it and goes on with it by itself. */
export type Ending = { ended: 'well' | 'waiting' } | { ended: 'badly'; error: string };

/**
 * A report to the ledger, sent again in the next round where it could not be reached. Given the ledger of who sends it: the
 * workflow may have been saved anew, with another credential, since the execution began.
 */
type Report = (ledger: Ledger) => Promise<void>;

/**
 * What a trigger has handed to executions of this process. It outlives the activation: an execution that is open while the
 * workflow is deactivated, or saved anew, still counts, and its end is still reported. Not shared by triggers of one
 * subscription: they may have ledgers of their own.
 */
export class OpenExecutions {
	private static readonly all = new Map<string, OpenExecutions>();

	private open = 0;
	private readonly unsent: Report[] = [];
	/** Reports under way; none rejects. */
	private readonly sending = new Set<Promise<unknown>>();

	private constructor(private readonly node: string) {}

	static of(node: string): OpenExecutions {
		const known = OpenExecutions.all.get(node) ?? new OpenExecutions(node);
		OpenExecutions.all.set(node, known);
		return known;
	}

	get free(): number {
		return MAX_OPEN - this.open;
	}

	/** Starts an execution. Resolves, and never rejects, when it has ended and that is reported, or is to be reported later. */
	async run(
		context: ITriggerFunctions,
		items: INodeExecutionData[],
		reachLedger: () => Promise<Ledger>,
		report: (ending: Ending, ledger: Ledger) => Promise<void>,
	): Promise<void> {
		this.open++;
		OpenExecutions.all.set(this.node, this);
		try {
			const ending = await endOf(context, items);
			const send: Report = async (ledger) => await report(ending, ledger);
			const sent = reachLedger()
				.then(send)
				.catch(() => void this.unsent.push(send))
				.finally(() => this.sending.delete(sent));
			this.sending.add(sent);
			await sent;
		} finally {
			this.open--;
			this.forgetIfIdle();
		}
	}

	/** Sends what could not be reported. Throws what the first one throws that fails again; it and the rest wait on. */
	async sendReports(ledger: Ledger): Promise<void> {
		// one that is still tried must not be overtaken by handing out the same again
		await Promise.all(this.sending);
		for (let report = this.unsent.shift(); report !== undefined; report = this.unsent.shift()) {
			const first = report;
			await first(ledger).catch((error: unknown) => {
				this.unsent.unshift(first);
				throw error;
			});
		}
	}

	/** Call when the activation ends. */
	forgetIfIdle(): void {
		if (this.open === 0 && this.unsent.length === 0) OpenExecutions.all.delete(this.node);
	}
}

/** Runs the workflow with these items and waits for its end. */
async function endOf(context: ITriggerFunctions, items: INodeExecutionData[]): Promise<Ending> {
	const done = context.helpers.createDeferredPromise<IRun>();
	try {
		context.emit([items], undefined, done);
		return endingOf(await done.promise);
	} catch (error) {
		// it was cancelled, n8n shut down, or could not start it
		return { ended: 'badly', error: error instanceof Error ? error.message : String(error) };
	}
}

/** n8n resolves to nothing where it refused to run the workflow. */
function endingOf(run: IRun | undefined): Ending {
	if (run === undefined) return { ended: 'badly', error: 'n8n did not run the workflow' };
	if (run.status === 'waiting' || run.waitTill) return { ended: 'waiting' };
	const { error } = run.data.resultData;
	if (run.status === 'success' && error === undefined) return { ended: 'well' };
	return { ended: 'badly', error: error?.message ?? `the execution ended as ${run.status}` };
}
