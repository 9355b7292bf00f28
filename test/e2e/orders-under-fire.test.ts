/**
 * n8n in queue mode under fire: orders that are each delivered by three senders until they are answered, workers killed
 * again and again while an invoice exists that nobody has completed, the ledger's PostgreSQL crashed in the middle. Twice:
 * directly, and through PgBouncer in transaction mode with two server connections.
 */

import { setTimeout as delay } from 'node:timers/promises';

import { N8nClient } from '../../scripts/n8n/client';
import { startPgBouncer, type PgBouncer } from '../environments/pgbouncer';
import { importVariant } from './example';
import { claimWork, completeWork, createInvoice, flow, importFlowWith, pass } from './flow';
import {
	closeLedger,
	invoiceServer,
	order,
	queryLedger,
	until,
	type Database,
	type Invoice,
} from './stage';

const SENDERS = 3;
const LEASE_SECONDS = 12;
/** Doubled with each answer that is no 2xx, as good senders do. */
const FIRST_REPEAT_MS = 1_000;
const LAST_REPEAT_MS = 8_000;
/** A sender hangs up after this, and delivers again. */
const PATIENCE_MS = 10_000;
/** Deliveries on their way at the same time. */
const LANES = 24;

interface Delivery {
	orderId: string;
	/** Of each answer; 0: none. */
	statuses: number[];
	body: { invoice_id?: string; status?: string };
}

interface Work extends Record<string, unknown> {
	key: string;
	state: string;
	attempt: number;
	external_ref: string | null;
	outcome_known: boolean;
}

let queue: N8nClient;
let ledger: Database;
let pooler: PgBouncer;

beforeAll(async () => {
	ledger = await order<Database>('/ledger/start-crashing');
	pooler = await startPgBouncer(ledger);
	queue = new N8nClient(await order<ConstructorParameters<typeof N8nClient>[0]>('/queue/start'));
}, 300_000);

afterAll(async () => {
	await order('/queue/stop');
	await pooler.stop();
	await closeLedger();
});

/** The retries of a kind, by Work Ledger Trigger: it sweeps, claims what is due, and the flow makes the invoice. */
async function importRetries(kind: string, database: Database, withoutKey: boolean) {
	const invoice = createInvoice();
	if (withoutKey) invoice.parameters.sendHeaders = false;
	await importFlowWith(
		queue,
		database,
		`Ledger of ${kind}`,
		flow(
			`${kind}-retries`,
			[
				{
					name: 'Work Ledger Trigger',
					type: 'n8n-nodes-idempotency.workLedgerTrigger',
					typeVersion: 1,
					credentials: { idempotencyLedgerApi: { id: '', name: '' } },
					parameters: { event: 'retry_due', kinds: kind, intervalSeconds: 1, options: {} },
				},
				claimWork(kind, { identity: 'ledger' }),
				invoice,
				completeWork(),
				pass('Not Claimed'),
			],
			{
				'Work Ledger Trigger': ['Claim Work'],
				'Claim Work': ['Create Invoice', 'Not Claimed', 'Not Claimed', 'Not Claimed'],
				'Create Invoice': ['Complete Work'],
			},
		),
	);
}

async function findWork(kind: string, orderId: string) {
	const [work] = await queryLedger<{ state: string; execution: string | null }>(
		`select state, execution from :schema.work_log where kind = $1 and key = $2`,
		[kind, orderId],
		ledger,
	);
	return work;
}

/**
 * Delivers an order until it is answered 2xx, or told that a person has to look at it. The senders of a victim do not
 * bring it back once it is claimed: that is left to the trigger.
 */
async function deliver(kind: string, orderId: string, isVictim: boolean): Promise<Delivery> {
	const statuses: number[] = [];
	for (;;) {
		if (isVictim && statuses.length > 0) {
			await until(`${orderId} is brought back by the trigger`, async () => {
				// PostgreSQL may be down just now
				const work = await findWork(kind, orderId).catch(() => null);
				return work === undefined || ['done', 'held'].includes(work?.state ?? '');
			});
		}
		const answer = await queue
			.post(`${queue.baseUrl}/webhook/${kind}`, { order_id: orderId }, PATIENCE_MS)
			.catch(() => null);
		statuses.push(answer?.status ?? 0);
		if (answer !== null) {
			const { status, body } = answer;
			if (status >= 200 && status < 300) return { orderId, statuses, body };
			if (status === 409 && body.status === 'held') return { orderId, statuses, body };
		}
		await delay(Math.min(FIRST_REPEAT_MS * 2 ** (statuses.length - 1), LAST_REPEAT_MS));
	}
}

