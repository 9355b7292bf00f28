/** Three of the four systems of the deal pipeline, as small servers: CRM, job system, contract system. */

import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

type Fields = Record<string, unknown>;

export interface Deal extends Fields {
	deal_id: string;
	stage: string;
}

interface Request {
	method: string;
	/** The parts of the path, decoded. */
	path: string[];
	query: URLSearchParams;
	headers: IncomingMessage['headers'];
	body: Fields;
}

interface Answer {
	status: number;
	body: unknown;
}

/** What the flow answered to one delivery. */
export interface DeliveryAnswer {
	status: number;
	body: Fields;
}

const NOT_FOUND: Answer = { status: 404, body: { message: 'no such thing' } };

async function serve(answer: (request: Request) => Promise<Answer> | Answer) {
	const server = createServer((incoming, response) => {
		void (async () => {
			const chunks: Buffer[] = [];
			for await (const chunk of incoming) chunks.push(chunk as Buffer);
			const text = Buffer.concat(chunks).toString('utf8');
			const { pathname, searchParams } = new URL(incoming.url ?? '/', 'http://local');
			const { status, body } = await answer({
				method: incoming.method ?? 'GET',
				path: pathname.split('/').slice(1).map(decodeURIComponent),
				query: searchParams,
				headers: incoming.headers,
				body: text === '' ? {} : (JSON.parse(text) as Fields),
			});
			response.writeHead(status, { 'content-type': 'application/json' });
			response.end(JSON.stringify(body));
		})();
	});
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
	return {
		url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
		close: async () => {
			server.closeAllConnections();
			await new Promise((resolve) => server.close(resolve));
		},
	};
}

type Release = () => void;

/** A point in a system at which a call about a deal can be kept open. */
class Holds {
	private readonly wanted = new Map<string, (release: Release) => void>();

	/** The next call about this deal is held; resolves when it has come, with what lets it go on. */
	async next(dealId: string): Promise<Release> {
		return await new Promise((resolve) => this.wanted.set(dealId, resolve));
	}

	async pass(dealId: string): Promise<void> {
		const tell = this.wanted.get(dealId);
		this.wanted.delete(dealId);
		if (tell !== undefined) await new Promise<void>((release) => tell(release));
	}
}

/**
 * Says that a deal has changed, at least once: twice each time, again while it is answered "later" (503), and not at all
 * when nobody is there (until it is asked to redeliver).
 */
async function startCrm(webhook: (body: Fields) => Promise<DeliveryAnswer>) {
	const deals = new Map<string, Deal>();
	const answers: Array<DeliveryAnswer & { dealId: string }> = [];
	const holds = new Holds();
	let underWay = 0;
	let gapMs = 0;
	let events = 0;

	const deliver = async (deal: Deal, waitMs: number) => {
		underWay++;
		// the event's own number, another one for each delivery, must not count
		const { deal_id, stage } = deal;
		const body = { event_id: `event-${++events}`, deal_id, stage };
		try {
			await delay(waitMs);
			for (let times = 0; times < 40; times++) {
				const { status, body: said } = await webhook(body);
				answers.push({ dealId: deal_id, status, body: said });
				if (status !== 503) break;
				await delay(250);
			}
		} catch {
			answers.push({ dealId: deal_id, status: 0, body: {} });
		} finally {
			underWay--;
		}
	};
	const change = (deal: Deal, fields: Fields) => {
		const told = ['stage', 'contract_signed_at'];
		const isTold = told.some((name) => name in fields && fields[name] !== deal[name]);
		Object.assign(deal, fields);
		if (isTold) for (const wait of [0, gapMs]) void deliver(deal, wait);
	};
	const dealOf = (dealId: string): Deal => {
		const deal = deals.get(dealId);
		if (deal === undefined) throw new Error(`there is no deal ${dealId}`);
		return deal;
	};

	const server = await serve(async ({ method, path: [, collection, dealId], body }) => {
		const deal = deals.get(dealId);
		if (collection !== 'deals' || deal === undefined) return NOT_FOUND;
		if (method === 'PATCH') {
			await holds.pass(dealId);
			change(deal, body);
		}
		return { status: 200, body: { ...deal } };
	});
	return {
		...server,
		/** A deal that nobody hears of before it changes. */
		add: (deal: Deal) => void deals.set(deal.deal_id, { ...deal }),
		deal: (dealId: string) => ({ ...dealOf(dealId) }),
		/** By hand, by the contract system, or by whoever else. */
		set: (dealId: string, fields: Fields) => change(dealOf(dealId), fields),
		/** Between the two deliveries of each change. */
		deliverAfter: (milliseconds: number) => {
			gapMs = milliseconds;
		},
		redeliver: async (dealId: string) => await deliver(dealOf(dealId), 0),
		/** Status 0: nobody was there. */
		answers: (dealId: string) => answers.filter((answer) => answer.dealId === dealId),
		/** Whether every delivery has its last answer; each change says so before it is answered itself. */
		isQuiet: () => underWay === 0,
		/** The next change of this deal from outside is neither made nor answered before it is released. */
		nextWriteHeld: async (dealId: string) => await holds.next(dealId),
	};
}

