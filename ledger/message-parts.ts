/**
 * Long texts in parts. Lengths are UTF-16 units after Telegram has parsed the markup, which is how the Bot API counts
 * (https://core.telegram.org/bots/api#sendmessage: "1-4096 characters after entities parsing").
 */

export type ParseMode = 'HTML' | 'Markdown' | 'MarkdownV2';

export interface MessagePart {
	/** As it is sent under the parse mode. */
	text: string;
	/** The same without a parse mode, where Telegram cannot parse it. */
	plain: string;
}

/** With its markup and in UTF-8; Telegram refuses more before it reads the markup. */
const MAX_RAW_BYTES = 32_768;
/** Longer raw texts are not looked at. */
const MAX_RAW_LENGTH = 500_000;
export const MAX_PARTS = 100;

/** A piece of the raw text and what the reader sees of it. Markup has nothing visible; only a text may be cut inside. */
interface Atom {
	raw: string;
	visible: string;
	closing?: boolean;
	/** What a cut before or inside it must close and open again; null: it may not be cut here. */
	cut: { close: string; open: string } | null;
}

const PLAIN_CUT = { close: '', open: '' };

/**
 * The text in parts of at most `first` and then `rest` visible units, cut at paragraphs, lines or spaces where it can be,
 * and never inside a tag, an entity or a visible character. Parts that would show nothing are left out; the first, where it
 * is another kind than the rest (a caption), is empty then. Null: the text cannot be cut without breaking its markup, or is
 * too long for 100 parts.
 */
export function messageParts(
	text: string,
	parseMode: ParseMode | null,
	{ first, rest }: { first: number; rest: number },
): MessagePart[] | null {
	if (text.length > MAX_RAW_LENGTH) return null;
	const atoms = atomsOf(text, parseMode);
	const visible = atoms.map((atom) => atom.visible).join('');
	// as it stands: what Telegram thinks of its markup is Telegram's to say
	if (visible.length <= first && !isTooHeavy(text))
		return [{ text, plain: plainOf(text, visible, parseMode, first) }];
	const allowed = cuttable(atoms, visible.length);
	// shorter ones where it is mostly markup, such as a list of long links
	for (let share = 1; share <= 32; share *= 2) {
		const ends = cuts(visible, allowed, Math.floor(first / share), Math.floor(rest / share));
		if (ends === null || ends.length > MAX_PARTS) return null;
		const raw = rawParts(atoms, ends);
		if (raw.some(isTooHeavy)) continue;
		return ends
			.map((end, i) => {
				const seen = visible.slice(ends[i - 1] ?? 0, end);
				if (seen.trim() === '') return { text: '', plain: '' };
				const limit = i === 0 ? first : rest;
				return { text: raw[i], plain: plainOf(raw[i], seen, parseMode, limit) };
			})
			.filter((part, i) => part.text !== '' || (i === 0 && first !== rest));
	}
	return null;
}

const isTooHeavy = (raw: string) => Buffer.byteLength(raw) > MAX_RAW_BYTES;

/** What the reader sees of a text: without tags and markers, entities decoded. */
export function visibleText(text: string, parseMode: ParseMode | null): string {
	return atomsOf(text, parseMode)
		.map((atom) => atom.visible)
		.join('');
}

/** Markdown is readable as it stands; HTML is not. */
function plainOf(raw: string, visible: string, parseMode: ParseMode | null, limit: number): string {
	return parseMode === 'HTML' || raw.length > limit ? visible : raw;
}

function atomsOf(text: string, parseMode: ParseMode | null): Atom[] {
	switch (parseMode) {
		case 'HTML':
			return htmlAtoms(text);
		case 'Markdown':
		case 'MarkdownV2':
			return markdownAtoms(text, parseMode === 'MarkdownV2');
		default:
			return [{ raw: text, visible: text, cut: PLAIN_CUT }];
	}
}