/** Runs all jobs, so many at a time, in their order. */
async function inLanes<Result>(jobs: Array<() => Promise<Result>>, lanes: number) {
	const results: Result[] = [];
	const left = jobs.values();
	await Promise.all(
		Array.from({ length: lanes }, async () => {
			for (const job of left) results.push(await job());
		}),
	);
	return results;
}

/** Kills the worker that makes each victim's invoice, while that exists and is not completed; crashes PostgreSQL between. */
async function fire(victims: Array<{ kind: string; orderId: string }>) {
	let killed = 0;
	for (const [at, { kind, orderId }] of victims.entries()) {
		// an earlier kill may have met it between its claim and its invoice, and settled it so
		const settled = until(`${orderId} is settled`, async () =>
			['held', 'done'].includes((await findWork(kind, orderId))?.state ?? ''),
		).catch(() => undefined);
		await Promise.race([invoiceServer.invoiceHeld(orderId), settled]);
		const execution = (await findWork(kind, orderId))?.execution;
		// without one the trigger has brought it back already: an earlier kill met it before its invoice
		if (execution) {
			await order(`/queue/kill-worker?execution=${execution}`);
			killed += 1;
		}
		await invoiceServer.release(orderId);
		if (at === victims.length >> 1) await order('/ledger/crash');
		await order('/queue/start-dead-workers');
	}
	return killed;
}

interface Burnt {
	deliveries: Delivery[];
	works: Work[];
	invoices: Map<string, Invoice[]>;
}

/** Sends orders of both kinds into the fire, and waits until nothing is left to do. */
async function burn(name: string, count: number, kills: number, database: Database) {
	const again = `${name}-again`;
	const hold = `${name}-hold`;
	const common = { leaseSeconds: LEASE_SECONDS, backoffSeconds: 1, attempts: 50 };
	const target = { client: queue, ledger: database };
	await importVariant({ route: again, kind: again, ...common }, target);
	await importVariant(
		{ route: hold, kind: hold, onLapse: 'hold', withoutKey: true, ...common },
		target,
	);
	await importRetries(again, database, false);
	await importRetries(hold, database, true);

	const orders = Array.from({ length: count }, (_, at) => [
		{ kind: again, orderId: `${again}-${at}` },
		{ kind: hold, orderId: `${hold}-${at}` },
	]).flat();
	const step = Math.floor(orders.length / (kills + 1)) | 1;
	const victims = Array.from({ length: kills }, (_, at) => orders[(at + 1) * step]);
	for (const { orderId } of victims) {
		await invoiceServer.behave(orderId, { hold: true, times: 1 });
	}

	// three senders of an order close together, so that they meet
	const sent = inLanes(
		orders.flatMap(({ kind, orderId }) =>
			Array.from(
				{ length: SENDERS },
				() => async () =>
					await deliver(
						kind,
						orderId,
						victims.some((victim) => victim.orderId === orderId),
					),
			),
		),
		LANES,
	);
	const killed = await fire(victims);
	const deliveries = await sent;
	const readWorks = async (kind: string) =>
		await queryLedger<Work>(
			`select key, state, attempt, external_ref, outcome_known from :schema.work_log where kind = $1`,
			[kind],
			ledger,
		);
	await until('every work is done or waits for a person', async () =>
		[...(await readWorks(again)), ...(await readWorks(hold))].every(({ state }) =>
			['done', 'held'].includes(state),
		),
	);
	const all = new Map<string, Invoice[]>();
	for (const invoice of await invoiceServer.all()) {
		all.set(invoice.order_id, [...(all.get(invoice.order_id) ?? []), invoice]);
	}
	const burnt = async (kind: string): Promise<Burnt> => ({
		deliveries: deliveries.filter(({ orderId }) => orderId.startsWith(`${kind}-`)),
		works: await readWorks(kind),
		invoices: new Map([...all].filter(([orderId]) => orderId.startsWith(`${kind}-`))),
	});
	const decided = await queryLedger<{ retries: number; sweeps: number }>(
		`select count(*) filter (where d.detail ? 'subscription')::int as retries,
			count(*) filter (where d.event = 'sweep')::int as sweeps
		from :schema.decision_log d join :schema.work_log w using (work_id)
		where w.kind in ($1, $2)`,
		[again, hold],
		ledger,
	);
	return { again: await burnt(again), hold: await burnt(hold), killed, ...decided[0] };
}

