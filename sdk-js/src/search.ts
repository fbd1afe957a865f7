/**
 * Search: requests, facets, sort orders, and results.
 *
 *     const request = SearchRequest.create(SearchQuery.match('sea view').field('text'))
 *     for await (const { id, score } of cluster.search('hotels', request, { limit: 10 })) …
 */

import type { OperationOptions } from './deadline.js'
import { InvalidArgumentError } from './errors.js'
import { segment, type HttpTransport, type Nodes } from './http-messages.js'
import type { MutationState } from './mutation-state.js'
import { checkOptions } from './option-names.js'
import { streamRows } from './row-stream.js'
import { refusal } from './search-errors.js'
import { SearchPart, SearchQuery } from './search-queries.js'
import { StreamablePromise } from './streamable.js'
import { jsonText } from './transcoders.js'

/** How matches are marked in fragments. */
export const HighlightStyle = {
  HTML: 'html',
  ANSI: 'ansi',
} as const
/** How matches are marked in fragments. */
export type HighlightStyle = (typeof HighlightStyle)[keyof typeof HighlightStyle]

/** Consistency of a search. */
export const SearchScanConsistency = {
  /** The query uses the index as it is. */
  NotBounded: 'not_bounded',
} as const
/** Consistency of a search. */
export type SearchScanConsistency = (typeof SearchScanConsistency)[keyof typeof SearchScanConsistency]

/** Whether documents must be near all vectors of a search, or near one of them. */
export const VectorQueryCombination = {
  AND: 'and',
  OR: 'or',
} as const
/** Whether documents must be near all vectors of a search, or near one of them. */
export type VectorQueryCombination = (typeof VectorQueryCombination)[keyof typeof VectorQueryCombination]

/** A facet: counts of the hits by the values of a field. */
export class SearchFacet extends SearchPart {
  /** The most frequent terms. */
  static term(field: string, size: number): TermSearchFacet {
    return new TermSearchFacet(field, size)
  }

  /** Ranges of numbers. */
  static numeric(field: string, size: number): NumericSearchFacet {
    return new NumericSearchFacet(field, size)
  }

  /** Ranges of dates. */
  static date(field: string, size: number): DateSearchFacet {
    return new DateSearchFacet(field, size)
  }
}

/** The most frequent terms. */
export class TermSearchFacet extends SearchFacet {
  constructor(field: string, size: number) {
    super({ field, size })
  }
}

/** Ranges of numbers. */
export class NumericSearchFacet extends SearchFacet {
  constructor(field: string, size: number) {
    super({ field, size })
  }

  /** Adds a range. An undefined end is open. */
  addRange(name: string, min?: number, max?: number): this {
    ;(this._data['numeric_ranges'] ??= []).push({ name, min, max })
    return this
  }
}

/** Ranges of dates. */
export class DateSearchFacet extends SearchFacet {
  constructor(field: string, size: number) {
    super({ field, size })
  }

  /** Adds a range. An undefined end is open. */
  addRange(name: string, start?: Date, end?: Date): this {
    ;(this._data['date_ranges'] ??= []).push({ name, start, end })
    return this
  }
}

/** A sort order of rows. */
export class SearchSort extends SearchPart {
  /** Sets whether the largest value comes first. */
  descending(descending: boolean): this {
    return this._set({ desc: descending })
  }

  /** Sorts by score. */
  static score(): ScoreSearchSort {
    return new ScoreSearchSort({ by: 'score' })
  }

  /** Sorts by key. */
  static id(): IdSearchSort {
    return new IdSearchSort({ by: 'id' })
  }

  /** Sorts by a field. */
  static field(field: string): FieldSearchSort {
    return new FieldSearchSort({ by: 'field', field })
  }

  /** Sorts by the distance from a point. */
  static geoDistance(field: string, lat: number, lon: number): GeoDistanceSearchSort {
    return new GeoDistanceSearchSort({ by: 'geo_distance', field, location: [lon, lat] })
  }
}

/** Sorts by score. */
export class ScoreSearchSort extends SearchSort {}

/** Sorts by key. */
export class IdSearchSort extends SearchSort {}

/** Sorts by a field. */
export class FieldSearchSort extends SearchSort {
  /** Sets how values are compared: auto, string, number or date. */
  type(type: string): this {
    return this._set({ type })
  }

