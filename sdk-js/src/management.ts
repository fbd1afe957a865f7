/** Buckets, scopes and collections: create, drop, list. */

import type { DurabilityLevel } from './options.js'

/** Where a bucket keeps its documents. */
export const BucketType = {
  /** In memory and on disk. */
  Couchbase: 'membase',
  /** A cache of an older protocol, which servers do not have any more. */
  Memcached: 'memcached',
  /** In memory only. */
  Ephemeral: 'ephemeral',
} as const
/** Where a bucket keeps its documents. */
export type BucketType = (typeof BucketType)[keyof typeof BucketType]

/** Which of two versions from different clusters counts. */
export const ConflictResolutionType = {
  /** The later one. */
  Timestamp: 'lww',
  /** The one that was changed more often. */
  SequenceNumber: 'seqno',
  /** As a plugin decides. */
  Custom: 'custom',
} as const
/** Which of two versions from different clusters counts. */
export type ConflictResolutionType = (typeof ConflictResolutionType)[keyof typeof ConflictResolutionType]

/** How a bucket is stored. */
export const StorageBackend = {
  Couchstore: 'couchstore',
  /** The one that can keep superseded versions. */
  Magma: 'magma',
} as const
/** How a bucket is stored. */
export type StorageBackend = (typeof StorageBackend)[keyof typeof StorageBackend]

/** What leaves memory when it grows short. */
export const EvictionPolicy = {
  FullEviction: 'fullEviction',
  ValueOnly: 'valueOnly',
  NotRecentlyUsed: 'nruEviction',
  NoEviction: 'noEviction',
} as const
/** What leaves memory when it grows short. */
export type EvictionPolicy = (typeof EvictionPolicy)[keyof typeof EvictionPolicy]

/** Whether values are sent compressed. */
export const CompressionMode = {
  Off: 'off',
  Passive: 'passive',
  Active: 'active',
} as const
/** Whether values are sent compressed. */
export type CompressionMode = (typeof CompressionMode)[keyof typeof CompressionMode]

/** What a bucket is like; what is absent is left to the server. */
export interface BucketSettings {
  name: string
  /** Memory, in MiB; 100 for a new bucket if not given. */
  ramQuotaMB?: number
  bucketType?: BucketType
  numReplicas?: number
  flushEnabled?: boolean
  /** Whether indexes of views have replicas. */
  replicaIndexes?: boolean
  storageBackend?: StorageBackend
  evictionPolicy?: EvictionPolicy
  /** Longest life of its documents, in seconds; 0 is no limit. */
  maxExpiry?: number
  compressionMode?: CompressionMode
  /** Durability that every write has at least. */
  minimumDurabilityLevel?: DurabilityLevel
  /** Whether new collections keep superseded versions. */
  historyRetentionCollectionDefault?: boolean
  historyRetentionBytes?: number
  /** How long superseded versions are kept, in seconds. */
  historyRetentionDuration?: number
  numVBuckets?: number
  conflictResolutionType?: ConflictResolutionType
}

/** What a new bucket is like. */
export type CreateBucketSettings = BucketSettings

/** A collection of a scope. */
export interface CollectionSpec {
  name: string
  scopeName: string
  /** Longest life of its documents, in seconds; 0 if the collection sets no limit. */
  maxExpiry: number
  /** Whether it keeps superseded versions, where buckets can. */
  history?: boolean
}

/** What a collection is like. */
export interface CollectionSettings {
  /** Longest life of its documents, in seconds; 0 sets no limit, -1 overrides that of the bucket with none. */
  maxExpiry?: number
  /** Whether it keeps superseded versions. */
  history?: boolean
}

/** A scope with its collections. */
export interface ScopeSpec {
  name: string
  collections: CollectionSpec[]
}
