import { parsePath } from './field-path';

/**
 * Fields that tell about a delivery, not about the work; a list that the user edits. Case and
 * word separators do not matter: `received_at` is also `receivedAt` and `Received-At`.
 *
 * Left out on purpose, since they may tell one piece of work from another: `id`, `event_id`,
 * `message_id`, `idempotency_key`, `created_at`, `sent_at`, `delivered_at`, `attempt`, and the `webhook-id` header, which Standard
 * Webhooks keeps the same on each redelivery.
 */
export const DEFAULT_VOLATILE_FIELDS: readonly string[] = Object.freeze([
	// when it arrived here
	'received_at',
	'fetched_at',
	'retrieved_at',
	'scraped_at',
	'crawled_at',
	'ingested_at',
	'imported_at',
	'synced_at',
	'updated_at',
	'timestamp',
	// which delivery or request it was
	'request_id',
	'req_id',
	'correlation_id',
	'trace_id',
	'span_id',
	'parent_span_id',
	'delivery_id',
	'delivery_attempt',
	'redelivered',
	'retry_count',
	// n8n's own
	'execution_id',
	'execution_url',
	'execution_mode',
	'run_id',
	'resume_url',
	// headers of a webhook request
	'traceparent',
	'tracestate',
	'sentry-trace',
	// as names anywhere they would hit a suitcase and a spreadsheet cell
	'headers.baggage',
	'headers.b3',
	'x-b3-*',
	'x-datadog-*',
	'x-request-id',
	'x-correlation-id',
	'x-trace-id',
	'x-amzn-trace-id',
	'x-amzn-request-id',
	'x-cloud-trace-context',
	'x-request-start',
	'x-forwarded-for',
	'x-real-ip',
	'cf-ray',
	'cf-connecting-ip',
	'x-github-delivery',
	'x-shopify-webhook-id',
	'x-shopify-triggered-at',
	'x-slack-request-timestamp',
	'x-slack-signature',
	'x-slack-retry-num',
	'x-slack-retry-reason',
	'stripe-signature',
	'webhook-timestamp',
	'webhook-signature',
]);

interface Segment {
	/** Matches every name and every index. */
	any: boolean;
	exact: string;
	glob: RegExp | null;
}

/** How far a path pattern has matched above the place where the reader stands. */
interface Progress {
	pattern: readonly Segment[];
	next: number;
}

export type PathProgress = readonly Progress[];

const NO_PROGRESS: PathProgress = Object.freeze([]);
const REMEMBERED_NAMES = 5000;

/**
 * A compiled list of volatile fields. A plain name (`request_id`, `*_at`) counts at any depth. A
 * path (`meta.timestamp`, `meta.*`, `lines[*].id`) counts from the root of the content; a level of
 * a list may be left out (`lines.id`).
 */
export class VolatileFields {
	/** Where reading starts: nothing of any path has matched yet. */
	readonly start: PathProgress;

	private readonly names = new Set<string>();

	private readonly globs: RegExp[] = [];

	private readonly known = new Map<string, boolean>();

	constructor(patterns: readonly string[]) {
		const start: Progress[] = [];
		for (const raw of patterns) {
			const pattern = raw.trim();
			if (pattern === '') continue;
			const path = parsePath(pattern);
			if (path !== null && path.length > 1) {
				start.push({ pattern: path.map(segmentOf), next: 0 });
			}
			// A dotted pattern may also be the literal name of a field, as in flattened data.
			const name = path !== null && path.length === 1 ? path[0] : pattern;
			const { exact, glob } = segmentOf(name);
			if (glob === null) this.names.add(exact);
			else this.globs.push(glob);
		}
		this.start = start.length === 0 ? NO_PROGRESS : start;
	}

	/** Whether a field of this name is volatile wherever it stands. */
	hasName(name: string): boolean {
		const known = this.known.get(name);
		if (known !== undefined) return known;
		const spelled = spelling(name);
		const has = this.names.has(spelled) || this.globs.some((glob) => glob.test(spelled));
		// Content may use ids as field names: the memory must not grow with them.
		if (this.known.size < REMEMBERED_NAMES) this.known.set(name, has);
		return has;
	}

	/** What the paths make of a member or index: `null` when one of them ends here. */
	step(progress: PathProgress, name: string | number): PathProgress | null {
		if (progress.length === 0) return NO_PROGRESS;
		const spelled = typeof name === 'number' ? String(name) : spelling(name);
		const deeper: Progress[] = [];
		for (const step of progress) {
			const { pattern, next } = step;
			const segment = pattern[next];
			if (segment.any || segment.exact === spelled || segment.glob?.test(spelled) === true) {
				if (next === pattern.length - 1) return null;
				deeper.push({ pattern, next: next + 1 });
			} else if (typeof name === 'number') {
				// `lines.id` means each element's: the pattern waits while the list is passed.
				deeper.push(step);
			}
		}
		return deeper;
	}
}

let lastCompiled: { list: string; fields: VolatileFields } | null = null;

/** Compiles a list; the one used last is remembered, since a batch uses one list for all items. */
export function volatileFields(patterns: readonly string[]): VolatileFields {
	const list = patterns.join('\n');
	if (lastCompiled === null || lastCompiled.list !== list) {
		lastCompiled = { list, fields: new VolatileFields(patterns) };
	}
	return lastCompiled.fields;
}

function segmentOf(text: string): Segment {
	const exact = spelling(text);
	return { any: text === '*', exact, glob: text.includes('*') ? globOf(exact) : null };
}

/** A pattern with `*` for any run of characters, as a whole-text expression. */
export function globOf(pattern: string): RegExp {
	const source = pattern
		.split(/\*+/)
		.map((piece) => piece.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'))
		.join('.*');
	return new RegExp(`^${source}$`, 's');
}

/** One spelling for `receivedAt`, `Received-At`, `received at` and `received_at`. */
function spelling(name: string): string {
	return name
		.normalize('NFC')
		.replace(/([\p{Ll}\p{N}])(\p{Lu})/gu, '$1_$2')
		.replace(/(\p{Lu})(\p{Lu}\p{Ll})/gu, '$1_$2')
		.replace(/[\s_-]+/g, '_')
		.toLowerCase();
}
