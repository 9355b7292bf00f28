/** The pictures of the docs: each node's panel and the canvas, light and dark, as n8n shows them today. */

import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import type { Locator, Page } from 'playwright-core';

import { Screen, onScreen } from './browser';
import { logIn, onCanvas, visit } from './editor';
import { PACKAGE, importLedgerCredential, n8n, packageInstalled, picture } from './stage';

const LOOKS = [
	['light', ''],
	['dark', '-dark'],
] as const;

/** Each node as somebody uses it who knows what they want. */
const PANELS: Array<{ page: string; node: string; parameters: Record<string, unknown> }> = [
	{
		page: 'claim-work',
		node: 'claimWork',
		parameters: { kind: 'invoice', keyFields: 'body.order_id', window: 'forever' },
	},
	{
		page: 'complete-work',
		node: 'completeWork',
		parameters: { operation: 'complete', externalRef: '={{ $json.invoice_id }}' },
	},
	{
		page: 'cache-llm-decision',
		node: 'cacheLlmDecision',
		parameters: {
			operation: 'lookUp',
			kind: 'mail-category',
			model: 'gpt-4o',
			promptVersion: 'v3',
			inputFields: 'subject, text',
		},
	},
	{
		page: 'check-evidence-gate',
		node: 'checkEvidenceGate',
		parameters: {
			mode: 'list',
			rules: { rule: [{ check: 'present', field: 'envelope_id', name: 'signed contract' }] },
			recordKind: 'deal',
			recordKeyFields: 'deal_id',
		},
	},
	{
		page: 'send-once-telegram',
		node: 'sendOnceTelegram',
		parameters: { chatId: '-1001234567890', text: '=Order {{ $json.order_id }} is paid.' },
	},
	{
		page: 'work-ledger',
		node: 'workLedger',
		parameters: { resource: 'work', operation: 'list', limit: 50 },
	},
	{
		page: 'work-ledger-trigger',
		node: 'workLedgerTrigger',
		parameters: { event: 'dead_letter', kinds: 'invoice' },
	},
];

let screen: Screen;
const addresses: Record<string, string> = {};

beforeAll(async () => {
	await packageInstalled();
	const credentials = await importLedgerCredential();
	for (const { page, node, parameters } of PANELS) {
		const type = `${PACKAGE}.${node}`;
		const id = `picture-${page}`;
		await n8n.importWorkflow(
			{
				id,
				name: id,
				connections: {},
				nodes: [
					{
						id: node,
						name: node,
						type,
						typeVersion: 1,
						position: [0, 0],
						parameters,
						credentials: { idempotencyLedgerApi: {} },
					},
				],
			},
			{ credentials, activate: false },
		);
		addresses[page] = `/workflow/${id}/${node}`;
	}
	const file = path.resolve(__dirname, '../../workflows/invoice-from-order-webhook.json');
	const example = JSON.parse(readFileSync(file, 'utf8'));
	addresses.canvas = `/workflow/${await n8n.importWorkflow(example, { credentials, activate: false })}`;

	mkdirSync(path.dirname(picture('canvas')), { recursive: true });
	// tall enough for the longest panel
	screen = await Screen.open({ viewport: { width: 1440, height: 1250 } });
	await screen.watch('log in', async () => await logIn(screen.page));
});

afterAll(async () => {
	await screen?.close();
});

/** Below the last setting n8n leaves the panel empty, and asks for wishes at its foot. */
async function endOfSettings(panel: Locator): Promise<number> {
	return await panel.evaluate((box) => {
		const ends = [...box.querySelectorAll('*')]
			.filter((each) => each.childElementCount === 0 && each.getClientRects().length > 0)
			.filter((each) => each.closest('[data-test-id=node-feature-request]') === null)
			.map((each) => each.getBoundingClientRect().bottom);
		return Math.max(...ends);
	});
}

/** The nodes with their names and outputs, without n8n's own buttons around them. */
async function aroundNodes(canvas: Locator): Promise<Area> {
	return await canvas.evaluate((whole) => {
		const margin = 24;
		const rects = [
			...whole.querySelectorAll('[data-test-id=canvas-node], [data-test-id=canvas-node] *'),
		]
			.map((each) => each.getBoundingClientRect())
			.filter(({ width, height }) => width > 0 && height > 0);
		const x = Math.min(...rects.map(({ left }) => left)) - margin;
		const y = Math.min(...rects.map(({ top }) => top)) - margin;
		const right = Math.max(...rects.map((rect) => rect.right)) + margin;
		const bottom = Math.max(...rects.map((rect) => rect.bottom)) + margin;
		return { x, y, width: right - x, height: bottom - y };
	});
}

interface Area {
	x: number;
	y: number;
	width: number;
	height: number;
}

async function take(page: Page, clip: Area, name: string): Promise<void> {
	for (const [colorScheme, suffix] of LOOKS) {
		await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
		// n8n fetches a node's other icon a moment later
		const wanted = suffix === '' ? ':not([src*=".dark."])' : '[src*=".dark."]';
		for (const icon of await page
			.locator('[data-test-id=canvas-node] img[src*=idempotency]')
			.all()) {
			await icon.and(page.locator(wanted)).waitFor();
			await icon.evaluate(async (image: { decode(): Promise<void> }) => await image.decode());
		}
		const image = await page.screenshot({
			path: picture(`${name}${suffix}`),
			animations: 'disabled',
			clip,
		});
		expect(image.length).toBeLessThan(150_000);
	}
	await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
}

for (const { page: name } of PANELS) {
	onScreen(
		`the panel of ${name}, with nothing cut off`,
		() => screen,
		async (page) => {
			await visit(page, addresses[name]);
			const panel = page.getByTestId('node-parameters');
			await panel.waitFor();
			await page.getByTestId('node-credentials-select').first().waitFor();
			const hidden = await panel.evaluate((box) => box.scrollWidth - box.clientWidth);
			expect(hidden).toBeLessThanOrEqual(0);
			const box = await panel.boundingBox();
			if (box === null) throw new Error(`${name} is not on the screen`);
			await take(page, { ...box, height: (await endOfSettings(panel)) - box.y + 16 }, name);
		},
	);
}

onScreen(
	'the example on the canvas',
	() => screen,
	async (page) => {
		await page.setViewportSize({ width: 1480, height: 1050 });
		await visit(page, addresses.canvas);
		await onCanvas(page, 'Complete Work').waitFor();
		await page.getByTestId('zoom-to-fit').click();
		// n8n's buttons lie over the lowest name otherwise
		await page.getByTestId('zoom-out-button').click();
		await take(page, await aroundNodes(page.getByTestId('canvas')), 'canvas');
	},
);
