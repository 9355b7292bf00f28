/**
 * Which changing things a raw n8n parameter text uses: the execution, the clock, randomness, the
 * position of an item. A key made of them is another key on each delivery (case 22), and its value
 * does not show it, so the text is read. It is read as tokens, not searched: a field called `now`,
 * or "$now" inside a string, is no clock.
 */

interface Token {
	kind: 'name' | 'text' | 'number' | 'sign';
	text: string;
}

/** Names that n8n (`$…`) gives to expressions and that differ between two runs or two items. */
const VOLATILE_NAMES: ReadonlySet<string> = new Set([
	'$execution',
	'$executionId',
	'$resumeWebhookUrl',
	'$now',
	'$today',
	'$itemIndex',
	'$runIndex',
]);

/** Members of a global that give the time or chance. */
const VOLATILE_MEMBERS: ReadonlySet<string> = new Set([
	'Date.now',
	'DateTime.now',
	'Math.random',
	'performance.now',
	'performance.timeOrigin',
	'Temporal.Now',
	'$prevNode.runIndex',
	'$input.context',
]);

/** Functions and methods, wherever they hang: `crypto.randomUUID()`, n8n's `[…].randomItem()`. */
const VOLATILE_CALLS: ReadonlySet<string> = new Set([
	'randomUUID',
	'randomBytes',
	'randomInt',
	'getRandomValues',
	'randomItem',
	'uuid',
	'uuidv4',
	'uuidv7',
	'nanoid',
	'diffNow',
	'diffToNow',
	'fromNow',
	'toRelative',
	'toRelativeCalendar',
	'isInLast',
]);

/** Members that count loops, wherever they hang (`$node["Loop"].context.currentRunIndex`). */
const VOLATILE_PROPERTIES: ReadonlySet<string> = new Set(['currentRunIndex']);

const GLOBAL_HOLDERS: ReadonlySet<string> = new Set([
	'globalThis',
	'window',
	'self',
	'global',
	'this',
]);

/** Behind these words an operand begins: a "/" starts a pattern, a "[" a list. */
const OPERAND_FOLLOWS: ReadonlySet<string> = new Set([
	'return',
	'typeof',
	'instanceof',
	'in',
	'of',
	'new',
	'delete',
	'void',
	'throw',
	'case',
	'await',
	'yield',
	'else',
	'do',
]);

/**
 * The volatile things that a raw parameter text uses, each once, in order (`$execution`,
 * `Date.now`, `new Date()`, …). Empty for a text that is no expression (does not start with "=").
 * Comments, white space and bracket access (`Date['now']()`) make no difference. Reading stops at
 * what the text itself uses: a field that another node filled with the time cannot be seen here.
 */
export function volatileSources(rawExpression: string): string[] {
	if (!rawExpression.startsWith('=')) return [];
	const found = new Set<string>();
	for (const code of codeIn(rawExpression.slice(1))) {
		for (const source of sourcesOf(plainAccess(tokensOf(code)))) found.add(source);
	}
	return [...found];
}

/**
 * The code between `{{` and `}}`, split as n8n's own expression engine does: the nearest `}}`
 * ends it, even inside a string; a backslash escapes either bracket; the last may stay open.
 */
function codeIn(text: string): string[] {
	const codes: string[] = [];
	let from = 0;
	for (;;) {
		const open = unescaped(text, '{{', from);
		if (open === -1) return codes;
		const close = unescaped(text, '}}', open + 2);
		codes.push(text.slice(open + 2, close === -1 ? undefined : close).replaceAll('\\}}', '}}'));
		if (close === -1) return codes;
		from = close + 2;
	}
}

function unescaped(text: string, bracket: string, from: number): number {
	let at = text.indexOf(bracket, from);
	while (at !== -1) {
		let slashes = 0;
		while (at - slashes - 1 >= from && text[at - slashes - 1] === '\\') slashes++;
		if (slashes % 2 === 0) return at;
		at = text.indexOf(bracket, at + bracket.length);
	}
	return -1;
}

