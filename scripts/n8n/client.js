'use strict';

const { setTimeout: delay } = require('node:timers/promises');

/** A call that nobody answers, or an execution that does not end, must fail a test, not hang it. */
const PATIENCE_MS = 100_000;

/**
 * Drives a running n8n the way a person does: login, the REST calls of the editor, webhooks.
 */
class N8nClient {
	/** @param {{ baseUrl: string, email: string, password: string }} access */
	constructor({ baseUrl, email, password }) {
		this.baseUrl = baseUrl;
		this.email = email;
		this.password = password;
		/** @type {string | null} */
		this.cookie = null;
	}

	async login() {
		const response = await fetch(`${this.baseUrl}/rest/login`, {
			method: 'POST',
			headers: { 'content-type': 'application/json' },
			body: JSON.stringify({ emailOrLdapLoginId: this.email, password: this.password }),
		});
		if (!response.ok) throw new Error(`login to n8n: ${response.status} ${await response.text()}`);
		this.cookie = response.headers
			.getSetCookie()
			.map((cookie) => cookie.split(';')[0])
			.join('; ');
	}

	/**
	 * A call of the editor's own REST interface, logged in.
	 *
	 * @param {string} method
	 * @param {string} route Begins with a slash, without `/rest`.
	 * @param {unknown} [body]
	 * @returns {Promise<any>} The answer's `data`.
	 */
	async rest(method, route, body) {
		if (this.cookie === null) await this.login();
		const response = await fetch(`${this.baseUrl}/rest${route}`, {
			method,
			headers: {
				cookie: /** @type {string} */ (this.cookie),
				...(body === undefined ? {} : { 'content-type': 'application/json' }),
			},
			body: body === undefined ? undefined : JSON.stringify(body),
		});
		const text = await response.text();
		if (!response.ok) throw new Error(`n8n: ${method} ${route}: ${response.status} ${text}`);
		const answer = text === '' ? {} : JSON.parse(text);
		return answer.data ?? answer;
	}

	/**
	 * Creates the credential, or updates the one of the same name and type.
	 *
	 * @param {{ name: string, type: string, data: Record<string, unknown> }} credential
	 * @returns {Promise<{ id: string, name: string }>}
	 */
	async importCredential({ name, type, data }) {
		const known = await this.rest('GET', '/credentials');
		const same = known.find(
			(/** @type {any} */ other) => other.name === name && other.type === type,
		);
		const saved =
			same === undefined
				? await this.rest('POST', '/credentials', { name, type, data })
				: await this.rest('PATCH', `/credentials/${same.id}`, { name, type, data });
		return { id: saved.id ?? same.id, name };
	}

	/**
	 * Creates the workflow, or replaces the one of the same id, and activates it (by choice).
	 *
	 * @param {any} workflow As exported by n8n.
	 * @param {{ credentials?: Record<string, { id: string, name: string }>, activate?: boolean }} [options]
	 *   `credentials`: by type; nodes that name a credential of that type get this one.
	 * @returns {Promise<string>} The workflow's id.
	 */
	async importWorkflow(workflow, { credentials = {}, activate = true } = {}) {
		const nodes = workflow.nodes.map((/** @type {any} */ node) => ({
			...node,
			...(node.credentials === undefined
				? {}
				: {
						credentials: Object.fromEntries(
							Object.keys(node.credentials).map((type) => [
								type,
								credentials[type] ?? node.credentials[type],
							]),
						),
					}),
		}));
		const { name, connections, settings } = workflow;
		const content = { name, nodes, connections, settings: settings ?? {} };
		const known =
			workflow.id !== undefined &&
			(await this.rest('GET', `/workflows/${workflow.id}/exists`)).exists === true;
		const saved = known
			? await this.rest('PATCH', `/workflows/${workflow.id}`, content)
			: await this.rest('POST', '/workflows', { ...content, id: workflow.id });
		if (!activate) return saved.id;
		await this.rest('POST', `/workflows/${saved.id}/activate`, {
			versionId: saved.versionId,
			name: '',
			description: '',
		});
		await this.#waitUntilPublished(saved.id, saved.versionId);
		return saved.id;
	}

