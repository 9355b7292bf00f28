import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { anchors, links, page, pages, prose, ROOT, type Page } from './pages';

const all = pages();
const anchorsOf = new Map(all.map((each) => [each.file, anchors(each)]));

/** What is wrong with a page's own links: to files that are not there, and to headings that are not. */
function broken(of: Page): string[] {
	return links(of).filter((target) => {
		if (/^https:\/\//.test(target)) return false;
		const [file, anchor] = target.split('#');
		const linked =
			file === ''
				? of.file
				: path.posix.normalize(path.posix.join(path.posix.dirname(of.file), file));
		if (linked.startsWith('..') || !existsSync(path.join(ROOT, linked))) return true;
		if (anchor === undefined) return false;
		return !(anchorsOf.get(linked) ?? anchors(page(linked))).has(anchor);
	});
}

test.each(all.map((each) => [each.file, each] as const))(
	'%s: every link leads to a file and a heading that are there',
	(_, each) => {
		expect(broken(each)).toEqual([]);
	},
);

test('a link to a missing file, a missing heading or out of the checkout is noticed', () => {
	const markdown =
		'[a](no.md) [b](README.md#no) [c](#no) [d](../x.md) [e](http://x) [f](README.md)';
	expect(broken({ file: 'MADE-UP.md', markdown })).toEqual([
		'no.md',
		'README.md#no',
		'#no',
		'../x.md',
		'http://x',
	]);
});

test('every page of docs/ is in its index, and the index is linked from the README', () => {
	const index = new Set(links(page('docs/README.md')).map((target) => target.split('#')[0]));
	const listed = all
		.filter(({ file }) => file.startsWith('docs/') && file !== 'docs/README.md')
		.map(({ file }) => file.slice('docs/'.length));
	expect(listed.filter((file) => !index.has(file))).toEqual([]);
	expect(listed.length).toBeGreaterThan(15);
	expect(links(page('README.md'))).toContain('docs/README.md');
});

test('every workflow is named in the README, and every one that a page names is there', () => {
	const shipped = readdirSync(path.join(ROOT, 'workflows'));
	const named = (of: Page) =>
		[...prose(of).matchAll(/\bworkflows\/([\w.-]+\.json)/g)].map(([, file]) => file);
	expect(shipped.filter((file) => !named(page('README.md')).includes(file))).toEqual([]);
	for (const each of all.filter(({ file }) => !file.startsWith('docs/workflow-check'))) {
		const missing = named(each).filter((file) => !shipped.includes(file));
		expect([each.file, missing]).toEqual([each.file, []]);
	}
});

test('what nodes and credential link to is a heading of the README', () => {
	const sources = ['nodes', 'credentials'].flatMap((folder) =>
		readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
			.filter((file) => /\.(ts|json)$/.test(file))
			.map((file) => readFileSync(path.join(ROOT, folder, file), 'utf8')),
	);
	const linked = sources.flatMap((text) =>
		[...text.matchAll(/github\.com\/n8n-nodes-idempotency\/n8n-nodes-idempotency([^'"\s]*)/g)].map(
			([, rest]) => rest,
		),
	);
	expect(linked.length).toBeGreaterThan(6);
	for (const rest of linked) {
		const file = /^\/blob\/[^/]+\/([^#]+)/.exec(rest)?.[1] ?? 'README.md';
		const anchor = rest.split('#')[1] ?? 'readme';
		expect([rest, existsSync(path.join(ROOT, file))]).toEqual([rest, true]);
		expect([rest, anchor === 'readme' || anchors(page(file)).has(anchor)]).toEqual([rest, true]);
	}
});
