import type { IDataObject } from 'n8n-workflow';

import type { LedgerSettings } from '../../ledger';
import { Stage } from '../integration/stage';
import {
	claim,
	complete,
	http,
	nextExecutionId,
	step,
	workLedger,
	type Flow,
	type NodeOfTest,
	type Ran,
} from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

const workOf = (json: IDataObject): IDataObject => json.work as IDataObject;

/** Which orders left Claim Work by which output. */
const left = (ran: Ran): Record<string, unknown[]> =>
	Object.fromEntries(
		['Claimed', 'Duplicate', 'Busy', 'Needs Attention']
			.map((name, output): [string, unknown[]] => [
				name,
				ran.json('Claim Work', output).map(({ order }) => order),
			])
			.filter(([, all]) => all.length > 0),
	);

const states = async (kind: string) =>
	(await stage.rows(kind)).map(({ key, state }) => `${key} ${state}`);

/** An error workflow: Error Trigger → Complete Work. */
const errorWorkflow = async (payload: IDataObject, parameters: IDataObject = {}, more: Partial<Flow> = {}) =>
	await stage.run({
		items: [payload],
		nodes: [complete({ operation: 'failByExecution', ...parameters })],
		...more,
	});

describe('five orders of which the third fails: the next run takes three to six', () => {
	/** Orders are done one by one: Claim → Loop → Effect → Complete → Loop. What happened is in `effects`. */
	const oneByOne = async (kind: string, numbers: number[], failing: number[]) => {
		const effects: unknown[] = [];
		let waiting: Array<{ json: IDataObject }> | null = null;
		const executionId = nextExecutionId();
		const ran = await stage.run({
			executionId,
			items: orders(...numbers),
			nodes: [
				claim(byOrder(kind)),
				step('Loop', (items) => {
					waiting ??= [...items];
					const next = waiting.shift();
					return next === undefined ? [items, []] : [[], [next]];
				}),
				step('Effect', (items) => {
					const { order } = items[0].json;
					if (failing.includes(order as number)) throw new Error(`the target refused order ${String(order)}`);
					effects.push(order);
					return items;
				}),
				complete({ externalRef: '={{ "inv_" + $json.order }}' }),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'Loop'],
				['Loop:1', 'Effect'],
				['Effect', 'Complete Work'],
				['Complete Work', 'Loop'],
			],
		});
		return { ran, effects, executionId };
	};

	test('Stop Workflow, and an error workflow that fails by execution: four and five were claimed and are free again', async () => {
		const kind = stage.newKind();
		const first = await oneByOne(kind, [1, 2, 3, 4, 5], [3]);
		expect(first.ran.error?.message).toBe('the target refused order 3');
		expect(await states(kind)).toEqual(['1 done', '2 done', '3 running', '4 running', '5 running']);

		const settled = await errorWorkflow({
			execution: { id: first.executionId, error: { message: 'the target refused order 3' }, lastNodeExecuted: 'Effect' },
			workflow: { id: 'workflow-1' },
		});
		expect(workOf(settled.json('Complete Work')[0])).toMatchObject({ status: 'failed', message: expect.stringMatching(/3 works .* 3 failed/) });

		const next = await oneByOne(kind, [1, 2, 3, 4, 5, 6], []);
		expect(next.ran.error).toBeNull();
		expect(left(next.ran)).toEqual({ Claimed: [3, 4, 5, 6], Duplicate: [1, 2] });
		expect(next.effects).toEqual([3, 4, 5, 6]);
		expect(next.ran.json('Claim Work').map((json) => [workOf(json).attempt, workOf(json).previousOutcome ?? null])).toEqual([
			[2, 'unknown'],
			[2, 'unknown'],
			[2, 'unknown'],
			[1, null],
		]);
		expect(await states(kind)).toEqual([1, 2, 3, 4, 5, 6].map((n) => `${n} done`));
	});

	test('before the error workflow has run they are Busy, and only six is taken', async () => {
		const kind = stage.newKind();
		await oneByOne(kind, [1, 2, 3, 4, 5], [3]);
		const next = await oneByOne(kind, [1, 2, 3, 4, 5, 6], []);
		expect(left(next.ran)).toEqual({ Claimed: [6], Duplicate: [1, 2], Busy: [3, 4, 5] });
		expect(next.effects).toEqual([6]);
	});

	test('without an error workflow the next run after the lease takes them', async () => {
		const kind = stage.newKind();
		await oneByOne(kind, [1, 2, 3, 4, 5], [3]);
		for (const { work_id: workId, state } of await stage.rows(kind)) {
			if (state === 'running') await stage.ledger.elapse({ workId });
		}
		const next = await oneByOne(kind, [1, 2, 3, 4, 5, 6], []);
		expect(left(next.ran)).toEqual({ Claimed: [3, 4, 5, 6], Duplicate: [1, 2] });
		expect(next.effects).toEqual([3, 4, 5, 6]);
	});

	test('held for review, they wait for a person: only six is taken', async () => {
		const kind = stage.newKind();
		const executionId = nextExecutionId();
		await stage.run({
			executionId,
			items: orders(3, 4, 5),
			nodes: [
				claim(byOrder(kind, { onLapse: 'hold' })),
				step('Effect', () => {
					throw new Error('boom');
				}),
			],
		});
		await errorWorkflow({ execution: { id: executionId } });
		expect(await states(kind)).toEqual(['3 held', '4 held', '5 held']);
		const next = await oneByOne(kind, [3, 4, 5, 6], []);
		expect(left(next.ran)).toEqual({ Claimed: [6], 'Needs Attention': [3, 4, 5] });
	});

	test("by the effect's error output the rest of the batch goes on, and the next run takes three and six", async () => {
		const kind = stage.newKind();
		const batch = async (numbers: number[], failing: number[]) => {
			const effects: unknown[] = [];
			const ran = await stage.run({
				items: orders(...numbers),
				nodes: [
					claim(byOrder(kind, { options: { backoffBaseSeconds: 0 } })),
					step('Effect', (items) => {
						const isFailing = ({ json }: { json: IDataObject }) => failing.includes(json.order as number);
						effects.push(...items.filter((item) => !isFailing(item)).map(({ json }) => json.order));
						return [
							items.filter((item) => !isFailing(item)),
							items.filter(isFailing).map((item) => ({ ...item, json: { ...item.json, error: 'refused' } })),
						];
					}),
					complete(),
					complete({ operation: 'fail', landed: 'no' }, {}, 'Fail'),
				],
				links: [
					['Start', 'Claim Work'],
					['Claim Work', 'Effect'],
					['Effect', 'Complete Work'],
					['Effect:1', 'Fail'],
				],
			});
			return { ran, effects };
		};
		expect((await batch([1, 2, 3, 4, 5], [3])).ran.error).toBeNull();
		expect(await states(kind)).toEqual(['1 done', '2 done', '3 failed', '4 done', '5 done']);
		const next = await batch([1, 2, 3, 4, 5, 6], []);
		expect(left(next.ran)).toEqual({ Claimed: [3, 6], Duplicate: [1, 2, 4, 5] });
		expect(next.effects).toEqual([3, 6]);
	});
});

