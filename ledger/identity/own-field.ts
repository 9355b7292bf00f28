const HEX_64 = /^[0-9a-f]{64}$/;
const SUBJECTS = ['workId', 'decisionKey', 'recordId', 'messageRef'];

/**
 * Whether a value was put on an item by one of this package's nodes (`work`, `decision`, …): it
 * has a status and the hash of a work, decision, record or message. Users may rename the field, so its name does
 * not tell. Such a value carries a fresh token, which would make every content hash unique.
 */
export function isOwnField(value: unknown): boolean {
	if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
	const prototype: unknown = Object.getPrototypeOf(value);
	if (
		prototype !== null &&
		prototype !== Object.prototype &&
		Object.getPrototypeOf(prototype) !== null // Object.prototype of another realm
	) {
		return false;
	}
	return (
		typeof own(value, 'status') === 'string' && SUBJECTS.some((name) => isHash(own(value, name)))
	);
}

function own(holder: object, name: string): unknown {
	return Object.prototype.hasOwnProperty.call(holder, name)
		? (holder as Record<string, unknown>)[name]
		: undefined;
}

function isHash(value: unknown): boolean {
	return typeof value === 'string' && value.length === 64 && HEX_64.test(value);
}
