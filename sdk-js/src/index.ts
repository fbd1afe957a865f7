/**
 * Client for nacre and other servers that speak Couchbase's wire protocols.
 *
 *     await using cluster = await connect('couchbase://127.0.0.1', 'Administrator', 'password')
 *     const collection = cluster.bucket('default').defaultCollection()
 *     await collection.upsert('greeting', { text: 'hello' })
 */

export {
  type Authenticator,
  CertificateAuthenticator,
  type ICertificateAuthenticator,
  type IPasswordAuthenticator,
  type Network,
  PasswordAuthenticator,
  type SecurityConfig,
} from './access.js'
export {
  type AnalyticsMetaData,
  type AnalyticsMetrics,
  type AnalyticsQuery,
  type AnalyticsQueryOptions,
  type AnalyticsResult,
  AnalyticsScanConsistency,
  AnalyticsStatus,
  type AnalyticsWarning,
} from './analytics.js'
export type {
  AnalyticsDataset,
  AnalyticsIndex,
  AnalyticsIndexManager,
  ConnectAnalyticsLinkOptions,
  CreateAnalyticsDatasetOptions,
  CreateAnalyticsDataverseOptions,
  CreateAnalyticsIndexOptions,
  CreateAnalyticsLinkOptions,
  DisconnectAnalyticsLinkOptions,
  DropAnalyticsDatasetOptions,
  DropAnalyticsDataverseOptions,
  DropAnalyticsIndexOptions,
  DropAnalyticsLinkOptions,
  GetAllAnalyticsDatasetsOptions,
  GetAllAnalyticsIndexesOptions,
  GetAllAnalyticsLinksOptions,
  GetPendingAnalyticsMutationsOptions,
  ReplaceAnalyticsLinkOptions,
} from './analytics-index-manager.js'
export * from './analytics-links.js'
export { BinaryCollection } from './binary-collection.js'
export { Bucket, Scope } from './bucket.js'
export { type Change, Changes, type ChangesOptions } from './changes.js'
export type { BucketManager, CollectionManager } from './bucket-manager.js'
export { Cluster, connect, type ConnectOptions } from './cluster.js'
export { Collection, TypedCollection } from './collection.js'
export { CouchbaseList, CouchbaseMap, CouchbaseQueue, CouchbaseSet } from './data-structures.js'
export type { OperationOptions } from './deadline.js'
export {
  ClusterState,
  type DiagnosticsEndpoint,
  type DiagnosticsOptions,
  EndpointState,
  type PingEndpoint,
  type PingOptions,
  PingState,
  ServiceType,
  type WaitUntilReadyOptions,
} from './diagnostics.js'
export * from './errors.js'
export type {
  ErrorContext as AnalyticsErrorContext,
  ErrorContext as HttpErrorContext,
  ErrorContext as KeyValueErrorContext,
  ErrorContext as QueryErrorContext,
  ErrorContext as SearchErrorContext,
  ErrorContext as ViewErrorContext,
} from './errors.js'
export * from './eventing.js'
export type { EventingFunctionManager, ScopeEventingFunctionManager } from './eventing-manager.js'
export { applyChanges, Live, type LiveOptions, type LiveUpdate, type RowChange } from './live.js'
export { CouchbaseLogger, createConsoleLogger, type Logger, LogLevel, NoOpLogger, parseLogLevel } from './logger.js'
export {
  type BucketSettings,
  type BucketSettings as IBucketSettings,
  type BucketSettings as ICreateBucketSettings,
  BucketType,
  type CollectionSettings,
  type CollectionSettings as CreateCollectionSettings,
  type CollectionSettings as UpdateCollectionSettings,
  type CollectionSpec,
  type CollectionSpec as ICollectionSpec,
  CompressionMode,
  ConflictResolutionType,
  type CreateBucketSettings,
  EvictionPolicy,
  type ScopeSpec,
  StorageBackend,
} from './management.js'
export {
  type CasInput,
  type CounterOptions,
  DurabilityLevel,
  DurabilityPersistTo,
  DurabilityReplicateTo,
  type DurableOptions,
  type GetOptions,
  type InsertOptions,
  type LookupInOptions,
  type LookupInReplicaOptions,
  type MutateInOptions,
  type ReadOptions,
  ReadPreference,
  type RemoveOptions,
  type ReplaceOptions,
  type ReplicaOptions,
  StoreSemantics,
  type TimeoutConfig,
  type UpsertOptions,
} from './options.js'
export type { MetricsConfig, OrphanReporterConfig, TracingConfig } from './observability.js'
export { MutationState } from './mutation-state.js'
export {
  type Query,
  type QueryMetaData,
  type QueryMetrics,
  type QueryOptions,
  QueryProfileMode,
  type QueryResult,
  QueryScanConsistency,
  QueryStatus,
  type QueryWarning,
} from './query.js'
export type {
  CollectionQueryIndexManager,
  CreatePrimaryQueryIndexOptions,
  CreateQueryIndexOptions,
  DropPrimaryQueryIndexOptions,
  DropQueryIndexOptions,
  KeyspaceOptions,
  QueryIndex,
  QueryIndexManager,
  WatchQueryIndexOptions,
} from './query-indexes.js'
export type { DiagnosticsResult, JsonDiagnosticsReport, JsonPingReport, PingResult, Report } from './reports.js'
export type * from './results.js'
export {
  PrefixScan,
  RangeScan,
  SamplingScan,
  type ScanOptions,
  type ScanResult,
  ScanTerm,
  type ScanType,
} from './scan-types.js'
export {
  DateSearchFacet,
  FieldSearchSort,
  GeoDistanceSearchSort,
  HighlightStyle,
  IdSearchSort,
  NumericSearchFacet,
  ScoreSearchSort,
  type Search,
  SearchFacet,
  type SearchMetaData,
  type SearchQueryOptions,
  SearchRequest,
  type SearchResult,
  type SearchRow,
  SearchScanConsistency,
  SearchSort,
  TermSearchFacet,
  VectorQuery,
  VectorQueryCombination,
  VectorSearch,
  type VectorSearchOptions,
} from './search.js'
export { type SchemaIssue, type SchemaResult, SchemaTranscoder, type StandardSchema } from './schemas.js'
export type { ScopeSearchIndexManager, SearchIndexManager } from './search-index-manager.js'
export { type ISearchIndex, SearchIndex } from './search-indexes.js'
export {
  BooleanFieldSearchQuery,
  BooleanSearchQuery,
  ConjunctionSearchQuery,
  DateRangeSearchQuery,
  DisjunctionSearchQuery,
  DocIdSearchQuery,
  type GeoPoint,
  GeoBoundingBoxSearchQuery,
  GeoDistanceSearchQuery,
  GeoPolygonSearchQuery,
  MatchAllSearchQuery,
  MatchNoneSearchQuery,
  MatchOperator,
  MatchPhraseSearchQuery,
  MatchSearchQuery,
  NumericRangeSearchQuery,
  PhraseSearchQuery,
  PrefixSearchQuery,
  QueryStringSearchQuery,
  RegexpSearchQuery,
  SearchQuery,
  TermRangeSearchQuery,
  TermSearchQuery,
  WildcardSearchQuery,
} from './search-queries.js'
export {
  type Listener,
  StreamablePromise,
  StreamablePromise as StreamableReplicasPromise,
  StreamablePromise as StreamableRowPromise,
  StreamablePromise as StreamableScanPromise,
} from './streamable.js'
export {
  type AddSpecOptions,
  type ArraySpecOptions,
  LookupInMacro,
  LookupInSpec,
  MutateInMacro,
  MutateInSpec,
  type SpecOptions,
} from './subdocument.js'
export {
  getOTelMeter,
  getOTelTracer,
  MeterError,
  type OTelContext,
  type OTelHistogram,
  type OTelMeter,
  type OTelMeterProvider,
  type OTelSpan,
  type OTelTracer,
  type OTelTracerProvider,
  OTelValueRecorder,
  OTelWrapperMeter,
  OTelWrapperSpan,
  OTelWrapperTracer,
} from './otel.js'
export type { Meter, RequestSpan, RequestTracer, ValueRecorder } from './tracing.js'
export {
  TransactionGetMultiMode,
  TransactionGetMultiMode as TransactionGetMultiReplicasFromPreferredServerGroupMode,
  TransactionGetMultiResult,
  TransactionGetMultiResult as TransactionGetMultiReplicasFromPreferredServerGroupResult,
  type TransactionGetMultiResultEntry,
  type TransactionGetMultiResultEntry as TransactionGetMultiReplicasFromPreferredServerGroupResultEntry,
  TransactionGetMultiSpec,
  TransactionGetMultiSpec as TransactionGetMultiReplicasFromPreferredServerGroupSpec,
} from './transaction-multi.js'
export {
  type DocumentId,
  type TransactionAttemptContext,
  type TransactionGetMultiOptions,
  type TransactionGetMultiReplicasFromPreferredServerGroupOptions,
  type TransactionGetOptions,
  type TransactionGetReplicaFromPreferredServerGroupOptions,
  type TransactionGetResult,
  type TransactionInsertOptions,
  type TransactionKeyspace,
  type TransactionOptions,
  type TransactionQueryOptions,
  type TransactionQueryResult,
  type TransactionReplaceOptions,
  type TransactionResult,
  Transactions,
  type TransactionsCleanupConfig,
  type TransactionsConfig,
  type TransactionsQueryConfig,
} from './transactions.js'
export {
  DefaultTranscoder,
  RawBinaryTranscoder,
  RawJsonTranscoder,
  RawStringTranscoder,
  type Transcoder,
} from './transcoders.js'
export type { ViewIndexManager } from './view-index-manager.js'
export {
  DesignDocument,
  type DesignDocumentInit,
  DesignDocumentNamespace,
  DesignDocumentView,
  ViewErrorMode,
  type ViewMetaData,
  ViewOrdering,
  type ViewQuery,
  type ViewQueryOptions,
  type ViewResult,
  type ViewRow,
  ViewScanConsistency,
} from './views.js'
export type { UserManager } from './user-manager.js'
export {
  Group,
  type IGroup,
  type IUser,
  type Origin,
  Role,
  type RoleAndDescription,
  type RoleAndOrigin,
  User,
  type UserAndMetadata,
  type UserOptions,
} from './users.js'
