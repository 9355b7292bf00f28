import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

import { Validator, type Schema } from '@cfworker/json-schema';

import { check } from '../../check/command';
import { FOLDER, workflow } from './fixtures';

const bad = path.join(FOLDER, 'unguarded-effect.bad.json');
const good = path.join(FOLDER, 'unguarded-effect.good.json');
const warns = path.join(FOLDER, 'guard-always-output-data.bad.json');
const noted = path.join(FOLDER, 'workflow-not-given.bad.json');
const off = path.join(FOLDER, 'shape.switched-off.json');

let folder: string;
beforeAll(() => {
	folder = mkdtempSync(path.join(tmpdir(), 'workflow-check-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function written(name: string, content: string): string {
	const file = path.join(folder, name);
	mkdirSync(path.dirname(file), { recursive: true });
	writeFileSync(file, content);
	return file;
}

async function run(...parameters: string[]) {
	let out = '';
	let error = '';
	const streams = {
		out: async (text: string) => {
			out += text;
			await Promise.resolve();
		},
		error: (text: string) => void (error += text),
	};
	const code = await check(parameters, streams, '1.2.3');
	return { code, out, error };
}

interface JsonReport {
	workflows: Array<{ file: string; name: string; findings: Array<{ rule: string }> }>;
	problems: Array<{ file: string; problem: string; severity: string }>;
	totals: Record<string, unknown>;
}

async function json(...parameters: string[]): Promise<JsonReport> {
	return JSON.parse((await run('--format', 'json', ...parameters)).out) as JsonReport;
}

describe('the exit code', () => {
	test.each([
		[0, [good]],
		[1, [bad]],
		[0, [warns]],
		[1, [warns, '--fail-on', 'warning']],
		[1, ['--fail-on=warning', warns]],
		[0, [noted, '--fail-on', 'warning']],
		[1, [noted, '--fail-on', 'note']],
		[0, [bad, '--fail-on', 'never']],
		[1, [good, 'there-is-no-such-file.json']],
		[0, [bad, '--off', 'unguarded-effect=it is a drill']],
	])('is %i for %j', async (code, parameters) => {
		expect((await run(...parameters)).code).toBe(code);
	});

	test.each([
		['no file', [], 'Name at least one file'],
		['an unknown format', [bad, '--format', 'xml'], 'people, json or sarif'],
		['an unknown level', [bad, '--fail-on', 'high'], 'note, warning, error or never'],
		['an unknown rule', [bad, '--off', 'nothing=x'], 'no rule "nothing"'],
		['a rule switched off without a reason', [bad, '--off', 'unguarded-effect'], 'a reason'],
		['a rule switched off by white space', [bad, '--off', 'unguarded-effect= '], 'a reason'],
		['an unknown option', [bad, '--fix'], 'Unknown option --fix'],
	])('is 2 for %s, and the cure is said', async (_, parameters, words) => {
		const { code, out, error } = await run(...parameters);
		expect({ code, out }).toEqual({ code: 2, out: '' });
		expect(error).toContain(words);
		expect(error).toContain('Usage:');
	});
});

describe('for people', () => {
	test('a finding names rule, node, what happens twice and the fix; then the calls and the questions', async () => {
		const { out } = await run(bad);
		expect(out).toContain('ERROR unguarded-effect at "Create Invoice"');
		expect(out).toContain('Twice: Money moves twice');
		expect(out).toContain('Fix: Claim Work directly before it, Complete Work behind it');
		expect(out).toContain('guard: none; tier 3 (assumed)');
		expect(out).toContain(
			'! What breaks if it runs twice? "Create Invoice", "Tell Somebody" happen',
		);
		expect(out).toContain('! Twice in the same second: one effect? No: "Create Invoice"');
		expect(out).toMatch(
			/1 workflow in 1 file, 2 steps with effects: 2 errors, 0 warnings, 0 notes\.\n$/,
		);
	});

	test('the six questions of the audit and the five before go-live are answered', async () => {
		const { out } = await run(good);
		expect(out.match(/^ {6}[-+!] .*\?/gm)).toHaveLength(11);
		expect(out).not.toMatch(/^ {6}! .*(runs twice|same second|derived|proved|replayed)/m);
		expect(out).toContain('+ Where does the id come from? invoice by body.order_id.');
	});

	test('names in a workflow cannot steer the terminal', async () => {
		const file = written(
			'steering.json',
			JSON.stringify(
				workflow(
					[
						{ name: 'Hook', type: 'n8n-nodes-base.webhook' },
						{ name: '\u001b[2J\u202egnp\nError: none', type: 'n8n-nodes-base.emailSend' },
					],
					[['Hook', '\u001b[2J\u202egnp\nError: none']],
				),
			),
		);
		const { out } = await run(file);
		expect(out).toContain('"[2Jgnp Error: none"');
		for (const steering of ['\u001b', '\u202e']) expect(out).not.toContain(steering);
	});
});

describe('as JSON', () => {
	test('it is one object, in which nothing is missing that people read', async () => {
		const report = await json(bad, off);
		expect(report.totals).toEqual({
			files: 2,
			workflows: 2,
			effects: 4,
			findings: { note: 0, warning: 0, error: 3 },
			switchedOff: 1,
			problems: 0,
		});
		expect(report.workflows[0]).toMatchObject({
			file: bad,
			name: 'Invoice without a claim',
			effects: [
				{ node: 'Create Invoice', kind: 'money', repeats: 'doubles', guard: 'none', tier: 3 },
				{ node: 'Tell Somebody', kind: 'message', repeats: 'doubles', guard: 'none', tier: 3 },
			],
			findings: [
				{ rule: 'unguarded-effect', severity: 'error', node: 'Create Invoice', switchedOff: null },
				{ rule: 'unguarded-effect', severity: 'error', node: 'Tell Somebody', switchedOff: null },
			],
		});
	});

	test('it is valid without any workflow, too', async () => {
		const report = await json(written('empty.json', ''));
		expect(report.workflows).toEqual([]);
		expect(report.problems).toEqual([
			{ file: path.join(folder, 'empty.json'), problem: 'The file is empty.', severity: 'error' },
		]);
	});
});

const onPosix = process.platform === 'win32' ? test.skip : test;

onPosix('a device, which may have no end, is refused in a line', async () => {
	const { code, out } = await run('/dev/zero', good);
	expect(code).toBe(1);
	expect(out).toContain('/dev/zero\n  This is a pipe or device: save it as a file first.');
	expect(out).toContain('1 workflow in 1 file');
});

describe('as SARIF', () => {
	const schema = JSON.parse(
		readFileSync(path.join(__dirname, 'sarif-2.1.0.schema.json'), 'utf8'),
	) as Schema;
	const validator = new Validator(schema, '4', false);

	test.each([
		['findings', [bad, warns]],
		['notes that switch off', [off]],
		['everything that lies here', [FOLDER]],
		['files that are not there', ['none.json']],
		['nothing found', [good]],
	])('it is valid SARIF 2.1.0 for %s', async (_, parameters) => {
		const { out } = await run('--format', 'sarif', ...parameters);
		const { valid, errors } = validator.validate(JSON.parse(out));
		expect({ valid, errors }).toEqual({ valid: true, errors: [] });
	});

	test('the schema is not one that lets everything pass', async () => {
		const { out } = await run('--format', 'sarif', bad);
		const log = JSON.parse(out) as { runs: Array<{ results: Array<Record<string, unknown>> }> };
		log.runs[0].results[0].level = 'fatal';
		expect(validator.validate(log).valid).toBe(false);
	});

	test('thousands of findings in one file are placed within seconds', async () => {
		const hook = { name: 'Hook', type: 'n8n-nodes-base.webhook' };
		const sends = Array.from({ length: 5000 }, (_, i) => ({
			name: `Send ${i}`,
			type: 'n8n-nodes-base.emailSend',
			parameters: { text: 'x'.repeat(1000) },
		}));
		const to = sends.map(({ name }): [string, string] => ['Hook', name]);
		const text = JSON.stringify(workflow([hook, ...sends], to), null, 1);
		const from = performance.now();
		const { out } = await run('--format', 'sarif', written('thousands.json', text));
		// under 2 s on an idle machine; looking through the text once for each finding took 30 s
		expect(performance.now() - from).toBeLessThan(10_000);
		const lines = text.split('\n');
		const { runs } = JSON.parse(out) as {
			runs: Array<{
				results: Array<{
					locations: Array<{
						physicalLocation: { region?: { startLine: number } };
						logicalLocations: Array<{ name: string }>;
					}>;
				}>;
			}>;
		};
		const placed = runs[0].results.flatMap(
			({ locations: [{ physicalLocation, logicalLocations }] }) =>
				physicalLocation.region === undefined
					? []
					: [[lines[physicalLocation.region.startLine - 1].trim(), logicalLocations[0].name]],
		);
		expect(placed).toEqual(sends.map(({ name }) => [`"name": "${name}",`, name]));
	}, 60_000);

	test('a result names its rule, the line of the node, and why it was switched off', async () => {
		const { out } = await run('--format', 'sarif', off, '--off', 'unguarded-effect=only a drill');
		const { runs } = JSON.parse(out) as {
			runs: Array<{
				tool: { driver: { rules: Array<{ id: string }> } };
				results: Array<{
					ruleId: string;
					ruleIndex: number;
					locations: Array<{
						physicalLocation: {
							artifactLocation: { uri: string };
							region: { startLine: number };
						};
					}>;
					suppressions: unknown[];
				}>;
			}>;
		};
		const [{ tool, results }] = runs;
		const [first, second] = results;
		expect(tool.driver.rules[first.ruleIndex].id).toBe(first.ruleId);
		const { artifactLocation, region } = first.locations[0].physicalLocation;
		expect(artifactLocation.uri).toBe('test/check/workflows/shape.switched-off.json');
		const line = readFileSync(off, 'utf8').split('\n')[region.startLine - 1];
		expect(line).toContain('"Create Invoice"');
		expect(first.suppressions).toEqual([{ kind: 'external', justification: 'only a drill' }]);
		expect(second.suppressions).toHaveLength(1);
	});
});

describe('files and folders', () => {
	test('a folder is read with all its folders, other JSON in it is passed over and said', async () => {
		const inside = path.join(folder, 'project');
		written('project/a/one.json', readFileSync(good, 'utf8'));
		written('project/two.json', readFileSync(bad, 'utf8'));
		written('project/settings.json', '{"strict": true}');
		written('project/node_modules/x/three.json', readFileSync(bad, 'utf8'));
		written('project/.git/four.json', readFileSync(bad, 'utf8'));
		written('project/readme.txt', 'no JSON');
		const report = await json(inside);
		expect(report.workflows.map(({ file }) => path.relative(inside, file))).toEqual([
			path.join('a', 'one.json'),
			'two.json',
		]);
		expect(report.problems).toMatchObject([
			{ problem: 'The file is no workflow: it has no list of nodes.', severity: 'note' },
		]);
	});

	test('sub-workflows are found in whatever order the files come', async () => {
		const names = ['family.sub-plain', 'family.parent-claims'];
		const files = names.map((name) => path.join(FOLDER, `${name}.json`));
		for (const order of [files, [...files].reverse()]) {
			const { workflows } = await json(...order);
			expect(workflows.flatMap(({ findings }) => findings)).toEqual([]);
		}
	});
});

test('as a program of its own it prints, ends with its exit code, and survives a reader that leaves early', () => {
	const loader = path.join(__dirname, '../environments/load-typescript.js');
	const cli = path.join(__dirname, '../../check/cli.ts');
	const program = (...parameters: string[]) =>
		spawnSync(process.execPath, ['-r', loader, cli, ...parameters], { encoding: 'utf8' });
	const failing = program('check', bad);
	expect(failing.status).toBe(1);
	expect(failing.stdout).toContain('ERROR unguarded-effect');
	expect(failing.stderr).toBe('');
	expect(program('check', good).status).toBe(0);
	expect(program('chekc', good)).toMatchObject({ status: 2, stdout: '' });
	expect(program('--help').stdout).toContain('Exit codes');
	const early = spawnSync(
		'sh',
		[
			'-c',
			`"$0" -r "$1" "$2" check --format json "$3" | head -c 10`,
			process.execPath,
			loader,
			cli,
			FOLDER,
		],
		{ encoding: 'utf8' },
	);
	expect(early).toMatchObject({ stdout: '{\n"version', stderr: '' });
}, 60_000);
