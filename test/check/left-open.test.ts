import { checkTogether, readWorkflowValue } from '../../check';
import { workflow } from './fixtures';

/** Ways on which a claim stays open, an effect is tried again under one claim, or a key is made anew, as people wire them. */

type Json = Record<string, unknown>;
const node = (name: string, type: string, parameters: Json = {}, more: Json = {}) => ({
	...{ name, type: `n8n-nodes-base.${type}`, parameters, typeVersion: 2 },
	...more,
});
const own = (name: string, type: string, parameters: Json = {}, more: Json = {}) => ({
	...{ name, type: `n8n-nodes-idempotency.${type}`, parameters },
	...more,
});
const post = { method: 'POST', url: 'https://billing.example/invoices' };
const onError = 'continueErrorOutput';
const NODES = [
	node('Hook', 'webhook'),
	own('Claim', 'claimWork', { kind: 'invoice', keyFields: 'id' }),
	node('Invoice', 'httpRequest', post, { typeVersion: 4.2, onError }),
	own('Complete', 'completeWork'),
	own('Fail', 'completeWork', { operation: 'fail' }),
	node('Look', 'httpRequest', { url: 'https://a.example/b' }, { typeVersion: 4.2 }),
	node('Wait', 'wait', { amount: 5 }, { typeVersion: 1.1 }),
	node('Loop', 'splitInBatches', {}, { typeVersion: 3 }),
];
type Way = [from: string, to: string, output?: number];
const GOOD: Way[] = [
	['Hook', 'Claim'],
	['Claim', 'Invoice'],
	['Invoice', 'Complete'],
	['Invoice', 'Fail', 1],
];

/** "rule @ node: message" of all findings. */
function found(ways: Way[], changed: Array<Json & { name: string; type: string }> = []): string[] {
	const nodes = [
		...NODES.filter(({ name }) => !changed.some((each) => each.name === name)),
		...changed,
	];
	const named = new Set(ways.flatMap(([from, to]) => [from, to]));
	const flow = workflow(
		nodes.filter(({ name }) => named.has(name)),
		ways,
		{ settings: { errorWorkflow: 'x' } },
	);
	return checkTogether(readWorkflowValue(flow).workflows).flatMap(({ findings }) =>
		findings.map(({ rule, node: at, message }) => `${rule} @ ${at}: ${message}`),
	);
}

/** Another node between the claim and the effect. */
const between = (name: string): Way[] => [
	['Hook', 'Claim'],
	['Claim', name],
	[name, 'Invoice'],
	...GOOD.slice(2),
];

test('the recommended wiring draws nothing', () => {
	expect(found(GOOD)).toEqual([]);
});

test('an effect whose failure is settled and whose success is not leaves the claim open', () => {
	const [open] = found([...GOOD.slice(0, 2), ['Invoice', 'Fail', 1]]);
	expect(open).toMatch(/^claim-left-open @ Claim: .*what "Invoice" gives in success goes nowhere/);
	expect(found([...GOOD.slice(0, 2), ['Invoice', 'Look'], ['Invoice', 'Fail', 1]])[0]).toMatch(
		/^claim-left-open @ Claim: .*it ends at "Look"/,
	);
	expect(found([...GOOD, ['Invoice', 'Look']])).toEqual([]);
});

test.each(['limit', 'removeDuplicates'])('what %s drops stays claimed', (type) => {
	const [open] = found(between('Fewer'), [node('Fewer', type)]);
	expect(open).toMatch(/^claim-left-open @ Claim: .*what "Fewer" drops goes nowhere/);
});

test.each([
	[
		'between',
		between('Look'),
		node('Look', 'httpRequest', { url: 'https://a.example/b' }, { executeOnce: true }),
	],
	['the completion itself', GOOD, own('Complete', 'completeWork', {}, { executeOnce: true })],
] as Array<[string, Way[], ReturnType<typeof node>]>)(
	'with Execute Once, %s, all items but the first stay claimed',
	(_, ways, once) => {
		const [open] = found(ways, [once]);
		expect(open).toMatch(/^claim-left-open @ Claim: .*takes the first item only \(Execute Once\)/);
	},
);

describe('an effect whose error output leads back to it', () => {
	test('is tried again under one claim, which does not see it', () => {
		const back: Way[] = [...GOOD.slice(0, 3), ['Invoice', 'Wait', 1], ['Wait', 'Invoice']];
		expect(found([...back, ['Wait', 'Fail']]).join()).toMatch(
			/loop-repeats-effect @ Invoice: Its error output leads back to it/,
		);
	});

	test('by the next item of a loop, with a claim of its own, is not', () => {
		const loop: Way[] = [
			['Hook', 'Loop'],
			['Loop', 'Claim', 1],
			...GOOD.slice(1),
			['Complete', 'Loop'],
			['Fail', 'Loop'],
		];
		expect(found(loop)).toEqual([]);
	});
});

test.each([
	[
		'Crypto',
		node('Fill', 'crypto', { action: 'generate', dataPropertyName: 'id' }),
		'a random value',
	],
	['Date & Time', node('Fill', 'dateTime', { outputFieldName: 'id' }), 'the current time'],
	['Code', node('Fill', 'code', { jsCode: 'item.json.id = Date.now()' }), 'Date.now'],
	[
		'Code, in an object',
		node('Fill', 'code', { jsCode: 'return { "id": crypto.randomUUID() }' }),
		'random',
	],
] as Array<[string, ReturnType<typeof node>, string]>)(
	'a key that %s makes anew is found',
	(_, fill, source) => {
		const ways: Way[] = [['Hook', 'Fill'], ['Fill', 'Claim'], ...GOOD.slice(1)];
		expect(found(ways, [fill]).join()).toMatch(
			new RegExp(`^volatile-key @ Claim: .*"id", which "Fill" makes from .*${source}`),
		);
	},
);

test.each([
	['another field', 'item.json.at = Date.now()'],
	['a date of the item', 'item.json.id = new Date(item.json.created).getTime()'],
	['a comparison', 'if (item.json.id === Date.now()) return []'],
])('code that fills %s draws nothing', (_, jsCode) => {
	expect(
		found(
			[['Hook', 'Fill'], ['Fill', 'Claim'], ...GOOD.slice(1)],
			[node('Fill', 'code', { jsCode })],
		),
	).toEqual([]);
});
