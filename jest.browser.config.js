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
	testSequencer: '<rootDir>/test/browser/in-order.js',
	verbose: true,
	// above the browser's own patience, so that a step fails in words
	testTimeout: 150_000,
};
