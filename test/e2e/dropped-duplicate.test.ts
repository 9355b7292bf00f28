/** What the caller of a webhook gets when every item was a duplicate that Claim Work dropped: what its hint says. */

import { claimWork, completeWork, flow, importFlow, webhook } from './flow';
import { closeLedger, n8n } from './stage';

const answer = {
	name: 'Answer',
	type: 'n8n-nodes-base.respondToWebhook',
	typeVersion: 1.4,
	parameters: { respondWith: 'json', responseBody: '={{ { done: true } }}', options: {} },
};

afterAll(closeLedger);

test.each([
	['lastNode', 500, { message: 'No item to return was found' }],
	['responseNode', 200, ''],
])('%s: a dropped duplicate is answered with status %i', async (mode, status, body) => {
	const route = `dropped-${mode.toLowerCase()}`;
	await importFlow(
		flow(
			route,
			[
				webhook(route, mode),
				claimWork(route, { response: 'nothing' }),
				completeWork(),
				...(mode === 'responseNode' ? [answer] : []),
			],
			{
				Webhook: ['Claim Work'],
				'Claim Work': ['Complete Work'],
				...(mode === 'responseNode' ? { 'Complete Work': ['Answer'] } : {}),
			},
		),
	);
	const first = await n8n.webhook(route, { order_id: 1 });
	const second = await n8n.webhook(route, { order_id: 1 });
	expect([first.status, second.status]).toEqual([200, status]);
	if (typeof body === 'string') expect(second.body).toBe(body);
	else expect(second.body).toMatchObject(body);
});
