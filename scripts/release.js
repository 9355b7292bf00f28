'use strict';

/**
 * `npm run release -- v0.1.0`: whether a tag may be published. The tag is the version of package.json and of the lock, the
 * CHANGELOG has that version with its day, and with --built every file that package.json names is there.
 */

const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');

const USAGE = 'Usage: npm run release -- v<version> [--built]';

/**
 * @typedef {object} Manifest
 * @property {string} version
 * @property {string} main
 * @property {string} types
 * @property {Record<string, string>} bin
 * @property {{ nodes: string[], credentials: string[] }} n8n
 */

/**
 * @param {string} checkout
 * @param {{ tag: string, built: boolean }} wanted
 * @returns {string[]} What stands in the way, a sentence each; empty when nothing does.
 */
function problemsOf(checkout, { tag, built }) {
	/** @param {string} file */
	const read = (file) => fs.readFileSync(path.join(checkout, file), 'utf8');
	const manifest = /** @type {Manifest} */ (JSON.parse(read('package.json')));
	const { version } = manifest;
	const problems = [];
	if (tag !== `v${version}`) {
		problems.push(`The tag is ${tag}, but package.json has version ${version}.`);
	}
	const locked = JSON.parse(read('package-lock.json')).packages[''].version;
	if (locked !== version) {
		problems.push(`package-lock.json has version ${locked}: npm install --package-lock-only`);
	}
	const headings = [...read('CHANGELOG.md').matchAll(/^## (\S+)(?: \((.+)\))?$/gm)];
	const heading = headings.find(([, title]) => title === version);
	if (heading === undefined) {
		problems.push(`CHANGELOG.md has no heading "## ${version} (<day>)".`);
	} else if (!/^\d{4}-\d{2}-\d{2}$/.test(heading[2] ?? '')) {
		problems.push(`CHANGELOG.md says "${heading[2] ?? ''}" where the day of ${version} belongs.`);
	} else if (headings[0] !== heading) {
		problems.push(`CHANGELOG.md has ${headings[0][1]} above ${version}.`);
	}
	if (!built) return problems;
	const { main, types, bin, n8n } = manifest;
	const named = [main, types, ...Object.values(bin), ...n8n.nodes, ...n8n.credentials];
	for (const file of named) {
		if (!fs.existsSync(path.join(checkout, file))) problems.push(`${file} is not built.`);
	}
	return problems;
}

function main() {
	const { values, positionals } = parseArgs({
		options: { built: { type: 'boolean', default: false } },
		allowPositionals: true,
	});
	if (positionals.length !== 1) throw new Error(USAGE);
	const [tag] = positionals;
	const problems = problemsOf(path.dirname(__dirname), { tag, built: values.built === true });
	if (problems.length > 0) throw new Error(problems.join('\n'));
	console.log(`${tag} may be published.`);
}

if (require.main === module) {
	try {
		main();
	} catch (error) {
		console.error(error.message);
		process.exitCode = 1;
	}
}

module.exports = { problemsOf };
