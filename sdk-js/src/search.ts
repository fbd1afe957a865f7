/**
 * Search: requests, facets, the order of rows, and results.
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

/** How found words are marked in fragments. */
export const HighlightStyle = {
  HTML: 'html',
  ANSI: 'ansi',
} as const
/** How found words are marked in fragments. */
export type HighlightStyle = (typeof HighlightStyle)[keyof typeof HighlightStyle]

/** Whether a search waits for its index. */
export const SearchScanConsistency = {
  /** It uses the index as it is. */
  NotBounded: 'not_bounded',
} as const
/** Whether a search waits for its index. */
export type SearchScanConsistency = (typeof SearchScanConsistency)[keyof typeof SearchScanConsistency]

/** Whether documents have to be near all vectors of a search. */
export const VectorQueryCombination = {
  AND: 'and',
  OR: 'or',
} as const
/** Whether documents have to be near all vectors of a search. */
export type VectorQueryCombination = (typeof VectorQueryCombination)[keyof typeof VectorQueryCombination]

/** What is counted of the documents that were found: how many have which values of a field. */
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

  /** Adds a range; an end that is undefined is open. */
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

  /** Adds a range; an end that is undefined is open. */
  addRange(name: string, start?: Date, end?: Date): this {
    ;(this._data['date_ranges'] ??= []).push({ name, start, end })
    return this
  }
}

/** What rows are ordered by. */
export class SearchSort extends SearchPart {
  /** Whether the greatest comes first. */
  descending(descending: boolean): this {
    return this._set({ desc: descending })
  }

  /** By how well documents fit. */
  static score(): ScoreSearchSort {
    return new ScoreSearchSort({ by: 'score' })
  }

  /** By keys. */
  static id(): IdSearchSort {
    return new IdSearchSort({ by: 'id' })
  }

  /** By a field. */
  static field(field: string): FieldSearchSort {
    return new FieldSearchSort({ by: 'field', field })
  }

  /** By the distance from a place. */
  static geoDistance(field: string, lat: number, lon: number): GeoDistanceSearchSort {
    return new GeoDistanceSearchSort({ by: 'geo_distance', field, location: [lon, lat] })
  }
}

/** By how well documents fit. */
export class ScoreSearchSort extends SearchSort {}

/** By keys. */
export class IdSearchSort extends SearchSort {}

/** By a field. */
export class FieldSearchSort extends SearchSort {
  /** How values are compared: auto, string, number or date. */
  type(type: string): this {
    return this._set({ type })
  }

  /** Which of several values counts: default, min or max. */
  mode(mode: string): this {
    return this._set({ mode })
  }

  /** Place of documents without the field: first (`true`, `'first'`) or last. */
  missing(missing: boolean | string): this {
    return this._set({ missing: typeof missing === 'string' ? missing : missing ? 'first' : 'last' })
  }
}

/** By the distance from a place. */
export class GeoDistanceSearchSort extends SearchSort {
  /** Unit of the distances in the rows, such as `km`. */
  unit(unit: string): this {
    return this._set({ unit })
  }
}

/** A vector that documents are to be near: numbers, or little-endian 32-bit floats in base 64. */
export class VectorQuery extends SearchPart {
  /** @throws InvalidArgumentError there is no field or no vector. */
  constructor(fieldName: string, vector: number[] | string) {
    if (!fieldName || !vector?.length) throw new InvalidArgumentError('a vector query has a field and a vector')
    super({ field: fieldName, k: 3, [typeof vector === 'string' ? 'vector_base64' : 'vector']: vector })
  }

  /** How much more the vector counts than others. */
  boost(boost: number): this {
    return this._set({ boost })
  }

  /** How many of the nearest documents are taken; 3 by default. */
  numCandidates(numCandidates: number): this {
    if (!(numCandidates >= 1)) throw new InvalidArgumentError('numCandidates is a number from 1')
    return this._set({ k: numCandidates })
  }

  /** Only documents that this query finds are compared. */
  prefilter(prefilter: SearchQuery): this {
    return this._set({ filter: prefilter })
  }

  /** The same as the constructor. */
  static create(fieldName: string, vector: number[] | string): VectorQuery {
    return new VectorQuery(fieldName, vector)
  }
}

/** How the vectors of a search go together. */
export interface VectorSearchOptions {
  vectorQueryCombination?: VectorQueryCombination
}

/** Vectors to search for. */
export class VectorSearch {
  readonly queries: VectorQuery[]
  readonly options: VectorSearchOptions | undefined

  /** @throws InvalidArgumentError there are no vectors. */
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

/** What to look for: a query, vectors, or both. */
export class SearchRequest {
  #searchQuery: SearchQuery | undefined
  #vectorSearch: VectorSearch | undefined

  /** @throws InvalidArgumentError it is neither a query nor a search for vectors. */
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

  /** The same as the constructor. */
  static create(query: SearchQuery | VectorSearch): SearchRequest {
    return new SearchRequest(query)
  }
}

/** Options of `search` and `searchQuery`. */
export interface SearchQueryOptions extends OperationOptions {
  skip?: number
  limit?: number
  /** Rows say how their scores came about. */
  explain?: boolean
  /** Rows have fragments of their fields, in which found words are marked. */
  highlight?: { style?: HighlightStyle; fields?: string[] }
  /** Only documents of these collections. */
  collections?: string[]
  /** Stored fields that rows have; `['*']` for all. */
  fields?: string[]
  facets?: Record<string, SearchFacet>
  sort?: string[] | SearchSort[]
  /** Rows have no scores, and are found sooner. */
  disableScoring?: boolean
  /** Rows say where the terms are. */
  includeLocations?: boolean
  consistency?: SearchScanConsistency
  /** The search sees these mutations. */
  consistentWith?: MutationState
  /** The result repeats the request. */
  showRequest?: boolean
  /** Further members of the request. */
  raw?: Record<string, any>
}

/** What the service says about a search besides its rows: `status`, `total_hits`, `max_score`, `took`, `facets`. */
export interface SearchMetaData {
  [member: string]: any
}

/** A document that was found: `index`, `id`, `score`, and what the options ask for. */
export interface SearchRow {
  [member: string]: any
}

/** All rows of a search. */
export interface SearchResult {
  rows: SearchRow[]
  meta: SearchMetaData
}

/** A search under way: await it, or go through its rows with `for await`. */
export type Search = StreamablePromise<SearchResult, SearchRow, SearchMetaData>

/** What sends searches. */
export interface SearchSender {
  client: Nodes
  http: HttpTransport
  defaultMs: number
}

/**
 * Begins a search in an index, which belongs to a scope if one is given.
 *
 * @throws InvalidArgumentError an option or the request means nothing.
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

/** Seqnos by vBucket and branch, as the service takes them. */
function vectorsOf(state: MutationState): Record<string, number> {
  const buckets: Record<string, [number, string]>[] = Object.values(state.toJSON())
  const entries = buckets.flatMap((bucket) => Object.entries(bucket))
  return Object.fromEntries(entries.map(([vbid, [seqno, branch]]) => [`${vbid}/${branch}`, seqno]))
}
