import { createHash } from 'node:crypto';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import type { Finding } from '../finding';
import type { WorkflowReport } from '../report';
import { RULES } from '../rules';
import type { Output, Problem } from './output';

const SCHEMA = 'https://json.schemastore.org/sarif-2.1.0.json';
const HELP = 'https://github.com/n8n-nodes-idempotency/n8n-nodes-idempotency';

/** SARIF 2.1.0 (OASIS), as code scanning reads it. */
export class SarifOutput implements Output {
	private readonly notifications: unknown[] = [];

	private failed = false;

	private first = true;

	/** Of the last text: a file may hold several workflows. */
	private named: { text: string; lines: Map<string, number | null> } = {
		text: '',
		lines: new Map(),
	};

	constructor(private readonly version: string) {}

	begin(): string {
		const driver = {
			name: 'n8n-nodes-idempotency check',
			version: this.version,
			informationUri: HELP,
			rules: RULES.map(({ id, title, severity }) => ({
				id,
				shortDescription: { text: title },
				helpUri: `${HELP}/blob/main/docs/workflow-check.md#${id}`,
				defaultConfiguration: { level: severity },
			})),
		};
		return `{\n"$schema": ${JSON.stringify(SCHEMA)},\n"version": "2.1.0",\n"runs": [{\n"tool": ${JSON.stringify({ driver })},\n"results": [`;
	}

	workflow(file: string, report: WorkflowReport, text: string): string {
		const notices = report.notices.map((notice) => ({
			level: 'note',
			message: { text: `${report.name}: ${notice}` },
			locations: [{ physicalLocation: { artifactLocation: { uri: uriOf(file) } } }],
		}));
		this.notifications.push(...notices);
		if (this.named.text !== text) this.named = { text, lines: linesOfNames(text) };
		let results = '';
		for (const finding of report.findings) {
			results += `${this.first ? '' : ','}\n${JSON.stringify(result(file, report, finding, this.named.lines))}`;
			this.first = false;
		}
		return results;
	}

	problem({ file, problem, severity }: Problem): string {
		if (severity === 'error') this.failed = true;
		this.notifications.push({
			level: severity,
			message: { text: problem },
			locations: [{ physicalLocation: { artifactLocation: { uri: uriOf(file) } } }],
		});
		return '';
	}

	end(): string {
		const invocation = {
			executionSuccessful: !this.failed,
			toolExecutionNotifications: this.notifications,
		};
		return `\n],\n"invocations": [${JSON.stringify(invocation)}],\n"columnKind": "utf16CodeUnits"\n}]\n}\n`;
	}
}

function result(
	file: string,
	report: WorkflowReport,
	finding: Finding,
	lines: ReadonlyMap<string, number | null>,
): unknown {
	const { rule, severity, node, message, twice, fix, switchedOff } = finding;
	const line = node === null ? null : (lines.get(JSON.stringify(node)) ?? null);
	const where = node === null ? report.name : `${report.name}/${node}`;
	const identity = [rule, report.id ?? report.name, node ?? ''].join('\n');
	return {
		ruleId: rule,
		ruleIndex: RULES.findIndex(({ id }) => id === rule),
		level: severity,
		message: { text: `${message} Twice: ${twice} Fix: ${fix}` },
		locations: [
			{
				physicalLocation: {
					artifactLocation: { uri: uriOf(file) },
					...(line === null ? {} : { region: { startLine: line } }),
				},
				logicalLocations: [{ name: node ?? report.name, fullyQualifiedName: where }],
			},
		],
		partialFingerprints: {
			'workflowCheck/v1': createHash('sha256').update(identity).digest('hex'),
		},
		...(switchedOff === null
			? {}
			: {
					suppressions: [
						{
							kind: switchedOff.by === 'note' ? 'inSource' : 'external',
							justification: switchedOff.reason,
						},
					],
				}),
	};
}

/** Relative to where the check runs, with forward slashes; a full address for a file elsewhere. */
function uriOf(file: string): string {
	const relative = path.relative(process.cwd(), path.resolve(file));
	if (relative.startsWith('..') || path.isAbsolute(relative)) return pathToFileURL(file).href;
	return relative.split(path.sep).map(encodeURIComponent).join('/');
}

/**
 * The line on which each name stands, by the name as JSON; null for one that stands in several places. One look at the
 * text, however many findings it has.
 */
function linesOfNames(text: string): Map<string, number | null> {
	const lines = new Map<string, number | null>();
	let line = 1;
	for (const [, name] of text.matchAll(/\n|"name": ?("(?:[^"\\\n]|\\.)*")/g)) {
		if (name === undefined) line++;
		else lines.set(name, lines.has(name) ? null : line);
	}
	return lines;
}
