/**
 * Client for browsers and workers, based on `fetch` only: documents, statements, changes of collections, live results.
 *
 *     import { connect } from 'nacre/http'
 *
 *     const cluster = connect('https://db.example:18091', { token: () => session.token })
 *     const orders = cluster.bucket('shop').defaultCollection()
 *     const { content, cas } = await orders.get('order:1')
 *     await orders.replace('order:1', { ...content, paid: true }, { cas })
 *     for await (const row of cluster.query('SELECT …')) …
 *     for await (const change of orders.changes({ since })) …
 *
 * The client uses one node only: the one in the URL, whose list of services contains their ports.
 */

import { Changes, type ChangesOptions } from './changes.js'
import type { Attempt } from './attempt.js'
import { now, DeadlineOver } from './deadline.js'
import {
  AuthenticationFailureError,
  DecodingFailureError,
  InvalidArgumentError,
  RequestCanceledError,
  ServiceNotAvailableError,
} from './errors.js'
import { ConnectionFailed, type HttpRequest, HttpStream, type HttpTransport, isRead, type Nodes, segment } from './http-messages.js'
import { Live, type LiveOptions } from './live.js'
import { checkOptions } from './option-names.js'
import type { OperationOptions } from './deadline.js'
import type { ExistsResult, GetResult, MutationResult } from './results.js'
import * as documents from './web-documents.js'
import { contextOf, type Query, type QueryOptions, type Sender, startQuery } from './query.js'

export * from './errors.js'
export type { ExistsResult, GetResult, MutationResult } from './results.js'
export type {
  HttpGetOptions,
  HttpInsertOptions,
  HttpRemoveOptions,
  HttpReplaceOptions,
  HttpUpsertOptions,
} from './web-documents.js'
export { type Change, Changes, type ChangesOptions, type ChangesSource } from './changes.js'
export { applyChanges, Live, type LiveOptions, type LiveUpdate, type RowChange } from './live.js'
export {
  type Query,
  type QueryMetaData,
  type QueryMetrics,
  type QueryOptions,
  QueryProfileMode,
  type QueryResult,
  QueryScanConsistency,
  QueryStatus,
  type QueryWarning,
} from './query.js'

/** Credentials and options. */
export interface ConnectOptions {
  username?: string
  password?: string
  /** A bearer token instead of user and password, or a function that returns one for each request. */
  token?: string | (() => string | Promise<string>)
  /** Default timeout of statements, in milliseconds (75,000). */
  queryTimeout?: number
  /** Default timeout of operations on documents, in milliseconds (10,000). */
  documentTimeout?: number
  /** Addresses of services, for instance behind a proxy; by default those that the node lists. */
  services?: { query?: string; views?: string }
  /** Sends the requests; by default the `fetch` of the runtime. */
  fetch?: typeof fetch
}

const QUERY_MS = 75_000
const DOCUMENT_MS = 10_000
/** Lifetime of the list of services. */
const SERVICES_MS = 60_000

/** Names in the list of services, with and without TLS. */
const SERVICES: Record<string, { plain: string; tls: string; option: 'query' | 'views' }> = {
  n1ql: { plain: 'n1ql', tls: 'n1qlSSL', option: 'query' },
  capi: { plain: 'capi', tls: 'capiSSL', option: 'views' },
}

/** Sends requests with `fetch`, as one user. */
class FetchTransport implements HttpTransport {
  readonly #url: URL
  readonly #options: ConnectOptions
  readonly #fetch: typeof fetch
  readonly #closing = new AbortController()
  #services: { at: number; ports: Promise<Record<string, number>> } | undefined

  constructor(url: URL, options: ConnectOptions) {
    this.#url = url
    this.#options = options
    this.#fetch = options.fetch ?? ((...args) => fetch(...args))
  }

  async open(_: Nodes, service: string, request: HttpRequest, attempt: Attempt): Promise<HttpStream> {
    for (;;) {
      try {
        return await this.#exchange(new URL(request.path, await this.#base(service, attempt)), request, attempt)
      } catch (error) {
        if (!(error instanceof ConnectionFailed)) throw error
        // `fetch` does not report whether the request was sent.
        if (!isRead(request)) throw new RequestCanceledError(error.message, attempt.context, error.cause)
        this.#services = undefined
        attempt.inFlight = false
        await attempt.again('NODE_NOT_AVAILABLE')
      }
    }
  }

  close(): void {
    this.#closing.abort()
  }

