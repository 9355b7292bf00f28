'use strict';

/**
 * `npm run advisories`: what npm's registry knows against the packages that are installed beside this one. Exit code 0:
 * nothing; 1: something, which is listed; 2: it could not be asked, so nothing is known.
 */

const { spawnSync } = require('node:child_process');
const path = require('node:path');

/** What this checkout needs to be built and tested never reaches an n8n. */
const AUDIT = ['audit', '--omit=dev', '--json'];

/**
 * @param {any} report What `npm audit --json` printed.
 * @returns {{ code: 0 | 1 | 2, lines: string[] }}
 */
function verdict(report) {
	if (report?.vulnerabilities === undefined) {
		const { statusCode, message = 'npm audit gave no report' } = report ?? {};
		const reason =
			statusCode === 404 || statusCode === 405
				? `This registry does not offer advisories (it answered ${statusCode}).`
				: `The registry could not be asked: ${message}`;
		return {
			code: 2,
			lines: [reason, 'Nothing is known, which is not the same as no advisories.'],
		};
	}
	const findings = Object.values(report.vulnerabilities);
	if (findings.length === 0) return { code: 0, lines: ['No known advisories.'] };
	const lines = findings.map(({ name, severity, range, via }) => {
		const why = via.map((/** @type {any} */ one) =>
			typeof one === 'string' ? `by way of ${one}` : `${one.title} (${one.url})`,
		);
		return `${name} ${range}: ${severity}: ${why.join('; ')}`;
	});
	return { code: 1, lines };
}

function main() {
	const { stdout, stderr, error } = spawnSync('npm', AUDIT, {
		cwd: path.dirname(__dirname),
		encoding: 'utf8',
		maxBuffer: 64 * 1024 * 1024,
		// npm is a command file on Windows, which only a shell runs.
		shell: process.platform === 'win32',
	});
	let report;
	try {
		report = JSON.parse(stdout);
	} catch {
		report = { message: error?.message ?? stderr?.trim() };
	}
	const { code, lines } = verdict(report);
	for (const line of lines) (code === 0 ? console.log : console.error)(line);
	process.exitCode = code;
}

main();
