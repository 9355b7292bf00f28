import { randomUUID } from 'node:crypto';

import type { LedgerConnection } from '../connection';
import type { Caller } from '../contract';
import { workIdOf } from '../identity/scope';
import { quotedIdentifier } from '../settings';
import { inOrder } from '../work-answers';
import { callerOptions, chunks } from '../works';
import {
	checkText,
	conclude,
	evaluate,
	type EvidenceAnswer,
	type EvidenceRequest,
	type LedgerFinding,
} from './gate';
import { PatternMatcher } from './pattern';

interface CheckRow {
	ord: number;
	outcome: string;
	ledger: LedgerFinding[];
}

/**
 * Evidence gates: whether records may advance. Rules about fields are applied here; what they ask of the ledger is looked
 * up by the statement that writes the check into the decision log, so no record passes without a row there.
 */
export class Evidence {
	private readonly schema: string;

	/** @internal */
	constructor(private readonly connection: LedgerConnection) {
		this.schema = quotedIdentifier(connection.settings.schema);
	}

	/**
	 * Checks any number of records, one round trip per 5,000; answers in the order given. Throws `LedgerError` where the
	 * ledger cannot be asked: then nothing has passed.
	 */
	async check(requests: EvidenceRequest[], caller: Caller = {}): Promise<EvidenceAnswer[]> {
		const patterns = new PatternMatcher();
		const options = JSON.stringify(callerOptions(caller));
		const answers: EvidenceAnswer[] = [];
		function* prepared() {
			for (const request of requests) {
				const evaluation = evaluate(request, patterns);
				yield { evaluation, text: checkText(evaluation) };
			}
		}
		for (const chunk of chunks(prepared(), ({ text }) => text.length)) {
			const rows = await this.connection.query<CheckRow>(
				`select ord, outcome, ledger
				from ${this.schema}.check_evidence($1::text[], $2::uuid[], $3::jsonb[], $4::jsonb)`,
				[
					chunk.map(({ evaluation }) => evaluation.request.recordId),
					// made before the statement is sent: sending it again is answered from the log
					chunk.map(() => randomUUID()),
					chunk.map(({ text }) => text),
					options,
				],
			);
			inOrder(rows, chunk.length).forEach(({ outcome, ledger }, i) => {
				answers.push(conclude(chunk[i].evaluation, outcome, ledger));
			});
		}
		return answers;
	}
}

/**
 * The id of a record that has no name: one place of one execution. A record with a kind and key has theirs
 * (`identifyByKey`), so that its checks stand in one history with the work of that name.
 */
export function unnamedRecordId(caller: Caller, item: number): string {
	const { instance, workflow, execution, node } = caller;
	return workIdOf('gate', 'v1', JSON.stringify([instance, workflow, execution, node, item]));
}
