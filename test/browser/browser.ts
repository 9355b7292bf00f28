/** Chromium, and what is kept of it when a step fails. */

import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import {
	chromium,
	selectors,
	type Browser,
	type BrowserContextOptions,
	type Page,
} from 'playwright-core';

import { access } from './stage';

/** How long a person waits for anything. Below a test's own limit, so that it fails in words. */
const PATIENCE_MS = 90_000;

export class Screen {
	private readonly log: string[] = [];
	/** The step that failed: those behind it begin where it did not arrive. */
	private failed: string | null = null;

	private constructor(
		private readonly browser: Browser,
		readonly page: Page,
	) {
		page.on('console', (message) => this.log.push(`${message.type()}: ${message.text()}`));
		page.on('pageerror', (error) => this.log.push(`page error: ${error.message}`));
		page.on('requestfailed', (request) => this.log.push(`failed: ${request.url()}`));
	}

	static async open(options: BrowserContextOptions = {}): Promise<Screen> {
		// the editor's elements are named for tests
		selectors.setTestIdAttribute('data-test-id');
		const browser = await chromium.launch({
			executablePath: access.chromium,
			// Chromium's sandbox refuses to run as root
			args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
		});
		const context = await browser.newContext({
			viewport: { width: 1440, height: 900 },
			colorScheme: 'light',
			reducedMotion: 'reduce',
			...options,
		});
		context.setDefaultTimeout(PATIENCE_MS);
		// The editor asks other sites about packages and templates; a machine without internet would wait for them.
		const own = new URL(access.n8n.baseUrl).host;
		await context.route(
			(url) => url.host !== own,
			async (route) => await route.abort(),
		);
		return new Screen(browser, await context.newPage());
	}

	async close(): Promise<void> {
		await this.browser.close();
	}

	/** Runs what a person does; where it fails, keeps what they saw and says where. */
	async watch(step: string, act: () => Promise<void>): Promise<void> {
		if (this.failed !== null) throw new Error(`not tried, because of "${this.failed}"`);
		try {
			await act();
		} catch (error) {
			this.failed = step;
			const name = step.replace(/\W+/g, '-').slice(0, 80);
			mkdirSync(access.evidence, { recursive: true });
			const file = path.join(access.evidence, name);
			await this.page.screenshot({ path: `${file}.png` }).catch(() => undefined);
			writeFileSync(`${file}.log`, `${this.page.url()}\n${this.log.join('\n')}\n`);
			const { message } = error as Error;
			throw new Error(`${message}\nWhat was on the screen: ${file}.png, console: ${file}.log`);
		}
	}
}

/** A test that keeps the screen where it fails. */
export function onScreen(
	name: string,
	screen: () => Screen,
	act: (page: Page) => Promise<void>,
): void {
	test(name, async () => {
		await screen().watch(name, async () => await act(screen().page));
	});
}
