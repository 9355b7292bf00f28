import type { INodeProperties } from 'n8n-workflow';

import {
	checkpointText,
	cursorComparison,
	type CheckpointName,
	type CursorComparison,
} from '../../ledger';
import type { Call } from './operation';

const NAMED = ['continueAfter', 'get', 'reset', 'save'];

const shown = { resource: ['checkpoint'], operation: NAMED };

/** How one checkpoint is named, and how its cursors are compared. */
export const whichCheckpoint: INodeProperties[] = [
	{
		displayName: 'Name',
		name: 'checkpointName',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'e.g. products of shop A',
		description:
			'What is being walked through. Two flows with the same name move one cursor, and would skip what the other has done.',
		displayOptions: { show: shown },
	},
	{
		displayName: 'Run ID',
		name: 'checkpointRunId',
		type: 'string',
		default: '',
		placeholder: 'e.g. 2026-01-31',
		description:
			'A cursor per run: the run of the 31st that died goes on, and that of the 1st begins anew. Something that is the same when the run is started again, so never the execution ID. Empty: one cursor for ever, for sources that only grow.',
		displayOptions: { show: shown },
	},
	{
		displayName: 'Compare As',
		name: 'compare',
		type: 'options',
		noDataExpression: true,
		options: [
			{
				name: 'Date and Time',
				value: 'time',
				description:
					'ISO 8601 with a zone, whatever zone. Without one it is refused: it would be hours off on another machine.',
			},
			{
				name: 'Number',
				value: 'number',
				description: 'Rising numbers, also longer ones as text of digits: 9 before 10',
			},
			{
				name: 'Text',
				value: 'text',
				description: 'Character by character: "10" before "9". For IDs that sort as text.',
			},
		],
		default: 'number',
		description:
			'When one cursor is before another. Kept with the checkpoint: another choice later is refused, because it would skip items that were never done.',
		displayOptions: { show: { resource: ['checkpoint'], operation: ['continueAfter', 'save'] } },
	},
];

/** The checkpoint that the node names for this item. Throws, naming the field, where it names none. */
export function readCheckpoint({ parameters, itemIndex }: Call): Required<CheckpointName> {
	const name = checkpointText(parameters.read<unknown>('checkpointName', itemIndex, ''), 'Name');
	if (name === '') throw new Error('Name is empty. Enter what is being walked through.');
	const runId = checkpointText(
		parameters.read<unknown>('checkpointRunId', itemIndex, ''),
		'Run ID',
	);
	if (runId === '' && String(parameters.raw('checkpointRunId') ?? '').startsWith('=')) {
		// it would be taken for the one cursor of all runs, and what this run has not done would be skipped
		throw new Error('Run ID is empty: its expression gives nothing for this item. Check it.');
	}
	return { name, runId };
}

/** Throws for a choice that an edited or imported workflow may hold. */
export function readComparison({ parameters, itemIndex }: Call): CursorComparison {
	return cursorComparison(parameters.read<unknown>('compare', itemIndex, 'number'));
}

/** The checkpoint as messages call it. */
export function checkpointWords({ name, runId }: CheckpointName): string {
	return runId === undefined || runId === '' ? `"${name}"` : `"${name}" of run "${runId}"`;
}

/** Entries of one checkpoint together, in the order in which each came first. */
export function byCheckpoint<Entry extends { value: Required<CheckpointName> }>(
	entries: Entry[],
): Entry[][] {
	const groups = new Map<string, Entry[]>();
	for (const entry of entries) {
		const { name, runId } = entry.value;
		const key = JSON.stringify([name, runId]);
		const group = groups.get(key);
		if (group === undefined) groups.set(key, [entry]);
		else group.push(entry);
	}
	return [...groups.values()];
}
