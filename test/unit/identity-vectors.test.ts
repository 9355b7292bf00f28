import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import type {
	ContentOptions,
	KeyPart,
	Scope,
	UrlOptions,
	WorkIdentity,
} from '../../ledger/identity';
import {
	IdentityRefusal,
	identifyByContent,
	identifyByKey,
	identifyByUrl,
	workIdOf,
} from '../../ledger/identity';

interface Vector {
	name: string;
	case?: number;
	mode: 'key' | 'content' | 'url';
	scope: Scope;
	input: unknown;
	options?: ContentOptions & UrlOptions;
	canonical?: string;
	workId?: string;
	key?: string;
	refusedWith?: string;
}

const vectors = JSON.parse(
	readFileSync(join(__dirname, '..', 'vectors', 'identity.json'), 'utf8'),
) as Vector[];

function identify({ mode, scope, input, options }: Vector): WorkIdentity {
	if (mode === 'key') return identifyByKey(scope, input as KeyPart[], options);
	if (mode === 'content') return identifyByContent(scope, input, options);
	return identifyByUrl(scope, input, options);
}

function refusalOf(vector: Vector): IdentityRefusal {
	try {
		identify(vector);
	} catch (error) {
		if (error instanceof IdentityRefusal) return error;
		throw error;
	}
	throw new Error('was not refused');
}

const title = (vector: Vector): [string, Vector] => [
	`${vector.mode}: ${vector.name}${vector.case === undefined ? '' : ` (case ${vector.case})`}`,
	vector,
];

describe('the published vectors', () => {
	test.each(vectors.filter(({ refusedWith }) => refusedWith === undefined).map(title))(
		'%s',
		(_name, vector) => {
			const identity = identify(vector);
			expect(identity.canonical).toBe(vector.canonical);
			expect(identity.workId).toBe(vector.workId);
			expect(identity.fingerprint).toBe(vector.workId?.slice(0, 10));
			if (vector.key !== undefined) expect(identity.key).toBe(vector.key);
		},
	);

	test.each(vectors.filter(({ refusedWith }) => refusedWith !== undefined).map(title))(
		'refused: %s',
		(_name, vector) => {
			const refusal = refusalOf(vector);
			expect(refusal.code).toBe(vector.refusedWith);
			expect(refusal.message.endsWith(refusal.cure)).toBe(true);
		},
	);

	test('anybody computes the id of one key without this package', () => {
		const { workId } = identifyByKey({ kind: 'invoice' }, [{ name: 'order_id', value: 1001 }]);
		expect(workId).toBe(createHash('sha256').update('invoice:v1:1001').digest('hex'));
		expect(workId).toBe(workIdOf('invoice', 'v1', '1001'));
		expect(vectors[0].workId).toBe(workId);
	});

	test('every vector has a name of its own', () => {
		const names = vectors.map(({ mode, name }) => `${mode} ${name}`);
		expect(new Set(names).size).toBe(names.length);
	});
});