describe('case 5: two main instances fire a daily cron in the same second', () => {
	const fire = async (instanceId: string, report: () => Promise<void>) =>
		await stage.run({
			instanceId,
			items: [{ order: 'Nightly report 2026-01-05 06:00', customer: 'c' }],
			nodes: [
				claim(byOrder('cron')),
				step('Report', async (items) => {
					await report();
					return items;
				}),
				complete(),
			],
		});
	const nothing = async () => await Promise.resolve();

	test('the slot of the day is one work: the second is Busy while the first reports, and a duplicate after it', async () => {
		let second: Ran | undefined;
		const first = await fire('main-1', async () => {
			second = await fire('main-2', nothing);
		});
		expect(first.runs('Report')).toBe(1);
		expect(second?.runs('Report')).toBe(0);
		expect(left(second as Ran)).toMatchObject({ Busy: [expect.any(String)] });
		const late = await fire('main-2', nothing);
		expect(late.runs('Report')).toBe(0);
		expect(left(late)).toMatchObject({ Duplicate: [expect.any(String)] });
		expect(await stage.work('cron')).toMatchObject({ state: 'done', attempt: 1, generation: 1 });
	});
});

describe('a completion that comes late, from the flow itself', () => {
	type Settle = (workId: string) => Promise<unknown>;
	const admin = () => stage.ledger.ledger.admin;
	const sweep: Settle = async (workId) => {
		await stage.ledger.elapse({ workId });
		await admin().sweep(1000);
	};
	const sweptThen =
		(settle: Settle): Settle =>
		async (workId) => {
			await sweep(workId);
			await settle(workId);
		};

	/** Claim, then something happens to the work, then Complete Work with result 10 and reference inv_1. */
	const lateAfter = async (settle: Settle, policy: IDataObject = {}) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind, policy)),
				step('Meanwhile', async (items) => {
					await settle(workOf(items[0].json).workId as string);
					return items;
				}),
				complete({ externalRef: 'inv_1', result: 'fields', resultFields: 'total' }),
			],
		});
		expect(ran.error).toBeNull();
		return { ran, kind };
	};

	test.each<[string, Settle, IDataObject]>([
		['swept, attempts left', sweep, {}],
		['swept under hold', sweep, { onLapse: 'hold' }],
		['swept, no attempts left', sweep, { options: { maxAttempts: 1 } }],
	])('%s: accepted as late, for nobody else claimed it', async (_, settle, policy) => {
		const { ran, kind } = await lateAfter(settle, policy);
		expect(workOf(ran.json('Complete Work')[0])).toMatchObject({ status: 'completed', late: true });
		expect(ran.out('Complete Work', 1)).toEqual([]);
		expect(await stage.work(kind)).toMatchObject({ state: 'done', result: { total: 10 }, external_ref: 'inv_1', outcome_known: true });
	});

	test('resolved as landed, without a result: its result fills the gap', async () => {
		const { ran, kind } = await lateAfter(
			sweptThen(async (id) => await admin().resolve([id], { landed: true, externalRef: 'inv_1' })),
			{ onLapse: 'hold' },
		);
		expect(workOf(ran.json('Complete Work')[0]).status).toBe('completed');
		expect(await stage.work(kind)).toMatchObject({ state: 'done', result: { total: 10 }, external_ref: 'inv_1' });
	});

	test('resolved as landed with other content: the first stands, the difference is told', async () => {
		const { ran, kind } = await lateAfter(
			sweptThen(async (id) => await admin().resolve([id], { landed: true, externalRef: 'inv_9', result: { total: 9 } })),
			{ onLapse: 'hold' },
		);
		expect(workOf(ran.json('Complete Work')[0])).toMatchObject({ status: 'completed', differs: ['result', 'external_ref'] });
		expect(await stage.work(kind)).toMatchObject({ result: { total: 9 }, external_ref: 'inv_9' });
	});

	test.each<[string, Settle, IDataObject]>([
		['replayed', sweptThen(async (id) => await admin().replay([id])), {}],
		['replayed by force', async (id) => await admin().replay([id], { force: true }), {}],
		['resolved as not landed', sweptThen(async (id) => await admin().resolve([id], { landed: false })), { onLapse: 'hold' }],
		['released by force', async (id) => await admin().releaseByForce([id]), {}],
	])('%s: it leaves by Not Owner, and what it offered is in the log in full', async (_, settle, policy) => {
		let workId = '';
		const { ran, kind } = await lateAfter(async (id) => {
			workId = id;
			await settle(id);
		}, policy);
		expect(ran.out('Complete Work')).toEqual([]);
		expect(workOf(ran.json('Complete Work', 1)[0]).status).toBe('not_owner');
		expect((await stage.rows(kind)).map(({ state }) => state)).not.toContain('done');
		expect((await stage.ledger.log({ workId })).at(-1)).toMatchObject({
			event: 'complete',
			outcome: 'not_owner',
			result: { total: 10 },
			external_ref: 'inv_1',
		});
	});

	test('replayed and claimed by another run meanwhile: the new owner completes, the late one does not', async () => {
		const kind = stage.newKind();
		const deliver = async (total: number, meanwhile: (id: string) => Promise<unknown>) =>
			await stage.run({
				items: [{ order: 1, total }],
				nodes: [
					claim(byOrder(kind)),
					step('Meanwhile', async (items) => {
						await meanwhile(workOf(items[0].json).workId as string);
						return items;
					}),
					complete({ result: 'fields', resultFields: 'total' }),
				],
			});
		let second: Ran | null = null;
		const first = await deliver(10, async (id) => {
			await admin().replay([id], { force: true });
			second = await deliver(20, async () => await Promise.resolve());
		});
		expect(workOf((second as unknown as Ran).json('Complete Work')[0]).status).toBe('completed');
		expect(workOf(first.json('Complete Work', 1)[0]).status).toBe('not_owner');
		expect(await stage.work(kind)).toMatchObject({ state: 'done', result: { total: 20 } });
	});
});

