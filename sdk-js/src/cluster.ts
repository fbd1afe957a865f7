/** The entry point: clusters. */

import { type AnalyticsQuery, type AnalyticsQueryOptions, startAnalyticsQuery } from './analytics.js'
import type { AnalyticsIndexManager } from './analytics-index-manager.js'
import { Access, type Authenticator, type Network, type SecurityConfig } from './access.js'
import { BinaryCollection } from './binary-collection.js'
import { Bucket, Scope } from './bucket.js'
import { takeCallbacks, withCallback } from './callbacks.js'
import { Collection } from './collection.js'
import { CouchbaseList, CouchbaseMap, CouchbaseQueue, CouchbaseSet } from './data-structures.js'
import { type Address, parseConnectionString, resolveSeeds } from './connection-string.js'
import type { OperationOptions } from './deadline.js'
import type { DiagnosticsOptions, PingOptions, WaitUntilReadyOptions } from './diagnostics.js'
import type { DiagnosticsResult, PingResult } from './reports.js'
import type { Database } from './embedded.js'
import { InvalidArgumentError, RequestCanceledError } from './errors.js'
import { HttpClient } from './http.js'
import type { HttpRequest, HttpResponse } from './http-messages.js'
import { KvClient } from './kv-client.js'
import type { EventingFunctionManager } from './eventing-manager.js'
import { lazy } from './lazy.js'
import { Live, type LiveOptions } from './live.js'
import { CouchbaseLogger, type Logger } from './logger.js'
import type { BucketManager } from './bucket-manager.js'
import { checkOptions } from './option-names.js'
import { DEFAULT_TIMEOUTS, type TimeoutConfig, type Timeouts } from './options.js'
import { type Query, type QueryOptions, type Sender, startQuery } from './query.js'
import type { QueryIndexManager } from './query-indexes.js'
import { type Search, type SearchQueryOptions, SearchRequest, startSearch } from './search.js'
import type { SearchIndexManager } from './search-index-manager.js'
import type { SearchQuery } from './search-queries.js'
import { DefaultTranscoder, type Transcoder } from './transcoders.js'
import type { MetricsConfig, OrphanReporterConfig, Reports, TracingConfig } from './observability.js'
import type { Meter, RequestTracer } from './tracing.js'
import { Transactions, type TransactionsConfig } from './transactions.js'
import type { UserManager } from './user-manager.js'

/** Options of `connect`: either `username` and `password`, or an `authenticator`. */
export interface ConnectOptions {
  username?: string
  password?: string
  authenticator?: Authenticator
  security?: SecurityConfig
  timeouts?: TimeoutConfig
  /** Default transcoder of the operations. */
  transcoder?: Transcoder
  /** Defaults of transactions. */
  transactions?: TransactionsConfig
  /** Server group to which replica reads can be restricted. */
  preferredServerGroup?: string
  /** The set of node addresses to use (`auto`: the set that contains the address in the connection string). */
  network?: Network
  /** Logger for connections and maps, such as `console` or the result of `createConsoleLogger`. */
  logger?: Logger
  /** Creates spans for operations. */
  tracer?: RequestTracer
  /** Records the durations of operations. */
  meter?: Meter
  /** Settings of the reports about slow operations, which the logger receives if there is no tracer. */
  tracingConfig?: TracingConfig
  /** Settings of the reports about durations, which the logger receives if there is no meter. */
  metricsConfig?: MetricsConfig
  /** Settings of the reports about orphan responses, which the logger receives. */
  orphanReporterConfig?: OrphanReporterConfig
  /** `wanDevelopment` has longer timeouts. */
  configProfile?: string
  /** Key of an encrypted embedded database: 32 bytes, or a passphrase. */
  key?: Uint8Array | string
}

/** Timeouts of the profile for distant clusters, as in the official SDK. */
const WAN_TIMEOUTS: TimeoutConfig = {
  kvTimeout: 20_000,
  kvDurableTimeout: 20_000,
  viewTimeout: 120_000,
  queryTimeout: 120_000,
  analyticsTimeout: 120_000,
  searchTimeout: 120_000,
  managementTimeout: 120_000,
  connectTimeout: 20_000,
}

/** Module of the embedded database. Its name is not a literal, so that bundlers omit the module. */
const EMBEDDED: string = './embedded.js'

/** The address of a cluster, the credentials, and the reports. */
interface At {
  seeds: Address[]
  access: Access
  reports?: Reports | undefined
}

