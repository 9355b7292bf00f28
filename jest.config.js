'use strict';

const { leftOut } = require('./scripts/outside-programs');

/** @type {import('jest').Config} */
module.exports = {
	testEnvironment: 'node',
	testMatch: ['<rootDir>/test/**/*.test.ts'],
	testPathIgnorePatterns: [
		'/node_modules/',
		'<rootDir>/test/e2e/',
		'<rootDir>/test/browser/',
		...leftOut().map(({ file }) => `<rootDir>/${file}`),
	],
	modulePathIgnorePatterns: ['<rootDir>/dist/', '<rootDir>/.local/'],
	transform: {
		'^.+\\.ts$': [
			'@swc/jest',
			{
				jsc: {
					parser: { syntax: 'typescript', decorators: true },
					transform: { legacyDecorator: true, decoratorMetadata: true },
					target: 'es2022',
				},
				module: { type: 'commonjs' },
			},
		],
	},
	globalSetup: '<rootDir>/test/postgres/start.ts',
	globalTeardown: '<rootDir>/test/postgres/stop.ts',
	maxWorkers: 2,
	testTimeout: 30_000,
};
