'use strict';

/**
 * Writes check/knowledge/node-operations.json: which resources and operations the nodes of n8n offer, the default first
 * (an exported workflow leaves out what stands at its default). `node scripts/node-operations.js <folder>`, the
 * node_modules of an installed n8n; commit the result.
 */

const { readFileSync, writeFileSync } = require('node:fs');
const path = require('node:path');
const prettier = require('prettier');

const PACKAGES = ['n8n-nodes-base', '@n8n/n8n-nodes-langchain'];
const TARGET = path.join(__dirname, '..', 'check', 'knowledge', 'node-operations.json');

/** A property's options with its default first. */
function choices({ options = [], default: first }) {
	const values = options.map(({ value }) => String(value));
	return values.includes(String(first))
		? [String(first), ...values.filter((value) => value !== String(first))]
		: values;
}

/** `{ versions, operations: { resource: [default, …] } }`, the default resource first; null for a node without operations. */
function described({ version, properties = [] }) {
	const named = (name) =>
		properties.filter((property) => property.name === name && property.type === 'options');
	const resources = named('resource').flatMap(choices);
	const operations = {};
	for (const resource of resources.length > 0 ? resources : ['']) operations[resource] = [];
	for (const property of named('operation')) {
		const shown = property.displayOptions?.show?.resource ?? Object.keys(operations);
		for (const resource of shown) {
			const known = (operations[resource] ??= []);
			for (const value of choices(property)) if (!known.includes(value)) known.push(value);
		}
	}
	for (const [resource, offered] of Object.entries(operations)) {
		if (offered.length === 0) delete operations[resource];
	}
	if (Object.keys(operations).length === 0) return null;
	return { versions: [version].flat(), operations };
}

async function main() {
	const [modules] = process.argv.slice(2);
	if (modules === undefined) throw new Error('Name the node_modules folder of an installed n8n.');
	const table = {};
	for (const name of PACKAGES) {
		const file = path.join(modules, name, 'dist', 'types', 'nodes.json');
		for (const node of JSON.parse(readFileSync(file, 'utf8'))) {
			if (node.group?.includes('trigger')) continue;
			const entry = described(node);
			if (entry !== null) (table[`${name}.${node.name}`] ??= []).push(entry);
		}
	}
	const sorted = Object.fromEntries(Object.entries(table).sort(([a], [b]) => (a < b ? -1 : 1)));
	const options = { ...(await prettier.resolveConfig(TARGET)), parser: 'json' };
	writeFileSync(TARGET, await prettier.format(JSON.stringify(sorted), options));
}

void main();
