import type { IDataObject, IExecuteFunctions } from 'n8n-workflow';

import { parseFieldNames, unresolvedIn } from '../../ledger';

/**
 * Reads parameters of a batch. An expression costs about 240 µs per item in n8n's default engine, so a parameter that
 * holds none is read once.
 */
export class Parameters {
	private readonly fixed = new Map<string, unknown>();
	private readonly onNode: IDataObject;
	private readonly lists = new Map<string, { text: string; names: readonly string[] }>();

	constructor(private readonly context: IExecuteFunctions) {
		// n8n copies the node for each who asks
		this.onNode = context.getNode().parameters;
	}

	/** The value for one item. Throws what n8n throws for an expression that fails. */
	read<T>(name: string, itemIndex: number, fallback: T): T {
		if (this.fixed.has(name)) return this.fixed.get(name) as T;
		const value = this.get(name, itemIndex, fallback);
		if (!holdsExpression(this.raw(name))) this.fixed.set(name, value);
		return value;
	}

	private get<T>(name: string, itemIndex: number, fallback: T): T {
		try {
			return this.context.getNodeParameter(name, itemIndex, fallback) as T;
		} catch (error) {
			throw ofParameter(error, name);
		}
	}

	/** A text parameter; what an expression gives is turned into text, undefined and null into ''. */
	text(name: string, itemIndex: number, fallback = ''): string {
		const value = this.read<unknown>(name, itemIndex, fallback);
		return value === undefined || value === null ? '' : String(value);
	}

	/** What is chosen of several; an expression may give one of them, or several as text with commas. */
	chosen<T extends string>(name: string, label: string, itemIndex: number, fallback: T[]): T[] {
		const given = this.read<unknown>(name, itemIndex, fallback);
		const list = typeof given === 'string' && given.trim() !== '' ? given.split(',') : given;
		if (Array.isArray(list) && list.every((one) => typeof one === 'string'))
			return list.map((one) => one.trim()) as T[];
		throw new Error(
			`${label} is ${given === undefined ? 'nothing' : JSON.stringify(given).slice(0, 100)}, no choice. Choose from the list, or let the expression give a list of texts.`,
		);
	}

	/** An entry of the Options collection. */
	option<T>(name: string, itemIndex: number, fallback: T): T {
		const options = this.read<IDataObject>('options', itemIndex, {});
		return (options[name] ?? fallback) as T;
	}

	/** An entry of the Options collection as text; unset, undefined and null are ''. */
	optionText(name: string, itemIndex: number): string {
		return String(this.option<unknown>(name, itemIndex, ''));
	}

	/**
	 * A yes or no of the Options collection; nothing is the fallback. Throws, naming the option, for anything else: of an
	 * expression n8n keeps what it gives, and as a condition the text "false" would be yes.
	 */
	optionFlag(name: string, label: string, itemIndex: number, fallback: boolean): boolean {
		const given = this.option<unknown>(name, itemIndex, fallback);
		if (typeof given === 'boolean') return given;
		const text = typeof given === 'string' ? given.trim().toLowerCase() : null;
		if (text === '') return fallback;
		if (text === 'true' || text === 'false') return text === 'true';
		throw Object.assign(
			new Error(
				`"${label}" is ${JSON.stringify(given).slice(0, 50)}, not true or false. Check its expression.`,
			),
			{ code: 'bad_parameter' },
		);
	}

	/** Names of fields, separated by commas. */
	fieldNames(name: string, itemIndex: number): readonly string[] {
		return this.namesIn(name, this.text(name, itemIndex));
	}

	/** The same in an entry of the Options collection. */
	optionFieldNames(name: string, itemIndex: number): readonly string[] {
		return this.namesIn(`options.${name}`, this.optionText(name, itemIndex));
	}

	/** What an expression, braces included, gives for one item. Throws what n8n throws for one that fails. */
	evaluate(expression: string, itemIndex: number): unknown {
		return this.context.evaluateExpression(expression, itemIndex);
	}

	/**
	 * The first `{{ … }}` that gives nothing in a text that holds more than one of them, or other text; null if there is
	 * none. n8n leaves out what gives nothing: of `inv-{{ $json.order }}` would be left `inv-` for every item without one.
	 */
	emptyPart(name: string, itemIndex: number): string | null {
		return this.emptyPartOf(this.raw(name), itemIndex);
	}

	/** Whether not one `{{ … }}` of a text gives anything, where it holds more than one of them, or other text. */
	isAllEmpty(name: string, itemIndex: number): boolean {
		const parts = templateParts(this.raw(name));
		return parts.length > 0 && parts.every((part) => this.isEmpty(part, itemIndex));
	}

	/** As `emptyPart`, in an entry of the Options collection. */
	emptyOptionPart(name: string, itemIndex: number): string | null {
		const options = this.raw('options') as IDataObject | null | undefined;
		return this.emptyPartOf(options?.[name], itemIndex);
	}

	isExpression(name: string): boolean {
		return holdsExpression(this.raw(name));
	}

	/** As it stands on the node, expressions unresolved. */
	raw(name: string): unknown {
		return this.onNode[name];
	}

	/** Throws for an expression that was typed while n8n's switch stood on Fixed: it is the same text for every item. */
	refuseTyped(name: string, label: string): void {
		const raw = this.raw(name);
		const typed = typeof raw === 'string' && !raw.startsWith('=') ? unresolvedIn(raw) : null;
		if (typed === null) return;
		throw new Error(
			`${label} holds ${typed.slice(0, 100)} as it was typed. Switch the field from Fixed to Expression.`,
		);
	}

	private emptyPartOf(raw: unknown, itemIndex: number): string | null {
		for (const part of templateParts(raw)) {
			if (this.isEmpty(part, itemIndex)) return part.slice(0, 200);
		}
		return null;
	}

	private isEmpty(expression: string, itemIndex: number): boolean {
		const value = this.evaluate(expression, itemIndex);
		return value === undefined || value === null || String(value).trim() === '';
	}

	private namesIn(name: string, text: string): readonly string[] {
		let list = this.lists.get(name);
		// a batch asks thousands of times with the same text
		if (list?.text !== text) {
			list = { text, names: parseFieldNames(text) };
			this.lists.set(name, list);
		}
		return list.names;
	}
}

/** "invalid syntax" alone does not say where: n8n names the parameter of some failures only. */
function ofParameter(error: unknown, name: string): unknown {
	if (error instanceof Error) {
		const thrown = error as Error & { context?: IDataObject };
		thrown.context = { parameter: name, ...thrown.context };
	}
	return error;
}

function holdsExpression(raw: unknown): boolean {
	if (typeof raw === 'string') return raw.startsWith('=');
	if (typeof raw !== 'object' || raw === null) return false;
	return Object.values(raw).some(holdsExpression);
}

/** The `{{ … }}` of a text that holds more than one of them, or other text; a single one is the whole value. */
function templateParts(raw: unknown): string[] {
	if (typeof raw !== 'string' || !raw.startsWith('=')) return [];
	const text = raw.slice(1).trim();
	const parts = text.match(/\{\{[^]*?\}\}/g) ?? [];
	return parts[0] === text ? [] : parts;
}

/** An edited or imported workflow may hold a choice that this version does not know. `code`: for answers that carry one. */
export function unknownChoice(label: string, given: unknown): Error & { code: string } {
	const message = `${label} is set to "${String(given).slice(0, 50)}", which this version does not know. Choose it anew on the node.`;
	return Object.assign(new Error(message), { code: 'bad_parameter' });
}
