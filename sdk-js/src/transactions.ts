/**
 * Transactions: atomic changes of several documents.
 *
 *     await cluster.transactions().run(async (attempt) => {
 *       const account = await attempt.get(accounts, 'a')
 *       await attempt.replace(account, { ...account.content, balance: 7 })
 *     })
 *
 * An attempt registers in a record, stages its changes in the documents, commits by one write to the record, and then
 * unstages the changes. A reader that finds a staged change consults the record. The server, or a client of the
 * official SDKs, finishes abandoned attempts. An attempt that conflicts with another one is rolled back and repeated.
 */

import { now } from './deadline.js'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

import type { TransactionAttemptContext } from './transaction-attempt.js'
import type { Cluster } from './cluster.js'
import { InvalidArgumentError } from './errors.js'
import { checkOptions } from './option-names.js'
import { DurabilityLevel } from './options.js'
import type { QueryMetaData, QueryOptions, QueryScanConsistency } from './query.js'
import type { Scope } from './bucket.js'

export type { TransactionAttemptContext } from './transaction-attempt.js'
export type {
  DocumentId,
  TransactionGetMultiOptions,
  TransactionGetMultiReplicasFromPreferredServerGroupOptions,
  TransactionGetOptions,
  TransactionGetReplicaFromPreferredServerGroupOptions,
  TransactionGetResult,
  TransactionInsertOptions,
  TransactionReplaceOptions,
} from './transaction-attempt.js'

/** A collection. */
export interface TransactionKeyspace {
  bucket: string
  scope?: string
  collection?: string
}

/** Settings of the cleanup of unfinished attempts. They have no effect, because the server does the cleanup. */
export interface TransactionsCleanupConfig {
  cleanupWindow?: number
  disableLostAttemptCleanup?: boolean
  disableClientAttemptCleanup?: boolean
}

/** Defaults of statements in transactions. */
export interface TransactionsQueryConfig {
  scanConsistency?: QueryScanConsistency
}

/** Defaults of transactions. */
export interface TransactionsConfig {
  /** Durability of every write (a majority of the copies). */
  durabilityLevel?: DurabilityLevel
  /** Timeout of an operation, in ms. */
  kvTimeout?: number
  /** Timeout of a transaction including all its attempts, in ms (15,000). */
  timeout?: number
  queryConfig?: TransactionsQueryConfig
  cleanupConfig?: TransactionsCleanupConfig
  /** The collection for records; by default the default collection of the first document's bucket. */
  metadataCollection?: TransactionKeyspace
}

/** Options of `run`. */
export interface TransactionOptions {
  durabilityLevel?: DurabilityLevel
  /** Timeout of the transaction including all its attempts, in ms. */
  timeout?: number
}

/** Options of statements in transactions. */
export interface TransactionQueryOptions extends Pick<
  QueryOptions,
  | 'parameters'
  | 'scanConsistency'
  | 'adhoc'
  | 'clientContextId'
  | 'maxParallelism'
  | 'pipelineBatch'
  | 'pipelineCap'
  | 'scanWait'
  | 'scanCap'
  | 'readOnly'
  | 'profile'
  | 'metrics'
  | 'raw'
> {
  /** Scope for unqualified names. */
  scope?: Scope
}

/** All rows of a statement in a transaction. */
export interface TransactionQueryResult<TRow = any> {
  rows: TRow[]
  meta: QueryMetaData
}

/** Result of a committed transaction. */
export interface TransactionResult {
  transactionId: string
  /** True if every change is unstaged. Otherwise, readers outside transactions will see the changes soon. */
  unstagingComplete: boolean
}

const TIMEOUT_MS = 15_000
const PAUSE_MS_MAX = 100

/** Transactions of a cluster. */
export class Transactions {
  readonly #cluster: Cluster
  readonly #config: TransactionsConfig

  /** @internal */
  constructor(cluster: Cluster, config: TransactionsConfig) {
    this.#cluster = cluster
    this.#config = config
  }

  /**
   * Executes a transaction. If it conflicts with another transaction, `logic` is called again. `logic` must only run
   * operations of the attempt, and must await each of them. If it throws, the transaction is rolled back.
   *
   * @throws TransactionFailedError if it was rolled back; the `cause` contains the reason.
   * @throws TransactionExpiredError if it has timed out.
   * @throws TransactionCommitAmbiguousError if it may have been committed.
   */
  async run(
    logic: (attempt: TransactionAttemptContext) => Promise<unknown>,
    options: TransactionOptions = {},
  ): Promise<TransactionResult> {
    checkOptions('transactions.run', options)
    if (typeof logic !== 'function') throw new InvalidArgumentError('a transaction is a function')
    const timeout = options.timeout ?? this.#config.timeout ?? TIMEOUT_MS
    if (!(timeout > 0)) throw new InvalidArgumentError('a time-out is a positive number of ms')
    const transactionId = randomUUID()
    const setting = {
      transactionId,
      end: now() + timeout,
      level: options.durabilityLevel ?? this.#config.durabilityLevel ?? DurabilityLevel.Majority,
      config: this.#config,
    }
    const { TransactionAttemptContext } = await import('./transaction-attempt.js')
    for (let pause = 1; ; pause = Math.min(pause * 2, PAUSE_MS_MAX)) {
      const attempt = new TransactionAttemptContext(this.#cluster, setting)
      let thrown: unknown
      try {
        await logic(attempt)
        return { transactionId, unstagingComplete: await attempt.commit() }
      } catch (error) {
        thrown = error
      }
      const failure = attempt.failureOf(thrown)
      if (failure.rollsBack) await attempt.rollBack()
      if (!failure.isRetried || now() >= setting.end) throw failure.raised(isOver(setting.end))
      await sleep(pause * (0.5 + Math.random() / 2))
    }
  }
}

function isOver(end: number): boolean {
  return now() >= end
}
