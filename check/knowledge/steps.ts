import { textOf, type WorkflowNode } from '../workflow';
import { deedOfCode, deedOfGraphql, idempotencyKeyOf, isHttpRequest, requestOf } from './http';
import { isTrigger, plainType, shortOf } from './node-type';
import {
	chosenOperation,
	deedOfOperation,
	deedOfType,
	knownOperations,
	type Deed,
} from './operations';
import { ownName } from './own-nodes';
import { deedOfSql } from './sql';

export type EffectKind = 'money' | 'message' | 'record' | 'command';

/** A change outside the execution. */
export interface Effect {
	kind: EffectKind;
	/** "POST to api.example.com/orders", "Slack: message post". */
	what: string;
	/** "doubles": a second run makes one more; "converges": it leaves things as the first did. */
	repeats: 'doubles' | 'converges';
	/** False: it could not be seen, and is treated as an effect; `what` says so. */
	certain: boolean;
	/** The idempotency key it sends, as its raw text; null for none. */
	key: { name: string; raw: string } | null;
}

/** What a node does, as far as its type, resource, operation, method and SQL tell. */
export type Step =
	| { does: 'nothing' | 'reads' | 'model' | 'agent' | 'calls-workflow' }
	| { does: 'writes'; effect: Effect };

const LANGCHAIN = '@n8n/n8n-nodes-langchain.';
const BASE = 'n8n-nodes-base.';

const words = (text: string): ReadonlySet<string> => new Set(text.trim().split(/\s+/));

const MESSAGES = words(`
	slack telegram gmail emailSend discord mattermost whatsApp twilio vonage sms77 messageBird msg91
	mocean plivo sendGrid mailgun mandrill mailjet awsSes microsoftOutlook microsoftTeams matrix
	rocketchat zulip pushover pushbullet pushcut gotify line twist ciscoWebex googleChat intercom
	drift signl4 pagerDuty sendy sendInBlue brevo awsSns chat microsoftAgent365 lemlist vero
	customerIo twake spontit mattermost twitter linkedIn facebookGraphApi reddit
`);

const MONEY = words(`
	stripe payPal wise quickbooks xero invoiceNinja paddle chargebee square magento2
`);

const MONEY_WORDS =
	/(?:^|[/_.:\s-])(?:payments?|payment_intents|charges?|invoices?|payouts?|refunds?|transfers?|orders?|checkouts?|subscriptions?|billing|credit_?notes?|purchases?|captures?)(?=$|[/_.:\s-])/i;
const MONEY_HOSTS =
	/stripe\.com|paypal\.com|squareup|adyen|mollie|gocardless|wise\.com|klarna|checkout\.com|braintree|razorpay|paddle|chargebee|xero\.com|quickbooks|dwolla|airwallex/i;
const MESSAGE_WORDS =
	/(?:^|[/_.:-])(?:messages?|sendmessage|send|mail|emails?|sms|notifications?|notify|chat\.postmessage|hooks?|webhooks)(?=$|[/_.:-])/i;

/** Whose statement stands in a parameter; their other operations are told by name. */
const SQL = words(`
	postgres mySql microsoftSql snowflake questDb timescaleDb crateDb oracleDatabase oracleDb
	googleBigQuery redshift clickhouse duckdb sqlite
`);

const MODELS = words(`
	openAi anthropic googleGemini ollama alibabaCloud minimax moonshot chainLlm chainSummarization
	chainRetrievalQa informationExtractor sentimentAnalysis textClassifier mistralAi perplexity
`);

const AGENTS = words(`agent openAiAssistant toolExecutor agentTool messageAnAgent`);

/** What a node is. `asTool`: it hangs on an agent. */
export function stepOf(node: WorkflowNode): Step {
	const own = ownName(node.type);
	// Send-Once Telegram guards the message it sends; a trigger starts a run and is no step in it
	if (own !== null || isTrigger(node.type)) return { does: 'nothing' };
	const type = plainType(node.type);
	if (type.startsWith(LANGCHAIN)) return langchainStep(node, shortOf(node.type), shortOf(type));
	const short = shortOf(type);
	if (type.startsWith(BASE)) return baseStep(node, short);
	return communityStep(node, short);
}

