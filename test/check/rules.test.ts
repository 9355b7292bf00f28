import { readFileSync } from 'node:fs';
import path from 'node:path';

import { RULES } from '../../check';
import { checked, findingsOf, fixtureNames } from './fixtures';

const page = readFileSync(path.join(__dirname, '../../docs/workflow-check.md'), 'utf8');

/** What the bad workflow of each rule draws, exactly; the good one draws nothing unless it stands here. */
const EXPECTED: Record<string, string[]> = {
	'agent-tool-unguarded.bad': ['error agent-tool-unguarded @ Refund'],
	'answer-not-stored.bad': ['warning answer-not-stored @ Create Invoice'],
	'claim-covers-many.bad': ['warning claim-covers-many @ Create Shipment'],
	'claim-left-open.bad': [
		'error claim-left-open @ Claim Work',
		'warning failure-not-settled @ Create Invoice',
	],
	'completed-before-effect.bad': ['error completed-before-effect @ Create Invoice'],
	'delivery-key.bad': ['error delivery-key @ Claim Work'],
	'effect-behind-duplicate.bad': ['error effect-behind-duplicate @ Create Invoice'],
	'failure-not-settled.bad': [
		'warning failure-not-settled @ Create Invoice',
		'warning failure-unhandled',
	],
	// the target tells duplicates apart, by the key
	'failure-unhandled.bad': ['note unguarded-effect @ Create Invoice', 'warning failure-unhandled'],
	'failure-unhandled.good': ['note unguarded-effect @ Create Invoice'],
	'guard-always-output-data.bad': ['warning guard-always-output-data @ Claim Work'],
	'guard-disabled.bad': [
		'error unguarded-effect @ Create Invoice',
		'error guard-disabled @ Claim Work',
	],
	'guard-shadow.bad': [
		'error unguarded-effect @ Create Invoice',
		'warning guard-shadow @ Claim Work',
	],
	'lock-forgets.bad': ['warning lock-forgets @ Claim Work'],
	'loop-repeats-effect.bad': [
		'error unguarded-effect @ Create Invoice',
		'error loop-repeats-effect @ Create Invoice',
	],
	'retry-repeats-effect.bad': ['warning retry-repeats-effect @ Create Invoice'],
	'schedule-overlaps.bad': [
		'error unguarded-effect @ Create Invoice',
		'warning schedule-overlaps @ Every 5 Minutes',
	],
	'stage-before-reference.bad': ['warning stage-before-reference @ Move Deal'],
	'unguarded-effect.bad': [
		'error unguarded-effect @ Create Invoice',
		'error unguarded-effect @ Tell Somebody',
	],
	'volatile-key.bad': ['error volatile-key @ Claim Work'],
	'wait-outlasts-lease.bad': ['warning wait-outlasts-lease @ Wait'],
	'wait-resumes-twice.bad': ['warning wait-resumes-twice @ Wait'],
	'workflow-not-given.bad': ['note workflow-not-given @ Run Sub-Workflow'],
};

describe.each(RULES.map(({ id }) => id))('%s', (id) => {
	test('its bad workflow draws it, and nothing that is not expected', () => {
		const [found] = findingsOf(`${id}.bad`);
		expect(found).toEqual(EXPECTED[`${id}.bad`]);
		expect(found.join('\n')).toContain(` ${id}`);
	});

	test('its good workflow does not', () => {
		expect(findingsOf(`${id}.good`)).toEqual([EXPECTED[`${id}.good`] ?? []]);
	});

	test('the page explains it and names both workflows', () => {
		expect(page).toContain(`### ${id}\n`);
		expect(page).toContain(`](../test/check/workflows/${id}.bad.json)`);
		expect(page).toContain(`](../test/check/workflows/${id}.good.json)`);
		const { title, severity } = RULES.find((rule) => rule.id === id)!;
		expect(page).toContain(`| [${id}](#${id}) | ${severity} | ${title} |`);
	});
});

test('a finding says what stands there, what happens when this fires twice, and what to do', () => {
	const bad = fixtureNames().filter((name) => name.endsWith('.bad'));
	const findings = bad.flatMap((name) => checked(name)[0].findings);
	expect(findings.length).toBeGreaterThanOrEqual(RULES.length);
	for (const finding of findings) {
		for (const text of [finding.message, finding.twice, finding.fix]) {
			expect(text).toMatch(/^\S[^\n]{15,}[.}]$/);
		}
	}
});

test('no rule reports worse than it says of itself', () => {
	const order = ['note', 'warning', 'error'];
	for (const name of fixtureNames()) {
		for (const { rule, severity } of checked(name)[0].findings) {
			const worst = RULES.find(({ id }) => id === rule)!.severity;
			expect(order.indexOf(severity)).toBeLessThanOrEqual(order.indexOf(worst));
		}
	}
});
