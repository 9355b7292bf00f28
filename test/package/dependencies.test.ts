/** What is installed beside the package, taken from node_modules itself. */

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';

import { ROOT } from '../docs/pages';
import { listedDependencies } from './listed-dependencies';

interface Manifest {
	name: string;
	version: string;
	license: string;
	scripts?: Record<string, string>;
	gypfile?: boolean;
	dependencies?: Record<string, string>;
	optionalDependencies?: Record<string, string>;
	peerDependencies?: Record<string, string>;
	peerDependenciesMeta?: Record<string, { optional?: boolean }>;
}

const manifestIn = (folder: string) =>
	JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')) as Manifest;

/** Where Node.js finds a package from a folder. */
function locate(name: string, from: string): string {
	const here = path.join(from, 'node_modules', name);
	if (existsSync(here)) return here;
	if (from === ROOT) throw new Error(`${name} is not installed`);
	return locate(name, path.dirname(from));
}

function neededBy(manifest: Manifest): string[] {
	const { dependencies, optionalDependencies, peerDependencies = {} } = manifest;
	const peers = Object.keys(peerDependencies).filter(
		(name) => manifest.peerDependenciesMeta?.[name]?.optional !== true,
	);
	return [...Object.keys({ ...dependencies, ...optionalDependencies }), ...peers];
}

/** Folders of the run-time dependencies, direct ones and theirs. n8n-workflow is the host's. */
function runTimeTree(): string[] {
	const found = new Set<string>();
	const visit = (name: string, from: string) => {
		const folder = locate(name, from);
		if (found.has(folder)) return;
		found.add(folder);
		for (const needed of neededBy(manifestIn(folder))) visit(needed, folder);
	};
	for (const name of Object.keys(manifestIn(ROOT).dependencies ?? {})) visit(name, ROOT);
	return [...found];
}

const filesOf = (folder: string) =>
	readdirSync(folder, { recursive: true, encoding: 'utf8' })
		.map((file) => path.join(folder, file))
		.filter((file) => statSync(file).isFile());

const tree = runTimeTree();

test('the security page lists every run-time dependency with its version, licence and size, and no other', () => {
	const installed = tree.map((folder) => {
		const { name, version, license } = manifestIn(folder);
		const bytes = filesOf(folder).reduce((sum, file) => sum + statSync(file).size, 0);
		return { name, version, licence: license, size: `${Math.round(bytes / 1000)} kB` };
	});
	const sorted = (list: typeof installed) => list.sort((a, b) => a.name.localeCompare(b.name));
	expect(sorted(listedDependencies())).toEqual(sorted(installed));
});

test('the lock agrees on what users install', () => {
	const { packages } = JSON.parse(readFileSync(path.join(ROOT, 'package-lock.json'), 'utf8')) as {
		packages: Record<string, { version: string; dev?: true; peer?: true; devOptional?: true }>;
	};
	const locked = Object.entries(packages)
		.filter(([name, { dev, peer, devOptional }]) => name !== '' && !dev && !peer && !devOptional)
		.map(([name, { version }]) => `${name.replace('node_modules/', '')} ${version}`);
	const listed = listedDependencies().map(({ name, version }) => `${name} ${version}`);
	expect(locked.sort()).toEqual(listed.sort());
});

test('every licence lets anybody use, change and pass on', () => {
	const licences = new Set(tree.map((folder) => manifestIn(folder).license));
	expect([...licences].sort()).toEqual(['ISC', 'MIT']);
	expect(manifestIn(ROOT).license).toBe('MIT');
});

test('neither the package nor what it brings runs a script when it is installed, or has compiled code', () => {
	for (const folder of [ROOT, ...tree]) {
		const { name, scripts = {}, gypfile } = manifestIn(folder);
		const own = folder === ROOT ? [] : filesOf(folder);
		expect({
			name,
			scripts: ['preinstall', 'install', 'postinstall'].filter((script) => script in scripts),
			compiled: own.filter((file) => /\.(node|gyp|so|dll|wasm)$/.test(file)),
			gypfile,
		}).toEqual({ name, scripts: [], compiled: [], gypfile: undefined });
	}
});
