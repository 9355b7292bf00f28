'use strict';

/**
 * A real n8n as a process: its own user folder, its own database in the embedded PostgreSQL, its
 * own process group, this package installed in it, and killed as a crash would when a test asks.
 */

const { execFileSync } = require('node:child_process');
const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');

const { N8nClient } = require('./client');
const { KeptProcess } = require('./kept-process');
const { freePort } = require('./ports');

const OWNER_EMAIL = 'owner@example.com';
/** What n8n writes when it answers: `/healthz` does before the routes exist. */
const READY = { main: 'Editor is now accessible', worker: 'n8n worker is now ready' };

/** No internet, no telemetry, no dialogs. */
const QUIET = {
	N8N_DIAGNOSTICS_ENABLED: 'false',
	N8N_VERSION_NOTIFICATIONS_ENABLED: 'false',
	N8N_VERSION_NOTIFICATIONS_WHATS_NEW_ENABLED: 'false',
	N8N_TEMPLATES_ENABLED: 'false',
	N8N_DYNAMIC_BANNERS_ENABLED: 'false',
	N8N_PERSONALIZATION_ENABLED: 'false',
	N8N_HIRING_BANNER_ENABLED: 'false',
	N8N_LICENSE_AUTO_RENEW_ENABLED: 'false',
	N8N_VERIFIED_PACKAGES_ENABLED: 'false',
	N8N_DISABLED_MODULES: 'mcp-registry',
	N8N_SECURE_COOKIE: 'false',
	N8N_LISTEN_ADDRESS: '127.0.0.1',
};

/**
 * @typedef {object} InstanceSettings
 * @property {import('./runtime').Runtime} runtime
 * @property {string} folder n8n's user folder; kept between starts.
 * @property {number} port
 * @property {{ host: string, port: number, user: string, password: string, database: string }} postgres
 *   n8n's own database, which has to exist.
 * @property {'main' | 'worker'} [role] `worker`: takes jobs from the queue that `env` names, and has
 *   no editor; the port is its health check's. Default `main`.
 * @property {string} [bin] A folder whose programs come before all others on its PATH.
 * @property {Record<string, string>} [env]
 */

/** @param {string} file @param {() => string} make @returns {string} */
function readOrMake(file, make) {
	if (!fs.existsSync(file)) fs.writeFileSync(file, `${make()}\n`, { mode: 0o600 });
	return fs.readFileSync(file, 'utf8').trim();
}

class N8nInstance {
	#process;

	/** @param {InstanceSettings} settings */
	constructor(settings) {
		this.settings = settings;
		this.logFile = path.join(settings.folder, 'n8n.log');
		fs.mkdirSync(settings.folder, { recursive: true, mode: 0o700 });
		this.#process = new KeptProcess(this.logFile);
		/** Speaks to it as its owner. */
		this.client = new N8nClient({
			baseUrl: `http://127.0.0.1:${settings.port}`,
			email: OWNER_EMAIL,
			password: this.#ownerPassword(),
		});
	}

