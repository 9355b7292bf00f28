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

/**
 * `:"schema"` is psql's spelling of a quoted variable, so the same files run by hand. Comments stay as they are, as in
 * psql: a line break in the name would end them.
 */
function inSchema(sql: string, schema: string): string {
	const quoted = quotedIdentifier(schema);
	return sql.replace(/--.*|:"schema"/g, (found) => (found.startsWith('--') ? found : quoted));
}

/**
 * Reads what is installed; null where the schema or its version table is missing.
 *
 * @internal
 */
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

/**
 * Whether the functions of this schema were made under another name of it. Renaming a schema does not rename it in the
 * search path of its functions: they would claim in whatever has the old name now.
 */
async function pointsElsewhere(
	client: Pick<PoolClient, 'query'>,
	schema: string,
): Promise<boolean> {
	// quote_all_identifiers decides how the name was written there, and how quote_ident writes it now
	const { rows } = await client.query(
		`select true from pg_catalog.pg_proc p, unnest(p.proconfig) setting
		where p.pronamespace = to_regnamespace($1) and p.proname = 'claim_work' and starts_with(setting, 'search_path=')
			and not starts_with(setting || ',', 'search_path=' || quote_ident($2) || ',')
			and not starts_with(setting || ',', 'search_path=' || $1 || ',')
			and not ($2 ~ '^[a-z_][a-z0-9_$]*$' and starts_with(setting || ',', 'search_path=' || $2 || ','))`,
		[quotedIdentifier(schema), schema],
	);
	return rows.length > 0;
}

/** What makes a database unfit for a ledger, whatever is installed in it. Throws `LedgerError`. */
async function refuseUnfitDatabase(client: Pick<PoolClient, 'query'>): Promise<void> {
	const { rows } = await client.query<{ encoding: string; array_nulls: string }>(
		`select current_setting('server_encoding') as encoding, current_setting('array_nulls') as array_nulls`,
	);
	const [{ encoding, array_nulls: arrayNulls }] = rows;
	if (encoding !== 'UTF8') {
		throw new LedgerError(
			'unfit_database',
			`The database's encoding is ${encoding}, in which most languages and emoji cannot be kept: an effect that landed could not be completed.`,
			"Enter a database whose encoding is UTF8 in the credential (create database … encoding 'UTF8' template template0).",
		);
	}
	if (arrayNulls !== 'on') {
		throw new LedgerError(
			'unfit_database',
			'The setting array_nulls is off for this user or database, so that a missing reference or result would be stored as the text "NULL".',
			'Have the database administrator switch it on: alter role … set array_nulls = on.',
		);
	}
}

/**
 * What is installed, ready to be used or upgraded; null where nothing is. Functions that were left behind by a renaming
 * count as older than any, so that they are replaced. Throws `LedgerError` for a database that no ledger can use.
 *
 * @internal
 */
export async function usableVersion(
	client: Pick<PoolClient, 'query'>,
	schema: string,
	from: SchemaSource = schemaSource(),
): Promise<InstalledVersion | null> {
	await refuseUnfitDatabase(client);
	const installed = await installedVersion(client, schema);
	if (installed === null || !(await pointsElsewhere(client, schema))) return installed;
	if (isNewer(installed, from)) throw renamedSchema(schema, `version ${installed.packageVersion}`);
	return { ...installed, contract: LEFT_BEHIND };
}

/** The contract of functions that a renaming left behind. */
export const LEFT_BEHIND = -1;

/** @internal */
export function renamedSchema(schema: string, version: string, sqlState?: string | null) {
	return new LedgerError(
		'schema_outdated',
		`The schema "${schema}" was renamed, and its functions still work on the schema of the old name.`,
		`Give it its old name again, or have its owner run the installation script of ${version} for the new name (docs/sql.md, "The script").`,
		sqlState,
	);
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
	const statements: string[] = [];
	for (const migration of from.migrations) {
		if (installed === null || migration.number > installed.schemaVersion)
			statements.push(inSchema(migration.sql, schema));
	}
	const newContract = installed === null || installed.contract < from.contract;
	if (newContract) statements.push(...functionStatements(schema, from));
	statements.push(versionStatement(schema, from));
	return statements;
}

