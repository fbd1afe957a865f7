/**
 * The options of each operation, so that no unknown option is silently ignored.
 *
 * Types detect misspelt names in literals only. At run time, every operation checks its options with `checkOptions`.
 * The compiler ensures that the table is complete: a `Names<O>` must contain every option of `O`.
 */

import type { AnalyticsQueryOptions } from './analytics.js'
import type {
  ConnectAnalyticsLinkOptions,
  CreateAnalyticsDatasetOptions,
  CreateAnalyticsIndexOptions,
  DisconnectAnalyticsLinkOptions,
  DropAnalyticsDatasetOptions,
  GetAllAnalyticsLinksOptions,
} from './analytics-index-manager.js'
import type { SecurityConfig } from './access.js'
import type { ChangesOptions } from './changes.js'
import type { ConnectOptions } from './cluster.js'
import type { OperationOptions } from './deadline.js'
import type { PingOptions, WaitUntilReadyOptions } from './diagnostics.js'
import { FeatureNotAvailableError, InvalidArgumentError } from './errors.js'
import type {
  CounterOptions,
  DurableOptions,
  GetOptions,
  InsertOptions,
  LookupInOptions,
  LookupInReplicaOptions,
  MutateInOptions,
  ReadOptions,
  RemoveOptions,
  ReplaceOptions,
  ReplicaOptions,
  TimeoutConfig,
  UpsertOptions,
} from './options.js'
import type { LiveOptions } from './live.js'
import type { MetricsConfig, OrphanReporterConfig, TracingConfig } from './observability.js'
import type { BucketSettings, CollectionSettings } from './management.js'
import type { QueryOptions } from './query.js'
import type { CreateQueryIndexOptions, DropQueryIndexOptions, KeyspaceOptions } from './query-indexes.js'
import type { ScanOptions } from './scan-types.js'
import type { SearchQueryOptions } from './search.js'
import type { AddSpecOptions, ArraySpecOptions, SpecOptions } from './subdocument.js'
import type { TransactionOptions, TransactionsConfig } from './transactions.js'
import type { UserOptions } from './users.js'
import type {
  HttpGetOptions,
  HttpInsertOptions,
  HttpRemoveOptions,
  HttpReplaceOptions,
  HttpUpsertOptions,
} from './web-documents.js'
import type { ViewQueryOptions } from './views.js'

type Names<O> = Record<keyof O, 1>

