'use strict';

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

/**
 * A temporary folder of this process, others' rights included: for root, PostgreSQL and PgBouncer run as another user. What
 * runs with the same prefix have left that were killed themselves goes first.
 *
 * @param {string} prefix
 */
function createRunFolder(prefix) {
	removeStaleFolders(prefix);
	const folder = fs.mkdtempSync(path.join(os.tmpdir(), prefix));
	fs.chmodSync(folder, 0o755);
	fs.writeFileSync(path.join(folder, 'pid'), String(process.pid));
	return folder;
}

/** @param {string} prefix */
function removeStaleFolders(prefix) {
	for (const name of fs.readdirSync(os.tmpdir())) {
		if (!name.startsWith(prefix)) continue;
		const folder = path.join(os.tmpdir(), name);
		try {
			process.kill(Number(fs.readFileSync(path.join(folder, 'pid'), 'utf8')), 0);
		} catch (error) {
			if (error.code === 'ESRCH') fs.rmSync(folder, { recursive: true, force: true });
		}
	}
}

module.exports = { createRunFolder };
