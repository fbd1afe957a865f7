/** Options of the operations. Durations of time-outs are milliseconds, expiries are seconds. */

import type { OperationOptions } from './deadline.js'
import { InvalidArgumentError, InvalidDurabilityLevel } from './errors.js'
import type { Transcoder } from './transcoders.js'

/** On how many nodes a mutation must be on disk. */
export enum DurabilityPersistTo {
  None = 0,
  ActiveOnly = 1,
  One = 1,
  Two = 2,
  Three = 3,
  Four = 4,
}

/** On how many replicas a mutation must be in memory. */
export enum DurabilityReplicateTo {
  None = 0,
  One = 1,
  Two = 2,
  Three = 3,
}

/** How many nodes a mutation must have reached before the server answers. */
export enum DurabilityLevel {
  /** The active node has it in memory. */
  None = 0,
  /** Most nodes with a copy have it in memory. */
  Majority = 1,
  /** The same, and the active node has it on disk. */
  MajorityAndPersistOnMaster = 2,
  /** Most nodes with a copy have it on disk. */
  PersistToMajority = 3,
}

/** Which copies of a document are read. */
export const ReadPreference = {
  /** All of them. */
  NoPreference: 'no_preference',
  /** Those of the group that `connect` was given as `preferredServerGroup`. */
  SelectedServerGroup: 'selected_server_group',
} as const
/** Which copies of a document are read. */
export type ReadPreference = (typeof ReadPreference)[keyof typeof ReadPreference]

/** A version of a document as operations take it: the CAS of a result, its text, or its eight bytes. */
export type CasInput = bigint | string | Buffer

/** What `mutateIn` does with the document itself. */
export enum StoreSemantics {
  /** It must exist. */
  Replace = 0,
  /** It is created when missing. */
  Upsert = 1,
  /** It must not exist. */
  Insert = 2,
}

/** How long operations may take when they do not say so themselves, in ms. */
export interface TimeoutConfig {
  /** Operations on documents (2,500). */
  kvTimeout?: number
  /** Operations that wait for durability (10,000). */
  kvDurableTimeout?: number
  /** Scans of a collection (75,000). */
  kvScanTimeout?: number
  /** Queries of views (75,000). */
  viewTimeout?: number
  /** Statements of SQL++ (75,000). */
  queryTimeout?: number
  /** Statements of the analytics service (75,000). */
  analyticsTimeout?: number
  /** Searches (75,000). */
  searchTimeout?: number
  /** Management of functions (75,000). */
  eventingTimeout?: number
  /** Management (75,000). */
  managementTimeout?: number
  /** Connecting (10,000). */
  connectTimeout?: number
  /** Connecting, from the first attempt to the last; `connectTimeout` if not given. */
  bootstrapTimeout?: number
  /** Asking DNS for the nodes of a service (5,000). */
  resolveTimeout?: number
}

/** Time-outs with defaults filled in. */
export type Timeouts = Required<Omit<TimeoutConfig, 'bootstrapTimeout' | 'resolveTimeout'>> & TimeoutConfig

/** Defaults of the time-outs. */
export const DEFAULT_TIMEOUTS: Timeouts = {
  kvTimeout: 2_500,
  kvDurableTimeout: 10_000,
  kvScanTimeout: 75_000,
  viewTimeout: 75_000,
  queryTimeout: 75_000,
  analyticsTimeout: 75_000,
  searchTimeout: 75_000,
  eventingTimeout: 75_000,
  managementTimeout: 75_000,
  connectTimeout: 10_000,
}

/** Options of operations that change documents. */
export interface DurableOptions extends OperationOptions {
  /** What the server waits for before it answers. */
  durabilityLevel?: DurabilityLevel
  /** Nodes that must have the mutation on disk before the operation is over. */
  durabilityPersistTo?: DurabilityPersistTo
  /** Replicas that must have it in memory. */
  durabilityReplicateTo?: DurabilityReplicateTo
}

/** Options of `get`. */
export interface GetOptions extends OperationOptions {
  /** Paths to read instead of the whole document; what the document lacks is left out. */
  project?: string[]
  /** The result says when the document expires. */
  withExpiry?: boolean
  transcoder?: Transcoder
}

/** Options of operations that read a whole document. */
export interface ReadOptions extends OperationOptions {
  transcoder?: Transcoder
}

