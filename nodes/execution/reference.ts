import { refuseEmptyText, refuseUnresolved } from '../../ledger';
import type { Parameters } from './parameters';
import { messageOf } from './problems';

/** A reference as it was given on the node. */
interface GivenReference {
	/** null: none was given, or what was given is none. */
	reference: string | null;
	/** Why what was given is no reference, or may not be the one that the target knows. */
	warning: string | null;
	/** The expression gave nothing at all. */
	isEmpty: boolean;
}

/**
 * An external reference as text. It proves that the effect landed, so that what a missing field leaves behind (`INV-` of
 * `INV-{{ $json.number }}`) must not pass for one: work that failed would count as done.
 */
export function readReference(
	parameters: Parameters,
	name: string,
	itemIndex: number,
): GivenReference {
	const given = parameters.read<unknown>(name, itemIndex, '');
	const reference = given === undefined || given === null ? '' : String(given).trim();
	const raw = parameters.raw(name);
	const isEmpty = reference === '';
	if (raw === undefined || raw === '') return { reference: null, warning: null, isEmpty: true };
	const none = (warning: string) => ({ reference: null, warning, isEmpty });
	if (isEmpty || typeof given === 'boolean' || reference === '[object Object]') {
		return none('External Reference gave no value, so none was stored. Check the field it names.');
	}
	const part = parameters.emptyPart(name, itemIndex);
	if (part !== null) {
		return none(
			`External Reference: ${part} gives nothing in this item, so no reference was stored. Check the field it names.`,
		);
	}
	try {
		refuseEmptyText(reference, 'External Reference', parameters.isExpression(name));
		refuseUnresolved(reference, 'External Reference');
	} catch (error) {
		return none(`${messageOf(error)} No reference was stored.`);
	}
	if (reference.length > 2_000) {
		return none(
			'External Reference is longer than 2000 characters, which is no identifier, so none was stored.',
		);
	}
	if (reference.includes('\0') || !reference.isWellFormed()) {
		return none(
			'External Reference holds a NUL character or half an emoji, which is no identifier, so none was stored.',
		);
	}
	const isRounded = typeof given === 'number' && !Number.isSafeInteger(given) && given % 1 === 0;
	return {
		reference,
		warning: isRounded
			? `External Reference is the number ${reference}, too big to be exact: the target calls it otherwise. Ask the API for a string ID.`
			: null,
		isEmpty,
	};
}

/** The same where a person says it: optional, and what is no reference is refused instead of left out. Throws. */
export function readOptionalReference(
	parameters: Parameters,
	name: string,
	itemIndex: number,
): string | undefined {
	const { reference, warning, isEmpty } = readReference(parameters, name, itemIndex);
	if (warning !== null && !isEmpty) throw new Error(warning);
	return reference ?? undefined;
}
