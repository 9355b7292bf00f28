/** n8n's editor, in the words of the person in front of it. */

import type { Locator, Page } from 'playwright-core';

import { access } from './stage';

/** The editor never stops loading something; what a person waits for is waited for by name. */
export async function visit(page: Page, route: string): Promise<void> {
	await page.goto(`${access.n8n.baseUrl}${route}`, { waitUntil: 'commit' });
}

export async function logIn(page: Page): Promise<void> {
	await visit(page, '/signin');
	await page.locator('input[name=emailOrLdapLoginId]').fill(access.n8n.email);
	await page.locator('input[name=password]').fill(access.n8n.password);
	await page.getByRole('button', { name: 'Sign in' }).click();
	await page.waitForURL('**/home/**', { waitUntil: 'commit' });
}

/** The list of nodes at the right. */
export class NodeCreator {
	readonly search: Locator;
	private readonly names: Locator;

	constructor(private readonly page: Page) {
		this.search = page.getByTestId('node-creator-search-bar');
		this.names = page.getByTestId('node-creator-item-name');
	}

	entry(name: string): Locator {
		return this.page
			.getByTestId('item-iterator-item')
			.filter({ has: this.names.getByText(name, { exact: true }) });
	}

	/**
	 * Adds a node and waits for its panel.
	 *
	 * @param action For a node with actions, which of them.
	 */
	async add(name: string, action = 'Add to workflow'): Promise<void> {
		await this.search.fill(name);
		await this.entry(name).click();
		// a community node shows itself before it is added
		const panel = this.page.getByTestId('node-parameters');
		const details = this.page.getByText(action, { exact: true });
		await panel.or(details).waitFor();
		if (await details.isVisible()) await details.click();
		await panel.waitFor();
	}
}

/** The panels of an opened node. */
export class NodePanel {
	readonly input: Locator;
	readonly output: Locator;
	readonly parameters: Locator;

	constructor(private readonly page: Page) {
		this.input = page.getByTestId('ndv-input-panel');
		this.output = page.getByTestId('output-panel');
		this.parameters = page.getByTestId('node-parameters');
	}

	private parameter(name: string): Locator {
		return this.parameters.locator(`[data-parameter-path="parameters.${name}"]`);
	}

	async type(name: string, value: string): Promise<void> {
		await this.parameter(name).locator('input').fill(value);
	}

	async choose(name: string, option: string): Promise<void> {
		await this.parameter(name).click();
		await this.page.getByRole('option', { name: option, exact: true }).click();
	}

	async switchOn(name: string): Promise<void> {
		// the switch itself is hidden behind its picture
		await this.parameter(name).locator('.el-switch__core').click();
	}

	async close(): Promise<void> {
		await this.page.getByTestId('ndv-close-button').click();
		await this.parameters.waitFor({ state: 'hidden' });
	}
}

/** A node on the canvas. */
export const onCanvas = (page: Page, name: string): Locator =>
	page.locator(`[data-test-id=canvas-node][data-node-name="${name}"]`);

export async function openNode(page: Page, name: string): Promise<NodePanel> {
	await onCanvas(page, name).dblclick();
	const panel = new NodePanel(page);
	await panel.parameters.waitFor();
	return panel;
}

/** The little plus at a node's first output: what is added there is connected. */
export async function addBehind(
	page: Page,
	before: string,
	added: string,
	action?: string,
): Promise<NodePanel> {
	await onCanvas(page, before)
		.locator('[data-test-id=canvas-node-output-handle][data-index="0"]')
		.getByTestId('canvas-handle-plus')
		.click();
	await new NodeCreator(page).add(added, action);
	return new NodePanel(page);
}
