import { createHash } from 'crypto';
import { readdirSync, readFileSync } from 'fs';
import path from 'path';
import type { PoolClient } from 'pg';

import { LedgerError } from './errors';
import { quotedIdentifier } from './settings';

const MIGRATIONS_FOLDER = path.join(__dirname, '..', 'migrations');

export interface InstalledVersion {
	schemaVersion: number;
	contract: number;
	packageVersion: string;
}

interface Migration {
	number: number;
	name: string;
	sql: string;
}

/** What this package brings: numbered migrations (tables, once) and the functions under one contract number. */
export interface SchemaSource {
	migrations: Migration[];
	functions: Array<{ name: string; sql: string }>;
	contract: number;
	packageVersion: string;
}

let source: SchemaSource | undefined;

export function schemaSource(): SchemaSource {
	if (source === undefined) {
		const read = (...parts: string[]) =>
			readFileSync(path.join(MIGRATIONS_FOLDER, ...parts), 'utf8');
		const contracts = JSON.parse(read('contracts.json')) as Array<{
			contract: number;
			package: string;
		}>;
		const newest = contracts[contracts.length - 1];
		source = {
			migrations: readdirSync(MIGRATIONS_FOLDER)
				.filter((name) => /^\d{3}_.+\.sql$/.test(name))
				.sort()
				.map((name) => ({ number: Number(name.slice(0, 3)), name, sql: read(name) })),
			functions: readdirSync(path.join(MIGRATIONS_FOLDER, 'functions'))
				.filter((name) => name.endsWith('.sql'))
				.sort()
				.map((name) => ({ name, sql: read('functions', name) })),
			contract: newest.contract,
			packageVersion: newest.package,
		};
	}
	return source;
}

/** sha256 over the functions' texts: `migrations/contracts.json` holds it beside the contract number it belongs to. */
export function functionsDigest(from: SchemaSource = schemaSource()): string {
	const hash = createHash('sha256');
	for (const { name, sql } of from.functions) hash.update(`${name}\n${sql}\n`);
	return hash.digest('hex');
}

/** `:"schema"` is psql's spelling of a quoted variable, so the same files run by hand. */
function inSchema(sql: string, schema: string): string {
	return sql.replaceAll(':"schema"', () => quotedIdentifier(schema));
}

/** Reads what is installed; null where the schema or its version table is missing. */
export async function installedVersion(
	client: Pick<PoolClient, 'query'>,
	schema: string,
): Promise<InstalledVersion | null> {
	const rows = await client
		.query(
			`select schema_version, contract, package_version from ${quotedIdentifier(schema)}.ledger_version`,
		)
		.then((answer) => answer.rows)
		.catch((error: { code?: string }) => {
			if (error.code === '3F000' || error.code === '42P01') return [];
			throw error;
		});
	if (rows.length === 0) return null;
	return {
		schemaVersion: Number(rows[0].schema_version),
		contract: Number(rows[0].contract),
		packageVersion: String(rows[0].package_version),
	};
}

export function isOlder(
	installed: InstalledVersion | null,
	from: SchemaSource = schemaSource(),
): boolean {
	if (installed === null) return true;
	const newestMigration = from.migrations[from.migrations.length - 1].number;
	return installed.schemaVersion < newestMigration || installed.contract < from.contract;
}

export function isNewer(installed: InstalledVersion, from: SchemaSource = schemaSource()): boolean {
	const newestMigration = from.migrations[from.migrations.length - 1].number;
	return installed.schemaVersion > newestMigration || installed.contract > from.contract;
}

/** The statements that bring a schema from `installed` to this package, without begin and commit. */
export function upgradeStatements(
	schema: string,
	installed: InstalledVersion | null,
	from: SchemaSource = schemaSource(),
): string[] {
	const quoted = quotedIdentifier(schema);
	const statements: string[] = [];
	for (const migration of from.migrations) {
		if (installed === null || migration.number > installed.schemaVersion)
			statements.push(inSchema(migration.sql, schema));
	}
	const newContract = installed === null || installed.contract < from.contract;
	if (newContract) {
		// bodies are checked when they first run: the files need no order among themselves
		statements.push('set local check_function_bodies = off');
		for (const { sql } of from.functions) statements.push(inSchema(sql, schema));
		// in the same transaction: a function is executable by everybody until this line
		statements.push(`revoke all on all functions in schema ${quoted} from public`);
	}
	const newestMigration = from.migrations[from.migrations.length - 1].number;
	statements.push(
		`insert into ${quoted}.ledger_version as v (schema_version, contract, package_version)
		values (${newestMigration}, ${from.contract}, '${from.packageVersion.replace(/'/g, "''")}')
		on conflict (one) do update set
			schema_version = greatest(v.schema_version, excluded.schema_version),
			contract = greatest(v.contract, excluded.contract),
			package_version = excluded.package_version, updated_at = clock_timestamp()`,
	);
	return statements;
}

/** The whole installation as one text for psql, for a database administrator. */
export function installationScript(schema: string, from: SchemaSource = schemaSource()): string {
	const statements = upgradeStatements(schema, null, from).map(
		(sql) => `${sql.trimEnd().replace(/;$/, '')};`,
	);
	return [
		'begin;',
		`create schema if not exists ${quotedIdentifier(schema)};`,
		...statements,
		'commit;',
		'',
	].join('\n');
}

/**
 * Installs or upgrades the schema, in one transaction under an advisory lock of that transaction (a session's lock would
 * leak through a transaction pooler). Of several processes one installs; the others wait for it and find it done.
 * A database newer than this package is left alone. Throws what PostgreSQL throws, and `LedgerError` where the role may
 * not create the schema.
 */
export async function installSchema(
	client: Pick<PoolClient, 'query'>,
	schema: string,
	from: SchemaSource = schemaSource(),
): Promise<InstalledVersion> {
	const quoted = quotedIdentifier(schema);
	let committed = false;
	await client.query('begin');
	try {
		await client.query(`set local lock_timeout = '60s'`);
		await client.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [
			`n8n-nodes-idempotency:${schema}`,
		]);
		const exists = await client.query('select 1 from pg_catalog.pg_namespace where nspname = $1', [
			schema,
		]);
		if (exists.rows.length === 0) await createSchema(client, quoted, schema);
		// to_regclass: a failed statement would end the transaction
		const hasVersion = await client.query('select to_regclass($1) is not null as found', [
			`${quoted}.ledger_version`,
		]);
		const installed = hasVersion.rows[0].found ? await installedVersion(client, schema) : null;
		if (isOlder(installed, from)) {
			for (const sql of upgradeStatements(schema, installed, from)) await client.query(sql);
		}
		const now = await installedVersion(client, schema);
		if (now === null)
			throw new LedgerError(
				'unknown',
				'The schema was installed but holds no version.',
				'Install it again.',
			);
		await client.query('commit');
		committed = true;
		return now;
	} finally {
		if (!committed) await client.query('rollback').catch(() => undefined);
	}
}

async function createSchema(
	client: Pick<PoolClient, 'query'>,
	quoted: string,
	schema: string,
): Promise<void> {
	await client.query(`create schema ${quoted}`).catch((error: { code?: string }) => {
		if (error.code !== '42501') throw error;
		throw new LedgerError(
			'cannot_create_schema',
			`The schema "${schema}" is missing and this user may not create it.`,
			'Have the database administrator create it and make this user its owner, or grant this user CREATE on the database.',
			'42501',
		);
	});
}
