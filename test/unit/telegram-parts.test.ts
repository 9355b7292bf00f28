import fc from 'fast-check';

import {
	contentHash,
	messageKey,
	messageParts,
	readChatId,
	visibleText,
	type MessageContent,
	type ParseMode,
} from '../../ledger';
import { telegramReads } from './telegram-model';

const LIMITS = { first: 4_096, rest: 4_096 };
const graphemes = new Intl.Segmenter('und', { granularity: 'grapheme' });

function partsOf(text: string, mode: ParseMode | null, limits = LIMITS): string[] {
	const parts = messageParts(text, mode, limits);
	if (parts === null) throw new Error('it was not cut');
	return parts.map((part) => part.text);
}

/** Where the visible text is cut, as lengths from its beginning. */
function ends(parts: string[], mode: ParseMode | null): number[] {
	let at = 0;
	return parts.slice(0, -1).map((part) => (at += visibleText(part, mode).length));
}

function boundaries(text: string): Set<number> {
	return new Set([...graphemes.segment(text)].map(({ index }) => index));
}

/** Tags as Telegram checks them: every one closed, in order. */
function isBalanced(html: string): boolean {
	const open: string[] = [];
	for (const [, slash, name] of html.matchAll(/<(\/?)([a-z-]+)[^>]*>/gi)) {
		if (slash === '') open.push(name);
		else if (open.pop() !== name) return false;
	}
	return open.length === 0;
}

const EMOJI = ['😀', '👨‍👩‍👧‍👦', '🇩🇪', '👍🏽', 'é', '1️⃣', '❤️'];
const word = fc.oneof(
	fc.string({ unit: fc.constantFrom('a', 'b', 'ß', '漢'), minLength: 1, maxLength: 12 }),
	fc.constantFrom(...EMOJI, ' ', '\n', '\n\n', '. '),
);
const plainText = fc
	.array(word, { minLength: 1, maxLength: 80 })
	.map((words) => `x${words.join('')}x`);
const small = fc.record({
	first: fc.integer({ min: 30, max: 60 }),
	rest: fc.integer({ min: 30, max: 90 }),
});

const htmlText = fc.letrec<{ node: string; text: string; tag: string }>((tie) => ({
	text: fc.oneof(
		{ weight: 3, arbitrary: word.map((text) => text.replaceAll('<', '')) },
		fc.constantFrom('&lt;', '&amp;', '&quot;', '&#128512;', '&#x41;'),
	),
	tag: fc
		.tuple(
			fc.constantFrom(
				['b', ''],
				['i', ''],
				['a', ' href="https://example.com/?a=1&amp;b=>2"'],
				['code', " class='language-js'"],
				['tg-spoiler', ''],
				['blockquote', ' expandable'],
			),
			fc.array(tie('node'), { maxLength: 12 }),
		)
		.map(([[name, attributes], inner]) => `<${name}${attributes}>${inner.join('')}</${name}>`),
	node: fc.oneof({ depthSize: 'small', withCrossShrink: true }, tie('text'), tie('tag')),
})).node;
const html = fc
	.array(htmlText, { minLength: 1, maxLength: 40 })
	.map((nodes) => `x${nodes.join('')}x`);

