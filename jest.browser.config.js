'use strict';

const { transform } = require('./jest.config');

/**
 * The tests of a person in a browser. scripts/e2e-browser.js sets n8n up and starts jest with this file.
 *
 * @type {import('jest').Config}
 */
module.exports = {
	testEnvironment: 'node',
	testMatch: ['<rootDir>/test/browser/**/*.test.ts'],
	modulePathIgnorePatterns: ['<rootDir>/dist/', '<rootDir>/.local/'],
	transform,
	verbose: true,
	testTimeout: 60_000,
};
