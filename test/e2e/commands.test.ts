import { spawn } from 'node:child_process';

import { ROOT } from '../docs/pages';

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
	const { code, out, said } = await run('scripts/start.js', '--once');
	expect([code, said]).toEqual([0, expect.stringContaining('proof: one invoice')]);
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
