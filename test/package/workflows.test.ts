/** The example workflows, as files: whatever can be said without running them (test/e2e runs them). */

import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

import type { INodeProperties, INodeType } from 'n8n-workflow';

const ROOT = path.resolve(__dirname, '..', '..');
const OWN = 'n8n-nodes-idempotency.';

interface ExampleNode {
	id: string;
	name: string;
	type: string;
	typeVersion: number;
	position: [number, number];
	parameters: Record<string, unknown>;
	credentials?: Record<string, { id: string; name: string }>;
}

interface Example {
	id: string;
	name: string;
	nodes: ExampleNode[];
	/** By node, then by what is connected: `main`, or a model with what asks it. */
	connections: Record<string, Record<string, Array<Array<{ node: string }>>>>;
}

const files = readdirSync(path.join(ROOT, 'workflows')).sort();
const read = (file: string) =>
	JSON.parse(readFileSync(path.join(ROOT, 'workflows', file), 'utf8')) as Example;

async function ownNode(type: string): Promise<INodeType> {
	// a node as an agent's tool is a copy of the node
	const name = type.slice(OWN.length).replace(/Tool$/, '');
	const folder = name.charAt(0).toUpperCase() + name.slice(1);
	const file = path.join(ROOT, 'nodes', folder, `${folder}.node`);
	const module = (await import(file)) as Record<string, new () => INodeType>;
	return new module[folder]();
}

/** Names of parameters, those inside collections as "options.leaseSeconds". */
function parameterNames(properties: INodeProperties[], within = ''): string[] {
	return properties.flatMap(({ name, type, options }) => [
		`${within}${name}`,
		...(type === 'collection'
			? parameterNames((options ?? []) as INodeProperties[], `${within}${name}.`)
			: []),
	]);
}

test('there are examples, no two with one id or name', () => {
	const all = files.map(read);
	expect(all.length).toBeGreaterThan(3);
	expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
	expect(new Set(all.map(({ name }) => name)).size).toBe(all.length);
});

describe.each(files)('%s', (file) => {
	const example = read(file);
	const names = new Set(example.nodes.map(({ name }) => name));

	test('every connection joins nodes that are there', () => {
		const ends = Object.entries(example.connections).flatMap(([from, outputs]) => [
			from,
			...Object.values(outputs)
				.flat(2)
				.map(({ node }) => node),
		]);
		expect(ends.filter((end) => !names.has(end))).toEqual([]);
		expect(new Set(example.nodes.map(({ id }) => id)).size).toBe(example.nodes.length);
		expect(names.size).toBe(example.nodes.length);
	});

	test('a note says what it is for, and no two nodes lie on each other', () => {
		const notes = example.nodes.filter(({ type }) => type === 'n8n-nodes-base.stickyNote');
		expect(String(notes[0]?.parameters.content)).toContain(`## ${example.name}`);
		const steps = example.nodes.filter(({ type }) => type !== 'n8n-nodes-base.stickyNote');
		const near = steps.filter(({ name, position: [x, y] }) =>
			steps.some(
				(other) =>
					other.name !== name &&
					Math.abs(other.position[0] - x) < 200 &&
					Math.abs(other.position[1] - y) < 120,
			),
		);
		expect(near.map(({ name }) => name)).toEqual([]);
	});

	test('what the package’s own nodes are told exists on them', async () => {
		for (const { name, type, parameters } of example.nodes) {
			if (!type.startsWith(OWN)) continue;
			const known = new Set(parameterNames((await ownNode(type)).description.properties));
			const options = (parameters.options ?? {}) as Record<string, unknown>;
			const told = [
				...Object.keys(parameters),
				...Object.keys(options).map((option) => `options.${option}`),
			];
			expect([name, told.filter((parameter) => !known.has(parameter))]).toEqual([name, []]);
		}
	});

	test('it holds no credential, only its name', () => {
		for (const { credentials = {} } of example.nodes) {
			for (const credential of Object.values(credentials)) {
				expect(credential).toEqual({ id: '', name: expect.any(String) });
			}
		}
	});
});
