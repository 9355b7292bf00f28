#!/usr/bin/env node
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { check, USAGE } from './command';

/** The package's own version: its manifest stands above dist/, and above the sources. */
function packageVersion(): string {
	for (const up of ['..', '../..']) {
		const file = path.join(__dirname, up, 'package.json');
		if (existsSync(file)) {
			return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
		}
	}
	return '0.0.0';
}

async function main([command, ...parameters]: string[]): Promise<number> {
	// the reader may have seen enough (`| head`)
	process.stdout.on('error', (error: NodeJS.ErrnoException) => {
		process.exit(error.code === 'EPIPE' ? 0 : 1);
	});
	const out = async (text: string): Promise<void> => {
		if (text !== '' && !process.stdout.write(text)) await once(process.stdout, 'drain');
	};
	const error = (text: string): void => void process.stderr.write(text);
	if (command === 'check') return await check(parameters, { out, error }, packageVersion());
	if (command === undefined || command === '--help') {
		await out(USAGE);
		return command === undefined ? 2 : 0;
	}
	error(`Unknown command "${command.slice(0, 50)}".\n\n${USAGE}`);
	return 2;
}

void main(process.argv.slice(2)).then((code) => {
	process.exitCode = code;
});
