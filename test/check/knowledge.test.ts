import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import type { INodeProperties, INodeType } from 'n8n-workflow';

import { checkTogether, readWorkflowText } from '../../check';
import { knownOperations } from '../../check/knowledge/operations';
import { ownName } from '../../check/knowledge/own-nodes';
import { deedOfSql } from '../../check/knowledge/sql';
import { stepOf } from '../../check/knowledge/steps';
import type { WorkflowNode } from '../../check/workflow';
import { short } from './fixtures';

const ROOT = path.join(__dirname, '../..');

/** In the examples, by a sticky note that says why. */
const SWITCHED_OFF = new Set([
	// the call begins the same flow anew, and that flow's claim guards the action
	'error unguarded-effect @ Deliver the Case Again (off)',
	// delivering twice is what that example is for, and a person starts it and looks
	'warning unguarded-effect @ Deliver Twice (off)',
	'warning failure-unhandled (off)',
]);

const node = (type: string, parameters: Record<string, unknown> = {}, typeVersion = 1) =>
	({
		...{ index: 0, name: 'n', type, typeVersion, parameters, disabled: false },
		...{ onError: 'stop', retryOnFail: false, alwaysOutputData: false, executeOnce: false },
	}) satisfies WorkflowNode;

/** "reads", "doubles", "converges", …; "assumed" for an effect that could not be seen. */
function does(type: string, parameters: Record<string, unknown> = {}, typeVersion = 1): string {
	const step = stepOf(node(type, parameters, typeVersion));
	if (step.does !== 'writes') return step.does;
	return step.effect.certain ? step.effect.repeats : 'assumed';
}

function* operationsOfN8n() {
	for (const [type, versions] of knownOperations()) {
		for (const { versions: numbers, operations } of versions) {
			for (const [resource, names] of Object.entries(operations)) {
				for (const operation of names) {
					const chosen = resource === '' ? { operation } : { resource, operation };
					yield { type, chosen, operation, version: numbers[0] };
				}
			}
		}
	}
}

describe("n8n's own nodes", () => {
	test('what each of their operations does is known, but for commands', () => {
		let count = 0;
		const assumed: string[] = [];
		for (const { type, chosen, version } of operationsOfN8n()) {
			count++;
			if (does(type, chosen, version) === 'assumed') {
				assumed.push(`${type} ${Object.values(chosen).join(' ')}`);
			}
		}
		expect(count).toBeGreaterThan(3000);
		expect(assumed.filter((each) => !/^n8n-nodes-base\.ssh /.test(each))).toEqual([
			'n8n-nodes-base.airtop window takeScreenshot',
			'n8n-nodes-base.segment track event',
		]);
	});

	test('nothing that only reads alarms', () => {
		const alarms: string[] = [];
		const reading =
			/^(get|list|search|read|find(?!OneAnd)|lookup|download|count|exist|check|describe)/;
		for (const { type, chosen, operation, version } of operationsOfN8n()) {
			const found = does(type, chosen, version);
			if (reading.test(operation) && !['reads', 'nothing', 'model'].includes(found)) {
				alarms.push(`${type} ${Object.values(chosen).join(' ')}: ${found}`);
			}
		}
		expect(alarms).toEqual([]);
	});

	test('nothing that creates, sends or deletes passes as a reading', () => {
		const missed: string[] = [];
		// answers of models and sources of text, whatever they call their operations
		const exempt = /(?:Embedding|createResponse|createContextualized)$/;
		const acting =
			/^(create|send|post|insert|append|add|delete|remove|update|upsert|upload|publish)/;
		for (const { type, chosen, operation, version } of operationsOfN8n()) {
			if (
				acting.test(operation) &&
				!exempt.test(operation) &&
				does(type, chosen, version) === 'reads'
			) {
				missed.push(`${type} ${operation}`);
			}
		}
		expect(missed).toEqual([]);
	});

	test('an operation that the export leaves out is the default of its version', () => {
		expect(does('n8n-nodes-base.googleSheets', {}, 4.5)).toBe('reads');
		expect(does('n8n-nodes-base.slack', {}, 2.2)).toBe('doubles');
		expect(does('n8n-nodes-base.postgres', {}, 2.5)).toBe('doubles');
		expect(does('n8n-nodes-base.airtable', {}, 1)).toBe('reads');
		expect(does('n8n-nodes-base.stripe', {}, 1)).toBe('reads');
		expect(does('n8n-nodes-base.gmail', {}, 1)).toBe('doubles');
		expect(does('n8n-nodes-base.gmail', { resource: 'label' }, 2)).toBe('reads');
	});
});

