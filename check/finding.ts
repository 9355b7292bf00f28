import type { Analysis } from './analysis';
import type { WorkflowNode } from './workflow';

/** From the mildest to the worst. */
export const SEVERITIES = ['note', 'warning', 'error'] as const;

export type Severity = (typeof SEVERITIES)[number];

/** What a finding says. */
export interface Words {
	/** What stands there, a sentence. */
	message: string;
	/** What happens when this fires twice, a sentence. */
	twice: string;
	/** What to do about it, with the nodes of this package. */
	fix: string;
}

/** What a rule has found, before anybody switched it off. */
export interface Found extends Words {
	/** Null where it concerns the whole workflow. */
	node: WorkflowNode | null;
	severity: Severity;
}

export interface Rule {
	/** Lower case with hyphens; never changes, since notes and command lines name it. */
	id: string;
	/** What it finds, in a few words. */
	title: string;
	/** The worst it reports. */
	severity: Severity;
	find(analysis: Analysis): Iterable<Found>;
}

export interface Finding {
	rule: string;
	severity: Severity;
	/** Null where it concerns the whole workflow. */
	node: string | null;
	message: string;
	twice: string;
	fix: string;
	/** Why it does not count, and where that was said; null for one that counts. */
	switchedOff: { by: 'flag' | 'note'; reason: string } | null;
}

/** Whether `severity` is as bad as `threshold` or worse. */
export function isAtLeast(severity: Severity, threshold: Severity): boolean {
	return SEVERITIES.indexOf(severity) >= SEVERITIES.indexOf(threshold);
}
