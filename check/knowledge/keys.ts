import { parseFieldNames, parsePath } from '../../ledger/identity/field-path';
import { isRecord, textOf, type WorkflowNode } from '../workflow';

export interface KeyText {
	/** What it is called on the node: "Key Fields", "Idempotency-Key". */
	where: string;
	/** As the export holds it: an expression starts with "=". */
	raw: string;
	/** Names of fields separated by commas, rather than a value. */
	isFieldList: boolean;
}

/** What a Claim Work makes its identity from; nothing where the node says that changing keys are meant. */
export function claimKeys({ parameters }: WorkflowNode): KeyText[] {
	const options = isRecord(parameters.options) ? parameters.options : {};
	if (options.allowVolatileKey === true) return [];
	const texts: Array<[where: string, name: string, isFieldList: boolean]> = [
		['Kind', 'kind', false],
		['Version', 'version', false],
	];
	switch (textOf(parameters.identity, 'fields')) {
		case 'expression':
			texts.push(['Key', 'key', false]);
			break;
		case 'fields':
			texts.push(['Key Fields', 'keyFields', true]);
			break;
		case 'content':
			texts.push(['Fields That Count', 'contentFields', true]);
			break;
	}
	return texts
		.map(([where, name, isFieldList]) => ({ where, raw: textOf(parameters[name]), isFieldList }))
		.filter(({ raw }) => raw !== '');
}

/** The last part of each field name in a list of field names; empty for an expression. */
export function keyFieldNames({ raw, isFieldList }: KeyText): string[] {
	if (!isFieldList || raw.startsWith('=')) return [];
	return parseFieldNames(raw).map((name) => parsePath(name)?.at(-1) ?? name);
}

/** The last part of each member that an expression reads from an item; empty for what is no expression. */
export function fieldsOfKey({ raw }: KeyText): string[] {
	if (!raw.startsWith('=')) return [];
	const chain =
		/\$(?:json|input|item|\([^)]*\)|node\[[^\]]*\])((?:\??\.\s*[\w$]+(?:\(\))?|\s*\[\s*(?:"[^"]*"|'[^']*'|\d+)\s*\])+)/g;
	return [...raw.matchAll(chain)].flatMap(([, members]) => {
		const names = [...members.matchAll(/\.\s*([\w$]+)(?!\w*\()|\[\s*["']([^"']*)["']\s*\]/g)];
		const plain = names.map(([, dotted, bracketed]) => dotted ?? bracketed);
		// behind the field may stand a method: `$json.id.toString()`
		return plain
			.filter((name) => !['json', 'first', 'last', 'item', 'all'].includes(name))
			.slice(-1);
	});
}