function baseStep(node: WorkflowNode, short: string): Step {
	if (short === 'executeWorkflow') return { does: 'calls-workflow' };
	if (AGENTS.has(short)) return { does: 'agent' };
	if (MODELS.has(short)) return modelStep(node, short);
	if (isHttpRequest(short)) return httpStep(node);
	if (short === 'graphql') {
		return step(node, deedOfGraphql(textOf(node.parameters.query)), 'GraphQL request', 'record');
	}
	if (['code', 'function', 'functionItem'].includes(short)) {
		const what = 'code that calls the network (what it does there cannot be seen)';
		return step(node, deedOfCode(node.parameters), what, 'record');
	}
	if (['executeCommand', 'ssh'].includes(short)) {
		const { operation } = chosenOperation(node);
		if (operation === 'download') return { does: 'reads' };
		return step(node, 'unknown', 'a command (what it does cannot be seen)', 'command');
	}
	const fixed = deedOfType(short);
	if (fixed !== null) return step(node, fixed, short, 'record');
	const chosen = chosenOperation(node);
	if (SQL.has(short) && isStatement(chosen.operation)) return sqlStep(node, short);
	const { deed, repeats } = nodeDeed(node, short, chosen);
	const named = [chosen.resource, chosen.operation].filter((part) => part !== '').join(' ');
	const what = `${display(short)}${named === '' ? '' : `: ${named}`}`;
	return step(node, repeats ?? deed, what, kindOf(short, chosen));
}

/** Nodes of n8n's own whose name of the operation does not tell, or that have none. */
function nodeDeed(
	{ parameters, type }: WorkflowNode,
	short: string,
	{ operation }: { resource: string; operation: string },
): { deed: Deed; repeats?: Deed } {
	switch (short) {
		case 'postgres':
		case 'mySql':
		case 'supabase':
			// "skip on conflict" makes the second insert do nothing
			if (operation === 'insert' && optionOf(parameters, 'skipOnConflict') === true) {
				return { deed: 'converges' };
			}
			break;
		case 'facebookGraphApi': {
			const method = textOf(parameters.httpRequestMethod, 'GET').toUpperCase();
			return { deed: method === 'GET' ? 'reads' : method === 'DELETE' ? 'converges' : 'doubles' };
		}
		case 'redis':
			if (operation === 'pop') return { deed: 'doubles' };
			break;
		case 'readWriteFile':
		case 'writeBinaryFile':
			return { deed: operation === 'read' ? 'reads' : 'converges' };
		case 's3':
		case 'awsS3':
		case 'ftp':
		case 'googleCloudStorage':
		case 'dropbox':
		case 'nextCloud':
			// a file of one name is overwritten
			if (['upload', 'create'].includes(operation)) return { deed: 'converges' };
			break;
		case 'elasticsearch':
			break;
		case 'git':
			if (['fetch', 'pull', 'clone', 'push', 'addConfig', 'userSetup'].includes(operation)) {
				return { deed: 'converges' };
			}
			break;
		case 'mqtt':
		case 'amqp':
		case 'kafka':
		case 'emailSend':
		case 'mailgun':
		case 'discord':
		case 'filemaker':
			if (operation === '' || !knownOperations().has(type)) return { deed: 'doubles' };
			break;
		case 'rabbitmq':
			if (operation === 'deleteMessage') return { deed: 'converges' };
			return { deed: 'doubles' };
	}
	return { deed: deedOfOperation(operation) };
}

function communityStep(node: WorkflowNode, short: string): Step {
	const operation = textOf(node.parameters.operation);
	const resource = textOf(node.parameters.resource);
	const deed = operation === '' ? 'unknown' : deedOfOperation(operation);
	const named = [resource, operation].filter((part) => part !== '').join(' ');
	const what = `${display(short)}${named === '' ? '' : `: ${named}`}`;
	const kind = kindOf(short, { resource, operation });
	const found = step(node, deed, `${what} (community node, judged by its operation's name)`, kind);
	if (deed === 'unknown' && found.does === 'writes') {
		found.effect.what = `${what} (unknown node, treated as a step with an effect)`;
	}
	return found;
}

