/**
 * Statements of SQL++: `cluster.query(…)` and `scope.query(…)`.
 *
 * Rows are read as they arrive, no faster than the caller takes them. With `adhoc: false` a statement is prepared at
 * its first use, and its name sent from then on.
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
  RequestCanceledError,
} from './errors.js'
import { ConnectionFailed, type HttpRequest, type HttpTransport, type Nodes } from './http-messages.js'
import { Attempt } from './attempt.js'
import type { MutationState } from './mutation-state.js'
import { isPreparedFailure, queryError, type ServiceError } from './query-errors.js'
import { RowScanner } from './rows.js'
import { StreamablePromise } from './streamable.js'
import { watch } from './tracing.js'
import { jsonText } from './transcoders.js'

/** How a statement ended. */
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
/** How a statement ended. */
export type QueryStatus = (typeof QueryStatus)[keyof typeof QueryStatus]

/** How much the server tells about what it did. */
export const QueryProfileMode = {
  Off: 'off',
  Phases: 'phases',
  Timings: 'timings',
} as const
/** How much the server tells about what it did. */
export type QueryProfileMode = (typeof QueryProfileMode)[keyof typeof QueryProfileMode]

/** Whether a statement waits for the indexes. */
export const QueryScanConsistency = {
  /** It uses them as they are. */
  NotBounded: 'not_bounded',
  /** It waits until they have every mutation before the request. */
  RequestPlus: 'request_plus',
} as const
/** Whether a statement waits for the indexes. */
export type QueryScanConsistency = (typeof QueryScanConsistency)[keyof typeof QueryScanConsistency]

/** Options of `query`. */
export interface QueryOptions extends OperationOptions {
  /** Values of `$name`, or of `$1`, `$2`, … if it is an array. */
  parameters?: Record<string, any> | any[]
  scanConsistency?: QueryScanConsistency
  /** The statement sees these mutations. */
  consistentWith?: MutationState
  /** False: the statement is prepared once, and only its name is sent later. */
  adhoc?: boolean
  /** The planner may use indexes of the search service. */
  flexIndex?: boolean
  /** Documents that the statement changes keep their expiry. */
  preserveExpiry?: boolean
  /** Text by which the request is found in logs; random if not given. */
  clientContextId?: string
  maxParallelism?: number
  pipelineBatch?: number
  pipelineCap?: number
  /** How long to wait for an index, in ms. */
  scanWait?: number
  scanCap?: number
  /** The statement may not change anything; it is then sent again when its connection breaks. */
  readOnly?: boolean
  /** Replicas may be read. */
  useReplica?: boolean
  profile?: QueryProfileMode
  /** The result has metrics. */
  metrics?: boolean
  /** Bucket and scope that names without them belong to, as `` default:`bucket`.`scope` ``. */
  queryContext?: string
  /** Further members of the request. */
  raw?: Record<string, any>
}

/** A warning of the server. */
export interface QueryWarning {
  code: number
  message: string
}

/** What a statement cost; times are milliseconds. */
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

/** What the server says about a result. */
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

/** A statement under way: await it, or go through its rows with `for await`. */
export type Query<TRow> = StreamablePromise<QueryResult<TRow>, TRow, QueryMetaData>

/** What sends statements. */
export interface Sender {
  client: Nodes
  http: HttpTransport
  defaultMs: number
  /** Names of prepared statements. */
  prepared: Map<string, string>
}

/** What only transactions say. */
export interface Special {
  /** The node that the transaction is at. */
  node?: Address
  /** Takes the node that has answered. */
  onNode?: (node: Address) => void
  /** Further members of the request. */
  members?: Record<string, unknown>
}

const PREPARED_MAX = 5000

/** Begins a statement. */
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
      // The server says that it has done nothing and may succeed later.
      attempt.refusal = () => queryError(errors, context, reads)
      await attempt.again('QUERY_ERROR_RETRYABLE')
    }
  } catch (error) {
    failure = error
    if (error instanceof DeadlineOver) failure = attempt.expired(reads)
    if (error instanceof ConnectionFailed) failure = new RequestCanceledError(error.message, context, error.cause)
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
  special.onNode?.(addressOf(attempt.context.endpoint!))
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

/** How a statement is sent that is prepared: by its name, or else to be prepared and carried out. */
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
      // The one that was used last goes last.
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

/** A duration as the service writes it, such as `1m2.5s`, in milliseconds. */
export function milliseconds(duration: unknown): number {
  let sum = 0
  for (const [, number, unit] of String(duration).matchAll(/([\d.]+)(h|ms|m|s|us|µs|ns)/g))
    sum += Number(number) * UNITS[unit!]!
  return sum
}

/** The query context of a scope. */
export function contextOf(bucket: string, scope: string): string {
  return `default:${identifier(bucket)}.${identifier(scope)}`
}

/** A name as statements contain it. */
export function identifier(name: string): string {
  if (typeof name !== 'string' || !name) throw new InvalidArgumentError('a name is a string that is not empty')
  return `\`${name.replaceAll('`', '``')}\``
}
