import net from 'node:net';

import {
	checkLedger,
	createLedger,
	isLedgerError,
	type Ledger,
	type LedgerSettings,
} from '../../ledger';
import { closeSharedLedgers, sharedLedger } from '../../ledger';
import type { ClaimItem } from '../../ledger/contract';
import { describeFailure, isTransient, losesAnswer, spoilsConnection } from '../../ledger/errors';
import type { CompleteSettings } from '../../ledger/settings';
import { startProxy, type CuttableProxy } from './cuttable-proxy';
import { again, CALLER, newWork, POLICY, Stage } from './stage';

let stage: Stage;
const ledgers: Ledger[] = [];
beforeAll(async () => {
	stage = await Stage.open();
});
afterAll(async () => {
	await Promise.all(ledgers.map(async (ledger) => await ledger.close()));
	await stage.close();
});

/** Another ledger on the same database, closed at the end. */
function another(change: Partial<LedgerSettings>): Ledger {
	const ledger = createLedger({ ...stage.settings, ...change });
	ledgers.push(ledger);
	return ledger;
}

/** Backends of the ledgers' pools in this database. */
async function backends(): Promise<number[]> {
	const rows = await stage.query<{ pid: number }>(
		`select pid from pg_stat_activity
		where datname = current_database() and application_name = 'n8n-nodes-idempotency'`,
	);
	return rows.map(({ pid }) => pid);
}

async function terminateAll(): Promise<void> {
	const pids = await backends();
	await stage.query('select pg_terminate_backend(pid) from unnest($1::int[]) pid', [pids]);
	for (;;) {
		const left = await backends();
		if (!left.some((pid) => pids.includes(pid))) return;
	}
}

describe('a dead backend', () => {
	test('that was idle does not crash the process: the next call reconnects', async () => {
		await stage.claimed();
		expect(await backends()).not.toEqual([]);
		await terminateAll();
		expect(await stage.claim(newWork())).toMatchObject({ status: 'claimed' });
	});

	test('that was idle, all of the pool at once: every call succeeds', async () => {
		await Promise.all(Array.from({ length: 5 }, async () => await stage.claimed()));
		await terminateAll();
		const answers = await Promise.all(
			Array.from({ length: 10 }, async () => await stage.claim(newWork())),
		);
		expect(answers.map(({ status }) => status)).toEqual(Array(10).fill('claimed'));
	});

	test('that died before its statement was committed: the call is sent again and claims once', async () => {
		const item = newWork();
		const holder = await stage.connect();
		await holder.query('begin');
		await holder.query(
			`select * from idempotency.claim_work($1, 'k', gen_random_uuid(), null, null, '{"kind": "invoice"}')`,
			[item.workId],
		);
		const claim = stage.claim(item);
		await stage.untilWaiting(1);
		await terminateAll();
		await holder.query('rollback');
		expect(await claim).toMatchObject({ status: 'claimed', attempt: 1, token: item.token });
		expect(await stage.history(item)).toEqual(['claim: claimed']);
	});
});

