import { startPostgres, type RunningPostgres } from '../../scripts/embedded-postgres';

declare global {
	/** The server of this test run, from Jest's start to its end. */
	var idempotencyTestPostgres: RunningPostgres | undefined;
}

/** One server for the whole run; every test file makes its own database in it. */
export default async function start(): Promise<void> {
	const postgres = await startPostgres({ settings: { max_connections: 60 } });
	globalThis.idempotencyTestPostgres = postgres;
	const { host, port, user, password, database } = postgres;
	// For files that tests make: gone with the server, also when the run is killed.
	process.env.IDEMPOTENCY_TEST_FOLDER = postgres.folder;
	process.env.IDEMPOTENCY_TEST_PG = JSON.stringify({ host, port, user, password, database });
}