describe('fail by execution takes every form of the Error Trigger', () => {
	const running = async (executionId: string) => {
		const kind = stage.newKind();
		await stage.run({ executionId, items: orders(1), nodes: [claim(byOrder(kind))] });
		return kind;
	};

	test('an execution that is itself the retry of another: works of both', async () => {
		const [id, retryOf] = [nextExecutionId(), nextExecutionId()];
		const kinds = [await running(id), await running(retryOf)];
		const ran = await errorWorkflow({
			execution: {
				id,
				retryOf,
				url: `http://localhost:5678/workflow/workflow-1/executions/${id}`,
				error: { message: 'boom', name: 'NodeApiError', stack: '…' },
				lastNodeExecuted: 'Effect',
				mode: 'retry',
			},
			workflow: { id: 'workflow-1', name: 'Invoices' },
		});
		expect(workOf(ran.json('Complete Work')[0]).works).toHaveLength(2);
		for (const kind of kinds) {
			expect(await stage.work(kind)).toMatchObject({ state: 'failed', last_error: 'Effect: boom' });
		}
	});

	test.each([undefined, null, ''])('a retryOf of %p is no execution: works without one are left alone', async (retryOf) => {
		const id = nextExecutionId();
		const kind = await running(id);
		const [other] = [await stage.ledger.claimed(undefined, { caller: { instance: 'instance-1' } })];
		await errorWorkflow({ execution: { id, retryOf } as IDataObject });
		expect((await stage.work(kind)).state).toBe('failed');
		expect((await stage.ledger.row(other)).state).toBe('running');
	});

	test('an id that is a number is the same execution', async () => {
		const id = nextExecutionId();
		const kind = await running(id);
		await errorWorkflow({ execution: { id: Number(id) } });
		expect((await stage.work(kind)).state).toBe('failed');
	});

	test("the example of a manual test is not taken for real: works of executions 231 and 34 go on", async () => {
		const kinds = [await running('231'), await running('34')];
		const sample = {
			execution: {
				id: 231,
				url: 'http://localhost:5678/execution/workflow/1/231',
				retryOf: '34',
				error: { message: 'Example Error Message', stack: 'Stacktrace' },
				lastNodeExecuted: 'Node With Error',
				mode: 'manual',
			},
			workflow: { id: '1', name: 'Example Workflow' },
		};
		for (const parameters of [{}, { executionId: '={{ $json.execution.id }}' }]) {
			const ran = await errorWorkflow(sample, parameters, { mode: 'manual' });
			expect(ran.error).toBeNull();
			expect(workOf(ran.json('Complete Work')[0])).toMatchObject({
				status: 'nothing_to_fail',
				message: expect.stringMatching(/example .* manual test/),
				works: [],
			});
		}
		for (const kind of kinds) expect((await stage.work(kind)).state).toBe('running');
		// the real execution 231 fails as any other
		await errorWorkflow({ ...sample, execution: { ...sample.execution, id: '231', error: { message: 'boom' } } });
		for (const kind of kinds) expect((await stage.work(kind)).state).toBe('failed');
	});

	test('a trigger that failed without an execution is nothing to fail', async () => {
		const kind = await running(nextExecutionId());
		const ran = await errorWorkflow({
			trigger: { error: { message: 'the mailbox is gone', name: 'WorkflowActivationError' }, mode: 'trigger' },
			workflow: { id: 'workflow-1', name: 'Invoices' },
		});
		expect(workOf(ran.json('Complete Work')[0])).toMatchObject({ status: 'nothing_to_fail', works: [] });
		expect((await stage.work(kind)).state).toBe('running');
	});

	test('an execution without an id is an error: its works may be open', async () => {
		const ran = await errorWorkflow({ execution: { error: { message: 'boom' }, mode: 'trigger' }, workflow: {} });
		expect(ran.error?.message).toMatch(/does not say which execution failed.*save its failed production executions/);
	});
});

