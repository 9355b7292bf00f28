import fc from 'fast-check';

import { Stage } from './stage';

/**
 * The usual options of a claim are read in a shorter way. Here the function stands a second time without that way, and
 * both read the same options.
 */

let stage: Stage;
beforeAll(async () => {
	stage = await Stage.open();
	const [{ text }] = await stage.query<{ text: string }>(
		`select pg_get_functiondef('idempotency.read_claim_options'::regproc) as text`,
	);
	const inFull = text
		.replace('read_claim_options', 'read_in_full')
		.replace(/\n\t-- The common options [^]*?\n\t\tt := null;\n\tend if;\n/, '');
	if (inFull.includes('jsonb_populate_record')) throw new Error('the shorter way was not cut out');
	await stage.query(`set search_path = idempotency; ${inFull}`);
	await stage.query(`
		create function pg_temp.told(p_options jsonb, p_in_full boolean) returns jsonb language plpgsql as $$
		begin
			return to_jsonb(case when p_in_full then read_in_full(p_options) else read_claim_options(p_options) end);
		exception when others then
			return to_jsonb(sqlstate || ': ' || sqlerrm);
		end
		$$`);
});
afterAll(async () => {
	await stage.close();
});

const odd = fc.oneof(
	fc.constantFrom(
		...['', ' ', ':', 'a:b', 'a\nb', 'null', 'NaN', '-Infinity', 'Infinity', 'yes', 'off', 'hold'],
		...['5', ' 5 ', '5.5', '1e3', '1e400', '0x10', '-0', '31622400', '31622400.5', '"', '{}', '[]'],
	),
	fc.constantFrom(
		0,
		-0,
		-1,
		1,
		1e-9,
		1.5,
		5,
		1e3,
		31_622_400,
		31_622_401,
		1_000_001,
		2 ** 31,
		1e300,
	),
	fc.constantFrom(true, false, null, {}, [], [1], { a: 1 }, { mode: 'forever' }),
	fc.jsonValue({ maxDepth: 2 }),
);
const usually = (...usual: unknown[]) =>
	fc.oneof({ weight: 8, arbitrary: fc.constantFrom(...usual) }, { weight: 1, arbitrary: odd });

const caller = fc.oneof(
	fc.record(
		{
			instance: usually('instance-1'),
			workflow: usually('workflow-1', null),
			workflow_name: usually('Zoë "x", (y)'),
			run_id: usually('7', 7),
		},
		{ requiredKeys: [] },
	),
	fc.record({ instance: fc.constant('i'), Workflow: odd }),
	usually({}),
);

const options = fc.oneof(
	{
		weight: 20,
		arbitrary: fc.record(
			{
				kind: usually('invoice', 'Ärger', '(a,"b")', '\\', 7, true),
				version: usually('v1', 'v2', 2),
				window: usually(
					{ mode: 'forever' },
					...[{ mode: 'duration', seconds: 60 }, { mode: 'while_running' }],
					...[
						{ mode: 'forever', seconds: null },
						{ mode: 'until_success', kind: 'other' },
					],
				),
				lease_s: usually(3600, '3600', 0.001, 31_622_400),
				on_lapse: usually('run_again', 'hold'),
				max_attempts: usually(1, 5, '5', 1_000_000),
				backoff_base_s: usually(0, 30, '0.5', 31_622_400),
				backoff_cap_s: usually(0, 3600, 31_622_400),
				caller,
				poll: usually(true, false, 'true', 1),
				shadow: usually(false, true),
			},
			{ requiredKeys: ['kind'] },
		),
	},
	// names of what is read, that are no names of options
	{
		weight: 2,
		arbitrary: fc
			.record({
				kind: fc.constant('invoice'),
				name: fc.constantFrom(
					'lease',
					'window_mode',
					'window_s',
					'other_done_at',
					'checked',
					'Kind',
				),
				value: odd,
			})
			.map(({ kind, name, value }) => ({ kind, [name]: value })),
	},
	{ weight: 1, arbitrary: odd },
);

test('options read in the shorter way are read as in full, and refused in the same words', async () => {
	let accepted = 0;
	await fc.assert(
		fc.asyncProperty(fc.array(options, { minLength: 200, maxLength: 200 }), async (all) => {
			// PostgreSQL takes neither in jsonb
			const texts = all
				.map((one) => JSON.stringify(one))
				.filter((text) => !/\\u(0000|d[89a-f])/i.test(text));
			const rows = await stage.query<{ given: string; short: unknown; full: unknown }>(
				`select given, pg_temp.told(given::jsonb, false) as short, pg_temp.told(given::jsonb, true) as full
				from unnest($1::text[]) given`,
				[texts],
			);
			expect(rows.map(({ given, short }) => [given, short])).toEqual(
				rows.map(({ given, full }) => [given, full]),
			);
			accepted += rows.filter(({ short }) => typeof short === 'object').length;
		}),
		// each array holds two hundred: what differs is shown, and making it smaller takes minutes
		{ numRuns: 20, endOnFailure: true },
	);
	// the usual options are among them
	expect(accepted).toBeGreaterThan(400);
});
