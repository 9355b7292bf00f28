/** The workflows of .github, read as GitHub reads them, and what may be published. */

import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';

import { problemsOf } from '../../scripts/release';
import { createTestFolder } from '../postgres/database';

const CHECKOUT = path.resolve(__dirname, '..', '..');
const FOLDER = path.join(CHECKOUT, '.github', 'workflows');

interface Step {
	uses?: string;
	run?: string;
	with?: Record<string, unknown>;
	env?: Record<string, string>;
}
interface Job {
	uses?: string;
	needs?: string;
	environment?: string;
	permissions?: Record<string, string>;
	'timeout-minutes'?: number;
	steps?: Step[];
}
interface Workflow {
	on: Record<string, { tags?: string[] } | null>;
	permissions: Record<string, string>;
	jobs: Record<string, Job>;
}

const read = (file: string) => readFileSync(path.join(CHECKOUT, file), 'utf8');
const files = readdirSync(FOLDER);
const texts = new Map(files.map((file) => [file, read(`.github/workflows/${file}`)]));
const workflows = new Map(
	// strict: a key that stands twice, or a tab, is an error as on GitHub
	[...texts].map(([file, text]) => [file, parse(text, { strict: true }) as Workflow]),
);
const workflow = (file: string) => workflows.get(file) as Workflow;
const stepsOf = ({ jobs }: Workflow) => Object.values(jobs).flatMap(({ steps = [] }) => steps);
const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };

/** What a step runs that this checkout does not have. */
function missing({ run = '' }: Step): string[] {
	return run.split(/\n|&&/).filter((command) => {
		const [program, first, second] = command.trim().split(/\s+/);
		if (program === 'npm') {
			if (first === 'run') return !(second in scripts);
			return !['ci', 'test', 'publish'].includes(first);
		}
		if (/^\.?[\w-]*\//.test(program)) return !existsSync(path.join(CHECKOUT, program));
		return !['sudo', ''].includes(program);
	});
}

describe.each(files)('%s', (file) => {
	test('runs only commands that are there', () => {
		expect(stepsOf(workflow(file)).flatMap(missing)).toEqual([]);
	});

	test('takes actions of GitHub’s own, each by its commit, and keeps no token in the clone', () => {
		const used = stepsOf(workflow(file)).filter(({ uses }) => uses !== undefined);
		expect(used.length).toBeGreaterThan(1);
		for (const { uses = '', with: settings = {} } of used) {
			expect(uses).toMatch(/^actions\/[a-z-]+@[0-9a-f]{40}$/);
			// for people, and for whoever raises it
			expect(texts.get(file)).toMatch(new RegExp(`${uses} # v\\d+\\.\\d+\\.\\d+\\n`));
			if (uses.startsWith('actions/checkout')) expect(settings['persist-credentials']).toBe(false);
			if (uses.startsWith('actions/setup-node')) {
				expect(settings['package-manager-cache']).toBe(false);
			}
		}
	});

	test('may read the code and nothing else, unless a job says more, and ends in time', () => {
		expect(workflow(file).permissions).toEqual({ contents: 'read' });
		for (const [name, { permissions, steps, ...job }] of Object.entries(workflow(file).jobs)) {
			const more = name === 'publish' ? { contents: 'read', 'id-token': 'write' } : undefined;
			expect([name, permissions]).toEqual([name, more]);
			if (steps !== undefined)
				expect([name, job['timeout-minutes']]).toEqual([name, expect.any(Number)]);
		}
	});

	test('knows no stored secret, and puts no text of an event into a command', () => {
		expect(texts.get(file)).not.toMatch(/secrets\.|_TOKEN|_authToken/);
		for (const { run } of stepsOf(workflow(file))) expect(run ?? '').not.toContain('${{');
	});
});

test('a command that is not there would be noticed', () => {
	const steps = ['npm run nothing', 'npm pack', '.ci/no', 'curl x', 'npm test && scripts/no.js'];
	expect(steps.flatMap((run) => missing({ run }))).toHaveLength(5);
});

test('CI runs all of .ci/run on the oldest Node.js that is promised, and the tests on a newer one', () => {
	const { jobs, on } = workflow('ci.yml');
	expect(Object.keys(on).sort()).toEqual(['pull_request', 'push', 'workflow_call']);
	const runs = Object.values(jobs).map(({ steps = [] }) => [
		steps.find(({ uses }) => uses?.startsWith('actions/setup-node'))?.with?.['node-version'],
		steps.at(-1)?.run,
	]);
	const { engines } = JSON.parse(read('package.json')) as { engines: { node: string } };
	const oldest = Number(engines.node.replace('>=', ''));
	expect(runs).toEqual([
		[oldest, '.ci/run'],
		[24, 'npm test'],
	]);
});

test('CI installs every program that .ci/run would have to install as root', () => {
	const wanted = [...read('.ci/run').matchAll(/missing\+=\(([^)]+)\)/g)].flatMap(([, names]) =>
		names.split(' '),
	);
	expect(wanted.length).toBeGreaterThan(4);
	const { steps = [] } = workflow('ci.yml').jobs.all;
	const commands = steps.map(({ run }) => run ?? '');
	const installed = commands.find((run) => run.includes('apt-get install'))?.split(' ') ?? [];
	// the browser comes with the runner
	expect(steps.at(-1)).toMatchObject({ run: '.ci/run', env: { CHROMIUM: expect.any(String) } });
	const browser = ['chromium', 'fonts-dejavu-core'];
	expect(wanted.filter((name) => !installed.includes(name))).toEqual(browser);
});

