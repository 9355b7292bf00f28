import type { Finding } from '../finding';
import type { EffectReport, WorkflowReport } from '../report';
import { some } from '../rules/wording';
import type { Output, Problem, Totals } from './output';

/** For people: findings first, then the outside calls, then the questions. */
export class PeopleOutput implements Output {
	private lastFile: string | null = null;

	begin(): string {
		return '';
	}

	workflow(file: string, report: WorkflowReport): string {
		const lines: string[] = [];
		if (file !== this.lastFile) lines.push(printable(file));
		this.lastFile = file;
		const counting = report.findings.filter(({ switchedOff }) => switchedOff === null);
		const off = report.findings.filter(({ switchedOff }) => switchedOff !== null);
		lines.push(`  ${printable(report.name)}: ${verdict(report, counting.length)}`);
		for (const notice of report.notices) lines.push(`    (${printable(notice)})`);
		for (const finding of counting) lines.push(...findingLines(finding));
		for (const { rule, node, switchedOff } of off) {
			lines.push(
				`    switched off: ${rule}${node === null ? '' : ` on "${printable(node)}"`} (${printable(switchedOff!.reason)})`,
			);
		}
		if (report.effects.length > 0) {
			lines.push('    Outside calls');
			for (const effect of report.effects) lines.push(...effectLines(effect));
		}
		for (const { node, workflow, effects } of report.calls) {
			const what =
				effects === null ? 'not given' : effects.length === 0 ? 'no effect' : some(effects);
			lines.push(
				`    "${printable(node)}" calls ${printable(workflow ?? 'a workflow that cannot be seen')}: ${printable(what)}`,
			);
		}
		let list = '';
		for (const each of report.questions) {
			if (each.list !== list)
				lines.push(`    ${each.list === 'audit' ? 'Audit' : 'Before go-live'}`);
			list = each.list;
			const mark = each.good === null ? '-' : each.good ? '+' : '!';
			lines.push(`      ${mark} ${each.question} ${printable(each.answer)}`);
		}
		return `${lines.join('\n')}\n\n`;
	}

	problem({ file, problem }: Problem): string {
		this.lastFile = null;
		return `${printable(file)}\n  ${printable(problem)}\n\n`;
	}

	end({ files, workflows, effects, findings, switchedOff, problems }: Totals): string {
		const counted = (count: number, one: string, many: string) =>
			`${count} ${count === 1 ? one : many}`;
		const parts = [
			counted(findings.error, 'error', 'errors'),
			counted(findings.warning, 'warning', 'warnings'),
			counted(findings.note, 'note', 'notes'),
		];
		return `${counted(workflows, 'workflow', 'workflows')} in ${counted(files, 'file', 'files')}, ${counted(effects, 'step with an effect', 'steps with effects')}: ${parts.join(', ')}${switchedOff > 0 ? `, ${switchedOff} switched off` : ''}${problems > 0 ? `; ${counted(problems, 'file', 'files')} not checked` : ''}.\n`;
	}
}

function verdict({ effects, calls, nodes }: WorkflowReport, findings: number): string {
	if (findings > 0) return `${findings} ${findings === 1 ? 'finding' : 'findings'}`;
	if (effects.length > 0) return 'nothing found';
	if (calls.length > 0) return 'nothing found; its own steps have no effect';
	return nodes === 0 ? 'no nodes' : 'nothing here has an effect; running twice harms nobody';
}

function findingLines({ rule, severity, node, message, twice, fix }: Finding): string[] {
	return [
		`    ${severity.toUpperCase()} ${rule}${node === null ? '' : ` at "${printable(node)}"`}`,
		`      ${printable(message)}`,
		`      Twice: ${printable(twice)}`,
		`      Fix: ${printable(fix)}`,
	];
}

function effectLines({ node, what, guard, tier, tierKnown, advice, tool }: EffectReport): string[] {
	const known = tierKnown ? '' : ' (assumed)';
	return [
		`      "${printable(node)}": ${printable(what)}${tool ? ', a tool of an agent' : ''}; guard: ${guard}; tier ${tier}${known}`,
		`        ${printable(advice)}`,
	];
}

/** Without what would steer a terminal or turn text around: names come from files of others. */
export function printable(text: string): string {
	return text
		.replace(/\s+/g, ' ')
		.replace(/[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, '')
		.slice(0, 2000);
}
