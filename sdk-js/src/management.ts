/** Buckets, scopes and collections: create, drop, list. */

import type { Cluster } from './cluster.js'
import type { OperationOptions } from './deadline.js'
import {
  BucketExistsError,
  BucketNotFoundError,
  CollectionExistsError,
  CollectionNotFoundError,
  CouchbaseError,
  type ErrorContext,
  InvalidArgumentError,
  ScopeExistsError,
  ScopeNotFoundError,
} from './errors.js'
import { formBody, type HttpRequest, type HttpResponse, readJson } from './http.js'
import { checkOptions } from './option-names.js'

/** Where a bucket keeps its documents. */
export enum BucketType {
  /** In memory and on disk. */
  Couchbase = 'membase',
  /** In memory only. */
  Ephemeral = 'ephemeral',
}

/** What a bucket is like; what is absent is left to the server. */
export interface BucketSettings {
  name: string
  /** Memory, in MiB; 100 if not given. */
  ramQuotaMB?: number
  bucketType?: BucketType
  numReplicas?: number
}

/** What a new bucket is like. */
export interface CreateBucketSettings extends BucketSettings {
  flushEnabled?: boolean
  /** Longest life of its documents, in seconds. */
  maxExpiry?: number
}

/** A collection of a scope. */
export interface CollectionSpec {
  name: string
  scopeName: string
  /** Longest life of its documents, in seconds; 0 if the collection sets no limit. */
  maxExpiry: number
}

/** A scope with its collections. */
export interface ScopeSpec {
  name: string
  collections: CollectionSpec[]
}

type Fields = Parameters<typeof formBody>[0]

abstract class Manager {
  readonly #cluster: Cluster

  constructor(cluster: Cluster) {
    this.#cluster = cluster
  }

  protected send(
    method: HttpRequest['method'],
    path: string,
    options: OperationOptions,
    fields?: Fields,
  ): Promise<HttpResponse> {
    const body = fields && { body: formBody(fields), contentType: 'application/x-www-form-urlencoded' }
    return this.#cluster.askManagement({ method, path, ...body }, options)
  }
}

/** Buckets of a cluster. */
export class BucketManager extends Manager {
  /**
   * Creates a bucket.
   *
   * @throws BucketExistsError there is one of this name.
   */
  async createBucket(settings: CreateBucketSettings, options: OperationOptions = {}): Promise<void> {
    checkOptions('createBucket', options)
    checkOptions('createBucket settings', settings)
    const response = await this.send('POST', '/pools/default/buckets', options, {
      name: settings.name,
      ramQuotaMB: settings.ramQuotaMB ?? 100,
      bucketType: settings.bucketType ?? BucketType.Couchbase,
      replicaNumber: settings.numReplicas,
      flushEnabled: settings.flushEnabled,
      maxTTL: settings.maxExpiry,
    })
    if (/already exists/i.test(response.text)) throw new BucketExistsError(response.text, response.context)
    requireSuccess(response)
  }

  /**
   * Drops a bucket and everything in it.
   *
   * @throws BucketNotFoundError there is none of this name.
   */
  async dropBucket(bucketName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('dropBucket', options)
    requireBucket(await this.send('DELETE', bucketPath(bucketName), options))
  }

  /**
   * What a bucket is like.
   *
   * @throws BucketNotFoundError there is none of this name.
   */
  async getBucket(bucketName: string, options: OperationOptions = {}): Promise<BucketSettings> {
    checkOptions('getBucket', options)
    return readJson(requireBucket(await this.send('GET', bucketPath(bucketName), options)), readSettings)
  }

  /** All buckets that the user may see. */
  async getAllBuckets(options: OperationOptions = {}): Promise<BucketSettings[]> {
    checkOptions('getAllBuckets', options)
    const response = requireSuccess(await this.send('GET', '/pools/default/buckets', options))
    return readJson(response, (buckets) => buckets.map(readSettings))
  }
}

/** Scopes and collections of a bucket. */
export class CollectionManager extends Manager {
  readonly #path: string

  /** @internal */
  constructor(cluster: Cluster, bucketName: string) {
    super(cluster)
    this.#path = `${bucketPath(bucketName)}/scopes`
  }

