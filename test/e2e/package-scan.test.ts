import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { page, ROOT, tables } from '../docs/pages';

/**
 * Needs no n8n; it stands here because it takes a while.
 *
 * The strict rule sets that n8n's package scan applies to the source of a published package, and like the scan without regard
 * to comments that switch a rule off. ESLint's configuration is an ES module, which Jest's own module system does not load.
 */
const LINT = `
import { ESLint } from 'eslint';
import { config } from '@n8n/node-cli/eslint';
const eslint = new ESLint({ allowInlineConfig: false, overrideConfigFile: true, overrideConfig: config });
const results = await eslint.lintFiles(['package.json', 'nodes/**/*.ts', 'credentials/**/*.ts']);
const rules = results.flatMap(({ messages }) => messages.map(({ ruleId }) => ruleId));
console.log(JSON.stringify({ files: results.length, rules: [...new Set(rules)].sort() }));
`;

test('n8n’s strict rules find what the security page says they find, and nothing else (case 144)', async () => {
	// n8n's rules look at file names otherwise when they take themselves for tested
	const env: NodeJS.ProcessEnv = { ...process.env };
	delete env.NODE_ENV;
	const { stdout } = await promisify(execFile)(
		process.execPath,
		['--input-type=module', '-e', LINT],
		{ cwd: ROOT, env },
	);
	const { files, rules } = JSON.parse(stdout) as { files: number; rules: string[] };
	expect(files).toBeGreaterThan(50);
	const said = tables(page('docs/security.md'))
		.filter(({ headings }) => headings[0] === 'rule of the scan')
		.flatMap(({ rows }) =>
			rows.map(([first]) => `@n8n/community-nodes/${first.replace(/`/g, '')}`),
		);
	expect(rules).toEqual(said.sort());
});
