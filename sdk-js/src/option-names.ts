/**
 * Which options each operation takes, so that none is dropped without a word.
 *
 * Types catch misspelt names in literals only. At run time, every operation passes its options through
 * `checkOptions`, whose table is complete by the compiler's word: a `Names<O>` names every option of `O`.
 */

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
import type { BucketSettings, CollectionSettings } from './management.js'
import type { QueryOptions } from './query.js'
import type { CreateQueryIndexOptions, DropQueryIndexOptions, KeyspaceOptions } from './query-indexes.js'
import type { ScanOptions } from './scans.js'
import type { SearchQueryOptions } from './search.js'
import type { AddSpecOptions, ArraySpecOptions, SpecOptions } from './subdocument.js'
import type { TransactionOptions, TransactionsConfig } from './transactions.js'
import type { UserOptions } from './users.js'
import type { ViewQueryOptions } from './views.js'

type Names<O> = Record<keyof O, true>

const OPERATION: Names<OperationOptions> = { timeout: true, signal: true }
const DURABLE: Names<DurableOptions> = {
  ...OPERATION,
  durabilityLevel: true,
  durabilityPersistTo: true,
  durabilityReplicateTo: true,
}
const READ: Names<ReadOptions> = { ...OPERATION, transcoder: true }
const GET: Names<GetOptions> = { ...READ, withExpiry: true, project: true }
const LOOKUP_IN: Names<LookupInOptions> = { ...OPERATION, accessDeleted: true }
const REPLICA: Names<ReplicaOptions> = { ...READ, readPreference: true }
const LOOKUP_IN_REPLICA: Names<LookupInReplicaOptions> = { ...OPERATION, readPreference: true }
const SCAN: Names<ScanOptions> = {
  ...READ,
  idsOnly: true,
  batchByteLimit: true,
  batchItemLimit: true,
  consistentWith: true,
  concurrency: true,
}
const INSERT: Names<InsertOptions> = { ...DURABLE, expiry: true, transcoder: true }
const UPSERT: Names<UpsertOptions> = { ...INSERT, preserveExpiry: true }
const REPLACE: Names<ReplaceOptions> = { ...UPSERT, cas: true }
const REMOVE: Names<RemoveOptions> = { ...DURABLE, cas: true }
const MUTATE_IN: Names<MutateInOptions> = {
  ...DURABLE,
  cas: true,
  expiry: true,
  preserveExpiry: true,
  storeSemantics: true,
}
const COUNTER: Names<CounterOptions> = { ...DURABLE, initial: true, expiry: true }
const VIEW_QUERY: Names<ViewQueryOptions> = {
  ...OPERATION,
  scanConsistency: true,
  skip: true,
  limit: true,
  key: true,
  keys: true,
  range: true,
  idRange: true,
  reduce: true,
  group: true,
  groupLevel: true,
  order: true,
  onError: true,
  fullSet: true,
  debug: true,
  raw: true,
  namespace: true,
}
const SEARCH: Names<SearchQueryOptions> = {
  ...OPERATION,
  skip: true,
  limit: true,
  explain: true,
  highlight: true,
  collections: true,
  fields: true,
  facets: true,
  sort: true,
  disableScoring: true,
  includeLocations: true,
  consistency: true,
  consistentWith: true,
  showRequest: true,
  raw: true,
}
const QUERY: Names<QueryOptions> = {
  ...OPERATION,
  parameters: true,
  scanConsistency: true,
  consistentWith: true,
  adhoc: true,
  flexIndex: true,
  preserveExpiry: true,
  clientContextId: true,
  maxParallelism: true,
  pipelineBatch: true,
  pipelineCap: true,
  scanWait: true,
  scanCap: true,
  readOnly: true,
  useReplica: true,
  profile: true,
  metrics: true,
  queryContext: true,
  raw: true,
}
const CHANGES: Names<ChangesOptions> = { since: true, includeDocs: true, keys: true, live: true, signal: true }
const LIVE: Names<LiveOptions> = {
  parameters: true,
  queryContext: true,
  timeout: true,
  collections: true,
  interval: true,
  signal: true,
}
const TRANSACTIONS: Names<TransactionsConfig> = {
  durabilityLevel: true,
  kvTimeout: true,
  timeout: true,
  queryConfig: true,
  cleanupConfig: true,
  metadataCollection: true,
}
const CONNECT: Names<ConnectOptions> = {
  username: true,
  password: true,
  authenticator: true,
  security: true,
  timeouts: true,
  transcoder: true,
  transactions: true,
  preferredServerGroup: true,
  network: true,
  configProfile: true,
  logger: true,
}
const TIMEOUTS: Names<TimeoutConfig> = {
  kvTimeout: true,
  kvDurableTimeout: true,
  kvScanTimeout: true,
  viewTimeout: true,
  queryTimeout: true,
  analyticsTimeout: true,
  searchTimeout: true,
  eventingTimeout: true,
  managementTimeout: true,
  connectTimeout: true,
  bootstrapTimeout: true,
  resolveTimeout: true,
}
const BUCKET: Names<BucketSettings> = {
  name: true,
  ramQuotaMB: true,
  bucketType: true,
  numReplicas: true,
  flushEnabled: true,
  replicaIndexes: true,
  storageBackend: true,
  evictionPolicy: true,
  maxExpiry: true,
  compressionMode: true,
  minimumDurabilityLevel: true,
  historyRetentionCollectionDefault: true,
  historyRetentionBytes: true,
  historyRetentionDuration: true,
  numVBuckets: true,
  conflictResolutionType: true,
}
const COLLECTION: Names<CollectionSettings> = { maxExpiry: true, history: true }
const USER: Names<UserOptions> = { ...OPERATION, domainName: true }
const KEYSPACE: Names<KeyspaceOptions> = { ...OPERATION, collectionName: true, scopeName: true }
const CREATE_INDEX: Names<CreateQueryIndexOptions> = {
  ...KEYSPACE,
  ignoreIfExists: true,
  numReplicas: true,
  deferred: true,
}
const DROP_INDEX: Names<DropQueryIndexOptions> = { ...KEYSPACE, ignoreIfNotExists: true }
const SPEC: Names<SpecOptions> = { xattr: true }
const ADD_SPEC: Names<AddSpecOptions> = { ...SPEC, createPath: true }
const ARRAY_SPEC: Names<ArraySpecOptions> = { ...ADD_SPEC, multi: true }
const ARRAY_INSERT_SPEC: Names<Omit<ArraySpecOptions, 'createPath'>> = { ...SPEC, multi: true }

