/**
 * Statements of the analytics service: `cluster.analyticsQuery(…)` and `scope.analyticsQuery(…)`.
 *
 * The service keeps copies of collections, over which it runs large queries. The code that sends statements is loaded
 * with the first one.
 */

import type { OperationOptions } from './deadline.js'
import { InvalidArgumentError } from './errors.js'
import type { HttpTransport, Nodes } from './http-messages.js'
import { QueryStatus } from './query.js'
import { StreamablePromise } from './streamable.js'

/** Final status of a statement. */
export const AnalyticsStatus: typeof QueryStatus = QueryStatus
/** Final status of a statement. */
export type AnalyticsStatus = QueryStatus

/** Consistency of a statement with earlier mutations. */
export const AnalyticsScanConsistency = {
  /** The statement reads the copies as they are. */
  NotBounded: 'not_bounded',
  /** The statement waits until the copies have every mutation before the request. */
  RequestPlus: 'request_plus',
} as const
/** Consistency of a statement with earlier mutations. */
export type AnalyticsScanConsistency = (typeof AnalyticsScanConsistency)[keyof typeof AnalyticsScanConsistency]

/** Options of `analyticsQuery`. */
export interface AnalyticsQueryOptions extends OperationOptions {
  /** Values of `$name`, or of `$1`, `$2`, … if it is an array. */
  parameters?: Record<string, any> | any[]
  scanConsistency?: AnalyticsScanConsistency
  /** ID of the request in logs; random by default. */
  clientContextId?: string
  /** True if the service starts the statement before others that wait. */
  priority?: boolean
  /** True if the statement must not change anything. It is then resent when its connection breaks. */
  readOnly?: boolean
  /** Dataverse for unqualified names, as `` default:`bucket`.`scope` ``. */
  queryContext?: string
  /** Further members of the request. */
  raw?: Record<string, any>
}

/** A warning of the service, which it collects if `raw` has `max-warnings`. */
export interface AnalyticsWarning {
  code: number
  message: string
}

/** Metrics of a statement. Times are in milliseconds. */
export interface AnalyticsMetrics {
  elapsedTime: number
  executionTime: number
  resultCount: number
  resultSize: number
  errorCount: number
  /** Number of documents that the service has read. */
  processedObjects: number
  warningCount: number
}

/** Metadata of a result. */
export interface AnalyticsMetaData {
  requestId: string
  clientContextId: string
  status: AnalyticsStatus
  signature?: any
  warnings: AnalyticsWarning[]
  metrics: AnalyticsMetrics
}

/** All rows of a statement. */
export interface AnalyticsResult<TRow = any> {
  rows: TRow[]
  meta: AnalyticsMetaData
}

/** A running statement: await it, or iterate over its rows with `for await`. */
export type AnalyticsQuery<TRow> = StreamablePromise<AnalyticsResult<TRow>, TRow, AnalyticsMetaData>

/** Sends statements. */
export interface AnalyticsSender {
  client: Nodes
  http: HttpTransport
  defaultMs: number
}

/** Starts a statement. */
export function startAnalyticsQuery<TRow>(
  sender: AnalyticsSender,
  statement: string,
  options: AnalyticsQueryOptions,
): AnalyticsQuery<TRow> {
  if (typeof statement !== 'string' || !statement) throw new InvalidArgumentError('a statement is a string')
  async function* source(): AsyncGenerator<TRow, AnalyticsMetaData, void> {
    const { runAnalytics } = await import('./analytics-run.js')
    return yield* runAnalytics<TRow>(sender, statement, options)
  }
  return new StreamablePromise(source, (rows, meta) => ({ rows, meta }), { item: 'row', meta: 'meta' })
}
