import type { DecisionPart, DecisionParts } from './decision-key';

/** How a part of one key differs from that of another. */
export interface PartDifference {
	part: string;
	/** null: absent, which differs from every value. */
	first: string | null;
	second: string | null;
	/** Of parts that are JSON objects: the paths that differ, at most 50. Empty where that cannot be told. */
	paths: string[];
}

const MAX_PATHS = 50;

/** What differs between two keys, part by part; empty where the keys are equal. */
export function compareParts(first: DecisionParts, second: DecisionParts): PartDifference[] {
	const names = [...new Set([...Object.keys(first), ...Object.keys(second)])];
	return names.flatMap((part) => {
		const [one, other] = [own(first, part), own(second, part)];
		if (one?.sha256 === other?.sha256) return [];
		return [
			{
				part,
				first: one?.text ?? null,
				second: other?.text ?? null,
				paths: one === undefined || other === undefined ? [] : differingPaths(one, other),
			},
		];
	});
}

function own(parts: DecisionParts, name: string): DecisionPart | undefined {
	return Object.hasOwn(parts, name) ? parts[name] : undefined;
}

function differingPaths(first: DecisionPart, second: DecisionPart): string[] {
	const paths: string[] = [];
	const one = whole(first);
	const other = whole(second);
	if (one === undefined || other === undefined) return [];
	const open: Array<[string, unknown, unknown]> = [['', one, other]];
	for (let next = open.pop(); next !== undefined && paths.length < MAX_PATHS; next = open.pop()) {
		const [path, a, b] = next;
		if (!isHolder(a) || !isHolder(b) || Array.isArray(a) !== Array.isArray(b)) {
			if (path !== '' && JSON.stringify(a) !== JSON.stringify(b)) paths.push(path);
			continue;
		}
		for (const name of new Set([...Object.keys(a), ...Object.keys(b)])) {
			const inner = Array.isArray(a) ? `${path}[${name}]` : path === '' ? name : `${path}.${name}`;
			open.push([inner, member(a, name), member(b, name)]);
		}
	}
	return paths.sort();
}

/** The value of a part; undefined where it was cut or is no JSON. */
function whole({ text, length }: DecisionPart): unknown {
	if (length !== undefined) return undefined;
	try {
		return JSON.parse(text) as unknown;
	} catch {
		return undefined;
	}
}

function isHolder(value: unknown): value is Record<string, unknown> {
	return typeof value === 'object' && value !== null;
}

function member(holder: Record<string, unknown>, name: string): unknown {
	return Object.hasOwn(holder, name) ? holder[name] : undefined;
}
