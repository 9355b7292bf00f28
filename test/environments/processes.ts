import { spawn } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';

export interface ChildOptions {
	/** Flags of Node.js, for example `--max-old-space-size=64`. */
	flags?: string[];
	env?: NodeJS.ProcessEnv;
}

export interface ChildProcess<Answer> {
	/** Lets it start its work; it is loaded and connected to nothing by then. */
	go(): void;
	/** Rejects when it ends without an answer, with the end of what it wrote to stderr. */
	answer: Promise<Answer>;
}

/** Starts a program of this folder (see `asChild`) and resolves when it is ready to go. */
export async function startChild<Answer>(
	program: string,
	job: object,
	{ flags = [], env = {} }: ChildOptions = {},
): Promise<ChildProcess<Answer>> {
	const loader = path.join(__dirname, 'load-typescript.js');
	const child = spawn(
		process.execPath,
		[...flags, '--require', loader, path.join(__dirname, program), JSON.stringify(job)],
		{ stdio: ['pipe', 'pipe', 'pipe'], env: { ...process.env, ...env } },
	);
	let complaints = '';
	child.stderr.on('data', (text: Buffer) => {
		complaints = (complaints + text.toString()).slice(-3_000);
	});
	const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
	const next = async () => {
		const { done, value } = await lines.next();
		if (done === true) throw new Error(`${program} ended without an answer: ${complaints}`);
		return JSON.parse(value as string) as unknown;
	};
	await next();
	const answer = next() as Promise<Answer>;
	// the test may look at it later than it fails
	answer.catch(() => undefined);
	return { answer, go: () => child.stdin.end() };
}

/** The same in one: for programs that need not start together. */
export async function runChild<Answer>(
	program: string,
	job: object,
	options?: ChildOptions,
): Promise<Answer> {
	const child = await startChild<Answer>(program, job, options);
	child.go();
	return await child.answer;
}

/** The other side: says that it is ready, waits for the word, does the job and prints what came of it. */
export function asChild<Job>(does: (job: Job) => Promise<unknown>): void {
	const job = JSON.parse(process.argv[2]) as Job;
	const say = (value: unknown) => process.stdout.write(`${JSON.stringify(value)}\n`);
	say('ready');
	process.stdin.resume().once('end', () => {
		does(job).then(
			(answer) => say(answer),
			(error: unknown) => {
				process.stderr.write(String(error));
				process.exit(1);
			},
		);
	});
}
