import { claim, complete, http, step } from './run-workflow';
import { WorkflowStage } from './stage';
const stage = WorkflowStage.forThisFile();
test.each([1000, 2000, 4000])('%i', async (n) => {
	const kind = stage.newKind();
	const t = performance.now();
	const ran = await stage.run({
		items: Array.from({ length: n }, (_, id) => ({ id, a: 1, b: 2 })),
		nodes: [claim({ kind, keyFields: 'id' }), step('x', http(({ id }) => ({ id: `inv_${Number(id)}` }))), complete({ result: 'none' })],
	});
	console.log(n, ran.error, ran.out('Complete Work').length, performance.now() - t);
}, 300000);