describe('HTTP requests', () => {
	const http = (parameters: object) => does('n8n-nodes-base.httpRequest', { ...parameters }, 4.2);
	const at = 'https://a.example/api/orders';

	test.each([
		[{ url: at }, 'reads'],
		[{ url: at, method: 'HEAD' }, 'reads'],
		[{ url: at, method: 'POST' }, 'doubles'],
		[{ url: at, method: 'PUT' }, 'converges'],
		[{ url: at, method: 'DELETE' }, 'converges'],
		[{ url: at, method: '={{ $json.method }}' }, 'assumed'],
		[{ url: at, requestMethod: 'POST' }, 'doubles'],
		[{ url: '={{ $json.url }}', method: 'POST' }, 'doubles'],
		[{ url: 'https://a.example/v1/search?x=1', method: 'POST' }, 'reads'],
		[{ url: '=https://a.example/{{ $json.db }}/query', method: 'POST' }, 'reads'],
		[{ url: 'https://a.example/oauth/token', method: 'POST' }, 'reads'],
		[{ url: 'https://api.openai.com/v1/chat/completions', method: 'POST' }, 'model'],
		[{ url: 'https://api.anthropic.com/v1/messages', method: 'POST' }, 'model'],
		[{ url: 'https://a.example/v1/messages', method: 'POST' }, 'doubles'],
		[{ url: 'https://a.example/v1/chat/completions', method: 'POST' }, 'model'],
		[{ url: 'https://a.example/collections/b/points/scroll', method: 'POST' }, 'reads'],
		[{ url: 'https://a.example/orders/7/cancel', method: 'POST' }, 'converges'],
		[
			{ url: 'https://a.example/graphql', method: 'POST', jsonBody: '{"query": "query { a }"}' },
			'reads',
		],
		[
			{
				...{ url: 'https://a.example/graphql', method: 'POST' },
				jsonBody: '{"query": "mutation { b }"}',
			},
			'doubles',
		],
		[{ url: 'https://a.example/graphql', method: 'POST', jsonBody: '={{ $json }}' }, 'assumed'],
		[
			{
				...{ url: 'https://a.example/2026-01/graphql.json', method: 'POST' },
				jsonBody: '{"query": "{ orders { id } }"}',
			},
			'reads',
		],
		[
			{
				...{ url: 'https://api.monday.com/v2', method: 'POST' },
				jsonBody: '{"query": "query ($id: ID!) { boards { id } }"}',
			},
			'reads',
		],
		[
			{ url: 'https://a.example/answers', method: 'POST', jsonBody: '{"query": "query for a"}' },
			'doubles',
		],
		[
			{
				...{ url: 'https://a.supabase.co/rest/v1/orders', method: 'POST' },
				headerParameters: {
					parameters: [{ name: 'Prefer', value: 'resolution=merge-duplicates' }],
				},
			},
			'converges',
		],
		// a GET that acts
		[{ url: '=https://api.telegram.org/bot{{ $env.T }}/sendMessage?text=a' }, 'assumed'],
		[{ url: 'https://api.telegram.org/bot1/getUpdates' }, 'reads'],
		[{ url: 'https://hooks.zapier.com/hooks/catch/1/2' }, 'assumed'],
		[{ url: 'https://n8n.example/webhook/a' }, 'assumed'],
		[{ url: 'https://sms.example/api/send?to=1' }, 'assumed'],
		[{ url: 'https://a.example/api/sender/7' }, 'reads'],
		[{ url: 'https://a.example/api/webhooks' }, 'reads'],
		...['creations', 'senders', 'triggers', 'charges', 'created'].map((last): [object, string] => [
			{ url: `https://a.example/api/${last}` },
			'reads',
		]),
		[{ url: 'https://a.example/api/sendMessage.php' }, 'assumed'],
	])('%j', (parameters, expected) => {
		expect(http(parameters)).toBe(expected);
	});

	test('an idempotency key is found in headers, JSON headers and bodies', () => {
		const keyOf = (parameters: Record<string, unknown>) => {
			const step = stepOf(
				node('n8n-nodes-base.httpRequest', { method: 'POST', ...parameters }, 4.2),
			);
			return step.does === 'writes' ? step.effect.key?.raw : undefined;
		};
		const list = (name: string, value: string) => ({
			headerParameters: { parameters: [{ name, value }] },
		});
		expect(keyOf(list('Idempotency-Key', '={{ $json.id }}'))).toBe('={{ $json.id }}');
		expect(keyOf(list('PayPal-Request-Id', 'a'))).toBe('a');
		expect(keyOf(list('Accept', 'text/html'))).toBeUndefined();
		expect(keyOf(list('Idempotency-Key', ''))).toBeUndefined();
		expect(keyOf({ jsonHeaders: '{"Idempotency-Key": "{{ $json.id }}"}' })).toBe('={{ $json.id }}');
		expect(keyOf({ jsonBody: '={{ { idempotency_key: $json.id, a: 1 } }}' })).toBeUndefined();
		expect(keyOf({ jsonBody: '={{ { "idempotency_key": $json.id, a: 1 } }}' })).toBe(
			'={{ $json.id }}',
		);
	});
});

