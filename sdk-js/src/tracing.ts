/**
 * Spans and durations of operations, for clients with a tracer or a meter: `connect(…, { tracer, meter })`. Without
 * these, operations have no overhead.
 *
 * The interfaces and the names of attributes and tags are those of the official SDK. An operation has a span, with a
 * child span named `dispatch_to_server` for each request. `getOTelTracer` and `getOTelMeter` connect them to
 * OpenTelemetry.
 */

import type { ErrorContext } from './errors.js'

/** A span: the duration of an operation, and its attributes. */
export interface RequestSpan {
  readonly name?: string
  setAttribute(key: string, value: any): any
  addEvent?(name: string, time?: number): any
  setStatus?(status: { code: number; message?: string }): any
  /** Ends the span at a time in Unix milliseconds, by default now. */
  end(endTime?: number): void
  /** False if the span is not recorded. It then gets no attributes and no children. */
  isRecording?(): boolean
}

/** Creates spans. */
export interface RequestTracer {
  /** Starts a span at a time in Unix milliseconds, by default now. */
  requestSpan(name: string, parentSpan?: RequestSpan, startTime?: number): RequestSpan
}

/** Records the values of one metric with one set of tags. */
export interface ValueRecorder {
  /** Records a value. Durations are in microseconds. */
  recordValue(value: number): void
}

/** Creates recorders. */
export interface Meter {
  /** Returns the recorder of a metric with tags. This is called for each value, so recorders should be cached. */
  valueRecorder(name: string, tags: Record<string, any>): ValueRecorder
}

/** Tracer and meter of the operations. */
export interface Instruments {
  readonly tracer?: RequestTracer | undefined
  readonly meter?: Meter | undefined
}

/** Name of the metric for the durations of operations. */
const DURATION = 'db.client.operation.duration'
/** Status code of a span whose operation has failed. */
const FAILED = 2

/** Attributes of a span and tags of a duration, by the members of a context. */
const TAGS: [keyof ErrorContext, string][] = [
  ['bucket', 'db.namespace'],
  ['scope', 'couchbase.scope.name'],
  ['collection', 'couchbase.collection.name'],
]

/** Names of services in attributes, by those in maps. */
const SERVICES: Record<string, string> = {
  capi: 'views',
  cbas: 'analytics',
  eventingAdminPort: 'eventing',
  fts: 'search',
  mgmt: 'management',
  n1ql: 'query',
}

/** Names of operations on documents that differ from the names of their opcodes. */
const NAMES: Record<string, string> = {
  Add: 'insert',
  Delete: 'remove',
  GetLocked: 'get_and_lock',
  GetMeta: 'exists',
  Set: 'upsert',
  SubdocMultiLookup: 'lookup_in',
  SubdocMultiMutation: 'mutate_in',
}

/** Data about an operation in addition to its context. */
export interface WatchOptions {
  /** Name of the operation, if the context does not contain it. */
  name?: string
  /** Start of the operation in Unix milliseconds, if it started earlier. */
  began?: number | undefined
}

/** The span and the duration of an operation, until `end`. */
export class Watch {
  readonly #instruments: Instruments
  readonly #context: ErrorContext
  readonly #service: string
  readonly #name: string
  readonly #began: number
  readonly #span: RequestSpan | undefined

  constructor(
    instruments: Instruments,
    service: string,
    context: ErrorContext,
    parent: RequestSpan | undefined,
    { name, began = unixTime() }: WatchOptions,
  ) {
    this.#instruments = instruments
    this.#context = context
    this.#service = SERVICES[service] ?? service
    this.#name = name ?? nameOf(context.operation ?? 'request')
    this.#began = began
    this.#span = instruments.tracer?.requestSpan(this.#name, parent, began)
  }

  /** Adds a child span for the encoding, which ends now. */
  encoded(): void {
    this.#child('request_encoding', this.#began)?.end()
  }

  /** Adds a child span for a sent request; the returned function ends it. `endpoint` is host and port. */
  dispatch(endpoint: string, local?: string): (opaque?: number) => void {
    const span = this.#child('dispatch_to_server')
    if (!span) return () => {}
    const at = endpoint.lastIndexOf(':')
    span.setAttribute('network.transport', 'tcp')
    span.setAttribute('server.address', endpoint.slice(0, at))
    span.setAttribute('server.port', Number(endpoint.slice(at + 1)))
    if (local !== undefined) span.setAttribute('couchbase.local_id', local)
    let isOpen = true
    return (opaque) => {
      if (!isOpen) return
      isOpen = false
      if (opaque !== undefined) span.setAttribute('couchbase.operation_id', `0x${opaque.toString(16)}`)
      span.end()
    }
  }

  /** Ends the span and records the duration. `error` is the error of a failed operation. */
  end(error?: unknown): void {
    const tags = this.#tags()
    if (error !== undefined) tags['error.type'] = (error as Error).name
    const span = this.#span
    if (span) {
      const { statement, retryAttempts = 0 } = this.#context
      for (const [name, value] of Object.entries(tags)) span.setAttribute(name, value)
      if (statement !== undefined) span.setAttribute('db.query.text', statement)
      span.setAttribute('couchbase.retries', retryAttempts)
      if (error !== undefined) span.setStatus?.({ code: FAILED, message: (error as Error).message })
      span.end()
    }
    const micros = Math.max(0, Math.round((unixTime() - this.#began) * 1000))
    this.#instruments.meter?.valueRecorder(DURATION, { ...tags, __unit: 's' }).recordValue(micros)
  }

  #child(name: string, began?: number): RequestSpan | undefined {
    if (!this.#span || this.#span.isRecording?.() === false) return undefined
    const span = this.#instruments.tracer!.requestSpan(name, this.#span, began)
    span.setAttribute('db.system.name', 'couchbase')
    return span
  }

  #tags(): Record<string, string> {
    const tags: Record<string, string> = {
      'db.system.name': 'couchbase',
      'couchbase.service': this.#service,
      'db.operation.name': this.#name,
    }
    for (const [member, name] of TAGS) {
      const value = this.#context[member]
      if (value !== undefined) tags[name] = value as string
    }
    return tags
  }
}

/** Starts to watch an operation, if there is a tracer or a meter. */
export function watch(
  instruments: Instruments | undefined,
  service: string,
  context: ErrorContext,
  parent: RequestSpan | undefined,
  options: WatchOptions = {},
): Watch | undefined {
  if (!instruments?.tracer && !instruments?.meter) return undefined
  return new Watch(instruments, service, context, parent, options)
}

/** Returns the Unix time in milliseconds, with fractions. */
export function unixTime(): number {
  return performance.timeOrigin + performance.now()
}

/** Fixed words in request paths, as opposed to the names of buckets, users and so on. */
const PATH_WORDS = new Set(
  `
  _changes _design _view agg allowQuerying analytics analyzeDoc api bucket buckets collections config controller count
  default deploy doFlush fts function functions groups index ingestControl link local documents external node nsstats
  pause planFreezeControl pools query queryControl rbac remaining resume roles scope scopes service settings stats status
  undeploy users v1 whoami
  `.trim().split(/\s+/),
)

/**
 * Returns the name of an operation. It does not contain names of buckets, documents and users, so there are few names.
 */
function nameOf(operation: string): string {
  const [method, path] = operation.split(' ')
  if (!path) return NAMES[operation] ?? operation.replace(/\B[A-Z]/g, '_$&').toLowerCase()
  const parts = path.split('?')[0]!.split('/').slice(1)
  return `${method} /${parts.map((part) => (PATH_WORDS.has(part) ? part : '{name}')).join('/')}`
}
