/** HTTP for the management and view services, over the platform's own `fetch`. */

import { type Address, addressText } from './connection-string.js'
import type { Credentials } from './connection.js'
import { Deadline, DeadlineOver, type OperationOptions } from './deadline.js'
import {
  AmbiguousTimeoutError,
  AuthenticationFailureError,
  DecodingFailureError,
  type ErrorContext,
  RequestCanceledError,
  UnambiguousTimeoutError,
} from './errors.js'

/** Largest answer that is read, as it is kept in memory. */
const BODY_BYTES_MAX = 256 * 1024 * 1024

/** An answer with its whole body. */
export interface HttpResponse {
  status: number
  text: string
  context: ErrorContext
}

/** What to ask for. */
export interface HttpRequest {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  path: string
  body?: string
  /** Media type of the body; JSON if not given. */
  contentType?: string
}

/** Sends requests in the name of one user, until it is closed. */
export class HttpClient {
  readonly #authorization: string
  /** One a request under way. */
  readonly #controllers = new Set<AbortController>()
  #closed = false

  constructor({ username, password }: Credentials) {
    this.#authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
  }

  /**
   * Answer to a request, whatever its status but 401.
   *
   * @throws AuthenticationFailureError the user or password is wrong (401).
   * @throws TimeoutError there was no complete answer in time.
   * @throws RequestCanceledError the connection failed, the caller aborted or the cluster is closed.
   */
  async send(
    address: Address,
    request: HttpRequest,
    options: OperationOptions,
    defaultMs: number,
  ): Promise<HttpResponse> {
    const context: ErrorContext = { operation: `${request.method} ${request.path}`, endpoint: addressText(address) }
    if (this.#closed) throw new RequestCanceledError('the cluster is closed', context)
    const deadline = new Deadline(options, defaultMs)
    const controller = new AbortController()
    deadline.onEnd(() => controller.abort())
    this.#controllers.add(controller)
    try {
      if (deadline.over) throw new DeadlineOver()
      const response = await fetch(`http://${addressText(address)}${request.path}`, {
        method: request.method,
        headers: {
          authorization: this.#authorization,
          accept: 'application/json',
          ...(request.body === undefined ? {} : { 'content-type': request.contentType ?? 'application/json' }),
        },
        body: request.body ?? null,
        redirect: 'error',
        signal: controller.signal,
      })
      context.status = response.status
      const text = await readBody(response, context)
      if (response.status === 401) throw new AuthenticationFailureError(undefined, context)
      return { status: response.status, text, context }
    } catch (error) {
      if (deadline.over) throw expired(deadline, request, context)
      if (controller.signal.aborted) throw new RequestCanceledError('the cluster is closed', context)
      throw canceled(error, context)
    } finally {
      this.#controllers.delete(controller)
      deadline.clear()
    }
  }

  /** Ends the requests under way, with `RequestCanceledError`, and refuses more. */
  close(): void {
    this.#closed = true
    for (const controller of this.#controllers) controller.abort()
  }
}

function expired(deadline: Deadline, request: HttpRequest, context: ErrorContext): Error {
  if (deadline.aborted) return new RequestCanceledError('the request was aborted', context, deadline.aborted.reason)
  return request.method === 'GET'
    ? new UnambiguousTimeoutError(undefined, context)
    : new AmbiguousTimeoutError(undefined, context)
}

function canceled(error: unknown, context: ErrorContext): unknown {
  if (!(error instanceof TypeError)) return error
  return new RequestCanceledError(`the connection failed: ${error.cause ?? error}`, context, error)
}

async function readBody(response: Response, context: ErrorContext): Promise<string> {
  const parts: Uint8Array[] = []
  let byteCount = 0
  for await (const part of response.body ?? []) {
    byteCount += part.byteLength
    if (byteCount > BODY_BYTES_MAX) throw new DecodingFailureError('the HTTP answer is over the limit', context)
    parts.push(part)
  }
  return Buffer.concat(parts).toString()
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
