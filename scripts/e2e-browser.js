'use strict';

/**
 * `npm run test:e2e:browser`: sets up PostgreSQL and a real n8n that does not know this package, and runs the tests of
 * test/browser/ against it: a person in Chromium who installs the package through the panel and works with it. Needs
 * Chromium (Debian: `apt-get install chromium fonts-dejavu-core`; CHROMIUM names another one).
 *
 *     --screenshots   writes the pictures of docs/images anew; without it they go to .local/browser
 *
 * Other arguments go to jest (`-- -t "run twice"`). Where a step fails, .local/browser has what the person saw.
 */

const path = require('node:path');

const { findChromium } = require('./n8n/chromium');
const { runTests } = require('./n8n/test-run');

const CHECKOUT = path.dirname(__dirname);

async function main() {
	const chromium = findChromium();
	const words = process.argv.slice(2);
	await runTests({
		name: 'browser',
		checkout: CHECKOUT,
		config: 'jest.browser.config.js',
		words: words.filter((word) => word !== '--screenshots'),
		panel: true,
		setUp: ({ stage: { n8n, ledger, invoiceServer }, folder }) => ({
			BROWSER_STAGE: JSON.stringify({
				n8n: {
					baseUrl: n8n.client.baseUrl,
					email: n8n.client.email,
					password: n8n.client.password,
				},
				ledger,
				invoiceUrl: invoiceServer.url,
				chromium,
				evidence: folder,
				images: words.includes('--screenshots')
					? path.join(CHECKOUT, 'docs', 'images')
					: path.join(folder, 'images'),
			}),
		}),
	});
}

main().catch((error) => {
	process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
	process.exitCode = 1;
});
