/** Rows of an HTTP response, with one timeout, for requests that only read. */

import { Deadline, DeadlineOver, type OperationOptions } from './deadline.js'
import type { CouchbaseError, ErrorContext } from './errors.js'
import type { HttpRequest, HttpTransport, Nodes } from './http-messages.js'
import { Attempt } from './attempt.js'
import { RowScanner } from './rows.js'
import { watch } from './tracing.js'

/** The request, and its service. */
export interface RowRequest {
  client: Nodes
  http: HttpTransport
  /** Name of the service in the map. */
  service: string
  request: HttpRequest
  options: OperationOptions
  defaultMs: number
  /** Name of the array of rows. */
  member: string
  /** Returns the error for a response whose status is not 200. */
  onFailure: (status: number, text: string, context: ErrorContext) => CouchbaseError
}

/** Yields the rows, and returns the text around them at the end. */
export async function* streamRows(asked: RowRequest): AsyncGenerator<any, { rest: any; context: ErrorContext }, void> {
  const { client, http, service, request, options } = asked
  const context: ErrorContext = { operation: `${request.method} ${request.path}` }
  if (client.bucket !== undefined) context.bucket = client.bucket
  const deadline = new Deadline(options, asked.defaultMs)
  const name = service === 'fts' ? 'search' : 'view_query'
  const watched = watch(http.instruments, service, context, options.parentSpan, { name })
  const attempt = new Attempt(context, deadline, watched)
  let failure: unknown
  try {
    if (deadline.over) throw new DeadlineOver()
    const stream = await http.open(client, service, { ...request, reads: true }, attempt)
    if (stream.status !== 200) {
      const { status, text } = await stream.whole()
      throw asked.onFailure(status, text, context)
    }
    const scanner = new RowScanner(asked.member)
    for await (const part of stream.parts()) yield* scanner.feed(part)
    return { rest: scanner.rest(), context }
  } catch (error) {
    failure = attempt.failureOf(error, true)
    throw failure
  } finally {
    deadline.clear()
    watched?.end(failure)
  }
}
