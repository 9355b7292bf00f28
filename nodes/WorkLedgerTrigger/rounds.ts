import type { ITriggerFunctions } from 'n8n-workflow';

import type { HandOut, Ledger, MessageHandOut } from '../../ledger';
import { ledgerOf } from '../execution/credential';
import { messageOf } from '../execution/problems';
import { deadLetterItem, messageLetterItem, retryItem } from './item';
import type { Loop } from './loop';
import { MAX_OPEN, OpenExecutions } from './open-executions';
import type { TriggerSettings } from './settings';

/** A sweep is repeated while it came back full, at most this often per round. */
const SWEEP_BATCH = 500;
const SWEEPS = 10;

/** A third of the hand-out's lease: two heartbeats may be lost. */
const HEARTBEAT_MS = 40_000;

/** What a loop does: settle lapsed leases, and hand out what is due to executions. Holds what goes on from round to round. */
export class Rounds {
	private readonly executions: OpenExecutions;
	private ledger: Ledger | null = null;
	/** Where the next page of announcements to clear begins. */
	private clearAfter: [string, string] | null = null;
	private isDown = false;

	constructor(
		private readonly context: ITriggerFunctions,
		private readonly settings: TriggerSettings,
	) {
		this.executions = OpenExecutions.of(settings.node);
	}

	/** One round. Never rejects: an outage of the ledger is logged once, and the next round tries again. */
	async run(loop: Loop): Promise<void> {
		try {
			const ledger = await this.reachLedger();
			await this.executions.sendReports(ledger);
			await this.sweep(ledger, loop);
			if (this.settings.event === 'dead_letter') await this.announce(ledger, loop);
			else await this.retry(ledger, loop);
			if (this.isDown) this.log('info', 'The ledger answers again.');
			this.isDown = false;
		} catch (error) {
			// asked for anew: the credential may have been mended
			this.ledger = null;
			if (!this.isDown) {
				this.log(
					'error',
					`${messageOf(error)} Nothing is handed out meanwhile; tried again every ${this.settings.intervalSeconds} s.`,
				);
			}
			this.isDown = true;
		}
	}

	/** Throws what keeps the ledger from being asked; for an activation by a person, who is there to mend it. */
	async check(): Promise<void> {
		const ledger = await this.reachLedger();
		await ledger.subscriptions.sample(this.settings.event, this.settings);
	}

	end(): void {
		this.executions.forgetIfIdle();
	}

	private async reachLedger(): Promise<Ledger> {
		this.ledger ??= await ledgerOf(this.context);
		return this.ledger;
	}

	private async sweep({ admin, messages }: Ledger, loop: Loop): Promise<void> {
		const { caller } = this.settings;
		for (const swept of [admin, ...(this.settings.messages ? [messages] : [])]) {
			for (let n = 0; n < SWEEPS && !loop.stopped; n++) {
				if ((await swept.sweep(SWEEP_BATCH, caller)).length < SWEEP_BATCH) break;
			}
		}
	}

	private async announce({ subscriptions }: Ledger, loop: Loop): Promise<void> {
		let isMore = true;
		for (let n = 0; n < MAX_OPEN && isMore && this.executions.free > 0 && !loop.stopped; n++) {
			const handOut = await this.handOut(subscriptions);
			// its lease ends, and it is handed out again
			if (loop.abandoned) return;
			isMore = handOut.letters.length > 0;
			if (isMore) void this.handle(handOut, loop);
		}
		if (isMore) this.comeBackSoon(loop);
		if (loop.stopped) return;
		this.clearAfter = (await subscriptions.clear(this.clearAfter)).after;
	}

	private async handOut(subscriptions: Ledger['subscriptions']): Promise<HandOut | MessageHandOut> {
		const { subscription, states, kinds, messages, perRun, caller } = this.settings;
		const works =
			states.length === 0
				? null
				: await subscriptions.announce(subscription, { states, kinds, limit: perRun }, caller);
		if (works !== null && (works.letters.length > 0 || !messages)) return works;
		return await subscriptions.announceMessages(subscription, perRun, caller);
	}

