import { IdentityRefusal, maskCredentials, shown } from './refusal';
import type { Scope, WorkIdentity } from './scope';
import { identityOf, readScope } from './scope';
import { cleanText, refuseEmptyText, refuseUnresolved } from './text';
import { globOf } from './volatile-fields';

export interface UrlOptions {
	/** `#part` tells one piece of work from another. Routes (`#/…`, `#!…`) always do. */
	keepFragment?: boolean;
	/**
	 * Query names to leave out, `*` for any run of characters, in any case. Default:
	 * `DEFAULT_TRACKING_PARAMETERS`; an empty list keeps all.
	 */
	trackingParameters?: readonly string[];
}

/**
 * Query names that tell where a visitor came from, not what the page is; a list that the user
 * edits. Left out on purpose, since sites use them for content: `ref`, `source`, `id`, `at_*`.
 */
export const DEFAULT_TRACKING_PARAMETERS: readonly string[] = Object.freeze([
	'utm_*',
	// click ids of advertisers
	'gclid',
	'gclsrc',
	'dclid',
	'gbraid',
	'wbraid',
	'gad_source',
	'gad_campaignid',
	'srsltid',
	'fbclid',
	'msclkid',
	'twclid',
	'ttclid',
	'li_fat_id',
	'igsh',
	'igshid',
	'yclid',
	'ysclid',
	'epik',
	'rb_clickid',
	'wickedid',
	// newsletters and campaigns
	'mc_cid',
	'mc_eid',
	'mkt_tok',
	'_hsenc',
	'_hsmi',
	'__hssc',
	'__hstc',
	'__hsfp',
	'hsctatracking',
	'vero_id',
	'vero_conv',
	'oly_anon_id',
	'oly_enc_id',
	'ml_subscriber',
	'ml_subscriber_hash',
	'dm_i',
	'_kx',
	// web analytics
	'_ga',
	'_gl',
	'mtm_*',
	'pk_campaign',
	'pk_kwd',
	'pk_keyword',
	'pk_source',
	'pk_medium',
	'pk_content',
	'pk_cid',
	'_openstat',
]);

/**
 * The identity of a page, for scrapers. Host in lower case, no default port, dot segments
 * resolved (WHATWG URL); percent-encoding in upper case; query sorted by name, repeated names in
 * their order; tracking parameters, empty query and fragment dropped. Nothing is encoded or
 * decoded anew, so that what a server may tell apart stays apart. User name and password count,
 * but are masked in the readable key.
 *
 * @throws IdentityRefusal `not_a_url` for anything but an absolute http(s) address; `bad_scope`
 */
export function identifyByUrl(scope: Scope, url: unknown, options: UrlOptions = {}): WorkIdentity {
	const read = readScope(scope);
	const parsed = parse(url);
	const { username, password } = parsed;
	const credentials = password === '' ? username : `${username}:${password}`;
	const origin = credentials === '' ? parsed.host : `${credentials}@${parsed.host}`;
	const rest =
		parsed.pathname +
		canonicalQuery(parsed.search, options.trackingParameters ?? DEFAULT_TRACKING_PARAMETERS) +
		(options.keepFragment === true || isRoute(parsed.hash) ? parsed.hash : '');
	const canonical = upperPercent(`${parsed.protocol}//${origin}${rest}`);
	return identityOf(read, canonical, credentials === '' ? canonical : maskCredentials(canonical));
}

function parse(url: unknown): URL {
	const field = 'url';
	const given: unknown = url instanceof URL ? url.href : url;
	if (given === undefined || given === null) {
		throw new IdentityRefusal(
			'missing',
			field,
			'The URL is missing in this item.',
			'Check the spelling of the field, or choose one that every item has.',
		);
	}
	if (typeof given !== 'string') throw notAUrl(given);
	const text = cleanText(given, field);
	refuseEmptyText(text, field, false);
	refuseUnresolved(text, field);
	// The parser would also take "http:page", "https:/host" and "https:///page", and guess.
	if (!/^https?:\/\/[^/\\?#]/i.test(text)) throw notAUrl(text);
	let parsed: URL;
	try {
		parsed = new URL(text);
	} catch {
		throw notAUrl(text);
	}
	// all items whose host was lost would be one page
	if (LOST_HOST.test(parsed.hostname)) throw notAUrl(text);
	return parsed;
}

/** `undefined`, `null.shop.example`, and hosts of which a part is missing: `.shop.example`, `www..example`. */
const LOST_HOST = /^(?:undefined|null|nan)(?:\.|$)|^\.|\.\./;

function notAUrl(value: unknown): IdentityRefusal {
	return new IdentityRefusal(
		'not_a_url',
		'url',
		`${shown(value)} is not a complete web address.`,
		'Give the whole address, beginning with https:// or http://, or use a key field instead.',
	);
}

function isRoute(hash: string): boolean {
	return hash.startsWith('#/') || hash.startsWith('#!');
}

function canonicalQuery(search: string, tracking: readonly string[]): string {
	if (search.length < 2) return '';
	const isTracking = trackingTest(tracking);
	const pairs = search
		.slice(1)
		.split('&')
		.filter((pair) => pair !== '')
		.map((pair) => ({ name: upperPercent(pair.split('=', 1)[0]), pair }))
		.filter(({ name }) => !isTracking(decoded(name)));
	// Sorting is stable: `p=2&p=1` keeps its order, which servers may read (case 97).
	pairs.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
	return pairs.length === 0 ? '' : `?${pairs.map(({ pair }) => pair).join('&')}`;
}

let lastTracking: { list: string; test: (name: string) => boolean } | null = null;

function trackingTest(patterns: readonly string[]): (name: string) => boolean {
	const list = patterns.join('\n');
	if (lastTracking !== null && lastTracking.list === list) return lastTracking.test;
	const spelled = patterns.map((pattern) => pattern.trim().toLowerCase()).filter(Boolean);
	const names = new Set(spelled.filter((pattern) => !pattern.includes('*')));
	const globs = spelled.filter((pattern) => pattern.includes('*')).map(globOf);
	const test = (name: string): boolean => {
		const lower = name.toLowerCase();
		return names.has(lower) || globs.some((glob) => glob.test(lower));
	};
	lastTracking = { list, test };
	return test;
}

function decoded(name: string): string {
	try {
		return decodeURIComponent(name);
	} catch {
		return name;
	}
}

function upperPercent(text: string): string {
	return text.replace(/%[0-9a-f]{2}/gi, (code) => code.toUpperCase());
}