/** Returns the reports that the options ask for, if any. */
async function reportsOf(options: ConnectOptions, logger: CouchbaseLogger): Promise<Reports | undefined> {
  const { tracer, meter, tracingConfig, metricsConfig, orphanReporterConfig } = options
  if (tracer && typeof tracer.requestSpan !== 'function') throw new InvalidArgumentError('a tracer has requestSpan')
  if (meter && typeof meter.valueRecorder !== 'function') throw new InvalidArgumentError('a meter has valueRecorder')
  if (!tracingConfig && !metricsConfig && !orphanReporterConfig) return undefined
  const { Reports } = await import('./observability.js')
  return new Reports({ tracingConfig, metricsConfig, orphanReporterConfig }, logger)
}

/** A connection to a cluster as one user. `await using` closes it at the end of the block. */
export class Cluster implements AsyncDisposable {
  /** @internal */
  readonly timeouts: Timeouts
  /** @internal */
  readonly http: HttpClient
  /** Default transcoder of the operations. */
  readonly transcoder: Transcoder
  /** @internal */
  readonly serverGroup: string | undefined
  /** @internal */
  readonly client: KvClient
  readonly #seeds: Address[]
  readonly #access: Access
  readonly #buckets = new Map<string, Bucket>()
  readonly #transactionsConfig: TransactionsConfig
  #transactions: Transactions | undefined
  readonly #prepared = new Map<string, string>()
  #reports: Reports | undefined
  #closed = false

  private constructor(seeds: Address[], access: Access, options: ConnectOptions) {
    const { timeouts, configProfile } = options
    if (configProfile !== undefined && configProfile !== 'wanDevelopment') {
      throw new InvalidArgumentError(`there is no profile ${JSON.stringify(configProfile)}`)
    }
    this.#access = access
    this.#seeds = seeds
    this.#transactionsConfig = options.transactions ?? {}
    this.timeouts = { ...DEFAULT_TIMEOUTS, ...(configProfile ? WAN_TIMEOUTS : {}), ...timeouts }
    this.transcoder = options.transcoder ?? new DefaultTranscoder()
    this.serverGroup = options.preferredServerGroup
    this.http = new HttpClient(access)
    this.client = new KvClient(seeds, access)
  }

  /**
   * Connects and logs in.
   *
   * @throws AuthenticationFailureError if the user or password is wrong, or a certificate is not accepted.
   * @throws UnambiguousTimeoutError if no node answers in time.
   */
  static async connect(connectionString: string, options: ConnectOptions): Promise<Cluster> {
    checkOptions('connect', options)
    checkOptions('timeouts', options.timeouts)
    checkOptions('security', options.security)
    checkOptions('transactions', options.transactions)
    if (/^nacre:/.test(connectionString)) {
      const { open } = (await import(EMBEDDED)) as typeof import('./embedded.js')
      return Cluster.#begin(open(connectionString, options.logger, options.key), options)
    }
    if (options.key !== undefined) {
      throw new InvalidArgumentError('a key is for an embedded database: connect to nacre:///path/to/folder')
    }
    const { text, network, certificate } = splitOptions(connectionString)
    const place = parseConnectionString(text)
    const { username, password, authenticator = { username, password } as Authenticator, security = {} } = options
    const trust = certificate === undefined ? security : { ...security, trustStorePath: certificate }
    const access = new Access(
      authenticator,
      place.tls ? trust : undefined,
      network ?? options.network,
      new CouchbaseLogger(options.logger),
    )
    if (place.tls) access.connectTls = (await import('node:tls')).connect
    const seeds = await resolveSeeds(place, options.timeouts?.resolveTimeout)
    const reports = await reportsOf(options, access.logger)
    access.instruments = { tracer: options.tracer ?? reports?.tracer, meter: options.meter ?? reports?.meter }
    access.orphans = reports?.orphans
    return Cluster.#begin({ seeds, access, reports }, options)
  }

