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
export { FiresTwiceTest, RACE_SPACE, type FiresTwice } from './fires-twice';
export {
	ActionLinks,
	MAX_LINK_SECONDS,
	type CreatedLink,
	type LinkAction,
	type LinkStatus,
	type LinkUser,
	type LinkedWork,
	type NewLink,
	type RedeemedLink,
	type SeenLink,
} from './action-links';
export {
	Checkpoints,
	checkpointText,
	cursorComparison,
	cursorText,
	type Checkpoint,
	type CheckpointName,
	type CheckpointPage,
	type Continuation,
	type CursorComparison,
	type SaveCheckpoint,
	type SavedCheckpoint,
} from './checkpoints';
export {
	Decisions,
	type DecisionAnswer,
	type DecisionFilter,
	type DecisionItem,
	type DecisionOutcome,
	type DecisionPage,
	type DecisionReport,
	type DecisionState,
	type DecisionStatistics,
	type FreeItem,
	type LookUpItem,
	type LookUpPolicy,
	type LookUpWait,
	type OpenDecision,
	type StoreItem,
} from './decisions';
export {
	decisionKeyOf,
	volatileBesides,
	type DecisionKey,
	type DecisionPart,
	type DecisionParts,
	type DecisionQuestion,
} from './decision-key';
export { compareParts, type PartDifference } from './decision-compare';
export {
	readModelAnswer,
	usableAnswer,
	type AnswerForm,
	type AnswerTerms,
	type ModelAnswer,
	type UsableAnswer,
} from './decision-answer';
export { SchemaCheck } from './decision-schema';
export {
	MAX_RECONCILED,
	Reconciliation,
	referenceText,
	type Finding,
	type FindingStatus,
	type ReconcileRequest,
	type ReconciledRange,
	type ReconciliationSummary,
	type TargetRecord,
} from './reconciliation';
export {
	Subscriptions,
	type AnnouncementStanding,
	type DeadLetter,
	type DeadLetterFilter,
	type DueWork,
	type HandOut,
	type MessageHandOut,
	type MessageLetter,
	type SubscriptionEvent,
} from './subscriptions';
export {
	Messages,
	textProblem,
	type MarkRequest,
	type MessageAnswer,
	type MessageFilter,
	type MessageHold,
	type MessageItem,
	type MessagePage,
	type MessageReport,
	type MessageState,
	type ReservePolicy,
	type ReserveStatus,
	type Settlement,
} from './messages';
export {
	contentHash,
	messageKey,
	readChatId,
	sha256,
	type MessageContent,
	type MessageKind,
} from './message-content';
export {
	MAX_PARTS,
	messageParts,
	visibleText,
	type MessagePart,
	type ParseMode,
} from './message-parts';
export { installationScript, type InstalledVersion } from './schema';
export {
	MAX_PAYLOAD_BYTES,
	MAX_RESULT_BYTES,
	payloadText,
	resultText,
	type JsonText,
} from './json-text';
export { matchDigests } from './match';
export * from './evidence';
export * from './identity';
