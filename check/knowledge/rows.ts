import { textOf, type WorkflowNode } from '../workflow';
import { plainType, shortOf } from './node-type';
import { chosenOperation } from './operations';

/** What a node makes of the number of items that come to it. */
export type Rows =
	/** One item may leave as many. */
	| 'more'
	/** Many items leave as one, or as those that somebody picked. */
	| 'fewer'
	| 'as-many';

/** Formats of which each row becomes an item. */
const TABLES = /^(?:csv|ods|xls|xlsx|html|fromFile)$/;

/** Only what the text of a node makes certain counts as "more": a list that is fetched may hold one record. */
export function rowsBehind(node: WorkflowNode): Rows {
	if (node.disabled) return 'as-many';
	if (node.executeOnce) return 'fewer';
	const short = shortOf(plainType(node.type));
	switch (short) {
		case 'splitOut':
			return 'more';
		case 'itemLists': {
			// the first versions named their operations otherwise
			const operation = textOf(node.parameters.operation, 'splitOutItems');
			if (operation === 'splitOutItems') return 'more';
			return ['concatenateItems', 'aggregateItems', 'summarize', 'limit'].includes(operation)
				? 'fewer'
				: 'as-many';
		}
		case 'extractFromFile':
		case 'spreadsheetFile': {
			const { operation } = chosenOperation(node);
			if (operation === 'toFile') return 'fewer';
			return TABLES.test(operation) ? 'more' : 'as-many';
		}
		case 'aggregate':
		case 'summarize':
		case 'limit':
		case 'convertToFile':
			return 'fewer';
		case 'code':
		case 'function':
			return rowsOfCode(node);
		default:
			return 'as-many';
	}
}

const ONE_ITEM_JSON = String.raw`(?:\$json|\$input\.(?:first|last)\(\)\.json|\$input\.item\.json|(?:items|\$input\.all\(\))\[0\]\.json|\$\([^()]*\)\.(?:first|last)\(\)\.json|\$\([^()]*\)\.item\.json)`;
const MEMBERS = String.raw`(?:\??\.\s*(?!map\b|flatMap\b)[\w$]+|\[\s*["'\w]+\s*\])+`;

/** `return $json.lines.map(…)`: each element of a list inside one item becomes an item. */
const MAPS_A_LIST = new RegExp(
	String.raw`\breturn\s+${ONE_ITEM_JSON}${MEMBERS}\s*\??\.(?:map|flatMap)\s*\(`,
);
const FLATTENS_ITEMS = /\breturn\s+(?:items|\$input\.all\(\))\s*\.flatMap\s*\(/;
/** `for (const line of order.json.lines) rows.push({ json: … })`, with or without braces. */
const PUSHES_EACH =
	/\bfor\s*\(\s*(?:const|let|var)\s+\w+\s+of\s+[^;{}]*?json(?:\??\.\w+|\[[^\]]*\])+\s*\)\s*\{?[^{}]{0,500}?\.push\s*\(\s*\{\s*["']?json\b/;
const RETURNS_ONE = /\breturn\s*(?:\[\s*)?\{/;

function rowsOfCode({ parameters }: WorkflowNode): Rows {
	// in the other mode n8n takes one item from it for each
	if (textOf(parameters.mode, 'runOnceForAllItems') !== 'runOnceForAllItems') return 'as-many';
	if (textOf(parameters.language, 'javaScript') !== 'javaScript') return 'fewer';
	const code = textOf(parameters.jsCode, textOf(parameters.functionCode))
		.slice(0, 50_000)
		.replace(/\/\*[^]*?\*\/|(?<!:)\/\/[^\n]*/g, ' ');
	if (MAPS_A_LIST.test(code) || FLATTENS_ITEMS.test(code)) return 'more';
	if (PUSHES_EACH.test(code)) return 'more';
	return RETURNS_ONE.test(code) ? 'fewer' : 'as-many';
}
