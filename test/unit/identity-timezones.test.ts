import { execFileSync } from 'node:child_process';
import {
	mkdtempSync,
	readdirSync,
	readFileSync,
	rmSync,
	symlinkSync,
	writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { transformSync } from '@swc/core';

/**
 * A process reads its time zone once, so each zone needs a process of its own. They run the
 * module's compiled text, not a build that may be older than the source.
 */
const ROOT = join(__dirname, '..', '..');
const SOURCE = join(ROOT, 'ledger', 'identity');

const CHILD = `
	const { canonicalJson, identifyByKey } = require('./index.js');
	const { DateTime } = require('luxon');
	const scope = { kind: 'slot' };
	const key = (value, options) => identifyByKey(scope, [{ name: 'at', value }], options).workId;
	const options = { readDates: true };
	console.log(JSON.stringify({
		offset: new Date(Date.UTC(2026, 0, 1)).getTimezoneOffset(),
		ids: [
			key(new Date(Date.UTC(2026, 0, 1, 10))),
			key(DateTime.fromMillis(Date.UTC(2026, 0, 1, 10))),
			key('2026-01-01T11:00:00+01:00', options),
			key('2026-01-01T10:00:00Z', options),
		],
		texts: [
			canonicalJson({ at: new Date(0), luxon: DateTime.fromMillis(0) }),
			canonicalJson(['2025-08-19T00:00:00', '2025-08-19', '2025-03-30T02:30:00'], options),
		],
	}));
`;

describe('identities on machines in different time zones (case 99)', () => {
	let folder: string;

	beforeAll(() => {
		folder = mkdtempSync(join(tmpdir(), 'identity-'));
		for (const name of readdirSync(SOURCE)) {
			const { code } = transformSync(readFileSync(join(SOURCE, name), 'utf8'), {
				jsc: { parser: { syntax: 'typescript' }, target: 'es2022' },
				module: { type: 'commonjs' },
			});
			writeFileSync(join(folder, name.replace(/\.ts$/, '.js')), code);
		}
		writeFileSync(join(folder, 'child.js'), CHILD);
		symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
	});

	afterAll(() => rmSync(folder, { recursive: true }));

	const inZone = (TZ: string): { offset: number; ids: string[]; texts: string[] } =>
		JSON.parse(
			execFileSync(process.execPath, [join(folder, 'child.js')], {
				env: { ...process.env, TZ },
				encoding: 'utf8',
			}),
		) as { offset: number; ids: string[]; texts: string[] };

	test('one instant is one id, and times without a zone are left as they are', () => {
		const zones = ['UTC', 'America/Chicago', 'Asia/Kolkata'].map(inZone);
		expect(zones.map(({ offset }) => offset)).toEqual([0, 360, -330]);
		for (const { ids, texts } of zones) {
			expect(new Set(ids).size).toBe(1);
			expect(ids).toEqual(zones[0].ids);
			expect(texts).toEqual([
				'{"at":"1970-01-01T00:00:00.000Z","luxon":"1970-01-01T00:00:00.000Z"}',
				'["2025-08-19T00:00:00","2025-08-19","2025-03-30T02:30:00"]',
			]);
		}
	});
});
