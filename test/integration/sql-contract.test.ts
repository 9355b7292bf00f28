import { randomUUID } from 'node:crypto';
import type { Client, QueryResultRow } from 'pg';

import { newWork, Stage } from './stage';

/** The functions called by plain SQL, as psql, Python or an HTTP handler would. */
let stage: Stage;
let sql: Client;
beforeAll(async () => {
	stage = await Stage.open();
	sql = await stage.connect();
});
afterAll(async () => {
	await stage.close();
});

async function ask(text: string, values: unknown[] = []): Promise<QueryResultRow[]> {
	return (await sql.query(text, values)).rows as QueryResultRow[];
}

const OPTIONS = `'{"kind": "invoice"}'`;

describe('the contract in plain SQL', () => {
	test('claims, completes and answers a duplicate in snake_case columns', async () => {
		const { workId, token } = newWork();
		const [claimed] = await ask(
			`select * from idempotency.claim_work($1, '1001', $2, null, null, ${OPTIONS})`,
			[workId, token],
		);
		expect(claimed).toEqual({
			ord: 0,
			work_id: workId,
			status: 'claimed',
			state: 'running',
			generation: 1,
			attempt: 1,
			token,
			locked_until: expect.any(Date),
			next_attempt_at: null,
			previous_outcome: null,
			last_error: null,
			result: null,
			external_ref: null,
			completed_at: null,
			owner: null,
			more: {},
		});
		const [completed] = await ask(
			`select * from idempotency.complete_work($1, $2, '{"invoice": 7}', 'inv_7', null)`,
			[workId, token],
		);
		expect(completed).toEqual({
			ord: 0,
			work_id: workId,
			status: 'completed',
			state: 'done',
			generation: 1,
			attempt: 1,
			locked_until: null,
			next_attempt_at: null,
			result: null,
			external_ref: 'inv_7',
			completed_at: expect.any(Date),
			last_error: null,
			more: { key: '1001', kind: 'invoice' },
		});
		const [duplicate] = await ask(
			`select * from idempotency.claim_work($1, '1001', gen_random_uuid(), null, null, ${OPTIONS})`,
			[workId],
		);
		expect(duplicate).toMatchObject({
			status: 'duplicate',
			token: null,
			result: { invoice: 7 },
			external_ref: 'inv_7',
			completed_at: completed.completed_at,
		});
	});

	test('defaults are those of the contract: v1, forever, 1 h, run again, 5 attempts, 30 s, 1 h', async () => {
		const { workId, token } = newWork();
		await ask(`select * from idempotency.claim_work($1, null, $2, null, null, ${OPTIONS})`, [
			workId,
			token,
		]);
		expect(await stage.row({ workId })).toMatchObject({
			version: 'v1',
			window_mode: 'forever',
			lease_s: 3600,
			on_lapse: 'run_again',
			max_attempts: 5,
			backoff_base_s: 30,
			backoff_cap_s: 3600,
			key: null,
			instance: null,
		});
	});

	test('an option that is null is left out', async () => {
		const { workId, token } = newWork();
		const options = {
			...{ kind: 'invoice', version: null, window: { mode: 'forever' }, lease_s: null },
			...{ on_lapse: null, max_attempts: null, backoff_base_s: null, backoff_cap_s: null },
			...{ poll: null, shadow: null },
		};
		await ask(`select * from idempotency.claim_work($1, null, $2, null, null, $3::jsonb)`, [
			workId,
			token,
			JSON.stringify(options),
		]);
		expect(await stage.row({ workId })).toMatchObject({
			...{ version: 'v1', lease_s: 3600, on_lapse: 'run_again' },
			...{ max_attempts: 5, backoff_base_s: 30, backoff_cap_s: 3600 },
		});
	});

	test('sha256("invoice:v1:1001") made by the database is the same work as the package\'s', async () => {
		const [{ work_id: workId }] = await ask(
			`select encode(sha256('invoice:v1:1001'), 'hex') as work_id`,
		);
		expect(newWork('1001').workId).toBe(workId);
	});

	test('fail, record_reference, extend_lease and release_work take one work', async () => {
		const { workId, token } = newWork();
		const claim = async () =>
			await ask(
				`select status, attempt from idempotency.claim_work($1, 'k', $2, null, null, ${OPTIONS})`,
				[workId, token],
			);
		await claim();
		expect(
			await ask(`select status from idempotency.extend_lease($1, $2, null, null)`, [workId, token]),
		).toEqual([{ status: 'extended' }]);
		expect(
			await ask(`select status, state from idempotency.release_work($1, $2, null)`, [
				workId,
				token,
			]),
		).toEqual([{ status: 'released', state: null }]);
		await claim();
		expect(
			await ask(
				`select status, state, external_ref from idempotency.record_reference($1, $2, 'r', null)`,
				[workId, token],
			),
		).toEqual([{ status: 'recorded', state: 'running', external_ref: 'r' }]);
		expect(
			await ask(
				`select status, state, external_ref, last_error
				from idempotency.fail_work($1, $2, 'declined', 'no', false, null)`,
				[workId, token],
			),
		).toEqual([{ status: 'failed', state: 'failed', external_ref: null, last_error: 'declined' }]);
	});

	test('batches take null for arrays they do not need, and answer claims in the order given', async () => {
		const ids = [newWork().workId, newWork().workId, newWork().workId].sort().reverse();
		const tokens = ids.map(() => randomUUID());
		const claims = await ask(
			`select ord, work_id, status from idempotency.claim_works($1, null, $2::uuid[], null, null, ${OPTIONS})`,
			[ids, tokens],
		);
		expect(claims).toEqual(ids.map((work_id, ord) => ({ ord, work_id, status: 'claimed' })));
		const completions = await ask(
			`select ord, work_id, status from idempotency.complete_works($1, $2::uuid[], null, null, null) order by ord`,
			[ids, tokens],
		);
		expect(completions).toEqual(ids.map((work_id, ord) => ({ ord, work_id, status: 'completed' })));
	});

	test('empty batches answer no row', async () => {
		expect(
			await ask(`select * from idempotency.claim_works('{}', '{}', '{}', null, null, ${OPTIONS})`),
		).toEqual([]);
		expect(
			await ask(`select * from idempotency.complete_works('{}', '{}', null, null, null)`),
		).toEqual([]);
		expect(
			await ask(`select * from idempotency.fail_works('{}', '{}', '{}', '{}', null, null)`),
		).toEqual([]);
		expect(await ask(`select * from idempotency.release_works('{}', '{}', null)`)).toEqual([]);
	});

	test('null tokens are refused at a claim and never match afterwards', async () => {
		const { workId, token } = newWork();
		await expect(
			ask(`select * from idempotency.claim_work($1, 'k', null, null, null, ${OPTIONS})`, [workId]),
		).rejects.toMatchObject({ code: '22023', message: expect.stringContaining('token') });
		await ask(`select * from idempotency.claim_work($1, 'k', $2, null, null, ${OPTIONS})`, [
			workId,
			token,
		]);
		for (const call of [
			`complete_work($1, null, null, null, null)`,
			`fail_work($1, null, 'x', 'no', false, null)`,
			`record_reference($1, null, 'r', null)`,
			`extend_lease($1, null, null, null)`,
			`release_work($1, null, null)`,
		]) {
			expect(await ask(`select status from idempotency.${call}`, [workId])).toEqual([
				{ status: 'not_owner' },
			]);
		}
		expect(await stage.row({ workId })).toMatchObject({ state: 'running', token });
	});

	test.each([
		['no kind', '{}', 'kind'],
		['no options', null, 'kind'],
		['a caller that is no object', '{"kind": "k", "caller": "me"}', 'caller'],
		['a lease that is NaN', '{"kind": "k", "lease_s": "NaN"}', 'lease_s'],
		[
			'an endless window',
			'{"kind": "k", "window": {"mode": "duration", "seconds": "Infinity"}}',
			'window',
		],
		['a window without a mode', '{"kind": "k", "window": {}}', 'window'],
		['an unknown option', '{"kind": "k", "lease": "?"}', 'unknown option: lease'],
		['an empty kind', '{"kind": ""}', 'kind'],
		['a kind with ":"', '{"kind": "a:b"}', 'kind'],
		['an empty version', '{"kind": "k", "version": ""}', 'version'],
		['a version with ":"', '{"kind": "k", "version": "v:1"}', 'version'],
		['a lease of nothing', '{"kind": "k", "lease_s": 0}', 'lease_s'],
		['a lease above a year', '{"kind": "k", "lease_s": 31622401}', 'lease_s'],
		['an unknown policy', '{"kind": "k", "on_lapse": "shrug"}', 'on_lapse'],
		['a policy kept for shadow mode', '{"kind": "k", "on_lapse": "shadow"}', 'on_lapse'],
		['no attempts', '{"kind": "k", "max_attempts": 0}', 'max_attempts'],
		['too many attempts', '{"kind": "k", "max_attempts": 1000001}', 'max_attempts'],
		['a pause below 0', '{"kind": "k", "backoff_base_s": -1}', 'backoff_base_s'],
		['a pause that is NaN', '{"kind": "k", "backoff_base_s": "NaN"}', 'backoff_base_s'],
		['a longest pause above a year', '{"kind": "k", "backoff_cap_s": 31622401}', 'backoff_cap_s'],
		['a longest pause below 0', '{"kind": "k", "backoff_cap_s": -1}', 'backoff_cap_s'],
		['a caller that is a list', '{"kind": "k", "caller": []}', 'caller'],
		['a caller that is null', '{"kind": "k", "caller": null}', 'caller'],
		['an unknown field of the caller', '{"kind": "k", "caller": {"who": "me"}}', 'caller'],
	])('%s is refused by name with 22023', async (_, options, name) => {
		const { workId, token } = newWork();
		await expect(
			ask('select * from idempotency.claim_work($1, null, $2, null, null, $3)', [
				workId,
				token,
				options,
			]),
		).rejects.toMatchObject({ code: '22023', message: expect.stringContaining(name) });
	});

	test('an id that is no sha256 is refused', async () => {
		await expect(
			ask(`select * from idempotency.claim_work('1001', null, $1, null, null, ${OPTIONS})`, [
				randomUUID(),
			]),
		).rejects.toMatchObject({ code: '23514' });
	});

	test("answers do not depend on the session's time zone, date style or isolation", async () => {
		const other = await stage.connect();
		await other.query(`set timezone = 'Asia/Kolkata'; set datestyle = 'SQL, DMY'`);
		await other.query(`set default_transaction_isolation = 'serializable'`);
		const { workId, token } = newWork();
		await other.query(
			`select * from idempotency.claim_work($1, 'k', $2, null, null, '{"kind": "invoice", "caller": {"execution": "1"}}')`,
			[workId, token],
		);
		const { rows } = await other.query<{ owner: { claimedAt: string } }>(
			`select owner from idempotency.claim_work($1, 'k', gen_random_uuid(), null, null, ${OPTIONS})`,
			[workId],
		);
		const { claimed_at } = await stage.row({ workId });
		expect(rows[0].owner.claimedAt).toBe(claimed_at.toISOString());
	});

	test("a claim, an effect and its completion in one transaction of the caller's are one", async () => {
		const { workId, token } = newWork();
		await ask('begin');
		await ask(`select * from idempotency.claim_work($1, 'k', $2, null, null, ${OPTIONS})`, [
			workId,
			token,
		]);
		await ask(`select * from idempotency.complete_work($1, $2, '1', null, null)`, [workId, token]);
		await ask('rollback');
		expect(await stage.findRow({ workId })).toBeNull();
		expect(await stage.log({ workId })).toEqual([]);
	});
});
