/** Options of the operations. Durations of time-outs are milliseconds, expiries are seconds. */

import type { OperationOptions } from './deadline.js'
import { InvalidArgumentError } from './errors.js'
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
  /** Queries of views (75,000). */
  viewTimeout?: number
  /** Management (75,000). */
  managementTimeout?: number
  /** Connecting (10,000). */
  connectTimeout?: number
}

/** Time-outs with defaults filled in. */
export type Timeouts = Required<TimeoutConfig>

/** Defaults of the time-outs. */
export const DEFAULT_TIMEOUTS: Timeouts = {
  kvTimeout: 2_500,
  kvDurableTimeout: 10_000,
  viewTimeout: 75_000,
  managementTimeout: 75_000,
  connectTimeout: 10_000,
}

/** Options of operations that change documents. */
export interface DurableOptions extends OperationOptions {
  /** Nodes that must have the mutation on disk before the operation is over. */
  durabilityPersistTo?: DurabilityPersistTo
  /** Replicas that must have it in memory. */
  durabilityReplicateTo?: DurabilityReplicateTo
}

/** Options of `get`. */
export interface GetOptions extends OperationOptions {
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
  /** Seconds until the document expires; 0 is never. */
  expiry?: number
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
  cas?: bigint
}

/** Options of `remove`, `append` and `prepend`. */
export interface RemoveOptions extends DurableOptions {
  /** Only this version is changed. */
  cas?: bigint
}

/** Options of `mutateIn`. */
export interface MutateInOptions extends DurableOptions {
  cas?: bigint
  expiry?: number
  preserveExpiry?: boolean
  /** Whether the document may, or must not, exist. */
  storeSemantics?: StoreSemantics
}

/** Options of `increment` and `decrement`. */
export interface CounterOptions extends DurableOptions {
  /** Value of a counter that is created; without it a missing counter is an error. */
  initial?: number | bigint
  expiry?: number
}

const RELATIVE_SECONDS_MAX = 30 * 86_400

/**
 * Expiry as the protocol wants it: 0 never, up to 30 days relative, beyond as Unix time.
 *
 * @throws InvalidArgumentError it is no whole number of seconds from 0, or beyond what 32 bits can say.
 */
export function wireExpiry(expiry = 0, nowMs: number = Date.now()): number {
  if (!Number.isInteger(expiry) || expiry < 0) throw new InvalidArgumentError('an expiry is a whole number of seconds')
  const seconds = expiry > RELATIVE_SECONDS_MAX ? expiry + Math.floor(nowMs / 1000) : expiry
  if (seconds > 0xffffffff) throw new InvalidArgumentError('the expiry is too far away')
  return seconds
}

/**
 * A CAS as it goes on the wire; 0 is any version.
 *
 * @throws InvalidArgumentError it is no unsigned 64-bit number.
 */
export function checkCas(cas: bigint | undefined): bigint {
  if (cas === undefined) return 0n
  if (typeof cas !== 'bigint' || cas < 0n || cas >= 1n << 64n) {
    throw new InvalidArgumentError('a CAS is a bigint that a result carried')
  }
  return cas
}
