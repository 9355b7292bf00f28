'use strict';

/**
 * `npm start`: a real n8n with this package and the example "Invoice from order webhook", which is
 * then called twice in the same instant with one order. Shows what the ledger recorded, and stays
 * up for a look around; with --once it ends after the proof.
 */

const crypto = require('node:crypto');
const path = require('node:path');

const { choosePort } = require('./n8n/ports');
const {
	LEDGER_CREDENTIAL_TYPE,
	LEDGER_SCHEMA,
	createStage,
	invoiceExample,
	ledgerCredential,
	progress,
} = require('./n8n/stage');

const CHECKOUT = path.dirname(__dirname);
const DATA_FOLDER = path.join(CHECKOUT, '.local', 'start');

const HELP = `npm start [-- options]

Starts PostgreSQL, a small invoice server and n8n with this package, imports the example
"Invoice from order webhook", sends it one order twice in the same instant, and shows what
the ledger recorded. Data are kept in .local/start of this checkout; remove that folder
to begin anew.

  --once               end after the proof; exit code 0 only if exactly one invoice
                       exists and both callers got it
  --port PORT          of n8n (usually 5678)
  --pg-port PORT       of PostgreSQL (usually 5499)
  --invoice-port PORT  of the invoice server (usually 5710)
  --help               this text

A usual port that is taken gives way to the next free one; a port that was set does not.
`;

/**
 * @param {string[]} words
 * @returns {{ once: boolean, help: boolean, ports: Record<string, number | null> }}
 * @throws {Error} For an unknown option or something that is no port.
 */
function readOptions(words) {
	const options = {
		once: false,
		help: false,
		ports: /** @type {Record<string, number | null>} */ ({
			'--port': null,
			'--pg-port': null,
			'--invoice-port': null,
		}),
	};
	const rest = words.flatMap((word) => (/^--[^=]+=/.test(word) ? word.split(/=(.*)/, 2) : [word]));
	while (rest.length > 0) {
		const word = /** @type {string} */ (rest.shift());
		if (word === '--once') options.once = true;
		else if (word === '--help' || word === '-h') options.help = true;
		else if (word in options.ports) {
			const value = rest.shift();
			const port = Number(value);
			if (!Number.isInteger(port) || port < 1 || port > 65535) {
				throw new Error(`${word} wants a port number, not ${value ?? 'nothing'}`);
			}
			options.ports[word] = port;
		} else throw new Error(`unknown option ${word}; npm start -- --help lists them`);
	}
	return options;
}

/** @param {Record<string, unknown>[]} rows @returns {string} */
function table(rows) {
	if (rows.length === 0) return '  (nothing)\n';
	const names = Object.keys(rows[0]);
	const text = rows.map((row) => names.map((name) => String(row[name] ?? '')));
	const widths = names.map((name, at) =>
		Math.max(name.length, ...text.map((cells) => cells[at].length)),
	);
	const line = (/** @type {string[]} */ cells) =>
		`  ${cells.map((cell, at) => cell.padEnd(widths[at])).join('  ')}`.trimEnd();
	return [line(names), line(widths.map((width) => '-'.repeat(width))), ...text.map(line), ''].join(
		'\n',
	);
}

/**
 * Sends one order twice in the same instant and shows what came of it.
 *
 * @param {import('./n8n/stage').Stage} stage
 * @returns {Promise<boolean>} Whether exactly one invoice exists and both callers got it.
 */
