import type { PoolClient } from 'pg';

import { Statements } from '../../ledger/statements';

/** Statements by name on connections that answer otherwise than PostgreSQL and PgBouncer do (case 35). */

interface Sent {
	text: string;
	name?: string;
}

const refusal = (code: string, message: string) =>
	Object.assign(new Error(message), { code, severity: 'ERROR' });

/** A connection of process 7; `answer` may throw, for the question and for each statement. */
function connection(answer: (sent: Sent) => unknown, processID: unknown = 7) {
	const sent: Sent[] = [];
	const client = {
		processID,
		query: async (query: Sent) => {
			sent.push(query);
			return { rows: [await answer(query)] };
		},
	};
	return { client: client as unknown as PoolClient, sent };
}

const isQuestion = ({ text }: Sent) => text.includes('pg_backend_pid');

async function sendTwenty(client: PoolClient): Promise<void> {
	const statements = new Statements(1000);
	for (let i = 0; i < 20; i++) {
		expect((await statements.send(client, 'select 1', [])).rows).toEqual([{ pid: 7 }]);
	}
}

test('a direct connection is asked once, and goes by name from then on', async () => {
	const { client, sent } = connection(() => ({ pid: 7 }));
	await sendTwenty(client);
	expect(sent.filter(isQuestion)).toHaveLength(1);
	expect(sent.filter(({ name }) => name !== undefined)).toHaveLength(10);
});

test.each([
	['the right is missing', refusal('42501', 'permission denied for function pg_backend_pid')],
	[
		'the proxy knows no such function',
		refusal('42883', 'function pg_backend_pid() does not exist'),
	],
	['the proxy refuses it in words of its own', refusal('XX000', 'not supported')],
])('a server that does not tell its process is used without names: %s', async (_, thrown) => {
	const { client, sent } = connection((query) => {
		if (isQuestion(query)) throw thrown;
		return { pid: 7 };
	});
	await sendTwenty(client);
	expect(sent.filter(isQuestion)).toHaveLength(1);
	expect(sent.some(({ name }) => name !== undefined)).toBe(false);
});

test.each([
	['another number', 8],
	['none', undefined],
	['a negative one, as poolers make up', -7],
])('a connection that was told %s has no names', async (_, told) => {
	const { client, sent } = connection(() => ({ pid: 7 }), told === undefined ? null : told);
	await sendTwenty(client);
	expect(sent.some(({ name }) => name !== undefined)).toBe(false);
});

test.each([
	['a time-out of the driver', new Error('Query read timeout')],
	['a lost connection', Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })],
])('%s while asking is the failure of the call: nothing more is sent', async (_, thrown) => {
	const { client, sent } = connection((query) => {
		if (isQuestion(query)) throw thrown;
		return { pid: 7 };
	});
	await expect(sendTwenty(client)).rejects.toBe(thrown);
	expect(sent.at(-1)).toMatchObject({ text: expect.stringContaining('pg_backend_pid') });
});

test.each([
	['26000', 'prepared statement "x" does not exist'],
	['42P05', 'prepared statement "x" already exists'],
	['0A000', 'cached plan must not change result type'],
	['58000', 'prepared statement idempotency x not found'],
	['XX000', 'prepared statement "x" does not exist'],
])(
	'a proxy behind a true process number that loses names is asked without: %s %s',
	async (code, words) => {
		const { client, sent } = connection((query) => {
			if (query.name !== undefined) throw refusal(code, words);
			return { pid: 7 };
		});
		await sendTwenty(client);
		expect(sent.filter(({ name }) => name !== undefined)).toHaveLength(1);
	},
);

test('another failure is not tried again, and the name is kept', async () => {
	let fails = true;
	const { client, sent } = connection((query) => {
		if (query.name !== undefined && fails) throw refusal('40001', 'could not serialize');
		return { pid: 7 };
	});
	const statements = new Statements(1000);
	for (let i = 0; i < 10; i++) await statements.send(client, 'select 1', []);
	await expect(statements.send(client, 'select 1', [])).rejects.toMatchObject({ code: '40001' });
	fails = false;
	await statements.send(client, 'select 1', []);
	expect(sent.slice(-2).every(({ name }) => name !== undefined)).toBe(true);
});
