import { createHash } from 'crypto';
import type { PoolClient, QueryResult, QueryResultRow } from 'pg';

/**
 * The question is a round trip: a connection that is closed after a claim and a completion would not earn it back, and one
 * that has carried so many statements will carry more.
 */
const ASK_AFTER = 10;

/**
 * What a server says when a statement it was to know by its name is gone, is there already, or was made for a function
 * that has changed since. It says so before it runs anything, or takes back what it ran.
 */
const NAME_CODES = new Set(['26000', '42P05', '0A000']);

/** What proxies that keep such names themselves say, under codes of their own. */
const NAME_WORDS = /prepared statement .*(does not exist|already exists|not found)/i;

/** What the driver throws; only a server's answer has a severity. */
interface Refusal {
	code?: string;
	severity?: string;
	message?: string;
}

const isOfName = ({ code, message }: Refusal) =>
	NAME_CODES.has(code ?? '') || NAME_WORDS.test(message ?? '');

interface Connection {
	carried: number;
	/** null: not asked yet. */
	direct: boolean | null;
}

/**
 * Sends statements by name where that is safe, so that the server parses and plans each of them once per connection: a
 * sixth of the time of a claim. Safe is a connection with nobody between: a pooler that gives each transaction another
 * server connection does not keep names together. Such a pooler makes up the process number that a client is told when it
 * connects, so a number that is the backend's own means that there is none.
 *
 * The answer is not trusted further than needed: a server that does not know a name is asked again without one. Two
 * processes that share a name by mistake share its text, too, as the name is a digest of it.
 */
export class Statements {
	private readonly connections = new WeakMap<PoolClient, Connection>();
	/** By text. The ledger's texts are constants, so they are few. */
	private readonly names = new Map<string, string>();

	constructor(private readonly timeoutMs: number) {}

	/** Throws what the driver throws. */
	async send<Row extends QueryResultRow>(
		client: PoolClient,
		text: string,
		values: unknown[],
	): Promise<QueryResult<Row>> {
		const query = { text, values, query_timeout: this.timeoutMs };
		const connection = this.connectionOf(client);
		if (!(await this.isDirect(client, connection))) return await client.query<Row>(query);
		const named = { ...query, name: this.nameOf(text) };
		return await client.query<Row>(named).catch(async (error: Refusal) => {
			if (!isOfName(error)) throw error;
			connection.direct = false;
			return await client.query<Row>(query);
		});
	}

	private connectionOf(client: PoolClient): Connection {
		let connection = this.connections.get(client);
		if (connection === undefined) {
			connection = { carried: 0, direct: null };
			this.connections.set(client, connection);
		}
		return connection;
	}

	private async isDirect(client: PoolClient, connection: Connection): Promise<boolean> {
		if (connection.direct === null && connection.carried++ >= ASK_AFTER) {
			const question = {
				text: 'select pg_catalog.pg_backend_pid() as pid',
				query_timeout: this.timeoutMs,
			};
			const pid = await client
				.query<{ pid: number }>(question)
				.then(({ rows }) => rows[0].pid)
				.catch((error: Refusal) => {
					// a server that refuses to say (a right was taken away, a proxy that knows no such function) can still be used
					if (error.code === undefined || error.severity === undefined) throw error;
					return null;
				});
			// in no type, and as old as the driver: a driver without it is one whose connections have no names
			const told = (client as { processID?: unknown }).processID;
			connection.direct = pid !== null && told === pid;
		}
		return connection.direct === true;
	}

	private nameOf(text: string): string {
		let name = this.names.get(text);
		if (name === undefined) {
			name = `idempotency ${createHash('sha256').update(text).digest('hex').slice(0, 40)}`;
			this.names.set(text, name);
		}
		return name;
	}
}
