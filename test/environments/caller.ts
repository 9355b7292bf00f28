import { createLedger, type LedgerSettings, type Works } from '../../ledger';
import { CALLER, newWork, POLICY } from '../integration/stage';
import { asChild } from './processes';

export interface CallerJob {
	settings: LedgerSettings;
	/** Works claimed and completed one by one. */
	works: number;
	/** At once. */
	callers: number;
}

/** Claims and completes works, so many at once, and counts the answers. */
export async function claimAndComplete(
	works: Works,
	count: number,
	callers: number,
): Promise<Record<string, number>> {
	const answers: Record<string, number> = {};
	let next = 0;
	await Promise.all(
		Array.from({ length: callers }, async () => {
			while (next < count) {
				const n = next++;
				const item = newWork();
				const [claim] = await works.claim([item], POLICY);
				const [completion] = await works.complete([{ ...item, result: { n } }], CALLER);
				for (const { status } of [claim, completion]) answers[status] = (answers[status] ?? 0) + 1;
			}
		}),
	);
	return answers;
}

if (require.main === module) {
	asChild<CallerJob>(async ({ settings, works, callers }) => {
		const ledger = createLedger(settings);
		try {
			return await claimAndComplete(ledger.works, works, callers);
		} finally {
			await ledger.close();
		}
	});
}
