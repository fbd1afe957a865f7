/** Options of operations. Timeouts are in milliseconds, expiries in seconds. */

import type { OperationOptions } from './deadline.js'
import { InvalidArgumentError, InvalidDurabilityLevel } from './errors.js'
import type { Transcoder } from './transcoders.js'

/** Number of nodes that must have a mutation on disk. */
export enum DurabilityPersistTo {
  None = 0,
  ActiveOnly = 1,
  One = 1,
  Two = 2,
  Three = 3,
  Four = 4,
}

/** Number of replicas that must have a mutation in memory. */
export enum DurabilityReplicateTo {
  None = 0,
  One = 1,
  Two = 2,
  Three = 3,
}

/** Durability that a mutation must reach before the server responds. */
export enum DurabilityLevel {
  /** The active node has the mutation in memory. */
  None = 0,
  /** A majority of the copies have it in memory. */
  Majority = 1,
  /** A majority of the copies have it in memory, and the active copy has it on disk. */
  MajorityAndPersistOnMaster = 2,
  /** A majority of the copies have it on disk. */
  PersistToMajority = 3,
}

/** The copies of a document that may be read. */
export const ReadPreference = {
  /** All copies. */
  NoPreference: 'no_preference',
  /** The copies in the server group `preferredServerGroup`, an option of `connect`. */
  SelectedServerGroup: 'selected_server_group',
} as const
/** The copies of a document that may be read. */
export type ReadPreference = (typeof ReadPreference)[keyof typeof ReadPreference]

/** A CAS as operations accept it: that of a result, its text, or its eight bytes. */
export type CasInput = bigint | string | Buffer

/** Requirements of `mutateIn` for the document itself. */
export enum StoreSemantics {
  /** The document must exist. */
  Replace = 0,
  /** A missing document is created. */
  Upsert = 1,
  /** The document must not exist. */
  Insert = 2,
}

/** Default timeouts of operations, in ms. */
export interface TimeoutConfig {
  /** Operations on documents (2,500). */
  kvTimeout?: number
  /** Durable operations (10,000). */
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
  /** `connect` over all attempts; by default `connectTimeout`. */
  bootstrapTimeout?: number
  /** DNS queries for nodes (5,000). */
  resolveTimeout?: number
}

/** Timeouts with their defaults. */
export type Timeouts = Required<Omit<TimeoutConfig, 'bootstrapTimeout' | 'resolveTimeout'>> & TimeoutConfig

/** Default timeouts. */
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
  /** Durability that the server waits for before it responds. */
  durabilityLevel?: DurabilityLevel
  /** Number of nodes that must have the mutation on disk before the operation ends. */
  durabilityPersistTo?: DurabilityPersistTo
  /** Number of replicas that must have the mutation in memory. */
  durabilityReplicateTo?: DurabilityReplicateTo
}

/** Options of `get`. */
export interface GetOptions extends OperationOptions {
  /** Paths to read instead of the whole document. Missing paths are omitted. */
  project?: string[]
  /** True if the result contains the expiry of the document. */
  withExpiry?: boolean
  transcoder?: Transcoder
}

/** Options of operations that read a whole document. */
export interface ReadOptions extends OperationOptions {
  transcoder?: Transcoder
}

/** Options of `insert`. */
export interface InsertOptions extends DurableOptions {
  /** Expiry in seconds from now, or as a date; 0 for never. */
  expiry?: number | Date
  transcoder?: Transcoder
}

/** Options of `upsert`. */
export interface UpsertOptions extends InsertOptions {
  /** True if the document keeps its expiry. */
  preserveExpiry?: boolean
}

/** Options of `replace`. */
export interface ReplaceOptions extends UpsertOptions {
  /** CAS that the document must have. */
  cas?: CasInput
}

/** Options of `remove`, `append` and `prepend`. */
export interface RemoveOptions extends DurableOptions {
  /** CAS that the document must have. */
  cas?: CasInput
}

/** Options of `mutateIn`. */
export interface MutateInOptions extends DurableOptions {
  cas?: CasInput
  expiry?: number | Date
  preserveExpiry?: boolean
  /** Requirement for the document itself. */
  storeSemantics?: StoreSemantics
}

/** Options of `increment` and `decrement`. */
export interface CounterOptions extends DurableOptions {
  /** Initial value of a missing counter. Without it, a missing counter is an error. */
  initial?: number | bigint
  expiry?: number | Date
}

/** Options of `lookupIn`. */
export interface LookupInOptions extends OperationOptions {
  /** True if attributes of a deleted document may be read. */
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
 * Returns an expiry in the format of the protocol: 0 for never, relative up to 30 days, else a Unix time.
 *
 * @throws InvalidArgumentError if it is neither a whole number of seconds from 0 nor a time after 1970, or exceeds
 * 32 bits.
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
  // The server would treat a smaller number as relative.
  if (!(seconds > RELATIVE_SECONDS_MAX)) throw new InvalidArgumentError('an expiry is a time after January 1970')
  return seconds
}

/**
 * Returns a CAS for the wire; 0 means any version.
 *
 * @throws InvalidArgumentError if it is not an unsigned 64-bit number.
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
 * Returns the requested durability level; 0 for none.
 *
 * @throws InvalidDurabilityLevel if the level does not exist.
 * @throws InvalidArgumentError if the options also contain numbers of nodes.
 */
export function checkLevel(options: DurableOptions): number {
  const level = options.durabilityLevel ?? DurabilityLevel.None
  if (!Number.isInteger(level) || level < 0 || level > 3) throw new InvalidDurabilityLevel()
  if (level && (options.durabilityPersistTo || options.durabilityReplicateTo)) {
    throw new InvalidArgumentError('a durability level and numbers of nodes exclude each other')
  }
  return level
}
