/** Evidence gates: a record advances when the proof is on it. Rules are pure; `Evidence` asks and writes the ledger. */
export type { Comparison } from './compare';
export { Evidence, unnamedRecordId } from './evidence';
export type {
	EvidenceAnswer,
	EvidenceRequest,
	EvidenceStage,
	EvidenceStatus,
	MissingEvidence,
} from './gate';
export { comparableText, foundText, isPresent } from './present';
export { STATUS_FIELD_PATTERN, isStatusField, type EvidenceRule, type EvidenceWork } from './rules';
