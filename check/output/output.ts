import type { Finding } from '../finding';
import type { WorkflowReport } from '../report';

/** A file that could not be checked, or that holds no workflow. */
export interface Problem {
	file: string;
	problem: string;
	/** "error": it was named and could not be checked; "note": it was passed over in a folder. */
	severity: 'error' | 'note';
}

/** What has been found so far, over all files. */
export interface Totals {
	files: number;
	workflows: number;
	effects: number;
	findings: Record<Finding['severity'], number>;
	switchedOff: number;
	problems: number;
}

/** Writes reports as they come, so that nothing but the totals is kept. Each answers the next piece of text. */
export interface Output {
	begin(): string;
	/** `text`: the file the workflow stands in. */
	workflow(file: string, report: WorkflowReport, text: string): string;
	problem(problem: Problem): string;
	end(totals: Totals): string;
}
