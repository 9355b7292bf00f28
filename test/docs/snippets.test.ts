import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Script } from 'node:vm';

import { blocks, page, pages, ROOT } from './pages';

const all = pages().flatMap((each) => blocks(each).map((block) => ({ file: each.file, ...block })));
const of = (...languages: string[]) => all.filter(({ language }) => languages.includes(language));

/** Programs may wait and return at their top level. */
const compile = (text: string) => new Script(`(async () => {${text}\n})`);

test('every JavaScript block compiles', () => {
	expect(of('js').length).toBeGreaterThan(0);
	for (const { file, text } of of('js')) {
		expect([file, () => compile(text)]).toEqual([file, expect.any(Function)]);
		compile(text);
	}
	expect(() => compile('const = 1')).toThrow();
});

test('every JSON block, and every JSON object in a code span, parses', () => {
	const spans = pages().flatMap(({ file, markdown }) =>
		[...markdown.matchAll(/`(\{"[^"`\n]+": [^`\n]*\})`/g)].map(([, text]) => ({ file, text })),
	);
	expect(spans.length).toBeGreaterThan(2);
	for (const { file, text } of [...of('json'), ...spans]) {
		if (text.includes('…')) continue;
		let problem: unknown = null;
		try {
			JSON.parse(text);
		} catch (error) {
			problem = error;
		}
		expect([file, text, problem]).toEqual([file, text, null]);
	}
});

/** What Mermaid would refuse in a sequence diagram: an end too many or too few, somebody who was not introduced. */
function problemsOf(diagram: string): string[] {
	const lines = diagram.split('\n').map((line) => line.trim());
	const known = new Set(lines.flatMap((line) => /^participant (\w+)/.exec(line)?.[1] ?? []));
	const opened = lines.filter((line) => /^(alt|opt|loop|par) /.test(line)).length;
	const ended = lines.filter((line) => line === 'end').length;
	const used = lines.flatMap((line) => {
		const arrow = /^(\w+)-{1,2}>>(\w+):/.exec(line);
		return arrow === null ? (/^Note over (\w+):/.exec(line)?.slice(1) ?? []) : arrow.slice(1);
	});
	return [
		...(opened === ended ? [] : [`${opened} opened, ${ended} ended`]),
		...used.filter((name) => !known.has(name)),
	];
}

test('every sequence diagram closes what it opens, and introduces who speaks', () => {
	const diagrams = of('mermaid').filter(({ text }) => text.startsWith('sequenceDiagram'));
	expect(diagrams.length).toBeGreaterThan(3);
	for (const { file, text } of diagrams) expect([file, problemsOf(text)]).toEqual([file, []]);
	expect(problemsOf('sequenceDiagram\nparticipant A\nopt x\nA->>B: y')).toEqual([
		'1 opened, 0 ended',
		'B',
	]);
});

test('blocks name their language', () => {
	const known = [
		'sh',
		'sql',
		'text',
		'text signature',
		'js',
		'json',
		'python',
		'mermaid',
		'dockerfile',
		'',
	];
	expect(all.filter(({ language }) => !known.includes(language))).toEqual([]);
});

test('the README fits the package: its supported versions are those of package.json', () => {
	const { engines } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
		engines: { node: string };
	};
	expect(page('README.md').markdown).toContain(
		`Node.js ${engines.node.replace('>=', '')} or newer`,
	);
});
