/**
 * Queries of the search service, built in steps: `SearchQuery.match('sea view').field('text').fuzziness(1)`.
 *
 * A query is sent as the JSON from `toJSON`; the service validates it.
 */

import { InvalidArgumentError } from './errors.js'

/** Whether all words of a match query must occur. */
export const MatchOperator = {
  Or: 'or',
  And: 'and',
} as const
/** Whether all words of a match query must occur. */
export type MatchOperator = (typeof MatchOperator)[keyof typeof MatchOperator]

/** A geographic point in degrees. In an array, the longitude comes first. */
export type GeoPoint =
  | [longitude: number, latitude: number]
  | { lon: number; lat: number }
  | { longitude: number; latitude: number }

/** Members of a JSON object in a request. */
type Members = Record<string, any>

/** A part of a request that is sent as a JSON object. Its methods set members of the object. */
export class SearchPart {
  /** The JSON object. */
  protected readonly _data: Members

  /** @internal */
  constructor(data: Members) {
    this._data = data
  }

  /** The JSON object that is sent. */
  toJSON(): any {
    return this._data
  }

  /** Sets members, except those whose value is undefined. */
  protected _set(members: Members): this {
    for (const [name, value] of Object.entries(members)) if (value !== undefined) this._data[name] = value
    return this
  }
}

/** A search query. */
export class SearchQuery extends SearchPart {
  /** Sets the weight of the query relative to others; 1 by default. */
  boost(boost: number): this {
    return this._set({ boost })
  }

  /** @internal Returns the JSON object of a query, which may be one already. */
  static toJSON(query: SearchQuery | any): any {
    return query instanceof SearchQuery ? query.toJSON() : query
  }

  /** @internal Returns true if the JSON object of a query has a member. */
  static hasProp(query: SearchQuery | any, prop: string): boolean {
    return SearchQuery.toJSON(query)[prop] !== undefined
  }

  /** Matches documents with words, after analysis by the field's analyzer. */
  static match(match: string): MatchSearchQuery {
    return new MatchSearchQuery({ match })
  }

  /** Matches documents with a phrase, after analysis. */
  static matchPhrase(phrase: string): MatchPhraseSearchQuery {
    return new MatchPhraseSearchQuery({ match_phrase: phrase })
  }

  /** Matches documents with a term that matches a regular expression. */
  static regexp(regexp: string): RegexpSearchQuery {
    return new RegexpSearchQuery({ regexp })
  }

  /** A query in the query string syntax of the service. */
  static queryString(query: string): QueryStringSearchQuery {
    return new QueryStringSearchQuery({ query })
  }

  /** Matches documents with a number in a range. */
  static numericRange(): NumericRangeSearchQuery {
    return new NumericRangeSearchQuery({})
  }

  /** Matches documents with a date in a range. */
  static dateRange(): DateRangeSearchQuery {
    return new DateRangeSearchQuery({})
  }

  /** Matches documents with a term in a range. */
  static termRange(): TermRangeSearchQuery {
    return new TermRangeSearchQuery({})
  }

  /** Matches documents that match all queries. */
  static conjuncts(...queries: SearchQuery[] | [SearchQuery[]]): ConjunctionSearchQuery {
    return new ConjunctionSearchQuery(...(queries as SearchQuery[]))
  }

  /** Matches documents that match at least one of the queries. */
  static disjuncts(...queries: SearchQuery[] | [SearchQuery[]]): DisjunctionSearchQuery {
    return new DisjunctionSearchQuery(...(queries as SearchQuery[]))
  }

  /** Combines queries that must, should and must not match. */
  static boolean(): BooleanSearchQuery {
    return new BooleanSearchQuery({})
  }

  /** Matches documents with a term that matches a pattern with `*` and `?`. */
  static wildcard(wildcard: string): WildcardSearchQuery {
    return new WildcardSearchQuery({ wildcard })
  }

  /** Matches documents by their keys. */
  static docIds(...ids: string[] | [string[]]): DocIdSearchQuery {
    return new DocIdSearchQuery({ ids: ids.flat() })
  }

  /** Matches documents whose field is true, or false. */
  static booleanField(val: boolean): BooleanFieldSearchQuery {
    return new BooleanFieldSearchQuery({ bool: val })
  }

