import { createHash } from 'crypto';
import stringify from 'fast-json-stable-stringify';

import { LedgerError } from './errors';
import type { OpenChannel } from './tunnel-stream';

/** How the connection is encrypted: not at all, without checking the server's certificate, or checking it. */
export type TlsMode = 'off' | 'require' | 'verify';

export interface LedgerSettings {
	host: string;
	port: number;
	database: string;
	user: string;
	/** Handed to the driver as a field, never through a URL. */
	password: string;
	/** Default `idempotency`. Any name PostgreSQL takes; it is quoted. */
	schema?: string;
	/** Default `off`. */
	tls?: TlsMode;
	/** PEM text of the authority to trust with `verify`; without it, the system's own. */
	ca?: string;
	/** PEM text of a certificate this client shows, with `require` or `verify`; needs `clientPrivateKey`. */
	clientCert?: string;
	/** PEM text of the key of `clientCert`, without a passphrase. */
	clientPrivateKey?: string;
	/**
	 * A way to the server other than a plain socket, such as an SSH tunnel. `identity` tells tunnels apart (equal settings
	 * share a pool): a text made of all that `open` depends on.
	 */
	tunnel?: { identity: string; open: OpenChannel };
	/** Default 10, at most 200. */
	maxConnections?: number;
	/** Seconds to wait for a connection, the wait for a free one included. Default 10. */
	connectTimeoutSeconds?: number;
	/** Seconds to wait for an answer. Default 30. */
	queryTimeoutSeconds?: number;
	/** Install and upgrade the schema when it is missing or older. Default true. */
	automaticMigration?: boolean;
}

export type CompleteSettings = Required<
	Omit<LedgerSettings, 'ca' | 'clientCert' | 'clientPrivateKey' | 'tunnel'>
> & {
	ca: string | null;
	clientCert: string | null;
	clientPrivateKey: string | null;
	tunnel: NonNullable<LedgerSettings['tunnel']> | null;
};

/** Fills in the defaults. Throws `LedgerError` (`bad_settings`) naming the field. */
export function readSettings(given: LedgerSettings): CompleteSettings {
	const bad = (field: string, problem: string, cure: string) =>
		new LedgerError('bad_settings', `${field}: ${problem}.`, cure);
	for (const field of ['host', 'port', 'database', 'user', 'schema'] as const) {
		// a pasted connection URL holds the password: say what is wrong without repeating it
		if (text(given[field]).includes('://')) {
			throw bad(
				field,
				'holds a URL',
				'Enter host, port, database, user and password in their own fields.',
			);
		}
	}
	if (/^[^:]+:\d+$/.test(text(given.host).trim())) {
		throw bad('host', 'holds a port', 'Enter the port in its own field.');
	}
	if (/[@\s]/.test(text(given.host).trim())) {
		throw bad(
			'host',
			'is no name or address',
			'Enter the name of the server alone, without user or password.',
		);
	}
	const settings: CompleteSettings = {
		host: text(given.host).trim(),
		port: Number(given.port ?? 5432),
		database: text(given.database),
		user: text(given.user),
		password: text(given.password),
		schema: text(given.schema ?? '') || 'idempotency',
		tls: given.tls ?? 'off',
		ca: pemText(given.ca),
		clientCert: pemText(given.clientCert),
		clientPrivateKey: pemText(given.clientPrivateKey),
		tunnel: given.tunnel ?? null,
		maxConnections: Number(given.maxConnections ?? 10),
		connectTimeoutSeconds: Number(given.connectTimeoutSeconds ?? 10),
		queryTimeoutSeconds: Number(given.queryTimeoutSeconds ?? 30),
		automaticMigration: given.automaticMigration ?? true,
	};
	for (const field of ['host', 'database', 'user'] as const) {
		if (settings[field] === '')
			throw bad(field, 'is empty', 'Fill it in, in the ledger credential.');
	}
	if (!Number.isInteger(settings.port) || settings.port < 1 || settings.port > 65535) {
		throw bad(
			'port',
			`must be a whole number from 1 to 65535, not ${String(given.port)}`,
			'PostgreSQL usually listens on 5432.',
		);
	}
	if (!['off', 'require', 'verify'].includes(settings.tls)) {
		throw bad(
			'tls',
			`must be off, require or verify, not ${String(given.tls)}`,
			'Choose one of the three.',
		);
	}
	if (
		!Number.isInteger(settings.maxConnections) ||
		settings.maxConnections < 1 ||
		settings.maxConnections > 200
	) {
		throw bad(
			'maxConnections',
			`must be a whole number from 1 to 200, not ${String(given.maxConnections)}`,
			'Leave it at 10.',
		);
	}
	for (const field of ['connectTimeoutSeconds', 'queryTimeoutSeconds'] as const) {
		if (!(settings[field] >= 1 && settings[field] <= 600)) {
			throw bad(
				field,
				`must be from 1 to 600 seconds, not ${String(given[field])}`,
				'Use the default.',
			);
		}
	}
	if ((settings.clientCert === null) !== (settings.clientPrivateKey === null)) {
		throw bad(
			settings.clientPrivateKey === null ? 'clientPrivateKey' : 'clientCert',
			'is empty although the other one of the pair is given',
			'Paste both the certificate and its key, or neither.',
		);
	}
	quotedIdentifier(settings.schema);
	return settings;
}

/**
 * A name as SQL writes it: quotes doubled, so that no name can leave its quotes.
 * Throws `LedgerError` for what PostgreSQL takes for no name (empty, NUL, more than 63 bytes) or keeps for itself (pg_…).
 */
export function quotedIdentifier(name: string): string {
	if (name === '' || name.includes('\0') || Buffer.byteLength(name) > 63 || /^pg_/i.test(name)) {
		throw new LedgerError(
			'bad_settings',
			'schema: is not a name PostgreSQL accepts.',
			'Use 1 to 63 letters, not beginning with "pg_", for example idempotency.',
		);
	}
	return `"${name.replace(/"/g, '""')}"`;
}

/** One pool per credential and process: equal settings share one. Holds a digest, not the password. */
export function settingsDigest(settings: CompleteSettings): string {
	return createHash('sha256').update(stringify(settings)).digest('hex');
}

/** PEM text; a paste into a one-line field turned its line breaks into spaces. null when empty. */
export function pemText(value: unknown): string | null {
	const pem = text(value).trim();
	if (pem === '') return null;
	return pem.replace(
		/(-----BEGIN [A-Z0-9 ]+-----)([^-]*)(-----END [A-Z0-9 ]+-----)/g,
		(_, begin: string, body: string, end: string) =>
			`${begin}\n${body.trim().split(/\s+/).join('\n')}\n${end}`,
	);
}

function text(value: unknown): string {
	return value === undefined || value === null ? '' : String(value);
}
