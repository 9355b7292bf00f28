import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { blocks, codeSpans, page, pages, ROOT, tables, type Page } from './pages';

const manifest = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
	version: string;
	bin: Record<string, string>;
	scripts: Record<string, string>;
	devDependencies: Record<string, string>;
};

/** npm's own; `start` and `test` are scripts. */
const OF_NPM = new Set(['audit', 'ci', 'install', 'ls', 'pack', 'publish']);

/** Lines that a reader would type: of shell and Docker blocks, and code spans that begin with a program. */
function commandsOf(of: Page): string[] {
	const typed = blocks(of)
		.filter(({ language }) => ['sh', 'bash', 'dockerfile'].includes(language))
		.flatMap(({ text }) => text.split('\n'));
	return [...typed, ...codeSpans(of)].flatMap((line) =>
		[...line.matchAll(/(?:^|&& |RUN )((?:npm|npx) [^&#>]+)/g)].map(([, command]) => command.trim()),
	);
}

/** Why a command cannot be typed as it stands; null where it can. */
function problemOf(command: string): string | null {
	const [program, ...words] = command.split(/\s+/);
	const own = words.slice(0, words.indexOf('--') < 0 ? undefined : words.indexOf('--'));
	const [first, second] = own.filter((word) => !word.startsWith('-'));
	if (program === 'npx') {
		const known = first in manifest.bin || first in manifest.devDependencies;
		return known ? null : `no command "${first}"`;
	}
	const script = first === 'run' ? second : first;
	if (!(script in manifest.scripts)) {
		return first !== 'run' && OF_NPM.has(first) ? null : `no script "${script}"`;
	}
	const given = words.slice(own.length).filter((word) => /^--./.test(word));
	const file = /^node (\S+)/.exec(manifest.scripts[script])?.[1];
	if (given.length > 0 && file === undefined) return `"${script}" takes no options`;
	const unknown = given.filter((option) => !takes(file as string, option));
	return unknown.length > 0 ? `"${script}" knows no ${unknown.join(', ')}` : null;
}

/** A program's own help, or its table of options, names the option. */
function takes(file: string, option: string): boolean {
	const source = readFileSync(path.join(ROOT, file), 'utf8');
	const name = option.replace(/^--/, '').split('=')[0];
	return new RegExp(`--${name}\\b|^\\s*'?${name}'?: \\{`, 'm').test(source);
}

test.each(pages().map((each) => [each.file, each] as const))(
	'%s: every npm and npx command exists, with its options',
	(_, each) => {
		const problems = commandsOf(each).map((command) => [command, problemOf(command)]);
		expect(problems.filter(([, problem]) => problem !== null)).toEqual([]);
	},
);

test('commands are found, and wrong ones are noticed', () => {
	expect(pages().flatMap(commandsOf).length).toBeGreaterThan(25);
	const markdown =
		'```sh\nnpm run nothing  # no\nnpx nobody check x\ncd a && npm start -- --nowhere\n```';
	expect(commandsOf({ file: 'x', markdown }).map(problemOf)).toEqual([
		'no script "nothing"',
		'no command "nobody"',
		'"start" knows no --nowhere',
	]);
});

test.each([
	['docs/proof.md', 'scripts/prove.js'],
	['docs/workflow-check.md', 'check/command.ts'],
])('%s: every option of its table is one of %s', (file, program) => {
	const options = tables(page(file))
		.filter(({ headings }) => headings[0] === 'option')
		.flatMap(({ rows }) => rows.flatMap(([first]) => first.match(/--[a-z-]+/g) ?? []));
	expect(options.length).toBeGreaterThan(3);
	expect(options.filter((option) => !takes(program, option))).toEqual([]);
});

test('files that shell blocks run are there', () => {
	const named = pages().flatMap((each) =>
		blocks(each)
			.filter(({ language }) => language === 'sh')
			.flatMap(({ text }) => text.match(/\b(?:test|scripts)\/[\w/.-]+\.\w+/g) ?? []),
	);
	expect(named).toContain('test/sql/claim.py');
	expect(named.filter((file) => !existsSync(path.join(ROOT, file)))).toEqual([]);
});

test('a version of this package that a page installs is the present one', () => {
	const versions = pages().flatMap(({ markdown }) =>
		[...markdown.matchAll(/n8n-nodes-idempotency@(\d[\w.-]*)/g)].map(([, version]) => version),
	);
	expect(new Set(versions)).toEqual(new Set([manifest.version]));
});
