/** A bucket and its scopes: names on the way to collections, and queries of views. */

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

/** A bucket. It connects when first used. */
export class Bucket {
  /** Name of the bucket. */
  readonly name: string
  /** @internal */
  readonly client: KvClient
  /** Cluster that the bucket is in. */
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

  /** Turns values into bytes where an operation names no other transcoder. */
  get transcoder(): Transcoder {
    return this.cluster.transcoder
  }

  /** A scope, which is looked up when a document in it is used. */
  scope(name: string): Scope {
    return new Scope(this, name)
  }

  /** The scope that every bucket has. */
  defaultScope(): Scope {
    return this.scope('_default')
  }

  /** A collection of the default scope. */
  collection(name: string): Collection {
    return this.defaultScope().collection(name)
  }

  /** The collection that every bucket has. */
  defaultCollection(): Collection {
    return this.collection('_default')
  }

  /** Creates, drops and lists scopes and collections. */
  collections(): CollectionManager {
    return lazy(async () => new (await import('./bucket-manager.js')).CollectionManager(this.cluster, this.name))
  }

  /** Reads, writes and drops design documents. */
  viewIndexes(): ViewIndexManager {
    return lazy(async () => new (await import('./view-index-manager.js')).ViewIndexManager(this))
  }

  /** Asks every node of every service for a sign of life, those with documents through connections to this bucket. */
  async ping(options: PingOptions = {}): Promise<PingResult> {
    checkOptions('ping', options)
    const { ping } = await import('./reports.js')
    return ping(this.client, this.cluster.http, options, this.timeouts.managementTimeout)
  }

  /**
   * Resolves when all nodes of all services answer, and the bucket can be used.
   *
   * @throws UnambiguousTimeoutError they do not in time.
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
  /** Bucket that the scope is in. */
  readonly bucket: Bucket

  /** @internal */
  constructor(bucket: Bucket, name: string) {
    if (!name) throw new InvalidArgumentError('a scope has a name')
    this.bucket = bucket
    this.name = name
  }

  /** Cluster that the scope is in. */
  get cluster(): Cluster {
    return this.bucket.cluster
  }

  /** Turns values into bytes where an operation names no other transcoder. */
  get transcoder(): Transcoder {
    return this.bucket.transcoder
  }

  /** Name of the scope that every bucket has. */
  static get DEFAULT_NAME(): string {
    return '_default'
  }

  /** Carries out a statement of SQL++ in which names of collections are those of this scope. */
  query<TRow = any>(statement: string, options: QueryOptions = {}): Query<TRow> {
    checkOptions('query', options)
    const queryContext = contextOf(this.bucket.name, this.name)
    return startQuery<TRow>(this.cluster.sender, statement, { queryContext, ...options })
  }

  /** Keeps the result of a statement up to date in which names of collections are those of this scope. */
  live<TRow = any>(statement: string, options: LiveOptions = {}): Live<TRow> {
    const queryContext = contextOf(this.bucket.name, this.name)
    return this.cluster.live<TRow>(statement, { queryContext, ...options })
  }

  /** Looks up documents in an index of this scope. */
  search(indexName: string, request: SearchRequest, options: SearchQueryOptions = {}): Search {
    const sender = { ...this.cluster.sender, defaultMs: this.cluster.searchTimeout }
    return startSearch(sender, indexName, request, options, { bucket: this.bucket.name, name: this.name })
  }

  /** Defines, holds up and drops indexes of the search service in this scope, where there is one. */
  searchIndexes(): ScopeSearchIndexManager {
    const { bucket, cluster, name } = this
    return lazy(async () => {
      const { ScopeSearchIndexManager } = await import('./search-index-manager.js')
      return new ScopeSearchIndexManager(cluster, bucket.name, name)
    })
  }

  /** Defines, deploys and drops functions of this scope. */
  eventingFunctions(): ScopeEventingFunctionManager {
    const { bucket, cluster, name } = this
    return lazy(async () => {
      const { ScopeEventingFunctionManager } = await import('./eventing-manager.js')
      return new ScopeEventingFunctionManager(cluster, bucket.name, name)
    })
  }

  /** A collection, which is looked up when a document in it is used. */
  collection(name: string): Collection {
    if (!name) throw new InvalidArgumentError('a collection has a name')
    return new Collection(this, name)
  }
}
