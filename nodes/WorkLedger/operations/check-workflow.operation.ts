import type { IDataObject } from 'n8n-workflow';

import {
	checkTogether,
	readWorkflowText,
	readWorkflowValue,
	type Workflow,
	type WorkflowReport,
} from '../../../check';
import { readField } from '../../../ledger';
import { shownFor, type AllItemsOperation } from '../operation';

export const checkWorkflow: AllItemsOperation<Workflow[]> = {
	resource: 'workflow',
	option: {
		name: 'Check',
		value: 'check',
		action: 'Check a workflow',
		description:
			'Which of its steps would have their effect twice, and what to put where. Nothing in it is executed.',
	},
	properties: [
		{
			displayName: 'Workflow Field',
			name: 'workflowField',
			type: 'string',
			typeOptions: { requiresDataPath: 'single' },
			default: '',
			placeholder: 'e.g. workflow',
			description:
				"Name of the field that holds a workflow's JSON, as an object or as text. Empty: the item itself, as n8n's own n8n node gives it. Sub-workflows among the items are followed.",
			...shownFor('workflow', 'check'),
		},
	],
	read({ parameters, itemIndex, json }) {
		const field = parameters.text('workflowField', itemIndex).trim();
		const value = field === '' ? json : readField(json, field).value;
		if (value === undefined || value === null) {
			throw new Error(`The item has no field "${field.slice(0, 100)}" with a workflow in it.`);
		}
		const { workflows, problems } =
			typeof value === 'string' ? readWorkflowText(value) : readWorkflowValue(value);
		if (workflows.length > 0) return workflows;
		throw new Error(
			`${problems[0] ?? 'There is no workflow.'} Needed is what n8n exports: an object with nodes and connections.`,
		);
	},
	async runAll(entries) {
		const reports = checkTogether(entries.flatMap(({ value }) => value));
		let next = 0;
		return entries.flatMap(({ call, value }) =>
			value.map(() => ({ json: answer(reports[next++]), items: [call.itemIndex] })),
		);
	},
};

function answer(report: WorkflowReport): IDataObject {
	const counting = report.findings.filter(({ switchedOff }) => switchedOff === null);
	const count = (severity: string) => counting.filter((each) => each.severity === severity).length;
	const worst = counting
		.slice(0, 3)
		.map(({ node, message }) => `${node === null ? '' : `"${node}": `}${message}`);
	return {
		...report,
		errors: count('error'),
		warnings: count('warning'),
		notes: count('note'),
		summary:
			counting.length === 0
				? `"${report.name}": nothing found.`
				: `"${report.name}": ${counting.length} ${counting.length === 1 ? 'finding' : 'findings'}. ${worst.join(' ')}${counting.length > worst.length ? ' …' : ''}`,
	} as unknown as IDataObject;
}
