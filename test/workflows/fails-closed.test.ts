import type { IDataObject } from 'n8n-workflow';

import type { LedgerSettings } from '../../ledger';
import { Stage } from '../integration/stage';
import { claim, complete, http, step, type NodeOfTest, type Ran } from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

/** n8n fails open (a throw under "Continue", "Always Output Data", a retry); Claim Work must not. */

const stage = WorkflowStage.forThisFile();

const ON_ERROR = ['stopWorkflow', 'continueRegularOutput', 'continueErrorOutput'] as const;

/** How often the effect behind Claimed ran, and with what. */
function effect(): { node: NodeOfTest; seen: IDataObject[] } {
	const seen: IDataObject[] = [];
	return {
		seen,
		node: step('Effect', (items) => {
			seen.push(...items.map(({ json }) => json));
			return items;
		}),
	};
}

const outputsOf = (ran: Ran) =>
	[0, 1, 2, 3, 4].map((output) => ran.out('Claim Work', output).length);

describe('case 126: with the ledger down no item leaves as claimed, and the error says which it is', () => {
	let tableless: Stage;
	beforeAll(async () => {
		const { database } = stage.ledger;
		tableless = await Stage.open();
		await tableless.query('drop table idempotency.work_log cascade');
		await database.admin.query(`drop role if exists stranger_${database.config.database}`);
		await database.admin.query(
			`create role stranger_${database.config.database} login password 'secret-of-the-stranger'`,
		);
		await database.admin.query(
			`grant usage on schema idempotency to stranger_${database.config.database};
			grant select on idempotency.ledger_version to stranger_${database.config.database}`,
		);
	});
	afterAll(async () => {
		const { admin, config } = stage.ledger.database;
		await admin.query(`drop owned by stranger_${config.database}`);
		await admin.query(`drop role stranger_${config.database}`);
		await tableless.close();
	});

	const troubles: Array<[string, () => LedgerSettings, RegExp]> = [
		// port 1: nobody listens there
		['unreachable', () => ({ ...stage.ledger.settings, port: 1 }), /cannot be reached/],
		['table missing', () => tableless.settings, /tables or functions are missing/],
		[
			'schema missing',
			() => ({ ...stage.ledger.settings, schema: 'nowhere', automaticMigration: false }),
			/is not installed in schema "nowhere"/,
		],
		[
			'permission denied',
			() => ({
				...stage.ledger.settings,
				user: `stranger_${stage.ledger.settings.database}`,
				password: 'secret-of-the-stranger',
				automaticMigration: false,
			}),
			/lacks a right/,
		],
		['bad settings', () => ({ ...stage.ledger.settings, host: '' }), /host: is empty/],
	];

	const settings = ON_ERROR.flatMap((onError) => [
		{ onError, alwaysOutputData: false },
		{ onError, alwaysOutputData: true },
	]);

	test.each(troubles)('%s', async (_, credential, words) => {
		const runs = settings.map(async (setting) => {
			const { node, seen } = effect();
			const ran = await stage.run({
				credential: credential(),
				items: orders(1, 2),
				nodes: [claim(byOrder('down'), setting), node],
			});
			return { ...setting, ran, seen };
		});
		for (const { onError, alwaysOutputData, ran, seen } of await Promise.all(runs)) {
			expect(seen).toEqual([]);
			expect(JSON.stringify(ran)).not.toContain('secret-of-the-stranger');
			if (onError === 'stopWorkflow' || alwaysOutputData) {
				expect(ran.status).toBe('error');
				expect(ran.error).toMatchObject({ name: 'NodeOperationError', node: 'Claim Work' });
				expect(ran.error?.message).toMatch(words);
				expect(ran.error?.description).toMatch(/No item was passed on as claimed/);
				continue;
			}
			expect(ran.error).toBeNull();
			const output = onError === 'continueRegularOutput' ? 3 : 4;
			expect(outputsOf(ran)).toEqual([0, 1, 2, 3, 4].map((at) => (at === output ? 2 : 0)));
			expect(JSON.stringify(ran.json('Claim Work', output))).not.toContain(
				'secret-of-the-stranger',
			);
			for (const json of ran.json('Claim Work', output)) {
				const work = (json.work ?? (json.details as IDataObject).work) as IDataObject;
				expect(work.status).toBe('error');
				expect(work.message).toMatch(words);
				expect(json.customer).toMatch(/^c\d$/);
			}
		}
	});

	test('Complete Work says it too: it throws, or the items leave by Not Owner or Error', async () => {
		for (const onError of ON_ERROR) {
			const ran = await stage.run({
				credential: { ...stage.ledger.settings, schema: 'nowhere', automaticMigration: false },
				items: orders(1),
				nodes: [complete({}, { onError }), step('Next', http())],
			});
			expect(ran.runs('Next')).toBe(0);
			if (onError === 'stopWorkflow') {
				expect(ran.error?.message).toMatch(/is not installed in schema "nowhere"/);
			} else {
				expect(ran.error).toBeNull();
				const output = onError === 'continueRegularOutput' ? 1 : 2;
				expect(ran.out('Complete Work', output)).toHaveLength(1);
			}
		}
	});
});

