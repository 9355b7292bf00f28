import { randomUUID } from 'crypto';
import type { IDataObject, IExecuteFunctions, INodeExecutionData } from 'n8n-workflow';

import {
	identifyByContent,
	identifyByKey,
	identifyByUrl,
	keyHints,
	matchDigests,
	parseFieldNames,
	payloadText,
	isCode,
	readField,
	RACE_SPACE,
	volatileSources,
	type Caller,
	type ClaimItem,
	type ClaimPolicy,
	type ClaimWindow,
	type KeyPart,
	type OnLapse,
	type ReadingOptions,
	type WorkIdentity,
} from '../../ledger';
import { callerOf } from '../execution/caller';
import { appliedDecision } from '../execution/decision-field';
import { checkedNumber, type NumberRange } from '../execution/number';
import { Parameters, unknownChoice } from '../execution/parameters';
import { parameterProblem } from '../execution/problems';
import {
	answerStatus,
	asWorkField,
	DEFAULT_FIELD,
	fieldNameProblem,
	openClaimsIn,
	withoutFields,
	type OpenField,
} from '../execution/work-field';

/** How many items are looked at for hints: they are for the person who builds the flow, not for every item. */
const HINTED_ITEMS = 20;

const SECONDS: Record<string, number> = { seconds: 1, minutes: 60, hours: 3600, days: 86_400 };

const MODES = ['guard', 'shadow'];
const RESPONSES = ['original', 'error', 'nothing'] as const;
export type Response = (typeof RESPONSES)[number];

const LAPSES: OnLapse[] = ['run_again', 'hold'];
const WINDOWS: Array<ClaimWindow['mode']> = [
	'forever',
	'duration',
	'while_running',
	'until_success',
];

/** An item that can be claimed. */
export interface Claim {
	itemIndex: number;
	identity: WorkIdentity;
	item: ClaimItem;
	/** Names of the key fields, where the key was read by name. */
	keyFields: readonly string[];
	field: string;
	hints: string[];
	warnings: string[];
	/** The text that was hashed, where it was asked for. */
	canonical: string | null;
	/** The item came with this claim (a retry that Work Ledger Trigger handed out): it was not made here. */
	isOwn: boolean;
}

/** An item that cannot be claimed, and why, in words that tell the cure. */
export interface Refused {
	itemIndex: number;
	field: string;
	message: string;
	code: string;
}

/** The node decides everything about a claim. */
type NodePolicy = Required<Omit<ClaimPolicy, 'poll'>>;

/** Items that go into one statement: all but the key is the same for them. */
export interface ClaimGroup {
	/** Groups are sent in this order: a key that comes again under another policy belongs behind its first one. */
	round: number;
	policy: NodePolicy;
	waitSeconds: number;
	/** The tokens were made here; a claim that the items brought with them is not given back when something fails. */
	freshTokens: boolean;
	claims: Claim[];
}

export interface Request {
	groups: ClaimGroup[];
	refused: Refused[];
	response: Response;
}

