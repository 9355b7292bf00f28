/**
 * Failures of the ledger in words that say what to do. Nothing here ever carries a password, a query's values or a URL.
 */

export type LedgerErrorCode =
	| 'unreachable'
	| 'timeout'
	| 'connection_lost'
	| 'tls'
	| 'wrong_password'
	| 'no_database'
	| 'too_many_connections'
	| 'starting_up'
	| 'schema_missing'
	| 'schema_outdated'
	| 'cannot_create_schema'
	| 'unfit_database'
	| 'schema_in_use'
	| 'cancelled'
	| 'closed'
	| 'no_permission'
	| 'read_only'
	| 'busy'
	| 'bad_input'
	| 'bad_settings'
	| 'unknown';

/** Thrown by everything in the ledger. Checked by `name`, not `instanceof`: two copies of the package may be loaded. */
export class LedgerError extends Error {
	override readonly name = 'LedgerError';

	/** A try of this call may have been committed although its answer never came; set by the connection. */
	answerLost = false;

	constructor(
		readonly code: LedgerErrorCode,
		/** What is wrong, in one sentence. */
		readonly problem: string,
		/** What to do about it, in one sentence. */
		readonly cure: string,
		/** PostgreSQL's SQLSTATE or the socket's error code, where there was one. */
		readonly sqlState: string | null = null,
	) {
		super(`${problem} ${cure}`);
	}
}

export function isLedgerError(error: unknown): error is LedgerError {
	return error instanceof Error && error.name === 'LedgerError';
}

/** Where a failure happened; only what may be shown. */
export interface Endpoint {
	host: string;
	port: number;
	database: string;
	user: string;
	schema: string;
}

interface DriverError extends Error {
	code?: string;
	cause?: unknown;
	hint?: string;
	errors?: DriverError[];
}

/** The message node-postgres gives when its own query time-out ends a wait. */
const DRIVER_TIMEOUT =
	/query read timeout|timeout exceeded when trying to connect|connection timeout|connection terminated due to connection timeout/i;

/** Whether the driver gave up waiting for an answer: the query may still hang in its connection. */
export function isDriverTimeout(error: Error): boolean {
	return DRIVER_TIMEOUT.test(error.message);
}

const TLS_CODES = new Set([
	'SELF_SIGNED_CERT_IN_CHAIN',
	'DEPTH_ZERO_SELF_SIGNED_CERT',
	'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
	'UNABLE_TO_GET_ISSUER_CERT',
	'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
	'CERT_HAS_EXPIRED',
	'ERR_TLS_CERT_ALTNAME_INVALID',
	'CERT_SIGNATURE_FAILURE',
]);

const SOCKET_CODES = new Set([
	'ECONNREFUSED',
	'ENOTFOUND',
	'EHOSTUNREACH',
	'ENETUNREACH',
	'EAI_AGAIN',
	'EHOSTDOWN',
]);
// 57P05 and 25P03: the server ended an idle session at the moment a statement was sent
const LOST_CODES = new Set([
	'ECONNRESET',
	'EPIPE',
	'ETIMEDOUT',
	'57P01',
	'57P02',
	'57P05',
	'25P03',
]);

/**
 * Passing failures that the same call, sent again, may survive: PostgreSQL's class 08, 53300, 57P01–57P03, 40001, 40P01,
 * and a lost or refused connection; 25006, as a connection outlives the failover that made its server a standby. Every
 * call of the ledger carries a token, so sending it again is safe.
 */
export function isTransient(error: LedgerError): boolean {
	return (
		error.code === 'unreachable' ||
		error.code === 'connection_lost' ||
		error.code === 'too_many_connections' ||
		error.code === 'starting_up' ||
		error.code === 'read_only' ||
		error.sqlState === '40001' ||
		error.sqlState === '40P01'
	);
}

/** Whether this failure leaves open what became of the statement: it may have been committed. */
export function losesAnswer(error: LedgerError): boolean {
	return error.code === 'timeout' || error.code === 'connection_lost';
}

/** Whether the connection must be thrown away: its state is unknown, it is gone, or it leads to where nothing is written. */
export function spoilsConnection(error: LedgerError): boolean {
	return ['timeout', 'connection_lost', 'unreachable', 'starting_up', 'read_only'].includes(
		error.code,
	);
}

