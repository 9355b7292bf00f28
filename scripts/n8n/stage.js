'use strict';

/**
 * Everything around the package that a real run needs, set up from a checkout and taken down
 * again: npm packages, build, PostgreSQL, invoice server, and n8n with this package installed.
 */

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');

const { N8nInstance, installPackage } = require('./instance');
const { startInvoiceServer } = require('./invoice-server');
const { startMiniRegistry } = require('./mini-registry');
const { duration, findRuntime, runNpm, stopInstalls } = require('./runtime');

const LEDGER_CREDENTIAL_TYPE = 'idempotencyLedgerApi';
const LEDGER_SCHEMA = 'idempotency';

/** @typedef {(line: string) => void} Report */

/**
 * @typedef {object} Stage
 * @property {import('./instance').N8nInstance} n8n Ready, logged in on first use.
 * @property {{ host: string, port: number, user: string, password: string, database: string }} ledger
 *   How the ledger's own database is reached: with rights on that database only.
 * @property {Awaited<ReturnType<typeof startInvoiceServer>>} invoiceServer
 * @property {import('../embedded-postgres').RunningPostgres} postgres The server of all databases.
 * @property {import('./runtime').Runtime} runtime
 * @property {string} installedNodes The folder in which n8n has this package.
 */

/**
 * Prints lines with the time since the start, so that a slow step shows itself.
 *
 * @returns {Report}
 */
function progress() {
	const since = Date.now();
	return (line) => {
		const seconds = ((Date.now() - since) / 1000).toFixed(1).padStart(6);
		process.stdout.write(`[${seconds} s] ${line}\n`);
	};
}

/**
 * @param {string} checkout
 * @returns {boolean} Whether node_modules holds what package-lock.json names (optional ones apart).
 */
function dependenciesInstalled(checkout) {
	const installed = path.join(checkout, 'node_modules', '.package-lock.json');
	const locked = path.join(checkout, 'package-lock.json');
	if (!fs.existsSync(installed)) return false;
	if (!fs.existsSync(locked)) return true;
	const { packages: present } = JSON.parse(fs.readFileSync(installed, 'utf8'));
	const { packages: wanted } = JSON.parse(fs.readFileSync(locked, 'utf8'));
	return Object.entries(wanted).every(
		([name, entry]) =>
			name === '' ||
			entry.optional === true ||
			entry.devOptional === true ||
			entry.peer === true ||
			entry.extraneous === true ||
			present[name]?.version === entry.version,
	);
}

/** @param {string} checkout @param {Report} report */
async function installDependencies(checkout, report) {
	if (dependenciesInstalled(checkout)) return;
	report('npm packages: installing');
	const since = Date.now();
	await runNpm(['ci', '--no-audit', '--no-fund'], checkout);
	report(`npm packages: installed in ${duration(Date.now() - since)}`);
}

/** @param {string} folder @returns {string[]} All files below, sorted. */
function filesBelow(folder) {
	if (!fs.existsSync(folder)) return [];
	if (fs.statSync(folder).isFile()) return [folder];
	return fs
		.readdirSync(folder)
		.sort()
		.flatMap((name) => filesBelow(path.join(folder, name)));
}

/** @param {string} checkout @param {Report} report */
async function build(checkout, report) {
	const hash = crypto.createHash('sha256');
	const sources = ['credentials', 'ledger', 'migrations', 'nodes'];
	const settings = ['package.json', 'package-lock.json', 'tsconfig.json', 'gulpfile.js'];
	for (const file of [...sources, ...settings].flatMap((name) =>
		filesBelow(path.join(checkout, name)),
	)) {
		hash.update(`${path.relative(checkout, file)}\0`).update(fs.readFileSync(file));
	}
	const outputs = () =>
		filesBelow(path.join(checkout, 'dist')).map((file) => path.relative(checkout, file));
	const digest = hash.digest('hex');
	const marker = path.join(checkout, '.local', 'build.json');
	if (fs.existsSync(marker)) {
		const last = JSON.parse(fs.readFileSync(marker, 'utf8'));
		// Somebody may have built another state or removed dist meanwhile: its list tells.
		const newest = Math.max(
			0,
			...outputs().map((file) => fs.statSync(path.join(checkout, file)).mtimeMs),
		);
		const same = last.digest === digest && last.newest === newest;
		if (same && last.outputs === outputs().length) return;
	}
	report('build: compiling');
	await runNpm(['run', 'build'], checkout);
	const built = outputs();
	fs.mkdirSync(path.dirname(marker), { recursive: true });
	fs.writeFileSync(
		marker,
		JSON.stringify({
			digest,
			outputs: built.length,
			newest: Math.max(0, ...built.map((file) => fs.statSync(path.join(checkout, file)).mtimeMs)),
		}),
	);
}

/**
 * A database for an n8n, unless it is there.
 *
 * @param {import('../embedded-postgres').RunningPostgres} postgres
 * @param {string} database Lower-case letters.
 * @returns {Promise<{ host: string, port: number, user: string, password: string, database: string }>}
 */
async function createN8nDatabase(postgres, database) {
	const { host, port, user, password } = postgres;
	await asSuperuser(postgres, async (client) => {
		const { rows } = await client.query('select from pg_database where datname = $1', [database]);
		if (rows.length === 0) await client.query(`create database ${database}`);
	});
	return { host, port, user, password, database };
}

