/**
 * SQL++ statements: `cluster.query(…)` and `scope.query(…)`.
 *
 * The client streams the rows at the pace of the caller. With `adhoc: false`, it prepares a statement on first use, and
 * sends only its name afterwards.
 */

import { uuid } from './bytes.js'
import type { Address } from './connection-string.js'
import { now, Deadline, DeadlineOver, type OperationOptions } from './deadline.js'
import {
  DecodingFailureError,
  type ErrorContext,
  FeatureNotAvailableError,
  InternalServerFailureError,
  InvalidArgumentError,
} from './errors.js'
import type { HttpRequest, HttpTransport, Nodes } from './http-messages.js'
import { Attempt } from './attempt.js'
import type { MutationState } from './mutation-state.js'
import { isPreparedFailure, queryError, type ServiceError } from './query-errors.js'
import { RowScanner } from './rows.js'
import { StreamablePromise } from './streamable.js'
import { watch } from './tracing.js'
import { jsonText } from './transcoders.js'

/** Final status of a statement. */
export const QueryStatus = {
  Running: 'running',
  Success: 'success',
  Errors: 'errors',
  Completed: 'completed',
  Stopped: 'stopped',
  Timeout: 'timeout',
  Closed: 'closed',
  Fatal: 'fatal',
  Aborted: 'aborted',
  Unknown: 'unknown',
} as const
/** Final status of a statement. */
export type QueryStatus = (typeof QueryStatus)[keyof typeof QueryStatus]

/** Detail of the profile that the server returns. */
export const QueryProfileMode = {
  Off: 'off',
  Phases: 'phases',
  Timings: 'timings',
} as const
/** Detail of the profile that the server returns. */
export type QueryProfileMode = (typeof QueryProfileMode)[keyof typeof QueryProfileMode]

/** Consistency of a statement's index scans. */
export const QueryScanConsistency = {
  /** The scans use the indexes as they are. */
  NotBounded: 'not_bounded',
  /** The scans wait until the indexes reflect every mutation before the request. */
  RequestPlus: 'request_plus',
} as const
/** Consistency of a statement's index scans. */
export type QueryScanConsistency = (typeof QueryScanConsistency)[keyof typeof QueryScanConsistency]

/** Options of `query`. */
export interface QueryOptions extends OperationOptions {
  /** Values of `$name`, or of `$1`, `$2`, … if it is an array. */
  parameters?: Record<string, any> | any[]
  scanConsistency?: QueryScanConsistency
  /** Mutations that the statement must reflect. */
  consistentWith?: MutationState
  /** If false, the statement is prepared once, and later requests only send its name. */
  adhoc?: boolean
  /** True if the planner may use search indexes. */
  flexIndex?: boolean
  /** True if changed documents keep their expiry. */
  preserveExpiry?: boolean
  /** ID of the request in logs; random by default. */
  clientContextId?: string
  maxParallelism?: number
  pipelineBatch?: number
  pipelineCap?: number
  /** Maximum wait for an index, in ms. */
  scanWait?: number
  scanCap?: number
  /** True if the statement must not change anything. It is then resent when its connection breaks. */
  readOnly?: boolean
  /** True if the statement may read replicas. */
  useReplica?: boolean
  profile?: QueryProfileMode
  /** True if the result contains metrics. */
  metrics?: boolean
  /** Bucket and scope for unqualified names, as `` default:`bucket`.`scope` ``. */
  queryContext?: string
  /** Further members of the request. */
  raw?: Record<string, any>
}

/** A warning of the server. */
export interface QueryWarning {
  code: number
  message: string
}

/** Metrics of a statement. Times are in milliseconds. */
export interface QueryMetrics {
  elapsedTime: number
  executionTime: number
  sortCount: number
  resultCount: number
  resultSize: number
  mutationCount: number
  errorCount: number
  warningCount: number
}

/** Metadata of a result. */
export interface QueryMetaData {
  requestId: string
  clientContextId: string
  status: QueryStatus
  signature?: any
  warnings: QueryWarning[]
  metrics?: QueryMetrics
  profile?: any
}

/** All rows of a statement. */
export interface QueryResult<TRow = any> {
  rows: TRow[]
  meta: QueryMetaData
}

/** A running statement: await it, or iterate over its rows with `for await`. */
export type Query<TRow> = StreamablePromise<QueryResult<TRow>, TRow, QueryMetaData>