	/**
	 * Activation answers before the webhooks exist: n8n registers them in the background.
	 *
	 * @param {string} workflowId @param {string} versionId
	 */
	async #waitUntilPublished(workflowId, versionId) {
		const until = Date.now() + 60_000;
		for (;;) {
			const found = await this.rest('GET', `/workflows/${workflowId}/publication-status`);
			const failed = found.triggers.find((/** @type {any} */ one) => one.status === 'failed');
			if (failed !== undefined) {
				throw new Error(`workflow ${workflowId} was not activated: ${failed.errorMessage}`);
			}
			if (found.liveVersionId === versionId && found.pendingVersionId === null) return;
			if (Date.now() > until) {
				throw new Error(`workflow ${workflowId} was not active within a minute`);
			}
			await delay(50);
		}
	}

	/**
	 * @param {string} route The webhook's path.
	 * @param {unknown} body
	 * @param {'webhook' | 'webhook-test'} [endpoint] `webhook-test`: while a manual run waits for it.
	 * @returns {Promise<{ status: number, headers: Headers, body: any }>}
	 */
	async webhook(route, body, endpoint = 'webhook') {
		return await this.post(`${this.baseUrl}/${endpoint}/${route}`, body);
	}

	/**
	 * @param {string} url A whole address, such as that of an execution that waits.
	 * @param {unknown} body
	 * @param {number} [patienceMs] How long to wait for the answer, 100 s if not given.
	 * @returns {Promise<{ status: number, headers: Headers, body: any }>}
	 * @throws {Error} When there is no answer.
	 */
	async post(url, body, patienceMs = PATIENCE_MS) {
		const response = await fetch(url, {
			method: 'POST',
			headers: { 'content-type': 'application/json' },
			body: JSON.stringify(body),
			signal: AbortSignal.timeout(patienceMs),
		});
		const text = await response.text();
		let parsed = /** @type {any} */ (text);
		try {
			parsed = JSON.parse(text);
		} catch {
			// n8n answers some failures in plain text.
		}
		return { status: response.status, headers: response.headers, body: parsed };
	}

	/**
	 * Runs a workflow as the editor's button does.
	 *
	 * @param {string} workflowId
	 * @param {string} trigger Name of the trigger node to begin at.
	 * @returns {Promise<{ executionId?: string, waitingForWebhook?: boolean }>} The latter: the run
	 *   begins with a call of the trigger's address below `/webhook-test/`.
	 */
	async runManually(workflowId, trigger) {
		const body = { triggerToStartFrom: { name: trigger } };
		return await this.rest('POST', `/workflows/${workflowId}/run`, body);
	}

	/**
	 * n8n's own Retry, with the workflow as it was; resolves when the new execution has ended.
	 *
	 * @param {string} executionId
	 * @returns {Promise<string>} The new execution's id.
	 */
	async retry(executionId) {
		const body = { loadWorkflow: false };
		const { id } = await this.rest('POST', `/executions/${executionId}/retry`, body);
		return String(id);
	}

	/**
	 * @typedef {object} Execution
	 * @property {string} id
	 * @property {string} status
	 * @property {string} mode
	 * @property {string[]} ran Names of the nodes that ran.
	 * @property {string | null} error
	 * @property {string | null} errorDescription
	 * @property {(node: string) => number} tookMs By n8n's own clock, a node's last run.
	 * @property {(node: string, output?: number) => any[]} json What a node's last run sent out by an
	 *   output (default the first).
	 */

	/**
	 * @param {string} id
	 * @returns {Promise<Execution>}
	 */
	async execution(id) {
		const execution = await this.rest('GET', `/executions/${id}`);
		// n8n stores run data "flatted": an array whose strings of digits are indexes into it. It is
		// empty while the execution runs.
		const data = unflatten(JSON.parse(execution.data)) ?? {};
		const runs = data.resultData?.runData ?? {};
		return {
			id: String(id),
			status: execution.status,
			mode: execution.mode,
			ran: Object.keys(runs),
			error: data.resultData?.error?.message ?? null,
			errorDescription: data.resultData?.error?.description ?? null,
			tookMs: (node) => runs[node]?.at(-1)?.executionTime ?? Number.NaN,
			json: (node, output = 0) =>
				(runs[node]?.at(-1)?.data?.main?.[output] ?? []).map(
					(/** @type {any} */ item) => item.json,
				),
		};
	}

	/**
	 * Waits until an execution has one of these states.
	 *
	 * @param {string} id
	 * @param {string[]} statuses
	 * @returns {Promise<Execution>}
	 * @throws {Error} When it has none of them within 100 s.
	 */
	async executionReaches(id, statuses) {
		const since = Date.now();
		for (;;) {
			const execution = await this.execution(id);
			if (statuses.includes(execution.status)) return execution;
			if (Date.now() - since > PATIENCE_MS) {
				throw new Error(`execution ${id} is ${execution.status}, not ${statuses.join(' or ')}`);
			}
			await delay(100);
		}
	}

	/**
	 * @param {string} workflowId
	 * @param {number} limit
	 * @returns {Promise<string[]>} Ids of its executions, newest first.
	 */
	async lastExecutions(workflowId, limit) {
		const filter = encodeURIComponent(JSON.stringify({ workflowId }));
		const list = await this.rest('GET', `/executions?filter=${filter}&limit=${limit}`);
		return list.results.map((/** @type {{ id: string }} */ { id }) => id);
	}

	/**
	 * Executions of a workflow, newest first.
	 *
	 * @param {string} workflowId
	 * @returns {Promise<Execution[]>}
	 */
	async executions(workflowId) {
		const found = [];
		for (const id of await this.lastExecutions(workflowId, 100))
			found.push(await this.execution(id));
		return found;
	}
}

/**
 * Reads the format of the npm package `flatted`, in which n8n keeps run data: a list whose first
 * entry is the value, and where every string inside an entry is the index of another entry.
 *
 * @param {any[]} list
 * @returns {any}
 */
function unflatten(list) {
	/** @type {Map<number, any>} */
	const done = new Map();
	const at = (/** @type {number} */ index) => {
		if (done.has(index)) return done.get(index);
		const raw = list[index];
		if (typeof raw !== 'object' || raw === null) return raw;
		const value = /** @type {any} */ (Array.isArray(raw) ? [] : {});
		done.set(index, value);
		for (const [name, member] of Object.entries(raw)) {
			value[name] = typeof member === 'string' ? at(Number(member)) : member;
		}
		return value;
	};
	return at(0);
}

module.exports = { N8nClient };
