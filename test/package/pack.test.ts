import { execFile } from 'node:child_process';
import {
	cpSync,
	existsSync,
	mkdirSync,
	readdirSync,
	readFileSync,
	realpathSync,
	rmSync,
	symlinkSync,
	writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { createTestFolder } from '../postgres/database';
import { listedDependencies } from './listed-dependencies';

const run = promisify(execFile);
const checkout = path.resolve(__dirname, '../..');
const manifest = JSON.parse(readFileSync(path.join(checkout, 'package.json'), 'utf8')) as {
	name: string;
	types: string;
	bin: Record<string, string>;
	n8n: { nodes: string[]; credentials: string[] };
};

/** What the child process saw that loaded the installed package as n8n does. */
interface Loaded {
	path: string;
	className: string;
	name: string;
	icons: string[];
}
interface Report {
	nodes: Loaded[];
	credentials: Loaded[];
	exported: Record<string, string>;
}

/** Runs in the child: only what the package brought and the host's n8n-workflow can be required. */
const LOAD = `
const path = require('node:path');
const [folder, nodes, credentials] = JSON.parse(process.argv[1]);
const icons = (icon) => icon === undefined ? [] : typeof icon === 'string' ? [icon] : [icon.light, icon.dark];
const load = (file) => {
	// n8n takes the class that is named like the file, up to its first dot.
	const className = path.basename(file).split('.')[0];
	const loaded = new (require(path.join(folder, file))[className])();
	const described = loaded.description ?? loaded;
	return { path: file, className, name: described.name, icons: icons(described.icon) };
};
const exported = Object.fromEntries(Object.entries(require(folder)).map(([name, value]) => [name, typeof value]));
console.log(JSON.stringify({ nodes: nodes.map(load), credentials: credentials.map(load), exported }));
`;

let temporary: string;
let installed: string;
let packed: string[];
let bytes: { tarball: number; unpacked: number };
let report: Report;

beforeAll(async () => {
	temporary = createTestFolder('pack');
	const source = buildCopy();
	await npm(source, 'run', 'build');
	const { stdout } = await npm(source, 'pack', '--json');
	const [{ filename, files, size, unpackedSize }] = JSON.parse(stdout) as [
		{ filename: string; files: Array<{ path: string }>; size: number; unpackedSize: number },
	];
	packed = files.map((file) => file.path);
	bytes = { tarball: size, unpacked: unpackedSize };
	installed = await installLikeThePanel(path.join(source, filename));
	report = await loadLikeN8n();
}, 180_000);

afterAll(() => rmSync(temporary, { recursive: true, force: true }));

/** A build beside the checkout, so that neither its dist nor another test's is touched. */
function buildCopy(): string {
	const copy = path.join(temporary, 'source');
	for (const entry of [
		...['nodes', 'credentials', 'ledger', 'check', 'migrations', 'index.js', 'package.json'],
		...['tsconfig.json', 'gulpfile.js', 'README.md', 'LICENSE'],
	]) {
		const from = path.join(checkout, entry);
		if (existsSync(from)) cpSync(from, path.join(copy, entry), { recursive: true });
	}
	symlinkSync(path.join(checkout, 'node_modules'), path.join(copy, 'node_modules'), 'junction');
	return copy;
}

/**
 * The steps of n8n's CommunityPackagesService.downloadPackage, from a tarball: unpack, drop the
 * manifest's dev, peer and optional dependencies, install the rest there without scripts.
 */
async function installLikeThePanel(tarball: string): Promise<string> {
	const folder = path.join(temporary, 'panel', 'node_modules', manifest.name);
	mkdirSync(folder, { recursive: true });
	writeFileSync(
		path.join(temporary, 'panel', 'package.json'),
		JSON.stringify({ name: 'installed-nodes', private: true, dependencies: {} }),
	);
	await run('tar', ['-xzf', tarball, '-C', folder, '--strip-components=1']);
	const file = path.join(folder, 'package.json');
	const kept = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
	for (const field of ['devDependencies', 'peerDependencies', 'optionalDependencies']) {
		delete kept[field];
	}
	writeFileSync(file, JSON.stringify(kept, null, 2));
	await npm(
		folder,
		'install',
		...['--audit=false', '--fund=false', '--bin-links=false', '--install-strategy=shallow'],
		...['--ignore-scripts=true', '--package-lock=false'],
		// Not the panel's: what npm has in its cache from installing this checkout is not fetched again.
		'--prefer-offline',
	);
	return folder;
}

async function loadLikeN8n(): Promise<Report> {
	// A host folder with n8n-workflow alone: the checkout's node_modules would hide a missing dependency.
	const host = path.join(temporary, 'host', 'node_modules');
	mkdirSync(host, { recursive: true });
	symlinkSync(
		realpathSync(path.join(checkout, 'node_modules', 'n8n-workflow')),
		path.join(host, 'n8n-workflow'),
		'junction',
	);
	const { stdout } = await run(
		process.execPath,
		['-e', LOAD, JSON.stringify([installed, manifest.n8n.nodes, manifest.n8n.credentials])],
		{ cwd: temporary, env: { PATH: process.env.PATH, NODE_PATH: host } },
	);
	return JSON.parse(stdout) as Report;
}

function npm(cwd: string, ...parameters: string[]) {
	return run('npm', parameters, {
		cwd,
		// Settings of the npm that runs these tests are not those of the panel's.
		env: Object.fromEntries(
			Object.entries(process.env).filter(([name]) => !/^npm_(?!config_registry$)/i.test(name)),
		),
		shell: process.platform === 'win32',
		maxBuffer: 64 * 1024 * 1024,
	});
}

function filesUnder(folder: string): string[] {
	return readdirSync(folder, { recursive: true, withFileTypes: true })
		.filter((entry) => entry.isFile())
		.map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
		.map((file) => file.split(path.sep).join('/'))
		.sort();
}

describe('the packed package, installed as the community nodes panel does', () => {
	test('every node and credential that package.json names loads, its class named like its file (case 135)', () => {
		expect(report.nodes.map((node) => node.path)).toEqual(manifest.n8n.nodes);
		expect(report.credentials.map((credential) => credential.path)).toEqual(
			manifest.n8n.credentials,
		);
		expect(report.nodes.length).toBeGreaterThan(0);
		for (const { className, name } of [...report.nodes, ...report.credentials]) {
			expect(name.toLowerCase()).toBe(className.toLowerCase());
		}
	});

	test('every icon a node or credential names is in the tarball (case 135)', () => {
		for (const { path: file, icons } of [...report.nodes, ...report.credentials]) {
			expect({ file, icons: icons.length }).not.toEqual({ file, icons: 0 });
			for (const icon of icons) {
				expect(icon).toMatch(/^file:/);
				const folder = path.posix.dirname(file);
				expect(packed).toContain(path.posix.join(folder, icon.slice('file:'.length)));
			}
		}
	});

	test('every node has its codex file (case 135)', () => {
		for (const file of manifest.n8n.nodes) {
			expect(packed).toContain(file.replace(/\.js$/, '.json'));
		}
	});

	test('the migrations travel with it, unchanged', () => {
		const migrations = path.join(checkout, 'migrations');
		const travelling = filesUnder(migrations).filter((file) => /\.sql$|^[^/]+\.json$/.test(file));
		expect(travelling.length).toBeGreaterThan(0);
		for (const file of travelling) {
			const [ours, theirs] = [migrations, path.join(installed, 'dist', 'migrations')].map(
				(folder) => readFileSync(path.join(folder, file), 'utf8'),
			);
			expect({ file, text: theirs }).toEqual({ file, text: ours });
		}
	});

	test('index.js gives the ledger client, with its types', () => {
		expect(report.exported).toMatchObject({ createLedger: 'function' });
		expect(packed).toContain(manifest.types);
	});

	test('a strict TypeScript program compiles against its types, with those of Node.js alone', async () => {
		const folder = path.join(temporary, 'consumer');
		mkdirSync(path.join(folder, 'node_modules', '@types'), { recursive: true });
		for (const [name, target] of [
			[manifest.name, installed],
			['@types/node', realpathSync(path.join(checkout, 'node_modules', '@types', 'node'))],
		]) {
			symlinkSync(target, path.join(folder, 'node_modules', name), 'junction');
		}
		writeFileSync(
			path.join(folder, 'consumer.ts'),
			`import { createLedger, identifyByKey } from '${manifest.name}';
			import { randomUUID } from 'crypto';
			export async function once(order: string): Promise<unknown> {
				const ledger = createLedger({ host: 'h', port: 5432, database: 'd', user: 'u', password: 'p' });
				const { workId, key } = identifyByKey({ kind: 'invoice' }, [{ name: 'order', value: order }]);
				const token = randomUUID();
				const [answer] = await ledger.works.claim([{ workId, key, token }], { kind: 'invoice' });
				if (answer.status === 'claimed') await ledger.works.complete([{ workId, token, result: 1 }]);
				await ledger.close();
				return answer.result;
			}`,
		);
		const tsc = path.join(checkout, 'node_modules', 'typescript', 'bin', 'tsc');
		const compiled = run(
			process.execPath,
			[tsc, '--noEmit', '--strict', '--target', 'es2022', '--module', 'commonjs', 'consumer.ts'],
			{ cwd: folder },
		).catch((error: { stdout: string }) => error);
		expect((await compiled).stdout).toBe('');
	}, 60_000);

	test('its command checks a workflow, and knows its own version', async () => {
		const command = path.join(installed, manifest.bin[manifest.name]);
		expect(readFileSync(command, 'utf8')).toMatch(/^#!\/usr\/bin\/env node\n/);
		const workflows = path.join(checkout, 'test', 'check', 'workflows');
		const checking = (file: string) =>
			run(process.execPath, [command, 'check', '--format', 'sarif', path.join(workflows, file)], {
				cwd: temporary,
				env: { PATH: process.env.PATH },
			}).catch((error: { code: number; stdout: string }) => error);
		expect((await checking('unguarded-effect.good.json')).stdout).toContain('"results": [\n]');
		const { version } = JSON.parse(readFileSync(path.join(checkout, 'package.json'), 'utf8')) as {
			version: string;
		};
		expect(await checking('unguarded-effect.bad.json')).toMatchObject({
			code: 1,
			stdout: expect.stringMatching(
				new RegExp(`"version":"${version}"[^]*"ruleId":"unguarded-effect"`),
			),
		});
	});

	test('nothing else is in it: no sources, no tests, no source maps', () => {
		const foreign = packed.filter(
			(file) =>
				!/^(dist\/(nodes|credentials|ledger|check|migrations)\/|(index\.js|package\.json|README\.md|LICENSE)$)/.test(
					file,
				) || /(?<!\.d)\.ts$|\.map$|\.test\./.test(file),
		);
		expect(foreign).toEqual([]);
	});

	test('no compiled file points to a source map that is not there', () => {
		const pointing = filesUnder(path.join(installed, 'dist')).filter((file) =>
			/\.(js|d\.ts)$/.test(file)
				? readFileSync(path.join(installed, 'dist', file), 'utf8').includes('sourceMappingURL=')
				: false,
		);
		expect(pointing).toEqual([]);
	});

	test('it is as large as the security page says, and within its limits', () => {
		const said = /([\d.]+) MB as a tarball, ([\d.]+) MB and (\d+) files unpacked/.exec(
			readFileSync(path.join(checkout, 'docs', 'security.md'), 'utf8'),
		);
		const [tarball, unpacked, files] = (said ?? []).slice(1).map(Number);
		expect(Math.abs(bytes.tarball / 1e6 - tarball)).toBeLessThan(0.05);
		expect(Math.abs(bytes.unpacked / 1e6 - unpacked)).toBeLessThan(0.1);
		expect(Math.abs(packed.length - files)).toBeLessThanOrEqual(10);
		expect(bytes.tarball).toBeLessThan(0.6e6);
		expect(packed.length).toBeLessThan(700);
	});

	test('what is installed beside it is what the security page lists', () => {
		// shallow: those of pg stand in its own folder
		const found = filesUnder(path.join(installed, 'node_modules')).flatMap(
			(file) =>
				/(?:^|node_modules\/)((?:@[^/]+\/)?[^/@.][^/]*)\/package\.json$/.exec(file)?.[1] ?? [],
		);
		const listed = listedDependencies().map(({ name }) => name);
		expect([...new Set(found)].sort()).toEqual(listed.sort());
	});

	test('no copy of n8n-workflow comes with it; it is the host’s (case 137)', () => {
		const modules = readdirSync(path.join(installed, 'node_modules'));
		expect(modules).toEqual(expect.arrayContaining(['pg', 'fast-json-stable-stringify']));
		const copies = filesUnder(path.join(temporary, 'panel')).filter((file) =>
			/(^|\/)n8n-(workflow|core)\//.test(file),
		);
		expect(copies).toEqual([]);
	});
});
