/** A person who has heard of this package: finds it, installs it, builds a flow with it, and sees what it does. */

import type { Page } from 'playwright-core';

import { Screen, onScreen } from './browser';
import { NodeCreator, NodePanel, addBehind, logIn, onCanvas, openNode, visit } from './editor';
import { PACKAGE, access } from './stage';

const NODES = [
	'Cache LLM Decision',
	'Check Evidence Gate',
	'Claim Work',
	'Complete Work',
	'Send-Once Telegram',
	'Work Ledger',
	'Work Ledger Trigger',
];

/** What people type who do not know our names, and the nodes they have to see. */
const WORDS: Array<[string, string[]]> = [
	['duplicate', ['Claim Work', 'Send-Once Telegram']],
	['dedupe', ['Claim Work', 'Send-Once Telegram']],
	['idempotent', ['Claim Work', 'Complete Work']],
	['once', ['Claim Work', 'Send-Once Telegram', 'Cache LLM Decision']],
	['lock', ['Claim Work']],
	['retry', ['Claim Work', 'Complete Work', 'Work Ledger']],
	['dead letter', ['Work Ledger', 'Complete Work']],
	['approve', ['Cache LLM Decision', 'Check Evidence Gate']],
	['evidence', ['Check Evidence Gate']],
];

let screen: Screen;

beforeAll(async () => {
	screen = await Screen.open();
	await screen.watch('log in', async () => await logIn(screen.page));
});

afterAll(async () => {
	await screen?.close();
});

const step = (name: string, act: (page: Page) => Promise<void>): void =>
	onScreen(name, () => screen, act);

step('the panel installs the package and lists its nodes', async (page) => {
	await visit(page, '/settings/community-nodes');
	await page.getByRole('button', { name: /^Install/ }).click();
	await page.getByTestId('package-name-input').fill(PACKAGE);
	const install = page.getByTestId('install-community-package-button');
	expect(await install.isDisabled()).toBe(true);
	await page.getByTestId('user-agreement-checkbox').click();
	await install.click();

	const card = page.getByTestId('community-package-card');
	await card.getByText(PACKAGE).waitFor();
	const text = await card.innerText();
	for (const node of NODES) expect(text).toContain(node);
	expect(text).toContain(`${NODES.length} nodes`);
});

describe('in the list of nodes', () => {
	step('a flow begins with a webhook', async (page) => {
		await visit(page, '/workflow/new');
		await page.getByTestId('canvas-add-button').click();
		const panel = await new NodeCreator(page).add('Webhook').then(() => new NodePanel(page));
		await panel.type('path', 'orders');
		await panel.close();
		await onCanvas(page, 'Webhook').getByTestId('canvas-handle-plus').click();
		await new NodeCreator(page).search.waitFor();
	});

	for (const [word, nodes] of WORDS) {
		step(`"${word}" finds ${nodes.join(', ')}`, async (page) => {
			const creator = new NodeCreator(page);
			// nothing of the word before is left in the list
			await creator.search.fill('no node is called this');
			await page.getByTestId('node-creator-no-results').waitFor();
			await creator.search.fill(word);
			for (const node of nodes) await creator.entry(node).waitFor();
		});
	}
});

/** The dialog of the ledger's credential. */
class CredentialDialog {
	readonly dialog;

	constructor(private readonly page: Page) {
		this.dialog = page.getByTestId('credential-edit-dialog');
	}

	async fill(fields: Record<string, string | number>): Promise<void> {
		for (const [name, value] of Object.entries(fields)) {
			await this.dialog.locator(`[data-parameter-path="${name}"] input`).fill(String(value));
		}
	}

	/** n8n tests what is saved. */
	async save(): Promise<void> {
		await this.page.getByRole('button', { name: 'Save', exact: true }).click();
	}

	async close(): Promise<void> {
		await this.page.getByRole('button', { name: 'Close this dialog' }).last().click();
		const closed = this.dialog.waitFor({ state: 'hidden' });
		// n8n may ask about changes that nobody made: it fills in defaults
		const asked = this.page.getByRole('button', { name: 'Close', exact: true });
		await Promise.race([closed, asked.click().catch(async () => await closed)]);
		await closed;
	}

	/** n8n keeps the reason behind a link, until somebody has asked for one. */
	async refusal(words: RegExp): Promise<string> {
		const more = this.dialog.getByText('More details');
		const message = this.dialog.getByText(words);
		await more.or(message).waitFor();
		if (await more.isVisible()) await more.click();
		return await message.innerText();
	}
}

