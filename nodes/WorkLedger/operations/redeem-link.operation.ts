import type { RedeemedLink } from '../../../ledger';
import { readOptionalReference } from '../../execution/reference';
import { NONCE_FIELD, linkAnswer, nameOf, readNonce } from '../link';
import { shownFor, type LedgerOperation } from '../operation';

export const redeemLink: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Redeem Action Link',
		value: 'redeemLink',
		action: 'Redeem an action link',
		description:
			'Does what the link is for, once. Behind a POST or a button, never behind a GET: programs that preview links would use it.',
	},
	properties: [
		{ ...NONCE_FIELD, ...shownFor('work', 'redeemLink') },
		{
			displayName: 'By',
			name: 'redeemedBy',
			type: 'string',
			default: '',
			placeholder: 'e.g. {{ $json.body.name }}',
			description:
				'Who uses the link, for the decision log and for whoever comes second: a name or user ID',
			...shownFor('work', 'redeemLink'),
		},
		{
			displayName: 'External Reference',
			name: 'linkReference',
			type: 'string',
			default: '',
			placeholder: 'e.g. {{ $json.body.reference }}',
			description:
				'For a link that says "it landed": what the effect is called at the target. Empty: the reference given with the link, if any.',
			...shownFor('work', 'redeemLink'),
		},
	],
	async run(call) {
		const { ledger, parameters, itemIndex, caller } = call;
		const nonce = readNonce(call);
		if (nonce === '') {
			throw new Error(
				'Nonce is empty. Enter where the link carries it, for example {{ $json.query.nonce }}.',
			);
		}
		const link = await ledger.actionLinks.redeem(
			nonce,
			{
				by: parameters.text('redeemedBy', itemIndex).trim(),
				externalRef: readOptionalReference(parameters, 'linkReference', itemIndex),
			},
			caller,
		);
		return [{ ...linkAnswer(link), message: message(link) }];
	},
};

/** Throws for a link that did nothing and never had. */
function message(link: RedeemedLink): string {
	const name = nameOf(link.work);
	if (link.status === 'redeemed') {
		const done =
			link.action === 'landed'
				? `Resolved: ${name} landed and is done.`
				: `${link.action === 'replay' ? 'Replayed' : 'Resolved as not landed'}: ${name} is due now.`;
		return link.outcome?.waitsForDelivery === true
			? `${done} Its data are not kept, so it is done when it is delivered again.`
			: done;
	}
	// a second click, or the same one sent again: what it asks for has happened
	if (link.status === 'used') return `This link did its work before: ${link.reason}.`;
	throw new Error(
		link.work === null
			? `This link cannot be used: ${link.reason}. Nothing was changed.`
			: `The link for ${name} cannot be used: ${link.reason}. Nothing was changed.`,
	);
}