/** Sends statements. */
export interface Sender {
  client: Nodes
  http: HttpTransport
  defaultMs: number
  /** Names of prepared statements. */
  prepared: Map<string, string>
}

/** Parameters for transactions only. */
export interface Special {
  /** The node of the transaction. */
  node?: Address
  /** Receives the node that has responded. */
  onNode?: (node: Address) => void
  /** Further members of the request. */
  members?: Record<string, unknown>
}

const PREPARED_MAX = 5000

/** Starts a statement. */
export function startQuery<TRow>(
  sender: Sender,
  statement: string,
  options: QueryOptions,
  special: Special = {},
): Query<TRow> {
  if (typeof statement !== 'string' || !statement) throw new InvalidArgumentError('a statement is a string')
  const source = () => run<TRow>(sender, statement, options, special)
  return new StreamablePromise(source, (rows, meta) => ({ rows, meta }), { item: 'row', meta: 'meta' })
}

async function* run<TRow>(
  sender: Sender,
  statement: string,
  options: QueryOptions,
  special: Special,
): AsyncGenerator<TRow, QueryMetaData, void> {
  const clientContextId = options.clientContextId ?? uuid()
  const reads = options.readOnly === true
  const members = requestOf(options, special, clientContextId)
  const context: ErrorContext = { operation: 'query', statement, clientContextId }
  const deadline = new Deadline(options, sender.defaultMs)
  const watched = watch(sender.http.instruments, 'n1ql', context, options.parentSpan)
  const attempt = new Attempt(context, deadline, watched)
  let failure: unknown
  try {
    if (deadline.over) throw new DeadlineOver()
    for (let isAgain = false; ;) {
      members['timeout'] = `${Math.max(1, Math.floor(deadline.at - now()))}ms`
      const prepared = options.adhoc === false ? preparation(sender, statement, options) : undefined
      const body = jsonText({ ...members, ...(prepared?.members ?? { statement }) })
      const request = {
        method: 'POST',
        path: '/query/service',
        body,
        reads,
        ...(special.node ? { node: special.node } : {}),
      } as const
      const { meta, errors, name, rowCount } = yield* rowsOf<TRow>(sender, request, attempt, special)
      attempt.inFlight = false
      if (!errors.length && meta.status === QueryStatus.Success) {
        if (prepared && name !== undefined) prepared.keep(name)
        return { ...meta, clientContextId: meta.clientContextId ?? clientContextId }
      }
      if (rowCount) throw queryError(errors, context, reads)
      if (prepared && !isAgain && errors.some(isPreparedFailure)) {
        prepared.forget()
        isAgain = true
        continue
      }
      if (!errors.length || !errors.every(({ retry }) => retry === true)) throw queryError(errors, context, reads)
      // The server reports that it has done nothing and that a retry may succeed.
      attempt.refusal = () => queryError(errors, context, reads)
      await attempt.again('QUERY_ERROR_RETRYABLE')
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
  meta: QueryMetaData
  errors: ServiceError[]
  /** Name of the prepared statement. */
  name: string | undefined
  rowCount: number
}

async function* rowsOf<TRow>(
  { client, http }: Sender,
  request: HttpRequest,
  attempt: Attempt,
  special: Special,
): AsyncGenerator<TRow, Outcome, void> {
  const stream = await http.open(client, 'n1ql', request, attempt)
  // An embedded database has no address, and no transactions either.
  if (attempt.context.endpoint !== undefined) special.onNode?.(addressOf(attempt.context.endpoint))
  const scanner = new RowScanner('results')
  let rowCount = 0
  for await (const part of stream.parts()) {
    const rows = scanner.feed(part)
    rowCount += rows.length
    yield* rows
  }
  let rest: any
  try {
    rest = scanner.rest()
  } catch (error) {
    if (stream.status >= 300)
      throw new InternalServerFailureError(`the service answered ${stream.status}`, attempt.context)
    throw error
  }
  return { ...readOutcome(rest, attempt.context), rowCount }
}

function readOutcome(rest: any, context: ErrorContext): Omit<Outcome, 'rowCount'> {
  if (rest === null || typeof rest !== 'object') throw new DecodingFailureError('the answer is no object', context)
  const { metrics, profile, signature } = rest
  const warnings = list(rest.warnings).map(({ code, msg }) => ({ code, message: String(msg) }))
  const meta: QueryMetaData = {
    requestId: rest.requestID,
    clientContextId: rest.clientContextID,
    status: Object.values(QueryStatus).includes(rest.status) ? rest.status : QueryStatus.Unknown,
    warnings,
    ...(signature === undefined ? {} : { signature }),
    ...(metrics ? { metrics: readMetrics(metrics) } : {}),
    ...(profile === undefined ? {} : { profile }),
  }
  return { meta, errors: list(rest.errors), name: rest.prepared }
}

function list(value: unknown): any[] {
  return Array.isArray(value) ? value.filter((item) => item !== null && typeof item === 'object') : []
}

function addressOf(text: string): Address {
  const colon = text.lastIndexOf(':')
  return { host: text.slice(0, colon).replace(/^\[|\]$/g, ''), port: Number(text.slice(colon + 1)) }
}

/** Returns the request for a prepared statement: its name, or a request to prepare and execute it. */
function preparation(
  { prepared }: Sender,
  statement: string,
  options: QueryOptions,
): { members: Record<string, unknown>; keep: (name: string) => void; forget: () => void } {
  const key = `${options.queryContext ?? ''}\n${statement}`
  const name = prepared.get(key)
  return {
    members: name === undefined ? { statement: `PREPARE ${statement}`, auto_execute: true } : { prepared: name },
    keep: (given) => {
      // The cache is ordered by last use.
      prepared.delete(key)
      prepared.set(key, given)
      if (prepared.size > PREPARED_MAX) prepared.delete(prepared.keys().next().value!)
    },
    forget: () => prepared.delete(key),
  }
}

function requestOf(options: QueryOptions, special: Special, clientContextId: string): Record<string, unknown> {
  const { parameters, consistentWith, scanWait } = options
  if (consistentWith && options.scanConsistency !== undefined) {
    throw new InvalidArgumentError('scanConsistency and consistentWith exclude each other')
  }
  if (options.useReplica !== undefined && options.useReplica) {
    throw new FeatureNotAvailableError('queries read active copies only')
  }
  const members: Record<string, unknown> = {
    client_context_id: clientContextId,
    metrics: options.metrics ?? false,
    scan_consistency: consistentWith ? 'at_plus' : options.scanConsistency,
    scan_vectors: consistentWith?.toJSON(),
    scan_wait: scanWait === undefined ? undefined : `${scanWait}ms`,
    scan_cap: text(options.scanCap),
    max_parallelism: text(options.maxParallelism),
    pipeline_batch: text(options.pipelineBatch),
    pipeline_cap: text(options.pipelineCap),
    profile: options.profile,
    readonly: options.readOnly,
    use_fts: options.flexIndex,
    preserve_expiry: options.preserveExpiry,
    query_context: options.queryContext,
  }
  if (Array.isArray(parameters)) members['args'] = parameters
  else if (parameters) {
    for (const [name, value] of Object.entries(parameters)) members[name.startsWith('$') ? name : `$${name}`] = value
  }
  return { ...members, ...options.raw, ...special.members }
}

function text(value: number | undefined): string | undefined {
  return value === undefined ? undefined : String(value)
}

function readMetrics(metrics: any): QueryMetrics {
  return {
    elapsedTime: milliseconds(metrics.elapsedTime),
    executionTime: milliseconds(metrics.executionTime),
    sortCount: metrics.sortCount ?? 0,
    resultCount: metrics.resultCount ?? 0,
    resultSize: metrics.resultSize ?? 0,
    mutationCount: metrics.mutationCount ?? 0,
    errorCount: metrics.errorCount ?? 0,
    warningCount: metrics.warningCount ?? 0,
  }
}

const UNITS: Record<string, number> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, µs: 1e-3, ns: 1e-6 }

/** Parses a duration such as `1m2.5s` into milliseconds. */
export function milliseconds(duration: unknown): number {
  let sum = 0
  for (const [, number, unit] of String(duration).matchAll(/([\d.]+)(h|ms|m|s|us|µs|ns)/g))
    sum += Number(number) * UNITS[unit!]!
  return sum
}

/** Returns the query context of a scope. */
export function contextOf(bucket: string, scope: string): string {
  return `default:${identifier(bucket)}.${identifier(scope)}`
}

/** Quotes a name for statements. */
export function identifier(name: string): string {
  if (typeof name !== 'string' || !name) throw new InvalidArgumentError('a name is a string that is not empty')
  return `\`${name.replaceAll('`', '``')}\``
}
