/**
 * Spans and durations of operations, for whoever gives a tracer or a meter: `connect(…, { tracer, meter })`. Without them, no
 * operation pays for them.
 *
 * The interfaces are those of the official SDK, and so are the names of attributes and tags. An operation has a span, and
 * each request that is sent for it a child named `dispatch_to_server`. `getOTelTracer` and `getOTelMeter` carry them to
 * OpenTelemetry.
 */

import type { ErrorContext } from './errors.js'

/** A span: the time that something takes, and what is known of it. */
export interface RequestSpan {
  readonly name?: string
  setAttribute(key: string, value: any): any
  addEvent?(name: string, time?: number): any
  setStatus?(status: { code: number; message?: string }): any
  /** Ends the span, at a time in Unix milliseconds or now. */
  end(endTime?: number): void
  /** False if nobody will see the span, so that it gets no attributes and no children. */
  isRecording?(): boolean
}

/** Makes spans. */
export interface RequestTracer {
  /** A span that began at a time in Unix milliseconds, or begins now. */
  requestSpan(name: string, parentSpan?: RequestSpan, startTime?: number): RequestSpan
}

/** Takes the values of one metric with one set of tags. */
export interface ValueRecorder {
  /** Takes a value; durations are microseconds. */
  recordValue(value: number): void
}

/** Gives recorders. */
export interface Meter {
  /** The recorder of a metric with tags. It is asked for at each value: keep recorders. */
  valueRecorder(name: string, tags: Record<string, any>): ValueRecorder
}

/** What watches operations. */
export interface Instruments {
  readonly tracer?: RequestTracer | undefined
  readonly meter?: Meter | undefined
}

/** Name of the metric that takes how long operations take. */
const DURATION = 'db.client.operation.duration'
/** Code of the status of a span whose operation has failed. */
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
  eventingAdminPort: 'eventing',
  fts: 'search',
  mgmt: 'management',
  n1ql: 'query',
}

/** Names of operations on documents that are not those of their opcodes in other letters. */
const NAMES: Record<string, string> = {
  Add: 'insert',
  Delete: 'remove',
  GetLocked: 'get_and_lock',
  GetMeta: 'exists',
  Set: 'upsert',
  SubdocMultiLookup: 'lookup_in',
  SubdocMultiMutation: 'mutate_in',
}

/** What is known of an operation besides its context. */
export interface WatchOptions {
  /** Its name, if that is not to be told from its context. */
  name?: string
  /** When it began, in Unix milliseconds, if that was before. */
  began?: number | undefined
}

/** An operation that is watched, from its beginning to `end`. */
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

  /** Adds a child for the time that encoding took, up to now. */
  encoded(): void {
    this.#child('request_encoding', this.#began)?.end()
  }

  /** Adds a child for a request that is sent; the function returned ends it. `endpoint` is host and port. */
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

  /** Ends the span and records the duration; `error` is why the operation failed, if it did. */
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

/** Begins to watch an operation, if anybody does. */
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

/** The time in Unix milliseconds, with fractions. */
export function unixTime(): number {
  return performance.timeOrigin + performance.now()
}

/** Words that paths of requests have where they name nothing: names of buckets, users and the like are none. */
const PATH_WORDS = new Set(
  `
  _changes _design _view allowQuerying analyzeDoc api bucket buckets collections config controller count default deploy
  doFlush fts function functions groups index ingestControl local documents external nsstats pause planFreezeControl pools
  query queryControl rbac resume roles scope scopes service settings status undeploy users v1 whoami
  `.trim().split(/\s+/),
)

/** Name of an operation: of few, whatever the names of buckets, documents and users are. */
function nameOf(operation: string): string {
  const [method, path] = operation.split(' ')
  if (!path) return NAMES[operation] ?? operation.replace(/\B[A-Z]/g, '_$&').toLowerCase()
  const parts = path.split('?')[0]!.split('/').slice(1)
  return `${method} /${parts.map((part) => (PATH_WORDS.has(part) ? part : '{name}')).join('/')}`
}
