import { DEFAULT_VOLATILE_FIELDS, VolatileFields } from '../../ledger/identity/volatile-fields';
import type { Rule } from '../finding';
import { fieldsOfKey, keyFieldNames } from '../knowledge/keys';
import { keysOf } from './keys-of';

const volatile = new VolatileFields(DEFAULT_VOLATILE_FIELDS);

/** A key from a field that tells about a delivery and not about the work. */
export const deliveryKey: Rule = {
	id: 'delivery-key',
	title: 'A key from a field that changes with each delivery',
	severity: 'error',
	*find(analysis) {
		for (const { node, key } of keysOf(analysis)) {
			const names = [...keyFieldNames(key), ...fieldsOfKey(key)];
			const found = names.filter((name) => volatile.hasName(name));
			if (found.length === 0) continue;
			yield {
				node,
				severity: 'error',
				message: `${key.where} uses ${found.map((name) => `"${name}"`).join(', ')}, which each delivery of the same work brings anew.`,
				twice: 'A redelivery has another key, so it counts as new work and is done again.',
				fix: 'Name the business object instead: order number, invoice number, record and stage. A time stamp of the record only where each change of it is work of its own.',
			};
		}
	},
};
