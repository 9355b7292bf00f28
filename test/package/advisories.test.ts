/** `npm run advisories` against a small registry, which stands in for npm's. */

import { execFile } from 'node:child_process';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';

import { createTestFolder } from '../postgres/database';
import { listedDependencies } from './listed-dependencies';

const PROGRAM = path.resolve(__dirname, '../../scripts/advisories.js');
const ADVISORY = {
	id: 1,
	url: 'https://example.com/advisory-1',
	title: 'Made up for this test',
	severity: 'high',
	vulnerable_versions: '<100',
	cwe: [],
	cvss: { score: 0, vectorString: null },
};

/** Answers what npm asks, and keeps which packages it asked about. */
class Registry {
	asked: Record<string, string[]> = {};
	private readonly server: Server;

	constructor(answer: { status: number; body?: object }) {
		this.server = createServer((request, response) => {
			if (request.method === 'GET') {
				// which versions there are, to say whether one without the advisory exists
				const name = decodeURIComponent((request.url ?? '').slice(1));
				const versions = { '1.0.1': { name, version: '1.0.1', dist: {} } };
				response.end(JSON.stringify({ name, 'dist-tags': { latest: '1.0.1' }, versions }));
				return;
			}
			const parts: Buffer[] = [];
			request.on('data', (part: Buffer) => parts.push(part));
			request.on('end', () => {
				const body = Buffer.concat(parts);
				const zipped = request.headers['content-encoding'] === 'gzip';
				const text = (zipped ? gunzipSync(body) : body).toString();
				if (request.url?.endsWith('/advisories/bulk')) {
					this.asked = JSON.parse(text) as Record<string, string[]>;
				}
				response.writeHead(answer.status, { 'content-type': 'application/json' });
				response.end(JSON.stringify(answer.body ?? {}));
			});
		});
	}

	async open(): Promise<string> {
		await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
		return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/`;
	}

	close(): void {
		this.server.close();
		this.server.closeAllConnections();
	}
}

async function advisories(registry: string): Promise<{ code: number; said: string }> {
	const own = Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name));
	const env = {
		...Object.fromEntries(own),
		npm_config_registry: registry,
		npm_config_cache: createTestFolder('npm-cache'),
		npm_config_fetch_retries: '0',
	};
	return await new Promise((resolve) => {
		execFile(process.execPath, [PROGRAM], { env }, (error, stdout, stderr) =>
			resolve({ code: Number(error?.code ?? 0), said: stdout + stderr }),
		);
	});
}

test.each([
	['none', { status: 200 }, 0, 'No known advisories.'],
	[
		'one',
		{ status: 200, body: { 'pg-int8': [ADVISORY] } },
		1,
		'pg-int8 *: high: Made up for this test (https://example.com/advisory-1)',
	],
	['a registry without them', { status: 405 }, 2, 'does not offer advisories (it answered 405)'],
])('advisories: %s', async (_, answer, code, said) => {
	const registry = new Registry(answer);
	try {
		const result = await advisories(await registry.open());
		expect(result).toEqual({ code, said: expect.stringContaining(said) });
		if (answer.status === 200) {
			// what users install, and nothing that only this checkout needs
			expect(registry.asked).toEqual(
				Object.fromEntries(listedDependencies().map(({ name, version }) => [name, [version]])),
			);
		}
	} finally {
		registry.close();
	}
});
