import { types } from 'node:util';

import { IdentityRefusal, fieldWords } from './refusal';

interface LuxonDateTime {
	isLuxonDateTime: true;
	isValid?: boolean;
	toUTC(): { toISO(): string | null };
}

/**
 * A Date or Luxon DateTime as UTC ISO text with milliseconds (`2026-01-01T10:00:00.000Z`), the
 * same on machines in every time zone; `null` for anything else. Both are recognised by what they
 * are, not by class: they may come from another copy of Luxon or from n8n's expression sandbox.
 *
 * @throws IdentityRefusal `invalid_date`
 */
export function momentText(value: object, field: string | null): string | null {
	if (types.isDate(value)) {
		const time = Date.prototype.getTime.call(value);
		if (Number.isNaN(time)) throw invalidDate(field);
		return new Date(time).toISOString();
	}
	if (!isLuxonDateTime(value)) return null;
	const iso = value.isValid === false ? null : value.toUTC().toISO();
	const time = typeof iso === 'string' ? Date.parse(iso) : Number.NaN;
	if (Number.isNaN(time)) throw invalidDate(field);
	return new Date(time).toISOString();
}

function isLuxonDateTime(value: object): value is LuxonDateTime {
	const candidate = value as Partial<Record<'isLuxonDateTime' | 'toUTC' | 'toISO', unknown>>;
	return (
		candidate.isLuxonDateTime === true &&
		typeof candidate.toUTC === 'function' &&
		typeof candidate.toISO === 'function'
	);
}

function invalidDate(field: string | null): IdentityRefusal {
	return new IdentityRefusal(
		'invalid_date',
		field,
		`${fieldWords(field, 'The date')} is an invalid date.`,
		'Check the format it is read with, or use the original text instead of a date.',
	);
}

const INSTANT =
	/^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?(Z|[+-]\d\d(?::?\d\d)?)$/i;

/**
 * ISO 8601 text that names one instant, as UTC ISO text; `null` for any other text. Without a
 * zone it names none, and this machine's zone must not decide (case 45). Digits beyond the
 * millisecond are kept: two instants must not become one.
 */
export function instantText(text: string): string | null {
	if (text.length < 17 || text.length > 64) return null;
	const found = INSTANT.exec(text);
	if (found === null) return null;
	const [, year, month, day, hour, minute, second = '00', fraction = '', zone] = found;
	const local = Date.UTC(+year, +month - 1, +day, +hour, +minute, +second);
	const stamp = `${year}-${month}-${day}T${hour}:${minute}:${second}`;
	// Date.UTC rolls 30 February over and reads the years 0 to 99 as 19xx: neither is that instant.
	if (new Date(local).toISOString().slice(0, 19) !== stamp) return null;
	let offsetMinutes = 0;
	if (zone.toUpperCase() !== 'Z') {
		const minutes = Number(zone.slice(-2));
		const hours = Number(zone.slice(1, 3));
		offsetMinutes = zone.length > 3 ? hours * 60 + minutes : hours * 60;
		if (hours > 23 || (zone.length > 3 && minutes > 59)) return null;
		if (zone.startsWith('-')) offsetMinutes = -offsetMinutes;
	}
	const iso = new Date(local - offsetMinutes * 60_000).toISOString();
	const digits = fraction.replace(/0+$/, '').padEnd(3, '0');
	return iso.replace(/\.\d{3}Z$/, `.${digits}Z`);
}