async function prove({ n8n: { client: n8n }, ledger, invoiceServer }) {
	const { Client } = require('pg');
	// A new order on every start: the ledger remembers the ones before.
	const orderId = `order-${crypto.randomBytes(4).toString('hex')}`;
	const order = { order_id: orderId, customer: 'Ada Example', amount: 120.5 };
	const answers = await Promise.all([
		n8n.webhook('invoice-from-order', order),
		n8n.webhook('invoice-from-order', order),
	]);
	const invoices = invoiceServer.invoices(orderId);
	const print = (/** @type {string[]} */ ...lines) => process.stdout.write(`${lines.join('\n')}\n`);
	print(
		'',
		`One order (${orderId}) was sent twice in the same instant. What the callers got:`,
		table(
			answers.map(({ status, body }, at) => ({
				caller: at + 1,
				status,
				invoice: body?.invoice_id ?? JSON.stringify(body).slice(0, 80),
			})),
		),
		`Invoices that exist for this order: ${invoices.length}`,
		'',
	);

	const database = new Client(ledger);
	await database.connect();
	try {
		const { rows: work } = await database.query(
			`select kind, version, key, state, attempt, external_ref, execution,
				left(work_id, 12) || '…' as work_id
			from ${LEDGER_SCHEMA}.work_log where key = $1`,
			[orderId],
		);
		print('What the ledger knows of the work (work_log):', table(work));
		const { rows: decisions } = await database.query(
			`select to_char(at, 'HH24:MI:SS.MS') as at, event, outcome, attempt,
				fired->>'execution' as execution, external_ref
			from ${LEDGER_SCHEMA}.decision_log
			where work_id in (select work_id from ${LEDGER_SCHEMA}.work_log where key = $1)
			order by id`,
			[orderId],
		);
		print('What it decided (decision_log):', table(decisions));
	} finally {
		await database.end();
	}
	return (
		invoices.length === 1 &&
		answers.every(
			({ status, body }) => status === 200 && body?.invoice_id === invoices[0].invoice_id,
		)
	);
}

async function main() {
	const options = readOptions(process.argv.slice(2));
	if (options.help) {
		process.stdout.write(HELP);
		return;
	}
	const report = progress();
	const choosePorts = async () => {
		/** @type {number[]} */
		const given = [];
		const choose = async (
			/** @type {string} */ what,
			/** @type {string} */ flag,
			/** @type {number} */ usual,
		) => {
			const port = await choosePort(
				{ what, flag, wished: options.ports[flag], usual, not: given },
				report,
			);
			given.push(port);
			return port;
		};
		return {
			n8n: await choose('n8n', '--port', 5678),
			postgres: await choose('PostgreSQL', '--pg-port', 5499),
			invoices: await choose('invoice server', '--invoice-port', 5710),
		};
	};
	const stage = createStage({ checkout: CHECKOUT, folder: DATA_FOLDER, choosePorts, report });

	let stopping = false;
	/** @type {(value?: unknown) => void} */
	let interrupted = () => {};
	const interruption = new Promise((resolve) => (interrupted = resolve));
	for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
		process.on(signal, () => {
			// A second Ctrl-C does not wait; what runs then ends by itself, as its keepers see to it.
			if (stopping) process.exit(130);
			report('stopping all that was started');
			stopping = true;
			interrupted();
			void stage.close().then(() => process.exit(signal === 'SIGINT' ? 130 : 143));
		});
	}

	let proven = false;
	try {
		const open = await stage.open();
		const { client } = open.n8n;
		const credential = await client.importCredential({
			name: 'Idempotency Ledger',
			type: LEDGER_CREDENTIAL_TYPE,
			data: ledgerCredential(open.ledger),
		});
		const workflowId = await client.importWorkflow(
			invoiceExample(CHECKOUT, open.invoiceServer.url),
			{ credentials: { [LEDGER_CREDENTIAL_TYPE]: credential } },
		);
		report('example "Invoice from order webhook": imported and active');
		proven = await prove(open);
		report(proven ? 'proof: one invoice, both callers got it' : 'proof: FAILED, see above');
		if (!options.once) {
			process.stdout.write(
				[
					'',
					`  Editor    ${client.baseUrl}/workflow/${workflowId}`,
					`  Login     ${client.email}`,
					`  Password  ${client.password}`,
					`  Webhook   curl -X POST ${client.baseUrl}/webhook/invoice-from-order \\`,
					`              -H 'content-type: application/json' -d '{"order_id":"1001","amount":20}'`,
					`  Invoices  ${open.invoiceServer.url}/invoices`,
					`  Log       ${path.relative(process.cwd(), open.n8n.logFile)}`,
					'',
					'  Ctrl-C stops all of it; the data stay.',
					'',
					'',
				].join('\n'),
			);
			// The invoice server's socket keeps the process alive; this only waits for a signal.
			await interruption;
		}
	} catch (error) {
		if (!stopping) {
			process.stderr.write(`\n${error instanceof Error ? error.message : String(error)}\n`);
		}
	} finally {
		await stage.close();
	}
	if (!stopping) process.exitCode = proven ? 0 : 1;
}

main().catch((error) => {
	process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
	process.exitCode = 1;
});
