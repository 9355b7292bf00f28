import { cursorText, readField, type CheckpointName, type CursorComparison } from '../../../ledger';
import { shownFor, type AllItemsOperation, type Leaving, type Problem } from '../operation';
import { byCheckpoint, checkpointWords, readCheckpoint, readComparison } from '../which-checkpoint';

interface Position extends Required<CheckpointName> {
	compare: CursorComparison;
	cursor: string;
}

export const checkpointContinueAfter: AllItemsOperation<Position> = {
	resource: 'checkpoint',
	option: {
		name: 'Continue After',
		value: 'continueAfter',
		action: 'Continue after a checkpoint',
		description:
			'Lets only items behind the checkpoint pass. One row in the decision log tells how many were skipped, instead of a duplicate for each.',
	},
	properties: [
		{
			displayName: 'Order Field',
			name: 'orderField',
			type: 'string',
			default: '',
			required: true,
			placeholder: 'e.g. position',
			description:
				'The field whose value is saved as the cursor, by name or path. An item without it is an error: passed on or skipped, it would be done twice or never.',
			...shownFor('checkpoint', 'continueAfter'),
		},
	],
	read(call) {
		const { parameters, itemIndex, json } = call;
		const compare = readComparison(call);
		const field = parameters.text('orderField', itemIndex).trim();
		if (field === '')
			throw new Error('Order Field is empty. Enter the name of a field, for example id.');
		const { value } = readField(json, field);
		return {
			...readCheckpoint(call),
			compare,
			cursor: cursorText(value, compare, `Order field "${field.slice(0, 100)}"`),
		};
	},
	async runAll(entries) {
		const left: Leaving[] = [];
		const problems: Problem[] = [];
		for (const group of byCheckpoint(entries)) {
			const [{ call, value }] = group;
			const { status, reason, skip } = await call.ledger.checkpoints.continueAfter(
				value,
				value.compare,
				group.map((entry) => entry.value.cursor),
				call.caller,
			);
			group.forEach((entry, i) => {
				const { itemIndex } = entry.call;
				if (status === 'refused') {
					const problem = `Checkpoint ${checkpointWords(value)} cannot tell what was done: ${reason}. Nothing was changed.`;
					problems.push({ item: itemIndex, problem });
				} else if (skip[i] === false) {
					const { json, binary } = call.context.getInputData()[itemIndex];
					left.push({ json, binary, items: [itemIndex] });
				} else if (skip[i] !== true) {
					throw new Error('The ledger did not answer about every item: no item was skipped.');
				}
			});
		}
		left.sort((a, b) => a.items[0] - b.items[0]);
		return [...left, ...problems];
	},
};
