import type { NodeHint } from 'n8n-workflow';

/**
 * Shown beside the node while it is set up. n8n evaluates the conditions in the editor; `$rawParameter` is what stands
 * in the field, since before a run an expression there has no item to read from.
 */
export const hints: NodeHint[] = [
	{
		message:
			'No key yet: enter the kind, and what names the business object (an order or invoice number). Without them every item is refused.',
		type: 'warning',
		location: 'outputPane',
		displayCondition: `={{ (() => {
			const empty = (name) => ["", "="].includes(String($rawParameter[name] ?? "").trim());
			const named = { fields: "keyFields", expression: "key", url: "urlField" }[$parameter["identity"]];
			return $parameter["identity"] !== "ledger" && (empty("kind") || (named !== undefined && empty(named)));
		})() }}`,
	},
	{
		message:
			'Finished work is forgotten before its sender has surely stopped repeating it: all attempts together may take Lease × Attempts (see Options; 5 hours as they come), and a sender repeats for as long as it gets no success. Remember it longer than that, or make the lease or the attempts fewer.',
		type: 'warning',
		location: 'outputPane',
		displayCondition: `={{ (() => {
			if ($parameter["window"] !== "duration") return false;
			const options = $parameter["options"] ?? {};
			const unit = { seconds: 1, minutes: 60, hours: 3600, days: 86400 }[$parameter["windowUnit"]];
			const remembered = Number($parameter["windowAmount"]) * unit;
			return remembered > 0 && remembered < Number(options.leaseSeconds ?? 3600) * Number(options.maxAttempts ?? 5);
		})() }}`,
	},
];