	/** Made once per user folder, so that the login stays the same and is nowhere in the code. */
	#ownerPassword() {
		return readOrMake(path.join(this.settings.folder, 'owner-password'), () => {
			// n8n asks for a digit and a capital letter.
			return `N8n-${crypto.randomBytes(9).toString('base64url')}`;
		});
	}

	/** Kept as well: n8n ends all sessions when it is started with another hash. */
	#ownerPasswordHash() {
		const { n8nFolder } = this.settings.runtime;
		const bcrypt = require(path.join(n8nFolder, 'node_modules', 'bcryptjs'));
		return readOrMake(path.join(this.settings.folder, 'owner-password-hash'), () =>
			bcrypt.hashSync(this.client.password, 10),
		);
	}

	/** @returns {Promise<NodeJS.ProcessEnv>} */
	async #environment() {
		const { runtime, postgres, folder, port, role, bin, env } = this.settings;
		const own = { ...process.env };
		// What the user set for an n8n of their own (or for npm) must not reach this one.
		for (const name of Object.keys(own)) {
			if (/^(N8N_|DB_|EXECUTIONS_|QUEUE_|WEBHOOK_|GENERIC_|CREDENTIALS_|npm_)/i.test(name)) {
				delete own[name];
			}
		}
		for (const name of ['NODE_OPTIONS', 'NODE_PATH', 'NODE_ENV', 'INIT_CWD', 'JEST_WORKER_ID']) {
			delete own[name];
		}
		return {
			...own,
			...QUIET,
			PATH: [
				...(bin === undefined ? [] : [bin]),
				path.dirname(runtime.node),
				process.env.PATH ?? '',
			].join(path.delimiter),
			// Local calls must not take a proxy's detour.
			NO_PROXY: '127.0.0.1,localhost',
			no_proxy: '127.0.0.1,localhost',
			N8N_USER_FOLDER: folder,
			N8N_HOST: '127.0.0.1',
			...(role === 'worker'
				? { QUEUE_HEALTH_CHECK_ACTIVE: 'true', QUEUE_HEALTH_CHECK_PORT: String(port) }
				: { N8N_PORT: String(port) }),
			N8N_RUNNERS_BROKER_PORT: String(await freePort()),
			N8N_UNVERIFIED_PACKAGES_ENABLED: 'true',
			N8N_INSTANCE_OWNER_MANAGED_BY_ENV: 'true',
			N8N_INSTANCE_OWNER_EMAIL: this.client.email,
			N8N_INSTANCE_OWNER_FIRST_NAME: 'Local',
			N8N_INSTANCE_OWNER_LAST_NAME: 'Owner',
			N8N_INSTANCE_OWNER_PASSWORD_HASH: this.#ownerPasswordHash(),
			DB_TYPE: 'postgresdb',
			DB_POSTGRESDB_HOST: postgres.host,
			DB_POSTGRESDB_PORT: String(postgres.port),
			DB_POSTGRESDB_USER: postgres.user,
			DB_POSTGRESDB_PASSWORD: postgres.password,
			DB_POSTGRESDB_DATABASE: postgres.database,
			...env,
		};
	}

	/**
	 * Starts n8n and waits until its editor and webhooks answer, or until the worker takes jobs.
	 *
	 * @param {(line: string) => void} [report] Is called every 10 s with what it waits for.
	 * @throws {Error} With the end of n8n's log, when it ends before or takes over 5 minutes.
	 */
	async start(report = () => {}) {
		const { runtime, folder, role = 'main' } = this.settings;
		await this.#process.start(
			{
				what: role === 'main' ? 'n8n' : 'n8n worker',
				command: runtime.node,
				parameters: [
					path.join(runtime.n8nFolder, 'node_modules', 'n8n', 'bin', 'n8n'),
					role === 'main' ? 'start' : 'worker',
				],
				folder,
				env: await this.#environment(),
				ready: READY[role],
			},
			report,
		);
	}

	get running() {
		return this.#process.child !== null;
	}

	/** Asks n8n to end, and its whole process group after 20 s; nothing else is touched. */
	async stop() {
		await this.#process.stop();
	}

	/** Kills n8n and its task runner on the spot, as a crash would. */
	async kill() {
		await this.#process.kill();
	}
}

/**
 * Installs the packed checkout the way the community nodes panel does: unpacked below the user
 * folder, package.json without dev-, peer- and optionalDependencies, run-time dependencies by npm
 * without install scripts.
 *
 * @param {{ checkout: string, userFolder: string }} where
 * @param {(line: string) => void} report
 * @returns {Promise<boolean>} Whether something was installed; false: the same content is there.
 */
async function installPackage({ checkout, userFolder }, report) {
	const { runNpm } = require('./runtime');
	const { name } = JSON.parse(fs.readFileSync(path.join(checkout, 'package.json'), 'utf8'));
	const nodes = path.join(userFolder, '.n8n', 'nodes');
	const target = path.join(nodes, 'node_modules', name);
	const packs = path.join(userFolder, 'pack');
	fs.rmSync(packs, { recursive: true, force: true });
	fs.mkdirSync(packs, { recursive: true });
	fs.mkdirSync(path.dirname(target), { recursive: true });

	await runNpm(['pack', '--ignore-scripts', '--pack-destination', packs], checkout);
	const [file] = fs.readdirSync(packs);
	if (file === undefined) throw new Error('npm pack made no file');
	const tarball = path.join(packs, file);
	const digest = crypto.createHash('sha256').update(fs.readFileSync(tarball)).digest('hex');
	const marker = path.join(nodes, `${name}.sha256`);
	if (fs.existsSync(marker) && fs.readFileSync(marker, 'utf8') === digest) {
		report('package: the same content is installed already');
		return false;
	}
	fs.rmSync(marker, { force: true });
	fs.rmSync(target, { recursive: true, force: true });
	fs.mkdirSync(target, { recursive: true });
	execFileSync('tar', ['-xzf', tarball, '-C', target, '--strip-components=1']);
	const manifest = path.join(target, 'package.json');
	const content = JSON.parse(fs.readFileSync(manifest, 'utf8'));
	for (const group of ['devDependencies', 'peerDependencies', 'optionalDependencies']) {
		delete content[group];
	}
	fs.writeFileSync(manifest, JSON.stringify(content, null, 2));
	if (!fs.existsSync(path.join(nodes, 'package.json'))) {
		fs.writeFileSync(
			path.join(nodes, 'package.json'),
			'{"name":"installed-nodes","private":true,"dependencies":{}}\n',
		);
	}
	report('package: installing its run-time dependencies');
	await runNpm(
		[
			'install',
			'--audit=false',
			'--fund=false',
			'--bin-links=false',
			'--install-strategy=shallow',
			'--ignore-scripts=true',
			'--package-lock=false',
		],
		target,
	);
	fs.writeFileSync(marker, digest);
	return true;
}

module.exports = { N8nInstance, installPackage };
