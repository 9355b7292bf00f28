import type { IDataObject } from 'n8n-workflow';

import { claim, complete, step } from './run-workflow';
import { WorkflowStage, byOrder, orders } from './stage';

const stage = WorkflowStage.forThisFile();

/** A door that a test opens. */
function door(): { open: () => void; opened: Promise<void> } {
	let open: () => void = () => undefined;
	const opened = new Promise<void>((resolve) => {
		open = resolve;
	});
	return { open, opened };
}

/** An original whose effect stands at the door until the test opens it. */
async function originalAtWork(kind: string, settle = complete()) {
	const effect = door();
	const started = door();
	const original = stage.run({
		executionId: `original-${kind}`,
		items: orders(1),
		nodes: [
			claim(byOrder(kind)),
			step('Invoice', async (items) => {
				started.open();
				await effect.opened;
				return items.map((_, item) => ({ json: { invoice: 'inv_1' }, pairedItem: { item } }));
			}),
			settle,
		],
	});
	await started.opened;
	return { original, finish: effect.open };
}

test('a duplicate that waits gets the result of the original', async () => {
	const kind = stage.newKind();
	const { original, finish } = await originalAtWork(kind);
	const duplicate = stage.run({
		items: orders(1),
		nodes: [claim(byOrder(kind, { wait: 20 }))],
	});
	await stage.untilLogged(kind, 'in_progress');
	finish();
	expect((await original).error).toBeNull();
	const ran = await duplicate;
	expect(ran.json('Claim Work', 1)[0].work).toMatchObject({
		status: 'duplicate',
		result: { invoice: 'inv_1' },
	});
	expect(ran.out('Claim Work')).toEqual([]);
	// polls are not written down one by one, and raise no attempt
	const log = await stage.ledger.history({ workId: (await stage.work(kind)).work_id });
	expect(log).toEqual([
		'claim: claimed',
		'claim: in_progress',
		'complete: completed',
		'claim: duplicate',
	]);
	expect(await stage.work(kind)).toMatchObject({ attempt: 1 });
});

test('a duplicate that waits for an original that gives up may claim the work itself', async () => {
	const kind = stage.newKind();
	const { original, finish } = await originalAtWork(kind, complete({ operation: 'release' }));
	const duplicate = stage.run({
		items: orders(1),
		nodes: [claim(byOrder(kind, { wait: 20 }))],
	});
	await stage.untilLogged(kind, 'in_progress');
	finish();
	expect((await original).error).toBeNull();
	expect((await duplicate).json('Claim Work')[0].work).toMatchObject({
		status: 'claimed',
		attempt: 1,
	});
});

test('a duplicate that waits for an original that fails is told when the next attempt is due', async () => {
	const kind = stage.newKind();
	const { original, finish } = await originalAtWork(
		kind,
		complete({ operation: 'fail', landed: 'no', error: 'declined' }),
	);
	const duplicate = stage.run({
		items: orders(1),
		nodes: [claim(byOrder(kind, { wait: 20 }))],
	});
	await stage.untilLogged(kind, 'in_progress');
	finish();
	await original;
	expect((await duplicate).json('Claim Work', 2)[0].work).toMatchObject({
		status: 'not_due',
		lastError: 'declined',
	});
});

test('it waits no longer than it was told, and leaves by Busy', async () => {
	const kind = stage.newKind();
	const { original, finish } = await originalAtWork(kind);
	const ran = await stage.run({
		items: orders(1),
		nodes: [claim(byOrder(kind, { wait: 0.2 }))],
	});
	expect(ran.json('Claim Work', 2)[0].work).toMatchObject({ status: 'in_progress' });
	finish();
	await original;
});

test.each([
	['its own execution', { executionId: '901' }],
	['the execution that called it', { executionId: '902', parentExecutionId: '901' }],
])('nobody waits for work of %s', async (_, ids) => {
	const kind = stage.newKind();
	await stage.run({ executionId: '901', items: orders(1), nodes: [claim(byOrder(kind))] });
	const started = performance.now();
	const ran = await stage.run({
		...ids,
		items: orders(1),
		nodes: [claim(byOrder(kind, { wait: 600 }))],
	});
	expect(ran.json('Claim Work', 2)[0].work).toMatchObject({ status: 'in_progress' });
	expect(performance.now() - started).toBeLessThan(20_000);
});

test('nor for the first of two equal items of a batch', async () => {
	const kind = stage.newKind();
	const ran = await stage.run({
		items: orders(1, 1),
		nodes: [claim(byOrder(kind, { wait: 600 }))],
	});
	expect(ran.out('Claim Work')).toHaveLength(1);
	expect(ran.out('Claim Work', 2)).toHaveLength(1);
});

test('an execution of the same number on another n8n is another owner: it is waited for', async () => {
	const kind = stage.newKind();
	await stage.run({
		executionId: '903',
		instanceId: 'instance-2',
		items: orders(1),
		nodes: [claim(byOrder(kind))],
	});
	const duplicate = stage.run({
		executionId: '903',
		items: orders(1),
		nodes: [claim(byOrder(kind, { wait: 600 }))],
	});
	await stage.untilLogged(kind, 'in_progress');
	const { work_id, token } = await stage.work(kind);
	await stage.ledger.works.complete([{ workId: work_id, token, result: { ok: 1 } }], {});
	expect((await duplicate).json('Claim Work', 1)[0].work).toMatchObject({ result: { ok: 1 } });
});

test('items of one batch wait for as long as each of them says', async () => {
	const kind = stage.newKind();
	const { original, finish } = await originalAtWork(kind);
	const batch = stage.run({
		items: [
			{ order: 1, wait: 0 },
			{ order: 1, wait: 20 },
			{ order: 2, wait: 20 },
		],
		nodes: [claim(byOrder(kind, { wait: '={{ $json.wait }}' }))],
	});
	await stage.untilLogged(kind, 'in_progress', 2);
	finish();
	await original;
	const ran = await batch;
	const statuses = [0, 1, 2].map((output) =>
		ran.json('Claim Work', output).map(({ work }) => (work as IDataObject).status),
	);
	expect(statuses).toEqual([['claimed'], ['duplicate'], ['in_progress']]);
});
