import { readFileSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';

/** Larger files are refused: an export of one workflow has a few hundred kB. */
export const MAX_FILE_BYTES = 64 * 1024 * 1024;

export interface WorkflowFile {
	path: string;
	/** Found in a folder: what is no workflow is passed over there. */
	inFolder: boolean;
}

/**
 * The files that the given names stand for: files as they are, folders with every .json in and below them, in the order of
 * their names; `node_modules`, what starts with a dot and links are left out.
 */
export function workflowFiles(names: readonly string[]): {
	files: WorkflowFile[];
	missing: Array<{ path: string; problem: string }>;
} {
	const files: WorkflowFile[] = [];
	const missing: Array<{ path: string; problem: string }> = [];
	for (const name of names) {
		try {
			const found = statSync(name);
			if (found.isDirectory()) files.push(...filesIn(name));
			else if (found.isFile()) files.push({ path: name, inFolder: false });
			// each file is read twice, and a device may have no end
			else
				missing.push({ path: name, problem: 'This is a pipe or device: save it as a file first.' });
		} catch (error) {
			missing.push({ path: name, problem: problemOf(error) });
		}
	}
	return { files, missing };
}

function filesIn(folder: string): WorkflowFile[] {
	const found: string[] = [];
	const open = [folder];
	for (const each of open) {
		for (const entry of readdirSync(each, { withFileTypes: true })) {
			if (entry.name.startsWith('.') || entry.name === 'node_modules') continue;
			const inside = path.join(each, entry.name);
			if (entry.isDirectory()) open.push(inside);
			else if (entry.isFile() && /\.json$/i.test(entry.name)) found.push(inside);
		}
	}
	return found.sort().map((file) => ({ path: file, inFolder: true }));
}

/** The text of a file, or why it cannot be had. */
export function textOfFile(file: string): { text: string } | { problem: string } {
	try {
		const { size } = statSync(file);
		if (size > MAX_FILE_BYTES) {
			const limit = MAX_FILE_BYTES / 1024 / 1024;
			return { problem: `The file is larger than ${limit} MB and was not read.` };
		}
		return { text: readFileSync(file, 'utf8') };
	} catch (error) {
		return { problem: problemOf(error) };
	}
}

function problemOf(error: unknown): string {
	const { code } = error as { code?: string };
	switch (code) {
		case 'ENOENT':
			return 'There is no such file or folder.';
		case 'EACCES':
		case 'EPERM':
			return 'The file may not be read.';
		default:
			return `The file cannot be read (${code ?? 'unknown error'}).`;
	}
}
