'use strict';
/**
 * `npm run contract`: after a change to migrations/functions, appends the next contract number with the digest of the
 * functions' texts to migrations/contracts.json. Entries are never edited: a package replaces functions only where its
 * number is higher than the installed one, so a changed text under an old number would never reach a database.
 */
const { createHash } = require('node:crypto');
const { readFileSync, readdirSync, writeFileSync } = require('node:fs');
const path = require('node:path');

const migrations = path.join(__dirname, '..', 'migrations');
const file = path.join(migrations, 'contracts.json');

const hash = createHash('sha256');
for (const name of readdirSync(path.join(migrations, 'functions'))
	.filter((n) => n.endsWith('.sql'))
	.sort()) {
	hash.update(`${name}\n${readFileSync(path.join(migrations, 'functions', name), 'utf8')}\n`);
}
const functions = hash.digest('hex');

let contracts = [];
try {
	contracts = JSON.parse(readFileSync(file, 'utf8'));
} catch (error) {
	if (error.code !== 'ENOENT') throw error;
}
const newest = contracts[contracts.length - 1];
if (newest?.functions === functions) {
	console.log(`Nothing changed: contract ${newest.contract} stands.`);
} else {
	const next = {
		contract: (newest?.contract ?? 0) + 1,
		package: require('../package.json').version,
		functions,
	};
	writeFileSync(file, `${JSON.stringify([...contracts, next], null, '\t')}\n`);
	console.log(`Contract ${next.contract} written.`);
}
