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

async function take(page: Page, what: Locator, name: string, end?: number): Promise<void> {
	const box = await what.boundingBox();
	if (box === null) throw new Error(`${name} is not on the screen`);
	const clip = { ...box, height: end === undefined ? box.height : end - box.y + 16 };
	for (const [colorScheme, suffix] of LOOKS) {
		await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
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
			await take(page, panel, name, await endOfSettings(panel));
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
		await take(page, page.getByTestId('canvas'), 'canvas');
	},
);
