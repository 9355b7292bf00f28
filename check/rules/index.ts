import type { Rule } from '../finding';
import { agentToolUnguarded } from './agent-tool-unguarded';
import { answerNotStored } from './answer-not-stored';
import { claimCoversMany } from './claim-covers-many';
import { claimLeftOpen } from './claim-left-open';
import { completedBeforeEffect } from './completed-before-effect';
import { deliveryKey } from './delivery-key';
import { effectBehindDuplicate } from './effect-behind-duplicate';
import { failureNotSettled } from './failure-not-settled';
import { failureUnhandled } from './failure-unhandled';
import { guardAlwaysOutputData } from './guard-always-output-data';
import { guardDisabled } from './guard-disabled';
import { guardShadow } from './guard-shadow';
import { lockForgets } from './lock-forgets';
import { loopRepeatsEffect } from './loop-repeats-effect';
import { retryRepeatsEffect } from './retry-repeats-effect';
import { scheduleOverlaps } from './schedule-overlaps';
import { stageBeforeReference } from './stage-before-reference';
import { unguardedEffect } from './unguarded-effect';
import { volatileKey } from './volatile-key';
import { waitOutlastsLease } from './wait-outlasts-lease';
import { waitResumesTwice } from './wait-resumes-twice';
import { workflowNotGiven } from './workflow-not-given';

/** Every rule, in the order in which findings are reported. */
export const RULES: readonly Rule[] = [
	unguardedEffect,
	effectBehindDuplicate,
	completedBeforeEffect,
	claimLeftOpen,
	guardDisabled,
	guardShadow,
	guardAlwaysOutputData,
	failureNotSettled,
	volatileKey,
	deliveryKey,
	lockForgets,
	answerNotStored,
	agentToolUnguarded,
	retryRepeatsEffect,
	loopRepeatsEffect,
	claimCoversMany,
	waitResumesTwice,
	waitOutlastsLease,
	scheduleOverlaps,
	failureUnhandled,
	stageBeforeReference,
	workflowNotGiven,
];