/** Reads the node's parameters for every item. Never throws for an item: what cannot be claimed is refused with its cure. */
export function readRequest(context: IExecuteFunctions, items: INodeExecutionData[]): Request {
	const parameters = new Parameters(context);
	const caller = callerOf(context);
	const refused: Refused[] = [];
	const volatile = volatileParameters(parameters);
	const response = parameters.read<Response>('response', 0, 'original');
	const mode = parameters.read<string>('mode', 0, 'guard');
	const shadow = mode === 'shadow';
	const readTerms = termsReader(parameters, caller, shadow);
	/** The group that a work's latest claim went into. */
	const seen = new Map<string, ClaimGroup>();
	/** By terms and round. */
	const groups = new Map<Terms, ClaimGroup[]>();

	items.forEach((input, itemIndex) => {
		let field = DEFAULT_FIELD;
		try {
			const named = readFieldName(parameters, itemIndex);
			const open = claimInField(input.json, named);
			field = named;
			if (volatile !== null && !allowsVolatileKey(parameters, itemIndex)) {
				throw new Refusal('volatile_key', volatile);
			}
			if (!MODES.includes(mode)) throw unknownChoice('Mode', mode);
			if (!RESPONSES.includes(response)) throw unknownChoice('A Duplicate Gets', response);
			const scope = readScope(parameters, itemIndex, caller.mode);
			// what an earlier answer here said (Busy came back) is not part of the work
			const json = Object.hasOwn(input.json, field)
				? withoutFields(input.json, [field])
				: input.json;
			const { identity, parts, keyFields } =
				parameters.read<string>('identity', itemIndex, 'fields') === 'ledger'
					? ledgersWork(input.json, field, scope)
					: identify(parameters, itemIndex, json, scope);
			if (open !== undefined && open.workId !== identity.workId) {
				field = DEFAULT_FIELD;
				throw otherClaim(named, open);
			}
			const terms = readTerms(itemIndex, identity, scope.apart);
			const payload =
				!shadow &&
				parameters.optionFlag('storePayload', 'Keep the Item Until Done', itemIndex, true)
					? payloadText(json)
					: { text: null, warnings: [] };

			const matchFields = parameters.optionFieldNames('matchFields', itemIndex);
			const absent = matchFields.filter((name) => !readField(json, name).found);
			if (absent.length > 0) {
				payload.warnings.push(
					`Fields That Must Not Change: ${absent.join(', ')} ${absent.length === 1 ? 'is' : 'are'} missing in this item. Check the spelling: a field that is never there cannot differ.`,
				);
			}

			const isOwn = open !== undefined;
			const group = groupFor(groups, isOwn ? terms.ofOwnClaims : terms, seen.get(identity.workId));
			seen.set(identity.workId, group);
			group.claims.push({
				itemIndex,
				identity,
				// made here, before anything is sent: a resend after a lost answer finds its own claim by it
				item: {
					workId: identity.workId,
					key: identity.key,
					// the claim that came with the item is answered "claimed" again, as long as it runs
					token: open?.token ?? randomUUID(),
					payload: payload.text,
					match: matchFields.length === 0 ? undefined : matchDigests(json, matchFields),
					decisionKey: readDecision(parameters, itemIndex, json),
				},
				keyFields,
				field,
				hints:
					itemIndex < HINTED_ITEMS
						? keyHints(identity.key, parts, { executionId: caller.execution, now: Date.now() })
						: [],
				warnings: payload.warnings,
				canonical: parameters.optionFlag('showCanonical', 'Show What Was Hashed', itemIndex, false)
					? shownCanonical(identity)
					: null,
				isOwn,
			});
		} catch (error) {
			refused.push({ itemIndex, field, message: parameterProblem(error), code: codeOf(error) });
		}
	});

	return {
		groups: [...groups.values()].flat().sort((a, b) => a.round - b.round),
		refused,
		response,
	};
}

/** What a claim is made under, besides its key. The same object for all items that agree in it. */
interface Terms {
	policy: NodePolicy;
	waitSeconds: number;
	freshTokens: boolean;
	/** The same for claims that came with their items. */
	ofOwnClaims: Terms;
}

/** Parameters that terms are read from, besides kind and version. */
const TERMS_PARAMETERS = 'window windowAmount windowUnit windowKind onLapse wait options'.split(
	' ',
);

