/** Views: queries, and the design documents that define them. */

import type { Bucket } from './bucket.js'
import type { OperationOptions } from './deadline.js'
import {
  CouchbaseError,
  DesignDocumentNotFoundError,
  InvalidArgumentError,
  ViewEngineError,
  ViewNotFoundError,
} from './errors.js'
import { type HttpRequest, type HttpResponse, readJson } from './http.js'
import { checkOptions } from './option-names.js'
import { encodeJson } from './transcoders.js'

/** Whether a design document is in use or under development (its name then starts with dev_). */
export enum DesignDocumentNamespace {
  Production = 'production',
  Development = 'development',
}

/** Whether a query waits for the index. */
export enum ViewScanConsistency {
  /** It uses the index as it is. */
  NotBounded = 'ok',
  /** It waits until the index has every mutation before the query. */
  RequestPlus = 'false',
  /** It uses the index as it is, and brings it up to date afterwards. */
  UpdateAfter = 'update_after',
}

/** Order of rows. */
export enum ViewOrdering {
  Ascending = 'false',
  Descending = 'true',
}

/** What the server does when a part of the index fails. */
export enum ViewErrorMode {
  Continue = 'continue',
  Stop = 'stop',
}

/** Options of `viewQuery`; keys are values that JSON can express. */
export interface ViewQueryOptions extends OperationOptions {
  scanConsistency?: ViewScanConsistency
  skip?: number
  limit?: number
  key?: any
  keys?: any[]
  /** Rows between two keys. */
  range?: { start?: any; end?: any; inclusiveEnd?: boolean }
  /** Rows between two documents, where keys are equal. */
  idRange?: { start?: string; end?: string }
  reduce?: boolean
  group?: boolean
  groupLevel?: number
  order?: ViewOrdering
  onError?: ViewErrorMode
  debug?: boolean
  raw?: Record<string, string>
  namespace?: DesignDocumentNamespace
}

/** What a view emitted; reduced rows have no id. */
export interface ViewRow<V = any, K = any> {
  id: string | undefined
  key: K
  value: V
}

/** What the server says about a query's result. */
export interface ViewMetaData {
  /** Rows in the index, whatever the query; undefined for reduced results. */
  totalRows: number | undefined
  debug: any
}

/** All rows of a query. */
export interface ViewResult<V = any, K = any> {
  rows: ViewRow<V, K>[]
  meta: ViewMetaData
}

/** A query: await it for all rows, or go through them with `for await`. It is sent once, when first used. */
export class ViewQuery<V = any, K = any> implements PromiseLike<ViewResult<V, K>>, AsyncIterable<ViewRow<V, K>> {
  readonly #bucket: Bucket
  readonly #request: HttpRequest
  readonly #options: ViewQueryOptions
  #answer: Promise<Answer<V, K>> | undefined