describe('case 126: with the ledger down Work Ledger answers nothing, and the error says which it is', () => {
	let tableless: Stage;
	let stranger: string;
	beforeAll(async () => {
		const { admin, config } = stage.ledger.database;
		tableless = await Stage.open();
		await tableless.query('drop table idempotency.work_log cascade');
		stranger = `stranger_to_${config.database}`;
		await admin.query(`create role ${stranger} login password 'secret-of-the-stranger'`);
		await admin.query(
			`grant usage on schema idempotency to ${stranger}; grant select on idempotency.ledger_version to ${stranger}`,
		);
	});
	afterAll(async () => {
		const { admin } = stage.ledger.database;
		await admin.query(`drop owned by ${stranger}`);
		await admin.query(`drop role ${stranger}`);
		await tableless.close();
	});

	const troubles: Array<[string, () => LedgerSettings, RegExp]> = [
		// port 1: nobody listens there
		['PostgreSQL down', () => ({ ...stage.ledger.settings, port: 1 }), /cannot be reached \(ECONNREFUSED\)/],
		['table missing', () => tableless.settings, /tables or functions are missing/],
		[
			'permission denied',
			() => ({
				...stage.ledger.settings,
				user: stranger,
				password: 'secret-of-the-stranger',
				automaticMigration: false,
			}),
			/lacks a right/,
		],
	];
	const byId = { whichWork: 'id', workId: 'a'.repeat(64) };
	const operations: IDataObject[] = [
		{ operation: 'explain', ...byId },
		{ operation: 'list' },
		{ operation: 'statistics' },
		{ operation: 'replay', ...byId },
		{ operation: 'resolve', landed: 'yes', ...byId },
		{ operation: 'forget', ...byId },
		{ operation: 'releaseByForce', ...byId },
		{ operation: 'purge' },
		{ resource: 'reconciliation', operation: 'reconcile', kind: 'k', referenceField: 'order' },
	];
	const ask = async (parameters: IDataObject, credential: LedgerSettings, settings: NodeOfTest['settings']) =>
		await stage.run({
			credential,
			items: orders(1, 2),
			nodes: [workLedger(parameters, settings), step('Next', http())],
		});

	test.each(troubles)('%s', async (_, credential, words) => {
		// at once: each gives up after seconds only, and they share one pool
		await Promise.all(
			operations.map(async (parameters) => {
				const [stopped, routed] = await Promise.all([
					ask(parameters, credential(), {}),
					ask(parameters, credential(), { onError: 'continueErrorOutput' }),
				]);
				expect([parameters.operation, stopped.status]).toEqual([parameters.operation, 'error']);
				expect(stopped.error).toMatchObject({
					name: 'NodeOperationError',
					node: 'Work Ledger',
					message: expect.stringMatching(words),
				});
				expect(stopped.runs('Next')).toBe(0);

				expect(routed.error).toBeNull();
				expect(routed.out('Work Ledger')).toEqual([]);
				expect(routed.json('Work Ledger', 1)).toMatchObject(
					orders(1, 2).map((order) => ({ ...order, error: expect.stringMatching(words) })),
				);
				expect(JSON.stringify([stopped, routed.json('Work Ledger', 1)])).not.toContain(
					'secret-of-the-stranger',
				);
			}),
		);
	});
});