describe('an answer lost after the statement was committed', () => {
	let proxy: CuttableProxy;
	let ledger: Ledger;
	beforeAll(async () => {
		proxy = await startProxy(stage.database.config);
		ledger = another({ port: proxy.port });
	});
	afterAll(async () => {
		await proxy.close();
	});

	/** Makes the call, loses its first answer, and gives back the one it gets when sent again. */
	async function losing<T>(text: string, call: () => Promise<T>): Promise<T> {
		const { lost } = proxy;
		proxy.loseAnswerTo(text);
		const answer = await call();
		expect(proxy.lost).toBe(lost + 1);
		return answer;
	}

	test('of a claim, before a server that stays in its start-up for every other try: released again, not stranded', async () => {
		const fresh = await startProxy(stage.database.config);
		try {
			const one = another({ port: fresh.port, maxConnections: 1 });
			await one.works.openClaims(null, 'nobody', 1);
			const item = newWork();
			fresh.loseAnswerTo('claim_work(');
			// the other four tries of the claim; the release that follows gets through
			fresh.thenStartUpFor(4);
			await expect(one.works.claim([item], POLICY, { freshTokens: true })).rejects.toMatchObject({
				code: 'starting_up',
				answerLost: true,
			});
			expect(fresh.lost).toBe(1);
			expect(await stage.findRow(item)).toBeNull();
			expect(await stage.history(item)).toEqual(['claim: claimed', 'release: released']);
		} finally {
			await fresh.close();
		}
	});

	test('of a claim that was sent by its name alone: the first answer again', async () => {
		const item = newWork();
		for (let i = 0; i < 12; i++) await ledger.works.claim([newWork()], POLICY);
		const [answer] = await losing(
			'claim_work(',
			async () => await ledger.works.claim([item], POLICY),
		);
		expect(answer).toMatchObject({ status: 'claimed', attempt: 1, token: item.token });
		expect(await stage.history(item)).toEqual(['claim: claimed']);
	});

	test('of a claim: the first answer by its token, one attempt, one log row', async () => {
		const item = newWork();
		const [answer] = await losing(
			'claim_work(',
			async () => await ledger.works.claim([item], POLICY),
		);
		expect(answer).toMatchObject({
			status: 'claimed',
			attempt: 1,
			token: item.token,
			previousOutcome: null,
			owner: null,
		});
		expect(await stage.row(item)).toMatchObject({ attempt: 1, token: item.token });
		expect(await stage.history(item)).toEqual(['claim: claimed']);
	});

	test('of a second attempt: the first answer, and the attempt is not raised twice', async () => {
		const item = await stage.workThatIs('lapsed');
		const next = again(item);
		const [answer] = await losing(
			'claim_work(',
			async () => await ledger.works.claim([next], POLICY),
		);
		expect(answer).toMatchObject({ status: 'claimed', attempt: 2, previousOutcome: 'unknown' });
		expect(await stage.row(item)).toMatchObject({ attempt: 2 });
		expect(await stage.history(item)).toEqual(['claim: claimed', 'claim: claimed']);
	});

	test('of a batch of claims, repeated keys included', async () => {
		const items = [newWork(), newWork(), newWork()];
		items.push(again(items[0]));
		const answers = await losing(
			'claim_works(',
			async () => await ledger.works.claim(items, POLICY),
		);
		expect(answers.map(({ status, token }) => [status, token])).toEqual([
			['claimed', items[0].token],
			['claimed', items[1].token],
			['claimed', items[2].token],
			['in_progress', null],
		]);
		for (const item of items.slice(1, 3)) {
			expect(await stage.history(item)).toEqual(['claim: claimed']);
		}
	});

	const operations: Array<[string, string, (item: ClaimItem) => Promise<unknown>, object]> = [
		[
			'a completion',
			'complete_work(',
			async (item) =>
				await ledger.works.complete([{ ...item, result: 1, externalRef: 'r' }], CALLER),
			{ status: 'completed', state: 'done', externalRef: 'r', differs: [] },
		],
		[
			'a failure',
			'fail_works(',
			async (item) => await ledger.works.fail([{ ...item, error: 'x', landed: 'no' }], CALLER),
			{ status: 'failed', state: 'failed', lastError: 'x' },
		],
		[
			'a reference',
			'record_references(',
			async (item) => await ledger.works.recordReference([{ ...item, externalRef: 'r' }], CALLER),
			{ status: 'recorded', state: 'running', externalRef: 'r' },
		],
		[
			'a release',
			'release_works(',
			async (item) => await ledger.works.release([item], CALLER),
			{ status: 'released' },
		],
	];

	test.each(operations)(
		'of %s: the same answer again, one log row',
		async (_, text, call, expected) => {
			const item = await stage.claimed();
			expect(await losing(text, async () => await call(item))).toMatchObject([expected]);
			expect(await stage.log(item)).toHaveLength(2);
		},
	);
});