function revocation(schema: string, from: SchemaSource): string {
	const names = from.functions
		.map(({ name }) => quotedLiteral(name.replace(/\.sql$/, '')))
		.join(', ');
	return `
declare
	v_function text;
begin
	for v_function in
		select p.oid::regprocedure::text from pg_catalog.pg_proc p
		where p.pronamespace = to_regnamespace(${quotedLiteral(quotedIdentifier(schema))}) and p.proname in (${names})
	loop
		execute 'revoke all on function ' || v_function || ' from public';
	end loop;
end
`;
}

/** Whether a schema without a ledger holds anything: then it is somebody else's. */
function holdsObjects(schema: string): string {
	const namespace = `to_regnamespace(${quotedLiteral(quotedIdentifier(schema))})`;
	return `(exists (select 1 from pg_catalog.pg_class where relnamespace = ${namespace})
		or exists (select 1 from pg_catalog.pg_proc where pronamespace = ${namespace}))`;
}

function functionStatements(schema: string, from: SchemaSource): string[] {
	return [
		// bodies are checked when they first run: the files need no order among themselves
		'set local check_function_bodies = off',
		...from.functions.map(({ sql }) => inSchema(sql, schema)),
		// in the same transaction: a function is executable by everybody until this line. By name: the rights of what
		// somebody else keeps in this schema are not ours to change.
		`do ${dollarQuoted('revoke', revocation(schema, from))}`,
	];
}

function versionStatement(schema: string, from: SchemaSource): string {
	const newestMigration = from.migrations[from.migrations.length - 1].number;
	return `insert into ${quotedIdentifier(schema)}.ledger_version as v (schema_version, contract, package_version)
		values (${newestMigration}, ${from.contract}, ${quotedLiteral(from.packageVersion)})
		on conflict (one) do update set
			schema_version = greatest(v.schema_version, excluded.schema_version),
			contract = greatest(v.contract, excluded.contract),
			package_version = excluded.package_version, updated_at = clock_timestamp()`;
}

const ENCODING_CHECK = `
begin
	if getdatabaseencoding() <> 'UTF8' then
		raise exception 'The database''s encoding is %, in which most languages and emoji cannot be kept: nothing was changed.', getdatabaseencoding()
			using hint = 'Give the ledger a database whose encoding is UTF8.';
	end if;
end
`;

/** The advisory lock of installers. A transaction's: a session's would leak through a transaction pooler. */
function lockName(schema: string): string {
	return `n8n-nodes-idempotency:${schema}`;
}

/**
 * The whole installation as one text, for a database administrator with psql (or any client that sends several
 * statements): one transaction, under the lock that installing processes take. Safe to run again: it looks at what is
 * installed, makes the schema and runs the migrations that are missing, and replaces the functions. Where the database is
 * newer than this package it raises an error and changes nothing. Throws `LedgerError` for a name PostgreSQL refuses.
 */
