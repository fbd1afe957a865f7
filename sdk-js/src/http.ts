/**
 * HTTP for all services except key-value. Requests that change nothing reuse connections. Other requests have a new
 * connection each: if the node had just closed a reused connection, the client would not know whether the request took
 * effect.
 *
 * The nodes of a service take turns. The client skips a node to which it cannot connect, because it has sent nothing.
 * It also skips a node whose connection breaks during a request that changes nothing. `fetch` does not distinguish the
 * two.
 */

import { once } from 'node:events'
import type { Agent, IncomingMessage } from 'node:http'

import { type Access, isCertificateError } from './access.js'
import { type Address, addressText } from './connection-string.js'
import { DeadlineOver, type OperationOptions } from './deadline.js'
import type { Database } from './embedded.js'
import {
  AuthenticationFailureError,
  CouchbaseError,
  DecodingFailureError,
  type ErrorContext,
  RequestCanceledError,
} from './errors.js'
import type { Attempt } from './attempt.js'
import { ConnectionFailed, type HttpRequest, type HttpResponse, HttpStream, isRead } from './http-messages.js'
import type { KvClient } from './kv-client.js'
import type { Instruments } from './tracing.js'

/** Timeout of connecting to a node, after which the client tries the next one. */
const CONNECT_MS_MAX = 5000

/** Sends requests as one user, until it is closed. */
export class HttpClient {
  readonly #access: Access
  /** The module for the requests. It is loaded with the first one, because many clients make none. */
  #module: typeof import('node:http') | typeof import('node:https') | undefined
  /** Holds the connections that are reused. */
  #agent: Agent | undefined
  /** One controller for each request in progress. */
  readonly #controllers = new Set<AbortController>()
  #closed = false

  constructor(access: Access) {
    this.#access = access
  }

  /** Tracer and meter of the operations. */
  get instruments(): Instruments {
    return this.#access.instruments
  }

  /**
   * Returns the response of a node with the service, with any status except 401.
   *
   * @throws AuthenticationFailureError if the user or password is wrong (401).
   * @throws ServiceNotAvailableError if no node runs the service.
   * @throws TimeoutError if there is no complete response in time.
   * @throws RequestCanceledError if the connection breaks, the caller aborts or the cluster is closed.
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
    const { database } = this.#access
    if (database && service === 'mgmt') {
      if (this.#closed) throw new RequestCanceledError('the cluster is closed', context)
      return { ...database.manage(request.method, request.path, request.body), context }
    }
    const reads = isRead(request)
    const work = (attempt: Attempt): Promise<HttpResponse> =>
      this.#attempts(client, service, request, attempt, (stream) => stream.whole())
    return client.within(context, options, defaultMs, reads, work, service)
  }

  /**
   * Returns the response of a node, whose body is streamed until the deadline of the attempt.
   *
   * @throws DeadlineOver if the time is over first.
   * @throws AuthenticationFailureError, ServiceNotAvailableError, RequestCanceledError as with `send`.
   */
  async open(client: KvClient, service: string, request: HttpRequest, attempt: Attempt): Promise<HttpStream> {
    return this.#attempts(client, service, request, attempt, async (stream) => stream)
  }

  /** Returns the response of one node to a single request. */
  async ask(address: Address, request: HttpRequest, attempt: Attempt): Promise<HttpResponse> {
    try {
      const stream = await this.#exchange(address, request, attempt)
      return await stream.whole()
    } catch (error) {
      if (error instanceof ConnectionFailed) throw new RequestCanceledError(error.message, attempt.context, error.cause)
      throw error
    }
  }

