/** How long a deactivation waits for the round that is under way. */
const STOP_WAIT_MS = 5_000;

/** Rounds one after another: the next is timed when the last one has ended, so that two never overlap. */
export class Loop {
	private timer: NodeJS.Timeout | undefined;
	private round: Promise<void> | null = null;
	private isWanted = false;
	private hasStopped = false;
	private wasAbandoned = false;

	/** @param run One round. It must not reject: it reports its failures itself. */
	constructor(
		private readonly run: (loop: Loop) => Promise<void>,
		private readonly intervalMs: number,
	) {}

	start(): void {
		this.schedule(0);
	}

	/** The next round is not to wait for the interval: there is more to hand out than the last one could. */
	wake(): void {
		this.isWanted = true;
		if (this.round === null) this.schedule(0);
	}

	/** Nothing new is begun. */
	get stopped(): boolean {
		return this.hasStopped;
	}

	/** The deactivation is over: what a round has been handed since must not start an execution. */
	get abandoned(): boolean {
		return this.wasAbandoned;
	}

	/** Ends the loop. Waits for the round under way, but not for a ledger that does not answer. */
	async stop(): Promise<void> {
		this.hasStopped = true;
		clearTimeout(this.timer);
		if (this.round === null) return;
		let patience: NodeJS.Timeout | undefined;
		await Promise.race([
			this.round,
			new Promise<void>((resolve) => {
				patience = setTimeout(resolve, STOP_WAIT_MS);
			}),
		]);
		clearTimeout(patience);
		this.wasAbandoned = true;
	}

	private schedule(afterMs: number): void {
		clearTimeout(this.timer);
		if (this.hasStopped) return;
		this.timer = setTimeout(() => this.begin(), afterMs);
	}

	private begin(): void {
		this.isWanted = false;
		this.round = this.run(this).finally(() => {
			this.round = null;
			this.schedule(this.isWanted ? 0 : this.intervalMs);
		});
	}
}
