/** Management of query indexes by SQL++ statements. */

import type { Cluster } from './cluster.js'
import type { Collection } from './collection.js'
import { now, Deadline, DeadlineOver, type OperationOptions } from './deadline.js'
import { IndexExistsError, IndexNotFoundError, InvalidArgumentError, UnambiguousTimeoutError } from './errors.js'
import { checkOptions } from './option-names.js'
import { identifier } from './query.js'

/** Default name of a primary index. */
const PRIMARY = '#primary'
const PAUSE_MS_FIRST = 50
const PAUSE_MS_MAX = 1000

/** An index. */
export interface QueryIndex {
  name: string
  isPrimary: boolean
  type: string
  /** `online` once it can be used. */
  state: string
  indexKey: string[]
  condition?: string
  partition?: string
  collectionName?: string
  scopeName?: string
  bucketName?: string
}

/** Options that name a collection of the bucket; by default the default collection. */
export interface KeyspaceOptions extends OperationOptions {
  collectionName?: string
  scopeName?: string
}

/** Options of `createIndex`. */
export interface CreateQueryIndexOptions extends KeyspaceOptions {
  /** True if an existing index is not an error. */
  ignoreIfExists?: boolean
  numReplicas?: number
  /** True if the index is built later, by `buildDeferredIndexes`. */
  deferred?: boolean
}

/** Options of `createPrimaryIndex`. */
export interface CreatePrimaryQueryIndexOptions extends CreateQueryIndexOptions {
  name?: string
}

/** Options of `dropIndex`. */
export interface DropQueryIndexOptions extends KeyspaceOptions {
  /** True if a missing index is not an error. */
  ignoreIfNotExists?: boolean
}

/** Options of `dropPrimaryIndex`. */
export interface DropPrimaryQueryIndexOptions extends DropQueryIndexOptions {
  name?: string
}

/** Options of `watchIndexes`. */
export interface WatchQueryIndexOptions extends KeyspaceOptions {
  /** True to wait for the primary index too. */
  watchPrimary?: boolean
}

/** Manages the query indexes of a cluster. */
export class QueryIndexManager {
  readonly #cluster: Cluster

  /** @internal */
  constructor(cluster: Cluster) {
    this.#cluster = cluster
  }

  /**
   * Creates an index on expressions, such as paths of members.
   *
   * @throws IndexExistsError if it exists already.
   */
  async createIndex(
    bucketName: string,
    indexName: string,
    keys: string[],
    options: CreateQueryIndexOptions = {},
  ): Promise<void> {
    checkOptions('createIndex', options)
    if (!Array.isArray(keys) || !keys.length) throw new InvalidArgumentError('an index has keys')
    const statement = `CREATE INDEX ${identifier(indexName)} ON ${keyspace(bucketName, options)} (${keys.join(', ')})`
    await this.#create(statement, options)
  }

  /**
   * Creates a primary index.
   *
   * @throws IndexExistsError if it exists already.
   */
  async createPrimaryIndex(bucketName: string, options: CreatePrimaryQueryIndexOptions = {}): Promise<void> {
    checkOptions('createPrimaryIndex', options)
    const name = options.name === undefined ? '' : ` ${identifier(options.name)}`
    await this.#create(`CREATE PRIMARY INDEX${name} ON ${keyspace(bucketName, options)}`, options)
  }

  /**
   * Drops an index.
   *
   * @throws IndexNotFoundError if it does not exist.
   */
  async dropIndex(bucketName: string, indexName: string, options: DropQueryIndexOptions = {}): Promise<void> {
    checkOptions('dropIndex', options)
    await this.#drop(`DROP INDEX ${identifier(indexName)} ON ${keyspace(bucketName, options)}`, options)
  }

