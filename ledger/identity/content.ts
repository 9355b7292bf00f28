import stableStringify from 'fast-json-stable-stringify';

import type { Plain } from './canonical';
import { readPlain } from './canonical';
import type { ReadingOptions } from './reading';
import { IdentityRefusal } from './refusal';
import type { Scope, WorkIdentity } from './scope';
import { identityOf, readScope } from './scope';
import { isInvisible, isMistake, refuseEmptyText } from './text';
import { DEFAULT_VOLATILE_FIELDS, volatileFields } from './volatile-fields';

export interface ContentOptions extends ReadingOptions {
	/**
	 * Fields that do not count: names (any depth), paths from the root, both with `*`. Default:
	 * `DEFAULT_VOLATILE_FIELDS`; an empty list keeps all. Fields of this package never count.
	 */
	volatileFields?: readonly string[];
}

/**
 * The identity of work that has no key: equal content is equal work.
 *
 * @throws IdentityRefusal as `canonicalJson` does; `empty_content` when nothing is left to tell one
 * item from another; `bad_scope`
 */
export function identifyByContent(
	scope: Scope,
	content: unknown,
	options: ContentOptions = {},
): WorkIdentity {
	const read = readScope(scope);
	const volatile = volatileFields(options.volatileFields ?? DEFAULT_VOLATILE_FIELDS);
	const plain = readPlain(content, null, options, volatile);
	if (typeof plain === 'string') refuseEmptyText(plain, 'content', options.glued === true);
	if (saysNothing(plain)) {
		throw new IdentityRefusal(
			'empty_content',
			null,
			'The item holds nothing that tells it from others, once fields that change on each delivery ' +
				'are left out.',
			'Check that data arrives here (Always Output Data sends empty items), shorten the list of ' +
				'fields to leave out, or use a key field.',
		);
	}
	return identityOf(read, stableStringify(plain));
}

/** All such items would share one identity, and one result: nothing but null, empty texts, and lists and objects of them. */
function saysNothing(plain: Plain): boolean {
	if (plain === null) return true;
	if (typeof plain === 'string') return isInvisible(plain) || isMistake(plain);
	return typeof plain === 'object' && Object.values(plain).every(saysNothing);
}
