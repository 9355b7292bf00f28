import { createLedger } from '../../ledger';
import { startProxy } from '../integration/cuttable-proxy';
import { again, CALLER, newWork, POLICY } from '../integration/stage';
import { createTestDatabase, type TestDatabase } from '../postgres/database';
import { startPgBouncer } from './pgbouncer';

/** A server connection that dies in the middle of an answer, behind PgBouncer. */

let database: TestDatabase;
beforeAll(async () => {
	database = await createTestDatabase();
});
afterAll(async () => {
	await database?.drop();
});

test.each([25, 40, 60, 5_000])(
	'an answer whose last %i bytes are lost behind the pooler is asked for again (case 37)',
	async (bytes) => {
		// PgBouncer puts its own words where the rest of a row would have come: the row arrives whole, and cannot be read
		const proxy = await startProxy(database.config);
		const pooler = await startPgBouncer({ ...database.config, port: proxy.port });
		const cut = createLedger({ ...database.config, port: pooler.config.port });
		try {
			const item = newWork();
			const result = { text: 'x'.repeat(100_000) };
			await cut.works.claim([item], POLICY);
			await cut.works.complete([{ ...item, result }], CALLER);
			proxy.loseAnswerTo('claim_work(', bytes);
			expect(await cut.works.claim([again(item)], POLICY)).toMatchObject([
				{ status: 'duplicate', result },
			]);
			expect(proxy.lost).toBe(1);
		} finally {
			await cut.close();
			await pooler.stop();
			await proxy.close();
		}
	},
);
