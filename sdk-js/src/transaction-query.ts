/** Transactions in the query service. From the first statement on, all operations of an attempt go through it. */

import { now } from './deadline.js'
import type { Cluster } from './cluster.js'
import type { Collection } from './collection.js'
import type { Address } from './connection-string.js'
import {
  CasMismatchError,
  CouchbaseError,
  DecodingFailureError,
  DocumentNotFoundError,
  TransactionCommitAmbiguousError,
  TransactionExpiredError,
} from './errors.js'
import type { DurabilityLevel } from './options.js'
import { type QueryOptions, type QueryResult, startQuery } from './query.js'
import { Failure, type Staged } from './transaction-attempt.js'
import { RECORD_COUNT } from './transaction-records.js'
import type { TransactionsConfig } from './transactions.js'

/** The state of an attempt that is handed over to the service. */
export interface Handover {
  transactionId: string
  attemptId: string
  end: number
  level: DurabilityLevel
  config: TransactionsConfig
  staged: Staged[]
  record?: { collection: Collection; key: string }
  queryContext?: string
}

const LEVELS = ['none', 'majority', 'majorityAndPersistActive', 'persistToMajority']
/** Additional time for the last request after the end of the transaction's time. */
const OVERTIME_MS = 1000

/** A transaction at a node of the query service. */
export class TransactionQuery {
  readonly #cluster: Cluster
  readonly #end: number
  #node: Address | undefined
  #id: string | undefined

  private constructor(cluster: Cluster, end: number) {
    this.#cluster = cluster
    this.#end = end
  }

  /** Hands over an attempt. */
  static async begin(cluster: Cluster, handover: Handover): Promise<TransactionQuery> {
    const { transactionId, attemptId, end, level, config, staged, record, queryContext } = handover
    const query = new TransactionQuery(cluster, end)
    const remaining = Math.max(1, Math.floor(end - now()))
    const { metadataCollection: place } = config
    const members = {
      txdata: {
        id: { txn: transactionId, atmpt: attemptId },
        state: { timeLeftMs: remaining },
        config: {
          kvTimeoutMs: config.kvTimeout ?? cluster.kvDurableTimeout,
          durabilityLevel: LEVELS[level],
          numAtrs: RECORD_COUNT,
        },
        mutations: staged.map(({ type, collection, key, cas }) => ({
          ...place4(collection),
          id: key,
          cas: String(cas),
          type: type.toUpperCase(),
        })),
        ...(record ? { atr: { ...place4(record.collection), id: record.key } } : {}),
      },
      txtimeout: `${remaining}ms`,
      durability_level: LEVELS[level],
      numatrs: RECORD_COUNT,
      ...(place ? { atrcollection: keyspaceOf(place.bucket, place.scope, place.collection) } : {}),
    }
    const { scanConsistency } = config.queryConfig ?? {}
    const options = { ...(queryContext ? { queryContext } : {}), ...(scanConsistency ? { scanConsistency } : {}) }
    const { rows } = await query.run<{ txid?: string }>('BEGIN WORK', options, members)
    query.#id = rows[0]?.txid
    if (typeof query.#id !== 'string') throw new DecodingFailureError('the name of the transaction is missing')
    return query
  }

  /** A document. */
  async get(collection: Collection, key: string): Promise<{ cas: bigint; doc: any }> {
    const [row] = await this.#call('__get', [keyspace(collection), key], { kv: true })
    if (!row) throw new DocumentNotFoundError(undefined, { key })
    return { cas: BigInt(row.scas), doc: row.doc }
  }

  /** Stages a new document. */
  async insert(collection: Collection, key: string, content: unknown): Promise<{ cas: bigint }> {
    const [row] = await this.#call('__insert', [keyspace(collection), key, content, {}], { kv: true })
    return { cas: BigInt(row.scas) }
  }

  /** Stages other content. */
  async update(collection: Collection, key: string, cas: bigint, content: unknown): Promise<{ cas: bigint }> {
    const args = [keyspace(collection), key, content, {}]
    const [row] = await this.#failing(this.#call('__update', args, { kv: true, scas: String(cas) }))
    return { cas: BigInt(row.scas) }
  }

  /** Stages a removal. */
  async remove(collection: Collection, key: string, cas: bigint): Promise<void> {
    await this.#failing(this.#call('__delete', [keyspace(collection), key, {}], { kv: true, scas: String(cas) }))
  }

  /** Executes a statement. */
  async run<TRow>(
    statement: string,
    options: QueryOptions,
    members: Record<string, unknown> = {},
  ): Promise<QueryResult<TRow>> {
    const timeout = Math.max(OVERTIME_MS, this.#end - now())
    const special = {
      members: { ...members, ...(this.#id === undefined ? {} : { txid: this.#id }) },
      onNode: (node: Address) => (this.#node ??= node),
      ...(this.#node ? { node: this.#node } : {}),
    }
    try {
      return await startQuery<TRow>(this.#cluster.sender, statement, { timeout, ...options }, special)
    } catch (error) {
      throw translated(error)
    }
  }

  /** Commits. */
  async commit(): Promise<void> {
    await this.run('COMMIT', {})
  }

  /** Rolls back. */
  async rollBack(): Promise<void> {
    await this.run('ROLLBACK', {})
  }

  async #call(name: string, parameters: unknown[], txdata: object): Promise<any[]> {
    return (await this.run<any>(`EXECUTE ${name}`, { parameters }, { txdata })).rows
  }

  /** Fails the attempt if a document has changed since it was read. */
  async #failing<T>(work: Promise<T>): Promise<T> {
    try {
      return await work
    } catch (error) {
      throw error instanceof DocumentNotFoundError ? new Failure(error, { isRetried: true }) : error
    }
  }
}

/** Translates an error of the service, according to its cause or its class. */
function translated(error: unknown): unknown {
  if (!(error instanceof CouchbaseError)) return error
  const told = error.context.errorCause
  if (error instanceof TransactionExpiredError) return new Failure(error, { kind: 'expired' })
  if (error instanceof TransactionCommitAmbiguousError)
    return new Failure(error, { kind: 'ambiguous', rollsBack: false })
  if (error instanceof CasMismatchError) return new Failure(error, { isRetried: true })
  if (typeof told !== 'object' || told === null || told.retry === undefined) return error
  const kind = told.raise === 'expired' ? 'expired' : told.raise === 'commit_ambiguous' ? 'ambiguous' : 'failed'
  return new Failure(error, { isRetried: told.retry === true, rollsBack: told.rollback !== false, kind })
}

function place4({ scope, name }: Collection): { bkt: string; scp: string; coll: string } {
  return { bkt: scope.bucket.name, scp: scope.name, coll: name }
}

function keyspaceOf(bucket: string, scope = '_default', collection = '_default'): string {
  return `default:\`${bucket}\`.\`${scope}\`.\`${collection}\``
}

function keyspace({ scope, name }: Collection): string {
  return keyspaceOf(scope.bucket.name, scope.name, name)
}
