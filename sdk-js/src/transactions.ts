/**
 * Transactions: changes of several documents that take effect together, or not at all.
 *
 *     await cluster.transactions().run(async (attempt) => {
 *       const account = await attempt.get(accounts, 'a')
 *       await attempt.replace(account, { ...account.content, balance: 7 })
 *     })
 *
 * An attempt notes itself in a record, stages its changes in the documents, commits by one write to the record, and then
 * writes the changes out. Whoever finds something staged goes by the record. Where nobody finishes what has begun, the
 * server does, or a client of the official SDKs. An attempt that another one disturbs is rolled back and made again.
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
export type { DocumentId, TransactionGetResult } from './transaction-attempt.js'

/** A collection. */
export interface TransactionKeyspace {
  bucket: string
  scope?: string
  collection?: string
}

/** What is done about attempts that nobody has finished; the server does it, so that nothing depends on it here. */
export interface TransactionsCleanupConfig {
  cleanupWindow?: number
  disableLostAttemptCleanup?: boolean
  disableClientAttemptCleanup?: boolean
}

/** What statements in transactions do that do not say otherwise. */
export interface TransactionsQueryConfig {
  scanConsistency?: QueryScanConsistency
}

/** What transactions do that do not say otherwise. */
export interface TransactionsConfig {
  /** What every write waits for (a majority of the copies). */
  durabilityLevel?: DurabilityLevel
  /** How long one operation may take, in ms. */
  kvTimeout?: number
  /** How long a transaction may take with all its attempts, in ms (15,000). */
  timeout?: number
  queryConfig?: TransactionsQueryConfig
  cleanupConfig?: TransactionsCleanupConfig
  /** Where records are; the default collection of the first document's bucket if not given. */
  metadataCollection?: TransactionKeyspace
}

/** Options of `run`. */
export interface TransactionOptions {
  durabilityLevel?: DurabilityLevel
  /** How long the transaction may take with all its attempts, in ms. */
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
  /** Scope that names without bucket and scope belong to. */
  scope?: Scope
}

/** All rows of a statement in a transaction. */
export interface TransactionQueryResult<TRow = any> {
  rows: TRow[]
  meta: QueryMetaData
}

/** Outcome of a transaction that was committed. */
export interface TransactionResult {
  transactionId: string
  /** Whether every change is written out; if not, readers outside of transactions see it soon. */
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
   * Carries out a transaction. `logic` is called again when another transaction has come between: it may do nothing but
   * operations of the attempt, and must await each of them. When it throws, the transaction is rolled back.
   *
   * @throws TransactionFailedError it was rolled back; the cause says why.
   * @throws TransactionExpiredError its time was over.
   * @throws TransactionCommitAmbiguousError it is unknown whether it was committed.
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
