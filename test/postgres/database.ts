import { randomBytes } from 'node:crypto';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Client, type QueryResult, type QueryResultRow } from 'pg';

export interface PostgresConfig {
	host: string;
	port: number;
	user: string;
	password: string;
	database: string;
}

export interface TestDatabase {
	/** For pools and clients of the test; the user is a superuser. */
	config: PostgresConfig;
	/** One connection of the superuser's, to prepare and to look. */
	admin: {
		query<Row extends QueryResultRow = QueryResultRow>(
			text: string,
			values?: unknown[],
		): Promise<QueryResult<Row>>;
	};
	/** Drops the database, with whatever is still connected to it. */
	drop(): Promise<void>;
}

/**
 * The server that Jest's global setup started.
 *
 * @throws {Error} outside such a run
 */
export function testServer(): PostgresConfig {
	const text = process.env.IDEMPOTENCY_TEST_PG;
	if (text === undefined)
		throw new Error('IDEMPOTENCY_TEST_PG is not set: start this through Jest.');
	return JSON.parse(text) as PostgresConfig;
}

/** A new folder that is removed at the end of the run, also when the run is killed. */
export function createTestFolder(name: string): string {
	return mkdtempSync(path.join(process.env.IDEMPOTENCY_TEST_FOLDER ?? tmpdir(), `${name}-`));
}

/** A database of its own, empty, so that test files do not meet each other's works. */
export async function createTestDatabase(): Promise<TestDatabase> {
	const server = testServer();
	const database = `test_${randomBytes(6).toString('hex')}`;
	await onServer(server, `create database ${database}`);
	const config = { ...server, database };
	const admin = new Client(config);
	// A test may end this backend on purpose; the next query then says so.
	admin.on('error', () => {});
	await admin.connect();
	return {
		config,
		admin,
		async drop() {
			await admin.end();
			await onServer(server, `drop database ${database} with (force)`);
		},
	};
}

async function onServer(server: PostgresConfig, statement: string): Promise<void> {
	const client = new Client(server);
	await client.connect();
	try {
		await client.query(statement);
	} finally {
		await client.end();
	}
}
