import { createLedger, identifyByKey, type LedgerSettings } from '../../ledger';
import type { ClaimAnswer } from '../../ledger/contract';
import { again, CALLER, newWork, POLICY } from '../integration/stage';
import { asChild } from './processes';

export interface ZoneJob {
	settings: LedgerSettings;
	/** Work to ask for within a window of so many seconds. */
	workId: string;
	windowSeconds: number;
}

export interface ZoneAnswer {
	/** Minutes, as JavaScript tells it: proof of the zone. */
	offset: number;
	/** Of one instant, written in different ways. */
	ids: string[];
	duplicate: ClaimAnswer;
	/** Seconds from this process's clock to the end of a lease of an hour. */
	leaseSeconds: number;
	/** What came back of times in a result. */
	stored: unknown;
}

asChild<ZoneJob>(async ({ settings, workId, windowSeconds }): Promise<ZoneAnswer> => {
	const ledger = createLedger(settings);
	const id = (value: unknown) =>
		identifyByKey({ kind: 'slot' }, [{ name: 'at', value }], { readDates: true }).workId;
	try {
		const instant = new Date(Date.UTC(2026, 0, 1, 10));
		const [duplicate] = await ledger.works.claim([{ ...newWork(), workId }], {
			...POLICY,
			window: { mode: 'duration', seconds: windowSeconds },
		});
		const item = newWork();
		const [claim] = await ledger.works.claim([item], POLICY);
		await ledger.works.complete(
			[{ ...item, result: { plain: '2025-08-19T00:00:00', date: instant } }],
			CALLER,
		);
		const [answer] = await ledger.works.claim([again(item)], POLICY);
		return {
			offset: instant.getTimezoneOffset(),
			ids: [instant, '2026-01-01T10:00:00Z', '2026-01-01T11:00:00+01:00'].map(id),
			duplicate,
			leaseSeconds: (Date.parse(claim.lockedUntil ?? '') - Date.now()) / 1000,
			stored: answer.result,
		};
	} finally {
		await ledger.close();
	}
});
