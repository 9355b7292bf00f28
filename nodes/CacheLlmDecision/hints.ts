import type { NodeHint } from 'n8n-workflow';

/**
 * Shown beside the node while it is set up. n8n evaluates the conditions in the editor; `$rawParameter` is what stands
 * in the field, since before a run an expression there has no item to read from.
 */
export const hints: NodeHint[] = [
	{
		message:
			'The question is not complete: enter decision, model, prompt version and the fields that the prompt uses. They tell one question from another; without them every item is refused.',
		type: 'warning',
		location: 'outputPane',
		displayCondition: `={{ $parameter["operation"] === "lookUp" && ["kind", "model", "promptVersion", ...($parameter["input"] === "fields" ? ["inputFields"] : [])].some((name) => ["", "="].includes(String($rawParameter[name] ?? "").trim())) }}`,
	},
];
