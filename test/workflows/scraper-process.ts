import { randomUUID } from 'node:crypto';
import { Client } from 'pg';

import { createLedger, identifyByKey, type LedgerSettings } from '../../ledger';

/** A scraper outside n8n, in a process of its own: `node --require load-typescript.js scraper-process.ts <job as JSON>`. */
export interface ScraperJob {
	settings: LedgerSettings;
	kind: string;
	checkpoint: string;
	pages: number;
	/** Having claimed, but not fetched, the batch behind this page, it says so and waits to be killed. */
	diesAt: number;
}

const BATCH = 20;
const SAVE_EVERY = 100;

async function main({ settings, kind, checkpoint, pages, diesAt }: ScraperJob): Promise<void> {
	const ledger = createLedger(settings);
	const target = new Client(settings);
	await target.connect();
	for (let first = 1; first <= pages; first += BATCH) {
		const ids = Array.from({ length: BATCH }, (_, i) => first + i);
		const items = ids.map((id) => ({
			...identifyByKey({ kind, version: 'v1' }, [{ name: 'id', value: id }]),
			token: randomUUID(),
		}));
		const answers = await ledger.works.claim(items, { kind });
		if (first > diesAt) {
			process.stdout.write('claimed\n');
			process.stdin.resume();
			return;
		}
		const own = items.filter((_, i) => answers[i].status === 'claimed');
		await target.query('insert into effects select unnest($1::int[])', [
			own.map(({ key }) => Number(key)),
		]);
		await ledger.works.complete(own);
		const last = first + BATCH - 1;
		if (last % SAVE_EVERY === 0)
			await ledger.checkpoints.save([
				{ name: checkpoint, compare: 'number', cursors: [String(last)] },
			]);
	}
	throw new Error('it did not die');
}

main(JSON.parse(process.argv[2]) as ScraperJob).catch((error: unknown) => {
	process.stderr.write(String(error));
	process.exit(1);
});
