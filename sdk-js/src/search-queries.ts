/**
 * Queries of the search service, built in steps: `SearchQuery.match('sea view').field('text').fuzziness(1)`.
 *
 * A query is sent as the JSON that `toJSON` gives; the service checks what it means.
 */

import { InvalidArgumentError } from './errors.js'

/** Whether all words of a match query have to be there. */
export const MatchOperator = {
  Or: 'or',
  And: 'and',
} as const
/** Whether all words of a match query have to be there. */
export type MatchOperator = (typeof MatchOperator)[keyof typeof MatchOperator]

/** A place on earth in degrees; an array has the longitude first. */
export type GeoPoint =
  | [longitude: number, latitude: number]
  | { lon: number; lat: number }
  | { longitude: number; latitude: number }

/** Members of the JSON object that something is sent as. */
type Members = Record<string, any>

/** Something that a request has as a JSON object, and whose methods set members of it. */
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

  /** Sets members, and leaves those as they are that are given as undefined. */
  protected _set(members: Members): this {
    for (const [name, value] of Object.entries(members)) if (value !== undefined) this._data[name] = value
    return this
  }
}

/** What to look for. */
export class SearchQuery extends SearchPart {
  /** How much more the query counts than others; 1 by default. */
  boost(boost: number): this {
    return this._set({ boost })
  }

  /** @internal The JSON object of a query, which may be given as one. */
  static toJSON(query: SearchQuery | any): any {
    return query instanceof SearchQuery ? query.toJSON() : query
  }

  /** @internal Returns true if the JSON object of a query has a member. */
  static hasProp(query: SearchQuery | any, prop: string): boolean {
    return SearchQuery.toJSON(query)[prop] !== undefined
  }

  /** Documents with words, each as the analyzer of the field has it. */
  static match(match: string): MatchSearchQuery {
    return new MatchSearchQuery({ match })
  }

  /** Documents with words one behind the other. */
  static matchPhrase(phrase: string): MatchPhraseSearchQuery {
    return new MatchPhraseSearchQuery({ match_phrase: phrase })
  }

  /** Documents with a term that an expression matches. */
  static regexp(regexp: string): RegexpSearchQuery {
    return new RegexpSearchQuery({ regexp })
  }

  /** A query in the language of the service. */
  static queryString(query: string): QueryStringSearchQuery {
    return new QueryStringSearchQuery({ query })
  }

  /** Documents whose number is between two. */
  static numericRange(): NumericRangeSearchQuery {
    return new NumericRangeSearchQuery({})
  }

  /** Documents whose date is between two. */
  static dateRange(): DateRangeSearchQuery {
    return new DateRangeSearchQuery({})
  }

  /** Documents whose term is between two. */
  static termRange(): TermRangeSearchQuery {
    return new TermRangeSearchQuery({})
  }

  /** Documents that all queries find. */
  static conjuncts(...queries: SearchQuery[] | [SearchQuery[]]): ConjunctionSearchQuery {
    return new ConjunctionSearchQuery(...(queries as SearchQuery[]))
  }

  /** Documents that at least one of the queries finds. */
  static disjuncts(...queries: SearchQuery[] | [SearchQuery[]]): DisjunctionSearchQuery {
    return new DisjunctionSearchQuery(...(queries as SearchQuery[]))
  }

  /** Documents that must, should and must not be found by queries. */
  static boolean(): BooleanSearchQuery {
    return new BooleanSearchQuery({})
  }

  /** Documents with a term that a pattern with `*` and `?` matches. */
  static wildcard(wildcard: string): WildcardSearchQuery {
    return new WildcardSearchQuery({ wildcard })
  }

  /** Documents by their keys. */
  static docIds(...ids: string[] | [string[]]): DocIdSearchQuery {
    return new DocIdSearchQuery({ ids: ids.flat() })
  }

  /** Documents whose field is true, or false. */
  static booleanField(val: boolean): BooleanFieldSearchQuery {
    return new BooleanFieldSearchQuery({ bool: val })
  }

  /** Documents with a term as it is in the index. */
  static term(term: string): TermSearchQuery {
    return new TermSearchQuery({ term })
  }

  /** Documents with terms one behind the other. */
  static phrase(terms: string[]): PhraseSearchQuery {
    return new PhraseSearchQuery({ terms })
  }

  /** Documents with a term that begins so. */
  static prefix(prefix: string): PrefixSearchQuery {
    return new PrefixSearchQuery({ prefix })
  }

  /** All documents. */
  static matchAll(): MatchAllSearchQuery {
    return new MatchAllSearchQuery({ match_all: null })
  }

  /** No document. */
  static matchNone(): MatchNoneSearchQuery {
    return new MatchNoneSearchQuery({ match_none: null })
  }

  /** Documents no farther from a place than a distance such as `10km`. */
  static geoDistance(lon: number, lat: number, distance: string): GeoDistanceSearchQuery {
    return new GeoDistanceSearchQuery({ location: [lon, lat], distance })
  }

  /** Documents between two corners of a box. */
  static geoBoundingBox(tl_lon: number, tl_lat: number, br_lon: number, br_lat: number): GeoBoundingBoxSearchQuery {
    return new GeoBoundingBoxSearchQuery({ top_left: [tl_lon, tl_lat], bottom_right: [br_lon, br_lat] })
  }