/** Reads an item's terms, and no more often than they can differ. What it gives throws for a value that is out of range. */
function termsReader(
	parameters: Parameters,
	caller: Caller,
	shadow: boolean,
): (itemIndex: number, identity: WorkIdentity, apart: boolean) => Terms {
	const areFixed = TERMS_PARAMETERS.every((name) => !parameters.isExpression(name));
	const known = new Map<string, Terms>();
	let last: Terms | null = null;
	return (itemIndex, { kind, version }, apart) => {
		if (areFixed && last?.policy.kind === kind && last.policy.version === version) return last;
		const option = (name: string, fallback: number, range: NumberRange) =>
			inRange(parameters.option<unknown>(name, itemIndex, fallback), range);
		const policy: NodePolicy = {
			kind,
			version,
			window: readWindow(parameters, itemIndex, apart),
			onLapse: readOnLapse(parameters, itemIndex),
			leaseSeconds: option('leaseSeconds', 3600, {
				label: 'Lease (Seconds)',
				least: 0.001,
				most: MOST_SECONDS,
			}),
			maxAttempts: option('maxAttempts', 5, {
				label: 'Attempts',
				least: 1,
				most: 1_000_000,
				whole: true,
			}),
			backoffBaseSeconds: option('backoffBaseSeconds', 30, {
				label: 'Retry After, at First',
				least: 0,
				most: MOST_SECONDS,
			}),
			backoffCapSeconds: option('backoffCapSeconds', 3600, {
				label: 'Retry After, at Most',
				least: 0,
				most: MOST_SECONDS,
			}),
			caller: { ...caller, runId: readRunId(parameters, itemIndex) },
			shadow,
		};
		const waitSeconds = inRange(parameters.read<unknown>('wait', itemIndex, 0), {
			label: 'Wait for Running Work',
			least: 0,
			most: 600,
		});
		const text = JSON.stringify([policy, waitSeconds]);
		last = known.get(text) ?? newTerms(policy, waitSeconds);
		known.set(text, last);
		return last;
	};
}

function newTerms(policy: NodePolicy, waitSeconds: number): Terms {
	const ofOwnClaims = { policy, waitSeconds, freshTokens: false } as Terms;
	ofOwnClaims.ofOwnClaims = ofOwnClaims;
	return { policy, waitSeconds, freshTokens: true, ofOwnClaims };
}

/** The group of these terms; for a work that came before under other terms, one that is sent after that claim's. */
function groupFor(
	groups: Map<Terms, ClaimGroup[]>,
	terms: Terms,
	before: ClaimGroup | undefined,
): ClaimGroup {
	let ofTerms = groups.get(terms);
	if (ofTerms === undefined) groups.set(terms, (ofTerms = []));
	let round = 0;
	if (before !== undefined) round = ofTerms.includes(before) ? before.round : before.round + 1;
	let group = ofTerms.find((each) => each.round === round);
	if (group === undefined) {
		const { policy, waitSeconds, freshTokens } = terms;
		ofTerms.push((group = { round, policy, waitSeconds, freshTokens, claims: [] }));
	}
	return group;
}

/** A leap year; of leases and delays. */
const MOST_SECONDS = 31_622_400;

class Refusal extends Error {
	constructor(
		readonly code: string,
		message: string,
	) {
		super(message);
	}
}

interface ClaimScope {
	kind: string;
	version: string;
	/** A manual run that is to meet nothing of production. */
	apart: boolean;
}

/** Ends the kinds of manual runs that are kept apart; so no other kind may end like it. */
const TEST_SPACE = ' (manual test)';
const RESERVED_SPACES = [TEST_SPACE, RACE_SPACE];

function readScope(
	parameters: Parameters,
	itemIndex: number,
	mode: string | undefined,
): ClaimScope {
	const kind = parameters.text('kind', itemIndex).trim();
	const reserved = RESERVED_SPACES.find((space) => kind.endsWith(space));
	if (reserved !== undefined) {
		throw new Refusal(
			'bad_scope',
			`Kind may not end in "${reserved}": such kinds belong to ${reserved === TEST_SPACE ? 'manual runs' : 'tests'}. Choose another name.`,
		);
	}
	const apart =
		mode === 'manual' && parameters.optionFlag('testSpace', 'Manual Runs Apart', itemIndex, false);
	return {
		kind: inSpace(kind, apart),
		version: parameters.text('version', itemIndex, 'v1'),
		apart,
	};
}

function allowsVolatileKey(parameters: Parameters, itemIndex: number): boolean {
	return parameters.optionFlag('allowVolatileKey', 'Allow a Key That Changes', itemIndex, false);
}

function inSpace(kind: string, apart: boolean): string {
	return apart && kind !== '' ? `${kind}${TEST_SPACE}` : kind;
}

const PLAIN_READING: ReadingOptions = Object.freeze({});

function readReading(parameters: Parameters, itemIndex: number): ReadingOptions {
	const chosen = parameters.option<unknown>('reading', itemIndex, null);
	if (!Array.isArray(chosen) || chosen.length === 0) return PLAIN_READING;
	return Object.fromEntries(chosen.map((name) => [String(name), true]));
}

