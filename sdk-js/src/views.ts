/** Views: queries, and the design documents that define them. */

import type { Bucket } from './bucket.js'
import type { OperationOptions } from './deadline.js'
import { InvalidArgumentError, ViewEngineError, ViewNotFoundError } from './errors.js'
import { type HttpRequest, segment } from './http-messages.js'
import { checkOptions } from './option-names.js'
import { streamRows } from './row-stream.js'
import { StreamablePromise } from './streamable.js'
import { jsonText } from './transcoders.js'

/** Whether a design document is in use or under development (its name then starts with dev_). */
export const DesignDocumentNamespace = {
  Production: 'production',
  Development: 'development',
} as const
/** Whether a design document is in use or under development (its name then starts with dev_). */
export type DesignDocumentNamespace = (typeof DesignDocumentNamespace)[keyof typeof DesignDocumentNamespace]

/** Whether a query waits for the index. */
export const ViewScanConsistency = {
  /** It uses the index as it is. */
  NotBounded: 'ok',
  /** It waits until the index has every mutation before the query. */
  RequestPlus: 'false',
  /** It uses the index as it is, and brings it up to date afterwards. */
  UpdateAfter: 'update_after',
} as const
/** Whether a query waits for the index. */
export type ViewScanConsistency = (typeof ViewScanConsistency)[keyof typeof ViewScanConsistency]

/** Order of rows. */
export const ViewOrdering = {
  Ascending: 'false',
  Descending: 'true',
} as const
/** Order of rows. */
export type ViewOrdering = (typeof ViewOrdering)[keyof typeof ViewOrdering]

/** What the server does when a part of the index fails. */
export const ViewErrorMode = {
  Continue: 'continue',
  Stop: 'stop',
} as const
/** What the server does when a part of the index fails. */
export type ViewErrorMode = (typeof ViewErrorMode)[keyof typeof ViewErrorMode]

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
  /** All of the index is used, also where a node is leaving. */
  fullSet?: boolean
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

/** A query: await it for all rows, or go through them with `for await`. */
export type ViewQuery<V = any, K = any> = StreamablePromise<ViewResult<V, K>, ViewRow<V, K>, ViewMetaData>

/**
 * Begins a query of a view. When part of the index failed, the error comes after the rows.
 *
 * @throws InvalidArgumentError an option means nothing.
 */
export function startViewQuery<V, K>(
  bucket: Bucket,
  designDocument: string,
  view: string,
  given: ViewQueryOptions,
): ViewQuery<V, K> {
  const options = renamed(given)
  checkOptions('viewQuery', options)
  checkOptions('viewQuery range', options.range)
  checkOptions('viewQuery idRange', options.idRange)
  const path = `${designPath(bucket.name, designDocument, options.namespace)}/_view/${segment(view)}`
  const query = queryString(options)
  const request: HttpRequest = { method: 'GET', path: query ? `${path}?${query}` : path }
  // Lists of keys may be longer than a line of a request can be.
  if (options.keys) Object.assign(request, { method: 'POST', body: jsonText({ keys: options.keys }) })
  return new StreamablePromise(
    () => run<V, K>(bucket, request, options),
    (rows, meta) => ({ rows, meta }),
    { item: 'row', meta: 'meta', repeats: true },
  )
}

/** Older names of options. */
const OLDER_NAMES: Record<string, keyof ViewQueryOptions> = {
  full_set: 'fullSet',
  group_level: 'groupLevel',
  id_range: 'idRange',
  on_error: 'onError',
  stale: 'scanConsistency',
}

/** The options under their newest names. */
function renamed(options: ViewQueryOptions): ViewQueryOptions {
  const entries = Object.entries(options ?? {})
  if (!entries.some(([name]) => Object.hasOwn(OLDER_NAMES, name))) return options
  return Object.fromEntries(entries.map(([name, value]) => [OLDER_NAMES[name] ?? name, value]))
}

async function* run<V, K>(
  bucket: Bucket,
  request: HttpRequest,
  options: ViewQueryOptions,
): AsyncGenerator<ViewRow<V, K>, ViewMetaData, void> {
  const rows = streamRows({
    client: bucket.client,
    http: bucket.cluster.http,
    service: 'capi',
    request,
    options,
    defaultMs: bucket.timeouts.viewTimeout,
    member: 'rows',
    onFailure: (status, text, context) => new (status === 404 ? ViewNotFoundError : ViewEngineError)(text, context),
  })
  try {
    for (;;) {
      const { done, value } = await rows.next()
      if (!done) {
        const { id, key, value: emitted } = value
        yield { id, key, value: emitted }
        continue
      }
      const { rest, context } = value
      const errors = Array.isArray(rest.errors) ? rest.errors : []
      if (errors.length) throw new ViewEngineError(`part of the index failed: ${JSON.stringify(errors)}`, context)
      return { totalRows: rest.total_rows, debug: rest.debug_info }
    }
  } finally {
    await rows.return(undefined as never)
  }
}

function queryString(options: ViewQueryOptions): string {
  const { range = {}, idRange = {} } = options
  const query = new URLSearchParams()
  const json = { key: options.key, startkey: range.start, endkey: range.end }
  for (const [name, value] of Object.entries(json)) {
    if (value !== undefined) query.set(name, jsonText(value))
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
    full_set: options.fullSet,
    ...options.raw,
  }
  for (const [name, value] of Object.entries(plain)) if (value !== undefined) query.set(name, String(value))
  return query.toString()
}

/** JavaScript source of a view; `reduce` may also be `_count`, `_sum` or `_stats`. Further members are kept. */
export class DesignDocumentView {
  declare map: string
  declare reduce?: string;
  [member: string]: unknown

  constructor(view: string | { map: string; reduce?: string; [member: string]: unknown }, reduce?: string) {
    const { map, ...more } = typeof view === 'string' ? { map: view, reduce } : view
    Object.assign(this, { map }, more.reduce === undefined ? { ...more, reduce: undefined } : more)
    if (this.reduce === undefined) delete this.reduce
  }
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
  /** The class of views. */
  static get View(): typeof DesignDocumentView {
    return DesignDocumentView
  }

  /** Further members of the document, which a write gives back to the server. */
  readonly members: Record<string, unknown>

  constructor({ name, views = {}, collection, members = {}, ...more }: DesignDocumentInit) {
    this.name = name
    this.views = views
    this.collection = collection
    this.members = { ...members, ...more }
  }
}

/** Path of a design document on the views service. */
export function designPath(bucket: string, name: string, namespace: DesignDocumentNamespace = DesignDocumentNamespace.Production): string {
  const bare = name.replace(/^dev_/, '')
  if (!bare) throw new InvalidArgumentError('a design document needs a name')
  const full = namespace === DesignDocumentNamespace.Development ? `dev_${bare}` : bare
  return `/${segment(bucket)}/_design/${segment(full)}`
}
