/** Management of buckets, scopes and collections. */

import type { Cluster } from './cluster.js'
import type { OperationOptions } from './deadline.js'
import {
  BucketExistsError,
  BucketNotFlushableError,
  BucketNotFoundError,
  CollectionExistsError,
  CollectionNotFoundError,
  CouchbaseError,
  type ErrorContext,
  InvalidArgumentError,
  ScopeExistsError,
  ScopeNotFoundError,
} from './errors.js'
import { formBody, type HttpRequest, type HttpResponse, readJson, segment } from './http-messages.js'
import { checkOptions } from './option-names.js'
import {
  type BucketSettings,
  BucketType,
  type CollectionSettings,
  type CreateBucketSettings,
  type ScopeSpec,
} from './management.js'

type Fields = Parameters<typeof formBody>[0]

/** Base class of the managers. */
export abstract class Manager {
  /** @internal */
  readonly cluster: Cluster

  /** @internal */
  constructor(cluster: Cluster) {
    this.cluster = cluster
  }

  protected send(
    method: HttpRequest['method'],
    path: string,
    options: OperationOptions,
    fields?: Fields,
  ): Promise<HttpResponse> {
    const body = fields && { body: formBody(fields), contentType: 'application/x-www-form-urlencoded' }
    return this.cluster.askManagement({ method, path, ...body }, options)
  }
}

/** Manages the buckets of a cluster. */
export class BucketManager extends Manager {
  /**
   * Creates a bucket.
   *
   * @throws BucketExistsError if the bucket exists already.
   */
  async createBucket(settings: CreateBucketSettings, options: OperationOptions = {}): Promise<void> {
    checkOptions('createBucket', options)
    checkOptions('createBucket settings', settings)
    const { ramQuotaMB = 100, bucketType = BucketType.Couchbase, name } = settings
    const fields = { ...writeSettings({ ...settings, ramQuotaMB, bucketType }), name }
    const response = await this.send('POST', '/pools/default/buckets', options, fields)
    if (/already exists/i.test(response.text)) throw new BucketExistsError(response.text, response.context)
    requireSuccess(response)
  }

  /**
   * Changes a bucket to these settings.
   *
   * @throws BucketNotFoundError if it does not exist.
   */
  async updateBucket(settings: BucketSettings, options: OperationOptions = {}): Promise<void> {
    checkOptions('updateBucket', options)
    checkOptions('updateBucket settings', settings)
    requireBucket(await this.send('POST', bucketPath(settings.name), options, writeSettings(settings)))
  }

  /**
   * Removes all documents of a bucket that allows it.
   *
   * @throws BucketNotFlushableError if the bucket does not allow it.
   * @throws BucketNotFoundError if it does not exist.
   */
  async flushBucket(bucketName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('flushBucket', options)
    const response = await this.send('POST', `${bucketPath(bucketName)}/controller/doFlush`, options)
    if (/flush is disabled/i.test(response.text)) throw new BucketNotFlushableError(response.text, response.context)
    requireBucket(response)
  }

  /**
   * Drops a bucket and everything in it.
   *
   * @throws BucketNotFoundError if it does not exist.
   */
  async dropBucket(bucketName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('dropBucket', options)
    requireBucket(await this.send('DELETE', bucketPath(bucketName), options))
  }

  /**
   * Returns the settings of a bucket.
   *
   * @throws BucketNotFoundError if it does not exist.
   */
  async getBucket(bucketName: string, options: OperationOptions = {}): Promise<BucketSettings> {
    checkOptions('getBucket', options)
    return readJson(requireBucket(await this.send('GET', bucketPath(bucketName), options)), readSettings)
  }

  /** Returns all buckets that the user may see. */
  async getAllBuckets(options: OperationOptions = {}): Promise<BucketSettings[]> {
    checkOptions('getAllBuckets', options)
    const response = requireSuccess(await this.send('GET', '/pools/default/buckets', options))
    return readJson(response, (buckets) => buckets.map(readSettings))
  }
}

