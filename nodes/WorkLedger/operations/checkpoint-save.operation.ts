import type { IDataObject } from 'n8n-workflow';

import {
	cursorText,
	type CheckpointName,
	type CursorComparison,
	type SavedCheckpoint,
} from '../../../ledger';
import { shownFor, type AllItemsOperation, type Leaving, type Problem } from '../operation';
import { byCheckpoint, checkpointWords, readCheckpoint, readComparison } from '../which-checkpoint';

interface Position extends Required<CheckpointName> {
	compare: CursorComparison;
	cursor: string;
	allowGoingBack: boolean;
}

export const checkpointSave: AllItemsOperation<Position> = {
	resource: 'checkpoint',
	option: {
		name: 'Save',
		value: 'save',
		action: 'Save a checkpoint',
		description:
			'Remember how far this run came: the highest of all items, in one statement. One item leaves per checkpoint. Put it behind the step that must have happened.',
	},
	properties: [
		{
			displayName: 'Cursor',
			name: 'cursor',
			type: 'string',
			default: '',
			required: true,
			placeholder: 'e.g. {{ $json.position }}',
			description:
				'The value by which the source is ordered: a rising ID or the time of the last change. Of several items the highest is kept. What failed before it is skipped by the next run: fail it with Complete Work, and it is retried from the ledger.',
			...shownFor('checkpoint', 'save'),
		},
		{
			displayName: 'Allow Going Back',
			name: 'allowGoingBack',
			type: 'boolean',
			default: false,
			description:
				'Whether an older cursor may replace a newer one. Off, a slow execution that ends late cannot undo what a faster one saved.',
			...shownFor('checkpoint', 'save'),
		},
	],
	read(call) {
		const { parameters, itemIndex } = call;
		const compare = readComparison(call);
		return {
			...readCheckpoint(call),
			compare,
			cursor: cursorText(parameters.read<unknown>('cursor', itemIndex, ''), compare, 'Cursor'),
			allowGoingBack: parameters.read<unknown>('allowGoingBack', itemIndex, false) === true,
		};
	},
	async runAll(entries) {
		const groups = byCheckpoint(entries);
		const [{ call }] = entries;
		const saved = await call.ledger.checkpoints.save(
			groups.map((group) => ({
				name: group[0].value.name,
				runId: group[0].value.runId,
				compare: group[0].value.compare,
				cursors: group.map(({ value }) => value.cursor),
				allowGoingBack: group.every(({ value }) => value.allowGoingBack),
			})),
			call.caller,
		);
		return groups.flatMap((group, i): Array<Leaving | Problem> => {
			const items = group.map((entry) => entry.call.itemIndex);
			if (saved[i].status !== 'refused') return [leaving(saved[i], items)];
			const problem = `Checkpoint ${checkpointWords(group[0].value)} was not moved to ${saved[i].given}: ${saved[i].reason}. Nothing was changed.${
				saved[i].checkpoint.compare === group[0].value.compare
					? ' Switch on "Allow Going Back" only to do all of it again.'
					: ''
			}`;
			return items.map((item) => ({ item, problem }));
		});
	},
};

function leaving(saved: SavedCheckpoint, items: number[]): Leaving {
	const { status, before, checkpoint, of } = saved;
	const where = `Checkpoint ${checkpointWords(checkpoint)}`;
	return {
		json: {
			...(checkpoint as unknown as IDataObject),
			status,
			message:
				status === 'unchanged'
					? `${where} stood at ${checkpoint.cursor} already.`
					: `${where} stands at ${saved.given} now${before === null ? '' : `, it was at ${before}`}.`,
			cursor: saved.given,
			before,
			items: of,
		},
		items,
	};
}
