import { readFileSync } from 'node:fs';
import path from 'node:path';

import { textOf, type NodeSettings } from '../workflow';
import { plainType } from './node-type';

interface Described {
	versions: number[];
	/** By resource ("" for a node without resources), the default first in both. */
	operations: Record<string, string[]>;
}

export interface Chosen {
	resource: string;
	operation: string;
}

let table: Map<string, Described[]> | null = null;

/** What n8n's own nodes offer, read once; written by scripts/node-operations.js. */
export function knownOperations(): ReadonlyMap<string, readonly Described[]> {
	table ??= new Map(
		Object.entries(
			JSON.parse(readFileSync(path.join(__dirname, 'node-operations.json'), 'utf8')) as Record<
				string,
				Described[]
			>,
		),
	);
	return table;
}

/** Resource and operation, with the defaults of its version where the export leaves them out; "" where there is none. */
export function chosenOperation({ type, typeVersion, parameters }: NodeSettings): Chosen {
	const versions = knownOperations().get(plainType(type)) ?? knownOperations().get(type) ?? [];
	const described =
		versions.find((each) => each.versions.includes(typeVersion)) ??
		versions.find((each) => each.versions.some((v) => Math.floor(v) === Math.floor(typeVersion))) ??
		versions[0];
	const resources = Object.keys(described?.operations ?? {});
	const resource = textOf(parameters.resource, resources[0] ?? '');
	const offered = described?.operations[resource] ?? described?.operations[''] ?? [];
	return { resource, operation: textOf(parameters.operation, offered[0] ?? '') };
}

export type Deed = 'nothing' | 'reads' | 'doubles' | 'converges' | 'unknown';

const words = (text: string): ReadonlySet<string> => new Set(text.trim().split(/\s+/));

/** First words of operations that change nothing. */
const READS = words(`
	5 administrators aggregate analyze autocomplete availability candlestick changelog check
	classify collaborator color colors company compare completed context conversation count
	current currently custom data decode deep describe detect domain download email enrich
	exchange exist exists expand export extract fetch find font get has history hover image
	improve industry info instagram is keys list llen load log logo lookup market me media member
	members messages metadata moderate parse pdf predict preview price profile properties qr query
	read recently reflog replies report result row sanitize scrape screen screenshot scroll search
	select seo sign snapshot source spotify statistics stats status summarize templatize text
	textualize ticker transcribe transitions translate users validate verify video wait
`);

/** First words of operations that make one more thing each time. */
const DOUBLES = words(`
	add alert alias append bill book broadcast call capture charge checkout clone comment commit
	copy create decrement deposit dial dispatch duplicate emit enqueue execute exit fax forward
	generate incr increment insert install invite invoke kick launch mail make match next notify
	order page pay perform pop post previous publish pull purchase push quick quiet react redeploy
	refund reinvite reply resend restart retry retweet run safe schedule send share ship shorten
	sms start submit tag track transfer trigger upload volume withdraw write
`);

/** First words of operations whose repetition leaves things as they are. */
const CONVERGES = words(`
	accept activate answer approve archive assign auto ban cancel change clear click close
	complete confirm convert deactivate deactive decline delete disable disapprove drop edit
	enable end enroll fill finish follow grant invalidate join leave like link lock mark merge
	move mute open patch pause pin promote purge put rate recover refresh register reject remove
	rename renew reopen replace replicate reschedule reset resolve restore resubscribe resume
	revoke role save set short soft step stop subscribe subtract switch sync terminate timeout
	trash type unarchive unassign unban uncle undo unenroll unfollow unlink unlock unpin unpublish
	unsubscribe untrash update upsert user void
`);

/** Operations that their first word would put in the wrong place. */
const EXACT: ReadonlyMap<string, Deed> = new Map<string, Deed>([
	['appendOrUpdate', 'converges'],
	['addUpdate', 'converges'],
	['createOrGet', 'converges'],
	['createOrUpdate', 'converges'],
	['insertOrUpdate', 'converges'],
	['findOneAndReplace', 'converges'],
	['findOneAndUpdate', 'converges'],
	['addLabels', 'converges'],
	['addLabel', 'converges'],
	['addTags', 'converges'],
	['addToGroup', 'converges'],
	['addGroup', 'converges'],
	['addUser', 'converges'],
	['addConfig', 'converges'],
	['addToCampaign', 'converges'],
	['pushTags', 'converges'],
	['mediaUpload', 'doubles'],
	['mediaDelete', 'converges'],
	['createEmbedding', 'reads'],
	['createContextualized', 'reads'],
	['createResponse', 'reads'],
	['executeMessageQuery', 'reads'],
	['fetchRequest', 'reads'],
	['sendChatAction', 'converges'],
]);

/** Whose operations change nothing outside the execution, whatever they are called. */
const LOCAL = words(`
	aggregate aiTransform compareDatasets compression convertToFile crypto dateTime debugHelper
	dynamicCredentialCheck editImage evaluation executionData extractFromFile filter form function
	functionItem html htmlExtract iCal if itemLists jwt limit markdown merge moveBinaryData noOp
	readBinaryFile readBinaryFiles readPDF removeDuplicates renameKeys respondToWebhook set simulate
	sort splitInBatches splitOut spreadsheetFile start stickyNote stopAndError summarize switch
	timeSaved totp wait xml n8nTrainingCustomerDatastore n8nTrainingCustomerMessenger e2eTest
`);

/** Whose operations only look something up or compute something, whatever they are called. */
const LOOK_UPS = words(`
	airQuality awsComprehend awsRekognition awsTextract Brandfetch clearbit coinGecko deepL dropcontact
	googleCloudNaturalLanguage googlePerspective googleTranslate hackerNews hunter jinaAi lingvaNex
	mailcheck marketstack mindee mistralAi nasa oneSimpleApi openThesaurus openWeatherMap oura peekalink
	perplexity quickChart rssFeedRead uproc urlScanIo
`);

/** What a node type of n8n's own does regardless of its operation, or null. */
export function deedOfType(shortType: string): Deed | null {
	if (LOCAL.has(shortType)) return 'nothing';
	return LOOK_UPS.has(shortType) ? 'reads' : null;
}

/** What an operation does, by its name: that of a community node's operation as well. */
export function deedOfOperation(operation: string): Deed {
	const exact = EXACT.get(operation);
	if (exact !== undefined) return exact;
	const spelled = operation
		.replace(/([a-z])([A-Z])/g, '$1 $2')
		.toLowerCase()
		.split(/[\s_:.-]+/)
		.filter((word) => word !== '');
	const many = ['batch', 'bulk', 'multi', 'multiple', 'mass'].includes(spelled[0]);
	const word = (many ? spelled[1] : spelled[0]) ?? '';
	if (READS.has(word)) return 'reads';
	if (CONVERGES.has(word)) return 'converges';
	return DOUBLES.has(word) ? 'doubles' : 'unknown';
}