/** Manages the scopes and collections of a bucket. */
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
   * @throws ScopeExistsError if it exists already.
   */
  async createScope(scopeName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('createScope', options)
    requireOutcome(await this.send('POST', this.#path, options, { name: scopeName }))
  }

  /**
   * Drops a scope and everything in it.
   *
   * @throws ScopeNotFoundError if it does not exist.
   */
  async dropScope(scopeName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('dropScope', options)
    requireOutcome(await this.send('DELETE', `${this.#path}/${segment(scopeName)}`, options))
  }

  /** Returns all scopes of the bucket, with their collections. */
  async getAllScopes(options: OperationOptions = {}): Promise<ScopeSpec[]> {
    checkOptions('getAllScopes', options)
    const response = await this.send('GET', this.#path, options)
    requireOutcome(response)
    return readJson(response, ({ scopes }) => scopes.map(readScope))
  }

  /**
   * Creates a collection, given by its names and settings, or by one object with all of these.
   *
   * @throws CollectionExistsError if it exists already.
   * @throws ScopeNotFoundError if the scope does not exist.
   */
  async createCollection(
    spec: CollectionSettings & { name: string; scopeName: string },
    options?: OperationOptions,
  ): Promise<void>
  async createCollection(
    collectionName: string,
    scopeName: string,
    settings?: CollectionSettings,
    options?: OperationOptions,
  ): Promise<void>
  async createCollection(
    first: string | (CollectionSettings & { name: string; scopeName: string }),
    second: string | OperationOptions = {},
    settings: CollectionSettings = {},
    options: OperationOptions = {},
  ): Promise<void> {
    if (typeof first === 'object') {
      const { name, scopeName, ...rest } = first
      return this.createCollection(name, scopeName, rest, second as OperationOptions)
    }
    checkOptions('createCollection', options)
    checkOptions('createCollection settings', settings)
    const path = `${this.#path}/${segment(second as string)}/collections`
    requireOutcome(await this.send('POST', path, options, { name: first, ...collectionFields(settings) }))
  }

  /**
   * Changes the settings of a collection.
   *
   * @throws CollectionNotFoundError, ScopeNotFoundError if it does not exist.
   */
  async updateCollection(
    collectionName: string,
    scopeName: string,
    settings: CollectionSettings,
    options: OperationOptions = {},
  ): Promise<void> {
    checkOptions('updateCollection', options)
    checkOptions('updateCollection settings', settings)
    const path = this.#collectionPath(collectionName, scopeName)
    requireOutcome(await this.send('PATCH', path, options, collectionFields(settings)))
  }

  /**
   * Drops a collection and everything in it.
   *
   * @throws CollectionNotFoundError, ScopeNotFoundError if it does not exist.
   */
  async dropCollection(collectionName: string, scopeName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('dropCollection', options)
    requireOutcome(await this.send('DELETE', this.#collectionPath(collectionName, scopeName), options))
  }

  #collectionPath(collectionName: string, scopeName: string): string {
    return `${this.#path}/${segment(scopeName)}/collections/${segment(collectionName)}`
  }
}

function bucketPath(name: string): string {
  if (!name) throw new InvalidArgumentError('a bucket has a name')
  return `/pools/default/buckets/${segment(name)}`
}

type ErrorClass = new (message?: string, context?: ErrorContext) => CouchbaseError

/** Errors of refused requests about scopes and collections, which only differ by their texts. */
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

/** Returns the response unless it is an error. */
export function requireSuccess(response: HttpResponse): HttpResponse {
  if (response.status === 400) throw new InvalidArgumentError(response.text, response.context)
  if (response.status >= 300) throw new CouchbaseError(response.text, response.context)
  return response
}

const LEVELS = ['none', 'majority', 'majorityAndPersistActive', 'persistToMajority']

function writeSettings(settings: BucketSettings): NonNullable<Fields> {
  const { minimumDurabilityLevel: level } = settings
  return {
    ramQuotaMB: settings.ramQuotaMB,
    bucketType: settings.bucketType,
    replicaNumber: settings.numReplicas,
    flushEnabled: settings.flushEnabled,
    replicaIndex: settings.replicaIndexes,
    storageBackend: settings.storageBackend,
    evictionPolicy: settings.evictionPolicy,
    maxTTL: settings.maxExpiry,
    compressionMode: settings.compressionMode,
    durabilityMinLevel: level === undefined ? undefined : LEVELS[level],
    historyRetentionCollectionDefault: textOf(settings.historyRetentionCollectionDefault),
    historyRetentionBytes: settings.historyRetentionBytes,
    historyRetentionSeconds: settings.historyRetentionDuration,
    numVBuckets: settings.numVBuckets,
    conflictResolutionType: settings.conflictResolutionType,
  }
}

function readSettings(bucket: any): BucketSettings {
  const level = LEVELS.indexOf(bucket.durabilityMinLevel)
  const settings: Record<string, unknown> = {
    name: bucket.name,
    bucketType: bucket.bucketType,
    ramQuotaMB: bucket.quota?.rawRAM === undefined ? undefined : Math.floor(bucket.quota.rawRAM / (1 << 20)),
    numReplicas: bucket.replicaNumber,
    flushEnabled: bucket.controllers && bucket.controllers.flush !== undefined,
    replicaIndexes: bucket.replicaIndex,
    storageBackend: bucket.storageBackend,
    evictionPolicy: bucket.evictionPolicy,
    maxExpiry: bucket.maxTTL,
    compressionMode: bucket.compressionMode,
    minimumDurabilityLevel: level < 0 ? undefined : level,
    historyRetentionCollectionDefault: bucket.historyRetentionCollectionDefault,
    historyRetentionBytes: bucket.historyRetentionBytes,
    historyRetentionDuration: bucket.historyRetentionSeconds,
    numVBuckets: bucket.numVBuckets,
    conflictResolutionType: bucket.conflictResolutionType,
  }
  const known = Object.entries(settings).filter(([, value]) => value !== undefined && value !== '')
  return Object.fromEntries(known) as unknown as BucketSettings
}

function collectionFields({ maxExpiry, history }: CollectionSettings): NonNullable<Fields> {
  return { maxTTL: maxExpiry, history: textOf(history) }
}

/** Formats a boolean as a word, where the server does not accept a number. */
function textOf(value: boolean | undefined): string | undefined {
  return value === undefined ? undefined : String(value)
}

function readScope(scope: any): ScopeSpec {
  return {
    name: scope.name,
    collections: scope.collections.map((collection: any) => ({
      name: collection.name,
      scopeName: scope.name,
      maxExpiry: collection.maxTTL ?? 0,
      ...(collection.history ? { history: true } : {}),
    })),
  }
}
