import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const checkout = path.resolve(__dirname, '../..');

/** ESLint's configuration is an ES module, which Jest's own module system does not load. */
const LINT = `
import { ESLint } from 'eslint';
const eslint = new ESLint();
const findings = [];
for (const [filePath, text] of JSON.parse(process.argv[1])) {
	const [{ messages }] = await eslint.lintText(text + '\\n', { filePath });
	findings.push(messages.map((message) => message.ruleId).filter((rule) => /^no-restricted-/.test(rule)));
}
console.log(JSON.stringify(findings));
`;

/** The storey rules that a file with this text breaks. */
async function broken(samples: Array<[file: string, text: string]>): Promise<string[][]> {
	const { stdout } = await run(
		process.execPath,
		['--input-type=module', '-e', LINT, JSON.stringify(samples)],
		{ cwd: checkout },
	);
	return JSON.parse(stdout) as string[][];
}

const IMPORT = ['no-restricted-imports'];
const SYNTAX = ['no-restricted-syntax'];

test('the lint keeps imports running only from nodes to ledger to migrations', async () => {
	const samples: Array<[string, string, string[]]> = [
		['ledger/sample.ts', "import { NodeOperationError } from 'n8n-workflow';", IMPORT],
		['ledger/sample.ts', "import type { INode } from 'n8n-workflow';", IMPORT],
		['ledger/work/sample.ts', "import { fields } from '../../nodes/ClaimWork/fields';", IMPORT],
		['ledger/sample.ts', "import { test } from '../credentials/test';", IMPORT],
		['ledger/sample.ts', "import { Pool } from 'pg';", []],
		['ledger/sample.ts', "export const text = 'select 1';", []],
		['nodes/ClaimWork/sample.ts', "import { Pool } from 'pg';", IMPORT],
		['nodes/ClaimWork/sample.ts', "import type { Pool } from 'pg';", IMPORT],
		['credentials/sample.ts', "import { Pool } from 'pg';", IMPORT],
		['nodes/ClaimWork/sample.ts', "import { createLedger } from '../../ledger';", []],
		['nodes/ClaimWork/sample.ts', "export const text = 'select 1';", SYNTAX],
		['nodes/ClaimWork/sample.ts', 'export const text = `\n  INSERT INTO t ${1}`;', SYNTAX],
		['credentials/sample.ts', "export const text = 'delete from work_log';", SYNTAX],
		['nodes/ClaimWork/sample.ts', "export const run = (pool) => pool.query('x');", SYNTAX],
		['nodes/ClaimWork/sample.ts', "export const text = 'Update the work from here';", []],
	];
	const findings = await broken(samples.map(([file, text]) => [file, text]));
	expect(samples.map(([file, text], i) => [file, text, findings[i]])).toEqual(samples);
}, 60_000);

test("the lint keeps nodes from comparing n8n's error classes by instanceof (case 137)", async () => {
	const findings = await broken([
		['nodes/sample.ts', 'export const is = (e: unknown) => e instanceof NodeApiError;'],
		['nodes/sample.ts', 'export const is = (e: unknown) => e instanceof Error;'],
		['nodes/sample.ts', 'export const is = (e: unknown) => e instanceof LedgerError;'],
	]);
	expect(findings).toEqual([SYNTAX, [], []]);
}, 60_000);