  /**
   * Creates a scope.
   *
   * @throws ScopeExistsError there is one of this name.
   */
  async createScope(scopeName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('createScope', options)
    requireOutcome(await this.send('POST', this.#path, options, { name: scopeName }))
  }

  /**
   * Drops a scope and everything in it.
   *
   * @throws ScopeNotFoundError there is none of this name.
   */
  async dropScope(scopeName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('dropScope', options)
    requireOutcome(await this.send('DELETE', `${this.#path}/${encodeURIComponent(scopeName)}`, options))
  }

  /** All scopes of the bucket, with their collections. */
  async getAllScopes(options: OperationOptions = {}): Promise<ScopeSpec[]> {
    checkOptions('getAllScopes', options)
    const response = await this.send('GET', this.#path, options)
    requireOutcome(response)
    return readJson(response, ({ scopes }) => scopes.map(readScope))
  }

  /**
   * Creates a collection, whose documents live for `maxExpiry` seconds at most.
   *
   * @throws CollectionExistsError there is one of this name.
   * @throws ScopeNotFoundError there is no such scope.
   */
  async createCollection(
    collectionName: string,
    scopeName: string,
    settings: { maxExpiry?: number } = {},
    options: OperationOptions = {},
  ): Promise<void> {
    checkOptions('createCollection', options)
    checkOptions('createCollection settings', settings)
    const path = `${this.#path}/${encodeURIComponent(scopeName)}/collections`
    requireOutcome(await this.send('POST', path, options, { name: collectionName, maxTTL: settings.maxExpiry }))
  }

  /**
   * Drops a collection and everything in it.
   *
   * @throws CollectionNotFoundError, ScopeNotFoundError there is none of this name.
   */
  async dropCollection(collectionName: string, scopeName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('dropCollection', options)
    const [scope, collection] = [encodeURIComponent(scopeName), encodeURIComponent(collectionName)]
    requireOutcome(await this.send('DELETE', `${this.#path}/${scope}/collections/${collection}`, options))
  }
}

function bucketPath(name: string): string {
  if (!name) throw new InvalidArgumentError('a bucket has a name')
  return `/pools/default/buckets/${encodeURIComponent(name)}`
}

type ErrorClass = new (message?: string, context?: ErrorContext) => CouchbaseError

/** What a refusal about scopes and collections means: its text tells them apart. */
const OUTCOMES: [RegExp, ErrorClass][] = [
  [/collection.*not.found/i, CollectionNotFoundError],
  [/collection.*already exists/i, CollectionExistsError],
  [/scope.*not.found/i, ScopeNotFoundError],
  [/scope.*already exists/i, ScopeExistsError],
  [/resource.*not.found/i, BucketNotFoundError],
]

function requireOutcome(response: HttpResponse): void {
  if (response.status < 300) return
  const outcome = OUTCOMES.find(([text]) => text.test(response.text))
  if (outcome) throw new outcome[1](response.text, response.context)
  requireSuccess(response)
}

function requireBucket(response: HttpResponse): HttpResponse {
  if (response.status === 404) throw new BucketNotFoundError(response.text, response.context)
  return requireSuccess(response)
}

function requireSuccess(response: HttpResponse): HttpResponse {
  if (response.status === 400) throw new InvalidArgumentError(response.text, response.context)
  if (response.status >= 300) throw new CouchbaseError(response.text, response.context)
  return response
}

function readSettings(bucket: any): BucketSettings {
  const settings: BucketSettings = { name: bucket.name, bucketType: bucket.bucketType }
  if (bucket.quota?.rawRAM !== undefined) settings.ramQuotaMB = Math.floor(bucket.quota.rawRAM / (1 << 20))
  if (bucket.replicaNumber !== undefined) settings.numReplicas = bucket.replicaNumber
  return settings
}

function readScope(scope: any): ScopeSpec {
  return {
    name: scope.name,
    collections: scope.collections.map((collection: any) => ({
      name: collection.name,
      scopeName: scope.name,
      maxExpiry: collection.maxTTL ?? 0,
    })),
  }
}
