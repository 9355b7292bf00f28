/**
 * What Telegram makes of a marked-up text, written from its documentation and observed behaviour and not from this
 * package: the judge of how texts are cut. Null: "can't parse entities".
 */
export function telegramReads(text: string, mode: string | null): string | null {
	if (Buffer.byteLength(text) > 32_768) return null;
	switch (mode) {
		case 'HTML':
			return readHtml(text);
		case 'MarkdownV2':
			return readMarkdown2(text);
		case 'Markdown':
			return readMarkdown(text);
		default:
			return text;
	}
}

function readHtml(text: string): string | null {
	const open: string[] = [];
	let seen = '';
	for (let at = 0; at < text.length; ) {
		const entity = /^&(?:#x([0-9a-fA-F]{1,6})|#(\d{1,7})|(lt|gt|amp|quot)(?![a-zA-Z]));?/.exec(
			text.slice(at, at + 12),
		);
		if (entity !== null) {
			const [raw, hex, decimal, named] = entity;
			const character = { lt: '<', gt: '>', amp: '&', quot: '"' }[named];
			const code = hex === undefined ? Number(decimal) : parseInt(hex, 16);
			seen += character ?? String.fromCodePoint(code);
			at += raw.length;
			continue;
		}
		if (text[at] !== '<') {
			seen += text[at++];
			continue;
		}
		const tag = /^<(\/?)([a-z-]+)((?:\s+[a-z-]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[\w.-]+))?)*)\s*>/.exec(
			text.slice(at),
		);
		if (tag === null) return null;
		if (tag[1] === '') open.push(tag[2]);
		else if (open.pop() !== tag[2]) return null;
		at += tag[0].length;
	}
	return open.length === 0 ? seen : null;
}

/** Behind "```": the language, and one line break. */
function codeStart(text: string, at: number): number {
	const [, language] = /^([^\s`]*)/.exec(text.slice(at)) ?? [];
	const end = at + (language ?? '').length;
	const from = end < text.length && text[end] !== '`' ? end : at;
	if (/^(\r\n|\n\r)/.test(text.slice(from))) return from + 2;
	return /[\r\n]/.test(text[from] ?? '') ? from + 1 : from;
}

function readMarkdown2(text: string): string | null {
	const open: string[] = [];
	let seen = '';
	let quoted = false;
	for (let at = 0; at < text.length; ) {
		const top = open.at(-1);
		const character = text[at];
		const next = text.charCodeAt(at + 1);
		if (character === '\\' && next > 0 && next <= 126) {
			seen += text[at + 1];
			at += 2;
			continue;
		}
		if (top === '```' || top === '`') {
			if (text.startsWith(top, at)) {
				open.pop();
				at += top.length;
			} else if (character === '`') {
				return null;
			} else {
				seen += character;
				at += 1;
			}
			continue;
		}
		if (character === '\n') quoted = false;
		if (character === '>' && (seen === '' || seen.endsWith('\n'))) {
			quoted = true;
			at += 1;
			continue;
		}
		if (!'_*[]()~`>#+-=|{}.!'.includes(character)) {
			seen += character;
			at += 1;
			continue;
		}
		const marker = ['```', '`', '||', '__', '_', '*', '~', '['].find((each) =>
			text.startsWith(each, at),
		);
		if (character === ']' && top === '[') {
			open.pop();
			at += 1;
			if (text[at] !== '(') continue;
			const target = /^\((?:\\.|[^\\)])*\)/.exec(text.slice(at));
			if (target === null) return null;
			at += target[0].length;
			continue;
		}
		if (marker === undefined) return null;
		if (marker === '||' && quoted && top !== '||' && /^(\n|$)/.test(text.slice(at + 2, at + 3))) {
			at += 2;
			continue;
		}
		if (marker === top) {
			open.pop();
			at += marker.length;
		} else if (open.includes(marker)) {
			return null;
		} else {
			open.push(marker);
			at = marker === '```' ? codeStart(text, at + 3) : at + marker.length;
		}
	}
	return open.length === 0 ? seen : null;
}

function readMarkdown(text: string): string | null {
	let seen = '';
	for (let at = 0; at < text.length; ) {
		const character = text[at];
		if (character === '\\' && '_*`['.includes(text[at + 1] ?? ' ')) {
			seen += text[at + 1];
			at += 2;
			continue;
		}
		if (!'_*`['.includes(character)) {
			seen += character;
			at += 1;
			continue;
		}
		const isBlock = text.startsWith('```', at);
		const end = isBlock ? '```' : character === '[' ? ']' : character;
		const from = isBlock ? codeStart(text, at + 3) : at + 1;
		const to = text.indexOf(end, from);
		if (to === -1) return null;
		seen += text.slice(from, to);
		at = to + end.length;
		if (end === ']' && text[at] === '(') {
			const close = text.indexOf(')', at);
			at = close === -1 ? text.length : close + 1;
		}
	}
	return seen;
}
