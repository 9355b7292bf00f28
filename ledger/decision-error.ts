import type { SchemaCheck } from './decision-schema';
import { isSaid, listOf, membersOf, textOrNull, type Members } from './json-members';

/**
 * Whether what came in the place of an answer is the body of an error. With a setting such as "Never Error" n8n hands such
 * bodies on like any answer, and one that is stored is replayed for as long as the decision lasts.
 */

/** What failed, in words, where the body says so itself; null where it does not. */
export function errorIn(json: Members): string | null {
	const { error } = json;
	if (error !== undefined && error !== null && error !== false && error !== '') {
		const { message, type, code } = membersOf(error);
		const words =
			typeof error === 'string' ? error : (message ?? type ?? code ?? 'the body holds an error');
		return String(words).slice(0, 500);
	}
	const status = Number(json.statusCode ?? 200);
	if (status >= 400) return `HTTP status ${status}`;
	if (json.type === 'error' || json.object === 'error')
		return textOrNull(json.message) ?? 'the body is an error';
	return wrappedError(json);
}

/** Where vendors and gateways put it instead of into `error`. */
function wrappedError(json: Members): string | null {
	// MiniMax; Apigee; Tencent; AWS
	const { status_code: code, status_msg: words } = membersOf(json.base_resp);
	if (typeof code === 'number' && code !== 0) return textOrNull(words) ?? `status ${code}`;
	const { faultstring } = membersOf(json.fault);
	if (isSaid(faultstring)) return String(faultstring).slice(0, 500);
	const inner = membersOf(membersOf(json.Response).Error ?? json.Error);
	if (isSaid(inner.Code) && isSaid(inner.Message)) return String(inner.Message).slice(0, 500);
	const { __type: type } = membersOf(json.Output);
	return isSaid(type) ? String(type).slice(0, 500) : null;
}

/** Those that hold a word for what went wrong. */
const WORDS = [
	...['message', 'msg', 'Message', 'errorMessage', 'error_message', 'error_msg', 'errorMsg'],
	...['errmsg', 'errorDescription', 'error_description', 'detail', 'details', 'title'],
	...['description', 'exception', '__type'],
];
/** Those that hold a number or name of what went wrong. */
const CODES = [
	...['code', 'Code', 'status', 'statusCode', 'status_code', 'errcode', 'error_code', 'errorCode'],
];
const REQUESTS = [
	...['request_id', 'requestId', 'RequestId', 'requestid', 'trace', 'trace_id', 'traceId'],
	...['correlation_id', 'correlationId'],
];
/** What an answer would stand in: in an error it is empty. */
const CONTENTS = ['data', 'result', 'results', 'messages'];

/** Names that bodies of errors are made of. */
const ERROR_NAMES = new Set([
	...[...WORDS, ...CODES, ...REQUESTS, ...CONTENTS],
	...[
		'error',
		'errors',
		'errorDetails',
		'instance',
		'type',
		'Type',
		'param',
		'success',
		'ok',
		'id',
	],
	...['timestamp', 'path', 'n8nDetails', 'meta', 'extensions', 'hint', 'documentation_url'],
]);

/** Said by none but an error. */
const ERROR_WORDS = [
	...['errorMessage', 'error_message', 'error_msg', 'errorMsg', 'errmsg', 'Message', 'exception'],
	'__type',
];
const ERROR_CODES = ['error_code', 'errorCode', 'errcode'];

