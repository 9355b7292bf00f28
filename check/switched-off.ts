import type { Finding, Found, Rule } from './finding';
import { shortOf } from './knowledge/node-type';
import { textOf, type Workflow } from './workflow';

/** A rule that somebody does not want to hear of, and why. */
export interface SwitchedOff {
	rule: string;
	/** Null: on every node. */
	node: string | null;
	reason: string;
	by: 'flag' | 'note';
}

/** `workflow-check off unguarded-effect on "Post Log": nobody minds a second line` in a sticky note. */
const NOTE =
	/^[^\w\n]*workflow-check\s+off\s+([\w-]+)(?:\s+on\s+["“]([^"”\n]+)["”])?[^\S\n]*(?::[^\S\n]*(.*))?$/gim;

/** What the sticky notes of a workflow switch off, and what is wrong with their wording. */
export function switchedOffByNotes(
	{ nodes }: Workflow,
	ruleIds: ReadonlySet<string>,
): { off: SwitchedOff[]; notices: string[] } {
	const off: SwitchedOff[] = [];
	const notices: string[] = [];
	for (const { type, parameters } of nodes) {
		if (shortOf(type) !== 'stickyNote') continue;
		for (const [, rule, node, reason] of textOf(parameters.content).matchAll(NOTE)) {
			if (!ruleIds.has(rule)) {
				notices.push(`A note switches off "${rule.slice(0, 60)}", which is no rule.`);
			} else if ((reason ?? '').trim() === '') {
				notices.push(
					`A note switches off ${rule} without a reason, so the rule stays on. Write it behind a colon.`,
				);
			} else {
				off.push({ rule, node: node ?? null, reason: reason.trim(), by: 'note' });
			}
		}
	}
	return { off, notices };
}

/** The finding, and whether it was switched off. */
export function finding(rule: Rule, found: Found, off: readonly SwitchedOff[]): Finding {
	const { node, severity, message, twice, fix } = found;
	const name = node?.name ?? null;
	const match = off.find(
		(each) => each.rule === rule.id && (each.node === null || each.node === name),
	);
	return {
		rule: rule.id,
		severity,
		node: name,
		message,
		twice,
		fix,
		switchedOff: match === undefined ? null : { by: match.by, reason: match.reason },
	};
}
