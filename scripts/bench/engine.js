'use strict';

/**
 * The built nodes, run through n8n's own engine in this process: Start → Claim Work → Complete Work,
 * as an execution of n8n runs them, without its database and its web server. Expressions are
 * evaluated by the engine that n8n-workflow has by default outside n8n (`legacy`).
 */

const { randomUUID } = require('node:crypto');
const { createRequire } = require('node:module');
const os = require('node:os');
const path = require('node:path');

const CLAIM = 'n8n-nodes-idempotency.claimWork';
const COMPLETE = 'n8n-nodes-idempotency.completeWork';
const START = 'bench.start';
const CLAIM_PARAMETERS = {
	version: 'v1',
	window: 'forever',
	response: 'original',
	onLapse: 'run_again',
	wait: 0,
	options: {},
};

/**
 * @typedef {object} Ran
 * @property {(node: string, output?: number) => { json: any }[]} out
 */

let executions = 0;

/**
 * @param {string} checkout
 * @param {object} credential The ledger's settings.
 */
function startEngine(checkout, credential) {
	require('reflect-metadata');
	const core = require('n8n-core');
	const { NodeHelpers, Workflow, createRunExecutionData } = require('n8n-workflow');
	// n8n-core's own copy of the container: another one would not reach it.
	const { Container } = createRequire(require.resolve('n8n-core'))('@n8n/di');
	Container.set(core.InstanceSettings, {
		instanceId: '5f0e2b7a9c1d4e3f8a6b7c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f',
		n8nFolder: path.join(os.tmpdir(), 'n8n-bench'),
	});
	Container.set(core.ErrorReporter, { error: () => undefined });
	const built = (/** @type {string} */ name) =>
		new (require(path.join(checkout, 'dist', 'nodes', name, `${name}.node.js`))[name])();
	const types = {
		[CLAIM]: built('ClaimWork'),
		[COMPLETE]: built('CompleteWork'),
		[START]: {
			description: {
				...{
					name: 'start',
					displayName: 'Start',
					description: '',
					group: ['transform'],
					version: 1,
				},
				...{ defaults: { name: 'Start' }, inputs: ['main'], outputs: ['main'], properties: [] },
			},
			/** @this {any} */
			async execute() {
				return [this.getInputData()];
			},
		},
	};
	const nodeTypes = {
		getByName: (/** @type {keyof typeof types} */ type) => types[type],
		getByNameAndVersion: (/** @type {keyof typeof types} */ type) =>
			NodeHelpers.getVersionedNodeType(types[type]),
		getKnownTypes: () => ({}),
	};
	const credentials = { idempotencyLedgerApi: { id: '1', name: 'Ledger' } };

	/**
	 * @param {{ name: string, type: string, parameters: object }[]} nodes Behind Start, one after another.
	 * @param {object[]} items Each the json of one item.
	 * @returns {Promise<Ran>}
	 */
	async function run(nodes, items) {
		const all = [pass('Start'), ...nodes];
		const workflow = new Workflow({
			...{ id: 'bench', name: 'Bench', active: false, nodeTypes },
			settings: { executionOrder: 'v1' },
			nodes: all.map((node, at) => ({
				...{ id: randomUUID(), typeVersion: 1, position: [at * 200, 0], ...node },
				...(node.type === START ? {} : { credentials }),
			})),
			connections: Object.fromEntries(
				nodes.map(({ name }, at) => [
					all[at].name,
					{ main: [[{ node: name, type: 'main', index: 0 }]] },
				]),
			),
		});
		const executionId = String(++executions);
		const hooks = new core.ExecutionLifecycleHooks('webhook', executionId, /** @type {any} */ ({}));
		const ended = new Promise((resolve) => hooks.addHandler('workflowExecuteAfter', resolve));
		const additionalData = /** @type {any} */ ({
			...{ hooks, executionId, variables: {}, restApiUrl: '', instanceBaseUrl: '' },
			webhookWaitingBaseUrl: 'http://localhost/webhook-waiting',
			formWaitingBaseUrl: 'http://localhost/form-waiting',
			credentialsHelper: {
				isCredentialUsableByNode: () => true,
				getDecrypted: async () => credential,
				getParentTypes: () => [],
			},
		});
		const data = createRunExecutionData(
			/** @type {any} */ ({
				executionData: {
					nodeExecutionStack: [
						{
							node: /** @type {any} */ (workflow.getNode('Start')),
							data: { main: [items.map((json) => ({ json }))] },
							source: null,
						},
					],
					runtimeData: { version: 1, establishedAt: Date.now(), source: 'webhook' },
				},
			}),
		);
		await new core.WorkflowExecute(additionalData, 'webhook', data).processRunExecutionData(
			workflow,
		);
		const { resultData } = /** @type {any} */ (await ended).data;
		if (resultData.error !== undefined) throw new Error(resultData.error.message);
		return {
			out: (node, output = 0) =>
				(resultData.runData[node] ?? []).flatMap(
					(/** @type {any} */ task) => task.data?.main?.[output] ?? [],
				),
		};
	}

	const complete = {
		name: 'Complete Work',
		type: COMPLETE,
		parameters: { operation: 'complete', result: 'item', externalRef: '', options: {} },
	};
	/** @param {object} identity */
	const claim = (identity) => ({
		name: 'Claim Work',
		type: CLAIM,
		parameters: { ...CLAIM_PARAMETERS, ...identity },
	});
	/** A node that hands its items on. @param {string} name */
	const pass = (name) => ({ name, type: START, parameters: {} });
	return { run, claim, complete, pass };
}

module.exports = { startEngine };
