import { isRecord, parameterTexts, textOf, type WorkflowNode } from '../workflow';
import { deedOfOperation, type Deed } from './operations';

export interface Request {
	/** Upper case; "" where an expression chooses it. */
	method: string;
	/** As far as the text names it without an expression. */
	host: string;
	path: string;
	deed: Deed | 'model';
}

/** Asks a model, whoever hosts it. */
const ASKS_MODEL = /\/chat\/completions$|:(?:generateContent|streamGenerateContent)$|\/ai\/run\//i;
const MODEL_PATHS =
	/\/(?:completions|responses|messages|generate|generations|edits|chat|invoke|converse|predictions|speech)$|\/text-to-speech\/|:predict$/i;
const MODEL_HOSTS =
	/openai|anthropic|generativelanguage|aiplatform|mistral\.ai|cohere|groq|deepseek|openrouter|together|perplexity|huggingface|replicate|x\.ai|bedrock|fireworks|moonshot|dashscope|elevenlabs|stability\.ai|runwayml|leonardo\.ai|voyageai|:11434$/i;
/** A POST to these is a question, not a change. */
const QUESTIONS =
	/(?:^|[/:_])(?:search|_search|_msearch|query|scroll|facet|lookup|count|batch-?get|find|filter|token|login|auth|authenticate|validate|verify|check|translate|\w*embeddings?|moderations|rerank|scrape|crawl|extract|parse|classify|detect|analy[sz]e|calculate|preview|quote|estimate|convert|ocr|transcriptions)$/i;

/** What a GET sets off all the same: a hook, a bot that sends, an address that ends in a verb. */
const ACTS_ON_GET =
	/^api\.telegram\.org\/bot.*\/(?:send|copy|forward)|^hooks?\.|^maker\.ifttt\.com|\/webhook(?:-test)?\/|\/hooks?\/|\/(?:send|create|trigger|publish|notify|dispatch)(?:[A-Z_-]\w*)?(?:\.\w+)?$/;

/** Supabase's way to say "insert or update" and "insert or skip". */
function leavesOne(parameters: Readonly<Record<string, unknown>>): boolean {
	for (const { text } of parameterTexts(parameters))
		if (/\bresolution=(?:merge|ignore)-duplicates\b/.test(text.slice(0, 10_000))) return true;
	return false;
}

export function requestOf({ parameters }: WorkflowNode): Request {
	// versions 1 and 2 of the node call it requestMethod; both leave GET out of the export
	const given = textOf(parameters.method, textOf(parameters.requestMethod, 'GET'));
	const method = given.startsWith('=') ? '' : given.toUpperCase();
	const { host, path } = addressOf(textOf(parameters.url));
	return { method, host, path, deed: deedOf(method, host, path, parameters) };
}

function deedOf(
	method: string,
	host: string,
	path: string,
	parameters: Readonly<Record<string, unknown>>,
): Request['deed'] {
	if (method === 'GET' && ACTS_ON_GET.test(host + path)) return 'unknown';
	if (['GET', 'HEAD', 'OPTIONS'].includes(method)) return 'reads';
	if (method === 'POST' || method === '') {
		if (ASKS_MODEL.test(path) || (MODEL_HOSTS.test(host) && MODEL_PATHS.test(path))) return 'model';
		const graphql = graphqlText(parameters);
		// Monday's address, for one, does not say it
		if (/\/graphql(?:\.json)?$/i.test(path) || IS_GRAPHQL.test(graphql))
			return deedOfGraphql(graphql);
		if (method === '') return 'unknown';
		return leavesOne(parameters) ? 'converges' : questionOr(path);
	}
	return ['PUT', 'PATCH', 'DELETE'].includes(method) ? 'converges' : 'unknown';
}

function questionOr(path: string): Deed {
	if (QUESTIONS.test(path)) return 'reads';
	// "…/points/delete", "…/orders/7/cancel": the end of the address is the operation
	return deedOfOperation(path.slice(path.lastIndexOf('/') + 1)) === 'converges'
		? 'converges'
		: 'doubles';
}

