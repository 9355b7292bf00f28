import { createLedger, type LedgerSettings } from '../../ledger';
import { CALLER, newWork, POLICY } from '../integration/stage';
import { asChild } from './processes';

export interface ManyJob {
	settings: LedgerSettings;
	items: number;
	/** Of each payload and each result, as JSON text. */
	bytes: number;
}

export interface ManyAnswer {
	claims: Record<string, number>;
	completions: Record<string, number>;
	/** Answers that do not stand at their item's place. */
	wrong: number;
	/** The heap at its largest, of what was in use. */
	peakMegabytes: number;
}

asChild<ManyJob>(async ({ settings, items: count, bytes }): Promise<ManyAnswer> => {
	let peak = 0;
	const watching = setInterval(() => {
		peak = Math.max(peak, process.memoryUsage().heapUsed);
	}, 5);
	const ledger = createLedger(settings);
	try {
		// one text and one value for all: what memory it takes is what the ledger makes of them
		const payload = JSON.stringify('x'.repeat(bytes - 2));
		const result = { text: 'x'.repeat(bytes - 11) };
		const items = Array.from({ length: count }, (_, n) => ({ ...newWork(String(n)), payload }));
		const claims = await ledger.works.claim(items, POLICY);
		const completions = await ledger.works.complete(
			items.map(({ workId, token }) => ({ workId, token, result })),
			CALLER,
		);
		let wrong = 0;
		for (let i = 0; i < count; i++) {
			const right = claims[i].workId === items[i].workId && claims[i].token === items[i].token;
			if (!right || completions[i].workId !== items[i].workId) wrong += 1;
		}
		return {
			claims: tally(claims),
			completions: tally(completions),
			wrong,
			peakMegabytes: Math.round(peak / 1024 / 1024),
		};
	} finally {
		clearInterval(watching);
		await ledger.close();
	}
});

function tally(answers: Array<{ status: string }>): Record<string, number> {
	const counts: Record<string, number> = {};
	for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1;
	return counts;
}
