/**
 * Spans of operations, for whoever gives a tracer: `connect(…, { tracer })`. There is none otherwise.
 *
 * The interfaces are those of the official SDK, and so are the names of attributes. A tracer of OpenTelemetry fits with
 * one line: `{ requestSpan: (name, parent) => tracer.startSpan(name, {}, parent && trace.setSpan(context.active(), parent)) }`.
 */

import type { ErrorContext } from './errors.js'

/** A span: the time that something takes, and what is known of it. */
export interface RequestSpan {
  setAttribute(key: string, value: any): any
  setStatus?(status: { code: number; message?: string }): any
  end(): void
}

/** Makes spans. */
export interface RequestTracer {
  requestSpan(name: string, parentSpan?: RequestSpan): RequestSpan
}

/** Code of the status of a span whose operation has failed. */
const FAILED = 2

/** Attributes of a span, by the members of a context. */
const ATTRIBUTES: [keyof ErrorContext, string][] = [
  ['operation', 'db.operation.name'],
  ['bucket', 'db.namespace'],
  ['scope', 'couchbase.scope.name'],
  ['collection', 'couchbase.collection.name'],
  ['statement', 'db.query.text'],
  ['endpoint', 'server.address'],
  ['retryAttempts', 'couchbase.retries'],
]

/** Begins the span of an operation; the function ends it, and says with which error. */
export function beginSpan(
  tracer: RequestTracer | undefined,
  context: ErrorContext,
  parent: RequestSpan | undefined,
): (error?: unknown) => void {
  if (!tracer) return () => {}
  const span = tracer.requestSpan(context.operation ?? 'request', parent)
  span.setAttribute('db.system.name', 'couchbase')
  return (error) => {
    for (const [member, name] of ATTRIBUTES) {
      if (context[member] !== undefined) span.setAttribute(name, context[member])
    }
    if (error !== undefined) {
      span.setAttribute('error.type', (error as Error).name)
      span.setStatus?.({ code: FAILED, message: (error as Error).message })
    }
    span.end()
  }
}