describe('the credential’s dialog', () => {
	const right = access.ledger;
	const wrong: Array<[string, Record<string, string | number>, RegExp]> = [
		['a wrong password', { password: 'not the password' }, /refused user "ledger".*Check user and/],
		['a server that is not there', { port: 1 }, /cannot be reached.*Check host and port/],
		['a database that is missing', { database: 'nowhere' }, /no database "nowhere".*or create it/],
		['an address pasted as the host', { host: 'postgres://u:pasted-secret@db' }, /host: /],
		[
			'a schema that is no name',
			{ schema: 'pg_mine' },
			/schema: is not a name.*for example idempotency/,
		],
	];

	step('opens from Claim Work', async (page) => {
		await new NodeCreator(page).add('Claim Work');
		await page.getByText('Connect to Idempotency Ledger').click();
		// n8n gives it a name a moment later, and saves none without
		await page
			.getByText('Idempotency Ledger (Postgres) account')
			.filter({ visible: true })
			.first()
			.waitFor();
	});

	for (const [what, fields, words] of wrong) {
		step(`tells ${what}, and the cure`, async (page) => {
			const dialog = new CredentialDialog(page);
			await dialog.fill({ ...right, schema: 'idempotency', ...fields });
			await dialog.save();
			const message = await dialog.refusal(words);
			for (const secret of ['not the password', 'pasted-secret', right.password]) {
				expect(message).not.toContain(secret);
			}
		});
	}

	step('is content with a ledger it can reach', async (page) => {
		const dialog = new CredentialDialog(page);
		await dialog.fill({ ...right, schema: 'idempotency' });
		await dialog.save();
		// n8n closes it where the test went well
		await dialog.dialog.waitFor({ state: 'hidden' });
		await page.getByTestId('credential-edit-button').click();
		await dialog.dialog.getByText('Connection tested successfully').waitFor();
		await dialog.close();
	});
});

describe('a flow of Claim Work, HTTP Request and Complete Work', () => {
	step('is built on the canvas and says its contract there', async (page) => {
		const claim = new NodePanel(page);
		await claim.type('kind', 'invoice');
		await claim.type('keyFields', 'query.order_id');
		await claim.close();

		const request = await addBehind(page, 'Claim Work', 'HTTP Request');
		await request.choose('method', 'POST');
		await request.type('url', `${access.invoiceUrl}/invoices`);
		await request.switchOn('sendBody');
		await request.type('bodyParameters.parameters[0].name', 'order_id');
		await request.type('bodyParameters.parameters[0].value', '1001');
		await request.close();

		const complete = await addBehind(page, 'HTTP Request', 'Complete Work', 'Complete work');
		await complete.close();

		await onCanvas(page, 'Claim Work')
			.getByText('invoice v1 by query.order_id, forever, duplicates get the original')
			.waitFor();
		expect(await page.getByTestId('node-issues').count()).toBe(0);
		// the last node must not lie under the buttons at the edge
		await page.getByTestId('zoom-to-fit').click();
	});

	/** The order is delivered, as often as its sender likes; n8n listens for one call at a time. */
	async function deliver(page: Page, query: string): Promise<void> {
		await page.getByTestId('execute-workflow-button').click();
		await page.getByTestId('stop-execution-waiting-for-webhook-button').waitFor();
		const answer = await fetch(`${access.n8n.baseUrl}/webhook-test/orders${query}`);
		expect(answer.status).toBe(200);
		await page.getByTestId('execute-workflow-button').waitFor();
	}

	step('run the first time: Claimed, and the invoice is made', async (page) => {
		await deliver(page, '?order_id=1001');
		await onCanvas(page, 'Complete Work').getByTestId('canvas-node-status-success').waitFor();
		const panel = await openNode(page, 'Complete Work');
		await panel.output.getByText('completed').first().waitFor();
		await panel.close();
	});

	step('run twice: Duplicate, with the original result', async (page) => {
		await deliver(page, '?order_id=1001');
		const panel = await openNode(page, 'Claim Work');
		await panel.output.getByText('Duplicate Branch (1 item)').waitFor();
		const text = await panel.output.innerText();
		expect(text).toContain('Already done');
		const invoices = (await (await fetch(`${access.invoiceUrl}/invoices`)).json()) as Array<{
			invoice_id: string;
		}>;
		expect(invoices).toHaveLength(1);
		expect(text).toContain(`invoice_id:${invoices[0].invoice_id}`);
		await panel.close();
	});

	step(
		'an order without a number: an error with the cure, and nothing is claimed',
		async (page) => {
			await deliver(page, '?order_id=');
			const panel = await openNode(page, 'Claim Work');
			const error = panel.output.getByTestId('node-error-message');
			await error.getByText('The field "query.order_id" is empty. Fill it before').waitFor();
			await panel.output.getByText('Nothing was claimed.').first().waitFor();
			await panel.close();
		},
	);
});