const OPERATION: Names<OperationOptions> = { timeout: 1, signal: 1, parentSpan: 1 }
const DURABLE: Names<DurableOptions> = {
  ...OPERATION,
  durabilityLevel: 1,
  durabilityPersistTo: 1,
  durabilityReplicateTo: 1,
}
const READ: Names<ReadOptions> = { ...OPERATION, transcoder: 1 }
const GET: Names<GetOptions> = { ...READ, withExpiry: 1, project: 1 }
const LOOKUP_IN: Names<LookupInOptions> = { ...OPERATION, accessDeleted: 1 }
const REPLICA: Names<ReplicaOptions> = { ...READ, readPreference: 1 }
const LOOKUP_IN_REPLICA: Names<LookupInReplicaOptions> = { ...OPERATION, readPreference: 1 }
const SCAN: Names<ScanOptions> = {
  ...READ,
  idsOnly: 1,
  batchByteLimit: 1,
  batchItemLimit: 1,
  consistentWith: 1,
  concurrency: 1,
}
const INSERT: Names<InsertOptions> = { ...DURABLE, expiry: 1, transcoder: 1 }
const UPSERT: Names<UpsertOptions> = { ...INSERT, preserveExpiry: 1 }
const REPLACE: Names<ReplaceOptions> = { ...UPSERT, cas: 1 }
const REMOVE: Names<RemoveOptions> = { ...DURABLE, cas: 1 }
const MUTATE_IN: Names<MutateInOptions> = {
  ...DURABLE,
  cas: 1,
  expiry: 1,
  preserveExpiry: 1,
  storeSemantics: 1,
}
const HTTP_GET: Names<HttpGetOptions> = { ...OPERATION, withExpiry: 1 }
const HTTP_INSERT: Names<HttpInsertOptions> = { ...OPERATION, expiry: 1 }
const HTTP_UPSERT: Names<HttpUpsertOptions> = { ...HTTP_INSERT, preserveExpiry: 1 }
const HTTP_REPLACE: Names<HttpReplaceOptions> = { ...HTTP_UPSERT, cas: 1 }
const HTTP_REMOVE: Names<HttpRemoveOptions> = { ...OPERATION, cas: 1 }
const COUNTER: Names<CounterOptions> = { ...DURABLE, initial: 1, expiry: 1 }
const VIEW_QUERY: Names<ViewQueryOptions> = {
  ...OPERATION,
  scanConsistency: 1,
  skip: 1,
  limit: 1,
  key: 1,
  keys: 1,
  range: 1,
  idRange: 1,
  reduce: 1,
  group: 1,
  groupLevel: 1,
  order: 1,
  onError: 1,
  fullSet: 1,
  debug: 1,
  raw: 1,
  namespace: 1,
}
const SEARCH: Names<SearchQueryOptions> = {
  ...OPERATION,
  skip: 1,
  limit: 1,
  explain: 1,
  highlight: 1,
  collections: 1,
  fields: 1,
  facets: 1,
  sort: 1,
  disableScoring: 1,
  includeLocations: 1,
  consistency: 1,
  consistentWith: 1,
  showRequest: 1,
  raw: 1,
}
const QUERY: Names<QueryOptions> = {
  ...OPERATION,
  parameters: 1,
  scanConsistency: 1,
  consistentWith: 1,
  adhoc: 1,
  flexIndex: 1,
  preserveExpiry: 1,
  clientContextId: 1,
  maxParallelism: 1,
  pipelineBatch: 1,
  pipelineCap: 1,
  scanWait: 1,
  scanCap: 1,
  readOnly: 1,
  useReplica: 1,
  profile: 1,
  metrics: 1,
  queryContext: 1,
  raw: 1,
}
const ANALYTICS_QUERY: Names<AnalyticsQueryOptions> = {
  ...OPERATION,
  parameters: 1,
  scanConsistency: 1,
  clientContextId: 1,
  priority: 1,
  readOnly: 1,
  queryContext: 1,
  raw: 1,
}
const CREATE_IN_DATAVERSE: Names<CreateAnalyticsIndexOptions> = { ...OPERATION, ignoreIfExists: 1, dataverseName: 1 }
const DROP_IN_DATAVERSE: Names<DropAnalyticsDatasetOptions> = { ...OPERATION, ignoreIfNotExists: 1, dataverseName: 1 }
const DATASET: Names<CreateAnalyticsDatasetOptions> = { ...CREATE_IN_DATAVERSE, condition: 1 }
const LINK: Names<DisconnectAnalyticsLinkOptions> = { ...OPERATION, dataverseName: 1, linkName: 1 }
const CONNECT_LINK: Names<ConnectAnalyticsLinkOptions> = { ...LINK, force: 1 }
const LINKS: Names<GetAllAnalyticsLinksOptions> = { ...OPERATION, dataverse: 1, name: 1, linkType: 1 }
const CHANGES: Names<ChangesOptions> = { since: 1, includeDocs: 1, keys: 1, live: 1, signal: 1 }
const LIVE: Names<LiveOptions> = {
  parameters: 1,
  queryContext: 1,
  timeout: 1,
  collections: 1,
  interval: 1,
  signal: 1,
}
const TRANSACTIONS: Names<TransactionsConfig> = {
  durabilityLevel: 1,
  kvTimeout: 1,
  timeout: 1,
  queryConfig: 1,
  cleanupConfig: 1,
  metadataCollection: 1,
}
const CONNECT: Names<ConnectOptions> = {
  tracer: 1,
  meter: 1,
  tracingConfig: 1,
  metricsConfig: 1,
  orphanReporterConfig: 1,
  username: 1,
  password: 1,
  authenticator: 1,
  security: 1,
  timeouts: 1,
  transcoder: 1,
  transactions: 1,
  preferredServerGroup: 1,
  network: 1,
  configProfile: 1,
  key: 1,
  logger: 1,
}
const TRACING: Names<TracingConfig> = {
  enableTracing: 1,
  emitInterval: 1,
  sampleSize: 1,
  kvThreshold: 1,
  queryThreshold: 1,
  searchThreshold: 1,
  analyticsThreshold: 1,
  managementThreshold: 1,
  eventingThreshold: 1,
  viewsThreshold: 1,
}
const TIMEOUTS: Names<TimeoutConfig> = {
  kvTimeout: 1,
  kvDurableTimeout: 1,
  kvScanTimeout: 1,
  viewTimeout: 1,
  queryTimeout: 1,
  analyticsTimeout: 1,
  searchTimeout: 1,
  eventingTimeout: 1,
  managementTimeout: 1,
  connectTimeout: 1,
  bootstrapTimeout: 1,
  resolveTimeout: 1,
}
const BUCKET: Names<BucketSettings> = {
  name: 1,
  ramQuotaMB: 1,
  bucketType: 1,
  numReplicas: 1,
  flushEnabled: 1,
  replicaIndexes: 1,
  storageBackend: 1,
  evictionPolicy: 1,
  maxExpiry: 1,
  compressionMode: 1,
  minimumDurabilityLevel: 1,
  historyRetentionCollectionDefault: 1,
  historyRetentionBytes: 1,
  historyRetentionDuration: 1,
  numVBuckets: 1,
  conflictResolutionType: 1,
}
const COLLECTION: Names<CollectionSettings> = { maxExpiry: 1, history: 1 }
const USER: Names<UserOptions> = { ...OPERATION, domainName: 1 }
const KEYSPACE: Names<KeyspaceOptions> = { ...OPERATION, collectionName: 1, scopeName: 1 }
const CREATE_INDEX: Names<CreateQueryIndexOptions> = {
  ...KEYSPACE,
  ignoreIfExists: 1,
  numReplicas: 1,
  deferred: 1,
}
const DROP_INDEX: Names<DropQueryIndexOptions> = { ...KEYSPACE, ignoreIfNotExists: 1 }
const SPEC: Names<SpecOptions> = { xattr: 1 }
const ADD_SPEC: Names<AddSpecOptions> = { ...SPEC, createPath: 1 }
const ARRAY_SPEC: Names<ArraySpecOptions> = { ...ADD_SPEC, multi: 1 }
const ARRAY_INSERT_SPEC: Names<Omit<ArraySpecOptions, 'createPath'>> = { ...SPEC, multi: 1 }

