import type { EffectStep, Opening } from '../analysis';
import { guardFor } from '../knowledge/tiers';
import { way } from './wording';
import type { Found, Rule, Severity } from '../finding';

/** A step with an effect that some way reaches without any claim. */
export const unguardedEffect: Rule = {
	id: 'unguarded-effect',
	title: 'An effect that no claim guards on every way',
	severity: 'error',
	*find(analysis) {
		for (const step of analysis.effects) {
			const { openings } = analysis.standingOf(step.node);
			const ways = openings.filter(({ noClaim }) => noClaim === 'none');
			const found =
				ways.length === 0 ? null : worst(step, ways, analysis.callers.all === 'unknown');
			if (found === null) continue;
			const half = analysis.standingOf(step.node).claimedHere;
			const caller = analysis.callers.open;
			yield {
				node: step.node,
				severity: found.severity,
				message: `${step.effect.what}: ${half ? 'a claim guards some ways here, but not' : 'no claim guards the way'} ${way(found.opening.way)}.${byWhom(found.opening, caller)}`,
				twice: consequence(step),
				fix: guardFor(step),
			} satisfies Found;
		}
	},
};

function worst(
	step: EffectStep,
	ways: Opening[],
	unknownCallers: boolean,
): { severity: Severity; opening: Opening } | null {
	const { effect } = step;
	for (const opening of ways) {
		// an alert about a failure may come twice
		if (opening.start === 'error' && effect.kind === 'message') continue;
		// the target, or what is written, makes the second one harmless: nobody is alarmed
		if (effect.key !== null || effect.repeats === 'converges') return { severity: 'note', opening };
		const mild =
			!effect.certain ||
			opening.start === 'manual' ||
			opening.start === 'error' ||
			(opening.start === 'entry' && unknownCallers);
		return { severity: mild ? 'warning' : 'error', opening };
	}
	return null;
}

function byWhom({ start }: Opening, caller: string | null): string {
	if (start === 'manual') return ' A person starts it, and people click twice.';
	if (start !== 'entry') return '';
	return caller === null
		? ' It is a sub-workflow, and none of the workflows that call it was given.'
		: ` It is called by ${caller}, without a claim there.`;
}

function consequence({ effect }: EffectStep): string {
	if (effect.key !== null) {
		return `Only the target can tell that it is the same work, by ${effect.key.name}; here nobody knows of the second run.`;
	}
	if (effect.repeats === 'converges') {
		return 'The second run does it again: the same values change nothing, but later or older ones overwrite what stands there.';
	}
	switch (effect.kind) {
		case 'money':
			return 'Money moves twice, or two documents about it exist.';
		case 'message':
			return 'The recipient gets it twice.';
		case 'command':
			return 'It runs twice.';
		case 'record':
			return 'Two records exist where there should be one.';
	}
}