  /** Sets which of several values counts: default, min or max. */
  mode(mode: string): this {
    return this._set({ mode })
  }

  /** Sets the position of documents without the field: first (`true`, `'first'`) or last. */
  missing(missing: boolean | string): this {
    return this._set({ missing: typeof missing === 'string' ? missing : missing ? 'first' : 'last' })
  }
}

/** Sorts by the distance from a point. */
export class GeoDistanceSearchSort extends SearchSort {
  /** Sets the unit of the distances in the rows, such as `km`. */
  unit(unit: string): this {
    return this._set({ unit })
  }
}

/** A query vector: numbers, or little-endian 32-bit floats in base64. */
export class VectorQuery extends SearchPart {
  /** @throws InvalidArgumentError if the field or the vector is missing. */
  constructor(fieldName: string, vector: number[] | string) {
    if (!fieldName || !vector?.length) throw new InvalidArgumentError('a vector query has a field and a vector')
    super({ field: fieldName, k: 3, [typeof vector === 'string' ? 'vector_base64' : 'vector']: vector })
  }

  /** Sets the weight of the vector relative to others. */
  boost(boost: number): this {
    return this._set({ boost })
  }

  /** Sets the number of nearest documents; 3 by default. */
  numCandidates(numCandidates: number): this {
    if (!(numCandidates >= 1)) throw new InvalidArgumentError('numCandidates is a number from 1')
    return this._set({ k: numCandidates })
  }

  /** Restricts the comparison to documents that match a query. */
  prefilter(prefilter: SearchQuery): this {
    return this._set({ filter: prefilter })
  }

  /** Equivalent to the constructor. */
  static create(fieldName: string, vector: number[] | string): VectorQuery {
    return new VectorQuery(fieldName, vector)
  }
}

/** Options for several vectors. */
export interface VectorSearchOptions {
  vectorQueryCombination?: VectorQueryCombination
}

/** Vectors to search for. */
export class VectorSearch {
  readonly queries: VectorQuery[]
  readonly options: VectorSearchOptions | undefined

  /** @throws InvalidArgumentError if there are no vectors. */
  constructor(queries: VectorQuery[], options?: VectorSearchOptions) {
    if (!queries?.length || !queries.every((query) => query instanceof VectorQuery)) {
      throw new InvalidArgumentError('a vector search has vector queries')
    }
    this.queries = queries
    this.options = options
  }

  /** A search for one vector. */
  static fromVectorQuery(query: VectorQuery): VectorSearch {
    return new VectorSearch([query])
  }
}

/** A search request: a query, vectors, or both. */
export class SearchRequest {
  #searchQuery: SearchQuery | undefined
  #vectorSearch: VectorSearch | undefined

  /** @throws InvalidArgumentError if it is neither a query nor a vector search. */
  constructor(query: SearchQuery | VectorSearch) {
    this.#add(query)
  }

  /** The query, if there is one. */
  get searchQuery(): SearchQuery | undefined {
    return this.#searchQuery
  }

  /** The vectors, if there are any. */
  get vectorSearch(): VectorSearch | undefined {
    return this.#vectorSearch
  }

  /** Adds a query to vectors. */
  withSearchQuery(query: SearchQuery): this {
    return this.#add(query)
  }

  /** Adds vectors to a query. */
  withVectorSearch(search: VectorSearch): this {
    return this.#add(search)
  }

