import { readFileSync } from 'node:fs';
import path from 'node:path';

/** A fenced block of docs/sql.md. */
export interface Block {
	/** The nearest `##` and `###` headings above it. */
	chapter: string;
	section: string;
	language: string;
	text: string;
	/** The table of the `text` block that follows it, cell by cell, headings first; null where none follows. */
	answer: string[][] | null;
}

export function readPage(): { markdown: string; blocks: Block[] } {
	const markdown = readFileSync(path.resolve(__dirname, '../../docs/sql.md'), 'utf8');
	const blocks: Block[] = [];
	let chapter = '';
	let section = '';
	const pattern = /^## (.+)|^### (.+)|^```(.+)\n([^]*?)^```$/gm;
	for (const [, h2, h3, language, text] of markdown.matchAll(pattern)) {
		if (h2 !== undefined) [chapter, section] = [h2, ''];
		else if (h3 !== undefined) section = h3;
		else if (language === 'text' && blocks.length > 0 && blocks[blocks.length - 1].answer === null)
			blocks[blocks.length - 1].answer = cells(text);
		else blocks.push({ chapter, section, language, text, answer: null });
	}
	return { markdown, blocks };
}

/** The cells of a table as psql prints it, without the line under the headings and the count of rows. */
function cells(table: string): string[][] {
	return table
		.split('\n')
		.filter((line) => line.trim() !== '' && !/^[-+]+$/.test(line) && !/^\(\d+ rows?\)$/.test(line))
		.map((line) => line.split('|').map((cell) => cell.trim()));
}

/** Times and random values differ on every run. */
export function settled(table: string[][]): string[][] {
	return table.map((row) =>
		row.map((cell) =>
			cell.replace(
				/\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00|Z)/g,
				(_, _fraction, zone) => `<time ${zone}>`,
			),
		),
	);
}
