import { execFile, execFileSync } from 'node:child_process';

import type { PostgresConfig } from '../postgres/database';

/** What a test in a shell inherits: how psql and libpq find the database, and nothing of the caller's own settings. */
export function clientEnvironment(config: PostgresConfig): NodeJS.ProcessEnv {
	const own = Object.entries(process.env).filter(([name]) => !/^(PG|npm_)/.test(name));
	return {
		...Object.fromEntries(own),
		PGHOST: config.host,
		PGPORT: String(config.port),
		PGUSER: config.user,
		PGPASSWORD: config.password,
		PGDATABASE: config.database,
		PGTZ: 'UTC',
		PGCLIENTENCODING: 'UTF8',
		PSQLRC: '/dev/null',
	};
}

/** Whether a command can be started here. */
export function isInstalled(command: string): boolean {
	try {
		execFileSync(command, ['--version'], { stdio: 'ignore' });
		return true;
	} catch {
		return false;
	}
}

/** @throws {Error} saying what to install */
export function demand(command: 'psql' | 'python3'): void {
	if (isInstalled(command)) return;
	const debian = { psql: 'postgresql-client', python3: 'python3' }[command];
	throw new Error(
		`This test needs ${command}, which is not installed: apt-get install ${debian} (or what your system calls it).`,
	);
}

/** Runs a program to its end. Rejects with its error output when it fails. */
export async function run(
	command: string,
	parameters: string[],
	options: { env?: NodeJS.ProcessEnv; cwd?: string } = {},
): Promise<string> {
	return await new Promise((resolve, reject) => {
		execFile(command, parameters, options, (error, stdout, stderr) => {
			if (error === null) resolve(stdout);
			else reject(new Error(`${stderr}${error.message}`));
		});
	});
}

/** Rows and columns as psql prints them, headings first. Empty for a statement without rows. */
export async function psqlTable(config: PostgresConfig, statement: string): Promise<string[][]> {
	const [cell, row] = ['\x1f', '\x1e'];
	const printed = await run(
		'psql',
		[
			...['-X', '-q', '-v', 'ON_ERROR_STOP=1', '-A', '-F', cell, '-R', row],
			...['-P', 'footer=off', '-c', statement],
		],
		{ env: clientEnvironment(config) },
	);
	const text = printed.replace(/\n$/, '');
	return text === '' ? [] : text.split(row).map((line) => line.split(cell));
}

/** Runs a script file's text; any error ends it. */
export async function psqlScript(config: PostgresConfig, script: string): Promise<void> {
	const child = execFile('psql', ['-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', '-'], {
		env: clientEnvironment(config),
	});
	let errors = '';
	child.stderr?.on('data', (chunk) => (errors += String(chunk)));
	// psql ends at the first error, before it has read a longer script to its end
	child.stdin?.on('error', () => undefined);
	child.stdin?.end(script);
	const code = await new Promise((resolve) => child.once('close', resolve));
	if (code !== 0) throw new Error(errors);
}