  static async #begin(at: At, options: ConnectOptions): Promise<Cluster> {
    const cluster = new Cluster(at.seeds, at.access, options)
    cluster.#reports = at.reports
    try {
      const { bootstrapTimeout, connectTimeout } = cluster.timeouts
      await cluster.client.bootstrap({}, bootstrapTimeout ?? connectTimeout)
      return cluster
    } catch (error) {
      await cluster.close()
      throw error
    }
  }

  /** Default timeout of operations on documents, in milliseconds. */
  get kvTimeout(): number {
    return this.timeouts.kvTimeout
  }

  /** Default timeout of durable operations, in milliseconds. */
  get kvDurableTimeout(): number {
    return this.timeouts.kvDurableTimeout
  }

  /** Default timeout of queries of views, in milliseconds. */
  get viewTimeout(): number {
    return this.timeouts.viewTimeout
  }

  /** Default timeout of statements, in milliseconds. */
  get queryTimeout(): number {
    return this.timeouts.queryTimeout
  }

  /** Default timeout of statements of analytics, in milliseconds. */
  get analyticsTimeout(): number {
    return this.timeouts.analyticsTimeout
  }

  /** Default timeout of searches, in milliseconds. */
  get searchTimeout(): number {
    return this.timeouts.searchTimeout
  }

  /** Default timeout of management, in milliseconds. */
  get managementTimeout(): number {
    return this.timeouts.managementTimeout
  }

  /** Timeout of connecting to a node, in milliseconds. */
  get connectTimeout(): number {
    return this.timeouts.connectTimeout
  }

  /** Timeout of `connect` over all attempts, in milliseconds. */
  get bootstrapTimeout(): number | undefined {
    return this.timeouts.bootstrapTimeout
  }

  /** Timeout of DNS queries for nodes, in milliseconds. */
  get resolveTimeout(): number | undefined {
    return this.timeouts.resolveTimeout
  }

  /** The logger of the client. */
  get logger(): CouchbaseLogger {
    return this.#access.logger
  }

  /** @internal */
  get database(): Database | undefined {
    return this.#access.database
  }

  /** Replaces the credentials: immediately for HTTP requests, with the next connection for others. */
  updateCredentials(authenticator: Authenticator): void {
    this.#access.authenticator = authenticator
  }

  /** Returns a bucket. The same name yields the same object, with one connection per node. */
  bucket(name: string): Bucket {
    if (this.#closed) throw new RequestCanceledError('the cluster is closed')
    if (!name) throw new InvalidArgumentError('a bucket has a name')
    let bucket = this.#buckets.get(name)
    if (!bucket) {
      bucket = new Bucket(this, name, new KvClient(this.#seeds, this.#access, name))
      this.#buckets.set(name, bucket)
    }
    return bucket
  }

  /** Returns the manager of buckets. */
  buckets(): BucketManager {
    return lazy(async () => new (await import('./bucket-manager.js')).BucketManager(this))
  }

  /**
   * Executes a SQL++ statement: `for await (const row of cluster.query('SELECT …', { parameters: [1] }))`.
   *
   * Fails with `ParsingFailureError`, `PlanningFailureError`, `IndexNotFoundError`, …, according to the service.
   */
  query<TRow = any>(statement: string, options: QueryOptions = {}): Query<TRow> {
    checkOptions('query', options)
    return startQuery<TRow>(this.sender, statement, options)
  }

  /**
   * Executes a statement of the analytics service: `for await (const row of cluster.analyticsQuery('SELECT …'))`.
   *
   * Fails with `ServiceNotAvailableError` if no node runs the service, else with `CompilationFailureError`,
   * `DatasetNotFoundError`, …, according to the service.
   */
  analyticsQuery<TRow = any>(statement: string, options: AnalyticsQueryOptions = {}): AnalyticsQuery<TRow> {
    checkOptions('analyticsQuery', options)
    return startAnalyticsQuery<TRow>({ ...this.sender, defaultMs: this.analyticsTimeout }, statement, options)
  }

  /** Searches an index: `cluster.search('hotels', SearchRequest.create(query))`. */
  search(indexName: string, request: SearchRequest, options: SearchQueryOptions = {}): Search {
    return startSearch({ ...this.sender, defaultMs: this.searchTimeout }, indexName, request, options)
  }

  /** Equivalent to `search` with a request that contains this query only. */
  searchQuery(indexName: string, query: SearchQuery, options: SearchQueryOptions = {}): Search {
    return this.search(indexName, SearchRequest.create(query), options)
  }

  /**
   * Executes a statement and keeps its result up to date. This feature is specific to nacre.
   *
   *     for await (const { rows } of cluster.live('SELECT …')) …
   */
  live<TRow = any>(statement: string, options: LiveOptions = {}): Live<TRow> {
    checkOptions('live', options)
    return new Live<TRow>(this, statement, options)
  }

  /** @internal */
  get sender(): Sender {
    const { client, http, timeouts } = this
    return { client, http, defaultMs: timeouts.queryTimeout, prepared: this.#prepared }
  }

  /** Pings every node of every service. */
  async ping(options: PingOptions = {}): Promise<PingResult> {
    checkOptions('ping', options)
    const { ping } = await import('./reports.js')
    return ping(this.client, this.http, options, this.timeouts.managementTimeout)
  }

  /** Describes the present connections, without sending requests. */
  async diagnostics(options: DiagnosticsOptions = {}): Promise<DiagnosticsResult> {
    checkOptions('diagnostics', options)
    const { diagnose } = await import('./reports.js')
    return diagnose([this.client, ...[...this.#buckets.values()].map(({ client }) => client)], options)
  }

  /**
   * Resolves when all nodes of all services answer, or as many as the options require.
   *
   * @throws UnambiguousTimeoutError if they do not answer in time.
   */
  async waitUntilReady(timeout: number, options: WaitUntilReadyOptions = {}): Promise<void> {
    checkOptions('waitUntilReady', options)
    const { waitUntilReady } = await import('./reports.js')
    return waitUntilReady(this.client, this.http, timeout, options)
  }

  /** Returns the transactions of the cluster, which change several documents atomically. */
  transactions(): Transactions {
    return (this.#transactions ??= new Transactions(this, this.#transactionsConfig))
  }

  /** Returns the manager of users and groups. */
  users(): UserManager {
    return lazy(async () => new (await import('./user-manager.js')).UserManager(this))
  }

  /** Returns the manager of query indexes. */
  queryIndexes(): QueryIndexManager {
    return lazy(async () => new (await import('./query-indexes.js')).QueryIndexManager(this))
  }

  /** Returns the manager of search indexes. */
  searchIndexes(): SearchIndexManager {
    return lazy(async () => new (await import('./search-index-manager.js')).SearchIndexManager(this))
  }

  /** Returns the manager of dataverses, datasets, indexes and links of analytics. */
  analyticsIndexes(): AnalyticsIndexManager {
    return lazy(async () => new (await import('./analytics-index-manager.js')).AnalyticsIndexManager(this))
  }

  /** Returns the manager of eventing functions. */
  eventingFunctions(): EventingFunctionManager {
    return lazy(async () => new (await import('./eventing-manager.js')).EventingFunctionManager(this))
  }

  /**
   * Replaces the key of an encrypted embedded database: 32 bytes, or a passphrase. From then on, only the new key opens
   * the folder.
   *
   * @throws InvalidArgumentError if the cluster is not an embedded database, the key is neither 32 bytes nor a
   *   passphrase, or the folder is not encrypted.
   */
  async rekey(key: Uint8Array | string): Promise<void> {
    if (this.#closed) throw new RequestCanceledError('the cluster is closed')
    if (!this.#access.database) {
      throw new InvalidArgumentError('a key is for an embedded database: connect to nacre:///path/to/folder')
    }
    this.#access.database.rekey(key)
  }

  /** Closes all connections. Requests in progress fail. */
  async close(): Promise<void> {
    const isOpen = !this.#closed
    this.#closed = true
    this.http.close()
    this.client.close()
    for (const bucket of this.#buckets.values()) bucket.client.close()
    if (isOpen) this.#reports?.close()
    if (isOpen) this.#access.database?.leave()
  }

  /** Closes the cluster. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  /** @internal */
  async askEventing(request: HttpRequest, options: OperationOptions): Promise<HttpResponse> {
    return this.http.send(this.client, 'eventingAdminPort', request, options, this.timeouts.eventingTimeout)
  }

  /** @internal */
  async askManagement(request: HttpRequest, options: OperationOptions): Promise<HttpResponse> {
    return this.http.send(this.client, 'mgmt', request, options, this.timeouts.managementTimeout)
  }
}

/** Extracts the options that other SDKs accept in a connection string. */
function splitOptions(text: string): { text: string; network?: Network; certificate?: string } {
  const at = typeof text === 'string' ? text.indexOf('?') : -1
  if (at < 0) return { text }
  const query = new URLSearchParams(text.slice(at + 1))
  const [network, certificate] = [query.get('network'), query.get('trust_certificate')]
  for (const name of query.keys()) {
    if (name === 'network' || name === 'trust_certificate') continue
    throw new InvalidArgumentError(`the option ${name} of the address is an argument of connect, or unknown`)
  }
  return {
    text: text.slice(0, at),
    ...(network ? { network: network as Network } : {}),
    ...(certificate ? { certificate } : {}),
  }
}

/**
 * Connects to `couchbase://host[:port]`, or `couchbases://` for TLS, and logs in with a user and password or with the
 * options. `nacre:///path/to/folder` opens an embedded database, which requires no user; its bucket is `default`.
 * `nacre://:memory:` creates an in-memory database. The option `key` encrypts a new folder, and opens an encrypted one.
 *
 * @throws AuthenticationFailureError if the user or password is wrong.
 * @throws UnambiguousTimeoutError if no node answers in time.
 */
export async function connect(connectionString: string, options?: ConnectOptions): Promise<Cluster>
export async function connect(
  connectionString: string,
  username: string,
  password: string,
  timeouts?: TimeoutConfig,
): Promise<Cluster>
export async function connect(...args: any[]): Promise<Cluster> {
  return connecting(...(args as Parameters<typeof connectWith>))
}

async function connectWith(
  connectionString: string,
  user: string | ConnectOptions = {},
  password?: string,
  timeouts: TimeoutConfig = {},
): Promise<Cluster> {
  const options = typeof user === 'string' ? { username: user, password: password as string, timeouts } : user
  return Cluster.connect(connectionString, options)
}

const connecting = withCallback(connectWith)
takeCallbacks([Cluster, Bucket, Scope, Collection, BinaryCollection])
takeCallbacks([CouchbaseList, CouchbaseMap, CouchbaseQueue, CouchbaseSet], ['forEach'])