describe('a query that timed out', () => {
	test('destroys its connection, so that its late answer cannot be taken for another', async () => {
		const ledger = another({ queryTimeoutSeconds: 1, maxConnections: 1 });
		const item = await stage.claimed();
		const holder = await stage.connect();
		await holder.query('begin');
		await holder.query('select 1 from idempotency.work_log where work_id = $1 for update', [
			item.workId,
		]);
		const completion = ledger.works
			.complete([{ ...item, result: 1 }], CALLER)
			.catch((e: unknown) => e);
		expect(await completion).toMatchObject({ name: 'LedgerError', code: 'timeout' });
		expect(ledger.connection.openConnections).toBe(0);
		const [answer] = await ledger.works.claim([newWork()], POLICY);
		expect(answer.status).toBe('claimed');
		await holder.query('rollback');
	});

	test('is looked up by its token: a claim that was committed late is not lost', async () => {
		const ledger = another({ queryTimeoutSeconds: 1 });
		const item = newWork();
		await stage.query(`
			create sequence visits;
			create function slow() returns trigger language plpgsql as $$
			begin
				if new.work_id = '${item.workId}' and nextval('public.visits') = 1 then perform pg_sleep(1.5); end if;
				return new;
			end $$;
			create trigger slow before insert on idempotency.work_log for each row execute function slow()`);
		try {
			const outcome = await ledger.works.claim([item], POLICY).then(
				([answer]) => answer.status,
				(error: unknown) => (isLedgerError(error) ? error.code : 'another error'),
			);
			// until the slow statement has ended
			while (
				(
					await stage.query(
						`select 1 from pg_stat_activity where datname = current_database()
						and pid <> pg_backend_pid() and state = 'active'`,
					)
				).length > 0
			);
			const state = (await stage.findRow(item))?.state ?? 'no work';
			expect([outcome, state]).toEqual(['claimed', 'running']);
			expect(await stage.history(item)).toEqual(['claim: claimed']);
		} finally {
			await stage.query(
				'drop trigger slow on idempotency.work_log; drop function slow(); drop sequence visits',
			);
		}
	});
});

describe('a server that says nothing', () => {
	/** Takes clients as a pooler does that has no server: it lets them in, and answers no query. */
	async function mute(): Promise<{ port: number; close(): void }> {
		const sockets: net.Socket[] = [];
		const server = net.createServer((client) => {
			const upstream = net.connect(Number(stage.settings.port), stage.settings.host);
			sockets.push(client, upstream);
			for (const socket of [client, upstream]) socket.on('error', () => {});
			// a query begins with Q, or with P for Parse
			client.on('data', (data) => {
				if (!'QP'.includes(String.fromCharCode(data[0]))) upstream.write(data);
			});
			upstream.pipe(client);
			client.on('close', () => upstream.destroy());
		});
		await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
		return {
			port: (server.address() as net.AddressInfo).port,
			close() {
				for (const socket of sockets) socket.destroy();
				server.close();
			},
		};
	}
	const LATE = /did not answer in time/;

	test('from the first query on: the first call and the test of the credential end in time', async () => {
		const { port, close } = await mute();
		const change = { host: '127.0.0.1', port, queryTimeoutSeconds: 1 };
		const ledger = another(change);
		await expect(ledger.works.claim([newWork()], POLICY)).rejects.toMatchObject({
			code: 'timeout',
		});
		expect(ledger.connection.openConnections).toBe(0);
		expect(await checkLedger({ ...stage.settings, ...change })).toEqual({
			ok: false,
			message: expect.stringMatching(LATE),
		});
		close();
	});

	test('because somebody holds the table of the version: in time, too, and the next call works', async () => {
		const holder = await stage.connect();
		await holder.query('begin; lock table idempotency.ledger_version in access exclusive mode');
		const ledger = another({ queryTimeoutSeconds: 1 });
		await expect(ledger.works.claim([newWork()], POLICY)).rejects.toThrow(LATE);
		expect(await checkLedger({ ...stage.settings, queryTimeoutSeconds: 1 })).toMatchObject({
			ok: false,
			message: expect.stringMatching(LATE),
		});
		await holder.query('rollback');
		expect(await ledger.works.claim([newWork()], POLICY)).toMatchObject([{ status: 'claimed' }]);
	});
});

