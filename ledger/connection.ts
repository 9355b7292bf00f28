import { randomBytes } from 'crypto';
import type { Socket } from 'net';
import type { ConnectionOptions } from 'tls';
import { Pool, type PoolClient, type QueryResultRow } from 'pg';

import {
	LedgerError,
	describeFailure,
	isDriverTimeout,
	isLedgerError,
	isTransient,
	losesAnswer,
	spoilsConnection,
} from './errors';
import {
	LEFT_BEHIND,
	installSchema,
	isOlder,
	renamedSchema,
	schemaSource,
	usableVersion,
	type InstalledVersion,
} from './schema';
import { quotedIdentifier, type CompleteSettings } from './settings';
import { Statements } from './statements';
import { TunnelStream, type OpenChannel } from './tunnel-stream';

/** A call is sent again after passing failures: at most this often, and not beyond this time. */
const MAX_TRIES = 5;
const RETRY_WITHIN_MS = 8_000;
const FIRST_PAUSE_MS = 100;
/** A migration may rewrite or index a large table; a server that is silent for longer than this has gone away. */
const INSTALL_TIMEOUT_MS = 15 * 60_000;

/**
 * One bounded pool and what every statement needs around it: time-outs, errors in plain words, retries of passing
 * failures, the schema installed before the first statement. Nothing depends on a session: no SET, and
 * statements have names only where nobody stands between (`statements.ts`).
 */
export class LedgerConnection {
	private readonly pool: Pool;
	private readonly statements: Statements;
	private ready: Promise<void> | null = null;
	private readonly openedAt = new WeakMap<PoolClient, number>();
	/** Connections that were opened before lead to a server that has become a standby. */
	private demotedAt = -Infinity;

	constructor(readonly settings: CompleteSettings) {
		this.statements = new Statements(this.queryTimeoutMs);
		this.pool = new Pool({
			host: settings.host,
			port: settings.port,
			database: settings.database,
			user: settings.user,
			// a function: an empty password must not fall back to PGPASSWORD or a file of the n8n process
			password: () => settings.password,
			ssl: tlsOptions(settings),
			...(settings.tunnel === null ? {} : { stream: tunnelled(settings.tunnel.open) }),
			max: settings.maxConnections,
			connectionTimeoutMillis: settings.connectTimeoutSeconds * 1000,
			idleTimeoutMillis: 30_000,
			keepAlive: true,
			allowExitOnIdle: true,
			application_name: 'n8n-nodes-idempotency',
		});
		// an idle connection whose server went away, and one that dies in use, must not crash n8n: the next call
		// reconnects, the running one gets its error from its own query
		this.pool.on('error', () => undefined);
		this.pool.on('connect', (client) => {
			client.on('error', () => undefined);
			this.openedAt.set(client, performance.now());
		});
	}

	/**
	 * Runs one statement and sends it again after a passing failure, so it must be safe to repeat: the ledger's functions
	 * are, by token. Throws `LedgerError`.
	 */
	async query<Row extends QueryResultRow>(text: string, values: unknown[]): Promise<Row[]> {
		let answerLost = false;
		return await this.persist(async () => {
			await this.ensureSchema();
			let sent = false;
			const send = async () =>
				await this.withClient(async (client) => {
					sent = true;
					return (await this.statements.send<Row>(client, text, values)).rows;
				});
			try {
				return await send();
			} catch (error) {
				const failure = this.describe(error);
				answerLost ||= sent && losesAnswer(failure);
				// it may be committed all the same: sent once more, it is looked up by its token
				if (!sent || failure.code !== 'timeout') throw failure;
				return await send();
			}
		}).catch((error: unknown) => {
			// the last try may have failed otherwise (the server is down by now): what counts is that one was lost
			if (isLedgerError(error)) error.answerLost = answerLost;
			throw error;
		});
	}

	/** Reads what is installed, without installing. Throws `LedgerError`. */
	async readVersion(): Promise<InstalledVersion | null> {
		return await this.withClient(
			async (client) =>
				await usableVersion(timed(client, this.queryTimeoutMs), this.settings.schema),
		);
	}

	/** Installs or upgrades the schema now, whatever the setting says. Throws `LedgerError`. */
	async install(): Promise<InstalledVersion> {
		return await this.withClient(
			async (client) =>
				await installSchema(
					timed(client, Math.max(INSTALL_TIMEOUT_MS, this.queryTimeoutMs)),
					this.settings.schema,
				),
		);
	}

	/** Makes sure that the schema is there and new enough, installing it where the setting allows. Throws `LedgerError`. */
	async prepare(): Promise<void> {
		await this.ensureSchema();
	}

	/** Claims a work and rolls it back: proof that this role may use the ledger. Throws `LedgerError`. */
	async tryClaim(): Promise<void> {
		await this.withClient(async (lent) => {
			const client = timed(lent, this.queryTimeoutMs);
			await client.query('begin');
			try {
				await client.query(
					`select status from ${quotedIdentifier(this.settings.schema)}.claim_work($1::text, 'credential test', gen_random_uuid(), null, null, '{"kind": "credential test"}')`,
					[randomBytes(32).toString('hex')],
				);
			} finally {
				await client.query('rollback');
			}
		});
	}