describe('Complete Work, when the ledger was down and comes back', () => {
	test.each([
		['continueRegularOutput', 1],
		['continueErrorOutput', 2],
	] as const)('under %s the item still holds its claim, and a second Complete Work settles it', async (onError, output) => {
		const kind = stage.newKind();
		let looks = 0;
		const credential = () => ({ ...stage.ledger.settings, ...(++looks === 2 ? { host: '' } : {}) });
		const ran = await stage.run({
			credential,
			items: orders(1),
			nodes: [
				claim(byOrder(kind)),
				complete({ result: 'none' }, { onError }, 'While Down'),
				complete({ result: 'none' }, {}, 'Once More'),
			],
			links: [
				['Start', 'Claim Work'],
				['Claim Work', 'While Down'],
				[`While Down:${output}`, 'Once More'],
			],
		});
		expect(ran.error).toBeNull();
		expect(JSON.stringify(ran.json('While Down', output))).toContain('"status":"error"');
		expect(ran.out('Once More')).toHaveLength(1);
		expect(await stage.works(kind)).toEqual(['1 done']);
	});
});

describe('a batch of several policies, when the ledger fails after the first', () => {
	const kinds = { good: 'good', poison: 'poison' };
	beforeAll(async () => {
		await stage.ledger.query(`
			create function fail_poison() returns trigger language plpgsql as $$
			begin raise exception 'disk full' using errcode = '53100'; end $$;
			create trigger fail_poison before insert on idempotency.work_log
			for each row when (new.kind = '${kinds.poison}') execute function fail_poison()`);
	});
	const items = [
		{ order: 1, kind: kinds.good },
		{ order: 2, kind: kinds.poison },
		{ order: 3, kind: kinds.good },
	];
	const retry = { retryOnFail: true, maxTries: 2, waitBetweenTries: 1 };

	test.each(ON_ERROR)('no claim is stranded and none passes, under %s', async (onError) => {
		for (const settings of [{ onError }, { onError, ...retry }]) {
			const { node, seen } = effect();
			const ran = await stage.run({
				items,
				nodes: [claim(byOrder('={{ $json.kind }}'), settings), node],
			});
			expect(seen).toEqual([]);
			expect(await stage.works(kinds.good)).toEqual([]);
			const output = { stopWorkflow: null, continueRegularOutput: 3, continueErrorOutput: 4 }[
				onError
			];
			expect(ran.status).toBe(output === null ? 'error' : 'success');
			expect(outputsOf(ran)).toEqual([0, 1, 2, 3, 4].map((at) => (at === output ? 3 : 0)));
		}
	});

	test('what the batch took over from a failure is failed work again, its attempt not spent', async () => {
		await stage.run({
			items: [items[0]],
			nodes: [
				claim(byOrder(kinds.good, { options: { backoffBaseSeconds: 0 } })),
				complete({ operation: 'fail', landed: 'no', error: 'first try' }),
			],
		});
		const ran = await stage.run({ items, nodes: [claim(byOrder('={{ $json.kind }}'))] });
		expect(ran.status).toBe('error');
		expect(await stage.work(kinds.good)).toMatchObject({
			state: 'failed',
			attempt: 1,
			last_error: 'first try',
		});
	});
});

