import { createContext, Script } from 'node:vm';

/**
 * One value may cost so much, and all slow values of one call together so much, in ms. Of the processor's time: on a busy
 * machine a value that costs nothing may wait for its turn as long.
 */
const VALUE_MS = 100;
const CALL_MS = 2_000;
/** What takes no longer is not slow: a hundred thousand items may be matched. */
const SLOW_MS = 10;
/** How often a value may be stopped that had no turn. */
const MAX_TRIES = 3;
const MAX_PATTERN = 1_000;

/** Whether it matches, or why nobody knows; `problem` ends a sentence about the pattern. */
export type Match = { matches: boolean } | { problem: string };

// One context and one script for all: making a context costs a millisecond. Only texts go in and a boolean comes out.
const sandbox = { source: '', flags: '', text: '' };
let context: ReturnType<typeof createContext> | null = null;
const TEST = new Script('new RegExp(source, flags).test(text)');

/**
 * Matches patterns in bounded time: some take longer than the universe on a text of thirty characters, and no other
 * execution of the process would go on meanwhile. A script with a time-out is the one thing that interrupts them.
 */
export class PatternMatcher {
	private readonly problems = new Map<string, string | null>();
	private spentMs = 0;

	/** Whether the whole text matches. */
	match(pattern: string, ignoreCase: boolean, text: string): Match {
		const problem = this.problemOf(pattern);
		if (problem !== null) return { problem };
		const left = CALL_MS - this.spentMs;
		if (left <= 0) {
			return {
				problem: `was not tried: the patterns took ${CALL_MS} ms for earlier items, which is all they get. Simplify them, above all repetitions inside repetitions such as (a+)+.`,
			};
		}
		context ??= createContext(sandbox);
		sandbox.source = `^(?:${pattern})$`;
		sandbox.flags = ignoreCase ? 'i' : '';
		sandbox.text = text;
		const tried = this.test(context, Math.min(VALUE_MS, Math.ceil(left)));
		sandbox.text = '';
		if ('matches' in tried) return tried;
		return {
			problem: isTimeout(tried.thrown)
				? `takes longer than ${VALUE_MS} ms on this value. Simplify it, above all repetitions inside repetitions such as (a+)+.`
				: `could not be tried: ${reasonOf(tried.thrown)}.`,
		};
	}

	private test(
		inContext: ReturnType<typeof createContext>,
		timeout: number,
	): { matches: boolean } | { thrown: unknown } {
		for (let tries = 1; ; tries++) {
			const before = process.cpuUsage();
			try {
				return { matches: TEST.runInContext(inContext, { timeout }) === true };
			} catch (thrown) {
				if (!isTimeout(thrown) || tries === MAX_TRIES || costMs(before) > timeout / 2)
					return { thrown };
			} finally {
				const cost = costMs(before);
				if (cost > SLOW_MS) this.spentMs += cost;
			}
		}
	}

	private problemOf(pattern: string): string | null {
		let problem = this.problems.get(pattern);
		if (problem === undefined) {
			problem = patternProblem(pattern);
			this.problems.set(pattern, problem);
		}
		return problem;
	}
}

/** Of the processor's time since then. */
function costMs(before: NodeJS.CpuUsage): number {
	const { user, system } = process.cpuUsage(before);
	return (user + system) / 1000;
}

const isTimeout = (error: unknown) =>
	(error as { code?: unknown }).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';

function patternProblem(pattern: string): string | null {
	if (pattern === '') return 'is empty. Enter what the value has to look like, such as INV-[0-9]+.';
	if (pattern.length > MAX_PATTERN) return `is longer than ${MAX_PATTERN} characters.`;
	if (/^\/.*\/[a-z]*$/s.test(pattern)) {
		return 'stands between slashes. Enter it without them; for upper and lower case there is an option.';
	}
	try {
		// by itself, before it is wrapped: "a)(b" is no pattern, "(?:a)(b)" is one
		new RegExp(pattern);
		return null;
	} catch (error) {
		return `cannot be read: ${reasonOf(error)}.`;
	}
}

function reasonOf(error: unknown): string {
	const { message } = error as { message?: unknown };
	return String(message)
		.replace(/^Invalid regular expression: /, '')
		.slice(0, 200);
}
