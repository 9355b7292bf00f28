/** Messages in the troubleshooting page are those that the code gives. */

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { page, ROOT, tables } from './pages';

/** What can differ in a message. */
const GAP = '…';
const N8N = 'From n8n itself';

/** Texts of the sources as they come out: pieces joined, quotes unescaped, what is put in as a gap; and as they stand. */
function said(folder: string): string {
	return readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
		.filter((file) => /\.(ts|sql)$/.test(file))
		.map((file) => readFileSync(path.join(ROOT, folder, file), 'utf8'))
		.map((text) => text.replace(/(['`])\s*\+\s*(['`])/g, '').replace(/\\'/g, "'"))
		.flatMap((text) => [text, text.replace(/\$\{(?:[^{}]|\{[^{}]*\})*\}/g, GAP)])
		.join('\n');
}

const sources = ['nodes', 'ledger', 'migrations'].map(said).join('\n');

const quoted = tables(page('docs/troubleshooting.md'))
	.filter(({ headings, under }) => headings[0] === 'message' && !under.includes(N8N))
	.flatMap(({ rows }) => rows.map(([first]) => /^`(.+)`$/.exec(first)?.[1] ?? first));

/** Pieces between the gaps that say something. */
const pieces = (message: string) =>
	message
		.split(GAP)
		.map((piece) => piece.replace(/^["'()., ]+|["'()., ]+$/g, ''))
		.filter((piece) => piece.length > 3);

test('every message of the page is one of the code', () => {
	expect(quoted.length).toBeGreaterThan(60);
	for (const message of quoted) {
		const missing = pieces(message).filter((piece) => !sources.includes(piece));
		expect([message, missing]).toEqual([message, []]);
		expect([message, pieces(message).length]).not.toEqual([message, 0]);
	}
});

test('a message that the code does not give would be noticed', () => {
	expect(pieces('The ledger’s … is on fire.').filter((piece) => sources.includes(piece))).toEqual(
		[],
	);
});

test('what the ledger says of its database is all on the page', () => {
	const source = readFileSync(path.join(ROOT, 'ledger', 'errors.ts'), 'utf8');
	const problems = [...source.matchAll(/say\(\s*'[a-z_]+',\s*(['`])((?:(?!\1)[^])*)\1,/g)].map(
		([, , text]) => text.replace(/\$\{[^}]*\}/g, GAP),
	);
	expect(problems.length).toBeGreaterThan(20);
	expect(problems.filter((problem) => !quoted.includes(problem))).toEqual([]);
});

test('what n8n says of a missing package is what n8n says', () => {
	const [[first]] = tables(page('docs/troubleshooting.md')).find(({ under }) => under.includes(N8N))
		?.rows as string[][];
	const n8n = readFileSync(
		path.join(
			path.dirname(require.resolve('n8n-core/package.json')),
			'dist/errors/unrecognized-node-type.error.js',
		),
		'utf8',
	);
	expect(n8n).toContain('`Unrecognized node type: ${packageName}.${nodeType}`');
	expect(first).toBe('`Unrecognized node type: n8n-nodes-idempotency.claimWork`');
});
