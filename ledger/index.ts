/**
 * The ledger for other programs: a hand-rolled endpoint, a script or a Code node claims the same works by the same rules
 * as the nodes do.
 */
export type * from './contract';
export { LedgerError, isLedgerError, type LedgerErrorCode } from './errors';
export { pemText, type LedgerSettings, type TlsMode } from './settings';
export type { OpenChannel } from './tunnel-stream';
export {
	Ledger,
	checkLedger,
	closeSharedLedgers,
	createLedger,
	sharedLedger,
	type LedgerCheck,
} from './ledger';
export { Works, type ClaimOptions, type OpenClaim, type WaitOptions } from './works';
export { Administration, type Purge, type WorkPage } from './administration';
export { installationScript, type InstalledVersion } from './schema';
export {
	MAX_PAYLOAD_BYTES,
	MAX_RESULT_BYTES,
	payloadText,
	resultText,
	type JsonText,
} from './json-text';
export { matchDigests } from './match';
export * from './identity';
