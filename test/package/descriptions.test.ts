/** What n8n shows of a node before it runs: its codex file (search, "Docs" links), and the parameters of each version. */

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

import type { INodeType } from 'n8n-workflow';

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