	private async handle(handOut: HandOut | MessageHandOut, loop: Loop): Promise<void> {
		const heartbeat = this.heartbeat(handOut);
		const items = handOut.letters.map((letter) =>
			'message' in letter
				? messageLetterItem(this.context, letter)
				: deadLetterItem(this.context, letter),
		);
		const reach = async () => {
			heartbeat.stop();
			return await this.reachLedger();
		};
		await this.executions.run(this.context, items, reach, async (ending, { subscriptions }) => {
			const { caller } = this.settings;
			if (ending.ended !== 'badly') {
				await subscriptions.acknowledge(handOut, caller);
				return;
			}
			for (const { workId, status } of await subscriptions.notHandled(
				handOut,
				ending.error,
				caller,
			)) {
				if (status !== 'given_up') continue;
				this.log(
					'error',
					`The dead letter ${workId} was announced five times, and no execution handled it without an error. It is not announced again; it is still in the ledger (Work Ledger → List).`,
				);
			}
		});
		this.comeBackIfWaitedFor(loop);
	}

	private async retry(ledger: Ledger, loop: Loop): Promise<void> {
		const { subscription, kinds, caller, field } = this.settings;
		const { free } = this.executions;
		if (free === 0 || loop.stopped) {
			if (free === 0) this.comeBackSoon(loop);
			return;
		}
		const due = await ledger.subscriptions.claimDue(subscription, kinds, free, caller);
		if (loop.abandoned) {
			await ledger.works.release(
				due.map(({ answer }) => answer),
				caller,
			);
			return;
		}
		for (const work of due) {
			const { answer } = work;
			const item = retryItem(this.context, work, field);
			const reach = async () => await this.reachLedger();
			void this.executions
				.run(this.context, [item], reach, async (ending, { subscriptions, admin }) => {
					if (ending.ended === 'waiting') return;
					if (ending.ended === 'badly') {
						await subscriptions.failIfRunning([answer], ending.error, caller);
						return;
					}
					const now = (await admin.explain(answer.workId, 1))?.work;
					if (now?.state === 'running' && now.attempt === answer.attempt) {
						this.log(
							'warn',
							`The execution that retried ${work.work.kind} ${work.work.key ?? answer.workId} ended without an error, but did not complete the work. It counts as lost when its lease ends at ${now.lockedUntil}. Put Complete Work behind the effect.`,
						);
					}
				})
				.then(() => this.comeBackIfWaitedFor(loop));
		}
		if (due.length === free) this.comeBackSoon(loop);
	}

	private isWaitedFor = false;

	/** There is more than could be handed out: on as soon as an execution may begin, not only after the interval. */
	private comeBackSoon(loop: Loop): void {
		if (this.executions.free > 0) loop.wake();
		else this.isWaitedFor = true;
	}

	private comeBackIfWaitedFor(loop: Loop): void {
		if (!this.isWaitedFor) return;
		this.isWaitedFor = false;
		loop.wake();
	}

	/** Goes on as long as the execution is open, also over a deactivation: else another n8n would be told of the same. */
	private heartbeat(handOut: HandOut | MessageHandOut): { stop(): void } {
		let timer: NodeJS.Timeout;
		let hasStopped = false;
		const beat = () => {
			if (hasStopped) return;
			timer = setTimeout(() => {
				this.reachLedger()
					.then(async ({ subscriptions }) => await subscriptions.extend(handOut))
					// the rounds say that the ledger is down; the credential may have been mended
					.catch(() => {
						this.ledger = null;
					})
					.finally(beat);
			}, HEARTBEAT_MS);
			timer.unref();
		};
		beat();
		return {
			stop() {
				hasStopped = true;
				clearTimeout(timer);
			},
		};
	}

	private log(level: 'info' | 'warn' | 'error', message: string): void {
		const { workflow, workflowName } = this.settings.caller;
		this.context.logger[level](`Work Ledger Trigger of "${workflowName}": ${message}`, {
			workflowId: workflow,
			nodeName: this.settings.caller.node,
		});
	}
}
