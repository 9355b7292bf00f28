/** workflows/ledger-page.json, as somebody on call sees it on a phone and on a desk. */

import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import type { Page } from 'playwright-core';

import { createLedger, identifyByKey, type Ledger } from '../../ledger';
import { Screen, onScreen } from './browser';
import { access, importLedgerCredential, n8n, packageInstalled, picture } from './stage';

const LOGIN = { username: 'on-call', password: 'p@ss:w/ord' };
const ADDRESS = `${access.n8n.baseUrl}/webhook/work-ledger`;
const HOSTILE = '<script>document.title = "taken over"</script>';
const CALLER = { workflowName: 'Orders', execution: '77', mode: 'webhook' };
const PHONE = { width: 375, height: 812 };
const DESK = { width: 1280, height: 900 };

const declined = { error: 'card declined', landed: 'no', permanent: true } as const;

let ledger: Ledger;
let screen: Screen;

async function claim(kind: string, key: string) {
	const { workId } = identifyByKey({ kind, version: 'v1' }, [{ name: 'Key', value: key }]);
	const token = randomUUID();
	await ledger.works.claim([{ workId, key, token, payload: '{}' }], {
		kind,
		caller: CALLER,
		onLapse: kind === 'refund' ? 'hold' : 'run_again',
	});
	return { workId, key, token };
}

beforeAll(async () => {
	await packageInstalled();
	const auth = await n8n.importCredential({
		name: 'Who May See the Ledger',
		type: 'httpBasicAuth',
		data: { user: LOGIN.username, password: LOGIN.password },
	});
	const file = path.resolve(__dirname, '../../workflows/ledger-page.json');
	await n8n.importWorkflow(JSON.parse(readFileSync(file, 'utf8')), {
		credentials: { ...(await importLedgerCredential()), httpBasicAuth: auth },
	});

	ledger = createLedger({ ...access.ledger, automaticMigration: true });
	for (const order of ['7001', '7002', '7003', '7004', '7005']) {
		const done = await claim('invoice', order);
		await ledger.works.complete([{ ...done, externalRef: `INV-${order}` }], CALLER);
	}
	// delivered again
	for (const order of ['7001', '7002', '7003']) await claim('invoice', order);
	await ledger.works.fail([{ ...(await claim('invoice', '7006')), ...declined }], CALLER);
	const unclear = { error: 'timed out', landed: 'unknown' } as const;
	await ledger.works.fail([{ ...(await claim('refund', '2001')), ...unclear }], CALLER);
	const later = { error: 'HTTP 503', landed: 'no' } as const;
	await ledger.works.fail([{ ...(await claim('mail', '3001')), ...later }], CALLER);

	mkdirSync(path.dirname(picture('ledger-page')), { recursive: true });
	screen = await Screen.open({ httpCredentials: LOGIN, viewport: PHONE });
});

afterAll(async () => {
	await screen?.close();
	await ledger?.close();
});

const step = (name: string, act: (page: Page) => Promise<void>): void =>
	onScreen(name, () => screen, act);

async function fits(page: Page): Promise<void> {
	const { content, width } = await page.locator('html').evaluate((root) => ({
		content: root.scrollWidth,
		width: root.clientWidth,
	}));
	expect(content).toBeLessThanOrEqual(width);
}

for (const [device, size] of [
	['a phone', PHONE],
	['a desk', DESK],
] as const) {
	step(`on ${device} nothing has to be scrolled sideways, and buttons can be hit`, async (page) => {
		await page.setViewportSize(size);
		await page.goto(ADDRESS);
		await page.getByText('card declined').first().waitFor();
		await fits(page);
		const buttons = await page.getByRole('button').all();
		expect(buttons.length).toBeGreaterThan(3);
		for (const button of buttons) {
			const box = await button.boundingBox();
			// WCAG 2.2, 2.5.8: 24 CSS pixels
			expect(Math.min(box?.width ?? 0, box?.height ?? 0)).toBeGreaterThanOrEqual(24);
			expect((box?.x ?? 0) + (box?.width ?? 0)).toBeLessThanOrEqual(size.width);
		}
	});
}

step('pictures for the docs', async (page) => {
	for (const [size, name] of [
		[PHONE, 'ledger-page-phone'],
		[{ width: 1180, height: 900 }, 'ledger-page'],
	] as const) {
		await page.setViewportSize(size);
		for (const [colorScheme, suffix] of [
			['light', ''],
			['dark', '-dark'],
		] as const) {
			await page.emulateMedia({ colorScheme });
			await page.screenshot({
				path: picture(`${name}${suffix}`),
				fullPage: name === 'ledger-page',
			});
		}
	}
	await page.emulateMedia({ colorScheme: 'light' });
});

step(
	'on a phone a dead work is replayed: the button asks, the next one sends a POST',
	async (page) => {
		await page.setViewportSize(PHONE);
		await page.goto(ADDRESS);
		await page
			.getByRole('listitem')
			.filter({ hasText: '7006' })
			.getByRole('button', { name: /replay/i })
			.click();
		const confirm = page.getByRole('button', { name: /replay/i });
		await confirm.waitFor();
		await fits(page);
		await page.locator('input[name=by]').fill('Ada');
		const [request] = await Promise.all([
			page.waitForRequest((each) => each.url().startsWith(ADDRESS)),
			confirm.click(),
		]);
		expect(request.method()).toBe('POST');
		await page
			.getByText(/Replayed/)
			.first()
			.waitFor();
		await fits(page);
	},
);

step('a key that is a script is text', async (page) => {
	await ledger.works.fail([{ ...(await claim('invoice', HOSTILE)), ...declined }], CALLER);
	await page.goto(ADDRESS);
	await page.getByText(HOSTILE).first().waitFor();
	await fits(page);
	expect(await page.title()).not.toContain('taken over');
	expect(await page.locator('script').count()).toBe(0);
});