describe('Always Output Data stops the workflow where nothing was claimed', () => {
	test.each(ON_ERROR)('for duplicates, under %s', async (onError) => {
		const kind = stage.newKind();
		const { node, seen } = effect();
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete({ result: 'none' })],
		});
		const ran = await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind), { onError, alwaysOutputData: true }), node],
		});
		expect(seen).toEqual([]);
		expect(ran.status).toBe('error');
		expect(ran.error?.message).toMatch(/"Always Output Data" would send an empty item/);
	});

	test.each(ON_ERROR)('for refused items, under %s', async (onError) => {
		const { node, seen } = effect();
		const ran = await stage.run({
			items: [{ order: '' }],
			nodes: [claim(byOrder(stage.newKind()), { onError, alwaysOutputData: true }), node],
		});
		expect(seen).toEqual([]);
		expect(ran.status).toBe('error');
	});

	test.each(ON_ERROR)('for dropped duplicates, under %s', async (onError) => {
		const kind = stage.newKind();
		const { node, seen } = effect();
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete({ result: 'none' })],
		});
		const ran = await stage.run({
			items: orders(1),
			nodes: [
				claim(byOrder(kind, { response: 'nothing' }), { onError, alwaysOutputData: true }),
				node,
			],
		});
		expect(seen).toEqual([]);
		expect(ran.status).toBe('error');
	});

	test('but not where one item was claimed', async () => {
		const kind = stage.newKind();
		const { node, seen } = effect();
		const ran = await stage.run({
			items: [{ order: '' }, { order: 1 }],
			nodes: [
				claim(byOrder(kind), { onError: 'continueRegularOutput', alwaysOutputData: true }),
				node,
			],
		});
		expect(ran.error).toBeNull();
		expect(seen.map(({ order }) => order)).toEqual([1]);
	});
});

describe('Always Output Data stops the workflow where nothing was completed', () => {
	test.each(ON_ERROR)('under %s', async (onError) => {
		const { node, seen } = effect();
		const ran = await stage.run({
			items: orders(1),
			nodes: [complete({}, { onError, alwaysOutputData: true }), node],
		});
		expect(seen).toEqual([]);
		expect(ran.status).toBe('error');
	});
});

describe('the setting On Error', () => {
	test.each([
		['alone', {}],
		['beside a newer setting that says stop', { onError: 'stopWorkflow' as const }],
	])('in its older form, Continue On Fail, %s: nothing passes as claimed', async (_, more) => {
		const { node, seen } = effect();
		const ran = await stage.run({
			items: [{ order: '' }],
			nodes: [claim(byOrder(stage.newKind()), { continueOnFail: true, ...more }), node],
		});
		expect(seen).toEqual([]);
		expect(outputsOf(ran)).toEqual([0, 0, 0, 1, 0]);
	});

	// with an error output n8n itself reads the item once more: this one would fail there, not in the node
	test.each([
		'stopWorkflow',
		'continueRegularOutput',
	] as const)('a failure nobody thought of stops the workflow, under %s', async (onError) => {
		const { node, seen } = effect();
		const unreadable = new Proxy<IDataObject>(
			{ order: '' },
			{
				ownKeys() {
					throw new Error('unreadable');
				},
			},
		);
		const ran = await stage.run({
			items: [{ json: unreadable }, { json: { order: 1 } }],
			nodes: [claim(byOrder(stage.newKind()), { onError }), node],
		});
		expect(seen).toEqual([]);
		expect(ran.status).toBe('error');
		expect(ran.error).toMatchObject({ name: 'NodeOperationError', node: 'Claim Work' });
	});

	test('case 137: errors carry the name of n8n’s class, whichever copy of n8n-workflow made it', async () => {
		const ran = await stage.run({
			items: [{ order: '' }],
			nodes: [claim(byOrder(stage.newKind()))],
		});
		expect(ran.error?.name).toBe('NodeOperationError');
	});
});

