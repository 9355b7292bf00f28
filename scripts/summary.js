'use strict';

/**
 * Adds up result files and prints `N passed, N failed`. A file is Jest's `--json` output or has
 * just `passed` and `failed`; one that is missing, unreadable or empty counts as one failure.
 */

const fs = require('node:fs');

let passed = 0;
let failed = 0;
for (const file of process.argv.slice(2)) {
	try {
		const result = JSON.parse(fs.readFileSync(file, 'utf8'));
		const [good, bad] = [
			result.numPassedTests ?? result.passed,
			// A test file that does not even load has failed without a test in it.
			result.numFailedTests === undefined
				? result.failed
				: result.numFailedTests + result.numRuntimeErrorTestSuites,
		];
		if (!Number.isInteger(good) || !Number.isInteger(bad)) throw new Error('holds no counts');
		passed += good;
		failed += bad + (good + bad === 0 ? 1 : 0);
	} catch (error) {
		console.log(`${file}: ${error.message}`);
		failed += 1;
	}
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
