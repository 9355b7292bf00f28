import { isRecord, textOf, type NodeSettings } from '../workflow';
import { chosenOperation } from './operations';
import { shortOf } from './node-type';

const SECONDS: Readonly<Record<string, number>> = {
	seconds: 1,
	minutes: 60,
	hours: 3600,
	days: 86_400,
};

export interface Wait {
	/** Infinity where nothing limits it; null where an expression decides. */
	seconds: number | null;
	/** A person or another system ends it, by a URL that can be called again. */
	byCall: boolean;
}

/** How a node waits; null for one that does not. */
export function waitOf(node: NodeSettings): Wait | null {
	const { parameters } = node;
	if (node.disabled) return null;
	if (shortOf(node.type) === 'wait') {
		const resume = textOf(parameters.resume, 'timeInterval');
		if (resume === 'specificTime') return { seconds: null, byCall: false };
		if (resume === 'webhook' || resume === 'form') {
			return { seconds: limitOf(parameters), byCall: true };
		}
		const old = node.typeVersion < 1.1;
		const unit = textOf(parameters.unit, old ? 'hours' : 'seconds');
		return { seconds: span(parameters.amount ?? (old ? 1 : 5), unit), byCall: false };
	}
	if (/^(?:sendAndWait|dispatchAndWait)$/.test(chosenOperation(node).operation)) {
		const options = isRecord(parameters.options) ? parameters.options : {};
		const limit = isRecord(options.limitWaitTime) ? options.limitWaitTime.values : undefined;
		return {
			seconds: isRecord(limit) ? limitOf({ ...limit, limitWaitTime: true }) : Infinity,
			byCall: true,
		};
	}
	return null;
}

function limitOf(parameters: Readonly<Record<string, unknown>>): number | null {
	if (parameters.limitWaitTime !== true) return Infinity;
	if (parameters.limitType === 'atSpecifiedTime') return null;
	return span(parameters.resumeAmount ?? 1, textOf(parameters.resumeUnit, 'hours'));
}

function span(amount: unknown, unit: string): number | null {
	const seconds = Number(amount) * (SECONDS[unit] ?? NaN);
	return Number.isFinite(seconds) ? seconds : null;
}

/** "3 hours", "90 seconds". */
export function spanText(seconds: number): string {
	if (seconds === Infinity) return 'without limit';
	for (const [unit, size] of Object.entries(SECONDS).reverse()) {
		if (seconds >= size && seconds % size === 0) {
			const count = seconds / size;
			return count === 1 ? `1 ${unit.slice(0, -1)}` : `${count} ${unit}`;
		}
	}
	return `${seconds} seconds`;
}
