'use strict';
/**
 * For processes of a test's own (`node --require load-typescript.js some.ts`): TypeScript sources are compiled as they
 * are loaded, since nothing is built when the tests run.
 */
const { readFileSync } = require('node:fs');
const { transformSync } = require('@swc/core');

require.extensions['.ts'] = (module, filename) => {
	const { code } = transformSync(readFileSync(filename, 'utf8'), {
		filename,
		jsc: { parser: { syntax: 'typescript' }, target: 'es2022' },
		module: { type: 'commonjs' },
	});
	/** @type {any} */ (module)._compile(code, filename);
};
