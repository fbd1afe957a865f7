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

/** Consistency of a query. */
export const ViewScanConsistency = {
  /** The query uses the index as it is. */
  NotBounded: 'ok',
  /** The query waits until the index reflects every earlier mutation. */
  RequestPlus: 'false',
  /** The query uses the index as it is, and updates the index afterwards. */
  UpdateAfter: 'update_after',
} as const
/** Consistency of a query. */
export type ViewScanConsistency = (typeof ViewScanConsistency)[keyof typeof ViewScanConsistency]

/** Order of rows. */
export const ViewOrdering = {
  Ascending: 'false',
  Descending: 'true',
} as const
/** Order of rows. */
export type ViewOrdering = (typeof ViewOrdering)[keyof typeof ViewOrdering]

/** Behaviour of the server when a part of the index fails. */
export const ViewErrorMode = {
  Continue: 'continue',
  Stop: 'stop',
} as const
/** Behaviour of the server when a part of the index fails. */
export type ViewErrorMode = (typeof ViewErrorMode)[keyof typeof ViewErrorMode]

/** Options of `viewQuery`. Keys are JSON values. */
export interface ViewQueryOptions extends OperationOptions {
  scanConsistency?: ViewScanConsistency
  skip?: number
  limit?: number
  key?: any
  keys?: any[]
  /** Rows between two keys. */
  range?: { start?: any; end?: any; inclusiveEnd?: boolean }
  /** Rows between two document IDs, for equal keys. */
  idRange?: { start?: string; end?: string }
  reduce?: boolean
  group?: boolean
  groupLevel?: number
  order?: ViewOrdering
  onError?: ViewErrorMode
  /** True to use the whole index, even on nodes that are leaving. */
  fullSet?: boolean
  debug?: boolean
  raw?: Record<string, string>
  namespace?: DesignDocumentNamespace
}

/** A row of a view. Reduced rows have no ID. */
export interface ViewRow<V = any, K = any> {
  id: string | undefined
  key: K
  value: V
}

/** Metadata of a view result. */
export interface ViewMetaData {
  /** Number of rows in the index, independent of the query; undefined for reduced results. */
  totalRows: number | undefined
  debug: any
}

/** All rows of a query. */
export interface ViewResult<V = any, K = any> {
  rows: ViewRow<V, K>[]
  meta: ViewMetaData
}

/** A running query: await it for all rows, or iterate over them with `for await`. */
export type ViewQuery<V = any, K = any> = StreamablePromise<ViewResult<V, K>, ViewRow<V, K>, ViewMetaData>

/**
 * Starts a query of a view. If a part of the index fails, the error comes after the rows.
 *
 * @throws InvalidArgumentError if an option is invalid.
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
  // A list of keys may exceed the maximum length of a request line.
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

/** Returns the options with their newest names. */
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
  // The server uses the last of `group` and `group_level`: this order selects the level, as in the official SDKs.
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

/** JavaScript source of a view. `reduce` may also be `_count`, `_sum` or `_stats`. Unknown members are preserved. */
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

/** Members of a design document. Unknown members are sent to the server unchanged. */
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
  /**
   * `scope.collection` that the views index; undefined means `_default._default`. This feature is specific to nacre.
   */
  readonly collection: string | undefined
  /** The class of views. */
  static get View(): typeof DesignDocumentView {
    return DesignDocumentView
  }

  /** Unknown members of the document, which a write sends back to the server. */
  readonly members: Record<string, unknown>

  constructor({ name, views = {}, collection, members = {}, ...more }: DesignDocumentInit) {
    this.name = name
    this.views = views
    this.collection = collection
    this.members = { ...members, ...more }
  }
}

/** Returns the path of a design document on the views service. */
export function designPath(bucket: string, name: string, namespace: DesignDocumentNamespace = DesignDocumentNamespace.Production): string {
  const bare = name.replace(/^dev_/, '')
  if (!bare) throw new InvalidArgumentError('a design document needs a name')
  const full = namespace === DesignDocumentNamespace.Development ? `dev_${bare}` : bare
  return `/${segment(bucket)}/_design/${segment(full)}`
}