/** A list that a person may have emptied on purpose; undefined where the option is not set. */
function optionList(parameters: Parameters, name: string, itemIndex: number): string[] | undefined {
	const value = parameters.option<unknown>(name, itemIndex, undefined);
	return value === undefined || value === null ? undefined : parseFieldNames(String(value));
}

/** Work that the ledger handed out (a trigger, a replay): its id stands, whatever the item looks like now. */
function ledgersWork(
	json: IDataObject,
	field: string,
	scope: ClaimScope,
): { identity: WorkIdentity; parts: KeyPart[]; keyFields: readonly string[] } {
	const named = asWorkField(json[field]);
	const workId = named?.workId ?? json.workId ?? json.work_id;
	if (typeof workId !== 'string' || !/^[0-9a-f]{64}$/.test(workId)) {
		throw new Refusal(
			'missing',
			`The item names no work of the ledger: it has neither "${field}" nor "workId" with 64 hex digits. Choose another way under "Identify By" for items that do not come from the ledger.`,
		);
	}
	const kind = named?.kind ?? scope.kind;
	if (kind === '') {
		throw new Refusal(
			'bad_scope',
			'The kind is empty. Enter the kind of the work that the item names.',
		);
	}
	if (!scope.apart && String(kind).endsWith(TEST_SPACE)) {
		throw new Refusal(
			'bad_scope',
			'The item names work of a manual run that is kept apart from production. Run it by hand with the option "Manual Runs Apart".',
		);
	}
	if (scope.apart && !String(named?.kind).endsWith(TEST_SPACE)) {
		throw new Refusal(
			'bad_scope',
			'The item names work of production, which "Manual Runs Apart" must not meet. Switch that option off to claim it by hand.',
		);
	}
	// what came with the item is checked as what stands on the node is: in SQL it would stop the whole batch
	const checked = identifyByKey({ kind, version: named?.version ?? scope.version }, [
		{ name: 'workId', value: workId },
	]);
	const key = typeof named?.key === 'string' ? named.key : workId;
	return {
		identity: { ...checked, workId, key, canonical: key, fingerprint: workId.slice(0, 10) },
		parts: [],
		keyFields: [],
	};
}

/**
 * What Claim Work would take a sample item for, by the same fields. Throws for what it would refuse, a key that changes
 * with each run included: within one run such a key would pass any test.
 */
export function readSample(
	parameters: Parameters,
	itemIndex: number,
	json: IDataObject,
): WorkIdentity {
	const volatile = volatileParameters(parameters);
	if (volatile !== null) throw new Refusal('volatile_key', volatile);
	const scope = readScope(parameters, itemIndex, undefined);
	return identify(parameters, itemIndex, json, scope).identity;
}

/** Of an address with a password in it, only the masked form may be shown. */
export function shownCanonical({ key, canonical }: WorkIdentity): string {
	return /^https?:\/\/[^/]*@/i.test(canonical) ? key : canonical;
}

