'use strict';

const { setTimeout: delay } = require('node:timers/promises');

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
	 * Creates the workflow, or replaces the one of the same id, and activates it.
	 *
	 * @param {any} workflow As exported by n8n.
	 * @param {{ credentials?: Record<string, { id: string, name: string }> }} [options]
	 *   `credentials`: by type; nodes that name a credential of that type get this one.
	 * @returns {Promise<string>} The workflow's id.
	 */
	async importWorkflow(workflow, { credentials = {} } = {}) {
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
	 * @returns {Promise<{ status: number, headers: Headers, body: any }>}
	 */
	async webhook(route, body) {
		const response = await fetch(`${this.baseUrl}/webhook/${route}`, {
			method: 'POST',
			headers: { 'content-type': 'application/json' },
			body: JSON.stringify(body),
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
	 * Executions of a workflow, newest first, with the names of the nodes that ran.
	 *
	 * @param {string} workflowId
	 * @returns {Promise<{ id: string, status: string, ran: string[], error: string | null }[]>}
	 */
	async executions(workflowId) {
		const filter = encodeURIComponent(JSON.stringify({ workflowId }));
		const list = await this.rest('GET', `/executions?filter=${filter}&limit=50`);
		const found = [];
		for (const { id, status } of list.results) {
			const execution = await this.rest('GET', `/executions/${id}`);
			// n8n stores run data "flatted": an array whose strings of digits are indexes into it.
			const data = unflatten(JSON.parse(execution.data));
			found.push({
				id,
				status,
				ran: Object.keys(data.resultData?.runData ?? {}),
				error: data.resultData?.error?.message ?? null,
			});
		}
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
