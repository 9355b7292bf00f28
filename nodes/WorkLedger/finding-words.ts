import type { Finding, ReconciliationSummary } from '../../ledger';

/** What a finding is told with besides itself. */
export interface Told {
	kind: string;
	/** The record's reference; '' for a work without a record. */
	targetRef: string;
	/** The record holds a key or work id. */
	isNamed: boolean;
	/** Records that could not be read. */
	unreadable: number;
	summary: ReconciliationSummary;
	/** Position of a record among the input items. */
	itemOf(record: number): number;
}

/** A finding in a sentence or two: what it is, and what to do about it. */
export function findingWords(finding: Finding, told: Told): string {
	const { key, workId, externalRef, doneAt, by } = finding;
	const { kind, targetRef, summary } = told;
	const work = `${kind} ${key ?? workId ?? ''}`.trim();
	const known = externalRef === null ? 'no reference' : `reference ${externalRef}`;
	switch (finding.status) {
		case 'matched':
			return finding.earlierGeneration === null
				? `${work} was done at ${doneAt}; its record is there, by its ${by}.`
				: `The record is that of an earlier time (generation ${finding.earlierGeneration}) of ${work}, which was begun anew since.`;
		case 'missing_in_target':
			return `${work} was done at ${doneAt} (${known}), and no record of it is among the items.${elsewhere(finding, told)} Look for it in the target system: if it is there, list more records; if it is gone, run the work again on purpose (Work Ledger, Replay).`;
		case 'not_comparable':
			return `${work} was done at ${doneAt} without a reference, and no record names it: there is nothing to compare. Give Complete Work the reference that the target system answers, or name the field in which the records hold the key.`;
		case 'unknown_to_ledger':
			return `No ${kind} that was done from ${summary.from} to ${summary.to}, or within the margin around it, has reference ${targetRef}${told.isNamed ? ', nor does its key name any work of the ledger' : ''}. Find out who made the record: somebody by hand, or a flow without Claim Work. If it is older, raise the margin.`;
		case 'duplicated_in_target':
			return `${duplicate(finding, told, work)} If it is the very same record, the list was read with a page twice; otherwise decide which one stays and remove the others.`;
		case 'different_reference':
			return `The record ${targetRef} names ${work}, which was done (${known}). There may be two effects: look for both in the target system.`;
		case 'different_key':
			return `The record has the reference of ${work}, but its key gives other work, which the ledger does not hold. Check that the key is read from the fields that Claim Work uses; if it is, the record was changed.`;
		case 'not_done':
			return `${notDone(finding, work, targetRef)}${(finding.generation ?? 1) > 1 ? ' The work was begun anew: the record may be that of an earlier time, so compare its date first.' : ''}`;
	}
}

/** The run in one sentence. */
export function summaryWords({
	findings,
	records,
	works,
	unreadable,
}: ReconciliationSummary): string {
	const counts = Object.entries(findings).map(
		([status, count]) => `${count} ${status.replaceAll('_', ' ')}`,
	);
	const left =
		unreadable === 0 ? '' : ` ${unreadable} records could not be read and were left out.`;
	return `${records} records against ${works} works: ${counts.length === 0 ? 'nothing to compare' : counts.join(', ')}.${left}`;
}

function elsewhere({ takenBy }: Finding, { unreadable, itemOf }: Told): string {
	if (takenBy !== null) {
		return ` Its reference is on item ${itemOf(takenBy)}, which belongs to other work.`;
	}
	return unreadable === 0
		? ''
		: ` ${unreadable} ${unreadable === 1 ? 'record' : 'records'} could not be read: it may be one of them.`;
}

function duplicate(finding: Finding, { targetRef, itemOf }: Told, work: string): string {
	const { sameReference, sameWork, records, externalRef, workId } = finding;
	const items = records.map(itemOf).join(', ');
	const more = Math.max(sameReference, sameWork) > records.length ? ', …' : '';
	const whose = workId === null ? 'one key that the ledger does not know' : work;
	return [
		...(sameReference > 1 ? [`${sameReference} records have the reference ${targetRef}`] : []),
		...(sameWork > 1
			? [
					`${sameWork} records belong to ${whose}${externalRef === null ? '' : `, whose reference is ${externalRef}`}`,
				]
			: []),
	]
		.join(' and ')
		.concat(` (items ${items}${more}).`);
}

function notDone(finding: Finding, work: string, targetRef: string): string {
	const { state, outcomeKnown, lapsed, lastError } = finding;
	const why = lastError === null ? '' : ` (${lastError})`;
	if (state === 'running') {
		return lapsed
			? `${work} landed: its record is there, but its owner vanished without a report. When the next claim or sweep has settled it, resolve it as landed with reference ${targetRef} (Work Ledger, Resolve).`
			: `${work} is running until ${finding.lockedUntil}, and its record is there already: its owner is about to say so. Compare again later.`;
	}
	if (state === 'failed' && outcomeKnown === true) {
		return `${work} was reported as not landed${why} and is tried again at ${finding.nextAttemptAt}, but its record is there: the next attempt may make a second one. Remove the record, or stop the flow and find out why it was reported so.`;
	}
	return `${work} is ${state}${why}, but it landed: its record is there. Resolve it as landed with reference ${targetRef} (Work Ledger, Resolve).`;
}