describe('a server that became a standby under its connections', () => {
	/** As a failover does that moves the address to another server and ends no connection. */
	async function demote(ledger: Ledger, connections: number): Promise<void> {
		const { connection } = ledger;
		let lent = 0;
		let allLent = () => {};
		// each is kept until all are lent, so that no two of them are the same
		const together = new Promise<void>((resolve) => (allLent = resolve));
		await Promise.all(
			Array.from(
				{ length: connections },
				async () =>
					await connection.withClient(async (client) => {
						await client.query('set default_transaction_read_only = on');
						if (++lent === connections) allLent();
						await together;
					}),
			),
		);
		expect(connection.openConnections).toBe(connections);
	}

	test('all of the pool: the next call goes to where the address leads now, and claims once', async () => {
		const ledger = another({ maxConnections: 8 });
		await ledger.works.claim([newWork()], POLICY);
		await demote(ledger, 8);
		const item = newWork();
		expect(await ledger.works.claim([item], POLICY)).toMatchObject([
			{ status: 'claimed', attempt: 1 },
		]);
		expect(await stage.history(item)).toEqual(['claim: claimed']);
		expect(ledger.connection.openConnections).toBe(1);
	});

	test('many calls at once: each of them claims', async () => {
		const ledger = another({ maxConnections: 8 });
		await demote(ledger, 8);
		const answers = await Promise.all(
			Array.from({ length: 20 }, async () => await ledger.works.claim([newWork()], POLICY)),
		);
		expect(answers.flat().map(({ status }) => status)).toEqual(Array(20).fill('claimed'));
	});

	test('a completion finds its claim', async () => {
		const ledger = another({ maxConnections: 2 });
		const item = newWork();
		await ledger.works.claim([item], POLICY);
		await demote(ledger, 2);
		expect(await ledger.works.complete([{ ...item, result: 1 }], CALLER)).toMatchObject([
			{ status: 'completed' },
		]);
	});
});

describe('the pool', () => {
	test('is bounded, also when more calls come at once than it holds', async () => {
		const ledger = another({ maxConnections: 3 });
		const calls = Array.from(
			{ length: 40 },
			async () => await ledger.works.claim([newWork()], POLICY),
		);
		let most = 0;
		const watching = (async () => {
			for (let look = 0; look < 20; look++)
				most = Math.max(most, ledger.connection.openConnections);
		})();
		await Promise.all([...calls, watching]);
		expect(Math.max(most, ledger.connection.openConnections)).toBeLessThanOrEqual(3);
	});

	test('is one per credential and process: equal settings share it, others do not', async () => {
		try {
			const first = sharedLedger(stage.settings);
			expect(sharedLedger({ ...stage.settings })).toBe(first);
			expect(sharedLedger({ ...stage.settings, schema: 'idempotency' })).toBe(first);
			for (const change of [{ password: 'x' }, { schema: 'other' }, { maxConnections: 6 }]) {
				expect(sharedLedger({ ...stage.settings, ...change })).not.toBe(first);
			}
			await first.works.claim([newWork()], POLICY);
		} finally {
			await closeSharedLedgers();
		}
	});

	test('sends no startup parameters or session settings: nothing outlives a statement', async () => {
		const ledger = another({ maxConnections: 1 });
		const state = async () =>
			await ledger.connection.query(
				`select (select count(*)::int from pg_prepared_statements) as statements,
					(select count(*)::int from pg_locks where pid = pg_backend_pid() and locktype = 'advisory') as locks,
					(select count(*)::int from pg_listening_channels()) as channels,
					(select count(*)::int from pg_class where relpersistence = 't') as temporary,
					current_setting('search_path') as search_path, current_setting('lock_timeout') as lock_timeout,
					current_setting('enable_seqscan') as seqscan, current_setting('statement_timeout') as statement_timeout`,
				[],
			);
		const before = await state();
		const items = [newWork(), newWork()];
		await ledger.works.claim(items, POLICY);
		await ledger.works.complete([items[0]], CALLER);
		await ledger.works.fail([{ ...items[1], error: 'x', landed: 'no' }], CALLER);
		await ledger.install();
		expect(await state()).toEqual(before);
		expect(before).toMatchObject([
			{
				statements: 0,
				locks: 0,
				channels: 0,
				temporary: 0,
				lock_timeout: '0',
				statement_timeout: '0',
			},
		]);
	});
});

