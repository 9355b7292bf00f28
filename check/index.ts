/**
 * The workflow check: reads workflows as n8n exports them and says which of their steps would have an effect twice. Pure
 * but for `workflow-files` and `command`: nothing is executed, evaluated or sent.
 */
export type { Answer } from './questions';
export type { Finding, Severity, Words } from './finding';
export { SEVERITIES, isAtLeast } from './finding';
export { readWorkflowText, readWorkflowValue, type ReadWorkflows } from './read-workflows';
export {
	checkTogether,
	checkWorkflow,
	surveyOf,
	type EffectReport,
	type WorkflowReport,
} from './report';
export { RULES } from './rules';
export { claimLeftOpen, NEVER_COMPLETED } from './rules/claim-left-open';
export { DEFAULT_LEASE_SECONDS, outlasted, waitOutlastsLease } from './rules/wait-outlasts-lease';
export { ownName, settlesClaim } from './knowledge/own-nodes';
export { waitOf } from './knowledge/waits';
export { GivenWorkflows } from './sub-workflows';
export type { SwitchedOff } from './switched-off';
export type { Workflow } from './workflow';
