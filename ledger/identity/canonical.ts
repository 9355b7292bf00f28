import { types } from 'node:util';

import stableStringify from 'fast-json-stable-stringify';

import { pathText } from './field-path';
import { instantText, momentText } from './moments';
import { isOwnField } from './own-field';
import type { ReadingOptions } from './reading';
import { jsonFromText, numberFromText } from './reading';
import { IdentityRefusal, fieldWords, shown } from './refusal';
import { cleanText } from './text';
import type { PathProgress, VolatileFields } from './volatile-fields';

/** Data that JSON can carry as it is. */
export type Plain = string | number | boolean | null | Plain[] | { [name: string]: Plain };

/** Deeper values are refused: real data is not, and the stack is finite. */
export const MAX_LEVELS = 200;

const NO_PROGRESS: PathProgress = Object.freeze([]);

/**
 * One text for one value, in any order of its fields: RFC 8785 over values that are read first.
 * Texts trimmed and in NFC, field names in NFC, -0 as 0, Date and Luxon values as UTC ISO, bigint
 * as decimal text; `undefined` and functions dropped from objects, null in lists, as in JSON;
 * errors as `{name, message}`; other objects by their `toJSON`, else by their own fields.
 *
 * @throws IdentityRefusal for what would lose its meaning: NaN and infinities, integers beyond
 * 2^53-1, lone surrogates, invalid dates, circular values, more than 200 levels, maps, sets,
 * binary data, field names that are the same in NFC, and nothing at all
 */
export function canonicalJson(value: unknown, options: ReadingOptions = {}): string {
	return stableStringify(readPlain(value, null, options));
}

/** What `canonicalJson` serialises. `field`: how refusals name the value. */
export function readPlain(
	value: unknown,
	field: string | null,
	options: ReadingOptions,
	volatile: VolatileFields | null = null,
): Plain {
	let plain: Plain | undefined;
	let refusal: IdentityRefusal | null = null;
	try {
		plain = new PlainReader(field, options, volatile).read(value, volatile?.start ?? NO_PROGRESS);
	} catch (error) {
		// A getter, a proxy or a toJSON of the value threw; its message may hold anything.
		refusal =
			error instanceof IdentityRefusal
				? error
				: new IdentityRefusal(
						'unreadable',
						field,
						`${fieldWords(field)} cannot be read.`,
						'Turn it into plain data before this node, for example with an Edit Fields node.',
					);
	}
	if (refusal !== null) throw refusal;
	if (plain !== undefined) return plain;
	if (value === undefined) {
		throw new IdentityRefusal(
			'missing',
			field,
			`${fieldWords(field)} is missing.`,
			'Choose a field that every item has.',
		);
	}
	throw unsupported(field, `a ${typeof value}`);
}

export function unsupported(field: string | null, what: string): IdentityRefusal {
	return new IdentityRefusal(
		'unsupported_type',
		field,
		`${fieldWords(field)} is ${what}, which has no fixed text form.`,
		'Turn it into text, numbers, lists or plain objects before this node.',
	);
}

/** @throws IdentityRefusal `not_finite` or `unsafe_integer` */
export function refuseInexactNumber(value: number, field: string | null): void {
	if (!Number.isFinite(value)) {
		throw new IdentityRefusal(
			'not_finite',
			field,
			`${fieldWords(field)} is ${value}, which is not a number that can be compared.`,
			'Look at the calculation that makes it, or choose another field.',
		);
	}
	if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
		throw new IdentityRefusal(
			'unsafe_integer',
			field,
			`${fieldWords(field)} is the number ${shown(value)}, too big to be exact: it was rounded ` +
				'before it came here, so two different ids may look the same.',
			'In the step that fetches it, ask the API for a string id (text instead of a number).',
		);
	}
}

class PlainReader {
	private readonly ancestors: object[] = [];

	private readonly path: Array<string | number> = [];

	constructor(
		private readonly root: string | null,
		private readonly options: ReadingOptions,
		private readonly volatile: VolatileFields | null,
	) {}

	/** `undefined` is what JSON leaves out: undefined, functions, symbols. */
	read(value: unknown, progress: PathProgress): Plain | undefined {
		switch (typeof value) {
			case 'string':
				return this.readText(value, progress);
			case 'number':
				if (!Number.isFinite(value) || Math.abs(value) > Number.MAX_SAFE_INTEGER) {
					refuseInexactNumber(value, this.field());
				}
				return value; // -0 is printed as 0
			case 'boolean':
				return value;
			case 'bigint':
				return value.toString();
			case 'object':
				return value === null ? null : this.readObject(value, progress);
			default:
				return undefined;
		}
	}

	private readText(value: string, progress: PathProgress): Plain | undefined {
		const { options } = this;
		// Only for its message: naming the field of each text would cost more than reading it.
		let text: string;
		try {
			text = cleanText(value, null, options.collapseWhiteSpace);
		} catch {
			text = cleanText(value, this.field());
		}
		if (options.readJson === true) {
			const held = jsonFromText(text);
			if (held !== undefined) return this.readObject(held, progress);
		}
		if (options.readDates === true) {
			const instant = instantText(text);
			if (instant !== null) return instant;
		}
		if (options.readNumbers === true) {
			const number = numberFromText(text);
			if (number !== null) return number;
		}
		return text;
	}