// bounded, so that a text full of "<" costs no more than its length; Telegram reads entities without their ";" as well
const HTML_TOKEN =
	/<(\/?)([a-zA-Z][a-zA-Z0-9-]{0,30})((?:[^<>"']|"[^"]{0,4000}"|'[^']{0,4000}'){0,4000})>|&(?:#(\d{1,7})(?!\d)|#x([0-9a-fA-F]{1,6})(?![0-9a-fA-F])|(lt|gt|amp|quot)(?![a-zA-Z]));?/g;

const NAMED_ENTITIES: Record<string, string> = { lt: '<', gt: '>', amp: '&', quot: '"' };

/** Of the tags that Telegram does not know. */
const ENDS_LINE = /^(?:p|div|li|ul|ol|tr|table|h[1-6])$/;

function htmlAtoms(text: string): Atom[] {
	const atoms: Atom[] = [];
	const open: Array<{ name: string; tag: string }> = [];
	let cut: Atom['cut'] = PLAIN_CUT;
	let at = 0;
	const plain = (end: number) => {
		const raw = text.slice(at, end);
		if (raw !== '') atoms.push({ raw, visible: raw, cut });
	};
	for (const match of text.matchAll(HTML_TOKEN)) {
		const [raw, slash, name, , decimal, hex, named] = match;
		plain(match.index);
		at = match.index + raw.length;
		if (name === undefined) {
			atoms.push({ raw, visible: entityText(raw, decimal, hex, named), cut });
			continue;
		}
		const lower = name.toLowerCase();
		const closing = slash === '/';
		// Telegram refuses them: without markup the lines stay lines
		const isBreak = lower === 'br' || (closing && ENDS_LINE.test(lower));
		atoms.push({ raw, visible: isBreak ? '\n' : '', closing, cut });
		if (lower === 'br') continue;
		if (!closing) open.push({ name: lower, tag: raw });
		// anything else is Telegram's to refuse
		else if (open.at(-1)?.name === lower) open.pop();
		cut = {
			close: open.map((tag) => `</${tag.name}>`).reduceRight((all, tag) => all + tag, ''),
			open: open.map(({ tag }) => tag).join(''),
		};
	}
	plain(text.length);
	return atoms;
}

function entityText(
	raw: string,
	decimal: string | undefined,
	hex: string | undefined,
	named: string | undefined,
): string {
	if (named !== undefined) return NAMED_ENTITIES[named];
	const code = decimal === undefined ? parseInt(hex ?? '', 16) : Number(decimal);
	const isCharacter = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
	return isCharacter ? String.fromCodePoint(code) : raw;
}

/**
 * Markdown is cut only where nothing is open, and inside a block of code, which is closed and opened again: Telegram's
 * markers cannot be told apart safely once they are moved (`__` and `_`, a `>` that begins a line).
 */
function markdownAtoms(text: string, second: boolean): Atom[] {
	const atoms: Atom[] = [];
	const open: string[] = [];
	const markers = second ? ['||', '__', '_', '*', '~'] : ['_', '*'];
	let quote = false;
	let at = 0;
	const cutHere = () => (open.length === 0 && !quote ? PLAIN_CUT : null);
	const push = (raw: string, visible: string, more: Partial<Atom> = {}) => {
		atoms.push({ raw, visible, cut: cutHere(), ...more });
		at += raw.length;
	};
	while (at < text.length) {
		const character = text[at];
		const next = text[at + 1];
		if (character === '\\' && next !== undefined && isEscapable(next, second)) {
			push(character + next, next);
		} else if (text.startsWith('```', at)) {
			const fence = CODE_FENCE.exec(text.slice(at, at + 64))?.[0] ?? '```';
			const end = codeEnd('```', at + fence.length);
			if (end === -1) {
				open.push('```');
				push('```', '');
				continue;
			}
			const isCuttable = open.length === 0 && !quote;
			push(fence, '');
			// without a line break the first word of the next part would be its language, and hidden
			const reopened = /[\r\n]$/.test(fence) ? fence : `${fence}\n`;
			pushCode(text.slice(at, end), isCuttable ? { close: '```', open: reopened } : null);
			push('```', '', { closing: true, cut: null });
		} else if (character === '`') {
			const end = codeEnd('`', at + 1);
			if (end === -1) open.push('`');
			push('`', '');
			if (end === -1) continue;
			pushCode(text.slice(at, end), null);
			push('`', '', { closing: true, cut: null });
		} else if (character === '[' || (second && text.startsWith('![', at))) {
			const opening = character === '[' ? '[' : '![';
			open.push('[');
			push(opening, '', { cut: open.length === 1 && !quote ? PLAIN_CUT : null });
		} else if (character === ']' && open.includes('[')) {
			const target = /^\]\((?:\\[^]|[^)\\]){0,2100}\)/.exec(text.slice(at, at + 4_300))?.[0];
			while (open.pop() !== '[');
			push(target ?? ']', target === undefined ? ']' : '', { closing: true, cut: null });
		} else if (
			second &&
			(character === '>' || text.startsWith('**>', at)) &&
			isLineStart(text, at)
		) {
			push(character === '>' ? '>' : '**>', '');
			quote = true;
		} else if (character === '\n') {
			push('\n', '\n', { cut: open.length === 0 && !quote ? PLAIN_CUT : null });
			quote = false;
		} else {
			const marker = markers.find((each) => text.startsWith(each, at));
			if (marker === undefined) {
				const run = /^[^\\`[\]_*~|>\n!]+/.exec(text.slice(at, at + 4_096))?.[0] ?? character;
				push(run, run);
			} else if (open.includes(marker)) {
				while (open.pop() !== marker);
				push(marker, '', { closing: true, cut: null });
			} else if (marker === '||' && quote && /^(?:\n|$)/.test(text.slice(at + 2, at + 3))) {
				// the end of an expandable quotation
				push(marker, '', { closing: true, cut: null });
			} else {
				push(marker, '');
				// the first version knows no nesting
				if (second || open.length === 0) open.push(marker);
				else atoms[atoms.length - 1].visible = marker;
			}
		}
	}
	return atoms;

	function pushCode(code: string, cut: Atom['cut']): void {
		for (const piece of second ? code.split(/(\\[^])/) : [code]) {
			if (piece === '') continue;
			const isEscape = second && piece[0] === '\\' && isEscapable(piece[1] ?? '', second);
			push(piece, isEscape ? piece[1] : piece, { cut });
		}
	}

	/** Where the marker stands next that nothing escapes; -1 for nowhere. */
	function codeEnd(marker: string, from: number): number {
		if (!second) return text.indexOf(marker, from);
		for (let i = from; i < text.length; i++) {
			if (text[i] === '\\' && isEscapable(text[i + 1] ?? '', second)) i++;
			else if (text.startsWith(marker, i)) return i;
		}
		return -1;
	}
}

/** With the language, which only counts with space behind it, and the one line break that Telegram skips. */
const CODE_FENCE = /^```(?:[^\s`]+(?=\s))?(?:\r\n|\n\r|\n|\r)?/;

const isEscapable = (character: string, second: boolean) =>
	second ? character > '\0' && character < '\x7f' : '_*`['.includes(character);

const isLineStart = (text: string, at: number) => at === 0 || text[at - 1] === '\n';

/** For every visible position whether the text may be cut there. */
function cuttable(atoms: Atom[], length: number): Uint8Array {
	const allowed = new Uint8Array(length + 1);
	let at = 0;
	let decided = -1;
	for (const { visible, closing, cut } of atoms) {
		// what closes here still belongs to the part before: the first that does not is what a cut comes before
		if (closing !== true && decided !== at) {
			allowed[at] = cut === null ? 0 : 1;
			decided = at;
		}
		for (let i = 1; i < visible.length; i++) allowed[at + i] = cut === null ? 0 : 1;
		at += visible.length;
	}
	allowed[length] = 1;
	return allowed;
}

const graphemes = new Intl.Segmenter('und', { granularity: 'grapheme' });

/** Where the parts end; null where no end is allowed. */
function cuts(visible: string, allowed: Uint8Array, first: number, rest: number): number[] | null {
	const ends: number[] = [];
	for (let start = 0; start < visible.length; ) {
		const limit = ends.length === 0 ? first : rest;
		const end =
			visible.length - start <= limit
				? visible.length
				: bestCut(visible, allowed, start, start + limit);
		if (end === null || ends.length >= MAX_PARTS) return null;
		ends.push(end);
		start = end;
	}
	return ends;
}

function bestCut(
	visible: string,
	allowed: Uint8Array,
	start: number,
	latest: number,
): number | null {
	const ends: number[] = [];
	// a little more than fits, so that the last character is seen whole
	for (const { index, segment } of graphemes.segment(visible.slice(start, latest + 64))) {
		const end = start + index + segment.length;
		if (end > latest) break;
		if (allowed[end] === 1) ends.push(end);
	}
	const middle = start + (latest - start) / 2;
	const late = ends.filter((end) => end > middle);
	const after = (pattern: string) => late.filter((end) => visible.endsWith(pattern, end)).at(-1);
	return (
		after('\n\n') ??
		after('\n') ??
		after(' ') ??
		ends.at(-1) ??
		// one visible character longer than a part (an endless pile of accents): then between two code points
		(allowed[latest] === 1 && !isInsidePair(visible, latest) ? latest : null)
	);
}

const isInsidePair = (text: string, at: number) =>
	/[\ud800-\udbff]/.test(text[at - 1] ?? '') && /[\udc00-\udfff]/.test(text[at] ?? '');

function rawParts(atoms: Atom[], ends: number[]): string[] {
	const parts: string[] = [];
	let part = '';
	let at = 0;
	const cutBefore = ({ close, open }: { close: string; open: string }) => {
		parts.push(part + close);
		part = open;
	};
	for (const { raw, visible, closing, cut } of atoms) {
		if (closing !== true && at === ends[parts.length] && parts.length < ends.length - 1)
			cutBefore(cut ?? PLAIN_CUT);
		if (visible !== raw) {
			part += raw;
			at += visible.length;
			continue;
		}
		let from = 0;
		while (parts.length < ends.length - 1 && ends[parts.length] < at + visible.length) {
			const to = ends[parts.length] - at;
			part += raw.slice(from, to);
			cutBefore(cut ?? PLAIN_CUT);
			from = to;
		}
		part += raw.slice(from);
		at += visible.length;
	}
	parts.push(part);
	return parts;
}
