import type { Parameters } from './parameters';

export interface NumberRange {
	/** The field as the editor shows it. */
	label: string;
	least: number;
	most: number;
	whole?: boolean;
}

/** A number parameter. Throws, naming the field and its range, for anything else. */
export function readNumber(
	parameters: Parameters,
	itemIndex: number,
	name: string,
	range: NumberRange,
): number {
	return checkedNumber(parameters.read<unknown>(name, itemIndex, undefined), range);
}

/**
 * Only a number, or text that is one: null, an empty list and false would count as 0, and a purge of what is older than
 * 0 days takes everything.
 */
export function checkedNumber(given: unknown, { label, least, most, whole }: NumberRange): number {
	const isText = typeof given === 'string' && given.trim() !== '';
	const value = typeof given === 'number' || isText ? Number(given) : NaN;
	if (value >= least && value <= most && (whole !== true || Number.isInteger(value))) return value;
	const kind = whole === true ? 'a whole number' : 'a number';
	const shown = JSON.stringify(given) ?? 'undefined';
	throw new Error(`${label} must be ${kind} from ${least} to ${most}, not ${shown.slice(0, 50)}.`);
}
