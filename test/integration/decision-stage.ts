import { randomUUID } from 'node:crypto';

import {
	decisionKeyOf,
	type DecisionAnswer,
	type LookUpItem,
	type LookUpPolicy,
} from '../../ledger';
import type { Caller } from '../../ledger/contract';
import { CALLER, type LogRow, type Stage } from './stage';

export const ASK: LookUpPolicy = { kind: 'classify-mail', caller: CALLER };

export const as = (execution: string): Caller => ({ ...CALLER, execution });

/** A question that nobody has asked, unless a text is given. */
export function question(text: string = randomUUID()): LookUpItem {
	const { decisionKey, parts } = decisionKeyOf({
		kind: 'classify-mail',
		model: 'gpt-test',
		promptVersion: 'v1',
		input: { text },
	});
	return { decisionKey, parts, token: randomUUID() };
}

/** The same question asked once more, with a fresh token. */
export const askedAgain = (item: LookUpItem): LookUpItem => ({ ...item, token: randomUUID() });

export interface DecisionRow {
	state: string;
	generation: number;
	attempt: number;
	token: string | null;
	past_tokens: string[];
	locked_until: Date | null;
	value: unknown;
	raw: unknown;
	reason: string | null;
	execution: string | null;
	approver: string | null;
	latency_ms: number | null;
	expires_at: Date | null;
}

/** The functions of a test around `ledger.decisions`, one question at a time. */
export class DecisionStage {
	constructor(private readonly stage: Stage) {}

	async lookUp(item: LookUpItem, policy: Partial<LookUpPolicy> = {}): Promise<DecisionAnswer> {
		return (await this.stage.ledger.decisions.lookUp([item], { ...ASK, ...policy }))[0];
	}

	/** A look-up that must be told to decide. */
	async deciding(
		item: LookUpItem = question(),
		policy: Partial<LookUpPolicy> = {},
	): Promise<LookUpItem> {
		const { outcome } = await this.lookUp(item, policy);
		if (outcome !== 'decide') throw new Error(`not to decide but ${outcome}`);
		return item;
	}

	async store(
		item: LookUpItem,
		value: unknown,
		more: {
			needsApproval?: boolean;
			ttlSeconds?: number;
			inputTokens?: number;
			outputTokens?: number;
			cost?: number;
		} = {},
		caller: Caller = CALLER,
	): Promise<DecisionAnswer> {
		const valueText = JSON.stringify(value);
		const stored = { ...item, valueText, rawText: JSON.stringify(valueText), ...more };
		return (await this.stage.ledger.decisions.store([stored], caller))[0];
	}

	async free(item: LookUpItem, reason = 'cut off', raw = 'half an ans'): Promise<DecisionAnswer> {
		const freed = { ...item, rawText: JSON.stringify(raw), reason };
		return (await this.stage.ledger.decisions.free([freed], CALLER))[0];
	}

	async judge(
		item: LookUpItem,
		approve: boolean,
		approver: string,
		valueHash: string | null = null,
	) {
		const verdict = { approve, approver, valueHash };
		return await this.stage.ledger.decisions.judge(item.decisionKey, verdict, CALLER);
	}

	/** A stored decision. */
	async decided(
		value: unknown = { label: 'invoice' },
		more: Parameters<DecisionStage['store']>[2] = {},
	) {
		const item = await this.deciding();
		const { outcome } = await this.store(item, value, more);
		if (!['stored', 'proposed'].includes(outcome)) throw new Error(`not stored but ${outcome}`);
		return item;
	}

	async row({ decisionKey }: LookUpItem): Promise<DecisionRow> {
		const [row] = await this.stage.query<DecisionRow & Record<string, unknown>>(
			'select * from idempotency.llm_decisions where decision_key = $1',
			[decisionKey],
		);
		if (row === undefined) throw new Error('the ledger holds no such decision');
		return row;
	}

	async log({ decisionKey }: LookUpItem): Promise<LogRow[]> {
		return await this.stage.log({ workId: decisionKey });
	}

	/** The question's history as "event: outcome". */
	async history(item: LookUpItem): Promise<string[]> {
		return (await this.log(item)).map(({ event, outcome }) => `${event}: ${outcome}`);
	}

	/** The lease ended a second ago. */
	async elapse(item: LookUpItem): Promise<void> {
		await this.move(item, `locked_until = clock_timestamp() - interval '1 second'`);
	}

	/** The time to live ended a second ago. */
	async outlive(item: LookUpItem): Promise<void> {
		await this.move(item, `expires_at = clock_timestamp() - interval '1 second'`);
	}

	async age(item: LookUpItem, days: number): Promise<void> {
		await this.move(item, `updated_at = updated_at - make_interval(days => ${days})`);
	}

	/** Somebody writes to the table by hand. */
	async tamper(item: LookUpItem, value: unknown): Promise<void> {
		await this.move(item, `value = $2::json`, [JSON.stringify(value)]);
	}

	private async move(
		{ decisionKey }: LookUpItem,
		change: string,
		values: unknown[] = [],
	): Promise<void> {
		const moved = await this.stage.query(
			`update idempotency.llm_decisions set ${change} where decision_key = $1 returning 1`,
			[decisionKey, ...values],
		);
		if (moved.length !== 1) throw new Error('there is no such decision to move');
	}
}
