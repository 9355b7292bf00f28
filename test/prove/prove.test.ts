import { spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, readdirSync } from 'node:fs';
import path from 'node:path';

import { createTestFolder } from '../postgres/database';

/** Short runs of `npm run prove`: real workers, real faults, a server of their own. */

const PROGRAM = path.resolve(__dirname, '../../scripts/prove.js');

interface Report {
	violations: number;
	deadlocks: number;
	byClass: Record<string, number>;
	told: unknown[];
	faults: Record<string, number>;
	leftOut: string[];
	answers: Record<string, number>;
	effects: number;
	operations: number;
}

function start(...options: string[]): { child: ChildProcess; folder: string } {
	const folder = createTestFolder('prove');
	// for root, PostgreSQL and PgBouncer run as another user
	chmodSync(folder, 0o755);
	const child = spawn(process.execPath, [PROGRAM, '--json', ...options], {
		env: { ...process.env, TMPDIR: folder },
	});
	return { child, folder };
}

async function run(
	...options: string[]
): Promise<{ code: number | null; report: Report; said: string }> {
	const { child } = start(...options);
	let text = '';
	let said = '';
	child.stdout?.setEncoding('utf8').on('data', (part: string) => (text += part));
	child.stderr?.setEncoding('utf8').on('data', (part: string) => (said += part));
	const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
	if (text === '') throw new Error(`The run failed:\n${said}`);
	return { code, report: JSON.parse(text) as Report, said };
}

test('workers under fire keep every promise', async () => {
	const { code, report } = await run('--seconds', '6', '--seed', '7');
	expect(report.told).toEqual([]);
	expect(report).toMatchObject({ violations: 0, deadlocks: 0 });
	expect(code).toBe(0);

	// a run in which nothing happened would prove nothing
	for (const fault of [
		'workers killed',
		'pauses beyond a lease',
		'backends terminated',
		'PostgreSQL restarts',
		...(report.leftOut.includes('faketime') ? [] : ['workers with a shifted clock']),
		...(report.leftOut.includes('pgbouncer') ? [] : ['workers through PgBouncer']),
	]) {
		expect([fault, report.faults[fault]]).not.toEqual([fault, 0]);
	}
	for (const answer of [
		...['claimed', 'duplicate', 'in_progress', 'held', 'dead'].map((name) => `claim: ${name}`),
		...['complete: completed', 'complete: not_owner', 'fail: failed', 'extend: extended'],
		...['release: released', 'record_reference: recorded', 'resolve: resolved'],
		...['replay: replayed', 'sweep', 'purge'],
	]) {
		expect([answer, report.answers[answer] ?? 0]).not.toEqual([answer, 0]);
	}
	expect(report.effects).toBeGreaterThan(100);
	if (process.env.CI === 'true') expect(report.leftOut).toEqual([]);
}, 180_000);

test.each([
	['lease', 'fact S1: a lease without the state', 'done_in_window'],
	['completion', 'fact S12: a completion without the token', 'replaced_token'],
])(
	'the well-known wrong SQL is found out: %s (%s)',
	async (wrong, _, violation) => {
		const { code, report } = await run('--seconds', '3', '--seed', '7', '--wrong', wrong);
		expect(code).toBe(1);
		expect([violation, report.byClass[violation]]).not.toEqual([violation, 0]);
	},
	180_000,
);

test('Ctrl-C ends everything and leaves nothing behind', async () => {
	const { child, folder } = start('--seconds', '600');
	const closed = new Promise<number | null>((resolve) => child.once('close', resolve));
	await new Promise<void>((resolve) => {
		let said = '';
		child.stderr?.setEncoding('utf8').on('data', (part: string) => {
			said += part;
			if (said.includes('the workers run')) resolve();
		});
	});
	child.kill('SIGINT');
	// its output is closed only when no process it started holds it any more
	expect(await closed).toBe(130);
	expect(readdirSync(folder).filter((name) => name.includes('prove'))).toEqual([]);
}, 60_000);
