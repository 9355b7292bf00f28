import type { IDataObject, IExecuteFunctions, INodeExecutionData } from 'n8n-workflow';

/** A node before this one. */
export interface NodeBefore {
	name: string;
	type: string;
	disabled: boolean;
	/** As they stand on the node, expressions unresolved. */
	parameters: IDataObject;
}

/** The nodes before this one, nearest first: `getParentNodes` alone lists outer ones first. */
export function nodesBefore(context: IExecuteFunctions): NodeBefore[] {
	const found: NodeBefore[] = [];
	const seen = new Set([context.getNode().name]);
	let border = [...seen];
	while (border.length > 0) {
		const next: string[] = [];
		for (const name of border) {
			for (const parent of context.getParentNodes(name, {
				depth: 1,
				includeNodeParameters: true,
			})) {
				if (seen.has(parent.name)) continue;
				seen.add(parent.name);
				next.push(parent.name);
				found.push({
					name: parent.name,
					type: parent.type,
					disabled: parent.disabled,
					parameters: parent.parameters ?? {},
				});
			}
		}
		border = next;
	}
	return found;
}

/** The item of a node that an input item came from; null where the node did not run, or (n8n throws) pairing is lost. */
export function pairedItem(
	context: IExecuteFunctions,
	nodeName: string,
	itemIndex: number,
): IDataObject | null {
	try {
		const node = context.getWorkflowDataProxy(itemIndex).$(nodeName) as {
			isExecuted?: boolean;
			item?: INodeExecutionData;
		};
		return node.isExecuted === true ? (node.item?.json ?? null) : null;
	} catch {
		return null;
	}
}
