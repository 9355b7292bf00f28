import { ActionLinks } from './action-links';
import { Administration } from './administration';
import { Checkpoints } from './checkpoints';
import { LedgerConnection } from './connection';
import { Decisions } from './decisions';
import { Evidence } from './evidence';
import { FiresTwiceTest } from './fires-twice';
import { Reconciliation } from './reconciliation';
import { Messages } from './messages';
import { isNewer, schemaSource, type InstalledVersion } from './schema';
import { readSettings, settingsDigest, type LedgerSettings } from './settings';
import { Subscriptions } from './subscriptions';
import { Works } from './works';

/** A ledger and its pool. `createLedger` gives one of your own; nodes share one per credential and process. */
export class Ledger {
	readonly works: Works;

	/** What people do: look, replay, resolve, forget, purge. */
	readonly admin: Administration;

	/** Links that replay or resolve one work, once. */
	readonly actionLinks: ActionLinks;

	/** How far runs have come. */
	readonly checkpoints: Checkpoints;

	/** What language models decided: asked once, stored, by choice approved. */
	readonly decisions: Decisions;

	/** Evidence gates: whether records may advance. */
	readonly evidence: Evidence;

	/** The same work twice in the same instant, played in a space of its own. */
	readonly firesTwiceTest: FiresTwiceTest;

	/** The target system's records against the ledger. */
	readonly reconciliation: Reconciliation;

	/** Dead letters and due retries, handed out to subscribers. */
	readonly subscriptions: Subscriptions;

	/** Messages that go out once. */
	readonly messages: Messages;

	/** @internal */
	readonly connection: LedgerConnection;

	/** @internal */
	constructor(connection: LedgerConnection) {
		this.connection = connection;
		this.works = new Works(connection);
		this.admin = new Administration(connection);
		this.messages = new Messages(connection);
		this.actionLinks = new ActionLinks(connection);
		this.checkpoints = new Checkpoints(connection);
		this.decisions = new Decisions(connection);
		this.evidence = new Evidence(connection);
		this.firesTwiceTest = new FiresTwiceTest(connection, this.works);
		this.subscriptions = new Subscriptions(connection);
		this.reconciliation = new Reconciliation(connection);
	}

	/** Installs or upgrades the schema now. Throws `LedgerError`. */
	async install(): Promise<InstalledVersion> {
		return await this.connection.install();
	}

	async close(): Promise<void> {
		await this.connection.close();
	}
}

/**
 * A ledger with a pool of its own; close it when done. Throws `LedgerError` for bad settings; connects at the first call.
 *
 * @example
 * const ledger = createLedger({ host: 'localhost', port: 5432, database: 'n8n', user: 'n8n', password });
 */
export function createLedger(settings: LedgerSettings): Ledger {
	return new Ledger(new LedgerConnection(readSettings(settings)));
}

/** Pools kept at most; above it the one unused longest is closed, so that edited credentials do not pile up. */
const MAX_SHARED = 50;
const shared = new Map<string, Ledger>();

/** The ledger of these settings in this process; equal settings share one pool, which outlives the execution. */
export function sharedLedger(given: LedgerSettings): Ledger {
	const settings = readSettings(given);
	const digest = settingsDigest(settings);
	const ledger = shared.get(digest) ?? new Ledger(new LedgerConnection(settings));
	// a Map keeps insertion order: taken out and put back, the first entry is the one unused longest
	shared.delete(digest);
	shared.set(digest, ledger);
	for (const [oldDigest, old] of shared) {
		if (shared.size <= MAX_SHARED) break;
		if (oldDigest === digest || old.connection.inUse) continue;
		shared.delete(oldDigest);
		// its failure changes nothing for anybody: nobody can reach this pool any more
		old.close().catch(() => undefined);
	}
	return ledger;
}

/** Closes every shared pool. For tests and for programs that end. */
export async function closeSharedLedgers(): Promise<void> {
	const all = [...shared.values()];
	shared.clear();
	await Promise.all(all.map(async (ledger) => await ledger.close()));
}

/** What the credential's test found. */
export interface LedgerCheck {
	ok: boolean;
	message: string;
}

/**
 * Tests a credential from end to end with a connection of its own, which it closes: reach, password, schema (installing
 * it where allowed), and the right to write, by a claim that is rolled back. Never throws.
 */
export async function checkLedger(given: LedgerSettings): Promise<LedgerCheck> {
	let ledger: Ledger | undefined;
	try {
		// read as the nodes will read them, so that what they would refuse is not called good here
		ledger = new Ledger(new LedgerConnection({ ...readSettings(given), maxConnections: 1 }));
		const { connection } = ledger;
		let installed = await connection.readVersion();
		if (installed !== null && isNewer(installed)) {
			await connection.tryClaim();
			return {
				ok: true,
				message: `Connected. The ledger was upgraded by a newer package (contract ${installed.contract}, this one knows ${schemaSource().contract}): it works and is left alone; upgrade this package when you can.`,
			};
		}
		await connection.prepare();
		installed = await connection.readVersion();
		await connection.tryClaim();
		return {
			ok: true,
			message: `Connected. The ledger in schema "${connection.settings.schema}" is ready (contract ${installed?.contract}).`,
		};
	} catch (error) {
		return { ok: false, message: error instanceof Error ? error.message : String(error) };
	} finally {
		await ledger?.close().catch(() => undefined);
	}
}