  /**
   * Drops a primary index.
   *
   * @throws IndexNotFoundError if it does not exist.
   */
  async dropPrimaryIndex(bucketName: string, options: DropPrimaryQueryIndexOptions = {}): Promise<void> {
    checkOptions('dropPrimaryIndex', options)
    const { name } = options
    const place = keyspace(bucketName, options)
    await this.#drop(
      name === undefined ? `DROP PRIMARY INDEX ON ${place}` : `DROP INDEX ${identifier(name)} ON ${place}`,
      options,
    )
  }

  /** Returns the indexes of a bucket, or of the scope or collection in the options. */
  async getAllIndexes(bucketName: string, options: KeyspaceOptions = {}): Promise<QueryIndex[]> {
    checkOptions('getAllIndexes', options)
    const { scopeName, collectionName, ...rest } = options
    const ofDefault = '(idx.bucket_id IS MISSING AND idx.keyspace_id = $bucket)'
    const conditions = ['idx.bucket_id = $bucket']
    if (scopeName !== undefined) conditions.push('idx.scope_id = $scope')
    if (collectionName !== undefined) conditions.push('idx.keyspace_id = $collection')
    const within = `(${conditions.join(' AND ')})`
    const isDefault = (name: string | undefined): boolean => name === undefined || name === '_default'
    const place = isDefault(scopeName) && isDefault(collectionName) ? `(${within} OR ${ofDefault})` : within
    const conditionsOf = `${place} AND idx.\`using\` = 'gsi'`
    const order = 'idx.is_primary DESC, idx.name'
    const statement = `SELECT idx.* FROM system:indexes AS idx WHERE ${conditionsOf} ORDER BY ${order}`
    const parameters = { bucket: bucketName, scope: scopeName ?? '_default', collection: collectionName ?? '_default' }
    const { rows } = await this.#cluster.query(statement, { ...this.#limits(rest), parameters, readOnly: true })
    return rows.map(readIndex)
  }

  /** Starts to build the indexes that were created with `deferred`, and returns their names. */
  async buildDeferredIndexes(bucketName: string, options: KeyspaceOptions = {}): Promise<string[]> {
    checkOptions('buildDeferredIndexes', options)
    const indexes = await this.getAllIndexes(bucketName, whole(options))
    const names = indexes.filter(({ state }) => state === 'deferred').map(({ name }) => name)
    if (names.length) {
      const list = names.map(identifier).join(', ')
      await this.#cluster.query(
        `BUILD INDEX ON ${keyspace(bucketName, options)} (${list})`,
        this.#limits(plain(options)),
      )
    }
    return names
  }

  /**
   * Resolves when the indexes are online.
   *
   * @throws IndexNotFoundError if an index does not exist.
   * @throws UnambiguousTimeoutError if they are not online in time.
   */
  async watchIndexes(
    bucketName: string,
    indexNames: string[],
    timeout: number,
    options: WatchQueryIndexOptions = {},
  ): Promise<void> {
    checkOptions('watchIndexes', options)
    const { watchPrimary, ...place } = options
    const wanted = new Set([...indexNames, ...(watchPrimary ? [PRIMARY] : [])])
    const deadline = new Deadline({ ...options, timeout }, timeout)
    try {
      for (let pause = PAUSE_MS_FIRST; ; pause = Math.min(pause * 2, PAUSE_MS_MAX)) {
        const remaining = Math.max(1, deadline.at - now())
        const indexes = await this.getAllIndexes(bucketName, { ...whole(place), timeout: remaining })
        const states = new Map(indexes.map(({ name, state }) => [name, state]))
        for (const name of wanted) {
          if (!states.has(name)) throw new IndexNotFoundError(`there is no index ${name}`)
        }
        if ([...wanted].every((name) => states.get(name) === 'online')) return
        await deadline.sleep(pause)
      }
    } catch (error) {
      if (error instanceof DeadlineOver) throw new UnambiguousTimeoutError('the indexes are not ready in time')
      throw error
    } finally {
      deadline.clear()
    }
  }

  async #create(statement: string, options: CreateQueryIndexOptions): Promise<void> {
    const { ignoreIfExists, numReplicas, deferred } = options
    const settings = {
      ...(deferred === undefined ? {} : { defer_build: deferred }),
      ...(numReplicas === undefined ? {} : { num_replica: numReplicas }),
    }
    const given = Object.keys(settings).length ? ` WITH ${JSON.stringify(settings)}` : ''
    await this.#carryOut(statement + given, options, ignoreIfExists ? IndexExistsError : undefined)
  }

  async #drop(statement: string, options: DropQueryIndexOptions): Promise<void> {
    await this.#carryOut(statement, options, options.ignoreIfNotExists ? IndexNotFoundError : undefined)
  }

  async #carryOut(statement: string, options: OperationOptions, ignored: (new () => Error) | undefined): Promise<void> {
    try {
      await this.#cluster.query(statement, this.#limits(plain(options)))
    } catch (error) {
      if (!ignored || !(error instanceof ignored)) throw error
    }
  }

  #limits(options: OperationOptions): OperationOptions {
    return { timeout: this.#cluster.managementTimeout, ...options }
  }
}