  async #exchange(url: URL, request: HttpRequest, attempt: Attempt): Promise<HttpStream> {
    const { context, deadline } = attempt
    context.endpoint = url.host
    if (this.#closing.signal.aborted) throw new RequestCanceledError('the cluster is closed', context)
    const controller = new AbortController()
    const abort = (): void => controller.abort()
    const forget = deadline.onEnd(abort)
    this.#closing.signal.addEventListener('abort', abort)
    const end = (): void => {
      forget()
      this.#closing.signal.removeEventListener('abort', abort)
    }
    const failed = (error: unknown): Error => {
      if (deadline.over) return new DeadlineOver()
      if (this.#closing.signal.aborted) return new RequestCanceledError('the cluster is closed', context)
      return new ConnectionFailed(`the connection failed: ${(error as Error).message}`, { cause: error })
    }
    try {
      const headers: Record<string, string> = { accept: 'application/json', ...(await this.#authorization()), ...request.headers }
      if (request.body !== undefined) headers['content-type'] = request.contentType ?? 'application/json'
      attempt.inFlight = true
      const response = await this.#fetch(url, {
        method: request.method,
        headers,
        signal: controller.signal,
        credentials: 'omit',
        ...(request.body === undefined ? {} : { body: request.body }),
      })
      context.status = response.status
      const body = response.body ? partsOf(response.body) : nothing()
      const stream = new HttpStream(response.status, context, body, failed, () => {
        end()
        controller.abort()
      }, response.headers)
      if (response.status !== 401) return stream
      stream.close()
      throw new AuthenticationFailureError(undefined, context)
    } catch (error) {
      end()
      throw error instanceof AuthenticationFailureError ? error : failed(error)
    }
  }

  async #authorization(): Promise<Record<string, string>> {
    const { username, password, token } = this.#options
    if (token !== undefined) return { authorization: `Bearer ${typeof token === 'function' ? await token() : token}` }
    if (username === undefined) return {}
    const bytes = new TextEncoder().encode(`${username}:${password}`)
    return { authorization: `Basic ${btoa(String.fromCharCode(...bytes))}` }
  }

  /** Returns the address of a service. */
  async #base(service: string, attempt: Attempt): Promise<URL> {
    if (service === 'mgmt') return this.#url
    const { plain, tls, option } = SERVICES[service]!
    const named = this.#options.services?.[option]
    if (named !== undefined) return new URL(named)
    if (!this.#services || this.#services.at + SERVICES_MS < now()) {
      this.#services = { at: now(), ports: this.#ports(attempt) }
    }
    const known = this.#services
    const ports = await known.ports.catch((error) => {
      if (this.#services === known) this.#services = undefined
      throw error
    })
    const port = ports[this.#url.protocol === 'https:' ? tls : plain]
    if (port === undefined) throw new ServiceNotAvailableError(undefined, attempt.context)
    const url = new URL(this.#url)
    url.port = String(port)
    return url
  }

  async #ports(attempt: Attempt): Promise<Record<string, number>> {
    const path = '/pools/default/nodeServices'
    const stream = await this.#exchange(new URL(path, this.#url), { method: 'GET', path }, attempt)
    const { text } = await stream.whole()
    try {
      const nodes: any[] = JSON.parse(text).nodesExt
      return (nodes.find(({ thisNode }) => thisNode) ?? nodes[0]).services
    } catch (error) {
      throw new DecodingFailureError('the node does not list its services', attempt.context, error)
    }
  }
}

async function* nothing(): AsyncGenerator<Uint8Array, void, void> {}

/** Yields the parts of a body. Not every browser can iterate over a stream with `for await`. */
async function* partsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  const reader = body.getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      yield value
    }
  } finally {
    // The error of a failed stream is already known.
    await reader.cancel().catch(() => {})
  }
}

/** A cluster that is accessed through one of its nodes. */
export class HttpCluster {
  /** @internal */
  readonly http: FetchTransport
  /** @internal */
  readonly documentMs: number
  readonly #sender: Sender

  /** @internal */
  constructor(url: URL, options: ConnectOptions) {
    this.http = new FetchTransport(url, options)
    this.documentMs = options.documentTimeout ?? DOCUMENT_MS
    const client = { bucket: undefined }
    this.#sender = { client, http: this.http, defaultMs: options.queryTimeout ?? QUERY_MS, prepared: new Map() }
  }

  /** Executes a SQL++ statement: await it for all rows, or iterate over them with `for await`. */
  query<TRow = any>(statement: string, options: QueryOptions = {}): Query<TRow> {
    checkOptions('query', options)
    return startQuery<TRow>(this.#sender, statement, options)
  }

  /** Executes a statement and keeps its result up to date: `for await (const { rows } of cluster.live('SELECT …'))`. */
  live<TRow = any>(statement: string, options: LiveOptions = {}): Live<TRow> {
    checkOptions('live', options)
    return new Live<TRow>(this, statement, options)
  }

  /** A bucket. */
  bucket(name: string): HttpBucket {
    return new HttpBucket(this, checked('bucket', name))
  }

  /** Cancels the requests in progress with `RequestCanceledError`, and refuses further ones. */
  close(): void {
    this.http.close()
  }
}

/** A bucket. */
export class HttpBucket {
  readonly name: string
  readonly cluster: HttpCluster
  /** @internal */
  readonly client: Nodes

  /** @internal */
  constructor(cluster: HttpCluster, name: string) {
    this.cluster = cluster
    this.name = name
    this.client = { bucket: name }
  }

  /** A scope. */
  scope(name: string): HttpScope {
    return new HttpScope(this, checked('scope', name))
  }

  /** Returns the default scope, which every bucket has. */
  defaultScope(): HttpScope {
    return this.scope('_default')
  }

