import { isAtLeast, SEVERITIES, type Severity } from './finding';
import { JsonOutput } from './output/json';
import type { Output, Problem, Totals } from './output/output';
import { PeopleOutput } from './output/people';
import { SarifOutput } from './output/sarif';
import { readWorkflowText } from './read-workflows';
import { checkWorkflow, surveyOf } from './report';
import { RULES } from './rules';
import { GivenWorkflows, type Survey } from './sub-workflows';
import type { SwitchedOff } from './switched-off';
import { textOfFile, workflowFiles, type WorkflowFile } from './workflow-files';

export const USAGE = `Usage: npx n8n-nodes-idempotency check [options] FILE…

Reads workflows as n8n exports them (one or several in a file; folders with all
their .json files) and says which steps would have their effect twice. Nothing is
executed, evaluated or sent. Give sub-workflows together with their callers.

  --format FORMAT    people (default), json or sarif
  --fail-on LEVEL    exit code 1 from this severity on: note, warning, error
                     (default) or never
  --off RULE=REASON  switch a rule off; may be repeated. In a workflow, a sticky
                     note does it: workflow-check off RULE on "Node": reason
  --rules            list the rules
  --help

Exit codes: 0 nothing at or above --fail-on; 1 something, or a file that could
not be checked; 2 wrong usage.
`;

interface Options {
	files: string[];
	format: 'people' | 'json' | 'sarif';
	failOn: Severity | 'never';
	off: SwitchedOff[];
}

export interface Streams {
	/** Resolves when the text was taken, so that a slow reader does not fill the memory. */
	out(text: string): Promise<void>;
	error(text: string): void;
}

/** Runs `check` with the arguments behind it; answers the exit code. */
export async function check(
	parameters: readonly string[],
	{ out, error }: Streams,
	version: string,
): Promise<number> {
	if (parameters.includes('--help')) {
		await out(USAGE);
		return 0;
	}
	if (parameters.includes('--rules')) {
		await out(RULES.map(({ id, severity, title }) => `${id} (${severity}): ${title}\n`).join(''));
		return 0;
	}
	const options = readOptions(parameters);
	if (typeof options === 'string') {
		error(`${options}\n\n${USAGE}`);
		return 2;
	}
	const output: Output =
		options.format === 'json'
			? new JsonOutput()
			: options.format === 'sarif'
				? new SarifOutput(version)
				: new PeopleOutput();
	const totals = await checkFiles(options, output, out);
	const failing =
		options.failOn !== 'never' &&
		(totals.failed ||
			SEVERITIES.some(
				(severity) =>
					isAtLeast(severity, options.failOn as Severity) && totals.findings[severity] > 0,
			));
	return failing ? 1 : 0;
}

async function checkFiles(
	options: Options,
	output: Output,
	out: Streams['out'],
): Promise<Totals & { failed: boolean }> {
	const { files, missing } = workflowFiles(options.files);
	const totals: Totals & { failed: boolean } = {
		files: files.length,
		workflows: 0,
		effects: 0,
		findings: { note: 0, warning: 0, error: 0 },
		switchedOff: 0,
		problems: 0,
		failed: false,
	};
	const report = async (problem: Problem): Promise<void> => {
		totals.problems++;
		if (problem.severity === 'error') totals.failed = true;
		await out(output.problem(problem));
	};
	await out(output.begin());
	for (const { path: file, problem } of missing) await report({ file, problem, severity: 'error' });
	// twice over the files, one at a time: of the others only their survey is kept
	const surveys = files.flatMap((file) => surveysOf(file));
	const given = new GivenWorkflows(surveys);
	let next = 0;
	for (const { path: file, inFolder } of files) {
		const read = textOfFile(file);
		if ('problem' in read) {
			await report({ file, problem: read.problem, severity: 'error' });
			continue;
		}
		const { workflows, problems } = readWorkflowText(read.text);
		// a folder may hold other JSON; what is broken is said all the same
		const isOther = inFolder && workflows.length === 0 && !/^No valid JSON/.test(problems[0] ?? '');
		for (const problem of problems) {
			await report({ file, problem, severity: isOther ? 'note' : 'error' });
		}
		for (const workflow of workflows) {
			const own: Survey | undefined = surveys[next++];
			const checked = checkWorkflow(
				workflow,
				given,
				// the file may have grown since the first look
				own === undefined ? undefined : given.callers(own),
				options.off,
			);
			totals.workflows++;
			totals.effects += checked.effects.length;
			for (const { severity, switchedOff } of checked.findings) {
				if (switchedOff === null) totals.findings[severity]++;
				else totals.switchedOff++;
			}
			await out(output.workflow(file, checked, read.text));
		}
	}
	const { failed, ...shown } = totals;
	await out(output.end(shown));
	return { ...shown, failed };
}

function surveysOf({ path: file }: WorkflowFile): Survey[] {
	const read = textOfFile(file);
	return 'problem' in read ? [] : readWorkflowText(read.text).workflows.map(surveyOf);
}

/** The options, or what is wrong with them. */
function readOptions(parameters: readonly string[]): Options | string {
	const options: Options = { files: [], format: 'people', failOn: 'error', off: [] };
	for (let at = 0; at < parameters.length; at++) {
		const [, flag, joined] = /^(--[\w-]+)(?:=([^]*))?$/.exec(parameters[at]) ?? [];
		if (flag === undefined) {
			if (parameters[at].startsWith('-')) return `Unknown option ${parameters[at]}.`;
			options.files.push(parameters[at]);
			continue;
		}
		const value = joined ?? parameters[++at];
		const problem = setOption(options, flag, value);
		if (problem !== null) return problem;
	}
	return options.files.length === 0 ? 'Name at least one file or folder.' : options;
}

function setOption(options: Options, flag: string, value: string | undefined): string | null {
	switch (flag) {
		case '--format':
			if (value !== 'people' && value !== 'json' && value !== 'sarif') {
				return '--format is people, json or sarif.';
			}
			options.format = value;
			return null;
		case '--fail-on':
			if (value !== 'never' && !SEVERITIES.includes(value as Severity)) {
				return '--fail-on is note, warning, error or never.';
			}
			options.failOn = value as Options['failOn'];
			return null;
		case '--off': {
			const [, rule, reason] = /^([\w-]+)=([^]*)$/.exec(value ?? '') ?? [];
			if (rule === undefined || reason.trim() === '') {
				return '--off needs a rule and a reason: --off schedule-overlaps="it runs once a year".';
			}
			if (!RULES.some(({ id }) => id === rule)) return `There is no rule "${rule}" (see --rules).`;
			options.off.push({ rule, node: null, reason: reason.trim(), by: 'flag' });
			return null;
		}
		default:
			return `Unknown option ${flag}.`;
	}
}
