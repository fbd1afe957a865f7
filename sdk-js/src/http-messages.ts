/** Requests and answers over HTTP, whatever carries them. */

import type { Attempt } from './attempt.js'
import { concat, textOf } from './bytes.js'
import type { Address } from './connection-string.js'
import { DecodingFailureError, type ErrorContext } from './errors.js'
import type { Instruments } from './tracing.js'

/** A name as a segment of a path. */
export function segment(name: string): string {
  return encodeURIComponent(name)
}

/** Largest answer that is read, as it is kept in memory. */
const BODY_BYTES_MAX = 256 * 1024 * 1024

/** An answer with its whole body. */
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
  /** Media type of the body; JSON if not given. */
  contentType?: string
  /** Further headers. */
  headers?: Record<string, string>
  /** It changes nothing, so it may be sent twice; as any GET and HEAD. */
  reads?: boolean
  /** The node to ask; without it, those that run the service take turns. */
  node?: Address
}

/** The connection could not be made, or broke before the answer was complete; callers see another error. */
export class ConnectionFailed extends Error {}

/** True if a request changes nothing, so that it may be sent twice. */
export function isRead({ reads, method }: HttpRequest): boolean {
  return reads ?? (method === 'GET' || method === 'HEAD')
}

/** An answer whose body arrives while it is read. It has to be read to the end or closed. */
export class HttpStream {
  readonly status: number
  readonly context: ErrorContext
  /** Headers of the answer, where the carrier has them. */
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

  /** The body, part by part; leaving the loop closes the answer. */
  async *parts(): AsyncGenerator<Uint8Array, void, void> {
    try {
      for await (const part of this.#body) yield part
    } catch (error) {
      throw this.#failed(error)
    } finally {
      this.close()
    }
  }

  /** The answer with its whole body. */
  async whole(): Promise<HttpResponse> {
    const { status, context } = this
    return { status, text: textOf(await this.#collected()), context }
  }

  /** The whole body. */
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

  /** Ends the answer. */
  close(): void {
    this.#close()
  }
}

/** Source of the nodes of a bucket, or of the cluster if `bucket` is undefined. */
export interface Nodes {
  readonly bucket: string | undefined
}

/** Carrier of requests: sockets, or `fetch`. */
export interface HttpTransport {
  /** What watches operations. */
  readonly instruments?: Instruments | undefined
  /** An answer of a node that runs the service; its body is read as it arrives, until the deadline of the attempt. */
  open(nodes: Nodes, service: string, request: HttpRequest, attempt: Attempt): Promise<HttpStream>
}

/**
 * JSON of an answer, read by `read`.
 *
 * @throws DecodingFailureError it is not JSON or lacks what `read` looks for.
 */
export function readJson<T>(response: HttpResponse, read: (value: any) => T): T {
  try {
    return read(JSON.parse(response.text))
  } catch (error) {
    throw new DecodingFailureError(`the answer cannot be read: ${error}`, response.context, error)
  }
}

/** Fields as an HTML form; what is undefined is left out, booleans are 0 and 1. */
export function formBody(fields: Record<string, string | number | boolean | undefined>): string {
  const form = new URLSearchParams()
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) form.set(name, typeof value === 'boolean' ? String(Number(value)) : String(value))
  }
  return form.toString()
}
