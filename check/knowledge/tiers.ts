import type { EffectStep } from '../analysis';
import { requestOf, isHttpRequest } from './http';
import { plainType, shortOf } from './node-type';
import { chosenOperation } from './operations';

/** 1: takes an idempotency key; 2: has a unique field; 3: nothing. */
export type Tier = 1 | 2 | 3;

export interface Placement {
	tier: Tier;
	/** False where nothing is known of the target: it is treated as the worst. */
	known: boolean;
	/** What to put where. */
	advice: string;
}

const KEY = '{{ $json.work.workId }}';

/** Hosts whose API takes a key, and where. */
const KEY_HOSTS: ReadonlyArray<[host: RegExp, where: string]> = [
	[/stripe\.com$/, 'header Idempotency-Key'],
	[/paypal\.com$/, 'header PayPal-Request-Id'],
	[/squareup(?:sandbox)?\.com$/, 'body field idempotency_key'],
	[/adyen/, 'header Idempotency-Key'],
	[/mollie\.com$/, 'header Idempotency-Key'],
	[/gocardless\.com$/, 'header Idempotency-Key'],
	[/klarna\.com$/, 'header Klarna-Idempotency-Key'],
	[/checkout\.com$/, 'header Cko-Idempotency-Key'],
	[/dwolla\.com$/, 'header Idempotency-Key'],
	[/xero\.com$/, 'header Idempotency-Key'],
	[/resend\.com$/, 'header Idempotency-Key'],
	[/quickbooks|intuit\.com$/, 'query parameter requestid'],
	[/wise\.com$|transferwise/, 'body field customerTransactionId (a UUID)'],
	[/todoist\.com$/, 'header X-Request-Id'],
];

/** Nodes of APIs that take a key which the node cannot send. */
const KEY_BEHIND_NODE: Readonly<Record<string, string>> = {
	stripe: 'header Idempotency-Key',
	payPal: 'header PayPal-Request-Id',
	xero: 'header Idempotency-Key',
	quickbooks: 'query parameter requestid',
	wise: 'body field customerTransactionId (a UUID)',
	todoist: 'header X-Request-Id',
};

/** Nodes whose target has a field that may be unique, and which. */
const UNIQUE_FIELDS: Readonly<Record<string, string>> = {
	postgres: 'a unique column; operation "Insert or Update", or "Insert" with "Skip on Conflict"',
	mySql: 'a unique column; operation "Insert or Update"',
	microsoftSql: 'a unique column, and MERGE by it',
	snowflake: 'a key column, and MERGE by it',
	oracleDatabase: 'a unique column, and MERGE by it',
	questDb: 'a DEDUP UPSERT KEYS column',
	timescaleDb: 'a unique column, and ON CONFLICT',
	crateDb: 'a primary key, and ON CONFLICT',
	googleBigQuery: 'a key column, and MERGE by it',
	supabase: 'a unique column',
	mongoDb: 'a unique index; operation "Update" with "Upsert"',
	redis: 'the key itself',
	elasticsearch: 'the document id',
	awsDynamoDb: 'the primary key',
	googleSheets: 'a column to match; operation "Append or Update Row"',
	microsoftExcel: 'a column to match; operation "Append or Update"',
	dataTable: 'a column; operation "Upsert"',
	airtable: 'a field to merge on; operation "Create or Update"',
	baserow: 'a field that is looked up first',
	nocoDb: 'a unique column',
	hubspot: 'email for contacts; a custom property with unique values for the rest',
	salesforce: 'an external id field; operation "Create or Update"',
	googleCalendar: 'the event id, which you may choose',
	zendesk: 'external_id',
	shopify: 'source_identifier',
	googleDrive: 'the file id, generated beforehand',
	s3: 'the file name',
	awsS3: 'the file name',
	ftp: 'the file name',
	dropbox: 'the path',
	nextCloud: 'the path',
	odoo: 'an external id',
	erpNext: 'a unique field',
	wooCommerce: 'SKU for products; meta_data for orders, looked up first',
	mailchimp: 'the email address',
	activeCampaign: 'the email address',
	intercom: 'external_id',
	customerIo: 'the id',
	freshdesk: 'unique_external_id',
	twist: 'temp_id',
};

/** Which tier a step's target is, and what to put where. */
export function placementOf({ node, effect }: EffectStep): Placement {
	const short = shortOf(plainType(node.type));
	if (effect.key !== null) {
		return {
			tier: 1,
			known: true,
			advice: /work_?id/i.test(effect.key.raw)
				? `It sends ${effect.key.name} with the id of the work.`
				: `It sends ${effect.key.name}: let its value be ${KEY}.`,
		};
	}
	if (isHttpRequest(short)) return placementOfRequest(requestOf(node));
	const behind = KEY_BEHIND_NODE[short];
	if (behind !== undefined) {
		return {
			tier: 1,
			known: true,
			advice: `The API takes a key, the node cannot send it: use HTTP Request with the same credential and ${behind}: ${KEY}.`,
		};
	}
	if (effect.repeats === 'converges') {
		return {
			tier: 2,
			known: true,
			advice: 'It overwrites by id or match: the same values leave one record.',
		};
	}
	const unique = UNIQUE_FIELDS[short];
	if (unique !== undefined) {
		return { tier: 2, known: true, advice: `Put ${KEY} or the business key into ${unique}.` };
	}
	if (short === 'telegram' && /^send/.test(chosenOperation(node).operation || 'sendMessage')) {
		return {
			tier: 3,
			known: true,
			advice: 'Use Send-Once Telegram: it reserves the message before it sends and keeps its id.',
		};
	}
	return { tier: 3, known: effect.kind === 'message', advice: nothing(effect.kind === 'message') };
}

function placementOfRequest({ host, method }: { host: string; method: string }): Placement {
	const found = KEY_HOSTS.find(([pattern]) => pattern.test(host));
	if (found !== undefined) {
		return { tier: 1, known: true, advice: `Send ${found[1]}: ${KEY}.` };
	}
	if (method === 'PUT' || method === 'DELETE') {
		return {
			tier: 2,
			known: true,
			advice: `${method} names what it changes: a repetition leaves one.`,
		};
	}
	return {
		tier: 3,
		known: false,
		advice: `Look in the API's pages: if it takes a key, send it as a header (Idempotency-Key: ${KEY}); if it has a unique field, put it there. ${nothing(false)}`,
	};
}

function nothing(known: boolean): string {
	return `${known ? 'No key, no unique field: e' : 'Otherwise e'}mbed {{ $json.work.fingerprint }}, look it up first where previousOutcome is unknown, make this call the last, and record its reference at once.`;
}

/** The nodes to put around a step, for its tier. */
export function guardFor(step: EffectStep): string {
	const { advice } = placementOf(step);
	if (/^Use Send-Once/.test(advice)) return advice;
	return `Claim Work directly before it, Complete Work behind it, Complete Work (Fail) behind its error output. ${advice}`;
}
