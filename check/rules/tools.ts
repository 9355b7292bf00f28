import type { Analysis } from '../analysis';
import type { WorkflowNode } from '../workflow';
import { some } from './wording';

/** What an agent's tool does that nothing guards; null for a tool that reads or guards itself. `certain`: it doubles. */
export function effectOfTool(
	analysis: Analysis,
	tool: WorkflowNode,
): { what: string; certain: boolean } | null {
	const step = analysis.stepAt(tool);
	if (step.does === 'writes') {
		const { what, certain, repeats, key } = step.effect;
		return { what, certain: certain && repeats === 'doubles' && key === null };
	}
	if (step.does !== 'calls-workflow') return null;
	const survey = analysis.calledBy(tool)?.survey ?? null;
	if (survey === null || survey.openEffects.length === 0) return null;
	return { what: `"${survey.name}" runs ${some(survey.openEffects)}`, certain: true };
}