/** Options of `insert`. */
export interface InsertOptions extends DurableOptions {
  /** Seconds until the document expires, or when it does; 0 is never. */
  expiry?: number | Date
  transcoder?: Transcoder
}

/** Options of `upsert`. */
export interface UpsertOptions extends InsertOptions {
  /** The document keeps the expiry that it has. */
  preserveExpiry?: boolean
}

/** Options of `replace`. */
export interface ReplaceOptions extends UpsertOptions {
  /** Only this version is replaced. */
  cas?: CasInput
}

/** Options of `remove`, `append` and `prepend`. */
export interface RemoveOptions extends DurableOptions {
  /** Only this version is changed. */
  cas?: CasInput
}

/** Options of `mutateIn`. */
export interface MutateInOptions extends DurableOptions {
  cas?: CasInput
  expiry?: number | Date
  preserveExpiry?: boolean
  /** Whether the document may, or must not, exist. */
  storeSemantics?: StoreSemantics
}

/** Options of `increment` and `decrement`. */
export interface CounterOptions extends DurableOptions {
  /** Value of a counter that is created; without it a missing counter is an error. */
  initial?: number | bigint
  expiry?: number | Date
}

/** Options of `lookupIn`. */
export interface LookupInOptions extends OperationOptions {
  /** Attributes of a deleted document are read too. */
  accessDeleted?: boolean
}

/** Options of `getAnyReplica` and `getAllReplicas`. */
export interface ReplicaOptions extends ReadOptions {
  readPreference?: ReadPreference
}

/** Options of `lookupInAnyReplica` and `lookupInAllReplicas`. */
export interface LookupInReplicaOptions extends OperationOptions {
  readPreference?: ReadPreference
}

const RELATIVE_SECONDS_MAX = 30 * 86_400

/**
 * Expiry as the protocol wants it: 0 is never, up to 30 days are relative, all else is Unix time.
 *
 * @throws InvalidArgumentError it is neither a whole number of seconds from 0 nor a time after 1970, or beyond what
 *   32 bits can say.
 */
export function wireExpiry(expiry: number | Date = 0, nowMs: number = Date.now()): number {
  const seconds = expiry instanceof Date ? unixSeconds(expiry) : relativeSeconds(expiry, nowMs)
  if (seconds > 0xffffffff) throw new InvalidArgumentError('the expiry is too far away')
  return seconds
}

function relativeSeconds(expiry: number, nowMs: number): number {
  if (!Number.isInteger(expiry) || expiry < 0) throw new InvalidArgumentError('an expiry is a whole number of seconds')
  return expiry > RELATIVE_SECONDS_MAX ? expiry + Math.floor(nowMs / 1000) : expiry
}

function unixSeconds(expiry: Date): number {
  const seconds = Math.floor(expiry.getTime() / 1000)
  // The server would read smaller numbers as relative.
  if (!(seconds > RELATIVE_SECONDS_MAX)) throw new InvalidArgumentError('an expiry is a time after January 1970')
  return seconds
}

/**
 * A CAS as it goes on the wire; 0 is any version.
 *
 * @throws InvalidArgumentError it is no unsigned 64-bit number.
 */
export function checkCas(cas: CasInput | undefined): bigint {
  if (cas === undefined) return 0n
  if (Buffer.isBuffer(cas) && cas.length === 8) return cas.readBigUInt64LE()
  const number = typeof cas === 'string' && /^\d{1,20}$/.test(cas) ? BigInt(cas) : cas
  if (typeof number !== 'bigint' || number < 0n || number >= 1n << 64n) {
    throw new InvalidArgumentError('a CAS is a bigint that a result carried, or its text')
  }
  return number
}

/**
 * The level that is asked for; 0 is none.
 *
 * @throws InvalidDurabilityLevel there is no such level.
 * @throws InvalidArgumentError the nodes to wait for are given as well.
 */
export function checkLevel(options: DurableOptions): number {
  const level = options.durabilityLevel ?? DurabilityLevel.None
  if (!Number.isInteger(level) || level < 0 || level > 3) throw new InvalidDurabilityLevel()
  if (level && (options.durabilityPersistTo || options.durabilityReplicateTo)) {
    throw new InvalidArgumentError('a durability level and numbers of nodes exclude each other')
  }
  return level
}