/** A code of letters, as vendors write them: InvalidApiKey, rate_limit_exceeded, PERMISSION_DENIED. */
const ERROR_CODE =
	/^(?=[\w.:#-]+$).*(error|exception|invalid|denied|unauthori[sz]ed|unauthenticated|forbidden|not_?found|unavailable|exceeded|exhausted|throttl|quota|rate_?limit|overload|time_?out|insufficient|arrear|too_?many|failure)/i;
/** invalid_request_error, BadRequestError; a problem of RFC 9457 has an address or about:blank. */
const ERROR_TYPE = /^[\w.]*(_error|Error|Exception)$/;
const PROBLEM_TYPE = /^(about:blank$|urn:|https?:)/;

/**
 * What failed by a body that holds nothing but what errors are made of and looks like one: by a status, a `success: false`,
 * a list of errors, the id of a request beside its words or, alone, the `detail` of a framework. null for everything else:
 * an answer has a name of its own among its fields. One that has not may still be an answer, see `excludesErrors`.
 */
export function likelyErrorIn(json: Members): string | null {
	const names = Object.keys(json);
	if (names.length === 0 || !names.every((name) => ERROR_NAMES.has(name))) return null;
	if (CONTENTS.some((name) => !isEmpty(json[name]))) return null;
	if (json.id !== undefined && typeof json.id !== 'string') return null;
	const { code, type, title, detail, success, ok, errors } = json;
	const hasWords = WORDS.some((name) => isSaid(json[name]));
	const isError =
		CODES.some((name) => isErrorStatus(json[name])) ||
		ERROR_CODES.some((name) => isSaid(json[name]) || isOtherThanZero(json[name])) ||
		ERROR_WORDS.some((name) => isSaid(json[name])) ||
		success === false ||
		ok === false ||
		listOf(errors).length > 0 ||
		(hasWords && REQUESTS.some((name) => isSaid(json[name]))) ||
		(hasWords && /^(error|fail|failed|failure)$/i.test(String(json.status ?? ''))) ||
		(hasWords && isSaid(code) && ERROR_CODE.test(String(code))) ||
		(hasWords && isSaid(type) && ERROR_TYPE.test(String(type))) ||
		(isSaid(title) && isSaid(detail) && PROBLEM_TYPE.test(String(type))) ||
		(names.length === 1 && 'detail' in json);
	if (!isError) return null;
	const words = [
		...['message', 'msg', 'Message', 'errorMessage', 'error_message', 'error_msg', 'errorMsg'],
		...['errmsg', 'detail', 'title', 'description', 'error_description', 'exception'],
	].map((name) => json[name]);
	const said = [...words, listOf(errors)[0]?.message, json.__type, code].find(isSaid);
	return (said as string | undefined)?.slice(0, 500) ?? (detail === undefined ? BODY : DETAIL);
}

const BODY = 'the body is an error';
const DETAIL = 'the body is the detail of an error';

function isErrorStatus(value: unknown): boolean {
	const status = typeof value === 'string' && value !== '' ? Number(value) : value;
	return typeof status === 'number' && status >= 400 && status <= 599;
}

function isOtherThanZero(value: unknown): boolean {
	return typeof value === 'number' && value !== 0;
}

/** Bodies of text that gateways and proxies answer with, and no model. */
const GATEWAY_TEXT = [
	/^\s*<(!doctype|html|head|body)\b/i,
	/^\s*(<\?xml[^>]*>\s*)?<(Error|ErrorResponse)\b/,
	/^upstream (connect|request|response|timed|server)\b/i,
	/^(no healthy upstream|stream timeout|error code: \d+|default backend - 404)\W*$/i,
	/^(\d{3} )?(Bad Gateway|Gateway Time-?out|Service (Temporarily )?Unavailable|Internal Server Error|Too Many Requests|Unauthorized|Forbidden|Method Not Allowed|Request Entity Too Large|Payload Too Large|404 page not found|404 Not Found)\W*$/i,
];

export function isGatewayText(text: string): boolean {
	return GATEWAY_TEXT.some((pattern) => pattern.test(text.trim()));
}

/** Those that HTTP and the vendors have, each of which an error may carry. */
const STATUSES = [
	...[
		400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418,
	],
	...[
		419, 420, 421, 422, 423, 424, 425, 426, 428, 429, 430, 431, 440, 444, 449, 451, 460, 463, 494,
	],
	...[
		495, 496, 497, 498, 499, 500, 501, 502, 503, 504, 505, 506, 507, 508, 509, 510, 511, 520, 521,
	],
	...[522, 523, 524, 525, 526, 527, 529, 530, 540, 561, 598, 599],
];
const ERROR_TEXTS = [
	...['', 'error', 'Error', 'ERROR', 'fail', 'failed', 'failure', 'about:blank', '0', '-1', '1004'],
	...[
		'invalid',
		'Unauthorized',
		'unauthorized',
		'Forbidden',
		'forbidden',
		'Not Found',
		'not found',
	],
	...[
		'not_found',
		'notfound',
		'Bad Request',
		'bad_request',
		'Conflict',
		'Gone',
		'timeout',
		'Timeout',
	],
	...[
		'Too Many Requests',
		'Payment Required',
		'Internal Server Error',
		'Bad Gateway',
		'Overloaded',
	],
	...['Service Unavailable', 'Gateway Timeout', 'invalid_request_error', 'rate_limit_exceeded'],
	...['authentication_error', 'overloaded_error', 'PERMISSION_DENIED', 'INTERNAL', 'UNAVAILABLE'],
	...['RESOURCE_EXHAUSTED', 'InvalidApiKey', 'Throttling.RateQuota', 'BadRequestError', 'E1001'],
	...['https://example.com/errors/rate-limit', 'urn:problem:rate-limit', '2026-01-31T10:00:00Z'],
	'Incorrect API key provided: sk-****. You can find your API key at https://example.com/keys.',
	'The model is overloaded. Please try again later.',
	'UNAUTHORIZED: THE REQUEST WAS REFUSED',
	`This model's maximum context length is 8192 tokens. ${'Please reduce the length of the messages. '.repeat(20)}`,
];

/**
 * Whether a schema tells an answer whose every field is named like an error's from an error: it asks for one of these
 * fields, and lets nothing into it that an error may hold there. An error would then not fit, whatever its other fields
 * say. A schema that only says "a text" or "a number" does not tell them apart.
 */
export function excludesErrors(schema: SchemaCheck, value: Members): boolean {
	const own = new Set<string>([...WORDS, ...CODES, 'type', 'Type']);
	return Object.keys(value)
		.filter((name) => own.has(name) && value[name] !== null && typeof value[name] !== 'object')
		.some((name) => {
			const { [name]: held, ...without } = value;
			const isNumber = Number.isFinite(Number(held));
			const numbers = Array.from({ length: 200 }, (_, i) => 400 + i)
				// of the unused ones only its own is left to the answer
				.filter((status) => STATUSES.includes(status) || status !== Number(held));
			const errors: unknown[] = [
				...[null, 0, 1, -1, 7, 16, 1004, 5006, 11200, 50_000, 336_000, 1e9, false, true],
				...[...numbers, ...STATUSES.map(String)],
				...(isNumber ? ERROR_TEXTS : [...ERROR_TEXTS, ...ERROR_TEXTS.map((text) => `${text}.`)]),
			].map((other) => ({ ...value, [name]: other }));
			return schema.fitsNone([without, ...errors]);
		});
}

function isEmpty(value: unknown): boolean {
	return (
		value === undefined ||
		value === null ||
		(typeof value === 'object' && Object.keys(value).length === 0)
	);
}
