'use strict';

/**
 * A registry of a few packages on this machine, so that n8n's community nodes panel can install the checkout as it would a
 * published package: the same request, the same npm, the same folders, and no internet. It serves the packed checkout and
 * its run-time dependencies, packed from node_modules; everything else is not there.
 *
 * n8n's own setting for another registry needs a licence, so n8n gets a folder for the front of its PATH whose `npm` is
 * sent here.
 */

const crypto = require('node:crypto');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const { freePort } = require('./ports');
const { runNpm } = require('./runtime');

/**
 * The folder a package's `require` finds another one in.
 *
 * @param {string} name @param {string} from
 */
function folderOf(name, from) {
	for (let at = from; ; at = path.dirname(at)) {
		const folder = path.join(at, 'node_modules', name);
		if (fs.existsSync(path.join(folder, 'package.json'))) return folder;
		if (at === path.dirname(at)) throw new Error(`${name}, needed in ${from}, is not installed`);
	}
}

/** @param {string} folder @returns {any} */
const manifestOf = (folder) =>
	JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8'));

/**
 * The folders of a checkout's run-time dependencies, theirs included.
 *
 * @param {string} checkout
 * @returns {string[]}
 */
function dependenciesOf(checkout) {
	const found = new Set();
	const look = (/** @type {string} */ folder) => {
		for (const name of Object.keys(manifestOf(folder).dependencies ?? {})) {
			const dependency = folderOf(name, folder);
			if (found.has(dependency)) continue;
			found.add(dependency);
			look(dependency);
		}
	};
	look(checkout);
	return [...found];
}

/** @param {string} tarball */
function versionOf(tarball) {
	const content = fs.readFileSync(tarball);
	const hash = (/** @type {string} */ name) => crypto.createHash(name).update(content);
	const manifest = execFileSync('tar', ['-xzOf', tarball, 'package/package.json'], {
		encoding: 'utf8',
	});
	return {
		...JSON.parse(manifest),
		dist: {
			integrity: `sha512-${hash('sha512').digest('base64')}`,
			shasum: hash('sha1').digest('hex'),
		},
		content,
	};
}

/** The command line of the npm that runs this, or of the one on PATH. */
function npmCommand() {
	const script = process.env.npm_execpath;
	if (script !== undefined && /npm-cli\.js$/.test(script)) return [process.execPath, script];
	const folders = (process.env.PATH ?? '').split(path.delimiter);
	const file = folders.map((folder) => path.join(folder, 'npm')).find((npm) => fs.existsSync(npm));
	if (file === undefined) throw new Error('npm is not on PATH');
	return [file];
}

/**
 * @param {{ checkout: string, folder: string }} where `checkout`: built; `folder`: for what is packed, made anew.
 * @returns {Promise<{ forN8n: { bin: string, env: Record<string, string> }, close(): void }>} `forN8n`: the settings of an
 *   instance whose panel installs from it.
 */
async function startMiniRegistry({ checkout, folder }) {
	const packs = path.join(folder, 'packs');
	const bin = path.join(folder, 'bin');
	fs.rmSync(folder, { recursive: true, force: true });
	for (const each of [packs, bin]) fs.mkdirSync(each, { recursive: true });
	const folders = [checkout, ...dependenciesOf(checkout)];
	await runNpm(['pack', '--ignore-scripts', '--pack-destination', packs, ...folders], checkout);

	const versions = fs.readdirSync(packs).map((file) => versionOf(path.join(packs, file)));
	const port = await freePort();
	const url = `http://127.0.0.1:${port}`;
	const server = http.createServer((request, response) => {
		const [name, tarball] = decodeURIComponent((request.url ?? '/').slice(1)).split('/-/');
		const found = versions.find((version) => version.name === name);
		if (found === undefined) return response.writeHead(404).end('{}');
		const { content, ...version } = found;
		if (tarball !== undefined) return response.end(content);
		const dist = { ...version.dist, tarball: `${url}/${encodeURIComponent(name)}/-/package.tgz` };
		response.setHeader('content-type', 'application/json');
		response.end(
			JSON.stringify({
				name,
				'dist-tags': { latest: version.version },
				versions: { [version.version]: { ...version, dist } },
			}),
		);
	});
	await new Promise((resolve) => server.listen(port, '127.0.0.1', () => resolve(undefined)));

	// The last --registry of a command line counts; n8n names one of its own.
	const words = [...npmCommand(), '"$@"', `--registry=${url}`, `--cache=${folder}/npm-cache`];
	const quoted = words.map((word) =>
		word === '"$@"' ? word : `'${word.replaceAll("'", `'\\''`)}'`,
	);
	fs.writeFileSync(path.join(bin, 'npm'), `#!/bin/sh\nexec ${quoted.join(' ')}\n`, { mode: 0o755 });
	return {
		forN8n: {
			bin,
			// Before it installs, n8n asks npm's and its own site about the package. Whatever they would say, and however
			// long a machine without internet would wait for them: a proxy that refuses ends it at once.
			env: { HTTP_PROXY: url, HTTPS_PROXY: url },
		},
		close() {
			server.close();
			server.closeAllConnections();
		},
	};
}

module.exports = { startMiniRegistry };
