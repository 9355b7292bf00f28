import { ownName } from '../knowledge/own-nodes';
import type { WorkflowNode } from '../workflow';

const GUARDS: Readonly<Record<string, string>> = {
	claimWork: 'Claim Work',
	checkEvidenceGate: 'Check Evidence Gate',
	sendOnceTelegram: 'Send-Once Telegram',
};

export const isGuard = ({ type }: WorkflowNode): boolean => (ownName(type) ?? '') in GUARDS;

export const nameOfGuard = ({ type }: WorkflowNode): string => GUARDS[ownName(type) ?? ''];
