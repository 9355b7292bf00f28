'use strict';

const fs = require('node:fs');
const path = require('node:path');

/** What distributions call it. */
const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

/**
 * The browser that CHROMIUM names, or the first one on PATH.
 *
 * @returns {string}
 * @throws {Error} In words that tell the cure, where there is none.
 */
function findChromium() {
	const { CHROMIUM: wished, PATH = '' } = process.env;
	if (wished !== undefined && wished !== '') {
		if (fs.existsSync(wished)) return wished;
		throw new Error(`CHROMIUM names ${wished}, and there is no such file.`);
	}
	const files = PATH.split(path.delimiter).flatMap((folder) =>
		NAMES.map((name) => path.join(folder, name)),
	);
	const found = files.find((file) => fs.existsSync(file));
	if (found !== undefined) return found;
	throw new Error(
		'This command needs Chromium. On Debian: apt-get install chromium fonts-dejavu-core. Elsewhere, set CHROMIUM to ' +
			'the program of a Chromium or Chrome.',
	);
}

module.exports = { findChromium };
