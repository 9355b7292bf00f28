import type { SeenLink } from '../../../ledger';
import { NONCE_FIELD, linkAnswer, LINK_WORDS, nameOf, readNonce } from '../link';
import { shownFor, type LedgerOperation } from '../operation';

export const lookAtLink: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Look at Action Link',
		value: 'lookAtLink',
		action: 'Look at an action link',
		description:
			'What a link would do, without using it: for the page that asks "really?". Changes nothing, whoever calls it.',
	},
	properties: [{ ...NONCE_FIELD, ...shownFor('work', 'lookAtLink') }],
	async run(call) {
		const nonce = readNonce(call);
		if (nonce === '') {
			return [
				{
					status: 'unknown',
					usable: false,
					message: 'This link cannot be used: its address holds no nonce.',
				},
			];
		}
		const link = await call.ledger.actionLinks.look(nonce);
		const usable = link.status === 'usable';
		return [
			{
				...linkAnswer(link),
				usable,
				message:
					usable && link.action !== null && link.work !== null
						? `This link ${LINK_WORDS[link.action]} ${nameOf(link.work)}, which is ${link.work.state} (${link.work.lastError ?? 'no reason given'}).${landedWarning(link)} It can be used once, until ${link.expiresAt}.`
						: `This link cannot be used: ${link.reason}.`,
			},
		];
	},
};

/** For who is about to do it once more: the page may be all that is read. */
function landedWarning({ action, work }: SeenLink): string {
	return action === 'landed' || work === null || work.outcomeKnown
		? ''
		: ' Its effect may have landed: look at the target system first.';
}