function langchainStep(node: WorkflowNode, given: string, short: string): Step {
	if (given === 'toolWorkflow') return { does: 'calls-workflow' };
	if (given === 'toolHttpRequest') return httpStep(node);
	if (['mcpClientTool', 'mcpRegistryClientTool', 'mcpClient'].includes(given)) {
		const what = 'tools of an MCP server (unknown, treated as steps with an effect)';
		return step(node, 'unknown', what, 'record');
	}
	if (given === 'toolCode' || given === 'code') {
		const what = 'code that calls the network (what it does there cannot be seen)';
		return step(node, deedOfCode(node.parameters), what, 'record');
	}
	if (AGENTS.has(given) || AGENTS.has(short)) return { does: 'agent' };
	if (MODELS.has(short)) return modelStep(node, short);
	if (short === 'chat') return step(node, 'doubles', 'Chat: send a message', 'message');
	if (/^(?:chatHub)?vectorStore/.test(short)) {
		const mode = textOf(node.parameters.mode, /Insert$/.test(short) ? 'insert' : 'retrieve');
		const deed = mode === 'insert' ? 'doubles' : mode === 'update' ? 'converges' : 'reads';
		return step(node, deed, 'vector store: insert documents', 'record');
	}
	return { does: 'nothing' };
}

/** A model node, unless its operation keeps files, assistants or the like. */
function modelStep(node: WorkflowNode, short: string): Step {
	const { resource, operation } = chosenOperation(node);
	if (['file', 'assistant', 'fileSearch', 'conversation', 'vectorStore'].includes(resource)) {
		if (operation === 'message') return { does: 'model' };
		return step(
			node,
			deedOfOperation(operation),
			`${display(short)}: ${resource} ${operation}`,
			'record',
		);
	}
	return { does: 'model' };
}

function httpStep(node: WorkflowNode): Step {
	const { method, host, path, deed } = requestOf(node);
	if (deed === 'model') return { does: 'model' };
	const where = `${host}${path}`.slice(0, 120) || 'an address from an expression';
	const kind =
		MONEY_HOSTS.test(host) || MONEY_WORDS.test(path)
			? 'money'
			: MESSAGE_WORDS.test(path) || /slack|telegram|twilio|sendgrid|mailgun|discord/.test(host)
				? 'message'
				: 'record';
	const what = `${method || 'HTTP request by an expression'} to ${where}`;
	const isAssumed = method === '' || (method === 'GET' && deed === 'unknown');
	return step(node, deed, isAssumed ? `${what} (treated as a write)` : what, kind);
}

function sqlStep(node: WorkflowNode, short: string): Step {
	const sql = textOf(node.parameters.query, textOf(node.parameters.sqlQuery));
	const deed = deedOfSql(sql);
	const what =
		deed === 'unknown'
			? `${display(short)}: a statement that cannot be seen (treated as a write)`
			: `${display(short)}: ${sql.replace(/^=/, '').trim().split(/\s+/, 3).join(' ').slice(0, 60)}`;
	return step(node, deed, what, 'record');
}

const isStatement = (operation: string): boolean =>
	/^(?:executeQuery|execute|query|rawQuery)$/.test(operation);

function step(node: WorkflowNode, deed: Deed, what: string, kind: EffectKind): Step {
	if (deed === 'nothing' || deed === 'reads') return { does: deed };
	return {
		does: 'writes',
		effect: {
			kind,
			what,
			repeats: deed === 'converges' ? 'converges' : 'doubles',
			certain: deed !== 'unknown',
			key: idempotencyKeyOf(node),
		},
	};
}

function kindOf(
	short: string,
	{ resource, operation }: { resource: string; operation: string },
): EffectKind {
	if (MESSAGES.has(short) || /^(?:send|reply|post|notify)/i.test(operation)) return 'message';
	if (MONEY.has(short) || MONEY_WORDS.test(resource)) return 'money';
	return 'record';
}

function optionOf(parameters: Readonly<Record<string, unknown>>, name: string): unknown {
	const { options } = parameters;
	return typeof options === 'object' && options !== null
		? (options as Record<string, unknown>)[name]
		: undefined;
}

function display(short: string): string {
	const spaced = short.replace(/([a-z])([A-Z])/g, '$1 $2');
	return spaced.charAt(0).toUpperCase() + spaced.slice(1);
}