  /** Matches documents with an exact term. */
  static term(term: string): TermSearchQuery {
    return new TermSearchQuery({ term })
  }

  /** Matches documents with a phrase of exact terms. */
  static phrase(terms: string[]): PhraseSearchQuery {
    return new PhraseSearchQuery({ terms })
  }

  /** Matches documents with a term that has a prefix. */
  static prefix(prefix: string): PrefixSearchQuery {
    return new PrefixSearchQuery({ prefix })
  }

  /** Matches all documents. */
  static matchAll(): MatchAllSearchQuery {
    return new MatchAllSearchQuery({ match_all: null })
  }

  /** Matches no document. */
  static matchNone(): MatchNoneSearchQuery {
    return new MatchNoneSearchQuery({ match_none: null })
  }

  /** Matches documents within a distance, such as `10km`, of a point. */
  static geoDistance(lon: number, lat: number, distance: string): GeoDistanceSearchQuery {
    return new GeoDistanceSearchQuery({ location: [lon, lat], distance })
  }

  /** Matches documents in a box, given by two corners. */
  static geoBoundingBox(tl_lon: number, tl_lat: number, br_lon: number, br_lat: number): GeoBoundingBoxSearchQuery {
    return new GeoBoundingBoxSearchQuery({ top_left: [tl_lon, tl_lat], bottom_right: [br_lon, br_lat] })
  }

  /** Matches documents in a polygon. */
  static geoPolygon(points: GeoPoint[]): GeoPolygonSearchQuery {
    return new GeoPolygonSearchQuery({ polygon_points: points.map(placeOf) })
  }
}

/** A query on one field, or on all fields by default. */
class FieldQuery extends SearchQuery {
  /** Sets the field. */
  field(field: string): this {
    return this._set({ field })
  }
}

/** A query for terms that supports fuzzy matching. */
class FuzzyQuery extends FieldQuery {
  /** Sets the number of leading characters that must be equal. */
  prefixLength(prefixLength: number): this {
    return this._set({ prefix_length: prefixLength })
  }

  /** Sets the maximum number of edits. */
  fuzziness(fuzziness: number): this {
    return this._set({ fuzziness })
  }
}

/** Matches documents with words, after analysis by the field's analyzer. */
export class MatchSearchQuery extends FuzzyQuery {
  /** Sets whether all words must occur. */
  operator(op: MatchOperator): this {
    return this._set({ operator: op })
  }

  /** Sets the analyzer of the words, instead of the field's. */
  analyzer(analyzer: string): this {
    return this._set({ analyzer })
  }

}

/** Matches documents with a phrase, after analysis. */
export class MatchPhraseSearchQuery extends FieldQuery {
  /** Sets the analyzer of the words, instead of the field's. */
  analyzer(analyzer: string): this {
    return this._set({ analyzer })
  }
}

/** Matches documents with a term that matches a regular expression. */
export class RegexpSearchQuery extends FieldQuery {}

/** A query in the query string syntax of the service. */
export class QueryStringSearchQuery extends SearchQuery {}

/** Matches documents with a value in a range. */
class RangeQuery<Value> extends FieldQuery {
  /** Sets the lower bound, which is included unless `inclusive` is false. */
  min(min: Value, inclusive = true): this {
    return this._set({ min, inclusive_min: inclusive })
  }

  /** Sets the upper bound, which is excluded unless `inclusive` is true. */
  max(max: Value, inclusive = false): this {
    return this._set({ max, inclusive_max: inclusive })
  }
}

/** Matches documents with a number in a range. */
export class NumericRangeSearchQuery extends RangeQuery<number> {}

/** Matches documents with a date in a range. */
export class DateRangeSearchQuery extends FieldQuery {
  /** Sets the start, which is included unless `inclusive` is false. */
  start(start: Date | string, inclusive = true): this {
    return this._set({ start: dateOf(start), inclusive_start: inclusive })
  }

  /** Sets the end, which is excluded unless `inclusive` is true. */
  end(end: Date | string, inclusive = false): this {
    return this._set({ end: dateOf(end), inclusive_end: inclusive })
  }

