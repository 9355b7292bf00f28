import type { KeyPart } from './business-key';
import { parsePath } from './field-path';
import { momentText } from './moments';
import { shown } from './refusal';
import { DEFAULT_VOLATILE_FIELDS, VolatileFields } from './volatile-fields';

const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;

const RANDOM_FIELD = /(?:delivery|request|req|trace|span|message|msg|correlation)[\s_.-]*id$/i;
const UUID = /^[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const ISO_TIME = /\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)/g;

/** What JavaScript makes of a Date that is put into a text. */
const LOCAL_DATE =
	/\b(?:Sun|Mon|Tue|Wed|Thu|Fri|Sat) (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d\d \d{4} \d\d:\d\d:\d\d GMT[+-]\d{4}/;

const volatile = new VolatileFields(DEFAULT_VOLATILE_FIELDS);

/**
 * What looks wrong with a key that is not refused. Hints only: small order numbers may equal an
 * execution id, and record ids may be random. `now`: milliseconds since 1970.
 */
export function keyHints(
	key: string,
	parts: KeyPart[],
	context: { executionId?: string; now: number },
): string[] {
	const hints: string[] = [];
	const texts = [key, ...parts.map(({ value }) => valueText(value))];

	for (const { name } of parts) {
		if (isVolatileName(name)) {
			hints.push(
				`volatile field in key: ${shown(name)} usually changes with each delivery of the same ` +
					'work, so a duplicate would not be recognised',
			);
		}
	}
	const { executionId, now } = context;
	if (executionId !== undefined && executionId !== '' && texts.includes(executionId)) {
		hints.push(
			'not retry-safe: the key equals the id of this execution, and a retry has another id',
		);
	}
	if (texts.some((text) => holdsCurrentTime(text, now))) {
		hints.push(
			'not retry-safe: the key looks like the current time; use a fixed slot (such as the day) ' +
				'or a business number',
		);
	}
	if (
		parts.some(({ value }) => typeof value === 'string' && LOCAL_DATE.test(value.slice(0, 1000)))
	) {
		hints.push(
			"not retry-safe: the key holds a date as this machine's time zone writes it, and another worker may write it " +
				'otherwise: put .toISOString() behind it',
		);
	}
	for (const { name, value } of parts) {
		if (!isVolatileName(name) && RANDOM_FIELD.test(name) && looksRandom(valueText(value))) {
			hints.push(
				`${shown(name)} looks random: make sure that the sender repeats it when it repeats the ` +
					'same work',
			);
		}
	}
	return hints;
}

function isVolatileName(name: string): boolean {
	return volatile.hasName(parsePath(name)?.at(-1) ?? name);
}

function valueText(value: unknown): string {
	if (typeof value === 'string') return value.trim();
	if (typeof value === 'number' || typeof value === 'bigint') return String(value);
	if (typeof value !== 'object' || value === null) return '';
	try {
		return momentText(value, null) ?? '';
	} catch {
		return '';
	}
}

function holdsCurrentTime(text: string, nowMs: number): boolean {
	// Hints are for people: what stands behind 1,000 characters is not looked at.
	const start = text.slice(0, 1000);
	const epoch = (start.match(/\d+/g) ?? []).some(
		(digits) =>
			(digits.length === 13 && Math.abs(Number(digits) - nowMs) <= DAY_MS) ||
			(digits.length === 10 && Math.abs(Number(digits) * 1000 - nowMs) <= DAY_MS),
	);
	if (epoch) return true;
	return (start.match(ISO_TIME) ?? []).some(
		(time) => Math.abs(Date.parse(time.replace(' ', 'T')) - nowMs) <= MINUTE_MS,
	);
}

function looksRandom(text: string): boolean {
	if (UUID.test(text)) return true;
	if (/^[0-9a-f]{16,}$/i.test(text) && /\d/.test(text) && /[a-f]/i.test(text)) return true;
	return /^[\w~+/=-]{20,}$/.test(text) && /\d/.test(text) && /[a-z]/i.test(text);
}
