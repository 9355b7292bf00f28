import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

import {
	checkTogether,
	readWorkflowText,
	type Finding,
	type Workflow,
	type WorkflowReport,
} from '../../check';

export const FOLDER = path.join(__dirname, 'workflows');

export const fixtureNames = (): string[] =>
	readdirSync(FOLDER)
		.filter((file) => file.endsWith('.json'))
		.map((file) => file.slice(0, -'.json'.length))
		.sort();

export function fixture(name: string): Workflow {
	const text = readFileSync(path.join(FOLDER, `${name}.json`), 'utf8');
	const { workflows, problems } = readWorkflowText(text);
	if (problems.length > 0 || workflows.length !== 1) throw new Error(`${name}: ${problems[0]}`);
	return workflows[0];
}

export function checked(...names: string[]): WorkflowReport[] {
	return checkTogether(names.map(fixture));
}

/** "error unguarded-effect @ Create Invoice", with "(off)" behind one that was switched off. */
export function short({ severity, rule, node, switchedOff }: Finding): string {
	const where = node === null ? '' : ` @ ${node}`;
	return `${severity} ${rule}${where}${switchedOff === null ? '' : ' (off)'}`;
}

export const findingsOf = (...names: string[]): string[][] =>
	checked(...names).map(({ findings }) => findings.map(short));

type Json = Record<string, unknown>;

/** A workflow of nodes given as name and type, or as the members of an export, and of connections "A" → "B". */
export function workflow(
	nodes: Array<Json & { name: string; type: string }>,
	connections: Array<[from: string, to: string, output?: number]>,
	more: Json = {},
): Json {
	const joined: Record<string, { main: Array<Array<{ node: string; type: 'main'; index: 0 }>> }> =
		{};
	for (const [from, to, output = 0] of connections) {
		const { main } = (joined[from] ??= { main: [] });
		while (main.length <= output) main.push([]);
		main[output].push({ node: to, type: 'main', index: 0 });
	}
	return { name: 'made for a test', nodes, connections: joined, ...more };
}