/** Names of the options of each operation, and of the members of each group of settings. */
export const OPTION_NAMES: Readonly<Record<string, Readonly<Record<string, 1>>>> = {
  connect: CONNECT,
  transactions: TRANSACTIONS,
  'transactions.run': { durabilityLevel: 1, timeout: 1 } satisfies Names<TransactionOptions>,
  security: { trustStorePath: 1, trustCertificates: 1 } satisfies Names<SecurityConfig>,
  timeouts: TIMEOUTS,
  tracingConfig: TRACING,
  metricsConfig: { enableMetrics: 1, emitInterval: 1 } satisfies Names<MetricsConfig>,
  orphanReporterConfig: {
    enableOrphanReporting: 1,
    emitInterval: 1,
    sampleSize: 1,
  } satisfies Names<OrphanReporterConfig>,
  ping: { ...OPERATION, reportId: 1, serviceTypes: 1 } satisfies Names<PingOptions>,
  diagnostics: { reportId: 1 },
  waitUntilReady: { desiredState: 1, serviceTypes: 1 } satisfies Names<WaitUntilReadyOptions>,
  get: GET,
  getAndTouch: READ,
  getAndLock: READ,
  unlock: OPERATION,
  exists: OPERATION,
  touch: OPERATION,
  getAnyReplica: REPLICA,
  getAllReplicas: REPLICA,
  lookupInAnyReplica: LOOKUP_IN_REPLICA,
  lookupInAllReplicas: LOOKUP_IN_REPLICA,
  scan: SCAN,
  insert: INSERT,
  upsert: UPSERT,
  replace: REPLACE,
  remove: REMOVE,
  removeMulti: DURABLE,
  lookupIn: LOOKUP_IN,
  mutateIn: MUTATE_IN,
  increment: COUNTER,
  decrement: COUNTER,
  append: REMOVE,
  prepend: REMOVE,
  'LookupInSpec.get': SPEC,
  'LookupInSpec.exists': SPEC,
  'LookupInSpec.count': SPEC,
  'MutateInSpec.upsert': ADD_SPEC,
  'MutateInSpec.insert': ADD_SPEC,
  'MutateInSpec.replace': SPEC,
  'MutateInSpec.remove': SPEC,
  'MutateInSpec.arrayAppend': ARRAY_SPEC,
  'MutateInSpec.arrayPrepend': ARRAY_SPEC,
  'MutateInSpec.arrayInsert': ARRAY_INSERT_SPEC,
  'MutateInSpec.arrayAddUnique': ADD_SPEC,
  'MutateInSpec.increment': ADD_SPEC,
  'MutateInSpec.decrement': ADD_SPEC,
  changes: CHANGES,
  live: LIVE,
  query: QUERY,
  analyticsQuery: ANALYTICS_QUERY,
  createDataverse: { ...OPERATION, ignoreIfExists: 1 },
  dropDataverse: { ...OPERATION, ignoreIfNotExists: 1 },
  createDataset: DATASET,
  dropDataset: DROP_IN_DATAVERSE,
  getAllDatasets: OPERATION,
  createAnalyticsIndex: CREATE_IN_DATAVERSE,
  dropAnalyticsIndex: DROP_IN_DATAVERSE,
  getAllAnalyticsIndexes: OPERATION,
  connectLink: CONNECT_LINK,
  disconnectLink: LINK,
  getPendingMutations: OPERATION,
  createLink: OPERATION,
  replaceLink: OPERATION,
  dropLink: OPERATION,
  getAllLinks: LINKS,
  search: SEARCH,
  'search highlight': { style: 1, fields: 1 },
  viewQuery: VIEW_QUERY,
  'viewQuery range': { start: 1, end: 1, inclusiveEnd: 1 },
  'viewQuery idRange': { start: 1, end: 1 },
  getAllDesignDocuments: OPERATION,
  publishDesignDocument: OPERATION,
  getDesignDocument: OPERATION,
  upsertDesignDocument: OPERATION,
  dropDesignDocument: OPERATION,
  createBucket: OPERATION,
  'createBucket settings': BUCKET,
  updateBucket: OPERATION,
  'updateBucket settings': BUCKET,
  flushBucket: OPERATION,
  dropBucket: OPERATION,
  getBucket: OPERATION,
  getAllBuckets: OPERATION,
  createScope: OPERATION,
  dropScope: OPERATION,
  getAllScopes: OPERATION,
  createCollection: OPERATION,
  'createCollection settings': COLLECTION,
  updateCollection: OPERATION,
  'updateCollection settings': COLLECTION,
  dropCollection: OPERATION,
  getUser: USER,
  getAllUsers: USER,
  upsertUser: USER,
  dropUser: USER,
  changePassword: OPERATION,
  getRoles: OPERATION,
  getGroup: OPERATION,
  getAllGroups: OPERATION,
  upsertGroup: OPERATION,
  dropGroup: OPERATION,
  createIndex: CREATE_INDEX,
  createPrimaryIndex: { ...CREATE_INDEX, name: 1 },
  dropIndex: DROP_INDEX,
  dropPrimaryIndex: { ...DROP_INDEX, name: 1 },
  getAllIndexes: KEYSPACE,
  buildDeferredIndexes: KEYSPACE,
  watchIndexes: { ...KEYSPACE, watchPrimary: 1 },
  getIndex: OPERATION,
  getAllSearchIndexes: OPERATION,
  upsertIndex: OPERATION,
  dropSearchIndex: OPERATION,
  getIndexedDocumentsCount: OPERATION,
  controlIndex: OPERATION,
  analyzeDocument: OPERATION,
  upsertFunction: OPERATION,
  dropFunction: OPERATION,
  getAllFunctions: OPERATION,
  getFunction: OPERATION,
  deployFunction: OPERATION,
  undeployFunction: OPERATION,
  pauseFunction: OPERATION,
  resumeFunction: OPERATION,
  functionsStatus: OPERATION,
  httpGet: HTTP_GET,
  httpInsert: HTTP_INSERT,
  httpUpsert: HTTP_UPSERT,
  httpReplace: HTTP_REPLACE,
  httpRemove: HTTP_REMOVE,
}