describe.each([
	{ way: 'directly', name: 'fire', count: 500, kills: 6 },
	{ way: 'through PgBouncer', name: 'pooled', count: 50, kills: 2 },
])('$count orders of each kind, three senders each, $kills workers killed, $way', (played) => {
	const { name, way, count, kills } = played;
	let after: Awaited<ReturnType<typeof burn>>;

	beforeAll(async () => {
		const database = way === 'directly' ? ledger : { ...ledger, port: pooler.config.port };
		after = await burn(name, count, kills, database);
		process.stderr.write(
			`${name}: ${JSON.stringify({
				deliveries: after.again.deliveries.concat(after.hold.deliveries).length,
				sendings: after.again.deliveries
					.concat(after.hold.deliveries)
					.reduce((sum, { statuses }) => sum + statuses.length, 0),
				killed: after.killed,
				retries: after.retries,
				sweeps: after.sweeps,
				held: after.hold.works.filter(({ state }) => state === 'held').length,
			})}\n`,
		);
	}, 600_000);

	test('the fire burned: workers died with an invoice made, and the trigger swept and retried', () => {
		expect(after.killed).toBeGreaterThanOrEqual(kills / 2);
		// each victim's lease ended, by its own kill or an earlier one; half of them are to be run again
		expect(after.sweeps).toBeGreaterThanOrEqual(kills);
		expect(after.retries).toBeGreaterThanOrEqual(kills / 2);
		const statuses = [...after.again.deliveries, ...after.hold.deliveries].flatMap(
			(delivery) => delivery.statuses,
		);
		expect(statuses.some((status) => status === 0 || status >= 500)).toBe(true);
	});

	test('run again and the key: exactly one invoice for each order, none lost, every sender has it (cases 1, 103)', () => {
		const { deliveries, works, invoices } = after.again;
		expect(deliveries).toHaveLength(SENDERS * count);
		expect([...invoices.values()].flat()).toHaveLength(count);
		expect(works).toHaveLength(count);
		for (const { key, state, external_ref } of works) {
			const [invoice] = invoices.get(key) ?? [];
			expect({ key, state, external_ref }).toEqual({
				key,
				state: 'done',
				external_ref: invoice?.invoice_id,
			});
		}
		for (const { orderId, body } of deliveries) {
			expect({ orderId, invoice: body.invoice_id }).toEqual({
				orderId,
				invoice: invoices.get(orderId)?.[0]?.invoice_id,
			});
		}
		expect(works.some(({ attempt }) => attempt > 1)).toBe(true);
	});

	test('hold without a key: never a second invoice, and each order without an answer is listed as held', async () => {
		const { deliveries, works, invoices } = after.hold;
		expect(deliveries).toHaveLength(SENDERS * count);
		expect(works).toHaveLength(count);
		for (const [orderId, made] of invoices)
			expect({ orderId, made: made.length }).toEqual({ orderId, made: 1 });
		expect(invoices.size).toBeLessThanOrEqual(count);
		const held = works.filter(({ state }) => state === 'held');
		expect(held.length).toBeGreaterThan(0);
		for (const { key, state, attempt, external_ref, outcome_known } of works) {
			// what is done has its one invoice; what is not has been tried once, and nobody knows how that ended
			expect({ key, state, attempt, external_ref, outcome_known }).toEqual(
				state === 'done'
					? {
							key,
							state,
							attempt: 1,
							external_ref: invoices.get(key)?.[0]?.invoice_id,
							outcome_known: true,
						}
					: { key, state: 'held', attempt: 1, external_ref: null, outcome_known: false },
			);
		}
		const [listed] = await queryLedger<{ keys: string[] }>(
			`select array(select w ->> 'key' from json_array_elements(
				:schema.list_works($1::jsonb, 1000, null) -> 'works') w) as keys`,
			[JSON.stringify({ kind: `${name}-hold`, states: ['held'] })],
			ledger,
		);
		expect(listed?.keys.sort()).toEqual(held.map(({ key }) => key).sort());
		for (const { orderId, body } of deliveries) {
			if (body.status === 'held') continue;
			expect({ orderId, invoice: body.invoice_id }).toEqual({
				orderId,
				invoice: invoices.get(orderId)?.[0]?.invoice_id,
			});
		}
	});
});
