'use strict';

const { transform } = require('./jest.config');
const { leftOut } = require('./scripts/outside-programs');

/**
 * The tests against a real n8n. scripts/e2e.js sets it up and starts jest with this file.
 *
 * @type {import('jest').Config}
 */
module.exports = {
	testEnvironment: 'node',
	testMatch: ['<rootDir>/test/e2e/**/*.test.ts'],
	testPathIgnorePatterns: [
		'/node_modules/',
		...leftOut('test/e2e/').map(({ file }) => `<rootDir>/${file}`),
	],
	modulePathIgnorePatterns: ['<rootDir>/dist/', '<rootDir>/.local/'],
	transform,
	verbose: true,
	testTimeout: 120_000,
};
