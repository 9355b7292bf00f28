import type { NodeHint } from 'n8n-workflow';

/** Shown beside the node while it is set up; n8n evaluates the condition in the editor. */
export const hints: NodeHint[] = [
	{
		message:
			'No rule yet: a gate without rules would check nothing, so every item is refused. Add what a record must show, such as an invoice number that is present.',
		type: 'warning',
		location: 'outputPane',
		displayCondition: `={{ $parameter["mode"] === "ladder" ? !(($parameter["stages"] ?? {}).stage ?? []).length : !(($parameter["rules"] ?? {}).rule ?? []).length }}`,
	},
];