/** The options of each operation, and the members of each group of settings. */
export const OPTION_NAMES: Readonly<Record<string, Readonly<Record<string, true>>>> = {
  connect: CONNECT,
  transactions: TRANSACTIONS,
  'transactions.run': { durabilityLevel: true, timeout: true } satisfies Names<TransactionOptions>,
  security: { trustStorePath: true, trustCertificates: true } satisfies Names<SecurityConfig>,
  timeouts: TIMEOUTS,
  ping: { ...OPERATION, reportId: true, serviceTypes: true } satisfies Names<PingOptions>,
  diagnostics: { reportId: true },
  waitUntilReady: { desiredState: true, serviceTypes: true } satisfies Names<WaitUntilReadyOptions>,
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
  search: SEARCH,
  'search highlight': { style: true, fields: true },
  viewQuery: VIEW_QUERY,
  'viewQuery range': { start: true, end: true, inclusiveEnd: true },
  'viewQuery idRange': { start: true, end: true },
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
  createPrimaryIndex: { ...CREATE_INDEX, name: true },
  dropIndex: DROP_INDEX,
  dropPrimaryIndex: { ...DROP_INDEX, name: true },
  getAllIndexes: KEYSPACE,
  buildDeferredIndexes: KEYSPACE,
  watchIndexes: { ...KEYSPACE, watchPrimary: true },
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
}

/** What the official SDK has under these names, and this package has not. */
export const OFFICIAL_NAMES: ReadonlySet<string> = new Set(
  `
  durabilityLevel project parentSpan accessDeleted upsertDocument readPreference
  fullSet full_set stale group_level id_range on_error includeDocuments includeDocs include_docs
  authenticator security trustStorePath transcoder configProfile logFunc bucketName transactions transactionConfig
  dnsConfig tracer meter tracingConfig metricsConfig appTelemetryConfig queryTimeout analyticsTimeout searchTimeout
  eventingTimeout bootstrapTimeout resolveTimeout
  replicaIndexes evictionPolicy ejectionMethod storageBackend compressionMode conflictResolutionType
  minimumDurabilityLevel durabilityMinLevel maxTTL numVBuckets historyRetentionCollectionDefault
  historyRetentionDuration historyRetentionBytes history
  `.trim().split(/\s+/),
)

/**
 * Refuses options that the operation would not look at. An option that is undefined is not given; so is
 * `durabilityLevel: 0`, which asks for no durability.
 *
 * @throws FeatureNotAvailableError the official SDK has the option, and this package has not.
 * @throws InvalidArgumentError there is no such option, or the options are no object.
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
