/**
 * HTTP for the management and view services: one request a connection.
 *
 * The nodes of a service take turns. One that cannot be connected to is passed over, as nothing was sent; so is one whose
 * connection breaks under a request that changes nothing. `fetch` does not tell the two apart.
 */

import { once } from 'node:events'
import { type IncomingMessage, request as httpRequest } from 'node:http'

import { type Address, addressText } from './connection-string.js'
import type { Credentials } from './connection.js'
import { DeadlineOver, type OperationOptions } from './deadline.js'
import {
  AuthenticationFailureError,
  CouchbaseError,
  DecodingFailureError,
  type ErrorContext,
  RequestCanceledError,
} from './errors.js'
import type { Attempt, KvClient } from './kv-client.js'

/** How long a node may take to be connected to before the next one is tried. */
const CONNECT_MS_MAX = 5000

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
  /** It changes nothing, so it may be sent twice; as any GET. */
  reads?: boolean
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
   * Answer of a node that runs the service, whatever its status but 401.
   *
   * @throws AuthenticationFailureError the user or password is wrong (401).
   * @throws ServiceNotAvailableError no node runs the service.
   * @throws TimeoutError there was no complete answer in time.
   * @throws RequestCanceledError the connection broke, the caller aborted or the cluster is closed.
   */
  async send(
    client: KvClient,
    service: string,
    request: HttpRequest,
    options: OperationOptions,
    defaultMs: number,
  ): Promise<HttpResponse> {
    const context: ErrorContext = { operation: `${request.method} ${request.path}` }
    if (client.bucket !== undefined) context.bucket = client.bucket
    const reads = request.reads ?? request.method === 'GET'
    return client.within(context, options, defaultMs, reads, (attempt) =>
      this.#attempts(client, service, { ...request, reads }, attempt),
    )
  }

  async #attempts(client: KvClient, service: string, request: HttpRequest, attempt: Attempt): Promise<HttpResponse> {
    for (;;) {
      for (const address of await client.nodes(service, attempt)) {
        try {
          return await this.#exchange(address, request, attempt)
        } catch (error) {
          if (!(error instanceof ConnectionFailed)) throw error
          if (!attempt.inFlight) {
            // It may have left the cluster.
            client.mapDue = 0
            attempt.failed('NODE_NOT_AVAILABLE')
          } else if (request.reads) {
            attempt.inFlight = false
            attempt.failed('SOCKET_CLOSED_WHILE_IN_FLIGHT')
          } else {
            throw new RequestCanceledError(error.message, attempt.context, error.cause)
          }
        }
      }
      await attempt.pause()
    }
  }

  async #exchange(address: Address, request: HttpRequest, attempt: Attempt): Promise<HttpResponse> {
    const { context, deadline } = attempt
    context.endpoint = addressText(address)
    if (this.#closed) throw new RequestCanceledError('the cluster is closed', context)
    const controller = new AbortController()
    const outgoing = httpRequest({
      ...address,
      method: request.method,
      path: request.path,
      headers: {
        authorization: this.#authorization,
        accept: 'application/json',
        ...(request.body === undefined ? {} : { 'content-type': request.contentType ?? 'application/json' }),
      },
      agent: false,
      signal: controller.signal,
      timeout: CONNECT_MS_MAX,
    })
    const forget = deadline.onEnd(() => controller.abort())
    this.#controllers.add(controller)
    try {
      outgoing.on('timeout', () => outgoing.destroy(new Error(`no connection within ${CONNECT_MS_MAX} ms`)))
      outgoing.on('socket', (socket) =>
        socket.on('connect', () => {
          attempt.inFlight = true
          socket.setTimeout(0)
        }),
      )
      // Of an answer that has begun, the body tells.
      outgoing.on('error', () => {})
      outgoing.end(request.body)
      const [response]: IncomingMessage[] = await once(outgoing, 'response')
      context.status = response!.statusCode!
      const text = await readBody(response!, context)
      if (context.status === 401) throw new AuthenticationFailureError(undefined, context)
      return { status: context.status, text, context }
    } catch (error) {
      if (deadline.over) throw new DeadlineOver()
      if (controller.signal.aborted) throw new RequestCanceledError('the cluster is closed', context)
      throw failure(error as NodeJS.ErrnoException, context)
    } finally {
      this.#controllers.delete(controller)
      forget()
    }
  }

  /** Ends the requests under way, with `RequestCanceledError`, and refuses more. */
  close(): void {
    this.#closed = true
    for (const controller of this.#controllers) controller.abort()
  }
}

/** The connection could not be made, or broke before the answer was complete; never leaves this file. */
class ConnectionFailed extends Error {}

function failure(error: NodeJS.ErrnoException, context: ErrorContext): Error {
  if (error instanceof CouchbaseError) return error
  if (error.code?.startsWith('HPE_')) return new DecodingFailureError(`that is no HTTP: ${error.message}`, context, error)
  return new ConnectionFailed(`the connection failed: ${error.message || error.code}`, { cause: error })
}

async function readBody(response: IncomingMessage, context: ErrorContext): Promise<string> {
  const parts: Buffer[] = []
  let byteCount = 0
  for await (const part of response as AsyncIterable<Buffer>) {
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