function identify(
	parameters: Parameters,
	itemIndex: number,
	json: IDataObject,
	scope: { kind: string; version: string },
): { identity: WorkIdentity; parts: KeyPart[]; keyFields: readonly string[] } {
	const reading = readReading(parameters, itemIndex);
	switch (parameters.read<string>('identity', itemIndex, 'fields')) {
		case 'fields': {
			const names = parameters.fieldNames('keyFields', itemIndex);
			const parts = names.map((name) => {
				const { found, value } = readField(json, name);
				if (!found) refuseNoName(parameters, 'keyFields', 'Key Fields', name);
				return { name, value };
			});
			return { identity: identifyByKey(scope, parts, reading), parts, keyFields: names };
		}
		case 'expression': {
			refuseEmptyPart(parameters, itemIndex);
			const parts = [{ name: 'Key', value: parameters.read<unknown>('key', itemIndex, undefined) }];
			const glued = !allowsVolatileKey(parameters, itemIndex);
			return { identity: identifyByKey(scope, parts, { ...reading, glued }), parts, keyFields: [] };
		}
		case 'url': {
			const name = parameters.text('urlField', itemIndex, 'url').trim();
			const { value } = readField(json, name);
			const identity = identifyByUrl(scope, value, {
				keepFragment: parameters.optionFlag(
					'keepFragment',
					'Keep the Part After #',
					itemIndex,
					false,
				),
				trackingParameters: optionList(parameters, 'trackingParameters', itemIndex),
			});
			return { identity, parts: [{ name, value }], keyFields: [] };
		}
		case 'content': {
			const names = parameters.fieldNames('contentFields', itemIndex);
			const content =
				names.length === 0
					? json
					: Object.fromEntries(names.map((name) => [name, requiredField(json, name)]));
			const volatileFields = optionList(parameters, 'volatileFields', itemIndex);
			return {
				identity: identifyByContent(scope, content, { ...reading, volatileFields }),
				parts: [],
				keyFields: [],
			};
		}
		default:
			throw unknownChoice('Identify By', parameters.raw('identity'));
	}
}

/** `inv-` would be one key for every item without an order. */
function refuseEmptyPart(parameters: Parameters, itemIndex: number): void {
	const part = parameters.emptyPart('key', itemIndex);
	if (part === null) return;
	throw new Refusal(
		'missing',
		`Key: ${part} gives nothing in this item, so the key would be incomplete. Check the field it names, or choose one that every item has.`,
	);
}

/** A value, or code, where names belong: what the editor makes of a field that is dragged into the box. */
function refuseNoName(parameters: Parameters, parameter: string, label: string, name: string) {
	const isExpression = parameters.isExpression(parameter);
	if (!isExpression && !isCode(name)) return;
	const shown = `"${name.slice(0, 80)}"`;
	const problem = isExpression
		? `its expression gives ${shown}, and this item has no field of that name`
		: `${shown} is none`;
	throw new Refusal(
		'missing',
		`${label} takes names of fields, such as order_id or customer.id: ${problem}. Enter the names as fixed text, separated by commas, or choose "Key Expression" under "Identify By".`,
	);
}

function requiredField(json: IDataObject, name: string): unknown {
	const { found, value } = readField(json, name);
	if (!found) {
		throw new Refusal(
			'missing',
			`The field "${name}" is missing in this item. Check its spelling in "Fields That Count", or leave that empty to use the whole item.`,
		);
	}
	return value;
}

/** A key that is built from the execution, the time or chance is new on every retry (case 22). Read from the raw text. */
function volatileParameters(parameters: Parameters): string | null {
	const names: Array<[string, string]> = [
		['kind', 'Kind'],
		['keyFields', 'Key Fields'],
		['key', 'Key'],
		['contentFields', 'Fields That Count'],
		['urlField', 'URL Field'],
		['version', 'Version'],
	];
	const identity = parameters.raw('identity') ?? 'fields';
	const unused: Record<string, string> = {
		keyFields: 'fields',
		key: 'expression',
		contentFields: 'content',
		urlField: 'url',
	};
	for (const [name, label] of names) {
		if (unused[name] !== undefined && unused[name] !== identity) continue;
		const raw = parameters.raw(name);
		const sources = typeof raw === 'string' ? volatileSources(raw) : [];
		if (sources.length > 0) {
			return `${label} uses ${sources.join(' and ')}, which differs each time the same work arrives: a duplicate would not be recognised. Use a value of the business object (an order number), or switch on the option "Allow a Key That Changes".`;
		}
	}
	return null;
}

function readFieldName(parameters: Parameters, itemIndex: number): string {
	const field = parameters.option<string>('field', itemIndex, DEFAULT_FIELD);
	const problem = fieldNameProblem(field);
	if (problem !== null) throw new Refusal('bad_field_name', problem);
	return field;
}