/** Translates what the driver threw. Never throws; keeps PostgreSQL's own words where they help. */
export function describeFailure(thrown: unknown, at: Endpoint): LedgerError {
	if (isLedgerError(thrown)) return thrown;
	const raw = thrown as DriverError;
	// several addresses for one name: Node wraps their failures
	const error = Array.isArray(raw?.errors) && raw.errors.length > 0 ? raw.errors[0] : raw;
	const given = error?.code ?? raw?.code ?? null;
	const words = String(error?.message ?? error ?? 'no message')
		.split('\n')[0]
		.slice(0, 500);
	const code = given !== null && POOLER_CODES.has(given) ? poolerState(words, given) : given;
	const server = `${at.host}:${at.port}`;
	const say = (kind: LedgerErrorCode, problem: string, cure: string) =>
		new LedgerError(kind, problem, cure, code);

	if (error?.name === 'TunnelError') return describeTunnelFailure(error.cause, server);
	if (/after calling end on the pool/i.test(words)) {
		return say('closed', 'This ledger was closed.', 'Create a new one with createLedger.');
	}
	if (code !== null && SOCKET_CODES.has(code)) {
		return say(
			'unreachable',
			`The ledger's PostgreSQL at ${server} cannot be reached (${code}).`,
			'Check host and port in the credential, that the server runs, and that a firewall lets n8n through.',
		);
	}
	if (code === '25P04' || (code === '57014' && /statement timeout/i.test(words))) {
		const setting = code === '25P04' ? 'transaction_timeout' : 'statement_timeout';
		return say(
			'timeout',
			`The ledger's PostgreSQL at ${server} did not answer in time: its own ${setting} ended the call.`,
			`Check the load of the server, or raise ${setting} for user "${at.user}" there (alter role … set ${setting} = …); the time-outs in the credential are others.`,
		);
	}
	if (DRIVER_TIMEOUT.test(words) || code === '57014') {
		return say(
			'timeout',
			`The ledger's PostgreSQL at ${server} did not answer in time.`,
			'Check the load and the network of the server, or raise the time-outs in the credential.',
		);
	}
	// the server's word on this side's certificate, not this side's on the server's
	if (
		(code === '28000' && /client certificate|certificate authentication failed/i.test(words)) ||
		/\balert (unknown ca|bad certificate|certificate|unsupported certificate)/i.test(words)
	) {
		return say(
			'tls',
			`PostgreSQL at ${server} wants a client certificate that it trusts, made out to user "${at.user}" (${words}).`,
			'Paste it into Client Certificate and its key into Client Key, in the credential.',
		);
	}
	if (code?.startsWith('ERR_OSSL_') === true || code === 'ERR_CRYPTO_INCOMPATIBLE_KEY') {
		return say(
			'tls',
			`A certificate or key in the credential cannot be used (${words}).`,
			'Paste whole PEM texts, BEGIN and END lines included; Client Key must be the key of Client Certificate, without a passphrase.',
		);
	}
	if (
		(code !== null && TLS_CODES.has(code)) ||
		/self.signed certificate|unable to verify|certificate/i.test(words)
	) {
		return say(
			'tls',
			`The certificate of ${server} was not accepted (${words}).`,
			'In the credential set TLS to "Verify" and paste the certificate of the authority that signed it, or set TLS to "Require" to encrypt without checking it.',
		);
	}
	if (/does not support SSL/i.test(words)) {
		return say(
			'tls',
			`${server} does not offer TLS.`,
			'Set TLS to "Off" in the credential, or switch TLS on at the server.',
		);
	}
	// PostgreSQL's, Azure's, Supabase's and PgBouncer's, and Neon's words for it
	if (
		(code === '28000' && /no encryption|SSL off/i.test(words)) ||
		/SSL (connection is )?required|connection is insecure/i.test(words)
	) {
		return say(
			'tls',
			`${server} accepts only encrypted connections.`,
			'Set TLS to "Require" or "Verify" in the credential.',
		);
	}
	if (NO_SUCH_PROJECT.test(words)) {
		return say(
			'wrong_password',
			`The pooler at ${server} knows no project for user "${at.user}" (${words}).`,
			"Copy host and user from your provider's page about connecting: the pooler wants the project in the user name (at Supabase postgres.<project reference>), and its host is that of the project's region.",
		);
	}
	if (code === '28P01' || code === '28000' || /SASL|password must be a string/i.test(words)) {
		return say(
			'wrong_password',
			`PostgreSQL at ${server} refused user "${at.user}" (wrong user name or password, or no entry in pg_hba.conf).`,
			'Check user and password in the credential.',
		);
	}
	switch (code) {
		case '3D000':
			return say(
				'no_database',
				`There is no database "${at.database}" at ${server}.`,
				'Check the database name in the credential, or create it.',
			);
		case '53300':
			return say(
				'too_many_connections',
				`PostgreSQL at ${server} has no free connection left.`,
				'Lower "Maximum Connections" in the credential, raise max_connections at the server, or put PgBouncer in front.',
			);
		case '53100':
			return say(
				'unknown',
				`PostgreSQL at ${server} has no disk space left (${words}).`,
				'Free some, or enlarge the disk of the server. Nothing of this call was kept.',
			);
		case '57P03':
			return say(
				'starting_up',
				`PostgreSQL at ${server} is starting up or shutting down.`,
				'Try again in a moment.',
			);
		case '3F000':
		case '42P01':
		case '42883':
		case '42704':
			return say(
				'schema_missing',
				`The ledger's tables or functions are missing in schema "${at.schema}" of database "${at.database}" (${words}).`,
				'Switch on "Install and Upgrade Schema Automatically" in the credential, or have the database administrator install the schema. If it was installed before, a part was removed by hand: restore it from a backup. To begin with an empty ledger, drop the schema and restart n8n: a process that has seen the ledger does not make it anew.',
			);
		case '42501':
			return say(
				'no_permission',
				`User "${at.user}" lacks a right in schema "${at.schema}" (${words}).`,
				'Grant usage on the schema, execute on its functions and select on ledger_version, or use the role that installed it.',
			);
		case '25006':
			return say(
				'read_only',
				`PostgreSQL at ${server} only allows reading here (a standby, or a read-only role).`,
				'Connect to the primary server with a role that may write.',
			);
		case '55P03':
			return say(
				'busy',
				'Another transaction holds this work for more than 10 seconds.',
				'Try again; if it stays, look for an open transaction in pg_stat_activity, or for one that was prepared and left in pg_prepared_xacts.',
			);
		case '40001':
		case '40P01':
			return say(
				'busy',
				`PostgreSQL gave this statement up because of others at the same moment (${code}).`,
				'Try again.',
			);
	}
	if (
		(code !== null && (LOST_CODES.has(code) || code.startsWith('08'))) ||
		isGarbled(error, words) ||
		/connection terminated|connection ended|client has encountered a connection error|not queryable/i.test(
			words,
		)
	) {
		return say(
			'connection_lost',
			`The connection to PostgreSQL at ${server} was lost.`,
			'Try again; if it stays, check the server and the network between.',
		);
	}
	if (code !== null && (code.startsWith('22') || code.startsWith('23'))) {
		return say(
			'bad_input',
			`PostgreSQL refused a value: ${words}.`,
			error.hint ?? 'Check the value that is named.',
		);
	}
	return say(
		'unknown',
		`PostgreSQL at ${server} answered: ${words}.`,
		'Look up the message in the documentation of PostgreSQL.',
	);
}

