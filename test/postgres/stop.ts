export default async function stop(): Promise<void> {
	await globalThis.idempotencyTestPostgres?.stop();
}