test.each([
	['select 1', 'reads'],
	["SELECT * FROM a WHERE note = 'insert into b' -- delete from c", 'reads'],
	['with a as (select 1) select * from a for update', 'reads'],
	['with a as (insert into b values (1) returning *) select * from a', 'doubles'],
	['insert into a values (1)', 'doubles'],
	['INSERT INTO a VALUES (1) ON CONFLICT DO NOTHING', 'converges'],
	['insert ignore into a values (1)', 'converges'],
	['merge into a using b on a.id = b.id when not matched then insert values (1)', 'converges'],
	['update a set b = 2 where id = 1', 'converges'],
	['update a set b = b + 1 where id = 1', 'doubles'],
	['update a set b = coalesce(a.b, 0) + 1', 'doubles'],
	["update a set note = note || ', seen'", 'doubles'],
	['update a set tags = array_append(tags, 1)', 'doubles'],
	["update a set name = name ->> 'de'", 'converges'],
	['update a set "n" = "a"."n" + 1', 'doubles'],
	['update a set total_price = price * 2', 'converges'],
	['insert into a values (1) on conflict (id) do update set n = a.n + 1', 'doubles'],
	['insert into a values (1) on conflict (id) do update set n = excluded.n * 2', 'converges'],
	['insert into a values (1) on duplicate key update n = n + 1', 'doubles'],
	['insert a (b) values (1)', 'doubles'],
	['delete from a', 'converges'],
	['truncate a', 'converges'],
	['call pay(7)', 'unknown'],
	['={{ $json.sql }}', 'unknown'],
	['-- open orders\nselect * from orders', 'reads'],
	['/* nightly */ SELECT 1', 'reads'],
	['# open orders\nSELECT * FROM orders', 'reads'],
	['(select 1) union (select 2)', 'reads'],
	['select "update", `create` from orders', 'reads'],
	['-- a comment\nupdate "create" set a = 1', 'converges'],
	["with a as (select b #> '{c}' from d) insert into e select * from a", 'doubles'],
	['=select * from {{ $json.table }}', 'reads'],
	['', 'nothing'],
])('the SQL %j %s', (sql, expected) => {
	expect(deedOfSql(sql)).toBe(expected);
});

