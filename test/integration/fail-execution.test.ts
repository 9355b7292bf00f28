import { randomUUID } from 'node:crypto';

import { again, CALLER, from, newWork, Stage } from './stage';

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await stage.close();
});

const fail = async (...executions: string[]) =>
	await stage.works.failExecution('instance-1', executions, 'stalled', CALLER);

describe('failing by execution', () => {
	test('settles its running works as "may have landed", due at once, and tells which', async () => {
		const execution = randomUUID();
		const items = [
			await stage.claimed({ ...newWork(), payload: '{"id":1}' }, from({ execution })),
			await stage.claimed(newWork(), from({ execution })),
		];
		const settled = await fail(execution);
		expect(settled.map(({ workId }) => workId).sort()).toEqual(
			items.map(({ workId }) => workId).sort(),
		);
		expect(settled[0]).toMatchObject({
			kind: 'invoice',
			state: 'failed',
			attempt: 1,
			child: false,
		});
		const row = await stage.row(items[0]);
		expect(row).toMatchObject({
			state: 'failed',
			outcome_known: false,
			last_error: 'stalled',
			token: items[0].token,
			payload: { id: 1 },
			settled_by: 'execution',
			locked_until: null,
		});
		expect(await stage.secondsUntil(row.next_attempt_at)).toBeLessThanOrEqual(0);
		expect(await stage.history(items[0])).toEqual(['claim: claimed', 'fail_execution: failed']);
		expect(await stage.claim(again(items[0]))).toMatchObject({
			status: 'claimed',
			attempt: 2,
			previousOutcome: 'unknown',
			lastError: 'stalled',
		});
	});

	test('repeated settles nothing more', async () => {
		const execution = randomUUID();
		const item = await stage.claimed(newWork(), from({ execution }));
		await fail(execution);
		const row = await stage.row(item);
		expect(await fail(execution)).toEqual([]);
		expect(await stage.row(item)).toEqual(row);
	});

	test('leaves done, failed, held and dead works alone', async () => {
		const execution = randomUUID();
		const items = [];
		for (const state of ['done', 'failed', 'held', 'dead'] as const) {
			items.push(await stage.workThatIs(state, from({ execution })));
		}
		const rows = await Promise.all(items.map(async (item) => await stage.row(item)));
		expect(await fail(execution)).toEqual([]);
		expect(await Promise.all(items.map(async (item) => await stage.row(item)))).toEqual(rows);
	});

	test('by the stored policy: hold is held, also without attempts left; none left is dead', async () => {
		const execution = randomUUID();
		const held = await stage.claimed(
			newWork(),
			from({ execution }, { onLapse: 'hold', maxAttempts: 1 }),
		);
		const dead = await stage.claimed(newWork(), from({ execution }, { maxAttempts: 1 }));
		await fail(execution);
		expect(await stage.row(held)).toMatchObject({ state: 'held', next_attempt_at: null });
		expect(await stage.row(dead)).toMatchObject({ state: 'dead', next_attempt_at: null });
	});

	test('with a recorded reference is done by it', async () => {
		const execution = randomUUID();
		const item = await stage.claimed(newWork(), from({ execution }, { onLapse: 'hold' }));
		await stage.record(item, 'inv_1');
		expect(await fail(execution)).toMatchObject([{ state: 'done' }]);
		expect(await stage.row(item)).toMatchObject({
			state: 'done',
			outcome_known: true,
			payload: null,
		});
		expect(await stage.claim(again(item))).toMatchObject({
			status: 'duplicate',
			externalRef: 'inv_1',
		});
	});

	test('reaches works of its sub-workflow, not due before their lease ends: the child may be alive', async () => {
		const execution = randomUUID();
		const child = await stage.claimed(
			newWork(),
			from({ execution: randomUUID(), parentExecution: execution }, { leaseSeconds: 600 }),
		);
		expect(await fail(execution)).toMatchObject([
			{ workId: child.workId, state: 'failed', child: true },
		]);
		const { next_attempt_at } = await stage.row(child);
		expect(await stage.secondsUntil(next_attempt_at)).toBeGreaterThan(590);
		expect(await stage.claim(again(child))).toMatchObject({ status: 'not_due' });
		expect(await stage.complete(child, { result: 'alive' })).toMatchObject({
			status: 'completed',
			late: true,
		});
	});

	test('of a lapsed child is due at once', async () => {
		const execution = randomUUID();
		const child = await stage.claimed(
			newWork(),
			from({ execution: randomUUID(), parentExecution: execution }),
		);
		await stage.elapse(child);
		await fail(execution);
		expect(await stage.claim(again(child))).toMatchObject({ status: 'claimed', attempt: 2 });
	});

	test('reaches one level of parents, not the grandchild', async () => {
		const [execution, childExecution] = [randomUUID(), randomUUID()];
		const grandchild = await stage.claimed(
			newWork(),
			from({ execution: randomUUID(), parentExecution: childExecution }),
		);
		expect(await fail(execution)).toEqual([]);
		expect(await stage.row(grandchild)).toMatchObject({ state: 'running' });
	});

	test('knows the execution by its own id or the one it retried (retryOf)', async () => {
		const [original, retry] = [randomUUID(), randomUUID()];
		const item = await stage.claimed(newWork(), from({ execution: original }));
		expect(await fail(retry, original)).toMatchObject([{ workId: item.workId }]);
	});

	test('does not touch the same execution id of another n8n, nor other executions', async () => {
		const execution = randomUUID();
		const items = [
			await stage.claimed(newWork(), from({ execution, instance: 'instance-2' })),
			await stage.claimed(newWork(), from({ execution: randomUUID() })),
			await stage.claimed(newWork(), from({ execution, instance: undefined })),
		];
		expect(await fail(execution)).toEqual([]);
		for (const item of items) expect(await stage.row(item)).toMatchObject({ state: 'running' });
	});

	test('without an instance reaches works claimed without one', async () => {
		const execution = randomUUID();
		const item = await stage.claimed(newWork(), from({ execution, instance: undefined }));
		expect(await stage.works.failExecution(null, [execution], 'x', {})).toMatchObject([
			{ workId: item.workId },
		]);
	});

	test('of no execution, or an unknown one, settles nothing', async () => {
		const item = await stage.claimed(newWork(), from({ execution: undefined }));
		expect(await fail()).toEqual([]);
		expect(await fail(randomUUID())).toEqual([]);
		expect(await stage.row(item)).toMatchObject({ state: 'running' });
	});

	test('does not raise the attempt: the next claim does', async () => {
		const execution = randomUUID();
		const item = await stage.claimed(newWork(), from({ execution }));
		await fail(execution);
		expect(await stage.row(item)).toMatchObject({ attempt: 1 });
	});
});

describe('the open claims of an execution', () => {
	test('are its running works, oldest first, with token, key and lease end', async () => {
		const execution = randomUUID();
		const items = [
			await stage.claimed(newWork(), from({ execution })),
			await stage.claimed(newWork(), from({ execution })),
		];
		const done = await stage.claimed(newWork(), from({ execution }));
		await stage.complete(done);
		await stage.claimed(newWork(), from({ execution, instance: 'instance-2' }));
		const open = await stage.works.openClaims('instance-1', execution, 10);
		expect(open).toMatchObject(
			items.map(({ workId, token, key }) => ({ workId, token, key, kind: 'invoice' })),
		);
		expect(await stage.works.openClaims('instance-1', execution, 1)).toHaveLength(1);
		expect(await stage.works.openClaims('instance-1', randomUUID(), 10)).toEqual([]);
	});
});
