/** What n8n shows of a node before it runs: its codex file (search, "Docs" links), and the parameters of each version. */

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import type {
	INodeProperties,
	INodePropertyCollection,
	INodePropertyOptions,
	INodeType,
	INodeTypeDescription,
} from 'n8n-workflow';

import { IdempotencyLedgerApi } from '../../credentials/IdempotencyLedgerApi.credentials';
import { anchors, page, ROOT } from '../docs/pages';

interface Codex {
	node: string;
	categories: string[];
	subcategories?: Record<string, string[]>;
	alias: string[];
	resources: Record<'primaryDocumentation' | 'credentialDocumentation', Array<{ url: string }>>;
}

const manifest = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
	name: string;
	homepage: string;
	repository: { url: string };
	n8n: { nodes: string[] };
};
const repository = manifest.repository.url.replace(/^git\+|\.git$/g, '');
const folders = manifest.n8n.nodes.map((file) => path.posix.dirname(file.replace(/^dist\//, '')));

const codexOf = (folder: string) => {
	const file = path.join(ROOT, folder, `${path.basename(folder)}.node.json`);
	return JSON.parse(readFileSync(file, 'utf8')) as Codex;
};

async function descriptionOf(folder: string) {
	const name = path.basename(folder);
	const module = (await import(path.join(ROOT, folder, `${name}.node`))) as Record<
		string,
		new () => INodeType
	>;
	return new module[name]().description;
}

/** The file and the heading that an address of the repository shows. */
function shownBy(url: string): { file: string; heading: string | null } {
	const [address, heading = null] = url.split('#');
	if (address === repository) return { file: 'README.md', heading };
	const pages = `${repository}/blob/main/`;
	if (!address.startsWith(pages)) throw new Error(`${url} leads out of ${repository}`);
	return { file: address.slice(pages.length), heading };
}

function isThere(url: string): boolean {
	const { file, heading } = shownBy(url);
	return (
		existsSync(path.join(ROOT, file)) && (heading === null || anchors(page(file)).has(heading))
	);
}

describe.each(folders)('%s', (folder) => {
	const { node, categories, subcategories, resources, alias } = codexOf(folder);

	test('its codex names it, and a category that n8n shows', async () => {
		const { name } = await descriptionOf(folder);
		expect(node).toBe(`${manifest.name}.${name}`);
		for (const each of categories) {
			expect(['Core Nodes', 'Data & Storage', 'Communication']).toContain(each);
		}
		for (const each of Object.keys(subcategories ?? {})) expect(categories).toContain(each);
		expect(new Set(alias.map((word) => word.toLowerCase())).size).toBe(alias.length);
	});

	test('its documentation is its own page, and that of its credential is there', () => {
		const own = path
			.basename(folder)
			.replace(/(?<=[a-z])(?=[A-Z])/g, '-')
			.toLowerCase();
		const { primaryDocumentation, credentialDocumentation } = resources;
		expect(primaryDocumentation.map(({ url }) => shownBy(url))).toEqual([
			{ file: `docs/nodes/${own}.md`, heading: null },
		]);
		expect(credentialDocumentation.map(({ url }) => shownBy(url))).toEqual([
			{ file: 'README.md', heading: 'credential' },
		]);
		expect(
			[...primaryDocumentation, ...credentialDocumentation].every(({ url }) => isThere(url)),
		).toBe(true);
	});
});

test("the credential's documentation is a section of the README", () => {
	const { documentationUrl } = new IdempotencyLedgerApi();
	expect(shownBy(documentationUrl)).toEqual({ file: 'README.md', heading: 'credential' });
	expect(isThere(documentationUrl)).toBe(true);
	expect(isThere(`${repository}#no-such-heading`)).toBe(false);
});

test.each([
	['duplicate', ['ClaimWork', 'WorkLedger', 'SendOnceTelegram']],
	['dedupe', ['ClaimWork', 'CacheLlmDecision', 'SendOnceTelegram']],
	['idempotent', ['ClaimWork', 'CompleteWork', 'WorkLedger']],
	['once', ['ClaimWork', 'CacheLlmDecision', 'SendOnceTelegram']],
	['lock', ['ClaimWork']],
	['retry', ['ClaimWork', 'CompleteWork', 'WorkLedger', 'WorkLedgerTrigger']],
	['dead letter', ['CompleteWork', 'WorkLedger', 'WorkLedgerTrigger']],
	['approve', ['CacheLlmDecision', 'CheckEvidenceGate']],
	['evidence', ['CheckEvidenceGate']],
])('whoever types "%s" finds %p', async (word, intended) => {
	for (const name of intended) {
		const folder = folders.find((each) => path.basename(each) === name) as string;
		const { displayName } = await descriptionOf(folder);
		const words = [displayName, ...codexOf(folder).alias].map((each) => each.toLowerCase());
		expect([name, words.some((each) => each.includes(word))]).toEqual([name, true]);
	}
});

/** What workflows rely on that were built with a version of a node. */
interface Promised {
	/** In their order: connections go by it, and the error output comes after the last. */
	outputs: string[];
	/** By path; several where the same name stands for several operations. */
	parameters: Record<string, PromisedParameter[]>;
}

interface PromisedParameter {
	type: string;
	/** Counts wherever a workflow does not hold the parameter: n8n leaves defaults out of an export. */
	default: unknown;
	/** Choices, by the value that workflows hold. */
	values?: unknown[];
}

const RECORD = path.join(__dirname, 'node-versions.json');
const recorded = JSON.parse(readFileSync(RECORD, 'utf8')) as Record<
	string,
	Record<string, Promised>
>;

/** A line per parameter, so that a change is read as one; `npm run format` does the rest. */
function recordText(): string {
	const lines = (entries: Array<[string, string]>) =>
		`{\n${entries.map(([key, text]) => `${JSON.stringify(key)}: ${text}`).join(',\n')}\n}`;
	const versionText = ({ outputs, parameters }: Promised) =>
		lines([
			['outputs', JSON.stringify(outputs)],
			[
				'parameters',
				lines(Object.entries(parameters).map(([at, all]) => [at, JSON.stringify(all)])),
			],
		]);
	const nodes = Object.entries(recorded).map(([name, versions]): [string, string] => [
		name,
		lines(Object.entries(versions).map(([version, each]) => [version, versionText(each)])),
	]);
	return `${lines(nodes)}\n`;
}

/** Whether a node of this version has the property. */
function isOf({ displayOptions }: INodeProperties, version: number): boolean {
	const { show, hide } = displayOptions ?? {};
	const named = (list: unknown) => (list as unknown[] | undefined)?.includes(version);
	return named(show?.['@version']) !== false && named(hide?.['@version']) !== true;
}

function collect(
	properties: INodeProperties[],
	version: number,
	under: string,
	into: Promised['parameters'],
): Promised['parameters'] {
	for (const property of properties.filter((each) => isOf(each, version))) {
		const { name, type, options = [] } = property;
		if (type === 'notice') continue;
		const at = `${under}${name}`;
		const promised: PromisedParameter = { type, default: property.default };
		if (type === 'options' || type === 'multiOptions') {
			promised.values = (options as INodePropertyOptions[]).map(({ value }) => value);
		}
		(into[at] ??= []).push(promised);
		if (type === 'collection') collect(options as INodeProperties[], version, `${at}.`, into);
		if (type === 'fixedCollection') {
			for (const { name: group, values } of options as INodePropertyCollection[]) {
				collect(values, version, `${at}.${group}.`, into);
			}
		}
	}
	return into;
}

function promisedBy(description: INodeTypeDescription): Record<string, Promised> {
	const { version, properties, outputs, outputNames } = description;
	const names = outputNames ?? (typeof outputs === 'string' ? [outputs] : outputs.map(String));
	return Object.fromEntries(
		[version]
			.flat()
			.map((each) => [
				String(each),
				{ outputs: names, parameters: collect(properties, each, '', {}) },
			]),
	);
}

/** What a version of a node no longer keeps. What it has besides is no break. */
function brokenIn(before: Promised, now: Promised | undefined): string[] {
	if (now === undefined) return ['the version itself'];
	const broken = Object.entries(before.parameters).flatMap(([at, promised]) => {
		const left = [...(now.parameters[at] ?? [])];
		return promised.flatMap((each) => {
			const found = left.findIndex(
				({ type, default: own, values = [] }) =>
					type === each.type &&
					JSON.stringify(own) === JSON.stringify(each.default) &&
					(each.values ?? []).every((value) => values.includes(value)),
			);
			if (found !== -1) left.splice(found, 1);
			return found === -1 ? [`${at}: ${JSON.stringify(each).slice(0, 200)}`] : [];
		});
	});
	const sameOutputs = JSON.stringify(before.outputs) === JSON.stringify(now.outputs);
	return sameOutputs ? broken : [...broken, `outputs: ${before.outputs.join(', ')}`];
}

describe('a workflow that was built with a version of a node keeps its meaning', () => {
	beforeAll(async () => {
		// before a release: writes down what is new, and never changes what stands there
		if (process.env.RECORD_NODE_VERSIONS === undefined) return;
		for (const folder of folders) {
			const description = await descriptionOf(folder);
			const versions = (recorded[description.name] ??= {});
			for (const [version, now] of Object.entries(promisedBy(description))) {
				if (versions[version] === undefined) versions[version] = now;
				else if (brokenIn(versions[version], now).length === 0) versions[version] = now;
			}
		}
		writeFileSync(RECORD, recordText());
	});

	test.each(folders)('%s: no default, name or value of it has changed', async (folder) => {
		const description = await descriptionOf(folder);
		const versions = recorded[description.name] ?? {};
		const now = promisedBy(description);
		for (const [version, before] of Object.entries(versions)) {
			expect([version, brokenIn(before, now[version])]).toEqual([version, []]);
		}
		expect(Object.keys(now).filter((version) => versions[version] === undefined)).toEqual([]);
	});

	const choice = (more: Partial<INodeProperties> = {}): INodeProperties => ({
		...{ displayName: 'Remember', name: 'window', type: 'options', default: 'forever' },
		options: [
			{ name: 'Forever', value: 'forever' },
			{ name: 'A Time', value: 'duration' },
		],
		...more,
	});
	const list = (more: Partial<INodeProperties>): INodeProperties => ({
		...{ displayName: 'Options', name: 'options', type: 'collection', default: {} },
		options: [{ displayName: 'Lease', name: 'lease', type: 'number', default: 60, ...more }],
	});
	const node = (properties: INodeProperties[], more: Partial<INodeTypeDescription> = {}) =>
		({ version: 1, properties, outputs: ['main'], outputNames: ['Claimed'], ...more }) as never;
	const before = [choice(), list({})];

	test.each<[string, INodeProperties[], Partial<INodeTypeDescription>]>([
		['a changed default', [choice({ default: 'duration' }), list({})], {}],
		['a renamed parameter', [choice({ name: 'remember' }), list({})], {}],
		['a removed parameter', [choice()], {}],
		['a renamed value', [choice({ options: [{ name: 'Forever', value: 'ever' }] }), list({})], {}],
		['a default within a list', [choice(), list({ default: 61 })], {}],
		['another type', [choice(), list({ type: 'string' })], {}],
		['another order of outputs', before, { outputNames: ['Duplicate', 'Claimed'] }],
		['a version that is gone', before, { version: 2 }],
		['a change for all versions', [choice({ default: 'duration' }), list({})], { version: [1, 2] }],
	])('%s is noticed', (_, properties, more) => {
		const [promised, now] = [promisedBy(node(before)), promisedBy(node(properties, more))];
		expect(brokenIn(promised['1'], now['1'])).not.toEqual([]);
	});

	test('a new parameter, a new value and a change for a new version are not', () => {
		const version = [1, 2];
		const added = [
			choice({
				options: [...(choice().options ?? []), { name: 'New', value: 'new' }],
				displayOptions: { show: { '@version': [1] } },
			}),
			choice({ default: 'duration', displayOptions: { show: { '@version': [2] } } }),
			list({}),
			choice({ name: 'added' }),
		];
		const now = promisedBy(node(added, { version }));
		expect(brokenIn(promisedBy(node(before))['1'], now['1'])).toEqual([]);
		expect(now['2'].parameters.window).toMatchObject([{ default: 'duration' }]);
	});
});