interface Job extends Fields {
	job_id: string;
	deal_id: unknown;
	marker: unknown;
}

/** Takes no idempotency key: every call makes another job. Its jobs can be found by a marker. */
async function startJobSystem() {
	const jobs: Job[] = [];
	const holds = new Holds();
	const refused = new Set<unknown>();
	const searches: string[] = [];
	const server = await serve(async ({ method, path: [, collection], query, body }) => {
		if (collection !== 'jobs') return NOT_FOUND;
		if (method === 'GET') {
			const marker = query.get('marker') ?? '';
			searches.push(marker);
			return { status: 200, body: { jobs: jobs.filter((job) => job.marker === marker) } };
		}
		if (refused.has(body.deal_id)) return { status: 500, body: { message: 'out of order' } };
		const job = { ...body, job_id: `JOB-${jobs.length + 1}` } as Job;
		jobs.push(job);
		await holds.pass(String(job.deal_id));
		return { status: 201, body: job };
	});
	return {
		...server,
		of: (dealId: string) => jobs.filter((job) => job.deal_id === dealId),
		/** How often jobs were looked for by this marker. */
		searches: (marker: unknown) => searches.filter((each) => each === marker).length,
		refuse: (dealId: string) => void refused.add(dealId),
		/** The next job of this deal is made, and its maker gets no answer before it is released. */
		nextAnswerHeld: async (dealId: string) => await holds.next(dealId),
	};
}

interface Envelope extends Fields {
	envelope_id: string;
	deal_id: unknown;
}

/** Takes an idempotency key, and tells the CRM when the customer has signed. */
async function startContractSystem(tellCrm: (dealId: string, fields: Fields) => void) {
	const envelopes: Envelope[] = [];
	const byKey = new Map<string, Envelope>();
	const server = await serve(({ path: [, collection], headers, body }) => {
		if (collection !== 'envelopes') return NOT_FOUND;
		const key = String(headers['idempotency-key']);
		const first = byKey.get(key);
		if (first !== undefined) return { status: 200, body: first };
		const envelope = { ...body, envelope_id: `ENV-${envelopes.length + 1}` } as Envelope;
		envelopes.push(envelope);
		byKey.set(key, envelope);
		return { status: 201, body: envelope };
	});
	return {
		...server,
		of: (dealId: string) => envelopes.filter((envelope) => envelope.deal_id === dealId),
		sign: (dealId: string) => tellCrm(dealId, { contract_signed_at: '2026-01-31T10:00:00Z' }),
	};
}

/** @param webhook Calls the flow; rejects when nobody is there. */
export async function startDealSystems(webhook: (body: Fields) => Promise<DeliveryAnswer>) {
	const crm = await startCrm(webhook);
	const jobs = await startJobSystem();
	const contracts = await startContractSystem(crm.set);
	return {
		crm,
		jobs,
		contracts,
		close: async () => {
			await Promise.all([crm, jobs, contracts].map(async ({ close }) => await close()));
		},
	};
}

export type DealSystems = Awaited<ReturnType<typeof startDealSystems>>;
