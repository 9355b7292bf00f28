import type { IDataObject, INodeProperties } from 'n8n-workflow';

import type { ClaimAnswer, FiresTwice } from '../../../ledger';
import { sentence } from '../../ClaimWork/answer';
import { properties as claimProperties } from '../../ClaimWork/properties';
import { readSample, shownCanonical } from '../../ClaimWork/request';
import { shownFor, type LedgerOperation } from '../operation';

const SHOWN = shownFor('work', 'firesTwice').displayOptions.show;

/** The fields of Claim Work that say what the same work is, as they stand there. */
const IDENTITY = ['kind', 'version', 'identity', 'keyFields', 'key', 'contentFields', 'urlField'];
const IDENTITY_OPTIONS = ['keepFragment', 'reading', 'trackingParameters', 'volatileFields'];

const named = (names: string[], all: INodeProperties[]) =>
	all.filter(({ name }) => names.includes(name));

export const firesTwice: LedgerOperation = {
	resource: 'work',
	option: {
		name: 'Test: Fire Twice',
		value: 'firesTwice',
		action: 'Test what happens when work fires twice',
		description:
			'Claim a sample item twice in the same instant, on two connections, in a space of its own, and show what each got. No effect is run.',
	},
	properties: [
		...named(IDENTITY, claimProperties).map(
			(property): INodeProperties => ({
				...property,
				...(property.name === 'identity'
					? // the ledger's own work has no sample
						{
							options: property.options?.filter(
								(each) => !('value' in each && each.value === 'ledger'),
							),
						}
					: {}),
				displayOptions: { show: { ...SHOWN, ...property.displayOptions?.show } },
			}),
		),
		{
			displayName: 'Options',
			name: 'options',
			type: 'collection',
			placeholder: 'Add Option',
			default: {},
			options: named(
				IDENTITY_OPTIONS,
				(claimProperties.find(({ name }) => name === 'options')?.options ??
					[]) as INodeProperties[],
			),
			displayOptions: { show: SHOWN },
		},
	],
	async run({ context, ledger, parameters, itemIndex, json, caller }) {
		const identity = readSample(parameters, itemIndex, json);
		const answer = await ledger.firesTwiceTest.run(identity, caller);
		return [
			{
				passed: answer.passed && answer.sameInstant,
				summary: summary(answer),
				workId: identity.workId,
				kind: identity.kind,
				version: identity.version,
				key: identity.key,
				canonical: shownCanonical(identity),
				sameInstant: answer.sameInstant,
				first: shown(answer.first, context.getMode()),
				second: shown(answer.second, context.getMode()),
				third: answer.third === null ? null : shown(answer.third, context.getMode()),
				testKind: answer.testKind,
				testWorkId: answer.testWorkId,
				deleted: answer.deleted,
			},
		];
	},
};

function shown(answer: ClaimAnswer, mode: string): IDataObject {
	return {
		status: answer.status,
		message: sentence(answer, mode === 'manual' ? 'trigger' : mode, 1),
		...(answer.status === 'duplicate' ? { result: answer.result as IDataObject } : {}),
	};
}

function summary({ passed, sameInstant, first, second, third, deleted }: FiresTwice): string {
	const got = `Of two claims in the same instant one got "${first.status}", the other "${second.status}"`;
	const rest =
		deleted === null
			? ' What it wrote could not be deleted; no business meets it, and the next test of this kind takes it along.'
			: ' All of it was deleted again.';
	if (!sameInstant) {
		return `No race took place: the two claims could not be held at one point (too few connections, or a busy server). They got "${first.status}" and "${second.status}". Try again.${rest}`;
	}
	if (!passed) {
		return `NOT SAFE. ${got}${third === null ? '' : `, and a third, after completion, "${third.status}"`}.${rest}`;
	}
	return `${got}, and a third, after completion, the stored result. So the ledger lets this work through once. Whether your effect stands behind such a claim is what the example "Fires-Twice Test" asks your workflow itself.${rest}`;
}