/**
 * An answer that cannot be read. PgBouncer makes one where its server dies in the middle of a row: its own last message
 * stands in the place of the rest, and the driver takes it for the end of a value.
 */
function isGarbled(error: DriverError | undefined, words: string): boolean {
	return error?.name === 'SyntaxError' || words.startsWith('received invalid response');
}

/** What poolers say for nearly everything: PgBouncer 08P01, those of Supabase and Neon XX000. */
const POOLER_CODES = new Set(['08P01', 'XX000']);

/** Supabase's pooler, before and since its messages have codes of their own. */
const NO_SUCH_PROJECT = /tenant or user not found|tenant\/user .*not found/i;

/** Words that stand for "no connection is free": PgBouncer's, Supabase's, Neon's. */
const NONE_FREE =
	/^no more connections allowed|^query_wait_timeout|max client(s|.connections)? reached|check ?out.* timeout|unable to check out|too many database connection attempts/i;

/** The words of a pooler tell which state PostgreSQL would have named. */
function poolerState(words: string, given: string): string {
	if (/^no such database|^database .* does not exist/i.test(words)) return '3D000';
	if (NONE_FREE.test(words)) return '53300';
	if (/^no such user|password authentication failed/i.test(words)) return '28P01';
	return given;
}

/** What an SSH client (ssh2, as n8n lends it) throws, told apart by its own fields. */
function describeTunnelFailure(thrown: unknown, server: string): LedgerError {
	const error = thrown as { code?: string; level?: string; reason?: unknown; message?: string };
	const code = typeof error?.code === 'string' ? error.code : null;
	const words = String(error?.message ?? thrown ?? 'no message')
		.split('\n')[0]
		.slice(0, 200);
	const say = (kind: LedgerErrorCode, problem: string, cure: string) =>
		new LedgerError(kind, problem, cure, code);

	if (error?.level === 'client-authentication') {
		return say(
			'wrong_password',
			`The SSH host of the tunnel to ${server} refused the login.`,
			'Check SSH user and SSH password (or SSH private key) in the credential.',
		);
	}
	if (/private ?key|passphrase/i.test(words)) {
		return say(
			'bad_settings',
			`The SSH private key in the credential cannot be read (${words}).`,
			'Paste the whole key, its BEGIN and END lines included, and its passphrase if it has one.',
		);
	}
	// a reason is the SSH host's own answer: it was reached, and would not or could not connect
	if (error?.reason !== undefined) {
		return say(
			'unreachable',
			`The SSH host does not reach PostgreSQL at ${server} (${words}).`,
			'Host and port in the credential are as the SSH host sees them; it must allow TCP forwarding.',
		);
	}
	return say(
		'unreachable',
		`The SSH tunnel to ${server} could not be opened (${code ?? words}).`,
		'Check SSH host and SSH port in the credential, that the host runs, and that a firewall lets n8n through.',
	);
}
