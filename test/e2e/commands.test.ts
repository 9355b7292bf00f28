import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

import { ROOT } from '../docs/pages';
import { createTestFolder } from '../postgres/database';

/** The commands a newcomer runs. They need nothing of the n8n of these tests; they stand here because they take minutes. */

interface Ended {
	code: number | null;
	out: string;
	said: string;
}

async function run(script: string, ...options: string[]): Promise<Ended> {
	const child = spawn(process.execPath, [script, ...options], { cwd: ROOT });
	const ended: Ended = { code: null, out: '', said: '' };
	child.stdout.setEncoding('utf8').on('data', (part: string) => (ended.out += part));
	child.stderr.setEncoding('utf8').on('data', (part: string) => (ended.said += part));
	ended.code = await new Promise((resolve) => child.once('close', resolve));
	return ended;
}

test('npm start sends one order twice to a real n8n and shows one invoice', async () => {
	const { code, out } = await run('scripts/start.js', '--once');
	expect([code, out]).toEqual([0, expect.stringContaining('proof: one invoice')]);
	expect(out).toContain('Invoices that exist for this order: 1\n');
	const callers = [...out.matchAll(/^ {2}[12] +200 +(\S+)$/gm)].map(([, invoice]) => invoice);
	expect(callers).toEqual([expect.stringMatching(/./), callers[0]]);
	expect(out).toMatch(/claim +claimed/);
	expect(out).toMatch(/complete +completed/);
}, 900_000);

interface BenchReport {
	targets: Array<{ what: string; ratio: number; target: number; reached: boolean }>;
	parts: { core: Record<string, Record<string, Record<string, number>>> };
}

test('npm run bench measures each side in each mode, and its last line is JSON', async () => {
	const { code, out, said } = await run('scripts/bench.js', '--only', 'core', '--seconds', '0.1');
	expect([code, said]).toEqual([0, expect.stringContaining('core: round 5 of 5')]);
	const lines = out.trimEnd().split('\n');
	const { targets, parts } = JSON.parse(lines[lines.length - 1]) as BenchReport;
	const rates = (sides: string[]) =>
		Object.fromEntries(sides.map((side) => [side, expect.any(Number)]));
	const sides = [
		'raw',
		'rawNamed',
		'rawLogged',
		'functions',
		'client',
		'nodes',
		'nodesByExpression',
	];
	const modes = ['single', 'ten', 'batch', 'large'];
	expect(Object.keys(parts.core.worksPerSecond)).toEqual(modes);
	for (const mode of modes) {
		expect(parts.core.worksPerSecond[mode]).toEqual(rates(sides));
		expect(parts.core.shareOfRaw[mode]).toEqual({ ...rates(sides), raw: 1 });
	}
	for (const mode of modes.slice(0, 3)) {
		const asked = ['raw', 'rawLogged', 'functions', 'client', 'nodes'];
		expect(parts.core.duplicatesPerSecond[mode]).toEqual(rates(asked));
		expect(parts.core.replaysPerSecond[mode]).toEqual(rates(['client']));
	}
	const all = Object.values(parts.core.worksPerSecond).flatMap((mode) => Object.values(mode));
	expect(Math.min(...all)).toBeGreaterThan(0);
	for (const { what, ratio, target, reached } of targets) {
		expect(reached).toBe(ratio >= target);
		// the table for people tells the same
		expect(lines.find((line) => line.startsWith(what))).toMatch(reached ? /reached$/ : /missed$/);
		// Short measurements beside other work: far from a measured figure, near enough to see that one is lost.
		expect([what, ratio > target / 2]).toEqual([what, true]);
	}
	expect(targets).toHaveLength(5);
}, 900_000);

const onLinux = process.platform === 'linux' ? test : test.skip;

onLinux(
	'a count of instructions that is interrupted or was killed leaves nothing behind',
	async () => {
		// Where the children put their folders and find their valgrind; PostgreSQL may run as another user.
		const folder = createTestFolder('interrupted');
		const began = path.join(folder, 'began');
		const programs = path.join(folder, 'bin');
		const temporary = path.join(folder, 'tmp');
		for (const one of [programs, temporary]) mkdirSync(one);
		const valgrind = path.join(programs, 'valgrind');
		writeFileSync(
			valgrind,
			`#!/bin/sh\n[ "$1" = --version ] && exit 0\n: > '${began}'\nexec sleep 60\n`,
		);
		for (const one of [folder, programs, valgrind]) chmodSync(one, 0o755);
		chmodSync(folder, 0o777);
		chmodSync(temporary, 0o1777);
		const killed = path.join(temporary, 'n8n-nodes-idempotency-instructions-killed');
		mkdirSync(killed);
		// no process has such a number
		writeFileSync(path.join(killed, 'pid'), '2147483647');

		const child = spawn(process.execPath, ['scripts/bench.js', '--only', 'instructions'], {
			cwd: ROOT,
			env: { ...process.env, PATH: `${programs}:${process.env.PATH}`, TMPDIR: temporary },
			stdio: 'ignore',
		});
		const ended = new Promise((resolve) => child.once('exit', resolve));
		try {
			while (!existsSync(began) && child.exitCode === null) await delay(100);
			expect(existsSync(killed)).toBe(false);
			expect(readdirSync(temporary)).toEqual([
				expect.stringMatching(/^n8n-nodes-idempotency-instructions-/),
			]);
			child.kill('SIGINT');
			expect(await ended).toBe(130);
			expect(readdirSync(temporary)).toEqual([]);
		} finally {
			child.kill('SIGKILL');
		}
	},
	120_000,
);
