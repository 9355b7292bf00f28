import type { Decision, Explanation, MessageReport, WorkReport } from '../../ledger';

/** A work's history in sentences: the answer to "why was this a duplicate?". */
export function story({ work, history, more }: Explanation): string[] {
	return [
		...(more ? ['(There is older history than this.)'] : []),
		...history.map(sentence),
		...(work?.decisionKey
			? [`It carries out decision ${work.decisionKey} (Cache LLM Decision → Get shows it).`]
			: []),
		work === null ? absence(history) : `Now: ${standing(work)}`,
	];
}

function absence(history: Decision[]): string {
	if (history.some(({ event }) => event === 'look_up')) {
		return "Now: no work has this name; it is a model's decision (Cache LLM Decision → Get shows it).";
	}
	return history.every(({ event }) => event === 'check_evidence')
		? 'Now: no work has this name; it is a record whose evidence was checked.'
		: 'Now: the ledger holds no such work any more.';
}

/** Where a work stands, in one sentence. */
export function standing(work: WorkReport): string {
	const by = work.owner.execution === undefined ? '' : ` by execution ${work.owner.execution}`;
	if (work.onLapse === 'shadow' && work.state === 'failed') {
		return `let through in shadow mode, and not done (${work.lastError ?? 'no reason given'})${work.outcomeKnown ? '' : '; its effect may have landed'}. Nothing retries it; the next delivery may claim it from ${work.nextAttemptAt}.`;
	}
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
			return `dead after ${work.attempt} ${work.attempt === 1 ? 'attempt' : 'attempts'}: ${work.lastError ?? 'no reason given'}. ${work.outcomeKnown ? 'Mend the cause, then replay it.' : 'Its effect may have landed: look at the target system, then resolve or replay it.'}`;
	}
}

function sentence(decision: Decision): string {
	const { fired, checked } = decision;
	const who =
		fired?.execution === undefined
			? fired?.mode === 'trigger' && fired.workflow_name !== undefined
				? `the trigger of "${fired.workflow_name}"`
				: 'somebody outside n8n, or a person'
			: `execution ${fired.execution}${fired.workflow_name === undefined ? '' : ` of "${fired.workflow_name}"`}${fired.mode === 'manual' ? ' (manual)' : ''}`;
	// who used an action link says so, on top of the execution that the link led to
	const person = fired?.by === undefined ? '' : `${fired.by}, by `;
	const action =
		decision.detail?.action === undefined ? '' : ` (${String(decision.detail.action)})`;
	const found = checked?.found === undefined ? '' : `, found it ${String(checked.found)}`;
	const window = (checked?.window as { mode?: string } | undefined)?.mode;
	const why =
		decision.event !== 'claim' || decision.outcome !== 'duplicate'
			? ''
			: `: it was done at ${String(checked?.completedAt ?? 'an earlier time')}${checked?.owner === undefined ? '' : ` by execution ${String(checked.owner)}`}, and the window is ${(window ?? 'forever').replace('_', ' ')}`;
	const said = decision.detail?.error ?? refusalOf(decision);
	const error = said === undefined ? lacking(decision) : `: ${String(said)}`;
	const reference = decision.externalRef === null ? '' : ` (reference ${decision.externalRef})`;
	const attempt = decision.attempt === null ? '' : `, attempt ${decision.attempt}`;
	return `${decision.at}: ${person}${who} asked for ${decision.event.replace('_', ' ')}${action}${found} → ${outcomeOf(decision)}${attempt}${why}${error}${reference}.`;
}

/** In shadow mode nothing was held back, and what came without a claim had nothing to settle. */
function outcomeOf({ event, outcome, checked }: Decision): string {
	const said = outcome.replaceAll('_', ' ');
	if (checked?.shadow !== true) return said;
	if (event !== 'claim') return 'nothing to settle: shadow mode had let it through without a claim';
	return outcome === 'claimed'
		? 'claimed, in shadow mode'
		: `would have been ${said}, but shadow mode let it through`;
}

/** Why a link was not redeemed or a checkpoint not moved. */
function refusalOf({ event, detail }: Decision): unknown {
	return event === 'redeem_link' || event === 'save_checkpoint' ? detail?.reason : undefined;
}

/** What a check of evidence did not find: by the record, and by the ledger. */
function lacking({ event, checked, detail }: Decision): string {
	if (event !== 'check_evidence') return '';
	const onRecord = (detail?.missing ?? []) as Array<{ rule?: string; reason: string }>;
	const inLedger = (checked?.ledger ?? []) as Array<{
		rule: string;
		holds: boolean;
		needed: boolean;
		state?: string;
		external_ref?: string;
	}>;
	const listed = [
		...onRecord.map(({ rule, reason }) => (rule === undefined ? reason : `"${rule}" (${reason})`)),
		...inLedger
			.filter(({ holds, needed }) => needed && !holds)
			.map(
				({ rule, state, external_ref: reference }) =>
					`"${rule}" (the ledger: ${state ?? 'no such work'}${reference === undefined ? '' : `, reference ${reference}`})`,
			),
	];
	return listed.length === 0 ? '' : `: ${listed.join(', ')}`;
}

/** Where a message stands, in one sentence. */
export function messageStanding(message: MessageReport): string {
	const what = `"${message.preview ?? message.messageRef.slice(0, 10)}" to chat ${message.chatId}`;
	const parts =
		message.parts > 1 ? ` ${message.sentParts} of ${message.parts} parts are on record.` : '';
	switch (message.state) {
		case 'unknown':
			return `${what} may have arrived: ${message.lastError ?? 'nobody knows'}${parts} Look into the chat, then resolve it.`;
		case 'sent':
			return `${what} was sent at ${message.sentAt}.`;
		case 'sending':
		case 'reserved':
			return `${what} is being sent until ${message.lockedUntil}.${parts}`;
		default:
			return `${what} was not sent: ${message.lastError ?? 'no reason given'}${parts}`;
	}
}
