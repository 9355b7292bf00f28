'use strict';

const { rm } = require('node:fs/promises');
const { dest, src } = require('gulp');

/** What the compiler does not carry: icons, codex files, the SQL of the migrations and the table of n8n's nodes. */
const ASSETS = [
	'nodes/**/*.{svg,png}',
	'credentials/**/*.{svg,png}',
	'nodes/**/*.node.json',
	'migrations/**/*.sql',
	'migrations/*.json',
	'check/**/*.json',
];

function clean() {
	return rm('dist', { recursive: true, force: true });
}

function assets() {
	// Without an encoding the icons' bytes pass unchanged.
	return src(ASSETS, { base: '.', encoding: false, allowEmpty: true }).pipe(dest('dist'));
}

module.exports = { clean, assets };
