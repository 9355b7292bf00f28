import * as crypto from 'node:crypto';

import { IdentityRefusal, hasControls, shown } from './refusal';
import { isMistake, isWellFormed, readable, unresolvedIn } from './text';

/** What a key belongs to. The same key under another kind or version is other work. */
export interface Scope {
	/** The business name of the work (`invoice`); without ":". */
	kind: string;
	/** Raise it to do all work of this kind anew; without ":". Default: `v1`. */
	version?: string;
}

export interface WorkIdentity {
	/** sha256 of `kind:version:canonical` in UTF-8, 64 lower-case hex digits. */
	workId: string;
	kind: string;
	version: string;
	/** For people and for PostgreSQL text: no NUL, no lone surrogates, first 1,000 code points. */
	key: string;
	/** The text that was hashed behind `kind:version:`. May hold what `key` masks. */
	canonical: string;
	/** The first 10 hex digits of `workId`: short enough to embed in a mail or note. */
	fingerprint: string;
}

const FINGERPRINT_DIGITS = 10;
const SCOPE_LENGTH = 200;
const DEFAULT_VERSION = 'v1';

let lastScope: { kind: unknown; version: unknown; read: { kind: string; version: string } } | null =
	null;

/**
 * Kind and version, trimmed and in NFC.
 *
 * @throws IdentityRefusal `bad_scope`
 */
export function readScope(scope: Scope): { kind: string; version: string } {
	const { kind, version } = scope;
	// A batch asks thousands of times with the same two texts.
	if (lastScope !== null && lastScope.kind === kind && lastScope.version === version) {
		return lastScope.read;
	}
	const read = {
		kind: readScopeText(kind, 'kind'),
		version: version === undefined ? DEFAULT_VERSION : readScopeText(version, 'version'),
	};
	lastScope = { kind, version, read };
	return read;
}

/**
 * The id of a piece of work, as anybody can compute it in any language:
 * `sha256(kind + ":" + version + ":" + canonicalKeyText)` over UTF-8, in hex.
 *
 * @throws IdentityRefusal `bad_scope` when kind or version cannot be used
 */
export function workIdOf(kind: string, version: string, canonicalKeyText: string): string {
	const scope = readScope({ kind, version });
	return sha256(`${scope.kind}:${scope.version}:${canonicalKeyText}`);
}

/** `keyText`: what to show instead of the canonical text. */
export function identityOf(
	scope: { kind: string; version: string },
	canonical: string,
	keyText: string = canonical,
): WorkIdentity {
	const { kind, version } = scope;
	const workId = sha256(`${kind}:${version}:${canonical}`);
	return {
		workId,
		kind,
		version,
		key: readable(keyText),
		canonical,
		fingerprint: workId.slice(0, FINGERPRINT_DIGITS),
	};
}

const sha256: (text: string) => string =
	// The one-shot form costs a third; Node.js has it since 20.12.
	typeof crypto.hash === 'function'
		? (text) => crypto.hash('sha256', text, 'hex')
		: (text) => crypto.createHash('sha256').update(text, 'utf8').digest('hex');

function readScopeText(value: unknown, field: 'kind' | 'version'): string {
	const refuse = (problem: string, cure: string): never => {
		throw new IdentityRefusal('bad_scope', field, `The ${field} ${problem}.`, cure);
	};
	const example = field === 'kind' ? '"invoice"' : '"v1"';
	if (typeof value !== 'string') {
		return refuse(`is not a text: ${shown(value)}`, `Enter a short name such as ${example}.`);
	}
	if (!isWellFormed(value)) {
		return refuse('holds half of an emoji or other symbol', `Enter a name such as ${example}.`);
	}
	const text = value.trim().normalize('NFC');
	if (text === '') return refuse('is empty', `Enter a short name such as ${example}.`);
	if (unresolvedIn(text) !== null) {
		return refuse(
			`holds ${shown(text)} as it was typed`,
			'Switch the field from Fixed to Expression.',
		);
	}
	if (isMistake(text)) {
		return refuse(
			`is the text ${shown(text)}, which means that a value was lost`,
			`Enter a short name such as ${example}.`,
		);
	}
	// Else kind "a", version "b:c" and kind "a:b", version "c" would be one work (case 91).
	if (text.includes(':')) {
		return refuse(`${shown(text)} holds ":"`, 'Take another sign, such as "-" or "_".');
	}
	if (hasControls(text)) {
		return refuse(`${shown(text)} holds a line break or control character`, 'Remove it.');
	}
	if (text.length > SCOPE_LENGTH) {
		return refuse(
			`is longer than ${SCOPE_LENGTH} characters`,
			'Enter a short name; what tells one piece of work from another belongs in the key.',
		);
	}
	return text;
}