  #add(part: SearchQuery | VectorSearch): this {
    if (part instanceof SearchQuery && !this.#searchQuery) this.#searchQuery = part
    else if (part instanceof VectorSearch && !this.#vectorSearch) this.#vectorSearch = part
    else throw new InvalidArgumentError('a request has one SearchQuery, one VectorSearch, or both')
    return this
  }

  /** Equivalent to the constructor. */
  static create(query: SearchQuery | VectorSearch): SearchRequest {
    return new SearchRequest(query)
  }
}

/** Options of `search` and `searchQuery`. */
export interface SearchQueryOptions extends OperationOptions {
  skip?: number
  limit?: number
  /** True if rows explain their scores. */
  explain?: boolean
  /** Requests fragments of fields with marked matches. */
  highlight?: { style?: HighlightStyle; fields?: string[] }
  /** Restricts the search to these collections. */
  collections?: string[]
  /** Stored fields in the rows; `['*']` for all. */
  fields?: string[]
  facets?: Record<string, SearchFacet>
  sort?: string[] | SearchSort[]
  /** True if rows have no scores, which makes the search faster. */
  disableScoring?: boolean
  /** True if rows contain the locations of terms. */
  includeLocations?: boolean
  consistency?: SearchScanConsistency
  /** Mutations that the search must reflect. */
  consistentWith?: MutationState
  /** True if the result repeats the request. */
  showRequest?: boolean
  /** Further members of the request. */
  raw?: Record<string, any>
}

/** Metadata of a search: `status`, `total_hits`, `max_score`, `took`, `facets`. */
export interface SearchMetaData {
  [member: string]: any
}

/** A hit: `index`, `id`, `score`, and what the options ask for. */
export interface SearchRow {
  [member: string]: any
}

/** All rows of a search. */
export interface SearchResult {
  rows: SearchRow[]
  meta: SearchMetaData
}

/** A running search: await it, or iterate over its rows with `for await`. */
export type Search = StreamablePromise<SearchResult, SearchRow, SearchMetaData>

/** Sends searches. */
export interface SearchSender {
  client: Nodes
  http: HttpTransport
  defaultMs: number
}

/**
 * Starts a search in an index, which may belong to a scope.
 *
 * @throws InvalidArgumentError if an option or the request is invalid.
 */
export function startSearch(
  sender: SearchSender,
  indexName: string,
  request: SearchRequest,
  options: SearchQueryOptions,
  scope?: { bucket: string; name: string },
): Search {
  checkOptions('search', options)
  checkOptions('search highlight', options.highlight)
  if (!(request instanceof SearchRequest)) throw new InvalidArgumentError('a search has a SearchRequest')
  if (typeof indexName !== 'string' || !indexName) throw new InvalidArgumentError('an index has a name')
  const place = scope ? `/bucket/${segment(scope.bucket)}/scope/${segment(scope.name)}` : ''
  const path = `/api${place}/index/${segment(indexName)}/query`
  const body = jsonText(requestOf(indexName, request, options, options.timeout ?? sender.defaultMs))
  return new StreamablePromise(
    () => run(sender, path, body, options),
    (rows, meta) => ({ rows, meta }),
    { item: 'row', meta: 'meta', repeats: true },
  )
}

async function* run(
  { client, http, defaultMs }: SearchSender,
  path: string,
  body: string,
  options: SearchQueryOptions,
): AsyncGenerator<SearchRow, SearchMetaData, void> {
  const rows = streamRows({
    client,
    http,
    service: 'fts',
    request: { method: 'POST', path, body },
    options,
    defaultMs,
    member: 'hits',
    onFailure: (status, text, context) => refusal({ status, text, context }),
  })
  const { rest } = yield* rows
  return rest
}

function requestOf(index: string, request: SearchRequest, options: SearchQueryOptions, timeout: number): any {
  const { consistency, consistentWith, facets, highlight, sort } = options
  if (consistency !== undefined && consistentWith) {
    throw new InvalidArgumentError('consistency and consistentWith exclude each other')
  }
  const vectors = request.vectorSearch
  const ctl: Record<string, any> = { timeout }
  if (consistentWith) ctl['consistency'] = { level: 'at_plus', vectors: { [index]: vectorsOf(consistentWith) } }
  else if (consistency) ctl['consistency'] = { level: consistency }
  return {
    query: request.searchQuery ?? SearchQuery.matchNone(),
    ...(vectors ? { knn: vectors.queries, knn_operator: vectors.options?.vectorQueryCombination } : {}),
    size: options.limit,
    from: options.skip,
    explain: options.explain,
    fields: options.fields,
    collections: options.collections,
    includeLocations: options.includeLocations,
    score: options.disableScoring ? 'none' : undefined,
    showrequest: options.showRequest ?? false,
    highlight,
    facets,
    sort,
    ctl,
    ...options.raw,
  }
}

/** Returns the seqnos by vBucket and branch, in the format of the service. */
function vectorsOf(state: MutationState): Record<string, number> {
  const buckets: Record<string, [number, string]>[] = Object.values(state.toJSON())
  const entries = buckets.flatMap((bucket) => Object.entries(bucket))
  return Object.fromEntries(entries.map(([vbid, [seqno, branch]]) => [`${vbid}/${branch}`, seqno]))
}
