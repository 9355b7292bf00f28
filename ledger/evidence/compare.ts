import { instantText, momentText } from '../identity/moments';
import { numberFromText } from '../identity/reading';
import { isExact } from './present';

export type Comparison = 'eq' | 'gt' | 'gte' | 'lt' | 'lte';

/** A value as it was read, or why it was not. */
export type Reading<T> = { value: T } | { problem: string };

export function holds(order: number, comparison: Comparison): boolean {
	switch (comparison) {
		case 'eq':
			return order === 0;
		case 'gt':
			return order > 0;
		case 'gte':
			return order >= 0;
		case 'lt':
			return order < 0;
		case 'lte':
			return order <= 0;
	}
}

/** Numbers, and text in JSON's number notation that a number holds exactly. "12,5", "1,000" and "007" are none. */
export function readNumber(given: unknown): Reading<number> {
	if (typeof given === 'number' && isExact(given)) return { value: given };
	if (typeof given === 'bigint' && isExact(Number(given))) return { value: Number(given) };
	const value = typeof given === 'string' ? numberFromText(given.trim()) : null;
	if (value !== null) return { value };
	return {
		problem:
			typeof given === 'number' || typeof given === 'bigint'
				? 'is a number that was rounded before it came here'
				: 'is not a number such as 12.5',
	};
}

/** A moment as UTC ISO text without its Z, or a calendar day; both compare as texts. */
export type PointInTime = { moment: string } | { day: string };

const DAY = /^\d{4}-\d\d-\d\d$/;
const LOCAL = /^(\d{4}-\d\d-\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(\.\d+)?)?$/;

/**
 * Dates that can be read in one way only: a date value, ISO text with its zone, a day (`2026-01-31`), and with `zone`
 * (IANA, such as Europe/Berlin) ISO text without one. A number is none: nobody knows whether it counts seconds.
 */
export function readDate(given: unknown, zone: string | null): Reading<PointInTime> {
	if (typeof given === 'object' && given !== null) {
		try {
			const text = momentText(given, null);
			// a year beyond 9999 or before 0 has a sign and would not compare as text
			if (text !== null && /^\d/.test(text)) return { value: { moment: text.slice(0, -1) } };
		} catch {
			return { problem: 'is an invalid date' };
		}
	}
	if (typeof given !== 'string') {
		return { problem: 'is not a date such as 2026-01-31 or 2026-01-31T10:00:00Z' };
	}
	const text = given.trim();
	if (DAY.test(text)) {
		return isDay(text) ? { value: { day: text } } : { problem: 'is a day that no calendar has' };
	}
	const instant = instantText(text);
	if (instant !== null && /^\d/.test(instant)) return { value: { moment: instant.slice(0, -1) } };
	const local = LOCAL.exec(text);
	if (local === null) {
		return {
			problem:
				'is not a date that can be read in one way only, such as 2026-01-31 or 2026-01-31T10:00:00Z',
		};
	}
	if (zone === null) {
		return { problem: 'is a time without a time zone; set the time zone of the rule' };
	}
	const [, day, hours, minutes, seconds = '00', fraction = '.'] = local;
	const moment = momentIn(zone, `${day}T${hours}:${minutes}:${seconds}`);
	return moment === null
		? { problem: `is a time that does not exist, or exists twice, in ${zone}` }
		: { value: { moment: `${moment}.${fraction.slice(1).replace(/0+$/, '').padEnd(3, '0')}` } };
}

/** Below 0: the first is earlier. A day and a moment are compared as days in `zone`; without it they are not. */
export function compareDates(
	first: PointInTime,
	second: PointInTime,
	zone: string | null,
): Reading<number> {
	if ('moment' in first && 'moment' in second) return order(first.moment, second.moment);
	if ('day' in first && 'day' in second) return order(first.day, second.day);
	if (zone === null) {
		return {
			problem:
				'is a day and is compared with a moment, or the other way round; set the time zone of the rule',
		};
	}
	return order(dayOf(first, zone), dayOf(second, zone));
}

function order(first: string, second: string): Reading<number> {
	return { value: first < second ? -1 : first > second ? 1 : 0 };
}

export function isTimeZone(zone: string): boolean {
	try {
		new Intl.DateTimeFormat('en', { timeZone: zone });
		return true;
	} catch {
		return false;
	}
}

function isDay(text: string): boolean {
	const time = Date.parse(`${text}T00:00:00Z`);
	return !Number.isNaN(time) && new Date(time).toISOString().startsWith(text);
}

function dayOf(point: PointInTime, zone: string): string {
	if ('day' in point) return point.day;
	// to the millisecond: Date.parse does not take more digits on every engine
	return new Date(wallClock(Date.parse(`${point.moment.slice(0, 23)}Z`), zone))
		.toISOString()
		.slice(0, 10);
}

const clocks = new Map<string, Intl.DateTimeFormat>();

/** What a clock in the zone shows at this time, as if it were UTC; to the second. */
function wallClock(time: number, zone: string): number {
	let clock = clocks.get(zone);
	if (clock === undefined) {
		clock = new Intl.DateTimeFormat('en-US', {
			timeZone: zone,
			calendar: 'gregory',
			numberingSystem: 'latn',
			hourCycle: 'h23',
			year: 'numeric',
			month: 'numeric',
			day: 'numeric',
			hour: 'numeric',
			minute: 'numeric',
			second: 'numeric',
		});
		clocks.set(zone, clock);
	}
	const parts = Object.fromEntries(
		clock.formatToParts(time).map((part) => [part.type, part.value]),
	);
	const { year, month, day, hour, minute, second } = parts;
	return Date.UTC(+year, +month - 1, +day, +hour, +minute, +second);
}

const DAY_MS = 86_400_000;

/** The moment at which clocks in the zone show this time; null where none or two do (when clocks change). */
function momentIn(zone: string, local: string): string | null {
	const shown = Date.parse(`${local}Z`);
	if (Number.isNaN(shown) || !new Date(shown).toISOString().startsWith(local)) return null;
	const offsets = [shown - DAY_MS, shown + DAY_MS].map((time) => wallClock(time, zone) - time);
	const moments = [...new Set(offsets)]
		.map((offset) => shown - offset)
		.filter((moment) => wallClock(moment, zone) === shown);
	return moments.length === 1 ? new Date(moments[0]).toISOString().slice(0, 19) : null;
}