describe('Retry On Fail', () => {
	const retry = { retryOnFail: true, maxTries: 3, waitBetweenTries: 1 };
	const logged = async (kind: string) =>
		await stage.ledger.query<{ event: string; outcome: string }>(
			`select event, outcome from idempotency.decision_log d
			where d.work_id in (select work_id from idempotency.work_log where kind = $1) order by id`,
			[kind],
		);

	test.each([
		['error: null', { error: null }],
		['error: "x"', { error: 'x' }],
		['error: {…}', { error: { message: 'x' } }],
		['no error', {}],
	])('case 14, fact S14: an item with %s is claimed and completed once, its error kept in the field', async (_, more) => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1, ...more }],
			nodes: [claim(byOrder(kind), retry), complete({ result: 'none' }, retry)],
		});
		expect(ran.error).toBeNull();
		expect(await logged(kind)).toEqual([
			{ event: 'claim', outcome: 'claimed' },
			{ event: 'complete', outcome: 'completed' },
		]);
		for (const node of ['Claim Work', 'Complete Work']) {
			const [json] = ran.json(node);
			expect(json).not.toHaveProperty('error');
			expect(json.order).toBe(1);
			expect((json.work as IDataObject).inputError).toEqual('error' in more ? more.error : undefined);
		}
	});

	test('a duplicate with an error is answered once', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete({ result: 'none' })],
		});
		const ran = await stage.run({
			items: [{ order: 1, error: 'x' }],
			nodes: [claim(byOrder(kind), retry)],
		});
		expect(ran.json('Claim Work', 1)[0]).not.toHaveProperty('error');
		expect((await logged(kind)).map(({ outcome }) => outcome)).toEqual([
			'claimed',
			'completed',
			'duplicate',
		]);
	});

	test('a thrown refusal is thrown again, and nothing is claimed', async () => {
		const kind = stage.newKind();
		const ran = await stage.run({
			items: [{ order: 1 }, { order: '' }],
			nodes: [claim(byOrder(kind), retry)],
		});
		expect(ran.status).toBe('error');
		expect(await stage.works(kind)).toEqual([]);
	});

	test('the response error does not leave a claim behind, however often it is tried', async () => {
		const kind = stage.newKind();
		await stage.run({
			items: orders(1),
			nodes: [claim(byOrder(kind)), complete({ result: 'none' })],
		});
		const ran = await stage.run({
			items: orders(1, 2),
			nodes: [claim(byOrder(kind, { response: 'error' }), retry)],
		});
		expect(ran.status).toBe('error');
		expect(await stage.works(kind)).toEqual(['1 done']);
	});

	test('a ledger that comes back is asked again: one claim, attempt 1', async () => {
		const kind = stage.newKind();
		let looks = 0;
		// the first look at the credential finds one that cannot be right
		const credential = () => ({ ...stage.ledger.settings, ...(++looks === 1 ? { host: '' } : {}) });
		const { node, seen } = effect();
		const ran = await stage.run({
			credential,
			items: orders(1),
			nodes: [claim(byOrder(kind), retry), node],
		});
		expect(looks).toBe(2);
		expect(ran.error).toBeNull();
		expect(seen).toHaveLength(1);
		expect(await stage.work(kind)).toMatchObject({ attempt: 1, generation: 1, state: 'running' });
	});
});
