'use strict';

const { transform } = require('./jest.config');

/**
 * The tests against a real n8n. scripts/e2e.js sets it up and starts jest with this file.
 *
 * @type {import('jest').Config}
 */
module.exports = {
	testEnvironment: 'node',
	testMatch: ['<rootDir>/test/e2e/**/*.test.ts'],
	modulePathIgnorePatterns: ['<rootDir>/dist/', '<rootDir>/.local/'],
	transform,
	verbose: true,
	testTimeout: 120_000,
};