  /** @internal */
  constructor(bucket: Bucket, designDocument: string, view: string, options: ViewQueryOptions) {
    checkOptions('viewQuery', options)
    checkOptions('viewQuery range', options.range)
    checkOptions('viewQuery idRange', options.idRange)
    const path = `${designPath(bucket.name, designDocument, options.namespace)}/_view/${encodeURIComponent(view)}`
    const query = queryString(options)
    this.#bucket = bucket
    this.#options = options
    this.#request = { method: 'GET', path: query ? `${path}?${query}` : path, reads: true }
    // Lists of keys may be longer than a line of a request can be.
    if (options.keys) {
      Object.assign(this.#request, { method: 'POST', body: encodeJson({ keys: options.keys }).toString() })
    }
  }

  /**
   * All rows.
   *
   * @throws ViewNotFoundError there is no such view.
   * @throws ViewEngineError the query was refused, or part of the index failed.
   */
  then<A = ViewResult<V, K>, B = never>(
    onfulfilled?: ((result: ViewResult<V, K>) => A | PromiseLike<A>) | null,
    onrejected?: ((reason: any) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#send().then(checked).then(onfulfilled, onrejected)
  }

  /** The rows, one after the other; when part of the index failed, the error comes after them. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ViewRow<V, K>> {
    const answer = await this.#send()
    yield* answer.result.rows
    checked(answer)
  }

  #send(): Promise<Answer<V, K>> {
    return (this.#answer ??= this.#bucket.askViews(this.#request, this.#options).then(readAnswer<V, K>))
  }
}

interface Answer<V, K> {
  result: ViewResult<V, K>
  errors: unknown[]
}

function checked<V, K>({ result, errors }: Answer<V, K>): ViewResult<V, K> {
  if (errors.length) throw new ViewEngineError(`part of the index failed: ${JSON.stringify(errors)}`)
  return result
}

function readAnswer<V, K>(response: HttpResponse): Answer<V, K> {
  if (response.status === 404) throw new ViewNotFoundError(response.text, response.context)
  if (response.status !== 200) throw new ViewEngineError(response.text, response.context)
  return readJson(response, (answer) => ({
    result: {
      rows: answer.rows.map(({ id, key, value }: ViewRow<V, K>) => ({ id, key, value })),
      meta: { totalRows: answer.total_rows, debug: answer.debug_info },
    },
    errors: answer.errors ?? [],
  }))
}

function queryString(options: ViewQueryOptions): string {
  const { range = {}, idRange = {} } = options
  const query = new URLSearchParams()
  const json = { key: options.key, startkey: range.start, endkey: range.end }
  for (const [name, value] of Object.entries(json)) {
    if (value !== undefined) query.set(name, encodeJson(value).toString())
  }
  // The server lets the last of `group` and `group_level` win: the level, as with the official SDKs.
  if (options.group !== undefined) query.set('group', String(options.group))
  const counts = { skip: options.skip, limit: options.limit, group_level: options.groupLevel }
  for (const [name, value] of Object.entries(counts)) {
    if (value === undefined) continue
    if (!Number.isInteger(value) || value < 0) throw new InvalidArgumentError(`${name} is a number from 0`)
    query.set(name, String(value))
  }
  const plain = {
    inclusive_end: range.inclusiveEnd,
    startkey_docid: idRange.start,
    endkey_docid: idRange.end,
    reduce: options.reduce,
    debug: options.debug,
    stale: options.scanConsistency,
    descending: options.order,
    on_error: options.onError,
    ...options.raw,
  }
  for (const [name, value] of Object.entries(plain)) if (value !== undefined) query.set(name, String(value))
  return query.toString()
}

/** JavaScript source of a view; `reduce` may also be `_count`, `_sum` or `_stats`. Further members are kept. */
export interface DesignDocumentView {
  map: string
  reduce?: string
  [member: string]: unknown
}

/** What a design document is made from. Members that are not named here reach the server as they are. */
export interface DesignDocumentInit {
  name: string
  views?: Record<string, DesignDocumentView>
  collection?: string | undefined
  members?: Record<string, unknown>
  [member: string]: unknown
}

/** A named set of views that are built together. */
export class DesignDocument {
  readonly name: string
  readonly views: Record<string, DesignDocumentView>
  /** `scope.collection` that the views index; undefined is `_default._default`. Only nacre has this. */
  readonly collection: string | undefined
  /** Further members of the document, which a write gives back to the server. */
  readonly members: Record<string, unknown>

  constructor({ name, views = {}, collection, members = {}, ...more }: DesignDocumentInit) {
    this.name = name
    this.views = views
    this.collection = collection
    this.members = { ...members, ...more }
  }
}

/** Design documents of a bucket. */
export class ViewIndexManager {
  readonly #bucket: Bucket

  /** @internal */
  constructor(bucket: Bucket) {
    this.#bucket = bucket
  }

  /**
   * Reads a design document.
   *
   * @throws DesignDocumentNotFoundError there is none.
   */
  async getDesignDocument(
    name: string,
    namespace?: DesignDocumentNamespace,
    options: OperationOptions = {},
  ): Promise<DesignDocument> {
    checkOptions('getDesignDocument', options)
    const response = await this.#send({ method: 'GET', path: this.#path(name, namespace) }, options)
    return readJson(response, ({ views, collection, ...members }) => {
      const entries = Object.entries<DesignDocumentView>(views ?? {}).map(([view, { map, reduce, ...more }]) => {
        if (typeof map !== 'string') throw new TypeError(`the view ${view} has no map function`)
        return [view, { map, ...(reduce ? { reduce } : {}), ...more }] as const
      })
      const bare = name.replace(/^dev_/, '')
      return new DesignDocument({ name: bare, views: Object.fromEntries(entries), collection, members })
    })
  }

  /** Creates or replaces a design document; views that changed are rebuilt. */
  async upsertDesignDocument(
    designDocument: DesignDocument,
    namespace?: DesignDocumentNamespace,
    options: OperationOptions = {},
  ): Promise<void> {
    checkOptions('upsertDesignDocument', options)
    const { views, collection, members } = designDocument
    const body = encodeJson({ ...members, ...(collection === undefined ? {} : { collection }), views }).toString()
    await this.#send({ method: 'PUT', path: this.#path(designDocument.name, namespace), body }, options)
  }

  /**
   * Drops a design document and its indexes.
   *
   * @throws DesignDocumentNotFoundError there is none.
   */
  async dropDesignDocument(
    name: string,
    namespace?: DesignDocumentNamespace,
    options: OperationOptions = {},
  ): Promise<void> {
    checkOptions('dropDesignDocument', options)
    await this.#send({ method: 'DELETE', path: this.#path(name, namespace) }, options)
  }

  #path(name: string, namespace?: DesignDocumentNamespace): string {
    return designPath(this.#bucket.name, name, namespace)
  }

  async #send(request: HttpRequest, options: OperationOptions): Promise<HttpResponse> {
    const response = await this.#bucket.askViews(request, options, this.#bucket.timeouts.managementTimeout)
    if (response.status === 404) throw new DesignDocumentNotFoundError(response.text, response.context)
    if (response.status >= 300) throw new CouchbaseError(response.text, response.context)
    return response
  }
}

function designPath(bucket: string, name: string, namespace = DesignDocumentNamespace.Production): string {
  const bare = name.replace(/^dev_/, '')
  if (!bare) throw new InvalidArgumentError('a design document needs a name')
  const full = namespace === DesignDocumentNamespace.Development ? `dev_${bare}` : bare
  return `/${encodeURIComponent(bucket)}/_design/${encodeURIComponent(full)}`
}
