'use strict';

/**
 * Part "instructions": what the server executes for one claim and one completion, counted by valgrind on a PostgreSQL in
 * single-user mode. Unlike a rate, the figure is nearly the same on every machine and under any load. Needs Linux and
 * `valgrind`.
 *
 * A statement's count is the difference of two runs, one of which has more of them. "By name" is prepared once and then
 * executed, as a connection without a pooler does it.
 */

const { execFile, spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { promisify } = require('node:util');

const { startPostgres } = require('../embedded-postgres');
const { createRunFolder } = require('../run-folder');
const { functionsSide, loadLedger, startClient, startRaw } = require('./sides');
const { makeWorks } = require('./values');

/** Statements counted, after as many that warm the caches. */
const COUNTED = 100;
const SIGNALS = /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']);
const COUNT_LINE = /I\s+refs:\s+([\d,]+)/;

/** @typedef {import('./values').Work} Work */
/** @typedef {{ text: string, values: unknown[] }} Statement */
/** @typedef {{ claim: (work: Work) => Promise<Statement>, complete: (work: Work) => Promise<Statement> }} Side */

/**
 * A side's statements, written down in the place of being sent.
 *
 * @param {{ claim: (works: Work[]) => Promise<number>, complete: (works: Work[]) => Promise<number> }} side
 * @param {() => Statement | null} taken
 * @returns {Side}
 */
function statementsOf(side, taken) {
	const one =
		(/** @type {(works: Work[]) => Promise<number>} */ call) =>
		async (/** @type {Work} */ work) => {
			// nothing was answered: what it makes of that does not matter here
			await call([work]).catch(() => undefined);
			const statement = taken();
			if (statement === null) throw new Error('no statement was sent');
			return statement;
		};
	return { claim: one(side.claim), complete: one(side.complete) };
}

/** @param {object} sender A pool or a connection: it sends nothing from now on. */
function recorder(sender) {
	/** @type {Statement | null} */
	let last = null;
	const record = async (/** @type {any} */ query, /** @type {unknown[]} */ values) => {
		last = typeof query === 'string' ? { text: query, values } : query;
		return { rows: [] };
	};
	Object.assign(sender, { query: record });
	return () => last;
}

/** @param {unknown} value */
function literal(value) {
	const { escapeLiteral } = require('pg');
	const text = require('pg/lib/utils').prepareValue(value);
	return text === null ? 'null' : escapeLiteral(String(text));
}

/** On one line, as single-user mode wants it. @param {string} text */
const onOneLine = (text) => text.replace(/\s+/g, ' ').trim();

/** @param {Statement} statement */
function sentWhole({ text, values }) {
	return onOneLine(text).replace(/\$(\d+)/g, (_, place) => literal(values[Number(place) - 1]));
}

/** @param {string} name @param {Statement} statement */
const executed = (name, { values }) => `execute ${name}(${values.map(literal).join(', ')})`;

/**
 * @typedef {object} Backend
 * @property {string} binary
 * @property {string} data
 * @property {string} database
 * @property {number} uid
 * @property {number} gid
 */

/** The session that is counted now. @type {import('node:child_process').ChildProcess | null} */
let counting = null;

/** Instructions of a whole single-user session. @param {Backend} backend @param {string[]} lines @returns {Promise<number>} */
async function instructionsOf({ binary, data, database, uid, gid }, lines) {
	const child = spawn(
		'valgrind',
		[
			...['--tool=cachegrind', '--cache-sim=no', '--cachegrind-out-file=/dev/null'],
			...[binary, '--single', '-D', data, database],
		],
		{ uid, gid, cwd: data, stdio: ['pipe', 'ignore', 'pipe'] },
	);
	counting = child;
	let said = '';
	child.stderr?.setEncoding('utf8').on('data', (part) => (said += part));
	child.stdin?.on('error', () => undefined);
	child.stdin?.end(`${lines.join('\n')}\n`);
	await new Promise((resolve, reject) => {
		child.once('error', reject);
		child.once('close', resolve);
	});
	const failure = /^.*\b(?:ERROR|FATAL): .*$/m.exec(said);
	if (failure !== null) throw new Error(failure[0]);
	const count = COUNT_LINE.exec(said);
	if (count === null) throw new Error(`valgrind counted nothing:\n${said.slice(-2_000)}`);
	return Number(count[1].replaceAll(',', ''));
}

/**
 * Thousands of instructions of one claim and of one completion.
 *
 * @param {Backend} backend @param {Side} side @param {boolean} byName
 */
async function countSide(backend, side, byName) {
	/** @param {number} claims @param {number} completions */
	const session = async (claims, completions) => {
		const works = makeWorks(claims);
		const lines = [];
		const steps = { claim: works, complete: works.slice(0, completions) };
		for (const step of /** @type {const} */ (['claim', 'complete'])) {
			for (const [i, work] of steps[step].entries()) {
				const statement = await side[step](work);
				if (!byName) lines.push(sentWhole(statement));
				else {
					if (i === 0) lines.push(`prepare ${step} as ${onOneLine(statement.text)}`);
					lines.push(executed(step, statement));
				}
			}
		}
		return await instructionsOf(backend, lines);
	};
	const claimed = await session(2 * COUNTED, COUNTED);
	const thousands = (/** @type {number} */ more) => Math.round((more - claimed) / COUNTED / 1000);
	return {
		claim: thousands(await session(3 * COUNTED, COUNTED)),
		complete: thousands(await session(2 * COUNTED, 2 * COUNTED)),
	};
}

const TITLES = { raw: 'raw SQL', functions: 'functions, every option named', client: 'client' };

/** @type {import('./measure').Part} */
const instructions = {
	name: 'instructions',
	title: 'what the server executes',
	async run({ report, checkout }) {
		await promisify(execFile)('valgrind', ['--version']).catch(() => {
			throw new Error(
				'The part instructions needs valgrind (on Debian: apt-get install valgrind).',
			);
		});
		const { Pool } = require('pg');
		const root = createRunFolder('n8n-nodes-idempotency-instructions-');
		/** @type {string[]} */
		const folders = [root];
		const remove = () => {
			for (const left of folders) fs.rmSync(left, { recursive: true, force: true, maxRetries: 5 });
		};
		/** @type {(() => Promise<void>)[]} */
		const running = [];
		// the data outlives its server, so nobody else removes it
		const interrupted = () => {
			counting?.kill('SIGKILL');
			void Promise.all(running.map((stop) => stop().catch(() => undefined))).finally(() => {
				remove();
				process.exit(130);
			});
		};
		for (const signal of SIGNALS) process.once(signal, interrupted);
		const postgres = await startPostgres({ dataFolder: path.join(root, 'postgres') }).catch(
			(error) => {
				remove();
				throw error;
			},
		);
		running.push(() => postgres.stop());
		folders.push(postgres.folder);
		const { host, port, user, password, database, folder } = postgres;
		const access = { host, port, user, password, database };
		try {
			const client = await startClient(loadLedger(checkout), access);
			const pools = [new Pool(access), new Pool(access)];
			// the server may end before an idle connection has said goodbye
			for (const pool of pools) pool.on('error', () => undefined);
			const raw = await startRaw(pools[0]);
			const sides = {
				raw: statementsOf(raw, recorder(pools[0])),
				functions: statementsOf(functionsSide(pools[1]), recorder(pools[1])),
				client: statementsOf(client.side, recorder(client.ledger.connection)),
			};
			await Promise.all([client.close(), ...pools.map((pool) => pool.end())]);
			const data = path.join(folder, 'data');
			const pid = fs.readFileSync(path.join(data, 'postmaster.pid'), 'utf8').split('\n')[0];
			const { uid, gid } = fs.statSync(`/proc/${pid}`);
			const binary = fs.readlinkSync(`/proc/${pid}/exe`);
			await postgres.stop();
			const backend = { binary, data, database, uid, gid };
			/** @type {Record<string, Record<string, { claim: number, complete: number }>>} */
			const counts = {};
			for (const [name, side] of Object.entries(sides)) {
				report(`instructions: ${TITLES[/** @type {keyof typeof TITLES} */ (name)]}`);
				counts[name] = {
					each: await countSide(backend, side, false),
					byName: await countSide(backend, side, true),
				};
			}
			const cells = (/** @type {{ claim: number, complete: number }} */ one) => [
				one.claim,
				one.complete,
			];
			return {
				result: { thousandsOfInstructions: counts },
				targets: [],
				tables: [
					{
						title: 'thousands of instructions',
						columns: ['claim', 'completion', 'claim by name', 'completion by name'],
						rows: Object.entries(TITLES).map(([name, title]) => [
							title,
							...cells(counts[name].each),
							...cells(counts[name].byName),
						]),
					},
				],
				notes: [
					`Counted by valgrind in single-user mode, ${COUNTED} statements each. By name: prepared once and sent as SQL's execute, which has a cost of its own that a driver's message has not.`,
				],
			};
		} finally {
			await postgres.stop().catch(() => undefined);
			for (const signal of SIGNALS) process.off(signal, interrupted);
			remove();
		}
	},
};

module.exports = { instructions };
