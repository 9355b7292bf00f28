/** The outputs of each operation, in their order on the canvas. What is not listed has one. */
export const OUTPUT_NAMES = {
	lookUp: ['Replay', 'Decide', 'Busy', 'Not Approved'],
	store: ['Stored', 'Not Approved', 'Not Stored'],
	approve: ['Approved', 'Not Approved'],
	reject: ['Rejected', 'Not Rejected'],
} as const;

export const LOOK_UP = { replay: 0, decide: 1, busy: 2, notApproved: 3 } as const;
export const STORE = { stored: 0, notApproved: 1, notStored: 2 } as const;
export const JUDGE = { judged: 0, notJudged: 1 } as const;

export type Operation =
	| keyof typeof OUTPUT_NAMES
	| 'get'
	| 'compare'
	| 'list'
	| 'expire'
	| 'statistics'
	| 'purge';

export function outputNamesOf(operation: Operation): readonly string[] {
	return Object.hasOwn(OUTPUT_NAMES, operation)
		? OUTPUT_NAMES[operation as keyof typeof OUTPUT_NAMES]
		: ['Done'];
}

/** For n8n, which asks for the outputs by an expression. */
export const OUTPUTS_EXPRESSION: `={{${string}}}` = `={{ ((${JSON.stringify(OUTPUT_NAMES)})[$parameter["operation"]] || ["Done"]).map((name) => ({ type: "main", displayName: name })) }}`;