describe('statements with names (case 35)', () => {
	/** One connection, and what the server knows by name in it. */
	function oneConnection(settings: Partial<LedgerSettings> = {}) {
		const ledger = another({ maxConnections: 1, ...settings });
		const onIt = async (text: string) =>
			await ledger.connection.withClient(async (client) => (await client.query(text)).rows);
		const known = async () =>
			(await onIt(
				`select name, statement, (generic_plans + custom_plans)::integer as runs
				from pg_prepared_statements`,
			)) as Array<{ name: string; statement: string; runs: number }>;
		const claimOnce = async () => {
			const item = newWork();
			expect(await ledger.works.claim([item], POLICY)).toMatchObject([{ status: 'claimed' }]);
			expect(await stage.history(item)).toEqual(['claim: claimed']);
		};
		const claimTimes = async (times: number) => {
			for (let i = 0; i < times; i++) await claimOnce();
		};
		/** What is sent while this runs: by name, without one, and the question for the process number. */
		const sentBy = async (work: () => Promise<unknown>) => {
			const sent = { named: 0, unnamed: 0, asked: 0 };
			const lent = await ledger.connection.withClient(async (client) => client);
			const query = lent.query.bind(lent) as (...values: unknown[]) => unknown;
			lent.query = ((config: { text: string; name?: string }, ...values: unknown[]) => {
				if (config.text.includes('pg_backend_pid')) sent.asked += 1;
				else sent[config.name === undefined ? 'unnamed' : 'named'] += 1;
				return query(config, ...values);
			}) as typeof lent.query;
			await work();
			lent.query = query as typeof lent.query;
			return sent;
		};
		return { ledger, onIt, known, claimOnce, claimTimes, sentBy };
	}
	const MANY = 12;

	test('a connection that carries many has each of them parsed once; one that carries a few has none', async () => {
		const { claimOnce, claimTimes, known } = oneConnection();
		await claimOnce();
		expect(await known()).toEqual([]);
		await claimTimes(MANY);
		const [claim, ...others] = await known();
		expect(claim).toEqual({
			name: expect.stringMatching(/^idempotency [0-9a-f]{40}$/),
			statement: expect.stringContaining('claim_work('),
			runs: expect.any(Number),
		});
		expect(others).toEqual([]);
		await claimTimes(3);
		expect(await known()).toEqual([{ ...claim, runs: claim.runs + 3 }]);
	});

	test('the question for the process number is asked once', async () => {
		const { claimTimes, sentBy } = oneConnection();
		await claimTimes(1);
		const sent = await sentBy(async () => await claimTimes(MANY));
		expect(sent).toEqual({ asked: 1, unnamed: 9, named: 3 });
	});

	test('a name that the server has forgotten costs nothing but the name', async () => {
		const { claimTimes, known, onIt, sentBy } = oneConnection();
		await claimTimes(MANY);
		expect(await known()).toHaveLength(1);
		await onIt('deallocate all');
		const sent = await sentBy(async () => await claimTimes(2));
		expect(sent).toEqual({ asked: 0, named: 1, unnamed: 2 });
		expect(await known()).toEqual([]);
	});

	test('a name that somebody else has taken runs nothing of theirs', async () => {
		const other = oneConnection();
		await other.claimTimes(MANY);
		const [{ name }] = await other.known();
		const { claimTimes, known, onIt } = oneConnection();
		await onIt(`prepare "${name}" as select 'not a claim' as status`);
		await claimTimes(MANY);
		expect((await known()).map(({ statement }) => statement)).toEqual([
			expect.stringContaining('not a claim'),
		]);
	});

	test('a function that an upgrade gave another result type answers on', async () => {
		const { ledger, known, claimTimes } = oneConnection();
		await claimTimes(MANY);
		const statistics = async () => (await ledger.admin.statistics()).works;
		const before = await statistics();
		expect(await known()).toHaveLength(2);
		const define = async (change: (definition: string) => string) => {
			const [{ definition, signature }] = await stage.query<Record<string, string>>(
				`select pg_get_functiondef(oid) as definition, oid::regprocedure::text as signature
				from pg_proc where proname = 'ledger_statistics' and pronamespace = 'idempotency'::regnamespace`,
			);
			await stage.query(`drop function ${signature}`);
			await stage.query(change(definition));
		};
		await define((definition) => definition.replace('RETURNS jsonb', 'RETURNS json'));
		try {
			expect(await statistics()).toEqual(before);
		} finally {
			await define((definition) => definition.replace('RETURNS json', 'RETURNS jsonb'));
		}
		expect(await statistics()).toEqual(before);
	});

	test('a server that does not tell its process number has no names, and answers on', async () => {
		const role = `untold_${stage.database.config.database}`;
		const own = 'function pg_catalog.pg_backend_pid()';
		await stage.query(`create role ${role} login password 'secret'`);
		await stage.query(`grant usage on schema idempotency to ${role}`);
		await stage.query(`grant execute on all functions in schema idempotency to ${role}`);
		await stage.query(`grant select on idempotency.ledger_version to ${role}`);
		// in this database only
		await stage.query(`revoke execute on ${own} from public`);
		try {
			const { claimTimes, known } = oneConnection({ user: role, password: 'secret' });
			await claimTimes(MANY);
			expect(await known()).toEqual([]);
		} finally {
			await stage.query(`grant execute on ${own} to public`);
			await stage.query(`drop owned by ${role}`);
			await stage.query(`drop role ${role}`);
		}
	});

	test('a failure of the statement itself is not taken for one of its name', async () => {
		const { ledger, known, claimTimes, sentBy } = oneConnection();
		await claimTimes(MANY);
		const sent = await sentBy(async () => {
			const refused = ledger.works.claim([{ ...newWork(), token: 'no uuid' }], POLICY);
			await expect(refused).rejects.toMatchObject({ code: 'bad_input' });
		});
		expect(sent).toEqual({ asked: 0, named: 1, unnamed: 0 });
		await claimTimes(1);
		expect(await known()).toHaveLength(1);
	});
});

