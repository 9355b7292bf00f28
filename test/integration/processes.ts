import { spawn, type ChildProcessByStdio } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { Client } from 'pg';

import type { LedgerSettings, LookUpItem, LookUpPolicy, Subscriptions } from '../../ledger';
import type { ClaimItem, ClaimPolicy } from '../../ledger/contract';
import type { PostgresConfig } from '../postgres/database';

export interface LedgerProcess {
	/** What it answered, once it has. */
	answer: Promise<unknown>;
	/** Kills it as a crash would, and resolves when it is gone. */
	kill(): Promise<void>;
}

/** Starts the jobs in processes of their own and lets them go in the same moment. */
export async function startTogether(
	database: PostgresConfig,
	settings: LedgerSettings,
	jobs: Array<
		| { does: 'install' }
		| { does: 'claim'; items: ClaimItem[]; policy: ClaimPolicy }
		| { does: 'firesTwice'; args: unknown[] }
		| { does: 'lookUp'; items: LookUpItem[]; policy: LookUpPolicy }
		| { does: 'subscribe'; method: keyof Subscriptions; args: unknown[] }
	>,
): Promise<LedgerProcess[]> {
	const barrier = 7;
	const gate = new Client(database);
	await gate.connect();
	try {
		await gate.query('select pg_advisory_lock($1)', [barrier]);
		const processes = jobs.map((job) => start({ ...job, settings, barrier }));
		for (;;) {
			const { rows } = await gate.query<{ waiting: number }>(
				`select count(*)::int as waiting from pg_locks
				where locktype = 'advisory' and not granted and objid = $1
					and database = (select oid from pg_database where datname = current_database())`,
				[barrier],
			);
			if (rows[0].waiting === jobs.length) return processes;
			await gate.query('select pg_sleep(0.01)');
		}
	} finally {
		// its end is the signal
		await gate.end();
	}
}

function start(job: object): LedgerProcess {
	const child: ChildProcessByStdio<Writable, Readable, null> = spawn(
		process.execPath,
		[path.join(__dirname, 'ledger-process.js'), JSON.stringify(job)],
		{ stdio: ['pipe', 'pipe', 'inherit'] },
	);
	const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
	const answer = new Promise<unknown>((resolve, reject) => {
		createInterface(child.stdout).once('line', (line) => resolve(JSON.parse(line)));
		child.once('exit', () => reject(new Error('the process ended without an answer')));
	});
	return {
		answer,
		async kill() {
			child.kill('SIGKILL');
			await ended;
		},
	};
}
