import js from '@eslint/js';
import { configWithoutCloudSupport } from '@n8n/node-cli/eslint';
import { globalIgnores } from 'eslint/config';

/** Storeys: imports run only downwards, nodes/ and credentials/ → ledger/ → migrations/ (SQL). */
const noImports = (...patterns) => ({ 'no-restricted-imports': ['error', { patterns }] });

export default [
	// n8n's own rule sets: community-nodes (self-hosted packages), nodes-base (package.json,
	// credentials, nodes), typescript-eslint and import-x.
	...configWithoutCloudSupport,
	globalIgnores(['dist', '.local', 'coverage']),

	// The one override of those rule sets for package, nodes and credentials.
	{
		files: ['package.json'],
		rules: {
			// The ledger is PostgreSQL, and nothing n8n lends a package speaks its protocol: `pg` has to
			// be a run-time dependency. It costs the package verification and n8n Cloud; the README says so.
			'@n8n/community-nodes/no-runtime-dependencies': 'off',
		},
	},

	// The storeys of the house (additions to the rule sets, not exceptions from them).
	{
		files: ['ledger/**/*.ts'],
		rules: {
			...noImports({
				group: ['n8n-workflow', 'n8n-core', '**/nodes/**', '**/credentials/**'],
				message: 'The ledger is used without n8n, too: it knows neither n8n nor the nodes.',
			}),
		},
	},
	{
		files: ['check/**/*.ts'],
		rules: {
			...noImports({
				group: [
					'n8n-workflow',
					'n8n-core',
					'pg',
					'**/nodes/**',
					'**/credentials/**',
					'**/ledger/*',
					'!**/ledger/identity',
				],
				message: 'The check reads files: it knows neither n8n nor a database.',
			}),
		},
	},
	{
		files: ['nodes/**/*.ts', 'credentials/**/*.ts'],
		rules: {
			...noImports({
				group: ['pg', 'pg/*', 'pg-*', '**/migrations/**'],
				message: 'Only the ledger speaks to PostgreSQL.',
			}),
			'no-restricted-syntax': [
				'error',
				{
					selector:
						':matches(Literal[value=/^\\s*(select|insert into|update|delete from|with|create|alter|drop|truncate) |^\\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|CREATE|ALTER|DROP|TRUNCATE) /], TemplateElement[value.raw=/^\\s*(select|insert into|update|delete from|with|create|alter|drop|truncate) |^\\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|CREATE|ALTER|DROP|TRUNCATE) /])',
					message: 'SQL belongs to migrations/ and its callers in ledger/.',
				},
				{
					selector: "CallExpression[callee.property.name='query']",
					message: 'Only the ledger speaks to PostgreSQL.',
				},
				{
					selector:
						"BinaryExpression[operator='instanceof'][right.name=/^(Node|Workflow|Execution|Expression|Application|User|Operational|Unexpected)\\w*Error$/]",
					message:
						"n8n's error classes may come from another copy of n8n-workflow (case 137): compare names.",
				},
			],
		},
	},

	// Not packaged: tests and scripts.
	{
		files: ['test/**/*.ts'],
		rules: {
			// The rule keeps nodes from starting processes; tests play crashes with real ones.
			'@n8n/community-nodes/no-dangerous-functions': 'off',
			// Tests throw to Jest, not to n8n.
			'@n8n/community-nodes/require-node-api-error': 'off',
		},
	},
	{
		files: ['**/*.js', '**/*.mjs'],
		...js.configs.recommended,
	},
	{
		files: ['**/*.js'],
		languageOptions: {
			sourceType: 'commonjs',
			globals: Object.fromEntries(
				[
					...['require', 'module', '__dirname', '__filename', 'process', 'console', 'Buffer'],
					...['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'setImmediate'],
					...['fetch', 'URL', 'URLSearchParams', 'AbortSignal', 'AbortController', 'performance'],
				].map((name) => [name, 'readonly']),
			),
		},
	},
];