/**
 * A database for the ledger with a role that owns it and nothing else, unless they are there.
 *
 * @param {import('../embedded-postgres').RunningPostgres} postgres
 * @returns {Promise<{ host: string, port: number, user: string, password: string, database: string }>}
 */
async function createLedgerDatabase(postgres) {
	const { host, port, password } = postgres;
	await asSuperuser(postgres, async (client) => {
		const { rows } = await client.query(
			`select exists (select from pg_roles where rolname = 'ledger') as role,
				exists (select from pg_database where datname = 'ledger') as ledger`,
		);
		if (!rows[0].role) await client.query('create role ledger login');
		await client.query(`alter role ledger password ${client.escapeLiteral(password)}`);
		if (!rows[0].ledger) await client.query('create database ledger owner ledger');
	});
	return { host, port, user: 'ledger', password, database: 'ledger' };
}

/**
 * @param {import('../embedded-postgres').RunningPostgres} postgres
 * @param {(client: import('pg').Client) => Promise<void>} work
 */
async function asSuperuser({ host, port, user, password, database }, work) {
	const { Client } = require('pg');
	const client = new Client({ host, port, user, password, database });
	await client.connect();
	try {
		await work(client);
	} finally {
		await client.end();
	}
}

/**
 * Runs until `close()`; what was started before a failure is stopped by `close()` as well.
 *
 * @param {object} options
 * @param {string} options.checkout
 * @param {string} options.folder Where the data live: PostgreSQL's, n8n's.
 * @param {() => Promise<{ postgres?: number, n8n: number, invoices: number }>} options.choosePorts
 * @param {Report} options.report
 * @param {boolean} [options.panel] n8n starts without the package, for its community nodes panel to install.
 */
function createStage({ checkout, folder, choosePorts, report, panel = false }) {
	/** @type {(() => Promise<void>)[]} Newest first. */
	const closers = [];
	let closing = false;

	const stopIfClosing = () => {
		if (closing) throw new Error('stopped while starting');
	};

	return {
		/** @returns {Promise<Stage>} */
		async open() {
			await installDependencies(checkout, report);
			stopIfClosing();
			const runtime = await findRuntime(report);
			stopIfClosing();
			await build(checkout, report);
			stopIfClosing();

			const ports = await choosePorts();
			const { startPostgres } = require('../embedded-postgres');
			const postgres = await startPostgres({
				dataFolder: path.join(folder, 'postgres'),
				port: ports.postgres,
			});
			closers.unshift(() => postgres.stop());
			stopIfClosing();
			const ledger = await createLedgerDatabase(postgres);
			const n8nDatabase = await createN8nDatabase(postgres, 'n8n');
			report(`PostgreSQL: ready on port ${postgres.port}`);

			const invoiceServer = await startInvoiceServer({ port: ports.invoices });
			closers.unshift(() => invoiceServer.close());
			report(`invoice server: ready on port ${invoiceServer.port}`);

			const userFolder = path.join(folder, 'n8n');
			/** @type {Awaited<ReturnType<typeof startMiniRegistry>> | null} */
			let registry = null;
			if (panel) {
				registry = await startMiniRegistry({ checkout, folder: path.join(folder, 'registry') });
				closers.unshift(async () => registry?.close());
			} else {
				await installPackage({ checkout, userFolder }, report);
			}
			stopIfClosing();
			const n8n = new N8nInstance({
				runtime,
				folder: userFolder,
				port: ports.n8n,
				postgres: n8nDatabase,
				...registry?.forN8n,
			});
			closers.unshift(() => n8n.stop());
			report(`n8n ${runtime.n8nVersion}: starting`);
			await n8n.start(report);
			stopIfClosing();
			report(`n8n ${runtime.n8nVersion}: ready on port ${ports.n8n}`);
			const installedNodes = path.join(userFolder, '.n8n', 'nodes');
			return { n8n, ledger, invoiceServer, postgres, runtime, installedNodes };
		},

		/** Stops all that was started, newest first, and nothing else. May be called twice. */
		async close() {
			closing = true;
			stopInstalls();
			for (const close of closers.splice(0)) await close();
		},
	};
}

/**
 * @param {Stage['ledger']} ledger
 * @returns {Record<string, unknown>} The fields of the ledger credential.
 */
function ledgerCredential(ledger) {
	return {
		host: ledger.host,
		port: ledger.port,
		database: ledger.database,
		user: ledger.user,
		password: ledger.password,
		schema: LEDGER_SCHEMA,
		tls: 'off',
		automaticMigration: true,
	};
}

/**
 * The example of workflows/, its call pointed at an invoice server.
 *
 * @param {string} checkout
 * @param {string} invoiceUrl
 */
function invoiceExample(checkout, invoiceUrl) {
	const file = path.join(checkout, 'workflows', 'invoice-from-order-webhook.json');
	const workflow = JSON.parse(fs.readFileSync(file, 'utf8'));
	for (const node of workflow.nodes) {
		if (node.name === 'Create Invoice') node.parameters.url = `${invoiceUrl}/invoices`;
	}
	return workflow;
}

module.exports = {
	LEDGER_CREDENTIAL_TYPE,
	LEDGER_SCHEMA,
	createLedgerDatabase,
	createN8nDatabase,
	createStage,
	invoiceExample,
	ledgerCredential,
	progress,
};
