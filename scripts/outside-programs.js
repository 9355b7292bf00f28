'use strict';

/**
 * Tests that play with programs which do not come with Node.js and npm: a pooler, psql, Python, Redis, faketime.
 * `.ci/run` installs them and runs every test (CI=true). On another machine that lacks one, the files that need it are left
 * out, and `npm test` and `npm run test:e2e` say so at the end.
 */

const fs = require('node:fs');
const path = require('node:path');

/** Test file → programs; the name is also that of Debian's package, unless PACKAGES says otherwise. */
const NEEDS = {
	'test/docs/backup.test.ts': ['psql'],
	'test/environments/pgbouncer.test.ts': ['pgbouncer'],
	'test/environments/pgbouncer-cut.test.ts': ['pgbouncer'],
	'test/sql/administrator.test.ts': ['psql'],
	'test/sql/python.test.ts': ['psql', 'python3'],
	'test/sql/reference.test.ts': ['psql'],
	'test/sql/upgrade.test.ts': ['psql'],
	'test/e2e/orders-under-fire.test.ts': ['redis-server', 'pgbouncer'],
	'test/e2e/queue.test.ts': ['redis-server'],
	'test/e2e/telegram.test.ts': ['redis-server'],
	'test/e2e/trigger-queue.test.ts': ['redis-server'],
};

/** Files that run without these programs, too, but play less: a prove leaves out the faults that need them. */
const PLAYS_LESS = {
	'test/prove/prove.test.ts': ['pgbouncer', 'faketime'],
};

/** @type {Record<string, string>} */
const PACKAGES = { psql: 'postgresql-client' };

/** @param {string} program */
function isInstalled(program) {
	// Debian puts servers where only root's PATH looks
	const folders = [...(process.env.PATH ?? '').split(path.delimiter), '/usr/sbin'];
	return folders.some((folder) => fs.existsSync(path.join(folder, program)));
}

/**
 * The test files to leave out on this machine, each with what it lacks. None under CI=true: there a missing program is a
 * failure.
 *
 * @param {string} [folder] Only files below it, such as `test/e2e/`.
 * @returns {Array<{ file: string, missing: string[] }>}
 */
function leftOut(folder = 'test/') {
	if (process.env.CI === 'true') return [];
	return Object.entries(NEEDS)
		.map(([file, programs]) => ({ file, missing: programs.filter((name) => !isInstalled(name)) }))
		.filter(({ file, missing }) => file.startsWith(folder) && missing.length > 0);
}

/** The test files that run, but not with all they have. @returns {ReturnType<typeof leftOut>} */
function playingLess() {
	return Object.entries(PLAYS_LESS)
		.map(([file, programs]) => ({ file, missing: programs.filter((name) => !isInstalled(name)) }))
		.filter(({ missing }) => missing.length > 0);
}

/**
 * What to say of them; empty when nothing is left out.
 *
 * @param {ReturnType<typeof leftOut>} files
 * @param {ReturnType<typeof playingLess>} [less]
 */
function leftOutMessage(files, less = []) {
	const all = [...files, ...less];
	if (all.length === 0) return '';
	const packages = [...new Set(all.flatMap(({ missing }) => missing))].map((p) => PACKAGES[p] ?? p);
	return [
		'\nNOT RUN on this machine, for want of other programs:',
		...files.map(({ file, missing }) => `  ${file}: needs ${missing.join(' and ')}`),
		...less.map(({ file, missing }) => `  parts of ${file}: need ${missing.join(' and ')}`),
		`To run them too, on Debian: apt-get install ${packages.join(' ')}\n`,
	].join('\n');
}

module.exports = { isInstalled, leftOut, leftOutMessage, playingLess };
