import type { IDataObject } from 'n8n-workflow';

import type { LinkAction } from '../../../ledger';
import { linkAnswer, LINK_WORDS, nameOf } from '../link';
import { readNumber } from '../../execution/number';
import { readOptionalReference } from '../../execution/reference';
import { shownFor, type LedgerOperation } from '../operation';
import { readWorkId } from '../which-work';

export const createLink: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Create Action Link',
		value: 'createLink',
		action: 'Create an action link',
		description:
			'A link for a message about failed work: who opens it can replay or resolve that one work, once',
	},
	properties: [
		{
			displayName: 'What the Link Does',
			name: 'linkAction',
			// an expression is welcome: a page with several buttons makes all its links with one node
			type: 'options',
			options: [
				{ name: 'Replay', value: 'replay', description: 'Due now, with all its attempts' },
				{
					name: 'Resolve: It Did Not Land',
					value: 'not_landed',
					description: 'Of work whose outcome nobody knows: due now',
				},
				{
					name: 'Resolve: It Landed',
					value: 'landed',
					description: 'Of work whose outcome nobody knows, or that was done by hand: done',
				},
			],
			default: 'replay',
			description:
				'The link holds for the work as it stands now. Whatever happens to it meanwhile (a replay, a late success) overtakes the link, so that an old message cannot run it twice.',
			...shownFor('work', 'createLink'),
		},
		{
			displayName: 'External Reference',
			name: 'linkReference',
			type: 'string',
			default: '',
			placeholder: 'e.g. INV-2041',
			description:
				'What the effect is called at the target, if it is known now. Who uses the link may give it then.',
			displayOptions: {
				show: { resource: ['work'], operation: ['createLink'], linkAction: ['landed'] },
			},
		},
		{
			displayName: 'Valid for (Hours)',
			name: 'validHours',
			type: 'number',
			typeOptions: { minValue: 0.01, maxValue: 720 },
			default: 24,
			description:
				'How long the link can be used, at most 30 days: messages are forwarded and mailboxes are read by others',
			...shownFor('work', 'createLink'),
		},
		{
			displayName: 'Page URL',
			name: 'pageUrl',
			type: 'string',
			default: '',
			placeholder: 'e.g. https://n8n.example.com/webhook/action',
			description:
				'The webhook of the workflow that answers the link; the nonce is added as a query parameter. Let its GET only show a page (Look at Action Link) and its POST redeem: programs that preview links open every GET. Empty: no URL is made.',
			...shownFor('work', 'createLink'),
		},
	],
	async run(call) {
		const { ledger, parameters, itemIndex, caller } = call;
		const workId = readWorkId(call);
		const action = readAction(parameters.read<unknown>('linkAction', itemIndex, undefined));
		const hours = readNumber(parameters, itemIndex, 'validHours', {
			label: 'Valid for (Hours)',
			least: 0.01,
			most: 720,
		});
		const page = pageUrl(parameters.text('pageUrl', itemIndex).trim());
		const externalRef =
			action === 'landed'
				? readOptionalReference(parameters, 'linkReference', itemIndex)
				: undefined;
		const link = await ledger.actionLinks.create(
			{ workId, action, ttlSeconds: hours * 3600, externalRef },
			caller,
		);
		if (link.nonce === null) {
			throw new Error(
				link.status === 'unknown_work'
					? `The ledger holds no such work (${workId}). Check the kind, the version and the key.`
					: `${nameOf(link.work)}: ${link.reason}. No link was made.`,
			);
		}
		page?.searchParams.set('nonce', link.nonce);
		const answer: IDataObject = {
			...linkAnswer(link),
			message: `A link that ${LINK_WORDS[action]} ${nameOf(link.work)}, once, until ${link.expiresAt}.`,
			nonce: link.nonce,
		};
		return [page === null ? answer : { ...answer, url: page.href }];
	},
};

function readAction(given: unknown): LinkAction {
	if (given === 'replay' || given === 'landed' || given === 'not_landed') return given;
	throw new Error('"What the Link Does" must be replay, landed or not landed. Choose it anew.');
}

function pageUrl(text: string): URL | null {
	if (text === '') return null;
	const url = URL.canParse(text) ? new URL(text) : null;
	if (url === null || !['http:', 'https:'].includes(url.protocol)) {
		throw new Error(
			'Page URL is no web address. Enter the whole production URL of the webhook, for example https://n8n.example.com/webhook/action, or leave it empty.',
		);
	}
	if (url.username !== '' || url.password !== '') {
		throw new Error(
			'Page URL holds a user name or password, which would be sent with every message. Leave them out: the browser asks for them.',
		);
	}
	return url;
}