/** Manages the query indexes of one collection. */
export class CollectionQueryIndexManager {
  readonly #manager: QueryIndexManager
  readonly #bucketName: string
  readonly #place: { scopeName: string; collectionName: string }

  /** @internal */
  constructor(collection: Collection) {
    this.#manager = new QueryIndexManager(collection.cluster)
    this.#bucketName = collection.scope.bucket.name
    this.#place = { scopeName: collection.scope.name, collectionName: collection.name }
  }

  /** Creates an index on expressions. */
  async createIndex(
    indexName: string,
    keys: string[],
    options: Omit<CreateQueryIndexOptions, keyof KeyspaceOptions> & OperationOptions = {},
  ): Promise<void> {
    await this.#manager.createIndex(this.#bucketName, indexName, keys, { ...options, ...this.#place })
  }

  /** Creates a primary index. */
  async createPrimaryIndex(
    options: Omit<CreatePrimaryQueryIndexOptions, keyof KeyspaceOptions> & OperationOptions = {},
  ): Promise<void> {
    await this.#manager.createPrimaryIndex(this.#bucketName, { ...options, ...this.#place })
  }

  /** Drops an index. */
  async dropIndex(
    indexName: string,
    options: Omit<DropQueryIndexOptions, keyof KeyspaceOptions> & OperationOptions = {},
  ): Promise<void> {
    await this.#manager.dropIndex(this.#bucketName, indexName, { ...options, ...this.#place })
  }

  /** Drops a primary index. */
  async dropPrimaryIndex(
    options: Omit<DropPrimaryQueryIndexOptions, keyof KeyspaceOptions> & OperationOptions = {},
  ): Promise<void> {
    await this.#manager.dropPrimaryIndex(this.#bucketName, { ...options, ...this.#place })
  }

  /** Returns the indexes of the collection. */
  async getAllIndexes(options: OperationOptions = {}): Promise<QueryIndex[]> {
    return this.#manager.getAllIndexes(this.#bucketName, { ...options, ...this.#place })
  }

  /** Starts to build the indexes that were created with `deferred`, and returns their names. */
  async buildDeferredIndexes(options: OperationOptions = {}): Promise<string[]> {
    return this.#manager.buildDeferredIndexes(this.#bucketName, { ...options, ...this.#place })
  }

  /** Resolves when the indexes are online. */
  async watchIndexes(
    indexNames: string[],
    timeout: number,
    options: { watchPrimary?: boolean; signal?: AbortSignal } = {},
  ): Promise<void> {
    await this.#manager.watchIndexes(this.#bucketName, indexNames, timeout, { ...options, ...this.#place })
  }
}

function plain({ timeout, signal, parentSpan }: OperationOptions): OperationOptions {
  return {
    ...(timeout === undefined ? {} : { timeout }),
    ...(signal ? { signal } : {}),
    ...(parentSpan ? { parentSpan } : {}),
  }
}

/** Fills in the default collection. */
function whole({ scopeName = '_default', collectionName = '_default', ...options }: KeyspaceOptions): KeyspaceOptions {
  return { ...options, scopeName, collectionName }
}

function keyspace(bucketName: string, { scopeName, collectionName }: KeyspaceOptions): string {
  if (scopeName === undefined && collectionName === undefined) return identifier(bucketName)
  return [bucketName, scopeName ?? '_default', collectionName ?? '_default'].map(identifier).join('.')
}

function readIndex(index: any): QueryIndex {
  const inCollection = index.bucket_id !== undefined
  return {
    name: index.name,
    isPrimary: index.is_primary === true,
    type: index.using,
    state: index.state,
    indexKey: index.index_key ?? [],
    ...(index.condition === undefined ? {} : { condition: index.condition }),
    ...(index.partition === undefined ? {} : { partition: index.partition }),
    bucketName: inCollection ? index.bucket_id : index.keyspace_id,
    ...(inCollection ? { scopeName: index.scope_id, collectionName: index.keyspace_id } : {}),
  }
}
