/**
 * What counts as the same work. Pure: nothing here reads a clock, a network or a database.
 */
export type { KeyPart } from './business-key';
export { identifyByKey } from './business-key';
export { canonicalJson } from './canonical';
export type { ContentOptions } from './content';
export { identifyByContent } from './content';
export { isCode, parseFieldNames, readField } from './field-path';
export { keyHints } from './key-hints';
export { isOwnField } from './own-field';
export type { ReadingOptions } from './reading';
export type { RefusalCode } from './refusal';
export { IdentityRefusal } from './refusal';
export type { Scope, WorkIdentity } from './scope';
export { workIdOf } from './scope';
export { refuseEmptyText, refuseUnresolved, unresolvedIn } from './text';
export type { UrlOptions } from './url';
export { DEFAULT_TRACKING_PARAMETERS, identifyByUrl } from './url';
export { volatileSources } from './volatile-expressions';
export { DEFAULT_VOLATILE_FIELDS } from './volatile-fields';
