import { createHash } from 'crypto';
import stableStringify from 'fast-json-stable-stringify';

import { readField } from './identity';
import { readPlain } from './identity/canonical';
import { readableText } from './json-text';

/** Stands for a field the item lacks: absent differs from every value, null included. */
const ABSENT = 'absent';

/**
 * Digest per field that must not change under one key (case 106: the same refund with another amount). By canonical
 * JSON, so key order and spacing do not count. Throws `IdentityRefusal`, naming the field, for values that have none.
 */
export function matchDigests(
	record: Record<string, unknown>,
	fieldNames: readonly string[],
): Record<string, string> {
	return Object.fromEntries(
		fieldNames.map((name) => {
			const { found, value } = readField(record, name);
			const digest =
				found && value !== undefined
					? createHash('sha256')
							.update(stableStringify(readPlain(value, name, {})))
							.digest('hex')
					: ABSENT;
			return [readableText(name, 500), digest];
		}),
	);
}