	private readObject(value: object, progress: PathProgress): Plain | undefined {
		if (this.ancestors.includes(value)) {
			throw new IdentityRefusal(
				'circular',
				this.field(),
				`${fieldWords(this.field())} contains itself, so it has no end.`,
				'Keep only the fields that matter, for example with an Edit Fields node.',
			);
		}
		if (this.ancestors.length >= MAX_LEVELS) {
			throw new IdentityRefusal(
				'too_deep',
				this.root,
				`${fieldWords(this.root)} has more than ${MAX_LEVELS} levels of lists and objects.`,
				'Keep only the fields that matter, for example with an Edit Fields node.',
			);
		}
		this.ancestors.push(value);
		const plain = Array.isArray(value)
			? this.readList(value, progress)
			: this.readMembersOrForm(value, progress);
		this.ancestors.pop();
		return plain;
	}

	private readList(list: unknown[], progress: PathProgress): Plain[] {
		const plain: Plain[] = [];
		// By index, not by forEach: holes count as null, as in JSON.
		for (let index = 0; index < list.length; index++) {
			const member = list[index];
			if (this.isLeftOutOwnField(member)) continue;
			const deeper = this.volatile === null ? NO_PROGRESS : this.volatile.step(progress, index);
			if (deeper === null) continue;
			this.path.push(index);
			plain.push(this.read(member, deeper) ?? null);
			this.path.pop();
		}
		return this.options.arraysAsSets === true ? asSet(plain) : plain;
	}

	private readMembersOrForm(value: object, progress: PathProgress): Plain | undefined {
		const prototype: unknown = Object.getPrototypeOf(value);
		if (prototype !== Object.prototype && prototype !== null) {
			const moment = momentText(value, this.field());
			if (moment !== null) return moment;
			if (types.isBoxedPrimitive(value)) return this.read(value.valueOf(), progress);
			const what = withoutTextForm(value);
			if (what !== null) throw unsupported(this.field(), what);
		} else if ('isLuxonDateTime' in value) {
			const moment = momentText(value, this.field());
			if (moment !== null) return moment;
		}
		const form = value as { toJSON?: unknown };
		if (typeof form.toJSON === 'function') {
			const json: unknown = form.toJSON(String(this.path.at(-1) ?? ''));
			return this.read(json, progress);
		}
		if (types.isNativeError(value)) {
			return this.readMembers({ name: value.name, message: value.message }, progress);
		}
		return this.readMembers(value as Record<string, unknown>, progress);
	}

	private readMembers(members: Record<string, unknown>, progress: PathProgress): Plain {
		const plain: { [name: string]: Plain } = {};
		for (const raw of Object.keys(members)) {
			const name = this.readName(raw);
			let deeper = NO_PROGRESS;
			if (this.volatile !== null) {
				if (this.volatile.hasName(name)) continue;
				const step = this.volatile.step(progress, name);
				if (step === null) continue;
				deeper = step;
			}
			const member = members[raw];
			if (this.isLeftOutOwnField(member)) continue;
			this.path.push(name);
			const read = this.read(member, deeper);
			if (read !== undefined) {
				if (Object.prototype.hasOwnProperty.call(plain, name)) throw this.nameClash(name);
				setMember(plain, name, read);
			}
			this.path.pop();
		}
		return plain;
	}

	private readName(raw: string): string {
		if (/^[\x20-\x7e]*$/.test(raw)) return raw;
		// Field names keep their outer spaces: `a` and `a ` are two fields of one item.
		cleanText(raw, this.field() ?? raw);
		return raw.normalize('NFC');
	}

	/** This package's own fields are left out of content only; elsewhere they are data. */
	private isLeftOutOwnField(member: unknown): boolean {
		if (this.volatile === null || typeof member !== 'object' || member === null) return false;
		// An Aggregate node collects the field into a list.
		if (Array.isArray(member)) return member.length > 0 && member.every(isOwnField);
		return isOwnField(member);
	}

	private nameClash(name: string): IdentityRefusal {
		return new IdentityRefusal(
			'field_name_clash',
			this.field(),
			`Two fields of one object are both called ${shown(name)}; only their invisible Unicode ` +
				'form differs.',
			'Rename or remove one of them before this node.',
		);
	}

	private field(): string | null {
		return pathText(this.root, this.path);
	}
}

function asSet(list: Plain[]): Plain[] {
	const members = new Map<string, Plain>();
	for (const member of list) members.set(stableStringify(member), member);
	return [...members.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, member]) => member);
}

function setMember(plain: { [name: string]: Plain }, name: string, value: Plain): void {
	if (name !== '__proto__') {
		plain[name] = value;
		return;
	}
	// Assigning it would change the prototype and lose the field; JSON.parse makes it a field too.
	Object.defineProperty(plain, name, {
		value,
		enumerable: true,
		configurable: true,
		writable: true,
	});
}

/** What kind of object it is, when JSON would make `{}` or a list of bytes of it. */
function withoutTextForm(value: object): string | null {
	if (types.isMap(value) || types.isWeakMap(value)) return 'a Map';
	if (types.isSet(value) || types.isWeakSet(value)) return 'a Set';
	if (ArrayBuffer.isView(value) || types.isAnyArrayBuffer(value)) return 'binary data';
	if (types.isRegExp(value)) return 'a regular expression';
	if (types.isPromise(value)) return 'a promise';
	return null;
}