/** Names of options that the official SDK has and this package does not have. */
export const OFFICIAL_NAMES: ReadonlySet<string> = new Set(
  `
  durabilityLevel project parentSpan accessDeleted upsertDocument readPreference
  fullSet includeDocuments includeDocs include_docs
  authenticator security trustStorePath transcoder configProfile logFunc bucketName transactions transactionConfig
  dnsConfig tracer meter tracingConfig metricsConfig appTelemetryConfig queryTimeout analyticsTimeout searchTimeout
  eventingTimeout bootstrapTimeout resolveTimeout
  replicaIndexes evictionPolicy ejectionMethod storageBackend compressionMode conflictResolutionType
  minimumDurabilityLevel durabilityMinLevel maxTTL numVBuckets historyRetentionCollectionDefault
  historyRetentionDuration historyRetentionBytes history
  `.trim().split(/\s+/),
)

/**
 * Refuses options that the operation would ignore. Undefined options, and `durabilityLevel: 0` (no durability), count
 * as absent.
 *
 * @throws FeatureNotAvailableError if only the official SDK has the option.
 * @throws InvalidArgumentError if the option does not exist, or the options are not an object.
 */
export function checkOptions(operation: string, options: object | undefined): void {
  if (options === undefined) return
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    const hint = typeof options === 'function' ? ': there are no callbacks, await the result' : ''
    throw new InvalidArgumentError(`the options of ${operation} are an object${hint}`)
  }
  const names = OPTION_NAMES[operation]!
  for (const [name, value] of Object.entries(options)) {
    if (Object.hasOwn(names, name) || value === undefined) continue
    if (name === 'durabilityLevel' && value === 0) continue
    if (OFFICIAL_NAMES.has(name)) {
      throw new FeatureNotAvailableError(`${operation} does not offer the option ${name} yet`)
    }
    const known = Object.keys(names).join(', ')
    throw new InvalidArgumentError(`${operation} has no option ${JSON.stringify(name)}; it has ${known}`)
  }
}