  /** Returns a collection of the default scope. */
  collection(name: string): HttpCollection {
    return this.defaultScope().collection(name)
  }

  /** Returns the default collection, which every bucket has. */
  defaultCollection(): HttpCollection {
    return this.collection('_default')
  }
}

/** A scope. */
export class HttpScope {
  readonly name: string
  readonly bucket: HttpBucket

  /** @internal */
  constructor(bucket: HttpBucket, name: string) {
    this.bucket = bucket
    this.name = name
  }

  /** Executes a statement. Names of collections refer to this scope. */
  query<TRow = any>(statement: string, options: QueryOptions = {}): Query<TRow> {
    return this.bucket.cluster.query<TRow>(statement, { queryContext: contextOf(this.bucket.name, this.name), ...options })
  }

  /** Executes a statement and keeps its result up to date. Names of collections refer to this scope. */
  live<TRow = any>(statement: string, options: LiveOptions = {}): Live<TRow> {
    return this.bucket.cluster.live<TRow>(statement, { queryContext: contextOf(this.bucket.name, this.name), ...options })
  }

  /** A collection. */
  collection(name: string): HttpCollection {
    return new HttpCollection(this, checked('collection', name))
  }
}

/** A collection. */
export class HttpCollection {
  readonly name: string
  readonly scope: HttpScope

  /** @internal */
  constructor(scope: HttpScope, name: string) {
    this.scope = scope
    this.name = name
  }

  /**
   * Reads a document. One that is not JSON is a `Uint8Array`.
   *
   * @throws DocumentNotFoundError if it does not exist.
   */
  async get<T = any>(key: string, options: documents.HttpGetOptions = {}): Promise<GetResult<T>> {
    checkOptions('httpGet', options)
    return documents.getDocument<T>(this.#sender(), key, options)
  }

  /** Reports whether a document exists. */
  async exists(key: string, options: OperationOptions = {}): Promise<ExistsResult> {
    checkOptions('exists', options)
    return documents.documentExists(this.#sender(), key, options)
  }

  /**
   * Stores a document that must not exist.
   *
   * @throws DocumentExistsError if the document exists already.
   */
  async insert(key: string, value: unknown, options: documents.HttpInsertOptions = {}): Promise<MutationResult> {
    checkOptions('httpInsert', options)
    return documents.insertDocument(this.#sender(), key, value, options)
  }

  /** Stores a document, whether it exists or not. */
  async upsert(key: string, value: unknown, options: documents.HttpUpsertOptions = {}): Promise<MutationResult> {
    checkOptions('httpUpsert', options)
    return documents.upsertDocument(this.#sender(), key, value, options)
  }

  /**
   * Replaces an existing document. With `cas`, the document must still have this version.
   *
   * @throws DocumentNotFoundError if the document does not exist.
   * @throws CasMismatchError if the document has another CAS.
   */
  async replace(key: string, value: unknown, options: documents.HttpReplaceOptions = {}): Promise<MutationResult> {
    checkOptions('httpReplace', options)
    return documents.replaceDocument(this.#sender(), key, value, options)
  }

  /**
   * Removes a document. With `cas`, the document must still have this version.
   *
   * @throws DocumentNotFoundError if it does not exist.
   * @throws CasMismatchError if the document has another CAS.
   */
  async remove(key: string, options: documents.HttpRemoveOptions = {}): Promise<MutationResult> {
    checkOptions('httpRemove', options)
    return documents.removeDocument(this.#sender(), key, options)
  }

  #sender(): documents.DocumentsSender {
    const { bucket, name: scope } = this.scope
    const { http, documentMs: defaultMs } = bucket.cluster
    const place = [bucket.name, scope, this.name].map(segment)
    const path = `/api/v1/buckets/${place[0]}/scopes/${place[1]}/collections/${place[2]}`
    return { http, client: bucket.client, path, scope, collection: this.name, defaultMs }
  }

  /**
   * Returns the changes of its documents, as they happen: `for await (const { id, content } of collection.changes())`.
   */
  changes<T = any>(options: ChangesOptions = {}): Changes<T> {
    checkOptions('changes', options)
    return new Changes<T>(this, options)
  }
}

function checked(kind: string, name: string): string {
  if (typeof name !== 'string' || !name) throw new InvalidArgumentError(`a ${kind} has a name`)
  return name
}

/**
 * Returns a cluster, given by the URL of the management service on one of its nodes, such as `http://127.0.0.1:8091`.
 * Sends nothing yet.
 *
 * @throws InvalidArgumentError if the URL is invalid, or contains user and password.
 */
export function connect(url: string, options: ConnectOptions = {}): HttpCluster {
  let parsed: URL
  try {
    parsed = new URL(url)
  } catch (error) {
    throw new InvalidArgumentError(`${JSON.stringify(url)} is no URL`, {}, error)
  }
  if (!/^https?:$/.test(parsed.protocol) || parsed.username) {
    throw new InvalidArgumentError('a cluster has a URL of http or https; users are options')
  }
  if (!parsed.port) parsed.port = parsed.protocol === 'https:' ? '18091' : '8091'
  return new HttpCluster(parsed, options)
}

