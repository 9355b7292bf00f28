import type { Decision, Explanation, WorkReport } from '../../ledger';

/** A work's history in sentences: the answer to "why was this a duplicate?". */
export function story({ work, history, more }: Explanation): string[] {
	return [
		...(more ? ['(There is older history than this.)'] : []),
		...history.map(sentence),
		work === null ? 'Now: the ledger holds no such work any more.' : `Now: ${standing(work)}`,
	];
}

/** Where a work stands, in one sentence. */
export function standing(work: WorkReport): string {
	const by = work.owner.execution === undefined ? '' : ` by execution ${work.owner.execution}`;
	switch (work.state) {
		case 'running':
			return work.lapsed
				? `running${by}, but its lease ended at ${work.lockedUntil} without a report; the next claim or sweep settles it.`
				: `running${by}, attempt ${work.attempt} of ${work.maxAttempts}; its lease ends at ${work.lockedUntil}.`;
		case 'done':
			return `done at ${work.completedAt}${by}${work.externalRef === null ? '' : `, reference ${work.externalRef}`}${work.resultPurged ? '; its result was purged' : ''}.`;
		case 'failed':
			return `failed (${work.lastError ?? 'no reason given'})${work.outcomeKnown ? '' : '; its effect may have landed'}; due at ${work.nextAttemptAt}${work.payload === null ? ', when it is delivered again' : ''}.`;
		case 'held':
			return `held: ${work.lastError ?? 'nobody knows whether the effect landed'}. Resolve it: did it land?`;
		case 'dead':
			return `dead after ${work.attempt} ${work.attempt === 1 ? 'attempt' : 'attempts'}: ${work.lastError ?? 'no reason given'}. Mend the cause, then replay it.`;
	}
}

function sentence(decision: Decision): string {
	const { fired, checked } = decision;
	const who =
		fired?.execution === undefined
			? 'somebody outside n8n, or a person'
			: `execution ${fired.execution}${fired.workflow_name === undefined ? '' : ` of "${fired.workflow_name}"`}${fired.mode === 'manual' ? ' (manual)' : ''}`;
	const found = checked?.found === undefined ? '' : `, found it ${String(checked.found)}`;
	const window = (checked?.window as { mode?: string } | undefined)?.mode;
	const why =
		decision.event !== 'claim' || decision.outcome !== 'duplicate'
			? ''
			: `: it was done at ${String(checked?.completedAt ?? 'an earlier time')}${checked?.owner === undefined ? '' : ` by execution ${String(checked.owner)}`}, and the window is ${(window ?? 'forever').replace('_', ' ')}`;
	const error = decision.detail?.error === undefined ? '' : `: ${String(decision.detail.error)}`;
	const reference = decision.externalRef === null ? '' : ` (reference ${decision.externalRef})`;
	const attempt = decision.attempt === null ? '' : `, attempt ${decision.attempt}`;
	return `${decision.at}: ${who} asked for ${decision.event.replace('_', ' ')}${found} → ${decision.outcome.replace('_', ' ')}${attempt}${why}${error}${reference}.`;
}
