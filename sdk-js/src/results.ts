/** Results of operations. */

import type { CouchbaseError } from './errors.js'

/** Position of a mutation in the history of its vBucket. */
export interface MutationToken {
  /** Number of the vBucket. */
  partitionId: number
  /** vBucket UUID: the history of the number. A failover starts a new history. */
  partitionUuid: bigint
  sequenceNumber: bigint
  bucketName: string
  /** Returns the token with its numbers as text, and with the names of all SDKs. */
  toJSON?(): object
}

/** A document. */
export interface GetResult<T = any> {
  content: T
  /** CAS of the document. Pass it on to change exactly this version. */
  cas: bigint
  /** Expiry in Unix seconds; 0 for never. Present only with `withExpiry`. */
  expiryTime?: number
}

/** A copy of a document. */
export interface GetReplicaResult<T = any> extends GetResult<T> {
  /** True for a replica, which may lag behind; false for the active copy. */
  isReplica: boolean
}

/** Result of `exists`. */
export interface ExistsResult {
  exists: boolean
  cas: bigint | undefined
}

/** Outcome of a change. */
export interface MutationResult {
  cas: bigint
  /** Position of the change in the bucket's history. */
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
  /** True for a replica, which may lag behind; false for the active copy. */
  isReplica: boolean
}

/** Result or error of one spec. */
export interface LookupInResultEntry {
  error: CouchbaseError | undefined
  value: any
}

/** Result of one spec of `mutateIn`. Counters have a value. */
export interface MutateInResultEntry {
  value: any
}

/** Result of `mutateIn`, in the order of the specs. Counters have a value. */
export interface MutateInResult extends MutationResult {
  content: (MutateInResultEntry | undefined)[]
}

/** Documents by key, for an operation on several. */
export type MultiDocuments<T = any> = ReadonlyMap<string, T> | Readonly<Record<string, T>>

/** Results of an operation on several documents, by key, in the order of the arguments. */
export interface MultiResult<R> {
  /** The results of the documents without an error. */
  results: Map<string, R>
  /** The errors of the other documents. */
  errors: Map<string, CouchbaseError>
  /** True if there was no error. */
  allOk: boolean
}
