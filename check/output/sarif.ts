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
		let results = '';
		for (const finding of report.findings) {
			results += `${this.first ? '' : ','}\n${JSON.stringify(result(file, report, finding, text))}`;
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

function result(file: string, report: WorkflowReport, finding: Finding, text: string): unknown {
	const { rule, severity, node, message, twice, fix, switchedOff } = finding;
	const line = node === null ? null : lineOf(node, text);
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

/** The line on which the node's name stands; null where it stands nowhere, or in several places. */
function lineOf(node: string, text: string): number | null {
	const name = JSON.stringify(node);
	const places = [`"name": ${name}`, `"name":${name}`].flatMap((each) => {
		const at = text.indexOf(each);
		if (at === -1) return [];
		return text.indexOf(each, at + 1) === -1 ? [at] : [at, at];
	});
	if (places.length !== 1) return null;
	let line = 1;
	for (let at = text.indexOf('\n'); at !== -1 && at < places[0]; at = text.indexOf('\n', at + 1)) {
		line++;
	}
	return line;
}
