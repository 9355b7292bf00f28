import { plainDecimal } from './text';

/**
 * How values are read. All are off by default, because each joins values that may differ: "7" and
 * 7, two notations of one instant, a list and the same list in another order.
 */
export interface ReadingOptions {
	/**
	 * Text in JSON's number notation is read as that number (`"1.50"` as 1.5). Text with leading
	 * zeros stays text (`"007"` is an article number), and so does one that a JavaScript number
	 * cannot hold exactly.
	 */
	readNumbers?: boolean;
	/** ISO 8601 text with a zone or offset is read as its UTC instant; without a zone it stays text. */
	readDates?: boolean;
	/** Text that holds a JSON object or array is read as one, at any depth. */
	readJson?: boolean;
	/** Each run of white space inside a text becomes one space. */
	collapseWhiteSpace?: boolean;
	/** The order of a list does not matter, nor how often it holds an element. */
	arraysAsSets?: boolean;
	/**
	 * For keys from an expression: also refuses text in which a lost value was glued to other text
	 * (`inv-undefined`). For fields read by name it stays off: a name may well be "null-7".
	 */
	glued?: boolean;
}

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/** The number that a text stands for, exactly; `null` when it stands for none. */
export function numberFromText(text: string): number | null {
	if (!NUMBER.test(text)) return null;
	const value = Number(text);
	if (!Number.isFinite(value)) return null;
	if (Number.isInteger(value) && !Number.isSafeInteger(value)) return null;
	// Digits that the number cannot hold would make two ids one, as in case 94.
	return digitsOf(text) === digitsOf(plainDecimal(value)) ? value : null;
}

/** Sign, significant digits and power of ten: equal for equal decimal values. */
function digitsOf(text: string): string {
	const [mantissa, exponent = '0'] = text.toLowerCase().split('e');
	const negative = mantissa.startsWith('-');
	const [whole, fraction = ''] = mantissa.slice(negative ? 1 : 0).split('.');
	const digits = (whole + fraction).replace(/^0+/, '');
	const significant = digits.replace(/0+$/, '');
	if (significant === '') return '0';
	const power = Number(exponent) - fraction.length + (digits.length - significant.length);
	return `${negative ? '-' : ''}${significant}e${power}`;
}

/** The object or array that a text holds as JSON; `undefined` when it holds none. */
export function jsonFromText(text: string): object | undefined {
	if (!text.startsWith('{') && !text.startsWith('[')) return undefined;
	try {
		return JSON.parse(text) as object;
	} catch {
		return undefined;
	}
}