/** The open claim that the item came with. Refuses a value of the item's own there, which would be lost. */
function claimInField(json: IDataObject, field: string): OpenField | undefined {
	if (!Object.hasOwn(json, field)) return undefined;
	// an answer of ours that holds no claim may be replaced: so that Busy can wait and come back here
	if (answerStatus(json[field]) !== null) {
		const [open, another] = openClaimsIn(json[field]);
		if (another !== undefined) throw otherClaim(field, another);
		return open;
	}
	throw new Refusal(
		'field_clash',
		`The item already has a field "${field}", which would be lost. Choose another name in the option "Field Name".`,
	);
}

function otherClaim(field: string, open: OpenField): Refusal {
	return new Refusal(
		'field_clash',
		`The item already holds an open claim in "${field}" (${open.kind ?? 'work'} ${open.key ?? open.workId}), whose token would be lost. Choose another name in the option "Field Name".`,
	);
}

function readOnLapse(parameters: Parameters, itemIndex: number): OnLapse {
	const onLapse = parameters.read<OnLapse>('onLapse', itemIndex, 'run_again');
	if (!LAPSES.includes(onLapse)) throw unknownChoice('If a Run Dies Halfway', onLapse);
	return onLapse;
}

function readWindow(parameters: Parameters, itemIndex: number, apart: boolean): ClaimWindow {
	const mode = parameters.read<ClaimWindow['mode']>('window', itemIndex, 'forever');
	if (mode === 'until_success') {
		return { mode, kind: readWindowKind(parameters, itemIndex, apart) };
	}
	if (!WINDOWS.includes(mode)) throw unknownChoice('Remember', mode);
	if (mode !== 'duration') return { mode };
	const unit = parameters.read<string>('windowUnit', itemIndex, 'days');
	const unitSeconds = Object.hasOwn(SECONDS, unit) ? SECONDS[unit] : undefined;
	if (unitSeconds === undefined) throw unknownChoice('Unit', unit);
	const amount = parameters.read<unknown>('windowAmount', itemIndex, 7);
	const isNumber = typeof amount === 'number' || typeof amount === 'string';
	const seconds = isNumber ? Number(amount) * unitSeconds : NaN;
	if (!(seconds > 0 && seconds <= 3.2e9)) {
		const shown = (JSON.stringify(amount) ?? 'undefined').slice(0, 50);
		throw new Refusal(
			'bad_parameter',
			`Time is ${shown}: it must be a number above 0 and at most 100 years. To forget at once, use "Only While It Runs".`,
		);
	}
	return { mode, seconds };
}

/** The decision that the work carries out: named in the options, else the one on the item. */
function readDecision(
	parameters: Parameters,
	itemIndex: number,
	json: IDataObject,
): string | undefined {
	const given = parameters.optionText('decision', itemIndex).trim();
	if (given === '') return appliedDecision(json) ?? undefined;
	if (/^[0-9a-f]{64}$/.test(given)) return given;
	throw new Refusal(
		'bad_parameter',
		'Decision Carried Out must be a decision key: the 64 hex digits that Cache LLM Decision puts on the item under decision.decisionKey. Leave it out to take the one on the item.',
	);
}

/** Text, also where an expression gives a number. */
function readRunId(parameters: Parameters, itemIndex: number): string | undefined {
	const given = parameters.option<unknown>('runId', itemIndex, '');
	return String(given) === '' ? undefined : String(given);
}

/** Read as the kinds of claims are, so that it equals them. */
function readWindowKind(parameters: Parameters, itemIndex: number, apart: boolean): string {
	const kind = inSpace(parameters.text('windowKind', itemIndex).trim(), apart);
	let problem: string;
	try {
		return identifyByKey({ kind }, [{ name: 'windowKind', value: 'any' }]).kind;
	} catch (error) {
		problem = parameterProblem(error);
	}
	throw new Refusal(
		'bad_parameter',
		`"Kind That Ends It": ${problem} It is the kind of work whose next success lets this work be done again.`,
	);
}

function inRange(given: unknown, range: NumberRange): number {
	let problem: string;
	try {
		return checkedNumber(given, range);
	} catch (error) {
		problem = parameterProblem(error);
	}
	throw new Refusal('bad_parameter', problem);
}

function codeOf(error: unknown): string {
	const code = (error as { code?: unknown }).code;
	return typeof code === 'string' ? code : 'unreadable_parameter';
}
