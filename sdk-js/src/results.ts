/** What operations give back. */

import type { CouchbaseError } from './errors.js'

/** Position of a mutation in the history of its vBucket. */
export interface MutationToken {
  /** Number of the vBucket. */
  partitionId: number
  /** History the number belongs to; a fail-over starts a new one. */
  partitionUuid: bigint
  sequenceNumber: bigint
  bucketName: string
  /** The token with its numbers as text, under the names that all SDKs use. */
  toJSON?(): object
}

/** A document. */
export interface GetResult<T = any> {
  content: T
  /** Version of the document: pass it on to change exactly this version. */
  cas: bigint
  /** When it expires, in Unix seconds; 0 is never. Only if `withExpiry` was asked for. */
  expiryTime?: number
}

/** A copy of a document. */
export interface GetReplicaResult<T = any> extends GetResult<T> {
  /** Whether it is a replica, which may lag behind, and not the active copy. */
  isReplica: boolean
}

/** Whether there is a document. */
export interface ExistsResult {
  exists: boolean
  cas: bigint | undefined
}

/** Outcome of a change. */
export interface MutationResult {
  cas: bigint
  /** Where in the bucket's history the change is. */
  token: MutationToken | undefined
}

/** A counter after the change. */
export interface CounterResult extends MutationResult {
  /** The value; beyond 2^53 only `exactValue` is exact. */
  value: number
  exactValue: bigint
}

/** Parts of a document, in the order of the specs. */
export interface LookupInResult {
  content: LookupInResultEntry[]
  cas: bigint
}

/** Parts of a copy of a document. */
export interface LookupInReplicaResult extends LookupInResult {
  /** Whether it is a replica, which may lag behind, and not the active copy. */
  isReplica: boolean
}

/** What one spec found, or why it found nothing. */
export interface LookupInResultEntry {
  error: CouchbaseError | undefined
  value: any
}

/** What one spec of `mutateIn` gave; counters have a value. */
export interface MutateInResultEntry {
  value: any
}

/** Outcome of a change of parts, in the order of the specs; counters have a value. */
export interface MutateInResult extends MutationResult {
  content: (MutateInResultEntry | undefined)[]
}

/** Documents by key, for an operation on several. */
export type MultiDocuments<T = any> = ReadonlyMap<string, T> | Readonly<Record<string, T>>

/** What became of an operation on several documents, by key, in the order that they were given in. */
export interface MultiResult<R> {
  /** The results of the documents that had no error. */
  results: Map<string, R>
  /** The errors of the others. */
  errors: Map<string, CouchbaseError>
  /** Whether there was no error. */
  allOk: boolean
}
