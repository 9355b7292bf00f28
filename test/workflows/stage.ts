import type { IDataObject } from 'n8n-workflow';

import { Stage, type WorkRow } from '../integration/stage';
import { runWorkflow, type Flow, type Ran } from './run-workflow';

/** One ledger per test file, with kinds of their own per test: no test meets another's work. */
export class WorkflowStage {
	private opened: Stage | null = null;
	private kinds = 0;

	/** Opens before the tests of a file and closes behind them. */
	static forThisFile(): WorkflowStage {
		const stage = new WorkflowStage();
		beforeAll(async () => {
			stage.opened = await Stage.open();
		});
		afterAll(async () => {
			await stage.ledger.close();
		});
		return stage;
	}

	get ledger(): Stage {
		if (this.opened === null) throw new Error('the stage is not open yet');
		return this.opened;
	}

	newKind(): string {
		return `kind${++this.kinds}`;
	}

	async run(flow: Omit<Flow, 'credential'> & Partial<Flow>): Promise<Ran> {
		return await runWorkflow({ credential: this.ledger.settings, ...flow });
	}

	async rows(kind: string): Promise<WorkRow[]> {
		return await this.ledger.query<WorkRow>(
			'select * from idempotency.work_log where kind = $1 order by key collate "C"',
			[kind],
		);
	}

	/** The works of a kind as "key state result". */
	async works(kind: string): Promise<string[]> {
		return (await this.rows(kind)).map(({ key, state, result }) =>
			result === null ? `${key} ${state}` : `${key} ${state} ${JSON.stringify(result)}`,
		);
	}

	/** The only work of a kind. */
	async work(kind: string): Promise<WorkRow> {
		const rows = await this.rows(kind);
		if (rows.length !== 1) throw new Error(`there are ${rows.length} works of ${kind}`);
		return rows[0];
	}

	/** Resolves once the decision log holds an entry of this outcome for a work of the kind. */
	async untilLogged(kind: string, outcome: string, count = 1): Promise<void> {
		for (;;) {
			const rows = await this.ledger.query(
				`select 1 from idempotency.decision_log d join idempotency.work_log w using (work_id)
				where w.kind = $1 and d.outcome = $2`,
				[kind, outcome],
			);
			if (rows.length >= count) return;
			await this.ledger.query('select pg_sleep(0.01)');
		}
	}
}

/** Claim Work's parameters: one key field, everything else by default. */
export const byOrder = (kind: string, more: IDataObject = {}): IDataObject => ({
	kind,
	keyFields: 'order',
	...more,
});

export const orders = (...numbers: number[]): IDataObject[] =>
	numbers.map((order) => ({ order, customer: `c${order}`, total: order * 10 }));
