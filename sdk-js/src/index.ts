/**
 * Client for nacre and other servers that speak Couchbase's wire protocols.
 *
 *     await using cluster = await connect('couchbase://127.0.0.1', 'Administrator', 'password')
 *     const collection = cluster.bucket('default').defaultCollection()
 *     await collection.upsert('greeting', { text: 'hello' })
 */

export { BinaryCollection } from './binary-collection.js'
export { Bucket, Scope } from './bucket.js'
export { Cluster, connect, type ConnectOptions } from './cluster.js'
export { Collection } from './collection.js'
export type { OperationOptions } from './deadline.js'
export * from './errors.js'
export {
  BucketManager,
  type BucketSettings,
  BucketType,
  CollectionManager,
  type CollectionSpec,
  type CreateBucketSettings,
  type ScopeSpec,
} from './management.js'
export {
  type CounterOptions,
  DurabilityPersistTo,
  DurabilityReplicateTo,
  type DurableOptions,
  type GetOptions,
  type InsertOptions,
  type MutateInOptions,
  type ReadOptions,
  type RemoveOptions,
  type ReplaceOptions,
  StoreSemantics,
  type TimeoutConfig,
  type UpsertOptions,
} from './options.js'
export type * from './results.js'
export { LookupInSpec, MutateInSpec } from './subdocument.js'
export { DefaultTranscoder, type Transcoder } from './transcoders.js'
export {
  DesignDocument,
  DesignDocumentNamespace,
  type DesignDocumentView,
  ViewErrorMode,
  ViewIndexManager,
  type ViewMetaData,
  ViewOrdering,
  ViewQuery,
  type ViewQueryOptions,
  type ViewResult,
  type ViewRow,
  ViewScanConsistency,
} from './views.js'