test.each([
	new SyntaxError('Unexpected end of JSON input'),
	new Error('received invalid response: 4c'),
])('an answer that cannot be read is a lost one: %s', (thrown) => {
	const failure = describeFailure(thrown, stage.settings as CompleteSettings);
	expect(failure.code).toBe('connection_lost');
	expect([losesAnswer(failure), isTransient(failure), spoilsConnection(failure)]).toEqual([
		true,
		true,
		true,
	]);
});

test('settings that cannot be are refused by name, before connecting', () => {
	const bad: Array<[Partial<Record<keyof LedgerSettings, unknown>>, string]> = [
		[{ host: '' }, 'host'],
		[{ database: '' }, 'database'],
		[{ user: undefined }, 'user'],
		[{ port: 70_000 }, 'port'],
		[{ tls: 'perhaps' }, 'tls'],
		[{ maxConnections: 0 }, 'maxConnections'],
		[{ queryTimeoutSeconds: 0 }, 'queryTimeoutSeconds'],
		[{ schema: 'pg_ledger' }, 'schema'],
		[{ schema: 'x'.repeat(64) }, 'schema'],
		[{ schema: 'a\0b' }, 'schema'],
	];
	for (const [change, field] of bad) {
		const settings = { ...stage.settings, ...change } as LedgerSettings;
		expect(() => createLedger(settings)).toThrow(
			expect.objectContaining({ code: 'bad_settings', message: expect.stringContaining(field) }),
		);
	}
});