  async #attempts<T>(
    client: KvClient,
    service: string,
    request: HttpRequest,
    attempt: Attempt,
    read: (stream: HttpStream) => Promise<T>,
  ): Promise<T> {
    const { database } = this.#access
    if (database && (service === 'capi' || service === 'n1ql')) {
      return read(await this.#answered(database, request, attempt))
    }
    for (;;) {
      const nodes = request.node ? [request.node] : await client.nodes(service, attempt)
      for (const address of nodes) {
        try {
          return await read(await this.#exchange(address, request, attempt))
        } catch (error) {
          if (!(error instanceof ConnectionFailed)) throw error
          if (!attempt.inFlight) {
            // The node may have left the cluster.
            client.mapDue = 0
            this.#access.logger.warn(`${addressText(address)} cannot be asked: ${error.message}`)
            attempt.failed('NODE_NOT_AVAILABLE')
          } else if (isRead(request)) {
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

  /** Returns the answer of a database in this process. */
  async #answered(database: Database, request: HttpRequest, attempt: Attempt): Promise<HttpStream> {
    const { context, deadline } = attempt
    if (this.#closed) throw new RequestCanceledError('the cluster is closed', context)
    attempt.inFlight = true
    const asked = database.manageLater(request.method, request.path, request.body).catch((error: Error) => {
      throw new RequestCanceledError(error.message, context, error)
    })
    const { status, text } = await deadline.race(asked)
    context.status = status
    return new HttpStream(status, context, single(text), (error) => error as Error, () => {})
  }

  async #exchange(address: Address, request: HttpRequest, attempt: Attempt): Promise<HttpStream> {
    const { context, deadline } = attempt
    context.endpoint = addressText(address)
    const tls = this.#access.tlsFor(address)
    this.#module ??= await (tls ? import('node:https') : import('node:http'))
    if (this.#closed) throw new RequestCanceledError('the cluster is closed', context)
    this.#agent ??= new this.#module.Agent({ keepAlive: true })
    const controller = new AbortController()
    const outgoing = this.#module.request({
      ...tls,
      ...address,
      method: request.method,
      path: request.path,
      headers: {
        ...this.#access.headers,
        accept: 'application/json',
        ...request.headers,
        ...bodyHeaders(request),
      },
      agent: isRead(request) ? this.#agent : false,
      signal: controller.signal,
      timeout: CONNECT_MS_MAX,
    })
    const dispatched = attempt.watch?.dispatch(context.endpoint)
    const forget = deadline.onEnd(() => controller.abort())
    this.#controllers.add(controller)
    const end = (): void => {
      this.#controllers.delete(controller)
      forget()
      dispatched?.()
    }
    const failed = (error: unknown): Error => {
      if (deadline.over) return new DeadlineOver()
      if (this.#closed && controller.signal.aborted) return new RequestCanceledError('the cluster is closed', context)
      return failure(error as NodeJS.ErrnoException, context)
    }
    try {
      outgoing.on('timeout', () => outgoing.destroy(new Error(`no connection within ${CONNECT_MS_MAX} ms`)))
      outgoing.on('socket', (socket) => {
        const connected = (): void => {
          attempt.inFlight = true
          socket.setTimeout(0)
        }
        if (socket.connecting) socket.once(tls ? 'secureConnect' : 'connect', connected)
        else connected()
      })
      // Once the response has begun, its body reports the error.
      outgoing.on('error', () => {})
      outgoing.end(request.body)
      const [response]: IncomingMessage[] = await once(outgoing, 'response')
      context.status = response!.statusCode!
      // The reader of the body will see a failure that happens before.
      response!.on('error', () => {})
      const stream = new HttpStream(context.status, context, response!, failed, () => {
        end()
        controller.abort()
      })
      if (context.status !== 401) return stream
      stream.close()
      throw new AuthenticationFailureError(undefined, context)
    } catch (error) {
      end()
      throw failed(error)
    }
  }

  /** Cancels the requests in progress with `RequestCanceledError`, and refuses further ones. */
  close(): void {
    this.#closed = true
    for (const controller of this.#controllers) controller.abort()
    this.#agent?.destroy()
  }
}

/** Yields a text as the only part of a body. */
async function* single(text: string): AsyncGenerator<Uint8Array, void, void> {
  yield Buffer.from(text)
}

/** Returns the headers of a body. Without its length, Node sends the body of a DELETE as another request. */
function bodyHeaders({ body, contentType }: HttpRequest): Record<string, string | number> {
  if (body === undefined) return {}
  return { 'content-type': contentType ?? 'application/json', 'content-length': Buffer.byteLength(body) }
}

function failure(error: NodeJS.ErrnoException, context: ErrorContext): Error {
  if (error instanceof CouchbaseError || error instanceof ConnectionFailed) return error
  if (error.code?.startsWith('HPE_'))
    return new DecodingFailureError(`that is no HTTP: ${error.message}`, context, error)
  if (isCertificateError(error)) {
    return new AuthenticationFailureError(`the node's certificate is not accepted: ${error.message}`, context, error)
  }
  return new ConnectionFailed(`the connection failed: ${error.message || error.code}`, { cause: error })
}