describe('parts of a text', () => {
	test('joined they are the text, each is within the limit, and no visible character is cut', () => {
		fc.assert(
			fc.property(plainText, small, (text, limits) => {
				const parts = messageParts(text, null, limits) ?? [];
				const whole = parts.map((part) => part.text);
				const dropped = text.length - whole.join('').length;
				// only parts that show nothing are left out
				expect(whole.join('').replace(/\s/g, '')).toBe(text.replace(/\s/g, ''));
				expect(whole.every((part) => part.trim() !== '')).toBe(true);
				whole.forEach((part, i) => {
					expect(part.length).toBeLessThanOrEqual(i === 0 ? limits.first : limits.rest);
				});
				const starts = boundaries(text);
				if (dropped === 0) for (const end of ends(whole, null)) expect(starts).toContain(end);
			}),
			{ numRuns: 300, endOnFailure: true },
		);
	});

	test('HTML: the visible text stays, each part is within the limit and closes what it opens', () => {
		fc.assert(
			fc.property(html, small, (text, limits) => {
				const seen = visibleText(text, 'HTML');
				// more would be over 100 parts
				fc.pre(seen.length < 1_400);
				const parts = partsOf(text, 'HTML', limits);
				const visible = parts.map((part) => visibleText(part, 'HTML'));
				expect(visible.join('').replace(/\s/g, '')).toBe(seen.replace(/\s/g, ''));
				parts.forEach((part, i) => {
					expect(visible[i].length).toBeLessThanOrEqual(i === 0 ? limits.first : limits.rest);
					expect(isBalanced(part)).toBe(true);
					// no entity is cut
					expect(part.replace(/&(#\d+|#x[0-9a-f]+|lt|gt|amp|quot);/gi, '')).not.toContain('&');
				});
				if (visible.join('') === seen) {
					const starts = boundaries(seen);
					for (const end of ends(parts, 'HTML')) expect(starts).toContain(end);
				}
			}),
			{ numRuns: 300, endOnFailure: true },
		);
	});

	test.each(['Markdown', 'MarkdownV2'] as const)(
		'%s: cut only where nothing is open, the visible text stays',
		(mode) => {
			const piece = fc.oneof(
				word.map((text) => text.replace(/[.!]/g, '')),
				fc.constantFrom(
					'*bold*',
					'_it_',
					'`a_b`',
					'[a link](https://example.com/x_y)',
					'\\_',
					'\\*',
				),
				fc.constantFrom('```js\nlet a\n```', '\n'),
			);
			fc.assert(
				fc.property(fc.array(piece, { minLength: 1, maxLength: 60 }), small, (pieces, limits) => {
					const text = `x${pieces.join('')}x`;
					const parts = messageParts(text, mode, limits);
					const seen = visibleText(text, mode);
					if (parts === null) return;
					const visible = parts.map((part) => visibleText(part.text, mode));
					expect(visible.join('').replace(/\s/g, '')).toBe(seen.replace(/\s/g, ''));
					visible.forEach((part, i) => {
						expect(part.length).toBeLessThanOrEqual(i === 0 ? limits.first : limits.rest);
					});
					for (const { text: part } of parts) {
						const bare = part.replace(/\\[^]/g, '').replace(/```[^]*?```|`[^`]*`/g, '');
						expect((bare.match(/\*/g) ?? []).length % 2).toBe(0);
						expect((bare.match(/```/g) ?? []).length).toBe(0);
					}
				}),
				{ numRuns: 300, endOnFailure: true },
			);
		},
	);

	const code = (pieces: string[]) =>
		fc
			.array(fc.constantFrom('a', ' ', '\n', '*', '_', 'let b', ';', ...pieces), {
				minLength: 1,
				maxLength: 60,
			})
			.map((some) => some.join(''));
	const blocks = (inside: fc.Arbitrary<string>) =>
		fc
			.tuple(
				fc.constantFrom('', 'js', 'c++', 'objective-c'),
				fc.constantFrom('\n', ' ', ''),
				inside,
			)
			.map(([language, space, text]) => `\`\`\`${language}${space}${text}\`\`\``);
	const code1 = code(['\\d', '\\']);
	const code2 = code(['\\`', '\\\\', '\\d', '\\\n']);
	const MARKED: Array<[ParseMode, fc.Arbitrary<string>]> = [
		['HTML', fc.oneof(htmlText, fc.constantFrom('&nbsp;', '&lt.', '&#65,', '&#X41;'))],
		[
			'Markdown',
			fc.oneof(
				word,
				fc.constantFrom('\\_', '\\*', '*bold_x*', '_it*_', '[a link](https://example.com/x_y)'),
				code1.map((text) => `\`${text}\``),
				blocks(code1),
			),
		],
		[
			'MarkdownV2',
			fc.oneof(
				word.map((text) => text.replace('.', '\\.')),
				fc.constantFrom(
					'\\!',
					'\\_',
					'\\\\',
					'*b _i_*',
					'__under__',
					'||hidden||',
					'~s~',
					'\n>quote\n>more\n',
				),
				fc.constantFrom('[a link](https://example.com/x_y\\)z)', '![👍](tg://emoji?id=5)'),
				code2.map((text) => `\`${text}\``),
				blocks(code2),
			),
		],
	];

	test.each(MARKED)(
		'%s: Telegram can read every part, and in all of them the whole text',
		(mode, piece) => {
			let cut = 0;
			fc.assert(
				fc.property(fc.array(piece, { minLength: 1, maxLength: 40 }), small, (pieces, limits) => {
					const text = `x${pieces.join('')}x`;
					const whole = telegramReads(text, mode);
					const parts = messageParts(text, mode, limits);
					// what Telegram cannot read as it is, is not for us to mend
					if (whole === null || parts === null) return;
					if (parts.length > 1) cut += 1;
					const read = parts.map((part) => telegramReads(part.text, mode));
					expect(read).not.toContain(null);
					read.forEach((part, i) => {
						expect(part?.length).toBeLessThanOrEqual(i === 0 ? limits.first : limits.rest);
					});
					expect(read.join('').replace(/\s/g, '')).toBe(whole.replace(/\s/g, ''));
				}),
				{ numRuns: 500, endOnFailure: true },
			);
			expect(cut).toBeGreaterThan(50);
		},
	);

	test('code that is cut keeps its first word: behind ``` it would be the language', () => {
		const text = `\`\`\`${'let a = 1; '.repeat(500)}\`\`\``;
		const parts = partsOf(text, 'Markdown');
		expect(parts).toHaveLength(2);
		const read = parts.map((part) => telegramReads(part, 'Markdown'));
		expect(read.join('').replace(/\s/g, '')).toBe(
			telegramReads(text, 'Markdown')?.replace(/\s/g, ''),
		);
	});

	test('an escaped backtick does not end code, and no escape is cut', () => {
		const inline = partsOf(`\`a\\\`b\` ${'word '.repeat(1_000)}`, 'MarkdownV2');
		expect(inline).toHaveLength(2);
		const parts = partsOf(`\`\`\`\n${'\\d'.repeat(5_000)}\`\`\``, 'MarkdownV2');
		expect(parts).toHaveLength(2);
		for (const part of parts) expect(telegramReads(part, 'MarkdownV2')).toMatch(/^d+$/);
	});

	test('a text that is mostly markup is cut shorter: Telegram takes 32,768 bytes of it', () => {
		const link = `<a href="https://example.com/${'x'.repeat(300)}">link</a> `;
		const parts = partsOf(link.repeat(200), 'HTML');
		expect(parts.length).toBeGreaterThan(1);
		for (const part of parts) expect(telegramReads(part, 'HTML')).toMatch(/^(link )+$/);
		expect(parts.join('')).toBe(link.repeat(200));
		const nested = `<a href="${'x'.repeat(3_900)}">`.repeat(9);
		expect(messageParts(`${nested}link${'</a>'.repeat(9)}`, 'HTML', LIMITS)).toBeNull();
	});

	test('a caption that begins with nothing to see: the file goes out without one, the text behind it', () => {
		const limits = { first: 1_024, rest: 4_096 };
		expect(partsOf(`${'\n'.repeat(1_100)}${'x'.repeat(3_000)}`, null, limits)).toEqual([
			'',
			`${'\n'.repeat(76)}${'x'.repeat(3_000)}`,
		]);
		expect(partsOf(' '.repeat(1_100), null, limits)).toEqual(['']);
	});

	test('case 61: 9,000 characters with emoji and tags are three parts, cut in neither', () => {
		const text = `<b>${'word 👨‍👩‍👧‍👦 '.repeat(560)}</b> &amp; the end`;
		expect(visibleText(text, 'HTML').length).toBeGreaterThan(9_000);
		const parts = partsOf(text, 'HTML');
		expect(parts).toHaveLength(3);
		for (const part of parts) {
			expect(isBalanced(part)).toBe(true);
			expect(part.isWellFormed()).toBe(true);
			expect(part).not.toMatch(/\u200d(<|$)/);
		}
		expect(parts[1]).toMatch(/^<b>(word|👨‍👩‍👧‍👦 )/);
	});

	test('a text that fits is sent as it stands, its markup for Telegram to judge', () => {
		expect(partsOf('My_Workflow done', 'Markdown')).toEqual(['My_Workflow done']);
		expect(partsOf('a < b <b>', 'HTML')).toEqual(['a < b <b>']);
		// 4,096 visible characters behind any number of tags
		const full = `<a href="https://example.com/${'x'.repeat(3_000)}">${'y'.repeat(4_096)}</a>`;
		expect(partsOf(full, 'HTML')).toEqual([full]);
	});

	test('it is cut at paragraphs, then lines, then spaces, then characters', () => {
		const limits = { first: 20, rest: 20 };
		expect(partsOf('first part here\n\nand the second', null, limits)[0]).toBe(
			'first part here\n\n',
		);
		expect(partsOf('first part here\nand the second', null, limits)[0]).toBe('first part here\n');
		expect(partsOf('first part goes on and on', null, limits)[0]).toBe('first part goes on ');
		expect(partsOf('x'.repeat(45), null, limits).map((part) => part.length)).toEqual([20, 20, 5]);
	});

	test('a block of code is closed and opened again; a longer bold passage in Markdown is not cut', () => {
		const limits = { first: 30, rest: 30 };
		const code = partsOf(`see\n\`\`\`js\n${'let a;\n'.repeat(8)}\`\`\``, 'MarkdownV2', limits);
		expect(code.length).toBeGreaterThan(1);
		for (const part of code.slice(1)) expect(part).toMatch(/^```js\n[^`]+```$/);
		expect(messageParts(`*${'bold '.repeat(20)}*`, 'MarkdownV2', limits)).toBeNull();
		expect(messageParts(`${'word '.repeat(20)}my_name`, 'Markdown', limits)).not.toBeNull();
	});

	test('a quotation in MarkdownV2 is cut between its lines only', () => {
		const limits = { first: 30, rest: 30 };
		const parts = partsOf(
			['>one line here', '>another line', '>the third line'].join('\n'),
			'MarkdownV2',
			limits,
		);
		for (const part of parts) expect(part).toMatch(/^>/);
		expect(parts.length).toBeGreaterThan(1);
	});

	test('HTML that Telegram does not know keeps its lines where it goes out plain', () => {
		const text = 'one<br>two<br/>three<p>four</p><ul><li>five</li><li>six</li></ul>';
		expect(messageParts(text, 'HTML', LIMITS)).toEqual([
			{ text, plain: 'one\ntwo\nthreefour\nfive\nsix\n\n' },
		]);
	});

	test('a text that would take more than 100 messages is not cut', () => {
		expect(messageParts('x'.repeat(101 * 4_096), null, LIMITS)).toBeNull();
		expect(messageParts('x'.repeat(600_000), null, LIMITS)).toBeNull();
	});

	test('a text made to be slow takes hardly longer than any other of its length', () => {
		const LENGTH = 200_000;
		// the processor's time, not that of a busy machine
		const spent = (text: string) => {
			const started = process.cpuUsage();
			for (const mode of ['HTML', 'Markdown', 'MarkdownV2'] as const)
				messageParts(text, mode, LIMITS);
			return process.cpuUsage(started).user;
		};
		const ordinary = spent('word '.repeat(LENGTH / 5));
		for (const piece of ['<a "', '&#', '[', '`']) {
			const text = piece.repeat(LENGTH / piece.length - 1);
			// one that grows with the square would take thousands of times as long
			expect([piece, spent(text) < 10 * ordinary]).toEqual([piece, true]);
		}
	}, 60_000);
});

