import {
	NodeConnectionTypes,
	type INodeType,
	type INodeTypeDescription,
	type ITriggerFunctions,
	type ITriggerResponse,
} from 'n8n-workflow';

import { testLedger } from '../execution/credential';
import { nodeError } from '../execution/failing-closed';
import { Loop } from './loop';
import { properties } from './properties';
import { Rounds } from './rounds';
import { sampleItem } from './sample';
import { readSettings } from './settings';

/** n8n activates by itself after a start or a change of leader, and waits up to a day between its tries. */
const WITHOUT_A_PERSON = new Set(['init', 'leadershipChange']);

export class WorkLedgerTrigger implements INodeType {
	description: INodeTypeDescription = {
		displayName: 'Work Ledger Trigger',
		name: 'workLedgerTrigger',
		icon: { light: 'file:work-ledger-trigger.svg', dark: 'file:work-ledger-trigger.dark.svg' },
		group: ['trigger'],
		version: 1,
		subtitle:
			'={{ ({ dead_letter: "dead letters", retry_due: "retries due" })[$parameter["event"]] + ": " + ($parameter["kinds"] || "every kind") }}',
		description:
			'Starts when work in the ledger failed for good or is held (dead letter), or is due to be tried again',
		defaults: { name: 'Work Ledger Trigger' },
		inputs: [],
		outputs: [NodeConnectionTypes.Main],
		credentials: [{ name: 'idempotencyLedgerApi', required: true, testedBy: 'testLedger' }],
		properties,
	};

	methods = { credentialTest: { testLedger } };

	async trigger(this: ITriggerFunctions): Promise<ITriggerResponse> {
		const settings = readSettings(this);
		if (this.getMode() === 'manual') {
			return {
				manualTriggerFunction: async () => {
					const item = await sampleItem(this, settings).catch((error: Error) => {
						throw nodeError(this, error.message);
					});
					this.emit([[item]]);
				},
			};
		}

		const rounds = new Rounds(this, settings);
		// a person who activates it sees what is wrong; after a restart it waits for the ledger instead of for n8n
		if (!WITHOUT_A_PERSON.has(this.getActivationMode())) {
			await rounds.check().catch((error: Error) => {
				rounds.end();
				throw nodeError(this, `The workflow was not activated: ${error.message}`);
			});
		}
		const loop = new Loop(async (own) => await rounds.run(own), settings.intervalSeconds * 1000);
		loop.start();
		return {
			closeFunction: async () => {
				await loop.stop();
				rounds.end();
			},
		};
	}
}
