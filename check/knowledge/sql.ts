import type { Deed } from './operations';

const QUIET = /--[^\n]*|(?<![^\n])[ \t]*#[^\n]*|\/\*[^]*?\*\/|'(?:[^']|'')*'|\$(\w*)\$[^]*?\$\1\$/g;
/** A name in quotes says nothing, whatever it is called: `"update"`. */
const NAMES = /"[^"\n]*"|`[^`\n]*`/g;
const INSERTS =
	/\binsert\s+(?:into|overwrite|ignore|or\s+\w+)|(?:^|[;(])\s*insert\s+[\w."`[\]]+\s*(?:\(|values\b|select\b)|\breplace\s+into\b|\bcopy\s+\S+\s+from\b/i;
const CONFLICT =
	/\bon\s+conflict\b|\bon\s+duplicate\s+key\b|\binsert\s+(?:or\s+(?:ignore|replace)|ignore)\b|\breplace\s+into\b|\bmerge\s+into\b|\bwhere\s+not\s+exists\b/i;
const CHANGES =
	/\b(?:update|delete\s+from|merge\s+into|truncate|create|alter|drop|grant|revoke|into\s+temp)\b/i;
const SETS = /\b(?:set|key\s+update)\b/i;
const ASSIGNED = /(?<![\w."])([\w."]+)\s*=\s*/g;
/** As much of a value as is looked at. */
const MAX_VALUE = 1_000;
const CALLS = /^\s*(?:call|exec|execute|do|begin\s+declare)\b/i;
const READS =
	/^[\s(]*(?:select|with|show|explain|describe|desc|values|table|set|use|pragma|analyze|begin|commit|;|$)/i;

/**
 * What a SQL text does, by its verbs; comments and quoted text do not count. An expression that is the whole text cannot
 * be seen: "unknown".
 */
export function deedOfSql(text: string): Deed {
	const sql = text
		.replace(/^=/, '')
		.replace(/\{\{[^]*?\}\}/g, '$1')
		.replace(QUIET, (quiet) => (/^['$]/.test(quiet) ? "''" : ' '));
	const verbs = sql.replace(NAMES, 'name').replace(/\bfor\s+(?:no\s+key\s+)?update\b/gi, '');
	if (/^[\s$1']*$/.test(sql)) return text.trim() === '' ? 'nothing' : 'unknown';
	if (INSERTS.test(sql)) return CONFLICT.test(sql) && !counts(sql) ? 'converges' : 'doubles';
	if (/\bupdate\b/i.test(sql) && counts(sql)) return 'doubles';
	if (/\b(?:update|merge)\b/i.test(verbs) || CHANGES.test(verbs)) return 'converges';
	if (CALLS.test(sql)) return 'unknown';
	return READS.test(sql) ? 'reads' : 'unknown';
}

/**
 * `set stock = stock - 1`, `set note = note || 'x'`: each run changes it again. Assignment by assignment, since one
 * expression for all of it takes minutes for a long statement.
 */
function counts(sql: string): boolean {
	return sql.split(';').some((statement) => {
		const from = statement.search(SETS);
		if (from < 0) return false;
		const clause = statement.slice(from);
		return [...clause.matchAll(ASSIGNED)].some(({ 0: all, 1: target, index }) => {
			const name = target.replace(/"/g, '').split('.').at(-1);
			if (name === undefined || name === '') return false;
			const start = index + all.length;
			return countsOn(name).test(clause.slice(start, start + MAX_VALUE));
		});
	});
}

/** Whether a value begins with what the column holds, or joins something to it. */
function countsOn(name: string): RegExp {
	return new RegExp(
		`^(?:\\(?\\s*(?:coalesce\\s*\\(\\s*)?(?!excluded\\.)(?:[\\w"]+\\.)*"?\\b${name}\\b"?\\s*(?:,[^,;()]*\\))?[^,;]*?(?:[+*/]|-(?!>)|\\|\\|)` +
			`|(?:concat\\w*|array_append|array_cat|jsonb_insert)\\s*\\([^;]*?\\b${name}\\b)`,
		'i',
	);
}