const IS_GRAPHQL = /^=?\s*(?:query|mutation|subscription)\b\s*\w*\s*[({]/;

/** "unknown" where no operation can be read. */
export function deedOfGraphql(text: string): Deed {
	const quiet = text.replace(/#[^\n]*/g, ' ').replace(/\\[nrt]/g, ' ');
	if (/(?:^=?|[\s}])mutation\b/.test(quiet)) return 'doubles';
	return /^=?\s*(?:(?:query|subscription|fragment)\b|\{(?!\{))/.test(quiet) ? 'reads' : 'unknown';
}

/** The operation in the body of a request: its member "query", or a text that is one. */
function graphqlText(parameters: Readonly<Record<string, unknown>>): string {
	for (const { name, label, text } of parameterTexts(parameters)) {
		if (name === 'url' || text.length > 100_000) continue;
		if (name === 'value' && label === 'query') return text;
		const member = /["']?query["']?\s*:\s*["'`]([^]*)/.exec(text);
		if (member !== null) return member[1];
		if (/^=?\s*(?:query|mutation|subscription)\b/.test(text)) return text;
	}
	return '';
}

function addressOf(url: string): { host: string; path: string } {
	const plain = url
		.slice(0, 2000)
		.replace(/^=/, '')
		.replace(/\{\{[^]*?\}\}/g, '*')
		.trim();
	const found = /^(?:https?:\/\/)?([^/?#]*)([^?#]*)/i.exec(plain);
	const host = (found?.[1] ?? '').toLowerCase().replace(/^.*@/, '');
	return { host: /^\*?$/.test(host) ? '' : host, path: (found?.[2] ?? '').replace(/\/+$/, '') };
}

const KEY_HEADERS =
	/^(?:x-)?(?:[\w-]+-)?idempoten(?:cy|t|ce)[-_]?(?:key|token|id|uuid)?$|^(?:paypal-)?request-id$|^x-request-id$|^customertransactionid$|^idempotency_?key$/i;
const KEY_IN_TEXT =
	/["']((?:x-)?(?:[\w-]+-)?idempoten(?:cy|t|ce)[-_]?(?:key|token|id|uuid)?|paypal-request-id)["']?\s*:\s*("(?:[^"\\]|\\.)*"|\{\{[^]*?\}\}|[^,}\n]*)/i;

/** The idempotency key that a request carries, as its raw text; null where it carries none. */
export function idempotencyKeyOf({
	parameters,
}: WorkflowNode): { name: string; raw: string } | null {
	for (const { name, label, text } of parameterTexts(parameters)) {
		if (name === 'value' && KEY_HEADERS.test(label) && text.trim() !== '') {
			return { name: label, raw: text };
		}
		const found = text.length < 100_000 ? KEY_IN_TEXT.exec(text) : null;
		if (found !== null && !/^\s*(?:""|null)?\s*$/.test(found[2])) {
			const value = found[2].replace(/^"|"$/g, '');
			const inExpression = text.startsWith('=') && !value.includes('{{');
			// inside a JSON text only what stands in {{ }} is code; inside an expression all of it is
			return { name: found[1], raw: inExpression ? `={{ ${value} }}` : `=${value}` };
		}
	}
	return null;
}

/** Names and values of a node's fields to be set (Set, HTTP body, record nodes), as far as they stand in lists or objects. */
export function* fieldTexts(parameters: unknown): Generator<{ field: string; text: string }> {
	for (const { name, label, text } of parameterTexts(parameters)) {
		yield { field: ['value', 'fieldValue'].includes(name) && label !== '' ? label : name, text };
		if (!/^\s*=?\s*\{/.test(text) || text.length > 100_000) continue;
		for (const [, field, value] of text.matchAll(/["']?([\w.-]+)["']?\s*:\s*([^,}\n]*)/g)) {
			yield { field, text: value };
		}
	}
}

export function isHttpRequest(shortType: string): boolean {
	return shortType === 'httpRequest' || shortType === 'toolHttpRequest';
}

/** A call over the network, also handed on by `call` or `apply`, as n8n's own helpers with a credential want it. */
const CALLS_IN_CODE =
	/\b(?:httpRequest\w*|fetch|axios(?:\.\w+)?|request(?:WithAuthentication|OAuth[12])?\w*|got(?:\.\w+)?|(?:requests|httpx|session|client)\.(?:get|post|put|patch|delete|request|head)|urlopen|\$http)(?:\.(?:call|apply))?\s*\(/;
/** A method that writes, or one that stands elsewhere. */
const WRITES_IN_CODE =
	/\b(?:POST|PUT|PATCH|DELETE)\b|["'`](?:post|put|patch|delete)["'`]|\.(?:post|put|patch|delete)\s*\(|\bmethod\s*(?:[,}]|:\s*[^\s"'`])|\bdata\s*=(?!=)/;
/** Mail, commands, files and SQL that changes something. */
const ACTS_IN_CODE =
	/\.sendMail\s*\(|\b(?:execSync|spawnSync|execFile\w*|child[_]process)\b|\b(?:os\.system|subprocess\.\w+)\s*\(|\b(?:writeFile|appendFile)\w*\s*\(|\.(?:query|execute)\s*\(\s*["'`]\s*(?:insert|update|delete|merge)\b/i;

/** What a Code node's text does over the network, if anything. */
export function deedOfCode(parameters: unknown): Deed {
	if (!isRecord(parameters)) return 'nothing';
	let code = '';
	for (const { name, text } of parameterTexts(parameters)) {
		if (/code$/i.test(name)) code += `${text}\n`;
	}
	const quiet = code
		.slice(0, 200_000)
		.replace(/\/\*[^]*?\*\/|(?<!:)\/\/[^\n]*|^[ \t]*#[^\n]*/gm, ' ');
	if (ACTS_IN_CODE.test(quiet)) return 'unknown';
	if (!CALLS_IN_CODE.test(quiet)) return 'nothing';
	return WRITES_IN_CODE.test(quiet) ? 'unknown' : 'reads';
}
