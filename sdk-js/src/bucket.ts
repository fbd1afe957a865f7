/** Buckets and scopes: access to collections, and view queries. */

import type { AnalyticsQuery, AnalyticsQueryOptions } from './analytics.js'
import type { Cluster } from './cluster.js'
import { Collection } from './collection.js'
import type { OperationOptions } from './deadline.js'
import type { PingOptions, WaitUntilReadyOptions } from './diagnostics.js'
import type { PingResult } from './reports.js'
import { InvalidArgumentError } from './errors.js'
import type { ScopeEventingFunctionManager } from './eventing-manager.js'
import { lazy } from './lazy.js'
import type { HttpRequest, HttpResponse } from './http-messages.js'
import type { KvClient } from './kv-client.js'
import type { Live, LiveOptions } from './live.js'
import type { CollectionManager } from './bucket-manager.js'
import { checkOptions } from './option-names.js'
import type { Timeouts } from './options.js'
import { contextOf, type Query, type QueryOptions, startQuery } from './query.js'
import { type Search, type SearchQueryOptions, type SearchRequest, startSearch } from './search.js'
import type { ScopeSearchIndexManager } from './search-index-manager.js'
import type { Transcoder } from './transcoders.js'
import type { ViewIndexManager } from './view-index-manager.js'
import { startViewQuery, type ViewQuery, type ViewQueryOptions } from './views.js'

/** A bucket. The client connects to it on first use. */
export class Bucket {
  /** Name of the bucket. */
  readonly name: string
  /** @internal */
  readonly client: KvClient
  /** The cluster that contains the bucket. */
  readonly cluster: Cluster

  /** @internal */
  constructor(cluster: Cluster, name: string, client: KvClient) {
    this.cluster = cluster
    this.name = name
    this.client = client
  }

  /** @internal */
  get timeouts(): Timeouts {
    return this.cluster.timeouts
  }

  /** @internal */
  get serverGroup(): string | undefined {
    return this.cluster.serverGroup
  }

  /** Default transcoder of the operations. */
  get transcoder(): Transcoder {
    return this.cluster.transcoder
  }

  /** Returns a scope. The client looks it up when it uses a document in it. */
  scope(name: string): Scope {
    return new Scope(this, name)
  }

  /** Returns the default scope, which every bucket has. */
  defaultScope(): Scope {
    return this.scope('_default')
  }

  /** Returns a collection of the default scope. */
  collection(name: string): Collection {
    return this.defaultScope().collection(name)
  }

  /** Returns the default collection, which every bucket has. */
  defaultCollection(): Collection {
    return this.collection('_default')
  }

  /** Returns the manager of scopes and collections. */
  collections(): CollectionManager {
    return lazy(async () => new (await import('./bucket-manager.js')).CollectionManager(this.cluster, this.name))
  }

  /** Returns the manager of design documents. */
  viewIndexes(): ViewIndexManager {
    return lazy(async () => new (await import('./view-index-manager.js')).ViewIndexManager(this))
  }

  /** Pings every node of every service. The data service is pinged through the connections of this bucket. */
  async ping(options: PingOptions = {}): Promise<PingResult> {
    checkOptions('ping', options)
    const { ping } = await import('./reports.js')
    return ping(this.client, this.cluster.http, options, this.timeouts.managementTimeout)
  }

  /**
   * Resolves when all nodes of all services answer and the bucket is ready.
   *
   * @throws UnambiguousTimeoutError if they do not answer in time.
   */
  async waitUntilReady(timeout: number, options: WaitUntilReadyOptions = {}): Promise<void> {
    checkOptions('waitUntilReady', options)
    const { waitUntilReady } = await import('./reports.js')
    return waitUntilReady(this.client, this.cluster.http, timeout, options)
  }

  /** Queries a view: `for await (const row of bucket.viewQuery('shop', 'by_price', { limit: 10 }))`. */
  viewQuery<V = any, K = any>(
    designDocument: string,
    viewName: string,
    options: ViewQueryOptions = {},
  ): ViewQuery<V, K> {
    return startViewQuery<V, K>(this, designDocument, viewName, options)
  }

  /** @internal */
  async askViews(request: HttpRequest, options: OperationOptions, defaultMs?: number): Promise<HttpResponse> {
    return this.cluster.http.send(this.client, 'capi', request, options, defaultMs ?? this.timeouts.viewTimeout)
  }
}

/** A scope of a bucket. */
export class Scope {
  /** Name of the scope. */
  readonly name: string
  /** The bucket that contains the scope. */
  readonly bucket: Bucket

  /** @internal */
  constructor(bucket: Bucket, name: string) {
    if (!name) throw new InvalidArgumentError('a scope has a name')
    this.bucket = bucket
    this.name = name
  }

  /** The cluster that contains the scope. */
  get cluster(): Cluster {
    return this.bucket.cluster
  }

  /** Default transcoder of the operations. */
  get transcoder(): Transcoder {
    return this.bucket.transcoder
  }

  /** Name of the default scope, which every bucket has. */
  static get DEFAULT_NAME(): string {
    return '_default'
  }

  /** Executes a SQL++ statement. Names of collections refer to this scope. */
  query<TRow = any>(statement: string, options: QueryOptions = {}): Query<TRow> {
    checkOptions('query', options)
    const queryContext = contextOf(this.bucket.name, this.name)
    return startQuery<TRow>(this.cluster.sender, statement, { queryContext, ...options })
  }

  /** Executes a statement of the analytics service. Unqualified names refer to datasets of this scope. */
  analyticsQuery<TRow = any>(statement: string, options: AnalyticsQueryOptions = {}): AnalyticsQuery<TRow> {
    const queryContext = contextOf(this.bucket.name, this.name)
    return this.cluster.analyticsQuery<TRow>(statement, { queryContext, ...options })
  }

  /** Executes a statement and keeps its result up to date. Names of collections refer to this scope. */
  live<TRow = any>(statement: string, options: LiveOptions = {}): Live<TRow> {
    const queryContext = contextOf(this.bucket.name, this.name)
    return this.cluster.live<TRow>(statement, { queryContext, ...options })
  }

  /** Searches an index of this scope. */
  search(indexName: string, request: SearchRequest, options: SearchQueryOptions = {}): Search {
    const sender = { ...this.cluster.sender, defaultMs: this.cluster.searchTimeout }
    return startSearch(sender, indexName, request, options, { bucket: this.bucket.name, name: this.name })
  }

  /** Returns the manager of the search indexes in this scope. */
  searchIndexes(): ScopeSearchIndexManager {
    const { bucket, cluster, name } = this
    return lazy(async () => {
      const { ScopeSearchIndexManager } = await import('./search-index-manager.js')
      return new ScopeSearchIndexManager(cluster, bucket.name, name)
    })
  }

  /** Returns the manager of the eventing functions in this scope. */
  eventingFunctions(): ScopeEventingFunctionManager {
    const { bucket, cluster, name } = this
    return lazy(async () => {
      const { ScopeEventingFunctionManager } = await import('./eventing-manager.js')
      return new ScopeEventingFunctionManager(cluster, bucket.name, name)
    })
  }

  /** Returns a collection. The client looks it up when it uses a document in it. */
  collection(name: string): Collection {
    if (!name) throw new InvalidArgumentError('a collection has a name')
    return new Collection(this, name)
  }
}
