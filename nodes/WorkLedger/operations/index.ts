import type { Parameters } from '../../execution/parameters';
import type { LedgerOperation } from '../operation';
import { explain } from './explain.operation';
import { forget } from './forget.operation';
import { list } from './list.operation';
import { purge } from './purge.operation';
import { releaseByForce } from './release-by-force.operation';
import { replay } from './replay.operation';
import { resolve } from './resolve.operation';
import { statistics } from './statistics.operation';

/** In the order the editor shows them. */
export const OPERATIONS: LedgerOperation[] = [
	explain,
	forget,
	list,
	purge,
	releaseByForce,
	replay,
	resolve,
	statistics,
];

/** Throws for a choice that an edited or imported workflow may hold. */
export function chosenOperation(parameters: Parameters, itemIndex: number): LedgerOperation {
	const chosen = parameters.read<string>('operation', itemIndex, 'explain');
	const operation = OPERATIONS.find(({ option }) => option.value === chosen);
	if (operation !== undefined) return operation;
	throw new Error(
		`Operation "${chosen.slice(0, 50)}" is not known to this version. Choose it anew.`,
	);
}
