import { randomUUID } from 'crypto';

import type { LedgerConnection } from './connection';
import type { Caller, ClaimAnswer, ClaimItem, ClaimPolicy } from './contract';
import { workIdOf, type WorkIdentity } from './identity';
import { quotedIdentifier } from './settings';
import type { Works } from './works';

/** Ends the kinds of fires-twice tests; no business has such a kind, so no claim of a business ever meets a test. */
export const RACE_SPACE = ' (fires-twice test)';

/** A test takes a fraction of a second. When its process dies, what it held is over after this. */
const LEASE_SECONDS = 60;
const GATE_SECONDS = 3;
const RESULT = { test: 'fires twice' };

/** What became of a work that came twice in the same instant. */
export interface FiresTwice {
	/** One of two passed, and a later one got the stored result. */
	passed: boolean;
	/** Two connections were seen waiting with their claim before either was let go. False: it was no race, look again. */
	sameInstant: boolean;
	/** The kind and id that the test used in place of the business's own. */
	testKind: string;
	testWorkId: string;
	first: ClaimAnswer;
	second: ClaimAnswer;
	/** Asked after the completion; null where not exactly one was claimed. */
	third: ClaimAnswer | null;
	/** Rows deleted afterwards, what earlier tests left included; null where that failed: they are over in a minute. */
	deleted: { works: number; decisions: number } | null;
}

/** Plays the case that matters on the ledger as it is installed: the same work, twice, in the same instant. */
export class FiresTwiceTest {
	private readonly schema: string;

	/** @internal */
	constructor(
		private readonly connection: LedgerConnection,
		private readonly works: Works,
	) {
		this.schema = quotedIdentifier(connection.settings.schema);
	}

	/**
	 * Claims a work twice from two connections that are held at the same point and let go together, completes it, asks
	 * once more, and deletes all of it. The work has the given key, a kind of its own, and an id that no other test has.
	 * Throws `LedgerError`.
	 */
	async run(
		identity: Pick<WorkIdentity, 'kind' | 'version' | 'canonical' | 'key'>,
		caller: Caller = {},
	): Promise<FiresTwice> {
		const kind = `${identity.kind}${RACE_SPACE}`;
		const version = `${identity.version} ${randomUUID()}`;
		const workId = workIdOf(kind, version, identity.canonical);
		const item = (): ClaimItem => ({ workId, key: identity.key, token: randomUUID() });
		const policy: ClaimPolicy = {
			kind,
			version,
			leaseSeconds: LEASE_SECONDS,
			// never dead: nobody is to be told of a test that was killed halfway
			maxAttempts: 1_000_000,
			caller,
		};
		const race = await this.race(workId, policy, item).catch(async (error: unknown) => {
			await this.forget(workId, kind).catch(() => undefined);
			throw error;
		});
		const deleted = await this.forget(workId, kind).catch(() => null);
		return { ...race, testKind: kind, testWorkId: workId, deleted };
	}

	private async race(
		workId: string,
		policy: ClaimPolicy,
		item: () => ClaimItem,
	): Promise<Pick<FiresTwice, 'passed' | 'sameInstant' | 'first' | 'second' | 'third'>> {
		const racers = [item(), item()];
		const claims = async () => {
			// where the gate does not stand the claims are no race, and the answer says so
			await this.held(workId);
			return await Promise.all(
				racers.map(async (racer) => await this.works.claim([racer], policy)),
			);
		};
		const [sameInstant, [[first], [second]]] = await Promise.all([
			this.hold(workId, policy.kind),
			claims(),
		]);
		const winners = racers.filter((_, i) => [first, second][i].status === 'claimed');
		const third = winners.length === 1 ? await this.afterwards(winners[0], item(), policy) : null;
		const passed =
			[first.status, second.status].sort().join() === 'claimed,in_progress' &&
			third?.status === 'duplicate' &&
			JSON.stringify(third.result) === JSON.stringify(RESULT);
		return { passed, sameInstant, first, second, third };
	}

	private async afterwards(
		winner: ClaimItem,
		third: ClaimItem,
		policy: ClaimPolicy,
	): Promise<ClaimAnswer> {
		const { workId, token } = winner;
		await this.works.complete([{ workId, token, result: RESULT }], policy.caller);
		const [answer] = await this.works.claim([third], policy);
		return answer;
	}

	private async hold(workId: string, kind: string): Promise<boolean> {
		const [{ together }] = await this.connection.query<{ together: boolean }>(
			`select ${this.schema}.hold_race($1::text, $2::text, $3::double precision) as together`,
			[workId, kind, GATE_SECONDS],
		);
		return together;
	}

	/** Until the gate stands, or after a while in any case. */
	private async held(workId: string): Promise<void> {
		await this.connection.query(`select ${this.schema}.race_held($1::text, $2::double precision)`, [
			workId,
			GATE_SECONDS,
		]);
	}

	private async forget(
		workId: string,
		kind: string,
	): Promise<{ works: number; decisions: number }> {
		const [{ deleted }] = await this.connection.query<{
			deleted: { works: number; decisions: number };
		}>(`select ${this.schema}.forget_race($1::text, $2::text) as deleted`, [workId, kind]);
		return deleted;
	}
}
