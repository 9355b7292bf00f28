import type { IDataObject, INodeProperties } from 'n8n-workflow';

import type { CreatedLink, LinkAction, LinkedWork, RedeemedLink, SeenLink } from '../../ledger';
import type { Call } from './operation';

/** What a link does, as the verb of a sentence. */
export const LINK_WORDS: Record<LinkAction, string> = {
	replay: 'replays',
	landed: 'says that it landed:',
	not_landed: 'says that it did not land, and makes due',
};

export const NONCE_FIELD: INodeProperties = {
	displayName: 'Nonce',
	name: 'nonce',
	type: 'string',
	typeOptions: { password: true },
	default: '',
	required: true,
	placeholder: 'e.g. {{ $json.query.nonce }}',
	description: 'The random text of the link, as it came with the request',
};

export function readNonce({ parameters, itemIndex }: Call): string {
	return parameters.text('nonce', itemIndex).trim();
}

/** Kind and key, as people call the work. */
export function nameOf(work: LinkedWork | null): string {
	return work === null ? 'The work' : `${work.kind} ${work.key ?? work.workId}`;
}

/** What an item tells of a link; the nonce is not in it. */
export function linkAnswer(link: CreatedLink | SeenLink | RedeemedLink): IDataObject {
	const { status, reason, action, expiresAt, usedAt, usedBy, outcome, work } = link;
	return {
		status,
		reason,
		action,
		expiresAt,
		usedAt,
		usedBy,
		outcome: outcome as IDataObject | null,
		workId: work?.workId ?? null,
		work: work as IDataObject | null,
	};
}