test.each([
	['return items;', 'nothing'],
	['const r = await this.helpers.httpRequest({ url });', 'reads'],
	["await this.helpers.httpRequest({ method: 'POST', url });", 'assumed'],
	["// fetch('x', { method: 'POST' })\nreturn [];", 'nothing'],
	["requests.post('https://a.example')", 'assumed'],
	["axios({ method: 'post', url })", 'assumed'],
	["this.helpers.httpRequestWithAuthentication.call(this, 'a', { method: 'PUT', url })", 'assumed'],
	["this.helpers.requestOAuth2.call(this, 'a', { url })", 'reads'],
	['await this.helpers.httpRequest({ method, url })', 'assumed'],
	["client.query('insert into a values (1)')", 'assumed'],
	["client.query('select 1')", 'nothing'],
	['mailer.sendMail({})', 'assumed'],
	["require('child_process').execSync('pay')", 'assumed'],
	['seen.delete(id); const data = items;', 'nothing'],
])('the code %j %s', (jsCode, expected) => {
	expect(does('n8n-nodes-base.code', { jsCode }, 2)).toBe(expected);
});

test.each([
	['n8n-nodes-some.thing', { operation: 'createOrder' }, 'doubles'],
	['n8n-nodes-some.thing', { operation: 'getMany' }, 'reads'],
	['n8n-nodes-some.thing', { operation: 'upsertOrder' }, 'converges'],
	['n8n-nodes-some.thing', { operation: 'bulkUpdate' }, 'converges'],
	['n8n-nodes-some.thing', { operation: 'frobnicate' }, 'assumed'],
	['n8n-nodes-some.thing', {}, 'assumed'],
	['n8n-nodes-some.thingTrigger', {}, 'nothing'],
])('the community node %s with %j %s', (type, parameters, expected) => {
	expect(does(type, parameters)).toBe(expected);
});

describe('the nodes of this package', () => {
	const manifest = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
		n8n: { nodes: string[] };
	};
	const classes = manifest.n8n.nodes.map((file) => path.basename(file, '.node.js'));
	const loaded = new Map<string, INodeType>();
	const load = (name: string): INodeType => loaded.get(name)!;

	beforeAll(async () => {
		for (const name of classes) {
			const file = path.join(ROOT, 'nodes', name, `${name}.node`);
			const module = (await import(file)) as Record<string, new () => INodeType>;
			loaded.set(name, new module[name]());
		}
	});

	test('are all known to the check', () => {
		expect(
			classes.filter(
				(name) => ownName(`n8n-nodes-idempotency.${load(name).description.name}`) === null,
			),
		).toEqual([]);
	});

	test('have the parameters and defaults that the rules read', () => {
		const find = (properties: INodeProperties[], name: string) =>
			properties.find((property) => property.name === name);
		const of = (name: string) => load(name).description.properties;
		const claimOptions = find(of('ClaimWork'), 'options')!.options as INodeProperties[];
		expect(find(of('ClaimWork'), 'identity')!.default).toBe('fields');
		expect(find(claimOptions, 'leaseSeconds')!.default).toBe(3600);
		for (const name of ['keyFields', 'contentFields', 'key', 'kind', 'version']) {
			expect(find(of('ClaimWork'), name)).toBeDefined();
		}
		for (const name of ['allowVolatileKey', 'storePayload']) {
			expect(find(claimOptions, name)).toBeDefined();
		}
		expect(find(of('CompleteWork'), 'operation')!.default).toBe('complete');
		expect(find(of('CacheLlmDecision'), 'operation')!.default).toBe('lookUp');
		const events = find(of('WorkLedgerTrigger'), 'event')!.options as Array<{ value: string }>;
		expect(events.map(({ value }) => value)).toContain('retry_due');
	});
});

test.each(readdirSync(path.join(ROOT, 'workflows')).filter((file) => file.endsWith('.json')))(
	'the package’s own example %s raises no alarm',
	(file) => {
		const text = readFileSync(path.join(ROOT, 'workflows', file), 'utf8');
		const { workflows, problems } = readWorkflowText(text);
		expect(problems).toEqual([]);
		const reports = checkTogether(workflows);
		const findings = reports.flatMap((report) => report.findings.map(short));
		expect(findings.filter((each) => !each.startsWith('note ') && !SWITCHED_OFF.has(each))).toEqual(
			[],
		);
		expect(reports.flatMap(({ notices }) => notices)).toEqual([]);
	},
);