describe('the identity of a message', () => {
	const content: MessageContent = {
		kind: 'message',
		text: 'Backup done',
		parseMode: null,
		media: null,
		replyMarkup: null,
		threadId: null,
		replyTo: null,
		linkPreview: true,
	};

	test.each<[string, Partial<MessageContent>]>([
		['the text', { text: 'Backup failed' }],
		['the parse mode', { parseMode: 'HTML' }],
		['the file', { media: { fileId: 'AgACAgIAAx' } }],
		[
			'the buttons',
			{ replyMarkup: { inline_keyboard: [[{ text: 'Open', url: 'https://a.example' }]] } },
		],
		['the thread', { threadId: 7 }],
		['the message it answers', { replyTo: 7 }],
		['the link preview', { linkPreview: false }],
		['the kind', { kind: 'photo' }],
	])('changes with what the reader sees: %s', (_, change) => {
		expect(contentHash({ ...content, ...change })).not.toBe(contentHash(content));
	});

	test('does not change with space around the text, code points that look the same, or the order of names', () => {
		expect(contentHash({ ...content, text: ' Backup done\n' })).toBe(contentHash(content));
		expect(contentHash({ ...content, text: 'é' })).toBe(
			contentHash({ ...content, text: 'e\u0301' }),
		);
		expect(contentHash({ ...content, replyMarkup: { a: 1, b: 2 } })).toBe(
			contentHash({ ...content, replyMarkup: { b: 2, a: 1 } }),
		);
	});

	test('an own key takes the place of the content, and has to be one', () => {
		expect(messageKey({ ownKey: 7 })).toBe(messageKey({ ownKey: '7' }));
		for (const lost of ['', null, undefined, 'undefined', '[object Object]', NaN])
			expect(() => messageKey({ ownKey: lost })).toThrow(/Own Key/);
	});

	test('the number and the text of a chat are one chat, and so is a @name in any case', () => {
		const same = [-1001234567890, '-1001234567890', ' -1001234567890 ', -1001234567890n];
		expect(new Set(same.map(readChatId))).toEqual(new Set(['-1001234567890']));
		expect(readChatId('+42')).toBe('42');
		expect(readChatId('@My_Channel')).toBe(readChatId(' @my_channel '));
		for (const wrong of [
			'',
			undefined,
			null,
			'0',
			'My Channel',
			'https://t.me/x',
			{},
			[1],
			1.5,
			'1e5',
			'-',
		])
			expect(() => readChatId(wrong)).toThrow(/Chat ID/);
		expect(() => readChatId(2 ** 53)).toThrow(/rounded/);
	});

	test('a chat that was copied from a page is the chat, and what cannot be one says what it lacks', () => {
		for (const copied of [
			'\u22121001234567890',
			'\u20101001234567890',
			'\u200e-1001234567890\u202c',
		])
			expect(readChatId(copied)).toBe('-1001234567890');
		for (const link of ['https://t.me/My_Channel', 't.me/My_Channel/', 'My_Channel'])
			expect(() => readChatId(link)).toThrow('enter @My_Channel');
		expect(() => readChatId('{{ $json.chat }}')).toThrow('from Fixed to Expression');
		expect(() => readChatId({ id: 5 })).toThrow('Chat ID is an object');
		expect(() => readChatId([5])).toThrow('Chat ID is a list');
	});
});