  /** Sets the parser of both dates. */
  dateTimeParser(parser: string): this {
    return this._set({ datetime_parser: parser })
  }
}

/** Matches documents with a term in a range. */
export class TermRangeSearchQuery extends RangeQuery<string> {}

/** Matches documents that match all queries. */
export class ConjunctionSearchQuery extends SearchQuery {
  /** @internal */
  constructor(...queries: (SearchQuery | SearchQuery[])[]) {
    super({ conjuncts: queries.flat() })
  }

  /** Adds queries. */
  and(...queries: SearchQuery[] | [SearchQuery[]]): this {
    this._data['conjuncts'].push(...queries.flat())
    return this
  }
}

/** Matches documents that match at least one of the queries. */
export class DisjunctionSearchQuery extends SearchQuery {
  /** @internal */
  constructor(...queries: (SearchQuery | SearchQuery[])[]) {
    super({ disjuncts: queries.flat() })
  }

  /** Adds queries. */
  or(...queries: SearchQuery[] | [SearchQuery[]]): this {
    this._data['disjuncts'].push(...queries.flat())
    return this
  }
}

/** Combines queries that must, should and must not match. */
export class BooleanSearchQuery extends SearchQuery {
  /** Sets the queries that must all match. */
  must(query: ConjunctionSearchQuery): this {
    return this._set({ must: compound(query, ConjunctionSearchQuery, 'conjuncts') })
  }

  /** Sets the queries that add to the score if they match. */
  should(query: DisjunctionSearchQuery): this {
    return this._set({ should: compound(query, DisjunctionSearchQuery, 'disjuncts') })
  }

  /** Sets the queries of which none may match. */
  mustNot(query: DisjunctionSearchQuery): this {
    return this._set({ must_not: compound(query, DisjunctionSearchQuery, 'disjuncts') })
  }

  /** Sets the minimum number of matching queries in `should`. */
  shouldMin(shouldMin: number): this {
    return this._set({ shouldMin })
  }

  override toJSON(): any {
    const { shouldMin, should, ...data } = this._data
    if (should === undefined) return data
    const json = SearchQuery.toJSON(should)
    return { ...data, should: shouldMin === undefined ? json : { ...json, min: shouldMin } }
  }
}

/** Matches documents with a term that matches a pattern with `*` and `?`. */
export class WildcardSearchQuery extends FieldQuery {}

/** Matches documents by their keys. */
export class DocIdSearchQuery extends FieldQuery {
  /** Adds keys. */
  addDocIds(...ids: string[] | [string[]]): this {
    this._data['ids'].push(...ids.flat())
    return this
  }
}

/** Matches documents whose field is true, or false. */
export class BooleanFieldSearchQuery extends FieldQuery {}

/** Matches documents with an exact term. */
export class TermSearchQuery extends FuzzyQuery {}

/** Matches documents with a phrase of exact terms. */
export class PhraseSearchQuery extends FieldQuery {}

/** Matches documents with a term that has a prefix. */
export class PrefixSearchQuery extends FieldQuery {}

/** Matches all documents. */
export class MatchAllSearchQuery extends SearchQuery {}

/** Matches no document. */
export class MatchNoneSearchQuery extends SearchQuery {}

/** Matches documents within a distance of a point. */
export class GeoDistanceSearchQuery extends FieldQuery {}

/** Matches documents in a box, given by two corners. */
export class GeoBoundingBoxSearchQuery extends FieldQuery {}

/** Matches documents in a polygon. */
export class GeoPolygonSearchQuery extends FieldQuery {}

/** Wraps a query of another kind as the only part of a compound query. */
function compound<Q extends SearchQuery>(query: SearchQuery, Kind: new (query: SearchQuery) => Q, member: string): any {
  return SearchQuery.hasProp(query, member) ? query : new Kind(query)
}

function dateOf(date: Date | string): string {
  return date instanceof Date ? date.toISOString() : date
}

function placeOf(point: GeoPoint): [number, number] {
  if (Array.isArray(point)) return [point[0], point[1]]
  if ('lon' in point) return [point.lon, point.lat]
  if ('longitude' in point) return [point.longitude, point.latitude]
  throw new InvalidArgumentError('a place has a longitude and a latitude')
}
