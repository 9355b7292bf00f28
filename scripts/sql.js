'use strict';

/**
 * `npm run --silent sql -- --schema idempotency > ledger.sql`: prints the SQL that installs or
 * upgrades the ledger, from the built package, for a database administrator (docs/sql.md).
 */

const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');

const USAGE = 'Usage: npm run --silent sql -- [--schema <name>] > ledger.sql';

/** @param {string} message */
function refuse(message) {
	console.error(message);
	process.exit(1);
}

// npm's own two lines would stand at the top of the file and swallow the "begin" behind them.
const { npm_lifecycle_event: script, npm_config_loglevel: level } = process.env;
if (script === 'sql' && level !== 'silent' && !process.stdout.isTTY) {
	refuse(`npm writes lines of its own into the output, which are no SQL.\n${USAGE}`);
}

/** @returns {string} */
function schemaName() {
	try {
		const { values } = parseArgs({
			options: { schema: { type: 'string', default: 'idempotency' } },
		});
		return /** @type {string} */ (values.schema);
	} catch (error) {
		return /** @type {never} */ (refuse(`${error.message}\n${USAGE}`));
	}
}

const schema = schemaName();
const built = path.join(__dirname, '..', 'dist', 'ledger', 'index.js');
if (!fs.existsSync(built)) refuse('The package is not built yet: npm run build');
try {
	process.stdout.write(require(built).installationScript(schema));
} catch (error) {
	refuse(error.message);
}
