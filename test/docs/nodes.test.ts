/** The names in the reference: whatever a page calls a setting is on the node, and what is on the node is on its page. */

import path from 'node:path';

import type {
	INodeProperties,
	INodePropertyCollection,
	INodePropertyOptions,
	INodeType,
} from 'n8n-workflow';

import { OUTPUT_NAMES } from '../../nodes/CacheLlmDecision/outputs';
import { page, prose, ROOT, tables, type Table } from './pages';

const NODES = [
	['ClaimWork', 'claim-work'],
	['CompleteWork', 'complete-work'],
	['WorkLedger', 'work-ledger'],
	['WorkLedgerTrigger', 'work-ledger-trigger'],
	['CacheLlmDecision', 'cache-llm-decision'],
	['CheckEvidenceGate', 'check-evidence-gate'],
	['SendOnceTelegram', 'send-once-telegram'],
] as const;

interface Names {
	displayName: string;
	/** Every setting at any depth with what the panel says of it. */
	said: Array<[setting: string, text: string]>;
	/** Everything with a name: settings at any depth, and their choices. */
	all: string[];
	/** Settings of the panel and of its collections, without notices. */
	settings: string[];
	/** Of a node with operations: theirs. */
	operations: string[];
	outputs: string[];
}

const isSetting = ({ type, name }: INodeProperties) =>
	type !== 'notice' && name !== 'operation' && name !== 'resource';

function optionsOf({ type, options }: INodeProperties): INodeProperties[] {
	if (type === 'collection') return (options ?? []) as INodeProperties[];
	if (type !== 'fixedCollection') return [];
	return ((options ?? []) as INodePropertyCollection[]).flatMap(({ values }) => values);
}

const deep = (properties: INodeProperties[]): INodeProperties[] =>
	properties.flatMap((property) => [property, ...deep(optionsOf(property))]);

const choicesOf = ({ type, options }: INodeProperties): string[] =>
	type === 'options' || type === 'multiOptions'
		? ((options ?? []) as INodePropertyOptions[]).map(({ name }) => name)
		: [];

async function namesOf(folder: string): Promise<Names> {
	const module = (await import(path.join(ROOT, 'nodes', folder, `${folder}.node`))) as Record<
		string,
		new () => INodeType
	>;
	const { displayName, properties, outputNames } = new module[folder]().description;
	return {
		displayName,
		said: deep(properties)
			.filter(({ type }) => type !== 'notice' && type !== 'collection')
			.filter(isSetting)
			.map((property): [string, string] => [property.displayName, saidOf(property)]),
		all: deep(properties)
			.filter(({ type }) => type !== 'notice')
			.flatMap((property) => [
				...(isSetting(property) ? [property.displayName] : []),
				...choicesOf(property),
			]),
		settings: properties
			.flatMap((property) => (property.type === 'collection' ? optionsOf(property) : [property]))
			.filter(isSetting)
			.map((property) => property.displayName),
		operations: properties.filter(({ name }) => name === 'operation').flatMap(choicesOf),
		outputs: outputNames ?? Object.values<readonly string[]>(OUTPUT_NAMES).flat(),
	};
}

const sentence = (text: string) => (/[.?!:]$/.test(text) ? text : `${text}.`);

/** What the panel says of a setting, as the last column of its page's table has it. */
function saidOf({ displayName, type, description, options }: INodeProperties): string {
	const choices =
		type === 'options' || type === 'multiOptions'
			? ((options ?? []) as INodePropertyOptions[])
			: [];
	const listed = choices.map(({ name, description: what }) =>
		what === undefined ? `_${name}_` : `_${name}_ (${what.replace(/\.$/, '')})`,
	);
	const own = description === undefined || description === displayName ? '' : sentence(description);
	return [own, listed.join(' · ')].filter((text) => text !== '').join(' ');
}

/** Spelling that prose may choose: capitals, and the unit behind a setting's name. */
const plain = (name: string) =>
	name
		.replace(/\*\*|_/g, '')
		.replace(/ \((Seconds|Hours|Days|Minutes|Rows|JSON|Ms)\)$/i, '')
		.toLowerCase();

/** Rules of a stage are those of the one step. */
const INNER = ['Rules'];

const under = (table: Table, heading: string) => table.under.includes(heading);

describe.each(NODES)('%s', (folder, file) => {
	const reference = page(`docs/nodes/${file}.md`);
	let names: Names;
	beforeAll(async () => {
		names = await namesOf(folder);
	});

	const firstColumn = (heading: string) =>
		tables(reference)
			.filter((table) => under(table, heading))
			.flatMap(({ rows }) => rows.map(([first]) => first.split(' → ').at(-1) as string));

	test('its page lists every setting and option, and no other', () => {
		const listed = firstColumn('All settings');
		expect(names.settings.filter((name) => !listed.includes(name))).toEqual([]);
		expect(listed.filter((name) => !names.all.includes(name))).toEqual([]);
		expect(listed.length).toBeGreaterThan(4);
	});

	test('its page says of every setting what the panel says', () => {
		const rows = tables(reference)
			.filter((table) => under(table, 'All settings'))
			.flatMap((table) => table.rows.map((row) => [row[0].split(' → ').at(-1), row.at(-1)]));
		const missing = names.said.filter(
			([setting, text]) => !rows.some(([first, last]) => first === setting && last === text),
		);
		// a list within a list is told once
		expect(missing.filter(([setting]) => !INNER.includes(setting))).toEqual([]);
		expect(names.said.length).toBeGreaterThan(4);
	});

	test('its page lists every operation, and no other', () => {
		expect([...new Set(firstColumn('All operations'))].sort()).toEqual(
			[...new Set(names.operations)].sort(),
		);
	});

	test('its page has the name of every choice', () => {
		const text = reference.markdown;
		expect(names.all.filter((name) => !text.includes(name))).toEqual([]);
	});

	test('its tables in the README name settings, operations and outputs that it has', () => {
		const own = tables(page('README.md')).filter((table) => under(table, names.displayName));
		const known = new Set([...names.all, ...names.outputs].map(plain));
		const cells = own
			.filter(({ headings }) =>
				['setting', 'option', 'operation', 'event', 'output', 'rule'].includes(headings[0]),
			)
			// a rule may have a comma in its name, a cell may name several settings
			.flatMap(({ rows }) => rows.map(([first]) => plain(first)))
			.flatMap((cell) => (known.has(cell) ? [cell] : cell.split(/, /).map(plain)));
		expect(cells.filter((name) => name !== '' && !known.has(name))).toEqual([]);
		expect(cells.length).toBeGreaterThan(4);
	});

	test('every output has its row in the README', () => {
		const outputs = tables(page('README.md'))
			.filter((table) => under(table, names.displayName) && table.headings[0] === 'output')
			.flatMap(({ rows }) => rows.map(([first]) => plain(first)));
		const needed =
			folder === 'CacheLlmDecision'
				? [...OUTPUT_NAMES.lookUp, ...OUTPUT_NAMES.store]
				: names.outputs;
		const named = folder.startsWith('WorkLedger') ? [] : needed;
		expect(named.map(plain).filter((name) => !outputs.includes(name))).toEqual([]);
	});

	test('the README leads to its page', () => {
		expect(prose(page('README.md'))).toContain(`](docs/nodes/${file}.md)`);
	});
});
