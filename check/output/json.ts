import type { WorkflowReport } from '../report';
import type { Output, Problem, Totals } from './output';

/** One JSON object: `{ version, workflows, problems, totals }`, its keys as in the types. */
export class JsonOutput implements Output {
	private readonly problems: Problem[] = [];

	private first = true;

	begin(): string {
		return '{\n"version": 1,\n"workflows": [';
	}

	workflow(file: string, report: WorkflowReport): string {
		const comma = this.first ? '' : ',';
		this.first = false;
		return `${comma}\n${JSON.stringify({ file, ...report })}`;
	}

	problem(problem: Problem): string {
		this.problems.push(problem);
		return '';
	}

	end(totals: Totals): string {
		return `\n],\n"problems": ${JSON.stringify(this.problems)},\n"totals": ${JSON.stringify(totals)}\n}\n`;
	}
}