export function installationScript(schema: string, from: SchemaSource = schemaSource()): string {
	const quoted = quotedIdentifier(schema);
	const newestMigration = from.migrations[from.migrations.length - 1].number;
	const migrations = from.migrations.map(
		({ number, sql }) => `	if v_schema_version < ${number} then
		execute ${dollarQuoted('migration', inSchema(sql, schema))};
	end if;`,
	);
	// not "create schema if not exists": that asks for the right to create one even where it exists
	const tables = `
declare
	v_schema_version integer := 0;
	v_contract integer := 0;
begin
	perform pg_advisory_xact_lock(hashtextextended(${quotedLiteral(lockName(schema))}, 0));
	if to_regnamespace(${quotedLiteral(quoted)}) is null then
		create schema ${quoted};
	end if;
	if to_regclass(${quotedLiteral(`${quoted}.ledger_version`)}) is not null then
		select coalesce(max(schema_version), 0), coalesce(max(contract), 0) into v_schema_version, v_contract
		from ${quoted}.ledger_version;
	end if;
	if v_schema_version = 0 and ${holdsObjects(schema)} then
		raise exception 'The schema already holds tables or functions that are not the ledger''s: nothing was changed.'
			using hint = 'Give the ledger a schema of its own.';
	end if;
	if v_schema_version > ${newestMigration} or v_contract > ${from.contract} then
		raise exception 'The installed ledger is newer (schema version %, contract %) than this script (${newestMigration}, ${from.contract}): nothing was changed.',
			v_schema_version, v_contract
			using hint = 'Older packages work with newer functions; for an upgrade take the script of a newer package.';
	end if;
${migrations.join('\n')}
end
`;
	const statements = [
		'begin isolation level read committed',
		// by itself and first: in another encoding the rest might not even be read
		`do ${dollarQuoted('encoding', ENCODING_CHECK)}`,
		`set local lock_timeout = '60s'`,
		`do ${dollarQuoted('ledger', tables)}`,
		...functionStatements(schema, from),
		versionStatement(schema, from),
		'commit',
	];
	return [
		`-- n8n-nodes-idempotency ${from.packageVersion}: schema version ${newestMigration}, contract ${from.contract}.`,
		'-- Installs the ledger, or upgrades an older one. Run it as the role that owns the ledger, not as a superuser: its',
		"-- functions run with their owner's rights.",
		...statements.map((sql) => `${sql.trimEnd().replace(/;$/, '')};`),
		'',
	].join('\n');
}

/** As PostgreSQL's own quote_literal: read alike whatever standard_conforming_strings is set to. */
function quotedLiteral(text: string): string {
	const quoted = `'${text.replace(/'/g, "''").replace(/\\/g, '\\\\')}'`;
	return text.includes('\\') ? `E${quoted}` : quoted;
}

/** A dollar-quoted text; the tag grows until the text (a schema's name may be anything) does not hold it. */
function dollarQuoted(tag: string, text: string): string {
	let free = tag;
	while (text.includes(`$${free}$`)) free += '_';
	return `$${free}$${text}$${free}$`;
}

/**
 * Installs or upgrades the schema, in one transaction under an advisory lock of that transaction. Of several processes one installs; the others wait for it and find it done.
 * A database newer than this package is left alone. Throws what PostgreSQL throws, and `LedgerError` where the role may
 * not create the schema.
 *
 * @internal
 */
export async function installSchema(
	client: Pick<PoolClient, 'query'>,
	schema: string,
	from: SchemaSource = schemaSource(),
): Promise<InstalledVersion> {
	const quoted = quotedIdentifier(schema);
	let committed = false;
	// under repeatable read (a default of some servers) the wait for the lock would leave an old snapshot behind
	await client.query('begin isolation level read committed');
	try {
		await client.query(`set local lock_timeout = '60s'`);
		await client
			.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [lockName(schema)])
			.catch((error: { code?: string }) => {
				throw error.code === '55P03' ? installingElsewhere() : error;
			});
		const exists = await client.query('select 1 from pg_catalog.pg_namespace where nspname = $1', [
			schema,
		]);
		if (exists.rows.length === 0) await createSchema(client, quoted, schema);
		// to_regclass: a failed statement would end the transaction
		const hasVersion = await client.query('select to_regclass($1) is not null as found', [
			`${quoted}.ledger_version`,
		]);
		const installed = hasVersion.rows[0].found
			? await usableVersion(client, schema, from)
			: await refuseUnfitDatabase(client).then(() => null);
		if (installed === null && exists.rows.length > 0) await refuseForeignSchema(client, schema);
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

function installingElsewhere() {
	return new LedgerError(
		'busy',
		'Another process has been installing or upgrading the ledger for more than 60 seconds.',
		'Try again when it is done; if it stays, look for an open transaction in pg_stat_activity.',
		'55P03',
	);
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

async function refuseForeignSchema(
	client: Pick<PoolClient, 'query'>,
	schema: string,
): Promise<void> {
	const { rows } = await client.query(`select ${holdsObjects(schema)} as taken`);
	if (!rows[0].taken) return;
	throw new LedgerError(
		'schema_in_use',
		`The schema "${schema}" already holds tables or functions that are not the ledger's.`,
		'Enter another schema in the credential, for example idempotency: the ledger keeps to a schema of its own.',
	);
}