const SPACE_OR_COMMENT = /\s+|\/\/[^\n\r\u2028\u2029]*|\/\*[^]*?\*\//y;
const NAME = /[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*/uy;
const NUMBER = /(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*(?:\.[\d_]*)?(?:[eE][+-]?\d+)?|\.\d[\d_]*)n?/y;
const STRING = /"(?:[^"\\\n]|\\[^])*"|'(?:[^'\\\n]|\\[^])*'/y;
const TEMPLATE = /(?:[^`$\\]|\\[^]|\$(?!\{))*/y;
const PATTERN = /\/(?![*/])(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y;
const SIGN = /\.\.\.|\?\.(?!\d)|[^]/uy;

/**
 * The tokens of a piece of JavaScript; the code in a template's `${…}` stands in brackets. What
 * cannot be read as a token is a sign, never an error. Without recursion: the text may be anything.
 */
function tokensOf(code: string): Token[] {
	const tokens: Token[] = [];
	/** For each open `${`: how many braces are open inside it. */
	const holes: number[] = [];
	let at = 0;
	const take = (expression: RegExp): string | null => {
		expression.lastIndex = at;
		const found = expression.exec(code);
		if (found === null) return null;
		at = expression.lastIndex;
		return found[0];
	};
	const sign = (text: string): void => {
		tokens.push({ kind: 'sign', text });
	};
	/** From behind a backtick, or behind the `}` of a hole. */
	const readTemplate = (whole: boolean): void => {
		const text = take(TEMPLATE) ?? '';
		if (code.startsWith('${', at)) {
			at += 2;
			holes.push(0);
			sign('(');
		} else {
			at += 1;
			tokens.push({ kind: 'text', text: whole ? text : '' });
		}
	};
	while (at < code.length) {
		if (take(SPACE_OR_COMMENT) !== null) continue;
		const character = code[at];
		if (character === '`') {
			at += 1;
			readTemplate(true);
			continue;
		}
		if (character === '}' && holes.at(-1) === 0) {
			at += 1;
			holes.pop();
			sign(')');
			sign('+');
			readTemplate(false);
			continue;
		}
		if (holes.length > 0 && (character === '{' || character === '}')) {
			holes[holes.length - 1] += character === '{' ? 1 : -1;
		}
		let text = take(NAME);
		if (text !== null) {
			tokens.push({ kind: 'name', text });
			continue;
		}
		text = take(NUMBER);
		if (text !== null) {
			tokens.push({ kind: 'number', text });
			continue;
		}
		// An unclosed quote is passed as a sign, so that what follows is still looked at.
		text = take(STRING);
		if (text !== null) {
			tokens.push({ kind: 'text', text: text.slice(1, -1) });
			continue;
		}
		if (character === '/' && !endsOperand(tokens.at(-1))) {
			text = take(PATTERN);
			if (text !== null) {
				tokens.push({ kind: 'text', text });
				continue;
			}
		}
		sign(take(SIGN) ?? code[at++]);
	}
	return tokens;
}

function endsOperand(token: Token | undefined): boolean {
	if (token === undefined) return false;
	if (token.kind === 'sign') return token.text === ')' || token.text === ']' || token.text === '}';
	return !(token.kind === 'name' && OPERAND_FOLLOWS.has(token.text));
}

/**
 * One way to write each access: `a["b"]` and `a?.b` as `a.b`, `(Date)` as `Date`, `globalThis.Date`
 * as `Date`.
 */
function plainAccess(tokens: Token[]): Token[] {
	const plain: Token[] = [];
	const dot: Token = { kind: 'sign', text: '.' };
	for (let at = 0; at < tokens.length; at++) {
		const token = tokens[at];
		const [next, afterNext] = [tokens[at + 1], tokens[at + 2]];
		const before = plain.at(-1);
		if (isSign(token, '?.')) {
			// `a?.["b"]` and `a?.(b)` go on with their bracket.
			if (!isSign(next, '[') && !isSign(next, '(')) plain.push(dot);
		} else if (
			isSign(token, '[') &&
			next?.kind === 'text' &&
			isSign(afterNext, ']') &&
			endsOperand(before)
		) {
			plain.push(dot, { kind: 'name', text: next.text });
			at += 2;
		} else if (
			isSign(token, '(') &&
			next?.kind === 'name' &&
			isSign(afterNext, ')') &&
			!endsOperand(before)
		) {
			plain.push(next);
			at += 2;
		} else {
			plain.push(token);
		}
	}
	return plain.filter((token, at) => {
		const before: Token | undefined = plain[at - 1];
		if (isSign(token, '.') && before !== undefined && isGlobalHolder(before, plain[at - 2])) {
			return false;
		}
		return !(isGlobalHolder(token, before) && isSign(plain[at + 1], '.'));
	});
}

function isGlobalHolder(token: Token, before: Token | undefined): boolean {
	return token.kind === 'name' && GLOBAL_HOLDERS.has(token.text) && !isSign(before, '.');
}

function* sourcesOf(tokens: Token[]): Generator<string> {
	for (let at = 0; at < tokens.length; at++) {
		const token = tokens[at];
		if (token.kind !== 'name') continue;
		const [before, next, afterNext] = [tokens[at - 1], tokens[at + 1], tokens[at + 2]];
		const called = isSign(next, '(');
		if (isSign(before, '.')) {
			if (VOLATILE_PROPERTIES.has(token.text)) yield token.text;
			if (VOLATILE_CALLS.has(token.text) && called) yield token.text;
			continue;
		}
		const isFieldName = isSign(next, ':') && (isSign(before, '{') || isSign(before, ','));
		if (isFieldName) continue;
		if (VOLATILE_NAMES.has(token.text)) {
			yield token.text;
		} else if (VOLATILE_CALLS.has(token.text) && called) {
			yield token.text;
		} else if (isSign(next, '.') && afterNext?.kind === 'name') {
			const member = `${token.text}.${afterNext.text}`;
			if (VOLATILE_MEMBERS.has(member) || isClockWithoutTime(member, tokens, at)) yield member;
		} else if (token.text === 'Date') {
			const isNew = before?.kind === 'name' && before.text === 'new';
			// `Date(…)` is the current time as text, whatever it is given.
			if (isNew && (!called || isSign(afterNext, ')'))) yield 'new Date()';
			if (!isNew && called) yield 'Date()';
		}
	}
}

/** `DateTime.local()` and `.utc()` are the current time unless they are given one. */
function isClockWithoutTime(member: string, tokens: Token[], at: number): boolean {
	if (member !== 'DateTime.local' && member !== 'DateTime.utc') return false;
	const [open, first] = [tokens[at + 3], tokens[at + 4]];
	return !isSign(open, '(') || isSign(first, ')') || isSign(first, '{');
}

function isSign(token: Token | undefined, text: string): boolean {
	return token?.kind === 'sign' && token.text === text;
}