	private get queryTimeoutMs(): number {
		return this.settings.queryTimeoutSeconds * 1000;
	}

	/** Lends a connection; it is destroyed when the failure leaves its state unknown. Throws `LedgerError`. */
	async withClient<T>(work: (client: PoolClient) => Promise<T>): Promise<T> {
		const client = await this.lend();
		let spoiled = false;
		try {
			return await work(client);
		} catch (error) {
			const failure = this.describe(error);
			spoiled = spoilsConnection(failure);
			if (failure.code === 'read_only') this.demotedAt = performance.now();
			throw failure;
		} finally {
			client.release(spoiled);
		}
	}

	private async lend(): Promise<PoolClient> {
		for (;;) {
			const client = await this.pool.connect().catch((error: unknown) => {
				throw this.describe(error);
			});
			if ((this.openedAt.get(client) ?? Infinity) > this.demotedAt) return client;
			client.release(true);
		}
	}

	/** Connections open now. */
	get openConnections(): number {
		return this.pool.totalCount;
	}

	/** True while a statement runs or waits. */
	get inUse(): boolean {
		return this.pool.totalCount > this.pool.idleCount || this.pool.waitingCount > 0;
	}

	async close(): Promise<void> {
		await this.pool.end();
	}

	private describe(error: unknown): LedgerError {
		return describeFailure(error, this.settings);
	}

	private async ensureSchema(): Promise<void> {
		this.ready ??= this.checkSchema().catch((error: unknown) => {
			// the next call looks again: a failed look is not an answer
			this.ready = null;
			throw error;
		});
		await this.ready;
	}

	private async checkSchema(): Promise<void> {
		const installed = await this.readVersion();
		if (!isOlder(installed)) return;
		if (this.settings.automaticMigration) {
			await this.install().catch((error: unknown) => {
				const failure = this.describe(error);
				if (failure.code !== 'no_permission' || installed === null) throw failure;
				if (installed.contract === LEFT_BEHIND) throw this.renamed(failure.sqlState);
				throw new LedgerError(
					'schema_outdated',
					`The ledger in schema "${this.settings.schema}" is older than this package, and user "${this.settings.user}" may not upgrade it.`,
					'Have its owner run the installation script of this version (docs/sql.md, "Installing by hand"), or use the role that installed it.',
					failure.sqlState,
				);
			});
			return;
		}
		const { schema, database } = this.settings;
		if (installed === null) {
			throw new LedgerError(
				'schema_missing',
				`The ledger is not installed in schema "${schema}" of database "${database}", and installing it automatically is off.`,
				'Have the database administrator install it, or switch on "Install and Upgrade Schema Automatically" in the credential.',
			);
		}
		if (installed.contract === LEFT_BEHIND) throw this.renamed();
		const source = schemaSource();
		throw new LedgerError(
			'schema_outdated',
			`The ledger in schema "${schema}" is older than this package (contract ${installed.contract}, needed ${source.contract}), and upgrading it automatically is off.`,
			'Have the database administrator upgrade it, or switch on "Install and Upgrade Schema Automatically" in the credential.',
		);
	}

	private renamed(sqlState: string | null = null): LedgerError {
		return renamedSchema(this.settings.schema, 'this version', sqlState);
	}

	private async persist<T>(call: () => Promise<T>): Promise<T> {
		const startedAt = performance.now();
		for (let tries = 1; ; tries++) {
			try {
				return await call();
			} catch (error) {
				const failure = this.describe(error);
				// full jitter between half and the whole pause, so that many executions do not come back as one
				const pause = FIRST_PAUSE_MS * 3 ** (tries - 1) * (0.5 + Math.random() / 2);
				const elapsed = performance.now() - startedAt;
				if (!isTransient(failure) || tries >= MAX_TRIES || elapsed + pause > RETRY_WITHIN_MS)
					throw failure;
				await new Promise((resolve) => setTimeout(resolve, pause));
			}
		}
	}
}

/**
 * A connection whose every query ends in time, with an answer or without: a pooler takes a client long before it has a
 * server for it, and somebody may hold a lock. After a time-out nothing more is sent, as it would queue behind the query
 * that hangs.
 */
function timed(client: PoolClient, timeoutMs: number): Pick<PoolClient, 'query'> {
	let hangs: Error | null = null;
	const query = async (text: string, values?: unknown[]) => {
		if (hangs !== null) throw hangs;
		const given = { text, values, query_timeout: timeoutMs };
		return await client.query(given).catch((error: Error) => {
			if (isDriverTimeout(error)) hangs = error;
			throw error;
		});
	};
	return { query: query as unknown as PoolClient['query'] };
}

/** The driver's types ask for a socket; it uses no more of one than a TunnelStream has. */
function tunnelled(open: OpenChannel): () => Socket {
	return () => new TunnelStream(open) as unknown as Socket;
}

function tlsOptions(settings: CompleteSettings): false | ConnectionOptions {
	if (settings.tls === 'off') return false;
	return {
		rejectUnauthorized: settings.tls === 'verify',
		...(settings.tls === 'verify' && settings.ca !== null ? { ca: settings.ca } : {}),
		...(settings.clientCert !== null && settings.clientPrivateKey !== null
			? { cert: settings.clientCert, key: settings.clientPrivateKey }
			: {}),
	};
}
