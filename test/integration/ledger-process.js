'use strict';
/**
 * A process of its own with a ledger of its own: `node ledger-process.js <job as JSON>`. It waits for
 * the barrier, an advisory lock that the test holds, does its job, prints the answer as one line of
 * JSON and stays until its input ends or it is killed.
 */
const { readFileSync } = require('node:fs');
const { transformSync } = require('@swc/core');
const { Client } = require('pg');

// Nothing is compiled when the tests run: the ledger is loaded from its sources.
require.extensions['.ts'] = (module, filename) => {
	const { code } = transformSync(readFileSync(filename, 'utf8'), {
		filename,
		jsc: { parser: { syntax: 'typescript' }, target: 'es2022' },
		module: { type: 'commonjs' },
	});
	/** @type {any} */ (module)._compile(code, filename);
};

const { createLedger } = require('../../ledger');

/** @typedef {{ settings: any, barrier: number, does: 'claim' | 'firesTwice' | 'install' | 'lookUp' | 'subscribe', items: any[], policy: any, method: string, args: any[] }} Job */

/** @param {Job} job */
async function main({ settings, barrier, does, items, policy, method, args }) {
	const ledger = createLedger(settings);
	const gate = new Client(settings);
	await gate.connect();
	await gate.query('select pg_advisory_lock_shared($1)', [barrier]);
	const answer = await {
		install: () => ledger.install(),
		claim: () => ledger.works.claim(items, policy),
		firesTwice: () => ledger.firesTwiceTest.run(args[0]),
		lookUp: () => ledger.decisions.lookUp(items, policy),
		subscribe: () => /** @type {any} */ (ledger.subscriptions)[method](...args),
	}[does]();
	console.log(JSON.stringify(answer));
	process.stdin.resume().once('end', () => process.exit(0));
}

main(JSON.parse(process.argv[2])).catch((error) => {
	console.log(JSON.stringify({ failed: String(error) }));
	process.exit(1);
});
