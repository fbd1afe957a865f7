/** Management of buckets, scopes and collections. */

import type { DurabilityLevel } from './options.js'

/** Type of a bucket, which determines where it stores documents. */
export const BucketType = {
  /** In memory and on disk. */
  Couchbase: 'membase',
  /** A cache with an older protocol, which servers no longer support. */
  Memcached: 'memcached',
  /** In memory only. */
  Ephemeral: 'ephemeral',
} as const
/** Type of a bucket, which determines where it stores documents. */
export type BucketType = (typeof BucketType)[keyof typeof BucketType]

/** Conflict resolution between versions from different clusters. */
export const ConflictResolutionType = {
  /** The later version wins. */
  Timestamp: 'lww',
  /** The version with more changes wins. */
  SequenceNumber: 'seqno',
  /** A plugin decides. */
  Custom: 'custom',
} as const
/** Conflict resolution between versions from different clusters. */
export type ConflictResolutionType = (typeof ConflictResolutionType)[keyof typeof ConflictResolutionType]

/** Storage backend of a bucket. */
export const StorageBackend = {
  Couchstore: 'couchstore',
  /** The backend that can keep superseded versions. */
  Magma: 'magma',
} as const
/** Storage backend of a bucket. */
export type StorageBackend = (typeof StorageBackend)[keyof typeof StorageBackend]

/** Data that the server evicts when memory runs short. */
export const EvictionPolicy = {
  FullEviction: 'fullEviction',
  ValueOnly: 'valueOnly',
  NotRecentlyUsed: 'nruEviction',
  NoEviction: 'noEviction',
} as const
/** Data that the server evicts when memory runs short. */
export type EvictionPolicy = (typeof EvictionPolicy)[keyof typeof EvictionPolicy]

/** Compression of values. */
export const CompressionMode = {
  Off: 'off',
  Passive: 'passive',
  Active: 'active',
} as const
/** Compression of values. */
export type CompressionMode = (typeof CompressionMode)[keyof typeof CompressionMode]

/** Settings of a bucket. The server has defaults for absent ones. */
export interface BucketSettings {
  name: string
  /** Memory quota in MiB; 100 by default for a new bucket. */
  ramQuotaMB?: number
  bucketType?: BucketType
  numReplicas?: number
  flushEnabled?: boolean
  /** True if view indexes have replicas. */
  replicaIndexes?: boolean
  storageBackend?: StorageBackend
  evictionPolicy?: EvictionPolicy
  /** Maximum time to live of documents, in seconds; 0 for no limit. */
  maxExpiry?: number
  compressionMode?: CompressionMode
  /** Minimum durability of every write. */
  minimumDurabilityLevel?: DurabilityLevel
  /** True if new collections keep superseded versions. */
  historyRetentionCollectionDefault?: boolean
  historyRetentionBytes?: number
  /** Maximum age of superseded versions, in seconds. */
  historyRetentionDuration?: number
  numVBuckets?: number
  conflictResolutionType?: ConflictResolutionType
}

/** Settings of a new bucket. */
export type CreateBucketSettings = BucketSettings

/** A collection of a scope. */
export interface CollectionSpec {
  name: string
  scopeName: string
  /** Maximum time to live of documents, in seconds; 0 if the collection sets no limit. */
  maxExpiry: number
  /** True if it keeps superseded versions, in buckets that support this. */
  history?: boolean
}

/** Settings of a collection. */
export interface CollectionSettings {
  /**
   * Maximum time to live of documents, in seconds; 0 for the limit of the bucket, -1 for no limit despite that of the
   * bucket.
   */
  maxExpiry?: number
  /** True if the collection keeps superseded versions. */
  history?: boolean
}

/** A scope with its collections. */
export interface ScopeSpec {
  name: string
  collections: CollectionSpec[]
}
