/** HTTP requests and responses, independent of the transport. */

import type { Attempt } from './attempt.js'
import { concat, textOf } from './bytes.js'
import type { Address } from './connection-string.js'
import { DecodingFailureError, type ErrorContext } from './errors.js'
import type { Instruments } from './tracing.js'

/** Encodes a name as a path segment. */
export function segment(name: string): string {
  return encodeURIComponent(name)
}

/** Maximum size of a response, which is kept in memory. */
const BODY_BYTES_MAX = 256 * 1024 * 1024

/** A response with its whole body. */
export interface HttpResponse {
  status: number
  text: string
  context: ErrorContext
}

/** A request to a service over HTTP. */
export interface HttpRequest {
  method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE' | 'PATCH'
  path: string
  body?: string
  /** Media type of the body; JSON by default. */
  contentType?: string
  /** Further headers. */
  headers?: Record<string, string>
  /** True if the request changes nothing, so that it may be sent twice. This is always so for GET and HEAD. */
  reads?: boolean
  /** The node; by default, the nodes with the service take turns. */
  node?: Address
}

/** The connection could not be opened, or broke before the response was complete. Callers see another error. */
export class ConnectionFailed extends Error {}

/** Returns true if a request changes nothing, so that it may be sent twice. */
export function isRead({ reads, method }: HttpRequest): boolean {
  return reads ?? (method === 'GET' || method === 'HEAD')
}

/** A response whose body is streamed. It must be read to the end or closed. */
export class HttpStream {
  readonly status: number
  readonly context: ErrorContext
  /** Headers of the response, if the transport provides them. */
  readonly headers: { get(name: string): string | null } | undefined
  readonly #body: AsyncIterable<Uint8Array>
  readonly #failed: (error: unknown) => Error
  readonly #close: () => void

  constructor(
    status: number,
    context: ErrorContext,
    body: AsyncIterable<Uint8Array>,
    failed: (error: unknown) => Error,
    close: () => void,
    headers?: { get(name: string): string | null },
  ) {
    this.headers = headers
    this.status = status
    this.context = context
    this.#body = body
    this.#failed = failed
    this.#close = close
  }

  /** Yields the body part by part. Leaving the loop closes the response. */
  async *parts(): AsyncGenerator<Uint8Array, void, void> {
    try {
      for await (const part of this.#body) yield part
    } catch (error) {
      throw this.#failed(error)
    } finally {
      this.close()
    }
  }

  /** Returns the response with its whole body. */
  async whole(): Promise<HttpResponse> {
    const { status, context } = this
    return { status, text: textOf(await this.#collected()), context }
  }

  /** Returns the whole body. */
  async bytes(): Promise<Uint8Array> {
    return concat(await this.#collected())
  }

  async #collected(): Promise<Uint8Array[]> {
    const parts: Uint8Array[] = []
    let byteCount = 0
    for await (const part of this.parts()) {
      byteCount += part.byteLength
      if (byteCount > BODY_BYTES_MAX) throw new DecodingFailureError('the HTTP answer is over the limit', this.context)
      parts.push(part)
    }
    return parts
  }

  /** Closes the response. */
  close(): void {
    this.#close()
  }
}

/** Provides the nodes of a bucket, or of the cluster if `bucket` is undefined. */
export interface Nodes {
  readonly bucket: string | undefined
}

/** Transport of requests: sockets, or `fetch`. */
export interface HttpTransport {
  /** Tracer and meter of the operations. */
  readonly instruments?: Instruments | undefined
  /** Returns the response of a node with the service. Its body is streamed until the deadline of the attempt. */
  open(nodes: Nodes, service: string, request: HttpRequest, attempt: Attempt): Promise<HttpStream>
}

/**
 * Parses the JSON of a response with `read`.
 *
 * @throws DecodingFailureError if it is not JSON, or lacks what `read` needs.
 */
export function readJson<T>(response: HttpResponse, read: (value: any) => T): T {
  try {
    return read(JSON.parse(response.text))
  } catch (error) {
    throw new DecodingFailureError(`the answer cannot be read: ${error}`, response.context, error)
  }
}

/** Encodes fields as an HTML form. Undefined fields are omitted; booleans become 0 and 1. */
export function formBody(fields: Record<string, string | number | boolean | undefined>): string {
  const form = new URLSearchParams()
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) form.set(name, typeof value === 'boolean' ? String(Number(value)) : String(value))
  }
  return form.toString()
}
