import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { transformSync } from '@swc/core';

import { createTestFolder } from '../postgres/database';

const checkout = path.resolve(__dirname, '../..');

/**
 * The package as it is after `npm run build`, beside the checkout, so that its dist is neither needed nor touched.
 * Only what prints SQL: the ledger, the migrations and scripts/sql.js.
 */
export function buildPackage(): string {
	const folder = createTestFolder('built');
	for (const entry of ['index.js', 'package.json', 'scripts/sql.js', 'migrations'])
		cpSync(path.join(checkout, entry), path.join(folder, entry), { recursive: true });
	cpSync(path.join(checkout, 'migrations'), path.join(folder, 'dist/migrations'), {
		recursive: true,
	});
	for (const entry of readdirSync(path.join(checkout, 'ledger'), {
		recursive: true,
		encoding: 'utf8',
	})) {
		if (!entry.endsWith('.ts')) continue;
		const filename = path.join(checkout, 'ledger', entry);
		const { code } = transformSync(readFileSync(filename, 'utf8'), {
			filename,
			jsc: { parser: { syntax: 'typescript' }, target: 'es2022' },
			module: { type: 'commonjs' },
		});
		const target = path.join(folder, 'dist/ledger', entry.replace(/\.ts$/, '.js'));
		mkdirSync(path.dirname(target), { recursive: true });
		writeFileSync(target, code);
	}
	symlinkSync(path.join(checkout, 'node_modules'), path.join(folder, 'node_modules'), 'junction');
	return folder;
}

/** A folder in which the package is installed, as n8n's folder for community packages is one. */
export function installPackage(built: string): string {
	const folder = createTestFolder('installed');
	mkdirSync(path.join(folder, 'node_modules'));
	symlinkSync(built, path.join(folder, 'node_modules', 'n8n-nodes-idempotency'), 'junction');
	return folder;
}