  /** Documents within a polygon. */
  static geoPolygon(points: GeoPoint[]): GeoPolygonSearchQuery {
    return new GeoPolygonSearchQuery({ polygon_points: points.map(placeOf) })
  }
}

/** A query of one field, or of all of them when none is named. */
class FieldQuery extends SearchQuery {
  /** The field that is looked at. */
  field(field: string): this {
    return this._set({ field })
  }
}

/** A query of terms, from which those in the index may differ. */
class FuzzyQuery extends FieldQuery {
  /** Characters at the beginning that have to be the same. */
  prefixLength(prefixLength: number): this {
    return this._set({ prefix_length: prefixLength })
  }

  /** How many characters may differ. */
  fuzziness(fuzziness: number): this {
    return this._set({ fuzziness })
  }
}

/** Documents with words, each as the analyzer of the field has it. */
export class MatchSearchQuery extends FuzzyQuery {
  /** Whether all words have to be there. */
  operator(op: MatchOperator): this {
    return this._set({ operator: op })
  }

  /** The analyzer of the words, instead of the field's. */
  analyzer(analyzer: string): this {
    return this._set({ analyzer })
  }

}

/** Documents with words one behind the other. */
export class MatchPhraseSearchQuery extends FieldQuery {
  /** The analyzer of the words, instead of the field's. */
  analyzer(analyzer: string): this {
    return this._set({ analyzer })
  }
}

/** Documents with a term that an expression matches. */
export class RegexpSearchQuery extends FieldQuery {}

/** A query in the language of the service. */
export class QueryStringSearchQuery extends SearchQuery {}

/** Documents with a value between two. */
class RangeQuery<Value> extends FieldQuery {
  /** The least value; it is in the range unless `inclusive` is false. */
  min(min: Value, inclusive = true): this {
    return this._set({ min, inclusive_min: inclusive })
  }

  /** The greatest value; it is outside of the range unless `inclusive` is true. */
  max(max: Value, inclusive = false): this {
    return this._set({ max, inclusive_max: inclusive })
  }
}

/** Documents whose number is between two. */
export class NumericRangeSearchQuery extends RangeQuery<number> {}

/** Documents whose date is between two. */
export class DateRangeSearchQuery extends FieldQuery {
  /** The first date; it is in the range unless `inclusive` is false. */
  start(start: Date | string, inclusive = true): this {
    return this._set({ start: dateOf(start), inclusive_start: inclusive })
  }

  /** The last date; it is outside of the range unless `inclusive` is true. */
  end(end: Date | string, inclusive = false): this {
    return this._set({ end: dateOf(end), inclusive_end: inclusive })
  }

  /** The parser of both dates. */
  dateTimeParser(parser: string): this {
    return this._set({ datetime_parser: parser })
  }
}

/** Documents whose term is between two. */
export class TermRangeSearchQuery extends RangeQuery<string> {}

/** Documents that all queries find. */
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

/** Documents that at least one of the queries finds. */
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

/** Documents that must, should and must not be found by queries. */
export class BooleanSearchQuery extends SearchQuery {
  /** Queries that all have to find a document. */
  must(query: ConjunctionSearchQuery): this {
    return this._set({ must: compound(query, ConjunctionSearchQuery, 'conjuncts') })
  }

  /** Queries that count when they find a document. */
  should(query: DisjunctionSearchQuery): this {
    return this._set({ should: compound(query, DisjunctionSearchQuery, 'disjuncts') })
  }

  /** Queries of which none may find a document. */
  mustNot(query: DisjunctionSearchQuery): this {
    return this._set({ must_not: compound(query, DisjunctionSearchQuery, 'disjuncts') })
  }

  /** How many of the queries of `should` have to find a document. */
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

/** Documents with a term that a pattern with `*` and `?` matches. */
export class WildcardSearchQuery extends FieldQuery {}

/** Documents by their keys. */
export class DocIdSearchQuery extends FieldQuery {
  /** Adds keys. */
  addDocIds(...ids: string[] | [string[]]): this {
    this._data['ids'].push(...ids.flat())
    return this
  }
}

/** Documents whose field is true, or false. */
export class BooleanFieldSearchQuery extends FieldQuery {}

/** Documents with a term as it is in the index. */
export class TermSearchQuery extends FuzzyQuery {}

/** Documents with terms one behind the other. */
export class PhraseSearchQuery extends FieldQuery {}

/** Documents with a term that begins so. */
export class PrefixSearchQuery extends FieldQuery {}

/** All documents. */
export class MatchAllSearchQuery extends SearchQuery {}

/** No document. */
export class MatchNoneSearchQuery extends SearchQuery {}

/** Documents no farther from a place than a distance. */
export class GeoDistanceSearchQuery extends FieldQuery {}

/** Documents between two corners of a box. */
export class GeoBoundingBoxSearchQuery extends FieldQuery {}

/** Documents within a polygon. */
export class GeoPolygonSearchQuery extends FieldQuery {}

/** Takes a query of another kind as the only part of a compound one. */
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
