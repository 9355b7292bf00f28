import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const CHECK = path.join(__dirname, '../../check');

const files = readdirSync(CHECK, { recursive: true, encoding: 'utf8' })
	.filter((file) => file.endsWith('.ts'))
	.map((file) => file.split(path.sep).join('/'));

/** What a file imports, those inside the check left out. */
function outside(file: string): string[] {
	const text = readFileSync(path.join(CHECK, file), 'utf8');
	const imported = [...text.matchAll(/(?:from|import|require)\s*\(?\s*'([^']+)'/g)];
	return imported
		.map(([, name]) => name)
		.filter(
			(name) =>
				!name.startsWith('.') || !path.join(CHECK, path.dirname(file), name).startsWith(CHECK),
		);
}

test('the check knows no n8n, no database and no network, and of the ledger only what a key is', () => {
	const found = new Set(files.flatMap(outside));
	expect([...found].sort()).toEqual([
		'../../ledger/identity/field-path',
		'../../ledger/identity/volatile-expressions',
		'../../ledger/identity/volatile-fields',
		'node:crypto',
		'node:events',
		'node:fs',
		'node:path',
		'node:url',
	]);
});

test('only the command and its files touch the file system; nothing evaluates text', () => {
	const touching = files.filter((file) => outside(file).includes('node:fs'));
	// the table of n8n's operations lies beside its reader
	expect(touching.sort()).toEqual(['cli.ts', 'knowledge/operations.ts', 'workflow-files.ts']);
	for (const file of files) {
		const text = readFileSync(path.join(CHECK, file), 'utf8');
		expect(text).not.toMatch(
			/\beval\s*\(|new Function\s*\(|\bvm\.|child_process|\bfetch\s*\(\s*[^)|]/,
		);
	}
});
