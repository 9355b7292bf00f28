/** The pages that people read, taken apart: headings, links, tables, fenced blocks. */

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

export const ROOT = path.resolve(__dirname, '..', '..');

export interface Page {
	/** From the root of the checkout, with slashes. */
	file: string;
	markdown: string;
}

export interface Table {
	/** Headings above it, the outermost first. */
	under: string[];
	headings: string[];
	rows: string[][];
}

export function page(file: string): Page {
	return { file, markdown: readFileSync(path.join(ROOT, file), 'utf8') };
}

export function pages(): Page[] {
	const inDocs = readdirSync(path.join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
		.filter((file) => file.endsWith('.md'))
		.map((file) => path.posix.join('docs', file.split(path.sep).join('/')));
	const atRoot = readdirSync(ROOT).filter((file) => file.endsWith('.md'));
	return [...atRoot, ...inDocs].sort().map(page);
}

/** Fenced blocks; `language` is what stands behind the fence. */
export function blocks({ markdown }: Page): Array<{ language: string; text: string }> {
	return [...markdown.matchAll(/^```([^\n]*)\n([^]*?)^```$/gm)].map(([, language, text]) => ({
		language: language.trim(),
		text,
	}));
}

/** The prose without its fenced blocks, which may hold anything that looks like Markdown. */
export function prose({ markdown }: Page): string {
	return markdown.replace(/^```[^]*?^```$/gm, '');
}

/** As GitHub makes them: lower case, no punctuation, spaces as "-", a number behind a repeated one. */
export function anchors(of: Page): Set<string> {
	const seen = new Map<string, number>();
	const found = new Set<string>();
	for (const [, heading] of prose(of).matchAll(/^#{1,6} +(.+)$/gm)) {
		const slug = heading
			.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
			.replace(/[*`]|(?<=^|\s)_|_(?=\s|$)/g, '')
			.toLowerCase()
			.replace(/[^\p{L}\p{N}\s_-]/gu, '')
			.trim()
			.replace(/\s/g, '-');
		const before = seen.get(slug) ?? 0;
		seen.set(slug, before + 1);
		found.add(before === 0 ? slug : `${slug}-${before}`);
	}
	return found;
}

/** Targets of links and images; code spans are no links. */
export function links(of: Page): string[] {
	const text = prose(of).replace(/`[^`\n]*`/g, '``');
	// pictures that differ by light and dark are written in HTML
	return [...text.matchAll(/\]\(([^()\s]+)\)|\ssrc(?:set)?="([^"\s]+)"/g)].map(
		([, target, image]) => target ?? image,
	);
}

/** Code spans of the prose. */
export function codeSpans(of: Page): string[] {
	return [...prose(of).matchAll(/`([^`\n]+)`/g)].map(([, text]) => text);
}

export function tables(of: Page): Table[] {
	const found: Table[] = [];
	const under: string[] = [];
	let open: Table | null = null;
	const lines = prose(of).split('\n');
	for (const [at, line] of lines.entries()) {
		const heading = /^(#{1,6}) +(.+)$/.exec(line);
		if (heading !== null) under.splice(heading[1].length - 1, Infinity, heading[2]);
		if (!line.startsWith('|')) {
			open = null;
		} else if (open !== null) {
			if (!/^[|\s:-]+$/.test(line)) open.rows.push(cells(line));
		} else if (/^\|[|\s:-]+$/.test(lines[at + 1] ?? '')) {
			open = { under: [...under], headings: cells(line), rows: [] };
			found.push(open);
		}
	}
	return found;
}

/** A "\|" is part of its cell. */
function cells(line: string): string[] {
	return line
		.replace(/^\||\|\s*$/g, '')
		.split(/(?<!\\)\|/)
		.map((cell) => cell.trim().replace(/\\\|/g, '|'));
}
