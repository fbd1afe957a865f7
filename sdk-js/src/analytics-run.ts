/** Requests and responses of the analytics service. */

import {
  type AnalyticsMetaData,
  type AnalyticsMetrics,
  type AnalyticsQueryOptions,
  type AnalyticsSender,
  AnalyticsStatus,
} from './analytics.js'
import { type AnalyticsServiceError, analyticsError, errorsIn, isTemporary } from './analytics-errors.js'
import { Attempt } from './attempt.js'
import { uuid } from './bytes.js'
import { Deadline, DeadlineOver, now } from './deadline.js'
import {
  CouchbaseError,
  DecodingFailureError,
  type ErrorContext,
  InternalServerFailureError,
  UnambiguousTimeoutError,
} from './errors.js'
import type { HttpRequest } from './http-messages.js'
import { milliseconds } from './query.js'
import { RowScanner } from './rows.js'
import { watch } from './tracing.js'
import { jsonText } from './transcoders.js'

/** Retries of a request that the service refuses because it is starting or full: 2 s altogether. */
const RETRIES_MAX = 10

/** Yields the rows of a statement, and returns its metadata. */
export async function* runAnalytics<TRow>(
  sender: AnalyticsSender,
  statement: string,
  options: AnalyticsQueryOptions,
): AsyncGenerator<TRow, AnalyticsMetaData, void> {
  const clientContextId = options.clientContextId ?? uuid()
  const reads = options.readOnly === true
  const context: ErrorContext = { operation: 'analytics_query', statement, clientContextId }
  const deadline = new Deadline(options, sender.defaultMs)
  const watched = watch(sender.http.instruments, 'cbas', context, options.parentSpan)
  const attempt = new Attempt(context, deadline, watched)
  const members = requestOf(statement, options, clientContextId)
  let failure: unknown
  try {
    if (deadline.over) throw new DeadlineOver()
    for (;;) {
      const timeout = `${Math.max(1, Math.floor(deadline.at - now()))}ms`
      const request: HttpRequest = {
        method: 'POST',
        path: '/query/service',
        // The members in `raw` have precedence, also over the timeout.
        body: jsonText({ timeout, ...members }),
        reads,
        ...(options.priority ? { headers: { 'analytics-priority': '-1' } } : {}),
      }
      const { meta, errors, rowCount } = yield* rowsOf<TRow>(sender, request, attempt)
      attempt.inFlight = false
      const error = errorOf(meta, errors, context)
      if (!error) return meta
      if (rowCount || !isTemporary(errors) || (context.retryAttempts ?? 0) >= RETRIES_MAX) throw error
      // The service reports that it has done nothing.
      attempt.refusal = () => error
      await attempt.again('ANALYTICS_TEMPORARY_FAILURE')
    }
  } catch (error) {
    failure = attempt.failureOf(error, reads)
    throw failure
  } finally {
    deadline.clear()
    watched?.end(failure)
  }
}

interface Outcome {
  meta: AnalyticsMetaData
  errors: AnalyticsServiceError[]
  rowCount: number
}

async function* rowsOf<TRow>(
  { client, http }: AnalyticsSender,
  request: HttpRequest,
  attempt: Attempt,
): AsyncGenerator<TRow, Outcome, void> {
  const { context } = attempt
  const stream = await http.open(client, 'cbas', request, attempt)
  if (stream.status !== 200) {
    const { text } = await stream.whole()
    const errors = errorsIn(text)
    if (errors.length) return { meta: readMeta({}), errors, rowCount: 0 }
    throw new InternalServerFailureError(`the service answered ${stream.status}: ${text.slice(0, 1000)}`, context)
  }
  const scanner = new RowScanner('results')
  let rowCount = 0
  for await (const part of stream.parts()) {
    const rows = scanner.feed(part)
    rowCount += rows.length
    yield* rows
  }
  const rest: any = scanner.rest()
  if (rest === null || typeof rest !== 'object') throw new DecodingFailureError('the answer is no object', context)
  return { meta: readMeta(rest), errors: errorsIn(rest), rowCount }
}

function errorOf(
  { status }: AnalyticsMetaData,
  errors: AnalyticsServiceError[],
  context: ErrorContext,
): CouchbaseError | undefined {
  if (errors.length) return analyticsError(errors, context)
  if (status === AnalyticsStatus.Success) return undefined
  if (status === AnalyticsStatus.Timeout) return new UnambiguousTimeoutError('the server ran out of time', context)
  return new CouchbaseError(`the statement ended with the status ${status}`, context)
}

function requestOf(
  statement: string,
  { parameters, scanConsistency, readOnly, queryContext, raw }: AnalyticsQueryOptions,
  clientContextId: string,
): Record<string, unknown> {
  const members: Record<string, unknown> = {
    statement,
    client_context_id: clientContextId,
    scan_consistency: scanConsistency,
    readonly: readOnly,
    query_context: queryContext,
  }
  if (Array.isArray(parameters)) members['args'] = parameters
  else if (parameters) {
    for (const [name, value] of Object.entries(parameters)) members[name.startsWith('$') ? name : `$${name}`] = value
  }
  return { ...members, ...raw }
}

function readMeta({ requestID, clientContextID, status, signature, warnings, metrics }: any): AnalyticsMetaData {
  const known = Array.isArray(warnings) ? warnings : []
  return {
    requestId: requestID,
    clientContextId: clientContextID,
    status: Object.values(AnalyticsStatus).includes(status) ? status : AnalyticsStatus.Unknown,
    ...(signature === undefined ? {} : { signature }),
    warnings: known.map((warning) => ({ code: warning?.code, message: String(warning?.msg) })),
    metrics: readMetrics(metrics ?? {}),
  }
}

function readMetrics(metrics: any): AnalyticsMetrics {
  return {
    elapsedTime: milliseconds(metrics.elapsedTime),
    executionTime: milliseconds(metrics.executionTime),
    resultCount: metrics.resultCount ?? 0,
    resultSize: metrics.resultSize ?? 0,
    errorCount: metrics.errorCount ?? 0,
    processedObjects: metrics.processedObjects ?? 0,
    warningCount: metrics.warningCount ?? 0,
  }
}