test('only a version’s tag publishes, after its own check, every test, the advisories and the build, with provenance', () => {
	const { on, jobs } = workflow('publish.yml');
	expect(on).toEqual({ push: { tags: ['v[0-9]+.[0-9]+.[0-9]+'] } });
	expect(Object.entries(jobs).map(([name, { needs }]) => [name, needs])).toEqual([
		['version', undefined],
		['test', 'version'],
		['publish', 'test'],
	]);
	expect(jobs.test).toMatchObject({ uses: './.github/workflows/ci.yml' });
	expect(jobs.publish.environment).toBe('npm');
	const commands = (job: Job) => (job.steps ?? []).flatMap(({ run }) => run ?? []);
	expect(commands(jobs.version)).toEqual(['npm run release -- "$GITHUB_REF_NAME"']);
	expect(commands(jobs.publish)).toEqual([
		'npm ci --ignore-scripts',
		'npm run advisories',
		'npm run build',
		'npm run release -- "$GITHUB_REF_NAME" --built',
		'npm publish --provenance --access public',
	]);
});

describe('what may be published', () => {
	const MANIFEST = {
		...{ version: '1.2.0', main: 'index.js', types: 'dist/index.d.ts', bin: { it: 'dist/cli.js' } },
		n8n: { nodes: ['dist/A.node.js'], credentials: ['dist/B.credentials.js'] },
	};
	const BUILT = ['index.js', 'dist/index.d.ts', 'dist/cli.js', ...MANIFEST.n8n.nodes];
	const CHANGELOG = '# Changelog\n\n## 1.2.0 (2026-03-01)\n\n- x\n\n## 1.1.0 (2026-01-01)\n';

	function checkout(changelog = CHANGELOG, locked = MANIFEST.version): string {
		const folder = createTestFolder('release');
		const write = (file: string, text: string) => writeFileSync(path.join(folder, file), text);
		mkdirSync(path.join(folder, 'dist'));
		write('package.json', JSON.stringify(MANIFEST));
		write('package-lock.json', JSON.stringify({ packages: { '': { version: locked } } }));
		write('CHANGELOG.md', changelog);
		for (const file of [...BUILT, ...MANIFEST.n8n.credentials]) write(file, '');
		return folder;
	}

	test('a tag that is the version, which the CHANGELOG has with its day, built', () => {
		expect(problemsOf(checkout(), { tag: 'v1.2.0', built: true })).toEqual([]);
	});

	test.each([
		['another tag', CHANGELOG, '1.2.0', '1.2.0', 'The tag is 1.2.0'],
		['another version', CHANGELOG, '1.2.0', 'v1.2.1', 'The tag is v1.2.1'],
		['another lock', CHANGELOG, '1.1.0', 'v1.2.0', 'package-lock.json has version 1.1.0'],
		['no heading', '## 1.1.0 (2026-01-01)', '1.2.0', 'v1.2.0', 'no heading "## 1.2.0'],
		['no day', '## 1.2.0', '1.2.0', 'v1.2.0', 'says "" where the day'],
		['not released', '## 1.2.0 (unreleased)', '1.2.0', 'v1.2.0', 'says "unreleased" where'],
		['newer above', `## 1.3.0 (2026-02-01)\n${CHANGELOG}`, '1.2.0', 'v1.2.0', 'has 1.3.0 above'],
	])('not %s', (_, changelog, locked, tag, problem) => {
		const folder = checkout(changelog, locked);
		expect(problemsOf(folder, { tag, built: true })).toEqual([expect.stringContaining(problem)]);
	});

	test('not what is not built, each file by its name', () => {
		const folder = checkout();
		const manifest = { ...MANIFEST, main: 'no.js', n8n: { ...MANIFEST.n8n, nodes: ['dist/C.js'] } };
		writeFileSync(path.join(folder, 'package.json'), JSON.stringify(manifest));
		expect(problemsOf(folder, { tag: 'v1.2.0', built: true })).toEqual([
			'no.js is not built.',
			'dist/C.js is not built.',
		]);
		expect(problemsOf(folder, { tag: 'v1.2.0', built: false })).toEqual([]);
	});

	test('this checkout: nothing stands in the way but the day of its release', () => {
		const { version } = JSON.parse(read('package.json')) as { version: string };
		const problems = problemsOf(CHECKOUT, { tag: `v${version}`, built: false });
		expect(problems.filter((problem) => !/says "unreleased" where the day/.test(problem))).toEqual(
			[],
		);
	});
});

test('the README promises neither verification nor n8n Cloud (case 144)', () => {
	const markdown = read('README.md');
	expect(markdown).toMatch(/not verified by n8n and never will be/);
	expect(markdown).toMatch(/\*\*self-hosted n8n\*\*, not for n8n Cloud/);
	expect(markdown).toContain('N8N_UNVERIFIED_PACKAGES_ENABLED=true');
	const promises = markdown.match(/[^.\n]*\b(verified|Cloud)\b[^.\n]*/gi) ?? [];
	expect(promises.filter((text) => !/\bnot\b|never|unverified|may not/i.test(text))).toEqual([]);
});
